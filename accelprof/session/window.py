"""One window while it is open: which tools capture, where ranges go, and what is written down about it."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from accelprof.contracts.answers import bound_of
from accelprof.contracts.backend import NO_RANGE, BoundRange, Emitter, RangeSpec
from accelprof.contracts.spans import Kind
from accelprof.contracts.targets import WindowInfo
from accelprof.contracts.tool import Tool
from accelprof.errors import PluginError
from accelprof.output.records import WindowRow
from accelprof.timing.phase import PhaseSpec, key_of

if TYPE_CHECKING:
    from accelprof.session.entering import Entering
    from accelprof.tools.trace import TraceTool

LaneBound = tuple[Callable[[], Any], Callable[[], Any], int]
Bound = tuple[tuple[BoundRange, ...], tuple[BoundRange, ...]]


class Lane:
    """What a plain timed call needs while a window is open, resolved beforehand; the wrapper in ``timer.py`` reads it.

    Attributes:
        bounds: a phase's key -> ``(push, pop, its number in the timeline)``.
        spans: where the timeline's rows go; takes ``room`` of them. Without a timeline it keeps nothing.
        running_loop: answers the event loop that runs on this thread, or ``None``.
    """

    __slots__ = ("_trouble", "_window", "bounds", "room", "running_loop", "spans")

    def __init__(self, window: Window, trouble: Callable[[str, Exception], None]) -> None:
        self._window, self._trouble = window, trouble
        self.bounds: dict[str, LaneBound] = {}
        trace = window.trace
        self.spans: Any = deque(maxlen=0) if trace is None else trace.spans
        self.room = 1 if trace is None else trace.options.max_spans
        self.running_loop = asyncio._get_running_loop

    def bind(self, spec: PhaseSpec) -> LaneBound:
        """Resolve a phase's first call in this window; a vendor that fails at it is reported and gets no range."""
        pushers: tuple[BoundRange, ...] = ()
        try:
            pushers, _ = self._window.bounds.get(spec) or self._window.bind(spec)
        except Exception as error:  # noqa: BLE001 - reported once; the user's function runs all the same
            self._trouble("resolving a range", error)
        trace = self._window.trace
        push, pop = _together(pushers)
        bound = self.bounds[key_of(spec)] = push, pop, 0 if trace is None else trace.number(spec)
        return bound

    def failed(self, error: Exception) -> LaneBound:
        """A vendor's call raised: reported once; what was not pushed is not popped."""
        self._trouble("emitting a range", error)
        return _nothing, _nothing, 0


def _nothing() -> None:
    return None


def _together(bounds: tuple[BoundRange, ...]) -> tuple[Callable[[], Any], Callable[[], Any]]:
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
        except Exception:
            for bound in reversed(pushed):
                bound.pop()
            raise

    def pop() -> None:
        failure: Exception | None = None
        for bound in reversed(bounds):
            try:
                bound.pop()
            except Exception as error:  # noqa: BLE001 - raised below, once the others are popped
                failure = failure or error
        if failure is not None:
            raise failure

    return push, pop


class Window:
    """An open window. Made after the tools have started; ``bounds`` maps a phase to its callables, resolved once."""

    __slots__ = (
        "_refuse",
        "bounds",
        "closing",
        "emitters",
        "info",
        "lane",
        "native",
        "opened",
        "opened_at",
        "overdue",
        "row",
        "steps",
        "thread",
        "tools",
        "trace",
    )

    def __init__(
        self,
        info: WindowInfo,
        tools: Sequence[Tool],
        trace: TraceTool | None,
        emitters: Sequence[Emitter],
        opened_at: int,
        row: WindowRow,
        refuse: Callable[[Emitter, PluginError], None],
    ) -> None:
        self.info, self.tools, self.trace, self.emitters = info, list(tools), trace, list(emitters)
        self.bounds: dict[PhaseSpec, Bound] = {}
        self._refuse = refuse
        self.opened_at = opened_at
        self.row = row
        #: announced steps in it, the row's own list
        self.steps: list[int] = row.steps
        self.thread = threading.get_ident()
        self.lane: Lane | None = None
        #: somebody closes it at this moment
        self.closing = False
        #: why this window must close as soon as its own thread comes by; empty = it may stay
        self.overdue = ""

    def bind(self, spec: PhaseSpec) -> Bound:
        """``(for push/pop, for start/end)`` of every emitter; those that cannot take overlapping ranges have no second."""
        where = RangeSpec(spec.tag, spec.domain, spec.color, spec.category)
        bounds: list[tuple[Emitter, BoundRange]] = []
        for emitter in list(self.emitters):
            try:
                bounds.append((emitter, bound_of(emitter, where)))
            except PluginError as error:  # it answered something that cannot be called; the others go on
                if emitter in self.emitters:
                    self.emitters.remove(emitter)
                self._refuse(emitter, error)
        pushers = tuple(bound for _, bound in bounds if bound is not NO_RANGE)
        starters = tuple(bound for emitter, bound in bounds if bound is not NO_RANGE and emitter.overlapping_ranges)
        self.bounds[spec] = pushers, starters
        return pushers, starters

    def mark_end(self, spec: PhaseSpec, which: str) -> None:
        """Emitters that cannot take overlapping ranges get marks at both ends of code that can be suspended."""
        for emitter in self.emitters:
            if not emitter.overlapping_ranges:
                emitter.mark(RangeSpec(f"{spec.tag} {which}", spec.domain, spec.color, spec.category))


class Entry:
    """One phase or range that began while something was to be done; ``leave`` ends exactly what began."""

    __slots__ = ("ends", "entrance", "kind", "owned", "scheduled", "spec", "suspends", "task", "thread", "window")

    def __init__(self, entrance: Entering, spec: PhaseSpec, kind: Kind, suspends: bool) -> None:
        self.entrance, self.spec, self.kind, self.suspends = entrance, spec, kind, suspends
        self.window: Window | None = None
        self.ends: list[Callable[[], Any]] = []
        #: the window that this phase made, and that ends with it
        self.owned: Window | None = None
        self.scheduled: Any = None
        self.task = ""
        self.thread = 0

    def emit(self, window: Window) -> None:
        """Begin the range in every tool of ``window``; what began is what ``leave`` ends, also when a later one fails."""
        self.window = window
        self.thread = threading.get_ident()
        pushers, starters = window.bounds.get(self.spec) or window.bind(self.spec)
        if not self.suspends:
            for bound in pushers:
                bound.push()  # what it returns says nothing: some tools answer -1 although they took the range
                self.ends.append(bound.pop)
            return
        for bound in starters:
            self.ends.append(functools.partial(bound.end, bound.start()))
        window.mark_end(self.spec, "begin")
        self.ends.append(functools.partial(window.mark_end, self.spec, "end"))

    def leave(self, start: int, end: int, own: int | None = None) -> None:
        """End the range, write the span, let the session close a window that this phase owns. Never raises an ``Exception``."""
        entrance = self.entrance
        for finish in reversed(self.ends):
            try:
                finish()
            except Exception as error:  # noqa: BLE001 - reported once; the user's own exception must reach the caller
                entrance.trouble("ending a range", error)
        window = entrance.window
        if window is not None and window.trace is not None:
            window.trace.add(
                self.spec,
                self.kind,
                start,
                end,
                self.thread,
                self.task,
                own,
                window is not self.window and start < window.opened_at,
            )
        if self.owned is not None or self.scheduled is not None:
            entrance.phase_ended(self)


def task_label(spec: PhaseSpec, suspends: bool, counter: Callable[[], int]) -> str:
    """Name of the asyncio task that runs here, a label of its own for a generator, empty for plain code on a thread."""
    if asyncio._get_running_loop() is not None:
        task = asyncio.current_task()
        if task is not None:
            return str(task.get_name())
    return f"{spec.tag} #{counter()}" if suspends else ""
