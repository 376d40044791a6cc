"""SQLite files that other tools left: opened so that nothing is written beside them, and what is said of a damaged one."""

from __future__ import annotations

import functools
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from urllib.parse import quote

from accelprof.contracts.spans import Trace
from accelprof.errors import ReadError

MAGIC = b"SQLite format 3\0"
#: what SQLite raises for a file that is none, or whose names, texts or numbers are none
DAMAGED = (sqlite3.Error, UnicodeDecodeError, OverflowError)
#: bytes in which the names of tables stand, whatever became of the rest
SCHEMA = 1 << 18


def is_one(path: str) -> bool:
    """Whether a file begins as a database does."""
    if not os.path.isfile(path):  # opening a FIFO waits
        return False
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def opened(path: str) -> sqlite3.Connection:
    """The database, read only.

    Raises:
        ReadError: not there, empty, or no database.
    """
    if not os.path.isfile(path):
        raise ReadError(path, "no such file")
    if not is_one(path):
        raise ReadError(path, "not an SQLite file" if os.path.getsize(path) else "the file is empty")
    # immutable: files lie on read-only and network file systems where SQLite's locks fail; not with what is still beside it
    immutable = "" if _log_beside(path) else "&immutable=1"
    database = sqlite3.connect(f"file:{quote(os.path.abspath(path))}?mode=ro{immutable}", uri=True)
    # a name that is no UTF-8 is no reason to read nothing of the file
    database.text_factory = functools.partial(str, encoding="utf-8", errors="replace")
    return database


def read(path: str, what: str, of: Callable[[sqlite3.Connection], Trace], source: str = "") -> Trace:
    """The trace that ``of`` makes of a database; one that is cut off counts as that, whatever could be read. ``what`` it is, and
    ``source``, the file it was made from where that is another, are for errors.

    Raises:
        ReadError: as :func:`opened`, or damaged; the message says how.
    """
    try:
        with closing(opened(path)) as database:
            trace = of(database)
    except DAMAGED as error:
        raise ReadError(source or path, f"{what}; {fault(path, error)}") from None
    trace.completeness.cut = cut_off(path)
    if trace.completeness.cut:
        trace.problems.insert(0, trace.completeness.cut)
    return trace


def rows(database: sqlite3.Connection, table: str) -> Iterator[dict[str, Any]]:
    """The rows of a table or view, by the names of its columns."""
    found = database.execute(f'SELECT * FROM "{table}"')
    names = [column for column, *_ in found.description]
    for row in found:
        yield dict(zip(names, row, strict=True))


def _log_beside(path: str) -> bool:
    """Whether something that is not in the file yet lies beside it."""
    try:
        return os.path.getsize(f"{path}-wal") > 0
    except OSError:
        return False


def tables_of(path: str) -> list[str]:
    """The names of its tables and views.

    Raises:
        ReadError: as :func:`opened`, or damaged; the message says how.
    """
    database = opened(path)
    try:
        found = database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        return [str(name) for (name,) in found]
    except DAMAGED as error:
        raise ReadError(path, fault(path, error)) from None
    finally:
        database.close()


def mentions(path: str, *names: bytes) -> bool:
    """Whether a database has one of these names in its beginning: what it was, where it is damaged."""
    if not is_one(path):
        return False
    with open(path, "rb") as file:
        head = file.read(SCHEMA)
    return any(name in head for name in names)


def cut_off(path: str) -> str:
    """Why the file is shorter than it says; empty when it is not. Pages that nobody asks for raise nothing."""
    with open(path, "rb") as file:
        head = file.read(100)
    page, pages = int.from_bytes(head[16:18], "big"), int.from_bytes(head[28:32], "big")
    page = 65_536 if page == 1 else page
    size = os.path.getsize(path)
    if len(head) < 100:
        return f"the database is cut off: {size:,} bytes are there, less than its header has"
    if head[24:28] == head[92:96] and size < page * pages:
        return f"the database is cut off: {size:,} of its {page * pages:,} bytes are there"
    return ""


def fault(path: str, error: Exception) -> str:
    """What is wrong with a database whose reading ended in ``error``, one of :data:`DAMAGED`."""
    cut = cut_off(path)
    if not cut and _log_beside(path) and "unable to open" in str(error):
        return f"a part of the database is in the -wal beside it, which SQLite reads only where it may write: copy both elsewhere ({error})"
    if not cut and "locked" in str(error):
        return f"the database is being written by somebody ({error})"
    return f"{cut or 'the database is damaged'} ({error})"
