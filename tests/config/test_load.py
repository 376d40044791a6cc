"""Loading: files, mappings, OmegaConf and overrides; what is refused is named with path, value, allowed and mend."""

from __future__ import annotations

import contextlib
import os
import pathlib
import pickle
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelprof.catalogue import get_catalogue
from accelprof.config.load import apply_overrides, load_config
from accelprof.config.model import Config, parse_size
from accelprof.errors import ConfigError, nearest


def problems(**config):
    with pytest.raises(ConfigError) as caught:
        load_config(config)
    return {problem.path: str(problem) for problem in caught.value.problems}


def test_the_documented_example(tmp_path):
    """The whole example of the documentation loads, and means what it says."""
    file = tmp_path / "profile.yaml"
    file.write_text(
        """
enabled: true
accelerator: auto
tool: null
timeline: true
steps: [2, "5-7"]
merge_steps: false
discrete: false
ranks: [0]
output_dir: outputs/profile
collect: none
on_error: warn
groups:
  ActorGroup:   {ranks: all, discrete: true, phases: ["actor/*"]}
  RolloutGroup: {replicas: [0], tool: torch}
  CriticGroup:  [{ranks: [0], tool: torch}, {ranks: [1]}]
tools: {torch: {contents: [cpu, shapes]}}
"""
    )
    config = load_config(file).config
    assert list(config.steps) == [2, 5, 6, 7]
    assert config.groups["ActorGroup"][0].ranks == "all"
    assert [rule.tool for rule in config.groups["CriticGroup"]] == ["torch", None]


@pytest.mark.parametrize(
    ("key", "value", "path", "says"),
    [
        ("rank", [0], "rank", "did you mean 'ranks'"),
        ("groups", {"A": {"rnks": 1}}, "groups.A.rnks", "did you mean 'ranks'"),
        ("groups", {"A": [{"ranks": 1}, {"tol": "x"}]}, "groups.A[1].tol", "did you mean 'tool'"),
        ("steps", True, "steps", "truth value"),
        ("steps", {"a": 1}, "steps", "allowed: 'all', 'process'"),
        ("steps", "7-5", "steps", "runs backwards"),
        ("ranks", [-1], "ranks", "-1 is negative"),
        ("ranks", [True], "ranks", "truth value"),
        ("recorder", {"hang": True}, "recorder.hang", "truth value is no number (got True); allowed: a number, null"),
        ("recorder", {"steps": True}, "recorder.steps", "truth value is no number (got True); allowed: a number"),
        ("report_timeout", False, "report_timeout", "truth value is no number"),
        ("on_demand", {"seconds": True}, "on_demand.seconds", "truth value is no number"),
        ("ranks", "process", "ranks", "'process'"),
        ("ranks", "two", "ranks", "'two'"),
        ("collect", "mve", "collect", "did you mean 'move'"),
        ("enabled", "maybe", "enabled", "allowed: true, false"),
        ("output_dir", "", "output_dir", ""),
        ("run", "a/b", "run", "a name without slashes"),
        ("schedule", {"phase": "x", "wat": 3}, "schedule.wat", "did you mean 'wait'"),
        ("schedule", {"phase": "x", "start": 3}, "schedule", "go together"),
        ("budget", {"per_window": "2 elephants"}, "budget.per_window", "2GiB"),
        ("instrument", [{"target": "no colon"}], "instrument[0].target", ""),
        ("tools", {"torch": 3}, "tools.torch", "not a mapping"),
        ("nodes", [True], "nodes", "names no node"),
    ],
)
def test_refusals_name_path_and_mend(key, value, path, says):
    """B41: each wrong value is refused under its whole path, with what is allowed or the nearest match."""
    found = problems(**{key: value})
    assert path in found, found
    assert says in found[path]


def test_all_problems_at_once():
    """Several wrong keys are reported together."""
    assert set(problems(rank=1, collect="x", steps=True)) == {"rank", "collect", "steps"}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-5, 9) | st.floats() | st.text(max_size=4),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
        max_leaves=6,
    ),
    st.sampled_from(sorted(Config.model_fields)),
)
def test_any_value_is_taken_or_refused_by_name(value, key):
    """Whatever stands under a key, it loads or is a ConfigError that names the key; nothing else escapes."""
    try:
        load_config({key: value})
    except ConfigError as error:
        assert all(problem.path.startswith(key) for problem in error.problems)


def test_omegaconf_containers():
    """DictConfig and ListConfig are plain mappings and lists, interpolations resolved."""
    omegaconf = pytest.importorskip("omegaconf")
    config = omegaconf.OmegaConf.create({"steps": [2, 5], "groups": {"A": {"ranks": "${steps}"}}})
    loaded = load_config(config).config
    assert list(loaded.groups["A"][0].ranks) == [2, 5]
    assert list(load_config(steps=omegaconf.ListConfig([1, 2])).config.steps) == [1, 2]


def test_overrides():
    """``a.b=c``, ``+a``, ``++a`` and ``~a`` as Hydra has them; values are YAML."""
    base = {"steps": [1], "tools": {"torch": {"contents": ["cpu"]}}}
    changed = apply_overrides(
        base, ["steps=[2,3]", "tools.torch.contents=[shapes]", "+groups.A.ranks=all", "~tools.nothing"]
    )
    assert changed == {"steps": [2, 3], "tools": {"torch": {"contents": ["shapes"]}}, "groups": {"A": {"ranks": "all"}}}
    assert base["steps"] == [1]
    assert apply_overrides({"a": {"b": 1}}, ["~a.b"]) == {"a": {}}


@pytest.mark.parametrize("wrong", ["steps", "=3", "a..b=1", "steps.x=1", "steps=[1"])
def test_wrong_overrides(wrong):
    """An override that is none, or that goes below a value, is refused with the text given."""
    with pytest.raises(ConfigError):
        apply_overrides({"steps": [1]}, [wrong])


@pytest.mark.parametrize(
    ("text", "says"), [("a: [1", "not YAML"), ("- 1", "a mapping of keys"), ("\xff", "cannot read")]
)
def test_unreadable_files(tmp_path, text, says):
    """A file that is not there, not YAML or no mapping is a ConfigError that names it."""
    file = tmp_path / "bad.yaml"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError, match=says) as caught:
        load_config(file)
    assert "bad.yaml" in str(caught.value)
    with pytest.raises(ConfigError, match="cannot read"):
        load_config(tmp_path / "absent.yaml")


def test_other_objects():
    """Paths, mappings and configs are taken; anything else is named."""
    assert load_config(load_config(steps=[3]).config).config.steps is not None
    assert load_config({"output_dir": pathlib.Path("x")}).config.output_dir == "x"
    with pytest.raises(ConfigError, match="a int is no configuration"):
        load_config(3)


def test_embedded_section():
    """A key ``accelprof`` holds our dialect inside a larger file; its paths begin with it."""
    assert list(load_config({"trainer": {}, "accelprof": {"steps": [4]}}).config.steps) == [4]
    with pytest.raises(ConfigError, match=r"accelprof\.step: unknown key"):
        load_config({"accelprof": {"step": [4]}})


@pytest.mark.parametrize(
    ("text", "size"), [("2GiB", 2**31), ("500 MB", 500_000_000), (1024, 1024), ("1.5k", 1500), (None, None)]
)
def test_sizes(text, size):
    """Sizes are bytes or a number with a unit."""
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("mapping", "says"),
    [
        (
            {"a": "${b}", "b": {"c": 1}},
            r"^a: cannot set a\.c: .*Mend: change what it names, or give it a mapping of its own: a=",
        ),
        ({"a": 5}, r"^a: cannot set a\.c: this is not a mapping \(got 5\)$"),
    ],
)
def test_an_override_below_what_is_no_mapping(mapping, says):
    """It is refused with the place; an interpolation names what may be changed in its stead."""
    with pytest.raises(ConfigError, match=says):
        apply_overrides(mapping, ["a.c=2"])


@pytest.mark.parametrize("word", ["step", "1", "actor_", "é", "steps.", "x,", " "])
def test_names_of_any_length_are_answered_at_once(word):
    """A name of a megabyte, wherever one can stand, is refused or taken within seconds, and the message is short."""
    long = word * (10**6 // len(word))
    trainer = {"trainer": {"n_gpus_per_node": 8}, "global_profiler": {"steps": [1]}}
    began = time.process_time()
    for config in (
        {long: 1},
        {"steps": [1], long: {long: 1}},
        {"tool": long},
        {"accelerator": long},
        {"collect": long},
        {"groups": {long: [{long: 1}]}},
        {"groups": {"G": [{"tool": long, "phases": [long]}]}},
        {"tools": {"torch": {long: 1}}},
        {"tools": {long: {long: 1}}},
        {**trainer, long: 1},
        {**trainer, "global_profiler": {"steps": [1], long: 1, "tool": long}},
        {**trainer, "trainer": {long: 1}},
    ):
        with contextlib.suppress(ConfigError):
            try:
                get_catalogue().load(config)
            except ConfigError as error:
                assert len(str(error)) < 3000
                raise
    with contextlib.suppress(ConfigError):
        get_catalogue().load({"steps": [1]}, overrides=[f"{long}={long}"])
    assert nearest(long, [long, "steps"]) == ""
    assert nearest("steqs", [long, "steps"]) == "did you mean 'steps'?"
    assert time.process_time() - began < 20


def test_a_wrong_value_of_a_file_names_file_and_line(tmp_path):
    """Each wrong value says where it stands; one that an override gives does not, nor one of a mapping."""
    file = tmp_path / "p.yaml"
    file.write_text(
        "# a comment\nsteps: [1]\ngroups:\n  A.b:\n    - ranks: [0]\n    - ranks: nobody\n  C: {tol: x}\nmerge_stps: 1\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_config(str(file))
    places = {problem.path: problem.place for problem in caught.value.problems}
    lines = {"groups.A.b[1].ranks": 6, "groups.C.tol": 7, "merge_stps": 8}
    assert places == {path: f"{file}, line {line}" for path, line in lines.items()}
    assert f"{file}, line 6: groups.A.b[1].ranks: " in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value.problems[0])).place == caught.value.problems[0].place
    with pytest.raises(ConfigError) as caught:
        load_config(str(file), ["groups.C.tol=3"])
    assert {problem.path: problem.place for problem in caught.value.problems}["groups.C.tol"] == ""
    with pytest.raises(ConfigError) as caught:
        load_config({"stps": 1})
    assert caught.value.problems[0].place == ""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["fifo", "/dev/zero", "directory", "endless", "not YAML", "absent"])
def test_what_is_refused_as_a_file_is_not_read_again(tmp_path, kind):
    """Where a value stands is looked for by the bounded reading of the file itself: a FIFO nobody writes to, a device without
    an end and a file that is too long are refused in one message, at once."""
    file = "/dev/zero" if kind == "/dev/zero" else tmp_path / "c.yaml"
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "directory":
        file.mkdir()
    elif kind == "endless":
        with file.open("w") as opened:
            opened.write("steps: [1]\n")
            opened.truncate(1 << 36)  # a hole of 64 GiB
    elif kind == "not YAML":
        file.write_text("steps: [1\n")
    with pytest.raises(ConfigError) as caught:
        load_config(str(file))
    (problem,) = caught.value.problems
    assert (problem.path, problem.place) == (str(file), "")


def test_a_wrong_value_of_a_foreign_file_names_the_line_of_its_own_word(tmp_path):
    """The line is that of the key as the framework's file has it."""
    file = tmp_path / "verl.yaml"
    file.write_text("trainer:\n  n_gpus_per_node: 8\nglobal_profiler:\n  tool: torch\n  steps: nobody\n")
    with pytest.raises(ConfigError) as caught:
        get_catalogue().load(str(file))
    places = [problem.place for problem in caught.value.problems if problem.path == "global_profiler.steps"]
    assert places == [f"{file}, line 5"]


@pytest.mark.parametrize("key", ["run", "budget.per_window", "steps"])
def test_a_value_that_has_our_words_is_one_value(key):
    """What is allowed comes from the schema, never from the words of a value in its message."""
    value = "a/b; allowed: everything"
    text = value
    for part in reversed(key.split(".")):
        text = {part: text}
    with pytest.raises(ConfigError) as caught:
        load_config(text)
    [problem] = caught.value.problems
    assert value in problem.message
    assert problem.allowed
    assert "everything" not in problem.allowed
