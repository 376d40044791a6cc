"""SQLite files as other tools leave them, with what may lie beside them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from accelprof.reading.sqlite import fault, tables_of


def database(path: Path) -> Path:
    made = sqlite3.connect(path)
    made.execute("CREATE TABLE told (x)")
    made.commit()
    made.close()
    return path


def test_an_empty_log_beside_a_database_changes_nothing(tmp_path: Path) -> None:
    """It is read as if it stood alone, and nothing is written beside it."""
    path = database(tmp_path / "a.db")
    (tmp_path / "a.db-wal").touch()
    assert tables_of(str(path)) == ["told"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.db", "a.db-wal"]


@pytest.mark.parametrize(
    ("beside", "error", "said"),
    [
        (b"log", "unable to open database file", "a part of the database is in the -wal beside it"),
        (b"", "unable to open database file", "the database is damaged"),
        (b"", "database is locked", "the database is being written by somebody"),
        (b"", "file is not a database", "the database is damaged"),
    ],
)
def test_what_cannot_be_opened_now_is_not_called_damaged(tmp_path: Path, beside: bytes, error: str, said: str) -> None:
    """What SQLite says of a directory that is read-only, and of a database that is in use, is no damage."""
    path = database(tmp_path / "a.db")
    (tmp_path / "a.db-wal").write_bytes(beside)
    assert fault(str(path), sqlite3.OperationalError(error)).startswith(said)
