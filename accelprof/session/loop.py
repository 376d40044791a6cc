"""A training loop's steps: how one is entered, and every way in which it is left."""

from __future__ import annotations

import contextlib
import math
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
    """Of one session; ``begin``, ``end`` and ``void`` are its ``begin_step``, ``end_step`` and ``void_step``."""

    def __init__(
        self,
        captures: Captures,
        course: Course,
        begin: Callable[[int], None],
        end: Callable[[int], None],
        void: Callable[[], None],
    ) -> None:
        self._captures, self._course, self._begin, self._end, self._void = captures, course, begin, end, void

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
        """Each of ``items`` in a step of its own, which begins with waiting for it, the phase ``data``."""
        waiting = timer("data", category="data")(next)
        number, begun = whole(first, "steps: numbers of first steps"), 0
        count, iterator, none = known_count(items), iter(items), object()
        while True:
            try:
                if begun < count:
                    self._begin(number)
                item = waiting(iterator, none)
                if item is none:
                    if begun < count:
                        self._void()
                    return
                if begun >= count:
                    self._begin(number)
                yield item  # type: ignore[misc]  # it is not the sentinel
            except GeneratorExit:  # the loop was left, by break or by what its body raised
                self._end_quietly(number)
                raise
            except BaseException as error:
                self.left_by(error, number)
                raise
            self._end(number)
            number, begun = number + 1, begun + 1

    def left_by(self, error: BaseException, number: int) -> None:
        """The step's body raised: its window closes, also one that would have held later steps; that exception alone is raised."""
        captures = self._captures
        with captures.lock:
            if captures.window is not None and captures.window.info.kind in ("step", "phase"):
                captures.close(reasons.EXCEPTION)
            self._course.broken = self._course.running == number
            self._end_quietly(number)
        if self._course.recorder is not None:
            self._course.recorder.failed(number, error)

    def _end_quietly(self, number: int) -> None:
        """End the step where nothing may be raised: what would be is said."""
        try:
            self._end(number)
        except CaptureError as error:
            self._captures.voice.say(str(error))


def known_count(items: Iterable[object]) -> float:
    """How many items are certain to begin with a step: as many as ``items`` says that it has, all where it does not say."""
    try:
        return len(items)  # type: ignore[arg-type]  # many have no length
    except Exception:  # noqa: BLE001 - whatever a loader without one raises
        return math.inf
