"""The one owner of a process's profiling state: events come in, triggers and captures act, rows and files go out.

What owns what: :class:`~accelprof.session.process.Process` who this process is to the plan and what is written of it,
:class:`~accelprof.session.captures.Captures` the open window, :class:`~accelprof.session.pending.Pending` an ask that waits, the
triggers when a window is due, :class:`~accelprof.session.course.Course` which step runs and who hears of it,
:class:`~accelprof.session.loop.Loop` how a step is left, :class:`~accelprof.session.hooks.Hooks` what plug-ins hear. The session
passes events on, and no tool that fails stops the user's code (unless ``on_error: raise`` asks for it).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from accelprof.contracts import reasons
from accelprof.contracts.backend import Backend
from accelprof.contracts.targets import Assignment, Target
from accelprof.contracts.timings import Timings
from accelprof.contracts.tool import Tool
from accelprof.contracts.words import WindowKind
from accelprof.numberset import whole
from accelprof.output.layout import Layout
from accelprof.output.records import TargetRow
from accelprof.planning.kept import keeps
from accelprof.session.budget import BudgetWatch
from accelprof.session.captures import Ask, Captures
from accelprof.session.course import Course
from accelprof.session.entering import Entering
from accelprof.session.hooks import Hooks
from accelprof.session.lock import SessionLock
from accelprof.session.loop import Loop
from accelprof.session.pending import Pending
from accelprof.session.process import Process
from accelprof.session.triggers.demand import Demand
from accelprof.session.triggers.planned import planned
from accelprof.session.window import Window
from accelprof.timing.gate import gate

if TYPE_CHECKING:
    from accelprof.catalogue import Catalogue
    from accelprof.config.model import Config
    from accelprof.session.instrument import Instruments
    from accelprof.session.ownrun import OwnRun
    from accelprof.session.requests import Requests
    from accelprof.timing.entry import PlainCalls
    from accelprof.tools.trace import TraceTool

T = TypeVar("T")


class Part(Protocol):
    """What was put into a session after it was made, and ends with it."""

    def end(self) -> None:
        """The session closes; under its lock."""

    def disown(self) -> None:
        """This is a forked child: what it has belongs to the parent."""


class Session:
    """See the module. Made by :func:`accelprof.configure`; use ``step``, ``begin_step``/``end_step`` and ``close``.

    Attributes:
        process: who it is, ``host`` and ``pid`` too; ``assignment``: what the plan gives it.
        key: the process in journals and manifests: group, rank, host and pid.
        captures, demand: its windows, and those that are asked for on the live process.
        windows: records of all windows so far (the manifest's ``windows`` rows).
        tools: what captures, without our own timeline.
        problems: what was said so far.
        course: the running step, and who hears of it. ``steps_seen``: the announced ones, in order.
        requests, instruments: parts that :func:`accelprof.configure` puts in where the configuration asks for them.
        own_run: the end of the run, where nobody else ends it.
        closed: nothing happens any more; also in a forked child of the session's process.
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
        catalogue: Catalogue,
        kept: bool = False,
    ) -> None:
        self.config, self.backend, self.catalogue, self.layout = config, backend, catalogue, layout
        kept = kept or keeps(config, assignment)
        process = self.process = Process(assignment, layout, host, config.on_error == "raise", kept)
        self.key, self.journal, self.voice = process.key, process.journal, process.voice
        self.say, self.problems = self.voice.say, self.voice.problems
        self.closed = self.inherited = False
        self.own_run: OwnRun | None = None
        self.instruments: Instruments | None = None
        self.requests: Requests | None = None
        self.lock = SessionLock(lambda: gate.refresh(self))
        captures = self.captures = Captures(process, backend, tools, trace, self.lock, config.drain)
        self.windows, self.tools = captures.rows, captures.tools
        if assignment.selected and config.budget.is_limited:
            captures.budget = BudgetWatch(config.budget, captures)
        self.pending = Pending(captures)
        course = self.course = Course(captures)
        self.demand = Demand(captures, self.pending, course)
        triggers = course.triggers = (*planned(assignment, captures, self.pending, course), self.demand)
        self.steps_seen = self.course.times.seen
        self.entrance = Entering(captures, triggers, self.pending)
        self.hooks = Hooks(catalogue, captures, self.course, self)
        captures.listeners.append(self.hooks.window)
        self._loop = Loop(captures, self.course, self.begin_step, self.end_step, self.void_step)

    # --- what is asked of it most ------------------------------------------------------------------------------------

    @property
    def assignment(self) -> Assignment:
        return self.process.assignment

    @property
    def target(self) -> Target:
        return self.process.target

    @property
    def window(self) -> Window | None:
        """The open window, or ``None``."""
        return self.captures.window

    @property
    def step_now(self) -> int | None:
        """The running step, or ``None``."""
        return self.course.running

    def metrics_of_step(self, number: int | None = None) -> Timings:
        """``{tag: {"seconds", "count"}}`` of one finished step; the last one when ``number`` is ``None``."""
        return self.course.times.of(number)

    def attention(self) -> tuple[bool, PlainCalls | None]:
        """What the gate asks when the lock is left; see :meth:`Entering.attention`."""
        return (False, None) if self.closed else self.entrance.attention()

    # --- steps ------------------------------------------------------------------------------------------------------

    def step(self, number: int) -> AbstractContextManager[Session]:
        """One training step; opens and closes windows as the plan says. An exception of the body reaches the caller unchanged."""
        return self._loop.one(number, self)

    def steps(self, items: Iterable[T], first: int = 1) -> Iterator[T]:
        """Each of ``items`` in a step of its own, numbered from ``first``: ``for batch in session.steps(loader): …``

        A step begins with waiting for its item, the phase ``data``, so that a slow loader is seen in the step that it holds up. It
        ends when the loop asks for the next item or is left. Items without a length begin one step too many, which
        :meth:`void_step` takes back; what lies beyond the length that they say is waited for before its step.
        """
        return self._loop.over(items, first)

    def begin_step(self, number: int, *, outside: bool = False) -> None:
        """A step begins. ``outside``: announced from outside (a controller's call), maybe on another thread than the work.

        Raises:
            TypeError: ``number`` is not a whole number.
            CaptureError: a tool failed and ``on_error`` is ``raise``.
        """
        number = whole(number, "begin_step: step numbers")
        with self.lock:
            if self.closed:
                return
            if self.instruments is not None:
                self.instruments.settle()
            self.course.begin(number, outside)
        self.hooks.step_began(number)
        if self.voice.deferred:
            self.captures.close(reasons.TOOL_FAILED)
            self.voice.raise_deferred()

    def end_step(self, number: int | None = None) -> None:
        """The step ended; a window that holds no later step closes. Harmless when no step is running."""
        with self.lock:
            number = self.step_now if number is None else whole(number, "end_step: step numbers")
            if self.closed or number is None or not self.course.end(number):
                return
        self.hooks.step_ended(number)
        self.voice.raise_deferred()

    def void_step(self) -> None:
        """The running step was announced and never came, for loops that learn only by asking that nothing follows: it has no row, no
        timings and is none of its window's steps. Raises nothing; harmless when no step is running."""
        with self.lock:
            if self.step_now is not None and not self.closed:
                self.course.void(self.step_now)

    def step_raised(self, error: BaseException) -> None:
        """The body of the running step raised, for loops that somebody else runs: its window closes, and how long it would have taken
        is not known. Raises nothing; harmless when no step is running."""
        number = self.step_now
        if number is not None and not self.closed:
            self._loop.left_by(error, number)

    # --- windows by name --------------------------------------------------------------------------------------------

    def open_window(self, kind: WindowKind = "on_demand", steps: Sequence[int] = ()) -> Window | None:
        """Open a window on this thread now; ``None`` when no tool could start (said once) or one is open already."""
        return self.captures.open(Ask(kind, tuple(steps)))

    def close_window(self, reason: str) -> None:
        """Close the open window, exactly once; harmless when none is open."""
        self.captures.close(reason)

    def wait_for_files(self) -> None:
        """Wait until the files of every window that is closed are written; ``close`` does that too."""
        self.captures.wait_for_files()

    def arm(self, kind: WindowKind = "on_demand", steps: Sequence[int] = ()) -> bool:
        """Open a window where the next phase begins; for one more release, windows on demand are asked for from outside
        (``accelprof window``). ``False`` when one waits already."""
        warnings.warn("Session.arm goes with the next release; use on_demand", DeprecationWarning, stacklevel=2)
        with self.lock:
            waits = self.pending.ask is not None
            if not waits:
                self.pending.put(Ask(kind, tuple(steps)))
            return not waits

    # --- the end ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Taken into use: the journal names the target, and who has a window for the whole process opens it."""
        with self.lock:
            if self.assignment.selected:
                self.journal.add(self.describe())
                self.course.start()
        self.voice.raise_deferred()

    def close(self, reason: str = reasons.CLOSED) -> dict[str, Any]:
        """Close what is open, let tools finish, say what was armed and never opened. Idempotent.

        Where nobody else ends the run (no controller, no ``accelprof run``), the run ends here: manifest, and from rank 0 and
        the last process of the job timeline and page.

        Returns:
            The run's manifest where it ends here; ``run_dir`` says where everything lies (``None``: nowhere). Also, and
            alone where somebody else ends the run, what that one merges: ``{"key", "journal", "problems", "target"}``.

        Raises:
            CaptureError: something failed and ``on_error`` is ``raise``; everything is closed all the same.
        """
        if self.inherited:
            return self.process.handed_over(self.describe())
        ended: dict[str, Any] = {}
        try:
            with self.lock:
                self.lock.hold_signals()  # until the manifest is written
                if not self.closed:
                    self._close(reason)
                if self.own_run is not None and not reasons.among(reason, reasons.JOINED):
                    self.own_run.write(reason)
        finally:  # an interrupt that came meanwhile is raised when all is written
            if self.own_run is not None:
                ended = self.own_run.end(reason)
        self.voice.raise_deferred()
        return {**self.process.handed_over(self.describe()), **ended}

    def _close(self, reason: str) -> None:
        guarded = self.voice.guarded
        self.course.close(reason)
        try:
            guarded("closing a window", self.captures.close, reason)
        finally:  # each of what follows, also where somebody is interrupted
            self.closed = True
            for part in self._parts():
                guarded(f"ending {type(part).__name__}", part.end)
            self.entrance.background = None
            try:
                self.captures.finalise(reason)
            finally:
                if not reasons.among(reason, reasons.JOINED):
                    self.process.end(self.steps_seen, self.windows)
                if self.assignment.selected:
                    self.journal.add(self.describe())
                self.journal.close()

    def disown(self) -> None:
        """In a forked child: this session is the parent's. Whatever the child unwinds or calls, nothing of it happens here."""
        self.closed = self.inherited = True
        self.lock.renew()
        self.captures.disown()
        self.entrance.background = None
        self.journal.disown()
        for part in self._parts():
            part.disown()

    def _parts(self) -> list[Part]:
        parts: tuple[Part | None, ...] = (self.requests, self.course.recorder, self.instruments)
        return [part for part in parts if part is not None]

    def widen(self, assignment: Assignment) -> bool:
        """Further roles join while the one window of the whole process is open; ``False`` when they want something else."""
        with self.lock:
            window = self.window
            whole = window is not None and window.info.kind == "process" and not window.steps
            if whole and self.process.widen(assignment):
                self.journal.add(self.describe())
                return True
            return False

    def describe(self) -> TargetRow:
        """The manifest's ``targets`` row of this process."""
        return self.process.row(self.backend.name, self.steps_seen, len(self.windows))
