"""A summary as tables for the terminal."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from accelprof import texts
from accelprof.analysis import figures, frames
from accelprof.analysis.accounts import cost_rows
from accelprof.analysis.division import TABLE
from accelprof.analysis.escape import elide_apart, terminal
from accelprof.analysis.first import longest, sentences
from accelprof.analysis.grid import Column, Grid, show, tell
from accelprof.analysis.memory import by_worker, memory_rows
from accelprof.analysis.operators import OperatorTable
from accelprof.analysis.phases import PhaseRow
from accelprof.analysis.report import Report
from accelprof.analysis.report_rows import (
    Cost,
    DevicePhase,
    DeviceRow,
    FilePhase,
    LeftOver,
    OperatorRow,
    SlackRow,
    WorkerMemory,
)
from accelprof.analysis.seconds import Second
from accelprof.analysis.summary import Summary
from accelprof.analysis.units import NONE, duration, percent
from accelprof.analysis.waited import waited
from accelprof.contracts.targets import in_group

if TYPE_CHECKING:
    from rich.console import Console


MAX_PROBLEMS = 20
#: columns of the table of where the time goes: the parts in each, and which columns go first
GROUPS: tuple[tuple[str, tuple[str, ...], int], ...] = tuple(
    (column, tuple(part.name for part in TABLE if part.column == column), rank)
    for column, rank in {
        "compute": 0, "exposed": 0, "overlapped": 4, "copy": 3, "idle": 0, "outside": 1, "unknown": 2,
    }.items()
)  # fmt: skip
#: where the cost of ranges comes from
COST_SOURCE = (
    "all ranges: those in the windows, each as long as one took, the median of the process's first calls in windows."
)
#: rows of a table by worker or phase that are shown; the others are summed, ``--all`` shows them
MAX_ROWS = 16

#: behind a phase of the critical path in which its worker may have waited unseen, and the words below the table
MAY_WAIT = " (work or waiting)"
UNSEEN = (
    "work or waiting: its ranks ended together although they began apart, and no collective of theirs was recorded."
)


def slowest_text(row: PhaseRow) -> str:
    """``rank1 1.32x``: the slowest rank and how much longer it takes than the fastest."""
    if row.slowest is None:
        return NONE
    name = in_group(row.slowest, row.group)
    return f"{name} {row.spread:.2f}x" if row.spread is not None else name


def render(summary: Summary, console: Console, *, everything: bool = False, by_file: bool = False) -> None:
    """Print what a run measured: before all what it was asked for and did not deliver, then what to look at first.

    Args:
        everything: all rows and lines; otherwise the worst are shown and the others summed.
        by_file: device tables of each file behind those over all windows and ranks.
    """
    limit = None if everything else MAX_ROWS
    for line in summary.undelivered:
        tell(console, f"not delivered: {line}", "bold red")
    for line in summary.notices:
        tell(console, f"note: {line}", "bold yellow")
    first = [] if summary.dump else sentences(summary.report())  # those of a dump are among the notices
    for line in first:
        tell(console, line, "bold")
    if first:
        console.print()
    for grid in (*grids(summary, limit, by_file), *figures.grids(summary)):
        show(console, grid)
    listed = [file for file in summary.files if not file.has_spans]
    for file in listed if everything else listed[:MAX_ROWS]:
        tell(console, f"{file.where} ({file.tool}): {figures.figures_of(file)}")
    if not everything and len(listed) > MAX_ROWS:
        tell(console, f"… and {len(listed) - MAX_ROWS} more such files (--all)")
    notes = [f"{file.worker.label}: {os.path.basename(file.path)} ({file.tool})" for file in summary.files if file.note]
    reasons = Counter(file.note for file in summary.files if file.note)
    for reason, count in reasons.items():
        if count == 1 or everything:
            mine = [
                note
                for note, file in zip(notes, (f for f in summary.files if f.note), strict=True)
                if file.note == reason
            ]
            for note in mine:
                tell(console, f"{note}: {reason}", "dim")
        else:
            tell(console, f"{count} files: {reason}", "dim")
    problems = summary.other_problems
    shown = problems if everything else problems[:MAX_PROBLEMS]
    for problem in shown:
        tell(console, problem, "yellow")
    if len(problems) > len(shown):
        tell(console, f"… and {len(problems) - len(shown)} more (--all, --json)", "yellow")


def grids(summary: Summary, limit: int | None = MAX_ROWS, by_file: bool = False) -> Iterator[Grid]:
    """The tables of a summary, those over all windows and ranks first."""
    yield from _whole(summary, limit)
    if summary.phases:
        yield phases_grid(summary, limit)
    devices = list(frames.devices(summary))
    if devices:
        yield devices_grid(devices, limit)
        title = "device time by phase, over windows and ranks"
        yield device_phases_grid(list(frames.device_phases(summary)), list(frames.left_over(summary)), title, limit)
    mine = by_worker(memory_rows(summary.run.manifest))
    if mine:
        yield memory_grid(mine, limit)
    rows = summary.operators.rows()
    if rows:
        yield operators_grid(rows, limit)
    costs = cost_rows(summary.run)
    if costs:
        yield cost_grid(costs, limit)
    if by_file:
        for file in summary.files:
            if file.attribution.devices and file.attribution.phases:
                only = dataclasses.replace(summary, files=[file])
                title = f"{file.worker.label}: {os.path.basename(file.path)}"
                yield device_phases_grid(list(frames.file_phases(only)), list(frames.left_over(only)), title, limit)
            if file.operators:
                title = f"{file.worker.label}: operators on the host in {os.path.basename(file.path)}"
                table = OperatorTable()
                table.add(file.tool, file.worker.label, file.operators)
                yield operators_grid(table.rows(), limit, title)


def _whole(summary: Summary, limit: int | None) -> Iterator[Grid]:
    """Where the windows' time goes by worker and device, who was waited for, and what decided the slowest step."""
    report = summary.report()
    rows = shares_of(report.seconds)
    if rows:
        columns = [Column("worker", label=24), *(Column(name, rank) for name, rank in _shown_groups(report.seconds))]
        parts = ((name, *(percent(shares[group]) for group, _, _ in GROUPS)) for name, shares in rows)
        title, more = "where the time goes, in parts of the windows", "with more of the first"
        note = (
            "exposed: communication with nothing to compute beside it; idle by cause stands in --json and on the page."
        )
        yield _listing(title, columns, parts, limit, more, note)
    yield from steps_grids(report, limit)
    waits = waited(report.stragglers)
    missing = list(dict.fromkeys(rank for row in waits for rank in row.missing))
    if waits:
        columns = [
            Column("waited for", label=24), Column("in", label=16), Column("late in", 1, label=16), Column("times", 2),
            Column("waited"), Column("for it alone", 3),
        ]  # fmt: skip
        grid = Grid("stragglers: what the other ranks waited for the last to arrive", columns)
        both = len({of_rank.longest.on for of_rank in waits}) > 1
        for of_rank in waits:
            one = of_rank.longest
            where = f"{one.phase} (device)" if one.on == "device" and both else one.phase
            grid.add(
                one.worker, where, one.late_in or NONE, f"{of_rank.times:,}", duration(of_rank.waited_ns),
                duration(of_rank.alone_ns),
            )  # fmt: skip
        hide(grid, limit or len(waits), "stragglers")
        if missing:
            grid.note += f"{' ' * bool(grid.note)}missing in some of them: {texts.listed(missing, 4)}."
        yield grid
    path = longest(report)
    if path is not None:
        lasted: Counter[tuple[str, str]] = Counter()
        for segment in path.segments:
            lasted[segment.phase, segment.worker] += segment.ns
        unseen = {(part.phase, part.worker) for part in path.segments if part.unseen}
        grid = Grid(
            f"critical path of step {path.step}, the slowest with a window: {duration(path.wall_ns)}",
            [Column("phase", label=30), Column("worker", label=20), Column("time"), Column("share")],
        )
        for (phase, worker), ns in lasted.most_common(limit or None):
            may = MAY_WAIT * ((phase, worker) in unseen)
            grid.add(phase + may, worker, duration(ns), percent(ns / path.wall_ns if path.wall_ns else None))
        grid.note = UNSEEN if unseen else ""
        yield grid
        rest = [row for row in report.slack if row.step == path.step]
        if rest:
            yield slack_grid(path.step, rest, limit)


def _listing(
    title: str, columns: Sequence[Column], rows: Iterable[Sequence[str]], limit: int | None, more: str, note: str = ""
) -> Grid:
    """A table of ``rows`` of cells; those beyond ``limit`` are counted in the note, in the words ``more``."""
    grid, cells = Grid(title, columns), list(rows)
    for row in cells[:limit]:
        grid.add(*row)
    hidden = len(cells[limit:]) if limit is not None else 0
    grid.note = " ".join(filter(None, [f"… and {hidden} {more} (--all)." if hidden else "", note]))
    return grid


def slack_grid(step: object, rows: list[SlackRow], limit: int | None = MAX_ROWS) -> Grid:
    """What is not on a step's critical path, the longest first, and how much later it could end."""
    columns = [Column("phase", label=30), Column("worker", label=20), Column("time"), Column("could end later by")]
    later = (f"0 to {duration(row.high_ns)}" if not row.low_ns else duration(row.slack_ns) for row in rows)
    cells = ((row.phase, row.worker, duration(row.ns), could) for row, could in zip(rows, later, strict=True))
    note = "could end later by: without making the step longer; what is faster here changes nothing."
    if not all(row.low_ns for row in rows):
        note += " From 0: others may wait for it, of which nothing was recorded, or clocks and guesses leave it open."
    title = f"not on the critical path of step {step}"
    return _listing(title, columns, cells, limit and limit // 2, "shorter ones", note)


def steps_grids(report: Report, limit: int | None = MAX_ROWS) -> Iterator[Grid]:
    """Steps that took longer than the others, and what grew or shrank over the steps."""
    if report.outliers:
        columns = [
            Column("step"), Column("took"), Column("usual"), Column("most of it in", label=24), Column("there", 2),
            Column("usual", 3), Column("on", 1, label=16),
        ]  # fmt: skip
        longer = (
            (
                str(row.step), duration(row.wall_ns), duration(row.usual_ns), row.phase or NONE,
                duration(row.phase_ns), duration(row.phase_usual_ns), row.worker or NONE,
            )
            for row in report.outliers
        )  # fmt: skip
        yield _listing("steps that took longer than the others", columns, longer, limit and limit // 2, "more")
    if report.drift:
        columns = [
            Column("phase", label=30), Column("steps", 3), Column("at first"), Column("at last"), Column("change"),
            Column("surely between", 2), Column("most of it in", 1, label=24), Column("longest on", 1, label=16),
        ]  # fmt: skip
        changed = (
            (
                "(the whole step)" if row.phase is None else row.phase, str(row.steps), duration(row.first_ns),
                duration(row.last_ns), f"{row.change:+.1%}", f"{row.low:+.1%} … {row.high:+.1%}",
                row.cause or NONE, row.worker or NONE,
            )
            for row in report.drift
        )  # fmt: skip
        yield _listing("what changed from the first step to the last", columns, changed, limit and limit // 2, "more")


def _shown_groups(seconds: Iterable[Second]) -> Iterator[tuple[str, int]]:
    """Names of the columns by :data:`GROUPS`, and their ranks."""
    devices = [row.device is not None for row in seconds]
    for name, _, rank in GROUPS:
        host = name == "compute" and not all(devices)
        yield ("in phases (host)" if not any(devices) else "compute or in phases (host)") if host else name, rank


def shares_of(seconds: Iterable[Second]) -> list[tuple[str, dict[str, float | None]]]:
    """By worker and device the shares of :data:`GROUPS` in all windows, the least computing first."""
    parts: dict[str, Counter[str]] = defaultdict(Counter)
    windows: Counter[str] = Counter()
    for row in seconds:
        name = row.worker if row.device is None else f"{row.worker} device {row.device}"
        parts[name].update(row.parts)
        windows[name] += row.window_ns
    found: list[tuple[str, dict[str, float | None]]] = [
        (
            name,
            {
                group: sum(mine[part] for part in members) / windows[name] if windows[name] else None
                for group, members, _ in GROUPS
            },
        )
        for name, mine in parts.items()
    ]
    return sorted(found, key=lambda row: (row[1]["compute"] is None, row[1]["compute"] or 0.0))


def phases_grid(summary: Summary, limit: int | None = MAX_ROWS) -> Grid:
    """Phases over ranks and windows; nested ones are indented below the phase around them."""
    windows = sum(len(timeline.windows) for timeline in summary.timelines)
    workers = len(summary.timelines)
    title = f"phases in {windows} window{'s' * (windows != 1)} of {workers} worker{'s' * (workers != 1)}"
    columns = [
        Column("phase", label=46),
        Column("calls", 3),
        Column("total"),
        Column("mean", 2),
        Column("p50", 6),
        Column("p95", 5),
        Column("self", 4),
        Column("share"),
        Column("slowest rank", 1, label=24),
    ]
    rows = summary.phases
    if all(row.slowest is None for row in rows):
        columns.pop()
    grid = Grid(title, columns)
    group = None
    short = elide_apart((_of_group(row) for row in rows if row.slowest is not None), 16)
    for row in rows:
        if row.group != group and (summary.run.manifest.targets or len({other.group for other in rows}) > 1):
            grid.add(row.group, style="bold")
        group = row.group
        slowest = ""
        if row.slowest is not None:
            slowest = short[_of_group(row)]
            slowest += f" {row.spread:.2f}x" if row.spread is not None else ""
        cells = (
            "  " * (row.depth + 1) + row.phase,
            f"{row.calls}" + (f"+{row.cut} cut" if row.cut else ""),
            duration(row.total_ns),
            duration(row.mean_ns),
            duration(row.p50_ns),
            duration(row.p95_ns),
            duration(row.self_ns),
            percent(row.share),
            (slowest or NONE) + (f" ({len(row.missing)} without)" if row.missing else ""),
        )
        grid.add(*cells[: len(columns)])
    if limit is not None:
        hide(grid, 3 * limit, "phases")
    share = "share: part of the windows' time in which the phase is the innermost, a k-th of it where k threads or tasks are in one"
    spread = "1.06x: its time per window on the slowest rank by that on the fastest"
    grid.note = f"{grid.note} {share}; {spread}." if any(row.spread for row in rows) else f"{grid.note} {share}."
    return grid


def _of_group(row: PhaseRow) -> str:
    return terminal(in_group(str(row.slowest), row.group))


def devices_grid(rows: list[DeviceRow], limit: int | None = MAX_ROWS) -> Grid:
    """Device time by worker and device, the least busy first."""
    columns = [
        Column("worker", label=30), Column("device", label=8), Column("tool", 4, label=8), Column("files", 5),
        Column("kernels", 3), Column("busy"), Column("communication", 2), Column("idle", 1), Column("busy share"),
    ]  # fmt: skip
    grid = Grid("device time, over windows", columns)
    rows.sort(key=lambda row: (row.busy_share is None, row.busy_share or 0.0))
    shown = rows if limit is None or len(rows) <= limit else rows[: limit - 1]
    rest = rows[len(shown) :]
    for row in [*shown, *([frames.devices_together(f"… {len(rest)} busier", rest)] if rest else [])]:
        times = [duration(ns) for ns in (row.busy_ns, row.communication_ns, row.idle_ns)]
        labels = (row.worker, row.device, row.tool, str(row.files), f"{row.kernels:,}")
        grid.add(*labels, *times, percent(row.busy_share))
    of_windows = [row.share_of == "window" for row in rows]
    whole = "part of the windows in which the device works, idle at both ends counted"
    work = "part of the stretch from the first to the last piece of work in which the device works"
    if all(of_windows) and rows:
        grid.note = f"busy share: {whole}."
    elif any(of_windows):
        grid.note = f"busy share: {whole}; where a file says nothing of its windows, {work}."
    else:
        grid.note = f"busy share: {work}; the files say nothing of their windows."
    return grid


def device_phases_grid(
    rows: Sequence[DevicePhase | FilePhase], left_over: list[LeftOver], title: str, limit: int | None = MAX_ROWS
) -> Grid:
    """Device time inside each phase, the longest first; then kernels in none, by reason."""
    columns = [
        Column("phase", label=46), Column("calls", 5), Column("wall", 2), Column("device busy"), Column("of it own", 1),
        Column("idle", 4), Column("communication", 6), Column("kernels", 3), Column("longest kernel", 7, label=24),
    ]  # fmt: skip
    grid = Grid(title, columns)
    for row in rows if limit is None else rows[:limit]:
        grid.add(
            row.phase,
            f"{row.calls:,}",
            duration(row.wall_ns),
            duration(row.busy_ns),
            duration(row.own_busy_ns),
            duration(row.idle_ns),
            duration(row.communication_ns) if row.communication_ns else NONE,
            f"{row.kernels:,}",
            row.longest_kernel or NONE,
        )
    for rest in left_over if limit is None else left_over[:limit]:
        kernels = f"{rest.kernels:,}"  # in the label too: narrow terminals have no column for it
        grid.add(f"({kernels} {rest.reason})", *[NONE] * 6, kernels, NONE, style="yellow")
    if limit is not None and len(rows) > limit:
        grid.note = f"… and {len(rows) - limit} phases with less device time (--all)"
    return grid


def memory_grid(rows: list[WorkerMemory], limit: int | None = MAX_ROWS) -> Grid:
    """Memory at the end of steps by worker, the largest first."""
    columns = [
        Column("worker", label=24), Column("steps", 3), Column("at first"), Column("at last"), Column("largest"), Column("at step", 2),
        Column("peak", 1),
    ]  # fmt: skip
    title = f"memory at the end of steps ({', '.join(sorted({row.what for row in rows}))})"
    size = functools.partial(figures.cell, unit="bytes")
    cells = (
        (
            row.worker, f"{row.steps:,}", size(row.first), size(row.last), size(row.largest), str(row.at_step),
            size(row.peak),
        )
        for row in rows
    )  # fmt: skip
    return _listing(title, columns, cells, limit, "with less")


def operators_grid(
    rows: Sequence[OperatorRow], limit: int | None = MAX_ROWS, title: str = "operators on the host, over all files"
) -> Grid:
    """Operators on the host by phase, the most self time first; the others are summed."""
    columns = [
        Column("operator", label=28), Column("phase", label=16), Column("workers", 5), Column("calls", 3), Column("total", 2),
        Column("self"), Column("share"),
    ]  # fmt: skip
    whole = sum(row.self_ns for row in rows)
    cells = (
        (
            row.operator, NONE if row.phase is None else row.phase, str(row.workers), f"{row.calls:,}",
            duration(row.total_ns), duration(row.self_ns), percent(row.self_ns / whole if whole else None),
        )
        for row in rows
    )  # fmt: skip
    rest = duration(sum(row.self_ns for row in rows[limit:])) if limit is not None else ""
    note = "self: without what is nested in them; share: of all self time."
    return _listing(title, columns, cells, limit, f"with {rest} together", note)


def ranges_cost(row: Cost) -> str:
    """What a worker's ranges cost, or why that is not known."""
    if row.ranges is None:
        return "not counted"
    if row.ranges_ns is None:
        return "not measured" if row.ranges else duration(0)
    rest = f", {row.ranges_unmeasured:,} not measured" if row.ranges_unmeasured else ""
    return f"{duration(row.ranges_ns)}{rest}"


def drained(row: Cost) -> str:
    """How long a worker's windows waited for the device."""
    return "not waited" if row.undrained and row.undrained == row.windows else duration(row.drain_ns)


def cost_grid(rows: list[Cost], limit: int | None = MAX_ROWS) -> Grid:
    """What recording itself took by worker, the most first."""
    columns = [
        Column("worker", label=24), Column("windows", 2), Column("opening"), Column("waiting for device", 1), Column("closing"),
        Column("ranges", 3), Column("one range", 4), Column("all ranges"),
    ]  # fmt: skip
    rows = sorted(rows, key=lambda row: -(row.open_ns + row.drain_ns + row.close_ns + (row.ranges_ns or 0)))
    cells = (
        (
            row.worker, f"{row.windows:,}", duration(row.open_ns), drained(row), duration(row.close_ns),
            NONE if row.ranges is None else f"{row.ranges:,}", duration(row.range_ns), ranges_cost(row),
        )
        for row in rows
    )  # fmt: skip
    return _listing("what recording itself took", columns, cells, limit, "with less", COST_SOURCE)


def hide(grid: Grid, limit: int, what: str) -> None:
    """Leave ``limit`` rows and say how many of ``what`` are not shown."""
    if len(grid.rows) > limit:
        grid.note = f"… and {len(grid.rows) - limit} more {what} (--all).{' ' * bool(grid.note)}{grid.note}"
        del grid.rows[limit:]
