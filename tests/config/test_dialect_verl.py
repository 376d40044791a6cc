"""verl's four generations: the configurations its guides show, and the plan each gives."""

from __future__ import annotations

import pytest

from accelprof.config.dialects import BUILTIN, VerlDialect
from accelprof.config.load import load_config
from accelprof.contracts.targets import Target
from accelprof.errors import ConfigError
from tests.planning.plans import make_plan

HYBRID = ("actor", "rollout", "ref")


def dotted(keys, **more):
    """``{"a.b": 1}`` as ``{"a": {"b": 1}}``."""
    result = {}
    for path, value in {**keys, **more}.items():
        here = result
        *parents, last = path.split(".")
        for part in parents:
            here = here.setdefault(part, {})
        here[last] = value
    return result


def load(keys):
    return load_config(dotted(keys), dialects=BUILTIN)


def plan(keys):
    return make_plan(load(keys).config)


def windows(plan, group, rank=0, roles=(), replica=None, world_size=8):
    """``(roles that asked, windows)`` of one process; ``None`` when it is neither wrapped nor opens anything."""
    row = plan.assign(Target(group, tuple(roles), rank, world_size, replica))
    return (sorted(row.asked_by), list(row.windows)) if row.selected else None


def hybrid(plan, rank, roles=HYBRID):
    return windows(plan, "actor_rollout_ref", rank, roles)


def notes(loaded):
    return {note.path: f"{note.kind}: {note.text}" for note in loaded.notes}


ARR = "actor_rollout_ref"
STEPS = [(1,), (2,), (5,)]

EARLY_A = {
    "trainer.profile_steps": [1, 2, 5],
    f"{ARR}.hybrid_engine": True,
    f"{ARR}.actor.profile_ranks": [0, 1],
    f"{ARR}.actor.profile_discrete": False,
    f"{ARR}.rollout.profile_ranks": None,
    f"{ARR}.rollout.profile_discrete": False,
    f"{ARR}.ref.profile_discrete": False,
    "critic.profile_ranks": [0],
}
BLOCK_B = {"discrete": False, "all_ranks": False, "ranks": [0, 1]}
EARLY_B = {
    "trainer.profile_steps": [1, 2, 5],
    **{f"{path}.profiler": BLOCK_B for path in (f"{ARR}.actor", f"{ARR}.rollout", f"{ARR}.ref", "critic")},
}
LATE_C = {
    "global_profiler.tool": "nsys",
    "global_profiler.steps": [1, 2, 5],
    "global_profiler.profile_continuous_steps": True,
    f"{ARR}.actor.profiler.enable": True,
    f"{ARR}.actor.profiler.all_ranks": True,
}
AGENT_C = {
    "global_profiler.tool": "npu",
    "global_profiler.steps": [1],
    f"{ARR}.rollout.mode": "async",
    f"{ARR}.actor.profiler": {"enable": True, "ranks": [0], "tool_config": {"npu": {"discrete": True}}},
    f"{ARR}.rollout.profiler": {"enable": True, "ranks": [0], "tool_config": {"npu": {"discrete": True}}},
}


def refused(keys):
    with pytest.raises(ConfigError) as caught:
        load(keys)
    return {problem.path: str(problem) for problem in caught.value.problems}


# --- the guides' examples, in the order of their table ------------------------------------------------------------------


def test_e1_no_steps_is_off():
    """E1: without steps nothing is wrapped and nothing opens, whatever the roles say."""
    made = plan({**EARLY_A, "trainer.profile_steps": None})
    assert [hybrid(made, rank) for rank in range(4)] == [None] * 4
    assert windows(made, "critic") is None


def test_e2_draft_of_2025():
    """E2: the draft's ranks; a null list of ranks is nobody, with a warning that the guide contradicts itself."""
    loaded = load(EARLY_A)
    made = make_plan(loaded.config)
    assert loaded.generation == "a"
    assert hybrid(made, 0) == hybrid(made, 1) == (["actor"], STEPS)
    assert hybrid(made, 2) is None
    assert windows(made, "critic", 0, ["critic"]) == (["critic"], STEPS)
    assert windows(made, "critic", 1, ["critic"]) is None
    row = made.assign(Target(ARR, HYBRID, 0))
    assert (row.tool, row.count.exact, row.discrete) == ("nsys", 3, False)
    assert notes(loaded)[f"{ARR}.rollout.profile_ranks"].startswith("doubtful: null = no ranks")


def test_e3_draft_discrete():
    """E3: discrete makes a window per phase; a component without ranks does not contradict the others."""
    made = plan({**EARLY_A, **{f"{ARR}.{role}.profile_discrete": True for role in ("actor", "rollout")},
                 "critic.profile_discrete": True})  # fmt: skip
    row = made.assign(Target(ARR, HYBRID, 0))
    assert row.discrete
    assert (list(row.steps), row.count.exact) == ([1, 2, 5], None)
    assert sorted(row.asked_by) == ["actor"]
    assert made.assign(Target("critic", ("critic",), 0)).discrete


def test_e4_components_that_disagree():
    """E4: components that disagree about discrete are refused, and both keys are named."""
    said = refused({"trainer.profile_steps": [1, 2, 5], f"{ARR}.actor.profile_discrete": True,
                    f"{ARR}.actor.profile_ranks": [0], "critic.profile_discrete": False, "critic.profile_ranks": [0]})  # fmt: skip
    assert f"{ARR}.actor.profile_discrete" in said["critic.profile_discrete"]


def test_e5_union_of_colocated_roles():
    """E5: the hybrid worker opens one window a step for all its roles; capture count is exact."""
    loaded = load(EARLY_B)
    made = make_plan(loaded.config)
    assert loaded.generation == "b"
    assert hybrid(made, 0) == hybrid(made, 1) == (["actor", "ref", "rollout"], STEPS)
    assert hybrid(made, 2) is None
    assert windows(made, "critic", 1, ["critic"]) == (["critic"], STEPS)
    assert made.assign(Target(ARR, HYBRID, 0)).count.exact == 3


def test_e6_discrete():
    """E6: with discrete the number of captures is not known beforehand."""
    made = plan({**EARLY_B, **{f"{path}.profiler": {**BLOCK_B, "discrete": True}
                               for path in (f"{ARR}.actor", f"{ARR}.rollout", f"{ARR}.ref", "critic")}})  # fmt: skip
    row = made.assign(Target(ARR, HYBRID, 1))
    assert row.discrete
    assert row.count.exact is None


def test_e7_union_says_who_asked():
    """E7: the union of three different selections, and which role asked for which rank."""
    made = plan({"trainer.profile_steps": [1], f"{ARR}.actor.profiler": {"ranks": [0]},
                 f"{ARR}.rollout.profiler": {"ranks": [1]}, f"{ARR}.ref.profiler": {"all_ranks": True}})  # fmt: skip
    assert hybrid(made, 0) == (["actor", "ref"], [(1,)])
    assert hybrid(made, 1) == (["ref", "rollout"], [(1,)])
    assert hybrid(made, 7) == (["ref"], [(1,)])


@pytest.mark.parametrize(
    ("block", "ranks"),
    [
        ({"discrete": False, "all_ranks": False, "ranks": [0, 2]}, [0, 2]),
        (
            {"_target_": "verl.utils.profiler.ProfilerConfig", "discrete": True, "all_ranks": True, "ranks": []},
            [0, 1, 2],
        ),
        ({"discrete": False, "all_ranks": False, "ranks": []}, []),
        ({"ranks": [0]}, [0]),
    ],
)
def test_section_of_the_hybrid_worker(block, ranks):
    """v0.5's hybrid worker reads one section for all its roles, discrete too; those of its roles count for nothing, and are named."""
    keys = {"trainer.profile_steps": [1, 2], f"{ARR}.profiler": block, "critic.profiler": {"ranks": [1]},
            f"{ARR}.actor.profiler": {"ranks": [3], "discrete": True}}  # fmt: skip
    if block.get("discrete"):
        keys["critic.profiler"]["discrete"] = True
    loaded = load(keys)
    made = make_plan(loaded.config)
    assert loaded.generation == "b"
    seen = (["actor", "ref", "rollout"], [(1,), (2,)])
    assert [hybrid(made, rank) for rank in range(4)] == [
        seen if rank in ranks or block.get("all_ranks") else None for rank in range(4)
    ]
    assert made.assign(Target(ARR, HYBRID, 0)).discrete == bool(block.get("discrete"))
    assert windows(made, "critic", 1, ["critic"]) == (["critic"], [(1,), (2,)])
    assert notes(loaded)[f"{ARR}.actor.profiler"].startswith("dropped: ")


def test_section_of_the_hybrid_worker_is_checked():
    """Its keys are checked, it must agree with the others, and from v0.6 on it is said to count for nothing."""
    steps = {"trainer.profile_steps": [1]}
    assert "did you mean 'ranks'" in refused({**steps, f"{ARR}.profiler.rank": [0]})[f"{ARR}.profiler.rank"]
    assert (
        "generation c"
        in refused({**steps, f"{ARR}.profiler": {"enable": True, "ranks": [0]}})[f"{ARR}.profiler.enable"]
    )
    assert "did you mean 'profiler'" in refused({**steps, f"{ARR}.profilers.ranks": [0]})[f"{ARR}.profilers"]
    said = refused({**steps, f"{ARR}.profiler": {"ranks": [0]}, "critic.profiler": {"ranks": [0], "discrete": True}})
    assert f"{ARR}.profiler.discrete" in said["critic.profiler.discrete"]
    late = load({**LATE_C, f"{ARR}.profiler.ranks": [5]})
    assert notes(late)[f"{ARR}.profiler"].startswith("dropped: ")
    assert hybrid(make_plan(late.config), 5) == (["actor", "rollout"], [(1, 2), (5,)])


@pytest.mark.parametrize(
    "roles", [{}, {"critic.profiler": {"ranks": []}}, {f"{ARR}.profiler": {"ranks": None, "discrete": True}}]
)
def test_early_files_say_what_would_turn_them_on(roles):
    """The key that is named, with the value that is named, gives a file of the same generation that profiles."""
    keys = {"trainer.profile_steps": [1], "trainer.worker_nsight_options": {"trace": "cuda,nvtx"}, **roles}
    (off,) = [note for note in load(keys).notes if note.kind == "off"]
    assert "[0]" in off.text
    loaded = load({**keys, off.path: [0]})
    assert loaded.generation == "b"
    assert not [note for note in loaded.notes if note.kind == "off"]
    group = off.path.partition(".")[0]
    assert make_plan(loaded.config).assign(Target(group, HYBRID if group == ARR else (group,), 0)).selected


def test_e8_capture_range_is_the_gate():
    """E8: a capture range that nothing can open is refused by its key."""
    said = refused({**EARLY_B, "trainer.worker_nsight_options": {"capture-range": "none"}})
    assert "the trigger call that opens a window" in said["trainer.worker_nsight_options.capture-range"]


def test_e9_continuous_steps():
    """E9: adjacent steps share a capture; the rollout follows the actor and the reference model does not."""
    loaded = load(LATE_C)
    made = make_plan(loaded.config)
    assert loaded.generation == "c"
    assert hybrid(made, 0) == hybrid(made, 7) == (["actor", "rollout"], [(1, 2), (5,)])
    assert hybrid(made, 0, ["ref"]) is None
    assert made.assign(Target(ARR, HYBRID, 3)).count.exact == 2
    assert notes(loaded)[f"{ARR}.ref.profiler.enable"].startswith("doubtful: the reference model is not profiled")


def test_e10_continuous_and_discrete():
    """E10: continuous steps and discrete contradict each other."""
    said = refused({**LATE_C, "global_profiler.global_tool_config.nsys.discrete": True})
    assert "global_tool_config.nsys.discrete: false" in said["global_profiler.profile_continuous_steps"]


def test_e11_npu_end_to_end():
    """E11: one end-to-end capture per rank and step on Ascend, at level 0."""
    made = plan({"global_profiler.tool": "npu", "global_profiler.steps": [1, 2, 5],
                 "global_profiler.save_path": "./outputs/profile",
                 f"{ARR}.actor.profiler": {"enable": True, "all_ranks": True, "tool_config": {
                     "npu": {"discrete": False, "contents": ["npu", "cpu"]}}}})  # fmt: skip
    row = made.assign(Target(ARR, HYBRID, 5))
    assert (row.tool, list(row.windows), row.discrete) == ("npu", STEPS, False)
    assert row.options == {"contents": ["npu", "cpu"], "level": "level0"}
    assert made.config.output_dir == "./outputs/profile"


def test_e12_agent_loop_ranks_are_replicas():
    """E12: in generation c the ranks of an agent-loop rollout are replicas; the actor's are ranks."""
    loaded = load(AGENT_C)
    made = make_plan(loaded.config)
    assert made.assign(Target(ARR, HYBRID, 0)).discrete
    assert sorted(made.assign(Target(ARR, HYBRID, 0)).asked_by) == ["actor"]
    assert made.assign(Target("rollout", ("rollout",), 3, 8, replica=0)).discrete
    assert windows(made, "rollout", 0, ["rollout"], replica=1) is None
    assert "read as replica ranks" in notes(loaded)[f"{ARR}.rollout.profiler.ranks"]


def test_e13_agent_loop_needs_discrete():
    """E13: an agent-loop rollout that is not discrete is refused with the key to change."""
    keys = {
        **AGENT_C,
        f"{ARR}.rollout.profiler": {"enable": True, "ranks": [0], "tool_config": {"npu": {"discrete": False}}},
    }
    key = f"{ARR}.rollout.profiler.tool_config.npu.discrete"
    assert f"Mend: {key}: true" in refused(keys)[key]


def test_e14_one_rank_device_side():
    """E14: level 1, device side only, one rank; roles that are off stay off whatever their ranks."""
    made = plan({"global_profiler.tool": "npu", "global_profiler.steps": [2],
                 f"{ARR}.actor.profiler": {"enable": True, "ranks": [0], "tool_config": {
                     "npu": {"level": "level1", "contents": ["npu"], "analysis": True}}},
                 f"{ARR}.rollout.profiler": {"enable": False},
                 f"{ARR}.ref.profiler": {"enable": False, "ranks": [0]}})  # fmt: skip
    row = made.assign(Target(ARR, HYBRID, 0))
    assert (sorted(row.asked_by), list(row.windows)) == (["actor"], [(2,)])
    assert row.options == {"contents": ["npu"], "level": "level1", "analysis": True}
    assert hybrid(made, 1) is None


@pytest.mark.parametrize("ranks", [None, []])
def test_e15_enable_without_ranks(ranks):
    """E15: enable without ranks is rank 0, as the code does, and a note says that the guide differs."""
    loaded = load({"global_profiler.tool": "torch", "global_profiler.steps": [1],
                   f"{ARR}.actor.profiler": {"enable": True, "all_ranks": False, "ranks": ranks}})  # fmt: skip
    made = make_plan(loaded.config)
    assert hybrid(made, 0) is not None
    assert hybrid(made, 1) is None
    assert "rank 0 is profiled" in notes(loaded)[f"{ARR}.actor.profiler.ranks"]


E16 = {
    "global_profiler.tool": "torch",
    "global_profiler.steps": [1],
    "trainer.nnodes": 2,
    "trainer.n_gpus_per_node": 8,
    f"{ARR}.rollout.tensor_model_parallel_size": 8,
    f"{ARR}.rollout.mode": "async",
    f"{ARR}.rollout.profiler": {"enable": True, "ranks": [0, 8], "tool_config": {"torch": {"discrete": True}}},
}


def test_e16_rollout_ranks_in_both_meanings():
    """E16: [0, 8] with tp 8 is replicas 0 and 1 by global ranks (d), and replica 0 by replica ranks (c), 8 being none."""
    late = load({**E16, "global_profiler.relocate_results": False})
    assert late.generation == "d"
    assert list(late.config.groups["rollout"][0].replicas) == [0, 1]
    early = load(E16)
    assert early.generation == "c"
    assert list(early.config.groups["rollout"][0].replicas) == [0]
    assert any("[8] out of range" in note.text for note in early.notes)
    made = make_plan(late.config)
    assert windows(made, "rollout", 11, ["rollout"], replica=1, world_size=16) is not None


def test_meaning_of_rollout_ranks_can_be_set():
    """The meaning of an agent-loop rollout's ranks can be set in the file, and on the dialect."""
    for loaded in (
        load({**E16, "global_profiler.rollout_ranks": "global"}),
        load_config(dotted(E16), dialects=[VerlDialect(rollout_ranks="global")]),
    ):
        assert list(loaded.config.groups["rollout"][0].replicas) == [0, 1]


# --- what guides do not show --------------------------------------------------------------------------------------------


def test_interpolations_are_resolved_as_hydra_would():
    """Unresolved ``${oc.select:...}`` of a plain file give the value Hydra would give, defaults included."""
    loaded = load({"global_profiler.tool": "torch", "global_profiler.steps": [3],
                   f"{ARR}.actor.profiler": {"tool": "${oc.select:global_profiler.tool,null}", "enable": True, "ranks": [2]},
                   f"{ARR}.rollout.profiler": {"enable": f"${{oc.select:{ARR}.actor.profiler.enable,false}}",
                                               "ranks": f"${{oc.select:{ARR}.actor.profiler.ranks,[]}}"},
                   f"{ARR}.ref.profiler": {"enable": "${oc.select:nobody.has.this,false}"},
                   "data.path": "${some_resolver_of_theirs:x}"})  # fmt: skip
    assert hybrid(make_plan(loaded.config), 2) == (["actor", "rollout"], [(3,)])


def test_interpolation_that_cannot_be_resolved():
    """An interpolation that nobody can resolve is refused with its path."""
    said = refused({"global_profiler.tool": "${nothing.here}", "global_profiler.steps": [1]})
    assert "cannot be resolved" in said["global_profiler.tool"]


def test_mini_batch_schedule():
    """Generation d's schedule counts update mini-batches anew in each step; 0 repeats without discrete is one."""
    loaded = load({"global_profiler.tool": "torch", "global_profiler.steps": [1, 2], f"{ARR}.actor.profiler": {
        "enable": True, "tool_config": {"torch": {"schedule": {"skip_first": 1, "wait": 2, "warmup": 1, "active": 3}}}}})  # fmt: skip
    assert loaded.generation == "d"
    (spec,) = make_plan(loaded.config).assign(Target(ARR, ("actor",), 0)).schedules
    assert (spec.phase, spec.skip_first, spec.wait, spec.warmup, spec.active, spec.repeat, spec.per) == (
        "train_batch", 1, 2, 1, 3, 1, "step",
    )  # fmt: skip


def test_token_window_of_the_rollout():
    """A window of response tokens of an agent-loop rollout, end exclusive; an open end is the longest response."""
    keys = {**E16, f"{ARR}.rollout.response_length": 512, f"{ARR}.rollout.profiler": {
        "enable": True, "all_ranks": True, "tool_config": {"torch": {"discrete": True, "profile_token_start": 100}}}}  # fmt: skip
    (schedule,) = load(keys).config.groups["rollout"][0].schedule
    assert (schedule.token_start, schedule.token_end) == (100, 512)


def test_torch_contents():
    """verl always records the host side; an empty list is the lean default, without shapes, stacks and memory."""
    keys = {"global_profiler.tool": "torch", "global_profiler.steps": [1], f"{ARR}.actor.profiler.enable": True}
    assert load(keys).config.groups[ARR][0].options == {}
    keys[f"{ARR}.actor.profiler.tool_config"] = {"torch": {"contents": ["cuda", "shapes"]}}
    assert load(keys).config.groups[ARR][0].options == {"contents": ["cpu", "cuda", "shapes"]}


@pytest.mark.parametrize("tool", ["precision_debugger", "memray"])
def test_tools_that_are_left_to_verl(tool):
    """verl's precision debugger and its memray tool are left to verl by name, and nothing else is said to record."""
    loaded = load({"global_profiler.tool": tool, "global_profiler.steps": [1], f"{ARR}.actor.profiler.enable": True,
                   f"{ARR}.actor.profiler.tool_config.memray.memory_snapshot_num_steps": 2})  # fmt: skip
    assert not any("unknown" in note.text for note in loaded.notes)
    assert loaded.config.tool is None
    assert "stays with verl" in notes(loaded)["global_profiler.tool"]
    assert hybrid(make_plan(loaded.config), 0) is None


def test_tool_null_profiles_nothing():
    """Without a tool verl profiles nothing, even with steps and enabled roles."""
    loaded = load({"global_profiler.steps": [1], f"{ARR}.actor.profiler.enable": True})
    assert hybrid(make_plan(loaded.config), 0) is None


def test_supervised_run():
    """The SFT trainer's interval is one capture, both ends included; with discrete each phase in it has its own."""
    keys = {"trainer.profile_interval": [3, 5], "profiler": {"tool": "torch", "enable": True, "ranks": [1]}}
    assert windows(plan(keys), "sft", 1, ["sft"]) == (["sft"], [(3, 4, 5)])
    discrete = {**keys, "profiler": {**keys["profiler"], "tool_config": {"torch": {"discrete": True}}}}
    row = make_plan(load(discrete).config).assign(Target("sft", ("sft",), 1))
    assert (row.discrete, row.merge_steps, list(row.steps)) == (True, False, [3, 4, 5])
    assert windows(plan({**keys, "trainer.profile_interval": [-1, -1]}), "sft", 1, ["sft"]) is None


def test_ascend_of_generation_b():
    """Generation b on an NPU: the options file of its own, by content words."""
    made = plan({**EARLY_B, "trainer.device": "npu",
                 "trainer.npu_profile.options": {"level": "level1", "with_stack": True, "with_npu": True}})  # fmt: skip
    row = made.assign(Target(ARR, HYBRID, 0))
    assert row.tool == "npu"
    assert row.options == {"contents": ["npu", "cpu", "stack"], "level": "level1", "analysis": True}


# --- bad input ------------------------------------------------------------------------------------------------------------

BASE = {"global_profiler.tool": "torch", "global_profiler.steps": [1], f"{ARR}.actor.profiler.enable": True}


@pytest.mark.parametrize(
    ("change", "path", "says"),
    [
        ({f"{ARR}.actor.profiler.ranks": "0"}, f"{ARR}.actor.profiler.ranks", "Mend: [0]"),
        ({f"{ARR}.actor.profiler.ranks": "all"}, f"{ARR}.actor.profiler.ranks", "a str where a list is expected"),
        ({f"{ARR}.actor.profiler.ranks": 0}, f"{ARR}.actor.profiler.ranks", "Mend: [0]"),
        ({f"{ARR}.actor.profiler.ranks": [True]}, f"{ARR}.actor.profiler.ranks", "True is not a whole number"),
        ({f"{ARR}.actor.profiler.ranks": [-1]}, f"{ARR}.actor.profiler.ranks", "-1 is not a whole number"),
        ({"global_profiler.steps": {"a": 1}}, "global_profiler.steps", "a dict where a list is expected"),
        ({"global_profiler.steps": True}, "global_profiler.steps", "a bool where a list is expected"),
        ({"global_profiler.tool": "nsyss"}, "global_profiler.tool", "did you mean 'nsys'?"),
        ({"global_profiler.stps": [1]}, "global_profiler.stps", "did you mean 'steps'?"),
        ({"global_profiler.discrete": True}, "global_profiler.discrete", "global_tool_config.nsys.discrete"),
        ({f"{ARR}.actor.profiler.steps": [1]}, f"{ARR}.actor.profiler.steps", "it is global_profiler.steps"),
        ({f"{ARR}.actor.profiler.discrete": True}, f"{ARR}.actor.profiler.discrete", "belongs to generation b"),
        ({f"{ARR}.actor.profile_ranks": [0]}, f"{ARR}.actor.profile_ranks", "belongs to generation a (mid-2025 draft)"),
        ({"trainer.profile_steps": [1]}, "trainer.profile_steps", "Mend: global_profiler.steps"),
        ({f"{ARR}.actor.profiler.tool_config": {"torch": {"contents": ["gpu"]}}},
         f"{ARR}.actor.profiler.tool_config.torch.contents", "'gpu' cannot be recorded"),
        ({f"{ARR}.actor.profiler.tool_config": {"torch": {"content": []}}},
         f"{ARR}.actor.profiler.tool_config.torch.content", "did you mean 'contents'?"),
        ({f"{ARR}.actor.profiler.enable": 1}, f"{ARR}.actor.profiler.enable", "not a truth value"),
    ],
)  # fmt: skip
def test_bad_input(change, path, says):
    """What is wrong is named by path with its value, and the near match or the generation it belongs to."""
    assert says in refused({**BASE, **change})[path]


@pytest.mark.parametrize("ranks", [[0, 1], (0, 1), range(2), [1, 0, 0]])
def test_kinds_of_lists(ranks):
    """Lists, tuples, ranges and duplicates name the same ranks; an OmegaConf list too."""
    keys = {**BASE, f"{ARR}.actor.profiler.ranks": ranks}
    assert hybrid(plan(keys), 1) is not None
    assert hybrid(plan(keys), 2) is None


def test_omegaconf_is_read():
    """A DictConfig with list values is read as the file it came from."""
    OmegaConf = pytest.importorskip("omegaconf").OmegaConf
    config = OmegaConf.create(dotted({**BASE, f"{ARR}.actor.profiler.ranks": [0, 1]}))
    made = make_plan(load_config(config, dialects=BUILTIN).config)
    assert hybrid(made, 1) is not None


def test_omegaconf_with_resolvers_of_its_framework():
    """A DictConfig whose other parts need resolvers that are not here is read all the same, interpolations included."""
    OmegaConf = pytest.importorskip("omegaconf").OmegaConf
    keys = {**BASE, "data.files": "${only_theirs:x}", f"{ARR}.actor.profiler.tool": "${oc.select:global_profiler.tool}"}
    loaded = load_config(OmegaConf.create(dotted(keys)), dialects=BUILTIN)
    assert make_plan(loaded.config).assign(Target(ARR, ("actor",), 0)).tool == "torch"


@pytest.mark.parametrize(
    ("name", "tool", "engine"), [("vllm", "torch", "vllm"), ("sglang", "npu", "sglang"), ("vllm", "npu", "vllm-ascend")]
)
def test_the_engine_of_an_agent_loop_is_named(name, tool, engine):
    """What an agent-loop rollout needs of its engine is said, as a section that accelprof takes."""
    import re

    import yaml

    from accelprof.engines.options import engines_of

    section = {
        "enable": True,
        "all_ranks": True,
        "tool_config": {tool: {"discrete": True, "contents": ["stack", *(["npu"] if tool == "npu" else [])]}},
    }
    keys = {**E16, "global_profiler.tool": tool, f"{ARR}.rollout.name": name, f"{ARR}.rollout.profiler": section}
    (text,) = [note.text for note in load(keys).notes if note.path == f"{ARR}.rollout.name"]
    written = yaml.safe_load(re.search(r"engines: (\{.*\}), from", text)[1])
    assert list(written) == [engine]
    options = engines_of(load_config({"steps": [1], "discrete": True, "engines": written}).config)[engine]
    assert (options.profiler, options.agent_loop, options.tensor_parallel) == ("torch", True, 8)
    assert "stack" in options.contents


def test_keys_of_others_among_the_tools():
    """Keys of a recipe's own inside a tool's section, and tools that are none of verl's, get a note each and change nothing else."""
    own = {
        f"{ARR}.actor.profiler.tool_config.nsys.extra": 2,
        f"{ARR}.actor.profiler.tool_config.mine.x": 1,
        "global_profiler.global_tool_config.nsys.extra": 3,
        "global_profiler.global_tool_config.mine.x": 4,
    }
    loaded = load({**LATE_C, **own})
    said = {path: text for path, text in notes(loaded).items() if "whoever put it there" in text}
    assert set(said) == {path.removesuffix(".x") for path in own}
    assert loaded.config == load(LATE_C).config
    assert "did you mean 'discrete'" in str(refused({**LATE_C, f"{ARR}.actor.profiler.tool_config.nsys.discret": True}))
    assert "did you mean 'nsys'" in str(refused({**LATE_C, f"{ARR}.actor.profiler.tool_config.nsy.discrete": True}))
    made = {f"{ARR}.actor.profiler.tool_config.nsys._target_": "verl.utils.profiler.config.NsightToolConfig"}
    assert "nsys.extra: unknown key" in str(
        refused({**LATE_C, **made, f"{ARR}.actor.profiler.tool_config.nsys.extra": 2})
    )


@pytest.mark.parametrize("composed", [False, True])
def test_keys_of_main_that_stay_verls(composed):
    """Monitors that verl's main branch starts itself are noted as verl's, also in a composed file; null says nothing."""
    made = {"global_profiler._target_": "verl.utils.profiler.ProfilerConfig"} if composed else {}
    main = {
        "global_profiler.context_monitor_tool": ["rl_insight"],
        "global_profiler.gpu_stall_diagnostics": {"enable": False, "sample_interval_s": 0.25},
    }
    loaded = load({**LATE_C, **made, **main})
    for path in main:
        assert notes(loaded)[path].startswith("dropped: verl's")
    assert loaded.config == load({**LATE_C, **made}).config
    assert not set(main) & set(notes(load({**LATE_C, **made, **dict.fromkeys(main)})))
