"""accelprof: the profiling layer under distributed training workers.

Importing this imports the standard library only; everything else comes when it is asked for.
"""

from __future__ import annotations

from accelprof.timing.ranges import mark, profiling_range
from accelprof.timing.timer import timer
from accelprof.timing.worker import Worker

TYPE_CHECKING = False  # as typing has it, whose import would be a fifth of ours
if TYPE_CHECKING:
    from accelprof.analysis.opened import open_run
    from accelprof.catalogue import register, unregister
    from accelprof.contracts.hookspecs import hookimpl
    from accelprof.session.configure import configure, current_session, reset

__version__ = "0.1.0"

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

_LAZY = {
    "configure": "accelprof.session.configure",
    "current_session": "accelprof.session.configure",
    "hookimpl": "accelprof.contracts.hookspecs",
    "open_run": "accelprof.analysis.opened",
    "register": "accelprof.catalogue",
    "reset": "accelprof.session.configure",
    "unregister": "accelprof.catalogue",
}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        import importlib

        value = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'accelprof' has no attribute {name!r}")


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
