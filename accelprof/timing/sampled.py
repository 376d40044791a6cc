"""``sampled``: a timer that looks at the gate and nothing else while profiling is closed.

Methods that are instrumented in other packages may be called a million times a second (a decode step's inner parts), and
nobody asked for their timings: so, closed, they cost one attribute test, and no clock is read.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from accelprof.timing.compiled import keep_out
from accelprof.timing.gate import wrapper_globals
from accelprof.timing.timer import RESERVED, def_name, fill, indented, parameters_of, timer

_BODIES = {
    "": """
    if _accelprof_gate.entrance is None:
        return $fn($call)
    return $timed($call)
""",
    "async ": """
    if _accelprof_gate.entrance is None:
        return await $fn($call)
    return await $timed($call)
""",
    "generator": """
    if _accelprof_gate.entrance is None:
        return (yield from $fn($call))
    return (yield from $timed($call))
""",
}


def sampled(function: Any, tag: str) -> Any:
    """``function`` as :func:`accelprof.timer` would time it while something is open or may open, and as it is otherwise.

    Static and class methods and properties stay what they are. An async generator is always timed: handing on what is
    sent and thrown into it costs more than its timing. Raises ``TypeError`` for something that is not a function.
    """
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(sampled(function.__func__, tag))
    timed = timer(tag)(function)
    if isinstance(function, property) or inspect.isasyncgenfunction(function):
        return timed
    kind = (
        "async "
        if inspect.iscoroutinefunction(function)
        else "generator"
        if inspect.isgeneratorfunction(function)
        else ""
    )
    parameters, call, defaults, _ = parameters_of(function)
    safe = def_name(function, "sampled")
    prefix = "async " if kind == "async " else ""
    words = {"fn": f"{RESERVED}fn", "timed": f"{RESERVED}timed", "call": call}
    outer = ", ".join([words["fn"], words["timed"], *defaults])
    inner = indented(f"{prefix}def {safe}({parameters}):{fill(_BODIES[kind], words)}")
    source = f"def {RESERVED}factory({outer}):\n{inner}    return {safe}\n"
    namespace: dict[str, Any] = {}
    filename = f"<accelprof sampled {ascii(tag)[1:-1]}>"
    exec(compile(source, filename, "exec"), wrapper_globals, namespace)  # made of identifiers only
    wrapper = namespace[f"{RESERVED}factory"](function, timed, *defaults.values())
    functools.update_wrapper(wrapper, function)
    return keep_out(wrapper, f"instrument {tag!r}")
