"""``timer``: times a function always, and emits a range while a window is open.

The wrapper is generated with the function's own signature, because ``*args, **kwargs`` alone costs as much as the
timing. Closed, a call is the user's function, two clock reads, one attribute test, and one list taken and put back;
in an open window, two calls of the tool and one row for the timeline more.
It never catches the user's exception, never calls the function twice, and always puts back what it took.
"""

from __future__ import annotations

import functools
from _thread import get_ident
from collections.abc import Callable, Mapping

from accelprof.errors import failures
from accelprof.timing import metrics
from accelprof.timing.compiled import hide, keep_out
from accelprof.timing.gate import wrapper_globals
from accelprof.timing.labels import bounded
from accelprof.timing.metrics import State, process_state
from accelprof.timing.phase import PhaseSpec, key_of
from accelprof.timing.running import LOCALS, WRAPPER_FILE, Run, drive, late, slow_call

TYPE_CHECKING = False  # as typing has it, whose import would be a fifth of ours
if TYPE_CHECKING:
    from typing import Any, TypeVar, overload

    F = TypeVar("F", bound=Callable[..., Any])
else:
    Any = object  # for who asks for the hints of public names

if TYPE_CHECKING:

    @overload
    def timer(tag: F, /) -> F: ...
    @overload
    def timer(
        tag: str | None = None, *, color: str = "", domain: str = "", category: str = "", device: bool = False
    ) -> Callable[[F], F]: ...


def timer(tag: object = None, *, color: str = "", domain: str = "", category: str = "", device: bool = False) -> Any:
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


def _decorate(function: object, tag: str | None, domain: str, color: str, category: str, device: bool) -> Any:
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
    label = bounded(tag or getattr(function, "__qualname__", type(function).__name__).rpartition("<locals>.")[2])
    spec = PhaseSpec(label, domain, color, category, device)
    form = form_of(function)
    return keep_out(_generate(function, spec, "device" if form == "sync" and device else form), f"timer {label!r}")


def form_of(function: object) -> str:
    """``asyncgen``, ``coroutine``, ``generator``, or ``sync``."""
    import inspect  # here, because importing accelprof must stay cheap

    if inspect.isasyncgenfunction(function):
        return "asyncgen"
    if inspect.iscoroutinefunction(function):
        return "coroutine"
    return "generator" if inspect.isgeneratorfunction(function) else "sync"


# --- code generation --------------------------------------------------------------------------------------------------
#
# ``$name`` is a local of the wrapper (running.LOCALS and OWN below), ``$call`` the arguments handed on, ``$row`` a row of the
# timeline; everything else that is not the user's begins with ``_accelprof_`` and is a global of the wrapper (``gate.wrapper_globals``),
# builtins too: the user's function and its parameters may be called ``len``.

_SYNC = """
    if $state is None:
        return _accelprof_slow($else, $spec, $fn, $call)
    if _accelprof_gate.entrance is None:
        try:
            $buffer = $state.pop()
        except _accelprof_IndexError:
            $buffer = None
        if $buffer is not None:
            $start = _accelprof_clock()
            try:
                return $fn($call)
            finally:
                $end = _accelprof_clock()
                $buffer.append($end - $start)
                $state.append($buffer)
                if _accelprof_gate.entrance is not None or _accelprof_len($buffer) > $fold_at:
                    _accelprof_late($state, $spec, $start, $end)
    else:
        $plain = _accelprof_gate.direct
        if $plain is not None and ($plain.alone or $plain.overlaps() is None):
            try:
                $buffer = $state.pop()
            except _accelprof_IndexError:
                $buffer = None
            if $buffer is not None:
                $thread = $state.thread = _accelprof_ident()
                $quick = $plain.quick
                if $quick is not None:
                    try:
                        $number = $plain.numbers[$key]
                    except _accelprof_KeyError:
                        $number = $plain.number($spec)
                    $start = $state.since = _accelprof_clock()
                    try:
                        return $fn($call)
                    finally:
                        $end = _accelprof_clock()
                        $state.since = 0
                        $buffer.append($end - $start)
                        $state.append($buffer)
                        if _accelprof_len($quick) < $plain.room:
                            $quick.append($short)
                        else:
                            _accelprof_late($state, $spec, $start, $end)
                $push, $pop, $number = $plain.phases.get($key) or $plain.bind($spec)
                try:
                    $push()
                except _accelprof_failures() as $error:
                    $push, $pop = $plain.failed($error)
                $start = $state.since = _accelprof_clock()
                try:
                    return $fn($call)
                finally:
                    $end = _accelprof_clock()
                    $state.since = 0
                    $buffer.append($end - $start)
                    $state.append($buffer)
                    try:
                        $pop()
                    except _accelprof_failures() as $error:
                        $plain.failed($error)
                    if _accelprof_len($plain.rows) < $plain.room:
                        $plain.rows.append($row)
                    else:
                        _accelprof_late($state, $spec, $start, $end)
    return _accelprof_slow($state, $spec, $fn, $call)
"""
_DEVICE = """
    return _accelprof_slow($state, $spec, $fn, $call)
"""
_COROUTINE = """
    $run = _accelprof_begin($state, $spec)
    try:
        return await $fn($call)
    finally:
        $run.finish()
"""
_GENERATOR = """
    return (yield from _accelprof_drive($fn($call), $state, $spec))
"""
_ASYNCGEN = """
    $gen = $fn($call)
    $run = _accelprof_begin($state, $spec, True)
    $value = $thrown = None
    try:
        while True:
            $run.resume()
            try:
                if $thrown is None:
                    $item = await $gen.asend($value)
                else:
                    $item = await $gen.athrow($thrown)
            except _accelprof_StopAsyncIteration:
                return
            finally:
                $run.suspend()
            $value = $thrown = None
            try:
                $value = yield $item
            except _accelprof_GeneratorExit:
                raise
            except _accelprof_BaseException as $error:
                $thrown = $error
    finally:
        try:
            if $gen.ag_frame is not None:
                $run.resume()
                try:
                    await $gen.aclose()
                finally:
                    $run.suspend()
        finally:
            $run.finish()
"""
_BODIES = {"sync": _SYNC, "device": _DEVICE, "coroutine": _COROUTINE, "generator": _GENERATOR, "asyncgen": _ASYNCGEN}

#: the state, or ``None`` where it has to be made, or somebody is inside it who did not come this way (metrics.State.inside)
_METHOD_STATE = """
    try:
        $state = $first.$slot
        if $state.owner() is not $first:
            $state = None
    except _accelprof_Exception:
        $state = None
"""
_METHOD_ELSE = "_accelprof_make($first, $spec, $self)"
_FUNCTION_STATE = """
    $state = _accelprof_states.get($tag)
"""
_FUNCTION_ELSE = "_accelprof_process_state($tag, $spec)"
#: forms that do not care who is inside
_ANY_STATE = """
    if $state is None:
        $state = $else
"""
#: further locals of a wrapper, and what its factory hands it
OWN = (
    "fn",
    "key",
    "plain",
    "push",
    "pop",
    "number",
    "error",
    "thread",
    "quick",
    "tag",
    "run",
    "gen",
    "value",
    "thrown",
    "item",
    "self",
)
RESERVED = "_accelprof_"


def _generate(function: object, spec: PhaseSpec, form: str) -> Any:
    told = parameters_of(function)
    first = told[3]
    is_method = first is not None and "." in getattr(function, "__qualname__", "").rpartition("<locals>.")[2]
    words = {**LOCALS, **{name: RESERVED + name for name in OWN}}
    words.update(fold_at=str(metrics.FOLD_AT), first=str(first), slot=metrics.slot_of(spec.tag))
    words.update(row=row_text(words, "phase"), short=row_text(words, "phase", short=True))
    words.update({"else": fill(_METHOD_ELSE if is_method else _FUNCTION_ELSE, words)})
    body = (_METHOD_STATE if is_method else _FUNCTION_STATE) + ("" if form == "sync" else _ANY_STATE) + _BODIES[form]
    given = {"fn": function, "spec": spec, "key": key_of(spec), "tag": spec.tag}
    return made(function, told, body, words, given, f"{WRAPPER_FILE}{ascii(spec.tag)[1:-1]}>", "timed")


def made(
    function: Any,
    told: tuple[str, str, dict[str, Any], str | None],
    body: str,
    words: Mapping[str, str],
    given: Mapping[str, object],
    filename: str,
    otherwise: str,
) -> Any:
    """A wrapper with the function's own form, name and parameters, whose body is the template ``body`` filled with ``words``.

    Args:
        told: what :func:`parameters_of` says of the function.
        words: what the template's names stand for; ``self``, the wrapper itself, is among them.
        given: what the wrapper is handed when it is made, by the template's names for it.
        otherwise: its name where the function's own cannot stand behind ``def``.
    """
    parameters, call, defaults, _ = told
    safe = def_name(function, otherwise)
    prefix = "async " if form_of(function) in ("coroutine", "asyncgen") else ""
    outer = ", ".join([*(words[name] for name in given), *defaults])
    inner = indented(f"{prefix}def {safe}({parameters}):{fill(body, {**words, 'call': call})}")
    me = words["self"]  # so that a state is only put on instances whose class really holds the wrapper
    source = f"def {RESERVED}factory({outer}):\n    {me} = None\n{inner}    {me} = {safe}\n    return {safe}\n"
    namespace: dict[str, Any] = {}
    exec(compile(source, filename, "exec"), wrapper_globals, namespace)  # source is built from identifiers only
    wrapper = namespace[f"{RESERVED}factory"](*given.values(), *defaults.values())
    return functools.update_wrapper(wrapper, function)


def row_text(words: Mapping[str, str], kind: str, short: bool = False) -> str:
    """A row of the timeline for plain code on a thread, as the expression of a tuple; ``kind`` is the value of a ``Kind``.

    ``short``: as the flight recorder keeps it.
    """
    from accelprof.contracts.spans import QUICK_ROW, Kind, TimelineRow

    values = {
        "number": words["number"],
        "kind": repr(Kind(kind).value),
        "start_ns": words["start"],
        "end_ns": words["end"],
        "thread": words["thread"],
    }
    plain = TimelineRow._field_defaults
    fields = QUICK_ROW if short else TimelineRow._fields
    return "(" + ", ".join(values[name] if name in values else repr(plain[name]) for name in fields) + ")"


def fill(text: str, words: Mapping[str, str]) -> str:
    """``text`` with each ``$name`` replaced; a name that is not in ``words`` is a ``KeyError``."""
    import re

    return re.sub(r"\$(\w+)", lambda hit: words[hit[1]], text)


def indented(text: str) -> str:
    """``text`` four blanks further in, with a line's end behind it."""
    return "".join(f"    {line}\n" if line else "\n" for line in text.split("\n"))


def def_name(function: object, otherwise: str) -> str:
    """The function's own name where it can stand behind ``def`` and hides nothing that a wrapper needs."""
    from keyword import iskeyword

    name = getattr(function, "__name__", otherwise)
    if not isinstance(name, str) or not name.isidentifier() or iskeyword(name) or name == "__debug__":
        return otherwise
    return otherwise if name.startswith(RESERVED) else name


def parameters_of(function: Any) -> tuple[str, str, dict[str, Any], str | None]:
    """``(parameter list, call arguments, default objects by name, first positional parameter)`` of the function as it is.

    A function whose parameters look like names of ours, or that does not tell its parameters, takes any arguments.
    """
    import inspect
    from types import FunctionType

    anything = f"*{RESERVED}args, **{RESERVED}kwargs"
    told = function
    if isinstance(function, FunctionType) and hasattr(function, "__signature__"):  # what it says it takes, for readers
        told = FunctionType(function.__code__, {}, "told", function.__defaults__, function.__closure__)
        told.__kwdefaults__ = function.__kwdefaults__
    try:
        signature = inspect.signature(told, follow_wrapped=False)
    except (ValueError, TypeError):
        return anything, anything, {}, None
    if any(name.startswith(RESERVED) for name in signature.parameters):
        return anything, anything, {}, None
    texts: list[str] = []
    calls: list[str] = []
    defaults: dict[str, object] = {}
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
            key = f"{RESERVED}d{len(defaults)}"
            defaults[key] = parameter.default
            texts.append(f"{name}={key}")
        else:
            texts.append(name)
    if positional_only:
        texts.append("/")
    return ", ".join(texts), ", ".join(calls), defaults, first


def _make_state(instance: object, spec: PhaseSpec, wrapper: object) -> State:
    """First call on an instance, or not an instance of the class at all (a static or class method, a bare call)."""
    hide()
    name = getattr(wrapper, "__name__", "")
    for cls in type(instance).__mro__:
        held = vars(cls).get(name)
        if held is not None and not isinstance(held, (staticmethod, classmethod)):
            return metrics.state_of(instance, spec.tag, spec)
    return process_state(spec.tag, spec)


wrapper_globals.update(
    _accelprof_slow=slow_call,
    _accelprof_ident=get_ident,
    _accelprof_late=late,
    _accelprof_make=_make_state,
    _accelprof_states=metrics.free_states,
    _accelprof_process_state=process_state,
    _accelprof_begin=Run,
    _accelprof_drive=drive,
    _accelprof_len=len,
    _accelprof_IndexError=IndexError,
    _accelprof_KeyError=KeyError,
    _accelprof_Exception=Exception,
    _accelprof_failures=failures,
    _accelprof_BaseException=BaseException,
    _accelprof_GeneratorExit=GeneratorExit,
    _accelprof_StopAsyncIteration=StopAsyncIteration,
)
