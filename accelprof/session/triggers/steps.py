"""A window per planned step, or per run of adjacent ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accelprof.session.captures import Ask
from accelprof.session.triggers import Quiet

if TYPE_CHECKING:
    from accelprof.contracts.targets import Assignment
    from accelprof.session.captures import Captures
    from accelprof.session.pending import Pending


class Steps(Quiet):
    """Each planned window opens once, however often its steps are announced."""

    def __init__(self, assignment: Assignment, captures: Captures, pending: Pending) -> None:
        self._assignment, self._captures, self._pending = assignment, captures, pending
        self._had: set[tuple[int, int]] = set()

    def step_begins(self, number: int, away: bool) -> None:
        captures, planned = self._captures, self._planned(number)
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
            last = window.steps[-1] if window.steps else number
            if not self._goes_on(last, following):
                reason = "step ended" if following is None else "a step outside it was announced"
                self._captures.close(reason, only=window)
        if not self._goes_on(number, following):
            self._pending.take_back("step")

    def _planned(self, number: int) -> tuple[int, int] | None:
        """First and last step of the planned window that ``number`` belongs to."""
        assignment = self._assignment
        if assignment.mode == "all":
            return number, number
        if assignment.mode != "steps" or number not in assignment.steps:
            return None
        return assignment.steps.run_of(number) if assignment.merge_steps else (number, number)

    def _goes_on(self, number: int, following: int | None) -> bool:
        """Whether the window of ``number`` also holds ``following``, or any later step where that is not known."""
        planned = self._planned(number)
        if planned is None:
            return number == following
        return number < planned[1] if following is None else planned[0] <= following <= planned[1]
