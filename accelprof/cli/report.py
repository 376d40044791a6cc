"""``accelprof report [DIR | FILE…]``: what a run or files measured, as tables, JSON, CSV, Parquet and ``report.html``."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from accelprof import texts
from accelprof.cli.values import Source
from accelprof.contracts.names import REPORT
from accelprof.environment import numpy_on_one_thread
from accelprof.errors import UserError

if TYPE_CHECKING:
    from accelprof.analysis.compare import Comparison
    from accelprof.analysis.summary import Summary


@click.command()
@click.argument("sources", nargs=-1, type=Source(), metavar="[DIR | FILE...]")
@click.option("--json", "as_json", is_flag=True, help="For machines; times in ns.")
@click.option("--html", "html", type=click.Path(dir_okay=False), help=f"Where the page goes.  [default: DIR/{REPORT}]")
@click.option("--no-html", is_flag=True, help="Write no page.")
@click.option("--open", "open_page", is_flag=True, help="Open the page in a browser.")
@click.option("--csv", "csv_dir", type=click.Path(file_okay=False), help="Write each table as CSV into this directory.")
@click.option("--parquet", "parquet_dir", type=click.Path(file_okay=False), help="The same as Parquet files.")
@click.option(
    "--all", "everything", is_flag=True, help="Show every row and line; otherwise the worst, the rest summed."
)
@click.option("--by-file", is_flag=True, help="Show the device tables of each file too.")
@click.pass_context
def report(
    ctx: click.Context,
    sources: tuple[str, ...],
    as_json: bool,
    html: str | None,
    no_html: bool,
    open_page: bool,
    csv_dir: str | None,
    parquet_dir: str | None,
    everything: bool,
    by_file: bool,
) -> None:
    """Summarise the run in DIR, or FILEs of any tool that accelprof reads; without either, the newest run.

    Shows phases over ranks, device time by phase, problems. Of single files a page is written only with --html or --open.
    Ends with status 1 when something that was asked for did not come: windows never opened, files missing, cut or damaged;
    of FILEs too.
    """
    from accelprof.output.verdict import exit_status

    summary, directory = _summary(sources)
    if as_json:
        from accelprof.analysis.first import sentences

        found = summary.report()
        text = {**found.to_json(), "first": sentences(found)}
        click.echo(texts.dumps(text, indent=1, default=str))
    else:
        from rich.console import Console

        from accelprof.analysis.table import render

        if not sources:
            click.echo(f"{texts.from_here(summary.run.directory)} (the newest run)\n")
        render(summary, Console(), everything=everything, by_file=by_file)
    path = None if no_html else html or (os.path.join(directory, REPORT) if directory else None)
    if path is None and open_page:
        path = os.path.abspath(REPORT)
    if path is not None:
        write_page(ctx, summary, path, say=not as_json, show=open_page)
    for target, suffix in ((csv_dir, "csv"), (parquet_dir, "parquet")):
        if target is not None:
            _tables(ctx, summary, target, suffix, say=not as_json)
    ctx.exit(exit_status(summary.lacks))


def _summary(sources: tuple[str, ...]) -> tuple[Summary, str | None]:
    """The summary, and the run directory it is of, if it is of one."""
    numpy_on_one_thread()
    from accelprof.analysis.files import newest_run, summarise_files
    from accelprof.analysis.many import cores
    from accelprof.analysis.run import is_run
    from accelprof.analysis.summary import summarise
    from accelprof.cli.progress import Bar

    sources = sources or (newest_run(),)
    runs = [source for source in sources if os.path.isdir(source) and is_run(source)]
    if runs and len(sources) > 1:
        side = "accelprof compare puts two side by side"
        raise UserError(f"report: one run at a time, or files; {runs[0]} is a run ({side})")
    with Bar("reading") as bar:
        if runs:
            return summarise(runs[0], processes=cores(), progress=bar), runs[0]
        return summarise_files(sources, processes=cores(), progress=bar), None


def write_page(
    ctx: click.Context, summary: Summary, path: str, comparison: Comparison | None = None, *, say: bool, show: bool
) -> None:
    """Write the page, and say where or show it. What cannot be written ends the command with status 1."""
    from accelprof.analysis.html import write_report

    try:
        write_report(summary, path, comparison)
    except OSError as error:
        click.echo(f"accelprof: {path} cannot be written: {error}", err=True)
        ctx.exit(1)
    if say:
        click.echo(f"Page: {texts.from_here(path)}")
    if show and click.launch(path):
        click.echo(f"accelprof: no browser could be started for {path}", err=True)


def _tables(ctx: click.Context, summary: Summary, directory: str, suffix: str, *, say: bool) -> None:
    from accelprof.analysis.export import write_tables

    try:
        names = write_tables(summary, directory, suffix)
    except OSError as error:
        click.echo(f"accelprof: {directory} cannot be written: {error}", err=True)
        ctx.exit(1)
    if say:
        click.echo(f"Tables: {directory}: {', '.join(names)}", file=sys.stdout)
