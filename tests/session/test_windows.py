"""Windows: which steps open one, that each ends exactly once, and what reaches backend and timeline."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import accelprof
from accelprof import Worker, profiling_range
from accelprof.errors import CaptureError, UserError
from accelprof.testing import RecordingTool, capture


class Actor(Worker):
    @Worker.timer("actor/update", color="green", domain="model")
    def update(self, inside=None):
        with profiling_range("actor/forward"):
            if inside is not None:
                inside()

    @Worker.timer("actor/generate")
    async def generate(self, turns):
        for _ in range(turns):
            await asyncio.sleep(0)

    @Worker.timer("poll")
    def poll(self):
        return None

    @Worker.timer("actor/items")
    def items(self, count):
        yield from range(count)


def announce(session, steps, body=lambda step: None):
    for step in steps:
        with session.step(step):
            body(step)


def opened(run):
    return [row["steps"] for row in run.session.windows]


@pytest.mark.parametrize(
    ("config", "announced", "windows"),
    [
        ([3, 4, 5], [3, 4, 7], [[3], [4]]),
        ([3, 4, 5], [4, 6], [[4]]),
        ([3, 4, 5], [2, 9], []),
        ([0, 1, 7, 5000], [0, 1, 2, 7, 8, 5000], [[0], [1], [7], [5000]]),
        ("2", [1, 2, 3], [[2]]),
        ("1-3,7", range(9), [[1], [2], [3], [7]]),
        ([], range(5), []),
        (None, range(5), []),
        ([101], [100, 101, 102], [[101]]),
        ([2, 3], [3, 2], [[3], [2]]),
        ([2], [2, 2, 1, 2], [[2]]),
        ("all", [5, 6], [[5], [6]]),
    ],
)
def test_windows_by_announced_steps(config, announced, windows):
    """B01, B07, B08: exactly the announced steps that were asked for, each once, jumped-over ones not at all."""
    with capture(steps=config) as run:
        announce(run.session, announced)
        run.session.close()
        assert opened(run) == windows
        assert run.backend.count("capture_start") == run.backend.count("capture_stop") == len(windows)


@pytest.mark.parametrize(
    ("announced", "windows"),
    [(range(8), [[2, 3], [5, 6, 7]]), ([2, 9], [[2]]), ([3, 5, 7], [[3], [5, 7]]), ([2, 6], [[2], [6]]), ([1, 4], [])],
)
def test_adjacent_steps_share_a_window(announced, windows):
    """``merge_steps``: one window per run of adjacent steps, closed at the first announcement outside it."""
    with capture(steps=[2, 3, "5-7"], merge_steps=True) as run:
        announce(run.session, announced)
        assert run.session.window is None or 7 not in announced
        run.session.close()
        assert opened(run) == windows
        assert run.backend.count("capture_stop") == len(windows)


def test_begin_without_end():
    """Only ``begin_step`` is called: the next announcement outside closes the window, and nothing of it is inside."""
    with capture(steps=[3, 4, 5], merge_steps=True) as run:
        actor = Actor()
        for step in (3, 4, 7):
            run.session.begin_step(step)
            actor.update()
        assert run.backend.names("capture_start", "push", "capture_stop") == [
            "capture_start",
            *["push"] * 4,
            "capture_stop",
        ]


def test_polling_before_the_step_opens_nothing():
    """B04: a timer entered a hundred times before the announcement does not count as steps."""
    with capture(steps=[5]) as run:
        actor = Actor()
        for _ in range(100):
            actor.poll()
        announce(run.session, range(1, 7), lambda step: actor.poll())
        assert opened(run) == [[5]]
        assert run.backend.labels() == ["poll"]


def test_ranges_only_inside_windows_with_their_attributes():
    """Outside windows nothing is emitted; inside, phases and ranges nest, and pops equal pushes whatever push returns."""
    for answer in (-1, 0, None):
        with capture(steps=[2]) as run:
            run.backend.push_returns = answer
            actor = Actor()
            announce(run.session, range(4), lambda step: actor.update())
            assert run.backend.labels() == ["actor/update", "actor/forward"]
            assert run.backend.balanced()
            assert actor.timing_stats()["actor/update"]["count"] == 4


def test_suspendable_code_uses_start_and_end():
    """B25: coroutines emit start/end pairs, plain code and each piece of a generator push/pop, and no label is swapped."""

    async def both(actor):
        await asyncio.gather(actor.generate(3), actor.generate(1))

    with capture(steps=[0]) as run:
        actor = Actor()
        with run.session.step(0):
            asyncio.run(both(actor))
            generator = actor.items(5)
            next(generator)
            generator.close()
            actor.update()
        assert run.backend.names("push", "start") == ["start", "start", *["push"] * 4]
        assert run.backend.labels()[2:4] == ["actor/items"] * 2  # to its first item, and the closing
        assert run.backend.balanced()


def test_range_in_a_coroutine_frame_uses_start_and_end():
    """A ``profiling_range`` block that contains an await cannot swap labels with another task's."""

    async def block(name):
        with profiling_range(name):
            await asyncio.sleep(0)

    async def both():
        await asyncio.gather(block("a"), block("b"))

    with capture(steps=[0]) as run:
        with run.session.step(0):
            asyncio.run(both())
        assert run.backend.names("push", "start") == ["start", "start"]
        assert run.backend.balanced()


@pytest.mark.parametrize("overlapping", [True, False])
def test_backends_without_overlapping_ranges_get_marks(overlapping):
    """A backend that cannot take overlapping ranges gets marks at the ends of suspended code, and no start."""
    from accelprof.testing import RecordingBackend

    class Strict(RecordingBackend):
        name = "strict"
        aliases = ()
        overlapping_ranges = overlapping

    with capture(backend=Strict, steps=[0]) as run:
        with run.session.step(0):
            asyncio.run(Actor().generate(1))
        expected = ["start", "end"] if overlapping else ["mark", "mark"]
        assert run.backend.names("start", "end", "mark") == expected


def test_window_closing_in_the_middle_of_a_phase():
    """What was pushed is popped even though the window closed meanwhile; the timeline has the phase, cut."""
    with capture(steps=[1]) as run:
        actor = Actor()
        run.session.begin_step(1)
        actor.update(inside=lambda: run.session.begin_step(2))
        assert run.backend.balanced()
        assert run.backend.names("push", "pop", "capture_stop") == ["push", "push", "capture_stop", "pop", "pop"]
        spans = timeline(run)[0]
        assert {span["name"]: span["args"].get("in_progress") for span in spans if span["cat"] == "phase"} == {
            "actor/update": True
        }


def test_window_opening_in_the_middle_of_a_phase():
    """A phase that runs already is not emitted, but stands in the timeline from the window's opening, as in progress."""
    with capture(steps=[2]) as run:
        actor = Actor()
        run.session.begin_step(1)

        def switch():
            run.session.begin_step(2)

        actor.update(inside=switch)
        run.session.begin_step(3)
        assert run.backend.labels() == []
        spans = timeline(run)[0]
        assert [(s["name"], s["args"]["in_progress"]) for s in spans if s["cat"] == "phase"] == [("actor/update", True)]
        window = next(span for span in spans if span["cat"] == "window")
        assert all(span["ts"] >= window["ts"] for span in spans if span["cat"] == "phase")


def test_running_phases_are_cut_at_the_close():
    """A phase on another thread and a suspended coroutine that outlive the window are in its timeline, marked."""
    started, release = threading.Event(), threading.Event()

    def hold():
        started.set()
        release.wait(10)

    async def main(actor, session):
        task = asyncio.ensure_future(actor.generate(3))
        await asyncio.sleep(0)
        session.begin_step(2)
        await task

    with capture(steps=[1]) as run:
        actor = Actor()
        thread = threading.Thread(target=actor.update, args=(hold,))
        run.session.begin_step(1)
        thread.start()
        started.wait(10)
        asyncio.run(main(actor, run.session))
        release.set()
        thread.join()
        cut = {span["name"] for span in timeline(run)[0] if span["args"].get("in_progress")}
        assert cut == {"actor/update", "actor/generate"}
        assert run.backend.balanced()


def test_discrete_one_window_per_outermost_phase():
    """Under ``discrete`` each outermost phase occurrence is a window of its own, with its own files."""
    with capture(steps=[2, 3], discrete=True) as run:
        actor = Actor()
        announce(run.session, range(5), lambda step: [actor.update(), actor.update(), actor.poll()])
        rows = [(row["steps"], row["phase"]) for row in run.session.windows]
        assert rows == [([step], phase) for step in (2, 3) for phase in ("actor/update", "actor/update", "poll")]
        paths = [record["path"] for record in run.session.journal.records if record["kind"] == "artifact"]
        assert len(paths) == len(set(paths)) == 12
        assert run.backend.count("capture_start") == 6


def test_discrete_phase_patterns():
    """Only phases that match ``phases`` make windows; the outermost that matches does."""
    with capture(steps=[1], discrete=True, phases=["actor/*"]) as run:
        actor = Actor()
        announce(run.session, [1], lambda step: [actor.poll(), actor.update()])
        assert [row["phase"] for row in run.session.windows] == ["actor/update"]


def test_process_window():
    """``steps: process`` is one window from configure to close."""
    with capture(steps="process") as run:
        Actor().update()
        announce(run.session, range(3))
        run.session.close()
        assert opened(run) == [[0, 1, 2]]
        assert run.backend.names("capture_start", "capture_stop") == ["capture_start", "capture_stop"]


def test_the_users_exception_and_the_next_window():
    """B21: the exception of a step's body is unchanged, its window is closed, and the next one is normal."""
    with capture(steps=[1, 2]) as run:
        actor = Actor()
        with pytest.raises(ZeroDivisionError), run.session.step(1):
            actor.update(inside=lambda: 1 / 0)
        with run.session.step(2):
            actor.update()
        assert opened(run) == [[1], [2]]
        assert run.backend.balanced()
        assert run.session.problems == []


@pytest.mark.parametrize("failing", ["capture_start", "capture_stop", "push", "pop", "step_begin"])
def test_a_failing_backend_never_reaches_the_user(failing):
    """A backend that raises anywhere is reported once, with the rest of the run as ever."""
    with capture(steps=[1, 2]) as run:
        run.backend.failing.add(failing)
        actor = Actor()
        announce(run.session, range(4), lambda step: actor.update())
        run.session.close()
        assert actor.timing_stats()["actor/update"]["count"] == 4
        said = [text for text in run.session.problems if failing in text]
        assert len(said) >= 1
        assert len(said) == len(set(said))


def test_a_failed_start_leaves_closed_and_the_next_window_is_tried():
    """A start that fails half-way means no stop and no ranges; the next window is profiled normally."""
    with capture(steps=[1, 2], timeline=False) as run:
        run.backend.failing.add("capture_start")
        announce(run.session, [1], lambda step: Actor().update())
        assert run.backend.names("capture_stop", "push") == []
        run.backend.failing.clear()
        announce(run.session, [2], lambda step: Actor().update())
        assert opened(run) == [[2]]
        assert run.backend.names("capture_start", "capture_stop") == ["capture_start", "capture_start", "capture_stop"]


def test_a_tool_that_keeps_failing_is_turned_off():
    """After three failures in a row the tool is off in this process, and that is said once."""
    with capture(steps="0-9", timeline=False) as run:
        run.backend.failing.add("capture_start")
        announce(run.session, range(10))
        assert run.backend.count("capture_start") == 3
        assert sum("is off in this process" in text for text in run.session.problems) == 1


def test_on_error_raise():
    """``on_error: raise`` turns a tool's failure into an exception of ours."""
    with capture(steps=[1], timeline=False, on_error="raise") as run:
        run.backend.failing.add("capture_start")
        with pytest.raises(CaptureError, match="capture_start"):
            run.session.begin_step(1)


@pytest.mark.parametrize("failing", ["open", "close"])
def test_on_error_raise_leaves_nothing_running(failing):
    """Whichever tool fails, the others are closed and the window is written down before the exception is raised."""

    class Failing(RecordingTool):
        name = "failing_tool"

    with capture(tool="failing_tool", tools=(Failing,), steps=[1], on_error="raise") as run:
        Failing.failing = {failing}
        try:
            with pytest.raises(CaptureError, match=f"{failing} was told to fail"), run.session.step(1):
                pass
        finally:
            Failing.failing = set()
        assert run.session.window is None
        if failing == "open":
            assert run.backend.names("capture_start", "capture_stop") == []
        else:
            assert run.session.windows[0]["closed"] is not None
            assert len(timeline(run)) == 1


def test_armed_and_never_opened_is_said():
    """B05: steps that never came are an error message with the steps and phases that were seen."""
    with capture(steps=[9]) as run:
        announce(run.session, [0, 1], lambda step: Actor().poll())
        report = run.session.close()
        assert any(
            "armed, 0 windows opened; steps seen: 0, 1; phases seen: poll" in text for text in report["problems"]
        )


def test_unselected_ranks_do_nothing():
    """A rank outside the plan makes no capture call and no directory."""
    with capture(steps=[1], ranks=[0], identity={"rank": 1, "world_size": 2}) as run:
        announce(run.session, range(3), lambda step: Actor().update())
        run.session.close()
        assert run.backend.names("capture_start", "capture_stop", "push") == []
        assert run.session.problems == []


def test_close_is_idempotent():
    """Closing twice, and steps after the close, change nothing."""
    with capture(steps=[1]) as run:
        run.session.begin_step(1)
        run.session.close()
        run.session.close()
        run.session.begin_step(1)
        assert run.backend.count("capture_stop") == 1
        assert accelprof.current_session() is None


def test_step_numbers_must_be_whole():
    """A step that is no whole number is refused by name; True is not step 1."""
    with capture(steps=[1]) as run:
        for wrong in (True, 1.0, "1"):
            with pytest.raises(TypeError, match="whole numbers"):
                run.session.begin_step(wrong)


def test_windows_stay_on_the_thread_that_works():
    """B22: announced from a control thread, a starter-thread tool opens and closes on the thread of the phase."""

    class Starter(RecordingTool):
        name = "starter"
        thread = "starter"

    with capture(tool="starter", tools=(Starter,), steps=[1]) as run:
        actor = Actor()
        announcer = threading.Thread(target=run.session.begin_step, args=(1,), kwargs={"outside": True})
        announcer.start()
        announcer.join()
        assert run.tool.calls == []
        worker = threading.Thread(target=lambda: [actor.update(), actor.update()])
        worker.start()
        worker.join()
        ender = threading.Thread(target=run.session.end_step, args=(1,))
        ender.start()
        ender.join()
        calls = [call for call in run.tool.calls if call.name in ("open", "close")]
        assert [call.name for call in calls] == ["open", "close", "open", "close"]
        assert len({call.thread for call in calls}) == 1


def test_any_thread_tool_opens_at_once():
    """A tool that may start on any thread opens when the step is announced, from wherever."""
    with capture(steps=[1]) as run:
        announcer = threading.Thread(target=run.session.begin_step, args=(1,), kwargs={"outside": True})
        announcer.start()
        announcer.join()
        assert opened(run) == [[1]]


def test_step_metrics_are_of_the_step():
    """The timings of a step are those between its begin and its end, of all instances."""
    with capture(steps=None) as run:
        one, two = Actor(), Actor()
        one.update()
        with run.session.step(4):
            one.update()
            two.update()
        assert run.session.metrics_of_step(4)["actor/update"]["count"] == 2


def test_step_metrics_of_instances_that_are_gone():
    """What an instance did that was let go within the step counts all the same."""
    with capture(steps=None) as run:
        with run.session.step(4):
            Actor().update()
            gc.collect()
        assert run.session.metrics_of_step(4)["actor/update"]["count"] == 1


def test_second_configure_joins_roles():
    """A second ``configure`` with another role of the same worker makes the union; another group is refused."""
    with capture(
        steps=[1],
        identity={"role": "actor"},
        groups={"Group": [{"roles": ["actor"], "ranks": [1]}, {"roles": ["ref"], "ranks": [0]}]},
    ) as run:
        assert not run.session.assignment.selected
        config = run.session.config
        joined = accelprof.configure(
            config, group="Group", role="ref", rank=0, accelerator="recording", run_dir=run.run_dir
        )
        assert joined.target.roles == ("actor", "ref")
        assert joined.assignment.selected
        with pytest.raises(UserError, match="configured again"):
            accelprof.configure(config, group="Other", rank=0, accelerator="recording")


@settings(max_examples=150, deadline=None)
@given(
    asked=st.sets(st.integers(0, 12)),
    announced=st.lists(st.integers(0, 14), max_size=25),
    merge=st.booleans(),
    ends=st.lists(st.booleans(), min_size=25, max_size=25),
)
@example(asked=set(range(13)), announced=[12, 0, 12, 1], merge=True, ends=[False, False, True, False])
def test_windows_against_an_obvious_model(asked, announced, merge, ends):
    """Any order of announcements opens what a slow model says, each window closed once, nothing left open."""
    with capture(steps=sorted(asked), merge_steps=merge, timeline=False) as run:
        for step, with_end in zip(announced, ends):
            run.session.begin_step(step)
            if with_end:
                run.session.end_step(step)
        run.session.close()
        assert opened(run) == model(asked, announced, ends, merge)
        assert run.backend.count("capture_start") == run.backend.count("capture_stop") == len(run.session.windows)


def model(asked, announced, ends, merge):
    """What must be opened, worked out the slow way."""

    def identity(step):
        if step not in asked:
            return None
        if not merge:
            return step
        low = high = step
        while low - 1 in asked:
            low -= 1
        while high + 1 in asked:
            high += 1
        return (low, high)

    windows, done, current = [], set(), None
    for step, with_end in zip(announced, ends):
        name = identity(step)
        if current is not None and current != name:
            current = None
        if name is not None and current is None and name not in done:
            windows.append([])
            done.add(name)
            current = name
        if current is not None and step not in windows[-1]:
            windows[-1].append(step)
        if with_end and current is not None and not (merge and step < current[1]):
            current = None
    return windows


# --- the ways a process ends, each in a process of its own -----------------------------------------------------------

SCRIPT = """
import os, signal, sys, time
import accelprof
from accelprof import Worker
class Actor(Worker):
    @Worker.timer("actor/update")
    def update(self): return None
rank = int(os.environ.get("THE_RANK", "0"))
session = accelprof.configure(steps="0-1", output_dir=sys.argv[1], run="run", ranks=[0], group="G", rank=rank, world_size=2)
session.begin_step(0)
Actor().update()
"""


def run_script(tmp_path, ending, rank=0, check=None):
    code = SCRIPT + textwrap.dedent(ending)
    process = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env={**os.environ, "THE_RANK": str(rank)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    files = sorted(path.name for path in tmp_path.glob("run/G/*.trace.json.gz"))
    return process, files


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("sys.exit(3)", 3),
        ("raise KeyError('mine')", 1),
        ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(30)", -signal.SIGTERM),
        ("pass", 0),
    ],
)
@pytest.mark.parametrize("rank", [0, 1])
def test_every_end_leaves_the_file(tmp_path, ending, status, rank):
    """B02: exit in a window by status, exception, SIGTERM or the end of the script keeps the status and the selected rank's file."""
    process, files = run_script(tmp_path, ending, rank)
    assert process.returncode == status, process.stderr
    assert len(files) == (1 if rank == 0 else 0), process.stderr


def test_a_users_sigterm_handler_still_runs(tmp_path):
    """Our SIGTERM handler hands over to the one that was there."""
    code = (
        "import signal,sys\nsignal.signal(signal.SIGTERM, lambda *a: sys.exit(7))\n"
        + SCRIPT
        + "os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(30)\n"
    )
    process = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert process.returncode == 7, process.stderr
    assert len(list(tmp_path.glob("run/G/*.trace.json.gz"))) == 1


def test_a_forked_child_leaves_the_parents_window_alone(tmp_path):
    """A child made by fork has no session; the parent's window is written once, by the parent."""
    process, files = run_script(
        tmp_path,
        """
        pid = os.fork()
        if pid == 0:
            assert accelprof.current_session() is None
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        """,
    )
    assert process.returncode == 0, process.stderr
    assert len(files) == 1


def test_reset_undoes_everything():
    """After ``reset`` no session, no handler and no timing of ours is left."""
    before = signal.getsignal(signal.SIGTERM)
    with capture(steps=[1]) as run:
        run.session.begin_step(1)
        accelprof.reset()
        assert signal.getsignal(signal.SIGTERM) is before
        assert accelprof.current_session() is None
        assert accelprof.timing_stats() == {}


def timeline(run):
    """Events of the timelines written so far, one list a window."""
    found = []
    for record in run.session.journal.records:
        if record["kind"] == "artifact" and record["path"].endswith(".trace.json.gz"):
            with gzip.open(record["path"], "rt", encoding="utf-8") as file:
                found.append([event for event in json.load(file)["traceEvents"] if event["ph"] == "X"])
    return found


def test_windows_that_never_opened_are_said_as_steps(caplog):
    """Steps of windows that did not come stand as one writes them, merged ones together, and of very many not all."""
    caplog.set_level("INFO", logger="accelprof")
    with capture(steps=[1, 3, 4, 9], merge_steps=True) as run:
        with run.session.step(1):
            pass
        run.session.close()
    assert "windows for steps 3-4, 9 never opened; steps seen: 1" in caplog.text
    with capture(steps=list(range(0, 200, 2))) as run:
        with run.session.step(0):
            pass
        run.session.close()
    assert "36, 38, 40 and 79 more never opened" in caplog.text


@pytest.mark.parametrize("discrete", [False, True])
def test_a_training_that_goes_on_from_a_checkpoint_says_which_steps_lay_before_it(discrete):
    """What was asked for and had happened before the process began is a note, where others of its windows opened; what comes
    after its last step is missing."""
    work = accelprof.Worker.timer("work")(lambda: None)
    with capture(steps=[1, 2, 4, 9], discrete=discrete) as run:
        for number in (4, 5):
            with run.session.step(number):
                work()
        run.session.close()
        text = "steps 1, 2 were before the first step that this process saw (4), as when a training goes on from a checkpoint"
        said = [f"no window for {text}", "windows for steps 9 never opened; steps seen: 4, 5"]
        assert run.session.problems == said
    with capture(steps=[1]) as run:
        with run.session.step(4):
            work()
        run.session.close()
        (said,) = run.session.problems
        assert said.endswith("wanted: steps 1; " + text.replace("steps 1, 2 were", "step 1 was"))


def test_a_merged_window_is_as_long_as_it_was_asked_for():
    """A plan lists no more than some thousand steps of a window; the window itself closes after the last that was named."""
    with capture(steps=["1-1200"], merge_steps=True) as run:
        for number in range(1, 1205):
            with run.session.step(number):
                assert (run.session.window is not None) == (number <= 1200)
        (row,) = run.session.windows
        assert row.steps == list(range(1, 1201))
        assert not [text for text in run.session.problems if "never opened" in text]
