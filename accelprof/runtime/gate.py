"""The one global switch on the path of a timed call, and the clock it reads.

``gate.hot`` is ``None`` while nothing has to happen besides timing. While a window is open, armed, or a phase may open
one, it is the object whose ``enter``/``leave`` the timers call.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accelprof.runtime.session import Session


class Gate:
    """See the module. ``session`` is the current session whether or not anything is open."""

    __slots__ = ("hot", "session")

    def __init__(self) -> None:
        self.hot: Session | None = None
        self.session: Session | None = None


gate = Gate()

#: globals of every generated wrapper; a fake clock replaces ``clock`` here and nowhere else
wrapper_globals: dict[str, Any] = {
    "__name__": "accelprof.timer",
    "_accelprof_gate": gate,
    "_accelprof_clock": time.perf_counter_ns,
}


def now_ns() -> int:
    """The timers' clock: nanoseconds, monotonic (``time.perf_counter_ns`` unless a test replaced it)."""
    clock: Any = wrapper_globals["_accelprof_clock"]
    return int(clock())
