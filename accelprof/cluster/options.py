"""Actor options for a wrapped start: what the plan needs, merged into what the user already has."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import ray

from accelprof.catalogue import Catalogue
from accelprof.cluster import nodes
from accelprof.contracts.targets import WRAPPED_ENV, Assignment, Launch, Target
from accelprof.environment import LISTS, join_env
from accelprof.errors import ConfigError, PluginError, Problem, UnavailableError
from accelprof.launch.command import assemble, program, split_command, to_shell, wrapped_by
from accelprof.launch.compose import compose
from accelprof.launch.trial import trial as run_trial
from accelprof.output.layout import Layout
from accelprof.planning.plan import Plan

#: Ray's own profiler plug-ins: each replaces the worker's command, whatever ``py_executable`` says
RAY_PROFILERS = ("nsight", "_nsight", "rocprof_sys", "_rocprof_sys")
#: runtime environments that bring an interpreter and activate it, so that a bare ``python`` is theirs
RAY_INTERPRETERS = ("pip", "uv", "conda")
#: runtime environments in which the worker's command is made by Ray alone
RAY_CONTAINERS = ("container", "image_uri")
#: resources of Ray that are no device
PLAIN_RESOURCES = frozenset({"cpu", "memory", "object_store_memory"})
PREFLIGHT_TIMEOUT_S = 90.0


@dataclass
class PlannedLaunch:
    """What :meth:`Controller.options` said about one worker that does not exist yet."""

    assignment: Assignment
    launch: Launch = field(default_factory=Launch)

    @property
    def target(self) -> Target:
        return self.assignment.target


def sees_devices(options: Mapping[str, Any], catalogue: Catalogue) -> bool | None:
    """Whether Ray gives the actor a device; ``None`` when its options do not tell."""
    if options.get("num_gpus"):
        return True
    for name, amount in dict(options.get("resources") or {}).items():
        if amount and str(name).casefold() not in PLAIN_RESOURCES:
            try:
                catalogue.backend_class(str(name))
            except PluginError:
                continue  # a resource of the user's own
            return True
    return None


def wrap(
    catalogue: Catalogue,
    plan: Plan,
    planned: PlannedLaunch,
    run_dir: str,
    given: Mapping[str, Any],
    preflight: Preflight,
    say: Callable[[str], object],
) -> dict[str, Any]:
    """``given`` with the launch of ``planned`` in its ``runtime_env``; unchanged where none is needed.

    Raises:
        ConfigError: as :meth:`Controller.options`.
        UnavailableError: the tool does not start where the actor may run.
    """
    result = dict(given)
    env: dict[str, Any] = dict(given.get("runtime_env") or {})
    env_vars: dict[str, str] = dict(env.get("env_vars") or {})
    if env_vars.get(WRAPPED_ENV):
        return result  # these options come from here already
    raw, interpreter = _interpreter(env)
    target = replace(planned.target, interpreter=tuple(interpreter))
    planned.assignment = replace(planned.assignment, target=target)
    layout = Layout(run_dir)
    launch = compose(catalogue, plan.uses_of(planned.assignment), planned.assignment, layout.target_dir(target))
    if launch.mode == "none":
        return result
    if launch.mode != "env" and wrapped_by(interpreter, [program(launch.argv)]):
        say(
            f"{target.label}: py_executable starts with {program(launch.argv)} already and is left as it is; its options are yours, not those of the plan"
        )
        return result
    _refuse_others(env, launch, target, planned.assignment)
    claim = _claim(layout, launch, target)
    if claim is not None:
        launch = replace(launch, make_dirs=tuple(dict.fromkeys((*launch.make_dirs, layout.workers_dir))))
    for name in sorted(env_vars.keys() & launch.env.keys()):
        if name not in LISTS and env_vars[name] != launch.env[name]:
            say(
                f"{target.label}: env_vars has {name}={env_vars[name]!r}, which is kept; {planned.assignment.tool} wanted {launch.env[name]!r}"
            )
    ours = {name: value for name, value in launch.env.items() if name in LISTS or name not in env_vars}
    env["env_vars"] = join_env(env_vars, ours)
    argv = assemble(launch, interpreter, claim)
    if argv != interpreter:
        # the user's own words stay as they are: bash expands what is in them, as it would have without us
        keeps = launch.mode != "replace" and raw
        env["py_executable"] = f"{to_shell(argv[: -len(interpreter)])} {raw}" if keeps else to_shell(argv)
    preflight.check(launch, planned.assignment, env["env_vars"], given.get("scheduling_strategy"), say)
    planned.launch = launch
    result["runtime_env"] = env
    return result


def _claim(layout: Layout, launch: Launch, target: Target) -> str | None:
    """The file that the wrapped process takes, so that actors it creates are not wrapped with it.

    A target without rank and replica gets none: the same options may start several actors then, and each is wrapped.
    """
    if target.rank is None and target.replica is None:
        return None
    if launch.mode == "env" and not launch.unset_in_children:
        return None
    return os.path.join(layout.workers_dir, f"{layout.target_name(target)}.{secrets.token_hex(4)}.pid")


def _interpreter(env: Mapping[str, object]) -> tuple[str, list[str]]:
    """The worker's interpreter as the user wrote it (empty: Ray's default) and as argv."""
    job = _job_environment()
    raw = env.get("py_executable") or ("" if _brings_interpreter(env) else job.get("py_executable") or "")
    if not raw and (_brings_interpreter(env) or _brings_interpreter(job)):
        raw = "python"
    return str(raw), split_command(str(raw))


def _brings_interpreter(env: Mapping[str, object]) -> bool:
    return any(env.get(key) for key in RAY_INTERPRETERS)


def _job_environment() -> Mapping[str, Any]:
    if not ray.is_initialized():
        return {}
    found: Mapping[str, Any] = ray.get_runtime_context().runtime_env
    return found


def _refuse_others(env: dict[str, Any], launch: Launch, target: Target, assignment: Assignment) -> None:
    """Whatever of Ray would replace the command that we make."""
    for key in RAY_PROFILERS:
        options = env.get(key)
        if key not in env:
            continue
        if options in (None, {}, "default"):
            del env[key]
            continue
        raise ConfigError(
            Problem(
                f"runtime_env.{key}",
                f"{target.label} would be started by Ray's own profiler and by {assignment.tool}; Ray's wins and the plan is lost",
                value=options,
                mend=f"take it out of runtime_env, and write what you need of it under tools.{assignment.tool}",
            )
        )
    for key in RAY_CONTAINERS:
        if env.get(key) and launch.mode in ("prefix", "replace"):
            raise ConfigError(
                Problem(
                    f"runtime_env.{key}",
                    f"Ray makes the whole command of a worker in a container, so {assignment.tool} cannot start {target.label}",
                    value=env[key],
                    mend="start Ray inside the container, or choose a tool that needs no launch",
                )
            )


class Preflight:
    """Runs a tool's own trial once per node, so that a tool that does not start is an error here and no hanging actor."""

    def __init__(self) -> None:
        self._done: dict[tuple[Any, ...], tuple[bool, str]] = {}

    def check(
        self,
        launch: Launch,
        assignment: Assignment,
        env: Mapping[str, str],
        strategy: object,
        say: Callable[[str], object],
    ) -> None:
        """Raises ``UnavailableError`` when the trial fails on every node where the actor may run; reports the others."""
        if not launch.preflight:
            return
        pinned = getattr(strategy, "node_id", None)
        places: dict[str | None, str] = {None: os.uname().nodename}
        if ray.is_initialized():
            up = nodes.alive()
            places = {node: host for node, host in up.items() if pinned in (None, node)} or dict(up.items())
        trial = tuple(launch.preflight)
        given = {name: value for name, value in env.items() if not name.startswith("ACCELPROF_")}
        key = tuple(sorted(given.items()))
        new = [node for node in places if (node, trial, key) not in self._done]
        calls: dict[str | None, tuple[Any, ...]] = {node: (list(trial), given, PREFLIGHT_TIMEOUT_S) for node in new}
        results, errors = nodes.on_each(calls, run_trial, PREFLIGHT_TIMEOUT_S)
        for node in new:
            self._done[node, trial, key] = results.get(node, (False, errors.get(node, "no answer")))
        failed = {node: self._done[node, trial, key][1] for node in places if not self._done[node, trial, key][0]}
        if not failed:
            return
        where = "; ".join(f"{places[node]}: {why}" for node, why in failed.items())
        text = f"{assignment.tool} does not start ({to_shell(trial)}): {where}"
        if len(failed) == len(places):
            raise UnavailableError(f"{assignment.target.label}: {text}")
        say(f"{text}. Actors placed there would hang; pin the selected ones to other nodes")
