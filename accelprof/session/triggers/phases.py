"""``discrete``: a window per occurrence of a phase in the planned steps; the outermost one makes it."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from accelprof.contracts import reasons
from accelprof.session.captures import Ask
from accelprof.session.triggers import Trigger

if TYPE_CHECKING:
    from accelprof.contracts.targets import Assignment
    from accelprof.session.captures import Captures
    from accelprof.session.course import Course
    from accelprof.timing.entry import Entry


def never() -> bool:
    """Nothing belongs to a schedule where there is none."""
    return False


class Phases(Trigger):
    """Phases that match the plan's patterns, in planned steps.

    ``left_out``: says whether what begins now belongs to a schedule, which has windows of its own there.
    """

    def __init__(
        self, assignment: Assignment, captures: Captures, course: Course, left_out: Callable[[], bool] = never
    ) -> None:
        self._assignment, self._captures, self._course, self._left_out = assignment, captures, course, left_out
        self._planned = False

    def step_begins(self, number: int, away: bool) -> None:
        self._planned = self._assignment.window_of(number) is not None

    def step_ends(self, number: int, following: int | None) -> None:
        self._planned = False
        window = self._captures.window
        if window is not None and window.info.kind == "phase":
            self._captures.close(reasons.STEP_ENDED if following is None else reasons.STEP_OUTSIDE, only=window)

    def phase_begins(self, entry: Entry) -> None:
        captures = self._captures
        if not self._planned or captures.window is not None or not self._fits(entry.spec.tag):
            return
        with captures.lock:
            step = self._course.running if self._planned else None
            if step is not None and captures.window is None and captures.suits(entry) and not self._left_out():
                entry.owned = captures.open(Ask("phase", (step,), entry.spec.tag))

    def watching(self) -> bool:
        return self._planned

    def _fits(self, tag: str) -> bool:
        patterns = self._assignment.phases
        return not patterns or any(fnmatchcase(tag, pattern) for pattern in patterns)
