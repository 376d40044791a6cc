"""Emitters over a ROCTX library.

Under most AMD tools ranges must be strictly last-in-first-out per thread: rocprof-sys and rocprofv3 up to ROCm 6.4 abort
the worker on a pop whose push they did not see, and end whichever range was started last when an id is stopped. So ids are
used only under tools that take them; phases of suspended code stand as marks at their ends otherwise.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, ClassVar

from accelprof.contracts.backend import BoundEmitter, BoundRange, RangeSpec
from accelprof_rocm.roctx import Library

#: the domain that needs no name in front: ROCTX has no domains
DOMAIN = "accelprof"


def text(spec: RangeSpec) -> str:
    """The message of a range: its label; ``domain:label`` for domains of others. ROCTX knows no colours or categories."""
    label = str(spec.label)
    return label if spec.domain in ("", DOMAIN) else f"{spec.domain}:{label}"


class RoctxRanges(BoundEmitter):
    """Push/pop per thread and marks.

    Args:
        library: where the calls go.
        ready: when given, a range is only pushed once it answers true (a device is initialised): the tool begins to listen
            then, and must not see the pop of a push it missed. What was not pushed is not popped.
    """

    overlapping_ranges: ClassVar[bool] = False

    def __init__(self, library: Library, ready: Callable[[], bool] | None = None) -> None:
        self.library = library
        self._ready = ready
        self._pushed = _PerThread()
        self._bound: dict[RangeSpec, BoundRange] = {}

    def bind(self, spec: RangeSpec) -> BoundRange:
        bound = self._bound.get(spec)
        if bound is None:
            bound = self._bound[spec] = self._resolve(spec)
        return bound

    def _resolve(self, spec: RangeSpec) -> BoundRange:
        library = self.library
        message = library.message(text(spec))
        push, pop = functools.partial(library.push, message), library.pop
        if self._ready is not None:
            push, pop = self._guarded(push, pop, self._ready)  # type: ignore[assignment]
        return BoundRange(push, pop, *self._suspended(spec))

    def _guarded(
        self, push: Callable[[], object], pop: Callable[[], object], ready: Callable[[], bool]
    ) -> tuple[Callable[[], object], Callable[[], object]]:
        local = self._pushed

        def guarded_push() -> object:
            seen = ready()
            local.stack.append(seen)
            return push() if seen else None

        def guarded_pop() -> object:
            stack = local.stack
            return pop() if stack and stack.pop() else None

        return guarded_push, guarded_pop

    def _suspended(self, spec: RangeSpec) -> tuple[Callable[[], object], Callable[[object], object]]:
        begin, end = (self.library.message(f"{text(spec)} {which}") for which in ("begin", "end"))
        mark = self.library.mark
        return functools.partial(mark, begin), lambda _: mark(end)

    def mark(self, spec: RangeSpec) -> None:
        self.library.mark(self.library.message(text(spec)))


class OverlappingRanges(RoctxRanges):
    """For tools that keep start/stop by id across threads (rocprofv3 from ROCm 7.0)."""

    overlapping_ranges: ClassVar[bool] = True

    def _suspended(self, spec: RangeSpec) -> tuple[Callable[[], Any], Callable[[Any], object]]:
        start, stop = self.library.start, self.library.stop
        if start is None or stop is None:
            return super()._suspended(spec)
        return functools.partial(start, self.library.message(text(spec))), stop


class _PerThread(threading.local):
    """Whether each open range of this thread was really pushed, innermost last."""

    def __init__(self) -> None:
        self.stack: list[bool] = []
