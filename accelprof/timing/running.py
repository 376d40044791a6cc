"""Calls while they run: the paths of a timed call that are not the wrapper's own, and which phases run at this moment.

Plain calls are found on the threads' stacks, so that they cost nothing to keep track of; what can be suspended
(coroutines, generators, ``with`` blocks) is a :class:`Run` and registers itself.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from types import FrameType
from typing import Any, ClassVar

from accelprof.timing import metrics
from accelprof.timing.compiled import hide
from accelprof.timing.gate import gate, wrapper_globals
from accelprof.timing.metrics import State, process_state
from accelprof.timing.phase import PhaseSpec

#: how the code of every wrapper says where it is from; one that came by pickle into another process says it too
WRAPPER_FILE = "<accelprof timer "


def hot_call(_st: State, _spec: PhaseSpec, _fn: Any, /, *args: Any, **kwargs: Any) -> Any:
    """A call that is not plain: armed, a phase may open a window, an event loop runs, or the tag is running already."""
    entrance = gate.entrance
    try:
        buffer = _st.pop()
    except IndexError:
        buffer = None
    nested = buffer is None and ((_task_or_thread(), id(_st)) in _running or _on_this_stack(_st))
    entry = None if entrance is None or nested else entrance.enter(_spec, False)
    # after ``enter``: a window that this phase opens is not device time of the phase
    events = begin_events() if _spec.device and not nested else None
    start = _clock()
    try:
        return _fn(*args, **kwargs)
    finally:
        end = _clock()
        if events is not None:
            finish_events(_st, events)
        if not nested:
            if buffer is None:
                _st.others.append(end - start)
            else:
                buffer.append(end - start)
                _st.append(buffer)
            if entry is not None:
                entry.leave(start, end)
            elif gate.entrance is not None:
                gate.entrance.ended_inside(_spec, start, end)
            if len(_st.buffer) > metrics.FOLD_AT or len(_st.others) > metrics.FOLD_AT:
                _st.fold()


def begin_events() -> Any:
    """Device events that have begun, or ``None``; a backend that fails at it is asked no more in this session."""
    devices = gate.devices
    events = None if devices is None else devices.device_timer()
    if devices is None or events is None:
        return None
    try:
        events.begin()
    except Exception as error:  # noqa: BLE001 - reported once; the user's function runs all the same
        devices.device_timer_failed(error)
        return None
    return events


def finish_events(state: State, events: Any) -> None:
    """End device events; their time is resolved later."""
    try:
        events.finish()
    except Exception as error:  # noqa: BLE001 - reported once; the user's own exception must reach the caller
        if gate.devices is not None:
            gate.devices.device_timer_failed(error)
        return
    state.device_pending.append(events)
    if len(state.device_pending) > metrics.FOLD_AT:
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
    """The state that a wrapper's frame is timing at this moment, or ``None`` for any other frame."""
    code = frame.f_code
    if code.co_filename.startswith(WRAPPER_FILE):
        found = frame.f_locals
        return (
            found.get("_accelprof_st") if found.get("_accelprof_buf") is not None or "_accelprof_t0" in found else None
        )
    if code is _HOT_CODE:
        found = frame.f_locals
        return found.get("_st") if "start" in found and not found.get("nested") else None
    return None


def phases_on_stacks() -> list[tuple[PhaseSpec, int, int]]:
    """``(phase, start_ns, thread id)`` of every timed call that is running on some thread now."""
    running: list[tuple[PhaseSpec, int, int]] = []
    for thread_id, frame in list(sys._current_frames().items()):
        here: FrameType | None = frame
        while here is not None:
            code = here.f_code
            if code.co_filename.startswith(WRAPPER_FILE) or code is _HOT_CODE:
                found = here.f_locals
                spec = found.get("_accelprof_spec") or found.get("_spec")
                start = found.get("_accelprof_t0", found.get("start"))
                if (
                    spec is not None
                    and start is not None
                    and not found.get("nested")
                    and "end" not in found
                    and "_accelprof_t1" not in found
                ):
                    running.append((spec, start, thread_id))
            here = here.f_back
    running.reverse()
    return running


_HOT_CODE = hot_call.__code__


class Run:
    """One timed call that is not a plain call on the stack: a coroutine, a generator, a ``with`` block.

    ``resume``/``suspend`` bracket own time where that is what counts (generators).
    """

    __slots__ = ("done", "entry", "events", "key", "nested", "own", "resumed", "spec", "start", "state", "thread")

    #: runs that have begun and not finished, for windows that open in their middle
    live: ClassVar[dict[int, Run]] = {}

    def __init__(self, state: State, spec: PhaseSpec, own_time: bool = False, suspends: bool = True) -> None:
        self.state, self.spec = state, spec
        self.key: tuple[int, int] | None = (_task_or_thread(), id(state))
        self.nested = self.key in _running or (not state and _on_this_stack(state))
        self.own = 0 if own_time else None
        self.resumed = self.start = 0
        self.done = False
        self.entry: Any = None
        self.events: Any = None
        self.thread = get_ident()
        if self.nested:
            return
        if own_time:
            self.key = None  # a generator runs between resume and suspend only; others of its tag may run in between
        else:
            self._occupy()
        Run.live[id(self)] = self
        entrance = gate.entrance
        if entrance is not None:
            self.entry = entrance.enter(spec, suspends)
        if spec.device:
            self.events = begin_events()
        self.start = _clock()

    def _occupy(self) -> None:
        """From now on calls of this tag in here are inside this one; plain ones notice because the token is gone."""
        self.key = (_task_or_thread(), id(self.state))
        _running.add(self.key)
        try:
            self.state.held.append(self.state.pop())
        except IndexError:
            pass  # somebody else holds the token

    def _vacate(self) -> None:
        if self.key is None:
            return
        _running.discard(self.key)
        self.key = None
        state = self.state
        if state.held and not any(key[1] == id(state) for key in tuple(_running)):
            state.append(state.held.pop())

    def resume(self) -> None:
        """A generator goes on."""
        if not self.nested:
            self._occupy()
            self.resumed = _clock()

    def suspend(self) -> None:
        """A generator yielded or ended."""
        if not self.nested and self.own is not None:
            self.own += _clock() - self.resumed
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
            self.entry.leave(self.start, end, self.own)
        else:
            entrance = gate.entrance
            if entrance is not None:
                entrance.ended_inside(self.spec, self.start, end, self.own)


_running: set[tuple[int, int]] = set()


def forget_running() -> None:
    """In a forked child: what ran in the parent does not run here."""
    _running.clear()
    Run.live.clear()


def _task_or_thread() -> int:
    """Identity of what runs here: the asyncio task if there is one, else the thread."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        task = asyncio.current_task()
        if task is not None:
            return id(task)
    return get_ident()


def drive(generator: Any, state: State, spec: PhaseSpec) -> Any:
    """Run a generator as its caller would, counting only the time inside it."""
    run = Run(state, spec, own_time=True)
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
        run.resume()
        try:
            generator.close()
        finally:
            run.suspend()
            run.finish()


class WorkerTimer:
    """``with worker.worker_timer("actor/opt_step"):`` times and emits as the decorator does; also ``async with``."""

    __slots__ = ("_instance", "_run", "_spec")

    def __init__(
        self, instance: Any, tag: str, color: str = "", domain: str = "", category: str = "", device: bool = False
    ) -> None:
        self._instance, self._spec = instance, PhaseSpec(tag, domain, color, category, device)
        self._run: Run | None = None

    def __enter__(self) -> WorkerTimer:
        return self._begin(can_be_suspended(sys._getframe(1)))

    def __exit__(self, *_: object) -> None:
        if self._run is not None:
            self._run.finish()

    async def __aenter__(self) -> WorkerTimer:
        return self._begin(True)

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    def _begin(self, suspends: bool) -> WorkerTimer:
        tag = self._spec.tag
        state = process_state(tag) if self._instance is None else metrics.state_of(self._instance, tag)
        self._run = Run(state, self._spec, suspends=suspends)
        return self


#: code flags CO_GENERATOR, CO_COROUTINE and CO_ASYNC_GENERATOR of the inspect module
_SUSPENDS = 0x20 | 0x80 | 0x200


def can_be_suspended(frame: FrameType) -> bool:
    """Whether the block's own frame may be suspended while the block is open; one inside ``ExitStack`` counts as such under a loop."""
    if frame.f_code.co_flags & _SUSPENDS:
        return True
    if frame.f_globals.get("__name__") == "contextlib":
        asyncio = sys.modules.get("asyncio")
        return asyncio is not None and asyncio._get_running_loop() is not None
    return False


hide(
    hot_call.__code__,
    Run.__init__.__code__,
    Run.finish.__code__,
    WorkerTimer.__enter__.__code__,
    WorkerTimer.__exit__.__code__,
    WorkerTimer._begin.__code__,
)
