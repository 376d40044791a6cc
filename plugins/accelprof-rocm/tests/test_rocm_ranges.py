"""Pushes equal pops, on Debian's real library (its tracer hears every call) and on recording ones."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from accelprof_rocm import roctx, vendor
from accelprof_rocm.backend import RocmBackend
from accelprof_rocm.ranges import OverlappingRanges, RoctxRanges
from accelprof_rocm.rocprof_sys import RocprofSysTool

from accelprof.contracts.backend import Probe, RangeSpec
from accelprof.testing import BackendConformance, capture
from accelprof.timing.worker import Worker


class Available(RocmBackend):
    """The backend on a machine without an AMD device."""

    name = "rocm-under-test"
    aliases = ()

    def probe(self) -> Probe:
        return Probe(1, "under test")


class Job(Worker):
    """What is timed."""

    @Worker.timer("job/outer")
    def outer(self, fail: bool = False) -> None:
        self.inner()
        if fail:
            raise KeyError("the user's own")

    @Worker.timer("job/inner")
    def inner(self) -> None:
        pass

    @Worker.timer("job/leaves")
    def leaves(self, session: Any) -> None:
        self.inner()
        session.close_window("in the middle")
        self.inner()

    @Worker.timer("job/suspended")
    async def suspended(self, turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)

    @Worker.timer("job/items")
    def items(self, count: int) -> Any:
        yield from range(count)


def balanced(calls: Any) -> None:
    """Per thread, every prefix has at least as many pushes as pops, and the end has as many."""
    depth: Counter[int] = Counter()
    for call in calls:
        if call.kind in ("push", "pop"):
            depth[call.tid] += 1 if call.kind == "push" else -1
            assert depth[call.tid] >= 0, (call, calls)
    assert not any(depth.values()), depth


@pytest.mark.roctx
class TestRealLibrary:
    """Debian's libroctx64, asked through its own tracer callback."""

    def test_nesting_and_messages(self, real_roctx: Any) -> None:
        """The tool hears each range under its own name, in the order of the calls."""
        with capture(backend=Available, tool=None, steps=[1]) as run:
            with run.session.step(1):
                Job().outer()
            assert not run.session.problems
        rows = [(call.kind, call.message) for call in real_roctx]
        assert rows == [("push", "job/outer"), ("push", "job/inner"), ("pop", ""), ("pop", "")]

    def test_an_exception_pops_what_was_pushed(self, real_roctx: Any) -> None:
        """The user's exception passes, and nothing stays open."""
        with capture(backend=Available, tool=None, steps=[1, 2]) as run:
            job = Job()
            with pytest.raises(KeyError, match="the user's own"), run.session.step(1):
                job.outer(fail=True)
            with run.session.step(2):
                job.outer()
        assert len(real_roctx) == 8
        balanced(real_roctx)

    def test_eight_threads(self, real_roctx: Any) -> None:
        """Each thread has a stack of its own; nobody's pop ends another's range."""
        with capture(backend=Available, tool=None, steps=[1]) as run:
            job = Job()
            with run.session.step(1):
                threads = [threading.Thread(target=lambda: [job.outer() for _ in range(25)]) for _ in range(8)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
        balanced(real_roctx)
        assert Counter(call.kind for call in real_roctx) == {"push": 400, "pop": 400}

    def test_coroutines_leave_marks_and_a_generator_a_range_a_piece(self, real_roctx: Any) -> None:
        """Interleaved coroutines stand as marks at their ends; each piece of a generator, which runs on the stack, is pushed and popped."""

        async def together(job: Job) -> None:
            await asyncio.gather(*(job.suspended(turns) for turns in (3, 1, 2)))

        with capture(backend=Available, tool=None, steps=[1]) as run:
            job = Job()
            with run.session.step(1):
                asyncio.run(together(job))
                generator = job.items(3)
                next(generator)
                generator.close()
        balanced(real_roctx)
        found = Counter((call.kind, call.message) for call in real_roctx)
        assert found == {
            ("mark", "job/suspended begin"): 3,
            ("mark", "job/suspended end"): 3,
            ("push", "job/items"): 2,  # the first item, and the closing
            ("pop", ""): 2,
        }

    def test_a_window_that_closes_inside_a_phase(self, real_roctx: Any) -> None:
        """What was pushed is popped although the window is closed by then; later calls push nothing."""
        with capture(backend=Available, tool=None, steps=[1]) as run:
            job = Job()
            with run.session.step(1):
                job.leaves(run.session)
            job.outer()
        assert [call.message for call in real_roctx if call.kind == "push"] == ["job/leaves", "job/inner"]
        balanced(real_roctx)


class TestConformance(BackendConformance):
    """The kit over a recording library."""

    @pytest.fixture(autouse=True)
    def library(self, compiled: Callable[..., Path], use: Any) -> None:
        use(compiled("librocprofiler-sdk-roctx.so.1", "-DSDK"))

    def make(self) -> RocmBackend:
        return RocmBackend()

    def usable(self, backend: Any) -> bool:
        return True


def test_nothing_is_pushed_before_the_device_and_popped_after(compiled: Callable[..., Path], use: Any) -> None:
    """A tool that begins to listen when HIP is initialised must not see a pop whose push it missed."""
    calls = use(compiled("libroctx64.so.4"))
    ready = [False]
    ranges = RoctxRanges(roctx.find(), lambda: ready[0])
    early, late = ranges.bind(RangeSpec("early")), ranges.bind(RangeSpec("late"))
    early.push()
    ready[0] = True
    late.push()
    late.pop()
    early.pop()
    early.push()
    early.pop()
    assert [(call.kind, call.message) for call in calls()] == [
        ("push", "late"),
        ("pop", ""),
        ("push", "early"),
        ("pop", ""),
    ]


def test_a_pop_too_many_reaches_no_tool(compiled: Callable[..., Path], use: Any) -> None:
    """Where a pop can abort the worker, only what was pushed is popped, on each thread."""
    calls = use(compiled("libroctx64.so.4"))
    ranges = RoctxRanges(roctx.find(), lambda: True)
    bound = ranges.bind(RangeSpec("a"))
    bound.push()
    thread = threading.Thread(target=bound.pop)
    thread.start()
    thread.join()
    bound.pop()
    bound.pop()
    assert [call.kind for call in calls()] == ["push", "pop"]


def test_ranges_by_id_only_under_tools_that_take_them(compiled: Callable[..., Path], use: Any) -> None:
    """start/stop goes out as ids from the overlapping emitter, and as marks from the other."""
    calls = use(compiled("librocprofiler-sdk-roctx.so.1", "-DSDK"))
    library = roctx.find()
    for ranges in (OverlappingRanges(library), RoctxRanges(library)):
        one, two = (ranges.bind(RangeSpec(name)) for name in "ab")
        first, second = one.start(), two.start()
        one.end(first)
        two.end(second)
    rows = [(call.kind, call.message or call.number) for call in calls()]
    assert rows == [
        ("start", "a"), ("start", "b"), ("stop", 1), ("stop", 2),
        ("mark", "a begin"), ("mark", "b begin"), ("mark", "a end"), ("mark", "b end"),
    ]  # fmt: skip
    assert OverlappingRanges.overlapping_ranges
    assert not RoctxRanges.overlapping_ranges


def test_the_gate_resumes_with_thread_zero(
    compiled: Callable[..., Path], use: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pause and resume get 0, whichever thread calls; a second stop calls nothing; a refusal is an error."""
    calls = use(compiled("librocprofiler-sdk-roctx.so.1", "-DSDK"))
    backend = RocmBackend()
    backend.capture_stop()
    backend.capture_start()
    backend.capture_stop()
    backend.capture_stop()
    assert [(call.kind, call.number) for call in calls()] == [("resume", 0), ("pause", 0)]
    monkeypatch.setenv("ROCTX_RECORDER_REFUSES", "1")
    with pytest.raises(Exception, match=r"roctxProfilerResume\(0\) answered 1"):
        backend.capture_start()


def test_an_open_driver_file_means_that_hip_is_initialised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever initialised HIP, it holds the driver's file open; that is looked at, and the answer yes is kept."""
    node = tmp_path / "kfd"
    node.write_text("")
    monkeypatch.setattr(vendor, "KFD", str(node))
    monkeypatch.setattr(vendor, "LOOK_EVERY", 0.0)
    ready = vendor.DeviceReady()
    assert not ready()
    with node.open():
        assert ready()
    assert ready()


@pytest.mark.roctx
def test_a_windows_region_through_the_real_library(real_roctx: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """rocprof-sys from 7.13: the real library hears the region's name where the window opens, and its id where it closes."""
    from accelprof.contracts.targets import Assignment, Target, WindowInfo
    from accelprof.contracts.tool import ToolContext

    monkeypatch.setenv("ROCPROFSYS_SELECTED_REGIONS", "mine,accelprof_window")
    row = Assignment(Target("G", rank=0), True, "rocprof_sys", mode="steps")
    tool, said = RocprofSysTool({"rocm": "7.13"}), []
    tool.attach(ToolContext(row.target, row, RocmBackend(), "/run", said.append))
    assert tool.thread == "starter"
    assert [line for line in said if "does not listen to" not in line] == []
    for number in (1, 2):
        window = WindowInfo(f"w{number}", number, (number,), None, "step", "/run/x")
        tool.open(window)
        tool.close(window)
    calls = [(call.kind, call.message) for call in real_roctx]
    assert calls == [
        entry
        for number in (1, 2)
        for entry in (
            ("start", "accelprof_window"),
            ("mark", f"accelprof window begin w{number}"),
            ("mark", f"accelprof window end w{number}"),
            ("stop", ""),
        )
    ]
    starts, stops = ([call.number for call in real_roctx if call.kind == kind] for kind in ("start", "stop"))
    assert starts == stops
    assert len(set(starts)) == 2
