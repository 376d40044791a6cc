"""What a controller asks of a worker, by command name. Every answer is plain data; no command raises into a worker's own work."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from accelprof.runtime import metrics
from accelprof.runtime.configure import configure, current_session
from accelprof.runtime.gate import gate
from accelprof.runtime.identity import host_name


def serve(command: str, *args: Any, **kwargs: Any) -> Any:
    """Run one command; ``{"ok": True, "value": ...}`` or ``{"ok": False, "error": "..."}``."""
    handler = COMMANDS.get(command)
    if handler is None:
        return {"ok": False, "error": f"unknown command {command!r}; known: {', '.join(sorted(COMMANDS))}"}
    try:
        return {"ok": True, "value": handler(*args, **kwargs)}
    except Exception as error:  # noqa: BLE001 - it travels to the controller, which says it with the worker's name
        return {"ok": False, "error": f"{type(error).__name__}: {error}"}


def call(actor: Any, command: str, *args: Any, **kwargs: Any) -> Any:
    """The same for classes without the mixin, through Ray's ``__ray_call__``; ``actor`` is the instance."""
    return serve(command, *args, **kwargs)


def _configure(config: Any, run_dir: str, identity: dict[str, Any]) -> dict[str, Any]:
    session = configure(config, run_dir=run_dir, **identity)
    return {
        "key": session.key,
        "host": session.host,
        "pid": session.pid,
        "selected": session.assignment.selected,
        "accelerator": session.backend.name,
    }


def _begin_step(number: int) -> None:
    session = current_session()
    if session is not None:
        session.begin_step(number, control=True)


def _end_step(number: int) -> dict[str, Any]:
    """Ends the step; the step's timings: ``{tag: {"seconds", "count"}}``."""
    session = current_session()
    if session is None:
        return {}
    session.end_step(number)
    return {tag: dict(row) for tag, row in session.metrics_of_step(number).items()}


def _step_metrics(number: int | None = None) -> dict[str, Any]:
    session = gate.session
    return {} if session is None else {tag: dict(row) for tag, row in session.metrics_of_step(number).items()}


def _close(reason: str = "controller") -> dict[str, Any] | None:
    session = gate.session
    return None if session is None else session.close(reason)


def _report() -> dict[str, Any] | None:
    session = gate.session
    return None if session is None else session.summary()


def _clock() -> dict[str, Any]:
    """This node's clocks now, for offset estimation."""
    return {"epoch_ns": time.time_ns(), "monotonic_ns": time.perf_counter_ns(), "host": host_name(), "pid": os.getpid()}


def _open_window(steps: list[int] | None = None) -> bool:
    session = current_session()
    return session is not None and session.open_window("on_demand", steps or ()) is not None


def _close_window() -> None:
    session = current_session()
    if session is not None:
        session.close_window("closed on demand")


COMMANDS: dict[str, Callable[..., Any]] = {
    "configure": _configure,
    "begin_step": _begin_step,
    "end_step": _end_step,
    "step_metrics": _step_metrics,
    "timing_stats": lambda: metrics.stats(metrics.all_states()),
    "close": _close,
    "report": _report,
    "clock": _clock,
    "open_window": _open_window,
    "close_window": _close_window,
}
