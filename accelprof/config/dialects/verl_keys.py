"""The keys of verl's four generations as data: what each is called, and which generation it belongs to.

(a) mid-2025 draft · (b) v0.4.1-v0.5 · (c) v0.6-v0.7 · (d) v0.8-v0.9.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from accelprof.config.dialects.reading import Source

WHEN = {"a": "mid-2025 draft", "b": "v0.4.1-v0.5", "c": "v0.6-v0.7", "d": "v0.8-v0.9"}

#: where the roles stand in the file, by role; the first path is the one to recommend
ROLE_PATHS: dict[str, tuple[str, ...]] = {
    "actor": ("actor_rollout_ref.actor",),
    "rollout": ("actor_rollout_ref.rollout",),
    "ref": ("actor_rollout_ref.ref",),
    "critic": ("critic", "actor_rollout_ref.critic"),
    "reward_model": ("reward_model", "actor_rollout_ref.rm"),
}
#: all of them, by role
EVERY_ROLE = tuple(path for paths in ROLE_PATHS.values() for path in paths)
HYBRID = ("actor", "rollout", "ref")
HYBRID_GROUP = "actor_rollout_ref"
#: v0.5's section for all roles of the hybrid worker
HYBRID_PROFILER = f"{HYBRID_GROUP}.profiler"

TOOLS = ("nsys", "npu", "torch", "torch_memory", "precision_debugger", "memray")
#: tools that stay with verl, and why
NOT_PROFILERS = {
    "precision_debugger": "msprobe's precision debugger compares numbers and profiles nothing",
    "memray": "verl's own tracker of a process's native allocations (after 0.9) has no tool here that would take its place",
}

NPU_CONTENTS = ("npu", "cpu", "memory", "shapes", "module", "stack")
NPU_LEVELS = ("level_none", "level0", "level1", "level2")
TORCH_CONTENTS = ("cuda", "cpu", "memory", "shapes", "stack")

#: keys under `trainer` that are about profiling
TRAINER_AB = ("profile_steps", "controller_nsight_options", "worker_nsight_options", "npu_profile")
#: keys that stand in a role itself (a), and what became of them
ROLE_A = {
    "profile_ranks": "profiler.ranks",
    "profile_ranks_all": "profiler.all_ranks",
    "profile_discrete": "profiler.discrete",
}
ROLE_B = ("discrete", "all_ranks", "ranks")
#: keys under a role's `profiler` in (c); those of (d) in addition
ROLE_C = ("tool", "enable", "all_ranks", "ranks", "save_path", "tool_config", "global_tool_config")
ROLE_D = ("relocate_results", "finish_hook_cmd", "finish_hook_all_ranks", "finish_hook_ranks")
GLOBAL_C = ("tool", "steps", "profile_continuous_steps", "save_path", "global_tool_config")
GLOBAL_D = ROLE_D
#: keys of main (0.10 to be) that stay with verl, and why
GLOBAL_LEFT = {
    "context_monitor_tool": "verl's online monitors (rl_insight) stay verl's",
    "gpu_stall_diagnostics": "verl's own sampler of how busy devices are stays verl's",
}
#: keys outside of its sections that a translation reads
READ = (
    "actor_rollout_ref.rollout.mode",
    "actor_rollout_ref.rollout.name",
    "actor_rollout_ref.rollout.response_length",
    "actor_rollout_ref.rollout.tensor_model_parallel_size",
    "actor_rollout_ref.rollout.data_parallel_size",
    "actor_rollout_ref.rollout.pipeline_model_parallel_size",
    "data.max_response_length",
    "trainer.device",
    "trainer.nnodes",
    "trainer.n_gpus_per_node",
    "ray_kwargs.timeline_json_file",
)
#: our own addition: how the ranks of an agent-loop rollout are meant
ROLLOUT_RANKS = "rollout_ranks"
#: our own addition: the release whose meaning is wanted
VERSION = "verl_version"

TOOL_KEYS_C: dict[str, tuple[str, ...]] = {
    "nsys": ("discrete", "name"),
    "npu": ("contents", "level", "analysis", "discrete", "name"),
    "torch": ("contents", "discrete", "step_start", "step_end", "manual_save", "name"),
    "torch_memory": ("trace_alloc_max_entries", "stack_depth", "name"),
}
TOOL_KEYS_D: dict[str, tuple[str, ...]] = {
    "npu": ("profile_token_start", "profile_token_end"),
    "torch": ("profile_token_start", "profile_token_end", "schedule"),
    "torch_memory": ("memory_snapshot_num_steps",),
    "precision_debugger": ("config_path", "steps", "stages", "strict", "name"),
    "memray": ("memory_snapshot_num_steps", "name"),
}
GLOBAL_TOOL_KEYS: dict[str, tuple[str, ...]] = {
    "nsys": ("discrete", "controller_nsight_options", "worker_nsight_options", "name"),
    "npu": (*TOOL_KEYS_C["npu"], *TOOL_KEYS_D["npu"]),
    "torch": (*TOOL_KEYS_C["torch"], *TOOL_KEYS_D["torch"]),
    "torch_memory": (
        *TOOL_KEYS_C["torch_memory"], *TOOL_KEYS_D["torch_memory"], "context", "stacks", "kw_args",
    ),
    "precision_debugger": TOOL_KEYS_D["precision_debugger"],
    "memray": TOOL_KEYS_D["memray"],
}  # fmt: skip
SCHEDULE_KEYS = ("skip_first", "wait", "warmup", "active", "repeat", "name")

#: where a misplaced key belongs
HINTS_GLOBAL = {
    "discrete": "it is global_profiler.global_tool_config.nsys.discrete (the guide's global_profiler.discrete does not exist)",
    "enable": "say it for a role: actor_rollout_ref.actor.profiler.enable",
    "ranks": "say it for a role: actor_rollout_ref.actor.profiler.ranks",
    "all_ranks": "say it for a role: actor_rollout_ref.actor.profiler.all_ranks",
    "profile_steps": "it is global_profiler.steps",
    "tool_config": "it is global_profiler.global_tool_config, or tool_config under a role's profiler",
}
HINTS_ROLE = {
    "steps": "it is global_profiler.steps (the guide's profiler.steps does not exist)",
    "discrete": "it belongs to generation b (v0.4.1-v0.5); from v0.6 on it is tool_config.<tool>.discrete",
    "contents": "it is tool_config.<tool>.contents",
    "level": "it is tool_config.npu.level",
    "schedule": "it is tool_config.torch.schedule",
}
HINTS_ROLE_B = {
    "enable": "it belongs to generation c (v0.6-v0.7); in generation b a role is on when ranks or all_ranks is given",
    "tool_config": "it belongs to generation c (v0.6-v0.7), beside global_profiler",
    "tool": "it belongs to generation c (v0.6-v0.7), beside global_profiler",
}


class Sign(NamedTuple):
    """A key of one generation that the file holds with a value."""

    path: str
    generation: str
    value: Any


def signs(source: Source) -> Iterator[Sign]:
    """Every key of the file that only one generation (or that one and later ones) has; ``null`` counts as absent."""
    trainer, shared = source.section("trainer"), source.section("global_profiler")
    for key in TRAINER_AB:
        if trainer.get(key) is not None:
            yield Sign(f"trainer.{key}", "ab", trainer[key])
    if shared.keys() - {ROLLOUT_RANKS, VERSION}:
        yield Sign("global_profiler", "cd", shared)
        for key in GLOBAL_D:
            if shared.get(key) is not None:
                yield Sign(f"global_profiler.{key}", "d", key)
    if trainer.get("profile_interval") is not None:
        yield Sign("trainer.profile_interval", "cd", trainer["profile_interval"])
    yield from _late_signs(source, "profiler")
    if source.section(HYBRID_PROFILER):
        yield Sign(HYBRID_PROFILER, "b", source.section(HYBRID_PROFILER))
    for paths in ROLE_PATHS.values():
        for path in paths:
            yield from _role_signs(source, path)


def _role_signs(source: Source, path: str) -> Iterator[Sign]:
    section = source.section(path)
    for key in ROLE_A:
        if section.get(key) is not None:
            yield Sign(f"{path}.{key}", "a", section[key])
    profiler = source.section(f"{path}.profiler")
    if profiler.get("discrete") is not None:
        yield Sign(f"{path}.profiler.discrete", "b", profiler["discrete"])
    yield from _late_signs(source, f"{path}.profiler")


def _late_signs(source: Source, path: str) -> Iterator[Sign]:
    profiler = source.section(path)
    for key in ("enable", "tool", "tool_config"):
        if profiler.get(key) is not None:
            yield Sign(f"{path}.{key}", "cd", profiler[key])
    for key in ROLE_D:
        if profiler.get(key) is not None:
            yield Sign(f"{path}.{key}", "d", profiler[key])
    for tool, keys in TOOL_KEYS_D.items():
        options = source.section(f"{path}.tool_config.{tool}")
        for key in keys:
            if options.get(key) is not None:
                yield Sign(f"{path}.tool_config.{tool}.{key}", "d", options[key])


def generation_of(source: Source) -> tuple[str, list[Sign]]:
    """The generation, and the signs of other ones that stand beside it.

    ``d`` where a key of it is there, else ``c`` where ``global_profiler`` or a role's ``enable`` is, else ``a`` or ``b``.
    """
    found = list(signs(source))
    generations = {sign.generation for sign in found}
    if generations & {"cd", "d"}:
        generation = "d" if "d" in generations else "c"
    elif "a" in generations and "b" not in generations:
        generation = "a"
    else:
        generation = "b"
    return generation, [sign for sign in found if generation not in sign.generation and not _harmless(sign, generation)]


def _harmless(sign: Sign, generation: str) -> bool:
    """Leftovers that say nothing: a file v0.6 and later still ship, and keys of (c) that (d) still has."""
    return sign.path in ("trainer.npu_profile", HYBRID_PROFILER) or (generation == "d" and "c" in sign.generation)
