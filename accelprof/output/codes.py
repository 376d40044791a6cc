"""Codes of lacks: what kind of thing was asked for and is not there."""

from __future__ import annotations

from collections.abc import Mapping

from accelprof.contracts.words import MISSING, PARTIAL, TRUNCATED

#: of a problem too: a worker that was to open windows opened none of them, or not all
NEVER_OPENED = "never_opened"
#: of a lack of which a manifest says the words alone
STATED = "stated"
# --- what can be read off the rows and the disk, each time anew
WINDOW_OPEN = "window_open"
WINDOW_FAILED = "window_failed"
TOOL_ABSENT = "tool_absent"
FILE: Mapping[str, str] = {MISSING: "file_missing", TRUNCATED: "file_cut", PARTIAL: "file_partial"}
FILE_ODD = "file_odd"
FILE_UNREAD = "file_unread"
NOTHING = "nothing_measured"
DERIVED = frozenset(
    {NEVER_OPENED, WINDOW_OPEN, WINDOW_FAILED, TOOL_ABSENT, FILE_ODD, FILE_UNREAD, NOTHING, *FILE.values()}
)
#: those that stand there with a cause, where whoever ended the run saw one
CAUSED = frozenset({NEVER_OPENED, WINDOW_OPEN})
# --- what whoever ended the run has to say
NO_SESSION = "no_session"
STEP_LOST = "step_lost"
WORKER_UNREAD = "worker_unread"
REPORT_MISSING = "report_missing"
UNMATCHED = "unmatched"
UNKNOWN_NAME = "unknown_name"
NOBODY = "nobody"
NO_DIRECTORY = "no_directory"
UNWRITTEN = "unwritten"
