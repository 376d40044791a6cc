"""What a summary holds as tables of plain rows: the terminal, CSV, Parquet and data frames are made of these.

Times are whole or mean ns and say so in their names; absent figures are ``None``.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from accelprof.analysis.accounts import cost_rows
from accelprof.analysis.attribution import DeviceFigures, PhaseFigures
from accelprof.analysis.division import PARTS
from accelprof.analysis.memory import FIGURES, memory_rows
from accelprof.analysis.report_rows import (
    Cost,
    DevicePhase,
    DeviceRow,
    Drift,
    FileLine,
    FilePhase,
    KernelLine,
    LeftOver,
    Memory,
    OperatorRow,
    Outlier,
    PhaseLine,
    RankLine,
    Row,
    SegmentLine,
    SlackRow,
    StepPhase,
    StepTime,
    Straggler,
    UnseenWait,
    WindowLine,
    columns_of,
)
from accelprof.analysis.seconds import Second
from accelprof.analysis.summary import Summary

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


def phases(summary: Summary) -> Iterator[PhaseLine]:
    """A row a phase and group, over all ranks and windows."""
    for row in summary.phases:
        yield PhaseLine(
            row.group, row.phase, row.parent, row.depth, row.calls, row.cut, row.total_ns, row.mean_ns, row.p50_ns,
            row.p95_ns, row.self_ns, row.share, row.slowest, row.fastest, row.spread, len(row.missing),
        )  # fmt: skip


def ranks(summary: Summary) -> Iterator[RankLine]:
    """A row a phase and worker."""
    for row in summary.phases:
        for worker, figures in row.ranks.items():
            yield RankLine(row.group, row.phase, worker, figures.calls, figures.total_ns, figures.per_window_ns)


def windows(summary: Summary) -> Iterator[WindowLine]:
    """A row a window and worker, on the worker's own clock."""
    for timeline in summary.timelines:
        for identity, steps, start, end in timeline.windows:
            yield WindowLine(timeline.worker.label, identity, ",".join(map(str, steps)), start, end, end - start)


def devices(summary: Summary) -> Iterator[DeviceRow]:
    """A row a worker, tool and device, over its files."""
    found: dict[tuple[str, str, str], list[DeviceFigures]] = defaultdict(list)
    for file in summary.files:
        for row in file.attribution.devices:
            found[file.worker.label, file.tool, str(row.device)].append(row)
    for key, rows in found.items():
        yield _device(*key, len(rows), rows, all(row.window_ns for row in rows))


def devices_together(name: str, rows: Sequence[DeviceRow]) -> DeviceRow:
    """Several rows as one of the name ``name``."""
    return _device(name, "", "", sum(row.files for row in rows), rows, all(row.share_of == "window" for row in rows))


def _device(
    worker: str, tool: str, device: str, files: int, rows: Sequence[DeviceFigures | DeviceRow], of_window: bool
) -> DeviceRow:
    """The sum; ``of_window``: whether all its files say which windows they hold."""
    busy, span = sum(row.busy_ns for row in rows), sum(row.span_ns for row in rows)
    window, in_window = sum(row.window_ns for row in rows), sum(row.busy_in_window_ns for row in rows)
    work_share = busy / span if span else None
    window_share = in_window / window if of_window and window else None
    return DeviceRow(
        worker, tool, device, files, kernels=sum(row.kernels for row in rows), copies=sum(row.copies for row in rows),
        busy_ns=busy, kernel_ns=sum(row.kernel_ns for row in rows),
        communication_ns=sum(row.communication_ns for row in rows), idle_ns=sum(row.idle_ns for row in rows), span_ns=span,
        window_ns=window, busy_in_window_ns=in_window, busy_share=work_share if window_share is None else window_share,
        share_of="work" if window_share is None else "window", work_share=work_share,
    )  # fmt: skip


def device_phases(summary: Summary) -> Iterator[DevicePhase]:
    """A row a tool and phase: device time over all windows and ranks, the longest first."""
    found: dict[tuple[str, str], list[PhaseFigures]] = defaultdict(list)
    for file in summary.files:
        for row in file.attribution.phases:
            found[file.tool, row.name].append(row)
    lines = [DevicePhase(*_on_device(rows), tool, phase, len(rows)) for (tool, phase), rows in found.items()]
    yield from sorted(lines, key=lambda line: -(line.busy_ns or 0))


def file_phases(summary: Summary) -> Iterator[FilePhase]:
    """A row a file and phase: device time inside it."""
    for file in summary.files:
        for row in file.attribution.phases:
            yield FilePhase(*_on_device([row]), file.worker.label, file.tool, file.path, row.name)


def _on_device(
    rows: Sequence[PhaseFigures],
) -> tuple[int, int, int | None, int | None, int | None, int, int, str | None]:
    """The figures of :class:`PhaseOnDevice` of one phase in these files."""
    kernels: Counter[str] = Counter()
    for row in rows:
        for name, _, total in row.top:
            kernels[name] += total
    return (
        sum(row.calls for row in rows),
        sum(row.wall_ns for row in rows),
        _known(sum(row.busy_ns.values()) if row.busy_ns else None for row in rows),
        _known(sum(row.own_busy_ns.values()) if row.own_busy_ns else None for row in rows),
        _known(row.idle_ns for row in rows),
        sum(row.communication_ns for row in rows),
        sum(row.kernels for row in rows),
        max(kernels, key=lambda name: kernels[name], default=None),
    )


def _known(figures: Iterable[int | None]) -> int | None:
    """The sum of those that are known; ``None`` without any."""
    known = [one for one in figures if one is not None]
    return sum(known) if known else None


def left_over(summary: Summary) -> Iterator[LeftOver]:
    """A row a tool and reason for which kernels stand in no phase (``held``: in a framework's range, and in no phase around
    it), over all files: the most kernels first."""
    found: Counter[tuple[str, str, bool]] = Counter()
    for file in summary.files:
        for held, rows in ((False, file.attribution.left_over()), (True, file.attribution.around())):
            for reason, count in rows if file.attribution.phases else ():
                found[file.tool, reason, held] += count
    for (tool, reason, held), count in found.most_common():
        yield LeftOver(tool, reason, held, count)


def kernels(summary: Summary) -> Iterator[KernelLine]:
    """A row a tool, phase and kernel among the longest of the phase, over all files."""
    counts: Counter[tuple[str, str, str]] = Counter()
    totals: Counter[tuple[str, str, str]] = Counter()
    for file in summary.files:
        for row in file.attribution.phases:
            for name, count, total in row.top:
                counts[file.tool, row.name, name] += count
                totals[file.tool, row.name, name] += total
    for key, total in totals.most_common():
        yield KernelLine(*key, counts[key], total)


def step_phases(summary: Summary) -> Iterator[StepPhase]:
    """A row a step and phase of every announced step, profiled or not: seconds over ranks, as ns."""
    for row in summary.run.steps():
        for phase, figures in row["seconds"].items():
            least, mean, most = (figures[name] * 1e9 if name in figures else None for name in ("min", "mean", "max"))
            yield StepPhase(row["step"], phase, least, mean, most)


def files(summary: Summary) -> Iterator[FileLine]:
    """A row a file of a tool."""
    for file in summary.files:
        name, windows = os.path.basename(file.path), ",".join(file.windows)
        yield FileLine(file.worker.label, file.tool, name, windows, file.attribution.kernels, file.note or None)


def critical_path(summary: Summary) -> Iterator[SegmentLine]:
    """A row a stretch of each step's critical path, in order."""
    for path in summary.waits.critical_path:
        for number, one in enumerate(path.segments):
            yield SegmentLine(path.step, path.wall_ns, number, one.worker, one.phase, one.ns, path.ended, one.unseen)


def _of_seconds() -> dict[str, type]:
    columns = columns_of(Second)
    del columns["lost"], columns["parts"]
    return {**columns, **{f"parts_{name}": int for name in PARTS}}


def _of_memory() -> dict[str, type]:
    columns = columns_of(Memory)
    del columns["figures"]
    return {**columns, **dict.fromkeys(FIGURES, int)}


#: name of a table -> its rows, its columns, and what is in them where there is anything (a step may be text: ``4-9``)
_TABLES: dict[str, tuple[Callable[[Summary], Iterable[Row]], dict[str, type]]] = {
    "phases": (phases, columns_of(PhaseLine)),
    "ranks": (ranks, columns_of(RankLine)),
    "windows": (windows, columns_of(WindowLine)),
    "steps": (lambda summary: summary.waits.steps, columns_of(StepTime)),
    "step_phases": (step_phases, columns_of(StepPhase)),
    "outliers": (lambda summary: summary.waits.outliers, columns_of(Outlier)),
    "drift": (lambda summary: summary.waits.drift, columns_of(Drift)),
    "devices": (devices, columns_of(DeviceRow)),
    "device_phases": (device_phases, columns_of(DevicePhase)),
    "left_over": (left_over, columns_of(LeftOver)),
    "file_phases": (file_phases, columns_of(FilePhase)),
    "kernels": (kernels, columns_of(KernelLine)),
    "operators": (lambda summary: summary.operators.rows(), columns_of(OperatorRow)),
    "memory": (lambda summary: memory_rows(summary.run.manifest), _of_memory()),
    "cost": (lambda summary: cost_rows(summary.run), columns_of(Cost)),
    "seconds": (lambda summary: summary.seconds, _of_seconds()),
    "stragglers": (lambda summary: summary.waits.stragglers, columns_of(Straggler)),
    "critical_path": (critical_path, columns_of(SegmentLine)),
    "unseen": (lambda summary: summary.waits.unseen, columns_of(UnseenWait)),
    "slack": (lambda summary: summary.waits.slack, columns_of(SlackRow)),
    "files": (files, columns_of(FileLine)),
}
#: name of a table -> its columns
TABLES = {name: columns for name, (_, columns) in _TABLES.items()}


def _flat(row: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """A row as cells: a column for each name of a mapping, lists as text."""
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}_{name}", one) for name, one in value.items())
        else:
            yield key, ", ".join(map(str, value)) if isinstance(value, list) else value


@dataclass(frozen=True)
class Table:
    """One table of a summary.

    Attributes:
        columns: names and types, also of a table without rows: those of :data:`TABLES`, then those that some rows have
            besides (other figures of memory). A column with values may hold other types too.
        rows: the values, all of the columns in each.
    """

    columns: dict[str, type]
    rows: list[dict[str, Any]]

    @property
    def unvalued(self) -> dict[str, type]:
        """The columns of which no value shows the type."""
        return {name: kind for name, kind in self.columns.items() if all(row[name] is None for row in self.rows)}


def table(summary: Summary, name: str) -> Table:
    """A table by its name in :data:`TABLES`."""
    rows, columns = _TABLES[name]
    found, columns = [dict(_flat(row.cells())) for row in rows(summary)], dict(columns)
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
