"""``profiling_range`` and ``mark``: ad-hoc blocks and instants. Closed, a range is one shared object that does nothing."""

from __future__ import annotations

import sys
from typing import Any

from accelprof.timing.compiled import hide, keep_out
from accelprof.timing.gate import gate, now_ns
from accelprof.timing.phase import PhaseSpec
from accelprof.timing.running import can_be_suspended


class _Closed:
    """What ``profiling_range`` returns while nothing is to be done."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, *_: object) -> None:
        return None

    def __call__(self, function: Any) -> Any:
        raise TypeError("profiling_range is for 'with' blocks; decorate functions with accelprof.timer(label)")


class ProfilingRange:
    """An open range around a block. Its times go to the tool and the timeline, not into the timing metrics."""

    __slots__ = ("_entry", "_spec", "_start")

    def __init__(self, spec: PhaseSpec) -> None:
        self._spec = spec
        self._entry: Any = None
        self._start = 0

    def __enter__(self) -> None:
        entrance = gate.entrance
        if entrance is not None:
            self._entry = entrance.enter_range(self._spec, can_be_suspended(sys._getframe(1)))
            self._start = now_ns()

    def __exit__(self, *_: object) -> None:
        if self._entry is not None:
            self._entry.leave(self._start, now_ns())

    async def __aenter__(self) -> None:
        entrance = gate.entrance
        if entrance is not None:
            self._entry = entrance.enter_range(self._spec, True)
            self._start = now_ns()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    __call__ = _Closed.__call__


_CLOSED = _Closed()


def profiling_range(label: str, color: str = "", domain: str = "", category: str = "") -> Any:
    """A context manager that marks its block in the tool's data while a window is open; otherwise nothing.

    Args:
        label: name of the range; converted to text.
        color: CSS name or ``#rrggbb``.
        domain, category: for tools that group by them.
    """
    if gate.entrance is None:
        return _CLOSED
    return ProfilingRange(PhaseSpec(str(label), domain, color, category))


def mark(label: str, color: str = "", domain: str = "", category: str = "") -> None:
    """Leave an instant in the tool's data and the timeline while a window is open; otherwise nothing."""
    entrance = gate.entrance
    if entrance is not None:
        entrance.mark(PhaseSpec(str(label), domain, color, category))


keep_out(profiling_range, "profiling_range")
keep_out(mark, "mark")
hide(
    ProfilingRange.__enter__.__code__,
    ProfilingRange.__exit__.__code__,
    _Closed.__enter__.__code__,
    _Closed.__exit__.__code__,
)
