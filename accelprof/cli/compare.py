"""``accelprof compare BEFORE AFTER``: what changed between two runs or two files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from accelprof.analysis.compare import Comparison


@click.command()
@click.argument("before", type=click.Path(exists=True))
@click.argument("after", type=click.Path(exists=True))
@click.option("--device", "devices", multiple=True, help="Only this device; may be given several times.")
@click.option("--top", type=click.IntRange(min=1), default=12, show_default=True, help="Rows of each table.")
@click.option(
    "--fail-above",
    type=click.FloatRange(min=0),
    metavar="PERCENT",
    help="End with status 1 when a device or phase takes this much more time.",
)
@click.option("--json", "as_json", is_flag=True, help="For machines; times in ns.")
@click.pass_context
def compare(
    ctx: click.Context,
    before: str,
    after: str,
    devices: tuple[str, ...],
    top: int,
    fail_above: float | None,
    as_json: bool,
) -> None:
    """Compare two run directories, or two files of any tool that accelprof reads.

    Changes are given as part of the larger side. Ends with status 1 when the two cannot be compared: one is empty, or
    has other workers or devices.
    """
    from accelprof.analysis.compare import compare as compare_sides

    found = compare_sides(before, after, devices)
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=1, allow_nan=False))
    else:
        _show(found, top)
    if fail_above is not None:
        slower = [
            row
            for row in found.changes
            if row.measure != "kernel" and row.ratio is not None and (row.ratio - 1) * 100 > fail_above
        ]
        for row in slower:
            click.echo(f"accelprof: {row.measure} {row.name}: {row.ratio:.3f} times the time before", err=True)
        if slower:
            ctx.exit(1)


def _show(found: Comparison, top: int) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from accelprof.analysis.compare import MEASURES
    from accelprof.analysis.table import NONE, duration

    console = Console()
    for measure, meaning in MEASURES.items():
        rows = found.of(measure)
        if not rows:
            continue
        table = Table(title=f"{measure}: {meaning}", title_justify="left", title_style="bold")
        table.add_column(measure, overflow="ellipsis", no_wrap=True, max_width=64)
        for column in ("before", "after", "difference", "change", "after/before"):
            table.add_column(column, justify="right", no_wrap=True)
        for row in rows[:top]:
            table.add_row(
                escape(row.name),
                duration(row.before_ns),
                duration(row.after_ns),
                NONE if row.delta_ns is None else f"{'+' if row.delta_ns > 0 else ''}{duration(row.delta_ns)}",
                NONE if row.change is None else f"{row.change:+.1%}" if row.change else "0 %",
                NONE if row.ratio is None else f"{row.ratio:.3f}",
            )
        console.print(table)
        if len(rows) > top:
            console.print(f"[dim]… and {len(rows) - top} more (--top, --json)[/dim]")
    for note in found.notes:
        console.print(f"[yellow]{escape(note)}[/yellow]")
    if found.unchanged:
        console.print("No change.")
