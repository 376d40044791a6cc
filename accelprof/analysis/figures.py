"""Tables that files bring themselves (sums by step, memory by operator), as text for the terminal and the page."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from accelprof.analysis.grid import Column, Grid
from accelprof.analysis.summary import Summary
from accelprof.analysis.toolfile import ToolFile
from accelprof.contracts.spans import Table
from accelprof.output.fields import is_number

#: rows that are shown; all are in ``--json``
MAX_ROWS = 40
NONE = "-"
_BYTES = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_TIMES = (("s", 1e9), ("ms", 1e6), ("µs", 1e3))


def cell(value: Any, unit: str) -> str:
    """A value of a column with ``unit`` (``ns``, ``bytes``, ``count``, ``share`` or empty) as text; a dash for none."""
    if value is None:
        return NONE
    if unit == "ns":
        return next((f"{value / size:.4g} {name}" for name, size in _TIMES if abs(value) >= size), f"{value:.0f} ns")
    if unit == "bytes":
        return next((f"{value / size:,.4g} {name}" for name, size in _BYTES if abs(value) >= size), f"{value:.0f} B")
    if unit == "share":
        return f"{value:.1%}"
    return f"{value:,}" if unit == "count" else str(value)


def figures_of(file: ToolFile) -> str:
    """What a file without spans comes to, in a line."""
    return ", ".join(
        f"{name.removesuffix('_bytes').replace('_', ' ')} {cell(value, _unit(name, value))}"
        for name, value in file.facts.items()
    )


def _unit(name: str, value: object) -> str:
    return ("bytes" if name.endswith("_bytes") else "count") if is_number(value) else ""


def shown(table: Table) -> tuple[list[list[str]], str]:
    """Rows of ``table`` as text, and its note with how many rows are left out."""
    units = [unit for _, unit in table.columns]
    rows = [[cell(value, unit) for value, unit in zip(row, units, strict=True)] for row in table.rows[:MAX_ROWS]]
    left = len(table.rows) - len(rows)
    return rows, f"… and {left} more (--json).{' ' * bool(table.note)}{table.note}" if left else table.note


def grids(summary: Summary) -> Iterator[Grid]:
    """One grid a table, its file in the title."""
    for file in summary.files:
        for table in file.tables:
            columns = [
                Column(name, rank=max(0, at - 3), label=not unit) for at, (name, unit) in enumerate(table.columns)
            ]
            rows, note = shown(table)
            name = os.path.basename(file.path.rstrip(os.sep))
            where = name if file.worker.label == name else f"{file.worker.label}: {name}"
            grid = Grid(f"{table.title} · {where}", columns, note=note)
            for row in rows:
                grid.add(*row)
            yield grid
