"""RLinf's ``cluster.profiling`` and ``cluster.tracer`` as a plan of ours."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import ClassVar

from accelprof.config.dialect import Dialect, Translation
from accelprof.config.dialects.nsys_range import own_options
from accelprof.config.dialects.reading import Draft, Source

PROFILING, TRACER = "cluster.profiling", "cluster.tracer"
COMMON = ("backend", "enabled", "worker_groups", "steps", "output_dir")
#: keys of each backend besides the common ones, and our tool
BACKENDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "nsight": ("nsys", ("options", "flags")),
    "rocprof_sys": ("rocprof_sys", ("args", "env")),
}


class RLinfDialect(Dialect):
    """See the module. Steps count from 0, as RLinf's ``global_step`` does."""

    name: ClassVar[str] = "rlinf"
    known_by: ClassVar[str] = "cluster.profiling or cluster.tracer"

    def detects(self, mapping: Mapping[str, object]) -> bool:
        section = Source(mapping).section("cluster")
        return bool({"profiling", "tracer", "component_placement"} & section.keys()) or _from_preset(mapping)

    def knows(self, path: str, mapping: Mapping[str, object]) -> bool:
        inside = (PROFILING, TRACER, "runner.logger.log_path", "runner.logger.experiment_name")
        return any(path == place or path.startswith(place + ".") for place in inside)

    def hint(self, mapping: Mapping[str, object]) -> str:
        found = set(mapping)
        if "backend" in found and found & {"worker_groups", "options", "args", "env", "flags", "steps", "enabled"}:
            return (
                "RLinf's profiling block alone (its preset profile/default.yaml is one): it stands under cluster.profiling; "
                "give the composed file (python main.py --cfg job), or put it there"
            )
        if isinstance(mapping.get("profiling"), Mapping) and found <= {
            "profiling",
            "tracer",
            "num_nodes",
            "component_placement",
        }:
            return "RLinf's cluster section alone: put it under the key cluster"
        if "worker_groups" in found:
            return "worker_groups is RLinf's: the block stands under cluster.profiling, with a backend"
        return ""

    def translate(self, mapping: Mapping[str, object]) -> Translation:
        source, draft = Source(mapping), Draft()
        source.check_spelling("cluster", ("profiling", "tracer"))
        if mapping.get("defaults"):
            source.note("defaults", "info", "this file is composed by Hydra; what its defaults add is not seen here")
            if "profil" in str(mapping["defaults"]) and not source.has(PROFILING):
                source.note(
                    PROFILING,
                    "doubtful",
                    "it comes from a preset among the defaults, which Hydra has yet to put in; give the composed file "
                    "(python main.py --cfg job --resolve)",
                )
        section = source.mapping_at(PROFILING)
        profiling = bool(section) and source.flag(f"{PROFILING}.enabled", True)
        tracing = source.flag(f"{TRACER}.enable")
        if section:
            _check_keys(source)
        if profiling:
            _profiling(source, draft)
        elif tracing:
            _tracer_alone(source, draft)
        else:
            draft.set("enabled", False, f"{PROFILING}.enabled" if section else "")
            source.note(
                f"{PROFILING}.enabled" if section else PROFILING,
                "off",
                "false; it would be on with true"
                if section
                else "absent; it would be on with a backend and worker_groups",
            )
        if source.has(TRACER):
            _tracer(source, profiling and tracing)
        _others(source)
        return source.finish(draft)


def _from_preset(mapping: Mapping[str, object]) -> bool:
    """Whether Hydra has yet to put a preset at ``cluster.profiling``."""
    defaults = mapping.get("defaults")
    names = [str(item) for item in defaults] if isinstance(defaults, list) else []
    return any(PROFILING in name for name in names)


def _check_keys(source: Source) -> None:
    backend = source.choice(f"{PROFILING}.backend", list(BACKENDS))
    own = BACKENDS[backend][1] if backend else tuple(key for _, keys in BACKENDS.values() for key in keys)
    hints = {
        key: f"it belongs to backend {name}; this file has backend {backend}"
        for name, (_, keys) in BACKENDS.items()
        for key in keys
        if key not in own
    }
    source.check_keys(PROFILING, (*COMMON, *own), {**hints, "enable": "it is enabled", "groups": "it is worker_groups"})
    if backend is None and not source.has(f"{PROFILING}.backend"):
        source.refuse(f"{PROFILING}.backend", "must be given", allowed=", ".join(BACKENDS))


def _profiling(source: Source, draft: Draft) -> None:
    backend = source.choice(f"{PROFILING}.backend", list(BACKENDS))
    steps = source.numbers(f"{PROFILING}.steps")
    groups = source.words(f"{PROFILING}.worker_groups")
    if not groups:
        said = "no group is named, so nobody is profiled (as in RLinf); all takes every one"
        source.note(f"{PROFILING}.worker_groups", "off", said)
        draft.set("enabled", False, f"{PROFILING}.worker_groups")
    elif any(group.casefold() == "all" for group in groups):
        draft.set("ranks", "all", f"{PROFILING}.worker_groups")
    else:
        draft.set("groups", {group: {"ranks": "all"} for group in groups}, f"{PROFILING}.worker_groups")
        for group in groups:
            draft.sources[f"groups.{group}"] = draft.sources[f"groups.{group}.ranks"] = f"{PROFILING}.worker_groups"
    if steps is None:
        draft.set("steps", "process", f"{PROFILING}.steps")
        source.note(f"{PROFILING}.steps", "info", "absent: one capture for the whole life of each process")
    elif steps:
        draft.set("steps", steps, f"{PROFILING}.steps")
    else:
        draft.sources["steps"] = f"{PROFILING}.steps"
        said = "[] = off, nothing is wrapped (RLinf wraps, waits for a window and never opens one); steps would be [0]"
        source.note(f"{PROFILING}.steps", "off", said)
    draft.set("output_dir", _output_dir(source), f"{PROFILING}.output_dir")
    if backend is None:
        return
    draft.set("tool", BACKENDS[backend][0], f"{PROFILING}.backend")
    if backend == "nsight":
        _nsight(source, draft, len(steps) if steps else None, by_step=bool(steps))
    else:
        _rocprof(source, draft)


def _output_dir(source: Source) -> str:
    given = source.text(f"{PROFILING}.output_dir")
    if given:
        return given
    log_path = source.text("runner.logger.log_path")
    if log_path is None:
        said = "absent, and runner.logger.log_path too: profiling (RLinf takes a temporary directory)"
        source.note(f"{PROFILING}.output_dir", "changed", said)
        return "profiling"
    derived = os.path.join(log_path, source.text("runner.logger.experiment_name") or "", "profiling")
    source.note(f"{PROFILING}.output_dir", "info", f"absent: {derived}, from runner.logger")
    return derived


def _nsight(source: Source, draft: Draft, windows: int | None, by_step: bool) -> None:
    options = own_options(source, f"{PROFILING}.options", source.mapping_at(f"{PROFILING}.options"), windows, by_step)
    if "o" in options and "output" in options:
        source.refuse(f"{PROFILING}.options.output", "says the same as o; keep one", value=options["output"])
    flags = source.words(f"{PROFILING}.flags") or []
    for flag in flags:
        if flag in options:
            source.refuse(
                f"{PROFILING}.flags", f"{flag!r} stands under options too ({options[flag]!r}); keep one", value=flags
            )
    if options or flags:
        draft.set("tools.nsys", {**options, **({"flags": flags} if flags else {})}, f"{PROFILING}.options")


def _rocprof(source: Source, draft: Draft) -> None:
    """``args`` and ``env`` as they stand: which of them the launcher takes, and what is meant by the others, its tool knows."""
    args, env = source.mapping_at(f"{PROFILING}.args"), source.mapping_at(f"{PROFILING}.env")
    options: dict[str, object] = {}
    if args:
        options["args"] = {str(name): value for name, value in args.items()}
    if env:
        options["env"] = {str(name): str(value) for name, value in env.items()}
    if options:
        draft.set("tools.rocprof_sys", options, PROFILING)


def _tracer(source: Source, with_profiling: bool) -> None:
    source.check_keys(TRACER, ("enable", "output_file"), {"enabled": "it is enable"})
    if with_profiling:
        source.note(f"{TRACER}.enable", "changed", "the timeline is recorded in each window, not over the whole run")
    if source.has(f"{TRACER}.output_file"):
        source.note(
            f"{TRACER}.output_file", "changed", "each process and window has a file of its own, none is appended to"
        )
    elif source.flag(f"{TRACER}.enable"):
        source.note(
            f"{TRACER}.output_file",
            "changed",
            f"absent: each process has a file of its own below {_trace_directory(source)} (RLinf appends to "
            "trace_events.jsonl there)",
        )


def _tracer_alone(source: Source, draft: Draft) -> None:
    """The tracer without a profiler: the timeline of every worker over its whole life."""
    draft.set("tool", None)
    draft.set("timeline", True, f"{TRACER}.enable")
    draft.set("steps", "process", f"{TRACER}.enable")
    draft.set("ranks", "all", f"{TRACER}.enable")
    draft.set("output_dir", _trace_directory(source), f"{TRACER}.output_file")


def _trace_directory(source: Source) -> str:
    given = source.text(f"{TRACER}.output_file")
    log_path = source.text("runner.logger.log_path")
    if given:
        return os.path.dirname(given) or "."
    if log_path is not None:
        return os.path.join(log_path, source.text("runner.logger.experiment_name") or "", "trace")
    return "trace"


def _others(source: Source) -> None:
    if source.get("actor.megatron.use_profiler") is True:
        said = "RLinf's own torch profiler around Megatron; left to RLinf. Do not let both record one window"
        source.note("actor.megatron.use_profiler", "info", said)
    if source.has("rollout.vllm.torch_profiler_dir"):
        source.note("rollout.vllm.torch_profiler_dir", "info", "vLLM's own profiler; left to RLinf")


#: labels that RLinf's own workers give their phases (0.3.0, 0.4 and the guide), for reports: label -> what it covers
PHASES: dict[str, str] = {
    "actor/compute_adv": "advantages and returns of a received batch",
    "actor/recv_traj": "receiving trajectories from the environment or rollout workers",
    "actor/run_training": "the update of the policy",
    "actor/sync_model_to_rollout": "sending new weights to the rollout workers",
    "compute_bootstrap_rewards": "rewards with bootstrapped values",
    "compute_image_rewards": "rewards from images",
    "compute_rewards": "rewards of a batch",
    "construct_rollout_batch": "putting a training batch together",
    "drain_received_trajectories": "taking what has arrived from the channel",
    "env/bootstrap_step": "the first step of an episode",
    "env/interact": "environment and policy taking turns over an episode",
    "env/interact_once": "one round of interaction",
    "env/recv_actions": "receiving actions from the rollout workers",
    "env/send_obs": "sending observations to the rollout workers",
    "env/send_rollout_trajectories": "sending trajectories to the actor",
    "env/step": "one step of the environments",
    "env_interact_step": "one step of the environments",
    "forward_actor": "forward pass of the policy (SAC)",
    "forward_alpha": "loss of the entropy coefficient (SAC)",
    "forward_critic": "forward pass of the critic (SAC)",
    "generate_one_epoch": "one epoch of generation in a rollout worker",
    "get_reward_model_output": "the reward model's forward pass",
    "interact": "environment and policy taking turns",
    "predict": "actions for a batch of observations",
    "prepare_micro_batches": "splitting a batch",
    "remove_below": "dropping what is too old from the replay buffer",
    "rollout/generate": "generating responses or trajectories",
    "rollout/generate_epoch": "one epoch of generation in a rollout worker",
    "rollout/poll_weight_sync": "asking whether new weights are there",
    "rollout/predict": "actions for a batch of observations",
    "rollout/recv_obs": "receiving observations from the environments",
    "rollout/request_weight_sync": "asking for new weights",
    "rollout/send_actions": "sending actions to the environments",
    "rollout/send_traj": "sending trajectories to the actor",
    "run_eval": "evaluation",
    "run_interact_once": "one round of interaction",
    "run_training": "the update of a worker",
    "sample": "drawing from the replay buffer",
    "update_one_epoch": "one epoch of updates",
    "wait_for_rollout_store_ready": "waiting for the store of rollouts",
}
