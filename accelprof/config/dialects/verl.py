"""verl's profiling configuration, in all four of its generations, as a plan of ours.

The generation is recognised by its keys. A key's meaning is the one of that generation's code; where its guide says
something else, a note says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from accelprof.config.dialect import Dialect, Translation
from accelprof.config.dialects import verl_keys as keys
from accelprof.config.dialects.reading import SAME_WORD, Draft, Source
from accelprof.config.dialects.verl_early import translate_early
from accelprof.config.dialects.verl_releases import Release, ask, release_of
from accelprof.config.dialects.verl_roles import ROLES, Role, add_rules, agree, captures, nsys_tool, say_off
from accelprof.config.dialects.verl_tools import token_window, tool_options, update_schedule
from accelprof.errors import nearest_word
from accelprof.numberset import LARGEST

#: tools that verl's inference servers can drive
AGENT_LOOP_TOOLS = ("torch", "npu")


class VerlDialect(Dialect):
    """See the module.

    Args:
        rollout_ranks: how ``ranks`` of an agent-loop rollout are meant: ``replica``, ``global``, or ``auto`` (global
            ranks from v0.9.1 on, replicas before, as the code of each does). ``global_profiler.rollout_ranks`` in the file
            says the same and wins.

    Names of keys are checked by generation, meanings follow the release (:mod:`~accelprof.config.dialects.verl_releases`).
    """

    name: ClassVar[str] = "verl"
    known_by: ClassVar[str] = "global_profiler, actor_rollout_ref or trainer.profile_steps"

    def __init__(self, rollout_ranks: str = "auto") -> None:
        self.rollout_ranks = rollout_ranks

    def detects(self, mapping: Mapping[str, object]) -> bool:
        words = (*keys.TRAINER_AB, "profile_interval")
        if any(nearest_word(str(key), words, SAME_WORD) or key in words for key in Source(mapping).section("trainer")):
            return True
        return "global_profiler" in mapping or "actor_rollout_ref" in mapping

    def knows(self, path: str, mapping: Mapping[str, object]) -> bool:
        own = (f"global_profiler.{keys.ROLLOUT_RANKS}", f"global_profiler.{keys.VERSION}")
        if any("_target_" in section for section in _sections(mapping)):
            return path in own  # a composed file has every key that its release knows
        inside = (
            "global_profiler",
            "profiler",
            keys.HYBRID_PROFILER,
            *(f"trainer.{key}" for key in (*keys.TRAINER_AB, "profile_interval")),
            *(f"{role}.{key}" for role in keys.EVERY_ROLE for key in ("profiler", *keys.ROLE_A)),
        )
        return path in keys.READ or any(path == place or path.startswith(place + ".") for place in inside)

    def own_word(self, word: str, value: object, mapping: Mapping[str, object]) -> str:
        known = word == "tool" and value in keys.TOOLS and value not in keys.NOT_PROFILERS
        late = known and keys.generation_of(Source(mapping))[0] in "cd"
        return "global_profiler.tool" if late else ""  # which options and which discrete are read hangs on it

    def hint(self, mapping: Mapping[str, object]) -> str:
        found = set(mapping)
        if found & {"worker_nsight_options", "controller_nsight_options"}:
            return "nsys options of verl: they stand under global_profiler.global_tool_config.nsys (v0.6 on) or trainer (before)"
        if found and found <= {*keys.TOOLS, "_target_"} and all(isinstance(mapping[key], Mapping) for key in found):
            return "the tools of a verl profiler: they stand under <role>.profiler.tool_config, for instance actor_rollout_ref.actor.profiler.tool_config"
        if "profiler" in found and isinstance(mapping["profiler"], Mapping):
            return (
                "a profiler section of verl: a role has it (actor_rollout_ref.actor.profiler, critic.profiler), steps stand "
                "under global_profiler.steps; give the trainer's whole file, or these keys at their places in it"
            )
        if found & {"enable", "all_ranks", "tool_config"} and found <= {*keys.ROLE_C, *keys.ROLE_D, "_target_"}:
            return "a role's profiler section of verl: it stands under actor_rollout_ref.actor.profiler, critic.profiler and their like"
        if found & {"profile_continuous_steps", "global_tool_config", "save_path"}:
            return "verl's global_profiler alone: put it under that key of the trainer's file"
        if found and found <= {"actor", "rollout", "ref", "model", "hybrid_engine"}:
            return "the roles of verl's hybrid worker: they stand under actor_rollout_ref"
        return ""

    def translate(self, mapping: Mapping[str, object]) -> Translation:
        source, draft = Source(mapping), Draft()
        generation, foreign = keys.generation_of(source)
        for sign in foreign:
            _refuse_foreign(source, sign, generation)
        _check_spelling(source)
        if mapping.get("defaults"):
            source.note("defaults", "info", "this file is composed by Hydra; what its defaults add is not seen here")
        if source.has("ray_kwargs.timeline_json_file"):
            source.note("ray_kwargs.timeline_json_file", "info", "Ray's own timeline; left to verl")
        if generation in "ab":
            translate_early(source, draft, generation)
        else:
            _translate_late(source, draft, generation, release_of(source), self.rollout_ranks)
        return source.finish(draft, generation)


def _sections(mapping: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    source = Source(mapping)
    for path in ("global_profiler", "profiler", keys.HYBRID_PROFILER, *keys.EVERY_ROLE):
        yield source.section(path if path.endswith("profiler") else f"{path}.profiler")


def _check_spelling(source: Source) -> None:
    source.check_spelling("", ("global_profiler", "actor_rollout_ref", "ray_kwargs"))
    source.check_spelling("trainer", (*keys.TRAINER_AB, "profile_interval"))
    source.check_spelling(keys.HYBRID_GROUP, ("profiler",))
    for path in keys.EVERY_ROLE:  # ``profile`` is Megatron's own block of v0.4 and v0.5
        source.check_spelling(path, ("profiler", *keys.ROLE_A), others=("profile",))


def _refuse_foreign(source: Source, sign: keys.Sign, generation: str) -> None:
    role, _, key = sign.path.rpartition(".")
    newer = {
        "trainer.profile_steps": "global_profiler.steps",
        "trainer.worker_nsight_options": "global_profiler.global_tool_config.nsys.worker_nsight_options",
        "trainer.controller_nsight_options": "global_profiler.global_tool_config.nsys.controller_nsight_options",
    }.get(sign.path, "")
    if key in keys.ROLE_A:
        name = keys.ROLE_A[key]
        newer = f"{role}.{'profiler.tool_config.<tool>.discrete' if generation in 'cd' and key == 'profile_discrete' else name}"
    elif key == "discrete":
        newer = f"{role}.tool_config.<tool>.discrete"
    elif generation == "a" and ".profiler." in sign.path:
        newer = f"{role.rpartition('.')[0]}.profile_{'ranks_all' if key == 'all_ranks' else key}"
    belongs = " and ".join(f"{letter} ({keys.WHEN[letter]})" for letter in sign.generation)
    source.refuse(
        sign.path,
        f"belongs to generation {belongs}, and this file is generation {generation} ({keys.WHEN[generation]})",
        value=sign.value if not isinstance(sign.value, Mapping) else dict(sign.value),
        mend=newer or "keep the keys of one generation",
    )


# --- (c) and (d) ------------------------------------------------------------------------------------------------------


def _translate_late(source: Source, draft: Draft, generation: str, release: Release, rollout_ranks: str) -> None:
    late = generation == "d"
    source.note("global_profiler", "info", f"read as a file of verl {release} ({release.how})")
    known = (*keys.GLOBAL_C, *(keys.GLOBAL_D if late else ()), *keys.GLOBAL_LEFT, keys.ROLLOUT_RANKS, keys.VERSION)
    source.check_keys("global_profiler", known, keys.HINTS_GLOBAL, open_to_others=True)
    shared = source.mapping_at("global_profiler.global_tool_config")
    source.check_keys("global_profiler.global_tool_config", keys.TOOLS, open_to_others=True)
    for name in shared:
        if name in keys.TOOLS and isinstance(shared[name], Mapping):
            where = f"global_profiler.global_tool_config.{name}"
            source.check_keys(where, keys.GLOBAL_TOOL_KEYS[name], open_to_others=True)
    tool = source.choice("global_profiler.tool", keys.TOOLS, source.choice("profiler.tool", keys.TOOLS))
    steps: Sequence[int] | None
    steps, where = source.numbers("global_profiler.steps"), "global_profiler.steps"
    if source.has("trainer.profile_interval"):
        steps, where = _interval(source), "trainer.profile_interval"
    merge = source.flag("global_profiler.profile_continuous_steps")
    roles = [role for name in ROLES if (role := _late_role(source, name, tool, late, release)) is not None]
    if source.has("profiler"):
        roles.append(_profiler_section(source, "sft", "profiler", tool, late, release))
    if where == "trainer.profile_interval" and not any(role.enabled and role.discrete for role in roles):
        merge = True  # the trainer starts its profiler at the first step and stops it at the last
        for role in roles:
            if role.schedule is not None:
                role.schedule["per"] = "process"
    _follow_actor(source, roles)
    agent_loop = (
        source.get("actor_rollout_ref.rollout.mode", "async" if release.since((0, 7, 0)) else "sync") == "async"
    )
    rollout = next((role for role in roles if role.name == "rollout"), None)
    if rollout is not None and agent_loop:
        _agent_loop(source, roles, rollout, release, rollout_ranks)
    workers = [role for role in roles if role.enabled and role.name in keys.HYBRID and role.replicas is None]
    agree(source, workers, "they share one process")
    for role in roles:
        if merge and role.enabled and role.discrete:
            source.refuse(
                "global_profiler.profile_continuous_steps",
                f"adjacent steps cannot share a capture while {role.discrete_path} makes one per phase",
                value=True,
                mend=f"{role.discrete_path}: false, or profile_continuous_steps: false",
            )
    _say_shared(source, [role for role in roles if role.name in keys.HYBRID and role.replicas is None])
    if source.has(keys.HYBRID_PROFILER):
        said = "v0.5's; from v0.6 on each role's own counts: actor_rollout_ref.actor.profiler"
        source.note(keys.HYBRID_PROFILER, "dropped", said)
    say_off(source, roles, steps, where, "actor_rollout_ref.actor.profiler.enable")
    add_rules(source, draft, roles, steps, where, tool)
    if merge:
        draft.set("merge_steps", True, where if "interval" in where else "global_profiler.profile_continuous_steps")
    save_path = source.text("global_profiler.save_path", source.text("profiler.save_path", "outputs/profile"))
    draft.set("output_dir", save_path or "outputs/profile", "global_profiler.save_path")
    draft.set("tool", None if tool in keys.NOT_PROFILERS else tool, "global_profiler.tool")
    if tool is None and not any(role.enabled and role.tool for role in roles):
        said = (
            "null: verl profiles nothing, whatever the roles say; a tool would be one of nsys, npu, torch, torch_memory"
        )
        source.note("global_profiler.tool", "off", said)
        if steps:
            draft.set("enabled", False, "global_profiler.tool")
    elif tool in keys.NOT_PROFILERS:
        _leave_to_verl(source, "global_profiler.tool", str(tool))
    uses_nsys = any(role.enabled and (role.tool or tool) == "nsys" for role in roles)
    if uses_nsys and steps:
        discrete = any(role.discrete for role in roles if role.enabled and (role.tool or tool) == "nsys")
        number = None if discrete else captures(steps, merge)
        nsys_tool(source, draft, "global_profiler.global_tool_config.nsys", number, controller=tool == "nsys")
    for key, text in (
        *keys.GLOBAL_LEFT.items(),
        ("relocate_results", "files lie under output_dir from the start, so none has to be moved"),
        ("finish_hook_cmd", "is run by verl, also with accelprof.compat.install('verl')"),
    ):
        if source.get(f"global_profiler.{key}"):
            source.note(f"global_profiler.{key}", "info" if key == "relocate_results" else "dropped", text)


def _say_shared(source: Source, roles: list[Role]) -> None:
    """A role that is off by a word of its own, in a process that is profiled for another one."""
    on = [role.name for role in roles if role.enabled]
    for role in roles:
        if on and not role.enabled and source.has(role.enable_path) and not role.discrete:
            source.note(
                role.enable_path,
                "info",
                f"it is off, but shares its process with {' and '.join(on)}, whose windows hold what it does there too; "
                "with discrete: true windows are made of phases, and phases says of which",
            )


def _interval(source: Source) -> Sequence[int] | None:
    """``[first, last]`` of an SFT run; ``[-1, -1]`` is off."""
    value = source.get("trainer.profile_interval")
    pair = isinstance(value, (list, tuple)) and len(value) == 2
    if pair and all(type(item) is int and item <= LARGEST for item in value):
        first, last = value
        if 0 <= first <= last:
            return range(first, last + 1)
        if first < 0 and last < 0:
            return None
    source.refuse(
        "trainer.profile_interval",
        "not a first and a last step",
        value=value,
        allowed="[first, last] with first <= last, or [-1, -1] for off",
    )
    return None


def _late_role(source: Source, name: str, global_tool: str | None, late: bool, release: Release) -> Role | None:
    path = next((path for path in keys.ROLE_PATHS[name] if source.mapping_at(f"{path}.profiler")), None)
    return None if path is None else _profiler_section(source, name, f"{path}.profiler", global_tool, late, release)


def _profiler_section(
    source: Source, name: str, path: str, global_tool: str | None, late: bool, release: Release
) -> Role:
    source.check_keys(path, (*keys.ROLE_C, *(keys.ROLE_D if late else ())), keys.HINTS_ROLE, open_to_others=True)
    inherited = source.get(f"{path}.tool") == source.get("global_profiler.tool")
    tool = global_tool if inherited else source.choice(f"{path}.tool", keys.TOOLS, global_tool)
    enabled = source.flag(f"{path}.enable")
    everybody, ranks = source.flag(f"{path}.all_ranks"), source.numbers(f"{path}.ranks")
    configs = source.mapping_at(f"{path}.tool_config")
    source.check_keys(f"{path}.tool_config", keys.TOOLS, open_to_others=True)
    for known in configs:
        if known in keys.TOOLS and isinstance(configs[known], Mapping):
            own = keys.TOOL_KEYS_C.get(known, ()) + (keys.TOOL_KEYS_D.get(known, ()) if late else ())
            source.check_keys(f"{path}.tool_config.{known}", own, open_to_others=True)
    discrete_path = f"{path}.tool_config.{tool}.discrete"
    if tool == "nsys" and not source.has(discrete_path):
        discrete_path = "global_profiler.global_tool_config.nsys.discrete"
    role = Role(
        name,
        path,
        enabled=enabled,
        ranks="all" if everybody else ranks or [0],
        tool=tool,
        discrete=source.flag(discrete_path) if tool in ("nsys", "npu", "torch") else False,
        ranks_path=f"{path}.all_ranks" if everybody else f"{path}.ranks",
        discrete_path=discrete_path,
        enable_path=f"{path}.enable",
    )
    if tool in keys.NOT_PROFILERS:
        if enabled:
            _leave_to_verl(source, f"{path}.tool", str(tool))
        role.enabled, role.tool = False, None
    elif tool is not None and enabled:
        role.options = tool_options(source, f"{path}.tool_config.{tool}", tool, release)
        if tool == "torch":
            role.schedule = update_schedule(source, f"{path}.tool_config.torch.schedule", role.discrete, release)
    if enabled and not everybody and not ranks:
        _empty_ranks(source, role, release)
    own_path, shared_path = source.get(f"{path}.save_path"), source.get("global_profiler.save_path")
    if enabled and own_path and shared_path and own_path != shared_path:
        source.note(f"{path}.save_path", "dropped", f"one output directory for all roles: {shared_path}")
    return role


def _empty_ranks(source: Source, role: Role, release: Release) -> None:
    """``enable`` without ranks is rank 0; before 0.7.1 these tools looked at the list alone, and nobody was in it."""
    path, later = role.ranks_path, release.since((0, 7, 1))
    reading = "empty with enable: rank 0 is profiled, as verl's code does (its guide says: no data)"
    if later is True or role.tool not in ("nsys", "npu", "torch"):
        source.note(path, "doubtful" if source.get(path) is not None else "info", reading)
    elif later is None:
        ask(source, release, path, reading, "verl up to 0.7.0 profiles nobody then")
    else:
        role.enabled = False
        source.note(path, "doubtful", f"empty with enable: nobody is profiled, as in verl {release} with {role.tool}")


def _leave_to_verl(source: Source, path: str, tool: str) -> None:
    source.note(path, "dropped", f"{tool} stays with verl: {keys.NOT_PROFILERS[tool]}")


def _follow_actor(source: Source, roles: list[Role]) -> None:
    by_name = {role.name: role for role in roles}
    actor = by_name.get("actor")
    if actor is None:
        return
    rollout = by_name.get("rollout")
    if rollout is None or not source.has(rollout.enable_path):
        if rollout is not None:
            roles.remove(rollout)
        path = "actor_rollout_ref.rollout.profiler"
        follower = Role(**{**vars(actor), "name": "rollout", "options": dict(actor.options), "schedule": None})
        if rollout is not None and source.has(rollout.ranks_path):
            follower.ranks, follower.ranks_path = rollout.ranks, rollout.ranks_path
        roles.insert(1, follower)
        if actor.enabled:
            source.note(f"{path}.enable", "info", "absent: the rollout follows the actor")
    ref = by_name.get("ref")
    if actor.enabled and (ref is None or not ref.enabled):
        said = "the reference model is not profiled unless it says so (verl's guide claims that it follows the actor)"
        source.note("actor_rollout_ref.ref.profiler.enable", "doubtful", said)


def _agent_loop(source: Source, roles: list[Role], rollout: Role, release: Release, rollout_ranks: str) -> None:
    """The rollout runs in inference servers, processes of their own, whose number is a replica's."""
    path = "actor_rollout_ref.rollout.profiler"
    rollout.replicas = "all"
    actor = next((role for role in roles if role.name == "actor"), None)
    follows = actor is not None and (rollout.enabled, rollout.discrete) == (actor.enabled, actor.discrete)
    if rollout.enabled and rollout.tool is not None and rollout.tool not in AGENT_LOOP_TOOLS:
        said = f"verl's inference servers are profiled with {' or '.join(AGENT_LOOP_TOOLS)} only, not {rollout.tool}"
        source.note(f"{path}.tool", "dropped", said)
        rollout.enabled = False
    elif rollout.enabled and rollout.tool is not None and not rollout.discrete:
        key = f"{path}.tool_config.{rollout.tool}.discrete"
        if follows:
            source.note(key, "dropped", "an agent-loop rollout is profiled only with discrete: true, so it is not")
            rollout.enabled = False
        else:
            said = "an agent-loop rollout is profiled per phase only"
            source.refuse(key, said, value=False, mend=f"{key}: true", allowed="true")
    if not rollout.enabled:
        return
    if rollout.tool in AGENT_LOOP_TOOLS:
        window = token_window(source, f"{path}.tool_config.{rollout.tool}")
        if window is not None:
            rollout.schedule = window
    _say_engine(source, rollout)
    if rollout.ranks == "all":
        return
    meaning = source.choice(f"global_profiler.{keys.ROLLOUT_RANKS}", ("global", "replica"), None)
    if meaning is None:
        meaning = rollout_ranks if rollout_ranks != "auto" else "global" if release.since((0, 9, 1)) else "replica"
        if rollout_ranks == "auto" and release.since((0, 9, 1)) is None and rollout.ranks != [0]:
            ask(
                source,
                release,
                rollout.ranks_path,
                "read as numbers of replicas",
                "from verl 0.9.1 on they are global ranks",
            )
    size = _replica_size(source)
    replicas = sorted({rank // size for rank in rollout.ranks}) if meaning == "global" else list(rollout.ranks)
    count = _replica_count(source, size)
    outside = [number for number in replicas if count is not None and number >= count]
    if outside:
        source.note(
            rollout.ranks_path, "doubtful", f"{outside} out of range: there are {count} replicas of {size} devices each"
        )
    rollout.replicas = [number for number in replicas if number not in outside]
    rollout.ranks = "all"
    source.note(
        rollout.ranks_path,
        "info",
        f"of an agent-loop rollout, read as {meaning} ranks: replicas {rollout.replicas} "
        f"(global_profiler.{keys.ROLLOUT_RANKS}: {'replica' if meaning == 'global' else 'global'} reads them the other way)",
    )


def _say_engine(source: Source, rollout: Role) -> None:
    """The windows of an inference server are recorded by the engine's own profiler, which is set up when it starts."""
    path = "actor_rollout_ref.rollout"
    name = source.known(f"{path}.name")
    engine = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm"}.get(str(name))
    if engine is None:
        source.note(
            f"{path}.name", "info", "the engine's own profiler records the rollout; say of which engine: engines.<name>"
        )
        return
    if engine == "vllm" and rollout.tool == "npu":
        engine = "vllm-ascend"
    words = {"profiler": "torch", "agent_loop": True}
    contents = [word for word in rollout.options.get("contents", ()) if word != "module"]
    if contents:
        words["contents"] = contents
    for key, ours in (("tensor_model_parallel_size", "tensor_parallel"), ("pipeline_model_parallel_size", "pipeline_parallel"),
                      ("data_parallel_size", "data_parallel")):  # fmt: skip
        if (source.number(f"{path}.{key}", 1, 1) or 1) > 1:
            words[ours] = source.number(f"{path}.{key}", 1, 1)
    shown = ", ".join(f"{key}: {json.dumps(value)}" for key, value in words.items())
    source.note(
        f"{path}.name",
        "info",
        f"verl sets up the engine's own profiler; without verl's trainer that is engines: {{{engine}: {{{shown}}}}}, from "
        "which accelprof derives variables or arguments by release",
    )


def _replica_size(source: Source) -> int:
    path = "actor_rollout_ref.rollout"
    size = 1
    for key in ("tensor_model_parallel_size", "data_parallel_size", "pipeline_model_parallel_size"):
        size *= source.number(f"{path}.{key}", 1, 1) or 1
    return size


def _replica_count(source: Source, size: int) -> int | None:
    nodes, devices = source.number("trainer.nnodes"), source.number("trainer.n_gpus_per_node")
    return None if not nodes or not devices else nodes * devices // size
