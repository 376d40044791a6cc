"""Every reader's file under every other's name, whole and cut: it is read as what it is, or said to be it."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from accelprof.analysis.reading import load_any
from accelprof.contracts.spans import Trace
from accelprof.errors import ReadError
from tests.fuzz import files as fuzzed

#: names that readers know their files by
NAMES = (
    "trace_view.json", "msprof_2026.json", "msprof_2026.db", "t.pt.trace.json", "w.timeline.json", "w.trace.json", "n.sqlite",
    "n.nsys-rep", "n.qdstrm", "x.pftrace", "x-perfetto-trace-41.proto", "h.xplane.pb", "ascend_pytorch_profiler_0.db",
    "41_results.db", "41_results.json", "python.41.json", "g_kernel_trace.csv", "kernel_details.csv", "memory_record.csv",
    "plain.json", "plain.db", "metadata-41.json", "noname",
)  # fmt: skip


@pytest.fixture(scope="module")
def seeds() -> dict[str, tuple[str, str, bytes]]:
    """Format -> ``(name, tool, content)``."""
    return fuzzed.seeds()


def written(path: Path, content: bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return str(path)


def held(trace: Trace) -> Any:
    return Counter((span.name, span.kind, span.start_ns, span.end_ns) for span in trace.spans), len(trace.tables)


def test_a_file_is_what_it_holds_under_every_name(tmp_path: Path, seeds: dict[str, tuple[str, str, bytes]]) -> None:
    """Spans and kinds are those under its own name; other text than JSON, and packets, may be refused. No kernel becomes a phase."""
    wrong = []
    for kind, (own, tool, content) in seeds.items():
        expected = held(load_any(written(tmp_path / kind / own, content), tool).trace())
        for name in NAMES:
            path = written(tmp_path / kind / "as" / name, content)
            for said in (None, tool, "torch"):
                try:
                    found = load_any(path, said).trace()
                except ReadError as error:
                    if content.startswith((b"{", b"[", b"SQLite")):
                        wrong.append(f"{kind} as {name}: refused: {error.reason}")
                    continue
                if held(found) != expected:
                    wrong.append(f"{kind} as {name} ({said}): by {found.tool}: {held(found)}, not {expected}")
    assert not wrong, "\n".join(line[:300] for line in wrong)


def test_a_cut_database_is_said_to_be_one(tmp_path: Path, seeds: dict[str, tuple[str, str, bytes]]) -> None:
    """Wherever it was cut: what can be read is, as a cut file; otherwise the error says that it is a database, and cut."""
    for kind, (own, _, content) in seeds.items():
        if not content.startswith(b"SQLite"):
            continue
        for hundredth in (*range(1, 100, 3), 99):
            path = written(tmp_path / kind / own, content[: max(20, len(content) * hundredth // 100)])
            try:
                assert "the database is cut off" in load_any(path).trace().completeness.cut, (kind, hundredth)
            except ReadError as error:
                assert "the database is cut off" in error.reason, (kind, hundredth)
        for at in range(100, 4096, 200):  # the pages that say where the others are
            path = written(tmp_path / kind / own, content[:at] + b"\xff" * 200 + content[at + 200 :])
            try:
                load_any(path).trace()
            except ReadError as error:
                assert "database" in error.reason
                assert "no registered tool reads this file" not in error.reason


def test_a_database_of_nobody_is_said_with_its_tables(tmp_path: Path) -> None:
    """It is a database, of which tables, and no file that cannot be recognised."""
    with closing(sqlite3.connect(tmp_path / "x.db")) as database:
        database.execute("CREATE TABLE users (id)")
    with pytest.raises(ReadError, match=r"an SQLite database that no registered tool reads \(tables: users\)"):
        load_any(str(tmp_path / "x.db"))
    path = written(tmp_path / "y.pt.trace.json", (tmp_path / "x.db").read_bytes()[:50])
    with pytest.raises(ReadError, match="an SQLite database, but the database is cut off: 50 bytes"):
        load_any(path, "torch")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"traceEvents": {"a": 1}}', "JSON, but no trace: traceEvents is an object, not a list of events"),
        ('{"a": 1, "traceEvents": null}', "JSON, but no trace: traceEvents is null, not a list of events"),
        ('{"traceEvents": "x"}', "traceEvents is text"),
        ('{"traceEvents": -5}', "traceEvents is a number"),
        ('{"a": 1}', "there is no traceEvents (keys: a)"),
        ('{"a": 1}\n\n{"a": 2}\n{"a": 3', "JSON lines (a document on each line)"),
        ('{"a": 1} {"a": 2}', "no traceEvents in it"),
    ],
)
def test_json_without_events_is_said_for_what_it_is(tmp_path: Path, text: str, says: str) -> None:
    """Something else where the events should be, lines of documents, and nothing of the kind are three things."""
    with pytest.raises(ReadError) as error:
        load_any(written(tmp_path / "x.json", text.encode())).trace()
    assert says in error.value.reason
