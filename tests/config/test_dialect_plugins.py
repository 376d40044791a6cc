"""What dialects hand to tools of vendors is what those tools' options take."""

from __future__ import annotations

import pytest

from accelprof.catalogue import make_catalogue
from accelprof.config.dialects import BUILTIN
from accelprof.config.load import load_config
from accelprof.contracts.targets import Target
from accelprof.errors import ConfigError

ARR = "actor_rollout_ref"


def planned(config):
    registry = make_catalogue()
    return registry, registry.plan(load_config(config, dialects=BUILTIN).config)


@pytest.mark.parametrize("late", [{}, {"relocate_results": False}], ids=["c", "d"])
@pytest.mark.parametrize("contents", [[], ["npu"], ["npu", "cpu", "memory", "shapes", "module", "stack"]])
def test_ascend_options(late, contents):
    """verl's contents, level and analysis are options of the Ascend tool."""
    pytest.importorskip("accelprof_ascend", reason="accelprof-ascend is not installed")
    tool = {"npu": {"contents": contents, "level": "level1", "analysis": True}}
    registry, plan = planned(
        {
            "global_profiler": {"tool": "npu", "steps": [1], **late},
            ARR: {"actor": {"profiler": {"enable": True, "tool_config": tool}}},
        }
    )
    (row,) = [row for row in plan.preview({ARR: 1}) if row.selected]
    options = registry.make_tool("npu", row.options).options
    assert options.level == "level1"
    assert set(contents) <= set(options.contents)


def test_rocm_options():
    """RLinf's args and env are options of the ROCm tool, and the user's environment wins."""
    pytest.importorskip("accelprof_rocm", reason="accelprof-rocm is not installed")
    profiling = {
        "backend": "rocprof_sys",
        "worker_groups": ["ActorGroup"],
        "args": {"v": 1},
        "env": {"ROCPROFSYS_TIME_OUTPUT": "true"},
    }
    registry, plan = planned({"cluster": {"profiling": profiling}})
    (row,) = [row for row in plan.preview({"ActorGroup": 1}) if row.selected]
    launch = registry.make_tool("rocprof_sys", row.options).launch(row, "/out")
    assert launch.env["ROCPROFSYS_TIME_OUTPUT"] == "true"


@pytest.mark.parametrize("tool", ["torch", "torch_memory", "nsys"])
def test_tools_of_verl(tool):
    """Every tool of verl's with its own defaults gives a plan that the tool accepts."""
    if tool == "nsys":
        pytest.importorskip("accelprof_cuda", reason="accelprof-cuda is not installed")
    shared = {
        "nsys": {"worker_nsight_options": {"trace": "cuda,nvtx,cublas,ucx", "cuda-memory-usage": "true",
                                           "cuda-graph-trace": "graph", "capture-range": "cudaProfilerApi",
                                           "capture-range-end": None, "kill": "none"}},
        "torch_memory": {"trace_alloc_max_entries": 1000, "stack_depth": 16, "context": "all", "stacks": "all", "kw_args": {}},
    }  # fmt: skip
    _, plan = planned(
        {
            "global_profiler": {"tool": tool, "steps": [1, 2], "global_tool_config": shared},
            ARR: {"actor": {"profiler": {"enable": True}}},
        }
    )
    (row, *_) = [row for row in plan.preview({ARR: 1}) if row.selected]
    assert (row.tool, list(row.windows)) == (tool, [(1,), (2,)])


@pytest.mark.parametrize(
    ("tool", "one", "other", "alike"),
    [
        ("npu", {"contents": ["npu", "cpu"]}, {}, True),
        ("npu", {"contents": ["npu", "cpu"]}, {"contents": ["cpu", "npu"]}, True),
        ("npu", {"contents": ["memory"]}, {"contents": ["cpu", "memory", "npu"]}, True),
        ("npu", {"analysis": False}, {"analysis": "offline"}, True),
        ("npu", {"analysis": False}, {"level": "level0"}, True),
        ("npu", {"contents": ["cpu"]}, {}, False),
        ("npu", {"level": "level1"}, {}, False),
        ("torch", {"contents": ["cpu", "cuda"]}, {}, True),
        ("torch", {"contents": ["shapes"]}, {"contents": ["cuda", "shapes", "cpu"]}, True),
        ("torch", {"contents": ["cuda"]}, {}, False),
        ("torch_memory", {"max_entries": 100_000}, {}, True),
        ("torch_memory", {"max_entries": 5}, {}, False),
    ],
)
def test_options_are_compared_as_meant(tool, one, other, alike):
    """Roles of one process agree when their options mean the same, whatever is left out and in whatever order words stand."""
    if tool == "npu":
        pytest.importorskip("accelprof_ascend", reason="accelprof-ascend is not installed")
    registry = make_catalogue()
    rules = [{"roles": ["a"], "options": one}, {"roles": ["b"], "options": other}]
    config = load_config({"tool": tool, "steps": [1], "ranks": "all", "groups": {"G": rules}}).config
    if alike:
        assert registry.plan(config).assign(Target("G", ("a", "b"), 0)).options == one
    else:
        with pytest.raises(ConfigError, match="contradict each other"):
            registry.plan(config).assign(Target("G", ("a", "b"), 0))
