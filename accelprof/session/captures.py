"""The open window of a process, the tools that capture in it, and its row. State changes after the vendor's call succeeded.

One module, because whoever starts a tool stops it too, in each way that a window can end.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from accelprof.contracts import reasons
from accelprof.contracts.answers import emitter_of, files_of, named
from accelprof.contracts.backend import Backend, Emitter
from accelprof.contracts.targets import ArtifactFile, WindowInfo
from accelprof.contracts.tool import Tool
from accelprof.contracts.words import WindowKind
from accelprof.errors import PluginError, failures, text_of
from accelprof.output.manifest import relative
from accelprof.output.records import ArtifactRow, FailureRow, Moment, WindowRow
from accelprof.session.closetimes import CloseTimes
from accelprof.session.window import Window
from accelprof.session.writing import Writing
from accelprof.timing.entry import Entry, PlainCalls
from accelprof.timing.gate import now_ns
from accelprof.timing.range_cost import RangeCost
from accelprof.timing.running import running_phases
from accelprof.voice import nature

if TYPE_CHECKING:
    from accelprof.session.lock import SessionLock
    from accelprof.session.process import Process
    from accelprof.tools.trace import TraceTool

FAILURES_BEFORE_OFF = 3
Files = Callable[[], Sequence[ArtifactFile]]


@dataclass(frozen=True, slots=True)
class Ask:
    """A window that somebody wants.

    Attributes:
        kind: as :attr:`WindowInfo.kind`.
        steps: announced steps known by now.
        phase: the phase that makes it, if one does.
        warmup, active, first: calls of a scheduled stretch, and the number of the first to record.
        info: from :meth:`Captures.warm_up`, when tools have warmed up for it.
        seconds: for how long at most, where it was asked for on demand.
        stretch: of a schedule that counts over the process, as the window's row names it.
    """

    kind: WindowKind
    steps: tuple[int, ...] = ()
    phase: str | None = None
    warmup: int = 0
    active: int = 0
    info: WindowInfo | None = None
    first: int = 0
    seconds: float = 0.0
    stretch: tuple[str, int] | None = None


class Limits(Protocol):
    """What watches sizes; :class:`accelprof.session.budget.BudgetWatch`."""

    def refuses(self, directory: str) -> str:
        """Why no further window may open; empty when one may."""

    def opened(self, window: Window) -> None:
        """Watch it until it is closed."""

    def closed(self) -> None:
        """No window is open."""

    def learn(self, tools: Iterable[Tool], files: Sequence[ArtifactFile], seconds: float) -> None:
        """What ``tools`` left of a window that was open for ``seconds``."""

    def end(self) -> None:
        """The session closes."""


class Captures:
    """At most one window is open. Nobody else starts or stops tools, or writes the row of a window.

    Args:
        process: whose windows these are.
        drain: wait for the device before captures stop.
        lock: the session's; everything here takes it.

    Attributes:
        window: the open window, or ``None``.
        rows: records of all windows so far (the manifest's ``windows`` rows).
        tools: what captures, without our own timeline (``trace``).
        work_is_plain: calls that cannot be suspended were seen, so a coroutine may be one that only waits.
        first_step: the first that was announced.
        budget: the watch over sizes, or ``None``.
        listeners: each is called as ``listener("opened" | "closed", info)``; closed is a window whose files are written.
    """

    def __init__(
        self,
        process: Process,
        backend: Backend,
        tools: Sequence[Tool],
        trace: TraceTool | None,
        lock: SessionLock,
        drain: bool,
    ) -> None:
        self.process, self.backend, self.tools, self.trace = process, backend, list(tools), trace
        self.voice, self.journal, self.lock, self._drain = process.voice, process.journal, lock, drain
        self.listeners: list[Callable[[str, WindowInfo], None]] = []
        self.window: Window | None = None
        self.rows: list[WindowRow] = []
        self.budget: Limits | None = None
        self.work_is_plain = False
        self.first_step: int | None = None
        self.ended = False
        self._failures: dict[str, int] = {}
        self._last_failure: dict[str, str] = {}
        self._no_place = ""
        self._close_times = CloseTimes(self.voice)
        self._writing = Writing()
        #: whose answers could not be called
        self._no_ranges: list[Emitter] = []
        #: what a range costs, by who takes it
        self._costs: dict[tuple[str, ...], RangeCost] = {}
        self._sequence = itertools.count(1)
        self._place = process.layout.target_dir(process.target)
        self._has_place = False
        self._stem = process.layout.stems(process.target, process.host, process.pid)

    # --- what can capture -------------------------------------------------------------------------------------------

    def usable(self) -> list[Tool]:
        """Tools that did not fail too often, without the timeline."""
        return [tool for tool in self.tools if self._failures.get(tool.name, 0) < FAILURES_BEFORE_OFF]

    @property
    def bound(self) -> bool:
        """Whether a window must open on the thread that works, for a tool's sake."""
        return any(tool.thread != "any" for tool in self.usable())

    def suits(self, entry: Entry) -> bool:
        """Whether a window may open where this phase begins: not in a coroutine that only waits, where a tool is bound to its thread."""
        return not (entry.suspends and self.work_is_plain and self.bound)

    # --- opening ----------------------------------------------------------------------------------------------------

    def warm_up(self, ask: Ask) -> WindowInfo | None:
        """Tools with a schedule of their own start for the window that :meth:`open` will open with the result; ``None``:
        there is no such tool, or no place for the window."""
        with self.lock:
            tools = [tool for tool in self.usable() if tool.schedule == "native"]
            info = self._reserve(ask) if tools else None
            if info is not None:
                self.lock.hold_signals()
                for tool in tools:
                    try:
                        tool.warm_up(info)
                    except failures() as error:  # a tool may raise anything; said once
                        self._failed(tool, f"warming up for window {info.sequence}", error)
            return info

    def abandon(self, info: WindowInfo) -> None:
        """The loop ended while tools warmed up for ``info``."""
        with self.lock:
            self.lock.hold_signals()
            for tool in self.usable():
                if tool.schedule == "native":
                    self.voice.guarded(f"tool {tool.name}, ending its warm-up", tool.abandon, info)

    def open(self, ask: Ask) -> Window | None:
        """:meth:`open_or_why` for those who have nobody to tell why; ``None``: there is none."""
        window = self.open_or_why(ask)
        return None if isinstance(window, str) else window

    def open_or_why(self, ask: Ask) -> Window | str:
        """Open a window on this thread, or why there is none: each time anew, while what failed is said once.

        Never raises an ``Exception``.
        """
        with self.lock:
            if self.ended:
                return "the session is closed"
            if self.window is not None:
                return f"window {self.window.info.sequence} is open already"
            if not self.process.assignment.selected:
                return "this process is not selected"
            info = ask.info or self._reserve(ask)
            if info is None:
                return self._no_place
            refused = self._refused()
            if refused:
                text = f"no further window is opened: {refused}"
                self.voice.say(text)
                if info.warmup:
                    self.abandon(info)
                return text
            self.lock.hold_signals()
            self._close_times.opens(info.sequence, self.usable())
            before = now_ns()
            opened = self._opened(info)
            if not opened:
                return "; ".join(self._last_failure.values()) or "there is no tool"
            emitters = self._emitters(opened)
            took = now_ns() - before
            row = WindowRow(
                id=info.id,
                target=self.process.key,
                steps=list(info.steps),
                phase=info.phase,
                kind=info.kind,
                sequence=info.sequence,
                stem=relative(info.stem, self.process.layout.run_dir),
                tools=[tool.name for tool in opened],
                opened=Moment.now(),
                open_ms=round(took / 1e6, 3),
                open_ns=took,
                stretches=[] if ask.stretch is None else [ask.stretch],
            )
            row.seen_from = None if self.rows else self.first_step
            trace = self.trace if self.trace in opened else None
            window = Window(info, opened, trace, emitters, now_ns(), row, self._refuse)
            window.cost = self._costs.setdefault(tuple(map(named, emitters)), RangeCost())
            window.plain = PlainCalls(window, self.voice.trouble, window.cost)
            self.rows.append(row)
            self.journal.add(row)
            self.window = window
            if self.budget is not None:
                self.budget.opened(window)
        self._tell("opened", info)
        return window

    def _tell(self, what: str, info: WindowInfo) -> None:
        for listener in self.listeners:
            listener(what, info)

    def _reserve(self, ask: Ask) -> WindowInfo | None:
        """Name the next window and make its directory; nothing is captured yet. ``None`` when there is no place for it."""
        sequence = next(self._sequence)
        stem = self._stem(sequence, ask.steps, ask.phase)
        if not self._has_place and not self._make_place():
            return None
        name = f"{self.process.key}-w{sequence:04d}"
        return WindowInfo(
            name, sequence, ask.steps, ask.phase, ask.kind, stem, ask.warmup, ask.active, ask.first, ask.seconds
        )

    def _make_place(self) -> bool:
        try:
            os.makedirs(self._place, exist_ok=True)
        except OSError as error:
            self._no_place = f"making the output directory failed: {text_of(error)}"
            self.voice.trouble("making the output directory", error)
        else:
            self._has_place = True
        return self._has_place

    def _refused(self) -> str:
        """Why the budget allows no further window; a budget that cannot be looked at refuses nothing."""
        if self.budget is None:
            return ""
        try:
            return self.budget.refuses(self._place)
        except failures() as error:  # said once
            self.voice.trouble("looking at the budget", error)
            return ""

    def _timeline(self) -> list[Tool]:
        return [] if self.trace is None else [self.trace]

    def _opened(self, info: WindowInfo) -> list[Tool]:
        """The tools that capture now; where one is interrupted, those before it are stopped again."""
        opened: list[Tool] = []
        try:
            for tool in [*self.usable(), *self._timeline()]:
                if self._start(tool, info):
                    opened.append(tool)
        except BaseException:
            for tool in reversed(opened):
                self.voice.guarded(f"tool {tool.name}, ending a window that was interrupted", tool.close, info)
            raise
        return opened

    def _start(self, tool: Tool, info: WindowInfo) -> bool:
        try:
            tool.open(info)
        except failures() as error:  # a tool may raise anything; said once, and the state stays closed
            self._failed(tool, "opening a window", error)
            return False
        self._failures[tool.name] = 0
        self._last_failure.pop(tool.name, None)
        return True

    def _emitters(self, opened: Sequence[Tool]) -> list[Emitter]:
        """Where ranges of this window go: what its tools bring, or the backend where none of them brings anything."""
        emitters: list[Emitter] = []
        for tool in opened:
            try:
                emitter = emitter_of(tool, self.backend)
            except failures() as error:  # said once; the window goes on without ranges in this tool
                self.voice.trouble(f"asking tool {tool.name} where ranges go", error)
                continue
            if type(emitter) is not Emitter and emitter not in emitters:
                emitters.append(emitter)
        if list(opened) == [self.trace]:
            emitters.append(self.backend)  # somebody may be listening who was not started by us
        return [emitter for emitter in emitters if emitter not in self._no_ranges]

    def _refuse(self, emitter: Emitter, error: PluginError) -> None:
        """An emitter answered what cannot be called: said with its name, and it gets no range in this process any more."""
        self._no_ranges.append(emitter)
        self.voice.trouble(f"asking {named(emitter)} for a range", error)

    # --- while it is open -------------------------------------------------------------------------------------------

    def step(self, number: int) -> None:
        """A further step was announced in the open window."""
        window = self.window
        if window is None:
            return
        if number not in window.steps:
            window.steps.append(number)
        for tool in window.tools:
            self.voice.guarded(f"tool {tool.name}, a further step", tool.step, number)

    def void(self, number: int) -> None:
        """A step of the open window never came."""
        if self.window is not None and number in self.window.steps:
            self.window.steps.remove(number)

    def tick(self, tools: Sequence[Tool]) -> None:
        """One call of a scheduled phase ended and another of the same stretch follows."""
        for tool in tools:
            if tool.schedule == "native":
                self.voice.guarded(f"tool {tool.name}, the next call of a schedule", tool.tick)

    def holds(self, window: Window, phase: str = "", stretch: tuple[str, int] | None = None) -> None:
        """Calls of a scheduled ``stretch`` lie in this window, which is another's where ``phase`` says of which schedule they are."""
        if phase and phase not in window.row.holds:
            window.row.holds.append(phase)
        if stretch is not None and stretch not in window.row.stretches:
            window.row.stretches.append(stretch)
            self.journal.add(window.row)

    def note(
        self, window: Window, *, schedule: dict[str, object] | None = None, closed_early: str | None = None
    ) -> None:
        """What the window's row says beside times and tools; written down when it closes."""
        window.row.schedule = schedule or window.row.schedule
        window.row.closed_early = closed_early or window.row.closed_early

    def request_close(self, reason: str, only: Window | None = None) -> None:
        """Close the open window now, or where its own thread comes by next if a tool must stop on the thread it started on."""
        with self.lock:
            window = self.window
            if window is None or (only is not None and window is not only):
                return
            if window.thread != threading.get_ident() and any(tool.thread == "starter" for tool in window.tools):
                window.overdue = reason
            else:
                self.close(reason)

    def close_overdue(self) -> None:
        """Close the open window if that was asked for and this is the thread it waits for."""
        window = self.window
        if window is not None and window.overdue and window.thread == threading.get_ident():
            self.close(window.overdue, only=window)

    # --- closing ----------------------------------------------------------------------------------------------------

    def close(self, reason: str, only: Window | None = None) -> None:
        """Close the open window (``only`` that one), exactly once; harmless when it is not open.

        Whatever a tool raises, the others are closed and the row is written; what is no ``Exception`` is raised after that.
        """
        with self.lock:
            window = self.window
            if window is None or window.closing or (only is not None and window is not only):
                return
            self.lock.hold_signals()
            window.closing = True
            self._wait_for_device(window)
            self.window = None
            before, row = now_ns(), window.row
            if window.trace is not None:
                self.voice.guarded(
                    "looking for running phases",
                    lambda trace: trace.in_progress(running_phases(), before),
                    window.trace,
                )
            if not os.path.isdir(self._place):  # somebody tidied up meanwhile; what was recorded is still written
                self._has_place = False
                self._make_place()
            files, later, interrupted = self._stop(window)
            took = now_ns() - before
            row.closed, row.reason = Moment.now(), str(reason)
            row.void = not row.steps and reasons.among(reason, reasons.STEP_VOID)
            row.close_ms, row.close_ns = round(took / 1e6, 3), took
            if self.trace is not None and window.trace is not None:
                row.spans, row.dropped = self.trace.span_count, self.trace.dropped
            row.range_ns, row.range_calls = window.cost.of_one(window.trace is not None)
            self.journal.add(row)
            self._add_artifacts(files)
            if self.budget is not None:
                self.budget.closed()
                self.budget.learn(window.tools, files, (before - window.opened_at) / 1e9)
            self._close_times.closed(window.info.sequence, window.tools, took)
            if later:
                self._writing.add(lambda: self._write(window, later, (before - window.opened_at) / 1e9))
            if interrupted is not None:
                raise interrupted
        if not later:
            self._tell("closed", window.info)

    def _wait_for_device(self, window: Window) -> None:
        """Wait until the device has done what was submitted: captures end with the window's last kernel in them.

        Phases of other threads are still emitted meanwhile, because what they launch is still captured.
        """
        if not any(tool is not self.trace for tool in window.tools):
            return  # our own timeline has nothing of the device
        drained, before = False, now_ns()
        if self._drain:
            try:
                self.backend.synchronize()
                drained = True
            except failures() as error:  # said once; the captures are stopped all the same
                self.voice.trouble("waiting for the device at the end of a window", error)
        window.row.drained, window.row.drain_ns = drained, now_ns() - before if self._drain else 0

    def _stop(self, window: Window) -> tuple[list[ArtifactFile], list[tuple[Tool, Files]], BaseException | None]:
        """Files that are written, what is left to be written, and what interrupted a tool."""
        files: list[ArtifactFile] = []
        later: list[tuple[Tool, Files]] = []
        interrupted: BaseException | None = None
        for tool in reversed(window.tools):
            before = now_ns()
            try:
                write = tool.stop(window.info)
                if write is None:
                    files.extend(files_of(tool.close(window.info), f"close() of tool {tool.name}"))
                else:
                    later.append((tool, write))
            except failures() as error:  # said once; later windows and the user's code go on
                window.row.failures.append(FailureRow(tool=tool.name, message=text_of(error)))
                self._failed(tool, "closing a window", error)
            except BaseException as error:  # noqa: BLE001 - raised again by the caller, once everything is closed
                window.row.failures.append(FailureRow(tool=tool.name, message=text_of(error)))
                interrupted = interrupted or error
            self._close_times.seconds[tool.name] = (now_ns() - before) / 1e9
        return files, later, interrupted

    def _write(self, window: Window, later: Sequence[tuple[Tool, Files]], seconds: float) -> None:
        """Write what tools left for later; on the writing thread, without the session's lock."""
        before = now_ns()
        for tool, write in later:
            try:
                files = files_of(write(), f"what stop() of tool {tool.name} returned")
                self._add_artifacts(files)
                if self.budget is not None:
                    self.budget.learn([tool], files, seconds)
            except BaseException as error:  # noqa: BLE001 - said once; no interrupt of the user's comes to this thread
                window.row.failures.append(FailureRow(tool=tool.name, message=text_of(error)))
                self._failed(tool, "writing the files of a window", error)
        window.row.write_ns = now_ns() - before
        self.journal.add(window.row)
        self._tell("closed", window.info)

    def wait_for_files(self, seconds: float | None = None) -> bool:
        """Wait until the files of every window that is closed are written, ``seconds`` at most; whether they are."""
        return self._writing.finish(seconds)

    def once_written(self, job: Callable[[], None]) -> None:
        """Run ``job``, which does not raise, behind training: when the files of every window that is closed are written."""
        self._writing.add(job)

    def finalise(self, reason: str) -> None:
        """The session closes: no window opens any more, and tools finish what they write at the end; then an interrupt is raised."""
        with self.lock, contextlib.ExitStack() as finishing:
            self.ended = True
            if self.budget is not None:
                self.voice.guarded("ending the watch over the budget", self.budget.end)
            self.lock.hold_signals()
            before = now_ns()
            self.wait_for_files()
            self._close_times.waited(now_ns() - before)
            for tool in reversed(self.tools):
                finishing.callback(self._finish, tool, reason)  # each of them, also where one before it is interrupted

    def _finish(self, tool: Tool, reason: str) -> None:
        try:
            self._add_artifacts(files_of(tool.finalise(reason), f"finalise() of tool {tool.name}"))
        except failures() as error:  # said once
            self.voice.say(f"tool {tool.name} failed while finishing: {text_of(error)}")

    def disown(self) -> None:
        """In a forked child: the window, its tools and files are the parent's."""
        self.window, self.ended, self.trace, self.budget = None, True, None, None
        self.tools.clear()
        self._writing = Writing()

    def _failed(self, tool: Tool, doing: str, error: BaseException) -> None:
        failures = self._failures[tool.name] = self._failures.get(tool.name, 0) + 1
        text = f"tool {tool.name} failed {doing}: {text_of(error)}"
        off = failures == FAILURES_BEFORE_OFF
        if off:
            text += f"; it failed {failures} times in a row and is off in this process from now on"
        self._last_failure[tool.name] = text
        self.voice.say(text, about=(tool.name, doing, nature(error), off))
        self.voice.defer(text, error)

    def _add_artifacts(self, files: Sequence[ArtifactFile]) -> None:
        process = self.process
        for file in files:
            self.journal.add(ArtifactRow.of(file, process.key, process.target, process.host, process.pid))
