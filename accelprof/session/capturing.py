"""Windows of one process: opening, closing, and what is armed to open. State changes after the vendor's call succeeded."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from accelprof.config.model import Budget, Config
from accelprof.contracts.backend import Backend, Emitter
from accelprof.contracts.targets import ArtifactFile, Assignment, WindowInfo
from accelprof.contracts.tool import Tool
from accelprof.output.layout import Layout
from accelprof.output.manifest import relative
from accelprof.output.records import ArtifactRow, Moment, WindowRow
from accelprof.session.budget import BudgetWatch
from accelprof.session.reporting import Reporting, nature, text_of
from accelprof.session.window import Lane, Window
from accelprof.timing.gate import gate, now_ns
from accelprof.timing.phase import PhaseSpec
from accelprof.timing.running import Run, phases_on_stacks

if TYPE_CHECKING:
    from accelprof.catalogue import Catalogue
    from accelprof.session.schedule import Scheduler
    from accelprof.session.session import Session
    from accelprof.tools.trace import TraceTool

FAILURES_BEFORE_OFF = 3
WORKER_HOOKS = ("accelprof_step_begin", "accelprof_step_end", "accelprof_window_opened", "accelprof_window_closed")


class Capturing(Reporting):
    """The open window, the tools that capture in it, and what waits to open one."""

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
        scheduler: Scheduler | None,
    ) -> None:
        super().__init__(config, assignment, backend, layout, host, os.getpid())
        self.tools, self.trace, self.registry, self.scheduler = list(tools), trace, registry, scheduler
        self.window: Window | None = None
        self.closed = False
        self.budget = BudgetWatch(config.budget, self) if assignment.selected and _limited(config.budget) else None
        self.lock = self._lock = threading.RLock()
        self.hooks = {name: registry.listens(name) for name in WORKER_HOOKS}
        self._armed: tuple[str, tuple[int, ...]] | None = None
        self._discrete_step: int | None = None
        self._failures: dict[str, int] = {}
        self._sequence = itertools.count(1)
        self._place = layout.target_dir(self.target)
        self._has_place = False
        self._stem = layout.stems(self.target, host, self.pid)

    def reserve_window(
        self, kind: str, steps: Sequence[int] = (), phase: str | None = None, warmup: int = 0, active: int = 0
    ) -> WindowInfo | None:
        """Name the next window and make its directory; nothing is captured yet. ``None`` when there is no place for it."""
        with self._lock:
            sequence = next(self._sequence)
            stem = self._stem(sequence, steps, phase)
            if not self._has_place and not self._make_place():
                return None
            return WindowInfo(f"{self.key}-w{sequence:04d}", sequence, tuple(steps), phase, kind, stem, warmup, active)

    def _make_place(self) -> bool:
        try:
            os.makedirs(self._place, exist_ok=True)
        except OSError as error:
            self.trouble("making the output directory", error)
        else:
            self._has_place = True
        return self._has_place

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

        ``info``: from :meth:`reserve_window`, when tools have warmed up for it. Never raises an ``Exception``.
        """
        with self._lock:
            if self.closed or self.window is not None or not self.assignment.selected:
                return None
            info = info or self.reserve_window(kind, steps, phase)
            if info is None:
                return None
            sequence = info.sequence
            refused = self._refused()
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
                    self._tool_failed(tool, "opening a window", error)
                else:
                    self._failures[tool.name] = 0
                    opened.append(tool)
            if not opened:
                return None
            emitters = self._emitters(opened)
            took = now_ns() - before
            record = WindowRow(
                id=info.id,
                target=self.key,
                steps=list(info.steps),
                phase=info.phase,
                kind=info.kind,
                sequence=sequence,
                stem=relative(info.stem, self.layout.run_dir),
                tools=[tool.name for tool in opened],
                opened=Moment.now(),
                open_ms=round(took / 1e6, 3),
                open_ns=took,
            )
            trace = self.trace if self.trace in opened else None
            window = Window(info, opened, trace, emitters, now_ns(), record)
            window.lane = Lane(window, self.trouble)
            self.windows.append(record)
            self.journal.add(record)
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

    def is_armed(self, kind: str) -> bool:
        """Whether a window of this kind waits for the next phase."""
        return self._armed is not None and self._armed[0] == kind

    def disarm(self, kind: str) -> None:
        """Take back :meth:`arm`, where no phase has begun since."""
        with self._lock:
            if self.is_armed(kind):
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
            window = self.window
            if window is None:
                return
            self._drain(window)
            if self.window is not window:
                return  # a signal's handler came between and closed it
            self.window = None
            before = now_ns()
            record = window.record
            if window.trace is not None:
                self.guarded(
                    "looking for running phases",
                    lambda trace: trace.in_progress(self._in_progress(), before),
                    window.trace,
                )
            files: list[ArtifactFile] = []
            if not os.path.isdir(self._place):  # somebody tidied up meanwhile; what was recorded is still written
                self._has_place = False
                self._make_place()
            for tool in reversed(window.tools):
                try:
                    files.extend(tool.close(window.info))
                except Exception as error:  # noqa: BLE001 - reported once; later windows and the user's code go on
                    record.errors.append(f"{tool.name}: {text_of(error)}")
                    self._tool_failed(tool, "closing a window", error)
            took = now_ns() - before
            record.closed, record.reason = Moment.now(), reason
            record.close_ms, record.close_ns = round(took / 1e6, 3), took
            if self.trace is not None and window.trace is not None:
                record.spans, record.dropped = self.trace.span_count, self.trace.dropped
            self.journal.add(record)
            self._add_artifacts(files)
            if self.budget is not None:
                self.budget.closed(window, files, (before - window.opened_at) / 1e9)
            self._set_hot()
        if self.hooks["accelprof_window_closed"]:
            self.registry.event("accelprof_window_closed", session=self, window=window.info)

    def _drain(self, window: Window) -> None:
        """Wait, once a window, until the device has done what was submitted: captures end with the window's last kernel in them.

        Phases of other threads are still emitted meanwhile, because what they launch is still captured.
        """
        if window.awaited or not any(tool is not self.trace for tool in window.tools):
            return  # our own timeline has nothing of the device
        window.awaited = True
        drained, before = False, now_ns()
        if self.config.drain:
            try:
                self.backend.synchronize()
                drained = True
            except Exception as error:  # noqa: BLE001 - reported once; the captures are stopped all the same
                self.trouble("waiting for the device at the end of a window", error)
        window.record.drained, window.record.drain_ns = drained, now_ns() - before if self.config.drain else 0

    def _refused(self) -> str:
        """Why the budget allows no further window; a budget that cannot be looked at refuses nothing."""
        if self.budget is None:
            return ""
        try:
            return self.budget.refuses(self._place)
        except Exception as error:  # noqa: BLE001 - reported once
            self.trouble("looking at the budget", error)
            return ""

    def _emitters(self, opened: Sequence[Tool]) -> list[Emitter]:
        """Where ranges of this window go: what its tools bring, or the backend where none of them brings anything."""
        emitters: list[Emitter] = []
        for tool in opened:
            try:
                emitter = tool.emitter(self.backend)
            except Exception as error:  # noqa: BLE001 - reported once; the window goes on without ranges in this tool
                self.trouble(f"asking tool {tool.name} where ranges go", error)
                continue
            if type(emitter) is not Emitter and emitter not in emitters:
                emitters.append(emitter)
        if list(opened) == [self.trace]:
            emitters.append(self.backend)  # somebody may be listening who was not started by us
        return emitters

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
        text = f"tool {tool.name} failed {doing}: {text_of(error)}"
        if failures == FAILURES_BEFORE_OFF:
            text += f"; it failed {failures} times in a row and is off in this process from now on"
        self.report(text, about=(tool.name, doing, nature(error), failures == FAILURES_BEFORE_OFF))
        self.owe(text, error)

    def _add_artifacts(self, files: Sequence[ArtifactFile]) -> None:
        for file in files:
            self.journal.add(ArtifactRow.of(file, self.target, self.host, self.pid))

    def _set_hot(self) -> None:
        session = cast("Session", self)  # what is taken into use is always the whole of it
        hot = not self.closed and (
            self.window is not None
            or self._armed is not None
            or self._discrete_step is not None
            or (self.scheduler is not None and self.scheduler.watching(session))
        )
        if hot:
            gate.hot = session
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


def _limited(budget: Budget) -> bool:
    return any(limit is not None for limit in (budget.per_window, budget.per_run, budget.free_space))
