"""A window per planned step, or per run of adjacent ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accelprof.contracts import reasons
from accelprof.session.captures import Ask
from accelprof.session.triggers import Trigger

if TYPE_CHECKING:
    from accelprof.contracts.targets import Assignment
    from accelprof.session.captures import Captures
    from accelprof.session.pending import Pending


class Steps(Trigger):
    """Each planned window opens once, however often its steps are announced."""

    def __init__(self, assignment: Assignment, captures: Captures, pending: Pending) -> None:
        self._assignment, self._captures, self._pending = assignment, captures, pending
        self._had: set[tuple[int, int]] = set()

    def step_begins(self, number: int, away: bool) -> None:
        captures, planned = self._captures, self._assignment.window_of(number)
        if planned is None or planned in self._had or captures.window is not None:
            return
        ask = Ask("step", (number,))
        if away and captures.bound:
            starter = any(tool.thread == "starter" for tool in captures.usable())
            self._pending.put(ask, each_phase=starter, opened=lambda: self._had.add(planned))
        elif captures.open(ask) is not None:
            self._had.add(planned)
            self._pending.take_back("step")

    def step_ends(self, number: int, following: int | None) -> None:
        window = self._captures.window
        if window is not None and window.info.kind == "step":
            # one that was announced before, and again, stands in it where it was first
            last = number if number in window.steps or not window.steps else window.steps[-1]
            if not self._assignment.stays(last, following):
                reason = reasons.STEP_ENDED if following is None else reasons.STEP_OUTSIDE
                self._captures.close(reason, only=window)
        if not self._assignment.stays(number, following):
            self._pending.take_back("step")

    def step_void(self, number: int) -> None:
        window, planned = self._captures.window, self._assignment.window_of(number)
        if window is not None and window.info.kind == "step" and not window.steps:
            self._captures.close(reasons.STEP_VOID, only=window)
            self._had -= {planned}
