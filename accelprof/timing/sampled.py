"""``sampled``: a timer that looks at the gate and nothing else while profiling is closed.

Methods that are instrumented in other packages may be called a million times a second (a decode step's inner parts), and
nobody asked for their timings: so, closed, they cost one attribute test, and no clock is read.
"""

from __future__ import annotations

from typing import Any

from accelprof.timing.compiled import keep_out
from accelprof.timing.timer import RESERVED, form_of, made, parameters_of, timer

_BODIES = {
    "sync": """
    if _accelprof_gate.entrance is None:
        return $fn($call)
    return $timed($call)
""",
    "coroutine": """
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
    if isinstance(function, property) or form_of(function) == "asyncgen":
        return timed
    words = {name: RESERVED + name for name in ("fn", "timed", "self")}
    filename = f"<accelprof sampled {ascii(tag)[1:-1]}>"
    given = {"fn": function, "timed": timed}
    body = _BODIES[form_of(function)]
    return keep_out(
        made(function, parameters_of(function), body, words, given, filename, "sampled"), f"instrument {tag!r}"
    )
