"""Why a window closes, and why a session does.

The text stands as ``reason`` in the window's row, and :meth:`accelprof.contracts.tool.Tool.finalise` is told the session's. A
schedule, the budget and a request say more, in words of their own: nobody decides by those.
"""

from __future__ import annotations

# --- a window
STEP_ENDED = "step ended"
STEP_OUTSIDE = "a step outside it was announced"
STEP_VOID = "the step that it was to hold never came"
PHASE_ENDED = "phase ended"
EXCEPTION = "exception"
TOOL_FAILED = "a tool failed and on_error is raise"
ON_DEMAND = "closed on demand"
BY_SIGNAL = "closed by a signal"
TIME_OVER = "on demand: its time is over"
# --- a session, and with it the window that is open
CLOSED = "closed"
CONTROLLER_CLOSED = "controller closed"
UNINSTALLED = "uninstalled"
RESET = "reset"
PROCESS_EXIT = "process exit"
PROCESS_FAILED = "process failed"
#: the process goes on in another session of the same run
JOINED = "a further role joined"
#: names of the signals by which a job is told to end: by a launcher, a batch system, a terminal that is gone
TOLD_TO_END = ("SIGTERM", "SIGHUP")
#: the running step did not come to its end
BROKEN = frozenset({*TOLD_TO_END, PROCESS_FAILED})
#: nobody waits for a page to be made
HURRIED = frozenset({*TOLD_TO_END, RESET})
