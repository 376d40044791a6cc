"""Reads what a run left: spans, one merged timeline, tables, an HTML report, comparisons.

``read_any`` reads one file of whatever tool, ``summarise`` a run directory; ``finish_run`` and ``render_table`` are what
the end of a run calls.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from accelprof.spans import Trace

__all__ = ["finish_run", "read_any", "render_table"]
log = logging.getLogger("accelprof")


def finish_run(run_dir: str | os.PathLike[str]) -> None:
    """Write ``timeline.json.gz`` and ``report.html`` beside the manifest. What cannot be written is logged, once each.

    Files of tools that are larger than 64 MiB are left out here and named in the report: the end of a run waits for this.

    Raises:
        ReadError: there is no run in the directory.
    """
    from accelprof.analysis.html import write_report
    from accelprof.analysis.summary import MAX_AT_END_BYTES, summarise
    from accelprof.analysis.timeline import write_timeline

    directory = os.fspath(run_dir)
    try:
        write_timeline(directory, os.path.join(directory, "timeline.json.gz"), max_bytes=MAX_AT_END_BYTES)
    except OSError as error:
        log.warning("accelprof: the merged timeline of %s cannot be written: %s", directory, error)
    summary = summarise(directory, max_bytes=MAX_AT_END_BYTES)
    try:
        write_report(summary, os.path.join(directory, "report.html"))
    except OSError as error:
        log.warning("accelprof: the report of %s cannot be written: %s", directory, error)


def render_table(run_dir: str | os.PathLike[str], console: Console) -> None:
    """Print the tables of a run.

    Raises:
        ReadError: there is no run in the directory.
    """
    from accelprof.analysis.summary import MAX_AT_END_BYTES, summarise
    from accelprof.analysis.table import render

    render(summarise(run_dir, max_bytes=MAX_AT_END_BYTES), console)


def read_any(path: str | os.PathLike[str], tool: str | None = None) -> Trace:
    """Read one file of whatever tool into spans; ``tool`` is asked first.

    Raises:
        ReadError: the file is not there, empty, or nothing can read it.
    """
    from accelprof.analysis.reading import read_any as read

    return read(path, tool)
