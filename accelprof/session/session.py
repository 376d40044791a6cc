"""The one owner of a process's profiling state: events come in, triggers and captures act, rows and files go out.

What owns what: :class:`~accelprof.session.captures.Captures` the open window, :class:`~accelprof.session.pending.Pending` an ask
that waits, the triggers when a window is due, :class:`~accelprof.session.course.Course` which step runs,
:class:`~accelprof.voice.Voice` what is said. The session passes events on, and no tool that fails stops the user's code (unless
``on_error: raise`` asks for it).
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from accelprof.contracts.backend import Backend
from accelprof.contracts.targets import Assignment, Target, WindowInfo
from accelprof.contracts.tool import Tool
from accelprof.errors import CaptureError
from accelprof.numberset import whole
from accelprof.output.layout import Layout
from accelprof.output.manifest import Journal
from accelprof.output.records import ProblemRow, TargetRow, WindowRow
from accelprof.session import rows
from accelprof.session.budget import BudgetWatch
from accelprof.session.captures import Ask, Captures, Process
from accelprof.session.course import Course
from accelprof.session.entering import Entering
from accelprof.session.lock import SessionLock
from accelprof.session.pending import Pending
from accelprof.session.steptimes import Timings
from accelprof.session.triggers import Trigger
from accelprof.session.triggers.demand import Demand
from accelprof.session.triggers.planned import planned
from accelprof.session.window import Window
from accelprof.timing.gate import gate
from accelprof.timing.timer import timer
from accelprof.voice import Voice

if TYPE_CHECKING:
    from accelprof.catalogue import Catalogue
    from accelprof.config.model import Config
    from accelprof.session.control import Control
    from accelprof.session.instrument import Instruments
    from accelprof.session.ownrun import OwnRun
    from accelprof.session.recorder import Recorder
    from accelprof.tools.trace import TraceTool

T = TypeVar("T")
#: why a session is closed whose process goes on as a worker with more roles
JOINED = "a further role joined"
HOOKS = ("accelprof_step_begin", "accelprof_step_end", "accelprof_window_opened", "accelprof_window_closed")


class Session:
    """See the module. Made by :func:`accelprof.configure`; use ``step``, ``begin_step``/``end_step`` and ``close``.

    Attributes:
        assignment: what the plan gives this process.
        captures, demand: its windows, and those that are asked for on the live process.
        closed: nothing happens any more; also in a forked child of the session's process.
        course: the running step, and who hears of it.
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
        launched: bool = False,
    ) -> None:
        self.config, self.assignment, self.backend, self.registry = config, assignment, backend, registry
        self.process = Process(assignment.target, layout, host, os.getpid())
        self.closed = self.inherited = False
        self.own_run: OwnRun | None = None
        self.instruments: Instruments | None = None
        self.control: Control | None = None
        self.lock = SessionLock(lambda: gate.refresh(self))
        self.voice = Voice(self.target.label, config.on_error == "raise", self._write_problem)
        keeps = assignment.selected or config.recorder is not None or launched
        path = f"{layout.workers_dir}/{self.key}.jsonl" if keeps else None
        self.journal = Journal(path, self.say)
        self.captures = Captures(
            self.process, backend, tools, trace, self.voice, self.journal, self.lock,
            selected=assignment.selected, drain=config.drain, tell=self._tell_of_window,
        )  # fmt: skip
        if assignment.selected and rows.is_limited(config.budget):
            self.captures.budget = BudgetWatch(config.budget, self.captures)
        self.pending = Pending(self.captures)
        self.demand = Demand(self.captures, self.pending)
        self._triggers: list[Trigger] = [*planned(assignment, self.captures, self.pending), self.demand]
        self.course = Course(self.captures, self._triggers, backend)
        self.entrance = Entering(self.captures, self._triggers, self.pending, backend, self.voice)
        self._hooks = {name for name in HOOKS if registry.listens(name)}

    # --- what is asked of it most ------------------------------------------------------------------------------------

    @property
    def target(self) -> Target:
        return self.process.target

    @property
    def layout(self) -> Layout:
        return self.process.layout

    @property
    def key(self) -> str:
        """The process in journals and manifests: group, rank, host and pid."""
        return self.process.key

    @property
    def host(self) -> str:
        return self.process.host

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def window(self) -> Window | None:
        """The open window, or ``None``."""
        return self.captures.window

    @property
    def windows(self) -> list[WindowRow]:
        """Records of all windows so far (the manifest's ``windows`` rows)."""
        return self.captures.rows

    @property
    def tools(self) -> list[Tool]:
        """What captures, without our own timeline."""
        return self.captures.tools

    @property
    def trace(self) -> TraceTool | None:
        return self.captures.trace

    @property
    def problems(self) -> list[str]:
        """What was said so far."""
        return self.voice.problems

    @property
    def step_now(self) -> int | None:
        """The running step, or ``None``."""
        return self.course.running

    @property
    def steps_seen(self) -> dict[int, None]:
        return self.course.times.seen

    @property
    def recorder(self) -> Recorder | None:
        return self.course.recorder

    def say(self, message: str, level: int = logging.WARNING, about: object = None, code: str = "") -> None:
        """Say something once, with group and rank, in the log and in the manifest; see :meth:`Voice.say`."""
        self.voice.say(message, level, about, code)

    report = say  # its name in 0.1; goes with the next release

    def metrics_of_step(self, number: int | None = None) -> Timings:
        """``{tag: {"seconds", "count"}}`` of one finished step; the last one when ``number`` is ``None``."""
        return self.course.times.of(number)

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

    def steps(self, items: Iterable[T], first: int = 1) -> Iterator[T]:
        """Each of ``items`` in a step of its own, numbered from ``first``: ``for batch in session.steps(loader): …``

        Waiting for the next item is the phase ``data`` at the end of the step before, so that a slow loader is seen; the
        first item is waited for before the first step. A step ends when the loop asks for the next item or is left.
        """
        waiting = timer("data", category="data")(next)
        iterator, none = iter(items), object()
        number, item = first, waiting(iterator, none)
        while item is not none:
            self.begin_step(number)
            try:
                yield item  # type: ignore[misc]  # it is no longer the sentinel
                item = waiting(iterator, none)
            except GeneratorExit:  # the loop was left, by break or by what its body raised
                self._end_quietly(number)
                raise
            except BaseException:
                self._leave_by_exception(number)
                raise
            self.end_step(number)
            number += 1

    def _leave_by_exception(self, number: int) -> None:
        """The step's body raised: its window closes, also one that would have held later steps; that exception alone is raised."""
        with self.lock:
            if self.window is not None and self.window.info.kind in ("step", "phase"):
                self.captures.close("exception")
            self._end_quietly(number)
        raised = sys.exc_info()[1]
        if self.recorder is not None and isinstance(raised, Exception):
            self.recorder.failed(number, raised)

    def _end_quietly(self, number: int) -> None:
        """End the step where nothing may be raised: what would be is said."""
        try:
            self.end_step(number)
        except CaptureError as error:
            self.say(str(error))

    def begin_step(self, number: int, *, control: bool = False) -> None:
        """A step begins. ``control``: announced from outside (a controller's call), maybe on another thread than the work.

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
            self.course.begin(number, control and threading.current_thread() is not threading.main_thread())
        self._tell("accelprof_step_begin", step=number)
        if self.voice.deferred:
            self.captures.close("a tool failed and on_error is raise")
            self.voice.raise_deferred()

    def end_step(self, number: int | None = None) -> None:
        """The step ended; a window that holds no later step closes. Harmless when no step is running."""
        with self.lock:
            number = self.step_now if number is None else whole(number, "end_step: step numbers")
            if self.closed or number is None or not self.course.end(number):
                return
        self._tell("accelprof_step_end", step=number)
        self.voice.raise_deferred()

    def attention(self) -> tuple[bool, Any]:
        """What the gate asks when the lock is left; see :meth:`Entering.attention`."""
        return (False, None) if self.closed else self.entrance.attention()

    # --- windows by name --------------------------------------------------------------------------------------------

    def open_window(self, kind: str = "on_demand", steps: Sequence[int] = ()) -> Window | None:
        """Open a window on this thread now; ``None`` when no tool could start (said once) or one is open already."""
        return self.captures.open(Ask(kind, tuple(steps)))

    def close_window(self, reason: str) -> None:
        """Close the open window, exactly once; harmless when none is open."""
        self.captures.close(reason)

    def request_close(self, reason: str) -> None:
        """Close the open window now, or where its own thread comes by next if a tool must stop on the thread it started on."""
        self.captures.request_close(reason)

    def wait_for_files(self) -> None:
        """Wait until the files of every window that is closed are written; ``close`` does that too."""
        self.captures.wait_for_files()

    def arm(self, kind: str = "on_demand", steps: Sequence[int] = ()) -> bool:
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
        """Taken into use: the journal names the target, a window for the whole process opens."""
        with self.lock:
            if self.assignment.selected:
                self.journal.add(self.describe())
                if self.assignment.mode == "process" and not self.assignment.schedules:
                    away = threading.current_thread() is not threading.main_thread()
                    ask = Ask("process")
                    if away and self.captures.bound:
                        self.pending.put(ask)
                    else:
                        self.captures.open(ask)
        self.voice.raise_deferred()

    def close(self, reason: str = "closed") -> dict[str, Any]:
        """Close what is open, let tools finish, say what was armed and never opened. Idempotent.

        Where nobody else ends the run (no controller, no ``accelprof run``), the run ends here: manifest, and from rank 0 and
        the last process of the job timeline and page.

        Returns:
            The run's manifest where it ends here; ``run_dir`` says where everything lies (``None``: nowhere). Also, and
            alone where somebody else ends the run, what that one merges: ``{"key", "journal", "problems"}``.

        Raises:
            CaptureError: something failed and ``on_error`` is ``raise``; everything is closed all the same.
        """
        if self.inherited:
            return self.summary()
        with self.lock:
            if not self.closed:
                self._close(reason)
        ended: dict[str, Any] = {}
        if self.own_run is not None and reason == JOINED:
            self.own_run.leave()
        elif self.own_run is not None:
            manifest = self.own_run.end(reason)
            ended = {**manifest, "run_dir": self.own_run.run_dir}
        self.voice.raise_deferred()
        return {**self.summary(), **ended}

    def _close(self, reason: str) -> None:
        guarded = self.voice.guarded
        if self.recorder is not None and reason == "SIGTERM":
            guarded("writing out the recorder", self.recorder.now, "sigterm", "the process was told to end")
        self.course.finish()
        for trigger in self._triggers:
            guarded(f"ending {type(trigger).__name__}", trigger.finish)
        guarded("closing a window", self.captures.close, reason)
        self.closed = True
        if self.captures.budget is not None:
            guarded("ending the watch over the budget", self.captures.budget.end)
        if self.control is not None:
            guarded("ending the watch for requests", self.control.end)
        if self.recorder is not None:
            guarded("ending the recorder", self.recorder.end)
            self.entrance.background = None
        self.captures.finalise(reason)
        if self.instruments is not None:
            guarded("reporting instruments", self.instruments.report)
            guarded("undoing instruments", self.instruments.uninstall)
        if reason != JOINED:
            rows.say_what_never_opened(self.voice, self.assignment, self.steps_seen, self.windows)
        if self.assignment.selected:
            self.journal.add(self.describe())
        self.journal.close()

    def disown(self) -> None:
        """In a forked child: this session is the parent's. Whatever the child unwinds or calls, nothing of it happens here."""
        self.closed = self.inherited = True
        self.lock.renew()
        self.captures.disown()
        if self.recorder is not None:
            self.recorder.disown()
            self.entrance.background = None
        self.journal = Journal(None, self.say)
        if self.instruments is not None:
            self.instruments.uninstall()  # an engine's plug-in hook instruments anew, for the child itself

    def widen(self, assignment: Assignment) -> bool:
        """Further roles join while the one window of the whole process is open; ``False`` when they want something else."""
        with self.lock:
            window, own = self.window, self.assignment
            same = all(
                getattr(assignment, name) == getattr(own, name) for name in ("tool", "options", "mode", "discrete")
            )
            if window is None or window.info.kind != "process" or window.steps or not same:
                return False
            self.assignment, self.process.target = assignment, assignment.target
            self.voice.label = assignment.target.label
            self.journal.add(self.describe())
            return True

    def describe(self) -> TargetRow:
        """The manifest's ``targets`` row of this process."""
        return rows.target_row(self.process, self.assignment, self.backend.name, self.steps_seen, len(self.windows))

    def summary(self) -> dict[str, Any]:
        """What a controller takes over: the journal and the problems, as plain data."""
        return {
            "key": self.key,
            "journal": list(self.journal.records),
            "problems": list(self.problems),
            "selected": self.assignment.selected,
            "target": self.describe().to_json(),
        }

    # --- telling others ---------------------------------------------------------------------------------------------

    def _write_problem(self, message: str, code: str) -> None:
        self.journal.add(ProblemRow(target=self.key, message=message, code=code))

    def _tell_of_window(self, what: str, info: WindowInfo) -> None:
        window = self.captures.window
        if self.recorder is not None and what == "opened" and window is not None:
            self.recorder.window_opened(window)
        self._tell(f"accelprof_window_{what}", window=info)

    def _tell(self, hook: str, **facts: object) -> None:
        if hook in self._hooks:
            self.registry.event(hook, session=self._facts(), **facts)

    def _facts(self) -> rows.SessionFacts:
        window = self.window
        return rows.SessionFacts(
            self.target,
            self.key,
            self.host,
            self.pid,
            self.layout.run_dir,
            self.backend.name,
            self.assignment.selected,
            self.step_now,
            None if window is None else window.info.id,
            self.metrics_of_step(),
            self,
        )
