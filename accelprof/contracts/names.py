"""Names that all floors share: the files of a run's directory, and the tool whose files are our own timelines."""

from __future__ import annotations

#: what a run's end writes: its windows and files, its timelines merged, its page
MANIFEST, TIMELINE, REPORT = "manifest.json", "timeline.json.gz", "report.html"
#: where each worker keeps its journal while it runs, and how a journal's name ends
WORKERS, JOURNAL = ".workers", ".jsonl"
#: the tool that records phases, beside any other or alone
TIMELINE_TOOL = "trace"
