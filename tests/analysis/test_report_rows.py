"""Rows of the report keep their keys: who makes them, their table, and the files that were written before."""

from __future__ import annotations

from accelprof.analysis.critical import stragglers
from accelprof.analysis.frames import TABLES
from accelprof.analysis.report_rows import Straggler, columns_of
from tests.analysis.test_whole_second import two_ranks

STRAGGLERS = {
    "step": int, "phase": str, "number": int, "group": str, "worker": str, "waited_ns": int, "low_ns": int,
    "high_ns": int, "waited_by": str, "late_in": str, "missing": str, "without_ns": int, "transfer_ns": int, "on": str,
    "process_group": str,
}  # fmt: skip


def test_stragglers_have_their_columns_in_order() -> None:
    """Names, order and types of the table of stragglers, and of the rows that hosts' collectives give."""
    assert list(columns_of(Straggler).items()) == list(STRAGGLERS.items())
    assert TABLES["stragglers"] == STRAGGLERS
    rows = stragglers(two_ranks())
    assert rows
    assert all(list(row) == list(STRAGGLERS) for row in rows)
