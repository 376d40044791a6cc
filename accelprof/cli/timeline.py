"""``accelprof timeline``: one Chrome trace of all workers and tools of a run, or of any files."""

from __future__ import annotations

import os

import click

from accelprof import texts
from accelprof.cli.lines import say
from accelprof.cli.values import Source
from accelprof.contracts.names import MANIFEST, TIMELINE, WORKERS
from accelprof.environment import numpy_on_one_thread
from accelprof.errors import UserError


@click.command()
@click.argument("sources", nargs=-1, required=True, type=Source(), metavar="DIR | FILE...")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    help=f"Where it goes.  [default: DIR/{TIMELINE} or .pftrace]",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["json", "perfetto"]),
    default="json",
    show_default=True,
    help="Chrome's JSON, or Perfetto's own packets: smaller, without the events' arguments.",
)
@click.option("--json", "as_json", is_flag=True, help="What was merged, for machines.")
def timeline(sources: tuple[str, ...], output: str | None, file_format: str, as_json: bool) -> None:
    """Merge the run in DIR, or single FILEs, into one trace for ui.perfetto.dev or chrome://tracing.

    The clocks of a run's workers are brought together by the offsets in its manifest. Files that cannot be read are named.
    """
    numpy_on_one_thread()
    from accelprof.analysis.run import is_run
    from accelprof.analysis.timeline import merge_files, write_timeline
    from accelprof.cli.progress import Bar

    writer = None
    if file_format == "perfetto":
        from accelprof.analysis.perfetto import PerfettoWriter

        writer = PerfettoWriter
    if len(sources) == 1 and is_run(sources[0]):
        name = TIMELINE if file_format == "json" else "timeline.pftrace"
        with Bar("merging") as bar:
            merged = write_timeline(sources[0], output or os.path.join(sources[0], name), writer=writer, progress=bar)
    elif len(sources) == 1 and os.path.isdir(sources[0]):
        raise UserError(f"timeline: {sources[0]} is no run directory: it has neither {MANIFEST} nor {WORKERS}")
    else:
        if output is None:
            raise UserError("timeline: files are merged into a new one; say which with -o FILE")
        with Bar("merging") as bar:
            merged = merge_files(sources, output, writer, bar)
    if as_json:
        names = ("path", "read", "written", "added", "left_out", "moved", "problems", "notes")
        click.echo(texts.dumps({name: getattr(merged, name) for name in names}, indent=1))
        return
    for problem in merged.problems:
        say(f"accelprof: {problem}", err=True)
    for note in merged.notes:
        say(note)
    lost = f", {merged.left_out} left out" if merged.left_out else ""
    click.echo(f"{merged.path}: {merged.read - merged.left_out} events of {len(merged.sources)} files{lost}")
