"""Options of nsys: spelling, values, presets, and what the plan forbids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from accelprof_cuda.nsys import NsysTool
from accelprof_cuda.nsys_options import PRESETS, normalise

from accelprof.catalogue import get_catalogue
from accelprof.contracts.targets import Assignment, Target
from accelprof.errors import ConfigError

Make = Callable[..., Assignment]


def tool(options: dict[str, Any] | None = None) -> NsysTool:
    made = get_catalogue().make_tool("nsys", options)
    assert isinstance(made, NsysTool)
    return made


def problems(assignments: list[Assignment], **options: Any) -> list[str]:
    return [
        str(problem)
        for problem in tool({key.replace("_", "-"): value for key, value in options.items()}).check(assignments)
    ]


@pytest.mark.parametrize(
    "given",
    [
        {"t": "cuda"},
        {"trace": "cuda"},
        {"-t": "cuda"},
        {"--trace": "cuda"},
        {"trace": ["cuda"]},
        {"t": "cuda", "trace": "cuda"},
    ],
)
def test_one_option_whatever_its_spelling(given: dict[str, Any]) -> None:
    """Short, long, with dashes, as a list: one option."""
    assert tool(given).options.arguments()["trace"] == "cuda"


def test_two_values_for_one_option_are_refused() -> None:
    """``t`` and ``trace`` with different values: both are named."""
    with pytest.raises(ConfigError, match=r"'trace' is given twice: t='cuda' and trace='nvtx'"):
        tool({"t": "cuda", "trace": "nvtx"})


def test_flag_and_option_overlap_is_refused() -> None:
    """The same name under flags and as an option is an error, whatever the spelling."""
    with pytest.raises(ConfigError, match="'python-backtrace' stands under flags"):
        tool({"flags": ["--python-backtrace"], "python_backtrace": "cuda"})


def test_unknown_option_names_the_nearest() -> None:
    """A misspelt option is refused with its whole path and the nearest that nsys has."""
    with pytest.raises(ConfigError, match=r"tools\.nsys\.capture-rage: unknown key.*did you mean 'capture-range'"):
        tool({"capture-rage": "none"})


@pytest.mark.parametrize(
    ("value", "rendered"),
    [(True, "true"), (False, "false"), (1000, "1000"), ("x", "x"), (["a", "b"], "a,b")],
)
def test_values_are_rendered_as_nsys_reads_them(value: Any, rendered: str) -> None:
    """Booleans in lower case, lists with commas, numbers as they are."""
    assert tool({"cuda-memory-usage": value}).options.arguments()["cuda-memory-usage"] == rendered


def test_yaml_no_is_the_word_none() -> None:
    """YAML reads ``sample: no`` as false; nsys wants the word none there."""
    assert tool({"sample": False}).options.arguments()["sample"] == "none"


def test_null_takes_a_preset_option_away() -> None:
    """``sample: null`` leaves nsys its own default."""
    assert "sample" not in tool({"sample": None}).options.arguments()


def test_a_mapping_is_no_value() -> None:
    """A mapping as a value is refused with its key."""
    with pytest.raises(ConfigError, match=r"tools\.nsys\.trace.*dict"):
        tool({"trace": {"cuda": True}})


def test_presets() -> None:
    """``light`` is the default and samples no CPU; options beside a preset win over it."""
    assert tool().options.arguments() == PRESETS["light"]
    full = tool({"preset": "full", "s": "none"}).options.arguments()
    assert full == {**PRESETS["full"], "sample": "none"}
    with pytest.raises(ConfigError, match=r"tools\.nsys\.preset.*'light' or 'full'"):
        tool({"preset": "heavy"})


def test_normalise_can_be_repeated() -> None:
    """Normalising twice changes nothing: layers are normalised one by one and again when they are merged."""
    once = normalise({"t": "cuda", "capture_range": "nvtx", "flags": "python-backtrace"})
    assert normalise(once) == once


# --- what contradicts the plan ------------------------------------------------------------------------------------------


def test_capture_range_none_with_windows(assignment: Make) -> None:
    """The capture range is the trigger call; without it the listed steps could not open anything."""
    (problem,) = problems([assignment()], capture_range="none")
    assert problem.startswith("tools.nsys.capture-range: ")
    assert "allowed: cudaProfilerApi, nvtx" in problem


@pytest.mark.parametrize(
    "value", ["stop", "stop-shutdown", "repeat:1", "repeat:3", "repeat-shutdown:6", "none", "whatever"]
)
def test_a_range_end_that_contradicts_two_windows(assignment: Make, value: str) -> None:
    """Too few captures lose some, too many hold reports back, none never ends: refused with ``repeat:2``."""
    (problem,) = problems([assignment([3, 10])], capture_range_end=value)
    assert problem.startswith("tools.nsys.capture-range-end: ")
    assert "Mend: capture-range-end: repeat:2, or leave it out" in problem


@pytest.mark.parametrize(
    ("steps", "value"),
    [([3, 10], "repeat:2"), ([3, 10], "repeat"), ([3, 10], "repeat-shutdown:2"), ([3], "stop"), ([3], "stop-shutdown")],
)
def test_a_range_end_that_fits(assignment: Make, steps: list[int], value: str) -> None:
    """The right number, ``repeat``, or ``stop`` for a single window pass."""
    assert problems([assignment(steps)], capture_range_end=value) == []


def test_an_uncertain_count_takes_no_stop(assignment: Make) -> None:
    """With one window a phase, ``stop`` would keep the first only."""
    (problem,) = problems([assignment(count=None, discrete=True)], capture_range_end="stop")
    assert "an unknown number of windows" in problem
    assert "Mend: capture-range-end: repeat," in problem


@pytest.mark.parametrize("value", ["sigterm", "sigkill", "9"])
def test_kill_is_none(assignment: Make, value: str) -> None:
    """Any other value would end the worker with its last window."""
    (problem,) = problems([assignment()], kill=value)
    assert "nsys would end the worker" in problem


def test_the_profiler_api_never_fires_without_a_device(assignment: Make) -> None:
    """A host process under cudaProfilerApi would leave no window: refused, with the trigger call that works."""
    (problem,) = problems([assignment(has_devices=False)], capture_range="cudaProfilerApi")
    assert "has no device, so cudaProfilerApi never fires" in problem


def test_a_range_gate_needs_nvtx_traced(assignment: Make) -> None:
    """A host process's window is an NVTX range, so nvtx must be traced there; the mend adds it."""
    (problem,) = problems([assignment(has_devices=False)], trace="cuda,osrt")
    assert "Mend: trace: cuda,nvtx,osrt" in problem
    assert problems([assignment(has_devices=True)], trace="cuda,osrt") == []


def test_the_gate_is_not_handed_to_the_user(assignment: Make) -> None:
    """A capture range of the user's own would open windows the plan knows nothing of."""
    (problem,) = problems([assignment(has_devices=False)], nvtx_capture="mine@*")
    assert "allowed: window@accelprof" in problem


def test_own_clocks_contradict_windows(assignment: Make) -> None:
    """``duration`` and ``delay`` would end or begin beside the windows; over the whole process they are the user's affair."""
    (problem,) = problems([assignment()], duration=30)
    assert problem.startswith("tools.nsys.duration: ")
    assert problems([assignment(mode="process")], duration=30) == []


def test_one_output_for_several_processes(assignment: Make) -> None:
    """One fixed name for two ranks is refused; with a placeholder it is not."""
    two = [assignment(rank=0), assignment(rank=1)]
    (problem,) = problems(two, output="/data/mine")
    assert "Mend: output: /data/mine-%h-%p" in problem
    assert problems(two, output="/data/mine-%p") == []
    assert problems(two, output="/data/mine-%q{RANK}") == []


def test_refusals_reach_the_user_through_the_plan() -> None:
    """The plan of a whole configuration is refused before anything starts, with the key's path."""
    catalogue = get_catalogue()
    config = catalogue.load({"tool": "nsys", "steps": [3, 10], "tools": {"nsys": {"capture-range-end": "stop"}}}).config
    with pytest.raises(ConfigError, match=r"tools\.nsys\.capture-range-end: nsys would keep the first of 2 windows"):
        catalogue.plan(config)


@pytest.mark.parametrize(("contents", "refused"), [([], True), (["cpu", "cuda"], True), (["cpu"], False)])
def test_two_owners_of_cupti(contents: list[str], refused: bool) -> None:
    """torch with device activity under nsys in one process is refused (both own CUPTI); torch's host activity is not."""
    catalogue = get_catalogue()
    rules = [
        {"roles": "actor", "tool": "nsys", "steps": [1]},
        {"roles": "ref", "tool": "torch", "steps": [1], "options": {"contents": contents}},
    ]
    config = catalogue.load({"groups": {"ActorGroup": rules}}).config
    if refused:
        with pytest.raises(ConfigError, match="both own cupti"):
            catalogue.plan(config)
    else:
        assert catalogue.plan(config).assign(Target("ActorGroup", ("actor", "ref"), 0, 1, has_devices=True)).selected


def both(tool: str, first: Any, second: Any) -> None:
    """Two roles of one process with these options.

    Raises:
        ConfigError: they do not mean the same.
    """
    rules = [{"roles": [role], "ranks": [0], "options": options} for role, options in (("a", first), ("b", second))]
    catalogue = get_catalogue()
    plan = catalogue.plan(catalogue.load({"tool": tool, "steps": [1], "groups": {"W": rules}}).config)
    assert plan.assign(Target("W", ("a", "b"), rank=0)).tool == tool


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"sample": "none"}, {}),
        ({"sample": False}, {}),
        ({"kill": "none"}, {}),
        ({"t": "cuda,nvtx"}, {}),
        ({"trace": "nvtx, cuda"}, {"t": ["cuda", "nvtx"]}),
        ({"preset": "light"}, {}),
        ({"preset": "full", "cuda-memory-usage": True}, {"preset": "full"}),
        ({"preset": "full"}, {"t": "osrt,cuda,cudnn,cublas,nvtx", "s": "process-tree", "cpuctxsw": "process-tree",
                              "cudabacktrace": "all", "cuda_memory_usage": "true", "osrt-threshold": 1000}),
        ({"cpuctxsw": None, "flags": ["a", "b"]}, {"cpuctxsw": None, "flags": ["b", "a"]}),
    ],
)  # fmt: skip
def test_options_that_mean_the_same(first: Any, second: Any) -> None:
    """Roles of one process may write the same options differently: defaults, presets, spellings and the order of sources."""
    both("nsys", first, second)
    both("nsys", second, first)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"sample": "cpu"}, {}),
        ({"t": "cuda"}, {}),
        ({"cpuctxsw": None}, {}),
        ({"preset": "full"}, {"preset": "light"}),
        ({"extra_args": ["--a", "--b"]}, {"extra_args": ["--b", "--a"]}),
    ],
)  # fmt: skip
def test_options_that_do_not(first: Any, second: Any) -> None:
    """What would start the process differently is a contradiction."""
    with pytest.raises(ConfigError, match=r"groups\.W"):
        both("nsys", first, second)
