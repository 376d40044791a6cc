"""Calls while they run: the paths of a timed call that are not the wrapper's own, and which phases run at this moment.

Plain calls cost nothing to keep track of while nothing is open: whether a tag runs already is read off the thread's *own*
stack. Frames of other threads are never looked at (they may be freed meanwhile); what runs there when a window closes is
told by what registers itself while a window is open (:class:`Run`, ``slow_call``, a state's ``since``), and by the token that
is missing from its state: such a call began before the window.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from _thread import get_ident
from types import FrameType

from accelprof.errors import failures
from accelprof.timing import metrics
from accelprof.timing.compiled import hide
from accelprof.timing.gate import gate, wrapper_globals
from accelprof.timing.labels import bounded
from accelprof.timing.loops import greenlet, runner, running_loop
from accelprof.timing.metrics import State, process_state
from accelprof.timing.phase import IN_PIECES, ON_STACK, SUSPENDS, PhaseSpec

TYPE_CHECKING = False  # as typing has it, whose import would be a fifth of ours
if TYPE_CHECKING:
    from typing import Any, ClassVar

#: device times that wait to be read before it is tried; events that were read are used again
RESOLVED_AT = 256
#: how the code of every wrapper says where it is from; one that came by pickle into another process says it too
WRAPPER_FILE = "<accelprof timer "
#: locals of a generated wrapper that others rely on: the template is made from this table, and the walk over a thread's own
#: stack reads the frames by it
LOCALS = {
    "state": "_accelprof_state",
    "spec": "_accelprof_spec",
    "buffer": "_accelprof_buffer",
    "start": "_accelprof_start",
    "end": "_accelprof_end",
}


def slow_call(_st: State, _spec: PhaseSpec, _fn: Any, /, *args: object, **kwargs: object) -> Any:
    """A call that is not plain: armed, a phase may open a window, an event loop runs, or the tag is running already."""
    entrance = gate.entrance
    try:
        buffer = _st.pop()
    except IndexError:
        buffer = None
    me = runner()
    if me in _st.inside or (buffer is None and _on_this_stack(_st)):
        if buffer is not None:
            _st.append(buffer)
        return _fn(*args, **kwargs)  # inside itself: the outermost call counts
    _st.enter(me)
    number = next(_numbers)
    entry = None if entrance is None else entrance.enter(_spec, ON_STACK if greenlet() is None else SUSPENDS)
    # after ``enter``: a window that this phase opens is not device time of the phase
    events = begin_events() if _spec.device else None
    start = _clock()
    row = Running(_spec, start, get_ident(), "" if entry is None else entry.task)
    _calls[number] = row, _st if buffer is not None else None
    try:
        return _fn(*args, **kwargs)
    finally:
        end = _clock()
        _calls.pop(number, None)
        if events is not None:
            finish_events(_st, events)
        if buffer is None:
            _st.others.append(end - start)
        else:
            buffer.append(end - start)
            _st.append(buffer)
        _st.leave(me)
        if entry is not None:
            entry.leave(start, end)
        elif gate.entrance is not None:
            gate.entrance.ended_inside(_spec, start, end)
        if len(_st.buffer) > metrics.FOLD_AT or len(_st.others) > metrics.FOLD_AT:
            _st.fold()


class Running:
    """A phase that runs at this moment: when it began (the timers' clock; 0 = before the window), on which thread (0 = it is
    not known which) and in which task."""

    __slots__ = ("call", "spec", "start", "task", "thread")

    def __init__(self, spec: PhaseSpec, start: int, thread: int, task: str, call: int = 0) -> None:
        self.spec, self.start, self.thread, self.task, self.call = spec, start, thread, task, call


_numbers = itertools.count()
#: calls by this path that run now, each with its state where it holds the token
_calls: dict[int, tuple[Running, State | None]] = {}


def begin_events() -> Any:
    """Device events that have begun, or ``None``; a backend that fails at it is asked no more in this session."""
    session = gate.always
    events = None if session is None else session.device_timer()
    if session is None or events is None:
        return None
    try:
        events.begin()
    except failures() as error:  # said once; the user's function runs all the same
        session.device_timer_failed(error)
        return None
    return events


def finish_events(state: State, events: Any) -> None:
    """End device events; their time is resolved later."""
    try:
        if events.finish() is False:
            return  # a graph is being captured: this call has no device time
    except failures() as error:  # said once; the user's own exception must reach the caller
        if gate.always is not None:
            gate.always.device_timer_failed(error)
        return
    state.device_pending.append(events)
    if not len(state.device_pending) % RESOLVED_AT:
        state.resolve_device()


def late(state: State, spec: PhaseSpec, start: int, end: int) -> None:
    """A call that began closed ended while something was to be done, or its buffer is full."""
    if len(state.buffer) > metrics.FOLD_AT:
        state.fold()
    entrance = gate.entrance
    if entrance is not None:
        entrance.ended_inside(spec, start, end)


def _clock() -> int:
    return int(wrapper_globals["_accelprof_clock"]())


def _on_this_stack(state: State) -> bool:
    """Whether ``state`` is being timed further up on this thread: recursion, counted once by the outermost call."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if state_in(frame) is state:
            return True
        frame = frame.f_back
    return False


def state_in(frame: FrameType) -> State | None:
    """The state that a wrapper's frame is timing at this moment, or ``None`` for any other frame. Of this thread's own frames."""
    if not frame.f_code.co_filename.startswith(WRAPPER_FILE):
        return None
    found = frame.f_locals
    if found.get(LOCALS["buffer"]) is None or LOCALS["end"] in found:
        return None
    state: State | None = found.get(LOCALS["state"])
    return state


def running_phases() -> list[Running]:
    """Every phase that runs now, on any thread and in any task, outer ones first."""
    found = _on_own_stack()
    calls = list(_calls.values())
    known = {id(state) for _, state in [*found, *calls]}
    elsewhere = [state for state in metrics.all_states() if not state and not state.held and id(state) not in known]
    if any(not state.since for state in elsewhere):
        time.sleep(0.001)  # one that has just taken its token says in a moment when it began
    rows = [row for row, _ in [*found, *calls]]
    for state in elsewhere:
        since, thread = state.since, state.thread
        if not state and not state.held:
            rows.append(Running(state.spec, since, thread if since else 0, ""))
    for run in list(Run.live.values()):
        start = run.start if run.own is None else run.resumed  # a generator between two items does not run
        if not run.done and start:
            entry = run.entry
            task, call = ("", 0) if entry is None else (entry.task, entry.call)
            rows.append(Running(run.spec, start, run.thread, task, call))
    return sorted(rows, key=lambda row: row.start)


def _on_own_stack() -> list[tuple[Running, State]]:
    """Plain calls on this thread's own stack."""
    found: list[tuple[Running, State]] = []
    frame: FrameType | None = sys._getframe(1)
    me = get_ident()
    while frame is not None:
        state = state_in(frame)
        if state is not None:
            local = frame.f_locals
            start = local.get(LOCALS["start"])
            if start is not None:
                found.append((Running(local[LOCALS["spec"]], start, me, ""), state))
        frame = frame.f_back
    return found


class Run:
    """One timed call that is not a plain call on the stack: a coroutine, a generator, a ``with`` block.

    ``resume``/``suspend`` bracket own time where that is what counts (generators, of which each piece is emitted for itself).
    """

    __slots__ = (
        "done",
        "entry",
        "events",
        "me",
        "nested",
        "on_stack",
        "own",
        "resumed",
        "spec",
        "start",
        "state",
        "thread",
    )

    #: runs that have begun and not finished, for windows that open in their middle
    live: ClassVar[dict[int, Run]] = {}

    def __init__(
        self, state: State, spec: PhaseSpec, own_time: bool = False, suspends: bool = True, on_stack: bool = False
    ) -> None:
        self.state, self.spec = state, spec
        self.me: int | None = runner()
        self.nested = self.me in state.inside or (not state and _on_this_stack(state))
        self.own = 0 if own_time else None
        self.on_stack = on_stack
        self.resumed = self.start = 0
        self.done = False
        self.entry: Any = None
        self.events: Any = None
        self.thread = get_ident()
        if self.nested:
            return
        if own_time:
            self.me = None  # a generator runs between resume and suspend only; others of its tag may run in between
        else:
            self._occupy()
        Run.live[id(self)] = self
        entrance = gate.entrance
        if entrance is not None:
            self.entry = entrance.enter(spec, IN_PIECES if own_time else SUSPENDS if suspends else ON_STACK)
        if spec.device:
            self.events = begin_events()
        self.start = _clock()

    def _occupy(self) -> None:
        """From now on calls of this tag in here are inside this one; plain ones notice because the token is gone."""
        self.me = runner()
        self.state.enter(self.me)
        try:
            self.state.held.append(self.state.pop())
        except IndexError:
            pass  # somebody else holds the token

    def _vacate(self) -> None:
        if self.me is not None:
            me, self.me = self.me, None
            self.state.leave(me)

    def resume(self) -> None:
        """A generator goes on."""
        if self.nested:
            return
        self._occupy()
        self.thread = get_ident()
        entrance = gate.entrance
        if entrance is not None and self.entry is None:  # something was opened since the call began
            self.entry = entrance.goes_on(self.spec)
        if self.entry is not None:
            self.entry.resume(self.on_stack and greenlet() is None)
        self.resumed = _clock()

    def suspend(self) -> None:
        """A generator yielded or ended."""
        if not self.nested and self.own is not None:
            start, end = self.resumed, _clock()
            self.resumed = 0
            self.own += end - start
            if self.entry is not None:
                self.entry.pause(start, end)
            self._vacate()

    def finish(self) -> None:
        """Record once; called in ``finally``."""
        if self.nested or self.done:
            return
        self.done = True
        end = _clock()
        state = self.state
        self._vacate()
        Run.live.pop(id(self), None)
        state.others.append(end - self.start if self.own is None else self.own)
        if len(state.others) > metrics.FOLD_AT:
            state.fold()
        if self.events is not None:
            finish_events(state, self.events)
        if self.entry is not None:
            self.entry.leave(self.start, end)
        elif self.own is None and gate.entrance is not None:
            gate.entrance.ended_inside(self.spec, self.start, end)


def forget_running() -> None:
    """In a forked child: what ran on other threads of the parent does not run here, so their tokens are put back."""
    Run.live.clear()
    _calls.clear()
    here = {id(state) for _, state in _on_own_stack()}
    me = runner()
    for state in metrics.all_states():
        for other in state.inside - {me}:
            state.leave(other)
        if not state and not state.inside and id(state) not in here:
            state.append(state.buffer)


def drive(generator: Any, state: State, spec: PhaseSpec) -> Any:
    """Run a generator as its caller would, counting only the time inside it."""
    run = Run(state, spec, own_time=True, on_stack=True)
    value: Any = None
    error: BaseException | None = None
    try:
        while True:
            run.resume()
            try:
                item = generator.send(value) if error is None else generator.throw(error)
            except StopIteration as stop:
                return stop.value
            finally:
                run.suspend()
            value, error = None, None
            try:
                value = yield item
            except GeneratorExit:
                raise
            except BaseException as thrown:  # noqa: BLE001 - handed to the generator it was thrown into
                error = thrown
    finally:
        try:
            if generator.gi_frame is not None:  # left before its end
                run.resume()
                try:
                    generator.close()
                finally:
                    run.suspend()
        finally:
            run.finish()


class WorkerTimer:
    """``with worker.worker_timer("actor/opt_step"):`` times and emits as the decorator does; also ``async with``.

    May be entered again after it was left, and inside itself; leaving it more often than it was entered does nothing.
    """

    __slots__ = ("_instance", "_runs", "_spec")

    def __init__(
        self, instance: object, tag: str, color: str = "", domain: str = "", category: str = "", device: bool = False
    ) -> None:
        self._instance, self._spec = instance, PhaseSpec(bounded(tag), domain, color, category, device)
        self._runs: list[Run] = []

    def __enter__(self) -> WorkerTimer:
        return self._begin(can_be_suspended(sys._getframe(1)))

    def __exit__(self, *_: object) -> None:
        if self._runs:
            self._runs.pop().finish()

    async def __aenter__(self) -> WorkerTimer:
        return self._begin(True)

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    def _begin(self, suspends: bool) -> WorkerTimer:
        spec = self._spec
        state = (
            process_state(spec.tag, spec)
            if self._instance is None
            else metrics.state_of(self._instance, spec.tag, spec)
        )
        self._runs.append(Run(state, spec, suspends=suspends))
        return self


#: code flags CO_GENERATOR, CO_COROUTINE and CO_ASYNC_GENERATOR of the inspect module
SUSPENDING = 0x20 | 0x80 | 0x200


def can_be_suspended(frame: FrameType) -> bool:
    """Whether the block's own frame may be suspended while the block is open; one inside ``ExitStack`` counts as such under a loop."""
    if frame.f_code.co_flags & SUSPENDING or greenlet() is not None:
        return True
    return frame.f_globals.get("__name__") == "contextlib" and running_loop() is not None


hide(
    slow_call.__code__,
    Run.__init__.__code__,
    Run.finish.__code__,
    WorkerTimer.__enter__.__code__,
    WorkerTimer.__exit__.__code__,
    WorkerTimer._begin.__code__,
)


def _after_fork() -> None:
    metrics.after_fork()
    forget_running()


os.register_at_fork(after_in_child=_after_fork)
