"""What timers see of a session while something is to be done besides timing: the gate's ``Entrance``."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from accelprof.contracts import reasons
from accelprof.contracts.backend import RangeSpec
from accelprof.contracts.spans import Kind
from accelprof.errors import failures
from accelprof.session.window import Window
from accelprof.timing.entry import Entry, PlainCalls, task_label
from accelprof.timing.gate import now_ns
from accelprof.timing.loops import running_loop
from accelprof.timing.phase import IN_PIECES, SUSPENDS, PhaseSpec

if TYPE_CHECKING:
    from accelprof.session.captures import Captures
    from accelprof.session.pending import Pending
    from accelprof.session.triggers import Trigger


class Entering:
    """Phases, ranges and marks come in here; phases are passed on to the triggers, and all are emitted in the open window."""

    def __init__(self, captures: Captures, triggers: Sequence[Trigger], pending: Pending) -> None:
        self._captures, self._triggers, self._pending = captures, tuple(triggers), pending
        self._backend, self._voice = captures.backend, captures.voice
        self._labels = itertools.count(1)
        self._device_timers = True
        #: where rows go while no window is open: the flight recorder's, if there is one
        self.background: Window | None = None

    @property
    def window(self) -> Window | None:
        """The open window, or what stands in its place, or ``None``."""
        return self._captures.window or self.background

    def attention(self) -> tuple[bool, PlainCalls | None]:
        """Whether anything is to be done besides timing, and what plain calls need where they need nothing else."""
        window = self._captures.window
        watched = heard = False
        for trigger in self._triggers:
            if trigger.watching():
                watched, heard = True, heard or trigger.counts_calls
        if window is None:
            watched = watched or self._pending.ask is not None
            if self.background is not None and not watched:
                return True, self.background.plain
            return watched or self.background is not None, None
        return True, None if heard or window.overdue else window.plain

    def enter(self, spec: PhaseSpec, suspends: int) -> Entry | None:
        """A phase begins; may open a window. ``None`` when nothing has to be done at its end."""
        return self._enter(Entry(self, spec, Kind.PHASE, suspends))

    def enter_range(self, spec: PhaseSpec, suspends: int) -> Entry | None:
        """A ``profiling_range`` begins; it never opens a window."""
        return self._enter(Entry(self, spec, Kind.RANGE, suspends))

    def goes_on(self, spec: PhaseSpec) -> Entry:
        """A generator's call goes on that began before the window; its pieces are emitted from here on."""
        return Entry(self, spec, Kind.PHASE, IN_PIECES)

    def _enter(self, entry: Entry) -> Entry | None:
        captures = self._captures
        try:
            if captures.window is not None and captures.window.overdue:
                captures.close_overdue()
            if entry.kind is Kind.PHASE:
                for trigger in self._triggers:
                    trigger.phase_begins(entry)
                if captures.window is None and self._pending.ask is not None:
                    self._pending.phase_begins(entry)
            background = self.background
            plain = None if background is None else background.plain
            if plain is not None and plain.alone and _suspends(entry):
                plain.suspended()
            window = captures.window or background
            if window is not None:
                entry.task = task_label(entry.spec, entry.suspends, self._labels.__next__)
                entry.emit(window)
                return entry
        except failures() as error:  # said once; the user's function runs all the same
            self.trouble("beginning a range", error)
            return entry if entry.ends or entry.owned is not None or entry.scheduled is not None else None
        return entry if entry.scheduled is not None else None

    def phase_ended(self, entry: Entry) -> None:
        """A phase that owns a window, or that a schedule counts, ended."""
        captures = self._captures
        try:
            if entry.scheduled is not None:
                for trigger in self._triggers:
                    trigger.phase_ends(entry)
            if entry.owned is not None:
                captures.close(reasons.PHASE_ENDED, only=entry.owned)
            captures.close_overdue()
        except failures() as error:  # said once
            self.trouble("ending a phase", error)

    def ended_inside(self, spec: PhaseSpec, start: int, end: int, kind: str = Kind.PHASE.value) -> None:
        """A phase that began while nothing was to be done ended now; it goes to the timeline as one already in progress."""
        window = self.window
        if window is not None and window.trace is not None and end > window.opened_at:
            cut = start < window.opened_at
            window.trace.add(spec, Kind(kind), start, end, threading.get_ident(), "", None, cut)

    def mark(self, spec: PhaseSpec) -> None:
        """An instant, in every tool of the open window and in the timeline."""
        window = self.window
        if window is None:
            return
        try:
            where = RangeSpec(spec.tag, spec.domain, spec.color, spec.category)
            for emitter in window.emitters:
                emitter.mark(where)
        except failures() as error:  # said once
            self.trouble("leaving a mark", error)
        if window.trace is not None:
            window.trace.add_mark(spec, now_ns(), threading.get_ident())

    def device_timer(self) -> Any:
        """Device events of the backend for one call, or ``None`` where there are none."""
        if not self._device_timers:
            return None
        try:
            return self._backend.device_timer()
        except failures() as error:  # said once, then no more asked
            self.device_timer_failed(error)
            return None

    def device_timer_failed(self, error: BaseException) -> None:
        """Device events of this backend do not work: said once, and none are asked for any more."""
        self._device_timers = False
        self.trouble("timing on the device", error)

    def opens_by_phase(self) -> bool:
        """Whether the plan has windows that a phase makes, not a step: discrete ones, or a schedule's."""
        assignment = self._captures.process.assignment
        return assignment.discrete or bool(assignment.schedules)

    def say(self, text: str) -> bool:
        """Tell the user once."""
        return self._voice.say(text)

    def trouble(self, doing: str, error: BaseException) -> None:
        """A failure of ours or of a backend: said once, and deferred."""
        self._voice.trouble(doing, error)


def _suspends(entry: Entry) -> bool:
    """Whether others of its thread may run in the middle of it: a coroutine, an asynchronous generator, a greenlet."""
    return entry.suspends == SUSPENDS or (entry.suspends == IN_PIECES and running_loop() is not None)
