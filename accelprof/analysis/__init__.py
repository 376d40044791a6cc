"""Reads what a run left: spans, one merged timeline, tables, an HTML report, comparisons.

``read_any`` reads one file of whatever tool, ``summarise`` a run directory; ``draw`` and ``render_table`` are what the end of
a run calls.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from accelprof.contracts.names import MANIFEST, REPORT, TIMELINE
from accelprof.errors import failures, text_of

if TYPE_CHECKING:
    from rich.console import Console

    from accelprof.analysis.summary import Summary
    from accelprof.contracts.spans import Trace

__all__ = ["draw", "finish_run", "read_any", "render_table"]
log = logging.getLogger("accelprof")
#: what ``finish_run`` found, kept for the ``render_table`` that follows it: reading a run twice takes seconds
_finished: tuple[str, Summary] | None = None


def _state_of(directory: str) -> str:
    """Tells whether a run directory is as it was: its path, and the manifest's size and time."""
    try:
        found = os.stat(os.path.join(directory, MANIFEST))
    except OSError:
        return ""
    return f"{os.path.realpath(directory)} {found.st_mtime_ns} {found.st_size}"


def draw(run_dir: str) -> str | None:
    """:func:`finish_run` in the form of the hook ``accelprof_run_pages``: what went wrong, in words."""
    try:
        finish_run(run_dir)
    except failures() as error:  # timeline and report can be made again from the files
        return f"timeline and report could not be made: {text_of(error)}"
    return None


def finish_run(run_dir: str | os.PathLike[str]) -> None:
    """Write ``timeline.json.gz`` and ``report.html`` beside the manifest. What cannot be written is logged, once each.

    Files larger than 64 MiB, and those of tools once reading has taken 30 s, are left out here and named in the report:
    the end of a run waits for this.

    Raises:
        ReadError: there is no run in the directory.
    """
    from accelprof.analysis.html import write_report
    from accelprof.analysis.run import open_run
    from accelprof.analysis.summary import MAX_AT_END_BYTES, MAX_AT_END_S, SummaryBuilder, read_files
    from accelprof.analysis.timeline import TimelineWriter, first_moment, source_of

    directory = os.fspath(run_dir)
    run = open_run(directory)
    builder = SummaryBuilder(run)
    files = read_files(builder, run.files(MAX_AT_END_BYTES), MAX_AT_END_S)
    summary = None
    try:
        with TimelineWriter(os.path.join(directory, TIMELINE), first_moment(run)) as timeline:
            for file, loaded in files:
                timeline.add(source_of(run, file), loaded)
            summary = builder.finish()
            timeline.join(summary)
    except OSError as error:
        log.warning("accelprof: the merged timeline of %s cannot be written: %s", directory, error)
        for _ in files:
            pass  # the report has them all the same
    summary = summary or builder.finish()
    global _finished
    _finished = (_state_of(directory), summary)
    try:
        write_report(summary, os.path.join(directory, REPORT))
    except OSError as error:
        log.warning("accelprof: the report of %s cannot be written: %s", directory, error)


def render_table(run_dir: str | os.PathLike[str], console: Console) -> None:
    """Print the tables of a run.

    Raises:
        ReadError: there is no run in the directory.
    """
    from accelprof.analysis.summary import MAX_AT_END_BYTES, MAX_AT_END_S, summarise
    from accelprof.analysis.table import render

    global _finished
    finished, _finished = _finished, None
    if finished is None or finished[0] != _state_of(os.fspath(run_dir)):
        finished = ("", summarise(run_dir, max_bytes=MAX_AT_END_BYTES, seconds=MAX_AT_END_S))
    render(finished[1], console)


def read_any(path: str | os.PathLike[str], tool: str | None = None) -> Trace:
    """Read one file of whatever tool into spans; ``tool`` is asked first.

    Raises:
        ReadError: the file is not there, empty, or nothing can read it.
    """
    from accelprof.analysis.reading import read_any as read

    return read(path, tool)
