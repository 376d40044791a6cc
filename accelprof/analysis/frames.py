"""What a summary holds as tables of plain rows: the terminal, CSV, Parquet and data frames are made of these.

Times are whole or mean ns and say so in their names; absent figures are ``None``.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from accelprof.analysis.division import PARTS
from accelprof.analysis.report_rows import (
    Cost,
    DevicePhase,
    DeviceRow,
    Drift,
    FilePhase,
    LeftOver,
    Memory,
    OperatorRow,
    Outlier,
    PhaseLine,
    Slack,
    StepTime,
    Straggler,
    UnseenWait,
    columns_of,
)
from accelprof.analysis.summary import Summary
from accelprof.analysis.toolfile import ToolFile

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

Row = dict[str, Any]


def phases(summary: Summary) -> Iterator[PhaseLine]:
    """A row a phase and group, over all ranks and windows."""
    names = columns_of(PhaseLine)
    for row in summary.phases:
        yield cast("PhaseLine", {**{name: getattr(row, name) for name in names}, "missing": len(row.missing)})


def ranks(summary: Summary) -> Iterator[Row]:
    """A row a phase and worker."""
    for row in summary.phases:
        for worker, figures in row.ranks.items():
            yield {
                "group": row.group,
                "phase": row.phase,
                "worker": worker,
                "calls": figures.calls,
                "total_ns": figures.total_ns,
                "per_window_ns": figures.per_window_ns,
            }


def windows(summary: Summary) -> Iterator[Row]:
    """A row a window and worker, on the worker's own clock."""
    for timeline in summary.timelines:
        for identity, steps, start, end in timeline.windows:
            yield {
                "worker": timeline.worker.label,
                "window": identity,
                "steps": ",".join(map(str, steps)),
                "start_ns": start,
                "end_ns": end,
                "window_ns": end - start,
            }


#: of a row of devices, what adds up
_OF_DEVICE = (
    "kernels", "copies", "busy_ns", "kernel_ns", "communication_ns", "idle_ns", "span_ns", "window_ns", "busy_in_window_ns",
)  # fmt: skip


def devices(summary: Summary) -> Iterator[DeviceRow]:
    """A row a worker, tool and device, over its files."""
    found: dict[tuple[str, str, str], Row] = {}
    whole: dict[tuple[str, str, str], bool] = {}
    for file in summary.files:
        for row in file.attribution.devices:
            key = (file.worker.label, file.tool, str(row.device))
            first = {"worker": key[0], "tool": key[1], "device": key[2], "files": 0, **dict.fromkeys(_OF_DEVICE, 0)}
            mine = found.setdefault(key, first)
            mine["files"] += 1
            whole[key] = whole.get(key, True) and bool(row.window_ns)
            for name in _OF_DEVICE:
                mine[name] += getattr(row, name)
    for key, mine in found.items():
        yield _with_shares(mine, whole[key])


def devices_together(name: str, rows: Sequence[DeviceRow]) -> DeviceRow:
    """Several rows as one of the name ``name``."""
    sums = {what: sum(cast("Row", row)[what] for row in rows) for what in ("files", *_OF_DEVICE)}
    return _with_shares(
        {"worker": name, "tool": "", "device": "", **sums}, all(row["share_of"] == "window" for row in rows)
    )


def _with_shares(row: Row, of_window: bool) -> DeviceRow:
    """``of_window``: whether all its files say which windows they hold."""
    work = row["busy_ns"] / row["span_ns"] if row["span_ns"] else None
    window = row["busy_in_window_ns"] / row["window_ns"] if of_window and row["window_ns"] else None
    of = {"busy_share": work, "share_of": "work"} if window is None else {"busy_share": window, "share_of": "window"}
    return cast("DeviceRow", {**row, **of, "work_share": work})


def device_phases(summary: Summary) -> Iterator[DevicePhase]:
    """A row a tool and phase: device time over all windows and ranks, the longest first."""
    found: dict[tuple[str, str], Row] = {}
    top: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for file in summary.files:
        for row in _device_phases(file):
            key = (file.tool, row["phase"])
            for name, _, total in row.pop("top"):
                top[key][name] += total
            mine = found.setdefault(key, {"tool": file.tool, "phase": row["phase"], "files": 0})
            mine["files"] += 1
            for name, value in row.items():
                if name not in ("phase", "file") and value is not None:
                    mine[name] = mine.get(name, 0) + value
    for key, mine in sorted(found.items(), key=lambda item: -item[1].get("busy_ns", 0)):
        longest = max(top[key], key=lambda name: top[key][name], default=None)
        figures = {**dict.fromkeys(columns_of(DevicePhase)), **mine, "longest_kernel": longest}
        yield cast("DevicePhase", figures)


def left_over(summary: Summary) -> Iterator[LeftOver]:
    """A row a tool and reason for which kernels stand in no phase (``held``: in a framework's range, and in no phase around
    it), over all files: the most kernels first."""
    found: Counter[tuple[str, str, bool]] = Counter()
    for file in summary.files:
        for held, rows in ((False, file.attribution.left_over()), (True, file.attribution.around())):
            for reason, count in rows if file.attribution.phases else ():
                found[file.tool, reason, held] += count
    for (tool, reason, held), count in found.most_common():
        yield {"tool": tool, "reason": reason, "held": held, "kernels": count}


def file_phases(summary: Summary) -> Iterator[FilePhase]:
    """A row a file and phase: device time inside it."""
    for file in summary.files:
        for row in _device_phases(file):
            longest = next((name for name, _, _ in row.pop("top")), None)
            yield cast("FilePhase", {"worker": file.worker.label, "tool": file.tool, **row, "longest_kernel": longest})


def _device_phases(file: ToolFile) -> Iterator[Row]:
    for row in file.attribution.phases:
        yield {
            "file": file.path,
            "phase": row.name,
            "calls": row.calls,
            "wall_ns": row.wall_ns,
            "busy_ns": sum(row.busy_ns.values()) if row.busy_ns else None,
            "own_busy_ns": sum(row.own_busy_ns.values()) if row.own_busy_ns else None,
            "idle_ns": row.idle_ns,
            "communication_ns": row.communication_ns,
            "kernels": row.kernels,
            "top": row.top,
        }


def kernels(summary: Summary) -> Iterator[Row]:
    """A row a tool, phase and kernel among the longest of the phase, over all files."""
    found: dict[tuple[str, str, str], Row] = {}
    for file in summary.files:
        for row in file.attribution.phases:
            for name, count, total in row.top:
                none = {"tool": file.tool, "phase": row.name, "kernel": name, "count": 0, "total_ns": 0}
                mine = found.setdefault((file.tool, row.name, name), none)
                mine["count"] += count
                mine["total_ns"] += total
    yield from sorted(found.values(), key=lambda row: -row["total_ns"])


def step_phases(summary: Summary) -> Iterator[Row]:
    """A row a step and phase of every announced step, profiled or not: seconds over ranks, as ns."""
    for row in summary.run.steps():
        for phase, figures in row["seconds"].items():
            yield {
                "step": row.get("step"),
                "phase": phase,
                **{f"{name}_ns": figures[name] * 1e9 for name in ("min", "mean", "max") if name in figures},
            }


def files(summary: Summary) -> Iterator[Row]:
    """A row a file of a tool."""
    for file in summary.files:
        yield {
            "worker": file.worker.label,
            "tool": file.tool,
            "file": os.path.basename(file.path),
            "windows": ",".join(file.windows),
            "kernels": file.attribution.kernels,
            "note": file.note or None,
        }


def _listed(name: str) -> Callable[[Summary], Iterator[Row]]:
    """Rows that the summary has as plain data under ``name``."""

    def rows(summary: Summary) -> Iterator[Row]:
        report: Mapping[str, Any] = summary.to_json()
        for row in report[name]:
            yield dict(_flat(row))

    return rows


def _flat(row: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}_")
        elif isinstance(value, (list, tuple)):
            yield prefix + key, ", ".join(map(str, value))
        else:
            yield prefix + key, value


def critical_path(summary: Summary) -> Iterator[Row]:
    """A row a stretch of each step's critical path, in order."""
    for step in summary.to_json().get("critical_path") or ():
        for number, segment in enumerate(step.get("segments") or ()):
            yield {
                "step": step.get("step"), "wall_ns": step.get("wall_ns"), "number": number, **dict(_flat(segment)),
                "ended": step.get("ended", True), "unseen": segment.get("unseen", False),
            }  # fmt: skip


def slack(summary: Summary) -> Iterator[Row]:
    """A row a phase on a worker that is not on a step's critical path."""
    for row in summary.to_json()["slack"]:
        yield {**row, "unseen": row.get("unseen", False)}


def operators(summary: Summary) -> Iterator[OperatorRow]:
    """A row an operator, phase and tool, over all files: the most self time first."""
    yield from summary.operators.to_json()


#: name of a table -> its rows, its columns, and what is in them where there is anything (a step may be text: ``4-9``)
_TABLES: dict[str, tuple[Callable[[Summary], Iterator[Mapping[str, Any]]], dict[str, type]]] = {
    "phases": (phases, columns_of(PhaseLine)),
    "ranks": (ranks, {"group": str, "phase": str, "worker": str, "calls": int, "total_ns": int, "per_window_ns": float}),
    "windows": (windows, {"worker": str, "window": str, "steps": str, "start_ns": int, "end_ns": int, "window_ns": int}),
    "steps": (_listed("steps"), columns_of(StepTime)),
    "step_phases": (step_phases, {"step": int, "phase": str, "min_ns": float, "mean_ns": float, "max_ns": float}),
    "outliers": (_listed("outliers"), columns_of(Outlier)),
    "drift": (_listed("drift"), columns_of(Drift)),
    "devices": (devices, columns_of(DeviceRow)),
    "device_phases": (device_phases, columns_of(DevicePhase)),
    "left_over": (left_over, columns_of(LeftOver)),
    "file_phases": (file_phases, columns_of(FilePhase)),
    "kernels": (kernels, {"tool": str, "phase": str, "kernel": str, "count": int, "total_ns": int}),
    "operators": (operators, columns_of(OperatorRow)),
    "memory": (_listed("memory"), columns_of(Memory)),
    "cost": (_listed("cost"), columns_of(Cost)),
    "seconds": (_listed("seconds"), {
        "worker": str, "window": str, "device": int, "window_ns": int, **{f"parts_{name}": int for name in PARTS},
    }),
    "stragglers": (_listed("stragglers"), columns_of(Straggler)),
    "critical_path": (critical_path, {
        "step": int, "wall_ns": int, "number": int, "worker": str, "phase": str, "ns": int, "ended": bool, "unseen": bool,
    }),
    "unseen": (_listed("unseen"), columns_of(UnseenWait)),
    "slack": (slack, columns_of(Slack)),
    "files": (files, {"worker": str, "tool": str, "file": str, "windows": str, "kernels": int, "note": str}),
}  # fmt: skip
#: name of a table -> its columns
TABLES = {name: columns for name, (_, columns) in _TABLES.items()}


@dataclass(frozen=True)
class Table:
    """One table of a summary.

    Attributes:
        columns: names and types, also of a table without rows: those of :data:`TABLES`, then those that some rows have
            besides (other figures of memory). A column with values may hold other types too.
        rows: the values, all of the columns in each.
    """

    columns: dict[str, type]
    rows: list[Row]

    @property
    def unvalued(self) -> dict[str, type]:
        """The columns of which no value shows the type."""
        return {name: kind for name, kind in self.columns.items() if all(row[name] is None for row in self.rows)}


def table(summary: Summary, name: str) -> Table:
    """A table by its name in :data:`TABLES`."""
    rows, columns = _TABLES[name]
    found, columns = list(rows(summary)), dict(columns)
    for row in found:
        for key, value in row.items():
            if value is not None:
                columns.setdefault(key, type(value))
    empty = dict.fromkeys(columns)
    return Table(columns, [{**empty, **row} for row in found])


def polars_frame(table: Table) -> polars.DataFrame:
    """A table in polars.

    Raises:
        ImportError: polars is not installed.
    """
    import polars

    if not table.rows:
        return polars.DataFrame(schema=table.columns)
    return polars.DataFrame(table.rows, schema_overrides=table.unvalued, infer_schema_length=None)


def arrow_table(table: Table) -> pyarrow.Table:
    """A table in Arrow.

    Raises:
        ImportError: pyarrow is not installed.
    """
    import pyarrow

    kinds = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}
    unvalued = table.unvalued
    columns = {}
    for name in table.columns:
        values = [row[name] for row in table.rows]
        # steps 3 and 4-9: as polars has them
        if name not in unvalued and any(isinstance(value, str) for value in values):
            values = [None if value is None else str(value) for value in values]
        columns[name] = pyarrow.array(values, kinds[unvalued[name]] if name in unvalued else None)
    return pyarrow.table(columns)


def pandas_frame(table: Table) -> pandas.DataFrame:
    """A table in pandas; a column without any value has pandas' type for absent ones.

    Raises:
        ImportError: pandas is not installed.
    """
    import pandas

    kinds = {str: "object", int: "Int64", float: "float64", bool: "boolean"}
    frame = pandas.DataFrame.from_records(table.rows, columns=list(table.columns))
    return frame.astype({name: kinds[kind] for name, kind in table.unvalued.items()})
