"""Why a window closes, and why a session does.

The text stands as ``reason`` in the window's row, and :meth:`accelprof.contracts.tool.Tool.finalise` is told the session's. A
schedule, the budget, a request and whoever closes a session say more, in words of their own. Nobody decides by words: a decision
asks :func:`among` whether it is one of the reasons below, which a text that reads the same is not.
"""

from __future__ import annotations


class Reason(str):
    """One of the reasons below: its words, for people, and ``code``, by which it is known again, in another process too."""

    code: str

    def __new__(cls, code: str, words: str) -> Reason:
        found = super().__new__(cls, words)
        found.code = code
        return found

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]  # a text has one
        return self.code, str(self)


def among(reason: str, *known: Reason) -> bool:
    """Whether ``reason`` is one of those that are ``known``, whatever its words."""
    return isinstance(reason, Reason) and reason.code in {one.code for one in known}


# --- a window
STEP_ENDED = Reason("step_ended", "step ended")
STEP_OUTSIDE = Reason("step_outside", "a step outside it was announced")
STEP_VOID = Reason("step_void", "the step that it was to hold never came")
PHASE_ENDED = Reason("phase_ended", "phase ended")
EXCEPTION = Reason("exception", "exception")
TOOL_FAILED = Reason("tool_failed", "a tool failed and on_error is raise")
ON_DEMAND = Reason("on_demand", "closed on demand")
BY_SIGNAL = Reason("by_signal", "closed by a signal")
TIME_OVER = Reason("time_over", "on demand: its time is over")
# --- a session, and with it the window that is open
CLOSED = Reason("closed", "closed")
CONTROLLER_CLOSED = Reason("controller_closed", "controller closed")
UNINSTALLED = Reason("uninstalled", "uninstalled")
RESET = Reason("reset", "reset")
PROCESS_EXIT = Reason("process_exit", "process exit")
PROCESS_FAILED = Reason("process_failed", "process failed")
#: the process goes on in another session of the same run
JOINED = Reason("joined", "a further role joined")
#: names of the signals by which a job is told to end: by a launcher, a batch system, a terminal that is gone
TOLD_TO_END = (Reason("sigterm", "SIGTERM"), Reason("sighup", "SIGHUP"))
#: the running step did not come to its end
BROKEN = frozenset({*TOLD_TO_END, PROCESS_FAILED})
#: nobody waits for a page to be made
HURRIED = frozenset({*TOLD_TO_END, RESET})
