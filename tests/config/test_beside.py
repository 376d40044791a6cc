"""Words of ours beside a foreign file win over it or are refused by name; its own are changed as Hydra would, and said in its paths."""

from __future__ import annotations

import pytest

from accelprof.catalogue import make_catalogue
from accelprof.cli.main import main as cli
from accelprof.config.dialects import BUILTIN
from accelprof.config.load import load_config
from accelprof.contracts.targets import Target
from accelprof.errors import ConfigError

ARR = "actor_rollout_ref"


def early():
    return {"trainer": {"profile_steps": [1, 2]}, "critic": {"profiler": {"ranks": [0]}}}


def late(**more):
    return {
        "global_profiler": {"tool": "torch", "steps": [1], "save_path": "theirs"},
        ARR: {"actor": {"profiler": {"enable": True, "ranks": [0], **more}}},
    }


def rlinf(**more):
    return {"cluster": {"profiling": {"backend": "nsight", "worker_groups": ["ActorGroup"], "steps": [3], **more}}}


def load(mapping, *overrides, **values):
    return load_config(mapping, overrides, dialects=BUILTIN, **values)


@pytest.mark.parametrize("mapping", [early(), late(), rlinf()], ids=["early", "late", "rlinf"])
@pytest.mark.parametrize("how", ["values", "overrides"])
def test_our_words_win(mapping, how):
    """Steps, directory and options of ours win over every foreign file, as keyword or as override, and a note says over what."""
    if how == "values":
        loaded = load(mapping, steps=[9], output_dir="mine", report_timeout=3)
    else:
        loaded = load(mapping, "steps=[9]", "output_dir=mine", "report_timeout=3")
    assert (list(loaded.config.steps), loaded.config.output_dir, loaded.config.report_timeout) == ([9], "mine", 3)
    said = {note.path: note.text for note in loaded.notes}
    assert "it wins over" in said["steps"]
    assert loaded.config.groups == load(mapping).config.groups


@pytest.mark.parametrize(
    ("mapping", "word", "names"),
    [
        (early(), "ranks", "critic.profiler.ranks"),
        (late(), "ranks", f"{ARR}.actor.profiler.ranks"),
        (rlinf(), "ranks", "cluster.profiling.worker_groups"),
        (late(), "nodes", f"{ARR}.actor.profiler.ranks"),
        (late(tool_config={"torch": {"discrete": True}}), "discrete", f"{ARR}.actor.profiler.tool_config.torch.discrete"),
        (late(tool="torch"), "tool", f"{ARR}.actor.profiler.tool"),
        (late(tool_config={"torch": {"contents": ["cpu"]}}), "rocprofv3", f"{ARR}.actor.profiler.tool_config.torch"),
    ],
)  # fmt: skip
def test_a_word_without_effect_is_refused(mapping, word, names):
    """A word that every role's own would overrule is refused, and the keys that say it are named."""
    value = {"ranks": [1], "nodes": ["a"], "discrete": False, "tool": "nsys", "rocprofv3": "rocprofv3"}[word]
    word = "tool" if word == "rocprofv3" else word
    with pytest.raises(ConfigError) as caught:
        load(mapping, **{word: value})
    (problem,) = caught.value.problems
    assert problem.path == word
    assert names in problem.mend


@pytest.mark.parametrize("theirs", [True, False])
@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize("generation", ["early", "torch", "npu", "nsys"])
def test_discrete_beside_a_file_that_says_it(generation, ours, theirs):
    """A file's ``discrete: false`` is said as its ``true`` is: either is refused by name, and where it says nothing ours is taken."""
    if generation == "early":
        mapping = early()
        section, path = mapping["critic"]["profiler"], "critic.profiler.discrete"
    else:
        mapping = late(tool_config={generation: {}})
        mapping["global_profiler"]["tool"] = generation
        section = mapping[ARR]["actor"]["profiler"]["tool_config"][generation]
        path = f"{ARR}.actor.profiler.tool_config.{generation}.discrete"
    assert load(mapping, discrete=ours).config.discrete is ours
    section["discrete"] = theirs
    with pytest.raises(ConfigError) as caught:
        load(mapping, discrete=ours)
    assert [problem.path for problem in caught.value.problems] == ["discrete"]
    assert path in caught.value.problems[0].mend


TOOL_CONFIG = {
    "npu": {"discrete": True, "contents": ["npu", "cpu"], "level": "level2"},
    "torch": {"discrete": True, "contents": ["cuda"]},
    "nsys": {"discrete": True},
    "torch_memory": {"trace_alloc_max_entries": 7},
}


@pytest.mark.parametrize("how", ["values", "overrides"])
@pytest.mark.parametrize("before", [None, "npu", "torch", "nsys"])
@pytest.mark.parametrize("tool", sorted(TOOL_CONFIG))
def test_a_tool_of_ours_takes_the_files_own_options_of_it(tool, before, how):
    """``tool`` beside a file is the file's own: options, discrete and schedule are those that it has for that tool."""
    mapping = late(tool_config=TOOL_CONFIG)
    mapping["global_profiler"]["tool"] = before
    own = load(mapping, f"global_profiler.tool={tool}").config
    ours = load(mapping, tool=tool) if how == "values" else load(mapping, f"tool={tool}")
    assert ours.config.model_dump() == own.model_dump()
    (rule,) = [rule for rule in ours.config.groups[ARR] if "actor" in rule.roles]
    assert bool(rule.discrete) is bool(TOOL_CONFIG[tool].get("discrete"))
    said = {key: value for key, value in TOOL_CONFIG[tool].items() if key in ("level", "contents")}
    assert set(said.get("contents", ())) <= set(rule.options.get("contents", ()))
    assert rule.options.get("level") == said.get("level")
    assert rule.options.get("max_entries") == TOOL_CONFIG[tool].get("trace_alloc_max_entries")
    assert any(note.path == "tool" for note in ours.notes)


@pytest.mark.parametrize("how", ["tools.torch.contents=[cpu]", "tools={torch: {contents: [cpu]}}", "value"])
def test_an_option_that_a_role_overrules_is_refused(how):
    """An option of a tool beside a file whose role has it too would be dropped in silence; another option is taken."""
    mapping = late(tool_config={"torch": {"contents": ["cuda"]}})
    with pytest.raises(ConfigError) as caught:
        load(mapping, tools={"torch": {"contents": ["cpu"]}}) if how == "value" else load(mapping, how)
    (problem,) = caught.value.problems
    assert problem.path == "tools.torch.contents"
    assert f"{ARR}.actor.profiler.tool_config.torch" in problem.mend
    assert load(mapping, "tools.torch.all_threads=false").config.tools["torch"] == {"all_threads": False}


def test_a_misspelt_word_of_ours_is_named_beside_a_foreign_file():
    """The nearest word is looked for among ours too."""
    with pytest.raises(ConfigError, match="did you mean 'steps'"):
        load(late(), "stpes=[1]")


def test_a_tool_for_a_file_without_one():
    """A tool of ours turns on a file that names none; a file that says off stays off, and that is said."""
    mapping = late()
    mapping["global_profiler"]["tool"] = None
    loaded = load(mapping, tool="torch")
    assert make_catalogue().plan(loaded.config).assign(Target(ARR, ("actor",), 0)).tool == "torch"
    off = load(rlinf(enabled=False), steps=[1])
    assert not off.config.enabled
    assert any(note.kind == "doubtful" and "turns profiling off" in note.text for note in off.notes)


def test_groups_and_options_of_ours():
    """Rules of ours replace the file's, and a path of ours below one that the file fills changes that alone."""
    assert list(load(late(), groups={"G": {"ranks": [2]}}, ranks="all").config.groups) == ["G"]
    loaded = load(rlinf(options={"t": "cuda", "delay": 2}), "tools.nsys.t=nvtx")
    assert loaded.config.tools["nsys"] == {"t": "nvtx", "delay": 2}


def test_our_section_in_a_larger_file():
    """Words beside a file with a section of ours change that section; what is nobody's word is refused."""
    mapping = {"accelprof": {"steps": [1]}, "model": {"size": 3}}
    assert list(load(mapping, steps=[9]).config.steps) == [9]
    assert list(load(mapping, "accelprof.steps=[8]", "model.size=4").config.steps) == [8]
    assert load(mapping, "output_dir=mine").config.output_dir == "mine"
    with pytest.raises(ConfigError, match=r"stepz: unknown key"):
        load(mapping, stepz=[9])


@pytest.mark.parametrize("mapping", [early(), late(), rlinf(), {"steps": [1]}], ids=["early", "late", "rlinf", "ours"])
def test_a_section_of_ours_through_an_override(mapping):
    """An override that would make a section of ours is refused without ``+``; with it a note says that the file gives way."""
    with pytest.raises(ConfigError) as caught:
        load(mapping, "accelprof.steps=[9]")
    (problem,) = caught.value.problems
    assert problem.path == "accelprof.steps"
    assert problem.mend.startswith("steps=[9] changes")
    assert "+accelprof.steps=[9] makes" in problem.mend
    with pytest.raises(ConfigError, match="^accelprof: "):
        load(mapping, "accelprof={steps: [9]}")
    loaded = load(mapping, "+accelprof.steps=[9]")
    assert list(loaded.config.steps) == [9]
    (note,) = loaded.notes
    assert (note.path, note.kind) == ("accelprof", "doubtful")
    assert next(iter(mapping)) in note.text
    assert not load({**mapping, "accelprof": {"steps": [1]}}, "accelprof.steps=[9]").notes
    assert list(load({}, "accelprof.steps=[9]").config.steps) == [9]


@pytest.mark.parametrize(
    ("mapping", "override", "says"),
    [
        (late(), "global_profilr.steps=[3]", "did you mean 'global_profiler"),
        (late(), f"{ARR}.actor.profilr.enable=true", "did you mean"),
        (late(), "trainer.total_epochs=3", r"\+trainer.total_epochs=3 adds it"),
        (rlinf(), "cluster.profilling.steps=[3]", "did you mean 'cluster.profiling"),
        (late(), "global_profiler.stepz=[3]", "did you mean 'steps'"),
        (late(), "~global_profilr.tool", "did you mean"),
    ],
)
def test_override_paths_that_nobody_knows(mapping, override, says):
    """An override of a path that neither the file nor its dialect has is refused, as Hydra refuses it without ``+``."""
    with pytest.raises(ConfigError, match=says):
        load(mapping, override)
    assert load(mapping, "+trainer.total_epochs=3", "++trainer.nothing=4", "report_timeout=3")


@pytest.mark.parametrize(
    ("change", "path", "near"),
    [
        ({"trainer": {"profile_step": [1]}}, "trainer.profile_step", "profile_steps"),
        ({"trainer": {"profile_steps": [1], "worker_nsight_option": {}}}, "trainer.worker_nsight_option", "worker_nsight_options"),
        ({"global_profiler": {"global_tool_config": {"nsys": {"worker_nsight_option": {}}}}},
         "global_profiler.global_tool_config.nsys.worker_nsight_option", "worker_nsight_options"),
        ({"global_profiler": {"tool": "npu"}, ARR: {"actor": {"profiler": {"tool_config": {"npu": {"profile_levl": "level1"}}}}}},
         f"{ARR}.actor.profiler.tool_config.npu.profile_levl", "level"),
        ({ARR: {"actor": {"profilers": {"ranks": [0]}}}}, f"{ARR}.actor.profilers", "profiler"),
        ({ARR: {}, "global_profilers": {}}, "global_profilers", "global_profiler"),
        ({"cluster": {"component_placement": {}, "profilling": {}}}, "cluster.profilling", "profiling"),
        ({"cluster": {"profiling": {"backend": "nsight", "worker_group": ["A"]}}}, "cluster.profiling.worker_group", "worker_groups"),
    ],
)  # fmt: skip
def test_misspelt_keys(change, path, near):
    """A misspelt key in a section of the dialect's is named with the nearest that it has."""
    with pytest.raises(ConfigError) as caught:
        load(change)
    assert f"did you mean {near!r}?" in {problem.path: problem.mend for problem in caught.value.problems}[path]


def test_keys_of_recipes():
    """A key that is like none of verl's gets a note in a plain section, and is refused where the section names its class."""
    loaded = load(late(my_recipes_switch=3))
    assert {note.path: note.kind for note in loaded.notes}[f"{ARR}.actor.profiler.my_recipes_switch"] == "dropped"
    with pytest.raises(ConfigError, match="my_recipes_switch: unknown key"):
        load(late(my_recipes_switch=3, _target_="verl.utils.profiler.ProfilerConfig"))


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ({"backend": "nsight", "worker_groups": ["ActorGroup"], "steps": None}, "under cluster.profiling"),
        ({"profiling": {"backend": "nsight"}}, "under the key cluster"),
        ({"profiler": {"steps": [1], "discrete": True}}, "global_profiler.steps"),
        ({"enable": True, "all_ranks": True}, r"under actor_rollout_ref\.actor\.profiler"),
        ({"npu": {"level": "level0"}}, "tool_config"),
        ({"worker_nsight_options": {"trace": "cuda"}}, r"global_tool_config\.nsys"),
        ({"actor": {"profiler": {"enable": True}}}, "under actor_rollout_ref"),
        ({"tool": "npu", "steps": [1], "profile_continuous_steps": True}, "global_profiler alone"),
        ({"tool": "npu", "steps": [1], "save_path": "outputs/profile"}, "global_profiler alone"),
        ({"defaults": [{"model": "small"}], "model": {"layers": 2}}, "Hydra has yet to compose this file"),
    ],
)  # fmt: skip
def test_partial_blocks(block, says):
    """A block of a guide that is no file of its own is refused with the place where it belongs, before our own keys."""
    with pytest.raises(ConfigError, match=says) as caught:
        load(block)
    assert "unknown" not in caught.value.problems[0].message


def test_a_block_alone_is_one_line():
    """RLinf's preset is named once, without a line for each key; a key that is almost one of ours is still named."""
    preset = {"backend": "nsight", "enabled": True, "worker_groups": ["Actor"], "options": {"t": "cuda"}, "flags": []}
    with pytest.raises(ConfigError) as caught:
        load(preset)
    assert len(caught.value.problems) == 1
    with pytest.raises(ConfigError, match="stpes: unknown key.*did you mean 'steps'"):
        load({"defaults": ["_self_"], "stpes": [1], "other": 2})


@pytest.mark.parametrize(
    "mapping",
    [
        {"defaults": ["profile: default", "_self_"], "cluster": {"component_placement": {}}},
        {"defaults": ["training_backend/fsdp@actor.fsdp_config", "profile/default@cluster.profiling"]},
        {"defaults": [{"profile@cluster.profiling": "default"}], "runner": {"logger": {"log_path": "x"}}},
    ],
)
def test_uncomposed_preset(mapping):
    """A file whose profiling comes from a preset that Hydra has yet to put in says so, whatever else stands in it."""
    loaded = load(mapping)
    assert loaded.dialect == "rlinf"
    assert any(note.path == "cluster.profiling" and "composed file" in note.text for note in loaded.notes)


def test_a_role_that_is_off_in_a_process_that_is_not():
    """A role turned off by a word of its own shares its process's windows all the same; a note says so, and how to narrow it."""
    mapping = late()
    mapping[ARR]["rollout"] = {"profiler": {"enable": False}}
    said = {note.path: note.text for note in load(mapping).notes}
    assert "shares its process with actor" in said[f"{ARR}.rollout.profiler.enable"]


def test_notes_never_say_none():
    """No note names a tool that is not there."""
    mapping = late()
    mapping["global_profiler"]["tool"] = None
    mapping[ARR]["rollout"] = {"mode": "async", "profiler": {"enable": True, "ranks": [0]}}
    assert not [str(note) for note in load(mapping).notes if "None" in str(note)]


@pytest.mark.parametrize(
    ("mapping", "path"),
    [
        (rlinf(options={"delayy": 3}), "cluster.profiling.options.delayy"),
        ({**late(), "global_profiler": {"tool": "nsys", "steps": [1], "global_tool_config": {"nsys": {
            "worker_nsight_options": {"tracee": "cuda"}}}}}, "global_profiler.global_tool_config.nsys.worker_nsight_options.tracee"),
    ],
)  # fmt: skip
def test_errors_have_the_files_paths(mapping, path):
    """What a tool refuses is said by the path that the foreign file has, not by ours."""
    pytest.importorskip("accelprof_cuda", reason="accelprof-cuda is not installed")
    registry = make_catalogue()
    with pytest.raises(ConfigError) as caught:
        registry.plan(registry.load(mapping).config)
    assert path in [problem.path for problem in caught.value.problems]
    assert "tools.nsys" not in str(caught.value)


def test_contradictions_have_the_files_paths():
    """Roles of one process that contradict each other are named by the foreign file's keys."""
    mapping = late(tool_config={"torch": {"contents": ["cpu"]}})
    mapping[ARR]["rollout"] = {
        "mode": "sync",
        "profiler": {"enable": True, "ranks": [0], "tool_config": {"torch": {"contents": ["cpu", "stack"]}}},
    }
    with pytest.raises(ConfigError) as caught:
        make_catalogue().plan(load(mapping).config)
    assert "groups." not in str(caught.value)
    assert f"{ARR}.rollout.profiler.tool_config.torch" in str(caught.value)


def test_release_on_the_command_line(tmp_path, capsys):
    """``--verl`` says which release's meaning is wanted; of a file that is no late one of verl's it is refused."""
    import yaml

    mapping = late(tool_config={"torch": {"discrete": True}})
    mapping[ARR]["rollout"] = {"mode": "async", "tensor_model_parallel_size": 4, "profiler": {
        "enable": True, "ranks": [0, 4], "tool_config": {"torch": {"discrete": True}}}}  # fmt: skip
    (tmp_path / "late.yaml").write_text(yaml.safe_dump(mapping))
    (tmp_path / "early.yaml").write_text(yaml.safe_dump(early()))

    def said(*arguments):
        try:
            cli(["config", *arguments])
        except SystemExit as end:
            return end.code, "".join(capsys.readouterr())

    assert "replicas: [0-1]" in said("convert", str(tmp_path / "late.yaml"), "--verl", "0.9.1")[1].replace(
        "0, 1", "0-1"
    )
    assert "0, 4" in said("convert", str(tmp_path / "late.yaml"), "--verl", "0.9.0")[1].replace("0,4", "0, 4")
    assert "--verl" in said("check", str(tmp_path / "late.yaml"))[1]
    code, text = said("show", str(tmp_path / "early.yaml"), "--verl", "0.9.0")
    assert (code, "generation b" in text) == (2, True)
