"""``accelprof compare BEFORE AFTER``: what changed between two runs, files or stored baselines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from accelprof import texts
from accelprof.cli.values import Number
from accelprof.environment import numpy_on_one_thread

if TYPE_CHECKING:
    from accelprof.analysis.compare import Comparison


@click.command()
@click.argument("before", type=click.Path(exists=True))
@click.argument("after", type=click.Path(exists=True))
@click.option("--device", "devices", multiple=True, help="Only this device; may be given several times.")
@click.option("--top", type=click.IntRange(min=1), default=12, show_default=True, help="Rows of each table.")
@click.option(
    "--fail-above",
    type=Number(min=0),
    metavar="PERCENT",
    help="End with status 1 when a device or phase grew by more than this from BEFORE, beyond its noise, or is new.",
)
@click.option("--allow-partial", is_flag=True, help="Compare although a side is cut, damaged or lacks files or events.")
@click.option("--json", "as_json", is_flag=True, help="For machines; times in ns.")
@click.option("--markdown", is_flag=True, help="Tables for a pull request.")
@click.option("--html", type=click.Path(dir_okay=False), help="Write AFTER's page with the comparison here.")
@click.option("--open", "open_page", is_flag=True, help="Open that page in a browser.  [default: compare.html]")
@click.option("--save", type=click.Path(dir_okay=False), help="Store AFTER's figures here, as a later BEFORE.")
@click.pass_context
def compare(
    ctx: click.Context,
    before: str,
    after: str,
    devices: tuple[str, ...],
    top: int,
    fail_above: float | None,
    allow_partial: bool,
    as_json: bool,
    markdown: bool,
    html: str | None,
    open_page: bool,
    save: str | None,
) -> None:
    """Compare two run directories, two files of any tool that accelprof reads, or a baseline stored with --save.

    Changes are growth from BEFORE: 10 ms to 11 ms is +10 %. Figures are of one step where steps are marked, otherwise of one
    call or window. Where those repeat, the noise is the interval in which 95 % of the changes lie when they are drawn again. Ends with status 0 when compared, 2 for a mistake in the command,
    and 1 when the two cannot be compared (empty, not whole, no worker in common, other devices) or when --fail-above found
    something slower.
    """
    numpy_on_one_thread()
    from accelprof.analysis.compare import compare as compare_sides
    from accelprof.analysis.many import cores
    from accelprof.cli.progress import Bar

    with Bar("reading") as bar:
        found = compare_sides(before, after, devices, allow_partial=allow_partial, processes=cores(), progress=bar)
    if as_json:
        from accelprof.analysis.changes import headline

        click.echo(texts.dumps({"headline": headline(found), **found.to_json()}, indent=1))
    elif markdown:
        from accelprof.analysis.markdown import comparison

        click.echo(comparison(found, top))
    else:
        _show(found, top)
    if html is not None or open_page:
        _page(ctx, found, after, html or "compare.html", say=not (as_json or markdown), show=open_page)
    if save is not None:
        _save(ctx, after, devices, save)
    if fail_above is not None:
        from accelprof.analysis.escape import terminal

        slower = found.slower(fail_above)
        for row, how in slower:
            click.echo(f"accelprof: {row.measure} {terminal(row.name)}: {how}", err=True)
        if slower:
            ctx.exit(1)


def _page(ctx: click.Context, found: Comparison, after: str, path: str, *, say: bool, show: bool) -> None:
    from accelprof.analysis.files import summarise_files
    from accelprof.cli.report import write_page
    from accelprof.errors import ReadError, UserError

    try:
        summary = found.summary or summarise_files([after])
    except ReadError:
        raise UserError(
            f"compare: {after} is a stored baseline; --html makes the page of a run or file that is there"
        ) from None
    write_page(ctx, summary, path, found, say=say, show=show)


def _save(ctx: click.Context, after: str, devices: tuple[str, ...], path: str) -> None:
    from accelprof.analysis.many import cores
    from accelprof.analysis.sides import side, store

    try:
        store(side(after, devices, processes=cores()), path)
    except OSError as error:
        click.echo(f"accelprof: {path} cannot be written: {error}", err=True)
        ctx.exit(1)


def _show(found: Comparison, top: int) -> None:
    from rich.console import Console

    from accelprof.analysis.changes import change_cells, headline
    from accelprof.analysis.compare import MEASURES, READ
    from accelprof.analysis.grid import Column, Grid, show, tell

    console = Console()
    first = headline(found)
    if first:
        tell(console, first, "bold")
    for line in found.partial:
        tell(console, line, "red")
    columns = [
        Column("", label=30),
        Column("before", 3),
        Column("after", 2),
        Column("difference", 4),
        Column("change"),
        Column("noise (95 %)", 1),
        Column("median", 5),
        Column("mean of", 6),
    ]
    for measure, meaning in MEASURES.items():
        rows = found.of(measure)
        if not rows:
            continue
        grid = Grid(f"{measure}: {meaning}", columns)
        for row in rows[:top]:
            grid.add(row.name, *change_cells(row), style="" if row.clear else "dim")
        if len(rows) > top:
            grid.note = f"… and {len(rows) - top} more (--top, --json)"
        show(console, grid)
    tell(console, READ)
    for note in found.notes:
        tell(console, note, "yellow")
    if found.unchanged:
        tell(console, "No change.")
