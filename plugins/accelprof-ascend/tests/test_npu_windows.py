"""Tool ``npu`` on the real torch_npu wheel over the stub of CANN: windows, levels, contents, and what stays on disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.npu

LOOP = """
session = configure({config})
actor = Actor()
for step in range(6):
    with session.step(step):
        actor.update()
        actor.infer()
report = session.close()
show(report)
"""
ONE = ["aclprofInit", "aclprofCreateConfig", "aclprofStart", "aclprofStop", "aclprofDestroyConfig", "aclprofFinalize"]


def labels(ran: Any) -> list[str]:
    """Messages of the mstx ranges that CANN got."""
    return [call.split("msg=")[1].split(" stream")[0] for call in ran.named("mstxRangeStartA")]


def test_windows_on_steps_2_and_4_leave_two_directories(npu: Callable[..., Any]) -> None:
    """Each window has a complete directory of its own, a start and a stop, its step's number, its phases as mstx ranges."""
    ran = npu(LOOP.format(config=""))
    shown = ran.shown()
    assert (ran.status, shown["problems"]) == (0, []), ran.err
    assert [row["state"] for row in shown["artifacts"]] == ["complete", "complete"]
    assert len(ran.directories) == 2
    assert len({path.parent for path in ran.directories}) == 2
    assert [call.split()[0] for call in ran.named("aclprof") if "RegisterDevice" not in call] == ONE * 2
    assert labels(ran).count("actor/update") == labels(ran).count("actor/infer") == 2
    assert {"ProfilerStep#2", "ProfilerStep#4"} <= set(labels(ran))
    assert len(ran.named("mstxRangeStartA")) == len(ran.named("mstxRangeEnd"))
    for path in ran.directories:
        assert json.loads((path / "profiler_info_0.json").read_text())["rank_id"] == 0
        assert (path / "FRAMEWORK" / "torch.op_range").stat().st_size > 0
        assert list(path.glob("PROF_*/device_0/data/*"))
    assert not ran.warnings, ran.warnings
    assert "[WARNING]" not in ran.out


def test_discrete_leaves_one_directory_per_phase(npu: Callable[..., Any]) -> None:
    """Under discrete every phase call of a selected step is a window; the phase is in the name of the common parent."""
    ran = npu(LOOP.format(config="discrete=True, steps=[2]"))
    assert ran.shown()["problems"] == []
    assert [path.parent.name for path in ran.directories] == ["npu-s2-actor_infer-w0002", "npu-s2-actor_update-w0001"]


def test_adjacent_steps_merged_are_one_directory_with_their_numbers(npu: Callable[..., Any]) -> None:
    """Merged steps are one profile in which each step is a ProfilerStep under the training's number."""
    ran = npu(LOOP.format(config="steps=[2, 3, 4], merge_steps=True"))
    assert ran.shown()["problems"] == []
    assert [path.parent.name for path in ran.directories] == ["npu-s2-w0001"]  # named when it opened
    steps = [label for label in labels(ran) if label.startswith("ProfilerStep")]
    assert steps == ["ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"]


def test_a_schedule_is_torch_npus_own(npu: Callable[..., Any]) -> None:
    """Warm-up comes before the start, the recorded calls are steps of one profile, and the call after them is not in it."""
    ran = npu("""
        schedule = {"phase": "actor/update", "wait": 1, "warmup": 2, "active": 2}
        session = configure(steps=None, schedule=[schedule])
        actor = Actor()
        for step in range(8):
            with session.step(step):
                actor.update()
        show(session.close())
    """)
    assert ran.shown()["problems"] == []
    calls = [call.split()[0] for call in ran.named("aclprof") if "RegisterDevice" not in call]
    assert calls == ["aclprofInit", "aclprofCreateConfig", "aclprofWarmup", *ONE[2:]]
    assert len(ran.directories) == 1
    assert labels(ran).count("actor/update") == 2


def test_a_loop_that_ends_in_the_warm_up_leaves_nothing_and_keeps_the_window_before(npu: Callable[..., Any]) -> None:
    """A warm-up that never records removes its own directory, not that of the profile before."""
    ran = npu("""
        schedule = {"phase": "actor/update", "wait": 0, "warmup": 1, "active": 1, "repeat": 2}
        session = configure(steps=None, schedule=[schedule])
        actor = Actor()
        for step in range(3):
            with session.step(step):
                actor.update()
        show(session.close())
    """)
    assert len(ran.shown()["artifacts"]) == 1
    assert len(ran.directories) == 1
    assert (ran.directories[0] / "profiler_info_0.json").exists()
    assert not [path for path in ran.place.glob("**/npu-*") if not any(path.iterdir())]


CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    # options -> aic metrics and data types that CANN must be asked for
    "level0": ({}, "255", "0x881"),
    "level0 without ranges": ({"mstx": False}, "255", "0x801"),
    "level1": ({"level": "level1"}, "1", "0xa7"),
    "level2": ({"level": "level2"}, "1", "0x1af"),
    "level_none": ({"level": "level_none"}, "255", "0x80"),
    "memory": ({"contents": ["npu", "cpu", "memory"]}, "255", "0x1881"),
    "l2_cache": ({"level": "level1", "l2_cache": True}, "1", "0xb7"),
    "aic_metrics": ({"level": "level1", "aic_metrics": "ArithmeticUtilization"}, "0", "0xa7"),
    "shapes module stack": ({"contents": ["npu", "cpu", "shapes", "module", "stack"]}, "255", "0x881"),
    "host_sys": ({"host_sys": ["cpu", "mem"]}, "255", "0x881"),
    "record_op_args": ({"level": "level1", "record_op_args": True}, "1", "0xa7"),
    "cpu": ({"contents": ["cpu"]}, "", ""),
    "npu": ({"contents": ["npu"]}, "255", "0x881"),
}


@pytest.fixture(scope="module")
def every_case(cann: dict[str, str], tmp_path_factory: pytest.TempPathFactory, run_npu: Callable[..., Any]) -> Any:
    """All of ``CASES``, one window each, in one process."""
    return run_npu(tmp_path_factory.mktemp("cases"))(
        """
        for name, options in json.loads(os.environ["CASES"]).items():
            torch.npu.set_device(0)
            with open(os.environ["CANN_STUB_LOG"], "a") as file:
                file.write(f"0 0 0 # {name}\\n")
            session = configure(steps=[1], run=name.replace(" ", "_"), tools={"npu": options})
            with session.step(1):
                Actor().update()
            report = session.close()
            show(report, name)
            reset()
        """,
        CASES=json.dumps({name: options for name, (options, _, _) in CASES.items()}),
    )


@pytest.mark.parametrize("name", CASES)
def test_levels_and_contents_become_what_cann_is_asked_for(every_case: Any, name: str) -> None:
    """Each level and contents set leaves a complete directory and asks CANN for exactly its data types."""
    _, metrics, types = CASES[name]
    shown = every_case.shown(name)
    assert shown["problems"] == [], every_case.err
    assert [row["state"] for row in shown["artifacts"]] == ["complete"]
    section = every_case.section(name)
    configs = [call for call in section if call.startswith("aclprofCreateConfig")]
    if not types:
        assert configs == []
        return
    assert configs == [f"aclprofCreateConfig devices=1 first=0 aic={metrics} types={types}"]


def test_further_files_and_settings(every_case: Any) -> None:
    """Stack and modules, memory, operator arguments and the host's sampling each leave their own trace."""
    place = {name: next(every_case.place.glob(f"{name.replace(' ', '_')}/**/*_ascend_pt")) for name in CASES}
    framework = {
        name: {file.name for file in (path / "FRAMEWORK").iterdir()}
        for name, path in place.items()
        if (path / "FRAMEWORK").exists()
    }
    assert "torch.memory_usage" in framework["memory"]
    assert "torch.memory_usage" not in framework["level0"]
    assert any(file.startswith("torch.python_tracer") for file in framework["shapes module stack"])
    assert any(call.startswith("aclprofSetConfig type=8") for call in every_case.section("host_sys"))
    assert not any(call.startswith("aclprofSetConfig") for call in every_case.section("level0"))
    dumps = [call for call in every_case.section("record_op_args") if call.startswith("aclopStartDumpArgs")]
    assert [call.split()[1] for call in dumps] == [f"{place['record_op_args']}_op_args"]
    assert not any(call.startswith("aclopStartDumpArgs") for call in every_case.section("level1"))


def test_domains_are_filtered(npu: Callable[..., Any]) -> None:
    """``communication`` is left out unless asked for, and the ranges of our own domains arrive under their domain."""
    ran = npu("""
        from torch_npu.npu import mstx
        session = configure(steps=[1])
        with session.step(1):
            with accelprof.profiling_range("mine", domain="rollout"):
                print("communication:", mstx.range_start("allreduce", domain="communication"))
        show(session.close())
    """)
    assert "communication: 0" in ran.out
    domains = list(ran.named("mstxDomainRangeStartA"))
    assert len(domains) == 1
    assert "domain=rollout msg=mine" in domains[0]


def test_online_analysis_runs_in_a_child_and_is_judged(npu: Callable[..., Any]) -> None:
    """After close the results lie in the directory, and this process's start method and modules were left alone."""
    ran = npu(
        """
        import multiprocessing
        session = configure(steps=[1], tools={"npu": {"analysis": "online", "export": "db"}})
        with session.step(1):
            Actor().update()
        report = session.close()
        print("method", multiprocessing.get_start_method(allow_none=True))
        show(report)
        """,
        msprof=True,
    )
    assert "method None" in ran.out
    # a window that waits for its analysis closes slowly, which is said
    assert [line for line in ran.shown()["problems"] if "closing window 1 took" not in line] == []
    assert list(ran.directories[0].glob("ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_0.db"))


def test_an_analysis_without_msprof_is_reported_although_it_left_a_trace(npu: Callable[..., Any]) -> None:
    """torch_npu writes ``analyse.done`` and a trace of the host side then; the window's state says partial, with the reason."""
    ran = npu("""
        session = configure(steps=[1], tools={"npu": {"analysis": "async", "export": "text"}})
        with session.step(1):
            Actor().update()
        show(session.close())
    """)
    assert (ran.directories[0] / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").exists()
    assert [row["state"] for row in ran.shown()["artifacts"]] == ["complete", "partial"]
    assert any("'msprof' command not found" in problem for problem in ran.shown()["problems"])
