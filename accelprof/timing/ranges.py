"""``profiling_range`` and ``mark``: ad-hoc blocks and instants. Closed, a range is one shared object that does nothing."""

from __future__ import annotations

import sys

from accelprof.timing.compiled import hide, keep_out
from accelprof.timing.gate import gate, now_ns, wrapper_globals
from accelprof.timing.labels import bounded
from accelprof.timing.phase import PhaseSpec
from accelprof.timing.running import LOCALS, SUSPENDING, can_be_suspended

TYPE_CHECKING = False  # as typing has it, whose import would be a fifth of ours
if TYPE_CHECKING:
    from typing import Any
else:
    Any = object  # for who asks for the hints of public names


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

    def __call__(self, function: object) -> Any:
        raise TypeError("profiling_range is for 'with' blocks; decorate functions with accelprof.timer(label)")


class ProfilingRange:
    """An open range around a block. Its times go to the tool and the timeline, not into the timing metrics.

    May be entered again after it was left, and inside itself; leaving it more often than it was entered does nothing.
    """

    __slots__ = ("_entries", "_spec")

    def __init__(self, spec: PhaseSpec) -> None:
        self._spec = spec
        self._entries: list[tuple[Any, int]] = []

    def __enter__(self) -> None:
        self._enter(can_be_suspended(sys._getframe(1)))

    def __exit__(self, *_: object) -> None:
        if self._entries:
            entry, start = self._entries.pop()
            if entry is not None:
                entry.leave(start, now_ns())

    async def __aenter__(self) -> None:
        self._enter(True)

    async def __aexit__(self, *_: object) -> None:
        ProfilingRange.__exit__(self)

    def _enter(self, suspends: bool) -> None:
        entrance = gate.entrance
        self._entries.append((None if entrance is None else entrance.enter_range(self._spec, suspends), now_ns()))

    __call__ = _Closed.__call__


#: the way of a range whose block cannot be suspended, in a window that wants nothing but ranges of it: as direct as that of
#: a plain timed call. Made when the first one is opened, because a row of the timeline comes from its definition.
_DIRECT = """
class DirectRange(_accelprof_ProfilingRange):
    __slots__ = ("bound", "plain", "pop", "start")

    def __enter__(self):
        $plain = self.plain
        if (
            self.start is not None
            or self._entries
            or _accelprof_gate.direct is not $plain
            or _accelprof_frame(1).f_code.co_flags & $suspending
            or not ($plain.alone or $plain.overlaps() is None)
        ):
            self._enter(_accelprof_can_be_suspended(_accelprof_frame(1)))
            return
        $push, self.pop, $number, $spec = self.bound
        try:
            $push()
        except _accelprof_failures() as $error:
            $push, self.pop = $plain.failed($error)
        self.start = _accelprof_clock()

    def __exit__(self, *$rest):
        $start = self.start
        if $start is None or self._entries:
            _accelprof_ProfilingRange.__exit__(self)
            return
        $end = _accelprof_clock()
        self.start = None
        $plain = self.plain
        try:
            self.pop()
        except _accelprof_failures() as $error:
            $plain.failed($error)
        if _accelprof_len($plain.rows) < $plain.room:
            $thread = _accelprof_ident()
            $push, $pop, $number, $spec = self.bound
            $plain.rows.append($row)
        elif _accelprof_gate.entrance is not None:
            _accelprof_gate.entrance.ended_inside(self.bound[3], $start, $end, $kind)
"""
_made: Any = None


def _direct() -> Any:
    """The class of direct ranges."""
    global _made
    if _made is None:
        from accelprof.contracts.spans import Kind
        from accelprof.timing.timer import OWN, RESERVED, fill, row_text

        words = {**LOCALS, **{name: RESERVED + name for name in (*OWN, "rest")}}
        words.update(suspending=str(SUSPENDING), kind=repr(Kind.RANGE.value))
        words.update(row=row_text(words, Kind.RANGE.value))
        wrapper_globals.update(
            _accelprof_ProfilingRange=ProfilingRange,
            _accelprof_frame=sys._getframe,
            _accelprof_can_be_suspended=can_be_suspended,
        )
        namespace: dict[str, Any] = {}
        exec(
            compile(fill(_DIRECT, words), "<accelprof range>", "exec"), wrapper_globals, namespace
        )  # made of identifiers only
        made = namespace["DirectRange"]
        hide(made.__enter__.__code__, made.__exit__.__code__)
        _made = made
    return _made


_CLOSED = _Closed()
_new = object.__new__


def profiling_range(label: str, color: str = "", domain: str = "", category: str = "") -> Any:
    """A context manager that marks its block in the tool's data while a window is open; otherwise nothing.

    Args:
        label: name of the range; converted to text.
        color: CSS name or ``#rrggbb``.
        domain, category: for tools that group by them.
    """
    if gate.entrance is None:
        return _CLOSED
    plain = gate.direct
    if plain is None:
        return ProfilingRange(PhaseSpec(bounded(str(label)), domain, color, category))
    if type(label) is not str:
        label = str(label)
    key: object = (label, color, domain, category) if color or domain or category else label
    made = _new(_made or _direct())
    bound = plain.ranges.get(key)
    if bound is None:
        name = bounded(label)
        if name is not label:
            key = (name, color, domain, category)
            bound = plain.ranges.get(key)
        if bound is None:
            bound = plain.bind_range(key, PhaseSpec(name, domain, color, category))
    made.bound = bound
    made._spec = made.bound[3]
    made._entries, made.plain, made.start = [], plain, None
    return made


def mark(label: str, color: str = "", domain: str = "", category: str = "") -> None:
    """Leave an instant in the tool's data and the timeline while a window is open; otherwise nothing."""
    entrance = gate.entrance
    if entrance is not None:
        entrance.mark(PhaseSpec(bounded(str(label)), domain, color, category))


keep_out(profiling_range, "profiling_range")
keep_out(mark, "mark")
hide(
    ProfilingRange.__enter__.__code__,
    ProfilingRange.__exit__.__code__,
    ProfilingRange._enter.__code__,
    _Closed.__enter__.__code__,
    _Closed.__exit__.__code__,
)
