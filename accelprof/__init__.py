"""accelprof: the profiling layer under distributed training workers.

Importing this imports the standard library only; everything else comes when it is asked for.
"""

from __future__ import annotations

from accelprof.timing import worker as _worker
from accelprof.timing.ranges import mark, profiling_range
from accelprof.timing.timer import timer
from accelprof.timing.worker import Worker

TYPE_CHECKING = False  # as typing has it, whose import would be a fifth of ours
if TYPE_CHECKING:
    from accelprof.analysis.opened import open_run
    from accelprof.catalogue import register, unregister
    from accelprof.contracts.hookspecs import hookimpl
    from accelprof.release import VERSION as __version__  # noqa: N811 - as packages are asked for it
    from accelprof.session.configure import configure, current_session, reset

__all__ = [
    "Worker",
    "__version__",
    "configure",
    "current_session",
    "hookimpl",
    "mark",
    "open_run",
    "pop_execution_times",
    "profiling_range",
    "register",
    "reset",
    "timer",
    "timing_stats",
    "unregister",
]


def __getattr__(name: str) -> object:
    value: object
    if name in ("configure", "current_session", "reset"):
        from accelprof.session import configure as sessions

        value = getattr(sessions, name)
    elif name in ("register", "unregister"):
        from accelprof import catalogue

        value = getattr(catalogue, name)
    elif name == "hookimpl":
        from accelprof.contracts import hookspecs

        value = hookspecs.hookimpl
    elif name == "open_run":
        from accelprof.analysis import opened

        value = opened.open_run
    elif name == "__version__":
        from accelprof import release

        value = release.VERSION
    else:
        raise AttributeError(f"module 'accelprof' has no attribute {name!r}")
    globals()[name] = value
    return value


def _answer(command: str, *args: object, **kwargs: object) -> object:
    from accelprof.session.remote import serve

    _worker.answer = serve
    return serve(command, *args, **kwargs)


_worker.answer = _answer


def __dir__() -> list[str]:
    return sorted(__all__)


def pop_execution_times() -> dict[str, float]:
    """Seconds per tag of plain functions, static and class methods of this process since the last pop."""
    from accelprof.timing import metrics

    return metrics.pop_times(metrics.states_of(None))


def timing_stats() -> dict[str, dict[str, float]]:
    """As ``Worker.timing_stats``, for plain functions, static and class methods of this process."""
    from accelprof.timing import metrics

    return metrics.stats(metrics.states_of(None))
