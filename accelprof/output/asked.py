"""What a plan asks of a process, as the process's row keeps it, and which of that did not come.

One rule for those that say it themselves at their end, and for those that were killed, of which plan and rows tell it.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from accelprof import texts
from accelprof.contracts.targets import NO_STEPS, Assignment, ScheduleSpec, StepWindows
from accelprof.numberset import NumberSet
from accelprof.output.layout import seen_text
from accelprof.output.records import StretchesRow, TargetRow, WindowRow

#: windows that are named one by one
NAMED = 20
#: steps of one process that are gone over
CAME = 1_000_000
#: phases that are
NAMED_PHASES = 12


@dataclass(frozen=True)
class ByStep:
    """Windows by step, however many: nothing is listed out.

    Attributes:
        steps: those that are to be recorded; ``merged``: adjacent ones share a window.
        sure: a window opens with its step; otherwise only where the phases for it come in it.
        listed: in place of ``steps``: first and last of each window, as rows of older versions have them.
    """

    steps: NumberSet = NO_STEPS
    merged: bool = False
    sure: bool = True
    listed: Sequence[tuple[int, int]] = ()

    @classmethod
    def of(cls, assignment: Assignment) -> ByStep:
        """What a plan asks. Nothing where nobody can know it beforehand (every step), where the process is one window, and where
        schedules count over the process, so that steps only bound them."""
        sure = assignment.by_step
        counted = sure or assignment.by_phase or any(spec.per != "process" for spec in assignment.schedules)
        if assignment.mode != "steps" or not counted:
            return cls(sure=sure)
        return cls(assignment.steps, assignment.merge_steps and sure, sure)

    @property
    def _windows(self) -> StepWindows:
        return StepWindows(self.steps, self.merged)

    @classmethod
    def of_row(cls, row: TargetRow) -> ByStep:
        """What the row of a process keeps of it."""
        if row.steps_planned:
            return cls(NumberSet.parse(row.steps_planned), row.merged, not row.discrete)
        return cls(sure=not row.discrete, listed=row.windows_planned)

    def to_config(self) -> list[int | str]:
        """The steps as a configuration has them; numbers at equal distances, which a set keeps one by one, in one text."""
        found: list[int | str] = []
        singles: list[int] = []
        for first, last, stride in (*self.steps.runs, (-1, -1, 0)):
            alone = first == last and stride == 1
            if singles and not (alone and (len(singles) == 1 or first - singles[-1] == singles[1] - singles[0])):
                found += singles if len(singles) < 3 else [f"{singles[0]}-{singles[-1]}/{singles[1] - singles[0]}"]
                singles.clear()
            if alone:
                singles.append(first)
            elif stride:
                found += NumberSet(((first, last, stride),)).to_config()
        return found

    def missed(
        self, windows: Collection[WindowRow], seen: Collection[int], ended: bool = True, known: Collection[int] = ()
    ) -> Missed:
        """Which of them did not open though others did.

        Windows before the first step that the process saw are none of its own (a training that goes on from a checkpoint), and
        one that is not sure is not missed where its step came.

        Args:
            seen: steps that the process saw.
            ended: those are all of them; otherwise it saw the steps of its windows and the one before the first of them from which
                on it saw any, and maybe others before the last.
            known: of one that did not end, the steps of which it wrote the timings: with them none before the last is left open.
        """
        recorded = {step for row in windows for step in row.steps}
        came = set(seen) if ended else {*steps_of(windows), *seen, *known}
        begin = min(came, default=0)
        if not (self.sure or ended or known):
            begin = max(came, default=-1) + 1
        return Missed(self, begin, frozenset(self.holding(recorded if self.sure else recorded | came)))

    def until(self, step: int | None) -> ByStep:
        """Those before ``step``, which another answers for with all that come later; nothing where it is not known."""
        if step is None:
            return replace(self, steps=NO_STEPS, listed=())
        listed = [(first, min(last, step - 1)) for first, last in self.listed if first < step]
        return replace(self, steps=self.before(step), listed=listed)

    def before(self, step: int) -> NumberSet:
        """Those of the steps that lie before ``step``."""
        return NumberSet(
            tuple(
                (first, min(last, first + (step - 1 - first) // stride * stride), stride)
                for first, last, stride in self.steps.runs
                if first < step
            )
        )

    def holding(self, steps: Collection[int]) -> set[tuple[int, int]]:
        """The windows in which one of ``steps`` lies."""
        if self.listed:
            ordered = sorted(steps)
            return {window for window in self.listed if _any_in(ordered, *window)}
        windows = self._windows
        return {window for step in steps if (window := windows.of(step)) is not None}

    def since(self, begin: int) -> Iterator[tuple[int, int]]:
        """Windows that end at ``begin`` or later, in order."""
        yield from (window for window in self.listed if window[1] >= begin)
        yield from self._windows.since(begin)

    def number_since(self, begin: int) -> int:
        """How many there are of them."""
        return sum(last >= begin for _, last in self.listed) + self._windows.number_since(begin)


@dataclass(frozen=True)
class Missed:
    """Windows that end at ``begin`` or later and are not ``there``; a step is in it that lies in one of them."""

    asked: ByStep
    begin: int
    there: frozenset[tuple[int, int]]

    @property
    def words(self) -> str:
        """In words; empty where none is missing."""
        number = self.asked.number_since(self.begin) - sum(last >= self.begin for _, last in self.there)
        found = (window for window in self.asked.since(self.begin) if window not in self.there)
        named = [f"{first}" if first == last else f"{first}-{last}" for first, last in itertools.islice(found, NAMED)]
        more = f" and {number - len(named):,} more" if number > len(named) else ""
        return f"windows for steps {', '.join(named)}{more} never opened" if named else ""

    def __contains__(self, step: object) -> bool:
        own = self.asked.holding([step]) if isinstance(step, int) else ()
        return any(window[1] >= self.begin and window not in self.there for window in own)


def steps_of(windows: Iterable[WindowRow]) -> set[int]:
    """The steps that a process is known to have seen by its windows."""
    found = set()
    for row in windows:
        found.update(row.steps)
        if row.seen_from is not None:
            found.add(row.seen_from)
    return found


def first_of(row: TargetRow, windows: Iterable[WindowRow]) -> int | None:
    """The first step that a process saw; ``None`` where it is not known of any."""
    return min({*steps_of(windows), *row.steps_seen, *came_of(row)[:1]}, default=None)


def came_of(row: TargetRow) -> list[int]:
    """The steps of which a process that did not end wrote the timings, the first :data:`CAME` of them."""
    return list(itertools.islice(NumberSet.parse(row.steps_came), CAME))


def _any_in(steps: Sequence[int], first: int, last: int) -> bool:
    at = bisect_left(steps, first)
    return at < len(steps) and steps[at] <= last


def stretches(specs: Iterable[ScheduleSpec]) -> list[StretchesRow]:
    """What schedules ask that count over the process. How often the others are to record hangs on what the process runs."""
    return [
        StretchesRow(phase=spec.phase, first=spec.first, every=spec.cycle, count=spec.repeat)
        for spec in specs
        if spec.per == "process"
    ]


def recorded(asked: StretchesRow, windows: Iterable[WindowRow]) -> int:
    """How many of these stretches windows hold, or begin to."""
    firsts = {first for row in windows for phase, first in row.stretches if phase == asked.phase}
    return sum(asked.has(first) for first in firsts)


def unreached(asked: StretchesRow, windows: Iterable[WindowRow], named: int = 0) -> str:
    """That not all of these stretches were recorded, in words; empty where all were that are not ``named`` by themselves. Of those
    without an end one is asked for."""
    came, wanted = recorded(asked, windows), max(1, asked.count)
    if came + named >= wanted:
        return ""
    return f"schedule on {asked.phase}: {came:,} of {wanted:,} stretches were recorded"


def none_opened(
    seen: Sequence[int], phases: Sequence[str], wanted: str | None, tool: str | None, more: str = ""
) -> str:
    """That a process was to open windows and opened none, in words: of those ``wanted``, by ``tool``, with the steps and phases that
    it saw; ``more``: what is to be said of steps that are not among these."""
    steps = f"{seen_text(seen)}{more}"
    text = f"armed, 0 windows opened; steps seen: {steps}; phases seen: {texts.listed(phases, NAMED_PHASES) or 'none'}"
    text = f"{text}; tool: {tool}" if tool else text
    return f"{text}; wanted: {wanted}" if wanted else text
