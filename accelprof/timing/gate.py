"""The one global switch on the path of a timed call, and the clock it reads.

``gate.hot`` is ``None`` while nothing has to happen besides timing. While a window is open, armed, or a phase may open
one, it is the object whose ``enter``/``leave`` the timers call.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accelprof.session.session import Session
    from accelprof.session.window import Lane


class Gate:
    """See the module. ``session`` is the current session whether or not anything is open.

    ``lane`` is set while a window is open and nothing else has to be looked at: plain calls then emit and record
    without asking the session.
    """

    __slots__ = ("hot", "lane", "session")

    def __init__(self) -> None:
        self.hot: Session | None = None
        self.lane: Lane | None = None
        self.session: Session | None = None

    def __reduce__(self) -> str:
        return "gate"  # a class of a script travels by value to other processes; its timers find their gate there


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
