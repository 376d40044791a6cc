"""Tool torch: every window a non-empty trace of its own operators; compiled code and threads."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import textwrap
import threading

import pytest

import accelprof
from accelprof import Worker, profiling_range
from accelprof.testing import ToolConformance, capture

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.torch


class Actor(Worker):
    @Worker.timer("actor/update")
    def update(self, operator):
        with profiling_range("actor/forward"):
            return operator(torch.ones(8, 8))

    @Worker.timer("helper")
    def helper(self, x):
        return x + 1

    def compiled_region(self, x):
        y = self.helper(x) * 3
        with profiling_range("inner"):
            y = y.cos()
        with self.worker_timer("block"):
            y = y + 1
        return y.sum()


def traces(run):
    run.session.wait_for_files()
    found = []
    for record in run.session.journal.records:
        if record["kind"] == "artifact" and record["tool"] == "torch":
            with gzip.open(record["path"], "rt") as file:
                found.append([event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"])
    return found


class TestConformance(ToolConformance):
    """The torch tool passes the conformance kit."""

    test_the_trigger_call_is_made_once_a_window = None  # type: ignore[assignment]  # it is in the process, no backend\'s call

    def make(self):
        from accelprof.tools.torch import TorchTool

        return TorchTool()

    def device_file(self, directory):
        where, launch = {"ph": "X", "pid": 1, "tid": 1}, {"correlation": 7}
        events = [
            {**where, "cat": "user_annotation", "name": "actor/update", "ts": 10.5, "dur": 100, "args": {}},
            {**where, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 12, "dur": 0.5, "args": launch},
            {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": "gemm", "ts": 200, "dur": 2.125, "args": {"device": 0, "stream": 7, **launch}},
        ]  # fmt: skip
        path = f"{directory}/a.pt.trace.json"
        with open(path, "w") as file:
            json.dump({"baseTimeNanoseconds": 1_795_852_566_000_000_000, "traceEvents": events}, file)
        return path


def test_three_windows_each_with_its_own_operators():
    """B20: windows at 1, 3 and 5 leave three non-empty traces, each with its own step's operator only."""
    operators = {1: torch.sin, 3: torch.cos, 5: torch.tan}
    with capture(tool="torch", steps=[1, 3, 5], tools=()) as run:
        actor = Actor()
        for step in range(7):
            with run.session.step(step):
                actor.update(operators.get(step, torch.exp))
        found = [{event["name"] for event in events} for events in traces(run)]
        assert len(found) == 3
        for names, own in zip(found, ("aten::sin", "aten::cos", "aten::tan")):
            assert own in names
            assert not names & ({"aten::sin", "aten::cos", "aten::tan", "aten::exp"} - {own})
            assert {"actor/update", "actor/forward"} <= names
        assert run.session.problems == []


def test_a_window_that_failed_spoils_nothing():
    """An exception inside a window, and a profiler of the user's in the way of another, leave the others whole."""
    with capture(tool="torch", steps=[1, 2, 3], tools=()) as run:
        actor = Actor()
        with pytest.raises(ZeroDivisionError), run.session.step(1):
            actor.update(lambda x: 1 / 0)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as mine, run.session.step(2):
            actor.update(torch.sin)
        assert any(event.name == "aten::sin" for event in mine.events())
        with run.session.step(3):
            actor.update(torch.cos)
        assert len(traces(run)) == 2
        assert any("another torch profiler" in text for text in run.session.problems)


def test_operators_of_other_threads_are_seen():
    """B22: opened and closed on a control thread, the window holds the operators of the thread that works."""
    with capture(tool="torch", steps=[1], tools=()) as run:
        actor = Actor()
        work = threading.Thread(target=lambda: [actor.update(torch.sin) for _ in range(500)])
        opener = threading.Thread(target=run.session.begin_step, args=(1,), kwargs={"outside": True})
        closer = threading.Thread(target=run.session.end_step, args=(1,))
        for thread in (opener, work, closer):
            thread.start()
            thread.join()
        assert sum(event["name"] == "aten::sin" for event in traces(run)[0]) == 500


def test_without_the_all_threads_switch_windows_open_where_the_work_is():
    """With ``all_threads: false`` the window opens at the phase, on its thread, so its operators are in it."""
    with capture(tool="torch", steps=[1], groups={"Group": {"options": {"all_threads": False}}}) as run:
        actor = Actor()
        opener = threading.Thread(target=run.session.begin_step, args=(1,), kwargs={"outside": True})
        work = threading.Thread(target=lambda: actor.update(torch.sin))
        closer = threading.Thread(target=run.session.end_step, args=(1,))
        for thread in (opener, work, closer):
            thread.start()
            thread.join()
        assert [sum(event["name"] == "aten::sin" for event in events) for events in traces(run)] == [1]


def test_default_contents_are_lean():
    """B37: without contents there are no shapes, stacks or memory events; with them there are."""

    def trace(contents):
        with capture(tool="torch", steps=[0], groups={"Group": {"options": {"contents": contents}}}) as run:
            with run.session.step(0):
                Actor().update(torch.sin)
            return traces(run)[0]

    assert not any("Input Dims" in event.get("args", {}) for event in trace([]))
    assert any("Input Dims" in event.get("args", {}) for event in trace(["cpu", "shapes"]))


def test_compiled_code_and_timers():
    """B32: a timed method that calls compiled code, and a compiled region with timers inside, give equal results and counts."""
    actor = Actor()
    region = torch.compile(actor.compiled_region, backend="eager")
    x = torch.ones(4)
    plain = Actor().compiled_region(x)
    with capture(steps=[1], tool=None) as run:
        for step in range(3):
            with run.session.step(step):
                assert torch.equal(region(x), plain)
        assert {tag: row["count"] for tag, row in actor.timing_stats().items()} == {"helper": 3, "block": 3}
        assert run.session.problems == []


def test_fullgraph_names_the_timer():
    """B32: ``fullgraph=True`` says which timer is in the way."""
    actor = Actor()
    with pytest.raises(Exception, match="accelprof timer 'helper' is not part of a compiled graph"):
        torch.compile(lambda x: actor.helper(x), backend="eager", fullgraph=True)(torch.ones(2))


@pytest.mark.parametrize("how", ["inside the window", "over its end", "over its end, for all threads"])
def test_the_users_own_profiler_inside_a_window(how, tmp_path):
    """It takes ours away: the process lives, theirs is whole, the window says what happened, and the next one is whole."""
    code = f"""
        import json, torch, accelprof
        from torch._C._profiler import _ExperimentalConfig
        s = accelprof.configure(steps=[1, 2], tool="torch", output_dir="o", run="r", group="G", rank=0)
        def work(): torch.mul(torch.ones(4), 2)
        config = _ExperimentalConfig(profile_all_threads=True) if {how.endswith("threads")} else None
        theirs = torch.profiler.profile(experimental_config=config)
        with s.step(1):
            work()
            theirs.start(); work()
            if {how == "inside the window"}: theirs.stop()
        if {how != "inside the window"}: work(); theirs.stop()
        with s.step(2): work()
        s.close()
        counted = sum(event.name == "aten::mul" for event in theirs.events())
        files = [row["path"] for row in s.journal.records if row["kind"] == "artifact" and row["tool"] == "torch"]
        print(json.dumps([counted, files, s.problems]))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    counted, files, problems = json.loads(done.stdout.splitlines()[-1])
    if how.endswith("threads"):  # two of one kind cannot be told apart: ours ends, the process lives
        return
    assert counted == (1 if how == "inside the window" else 2)
    assert len(files) == 1
    assert "-s2-" in files[0]
    assert any("another torch profiler was started inside the window" in text for text in problems)


def test_torch_memory_needs_a_device():
    """On a machine whose torch sees no device the memory tool says so and the window still has its timeline."""
    if torch.cuda.is_available():
        pytest.skip("this torch sees a device")
    with capture(tool="torch_memory", steps=[1]) as run:
        with run.session.step(1):
            Actor().update(torch.sin)
        assert any(
            "torch_memory cannot be used here" in text and "no accelerator" in text for text in run.session.problems
        )
        assert len(run.session.windows) == 1


def test_memory_history_arguments_exist():
    """The allocator call of the memory tool takes the arguments that it passes, by torch's own signature."""
    import inspect

    parameters = inspect.signature(torch.cuda.memory._record_memory_history_impl).parameters
    assert {"enabled", "context", "stacks", "max_entries"} <= set(parameters)


@pytest.mark.parametrize("warmup", [0, 1, 2])
def test_steps_of_a_scheduled_window_are_the_calls(warmup):
    """``ProfilerStep#N`` is call N of the schedule, whatever warms up before it."""
    schedule = {"phase": "actor/update", "per": "step", "wait": 4 - warmup, "warmup": warmup, "active": 3}
    with capture(tool="torch", steps=[2], schedule=schedule, tools=()) as run:
        actor = Actor()
        with run.session.step(2):
            for _ in range(9):
                actor.update(torch.sin)
        run.session.close()
        [events] = traces(run)
    assert [event["name"] for event in events if event["name"].startswith("ProfilerStep#")] == [
        f"ProfilerStep#{number}" for number in (4, 5, 6)
    ]


def test_a_file_names_its_rank_also_without_torch_distributed(tmp_path):
    """Readers of several files tell ranks apart by what torch writes only where its distributed package runs."""
    session = accelprof.configure(
        tool="torch", steps=[1], ranks="all", output_dir=str(tmp_path), run="r", group="G", rank=3, world_size=8
    )
    with session.step(1):
        torch.ones(2).sum()
    session.close()
    accelprof.reset()
    (path,) = tmp_path.rglob("*.pt.trace.json.gz")
    with gzip.open(path, "rt") as file:
        assert json.load(file)["distributedInfo"] == {"rank": 3, "world_size": 8}
