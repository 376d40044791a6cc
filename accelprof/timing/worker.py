"""``Worker``: the mixin that training workers inherit from. It has no constructor and keeps nothing it does not need."""

from __future__ import annotations

from collections.abc import Callable

from accelprof.timing import metrics
from accelprof.timing.compiled import keep_out
from accelprof.timing.running import WorkerTimer
from accelprof.timing.timer import timer as _timer

TYPE_CHECKING = False  # as typing has it, whose import would be a fifth of ours
if TYPE_CHECKING:
    from typing import Any, overload

    from accelprof.timing.timer import F
else:
    Any = object  # for who asks for the hints of public names


def answer(command: str, *args: object, **kwargs: object) -> object:
    """What a controller asks of this process. The front door puts the session's answers here, which know the rest of the
    library: training code loads none of it before it is asked."""
    raise NotImplementedError(command)


class Worker:
    """Mixin for any class, Ray actor or not; needs no ``super().__init__()``.

    Example::

        class Actor(Worker):
            @Worker.timer("actor/update")
            def update(self, batch): ...
    """

    __slots__ = ()

    if TYPE_CHECKING:

        @overload
        @staticmethod
        def timer(tag: F, /) -> F: ...
        @overload
        @staticmethod
        def timer(
            tag: str | None = None, *, color: str = "", domain: str = "", category: str = "", device: bool = False
        ) -> Callable[[F], F]: ...
        @staticmethod
        def timer(tag: object = None, **options: object) -> Any: ...

    else:
        timer = staticmethod(_timer)

    def worker_timer(
        self, tag: str, *, color: str = "", domain: str = "", category: str = "", device: bool = False
    ) -> WorkerTimer:
        """A context manager (plain or async) that times its block under ``tag`` and emits a range, as the decorator does."""
        return WorkerTimer(self, tag, color, domain, category, device)

    def pop_execution_times(self) -> dict[str, float]:
        """Seconds per tag on this instance since the last pop: ``{"actor/update": 1.25}``."""
        return metrics.pop_times(metrics.states_of(self))

    def pop_execution_time(self, tag: str) -> float:
        """Seconds of one tag since the last pop.

        Raises:
            UnknownTagError: (a ``KeyError``) nothing was recorded under ``tag`` since then.
        """
        return metrics.pop_time(metrics.states_of(self), tag)

    def timing_stats(self) -> dict[str, dict[str, float]]:
        """Per tag ``count, total, mean, min, max, p50, p95, last`` (seconds) of this instance since it was made."""
        return metrics.stats(metrics.states_of(self))

    keep_out(worker_timer, "worker_timer")

    def accelprof_call(self, command: str, *args: object, **kwargs: object) -> Any:
        """What the controller calls in a Ray actor; see ``accelprof.session.remote``."""
        return answer(command, *args, **kwargs)

    def accelprof_next(self, number: int | None = None) -> Any:
        """``accelprof_call("begin_step", number)``; without a number for the step after the last one announced, because an
        argument costs Ray a quarter of the whole call."""
        return answer("next_step", number)

    def accelprof_done(self) -> Any:
        """``accelprof_call("end_step", number)`` for the step that is running."""
        return answer("end_step")
