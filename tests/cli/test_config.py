"""``accelprof config check`` and ``show``: what they print, what they refuse, and how they end."""

from __future__ import annotations

import json

import pytest

OURS = "steps: [2, 4]\ntool: torch\ngroups: {Actor: {ranks: [0]}}\n"


@pytest.fixture
def file(tmp_path):
    made = tmp_path / "ours.yaml"
    made.write_text(OURS)
    return made


def test_a_right_file_is_said_to_be(call, file):
    """``check`` names the dialect, with status 0; a file that profiles nothing says why."""
    status, out, _ = call("config", "check", file)
    assert (status, "right (accelprof dialect)" in out) == (0, True)
    status, out, _ = call("config", "check", file, "steps=[]")
    assert status == 0
    assert "nothing to profile in this file: steps is absent (or empty)" in " ".join(out.split())
    status, out, _ = call("config", "check", file, "enabled=false")
    assert (status, "enabled is false" in out) == (0, True)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["steeps=[1]"], "steeps"),
        (["tool=torhc"], "torch"),
        (["output_dir=/proc/nowhere"], "output_dir"),
        (["steps"], "steps"),
    ],
)
@pytest.mark.parametrize("command", ["check"])
def test_a_wrong_one_is_status_two_with_the_key(call, file, command, overrides, says):
    """What is wrong is named by its key, with status 2 and nothing on standard output."""
    status, out, err = call("config", command, file, *overrides)
    assert (status, out) == (2, "")
    assert says in err


def test_a_file_that_is_not_there(call, tmp_path):
    """Both commands name it."""
    for command in ("check", "show"):
        status, _, err = call("config", command, tmp_path / "none.yaml")
        assert status == 2
        assert "none.yaml" in err


def test_show_has_a_row_for_each_rank(call, file):
    """``--world`` lists the ranks of a group; ``--json`` has the same rows for a machine."""
    status, out, _ = call("config", "show", file, "--world", "Actor=2", "--json")
    found = json.loads(out)
    assert status == 0
    rows = found["targets"]
    assert [(row["rank"], row["selected"]) for row in rows] == [(0, True), (1, False)]
    assert rows[0]["tool"] == "torch"
    status, out, _ = call("config", "show", file, "--world", "Actor=2")
    assert status == 0
    assert "torch" in out


@pytest.mark.parametrize("tool", ["torch", "torch_memory"])
def test_a_tools_name_is_not_broken(call, tmp_path, monkeypatch, tool):
    """On 80 columns the names of tools stand whole, beside long groups and roles and windows with many words."""
    monkeypatch.setenv("COLUMNS", "80")
    made = tmp_path / "long.yaml"
    made.write_text(
        f"tool: {tool}\nsteps: ['1-200']\nmerge_steps: false\ngroups: {{actor_rollout_reference_group: {{roles: [actor_and_rollout]}}}}\n"
    )
    status, out, _ = call("config", "show", made)
    assert status == 0
    words = out.replace(",", " ").split()
    assert {tool, "timeline"} <= set(words)


@pytest.mark.parametrize("world", ["Actor", "Actor=0", "Actor=x", "Actor=-1"])
def test_a_world_that_is_none(call, file, world):
    """``--world`` wants GROUP=SIZE, and says how that looks."""
    status, _, err = call("config", "show", file, "--world", world)
    assert status == 2
    assert "GROUP=SIZE" in err


VERL = "actor_rollout_ref: {actor: {profiler: {enable: false}}}\nglobal_profiler: {tool: null, steps: null}\n"
RLINF = "cluster: {profiling: {backend: nsight, enabled: false, worker_groups: [], steps: []}}\n"
NOTHING = [
    # the file, the keys that are named in this order, and the overrides that turn it on
    (OURS.replace("[2, 4]", "[]"), ["steps is absent"], ["steps=[2]"]),
    (VERL, ["global_profiler.steps: ", "actor_rollout_ref.actor.profiler.enable: ", "global_profiler.tool: "],
     ["global_profiler.steps=[2]", "actor_rollout_ref.actor.profiler.enable=true", "global_profiler.tool=torch"]),
    ("global_profiler: {tool: torch, steps: [2]}\n", ["actor_rollout_ref.actor.profiler.enable: "],
     ["+actor_rollout_ref.actor.profiler.enable=true"]),
    ("trainer: {profile_steps: null}\nactor_rollout_ref: {actor: {profiler: {discrete: false, ranks: null}}}\n",
     ["trainer.profile_steps: ", "actor_rollout_ref.actor.profiler.ranks: "],
     ["trainer.profile_steps=[2]", "actor_rollout_ref.actor.profiler.ranks=[0]"]),
    ("trainer: {profile_interval: [-1, -1]}\nprofiler: {tool: torch, enable: false}\n",
     ["trainer.profile_interval: ", "profiler.enable: "], ["trainer.profile_interval=[2,2]", "profiler.enable=true"]),
    (RLINF, ["cluster.profiling.enabled: "],
     ["cluster.profiling.enabled=true", "cluster.profiling.worker_groups=[all]", "cluster.profiling.steps=[0]"]),
    (RLINF.replace("false", "true"), ["cluster.profiling.worker_groups: ", "cluster.profiling.steps: "],
     ["cluster.profiling.worker_groups=[all]", "cluster.profiling.steps=[0]"]),
    ("cluster: {component_placement: {actor: all}}\n", ["cluster.profiling: "],
     ["+cluster.profiling.backend=nsight", "+cluster.profiling.worker_groups=[all]", "+cluster.profiling.steps=[0]"]),
    ("NRL_NSYS_WORKER_PATTERNS: ''\n", ["NRL_NSYS_WORKER_PATTERNS: ", "NRL_NSYS_PROFILE_STEP_RANGE"],
     ["NRL_NSYS_WORKER_PATTERNS='*policy*'", "NRL_NSYS_PROFILE_STEP_RANGE='2:3'"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "named", "turns_on"), NOTHING)
def test_a_file_that_profiles_nothing_names_the_keys_that_would(call, tmp_path, text, named, turns_on):
    """``check``, ``show`` and ``run`` say so first, by the file's own keys; the values named there turn it on, all of them needed."""
    pytest.importorskip("accelprof_cuda", reason="the plug-in is not installed")
    file = tmp_path / "file.yaml"
    file.write_text(text)
    run = ["run", "-c", file, "--no-table", f"output_dir={tmp_path}", "--", "true"]
    for command in (["config", "check", file], ["config", "show", file], run):
        status, out, error = call(*command)
        said = " ".join((out + error).split()).partition("nothing to profile in this file: ")[2]
        found = [said.find(key) for key in named]
        assert -1 not in found, (command, out, error)
        assert found == sorted(found)
        assert status in (0, 1)
    assert "enabled is false" not in said
    for count in range(len(turns_on) + 1):
        _, out, _ = call("config", "show", "--json", file, *turns_on[:count])
        if count in (0, len(turns_on)):
            assert bool(json.loads(out)["nothing_to_profile"]) == (count == 0), turns_on[:count]


def test_words_beside_a_file_are_not_asked_for(call, tmp_path):
    """Steps that are given beside a file of verl's are no reason any more."""
    (tmp_path / "file.yaml").write_text(VERL)
    _, out, _ = call("config", "check", tmp_path / "file.yaml", "steps=[2]", "tool=torch")
    said = " ".join(out.split()).partition("nothing to profile in this file: ")[2]
    assert "actor_rollout_ref.actor.profiler.enable: no role is on" in said
    assert "global_profiler.steps" not in said
    assert "global_profiler.tool" not in said


FOREIGN = "model: {name: x}\ntrainer: {lr: 1e-3}\noptimizer: adam\ndataset: {path: /x}\nscheduler: cosine\nseed: 1\n"


@pytest.mark.parametrize("command", ["check", "show"])
def test_a_file_of_no_dialect_is_one_error(call, tmp_path, command):
    """A file with no key of ours and of no dialect is refused once: its keys, and what is expected."""
    (tmp_path / "train.yaml").write_text(FOREIGN)
    status, out, error = call("config", command, tmp_path / "train.yaml")
    said = " ".join((out + error).split())
    assert status == 2
    assert said.count("train.yaml") == 1
    assert "no profiling configuration, by its keys (model, trainer, optimizer, dataset, scheduler, …)" in said
    assert all(word in said for word in ("steps, tool, groups", "global_profiler", "cluster.profiling", "NRL_NSYS_"))
    assert "Mend" not in said


def test_a_misspelt_key_of_ours_is_still_named(call, tmp_path):
    """A file whose only keys are ours misspelt, or that has a key of ours, has an error a key."""
    for text, key in (("step: [1]\n", "step"), ("steps: [1]\nmodel: x\n", "model")):
        (tmp_path / "file.yaml").write_text(text)
        status, out, error = call("config", "check", tmp_path / "file.yaml")
        assert status == 2
        assert f"{key}: unknown key" in " ".join((out + error).split())
