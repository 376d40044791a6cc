"""``timer``: times a function always, and emits a range while a window is open.

The wrapper is generated with the function's own signature, because ``*args, **kwargs`` alone costs as much as the
timing. Closed, a call is the user's function, two clock reads, one attribute test, and one list taken and put back;
in an open window, two calls of the tool and one row for the timeline more.
It never catches the user's exception, never calls the function twice, and always puts back what it took.
"""

from __future__ import annotations

import functools
import sys
from _thread import get_ident
from collections.abc import Callable
from types import FrameType
from typing import Any, ClassVar, NamedTuple, TypeVar, overload

from accelprof.runtime import metrics
from accelprof.runtime.compiled import hide, keep_out
from accelprof.runtime.gate import gate, wrapper_globals
from accelprof.runtime.metrics import State, process_state

F = TypeVar("F", bound=Callable[..., Any])


class PhaseSpec(NamedTuple):
    """A phase as its decorator was written."""

    tag: str
    domain: str = ""
    color: str = ""
    category: str = ""
    device: bool = False


def key_of(spec: PhaseSpec) -> str:
    """The phase as one text: the same in every process, and quicker to look up than the tuple."""
    return "\0".join(map(str, spec))


@overload
def timer(tag: F, /) -> F: ...
@overload
def timer(
    tag: str | None = None, *, color: str = "", domain: str = "", category: str = "", device: bool = False
) -> Callable[[F], F]: ...


def timer(tag: Any = None, *, color: str = "", domain: str = "", category: str = "", device: bool = False) -> Any:
    """Decorate a function, method, coroutine function, generator or async generator, static or class method.

    Args:
        tag: label of the phase, ``"actor/update"``; without one, the qualified name (``Actor.update``).
        color: CSS colour name or ``#rrggbb`` of the range; empty = the tool's own.
        domain, category: where the tool can group by them.
        device: also measure device time between begin and end with device events, resolved later without
            synchronising; adds ``device_total`` and ``device_count`` to ``timing_stats``.

    Timing is wall time in seconds; of a coroutine it includes time suspended, of a generator only the time inside it.
    The same tag inside itself counts once. Raises ``TypeError`` for something that is not a function.
    """
    if tag is not None and not isinstance(tag, str):
        return _decorate(tag, None, "", "", "", False)
    if tag == "":
        raise TypeError(
            "timer: the tag is an empty text; give a label such as 'actor/update', or none for the qualified name"
        )

    def decorate(function: F) -> F:
        decorated: F = _decorate(function, tag, domain, color, category, device)
        return decorated

    return decorate


def _decorate(function: Any, tag: str | None, domain: str, color: str, category: str, device: bool) -> Any:
    import inspect  # here, because importing accelprof must stay cheap

    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(_decorate(function.__func__, tag, domain, color, category, device))
    if isinstance(function, property):
        fget, fset, fdel = (
            _decorate(f, tag, domain, color, category, device) if f else None
            for f in (function.fget, function.fset, function.fdel)
        )
        return property(fget, fset, fdel, function.__doc__)
    if not callable(function):
        raise TypeError(f"timer decorates functions, not {type(function).__name__}: {function!r}")
    label = tag or getattr(function, "__qualname__", type(function).__name__).rpartition("<locals>.")[2]
    spec = PhaseSpec(label, domain, color, category, device)
    if inspect.isasyncgenfunction(function):
        kind = "asyncgen"
    elif inspect.iscoroutinefunction(function):
        kind = "coroutine"
    elif inspect.isgeneratorfunction(function):
        kind = "generator"
    else:
        kind = "device" if device else "sync"
    wrapper = _generate(function, spec, kind)
    functools.update_wrapper(wrapper, function)
    keep_out(wrapper, f"timer {label!r}")
    return wrapper


# --- code generation --------------------------------------------------------------------------------------------------

_SYNC = """
    _accelprof_lane = None
    if _accelprof_gate.hot is not None:
        _accelprof_lane = _accelprof_gate.lane
        if _accelprof_lane is None or _accelprof_lane.running_loop() is not None:
            return _accelprof_hot(_accelprof_st, _accelprof_spec, _accelprof_fn, {call})
    try:
        _accelprof_buf = _accelprof_st.pop()
    except IndexError:
        _accelprof_buf = None
    if _accelprof_buf is None:
        return _accelprof_hot(_accelprof_st, _accelprof_spec, _accelprof_fn, {call})
    if _accelprof_lane is not None:
        _accelprof_bound = _accelprof_lane.bounds.get(_accelprof_key) or _accelprof_lane.bind(_accelprof_spec)
        try:
            _accelprof_bound[0]()
        except Exception as _accelprof_error:
            _accelprof_bound = _accelprof_lane.failed(_accelprof_error)
    _accelprof_t0 = _accelprof_clock()
    try:
        return _accelprof_fn({call})
    finally:
        _accelprof_t1 = _accelprof_clock()
        _accelprof_buf.append(_accelprof_t1 - _accelprof_t0)
        _accelprof_st.append(_accelprof_buf)
        if _accelprof_lane is not None:
            try:
                _accelprof_bound[1]()
            except Exception as _accelprof_error:
                _accelprof_lane.failed(_accelprof_error)
            if _accelprof_gate.lane is _accelprof_lane and len(_accelprof_lane.spans) < _accelprof_lane.room:
                _accelprof_lane.spans.append((_accelprof_bound[2], "phase", _accelprof_t0, _accelprof_t1, _accelprof_ident(), "", None, False))
            else:
                _accelprof_late(_accelprof_st, _accelprof_spec, _accelprof_t0, _accelprof_t1)
        elif _accelprof_gate.hot is not None or len(_accelprof_buf) > {fold_at}:
            _accelprof_late(_accelprof_st, _accelprof_spec, _accelprof_t0, _accelprof_t1)
"""
_DEVICE = """
    return _accelprof_device(_accelprof_st, _accelprof_spec, _accelprof_fn, {call})
"""
_COROUTINE = """
    _accelprof_run = _accelprof_begin(_accelprof_st, _accelprof_spec)
    try:
        return await _accelprof_fn({call})
    finally:
        _accelprof_run.finish()
"""
_GENERATOR = """
    return (yield from _accelprof_drive(_accelprof_fn({call}), _accelprof_st, _accelprof_spec))
"""
_ASYNCGEN = """
    _accelprof_gen = _accelprof_fn({call})
    _accelprof_run = _accelprof_begin(_accelprof_st, _accelprof_spec, True)
    _accelprof_value = _accelprof_error = None
    try:
        while True:
            _accelprof_run.resume()
            try:
                if _accelprof_error is None:
                    _accelprof_item = await _accelprof_gen.asend(_accelprof_value)
                else:
                    _accelprof_item = await _accelprof_gen.athrow(_accelprof_error)
            except StopAsyncIteration:
                return
            finally:
                _accelprof_run.suspend()
            _accelprof_value = _accelprof_error = None
            try:
                _accelprof_value = yield _accelprof_item
            except GeneratorExit:
                raise
            except BaseException as _accelprof_thrown:
                _accelprof_error = _accelprof_thrown
    finally:
        _accelprof_run.resume()
        try:
            await _accelprof_gen.aclose()
        finally:
            _accelprof_run.suspend()
            _accelprof_run.finish()
"""
_BODIES = {"sync": _SYNC, "device": _DEVICE, "coroutine": _COROUTINE, "generator": _GENERATOR, "asyncgen": _ASYNCGEN}

_METHOD_STATE = """
    try:
        _accelprof_st = {first}.{slot}
    except AttributeError:
        _accelprof_st = _accelprof_make({first}, _accelprof_spec, _accelprof_self)
"""
_FUNCTION_STATE = """
    _accelprof_st = _accelprof_states.get(_accelprof_spec.tag) or _accelprof_process_state(_accelprof_spec.tag)
"""

#: how the code of every wrapper says where it is from; one that came by pickle into another process says it too
_FILE = "<accelprof timer "
_made: dict[Any, str] = {}


def _generate(function: Any, spec: PhaseSpec, kind: str) -> Any:
    from keyword import iskeyword

    parameters, call, defaults, first = parameters_of(function)
    is_method = first is not None and "." in getattr(function, "__qualname__", "").rpartition("<locals>.")[2]
    state = _METHOD_STATE.format(first=first, slot=metrics.slot_of(spec.tag)) if is_method else _FUNCTION_STATE
    body = _BODIES[kind].format(call=call, fold_at=metrics.FOLD_AT)
    name = getattr(function, "__name__", "timed")
    safe = name if name.isidentifier() and not iskeyword(name) else "timed"
    prefix = "async " if kind in ("coroutine", "asyncgen") else ""
    outer = ["_accelprof_fn", "_accelprof_spec", "_accelprof_key", *defaults]
    inner = "".join(
        f"    {line}\n" if line else "\n" for line in f"{prefix}def {safe}({parameters}):{state}{body}".split("\n")
    )
    # the wrapper refers to itself so that a state is only put on instances whose class really holds it
    source = f"def _accelprof_factory({', '.join(outer)}):\n    _accelprof_self = None\n{inner}    _accelprof_self = {safe}\n    return {safe}\n"
    filename = f"{_FILE}{spec.tag}>"
    namespace: dict[str, Any] = {}
    exec(compile(source, filename, "exec"), wrapper_globals, namespace)  # source is built from identifiers only
    wrapper = namespace["_accelprof_factory"](function, spec, key_of(spec), *defaults.values())
    return wrapper


def parameters_of(function: Any) -> tuple[str, str, dict[str, Any], str | None]:
    """``(parameter list, call arguments, default objects by name, first positional parameter)``."""
    import inspect

    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (ValueError, TypeError):
        return "*_accelprof_args, **_accelprof_kwargs", "*_accelprof_args, **_accelprof_kwargs", {}, None
    texts: list[str] = []
    calls: list[str] = []
    defaults: dict[str, Any] = {}
    first: str | None = None
    positional_only = keyword_star = False
    for parameter in signature.parameters.values():
        name = parameter.name
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional_only = True
        elif positional_only:
            texts.append("/")
            positional_only = False
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            calls.append(name)
            first = first or name
        elif parameter.kind is parameter.VAR_POSITIONAL:
            name, keyword_star = f"*{name}", True
            calls.append(name)
        elif parameter.kind is parameter.VAR_KEYWORD:
            name = f"**{name}"
            calls.append(name)
        else:
            if not keyword_star:
                texts.append("*")
                keyword_star = True
            calls.append(f"{name}={name}")
        if parameter.default is not parameter.empty:
            key = f"_accelprof_d{len(defaults)}"
            defaults[key] = parameter.default
            texts.append(f"{name}={key}")
        else:
            texts.append(name)
    if positional_only:
        texts.append("/")
    return ", ".join(texts), ", ".join(calls), defaults, first


def _make_state(instance: Any, spec: PhaseSpec, wrapper: Any) -> State:
    """First call on an instance, or not an instance of the class at all (a static or class method, a bare call)."""
    hide()
    name = getattr(wrapper, "__name__", "")
    for cls in type(instance).__mro__:
        held = vars(cls).get(name)
        if held is not None and not isinstance(held, (staticmethod, classmethod)):
            return metrics.state_of(instance, spec.tag)
    return process_state(spec.tag)


# --- the paths that are not closed --------------------------------------------------------------------------------------


def hot_call(_st: State, _spec: PhaseSpec, _fn: Any, /, *args: Any, **kwargs: Any) -> Any:
    """A call that is not plain: armed, a phase may open a window, an event loop runs, or the tag is running already."""
    hot = gate.hot
    try:
        buffer = _st.pop()
    except IndexError:
        buffer = None
    nested = buffer is None and ((_task_or_thread(), id(_st)) in _running or _on_this_stack(_st))
    entry = None if hot is None or nested else hot.enter(_spec, False)
    start = _clock()
    try:
        return _fn(*args, **kwargs)
    finally:
        end = _clock()
        if not nested:
            if buffer is None:
                _st.others.append(end - start)
            else:
                buffer.append(end - start)
                _st.append(buffer)
            if entry is not None:
                entry.leave(start, end)
            elif gate.hot is not None:
                gate.hot.ended_inside(_spec, start, end)
            if len(_st.buffer) > metrics.FOLD_AT or len(_st.others) > metrics.FOLD_AT:
                _st.fold()


def device_call(_st: State, _spec: PhaseSpec, _fn: Any, /, *args: Any, **kwargs: Any) -> Any:
    """A call with device events around it."""
    events = device_timer()
    if events is None:
        return hot_call(_st, _spec, _fn, *args, **kwargs)
    events.begin()
    try:
        return hot_call(_st, _spec, _fn, *args, **kwargs)
    finally:
        events.finish()
        _st.device_pending.append(events)
        if len(_st.device_pending) > metrics.FOLD_AT:
            _st.resolve_device()


def device_timer() -> Any:
    """Events of the session's backend, or ``None``; a backend that fails is asked no more in this session."""
    session = gate.session
    return None if session is None else session.device_timer()


def _late(state: State, spec: PhaseSpec, start: int, end: int) -> None:
    """A call that began closed ended while hot, or its buffer is full."""
    if len(state.buffer) > metrics.FOLD_AT:
        state.fold()
    hot = gate.hot
    if hot is not None:
        hot.ended_inside(spec, start, end)


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
    if code.co_filename.startswith(_FILE):
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
            if code.co_filename.startswith(_FILE) or code is _HOT_CODE:
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
        self.key = (_task_or_thread(), id(state))
        self.nested = self.key in _running or (not state and _on_this_stack(state))
        self.own = 0 if own_time else None
        self.resumed = self.start = 0
        self.done = False
        self.entry: Any = None
        self.events: Any = None
        self.thread = get_ident()
        if self.nested:
            return
        _running.add(self.key)
        try:
            state.held.append(state.pop())  # plain calls of this tag inside the run now notice that they are inside
        except IndexError:
            pass  # somebody else holds the token
        Run.live[id(self)] = self
        if spec.device:
            self.events = device_timer()
            if self.events is not None:
                self.events.begin()
        hot = gate.hot
        if hot is not None:
            self.entry = hot.enter(spec, suspends)
        self.start = _clock()

    def resume(self) -> None:
        self.resumed = _clock()

    def suspend(self) -> None:
        if self.own is not None:
            self.own += _clock() - self.resumed

    def finish(self) -> None:
        """Record once; called in ``finally``."""
        if self.nested or self.done:
            return
        self.done = True
        end = _clock()
        state = self.state
        _running.discard(self.key)
        Run.live.pop(id(self), None)
        if state.held and not any(key[1] == id(state) for key in tuple(_running)):
            state.append(state.held.pop())
        state.others.append(end - self.start if self.own is None else self.own)
        if len(state.others) > metrics.FOLD_AT:
            state.fold()
        if self.events is not None:
            self.events.finish()
            state.device_pending.append(self.events)
        if self.entry is not None:
            self.entry.leave(self.start, end, self.own)
        else:
            hot = gate.hot
            if hot is not None:
                hot.ended_inside(self.spec, self.start, end, self.own)


_running: set[tuple[int, int]] = set()


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
    device_call.__code__,
    Run.__init__.__code__,
    Run.finish.__code__,
    WorkerTimer.__enter__.__code__,
    WorkerTimer.__exit__.__code__,
    WorkerTimer._begin.__code__,
)
wrapper_globals.update(
    _accelprof_hot=hot_call,
    _accelprof_ident=get_ident,
    _accelprof_device=device_call,
    _accelprof_late=_late,
    _accelprof_make=_make_state,
    _accelprof_states=metrics.process_states,
    _accelprof_process_state=process_state,
    _accelprof_begin=Run,
    _accelprof_drive=drive,
)
