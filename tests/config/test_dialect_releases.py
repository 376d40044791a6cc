"""verl from 0.6 on: the same words, and what each release makes of them, on that release's own files."""

from __future__ import annotations

import builtins
import copy
import functools
import itertools
import json
import os
import zipfile
from pathlib import Path

import pytest
import yaml

from accelprof.catalogue import make_catalogue
from accelprof.config.dialects import BUILTIN
from accelprof.config.dialects.reading import Source
from accelprof.config.dialects.verl_releases import KNOWN, name, release_of
from accelprof.config.load import load_config
from accelprof.contracts.targets import Target
from accelprof.errors import ConfigError

pytestmark = pytest.mark.frameworks
ROOT = Path(__file__).parents[2]
ARR = "actor_rollout_ref"
PPO, SFT = "_generated_ppo_trainer.yaml", "sft_trainer_engine.yaml"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
RELEASES = [name(version) for version in KNOWN]
#: every composed file of every release: torchtitan and veomni came with 0.7.1
GENERATED = [
    (release, f"_generated_ppo_{kind}trainer.yaml")
    for release in RELEASES
    for kind in ("", "megatron_", "torchtitan_", "veomni_")[: 2 if release in RELEASES[:3] else 4]
]


def wheel_of(release):
    place = Path(os.environ.get("ACCELPROF_VERL_WHEELS") or ROOT / ".venv-frameworks/releases")
    wheels = sorted(place.glob(f"verl-{release}-*.whl"))
    if not wheels:
        pytest.skip(f"the wheel of verl {release} is not in {place}; .ci/install-frameworks fetches it")
    return wheels[0]


def shipped(release, file):
    return copy.deepcopy(_shipped(release, file))


@functools.lru_cache
def _shipped(release, file):
    """A configuration of a release, from its wheel; the SFT trainer's with the profiler section that its defaults name."""
    with zipfile.ZipFile(wheel_of(release)) as wheel:
        found = yaml.load(wheel.read(f"verl/trainer/config/{file}"), LOADER)
        if file == SFT:
            found["profiler"] = yaml.safe_load(wheel.read("verl/trainer/config/profiler/profiler.yaml"))
            del found["defaults"]
    return found


def load(release, file, *overrides):
    return load_config(shipped(release, file), overrides, dialects=BUILTIN)


def before(release, limit):
    return KNOWN[RELEASES.index(release)] < limit


NPU = [
    "global_profiler.tool=npu",
    "global_profiler.steps=[2]",
    f"{ARR}.actor.profiler.enable=true",
    f"{ARR}.actor.profiler.ranks=[0]",
]
TORCH = [
    "global_profiler.tool=torch",
    "global_profiler.steps=[2]",
    f"{ARR}.actor.profiler.enable=true",
    f"{ARR}.actor.profiler.ranks=[0]",
]


@pytest.mark.parametrize(
    ("release", "file"), [*((release, PPO) for release in RELEASES), *((release, SFT) for release in RELEASES[2:])]
)
def test_each_release_is_told_by_its_own_file(release, file, monkeypatch):
    """Each release's own file is recognised as exactly that release, whatever is installed."""
    monkeypatch.setattr("importlib.metadata.version", lambda _: "0.6.0")
    found = release_of(Source(shipped(release, file)))
    assert (name(found.lowest), name(found.highest)) == (release, release)


@pytest.mark.parametrize("release", RELEASES)
def test_ranks_of_the_rollout(release):
    """Ranks of an agent-loop rollout: numbers of replicas up to 0.9.0, global ranks in 0.9.1."""
    key = f"{ARR}.rollout.profiler"
    loaded = load(release, PPO, *NPU, f"{ARR}.rollout.mode=async", f"{ARR}.rollout.tensor_model_parallel_size=4",
                  "trainer.nnodes=4", f"{ARR}.actor.profiler.tool_config.npu.discrete=true",
                  f"{key}.ranks=[0,4]")  # fmt: skip
    (rule,) = loaded.config.groups["rollout"]
    assert list(rule.replicas) == ([0, 4] if before(release, (0, 9, 1)) else [0, 1])
    assert not any("--verl" in note.text for note in loaded.notes)


@pytest.mark.parametrize("release", RELEASES)
def test_contents(release):
    """The host side is forced in by 0.9.1 only; the torch tool takes contents from 0.7.1 on, and stacks and shapes before."""
    last = not before(release, (0, 9, 1))

    def options(tool, contents=None):
        change = [] if contents is None else [f"++{ARR}.actor.profiler.tool_config.{tool}.contents={contents}"]
        return load(release, PPO, *(NPU if tool == "npu" else TORCH), *change).config.groups[ARR][0].options

    assert options("npu").get("contents", []) == (["cpu"] if last else [])
    assert options("npu", "[npu]")["contents"] == (["cpu", "npu"] if last else ["npu"])
    assert options("npu")["level"] == ("level1" if before(release, (0, 7, 0)) else "level0")
    assert options("npu").get("export") == (None if before(release, (0, 7, 0)) else "db")
    if before(release, (0, 7, 1)):
        assert options("torch") == {"contents": ["cpu", "cuda", "shapes", "stack"]}
    else:
        assert options("torch") == {}
        assert options("torch", "[cuda,shapes]")["contents"] == (["cpu"] if last else []) + ["cuda", "shapes"]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("discrete", [False, True])
def test_schedule(release, discrete):
    """A schedule of mini-batches: from 0.9.0 on, there not with discrete and without an end where ``repeat`` is 0."""
    key = f"{ARR}.actor.profiler.tool_config.torch"
    if before(release, (0, 9, 0)):
        with pytest.raises(ConfigError, match=r"torch\.schedule"):
            load(release, PPO, *TORCH, f"{key}.schedule.active=2")
        return
    (rule, *_) = load(release, PPO, *TORCH, f"{key}.schedule.active=2", f"{key}.discrete={discrete}").config.groups[ARR]
    found = [(item.per, item.repeat, item.keep_others) for item in rule.schedule]
    if discrete:
        assert found == ([] if release == "0.9.0" else [("actor_update", 0, True)])
    else:
        assert found == [("step", 0 if release == "0.9.0" else 1, True)]


@pytest.mark.parametrize("release", RELEASES[2:])  # the trainer had no profiler before
def test_supervised_run(release):
    """The SFT trainer's interval is one capture of the group ``sft``, and off as it is shipped."""
    assert load(release, SFT).config.steps is None
    loaded = load(release, SFT, "trainer.profile_interval=[3,5]", "profiler.enable=true", "profiler.ranks=[1]")
    (rule,) = loaded.config.groups["sft"]
    assert (list(loaded.config.steps), loaded.config.merge_steps, list(rule.ranks)) == ([3, 4, 5], True, [1])


def changes(tool, discrete, release):
    yield f"global_profiler.tool={tool}"
    yield "global_profiler.steps=[1,2,5]"
    yield f"{ARR}.actor.profiler.enable=true"
    yield f"{ARR}.actor.profiler.ranks=[0,3]"
    if tool == "nsys":
        yield f"global_profiler.global_tool_config.nsys.discrete={discrete}"
    elif tool in ("npu", "torch") and not (tool == "torch" and before(release, (0, 7, 1))):
        yield f"{ARR}.actor.profiler.tool_config.{tool}.discrete={discrete}"
        yield f"{ARR}.actor.profiler.tool_config.{tool}.contents=[cpu]"


def without_omegaconf(load):
    """What ``load`` gives where OmegaConf is not installed."""
    real = builtins.__import__

    def without(name, *arguments, **more):
        if name.startswith("omegaconf"):
            raise ImportError(name)
        return real(name, *arguments, **more)

    builtins.__import__ = without
    try:
        return load()
    finally:
        builtins.__import__ = real


@pytest.mark.parametrize(("release", "file"), GENERATED)
def test_same_plan_as_omegaconf_resolves(release, file):
    """Every composed file, every tool, discrete or not: the plan is that of the file OmegaConf resolved, with it and without it."""
    omegaconf = pytest.importorskip("omegaconf", reason="omegaconf is not installed")
    for plugin in ("accelprof_cuda", "accelprof_ascend"):
        pytest.importorskip(plugin, reason="the plug-in is not installed")
    composed = omegaconf.OmegaConf.create(shipped(release, file))
    # of the first sections every value can be resolved here; the others need resolvers of verl's own
    sections = ("global_profiler", ARR, "critic", "trainer", "reward_model")
    for tool, discrete in itertools.product(("nsys", "npu", "torch", "torch_memory"), ("true", "false")):
        overrides = [*changes(tool, discrete, release), "critic.profiler.enable=true", "critic.profiler.ranks=[1]"]
        changed = composed.copy()
        changed.merge_with_dotlist(overrides)
        resolved = {key: omegaconf.OmegaConf.to_container(changed[key], resolve=True, throw_on_missing=False)
                    for key in sections if key in changed}  # fmt: skip
        resolved["algorithm"] = shipped(release, file)["algorithm"]
        expected = load_config(resolved, dialects=BUILTIN).config
        assert load(release, file, *overrides).config == expected, (tool, discrete)
        assert without_omegaconf(lambda given=overrides: load(release, file, *given).config) == expected, (
            tool,
            discrete,
        )
        _as_the_sections_say(expected, resolved, tool, discrete == "true" and "discrete" in " ".join(overrides))


def _as_the_sections_say(config, resolved, tool, discrete):
    """The plan has the ranks, steps and roles that stand in the resolved ``profiler`` sections."""
    roles = {role: resolved[ARR][role]["profiler"] for role in ("actor", "rollout", "ref")}
    asked = {role for role, section in roles.items() if section["enable"]}
    hybrid = ("actor", "ref") if resolved[ARR]["rollout"]["mode"] == "async" else ("actor", "rollout", "ref")
    plan = make_catalogue().plan(config)
    for rank in range(5):
        row = plan.assign(Target(ARR, hybrid, rank, 8))
        assert row.selected == (rank in roles["actor"]["ranks"])
        if row.selected:
            assert (set(row.asked_by), list(row.steps), row.discrete) == (asked & set(hybrid), [1, 2, 5], discrete)
            assert row.tool == tool
        critic = plan.assign(Target("critic", ("critic",), rank, 8))
        assert (critic.selected, critic.tool) == ((True, tool) if rank == 1 else (False, None))


@pytest.mark.parametrize("release", RELEASES)
def test_every_shipped_file_is_taken(release):
    """Every composed trainer file that a release ships is read, and profiles nobody as it is; no other is shipped."""
    with zipfile.ZipFile(wheel_of(release)) as wheel:
        files = [path.rpartition("/")[2] for path in wheel.namelist() if "/config/_generated_" in path]
    assert sorted((release, file) for file in files) == sorted(pair for pair in GENERATED if pair[0] == release)
    for file in files:
        loaded = load_config(shipped(release, file), dialects=BUILTIN)
        assert loaded.dialect == "verl"
        assert not any(row.selected for row in make_catalogue().plan(loaded.config).preview())


# --- files that nobody composed -----------------------------------------------------------------------------------------

PARTIAL = {
    "global_profiler": {"tool": "npu", "steps": [2]},
    ARR: {
        "actor": {"profiler": {"enable": True, "tool_config": {"npu": {"discrete": True}, "precision_debugger": {}}}},
        "rollout": {"mode": "async", "tensor_model_parallel_size": 4, "profiler": {
            "enable": True, "ranks": [0, 4], "tool_config": {"npu": {"discrete": True, "contents": []}}}},
    },
}  # fmt: skip


def partial(**more):
    config = json.loads(json.dumps(PARTIAL))
    config["global_profiler"].update(more)
    return load_config(config, dialects=BUILTIN)


def test_what_a_file_does_not_tell_is_asked_for(monkeypatch):
    """A file that can be of two releases is read as the older one, and says so; the installed release or a word decides it."""

    def absent(_):
        import importlib.metadata

        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr("importlib.metadata.version", absent)
    loaded = partial()
    assert list(loaded.config.groups["rollout"][0].replicas) == [0, 4]
    asked = [note.text for note in loaded.notes if note.kind == "doubtful" and "--verl" in note.text]
    assert len(asked) == 3
    assert list(partial(verl_version="0.9.1").config.groups["rollout"][0].replicas) == [0, 1]
    assert list(partial(verl_version="0.9.0").config.groups["rollout"][0].replicas) == [0, 4]
    assert not any("--verl" in note.text for note in partial(verl_version="0.9.0").notes)
    monkeypatch.setattr("importlib.metadata.version", lambda _: "0.9.1")
    assert list(partial().config.groups["rollout"][0].replicas) == [0, 1]
    assert list(partial(verl_version="0.8.0").config.groups["rollout"][0].replicas) == [0, 4]


@pytest.mark.parametrize(
    ("given", "says"),
    [("soon", "not a release"), ("0.7.1", "is there from verl 0.8.0 on"), ("0.4", "not a release"), (0.9, "not a release")],
)  # fmt: skip
def test_a_release_that_cannot_be(given, says):
    """A word that is no release, and one that did not have the file's keys, are refused by name."""
    with pytest.raises(ConfigError, match=says):
        partial(verl_version=given)


@pytest.mark.parametrize("given", ["main", "0.10.0", "v1.2"])
def test_releases_to_come(given):
    """A release after the last known one, and the main branch, are read as the last known one, and that is said."""
    loaded = partial(verl_version=given)
    assert loaded.config == partial(verl_version="0.9.1").config
    (said,) = (note.text for note in loaded.notes if note.path == "global_profiler.verl_version")
    assert said == f"{given} is read as 0.9.1, the last known release before it"
