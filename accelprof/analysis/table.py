"""A summary as tables for the terminal."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from accelprof.analysis.phases import PhaseRow
from accelprof.analysis.summary import Summary, ToolFile

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from accelprof.analysis.compare import Change

MAX_PROBLEMS = 20
NONE = "-"
#: columns of the phase table, and the width of the terminal from which on each is shown
COLUMNS = {"calls": 0, "total": 0, "mean": 0, "p50": 96, "p95": 88, "self": 80, "share": 0}


def duration(ns: float | None) -> str:
    """``1.23 s``, ``45.6 ms``, ``7.8 µs``, ``90 ns``; a dash for none."""
    if ns is None:
        return NONE
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(ns) >= size:
            return f"{ns / size:.3g} {unit}" if abs(ns) < 1000 * size else f"{ns / size:,.0f} {unit}"
    return f"{ns:.0f} ns"


def percent(share: float | None) -> str:
    return NONE if share is None else f"{share:.1%}"


def change_cells(row: Change) -> tuple[str, str, str, str, str, str]:
    """Before, after, difference, change, noise and ratio of a row as text."""
    noise = row.noise
    return (
        duration(row.before_ns),
        duration(row.after_ns),
        NONE if row.delta_ns is None else f"{'+' if row.delta_ns > 0 else ''}{duration(row.delta_ns)}",
        "new"
        if row.before_ns is None
        else "gone"
        if row.after_ns is None
        else f"{row.change:+.1%}"
        if row.change
        else "0 %",
        "" if noise is None else f"{noise[0]:+.1%} … {noise[1]:+.1%}",
        NONE if row.ratio is None else f"{row.ratio:.3f}",
    )


def slowest_text(row: PhaseRow) -> str:
    """``rank1 1.32x``: the slowest rank and how much longer it takes than the fastest."""
    if row.slowest is None:
        return NONE
    name = row.slowest.removeprefix(f"{row.group}/")
    return f"{name} {row.spread:.2f}x" if row.spread is not None else name


def render(summary: Summary, console: Console) -> None:
    """Print what a run measured, and before all what it was asked for and did not deliver."""
    from rich.markup import escape

    for line in summary.undelivered:
        console.print(f"[bold red]not delivered[/bold red] {escape(line)}")
    for line in summary.notices:
        console.print(f"[bold yellow]note[/bold yellow] {escape(line)}")
    if summary.phases:
        console.print(phases_table(summary, console.width))
    if any(file.attribution.devices for file in summary.files):
        console.print(devices_table(summary))
        for file in summary.files:
            if file.attribution.devices and file.attribution.phases:
                console.print(gpu_table(file))
    for file in summary.files:
        if file.note:
            line = f"{file.worker.label}: {os.path.basename(file.path)} ({file.tool}): {file.note}"
            console.print(f"[dim]{escape(line)}[/dim]", soft_wrap=True)
    shown = summary.problems[:MAX_PROBLEMS]
    for problem in shown:
        console.print(f"[yellow]{escape(problem)}[/yellow]")
    if len(summary.problems) > len(shown):
        console.print(f"[yellow]… and {len(summary.problems) - len(shown)} more (--json lists all)[/yellow]")


def phases_table(summary: Summary, width: int = 120) -> Table:
    """Phases over ranks; a narrow terminal gets fewer columns."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    windows = sum(len(timeline.windows) for timeline in summary.timelines)
    workers = len(summary.timelines)
    title = f"phases in {windows} window{'s' * (windows != 1)} of {workers} worker{'s' * (workers != 1)}"
    columns = [column for column, least in COLUMNS.items() if width >= least]
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("phase", overflow="fold", min_width=18)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("slowest rank", overflow="fold")
    group = None
    for row in summary.phases:
        if group != row.group:
            table.add_row(f"[bold]{escape(row.group)}[/bold]")
        group = row.group
        texts = {
            "calls": f"{row.calls}" + (f"+{row.cut} cut" if row.cut else ""),
            "total": duration(row.total_ns),
            "mean": duration(row.mean_ns),
            "p50": duration(row.p50_ns),
            "p95": duration(row.p95_ns),
            "self": duration(row.self_ns),
            "share": percent(row.share),
        }
        slowest = slowest_text(row) + (f" ({len(row.missing)} without)" if row.missing else "")
        table.add_row(
            "  " * (row.depth + 1) + escape(row.phase), *(texts[column] for column in columns), escape(slowest)
        )
    return table


def devices_table(summary: Summary) -> Table:
    from rich.table import Table

    table = Table(title="device time", title_justify="left", title_style="bold")
    for column in ("worker", "tool", "file"):
        table.add_column(column, overflow="fold")
    for column in ("device", "kernels", "busy", "communication", "idle", "busy share"):
        table.add_column(column, justify="right")
    for file in summary.files:
        for row in file.attribution.devices:
            table.add_row(
                file.worker.label,
                file.tool,
                file.path.rsplit("/", 1)[-1],
                str(row.device),
                f"{row.kernels:,}",
                duration(row.busy_ns),
                duration(row.communication_ns),
                duration(row.idle_ns),
                percent(row.busy_ns / row.span_ns if row.span_ns else None),
            )
    return table


def gpu_table(file: ToolFile, limit: int = 15) -> Table:
    """Device time inside each phase of one file, and the kernels that stand in none, by reason."""
    from rich.markup import escape
    from rich.table import Table

    title = f"device time by phase: {file.worker.label}, {file.path.rsplit('/', 1)[-1]}"
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("phase", overflow="fold")
    for column in ("calls", "wall", "device busy", "of it own", "idle", "communication", "kernels"):
        table.add_column(column, justify="right")
    table.add_column("longest kernel", overflow="ellipsis", no_wrap=True, max_width=40)
    for row in file.attribution.phases[:limit]:
        table.add_row(
            row.name,
            f"{row.calls:,}",
            duration(row.wall_ns),
            duration(sum(row.busy_ns.values()) if row.busy_ns else None),
            duration(sum(row.own_busy_ns.values()) if row.own_busy_ns else None),
            duration(row.idle_ns),
            duration(row.communication_ns) if row.communication_ns else NONE,
            f"{row.kernels:,}",
            row.top[0][0] if row.top else NONE,
        )
    for reason, count in file.attribution.left_over():
        table.add_row(f"[dim]({escape(reason)})[/dim]", *[NONE] * 6, f"{count:,}", NONE)
    return table
