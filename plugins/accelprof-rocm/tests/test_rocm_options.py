"""What users write for AMD's tools: checked against tables or the installed tool's help, answered with the form that works."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from accelprof_rocm import arguments, installation, option_tables, releases, roctx
from accelprof_rocm.backend import RocmBackend
from accelprof_rocm.rocprof_sys import RocprofSysTool
from accelprof_rocm.rocprofv3 import Rocprofv3Tool
from pydantic import ValidationError

from accelprof.catalogue import get_catalogue
from accelprof.contracts.targets import Assignment, Target, WindowInfo
from accelprof.contracts.tool import ToolContext
from accelprof.errors import ConfigError
from accelprof.testing import Captured, ToolConformance

Make = Callable[..., Assignment]
#: what rocprof-sys records from ROCm 6.4 where no domain is named
DEFAULT = "hip_runtime_api,marker_api,kernel_dispatch,memory_copy,scratch_memory"


class _OverALibrary(ToolConformance):
    """The trigger call over a ROCTX library that notes what it is asked, in a process that looks started by the tool."""

    environment: tuple[str, str]

    @contextlib.contextmanager
    def stand_in(self) -> Iterator[None]:
        self.calls: list[str] = []

        def note(word: str, answer: int) -> Callable[..., int]:
            return lambda *_: (self.calls.append(word), answer)[1]

        nothing = note("", 0)
        library = roctx.Library(
            "rocprofiler-sdk-roctx", "stand-in", lambda text: text, nothing, nothing, nothing,
            start=note("start", 7), stop=note("stop", 0), pause=note("stop", 0), resume=note("start", 0),
        )  # fmt: skip
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(*self.environment)
            patch.setattr(roctx, "find", lambda *_: library)
            yield

    def trigger_calls(self, run: Captured) -> list[str]:
        return [word for word in self.calls if word]


class TestRocprofSysConformance(_OverALibrary):
    """The kit: from 7.13 on a window is a region."""

    environment = ("ROCPROFSYS_SELECTED_REGIONS", releases.REGION)

    def make(self) -> RocprofSysTool:
        return RocprofSysTool({"rocm": "7.13"})


class TestRocprofv3Conformance(_OverALibrary):
    """The kit: from 7.0 on a window is resume and pause."""

    environment = ("ROCPROF_SELECTED_REGIONS", "1")

    def make(self) -> Rocprofv3Tool:
        return Rocprofv3Tool({"rocm": "7.0"})


def problems(tool: Any, assignment: Make, **more: Any) -> list[str]:
    return [str(problem) for problem in tool.check([assignment(tool.name, **more)])]


def test_the_guides_form_is_answered_with_the_one_that_works(assignment: Make) -> None:
    """``-T hip,hsa,rccl`` and ``--output-format`` are no options of the Python launcher; each mend is a setting that exists."""
    args = {"T": "hip,hsa,rccl", "output-format": "json"}
    tool = RocprofSysTool({"args": args, "env": {"ROCPROFSYS_SAMPLING_FREQ": "100"}, "rocm": "7.0"})
    first, second = problems(tool, assignment)
    assert first.startswith(
        "tools.rocprof_sys.args.T: rocprof-sys-python has no option -T (by ROCm 7.0) (got 'hip,hsa,rccl')"
    )
    assert f"env: {{ROCPROFSYS_TRACE: 'true', ROCPROFSYS_ROCM_DOMAINS: '{DEFAULT},hip_api,hsa_api,rccl_api'}}" in first
    assert "rocprof-sys-python has no option --output-format" in second
    assert "ROCPROFSYS_TRACE: 'true'" in second


def test_the_mended_form_passes_and_the_users_environment_wins(assignment: Make) -> None:
    """What the answer says to write is accepted, and stands in the worker's environment as written."""
    env = {
        "ROCPROFSYS_TRACE": True,
        "ROCPROFSYS_ROCM_DOMAINS": f"{DEFAULT},hip_api,hsa_api,rccl_api",
        "ROCPROFSYS_TIME_OUTPUT": "true",
    }
    tool = RocprofSysTool({"env": env, "rocm": "7.0"})
    assert problems(tool, assignment) == []
    launch = tool.launch(assignment("rocprof_sys"), "/run/ActorGroup")
    assert launch.env["ROCPROFSYS_ROCM_DOMAINS"] == f"{DEFAULT},hip_api,hsa_api,rccl_api"
    assert launch.env["ROCPROFSYS_TIME_OUTPUT"] == "true"


def test_a_whole_configuration_is_refused_on_the_driver() -> None:
    """The same through the front door: nothing is started with options that the tool does not have."""
    config = {
        "tool": "rocprof_sys",
        "steps": [1],
        "groups": {"ActorGroup": {"ranks": [0]}},
        "tools": {"rocprof_sys": {"args": {"T": "hip"}, "rocm": "7.0"}},
    }
    catalogue = get_catalogue()
    with pytest.raises(ConfigError, match=rf"no option -T.*ROCPROFSYS_ROCM_DOMAINS: '{DEFAULT},hip_api'"):
        catalogue.plan(catalogue.load(config).config)


def test_the_guides_configuration_of_rlinf() -> None:
    """The same in RLinf's own words: refused by the key, and the mended form becomes the launch that works."""
    profiling: dict[str, Any] = {"enabled": True, "backend": "rocprof_sys", "worker_groups": ["ActorGroup"]}
    catalogue = get_catalogue()
    with pytest.raises(
        ConfigError, match=rf"cluster\.profiling\.args\.T: .*ROCPROFSYS_ROCM_DOMAINS: '{DEFAULT},hip_api'"
    ):
        catalogue.plan(catalogue.load({"cluster": {"profiling": {**profiling, "args": {"T": "hip"}}}}).config)
    env = {
        "ROCPROFSYS_TRACE": "true",
        "ROCPROFSYS_ROCM_DOMAINS": f"{DEFAULT},hip_api",
        "ROCPROFSYS_SAMPLING_FREQ": "100",
    }
    plan = catalogue.plan(catalogue.load({"cluster": {"profiling": {**profiling, "env": env}}}).config)
    row = plan.assign(Target("ActorGroup", rank=0))
    launch = catalogue.make_tool(str(row.tool), row.options).launch(row, "/run")
    assert launch.mode == "replace"
    assert launch.argv == ("rocprof-sys-python", "-b", "--")
    assert {name: launch.env[name] for name in env} == env


def both(tool: str, first: Any, second: Any) -> None:
    """Two roles of one process with these options.

    Raises:
        ConfigError: they do not mean the same.
    """
    rules = [{"roles": [role], "ranks": [0], "options": options} for role, options in (("a", first), ("b", second))]
    catalogue = get_catalogue()
    plan = catalogue.plan(catalogue.load({"tool": tool, "steps": [1], "groups": {"W": rules}}).config)
    assert plan.assign(Target("W", ("a", "b"), rank=0)).tool == tool


TRACE = {"env": {"ROCPROFSYS_TRACE": "true"}}
MINE = {"rocm": "7.13", "env": {"ROCPROFSYS_SELECTED_REGIONS": "mine,other"}}


@pytest.mark.parametrize(
    ("tool", "first", "second"),
    [
        ("rocprof_sys", {"flags": ["b"]}, {}),
        ("rocprof_sys", {"args": {"builtin": True}}, {"flags": ["-b"]}),
        ("rocprof_sys", TRACE, {}),
        ("rocprof_sys", {"env": {"ROCPROFSYS_TRACE": "ON"}}, TRACE),
        ("rocprof_sys", {"rocm": "7.0"}, {}),
        ("rocprof_sys", {"program": "rocprof-sys-python"}, {}),
        ("rocprof_sys", {"windows": "whole"}, {}),
        ("rocprof_sys", {"env": {"ROCPROFSYS_ROCM_DOMAINS": "memory_copy kernel_dispatch;marker_api,hip_runtime_api,scratch_memory"}}, {}),
        ("rocprof_sys", MINE, {**MINE, "env": {"ROCPROFSYS_SELECTED_REGIONS": "other,mine"}}),
        ("rocprof_sys", {"variant": "run", "args": {"I": ["rocm", "roctx"]}}, {"variant": "run", "args": {"include": "roctx rocm"}}),
        ("rocprofv3", {"flags": ["runtime-trace"]}, {}),
        ("rocprofv3", {"format": ["rocpd"]}, {"args": {"f": "rocpd"}}),
        ("rocprofv3", {"format": ["csv", "json"]}, {"args": {"output-format": ["json", "csv"]}}),
        ("rocprofv3", {"flags": ["hip-trace"]}, {"args": {"hip_trace": "yes"}}),
        ("rocprof_sys_attach", {"format": ["rocpd"], "rocm": "7.13"}, {"rocm": "7.13"}),
    ],
)  # fmt: skip
def test_options_that_mean_the_same(tool: str, first: Any, second: Any) -> None:
    """Roles of one process may write the same options differently: defaults, spellings and order."""
    both(tool, first, second)
    both(tool, second, first)


@pytest.mark.parametrize(
    ("tool", "first", "second"),
    [
        ("rocprof_sys", {"flags": ["b"]}, {"args": {"b": False}}),
        ("rocprof_sys", {"env": {"ROCPROFSYS_TRACE": "false"}}, {}),
        ("rocprof_sys", {"rocm": "7.2"}, {}),
        ("rocprof_sys", {"env": {"ROCPROFSYS_ROCM_DOMAINS": f"{DEFAULT},hip_api"}}, {}),
        ("rocprof_sys", {"extra_args": ["--x", "--y"]}, {"extra_args": ["--y", "--x"]}),
        ("rocprofv3", {"flags": ["hip-trace"]}, {}),
        ("rocprofv3", {"format": ["csv"]}, {}),
    ],
)  # fmt: skip
def test_options_that_do_not(tool: str, first: Any, second: Any) -> None:
    """What would start the process differently is a contradiction, and both roles are named."""
    with pytest.raises(ConfigError, match=r"groups\.W\[1\].*groups\.W\[0\]|groups\.W\[0\].*groups\.W\[1\]"):
        both(tool, first, second)


@pytest.mark.parametrize(
    "word", ["--selected-regions", "--selected-regions=x", "-selected-regions=x", "--selected_regions"]
)
@pytest.mark.parametrize("variant", ["run", "sample", "python"])
def test_regions_among_the_extra_arguments(assignment: Make, word: str, variant: str) -> None:
    """They would take the place of the window's region as an option of that name would; before 7.13 nothing is replaced."""
    options = {"variant": variant, "extra_args": ["--x", word, "mine"]}
    [said] = problems(RocprofSysTool({**options, "rocm": "7.13"}), assignment)
    assert said.startswith("tools.rocprof_sys.extra_args: its --selected-regions would take the place")
    assert "Mend: env: {ROCPROFSYS_SELECTED_REGIONS: …}" in said
    assert problems(RocprofSysTool({**options, "rocm": "7.12"}), assignment) == []


def test_domains_by_release(assignment: Make) -> None:
    """A domain is refused before the release that brought it, and a word that nobody knows yet is a note from the next one on."""
    name = "ROCPROFSYS_ROCM_DOMAINS"

    def tried(word: str, rocm: str) -> tuple[list[str], list[str]]:
        tool = RocprofSysTool({"rocm": rocm, "env": {name: f"{DEFAULT},{word}"}})
        notes = tool.launch(assignment("rocprof_sys"), "/run").notes
        return problems(tool, assignment), [note for note in notes if "newer than the table" in note]

    assert tried("kfd_events", "7.13") == ([], [])
    [said] = tried("kfd_events", "7.2")[0]
    assert "'kfd_events' is no domain" in said
    assert "kfd_events" not in said.partition("allowed")[2]
    [said] = tried("of_the_future", "7.13")[0]
    assert "'of_the_future' is no domain" in said
    refused, [note] = tried("of_the_future", "7.14")
    assert refused == []
    assert "of_the_future" in note
    assert "a word that it has not ends the worker" in note


SETTINGS = [
    *(("ROCM_DOMAINS", value) for value in ("hip_api", "hsa,hip", "nonsense", "kernel_dispach", "rccl_api;ompt", "hip hsa", "marker_api")),
    ("USE_ROCTX", "off"), ("SELECTED_REGIONS", "true"), ("SELECTED_REGIONS", "mine"), ("TRACE", "true"), ("SAMPLING_FREQ", "100"),
]  # fmt: skip


@pytest.mark.parametrize("rocm", ["5.7", "6.2", "6.3", "6.4", "7.0", "7.2", "7.13"])
@pytest.mark.parametrize("prefix", ["OMNITRACE_", "ROCPROFSYS_"])
@pytest.mark.parametrize(("setting", "value"), SETTINGS)
def test_what_is_refused_comes_with_what_is_taken(
    assignment: Make, rocm: str, prefix: str, setting: str, value: str
) -> None:
    """Whatever release and prefix: the mend of a setting, written in its place, is taken at the next try."""
    name = prefix + setting
    found = RocprofSysTool({"rocm": rocm, "env": {name: value}}).check([assignment("rocprof_sys")])
    if not found:
        return
    [problem] = found
    assert problem.path == f"tools.rocprof_sys.env.{name}"
    env = dict(re.findall(r"(\w+): '([^']*)'", problem.mend)) if problem.mend.startswith("env: {") else {}
    assert env or problem.mend.startswith("leave it out")
    assert RocprofSysTool({"rocm": rocm, "env": env}).check([assignment("rocprof_sys")]) == []


@pytest.mark.parametrize(
    ("tool", "options", "expected"),
    [
        (RocprofSysTool, {"args": {"verbosty": 1}}, "did you mean 'verbosity'?"),
        (RocprofSysTool, {"flags": ["buildin"]}, "did you mean 'builtin'?"),
        (RocprofSysTool, {"args": {"d": 5}}, "has no option -d"),
        (RocprofSysTool, {"args": {"f": 100}}, "ROCPROFSYS_SAMPLING_FREQ: '100'"),
        (RocprofSysTool, {"args": {"label": ["arg"]}}, "did you mean 'args'?"),
        (RocprofSysTool, {"args": {"b": "yes please"}}, "is a switch"),
        (RocprofSysTool, {"args": {"v": 1, "verbosity": 2}}, "given twice"),
        (RocprofSysTool, {"env": {"OMNITRACE_TRACE": "1"}}, "does not read OMNITRACE_* (got '1'). Mend: env: {ROCPROFSYS_TRACE: '1'}"),
        (RocprofSysTool, {"env": {"ROCPROFSYS_ROCM_DOMAINS": "hip"}}, "'hip' is no domain"),
        (RocprofSysTool, {"env": {"ROCPROFSYS_USE_ROCPD": "on"}}, "crashes with rocpd before ROCm 7.2"),
        (RocprofSysTool, {"windows": "pause"}, "of ROCm 7.0 cannot be paused from inside"),
        (RocprofSysTool, {"variant": "run", "args": {"T": "hip"}}, f"ROCPROFSYS_ROCM_DOMAINS: '{DEFAULT},hip_api'"),
        (RocprofSysTool, {"variant": "run", "args": {"I": ["hip"]}}, "does not know 'hip'"),
        (RocprofSysTool, {"variant": "run", "args": {"o": "x"}}, "would not lie in the run's directory"),
        (RocprofSysTool, {"variant": "run", "finalize_in_process": True}, "only the Python launcher has it"),
        (RocprofSysTool, {"variant": "sample", "flags": ["selected-regions"]}, "it came with ROCm 7.13"),
        (RocprofSysTool, {"env": {"ROCPROFSYS_ROCM_DOMAINS": "hip_api"}}, f"are marker records (got 'hip_api'). Mend: env: {{ROCPROFSYS_ROCM_DOMAINS: '{DEFAULT},hip_api'}}"),
        (RocprofSysTool, {"env": {"ROCPROFSYS_ROCM_DOMAINS": "kernel_dispatch, hsa_api"}}, "windows and ranges would not be in the file"),
        (RocprofSysTool, {"env": {"OMNITRACE_USE_ROCTX": "off"}, "rocm": "6.2"}, "Mend: env: {OMNITRACE_USE_ROCTX: 'true'}"),
        (RocprofSysTool, {"env": {"OMNITRACE_ROCM_DOMAINS": "hip_api"}, "rocm": "6.2"}, "has no such setting: it came with 6.4 (got 'hip_api'). Mend: leave it out"),
        (RocprofSysTool, {"env": {"ROCPROFSYS_ROCM_DOMAINS": "hsa,rccl"}, "rocm": "6.3"}, "Mend: env: {ROCPROFSYS_ROCTRACER_HSA_API: 'true', ROCPROFSYS_ROCTRACER_HSA_ACTIVITY: 'true', ROCPROFSYS_USE_RCCLP: 'true'}"),
        (RocprofSysTool, {"args": {"T": "hip,hsa"}, "rocm": "6.2"}, "Mend: env: {OMNITRACE_TRACE: 'true', OMNITRACE_ROCTRACER_HSA_API: 'true', OMNITRACE_ROCTRACER_HSA_ACTIVITY: 'true'}"),
        (RocprofSysTool, {"env": {"ROCPROFSYS_SELECTED_REGIONS": "mine"}}, "does not read it (got 'mine'). Mend: leave it out: it came with ROCm 7.13"),
        (RocprofSysTool, {"env": {"ROCPROFSYS_SELECTED_REGIONS": "true"}, "rocm": "7.13"}, "takes names of ranges, and is no switch"),
        (RocprofSysTool, {"env": {"ROCPROFSYS_SELECTED_REGIONS": "mine"}, "rocm": "7.13", "windows": "whole"}, "windows cannot be cut"),
        (RocprofSysTool, {"variant": "run", "args": {"selected-regions": "mine"}, "rocm": "7.13"}, "Mend: env: {ROCPROFSYS_SELECTED_REGIONS: …}"),
        (RocprofSysTool, {"variant": "run", "flags": ["selected-regions"], "rocm": "7.13"}, "takes a value"),
        (Rocprofv3Tool, {"args": {"marker-trace": False, "kernel-trace": True}}, "Mend: args: {marker-trace: true}"),
        (Rocprofv3Tool, {"args": {"T": "hip,kernel"}}, "args: {hip-trace: true, kernel-trace: true}"),
        (Rocprofv3Tool, {"args": {"output-format": "perfetto"}}, "allowed: csv, json, pftrace, otf2, rocpd"),
        (Rocprofv3Tool, {"flags": ["kernal-trace"]}, "did you mean 'kernel-trace'?"),
        (Rocprofv3Tool, {"flags": ["log-level"]}, "takes a value"),
        (Rocprofv3Tool, {"args": {"i": "jobs.yaml"}}, "runs the worker several times"),
        (Rocprofv3Tool, {"args": {"P": ["1:2:3"]}, "flags": ["selected-regions"]}, "exclude each other"),
        (Rocprofv3Tool, {"args": {"P": "1:2"}}, "all three numbers are needed"),
        (Rocprofv3Tool, {"format": ["xml"]}, "no such format"),
        (Rocprofv3Tool, {"format": ["csv"], "args": {"f": "json"}}, "keep one"),
        (Rocprofv3Tool, {"flags": ["runtime-trace"], "rocm": "6.2"}, "it came with ROCm 6.3"),
        (Rocprofv3Tool, {"windows": "pause", "rocm": "6.4"}, "of ROCm 6.4 cannot be paused"),
    ],
)  # fmt: skip
def test_what_is_refused(assignment: Make, tool: Any, options: dict[str, Any], expected: str) -> None:
    """One problem, with what was given, and the nearest thing that exists."""
    found = problems(tool({"rocm": "7.0", **options}), assignment)
    assert len(found) == 1, found
    assert expected in found[0]
    assert found[0].startswith(f"tools.{tool.name}.")


@pytest.mark.parametrize("value", [7.1, 7, "seven", "7"])
def test_a_release_is_text(value: Any) -> None:
    """7.1 and 7.10 are two releases and one number."""
    with pytest.raises(ValidationError, match=r"quotes|ROCm release"):
        Rocprofv3Tool({"rocm": value})


def test_omnitrace_up_to_6_2(assignment: Make) -> None:
    """Older releases have other names, another prefix, markers off unless asked for, and a launcher that evaluates its arguments."""
    tool = RocprofSysTool({"rocm": "6.2", "env": {"OMNITRACE_VERBOSE": 1}})
    assert problems(tool, assignment) == []
    launch = tool.launch(assignment("rocprof_sys"), "/run/ActorGroup")
    assert launch.argv == ("omnitrace-python", "-b", "--")
    assert launch.env["OMNITRACE_USE_ROCTX"] == "true"
    assert launch.env["OMNITRACE_VERBOSE"] == "1"
    assert launch.env["OMNITRACE_OUTPUT_PATH"] == "/run/ActorGroup"
    assert tool.legacy
    [problem] = problems(RocprofSysTool({"rocm": "6.2", "args": {"c": "a;reboot"}}), assignment)
    assert "would have a shell take 'a;reboot' apart" in problem


@pytest.mark.parametrize(
    ("tool", "rocm", "trigger"),
    [
        (RocprofSysTool, "6.4", "none"), (RocprofSysTool, "7.12", "none"), (RocprofSysTool, "7.13", "pause"),
        (RocprofSysTool, "10.0", "pause"), (Rocprofv3Tool, "6.4", "none"), (Rocprofv3Tool, "7.0", "pause"),
    ],
)  # fmt: skip
def test_windows_by_release(assignment: Make, tool: Any, rocm: str, trigger: str) -> None:
    """Where the release can be paused, windows do so; before that the whole process is recorded, and that is said."""
    made = tool({"rocm": rocm})
    row = assignment(made.name)
    assert made.trigger(row.target) == trigger
    said = [note for note in made.launch(row, "/run").notes if "recorded from start to exit" in note]
    assert len(said) == (trigger == "none")
    assert {expectation.when for expectation in made.expects(row, "/run")} == {"process_exit"}


def test_the_region_of_windows_stands_beside_the_users_own(assignment: Make) -> None:
    """From 7.13 rocprof-sys is told the name of the range that is open while a window is; a user's names stay, and before that none."""
    name = "ROCPROFSYS_SELECTED_REGIONS"
    for env, mode, rocm, expected in (
        ({}, "steps", "7.13", "accelprof_window"),
        ({name: "mine,other"}, "steps", "10.0", "mine,other,accelprof_window"),
        ({name: "mine"}, "process", "7.13", "mine"),
        ({}, "process", "7.13", None),
        ({}, "steps", "7.12", None),
        ({}, "steps", "6.2", None),
    ):
        tool = RocprofSysTool({"env": env, "rocm": rocm})
        row = assignment("rocprof_sys", mode=mode, steps=(2, 4) if mode == "steps" else ())
        assert tool.check([row]) == []
        assert tool.launch(row, "/run").env.get(name) == expected, (env, mode, rocm)


def test_a_process_recorded_whole_may_leave_its_ranges_out(assignment: Make) -> None:
    """Nothing is cut there, so domains without markers are the user's choice; what they cost is said at the start."""
    options = {"env": {"ROCPROFSYS_ROCM_DOMAINS": "kernel_dispatch"}, "rocm": "7.0"}
    row = assignment("rocprof_sys", steps=(), mode="process")
    assert RocprofSysTool(options).check([row]) == []
    [note] = [note for note in RocprofSysTool(options).launch(row, "/run").notes if "ranges of timers" in note]
    assert f"ROCPROFSYS_ROCM_DOMAINS: '{DEFAULT}' keeps them" in note
    assert not [note for note in RocprofSysTool({"rocm": "7.0"}).launch(row, "/run").notes if "ranges of" in note]
    assert "--marker-trace" not in Rocprofv3Tool({"flags": ["kernel-trace"], "rocm": "7.0"}).launch(row, "/run").argv


def test_a_whole_process_is_neither_paused_nor_cut(
    assignment: Make, compiled: Any, use: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``steps: process`` records from the start on, and leaves no marks to cut by."""
    row = assignment("rocprofv3", steps=(), mode="process")
    tool = Rocprofv3Tool({"rocm": "7.0"})
    assert "--selected-regions" not in tool.launch(row, "/run").argv
    calls = use(compiled("librocprofiler-sdk-roctx.so.1", "-DSDK"))
    monkeypatch.setenv("ROCPROF_MARKER_API_TRACE", "1")
    tool.attach(ToolContext(row.target, row, RocmBackend(), "/run", pytest.fail))
    window = WindowInfo("w", 1, (), None, "process", "/run/x-1")
    tool.open(window)
    tool.close(window)
    assert calls() == []


@pytest.mark.parametrize(
    ("rocm", "legacy"),
    [("5.7", True), ("6.2", True), ("6.3", True), ("6.4", False), ("7.11", False)],
)
def test_who_listens_to_roctracer(rocm: str, legacy: bool) -> None:
    """rocprof-sys listens to libroctx64 up to 6.3 and to the SDK's library afterwards."""
    assert RocprofSysTool({"rocm": rocm}).legacy is legacy


def test_overlapping_ranges_only_under_rocprofv3_from_7_0() -> None:
    """Everything else ends whichever range was started last."""
    assert Rocprofv3Tool({"rocm": "7.0"}).overlapping
    assert not Rocprofv3Tool({"rocm": "6.4"}).overlapping
    assert not RocprofSysTool({"rocm": "10.0"}).overlapping


def test_options_as_users_write_them_become_arguments() -> None:
    """``{x: v}`` is ``-x v``, ``{key: v}`` is ``--key=v``, lists are words, true is bare, null and a false switch are nothing."""
    known = arguments.Known("rocprof-sys-run", option_tables.RUN, (7, 0))
    given = {
        "T": True,
        "profile": False,
        "I": ["rocm", "rcclp"],
        "w": 2,
        "trace-file": "a b.proto",
        "c": None,
        "gpus": "0,1",
    }
    assert arguments.render(given, ["monochrome", "--debug"], known) == [
        "-T", "--profile=false", "-I", "rocm", "rcclp", "-w", "2", "--trace-file=a b.proto", "--gpus=0,1", "--monochrome", "--debug",
    ]  # fmt: skip
    known = arguments.Known("rocprof-sys-python", option_tables.PYTHON, (7, 0))
    assert arguments.render({"MI": ["a", "b"], "b": False}, [], known) == ["-MI", "a", "b"]


def test_the_installed_tools_help_decides(rocm: Any, assignment: Make) -> None:
    """An option that the installed tool shows is taken, one that it lacks is refused, whatever the table says; asked once."""
    program = rocm(7, 0).program("rocprofv3")
    shown = installation.options_of(program)
    assert shown["output-format"] == "f"
    assert shown["f"] == "output-format"
    assert "selected-regions" in shown
    before = installation._options.cache_info().misses
    tool = Rocprofv3Tool({"program": program, "flags": ["group-by-queue", "hsa-image-trace"]})
    assert tool.release == (7, 0)
    [problem] = problems(tool, assignment)
    assert "has no option --hsa-image-trace (by its help)" in problem
    assert installation._options.cache_info().misses == before


def test_a_help_text_in_another_shape() -> None:
    """Colours, short and long names, values in brackets; a text without options is no help."""
    text = """
    \x1b[1m[rocprof-sys-run]\x1b[0m Usage: rocprof-sys-run [ --help (count: 0) ]
        -h, -?, --help                 Shows this page (see -v)
        [-T, --trace]                  Generate a detailed trace
        -o, --output OUTPUT [PREFIX]   Output path
        --trace-periods A B            Periods
        -I [all rocm], --include [...] Include
    """
    shown = installation.parse_help(text)
    assert {"trace", "T", "output", "trace-periods", "include"} <= set(shown)
    assert shown["T"] == "trace"
    assert installation.parse_help("no such program") == {}


def test_tables_hold_every_launchers_options_of_its_release(rocm: Any) -> None:
    """What the stand-ins' help shows (written from the sources) is in our tables for that release."""
    for release in ((6, 2), (7, 0), (7, 13)):
        place = rocm(*release)
        row = releases.at(releases.SYS, release)
        for program, table in (
            ("rocprofv3", option_tables.ROCPROFV3),
            (row.programs["run"], option_tables.RUN),
            (row.programs["sample"], option_tables.SAMPLE),
        ):
            shown = installation.options_of(place.program(program))
            known = option_tables.known(table, release)
            names = {*known, *option_tables.aliases(known)}
            assert shown
            assert set(shown) <= names, (release, program, set(shown) - names)
