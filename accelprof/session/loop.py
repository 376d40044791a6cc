"""A training loop's steps: how one is entered, and every way in which it is left."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from accelprof.contracts import reasons
from accelprof.errors import CaptureError
from accelprof.numberset import whole
from accelprof.timing.timer import timer

if TYPE_CHECKING:
    from accelprof.session.captures import Captures
    from accelprof.session.course import Course

T = TypeVar("T")


class Loop:
    """Of one session; ``begin`` and ``end`` are its ``begin_step`` and ``end_step``."""

    def __init__(
        self, captures: Captures, course: Course, begin: Callable[[int], None], end: Callable[[int], None]
    ) -> None:
        self._captures, self._course, self._begin, self._end = captures, course, begin, end

    @contextlib.contextmanager
    def one(self, number: int, given: T) -> Iterator[T]:
        """One step, with ``given`` for its ``as``. An exception of the body reaches the caller unchanged."""
        number = whole(number, "step: step numbers")
        self._begin(number)
        try:
            yield given
        except BaseException as error:
            self.left_by(error, number)
            raise
        else:
            self._end(number)

    def over(self, items: Iterable[T], first: int) -> Iterator[T]:
        """Each of ``items`` in a step of its own; waiting for the next is the phase ``data`` at the end of the step before."""
        waiting = timer("data", category="data")(next)
        iterator, none = iter(items), object()
        number, item = whole(first, "steps: numbers of first steps"), waiting(iterator, none)
        while item is not none:
            self._begin(number)
            try:
                yield item  # type: ignore[misc]  # it is no longer the sentinel
                item = waiting(iterator, none)
            except GeneratorExit:  # the loop was left, by break or by what its body raised
                self._end_quietly(number)
                raise
            except BaseException as error:
                self.left_by(error, number)
                raise
            self._end(number)
            number += 1

    def left_by(self, error: BaseException, number: int) -> None:
        """The step's body raised: its window closes, also one that would have held later steps; that exception alone is raised."""
        captures = self._captures
        with captures.lock:
            if captures.window is not None and captures.window.info.kind in ("step", "phase"):
                captures.close(reasons.EXCEPTION)
            self._course.broken = self._course.running == number
            self._end_quietly(number)
        if self._course.recorder is not None and isinstance(error, Exception):
            self._course.recorder.failed(number, error)

    def _end_quietly(self, number: int) -> None:
        """End the step where nothing may be raised: what would be is said."""
        try:
            self._end(number)
        except CaptureError as error:
            self._captures.voice.say(str(error))
