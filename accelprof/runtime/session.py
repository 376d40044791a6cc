"""The one owner of a process's profiling state: steps come in, windows open and close, ranges and spans go out.

State changes after the vendor's call succeeded; a window ends exactly once; a tool that fails is reported once and
never stops the user's code (unless ``on_error: raise`` asks for it).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from accelprof.backend import Backend, Emitter
from accelprof.errors import CaptureError
from accelprof.output.layout import Layout
from accelprof.output.manifest import Journal, relative
from accelprof.runtime import metrics
from accelprof.runtime.budget import BudgetWatch
from accelprof.runtime.gate import gate, now_ns
from accelprof.runtime.phase import PhaseSpec
from accelprof.runtime.running import Run, phases_on_stacks
from accelprof.runtime.window import Entry, Lane, Window, clocks, task_label
from accelprof.spans import Kind
from accelprof.targets import ArtifactFile, Assignment, WindowInfo
from accelprof.tool import Tool

if TYPE_CHECKING:
    from accelprof.config.model import Budget, Config
    from accelprof.registry import Registry
    from accelprof.runtime.control import Control
    from accelprof.runtime.instrument import Instruments
    from accelprof.runtime.schedule import Scheduler
    from accelprof.tools.trace import TraceTool

log = logging.getLogger("accelprof")
FAILURES_BEFORE_OFF = 3
STEPS_REMEMBERED = 10_000
#: why a session is closed whose process goes on as a worker with more roles
JOINED = "a further role joined"


class Session:
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
        registry: Registry,
        scheduler: Scheduler | None = None,
    ) -> None:
        self.config, self.assignment, self.backend = config, assignment, backend
        self.tools, self.trace, self.layout, self.host, self.registry = list(tools), trace, layout, host, registry
        self.target = assignment.target
        self.pid = os.getpid()
        self.key = layout.key(self.target, host, self.pid)
        self.window: Window | None = None
        self.windows: list[dict[str, Any]] = []
        self.step_now: int | None = None
        self.steps_seen: dict[int, None] = {}
        self.step_metrics: dict[int, dict[str, dict[str, float]]] = {}
        self.problems: list[str] = []
        self._said: set[Any] = set()
        self.closed = False
        self.scheduler = scheduler
        self.instruments: Instruments | None = None
        self.control: Control | None = None
        self.budget = BudgetWatch(config.budget, self) if assignment.selected and _limited(config.budget) else None
        self.lock = self._lock = threading.RLock()
        self._done: set[Any] = set()
        self._armed: tuple[str, tuple[int, ...]] | None = None
        self._discrete_step: int | None = None
        self._split = False
        self._plain_work = False
        self._failures: dict[str, int] = {}
        self._sequence = itertools.count(1)
        self._labels = itertools.count(1)
        self._step_totals: dict[str, tuple[int, int]] = {}
        self._device_timers = True
        path = os.path.join(layout.workers_dir, self.key + ".jsonl") if assignment.selected else None
        self.journal = Journal(path, self.report)
        self.hooks = {
            name: registry.listens(name)
            for name in (
                "accelprof_step_begin",
                "accelprof_step_end",
                "accelprof_window_opened",
                "accelprof_window_closed",
            )
        }

    # --- steps ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[Session]:
        """One training step; opens and closes windows as the plan says. An exception of the body reaches the caller unchanged."""
        self.begin_step(number)
        try:
            yield self
        finally:
            self.end_step(number)

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
            states = metrics.all_states()
            self._step_totals = metrics.totals(states)
            self._plain_work = self._plain_work or any(state.plain_calls for state in states)
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
        away = control and threading.current_thread() is not threading.main_thread()
        kinds = {tool.thread for tool in self._usable()}
        if away and kinds & {"starter", "work"}:
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
            last = window.record["steps"][-1] if window.record["steps"] else None
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
        if number not in window.record["steps"]:
            window.record["steps"].append(number)
        for tool in window.tools:
            self.guarded(f"tool {tool.name}, a further step", tool.step, number)

    def _finish_step(self, number: int) -> None:
        before, rows = self._step_totals, {}
        for tag, (total, count) in metrics.totals(metrics.all_states()).items():
            was_total, was_count = before.get(tag, (0, 0))
            if count > was_count:
                rows[tag] = {"seconds": (total - was_total) / 1e9, "count": count - was_count}
        self.step_metrics[number] = rows
        while len(self.step_metrics) > 16:
            del self.step_metrics[next(iter(self.step_metrics))]
        self.guarded("ending a step", self.backend.step_end, number)

    # --- windows ----------------------------------------------------------------------------------------------------

    def reserve_window(
        self, kind: str, steps: Sequence[int] = (), phase: str | None = None, warmup: int = 0, active: int = 0
    ) -> WindowInfo | None:
        """Name the next window and make its directory; nothing is captured yet. ``None`` when there is no place for it."""
        with self._lock:
            sequence = next(self._sequence)
            stem = self.layout.stem(self.target, sequence, steps, phase, self.host, self.pid)
            try:
                if not os.path.isdir(os.path.dirname(stem)):
                    os.makedirs(os.path.dirname(stem), exist_ok=True)
            except OSError as error:
                self.trouble("making the output directory", error)
                return None
            return WindowInfo(f"{self.key}-w{sequence:04d}", sequence, tuple(steps), phase, kind, stem, warmup, active)

    def warm_up(self, info: WindowInfo) -> None:
        """Tools with a schedule of their own start for the window that :meth:`open_window` will open with ``info``."""
        for tool in self._usable():
            if tool.schedule == "native":
                try:
                    tool.warm_up(info)
                except Exception as error:  # noqa: BLE001 - a tool may raise anything; reported
                    self._tool_failed(tool, f"warming up for window {info.sequence}", error)

    def abandon(self, info: WindowInfo) -> None:
        """The loop ended while tools warmed up for ``info``."""
        for tool in self._usable():
            if tool.schedule == "native":
                self.guarded(f"tool {tool.name}, ending its warm-up", tool.abandon, info)

    def open_window(
        self, kind: str, steps: Sequence[int] = (), phase: str | None = None, info: WindowInfo | None = None
    ) -> Window | None:
        """Open a window on this thread; ``None`` when no tool could start (said once) or one is open already.

        ``info``: from :meth:`reserve_window`, when tools have warmed up for it.

        Raises:
            CaptureError: a tool failed and ``on_error`` is ``raise``.
        """
        with self._lock:
            if self.closed or self.window is not None or not self.assignment.selected:
                return None
            info = info or self.reserve_window(kind, steps, phase)
            if info is None:
                return None
            sequence = info.sequence
            refused = self.budget.refuses(os.path.dirname(info.stem)) if self.budget is not None else ""
            if refused:
                self.report(f"no further window is opened: {refused}")
                if info.warmup:
                    self.abandon(info)
                return None
            before = now_ns()
            opened: list[Tool] = []
            for tool in [*self._usable(), *([self.trace] if self.trace is not None else [])]:
                try:
                    tool.open(info)
                except Exception as error:  # noqa: BLE001 - a tool may raise anything; reported, and the state stays closed
                    try:
                        self._tool_failed(tool, "opening a window", error)
                    except CaptureError:
                        self._undo(opened, info)
                        raise
                else:
                    self._failures[tool.name] = 0
                    opened.append(tool)
            if not opened:
                return None
            emitters: list[Emitter] = []
            for tool in opened:
                emitter = tool.emitter(self.backend)
                if type(emitter) is not Emitter and emitter not in emitters:
                    emitters.append(emitter)
            if opened == [self.trace]:
                emitters.append(self.backend)  # somebody may be listening who was not started by us
            record = {
                "id": info.id,
                "target": self.key,
                "steps": list(info.steps),
                "phase": info.phase,
                "window_kind": info.kind,
                "sequence": sequence,
                "stem": relative(info.stem, self.layout.run_dir),
                "tools": [tool.name for tool in opened],
                "opened": clocks(),
                "open_ms": round((now_ns() - before) / 1e6, 3),
                "closed": None,
            }
            trace = self.trace if self.trace in opened else None
            window = Window(info, opened, trace, emitters, now_ns(), record)
            window.lane = Lane(window, self.trouble)
            self.windows.append(record)
            self.journal.add("window", record)
            self.window = window
            if self.budget is not None:
                self.budget.opened(window)
            self._set_hot()
        if self.hooks["accelprof_window_opened"]:
            self.registry.event("accelprof_window_opened", session=self, window=info)
        return window

    def arm(self, kind: str, steps: Sequence[int] = ()) -> bool:
        """Open a window where the next phase begins, on the thread that works; ``False`` when one is armed already."""
        with self._lock:
            if self._armed is not None:
                return False
            self._armed = (kind, tuple(steps))
            self._set_hot()
            return True

    def disarm(self, kind: str) -> None:
        """Take back :meth:`arm`, where no phase has begun since."""
        with self._lock:
            if self._armed is not None and self._armed[0] == kind:
                self._armed = None
                self._set_hot()

    def request_close(self, reason: str) -> None:
        """Close the open window now, or where its own thread comes by next if a tool must stop on the thread it started on."""
        with self._lock:
            window = self.window
            if window is None:
                return
            if window.thread != threading.get_ident() and any(tool.thread == "starter" for tool in window.tools):
                window.overdue = reason
                self._set_hot()
            else:
                self.close_window(reason)

    def close_window(self, reason: str) -> None:
        """Close the open window, exactly once; harmless when none is open."""
        with self._lock:
            window, self.window = self.window, None
            if window is None:
                return
            before = now_ns()
            record = window.record
            if window.trace is not None:
                window.trace.in_progress(self._in_progress(), before)
            files: list[ArtifactFile] = []
            failed: CaptureError | None = None
            for tool in reversed(window.tools):
                try:
                    files.extend(tool.close(window.info))
                except Exception as error:  # noqa: BLE001 - reported once; later windows and the user's code go on
                    record.setdefault("errors", []).append(f"{tool.name}: {_text(error)}")
                    try:
                        self._tool_failed(tool, "closing a window", error)
                    except CaptureError as asked:
                        failed = failed or asked
            record.update(closed=clocks(), close_ms=round((now_ns() - before) / 1e6, 3), reason=reason)
            if self.trace is not None and window.trace is not None:
                record.update(spans=self.trace.span_count, dropped=self.trace.dropped)
            self.journal.add("window", record)
            self._add_artifacts(files)
            if self.budget is not None:
                self.budget.closed(window, files, (before - window.opened_at) / 1e9)
            self._set_hot()
        if self.hooks["accelprof_window_closed"]:
            self.registry.event("accelprof_window_closed", session=self, window=window.info)
        if failed is not None:  # only now: everything else of the window is closed and written down
            raise failed

    def _undo(self, opened: Sequence[Tool], info: WindowInfo) -> None:
        """A window that does not come about: what had started already stops again."""
        for tool in reversed(opened):
            try:
                tool.close(info)
            except Exception as error:  # noqa: BLE001 - the failure that led here is the one that is raised
                self.report(f"tool {tool.name} failed stopping again: {_text(error)}")

    def _in_progress(self) -> list[tuple[PhaseSpec, int, int, str]]:
        """Phases that run at this moment on any thread or task: ``(phase, start_ns, thread, task)``."""
        running = [(spec, start, thread, "") for spec, start, thread in phases_on_stacks()]
        for run in list(Run.live.values()):
            if not run.done and run.start:
                running.append((run.spec, run.start, run.thread, run.entry.task if run.entry is not None else ""))
        return running

    def _usable(self) -> list[Tool]:
        return [tool for tool in self.tools if self._failures.get(tool.name, 0) < FAILURES_BEFORE_OFF]

    def _tool_failed(self, tool: Tool, doing: str, error: Exception) -> None:
        failures = self._failures[tool.name] = self._failures.get(tool.name, 0) + 1
        text = f"tool {tool.name} failed {doing}: {_text(error)}"
        if failures == FAILURES_BEFORE_OFF:
            text += f"; it failed {failures} times in a row and is off in this process from now on"
        self.report(text, about=(tool.name, doing, _nature(error), failures == FAILURES_BEFORE_OFF))
        if self.config.on_error == "raise":
            raise CaptureError(f"{self.target.label}: {text}") from error

    def _add_artifacts(self, files: Sequence[ArtifactFile]) -> None:
        for file in files:
            self.journal.add(
                "artifact",
                {
                    "path": file.path,
                    "tool": file.tool,
                    "group": self.target.group,
                    "role": "+".join(self.target.roles) or None,
                    "rank": self.target.rank,
                    "host": self.host,
                    "pid": self.pid,
                    "windows": list(file.windows),
                    "bytes": file.bytes,
                    "state": file.state,
                    **({"reason": file.reason} if file.reason else {}),
                },
            )

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
        except CaptureError:
            raise
        except Exception as error:  # noqa: BLE001 - reported once; the user's function runs all the same
            self.trouble("beginning a range", error)
            return entry if entry.bound or entry.owns or entry.scheduled is not None else None
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
                if window is not None:
                    entry.owns = True
                    window.owner = entry
            elif self._armed is not None:
                kind, steps = self._armed
                window = self.open_window(kind, steps, entry.spec.tag if self._split else None)
                if window is None:
                    return
                if self._split:
                    entry.owns = True  # this tool must stop on this thread, and no later call here is certain
                else:
                    self._armed = None
                if kind != "on_demand":
                    self._done.add(self._window_for(steps[-1]) if steps else kind)

    def phase_ended(self, entry: Entry) -> None:
        """A phase that owns a window, or that a schedule counts, ended."""
        try:
            if entry.scheduled is not None and self.scheduler is not None:
                self.scheduler.phase_ends(self, entry)
            if entry.owns:
                self.close_window("phase ended")
            elif self.window is not None and self.window.overdue and self.window.thread == threading.get_ident():
                self.close_window(self.window.overdue)
        except CaptureError:
            raise
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
            from accelprof.backend import RangeSpec

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
            self._device_timers = False
            self.trouble("making a device timer", error)
            return None

    # --- the end ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Taken into use: the journal names the target, a window for the whole process opens."""
        if self.assignment.selected:
            self.journal.add("target", self.describe())
            if self.assignment.mode == "process" and not self.assignment.schedules:
                away = threading.current_thread() is not threading.main_thread()
                if away and any(tool.thread != "any" for tool in self._usable()):
                    self._armed = ("process", ())
                else:
                    self.open_window("process")
        self._set_hot()

    def close(self, reason: str = "closed") -> dict[str, Any]:
        """Close what is open, let tools finish, say what was armed and never opened. Idempotent.

        Returns:
            The report the controller merges: ``{"key", "journal", "problems"}``.
        """
        with self._lock:
            if not self.closed:
                if self.step_now is not None:
                    self._finish_step(self.step_now)
                try:
                    if self.scheduler is not None:
                        self.guarded("ending schedules", self.scheduler.finish, self)
                    self.close_window(reason)
                finally:
                    self.closed = True
                    if self.budget is not None:
                        self.budget.end()
                    if self.control is not None:
                        self.control.end()
                    if gate.hot is self:
                        gate.hot = gate.lane = None
                for tool in self.tools:
                    try:
                        self._add_artifacts(tool.finalise(reason))
                    except Exception as error:  # noqa: BLE001 - reported once
                        self.report(f"tool {tool.name} failed while finishing: {_text(error)}")
                if self.instruments is not None:
                    self.guarded("reporting instruments", self.instruments.report)
                    self.guarded("undoing instruments", self.instruments.uninstall)
                if reason != JOINED:
                    self._say_what_never_opened()
                if self.assignment.selected:
                    self.journal.add("target", self.describe())
                self.journal.close()
            return self.summary()

    def _say_what_never_opened(self) -> None:
        if not self.assignment.selected or (self.assignment.mode == "off" and not self.assignment.schedules):
            return
        if self.windows:
            missed = [
                list(steps)
                for steps in self.assignment.windows
                if not any(set(steps) & set(row["steps"]) for row in self.windows)
            ]
            if missed and not self.assignment.discrete:
                self.report(
                    f"windows for steps {missed[:20]} never opened; steps seen: {self._steps_text()}",
                    level=logging.INFO,
                )
            return
        phases = metrics.tags_seen()
        text = f"armed, 0 windows opened; steps seen: {self._steps_text()}; phases seen: {', '.join(phases) or 'none'}"
        self.report(text + f"; wanted: {self._wanted()}")

    def _wanted(self) -> str:
        assignment = self.assignment
        text = f"steps {assignment.steps}" if assignment.mode == "steps" else f"steps: {assignment.mode}"
        if assignment.phases:
            text += f", phases {', '.join(assignment.phases)}"
        if assignment.schedules:
            text += f", schedule on {', '.join(spec.phase for spec in assignment.schedules)}"
        return text

    def _steps_text(self) -> str:
        seen = list(self.steps_seen)
        if not seen:
            return "none"
        return f"{min(seen)}..{max(seen)}" if len(seen) > 8 else ", ".join(map(str, seen))

    def describe(self) -> dict[str, Any]:
        """The manifest's ``targets`` row of this process."""
        assignment = self.assignment
        return {
            "key": self.key,
            "group": self.target.group,
            "roles": list(self.target.roles),
            "rank": self.target.rank,
            "world_size": self.target.world_size,
            "replica": self.target.replica,
            "node": self.target.node,
            "host": self.host,
            "pid": self.pid,
            "accelerator": self.backend.name,
            "tool": assignment.tool,
            "armed": assignment.selected and (assignment.mode != "off" or bool(assignment.schedules)),
            "wanted": self._wanted(),
            "asked_by": dict(assignment.asked_by),
            "steps_seen": list(self.steps_seen)[:200],
            "phases_seen": metrics.tags_seen(),
            "windows_opened": len(self.windows),
            "python": sys.version.split()[0],
        }

    def summary(self) -> dict[str, Any]:
        """What a controller takes over: the journal and the problems, as plain data."""
        return {
            "key": self.key,
            "journal": list(self.journal.records),
            "problems": list(self.problems),
            "selected": self.assignment.selected,
            "target": self.describe(),
        }

    def report(self, message: str, level: int = logging.WARNING, about: Any = None) -> None:
        """Say something once, with group and rank, in the log and in the manifest.

        ``about`` is what may be said once only; the message itself by default.
        """
        about = message if about is None else about
        if about in self._said:
            return
        self._said.add(about)
        self.problems.append(message)
        log.log(level, "accelprof %s: %s", self.target.label, message)
        if hasattr(self, "journal"):
            self.journal.add("problem", {"target": self.key, "message": message})

    def trouble(self, doing: str, error: Exception) -> None:
        """A failure of ours or of a backend: reported once, raised only when ``on_error`` asks for it."""
        self.report(f"{doing} failed: {_text(error)}", about=(doing, _nature(error)))
        if self.config.on_error == "raise":
            raise CaptureError(f"{self.target.label}: {doing} failed: {_text(error)}") from error

    def guarded(self, doing: str, call: Any, *args: Any) -> None:
        """Call; a failure is reported once (:meth:`trouble`)."""
        try:
            call(*args)
        except Exception as error:  # noqa: BLE001 - reported once
            self.trouble(doing, error)

    def _set_hot(self) -> None:
        hot = not self.closed and (
            self.window is not None
            or self._armed is not None
            or self._discrete_step is not None
            or (self.scheduler is not None and self.scheduler.watching(self))
        )
        if hot:
            gate.hot = self
        elif gate.hot is self:
            gate.hot = None
        if hot or gate.hot is None:
            window = self.window
            alone = (
                window is not None
                and not window.overdue
                and not (self._armed is not None or self._discrete_step is not None or self.scheduler is not None)
            )
            gate.lane = window.lane if alone and window is not None else None

    def metrics_of_step(self, number: int | None = None) -> Mapping[str, Mapping[str, float]]:
        """``{tag: {"seconds", "count"}}`` of one finished step; the last one when ``number`` is ``None``."""
        if number is None:
            number = next(reversed(self.step_metrics), None)
        return self.step_metrics.get(number, {}) if number is not None else {}


def _nature(error: BaseException) -> Any:
    """What makes two failures the same one: a disk that is full stays full, whichever file it was about."""
    return (type(error), error.errno) if isinstance(error, OSError) else (type(error), str(error))


def _limited(budget: Budget) -> bool:
    return any(limit is not None for limit in (budget.per_window, budget.per_run, budget.free_space))


def _text(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
