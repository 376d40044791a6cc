"""Options of tool ``npu``: defaults, spellings, refusals, and what older wheels lack; no torch_npu is needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from accelprof_ascend import checks, vendor
from accelprof_ascend.npu import NpuTool
from accelprof_ascend.options import NpuOptions, experimental_arguments, lacking, profile_arguments
from pydantic import ValidationError

from accelprof.catalogue import get_catalogue
from accelprof.contracts.targets import Assignment, ScheduleSpec, Target
from accelprof.errors import ConfigError
from accelprof.numberset import NumberSet
from accelprof.testing import ToolConformance

#: arguments of ``_ExperimentalConfig`` by generation of wheels: what facts about 14 of them say
GENERATIONS = {
    "2.1.0.post8": {"profiler_level", "aic_metrics", "l2_cache", "msprof_tx", "data_simplification", "record_op_args",
                    "op_attr", "gc_detect_threshold", "export_type"},
    "2.6.0": {"profiler_level", "aic_metrics", "l2_cache", "msprof_tx", "data_simplification", "record_op_args", "op_attr",
              "gc_detect_threshold", "export_type", "host_sys", "mstx_domain_include", "mstx_domain_exclude", "sys_io",
              "sys_interconnection"},
    "2.13.0": {"profiler_level", "aic_metrics", "l2_cache", "msprof_tx", "mstx", "data_simplification", "record_op_args",
               "op_attr", "gc_detect_threshold", "export_type", "host_sys", "mstx_domain_include", "mstx_domain_exclude",
               "sys_io", "sys_interconnection"},
}  # fmt: skip


def profiler(lists: bool = True) -> Any:
    """The names that the arguments are made of, as every wheel has them."""

    def handler(
        directory: str, worker_name: str | None = None, analyse_flag: bool = True, async_mode: bool = False
    ) -> None:
        """As from 2.4 on."""

    def old_handler(directory: str, worker_name: str | None = None, analyse_flag: bool = True) -> None:
        """As in 2.1.0.post8."""

    return SimpleNamespace(
        ProfilerLevel=SimpleNamespace(Level_none="none", Level0="l0", Level1="l1", Level2="l2"),
        AiCMetrics=SimpleNamespace(AiCoreNone="no", PipeUtilization="pipe", Memory="memory"),
        ExportType=SimpleNamespace(Db="db", Text="text"),
        HostSystem=SimpleNamespace(CPU="cpu", MEM="mem"),
        ProfilerActivity=SimpleNamespace(CPU="CPU", NPU="NPU"),
        tensorboard_trace_handler=handler if lists else old_handler,
    )


class TestNpuConformance(ToolConformance):
    """The kit's driver-side checks; windows are recorded where torch_npu loads."""

    def make(self) -> NpuTool:
        return NpuTool()

    def can_capture(self) -> bool:
        return False  # the real wheel is run in processes of its own, see test_npu_windows.py


def test_defaults_are_lean() -> None:
    """Nothing asked: host and device, level0, no shapes, memory or stacks, raw data only, ``communication`` left out."""
    options = NpuOptions()
    arguments = profile_arguments(options, profiler())
    assert arguments == {
        "activities": ["CPU", "NPU"],
        "profile_memory": False,
        "record_shapes": False,
        "with_modules": False,
        "with_stack": False,
    }
    assert options.analysis == "offline"
    made = experimental_arguments(options, profiler(), frozenset(GENERATIONS["2.13.0"]))
    assert (made["profiler_level"], made["aic_metrics"], made["export_type"]) == ("l0", "no", ["text"])
    assert (made["mstx"], made["mstx_domain_exclude"]) == (True, ["communication"])


@pytest.mark.parametrize("contents", [None, [], ()])
def test_no_contents_is_the_default(contents: Any) -> None:
    """Absent, null and empty mean ``npu`` and ``cpu``."""
    assert NpuOptions(contents=contents).wanted == ("npu", "cpu")


def test_switches_alone_keep_both_activities() -> None:
    """``contents: [shapes]`` adds to the default activities; naming one activity leaves the other out."""
    assert NpuOptions(contents=["shapes"]).wanted == ("npu", "cpu", "shapes")
    assert profile_arguments(NpuOptions(contents=["cpu", "stack"]), profiler())["activities"] == ["CPU"]


@pytest.mark.parametrize(("given", "meant"), [(True, "online"), (False, "offline"), ("async", "async")])
def test_analysis_takes_verls_truth_value(given: Any, meant: str) -> None:
    """verl's ``analysis: true`` is online."""
    assert NpuOptions(analysis=given).analysis == meant


@pytest.mark.parametrize(
    ("given", "meant"), [("both", ("db", "text")), (["db", "text"], ("db", "text")), (["db"], ("db",))]
)
def test_export_takes_lists(given: Any, meant: tuple[str, ...]) -> None:
    """``export`` is a word, ``both``, or a list."""
    assert NpuOptions(export=given).exports == meant


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"aic_metrics": "Memory"}, "needs level level1 or level2"),
        ({"level": "level_none", "mstx": False}, "leaves nothing to record"),
        ({"mstx_domain_include": ["a"], "mstx_domain_exclude": ["b"]}, "keep one"),
        ({"level": "level3"}, "level2"),
        ({"contents": ["gpu"]}, "npu"),
        ({"host_sys": ["gpu"]}, "numa"),
    ],
)
def test_what_contradicts_itself_is_refused(options: dict[str, Any], says: str) -> None:
    """torch_npu resets such values with a line on stdout; here they are errors that name what is allowed."""
    with pytest.raises(ValidationError, match=says):
        NpuOptions(**options)


def test_metrics_follow_the_level() -> None:
    """level1 and level2 collect PipeUtilization unless another is named; the wheels' own default warns below them."""
    known = frozenset(GENERATIONS["2.13.0"])
    assert experimental_arguments(NpuOptions(level="level1"), profiler(), known)["aic_metrics"] == "pipe"
    chosen = NpuOptions(level="level2", aic_metrics="Memory")
    assert experimental_arguments(chosen, profiler(), known)["aic_metrics"] == "memory"


@pytest.mark.parametrize("version", GENERATIONS)
def test_only_what_the_wheel_takes_is_passed(version: str) -> None:
    """Every generation of wheels gets keywords that it has; ranges are switched on under the name it knows."""
    known = frozenset(GENERATIONS[version])
    made = experimental_arguments(NpuOptions(host_sys=["cpu"]), profiler(), known)
    assert made.keys() <= known
    assert made.get("mstx", made.get("msprof_tx")) is True
    assert ("msprof_tx" in made) == ("mstx" not in known)


def test_the_oldest_wheels_take_one_export_type() -> None:
    """A list came with the handler's ``async_mode``."""
    known = frozenset(GENERATIONS["2.1.0.post8"])
    assert experimental_arguments(NpuOptions(), profiler(lists=False), known)["export_type"] == "text"


def test_what_an_older_wheel_lacks_is_refused_or_degraded_by_name() -> None:
    """2.1.0.post8 has no host sampling (refused) and no domain filter (all domains recorded, said so)."""
    refused, degraded = lacking(NpuOptions(host_sys=["cpu"]), frozenset(GENERATIONS["2.1.0.post8"]), "2.1.0.post8")
    assert [problem.path for problem in refused] == ["tools.npu.host_sys"]
    assert "2.1.0.post8 does not have it" in str(refused[0])
    assert [text.split(":")[0] for text in degraded] == ["tools.npu.mstx", "tools.npu.mstx_domain_exclude"]
    assert lacking(NpuOptions(host_sys=["cpu"]), frozenset(GENERATIONS["2.13.0"]), "2.13.0") == ([], [])


def test_the_driver_refuses_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a wheel on the driver that lacks an option, the plan is refused with the option's path."""
    monkeypatch.setattr(vendor, "config_parameters", lambda: frozenset(GENERATIONS["2.1.0.post8"]))
    monkeypatch.setattr(vendor, "installed", lambda: "2.1.0.post8")
    catalogue = get_catalogue()
    config = catalogue.load(
        {"tool": "npu", "accelerator": "npu", "steps": [1], "groups": {"A": {}}, "tools": {"npu": {"sys_io": True}}}
    ).config
    with pytest.raises(ConfigError, match=r"tools\.npu\.sys_io: torch_npu 2\.1\.0\.post8 does not have it"):
        catalogue.plan(config)


def test_a_window_without_an_end_is_refused() -> None:
    """``steps: process`` would keep everything to the exit; the mend names msprof."""
    row = Assignment(Target("A", rank=0), True, "npu", mode="process")
    assert "tool msprof" in str(checks.check(NpuOptions(), [row])[0])
    steps = Assignment(Target("A", rank=0), True, "npu", mode="steps", steps=NumberSet.parse([1]))
    assert checks.check(NpuOptions(), [steps]) == []


def test_mindstudios_advice_on_schedules_is_said() -> None:
    """repeat 1, warmup at least 1, skip_first for dynamic shapes."""

    def notes(**values: int) -> str:
        row = Assignment(Target("A", rank=0), True, "npu", schedules=(ScheduleSpec("p", **values),))
        return "\n".join(NpuTool().launch(row, "/nowhere").notes)

    text = notes(repeat=0)
    assert "repeat 1" in text
    assert "warmup" in text
    assert "skip_first" in text
    assert notes(warmup=1, skip_first=5) == ""


def test_the_config_of_another_tool_needs_one_word_changed() -> None:
    """A file that names nsys becomes one for npu, torch or rocprof_sys by its tool alone."""
    catalogue = get_catalogue()
    for tool, accelerator in (("npu", "npu"), ("torch", "auto"), ("nsys", "auto"), ("rocprof_sys", "auto")):
        if tool not in catalogue.tool_names():
            continue
        config = catalogue.load(
            {"tool": tool, "accelerator": accelerator, "steps": [2, 4], "groups": {"A": {"ranks": [0]}}}
        ).config
        assignment = catalogue.plan(config).assign(Target("A", ("actor",), 0, 1))
        assert (assignment.tool, assignment.windows) == (tool, ((2,), (4,)))
