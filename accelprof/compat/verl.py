"""verl's profiling names over our engine; see docs/compat.md for each difference.

All profilers of a process share one session: the first ``start`` opens the window of the step, the last ``stop`` closes
it. Which tool records, and what, comes from the profilers' configuration, or from the run that ``ACCELPROF_RUN`` names.
"""

from __future__ import annotations

import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from accelprof.compat.forms import by_form
from accelprof.compat.process import ProcessSession
from accelprof.compat.verl_config import (
    CompatConfigError,
    NPUToolConfig,
    NsightToolConfig,
    PrecisionDebuggerToolConfig,
    ProfilerConfig,
    TorchMemoryToolConfig,
    TorchProfilerScheduleConfig,
    TorchProfilerToolConfig,
    as_mapping,
)
from accelprof.compat.verl_marks import (
    GPUMemoryLogger,
    gather_timing,
    log_gpu_memory_usage,
    mark_annotate,
    mark_end_range,
    mark_start_range,
    marked_timer,
    reduce_timing,
    simple_timer,
    topk_reduce_ratio_min_max,
)
from accelprof.config.dialects.reading import Source
from accelprof.config.dialects.verl_keys import HYBRID, HYBRID_GROUP, NOT_PROFILERS, TOOLS
from accelprof.config.dialects.verl_releases import NEWEST, Release
from accelprof.config.dialects.verl_tools import tool_options, update_schedule
from accelprof.contracts.targets import RUN_ENV
from accelprof.errors import ConfigError, Problem, nearest
from accelprof.session.configure import current_session
from accelprof.timing.gate import gate
from accelprof.timing.timer import timer

F = TypeVar("F", bound=Callable[..., Any])

__all__ = [
    "CompatConfigError",
    "DistProfiler",
    "DistProfilerExtension",
    "GPUMemoryLogger",
    "NPUToolConfig",
    "NsightToolConfig",
    "PrecisionDebuggerToolConfig",
    "ProfilerConfig",
    "TorchMemoryToolConfig",
    "TorchProfilerScheduleConfig",
    "TorchProfilerToolConfig",
    "gather_timing",
    "log_gpu_memory_usage",
    "mark_annotate",
    "mark_end_range",
    "mark_start_range",
    "marked_timer",
    "reduce_timing",
    "simple_timer",
    "topk_reduce_ratio_min_max",
]

#: labels that verl gives a worker which has no role of its own: label -> role
MODEL_ROLES = {"value_model": "critic", "language_model": "sft"}

#: the release whose meaning these names have
AS_OURS = Release(NEWEST, NEWEST)

process = ProcessSession()
#: every profiler of this process that is alive
profilers: weakref.WeakSet[Any] = weakref.WeakSet()
#: labels of stages that iterate over update mini-batches (``scheduled=True``): the ones that a schedule thins out
scheduled: set[str] = set()
#: the one whose configuration made the session
_decides: weakref.WeakSet[object] = weakref.WeakSet()


def prepare(self: Any, rank: int, config: Any, tool_config: object, save_file_prefix: str | None) -> None:
    """Give a profiler object (ours or verl's) its attributes."""
    config = ProfilerConfig() if config is None else config
    settings = as_mapping(config)
    self.rank, self.config, self.save_file_prefix = rank, config, save_file_prefix
    self.tool_config = settings.get("tool_config") if tool_config is None else tool_config
    self._tool, self._enable = settings.get("tool"), bool(settings.get("enable"))
    self._this_step = False
    ranks = settings.get("ranks") or []
    self._this_rank = bool(settings.get("all_ranks")) or (rank in ranks if ranks else self._enable and rank == 0)
    hook_ranks = settings.get("finish_hook_ranks") or []
    self._finish_hook_cmd = settings.get("finish_hook_cmd")
    self._relocate_results = bool(settings.get("relocate_results"))
    self._finish_hook_this_rank = bool(settings.get("finish_hook_all_ranks")) or (
        rank in hook_ranks if hook_ranks else self._this_rank
    )
    self._discrete = bool(as_mapping(self.tool_config).get("discrete", False))
    profilers.add(self)


def start(self: Any, **kwargs: Any) -> None:
    """Begin to profile the step ``profile_step`` (or ``global_step``; counted from 0 without). Idempotent."""
    if not (self._enable and self._this_rank):
        return
    if self._tool is None and current_session() is None and not os.environ.get(RUN_ENV):
        self._this_step = True  # no tool: verl records nothing, and nobody asked us for anything
        return
    step = kwargs.get("profile_step", kwargs.get("global_step"))
    for first in _decides:
        _say_contradictions(first, self)
    self._this_step = process.start(id(self), step, lambda: session_settings(self))


def _say_contradictions(first: Any, other: Any) -> None:
    """Two profilers that are both started share the windows of their process; ``first`` has decided how those are."""
    for name, what in (("_tool", "tool"), ("_discrete", "discrete")):
        if getattr(other, name) != getattr(first, name):
            process.voice.say(
                f"profiler of {other.save_file_prefix or 'another role'}: {what} {getattr(other, name)!r} contradicts "
                f"{getattr(first, name)!r} of {first.save_file_prefix or 'the first role'}, which was started first in "
                "this process and decides"
            )


def stop(self: Any, run_command: bool = True) -> None:
    """End it. Idempotent. ``run_command``: this was the last profiled step, so the finish command runs."""
    if self._enable and self._this_rank:
        self._this_step = False
        process.stop(id(self))
    if self._enable and run_command:
        finish(self)


def session_settings(first: Any) -> Mapping[str, Any]:
    """Keyword arguments of ``configure`` from ``first``, the profiler that is started first in this process.

    Other profilers that are enabled here lend their roles only: nobody may ever start them.

    Raises:
        ConfigError: the configuration of ``first`` cannot be had.
    """
    _decides.clear()
    taking_part = [first, *(item for item in profilers if item is not first and item._enable and item._this_rank)]
    source = Source({"tool_config": {first._tool or "": as_mapping(first.tool_config)}})
    tool = first._tool
    if tool is not None and tool not in TOOLS:
        allowed, mend = ", ".join(TOOLS), nearest(str(tool), TOOLS)
        raise ConfigError(Problem("profiler.tool", "unknown tool", value=tool, allowed=allowed, mend=mend))
    if tool in NOT_PROFILERS:
        raise ConfigError(Problem("profiler.tool", f"left to verl: {NOT_PROFILERS[tool]}", value=tool))
    config: dict[str, object] = {
        "tool": tool,
        "steps": "all",
        "ranks": "all",
        "discrete": first._discrete,
        "output_dir": as_mapping(first.config).get("save_path") or "outputs/profile",
    }
    if tool is not None:
        where = f"tool_config.{tool}"
        options = tool_options(source, where, tool, AS_OURS)
        if options:
            config["tools"] = {tool: options}
        schedule = update_schedule(source, f"{where}.schedule", first._discrete, AS_OURS) if tool == "torch" else None
        if schedule is not None:
            if first._discrete and scheduled and schedule["per"] not in scheduled:
                schedule["per"] = min(scheduled)
            config["schedule"] = [schedule]
    if source.problems:
        raise ConfigError(*source.problems)
    roles = _roles(taking_part)
    group = HYBRID_GROUP if set(roles) & set(HYBRID) else roles[0] if roles else None
    _decides.add(first)
    return {"config": config, "group": group, "role": roles, "rank": first.rank}


def _roles(taking_part: list[Any]) -> list[str]:
    roles: dict[str, None] = {}
    models: dict[str, None] = {}
    for item in taking_part:
        prefix = item.save_file_prefix or ""
        words = prefix.split("_")
        if prefix in MODEL_ROLES:
            models[MODEL_ROLES[prefix]] = None
        elif all(word in HYBRID for word in words):
            roles.update(dict.fromkeys(words))
        elif prefix:
            roles[prefix] = None
    models.pop("sft", None) if roles or len(models) > 1 else None
    return [*(role for role in HYBRID if role in roles), *(role for role in roles if role not in HYBRID), *models]


#: where Ray leaves the reports of workers that it wraps in nsys; verl's constant of this name is asked where it is loaded
RAY_NSIGHT_LOG_DIR = "/tmp/ray/session_latest/logs/nsight"
FINISH = "[Profiler][finish_hook] "


def finish(self: Any) -> None:
    """Run ``finish_hook_cmd`` in a shell, on its ranks, and pass on what it prints; what goes wrong ends nothing."""
    rank, command = self.rank, self._finish_hook_cmd
    save_path = as_mapping(self.config).get("save_path")

    def tell(text: str) -> None:
        # on stdout as verl does: workers may have no logger, and people look for these lines in Ray's logs
        sys.stdout.write(f"{FINISH}rank {rank}: {text}\n")
        sys.stdout.flush()

    tell(
        f"profiling finished; cmd={command!r}, run_on_this_rank={self._finish_hook_this_rank}, save_path={save_path!r}"
    )
    if not command:
        return
    if not self._finish_hook_this_rank:
        tell("command skipped, rank not selected by finish_hook_ranks/all_ranks")
        return
    env = _finish_environment(self, save_path)
    tell(f"running command: {command}")
    tell(f"VERL_PROFILE_SAVE_PATH={env['VERL_PROFILE_SAVE_PATH']}")
    try:
        with subprocess.Popen(
            ["/bin/sh", "-c", command],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as running:
            for line in running.stdout or ():
                tell(line.rstrip())
    except (OSError, ValueError) as error:
        tell(f"command failed to launch: {error}")
        process.voice.say(f"finish_hook_cmd could not be run on rank {rank}: {error}")
        return
    tell(f"command exited with {running.returncode}")
    if running.returncode:
        process.voice.say(f"finish_hook_cmd ended with status {running.returncode} on rank {rank}")


def _finish_environment(self: Any, save_path: Any) -> dict[str, str]:
    """What verl gives its command, role and Ray's directory only where verl sets them; and the directory of our run."""
    session = current_session()
    env = {
        **os.environ,
        "VERL_PROFILE_SAVE_PATH": str(save_path or ""),
        "VERL_PROFILE_TOOL": str(self._tool or ""),
        "VERL_PROFILE_RANK": str(self.rank),
        "VERL_PROFILE_PID": str(os.getpid()),
        "ACCELPROF_RUN_DIR": session.layout.run_dir if session is not None else "",
    }
    if self.save_file_prefix:
        env["VERL_PROFILE_ROLE"] = str(self.save_file_prefix)
    if self._tool == "nsys":
        theirs = sys.modules.get("verl.utils.profiler.nvtx_profile")
        env["VERL_PROFILE_RAY_NSIGHT_DIR"] = str(getattr(theirs, "RAY_NSIGHT_LOG_DIR", RAY_NSIGHT_LOG_DIR))
    return env


def takes_part(profiler: Any) -> bool:
    """Whether a call on this profiler's worker belongs in the window: it was started, or shares a process with one that was."""
    return bool(profiler._enable and profiler._this_rank and (profiler._this_step or process.active))


def annotated(
    function: F,
    message: str | None,
    color: str | None,
    domain: str | None,
    category: str | None,
    role: str | None,
    over_mini_batches: bool = False,
) -> F:
    """``function``, a method of a class whose instances have ``profiler``, as a phase; its form and signature stay."""
    label = str(message or role or getattr(function, "__name__", "phase"))
    if over_mini_batches:
        scheduled.add(label)
    timed: Any = timer(label, color=color or "", domain=domain or "", category=category or "")(function)

    def choose(instance: object) -> Any:
        profiler = getattr(instance, "profiler", None)
        entrance = gate.entrance
        if entrance is None or profiler is None or takes_part(profiler):
            return timed
        # a role that is off must not open a window of its own in somebody else's step
        return function if entrance.opens_by_phase() else timed

    return by_form(function, choose)


class DistProfiler:
    """verl's dispatcher. ``start``/``stop`` come from the trainer's loop, ``annotate`` marks the worker's phases.

    Args:
        rank: global rank of the worker (a replica's number for inference servers).
        config: :class:`ProfilerConfig`, or verl's own.
        tool_config: options of the tool; ``config.tool_config`` when ``None``.
        save_file_prefix: the worker's role.
    """

    def __init__(
        self,
        rank: int,
        config: object = None,
        tool_config: object = None,
        save_file_prefix: str | None = None,
        **kwargs: object,
    ) -> None:
        if kwargs:
            raise TypeError(f"DistProfiler: unknown arguments {', '.join(sorted(kwargs))}")
        prepare(self, rank, config, tool_config, save_file_prefix)

    start, stop = start, stop

    def check_enable(self) -> bool:
        """Whether the configuration says profile."""
        return bool(self._enable)  # type: ignore[attr-defined]

    def check_this_rank(self) -> bool:
        """Whether this rank is selected."""
        return bool(self._this_rank)  # type: ignore[attr-defined]

    def check_this_step(self) -> bool:
        """Whether a step that is profiled is running."""
        return bool(self._this_step)  # type: ignore[attr-defined]

    def is_discrete_mode(self) -> bool:
        """Whether each phase has a window of its own."""
        return bool(self._discrete)  # type: ignore[attr-defined]

    def step(self) -> None:
        """Nothing to do: a schedule counts the calls of ``train_batch`` by itself."""

    def run_finish_hook(self, run_command: bool = True) -> None:
        """Run the finish command, for drivers that stop by other means."""
        if self.check_enable() and run_command:
            finish(self)

    @classmethod
    def annotate(
        cls,
        message: str | None = None,
        color: str | None = None,
        domain: str | None = None,
        category: str | None = None,
        **kwargs_outer: Any,
    ) -> Callable[[F], F]:
        """Decorate a method of a worker that has ``self.profiler``; the label is ``message``, ``role`` or the name."""

        def decorator(function: F) -> F:
            role, over = kwargs_outer.get("role"), bool(kwargs_outer.get("scheduled"))
            return annotated(function, message, color, domain, category, role, over)

        return decorator


class DistProfilerExtension:
    """Mixin of verl's workers: the calls that the trainer makes on all ranks."""

    def __init__(self, profiler: DistProfiler) -> None:
        self.profiler = profiler

    def start_profile(self, **kwargs: object) -> None:
        """See :meth:`DistProfiler.start`."""
        self.profiler.start(**kwargs)

    def stop_profile(self, run_command: bool = True) -> None:
        """See :meth:`DistProfiler.stop`."""
        self.profiler.stop(run_command=run_command)

    def step_profile(self) -> None:
        """See :meth:`DistProfiler.step`."""
        self.profiler.step()
