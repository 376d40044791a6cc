"""The one door: whatever comes in is taken, or refused by name, in time, in bounds, and never by somebody else's exception."""

from __future__ import annotations

import datetime
import enum
import itertools
import os
import pickle
import re
import time
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from accelprof import hookimpl
from accelprof.catalogue import Catalogue, make_catalogue
from accelprof.cli.config import config as config_cli
from accelprof.config.door import MAX_DEPTH, MAX_VALUES, parse, plain
from accelprof.config.load import load_config
from accelprof.errors import MAX_MESSAGE, UNKNOWN_KEY, AccelprofError, ConfigError, Problem, nearest, shown
from accelprof.launch.run import run as run_command
from accelprof.output.layout import impossible
from accelprof.testing import RecordingBackend
from tests.fuzz import configurations as fuzz

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "steps: 2020-13-45\n",
            r"c\.yaml: not YAML: '2020-13-45' is no timestamp: month must be in 1\.\.12.*line 1, column 8",
        ),
        ("a: 1\nsteps: !!float ''\n", r"c\.yaml: not YAML: '' is no float.*line 2"),
        ("steps: [1\n", r"c\.yaml: not YAML: .*line 2"),
        (BOMB, rf"c\.yaml: .*more than {MAX_VALUES:,} values, each alias counted"),
        ("&a [*a]\n", r"c\.yaml: \[0\]: it contains itself|c\.yaml.*itself"),
        ("a: &a {b: *a}\n", r"c\.yaml: a\.b: it contains itself"),
        ("[" * 9000, rf"c\.yaml: .*more than {MAX_DEPTH} mappings and lists"),
        ("- " * 9000, rf"c\.yaml: .*more than {MAX_DEPTH} mappings and lists"),
        ("1: a\n'1': b\n", r"c\.yaml: line 2, column 1: the key '1' is there already, in line 1"),
        (
            "steps: [1]\ntool: torch\nsteps: [2]\n",
            r"line 3, column 1: the key 'steps' is there already, in line 1\. Mend: ",
        ),
        ('{"steps": [1], "steps": [2]}', r"line 1, column 16: the key 'steps' is there already, in line 1"),
        ("groups:\n  A: {ranks: [0], ranks: [1]}\n", r"line 2, column 19: the key 'ranks' is there"),
        ("groups:\n  - {a: 1}\n  - b: 1\n    c: 2\n    b: 1\n", r"line 5, column 5: the key 'b' .*line 3"),
        ("0x10: a\n16: b\n", r"line 2, column 1: the key '16' is there already, in line 1"),
        ("~: a\nnull: b\n", r"line 2, column 1: the key 'None' is there already, in line 1"),
        ("2020-13-45: a\n", r"'2020-13-45' is no timestamp"),
        ('steps: "\\ud800"\n', "no Unicode"),
        ("[1, 2]\n", "the top level is a list"),
        ("steps: 0x" + "F" * 4000 + "\n", r"steps: .*above 10\^18"),
        ("stepps: [1]\n", "stepps: unknown key.*did you mean 'steps'"),
        ("steps: .nan\n", "steps: nan is a float"),
        ("steps: [1]\nreport_timeout: .inf\n", "report_timeout"),
        ("budget: {per_run: " + "9" * 400 + "TiB}\n", r"budget\.per_run: a size above"),
        ("budget: {per_run: 999999999999999TiB}\n", r"budget\.per_run: a size above"),
        ("steps: ['0-9999999999999999999999']\n", r"10\^18"),
        ("schedule: {phase: x, wait: 1" + "0" * 30 + "}\n", "schedule.*wait"),
    ],
)
def test_a_text_is_refused_with_file_place_and_reason(tmp_path, text, said):
    """The file is named, the line where a parser knows it, the value in short, and the message fits a screen."""
    file = tmp_path / "c.yaml"
    file.write_text(text)
    began = time.process_time()
    with pytest.raises(ConfigError, match=f"(?s){said}") as caught:
        load_config(file)
    assert time.process_time() - began < 5
    assert len(str(caught.value)) <= MAX_MESSAGE


@pytest.mark.parametrize("name", ["absent.yaml", ".", "binary.yaml", "large.yaml"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, name):
    """Not there, a directory, not UTF-8, far too large: the path and why, at once."""
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00a")
    (tmp_path / "large.yaml").write_text("a: 1\n" * 1_000_000)
    began = time.process_time()
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / name)
    assert time.process_time() - began < 2
    assert str(tmp_path / name).rstrip("/.") in str(caught.value)


@pytest.mark.parametrize(
    "override",
    ["steps=[", "steps=2020-13-45", "steps=0x" + "F" * 4000, "a=" + "[" * 5000, "=", "a..b=1", "steps=&a [*a]"],
)
def test_an_override_is_refused_by_its_key(override):
    """The same door for what stands behind ``=``."""
    with pytest.raises(ConfigError) as caught:
        load_config({"steps": [1]}, [override])
    assert len(str(caught.value)) <= MAX_MESSAGE


class Word(str, enum.Enum):
    ALL = "all"


class Index:
    def __index__(self):
        return 3


def test_what_behaves_as_a_plain_value_is_one():
    """Enums are their value, what has ``__index__`` is a number, paths are texts, keys of other types are texts."""
    given = {Word.ALL: [Word.ALL, Index(), Path("a/b"), 1.5, None, True], 3: {True: 1, None: 2}}
    assert plain(given) == {"all": ["all", 3, "a/b", 1.5, None, True], "3": {"True": 1, "None": 2}}
    assert load_config({"steps": [Index()], "ranks": Word.ALL, "output_dir": Path("x")}).config.steps.to_config() == [3]
    day = datetime.date(2020, 1, 2)
    with pytest.raises(ConfigError, match="steps: .*is a date"):
        load_config({"steps": day})


def test_values_that_are_shared_are_no_circle():
    """The same list in two places is two lists; one that contains itself is refused."""
    twice = [1, 2]
    assert plain({"a": twice, "b": {"c": twice}}) == {"a": [1, 2], "b": {"c": [1, 2]}}
    twice.append(twice)
    with pytest.raises(ConfigError, match=r"a\[2\]: it contains itself"):
        plain({"a": twice})


def test_ranges_are_never_listed_out(tmp_path):
    """A range of 10¹² steps, with a stride too, from Python and from text, costs no time and no memory."""
    began = time.process_time()
    catalogue = make_catalogue(entry_points=False)
    for steps in (
        range(10**12),
        range(5, 10**12, 7),
        "0-999999999999",
        "0-999999999999/2",
        ["0-99999999999/3", 100000000001],
    ):
        plan = catalogue.plan(catalogue.load({"ranks": "0-999999999999", "groups": {"G": {}}}, steps=steps).config)
        assert plan.preview()
        assert plan.preview({"G": 3})[2].count.exact > 10**10
    with pytest.raises(ConfigError):
        catalogue.load({"global_profiler": {"tool": "torch", "steps": [1]}}, trainer=range(10**12))
    assert time.process_time() - began < 5


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["all", "0-3", "torch", "${a}", "???"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*fuzz.OURS, *fuzz.VERL, *fuzz.RLINF, "x"]) | st.text(max_size=3), inner, max_size=3
        )
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from([*fuzz.OURS, *fuzz.VERL, *fuzz.RLINF, "x"]), JSON, max_size=4))
def test_any_mapping_is_taken_or_refused_by_name(mapping):
    """No mapping of known and unknown keys over any values raises anything that is not ours."""
    catalogue = CATALOGUE
    try:
        catalogue.plan(catalogue.load(mapping).config).preview()
    except AccelprofError as error:
        assert len(str(error)) <= MAX_MESSAGE


CATALOGUE = make_catalogue(entry_points=False)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab:[]{}&*!#'\"-\n ,?|>%@`0.1_\t", max_size=40))
def test_any_text_is_taken_or_refused_by_name(text):
    """No text raises anything that is not ours, whatever YAML makes of it."""
    try:
        parse(text, "given")
    except ConfigError as error:
        assert str(error).startswith("given")


def test_a_short_part_of_the_fuzz(tmp_path):
    """Three hundred hostile configurations of ``make fuzz``, other ones each day."""
    start = int(time.time() // 86400) * 1000
    outcomes = [fuzz.trial(seed, CATALOGUE, tmp_path) for seed in range(start, start + 300)]
    assert outcomes.count("taken") > 10, f"seeds from {start}"
    assert outcomes.count("refused") > 10, f"seeds from {start}"


@pytest.mark.parametrize(
    "given",
    [
        {"stepps": [1]},
        {"steps": [1], "tools": {"torch": {"contentz": ["cpu"]}}},
        {"global_profiler": {"tool": "torch", "steps": [1], "stepz": 1}},
        {"global_profiler": {"steps": [1], "global_tool_config": {"torch": {"contentz": []}}}},
    ],
)
def test_a_key_that_nobody_reads_says_so_by_a_code(given):
    """In our words, a tool's and a dialect's; the code goes with the problem to another process and under another path."""
    with pytest.raises(ConfigError, match="unknown key") as caught:
        CATALOGUE.plan(CATALOGUE.load(given).config)
    problems = [problem for problem in caught.value.problems if problem.code == UNKNOWN_KEY]
    assert len(problems) == 1
    [again] = pickle.loads(pickle.dumps(ConfigError(*problems))).problems
    assert (str(again), again.code, again.value) == (str(problems[0]), UNKNOWN_KEY, problems[0].value)
    moved = again.at("a.b", str.upper)
    assert (moved.path, moved.message, moved.code, again.message) == ("a.b", "UNKNOWN KEY", UNKNOWN_KEY, "unknown key")


def test_messages_are_bounded_and_plain():
    """A problem shows any value in short, control characters as escapes; many problems fit one message and are counted."""
    endless = []
    endless.append(endless)

    class Hidden:
        def __repr__(self):
            raise RuntimeError

    for value in (10**5000, "x" * 10**6, endless, Hidden(), [list(range(9999))] * 99, {"k" * 9999: 1}):
        assert len(shown(value)) < 400
    text = str(Problem("a\x1b[2Jb" * 500, "m\n" * 9999, value="v" * 9999, allowed="a" * 9999, mend="x" * 9999))
    assert len(text) < MAX_MESSAGE
    assert text.isprintable()
    many = str(ConfigError(*(Problem(f"key{n}", "wrong") for n in range(5000))))
    assert len(many) <= MAX_MESSAGE
    assert "more" in many.splitlines()[-1]


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("steps: [1]\naccelerator: gpux\n", 2, "accelerator: "),
        ("steps: [1]\noutput_dir: /dev/null/x\n", 2, "output_dir: it cannot be made: /dev/null is no directory"),
        ("steps: [1]\noutput_dir: 'a\\0b'\n".replace("'a\\0b'", '"a\\0b"'), 2, "output_dir"),
        ("steps: [1]\noutput_dir: " + "n" * 300 + "\n", 2, "output_dir: it cannot be made: a name of 300 bytes"),
        (
            "steps: [1]\ngroups: {A: [{ranks: [0]}, {ranks: [0], tool: torch}]}\n",
            2,
            "groups.A[1]: this rule can never apply",
        ),
        ("tool: torch\n", 0, "nothing to profile in this file: steps is absent"),
        ("steps: [1]\nenabled: false\n", 0, "nothing to profile in this file: enabled is false"),
        ("steps: [1]\nranks: []\n", 0, "nothing to profile in this file: no rule takes any process"),
        (
            "steps: [1]\ngroups: {A: {enabled: false}}\n",
            0,
            "nothing to profile in this file: every rule under groups has enabled: false",
        ),
        ("steps: [1]\ngroups: {}\n", 0, "nothing to profile in this file: groups names nobody"),
        ("steps: [1]\ngroups: {A: []}\n", 0, "nothing to profile in this file: groups names nobody"),
        ("on_demand: true\n", 0, "right"),
        ("steps: [1]\ngroups: {A: {steps: []}}\ncontroller: {tool: torch}\n", 0, "right"),
        (
            "instrument: [{target: 'a:b', when: {role: x, rank: some}, schedule: {phase: x}}]\n",
            2,
            "instrument[0].when: 'some' is neither a number nor a range",
        ),
    ],
)
def test_check_says_what_configure_would_refuse(tmp_path, monkeypatch, text, status, said):
    """``config check`` refuses an unknown accelerator, an impossible directory and a dead rule, and says why nothing would be profiled."""
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text(text)
    result = CliRunner().invoke(config_cli, ["check", "c.yaml"])
    told = result.output + (str(result.exception) if result.exception else "")
    assert said in told
    assert getattr(result.exception, "exit_code", result.exit_code) == status
    assert ("nothing to profile" in told) == ("nothing" in said)


def test_a_directory_is_impossible_where_none_can_be_made(tmp_path, monkeypatch):
    """What the system refuses although it grants the right to write is told, a home directory is found, and nothing is left."""
    if os.path.isdir("/proc/self"):
        assert "no directory can be made in /proc" in impossible("/proc/x/y")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").write_text("a file")
    assert impossible("~/x") == f"{tmp_path / 'home'} is no directory"
    assert impossible(str(tmp_path / "a" / "b")) == ""
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_run_refuses_an_impossible_directory_before_it_starts(tmp_path):
    """``accelprof run`` names ``output_dir``, and the command is not started."""
    catalogue = make_catalogue(entry_points=False)
    config = catalogue.load({"steps": [1], "output_dir": "/dev/null/x"}).config
    with pytest.raises(ConfigError, match="output_dir: it cannot be made"):
        run_command(catalogue, config, catalogue.plan(config), ["touch", str(tmp_path / "started")])
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("known", "word", "near"),
    [
        (["contents", "level", "analysis"], "profiler_level", "level"),
        (["contents", "level", "analysis"], "profile_levl", "level"),
        (["steps", "ranks"], "rank", "ranks"),
        (["steps", "ranks"], "zzz_qqq", ""),
        (["steps", "ranks"], "_", ""),
        (["set", "off"], "set_of_things", ""),  # three letters say nothing
    ],
)
def test_the_nearest_word(known, word, near):
    """A known word that is part of the one written is the near one too, however much stands around it."""
    assert nearest(word, known) == (f"did you mean {near!r}?" if near else "")


def test_gpu_is_asked_whose(registered):
    """``accelerator: gpu`` names the vendors' types that are there; nobody's nearest spelling is guessed."""
    with pytest.raises(ConfigError) as caught:
        registered.plan(registered.load({"steps": [1], "accelerator": "GPU"}).config)
    assert "say whose: cuda (NVIDIA), or auto" in str(caught.value)
    assert "did you mean" not in str(caught.value)


@pytest.fixture
def registered():
    registry = Catalogue()
    registry.register(SimpleNamespace(accelprof_backends=hookimpl(lambda: [_Cuda], specname="accelprof_backends")), "x")
    return registry


class _Cuda(RecordingBackend):
    name = "cuda"
    aliases = ()


class NoNumber:
    def __index__(self):
        raise RuntimeError("not today")


class NoList:
    def __iter__(self):
        raise RuntimeError("not today")


@pytest.mark.parametrize("key", ["steps", "ranks"])
@pytest.mark.parametrize(
    ("make", "means"),
    [
        (lambda: numpy.array([1, 2, 7]), [1, 2, 7]),
        (lambda: numpy.array([[1, 2], [3, 4]]), [1, 2, 3, 4]),
        (lambda: numpy.array(3), [3]),
        (lambda: numpy.int64(3), [3]),
        (lambda: numpy.array([], dtype=int), []),
        (lambda: numpy.array(["1-3", "9"]), [1, 2, 3, 9]),
        (lambda: pytest.importorskip("torch").tensor([4, 1]), [1, 4]),
        (lambda: pytest.importorskip("torch").tensor(4), [4]),
        (lambda: (number for number in (3, 1)), [1, 3]),
        (lambda: {3: "a", 1: "b"}.keys(), [1, 3]),
        (lambda: range(0, 10**18, 10**17), list(range(0, 10**18, 10**17))),
    ],
)
def test_numbers_of_other_kinds_are_taken(key, make, means):
    """Arrays, tensors and whatever gives numbers one after another say the same as a list of them."""
    assert list(getattr(load_config({key: make()}).config, key)) == means
    assert list(getattr(load_config(**{key: make()}).config, key)) == means


@pytest.mark.parametrize("key", ["steps", "ranks"])
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: numpy.array([1.5]), "1.5 is a float"),
        (lambda: numpy.array([True]), "True is a truth value"),
        (lambda: pytest.importorskip("torch").tensor(2.5), "2.5 is a float"),
        (lambda: range(0, 10**21, 10), "above 10^18"),
        (lambda: range(0, 10**21, 10**20), "above 10^18"),
        (NoNumber, "a NoNumber that cannot be read: RuntimeError: not today"),
        (NoList, "a NoList that cannot be read: RuntimeError: not today"),
        (itertools.count, "more than 100,000 values"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_key(key, make, says):
    """An object that raises, one without an end, one that gives no whole numbers: the message begins with the key, in time."""
    began = time.process_time()
    for call in (lambda: load_config({key: make()}), lambda: load_config(**{key: make()})):
        with pytest.raises(ConfigError, match=re.escape(says)) as raised:
            call()
        assert re.match(rf"((config|arguments): )?{key}(\[\d+\])?: ", str(raised.value))
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    "items", ["steps: [" + "1," * 300_000 + "]", "steps:\n" + "- 1\n" * 900_000], ids=["one line", "a line each"]
)
def test_a_long_list_is_refused_while_it_is_read(items):
    """The parser stops at the bound, with line and column and the short way to write many numbers."""
    began = time.process_time()
    with pytest.raises(
        ConfigError, match=r"^c.yaml: line \d+, column \d+: more than 100,000 values. Mend: .*0-900000/2"
    ):
        parse(items, "c.yaml")
    assert time.process_time() - began < 10
    assert len(parse("steps: [" + "1," * 1000 + "]", "c.yaml")["steps"]) == 1000


@pytest.mark.parametrize("command", ["check", "show"])
def test_how_the_driver_is_started_is_said_before(tmp_path, command):
    """A driver under a launcher is recorded where accelprof starts it; one that profiles itself needs nothing."""
    pytest.importorskip("accelprof_cuda", reason="the plug-in is not installed")
    (tmp_path / "c.yaml").write_text("steps: [2]\ntool: torch\n")
    needs = "accelprof run -c FILE -- python driver.py; a plain python driver.py is not recorded"
    for tool, said in (("nsys", True), ("torch", False)):
        done = CliRunner().invoke(config_cli, [command, str(tmp_path / "c.yaml"), f"controller.tool={tool}"])
        assert (done.exit_code, needs in " ".join(done.output.split())) == (0, said)


@pytest.mark.parametrize("raised", [SystemExit, GeneratorExit, MemoryError, KeyError, KeyboardInterrupt])
@pytest.mark.parametrize("method", ["__index__", "__iter__", "keys", "__fspath__"])
def test_a_value_that_ends_more_than_itself(method, raised):
    """Whatever a value raises when it is looked at refuses its key, but the user's interrupt, which passes."""

    def fail(self):
        raise raised("now")

    members = {method: fail}
    if method == "__iter__":
        members["__len__"] = lambda self: 1
        bases = (list,)
    else:
        bases = (dict,) if method == "keys" else ()
    value = type("Odd", bases, members)()
    if method == "keys":
        members["items"] = fail
        value = type("Odd", bases, members)()
        value["a"] = 1
    config = {"steps": [1], "groups": {"G": [{"ranks": value}]}}
    if raised is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt if method == "__index__" else (KeyboardInterrupt, ConfigError)):
            load_config(config)
        return
    with pytest.raises(ConfigError, match=re.escape("groups.G[0].ranks")):
        load_config(config)


def test_merged_mappings_repeat_no_key():
    """``<<`` brings keys under those that stand there, also twice and through another anchor; that is what it is for."""
    text = "a: &a {x: 1, y: 1}\nb: &b {<<: *a, x: 2}\nc: {<<: *b, x: 3}\nd: {<<: [*a, *b], y: 4}\n"
    made = parse(text, "c.yaml")
    assert made == {
        "a": {"x": 1, "y": 1}, "b": {"x": 2, "y": 1}, "c": {"x": 3, "y": 1}, "d": {"x": 1, "y": 4},
    }  # fmt: skip


@pytest.mark.parametrize("word", ["groups.A={ranks: [0], ranks: [1]}", "tools={torch: {}, torch: {}}"])
def test_an_override_with_a_key_twice_is_refused(word):
    """Values of overrides come through the same door."""
    with pytest.raises(ConfigError, match="is there already"):
        load_config({"steps": [1]}, [word])
