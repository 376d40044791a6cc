"""What timers and the open window say to each other: the entrance they call, a phase that began, and what plain calls need."""

from __future__ import annotations

import functools
import itertools
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from accelprof.contracts.backend import BoundRange
from accelprof.contracts.spans import Kind, TimelineRow
from accelprof.errors import failures
from accelprof.timing.loops import greenlets, loaded, overlaps, running_loop, running_task
from accelprof.timing.phase import IN_PIECES, ON_STACK, SUSPENDS, PhaseSpec, key_of
from accelprof.timing.range_cost import RangeCost

#: a phase's callables in an open window: for push/pop, for start/end
Bound = tuple[tuple[BoundRange, ...], tuple[BoundRange, ...]]
#: a phase of plain calls: push, pop, its number in the timeline
PlainBound = tuple[Callable[[], object], Callable[[], object], int]
#: of an ad-hoc range: the same, and the phase that it is
RangeBound = tuple[Callable[[], object], Callable[[], object], int, PhaseSpec]
#: pieces of a generator's call that get a row of their own in any case; those after them share one while nothing else is recorded between them
MAX_PIECES = 1000


class Timeline(Protocol):
    """Our own timeline beside the tools of a window."""

    rows: list[tuple[object, ...]]
    options: Any

    def number(self, spec: PhaseSpec) -> int: ...
    def add(
        self,
        spec: PhaseSpec,
        kind: Kind,
        start: int,
        end: int,
        thread: int,
        task: str,
        own: int | None,
        in_progress: bool,
        call: int = 0,
    ) -> None: ...


class OpenWindow(Protocol):
    """What is asked of the open window here."""

    @property
    def trace(self) -> Timeline | None: ...
    @property
    def opened_at(self) -> int: ...
    @property
    def bounds(self) -> Mapping[PhaseSpec, Bound]: ...

    def bind(self, spec: PhaseSpec) -> Bound: ...
    def mark_end(self, spec: PhaseSpec, which: str) -> None: ...


class Owner(Protocol):
    """The session's entrance, as an entry sees it."""

    @property
    def window(self) -> OpenWindow | None: ...

    def trouble(self, doing: str, error: BaseException) -> None: ...
    def phase_ended(self, entry: Entry) -> None: ...


class PlainCalls:
    """What a plain timed call needs while a window is open, resolved beforehand; the wrapper in ``timer.py`` reads it.

    Attributes:
        phases: a phase's key -> ``(push, pop, its number in the timeline)``.
        ranges: the same for ad-hoc ranges, by label or ``(label, color, domain, category)``, with the range's own phase.
        rows: where the timeline's rows go. Without a timeline it keeps nothing.
        most, room: rows that are taken at most, and the same while the gate's ``direct`` is this one; else 0.
        quick: where the calls of a window without tools go, as ``(number of the phase, start, end, thread)``: the flight recorder's;
            ``None`` for any other window.
        numbers: of it, a phase's key -> its number.
        cost: times the first calls in the window; ``None`` where nobody asks.
        alone: nobody has to ask ``overlaps``: no phase was ever suspended here, so those of a thread nest.
        overlaps: answers something else than ``None`` where this thread's calls are not plain (an event loop, greenlets).
    """

    __slots__ = (
        "_trouble",
        "_window",
        "alone",
        "cost",
        "most",
        "numbers",
        "overlaps",
        "phases",
        "quick",
        "ranges",
        "room",
        "rows",
    )

    def __init__(
        self, window: OpenWindow, trouble: Callable[[str, BaseException], None], cost: RangeCost | None = None
    ) -> None:
        self._window, self._trouble, self.cost = window, trouble, cost
        self.phases: dict[str, PlainBound] = {}
        self.ranges: dict[object, RangeBound] = {}
        self.quick: list[tuple[int, int, int, int]] | None = None
        self.numbers: dict[str, int] = {}
        trace = window.trace
        self.rows: Any = deque(maxlen=0) if trace is None else trace.rows
        self.most, self.room = (1 if trace is None else trace.options.max_spans), 0
        self.alone = False
        self.suspended()

    def suspended(self) -> None:
        """Some phase may be suspended here: from now on plain calls ask."""
        self.alone = False
        asyncio = loaded("asyncio")
        #: where no loop can run yet, a module that appears meanwhile takes calls to the way that asks for its loop
        self.overlaps: Callable[[], object] = functools.partial(sys.modules.get, "asyncio")
        if greenlets():
            self.overlaps = overlaps
        elif asyncio is not None:
            self.overlaps = asyncio._get_running_loop

    def number(self, spec: PhaseSpec) -> int:
        """The number of a phase whose first quick call this is."""
        trace = self._window.trace
        number = self.numbers[key_of(spec)] = 0 if trace is None else trace.number(spec)
        return number

    def bind(self, spec: PhaseSpec) -> PlainBound:
        """Resolve a phase's first call in this window; a vendor that fails at it is said and gets no range."""
        key, bound = key_of(spec), self._resolve(spec)
        if self.cost is None or self.cost.known:
            self.phases[key] = bound
            return bound
        push, pop, number = bound
        timed = self.phases[key] = (
            *self.cost.timed(push, pop, functools.partial(self.phases.__setitem__, key, bound)),
            number,
        )
        return timed

    def bind_range(self, key: object, spec: PhaseSpec) -> RangeBound:
        """The same for an ad-hoc range."""
        push, pop, number = self._resolve(spec)
        bound = self.ranges[key] = (push, pop, number, spec)
        if self.cost is None or self.cost.known:
            return bound
        timed = self.ranges[key] = (
            *self.cost.timed(push, pop, functools.partial(self.ranges.__setitem__, key, bound)),
            number,
            spec,
        )
        return timed

    def _resolve(self, spec: PhaseSpec) -> PlainBound:
        pushers: tuple[BoundRange, ...] = ()
        try:
            pushers, _ = self._window.bounds.get(spec) or self._window.bind(spec)
        except failures() as error:  # said once; the user's function runs all the same
            self._trouble("resolving a range", error)
        trace = self._window.trace
        push, pop = _together(pushers)
        return push, pop, 0 if trace is None else trace.number(spec)

    def failed(self, error: BaseException) -> tuple[Callable[[], object], Callable[[], object]]:
        """A vendor's call raised: said once; what was not pushed is not popped."""
        self._trouble("emitting a range", error)
        return _nothing, _nothing


def _nothing() -> None:
    return None


def _together(bounds: tuple[BoundRange, ...]) -> tuple[Callable[[], object], Callable[[], object]]:
    """One push and one pop for any number of emitters."""
    if not bounds:
        return _nothing, _nothing
    if len(bounds) == 1:
        return bounds[0].push, bounds[0].pop

    def push() -> None:
        pushed: list[BoundRange] = []
        try:
            for bound in bounds:
                bound.push()
                pushed.append(bound)
        except failures():
            for bound in reversed(pushed):
                bound.pop()
            raise

    def pop() -> None:
        failure: BaseException | None = None
        for bound in reversed(bounds):
            try:
                bound.pop()
            except failures() as error:  # raised below, once the others are popped
                failure = failure or error
        if failure is not None:
            raise failure

    return push, pop


_call_numbers = itertools.count(1)


class Entry:
    """One phase or range that began while something was open; ``leave`` ends exactly what began.

    A call in pieces (a generator) emits nothing when it begins: each piece does, between ``resume`` and ``pause``.
    """

    __slots__ = (
        "call",
        "ends",
        "entrance",
        "kind",
        "last",
        "owned",
        "pieces",
        "scheduled",
        "spec",
        "suspends",
        "task",
        "thread",
        "window",
    )

    def __init__(self, entrance: Owner, spec: PhaseSpec, kind: Kind, suspends: int) -> None:
        self.entrance, self.spec, self.kind, self.suspends = entrance, spec, kind, suspends
        self.window: OpenWindow | None = None
        self.ends: list[Callable[[], object]] = []
        #: the window that this phase made, and that ends with it
        self.owned: Any = None
        self.scheduled: Any = None
        self.task = ""
        self.thread = threading.get_ident()
        self.call = next(_call_numbers) if suspends == IN_PIECES else 0
        self.pieces = 0
        #: the row of the piece before, once there are ``MAX_PIECES``
        self.last: TimelineRow | None = None

    def emit(self, window: OpenWindow) -> None:
        """Begin the range in every tool of ``window``; what began is what ``leave`` ends, also when a later one fails."""
        self.window = window
        self.thread = threading.get_ident()
        if self.suspends != IN_PIECES:
            self._begin(window, self.suspends == ON_STACK)

    def _begin(self, window: OpenWindow, on_stack: bool) -> None:
        pushers, starters = window.bounds.get(self.spec) or window.bind(self.spec)
        if on_stack:
            for bound in pushers:
                bound.push()  # what it returns says nothing: some tools answer -1 although they took the range
                self.ends.append(bound.pop)
            return
        for bound in starters:
            self.ends.append(functools.partial(bound.end, bound.start()))
        window.mark_end(self.spec, "begin")
        self.ends.append(functools.partial(window.mark_end, self.spec, "end"))

    def _end(self) -> None:
        ends, self.ends = self.ends, []
        for finish in reversed(ends):
            try:
                finish()
            except failures() as error:  # said once; the user's own exception must reach the caller
                self.entrance.trouble("ending a range", error)

    def resume(self, on_stack: bool) -> None:
        """A piece begins: the generator goes on, on this thread and in this task. Never raises an ``Exception``."""
        window = self.window = self.entrance.window
        self.thread, self.task = threading.get_ident(), task_name()
        if window is None:
            return
        try:
            self._begin(window, on_stack)
        except failures() as error:  # said once; the user's generator goes on all the same
            self.entrance.trouble("beginning a range", error)

    def pause(self, start: int, end: int) -> None:
        """The piece is over: an item came, or the end."""
        self._end()
        self.pieces += 1
        window = self.entrance.window
        if self.pieces <= MAX_PIECES or window is None or window.trace is None:
            self._write(start, end, end - start)
            return
        rows = window.trace.rows
        at = len(rows) - 1
        last = self.last
        if last is not None and at >= 0 and rows[at] is last and (last.thread, last.task) == (self.thread, self.task):
            rows[at] = self.last = last._replace(end_ns=end, own_ns=(last.own_ns or 0) + end - start)
            return
        self._write(start, end, end - start)
        row = rows[-1] if rows else None
        self.last = row if isinstance(row, TimelineRow) and row.call == self.call and row.end_ns == end else None

    def leave(self, start: int, end: int) -> None:
        """End the range, write the span, let the session close a window that this phase owns. Never raises an ``Exception``."""
        self._end()
        if self.suspends != IN_PIECES:
            self._write(start, end, None)
        if self.owned is not None or self.scheduled is not None:
            self.entrance.phase_ended(self)

    def _write(self, start: int, end: int, own: int | None) -> None:
        window = self.entrance.window
        if window is not None and window.trace is not None:
            cut = window is not self.window and start < window.opened_at
            window.trace.add(self.spec, self.kind, start, end, self.thread, self.task, own, cut, self.call)


def task_name() -> str:
    """Name of the task that runs here; empty for plain code on a thread."""
    task = running_task()
    if task is None:
        return ""
    name = getattr(task, "get_name", None)  # trio's tasks have an attribute
    return str(name() if name is not None else getattr(task, "name", task))


def task_label(spec: PhaseSpec, suspends: int, counter: Callable[[], int]) -> str:
    """Name of the task that runs here, a label of its own for other code that can be suspended, empty for plain code on a thread."""
    if running_loop() is not None or suspends == SUSPENDS:
        return task_name() or (f"{spec.tag} #{counter()}" if suspends == SUSPENDS else "")
    return ""
