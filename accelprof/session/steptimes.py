"""Timings of each step: what every timer of the process recorded between its begin and its end."""

from __future__ import annotations

import time

from accelprof.contracts.timings import Timings
from accelprof.timing import metrics
from accelprof.timing.gate import now_ns

STEPS_REMEMBERED = 10_000
STEPS_KEPT = 16


class StepTimes:
    """The steps of a process: which were announced, and the timings of the latest.

    Attributes:
        seen: announced steps in order; only the first ten thousand are remembered.
    """

    def __init__(self) -> None:
        self.seen: dict[int, None] = {}
        self._anew = False
        self._before: dict[str, tuple[int, int]] = {}
        self._of_step: dict[int, Timings] = {}
        self._began = (0, 0)
        self._last = (0, 0)

    def begins(self, number: int) -> int:
        """The step begins; when, on the timers' clock (ns)."""
        self._anew = number in self.seen
        if len(self.seen) < STEPS_REMEMBERED:
            self.seen[number] = None
        self._before = metrics.process_totals()
        at = now_ns()
        self._began = time.time_ns(), at
        return at

    def forget(self, number: int) -> None:
        """The step that began last never came; one of that number that came earlier is kept."""
        if not self._anew:
            self.seen.pop(number, None)

    def ends(self, number: int) -> int:
        """The step ended; when, on the timers' clock (ns)."""
        at = now_ns()
        self._last = self._began[0], max(0, at - self._began[1])
        self._of_step[number] = metrics.since(self._before)
        while len(self._of_step) > STEPS_KEPT:
            del self._of_step[next(iter(self._of_step))]
        return at

    def last(self) -> tuple[int, int]:
        """Of the step that ended last: when it began (Unix epoch, ns) and how long it took (ns)."""
        return self._last

    def of(self, number: int | None = None) -> Timings:
        """``{tag: {"seconds", "count"}}`` of one finished step; of the last one when ``number`` is ``None``."""
        if number is None:
            number = next(reversed(self._of_step), None)
        return self._of_step.get(number, {}) if number is not None else {}
