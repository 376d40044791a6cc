"""What a controller asks of a worker, by command name. Every answer is plain data; no command raises into a worker's own work."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from accelprof.config.model import Config
from accelprof.contracts import reasons
from accelprof.contracts.targets import TARGET_ENV, Assignment
from accelprof.contracts.timings import Timing
from accelprof.errors import failures, text_of
from accelprof.session.configure import configure, current_session
from accelprof.session.identity import from_environment, host_name
from accelprof.timing import metrics
from accelprof.timing.gate import gate

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def serve(command: str, *args: object, **kwargs: object) -> object:
    """Run one command; ``{"ok": True, "value": ...}`` or ``{"ok": False, "error": "..."}``."""
    handler = COMMANDS.get(command)
    if handler is None:
        return {"ok": False, "error": f"unknown command {command!r}; known: {', '.join(sorted(COMMANDS))}"}
    try:
        return {"ok": True, "value": handler(*args, **kwargs)}
    except failures() as error:  # it travels to the controller, which says it with the worker's name
        return {"ok": False, "error": text_of(error)}


def call(actor: object, command: str, *args: object, **kwargs: object) -> Any:
    """The same for classes without the mixin, through Ray's ``__ray_call__``; ``actor`` is the instance."""
    return serve(command, *args, **kwargs)


def _configure(
    config: dict[str, Any], run_dir: str | None, identity: dict[str, Any], assignment: Assignment | None = None
) -> dict[str, object]:
    session = configure(Config.model_validate(config), run_dir=run_dir, assignment=assignment, **identity)
    session.course.outside = None
    metrics.take_timings()
    return {
        "key": session.key,
        "host": session.process.host,
        "pid": session.process.pid,
        "node_id": node_id(),
        "selected": session.assignment.selected,
        "started_as": os.environ.get(TARGET_ENV),
        "rank_by_environment": from_environment(os.environ).rank,
        "problems": list(session.problems),
    }


def _begin_step(number: int) -> bool:
    """``False``: this process has no session (an actor that was restarted, say)."""
    session = current_session()
    if session is None:
        return False
    session.begin_step(number, outside=True)
    return True


def _next_step(number: int | None = None) -> bool:
    """``number``, or the step after the one that was announced from outside last; ``False`` also where none was."""
    session = current_session()
    if number is None and session is not None and session.course.outside is not None:
        number = session.course.outside + 1
    return number is not None and _begin_step(number)


def _end_step(number: int | None = None) -> dict[str, Timing] | None:
    """Ends step ``number``, or the one that runs. The timings of that step, or of the one that was announced from outside last, which
    it may have gone on from by itself. ``None``: there is no session."""
    session = current_session()
    if session is None:
        return None
    session.end_step(number)
    of = session.course.outside if number is None else number
    return {tag: {**row} for tag, row in session.metrics_of_step(of).items()}


def _close(reason: str = reasons.CONTROLLER_CLOSED) -> dict[str, Any] | None:
    session = gate.session
    return None if session is None else session.close(reason)


def _clock() -> dict[str, Any]:
    """This node's clocks now, for offset estimation."""
    return {
        "epoch_ns": time.time_ns(),
        "monotonic_ns": time.perf_counter_ns(),
        "boot_id": boot_id(),
        "host": host_name(),
        "pid": os.getpid(),
    }


def boot_id() -> str:
    """Identity of the running kernel: processes that share it share its clocks. Empty where the system has none."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def node_id() -> str | None:
    """Ray's id of this node, where this process is a Ray worker; Ray is not imported for it."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    found: str = ray.get_runtime_context().get_node_id()
    return found


COMMANDS: dict[str, Callable[..., object]] = {
    "configure": _configure,
    "begin_step": _begin_step,
    "next_step": _next_step,
    "end_step": _end_step,
    "take_timings": metrics.take_timings,
    "close": _close,
    "clock": _clock,
}
