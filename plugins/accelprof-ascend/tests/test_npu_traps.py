"""The traps of ``torch_npu.profiler``, each sprung on the real wheel; every test here fails without the guard it names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.npu


def test_a_failing_start_names_rank_and_reason(npu: Callable[..., Any]) -> None:
    """torch_npu says nothing and leaves a tree that looks complete; the disk tells, in one warning and at the end, and the run goes on."""
    ran = npu(
        """
        session = configure(rank=3, steps=[1], groups={"ActorGroup": {"ranks": "all"}})
        with session.step(1):
            Actor().update()
        show(session.close())
        print("went on")
        """,
        CANN_STUB_FAIL="aclprofStart",
    )
    said, undelivered = ran.warnings  # when the window closes, and as what the run lacks at its end
    assert (ran.status, "went on" in ran.out) == (0, True)
    assert "ActorGroup/rank3" in said
    assert "CANN left no data" in said
    assert "not delivered" in undelivered
    assert [row["state"] for row in ran.shown()["artifacts"]] == ["partial"]


def test_a_device_that_cannot_be_started_is_reported(npu: Callable[..., Any]) -> None:
    """``profile()`` itself raises when ``aclInit`` fails; that is one warning and the user's code runs."""
    ran = npu(
        """
        session = configure(device=False, steps=[1, 2])
        for step in range(4):
            with session.step(step):
                print("value", Actor().update().sum().item())
        show(session.close())
        """,
        CANN_STUB_FAIL="aclInit",
    )
    assert ran.out.count("value 6.0") == 4, ran.err
    assert sum("cannot be made" in line for line in ran.warnings) == 1
    assert any("no NPU was in use" in line for line in ran.warnings)


def test_a_directory_that_cannot_be_made_is_an_error_and_not_a_line_on_stdout(npu: Callable[..., Any]) -> None:
    """torch_npu's ``[ERROR] Call start failed`` becomes the reason of a refusal; stdout stays the user's."""
    ran = npu("""
        from accelprof_ascend.options import NpuOptions
        from accelprof_ascend.profile import Profile
        torch.npu.set_device(0)
        blocked = os.path.join(OUT, "blocked")
        open(blocked, "w").close()
        try:
            Profile(NpuOptions(), blocked, "worker").start(1)
        except Exception as error:
            print(type(error).__name__, error)
        profile = Profile(NpuOptions(), os.path.join(OUT, "fine"), "worker")
        profile.start(2)
        profile.stop()
        print("next", os.path.exists(os.path.join(profile.directory, "profiler_info.json")))
    """)
    assert "CaptureError torch_npu did not start recording: Call " in ran.out, ran.out + ran.err
    assert "next True" in ran.out
    assert "[ERROR]" not in ran.out


def test_an_object_built_and_dropped_deletes_nothing(npu: Callable[..., Any]) -> None:
    """A profile that fails to start in its warm-up must not take the directory of the window before with it."""
    ran = npu("""
        import gc
        from accelprof.errors import CaptureError
        from accelprof_ascend.options import NpuOptions
        from accelprof_ascend.profile import Profile
        torch.npu.set_device(0)
        first = Profile(NpuOptions(), OUT, "first")
        first.start(1)
        torch.ones(2) + 1
        first.stop()
        second = Profile(NpuOptions(), OUT, "second")
        torch_npu.profiler.profile.start = lambda self: 1 / 0
        try:
            second.start(2, warmup=True)
        except CaptureError as error:
            print("refused:", error)
        del second
        gc.collect()
        print("kept", os.path.exists(os.path.join(first.directory, "profiler_info.json")))
    """)
    assert "refused: " in ran.out, ran.err
    assert "kept True" in ran.out


def test_exit_in_a_window_keeps_it(npu: Callable[..., Any]) -> None:
    """Leaving the process inside a window stops the profile: without a stop torch_npu leaves an empty directory."""
    ran = npu("""
        session = configure(steps=[1])
        with session.step(1):
            Actor().update()
            sys.exit(3)
    """)
    assert ran.status == 3
    assert len(ran.named("aclprofStop")) == 1
    assert [(path / "profiler_info_0.json").exists() for path in ran.directories] == [True]


def test_an_exception_in_a_window_spoils_neither_it_nor_the_next(npu: Callable[..., Any]) -> None:
    """The user's exception passes unchanged, the window is delivered, and so is the one after it."""
    ran = npu("""
        session = configure(steps=[1, 2])
        try:
            with session.step(1):
                Actor().update()
                raise KeyError("mine")
        except KeyError as error:
            print("passed", error)
        with session.step(2):
            Actor().update()
        show(session.close())
    """)
    assert "passed 'mine'" in ran.out
    assert ran.shown()["problems"] == []
    assert len(ran.directories) == 2


def test_never_inside_torch_profiler(npu: Callable[..., Any]) -> None:
    """Inside ``torch.profiler`` a torch_npu profile never starts and empties the outer one; so the window is refused."""
    ran = npu("""
        session = configure(steps=[1])
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as outer:
            with session.step(1):
                Actor().update()
        print("outer", len(outer.events()) > 0)
        show(session.close())
    """)
    assert "outer True" in ran.out
    assert ran.directories == []
    assert any("torch.profiler" in problem for problem in ran.shown()["problems"])


def test_one_profile_at_a_time(npu: Callable[..., Any]) -> None:
    """Two profiles write into one directory and stop each other; while the user's own runs, the window is refused."""
    ran = npu("""
        import torch_npu.profiler as P
        torch.npu.set_device(0)
        place = os.path.join(OUT, "own")
        own = P.profile(schedule=lambda step: torch_npu.profiler.profiler.ProfilerAction.WARMUP,
            on_trace_ready=P.tensorboard_trace_handler(place, analyse_flag=False))
        own.start()
        session = configure(steps=[1])
        with session.step(1):
            Actor().update()
        show(session.close())
        own.stopped = True
    """)
    assert any("takes one at a time" in problem for problem in ran.shown()["problems"])
    assert len(ran.named("aclprofInit")) == 1


@pytest.mark.parametrize("over", [False, True], ids=["ended inside", "ended after"])
def test_the_users_own_profile_inside_a_window_is_named(npu: Callable[..., Any], over: bool) -> None:
    """torch_npu takes it without a word and both are spoilt: our window is partial and says why, and the next one is whole."""
    ran = npu(f"""
        import torch_npu.profiler as P
        session = configure(steps=[1, 2])
        handler = P.tensorboard_trace_handler(os.path.join(OUT, "own"), analyse_flag=False)
        own = P.profile(schedule=P.schedule(wait=0, warmup=0, active=1, repeat=1), on_trace_ready=handler)
        with session.step(1):
            Actor().update()
            own.start()
            Actor().update()
            if not {over}: own.stop()
        if {over}: own.stop()
        with session.step(2):
            Actor().update()
        show(session.close())
    """)
    assert ran.status == 0, ran.err
    first, second = ran.shown()["artifacts"]
    assert (first["state"], second["state"]) == ("partial", "complete")
    assert "another torch_npu profile was started inside the window" in first["reason"]
    (problem,) = ran.shown()["problems"]
    assert "leave its step out of steps" in problem


def test_a_step_announced_elsewhere_is_recorded_on_the_thread_that_works(npu: Callable[..., Any]) -> None:
    """Announced and ended on a control thread: the profile starts and stops with the phase, and its operators are in it."""
    ran = npu("""
        session = configure(steps=[1])
        actor = Actor()

        def on_thread(call, *args, **more):
            thread = threading.Thread(target=call, args=args, kwargs=more)
            thread.start()
            thread.join()

        on_thread(session.begin_step, 1, outside=True)
        actor.update()
        on_thread(session.end_step, 1)
        show(session.close())
    """)
    assert ran.shown()["problems"] == []
    assert len(ran.named("aclprofStart")) == len(ran.named("aclprofStop")) == 1
    assert (ran.directories[0] / "FRAMEWORK" / "torch.op_range").stat().st_size > 0


def test_stopping_on_another_thread_is_an_error_and_not_a_hollow_success(npu: Callable[..., Any]) -> None:
    """torch_npu skips ``aclprofStop`` there and looks complete; the profile says that the data is lost."""
    ran = npu("""
        from accelprof_ascend.options import NpuOptions
        from accelprof_ascend.profile import Profile
        torch.npu.set_device(0)
        profile = Profile(NpuOptions(), OUT, "worker")
        profile.start(1)

        def elsewhere():
            try:
                profile.stop()
            except Exception as error:
                print(type(error).__name__, error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    """)
    assert "CaptureError the window was opened on another thread" in ran.out


def test_under_msprof_the_tool_says_that_it_cannot_work(npu: Callable[..., Any]) -> None:
    """``torch_npu.profiler`` is a no-op under msprof; the tool is off with that reason, and the run goes on."""
    ran = npu(
        """
        session = configure(steps=[1])
        with session.step(1):
            Actor().update()
        show(session.close())
        """,
        PROFILER_SAMPLECONFIG="{}",
    )
    assert ran.directories == []
    assert any("PROFILER_SAMPLECONFIG" in problem and "msprof" in problem for problem in ran.shown()["problems"])


def test_a_home_of_cann_that_is_not_set_is_pointed_out(npu: Callable[..., Any]) -> None:
    """Without ASCEND_HOME_PATH torch_npu walks the working directory at every end; that is said once."""
    ran = npu(
        """
        session = configure(steps=[1, 2])
        for step in (1, 2):
            with session.step(step):
                Actor().update()
        show(session.close())
        """,
        ASCEND_HOME_PATH="unset",
    )
    assert sum("ASCEND_HOME_PATH is not set" in problem for problem in ran.shown()["problems"]) == 1
    assert len(ran.directories) == 2


def test_a_machine_without_cann_is_told_so_in_one_line(npu: Callable[..., Any]) -> None:
    """There ``import torch`` itself raises; the probe says so, how to get past it, and leaves torch alone."""
    ran = npu(
        """
        import sys
        from accelprof_ascend.backend import NpuBackend
        probe = NpuBackend().probe()
        print(probe.available, probe.reason)
        print("torch" in sys.modules)
        """,
        prelude=False,
        LD_LIBRARY_PATH="unset",
        TORCH_DEVICE_BACKEND_AUTOLOAD="unset",
    )
    answer, imported = ran.out.strip().splitlines()
    assert answer.startswith("False unavailable: torch_npu 2.13.0 is installed but CANN is not found"), ran.err
    assert "`import torch` itself raises" in answer
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in answer
    assert imported == "False"


def test_the_backend_detects_the_device_without_starting_it(npu: Callable[..., Any]) -> None:
    """Detection, devices and ranges outside a window make no call that starts a device; the alias is known."""
    ran = npu(
        """
        from accelprof.catalogue import get_catalogue
        from accelprof.contracts.backend import RangeSpec
        detected = get_catalogue().detect()
        backend = get_catalogue().backend("Ascend")
        print(detected.backend.name, detected.reason, backend.devices(), torch.npu.is_initialized())
        bound = backend.bind(RangeSpec("outside"))
        print("outside", bound.start(), bound.push(), bound.pop(), bound.end(0))
        """,
        CANN_STUB_DEVICES="2",
    )
    first, second = ran.out.strip().splitlines()
    assert first.startswith("npu detected: 2 NPU device(s)"), ran.err
    assert first.endswith("False")
    assert second == "outside 0 -1 -1 None"
    assert ran.named("aclInit", "mstxRange") == []


def test_a_missing_mstx_library_ends_annotating_at_the_first_sign(
    npu: Callable[..., Any], cann: dict[str, str], tmp_path: Any
) -> None:
    """torch_npu prints an error for each call then; there is one, one warning of ours, and the window is delivered."""
    import os

    beside = tmp_path / "lib64"
    beside.mkdir()
    for name in os.listdir(cann["LD_LIBRARY_PATH"]):
        if "ms_tools_ext" not in name:
            os.symlink(os.path.join(cann["LD_LIBRARY_PATH"], name), beside / name)
    ran = npu(
        """
        session = configure(steps=[1])
        with session.step(1):
            for _ in range(5):
                Actor().update()
        show(session.close())
        """,
        LD_LIBRARY_PATH=str(beside),
    )
    assert sum("libms_tools_ext.so" in line for line in ran.warnings) == 1, ran.err
    assert ran.out.count("Call range_push failed") == 1  # torch_npu's own mark of the step prints another
    assert len(ran.directories) == 1


def test_device_timers_use_events(npu: Callable[..., Any]) -> None:
    """A device timer answers the elapsed time of two events in ns once a device is in use, and there is none before."""
    ran = npu("""
        from accelprof_ascend.backend import NpuBackend
        backend = NpuBackend()
        print("before", backend.device_timer())
        torch.npu.set_device(0)
        torch.npu.synchronize()
        timer = backend.device_timer()
        timer.begin()
        timer.finish()
        torch.npu.synchronize()
        print("after", timer.resolve(), backend.memory()["allocated"])
    """)
    assert "before None" in ran.out
    assert "after 1000000 0" in ran.out  # the stub's events are 1 ms apart
