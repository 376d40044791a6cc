"""``accelprof report DIR``: what a run measured, as tables, JSON and ``report.html``."""

from __future__ import annotations

import json
import os

import click


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@click.option("--json", "as_json", is_flag=True, help="For machines; times in ns.")
@click.option(
    "--html", "html", type=click.Path(dir_okay=False), help="Where the page goes.  [default: DIR/report.html]"
)
@click.option("--no-html", is_flag=True, help="Write no page.")
@click.pass_context
def report(ctx: click.Context, directory: str, as_json: bool, html: str | None, no_html: bool) -> None:
    """Summarise the run in DIR: phases over ranks, device time by phase, problems.

    Ends with status 1 when something that was asked for did not come: windows never opened, files missing or cut.
    """
    from accelprof.analysis.summary import summarise

    summary = summarise(directory)
    if as_json:
        click.echo(json.dumps(summary.to_json(), indent=1, allow_nan=False, default=str))
    else:
        from rich.console import Console

        from accelprof.analysis.table import render

        render(summary, Console())
    if not no_html:
        from accelprof.analysis.html import write_report

        path = html or os.path.join(directory, "report.html")
        try:
            write_report(summary, path)
        except OSError as error:
            click.echo(f"accelprof: {path} cannot be written: {error}", err=True)
            ctx.exit(1)
        if not as_json:
            click.echo(f"Page: {os.path.relpath(path)}")
    if summary.undelivered:
        ctx.exit(1)
