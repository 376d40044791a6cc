"""What one range costs while a window is open: the first plain calls in it are timed around their tools' calls, others are not."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from accelprof.contracts.spans import Kind, TimelineRow
from accelprof.timing.gate import now_ns

#: calls that are timed for each set of tools in a process; the first of them load what the tool needs
CALLS = 16
#: repetitions of what is measured beside them, when their window has closed
REPEATS = 32
Call = Callable[[], object]


def _nothing() -> None:
    return None


class RangeCost:
    """Of the ranges of one set of emitters in one process. Calls of several threads may come in between each other.

    Attributes:
        taken: ns of push and pop, with the clock's own, of each call that was timed.
    """

    __slots__ = ("_around", "taken")

    def __init__(self) -> None:
        self.taken: list[int] = []
        self._around: int | None = None

    @property
    def known(self) -> bool:
        """Whether enough calls were timed."""
        return len(self.taken) >= CALLS

    def timed(self, push: Call, pop: Call, enough: Callable[[], None]) -> tuple[Call, Call]:
        """The same two, timed; ``enough`` is called with the last of them that was wanted."""
        begun: list[int] = []

        def timed_push() -> None:
            before = now_ns()
            push()
            begun.append(now_ns() - before)

        def timed_pop() -> None:
            before = now_ns()
            pop()
            if begun:
                self.taken.append(begun.pop() + now_ns() - before)
            if self.known:
                enough()

        return timed_push, timed_pop

    def of_one(self, rows: bool) -> tuple[int | None, int | None]:
        """ns of one range, the median of push and pop, with its row in the timeline where ``rows`` are kept; and how many calls
        were timed. Both ``None`` where none was."""
        if not self.taken:
            return None, None
        if self._around is None:
            self._around = _clock()
        return max(round(median(self.taken)) - self._around, 0) + (_keeping() if rows else 0), len(self.taken)


def _clock() -> int:
    """ns that timing a push and a pop takes where both do nothing."""
    probe = RangeCost()
    push, pop = probe.timed(_nothing, _nothing, _nothing)
    for _ in range(REPEATS):
        push()
        pop()
    return round(median(probe.taken))


def _keeping() -> int:
    rows: list[tuple[object, ...]] = []
    before = now_ns()
    for number in range(REPEATS):
        rows.append((*TimelineRow(number, Kind.PHASE.value, before, before, 0),))
    return (now_ns() - before) // REPEATS
