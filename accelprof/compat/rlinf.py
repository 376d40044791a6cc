"""RLinf's profiling names over our engine; see docs/compat.md for each difference."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, TypeVar, overload

from accelprof.compat.forms import by_form, within
from accelprof.compat.process import ProcessSession
from accelprof.compat.verl_marks import Mark, mark_end_range, mark_start_range
from accelprof.errors import ConfigError, Problem
from accelprof.session.configure import current_session
from accelprof.timing import metrics
from accelprof.timing.gate import now_ns
from accelprof.timing.labels import bounded
from accelprof.timing.loops import runner
from accelprof.timing.metrics import UnknownTagError
from accelprof.timing.ranges import profiling_range
from accelprof.timing.running import WorkerTimer
from accelprof.timing.timer import timer as engine_timer

F = TypeVar("F", bound=Callable[..., Any])

__all__ = ["AcceleratorType", "AcceleratorUtil", "ProfileConfig", "TimerNotRecordedError", "Tracer", "Worker"]

process = ProcessSession()
#: every worker of a process announces steps under this one name
KEY = "rlinf"


class AcceleratorType(str, Enum):
    """RLinf's names; ours are the backends' (``cuda``, ``rocm``, ``npu``, ``cpu``)."""

    NV_GPU = "NV_GPU"
    AMD_GPU = "AMD_GPU"
    INTEL_GPU = "INTEL_GPU"
    NPU = "NPU"
    NO_ACCEL = "NO_ACCEL"
    MUSA_GPU = "MUSA_GPU"
    KUNLUN_XPU = "KUNLUN_XPU"
    METAX_GPU = "METAX_GPU"


class TimerNotRecordedError(UnknownTagError, ValueError):
    """RLinf's ``ValueError`` for a tag that nothing recorded, with the tags there are."""


@dataclass
class ProfileConfig:
    """``cluster.profiling``, the part that all backends share.

    Raises:
        ConfigError: ``steps`` or ``worker_groups`` is not what it should be.
    """

    BACKEND_TYPE: ClassVar[str] = ""

    backend: str = ""
    enabled: bool = True
    worker_groups: Any = None
    steps: Any = None
    output_dir: str | None = None

    def __post_init__(self) -> None:
        from accelprof.config.dialects.reading import Source

        source = Source({"profiling": {"worker_groups": _plain(self.worker_groups), "steps": _plain(self.steps)}})
        self.worker_groups = source.words("profiling.worker_groups")
        self.steps = source.numbers("profiling.steps")
        if source.problems:
            raise ConfigError(*source.problems)

    def profiles_worker_group(self, worker_group_name: str) -> bool:
        """Whether the group is named, whatever its case; ``all`` names every group."""
        if not self.enabled or not self.worker_groups:
            return False
        named = {group.casefold() for group in self.worker_groups}
        return "all" in named or worker_group_name.casefold() in named

    def should_profile_step(self, step_idx: int) -> bool:
        """Whether the step is listed; without a list every step is, with an empty one none."""
        return self.enabled and (self.steps is None or step_idx in self.steps)

    def check(self) -> bool:
        """Whether the tool of ``backend`` is installed here.

        Raises:
            ConfigError: the backend is unknown.
        """
        from accelprof.catalogue import get_catalogue
        from accelprof.config.dialects.rlinf import BACKENDS

        if not self.backend:
            return True
        if self.backend not in BACKENDS:
            raise ConfigError(Problem("backend", "unknown", value=self.backend, allowed=", ".join(BACKENDS)))
        return get_catalogue().make_tool(BACKENDS[self.backend][0]).probe().available


def _plain(value: Any) -> Any:
    return list(value) if type(value).__module__.startswith("omegaconf") else value


class AcceleratorUtil:
    """RLinf's static calls. The accelerator type is the session's own; the argument names it for readers only."""

    @staticmethod
    def profiling_range(
        accelerator_type: object, label: str, color: str | None = None, domain: str | None = None
    ) -> Any:
        """A range around a block while a window is open; works in coroutines."""
        return profiling_range(label, color=color or "", domain=domain or "")

    @staticmethod
    def start_profiling(accelerator_type: object, step_idx: int | None = None) -> None:
        """The step begins; a window opens when the plan has one there. A second call does nothing."""
        process.start(KEY, step_idx, default_settings)

    @staticmethod
    def stop_profiling(accelerator_type: object) -> None:
        """The step ends. A second call does nothing."""
        process.stop(KEY)

    @staticmethod
    def is_profiling_active(accelerator_type: object = None) -> bool:
        """Whether a window is open in this process."""
        session = current_session()
        return session is not None and session.window is not None


def default_settings() -> Mapping[str, object]:
    """A process that nobody configured: the timeline of the steps that are started."""
    return {"config": {"steps": "all", "ranks": "all", "output_dir": "profiling"}}


class _Untraced:
    """Times a block on an instance without a range."""

    __slots__ = ("_start", "_state")

    def __init__(self, instance: object, tag: str) -> None:
        self._state, self._start = metrics.state_of(instance, tag), 0

    def __enter__(self) -> None:
        self._start = now_ns()

    def __exit__(self, *_: object) -> None:
        self._state.others.append(now_ns() - self._start)


@overload
def timer(tag: F, /) -> F: ...
@overload
def timer(tag: str | None = None, trace: bool = True) -> Callable[[F], F]: ...
def timer(tag: Any = None, trace: bool = True) -> Any:
    """Decorate a worker's method: seconds under ``tag`` (the method's name without), and a range while a window is open.

    Args:
        trace: ``False`` = seconds only.
    """
    if callable(tag):
        return timer(None)(tag)

    def decorator(function: F) -> F:
        label = tag or function.__name__
        if trace:
            return engine_timer(label)(function)

        def choose(instance: object) -> Any:
            return function

        return by_form(function, choose, lambda instance: _Untraced(instance, label))

    return decorator


def worker_timer(self: object, tag: str | None = None, trace: bool = True) -> Any:
    """A block as a phase, plain or async; the tag is the calling function's name where none is given.

    Args:
        trace: ``False`` = seconds only.
    """
    label = tag or sys._getframe(1).f_code.co_name
    return WorkerTimer(self, label) if trace else _Untraced(self, label)


#: spans that were begun and not ended, by name: what began each, and its range
_spans: dict[str, list[tuple[int, Mark]]] = {}
_spans_lock = threading.RLock()  # re-entrant, for the handlers of signals


class Tracer:
    """RLinf 0.4's spans, in our timeline and in the tool's data while a window is open; no server is asked."""

    @classmethod
    def trace_begin(cls, name: str, cat: str = "default", args: object = None) -> None:
        """A span begins, which any thread or task of this process may end; ``args`` are not kept."""
        name = str(name)
        mark = mark_start_range(bounded(name), category=cat)
        if mark.entry is not None:
            with _spans_lock:
                _spans.setdefault(name, []).append((runner(), mark))

    @classmethod
    def trace_end(cls, name: str, cat: str = "default") -> None:
        """The span of this name ends that this thread or task began last, else the last of all; one that nobody began is none."""
        name, me = str(name), runner()
        with _spans_lock:
            begun = _spans.get(name, [])
            at = next((index for index in reversed(range(len(begun))) if begun[index][0] == me), -1)
            mark = begun.pop(at)[1] if begun else None
            if not begun:
                _spans.pop(name, None)
        mark_end_range(mark)

    @classmethod
    def trace_span(cls, name: str, cat: str = "default", args: object = None) -> object:
        """A block as a span, plain or async."""
        return profiling_range(name, category=cat)

    @classmethod
    def trace_func(cls, func_or_cat: object = None, cat: str = "default") -> object:
        """Decorate a function with a span for each call; with and without arguments, as RLinf's."""
        category = func_or_cat if isinstance(func_or_cat, str) else cat

        def decorator(function: F) -> F:
            return within(function, lambda: profiling_range(function.__name__, category=category))

        return decorator(func_or_cat) if callable(func_or_cat) else decorator


def _written(self: object) -> dict[str, float]:
    """Seconds by tag that methods of RLinf's write themselves, some of them negative: what is not to count for a tag."""
    found = getattr(self, "_timer_metrics", None)
    return found if isinstance(found, dict) else {}


def pop_execution_times(self: object) -> dict[str, float]:
    """Seconds per tag since the last pop."""
    times, written = metrics.pop_times(metrics.states_of(self)), _written(self)
    for tag in list(written):
        times[tag] = times.get(tag, 0.0) + written.pop(tag)
    return times


def pop_execution_time(self: object, tag: str) -> float:
    """Seconds of one tag since the last pop.

    Raises:
        TimerNotRecordedError: (``ValueError`` and ``KeyError``) nothing was recorded under it.
    """
    written = _written(self)
    try:
        return metrics.pop_time(metrics.states_of(self), tag) + written.pop(tag, 0.0)
    except UnknownTagError as error:
        if tag in written:
            return written.pop(tag)
        raise TimerNotRecordedError(*error.args) from None


class Worker:
    """RLinf's worker, as far as timing and profiling go; a mixin without a constructor."""

    timer = staticmethod(timer)
    worker_timer = worker_timer
    pop_execution_time = pop_execution_time
    pop_execution_times = pop_execution_times

    def start_profile(self, step_idx: int) -> None:
        """See :meth:`AcceleratorUtil.start_profiling`."""
        AcceleratorUtil.start_profiling(None, step_idx)

    def stop_profile(self) -> None:
        """See :meth:`AcceleratorUtil.stop_profiling`."""
        AcceleratorUtil.stop_profiling(None)
