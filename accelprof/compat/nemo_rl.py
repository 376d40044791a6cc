"""NeMo-RL's profiling calls over our engine; see docs/compat.md. Written against its source, which is not in the registry."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from accelprof.compat.process import ProcessSession
from accelprof.config.dialects.nemo_rl import PATTERNS, RANGE, NemoRLDialect, step_range
from accelprof.timing.metrics import process_state
from accelprof.timing.phase import PhaseSpec
from accelprof.timing.running import Run

__all__ = ["start_gpu_profiling", "stop_gpu_profiling"]

process = ProcessSession()
KEY = "nemo_rl"


def start_gpu_profiling(self: object = None) -> None:
    """The window of this worker opens: it holds the steps of ``NRL_NSYS_PROFILE_STEP_RANGE``. A second call does nothing."""
    process.start(KEY, first_step(), settings)


def stop_gpu_profiling(self: object = None) -> None:
    """It closes. A second call does nothing."""
    process.stop(KEY)


def first_step() -> int | None:
    """The first step of the range, by which the window is called; ``None`` where there is no such range."""
    try:
        return step_range(os.environ.get(RANGE, ""))[0]
    except ValueError:
        return None


def settings() -> Mapping[str, Any]:
    """What a worker is profiled with that is in nobody's run: the variables' tool and options on whatever is started.

    Raises:
        ConfigError: the variables are wrong.
    """
    translated: dict[str, Any] = {}
    if os.environ.get(PATTERNS):
        translated = dict(NemoRLDialect().translate(dict(os.environ)).config)
    # NeMo-RL starts those workers that its patterns name, and tells them when; whoever is told takes part
    kept = {key: translated[key] for key in ("tool", "tools") if key in translated}
    return {"config": {**kept, "steps": "all", "ranks": "all", "output_dir": "outputs/profile"}, "group": "workers"}


class Labels:
    """The phases that a timer of NeMo-RL has begun with ``start`` and not ended with ``stop``."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, str], Run] = {}

    def begin(self, timer: object, label: str) -> None:
        """Phase ``label`` begins."""
        # labels of one timer may begin and end in any order, across awaits and threads
        self._open[id(timer), label] = Run(process_state(label), PhaseSpec(label), suspends=True)

    def end(self, timer: object, label: str) -> None:
        """It ends, if it had begun."""
        run = self._open.pop((id(timer), label), None)
        if run is not None:
            run.finish()

    def drop(self, timer: object, label: str | None = None) -> None:
        """The timer forgets ``label``, or all of its labels; phases among them end here."""
        for number, name in list(self._open):
            if number == id(timer) and label in (None, "", name):
                self.end(timer, name)


def check() -> None:
    """Refuse variables that contradict each other, before anything starts.

    Raises:
        ConfigError: as :class:`NemoRLDialect`.
    """
    NemoRLDialect().translate(dict(os.environ))
