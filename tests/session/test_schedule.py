"""Schedules in a session: what is counted, where windows begin and end, and what is said when a loop does not fit."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import accelprof
from accelprof import Worker
from accelprof.catalogue import make_catalogue
from accelprof.errors import ConfigError
from accelprof.testing import RecordingTool, capture


class Rollout(Worker):
    @Worker.timer("rollout/generate")
    def generate(self, tokens, body=lambda number: None):
        for number in range(tokens):
            self.decode(number, body)

    @Worker.timer("rollout/decode_step")
    def decode(self, number, body):
        body(number)

    @Worker.timer("poll")
    def poll(self):
        return None

    @Worker.timer("decode_async")
    async def decode_async(self, seconds):
        await asyncio.sleep(seconds)


def seen_in(run):
    """A body that notes the calls that run inside a window, by window."""
    windows = {}

    def body(number):
        window = run.session.window
        if window is not None:
            windows.setdefault(window.info.sequence, []).append(number)

    return windows, body


def spans_of(run, cat="phase"):
    """``{window id: [(name, in progress)]}`` of the timeline files."""
    result = {}
    for path in sorted(Path(run.run_dir).rglob("*.trace.json.gz")):
        with gzip.open(path, "rt") as file:
            data = json.load(file)
        result[data["otherData"]["accelprof"]["window"]] = [
            (event["name"], "in_progress" in event["args"])
            for event in data["traceEvents"]
            if event["ph"] == "X" and event["cat"] == cat
        ]
    return result


@pytest.mark.parametrize(
    ("schedule", "calls"),
    [
        ({"wait": 29, "warmup": 1, "active": 30}, [list(range(30, 60))]),
        ({"start": 30, "stop": 60, "warmup": 1}, [list(range(30, 60))]),
        ({"start": 0, "stop": 2, "warmup": 5}, [[0, 1]]),
        ({"token_start": 30, "token_end": 60}, [list(range(30, 60))]),
        ({"token_start": 1, "token_end": 3, "warmup": 2}, [[1, 2]]),
        ({"skip_first": 10, "wait": 2, "active": 1, "repeat": 3}, [[12], [15], [18]]),
        ({"wait": 60, "active": 2, "repeat": 0}, [[60, 61], [122, 123], [184, 185]]),
        ({}, [[0]]),
    ],
)
def test_calls_recorded(schedule, calls):
    """Counted from 0; stop and token_end are exclusive; a warm-up that is too long does not move the first call."""
    with capture(schedule={"phase": "rollout/decode_step", **schedule}) as run:
        windows, body = seen_in(run)
        Rollout().generate(200, body)
        assert list(windows.values()) == calls
        assert run.backend.count("capture_start") == run.backend.count("capture_stop") == len(calls)
        assert [row["window_kind"] for row in run.session.windows] == ["schedule"] * len(calls)
        if run.session.assignment.count.certain:
            assert run.session.assignment.count.exact == len(calls)


def test_timeline_holds_exactly_the_recorded_calls():
    """The timeline of the window has calls 30-59, and the phase around them marked as in progress; nothing else."""
    with capture(schedule={"phase": "rollout/decode_step", "wait": 29, "warmup": 1, "active": 30}) as run:
        Rollout().generate(200)
        [spans] = spans_of(run).values()
        assert spans.count(("rollout/decode_step", False)) == 30
        assert set(spans) == {("rollout/decode_step", False), ("rollout/generate", True)}


def test_per_step_in_selected_steps_only():
    """B04: with steps, only calls in selected steps count, however often phases ran before; counting restarts per step."""
    schedule = {"phase": "rollout/decode_step", "wait": 1, "active": 2, "per": "step"}
    with capture(steps=[5, 7], schedule=schedule) as run:
        worker = Rollout()
        for _ in range(100):
            worker.poll()
        windows, body = seen_in(run)
        worker.generate(10, body)
        for step in range(1, 9):
            with run.session.step(step):
                worker.generate(4, lambda n, step=step: body((step, n)))
        assert list(windows.values()) == [[(5, 1), (5, 2)], [(7, 1), (7, 2)]]
        assert [row["steps"] for row in run.session.windows] == [[5], [7]]
        assert run.session.assignment.count.exact == 2


def test_per_enclosing_phase():
    """The first decode step of every generation, and no more."""
    schedule = {"phase": "rollout/decode_step", "per": "rollout/generate", "repeat": 1}
    with capture(schedule=schedule) as run:
        windows, body = seen_in(run)
        for round_ in range(3):
            Rollout().generate(5, lambda n, r=round_: body((r, n)))
        assert list(windows.values()) == [[(0, 0)], [(1, 0)], [(2, 0)]]
        assert not run.session.assignment.count.certain


def test_short_loop_is_partial():
    """A loop shorter than the schedule leaves what was recorded, in the file and in words."""
    schedule = {"phase": "rollout/decode_step", "wait": 2, "active": 30, "per": "rollout/generate"}
    with capture(schedule=schedule) as run:
        Rollout().generate(5)
        [window] = run.session.windows
        assert window["schedule"]["partial"]
        assert (window["schedule"]["first"], window["schedule"]["calls"], window["schedule"]["planned"]) == (2, 3, 30)
        assert any("partial, 3 of 30 calls" in text for text in run.session.problems)
        assert run.backend.count("capture_stop") == 1
        [spans] = spans_of(run).values()
        assert spans.count(("rollout/decode_step", False)) == 3


def test_partial_at_the_end_of_the_session():
    """A stretch still open when the session closes is partial too."""
    with capture(schedule={"phase": "rollout/decode_step", "active": 30}) as run:
        Rollout().generate(5)
        run.session.close()
        assert run.session.windows[0]["schedule"]["partial"]
        assert run.backend.count("capture_stop") == 1


def test_exceptions_leave_the_schedule_in_order():
    """B21: an exception in a recorded call reaches the caller unchanged, the call counts, the rest is recorded."""

    def fail(number):
        if number == 1:
            raise KeyError("mine")

    with capture(schedule={"phase": "rollout/decode_step", "active": 3}) as run:
        worker = Rollout()
        with pytest.raises(KeyError, match="mine"):
            worker.generate(5, fail)
        windows, body = seen_in(run)
        worker.generate(3, body)
        assert windows == {1: [0]}
        assert run.session.windows[0]["schedule"]["calls"] == 3
        assert not run.session.windows[0]["schedule"]["partial"]


def test_stretch_never_reached_is_said():
    """A schedule whose first call is beyond the loop says how many calls there were."""
    with capture(schedule={"phase": "rollout/decode_step", "wait": 29, "active": 30}) as run:
        Rollout().generate(12)
        run.session.close()
        assert any("12 calls at most, the first to record is call 29" in text for text in run.session.problems)
        assert any("0 windows opened" in text for text in run.session.problems)


def test_calls_outside_the_enclosing_phase_are_said():
    """Calls that no enclosing phase surrounds are not counted, and the number of them is said."""
    with capture(schedule={"phase": "rollout/decode_step", "per": "rollout/generate"}) as run:
        Rollout().decode(0, lambda n: None)
        run.session.close()
        assert run.session.windows == []
        assert any("1 of 1 calls were outside any 'rollout/generate'" in text for text in run.session.problems)


def test_gate_is_cold_once_a_schedule_is_done():
    """After the last stretch, timers are closed again: nothing more is counted."""
    from accelprof.timing.gate import gate

    with capture(schedule={"phase": "rollout/decode_step", "active": 2}) as run:
        assert gate.entrance is run.session.entrance
        Rollout().generate(2)
        assert gate.entrance is None


def test_two_schedules_that_overlap_at_run_time():
    """What begins in another's window is recorded there and said; the rest of it gets its own window."""
    schedules = [
        {"phase": "rollout/generate", "active": 1},
        {"phase": "rollout/decode_step", "wait": 3, "active": 4},
    ]
    with capture(schedule=schedules) as run:
        windows, body = seen_in(run)
        worker = Rollout()
        worker.generate(5, body)
        worker.generate(5, lambda n: body(n + 5))
        assert list(windows.values()) == [[0, 1, 2, 3, 4], [5, 6]]
        assert run.session.windows[0]["holds"] == ["rollout/decode_step"]
        assert any("are in that one, not in a window of their own" in text for text in run.session.problems)
        assert run.backend.count("capture_start") == run.backend.count("capture_stop") == 2


@pytest.mark.parametrize(
    ("schedules", "said"),
    [
        (
            [{"phase": "a", "wait": 2, "active": 3}, {"phase": "a", "start": 4, "stop": 6}],
            "'a' and 'a' cannot both have a window in one process: both record call 4",
        ),
        (
            [{"phase": "mini", "active": 1}, {"phase": "micro", "per": "mini"}],
            "'micro' is counted in every 'mini'",
        ),
        ([{"phase": "a", "per": "a"}], "'a' is counted per call of itself"),
    ],
)
def test_schedules_that_cannot_both_be_had(schedules, said):
    """Two windows that would certainly be open together in one process are refused before anything starts, by name."""
    registry = make_catalogue(entry_points=False)
    with pytest.raises(ConfigError, match=said.replace("(", r"\(")):
        registry.plan(registry.load({"schedule": schedules}).config)


def test_schedules_that_may_both_be_had():
    """Different calls of one phase, and phases that do not surround each other, pass."""
    registry = make_catalogue(entry_points=False)
    schedules = [{"phase": "a", "active": 2}, {"phase": "a", "start": 2, "stop": 3}, {"phase": "b"}]
    [row] = registry.plan(registry.load({"schedule": schedules}).config).preview()
    assert row.count.exact == 3


def test_token_window_with_another_count_is_refused():
    """Token windows and wait/active are two ways to say the same."""
    registry = make_catalogue(entry_points=False)
    with pytest.raises(ConfigError, match="say the same; keep one"):
        registry.load({"schedule": {"phase": "a", "token_start": 1, "token_end": 2, "wait": 3}})


def test_merged_steps_share_a_stretch():
    """Adjacent selected steps that share a window let a stretch go on; it is cut where they end."""
    with capture(steps=[2, 3], merge_steps=True, schedule={"phase": "rollout/decode_step", "active": 100}) as run:
        windows, body = seen_in(run)
        for step in range(1, 6):
            with run.session.step(step):
                Rollout().generate(2, lambda n, step=step: body((step, n)))
        assert list(windows.values()) == [[(2, 0), (2, 1), (3, 0), (3, 1)]]
        assert run.session.windows[0]["steps"] == [2, 3]


def test_without_steps_a_stretch_goes_on_over_steps():
    """Counted per process and without steps, announced steps neither restart nor cut anything."""
    with capture(schedule={"phase": "rollout/decode_step", "wait": 1, "active": 2}) as run:
        windows, body = seen_in(run)
        for step in range(3):
            with run.session.step(step):
                Rollout().generate(1, lambda n, step=step: body(step))
        assert windows == {1: [1, 2]}


def test_steps_announced_without_an_end():
    """B01: a step that is only followed by another one ends its stretch at the next announcement."""
    with capture(steps=[3, 4], schedule={"phase": "rollout/decode_step", "active": 5, "per": "step"}) as run:
        worker = Rollout()
        for step in (3, 4, 7):
            run.session.begin_step(step)
            worker.generate(2)
        assert [row["steps"] for row in run.session.windows] == [[3], [4]]
        assert run.backend.names("capture_start", "capture_stop") == ["capture_start", "capture_stop"] * 2
        assert run.session.window is None


def test_overlapping_coroutines():
    """Concurrent calls count in the order they begin; the window closes when the last of its calls has ended."""
    with capture(schedule={"phase": "decode_async", "wait": 1, "active": 2}) as run:
        worker = Rollout()

        async def all_of_them():
            await asyncio.gather(*(worker.decode_async(s) for s in (0.001, 0.03, 0.01, 0.001)))

        asyncio.run(all_of_them())
        [spans] = spans_of(run).values()
        assert spans.count(("decode_async", False)) >= 2
        assert run.backend.count("capture_stop") == 1
        assert run.session.window is None


def test_enclosing_phase_on_another_thread():
    """Each thread counts in its own enclosing call; work handed to a helper thread counts in the newest open one."""
    with capture(schedule={"phase": "rollout/decode_step", "per": "rollout/generate"}) as run:
        counted = []

        def hand_over(number):
            pass

        class Pooled(Worker):
            @Worker.timer("rollout/generate")
            def generate(self):
                thread = threading.Thread(
                    target=lambda: Rollout().decode(0, lambda n: counted.append(run.session.window))
                )
                thread.start()
                thread.join()

        Pooled().generate()
        assert counted[0] is not None
        Rollout().generate(2, hand_over)
        assert [row["schedule"]["calls"] for row in run.session.windows] == [1, 1]


class Starter(RecordingTool):
    """Must stop on the thread it was started on."""

    name = "starter"
    thread = "starter"


def test_a_tool_bound_to_its_thread_stops_there():
    """B22: a stretch cut by a step that another thread ends stays open until its own thread comes by."""
    with capture(
        tool="starter", tools=(Starter,), steps=[1], schedule={"phase": "rollout/decode_step", "active": 5}
    ) as run:
        run.session.begin_step(1)
        worker = Rollout()
        worker.generate(2)
        thread = threading.Thread(target=run.session.end_step, args=(1,))
        thread.start()
        thread.join()
        assert run.session.window is not None
        worker.poll()
        assert run.session.window is None
        opened, closed = (next(c.thread for c in run.tool.calls if c.name == name) for name in ("open", "close"))
        assert opened == closed == threading.get_ident()


def test_window_closed_by_somebody_else():
    """A window that is closed on demand in the middle of its stretch is partial and does not open again."""
    with capture(schedule={"phase": "rollout/decode_step", "active": 4}) as run:
        worker = Rollout()
        worker.generate(2)
        run.session.close_window("on demand")
        worker.generate(4)
        assert len(run.session.windows) == 1
        assert any("was closed after 2 of 4 calls" in text for text in run.session.problems)


class Failing(RecordingTool):
    """Never starts."""

    name = "failing"

    def open(self, window):
        raise RuntimeError("no")


def test_a_tool_that_fails_to_start_does_not_stop_the_loop():
    """B20: a failed start is reported, the loop goes on, later stretches are tried again."""
    with capture(
        tool="failing", tools=(Failing,), timeline=False, schedule={"phase": "rollout/decode_step", "repeat": 2}
    ) as run:
        Rollout().generate(3)
        assert run.session.windows == []
        assert any("tool failing failed opening a window" in text for text in run.session.problems)


@pytest.mark.torch
def test_torch_native_schedule():
    """B20: torch warms up for a call, then has exactly the recorded calls in each of three traces, as its own steps."""
    torch = pytest.importorskip("torch")

    def work(number):
        torch.ones(number + 1).sum()

    schedule = {"phase": "rollout/decode_step", "wait": 2, "warmup": 1, "active": 3, "repeat": 3}
    with capture(tool="torch", schedule=schedule) as run:
        Rollout().generate(20, work)
        run.session.wait_for_files()
        files = sorted(Path(run.run_dir).rglob("*.pt.trace.json.gz"))
        assert len(files) == 3
        for path in files:
            with gzip.open(path, "rt") as file:
                events = json.load(file)["traceEvents"]
            names = [event["name"] for event in events if event.get("ph") == "X"]
            assert names.count("aten::ones") == 3
            assert names.count("rollout/decode_step") == 3
            assert sum(name.startswith("ProfilerStep#") for name in names) == 3
        assert run.session.problems == []


@pytest.mark.torch
def test_torch_warm_up_without_a_window():
    """A loop that ends in the warm-up leaves no trace and no profiler that is still on; the next window works."""
    torch = pytest.importorskip("torch")
    schedule = {"phase": "rollout/decode_step", "warmup": 2, "active": 1, "per": "rollout/generate"}
    with capture(tool="torch", schedule=schedule) as run:
        worker = Rollout()
        worker.generate(1)
        assert not torch.autograd._profiler_enabled()
        worker.generate(3)
        run.session.wait_for_files()
        assert len(list(Path(run.run_dir).rglob("*.pt.trace.json.gz"))) == 1
        assert any("during its warm-up" in text for text in run.session.problems)


def test_plain_functions_are_counted_too():
    """A timed function that is no method is a phase like any other."""

    @accelprof.timer("plain")
    def plain():
        return accelprof.current_session().window is not None

    with capture(schedule={"phase": "plain", "wait": 1}):
        assert [plain(), plain(), plain()] == [False, True, False]


@pytest.mark.parametrize("per", ["process", "rollout/generate"])
def test_calls_are_counted_while_asyncio_is_being_imported(monkeypatch, per):
    """Another thread may see ``asyncio`` with nothing in it yet: a schedule counts all the same, and nothing failed."""
    half = ModuleType("asyncio")
    half.__spec__ = SimpleNamespace(_initializing=True, name="asyncio")
    with capture(schedule={"phase": "rollout/decode_step", "wait": 2, "active": 2, "per": per}) as run:
        monkeypatch.setitem(sys.modules, "asyncio", half)
        windows, body = seen_in(run)
        Rollout().generate(6, body)
        monkeypatch.undo()
        assert windows == {1: [2, 3]}
        assert run.session.problems == []
