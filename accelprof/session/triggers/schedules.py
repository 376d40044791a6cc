"""Schedules: windows over a stretch of calls of one phase, counted per process, per step or per enclosing phase.

A *series* counts the calls of one schedule. Each place where its counting starts anew is a *scope*; in a scope the calls
run through wait, warm-up and record, ``repeat`` times. The calls of one "record" are a *stretch*, and a stretch makes at
most one window: it opens where the first of them begins and closes where the last of them ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, ClassVar

from accelprof.contracts.targets import ACTIVE, DONE, WARMUP, Assignment, ScheduleSpec, WindowInfo
from accelprof.output.asked import stretches, unreached
from accelprof.output.codes import NEVER_OPENED
from accelprof.session.captures import Ask
from accelprof.session.triggers import Trigger
from accelprof.timing.loops import runner

if TYPE_CHECKING:
    from accelprof.session.captures import Captures
    from accelprof.session.course import Course
    from accelprof.session.window import Window
    from accelprof.timing.entry import Entry


@dataclass(eq=False)
class _Stretch:
    """The calls of one "record", with the warm-up before them."""

    series: _Series
    turn: int
    first: int
    info: WindowInfo | None = None  # reserved while tools warm up
    window: Window | None = None
    begun: int = 0
    ended: int = 0
    recorded: int = 0
    inside: str = ""
    cut: bool = False

    @property
    def named(self) -> tuple[str, int] | None:
        """As a window's row names it, where calls are counted over the process."""
        return (self.series.name, self.first) if self.series.spec.per == "process" else None


@dataclass(eq=False)
class _Scope:
    series: _Series
    where: int
    count: int = 0
    stretch: _Stretch | None = None


@dataclass(eq=False)
class _Series:
    spec: ScheduleSpec
    scopes: list[_Scope] = field(default_factory=list)
    calls: int = 0
    homeless: int = 0
    stretches: int = 0
    longest: int = 0
    named: int = 0  # stretches that are said to be missing by themselves

    @property
    def name(self) -> str:
        return self.spec.phase

    @property
    def by_phase(self) -> bool:
        return self.spec.per not in ("process", "step")


@dataclass(eq=False)
class _Scheduled:
    """What one phase call means to the schedules; kept on its entry until it ends."""

    calls: list[tuple[_Stretch, str]] = field(default_factory=list)
    scopes: list[_Scope] = field(default_factory=list)


class Schedules(Trigger):
    """The schedules of one process; everything here happens under the session's lock.

    With ``steps`` in the plan only calls inside selected steps count, and no stretch outlives them.
    """

    counts_calls: ClassVar[bool] = True

    def __init__(self, assignment: Assignment, captures: Captures, course: Course) -> None:
        self._assignment, self._captures, self._course, self._voice = assignment, captures, course, captures.voice
        self._bounded = assignment.mode in ("steps", "all")
        self._specs = assignment.schedules
        self._series = [_Series(spec) for spec in self._specs]
        self._by_tag: dict[str, tuple[list[_Series], list[_Series]]] = {}
        self._over: set[int] = set()  # selected steps that had their turn
        self._warming: _Stretch | None = None
        for series in self._series:
            if series.spec.per == "process":
                series.scopes.append(_Scope(series, 0))

    # --- what the session tells -------------------------------------------------------------------------------------

    def step_begins(self, number: int, away: bool) -> None:
        """A step was announced: counting per step starts anew."""
        for series in self._series:
            if series.spec.per == "step" and not series.scopes:
                series.scopes.append(_Scope(series, 0))

    def step_ends(self, number: int, following: int | None) -> None:
        """A step ended, or (``following``) another was announced: what may not outlive it is cut."""
        leaves = self._bounded and not self._assignment.stays(number, following)
        if leaves or any(series.spec.per == "step" for series in self._series):
            self._over.add(number)
        for series in self._series:
            per_step = series.spec.per == "step"
            for scope in list(series.scopes):
                if per_step or leaves:
                    self._cut(scope, f"step {number} ended", "the step ended", final=per_step)
            if per_step:
                series.scopes.clear()

    def phase_begins(self, entry: Entry) -> None:
        """A phase call begins; sets ``entry.scheduled`` when its end matters here, and may open a window."""
        counting, scoping = self._of(entry.spec.tag)
        if not counting and not scoping:
            return
        with self._captures.lock:
            if self._bounded and not self._selected(self._course.running):
                return
            here = runner()
            scheduled = _Scheduled()
            for series in scoping:
                scope = _Scope(series, here)
                series.scopes.append(scope)
                scheduled.scopes.append(scope)
            for series in counting:
                call = self._count(series, here)
                if call is not None:
                    scheduled.calls.append(call)
            if scheduled.calls or scheduled.scopes:
                entry.scheduled = scheduled

    def phase_ends(self, entry: Entry) -> None:
        """The phase call of ``entry`` ended, however it ended."""
        scheduled, entry.scheduled = entry.scheduled, None
        if scheduled is None:
            return
        with self._captures.lock:
            for stretch, action in scheduled.calls:
                self._call_ended(stretch, action)
            for scope in scheduled.scopes:
                self._cut(scope, f"{entry.spec.tag} ended", "the enclosing phase ended")
                if scope in scope.series.scopes:
                    scope.series.scopes.remove(scope)

    def watching(self) -> bool:
        """Whether a phase call could still matter."""
        if self._bounded and not self._selected(self._course.running):
            return False
        return any(self._may_count(series) for series in self._series)

    def inside(self) -> bool:
        """Whether a phase runs in which calls are counted and everything else is left out."""
        return any(series.spec.keep_others and series.by_phase and series.scopes for series in self._series)

    def finish(self) -> None:
        """The session closes: open stretches are cut, and schedules that recorded nothing are named."""
        for series in self._series:
            for scope in series.scopes:
                self._cut(scope, "the session closed", "the process ended its session")
            self._say_unreached(series)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _of(self, tag: str) -> tuple[list[_Series], list[_Series]]:
        found = self._by_tag.get(tag)
        if found is None:
            counting = [series for series in self._series if fnmatchcase(tag, series.spec.phase)]
            scoping = [series for series in self._series if series.by_phase and fnmatchcase(tag, series.spec.per)]
            found = self._by_tag[tag] = counting, scoping
        return found

    def _selected(self, step: int | None) -> bool:
        if step is None or step in self._over:
            return False
        return self._assignment.window_of(step) is not None

    def _may_count(self, series: _Series) -> bool:
        if series.spec.per != "process":
            return True
        scope = series.scopes[0]
        return series.spec.place(scope.count)[0] != DONE or (scope.stretch is not None and _running(scope.stretch))

    def _count(self, series: _Series, here: int) -> tuple[_Stretch, str] | None:
        series.calls += 1
        scope = _scope_of(series, here)
        if scope is None:
            series.homeless += 1
            return None
        index = scope.count
        scope.count += 1
        series.longest = max(series.longest, scope.count)
        action, turn = series.spec.place(index)
        if action not in (WARMUP, ACTIVE):
            return None
        stretch = scope.stretch
        if stretch is None or stretch.turn != turn:
            stretch = scope.stretch = _Stretch(series, turn, index + (series.spec.warmup if action == WARMUP else 0))
            series.stretches += 1
        if action == WARMUP:
            if index == stretch.first - series.spec.warmup:
                self._warm_up(stretch)
        elif not stretch.cut:
            stretch.begun += 1
            self._record(stretch)
        return stretch, action

    def _warm_up(self, stretch: _Stretch) -> None:
        if self._captures.window is not None or self._warming is not None:
            return
        spec = stretch.series.spec
        ask = Ask("schedule", self._steps(), spec.phase, spec.warmup, spec.active, first=stretch.first)
        stretch.info = self._captures.warm_up(ask)
        if stretch.info is not None:
            self._warming = stretch

    def _end_warm_up(self, stretch: _Stretch | None) -> None:
        """Tools that warmed up for ``stretch`` stop; harmless when none did."""
        if stretch is not None and stretch.info is not None:
            self._captures.abandon(stretch.info)
            stretch.info = None
        if self._warming is stretch:
            self._warming = None

    def _record(self, stretch: _Stretch) -> None:
        """An active call begins: it lies in the stretch's own window, in somebody else's, or opens one."""
        window, name = self._captures.window, stretch.series.name
        if stretch.window is not None and window is not stretch.window:
            self._lost(stretch)  # closed by somebody else meanwhile: by budget, on demand, for a failing tool
            return
        if window is None:
            if self._warming is not stretch:
                self._end_warm_up(self._warming)
            self._warming = None
            active = stretch.series.spec.active
            mine = stretch.named
            ask = Ask(
                "schedule", self._steps(), name, active=active, info=stretch.info, first=stretch.first, stretch=mine
            )
            stretch.window, stretch.info = self._captures.open(ask), None
            if stretch.window is None:
                stretch.cut = True  # no tool could start; the session has said why
                return
        elif stretch.series.spec.keep_others and window.info.kind == "step" and stretch.first == 0:
            stretch.window = window  # it began with the step, and ends with this stretch
            self._captures.holds(window, stretch=stretch.named)
        elif window is not stretch.window:
            stretch.inside = window.info.phase or window.info.kind
            self._captures.holds(window, name, stretch.named)
            self._voice.say(
                f"schedule on {name}: calls to record began while the window of {stretch.inside} was open; they are in that one, not in a window of their own"
            )
        stretch.recorded += 1

    def _steps(self) -> tuple[int, ...]:
        step = self._course.running
        return () if step is None else (step,)

    def _call_ended(self, stretch: _Stretch, action: str) -> None:
        if action == WARMUP:
            if stretch.info is not None:
                self._captures.tick(self._captures.tools)
            return
        stretch.ended += 1
        if stretch.cut:
            return
        if stretch.ended < stretch.series.spec.active:
            if stretch.window is not None and self._captures.window is stretch.window:
                self._captures.tick(stretch.window.tools)
            return
        stretch.cut = True
        self._close(stretch, "schedule")

    def _close(self, stretch: _Stretch, reason: str, missing: str = "") -> None:
        window = stretch.window
        if window is None or self._captures.window is not window:
            return
        active = stretch.series.spec.active
        schedule = {
            "phase": stretch.series.name,
            "first": stretch.first,
            "calls": stretch.recorded,
            "planned": active,
            "partial": stretch.recorded < active,
            **({"reason": missing} if missing else {}),
        }
        self._captures.note(window, schedule=schedule)
        self._captures.request_close(reason, only=window)

    def _cut(self, scope: _Scope, reason: str, why: str, final: bool = True) -> None:
        """``scope`` ends (or only its step does, not ``final``); a stretch that it leaves unfinished is partial."""
        stretch = scope.stretch
        if stretch is None or stretch.cut:
            return
        self._end_warm_up(stretch)
        name, active = stretch.series.name, stretch.series.spec.active
        # a step or an enclosing phase may be shorter than a stretch; where calls are counted over the process these were asked for
        code = NEVER_OPENED if final and stretch.series.spec.per == "process" else ""
        if not stretch.begun:
            if final:
                stretch.cut = True
                stretch.series.named += bool(code)
                self._voice.say(f"schedule on {name}: nothing was recorded, {why} during its warm-up", code=code)
            return
        stretch.cut = True
        text = f"schedule on {name}: partial, {stretch.recorded} of {active} calls were recorded before {why}"
        self._voice.say(text, code=code)
        self._close(stretch, reason, why)

    def _lost(self, stretch: _Stretch) -> None:
        stretch.cut = True
        self._voice.say(
            f"schedule on {stretch.series.name}: partial, its window was closed after {stretch.recorded} of {stretch.series.spec.active} calls"
        )

    def _say_unreached(self, series: _Series) -> None:
        spec = series.spec
        if series.homeless and not (spec.keep_others and self._assignment.discrete):
            self._voice.say(
                f"schedule on {spec.phase}: {series.homeless} of {series.calls} calls were outside any {spec.per!r} that began while schedules were counted, so they were not counted"
            )
        if not series.stretches and series.calls > series.homeless:
            per = "" if spec.per == "process" else f" in one {spec.per}"
            self._voice.say(
                f"schedule on {spec.phase}: {series.longest} calls at most{per}, the first to record is call {spec.first} (counted from 0): nothing was recorded",
                code=NEVER_OPENED,
            )
            return
        for asked in stretches([spec] if self._captures.rows else []):
            if text := unreached(asked, self._captures.rows, series.named):
                self._voice.say(f"{text} in its {series.longest} calls", code=NEVER_OPENED)


def _running(stretch: _Stretch) -> bool:
    return not stretch.cut and stretch.ended < stretch.series.spec.active


def _scope_of(series: _Series, here: int) -> _Scope | None:
    """The scope a call counts in: its own thread's or task's innermost, else (work handed to others) the newest open one."""
    for scope in reversed(series.scopes):
        if scope.where == here or not series.by_phase:
            return scope
    return series.scopes[-1] if series.scopes else None
