"""Names that all floors share: the files of a run's directory, and the tool whose files are our own timelines."""

from __future__ import annotations

import os
import threading

#: what a run's end writes: its windows and files, its timelines merged, its page
MANIFEST, TIMELINE, REPORT = "manifest.json", "timeline.json.gz", "report.html"
#: where each worker keeps its journal while it runs, and how a journal's name ends
WORKERS, JOURNAL = ".workers", ".jsonl"
#: the tool that records phases, beside any other or alone
TIMELINE_TOOL = "trace"


def half(path: str) -> str:
    """Where a file is written before it is moved to ``path``: the name says whose half it is, should the process be killed."""
    return f"{path}.{os.getpid()}.{threading.get_ident()}.part"
