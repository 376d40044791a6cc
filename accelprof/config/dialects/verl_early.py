"""Generations (a) and (b) of verl's profiling configuration: steps under ``trainer``, selections in or under each role.

In (b) v0.4.1's hybrid worker reads the sections of its roles, v0.5's one of its own, ``actor_rollout_ref.profiler``.
"""

from __future__ import annotations

import dataclasses

from accelprof.config.dialects import verl_keys as keys
from accelprof.config.dialects.reading import Draft, Source
from accelprof.config.dialects.verl_roles import ROLES, Role, add_rules, agree, nsys_tool, say_off


def translate_early(source: Source, draft: Draft, generation: str) -> None:
    """Fill ``draft`` from a file of generation ``a`` or ``b``."""
    steps = source.numbers("trainer.profile_steps")
    on_npu = source.get("trainer.device") == "npu"
    shared = _hybrid_roles(source) if generation == "b" and source.has(keys.HYBRID_PROFILER) else []
    others = [name for name in ROLES if not (shared and name in keys.HYBRID)]
    roles = [*shared, *(role for name in others if (role := _early_role(source, name, generation)) is not None)]
    active = [role for role in roles if role.enabled]
    agree(source, active, "all components that are profiled must agree")
    discrete = bool(active and active[0].discrete)
    say_off(source, roles, steps, "trainer.profile_steps", f"{keys.HYBRID_PROFILER}.ranks")
    if steps and not on_npu:
        nsys_tool(source, draft, "trainer", None if discrete else len(steps))
    add_rules(source, draft, roles, steps, "trainer.profile_steps")
    draft.set("tool", "npu" if on_npu else "nsys", "trainer.device" if on_npu else "")
    if on_npu:
        _early_npu(source, draft)


def _hybrid_roles(source: Source) -> list[Role]:
    """What v0.5's hybrid worker reads: one section for all of its roles, and none of theirs."""
    shared = _selected(source, "the hybrid worker", keys.HYBRID_GROUP, "b")
    for name in keys.HYBRID:
        for path in keys.ROLE_PATHS[name]:
            if source.has(f"{path}.profiler"):
                source.note(
                    f"{path}.profiler", "dropped", f"verl 0.5's hybrid worker reads {keys.HYBRID_PROFILER} alone"
                )
    return [dataclasses.replace(shared, name=name) for name in keys.HYBRID]


def _early_role(source: Source, name: str, generation: str) -> Role | None:
    for path in keys.ROLE_PATHS[name]:
        section = source.mapping_at(path)
        if generation == "a":
            known = any(source.has(f"{path}.{old}") or old in section for old in keys.ROLE_A)
        else:
            known = "profiler" in section
        if section and known:
            return _selected(source, name, path, generation)
    return None


def _selected(source: Source, name: str, path: str, generation: str) -> Role:
    """Whom the section at ``path`` selects; in (b) its keys stand under ``profiler``."""
    if generation == "a":
        words = {new.rpartition(".")[2]: f"{path}.{old}" for old, new in keys.ROLE_A.items()}
    else:
        words = {word: f"{path}.profiler.{word}" for word in keys.ROLE_B}
        source.check_keys(f"{path}.profiler", keys.ROLE_B, keys.HINTS_ROLE_B)
    everybody, ranks = source.flag(words["all_ranks"]), source.numbers(words["ranks"])
    if generation == "a" and ranks is None and not everybody and "profile_ranks" in source.mapping_at(path):
        said = "null = no ranks, as the guide's text says; the comment in the guide's example says all ranks"
        source.note(words["ranks"], "doubtful", said)
    elif not ranks and not everybody:
        source.note(words["ranks"], "info", f"no ranks are given, so {name} is not profiled")
    return Role(
        name,
        path,
        enabled=everybody or bool(ranks),
        ranks="all" if everybody else ranks or None,
        tool=None,
        discrete=source.flag(words["discrete"]),
        ranks_path=words["all_ranks"] if everybody else words["ranks"],
        discrete_path=words["discrete"],
        enable_path=words["all_ranks"] if everybody else words["ranks"],
    )


def _early_npu(source: Source, draft: Draft) -> None:
    path = "trainer.npu_profile.options"
    known = ("save_path", "roles", "level", "with_memory", "record_shapes", "with_npu", "with_cpu", "with_module",
             "with_stack", "analysis")  # fmt: skip
    source.check_keys(path, known)
    parts = {"npu": ("with_npu", True), "cpu": ("with_cpu", True), "memory": ("with_memory", False),
             "shapes": ("record_shapes", False), "module": ("with_module", False), "stack": ("with_stack", False)}  # fmt: skip
    contents = [word for word, (key, default) in parts.items() if source.flag(f"{path}.{key}", default)]
    options = {
        "contents": contents,
        "level": source.choice(f"{path}.level", keys.NPU_LEVELS, "level0"),
        "analysis": source.flag(f"{path}.analysis", True),
    }
    draft.set("tools.npu", options, path)
    draft.set("output_dir", source.text(f"{path}.save_path", "./profiler_data"), f"{path}.save_path")
    roles = source.words(f"{path}.roles")
    if roles and roles != ["all"]:
        draft.set("phases", roles, f"{path}.roles")
        source.note(f"{path}.roles", "changed", "the phases that may open a window of their own (discrete)")
