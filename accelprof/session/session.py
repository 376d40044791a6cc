"""The one owner of a process's profiling state: steps come in, windows open and close, ranges and spans go out.

State changes after the vendor's call succeeded; a window ends exactly once; a tool that fails is reported once and
never stops the user's code (unless ``on_error: raise`` asks for it).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from accelprof.contracts.backend import Backend, RangeSpec
from accelprof.contracts.spans import Kind
from accelprof.contracts.targets import Assignment
from accelprof.contracts.tool import Tool
from accelprof.errors import CaptureError
from accelprof.output.layout import Layout
from accelprof.session.capturing import Capturing
from accelprof.session.reporting import text_of
from accelprof.session.window import Entry, Window, task_label
from accelprof.timing import metrics
from accelprof.timing.gate import gate, now_ns
from accelprof.timing.phase import PhaseSpec

if TYPE_CHECKING:
    from accelprof.catalogue import Catalogue
    from accelprof.config.model import Config
    from accelprof.session.control import Control
    from accelprof.session.instrument import Instruments
    from accelprof.session.schedule import Scheduler
    from accelprof.tools.trace import TraceTool

STEPS_REMEMBERED = 10_000
#: why a session is closed whose process goes on as a worker with more roles
JOINED = "a further role joined"


class Session(Capturing):
    """See the module. Made by :func:`accelprof.configure`; use ``step``, ``begin_step``/``end_step`` and ``close``.

    Attributes:
        assignment: what the plan gives this process.
        window: the open window, or ``None``.
        windows: records of all windows so far (the manifest's ``windows`` rows).
    """

    def __init__(
        self,
        config: Config,
        assignment: Assignment,
        backend: Backend,
        tools: Sequence[Tool],
        trace: TraceTool | None,
        layout: Layout,
        host: str,
        registry: Catalogue,
        scheduler: Scheduler | None = None,
    ) -> None:
        super().__init__(config, assignment, backend, tools, trace, layout, host, registry, scheduler)
        self.step_now: int | None = None
        self.step_metrics: dict[int, dict[str, dict[str, float]]] = {}
        self.instruments: Instruments | None = None
        self.control: Control | None = None
        self._done: set[Any] = set()
        self._split = False
        self._plain_work = False
        self._labels = itertools.count(1)
        self._step_totals: dict[str, tuple[int, int]] = {}
        self._device_timers = True

    # --- steps ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[Session]:
        """One training step; opens and closes windows as the plan says. An exception of the body reaches the caller unchanged."""
        self.begin_step(number)
        try:
            yield self
        except BaseException:
            self._leave_by_exception(number)
            raise
        else:
            self.end_step(number)

    def _leave_by_exception(self, number: int) -> None:
        """The step's body raised: its window closes, also one that would have held later steps; that exception alone is raised."""
        with self._lock:
            if self.window is not None and self.window.info.kind in ("step", "phase"):
                self.close_window("exception")
            try:
                self.end_step(number)
            except CaptureError as error:
                self.report(str(error))

    def begin_step(self, number: int, *, control: bool = False) -> None:
        """A step begins. ``control``: announced from outside (a controller's call), maybe on another thread than the work.

        Raises:
            TypeError: ``number`` is not a whole number.
            CaptureError: a tool failed and ``on_error`` is ``raise``.
        """
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"begin_step: step numbers are whole numbers, got {number!r}")
        with self._lock:
            if self.closed:
                return
            if self.step_now is not None and self.step_now != number:
                self._finish_step(self.step_now)
            if len(self.steps_seen) < STEPS_REMEMBERED:
                self.steps_seen[number] = None
            if self.scheduler is not None and self.step_now not in (None, number):
                self.guarded("ending a schedule's step", self.scheduler.step_ends, self, self.step_now, number)
            self.step_now = number
            self._leave_windows_without(number)
            if self.instruments is not None:
                self.instruments.settle()
            self._step_totals = metrics.process_totals()
            if not self._plain_work and any(tool.thread != "any" for tool in self.tools):
                self._plain_work = any(state.plain_calls for state in metrics.all_states())
            self.guarded("beginning a step", self.backend.step_begin, number)
            if self.window is not None and not self.window.overdue:
                self._add_step(self.window, number)
            elif self.assignment.selected:
                self._enter_step(number, control)
            if self.scheduler is not None:
                self.guarded("counting a schedule", self.scheduler.step_begins, self, number)
            self._set_hot()
        if self.hooks["accelprof_step_begin"]:
            self.registry.event("accelprof_step_begin", session=self, step=number)
        if self.owed is not None:
            self.close_window("a tool failed and on_error is raise")
            self.pay()

    def end_step(self, number: int | None = None) -> None:
        """The step ended; a window that holds no later step closes. Harmless when no step is running."""
        with self._lock:
            number = self.step_now if number is None else number
            if self.closed or number is None or number != self.step_now:
                return
            self._finish_step(number)
            if self.scheduler is not None:
                self.guarded("ending a schedule's step", self.scheduler.step_ends, self, number, None)
            self.step_now = None
            window = self.window
            if window is not None and window.info.kind in ("step", "phase") and not self._continues(number):
                self.close_window("step ended")
            if self._armed is not None and self._armed[0] == "step" and not self._continues(number):
                self._armed = None
            self._discrete_step = None
            self._split = False
            self._set_hot()
        if self.hooks["accelprof_step_end"]:
            self.registry.event("accelprof_step_end", session=self, step=number)
        self.pay()

    def _enter_step(self, number: int, control: bool) -> None:
        wanted = self._window_for(number)
        if wanted is None:
            return
        assignment = self.assignment
        if assignment.schedules:
            return  # the scheduler opens inside the step
        if assignment.discrete:
            self._discrete_step = number
            return
        if wanted in self._done:
            return
        if control and threading.current_thread() is not threading.main_thread():
            kinds = {tool.thread for tool in self._usable()}
            if kinds & {"starter", "work"}:
                # the announcing thread is not the one that works: open where the next phase begins
                self._split = "starter" in kinds
                self._armed = ("step", (number,))
                return
        if self.open_window("step", (number,)) is not None:
            self._done.add(wanted)

    def _window_for(self, number: int) -> Any:
        """What identifies the planned window that ``number`` belongs to, or ``None``."""
        assignment = self.assignment
        if assignment.mode == "all":
            return ("step", number) if not self._done or ("step", number) not in self._done else None
        if assignment.mode != "steps" or number not in assignment.steps:
            return None
        return assignment.steps.run_of(number) if assignment.merge_steps else (number, number)

    def _continues(self, number: int) -> bool:
        """Whether the window of ``number`` also holds the step after it."""
        if self.assignment.mode != "steps" or not self.assignment.merge_steps:
            return False
        run = self.assignment.steps.run_of(number)
        return run is not None and number < run[1]

    def _leave_windows_without(self, number: int) -> None:
        window = self.window
        if window is not None and window.info.kind in ("step", "phase"):
            last = window.record.steps[-1] if window.record.steps else None
            same = last == number or (
                window.info.kind == "step"
                and self.assignment.merge_steps
                and last is not None
                and self._window_for(last) == self._window_for(number) is not None
            )
            if not same:
                self.close_window("a step outside it was announced")
        if (
            self._armed is not None
            and self._armed[0] == "step"
            and (not self.assignment.merge_steps or self._window_for(self._armed[1][-1]) != self._window_for(number))
        ):
            self._armed = None
        if self._discrete_step != number:
            self._discrete_step = None

    def _add_step(self, window: Window, number: int) -> None:
        if number not in window.record.steps:
            window.record.steps.append(number)
        for tool in window.tools:
            self.guarded(f"tool {tool.name}, a further step", tool.step, number)

    def _finish_step(self, number: int) -> None:
        before, rows = self._step_totals, {}
        for tag, (total, count) in metrics.process_totals().items():
            was_total, was_count = before.get(tag, (0, 0))
            if count > was_count:
                rows[tag] = {"seconds": (total - was_total) / 1e9, "count": count - was_count}
        self.step_metrics[number] = rows
        while len(self.step_metrics) > 16:
            del self.step_metrics[next(iter(self.step_metrics))]
        self.guarded("ending a step", self.backend.step_end, number)

    # --- what timers call while hot ---------------------------------------------------------------------------------

    def enter(self, spec: PhaseSpec, suspends: bool) -> Entry | None:
        """A phase begins; may open a window. ``None`` when nothing has to be done at its end."""
        return self._enter(Entry(self, spec, Kind.PHASE, suspends))

    def enter_range(self, spec: PhaseSpec, suspends: bool) -> Entry | None:
        """A ``profiling_range`` begins; it never opens a window."""
        return self._enter(Entry(self, spec, Kind.RANGE, suspends))

    def _enter(self, entry: Entry) -> Entry | None:
        try:
            if self.window is not None and self.window.overdue and self.window.thread == threading.get_ident():
                self.close_window(self.window.overdue)
            if entry.kind is Kind.PHASE and (
                self._armed is not None or self._discrete_step is not None or self.scheduler is not None
            ):
                self._phase_begins(entry)
            window = self.window
            if window is not None:
                if entry.suspends or asyncio._get_running_loop() is not None:
                    entry.task = task_label(entry.spec, entry.suspends, self._labels.__next__)
                entry.emit(window)
                return entry
        except Exception as error:  # noqa: BLE001 - reported once; the user's function runs all the same
            self.trouble("beginning a range", error)
            return entry if entry.ends or entry.owned is not None or entry.scheduled is not None else None
        return entry if entry.scheduled is not None else None

    def _phase_begins(self, entry: Entry) -> None:
        if self.scheduler is not None:
            self.scheduler.phase_begins(self, entry)
        if self.window is None:
            self._open_for_phase(entry)

    def _open_for_phase(self, entry: Entry) -> None:
        with self._lock:
            if self.window is not None:  # another thread was first; this phase lies in its window
                return
            if entry.suspends and self._plain_work and any(tool.thread != "any" for tool in self._usable()):
                return  # the coroutine only waits; a tool bound to its thread opens in the plain phase that works
            step = self._discrete_step
            if step is not None and self._phase_matches(entry.spec.tag):
                window = self.open_window("phase", (step,), entry.spec.tag)
                entry.owned = window
            elif self._armed is not None:
                kind, steps = self._armed
                window = self.open_window(kind, steps, entry.spec.tag if self._split else None)
                if window is None:
                    return
                if self._split:
                    entry.owned = window  # this tool must stop on this thread, and no later call here is certain
                else:
                    self._armed = None
                if kind != "on_demand":
                    self._done.add(self._window_for(steps[-1]) if steps else kind)

    def phase_ended(self, entry: Entry) -> None:
        """A phase that owns a window, or that a schedule counts, ended."""
        try:
            if entry.scheduled is not None and self.scheduler is not None:
                self.scheduler.phase_ends(self, entry)
            if entry.owned is not None and self.window is entry.owned:
                self.close_window("phase ended")
            elif self.window is not None and self.window.overdue and self.window.thread == threading.get_ident():
                self.close_window(self.window.overdue)
        except Exception as error:  # noqa: BLE001 - reported once
            self.trouble("ending a phase", error)

    def _phase_matches(self, tag: str) -> bool:
        patterns = self.assignment.phases
        return not patterns or any(fnmatchcase(tag, pattern) for pattern in patterns)

    def ended_inside(self, spec: PhaseSpec, start: int, end: int, own: int | None = None) -> None:
        """A phase that began while nothing was hot ended now; it goes to the timeline as one already in progress."""
        window = self.window
        if window is not None and window.trace is not None and end > window.opened_at:
            window.trace.add(spec, Kind.PHASE, start, end, threading.get_ident(), "", own, start < window.opened_at)

    def mark(self, spec: PhaseSpec) -> None:
        """An instant, in every tool of the open window and in the timeline."""
        window = self.window
        if window is None:
            return
        try:
            where = RangeSpec(spec.tag, spec.domain, spec.color, spec.category)
            for emitter in window.emitters:
                emitter.mark(where)
        except Exception as error:  # noqa: BLE001 - reported once
            self.trouble("leaving a mark", error)
        if window.trace is not None:
            window.trace.add_mark(spec, now_ns(), threading.get_ident())

    def device_timer(self) -> Any:
        """Device events of the backend for one call, or ``None`` where there are none."""
        if not self._device_timers:
            return None
        try:
            return self.backend.device_timer()
        except Exception as error:  # noqa: BLE001 - reported once, then no more asked
            self.device_timer_failed(error)
            return None

    def device_timer_failed(self, error: Exception) -> None:
        """Device events of this backend do not work: said once, and none are asked for any more."""
        self._device_timers = False
        self.trouble("timing on the device", error)

    # --- the end ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Taken into use: the journal names the target, a window for the whole process opens."""
        if self.assignment.selected:
            self.journal.add(self.describe())
            if self.assignment.mode == "process" and not self.assignment.schedules:
                away = threading.current_thread() is not threading.main_thread()
                if away and any(tool.thread != "any" for tool in self._usable()):
                    self._armed = ("process", ())
                else:
                    self.open_window("process")
        self._set_hot()
        self.pay()

    def close(self, reason: str = "closed") -> dict[str, Any]:
        """Close what is open, let tools finish, say what was armed and never opened. Idempotent.

        Returns:
            The report the controller merges: ``{"key", "journal", "problems"}``.

        Raises:
            CaptureError: something failed and ``on_error`` is ``raise``; everything is closed all the same.
        """
        with self._lock:
            if not self.closed:
                if self.step_now is not None:
                    self.guarded("ending a step", self._finish_step, self.step_now)
                if self.scheduler is not None:
                    self.guarded("ending schedules", self.scheduler.finish, self)
                self.guarded("closing a window", self.close_window, reason)
                self.closed = True
                if self.budget is not None:
                    self.guarded("ending the watch over the budget", self.budget.end)
                if self.control is not None:
                    self.guarded("ending the watch for requests", self.control.end)
                if gate.hot is self:
                    gate.hot = gate.lane = None
                for tool in self.tools:
                    try:
                        self._add_artifacts(tool.finalise(reason))
                    except Exception as error:  # noqa: BLE001 - reported once
                        self.report(f"tool {tool.name} failed while finishing: {text_of(error)}")
                if self.instruments is not None:
                    self.guarded("reporting instruments", self.instruments.report)
                    self.guarded("undoing instruments", self.instruments.uninstall)
                if reason != JOINED:
                    self.say_what_never_opened()
                if self.assignment.selected:
                    self.journal.add(self.describe())
                self.journal.close()
            self.pay()
            return self.summary()

    def widen(self, assignment: Assignment) -> bool:
        """Further roles join while the one window of the whole process is open; ``False`` when they want something else."""
        with self._lock:
            window, own = self.window, self.assignment
            same = (assignment.tool, assignment.options, assignment.mode, assignment.discrete) == (
                own.tool,
                own.options,
                own.mode,
                own.discrete,
            )
            if window is None or window.info.kind != "process" or window.record.steps or not same:
                return False
            self.assignment, self.target = assignment, assignment.target
            self.journal.add(self.describe())
            return True

    def metrics_of_step(self, number: int | None = None) -> Mapping[str, Mapping[str, float]]:
        """``{tag: {"seconds", "count"}}`` of one finished step; the last one when ``number`` is ``None``."""
        if number is None:
            number = next(reversed(self.step_metrics), None)
        return self.step_metrics.get(number, {}) if number is not None else {}
