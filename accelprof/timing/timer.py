"""``timer``: times a function always, and emits a range while a window is open.

The wrapper is generated with the function's own signature, because ``*args, **kwargs`` alone costs as much as the
timing. Closed, a call is the user's function, two clock reads, one attribute test, and one list taken and put back;
in an open window, two calls of the tool and one row for the timeline more.
It never catches the user's exception, never calls the function twice, and always puts back what it took.
"""

from __future__ import annotations

import functools
from _thread import get_ident
from collections.abc import Callable
from typing import Any, TypeVar, overload

from accelprof.timing import metrics
from accelprof.timing.compiled import hide, keep_out
from accelprof.timing.gate import wrapper_globals
from accelprof.timing.metrics import State, process_state
from accelprof.timing.phase import PhaseSpec, key_of
from accelprof.timing.running import WRAPPER_FILE, Run, drive, hot_call, late

F = TypeVar("F", bound=Callable[..., Any])


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
    if _accelprof_gate.entrance is not None:
        _accelprof_lane = _accelprof_gate.direct
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
            if _accelprof_gate.direct is _accelprof_lane and len(_accelprof_lane.spans) < _accelprof_lane.room:
                _accelprof_lane.spans.append((_accelprof_bound[2], "phase", _accelprof_t0, _accelprof_t1, _accelprof_ident(), "", None, False))
            else:
                _accelprof_late(_accelprof_st, _accelprof_spec, _accelprof_t0, _accelprof_t1)
        elif _accelprof_gate.entrance is not None or len(_accelprof_buf) > {fold_at}:
            _accelprof_late(_accelprof_st, _accelprof_spec, _accelprof_t0, _accelprof_t1)
"""
_DEVICE = """
    return _accelprof_hot(_accelprof_st, _accelprof_spec, _accelprof_fn, {call})
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
    except Exception:
        _accelprof_st = None
    if _accelprof_type(_accelprof_st) is not _accelprof_State:
        _accelprof_st = _accelprof_make({first}, _accelprof_spec, _accelprof_self)
"""
_FUNCTION_STATE = """
    _accelprof_st = _accelprof_states.get(_accelprof_spec.tag) or _accelprof_process_state(_accelprof_spec.tag)
"""


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
    filename = f"{WRAPPER_FILE}{spec.tag}>"
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


wrapper_globals.update(
    _accelprof_hot=hot_call,
    _accelprof_ident=get_ident,
    _accelprof_late=late,
    _accelprof_make=_make_state,
    _accelprof_State=State,
    _accelprof_type=type,
    _accelprof_states=metrics.process_states,
    _accelprof_process_state=process_state,
    _accelprof_begin=Run,
    _accelprof_drive=drive,
)
