"""The flight recorder in a session: what is kept, when it is written out, and that it costs next to nothing."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import accelprof
from accelprof import atomic
from accelprof.analysis.differences import of_recorder
from accelprof.analysis.summary import summarise
from accelprof.cli.window import window
from accelprof.errors import IncompleteError, UserError
from accelprof.output import dumps
from accelprof.output.ring import HEAD, NAMES, NOW, Ring, read_ring, rings_of
from accelprof.reading.chrome import read_chrome


@pytest.fixture
def session(tmp_path):
    made = accelprof.configure(
        recorder={"steps": 6, "slow": 3.0, "hang": None}, output_dir=str(tmp_path), run="r", group="G", rank=1
    )
    yield made
    accelprof.reset()


@accelprof.timer("inner", category="x")
def inner(seconds):
    time.sleep(seconds)


@accelprof.timer("outer")
def outer(seconds):
    inner(seconds)


def wait_for(condition, seconds=10.0):
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    assert condition()


def test_every_step_is_kept_with_its_phases_and_ranges(session):
    """Plain calls, ranges, coroutine-like blocks and phases of a window all stand in the ring, each step with its own."""
    for step in (1, 2, 3):
        with session.step(step):
            outer(0.001)
            with accelprof.profiling_range("r"):
                pass
            for _ in range(step):
                inner(0)
    (path,) = rings_of(session.layout.run_dir)
    found = read_ring(path)
    names = [phase[0] for phase in found.phases]
    seen = {s.step: sorted(names[row[0]] for row in s.rows) for s in found.steps}
    assert seen == {n: sorted(["inner", "outer", "r", *["inner"] * n]) for n in (1, 2, 3)}
    assert found.phases[names.index("inner")][3] == "x"
    for s in found.steps:
        assert s.end_ns is not None
        assert all(s.begin_ns <= row[2] <= row[3] <= s.end_ns for row in s.rows)


@pytest.mark.parametrize(
    "config", [{"steps": [2]}, {"steps": [2, 3], "merge_steps": True}, {"steps": [2], "discrete": True}]
)
def test_steps_with_windows_are_kept_too(tmp_path, config):
    """Rows that a window's timeline takes are in the ring once, in their own step, and the window has them all the same."""
    made = accelprof.configure(
        recorder={"slow": None, "hang": None}, output_dir=str(tmp_path), run="r", group="G", rank=0, **config
    )
    for step in (1, 2, 3, 4):
        with made.step(step):
            for _ in range(step):
                outer(0)
    (path,) = rings_of(made.layout.run_dir)
    found = read_ring(path)
    names = [phase[0] for phase in found.phases]
    assert {s.step: sum(names[row[0]] == "outer" for row in s.rows) for s in found.steps} == {1: 1, 2: 2, 3: 3, 4: 4}
    spans = [row.spans for row in made.windows]
    assert sum(spans) == 2 * (2 + 3 if "merge_steps" in config else 2)
    accelprof.reset()


def test_phases_of_tasks_are_told_apart_once_one_was_suspended(session):
    """Plain calls ask for a running loop only after a coroutine was timed; from there on those inside a task carry its name."""
    import asyncio

    @accelprof.timer("coroutine")
    async def coroutine():
        inner(0)
        await asyncio.sleep(0.001)
        inner(0)

    async def both():
        await asyncio.gather(*(asyncio.create_task(coroutine(), name=f"task {n}") for n in (1, 2)))

    assert session.course.recorder.background.plain.alone
    with session.step(1):
        inner(0)
        asyncio.run(both())
        inner(0)
    assert not session.course.recorder.background.plain.alone
    (path,) = rings_of(session.layout.run_dir)
    found = read_ring(path)
    names = [phase[0] for phase in found.phases]
    (step,) = found.steps
    tasks = sorted((names[row[0]], row[5] if len(row) > 5 else "") for row in step.rows)
    each = [(name, f"task {n}") for name in ("coroutine", "inner", "inner") for n in (1, 2)]
    assert tasks == sorted([*each, ("inner", ""), ("inner", "")])


def test_a_slow_step_is_written_out_and_named(session):
    """A step far over the median leaves a dump that a report reads: which step, which phase, how much longer."""
    for step in range(1, 9):
        with session.step(step):
            outer(0.02 if step != 8 else 0.5)
    run = session.layout.run_dir
    wait_for(lambda: dumps.parts(run, "slow-1"))
    summary = summarise(f"{run}/recorder/slow-1")
    text = "\n".join(summary.notices)
    assert "step 8" in summary.notices[0]
    assert "longer in inner than in the steps before" in text
    assert "outer" not in text  # nested time is the innermost's
    (kept,) = summary.run.manifest.windows.values()
    assert kept.steps == [3, 4, 5, 6, 7, 8]


def test_an_exception_in_a_step_is_written_out_and_reaches_the_caller(session):
    """The failing step is the last one of the dump; the exception is the user's own."""
    with session.step(1):
        outer(0)

    def fails():
        with session.step(2):
            inner(0)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fails()
    run = session.layout.run_dir
    wait_for(lambda: dumps.parts(run, "exception-1"))
    assert "KeyError" in dumps.request_of(run, "exception-1")["why"]


def test_dumps_are_limited_and_said(tmp_path):
    """A job that is always slow does not fill the disk."""
    made = accelprof.configure(
        recorder={"dumps": 2, "slow": None, "hang": None}, output_dir=str(tmp_path), run="r", group="G", rank=0
    )
    with made.step(1):
        outer(0)
    for number, reason in enumerate(("slow", "slow", "slow", "slow", "hang"), start=10):
        made.course.recorder.want(dumps.Cause(reason, number, "test", time.time()))
        wait_for(lambda: not made.course.recorder._wanted)
    run = made.layout.run_dir
    accelprof.reset()
    assert dumps.names(run) == ["hang-1", "slow-1", "slow-2"]
    assert sum("has written 2 dumps for the reason slow" in text for text in made.problems) == 1


def test_each_reason_has_dumps_of_its_own(tmp_path):
    """Slow steps take no dump away from an exception, and what is not written out is said for each reason."""
    made = accelprof.configure(
        recorder={"slow": 6.0, "hang": None, "dumps": 1}, output_dir=str(tmp_path), run="r", group="G", rank=0
    )
    for step in range(1, 21):
        with made.step(step):
            inner({10: 0.4, 15: 0.9}.get(step, 0.02))
    for step in (21, 22):
        with pytest.raises(ValueError, match="boom"), made.step(step):
            raise ValueError(f"boom {step}")
        wait_for(lambda: "exception-1" in dumps.names(made.layout.run_dir))
        wait_for(lambda: not made.course.recorder._wanted)
    report = made.close()
    accelprof.reset()
    assert dumps.names(made.layout.run_dir) == ["exception-1", "slow-1"]
    said = [line for line in made.problems if "not written out" in line]
    assert ["reason slow" in line and "step 15" in line for line in said] == [True, False]
    assert "step 22 raised ValueError: boom 22" in said[1]
    assert report["status"] == "complete"


def test_a_slow_step_soon_after_another_is_written_out_where_it_is_worse(session):
    """Within ten seconds a step that is slow too, but no slower, has no dump; one that is slower has."""
    for step in range(1, 31):
        with session.step(step):
            inner({10: 0.1, 15: 0.05, 20: 0.4}.get(step, 0.005))
    run = session.layout.run_dir
    wait_for(lambda: dumps.parts(run, "slow-2"))
    asked = {name: dumps.request_of(run, name).step for name in dumps.names(run)}
    assert asked == {"slow-1": 10, "slow-2": 20}


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_dump_is_of_its_steps(tmp_path, goes_on):
    """However far training has gone on before a dump is made, its last step is the one that was slow. A phase around all steps, or
    one that ended before them, makes it no longer: shares are of the steps' time."""
    session = accelprof.configure(
        recorder={"steps": 6, "slow": None}, output_dir=str(tmp_path), run="r", group="G", rank=0
    )
    recorder = session.course.recorder

    @accelprof.timer("whole")
    def whole():
        outer(0.5)
        for step in range(1, 101 if goes_on else 9):
            with session.step(step):
                inner(0.02 if step < 9 else 0.001)
            if step == 8:
                recorder.want(recorder._cause("slow", step, "test"))
        wait_for(lambda: dumps.parts(session.layout.run_dir, "slow-1"))

    whole()
    found = summarise(f"{session.layout.run_dir}/recorder/slow-1")
    (kept,) = found.run.manifest.windows.values()
    assert kept.steps == [3, 4, 5, 6, 7, 8]
    took = kept.closed.epoch_ns - kept.opened.epoch_ns
    rows = {row.phase: row for row in found.phases}
    assert rows["inner"].calls == 6
    assert "outer" not in rows
    assert rows["whole"].total_ns == pytest.approx(took, rel=1e-3)
    assert rows["inner"].total_ns <= took
    accelprof.reset()


@pytest.mark.parametrize("reason", ["slow", "exception"])
def test_what_could_not_be_written_out_stays_in_the_ring(tmp_path, reason):
    """No room for a dump: what is lost is said in the trigger's words, and the last steps can be written out after the process's end."""
    slow = 10.0 if reason == "slow" else None  # a busy machine stretches a short step too
    made = accelprof.configure(
        recorder={"slow": slow, "hang": None}, output_dir=str(tmp_path), run="r", group="G", rank=0
    )
    run, place = made.layout.run_dir, Path(made.layout.run_dir, "recorder")
    place.write_text("in the way")
    for step in range(1, 9):
        with contextlib.suppress(KeyError), made.step(step):
            inner(0.01 if reason == "exception" or step < 8 else 0.4)
            if reason == "exception" and step == 8:
                raise KeyError("mine")
    wait_for(lambda: made.problems)
    accelprof.reset()
    (said,) = made.problems
    assert ("step 8 took 0.4" if reason == "slow" else "step 8 raised KeyError: 'mine'") in said
    assert "window dump" in said
    place.unlink()
    assert dumps.ask(run, 0.0, 20, pytest.fail) == "request-1"
    (target,) = summarise(f"{run}/recorder/request-1").run.manifest.targets.values()
    assert target.steps_seen == list(range(1, 9))


@pytest.mark.parametrize("how", ["loop", "step", "between", "nested"])
def test_an_exception_that_nobody_catches_is_written_out_once(tmp_path, how):
    """In a loop over ``steps`` the step is not told of it, and between steps there is none: the process's end is."""
    code = """
        import glob, sys, time, accelprof
        s = accelprof.configure(recorder={"slow": None, "hang": None}, run_dir=sys.argv[1] + "/r", group="G", rank=0)
        phase = accelprof.timer("work")(lambda: time.sleep(0.001))
        how = sys.argv[2]
        if how == "loop":
            for n in s.steps(range(9)):  # step 1 has 0
                phase()
                if n == 2:
                    raise ValueError("boom")
        for n in range(4):
            with s.step(n):
                phase()
                if n == 3 and how == "step":
                    raise ValueError("boom")
                if n == 2 and how == "nested":
                    try:
                        with s.step(7):
                            raise KeyError("caught")
                    except KeyError:
                        pass
        raise ValueError("boom")
    """
    done = child(code, tmp_path, how)
    assert done.wait(60) == 1
    done.stdout.close()
    run = tmp_path / "r"
    found = {name: dumps.request_of(run, name) for name in dumps.names(run)}
    raised = {"step": "step 3 raised ValueError: boom"}.get(how, "nobody caught ValueError: boom")
    assert [(row.step, row.why) for row in found.values() if "boom" in row.why] == [(3, raised)]
    assert len(found) == (2 if how == "nested" else 1)
    assert rings_of(run) == []
    seen = [row.steps_seen for row in summarise(run / "recorder" / list(found)[-1]).run.manifest.targets.values()]
    assert [steps[-1] for steps in seen] == [3]


@pytest.mark.parametrize(
    ("how", "ends", "why"),
    [
        ("with", -signal.SIGINT, "step 3 raised KeyboardInterrupt"),
        ("loop", -signal.SIGINT, "nobody caught KeyboardInterrupt"),
        ("exit", 3, None),
    ],
)
def test_an_interrupt_is_written_out_and_an_exit_is_not(tmp_path, how, ends, why):
    """Ctrl-C ends a job that hangs: what it was in is kept. ``sys.exit`` is the program's own end."""
    code = """
        import os, signal, sys, time, accelprof
        s = accelprof.configure(recorder={"slow": None, "hang": None}, run_dir=sys.argv[1] + "/r", group="G", rank=0)
        phase = accelprof.timer("work")(lambda: time.sleep(0.001))

        def work(n):
            phase()
            if n == 3:
                sys.exit(3) if sys.argv[2] == "exit" else os.kill(os.getpid(), signal.SIGINT)
                time.sleep(5)

        for n in s.steps(range(1, 9)) if sys.argv[2] == "loop" else range(1, 9):
            if sys.argv[2] == "loop":
                work(n)
            else:
                with s.step(n):
                    work(n)
    """
    done = child(code, tmp_path, how)
    assert done.wait(60) == ends
    done.stdout.close()
    run = tmp_path / "r"
    found = [dumps.request_of(run, name) for name in dumps.names(run)]
    assert [(row.reason, row.step, row.why) for row in found] == ([("exception", 3, why)] if why else [])


def test_a_dump_is_there_with_what_was_asked_for(tmp_path):
    """Many that see the same thing at one moment make one dump: nobody finds its directory without the request."""
    code = """
        import os, sys, time
        from accelprof.output import dumps
        open(f"{sys.argv[1]}/ready {os.getpid()}", "w").close()
        while not os.path.exists(sys.argv[1] + "/go"):
            time.sleep(0.001)
        for reason in ("slow", "hang", "exception"):
            print(dumps.begin(sys.argv[1] + "/r", dumps.Cause(reason, 7, "test"), str(os.getpid()), 99))
    """
    started = [child(code, tmp_path) for _ in range(6)]
    wait_for(lambda: len(list(tmp_path.glob("ready *"))) == len(started), 60)
    (tmp_path / "go").touch()
    for process in started:
        assert process.communicate(timeout=60)[0].split() == ["slow-1", "hang-1", "exception-1"]
    assert sorted(os.listdir(tmp_path / "r" / "recorder")) == ["exception-1", "hang-1", "slow-1"]


def test_a_step_that_still_runs_is_said_to(tmp_path):
    """A dump on request while a step stands still: it had taken so long, and in which phase it is."""
    stands = child(JOB, tmp_path, 0, "hang")
    try:
        assert stands.stdout.readline() == "going\n"
        wait_for(lambda: (found := read_ring(rings_of(tmp_path / "r")[0]).running) is not None and found.step == 25)
        done = CliRunner().invoke(window, ["dump", "--run", str(tmp_path / "r")])
        assert done.exit_code == 0, done.output
    finally:
        stands.kill()
        stands.communicate()
    summary = summarise(tmp_path / "r/recorder/request-1")
    assert any(
        line.startswith("step 25 had taken ") and line.endswith(" and was still running") for line in summary.notices
    )
    assert "G/rank0 was in p" in summary.notices
    assert not any("manifest" in line for line in summary.problems)


def test_a_dump_that_cannot_be_made_is_refused_by_name(tmp_path):
    """A file in the place of the dumps."""
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "recorder").touch()
    done = CliRunner().invoke(window, ["dump", "--run", str(tmp_path / "r")])
    assert isinstance(done.exception, UserError)
    assert "a dump cannot be made in it" in str(done.exception)


def test_a_part_without_its_journal_is_said(session):
    """Whose journal cannot be written has no part, and that is said: nobody would find it."""
    with session.step(1):
        outer(0)
    run = Path(session.layout.run_dir)
    (run / "recorder/slow-1").mkdir(parents=True)
    (run / "recorder/slow-1/.workers").symlink_to("/dev/full")
    (run / "recorder/slow-1/request.json").write_text('{"kind": "dump", "reason": "slow", "at": 1.0}')
    wait_for(lambda: any("the flight recorder failed" in text for text in session.problems))
    (ring,) = rings_of(run)
    (run / "recorder/slow-2/.workers").mkdir(parents=True)
    Path(atomic.half(str(run / f"recorder/slow-2/.workers/{ring.stem}.jsonl"))).symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        dumps.write_part(run, "slow-2", ring, 20)
    assert dumps.parts(str(run), "slow-2") == set()
    assert atomic.halves(str(run / "recorder")) == []


def test_a_part_that_is_written_later_shows_the_same_moment(tmp_path):
    """Who hears of a dump when it has gone on shows the steps of the moment at which it was asked for."""
    run = str(tmp_path / "r")
    made = accelprof.configure(recorder={"slow": None, "hang": None}, run_dir=run, group="G", rank=0)
    names = []
    for step in range(1, 61):
        with made.step(step):
            inner(0.001)
            if step in (20, 40):
                names.append(dumps.begin(run, dumps.Cause("request", step, "test"), "test", 9, names))
    (ring,) = rings_of(run)
    assert [dumps.write_part(run, name, str(ring), 6) for name in names] == [tuple(range(15, 21)), tuple(range(35, 41))]
    accelprof.reset()


def test_each_request_is_a_dump_of_its_own(session):
    """A second ``accelprof window dump`` some steps later shows the later steps."""
    run, seen = session.layout.run_dir, []
    for first in (1, 11):
        for step in range(first, first + 10):
            with session.step(step):
                inner(0.001)
        done = CliRunner().invoke(window, ["dump", "--run", str(run)])
        assert done.exit_code == 0, done.output
        name = f"request-{len(seen) + 1}"
        (row,) = summarise(f"{run}/recorder/{name}").run.manifest.targets.values()
        seen.append(row.steps_seen)
    assert seen == [list(range(5, 11)), list(range(15, 21))]


def test_a_part_is_there_when_it_is_whole(session, monkeypatch):
    """Who waits for parts sees none while its journal is written."""
    run, add = session.layout.run_dir, dumps.Journal.add
    with session.step(1):
        inner(0.001)
    seen = []

    def watched(journal, *records):
        seen.append(dumps.parts(run, "request-1"))
        add(journal, *records)
        seen.append(dumps.parts(run, "request-1"))

    monkeypatch.setattr(dumps.Journal, "add", watched)
    dumps.ask(str(run), 5.0, None, pytest.fail)
    assert seen[:2] == [set(), set()]
    assert dumps.parts(run, "request-1") == {session.key}


def test_an_orderly_end_leaves_no_ring(session):
    """Ring and thread are gone when the session is closed."""
    with session.step(1):
        outer(0)
    run = session.layout.run_dir
    accelprof.reset()
    assert rings_of(run) == []
    assert session.course.recorder is not None
    assert not session.course.recorder._thread.is_alive()


def child(code, *args, wait=True):
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code), *map(str, args)],
        stdout=subprocess.PIPE,
        text=True,
    )
    return process


JOB = """
    import sys, time, accelprof
    p = accelprof.timer("p")(time.sleep)
    s = accelprof.configure(recorder={"hang": None, "slow": None}, run_dir=sys.argv[1] + "/r", group="G", rank=int(sys.argv[2]))
    for n in range(1, 10**6):
        with s.step(n):
            p(.002)
            if n == 20: print("going", flush=True)
            if n == 25 and sys.argv[3] == "hang": p(100)
"""


def test_a_killed_process_is_written_out_from_outside(tmp_path):
    """SIGKILL in a phase: the command makes a dump of the dead worker and of a live one, with the phase that was running."""
    dead, live = child(JOB, tmp_path, 0, "hang"), child(JOB, tmp_path, 1, "go")
    try:
        assert dead.stdout.readline() == live.stdout.readline() == "going\n"
        time.sleep(2.5)  # the running step is written down once a second
        dead.send_signal(signal.SIGKILL)
        dead.wait()
        ring = next(ring for ring in rings_of(tmp_path / "r") if "-r0-" in ring.name)
        said = [line for line in summarise(tmp_path / "r").notices if "flight recorder" in line]
        assert said == [
            f"the flight recorder has the last steps of workers that are gone: {ring.stem}; accelprof window dump --run RUN writes them out"
        ]
        done = CliRunner().invoke(window, ["dump", "--run", str(tmp_path / "r")])
        assert done.exit_code == 0, done.output
        said = [line for line in summarise(tmp_path / "r").notices if "flight recorder" in line]
        why = "asked for by accelprof window dump (accelprof report reads that directory)"
        assert said == [f"the flight recorder wrote recorder/request-1: {why}"]
        assert done.output == f"{tmp_path}/r/recorder/request-1: 2 workers\n"
    finally:
        for process in (dead, live):
            process.kill()
            process.wait()
            process.stdout.close()
    running = read_ring(ring).running
    assert running is not None
    assert running.step == 25
    assert running.rows[-1][7] is True  # in progress
    workers = {row.rank: row for row in summarise(tmp_path / "r/recorder/request-1").run.manifest.targets.values()}
    assert set(workers) == {0, 1}
    assert 25 in workers[0].steps_seen


def test_a_phase_around_all_steps_of_a_killed_worker_reaches_over_them(tmp_path):
    """The running step is written down once a second: what was in progress then, and has not ended since, is so in the steps behind."""
    code = """
        import os, sys, time, accelprof
        s = accelprof.configure(recorder={"steps": 5, "slow": None}, run_dir=sys.argv[1] + "/r", group="G", rank=0)

        @accelprof.timer("early")
        def early():
            with s.step(1):
                time.sleep(1.3)

        @accelprof.timer("whole")
        def whole():
            early()
            for n in range(2, 41):
                with s.step(n):
                    time.sleep(0.002)
            os.kill(os.getpid(), 9)

        whole()
    """
    with child(code, tmp_path) as process:
        assert process.wait(60) == -signal.SIGKILL
    dumps.ask(str(tmp_path / "r"), 0.0, None, pytest.fail)
    found = summarise(tmp_path / "r/recorder/request-1")
    (kept,) = found.run.manifest.windows.values()
    assert kept.steps == [36, 37, 38, 39, 40]
    assert {row.phase: row.total_ns for row in found.phases} == {
        "whole": pytest.approx(kept.closed.epoch_ns - kept.opened.epoch_ns, rel=0.01)
    }


@pytest.mark.parametrize(("given", "held"), [([], 30), (["--steps", "4"], 4)])
def test_a_killed_worker_has_as_many_steps_in_a_dump_as_it_was_to_write(tmp_path, given, held):
    """``recorder.steps`` is what a dump holds, whoever writes it; the command line may ask for another number."""
    code = """
        import os, sys, accelprof
        s = accelprof.configure(recorder={"steps": 30, "slow": None}, run_dir=sys.argv[1] + "/r", group="G", rank=0)
        for n in range(1, 101):
            with s.step(n):
                pass
        os.kill(os.getpid(), 9)
    """
    with child(code, tmp_path) as process:
        assert process.wait(60) == -signal.SIGKILL
    done = CliRunner().invoke(window, ["dump", "--run", str(tmp_path / "r"), "--timeout", "0", *given])
    assert done.exit_code == 0, done.output
    (target,) = summarise(tmp_path / "r/recorder/request-1").run.manifest.targets.values()
    assert target.steps_seen == list(range(101 - held, 101))


def test_damaged_rings_are_named_and_the_others_count(tmp_path):
    """One that somebody cut, and one with a damaged step: each is said with its reason, and the rest is in the dump."""
    run = str(tmp_path / "r")
    for rank in range(3):
        made = accelprof.configure(recorder={"slow": None, "hang": None}, run_dir=run, group="G", rank=rank)
        for step in (1, 2):
            with made.step(step):
                outer(0)
        (ring,) = rings_of(run)
        kept = tmp_path / ring.name
        shutil.copy(ring, kept)
        accelprof.reset()
    cut, damaged, _ = kept_rings = sorted(tmp_path.glob("*.ring"))
    os.chmod(cut, 0o600)
    os.truncate(cut, 5000)
    content = bytearray(damaged.read_bytes())
    content[HEAD + NAMES + NOW + 20] ^= 0xFF  # in the first step's record
    os.chmod(damaged, 0o600)
    damaged.write_bytes(content)
    for ring in kept_rings:
        shutil.move(ring, f"{run}/.recorder/{ring.name}")
    done = CliRunner().invoke(window, ["dump", "--run", run, "--timeout", "0"])
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{run}/recorder/request-1: 2 workers\n"
    assert f"{cut.stem} has no part in request-1: " in done.stderr
    assert "the sizes in its head do not fit its 5000 bytes" in done.stderr
    summary = summarise(f"{run}/recorder/request-1")
    assert any("flight recorder: a step's record is damaged, it is left out" in line for line in summary.problems)
    assert {row.rank: row.steps_seen for row in summary.run.manifest.targets.values()} == {1: [2], 2: [1, 2]}


def test_a_ring_that_was_put_aside_is_said_and_can_be_read_as_it_says(tmp_path):
    """A worker that was started again under the same number: the dump names the old one's ring, and the way to read it works."""
    run, other = str(tmp_path / "r"), tmp_path / "other"
    for step in (1, 2):
        made = accelprof.configure(steps=[1, 2], recorder={"slow": None, "hang": None}, run_dir=run, group="G", rank=0)
        with made.step(step):
            outer(0)
        (ring,) = rings_of(run)
        kept = tmp_path / f"kept {step}"
        shutil.copy(ring, kept)
        accelprof.reset()
    shutil.copy(tmp_path / "kept 2", ring)
    aside = f"{ring}.17"
    shutil.copy(tmp_path / "kept 1", aside)
    done = CliRunner().invoke(window, ["dump", "--run", run, "--timeout", "0"])
    assert done.exit_code == 0, done.output
    assert f"{aside} holds the last steps of a killed process" in done.stderr
    assert any(line.startswith(f"{aside} holds the last steps") for line in summarise(run).notices)
    assert f"move it to OTHER/.recorder/{ring.name} and" in done.stderr
    (other / ".recorder").mkdir(parents=True)
    shutil.move(aside, other / ".recorder" / ring.name)
    done = CliRunner().invoke(window, ["dump", "--run", str(other), "--timeout", "0"])
    assert done.exit_code == 0, done.output
    summary = summarise(other / "recorder/request-1")
    assert {row.rank: row.steps_seen for row in summary.run.manifest.targets.values()} == {0: [1]}


def test_many_dumps_stand_in_their_order_and_the_first_are_named(tmp_path):
    """Somebody asks every hour: the report of the run names so many, and says how many more there are."""
    for _ in range(30):
        dumps.begin(str(tmp_path), dumps.Cause("request", None, "test"), "me", 99, apart=dumps.names(str(tmp_path)))
    assert dumps.names(str(tmp_path)) == [f"request-{number}" for number in range(1, 31)]
    lines = of_recorder(str(tmp_path), {})[0]
    assert len(lines) == 26
    assert "recorder/request-25: test" in lines[24]
    assert lines[25] == "the flight recorder wrote 5 more dumps, which lie in recorder/ too"


def test_of_many_rings_that_were_put_aside_the_latest_are_named(tmp_path):
    """A container that is killed again and again under one name: five lines, and how many more there are."""
    place = tmp_path / ".recorder"
    place.mkdir()
    for number in range(12):
        (place / f"{'ab'[number % 2]}.ring.{1700000000000000000 + number}").touch()
    lines = dumps.aside(tmp_path)
    assert [line.partition(" holds")[0][-2:] for line in lines[:-1]] == ["07", "08", "09", "10", "11"]
    assert lines[-1].startswith("7 more such rings")


def test_ranks_without_a_part_are_said(tmp_path):
    """A dump says which ranks of its groups have no part in it, as where another host has a disk of its own; a whole one does not."""
    for size, there in ((4, (0, 2)), (2, (0, 1))):
        run = str(tmp_path / f"{size}")
        for rank in there:
            made = accelprof.configure(
                recorder={"slow": None, "hang": None}, run_dir=run, group="G", rank=rank, world_size=size
            )
            with made.step(1):
                outer(0)
            if rank == there[0]:
                name = dumps.begin(run, dumps.Cause("exception", 1, "test"), made.key, 5)
            (ring,) = rings_of(run)
            assert dumps.write_part(run, name, str(ring), 6)
            accelprof.reset()
        said = [text for text in summarise(f"{run}/recorder/exception-1").notices if "no part" in text]
        assert len(said) == (size == 4)
        assert all("2 of 4 ranks of G" in text and "(rank 1,3)" in text.replace(", ", ",") for text in said)


def test_a_run_without_recorder_is_said(tmp_path):
    """Nothing to write out: status 1, and what is missing."""
    (tmp_path / "r").mkdir()
    done = CliRunner().invoke(window, ["dump", "--run", str(tmp_path / "r"), "--timeout", "0"])
    assert isinstance(done.exception, IncompleteError)
    assert "recorder" in str(done.exception)


def test_sigterm_is_written_out_before_the_end(tmp_path):
    """A process that is told to end leaves its last steps, and ends as it would have."""
    process = child(JOB, tmp_path, 0, "go")
    assert process.stdout.readline() == "going\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == -signal.SIGTERM
    process.stdout.close()
    assert dumps.parts(str(tmp_path / "r"), "sigterm-1")


def test_a_signal_in_the_middle_of_a_write_ends_at_once(tmp_path):
    """The step that is just being written is in the dump, as the running one or as one that ended, once; nobody waits for the lock."""
    code = """
        import os, signal, sys, time, accelprof
        from accelprof.output.ring import Ring
        add, after = Ring.add, sys.argv[2] == "after"
        def told(ring, number, *rest):
            if number == 3 and after:
                add(ring, number, *rest)
            if number == 3:
                signal.raise_signal(signal.SIGTERM)
            add(ring, number, *rest)
        Ring.add = told
        s = accelprof.configure(recorder={"hang": None, "slow": None}, run_dir=sys.argv[1], group="G", rank=0)
        for number in range(1, 9):
            with s.step(number):
                with accelprof.profiling_range("block"):
                    pass
    """
    for when in ("before", "after"):
        run = str(tmp_path / when)
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code), run, when], timeout=60, capture_output=True, check=False
        )
        assert done.returncode == -signal.SIGTERM, done.stderr
        assert time.monotonic() - began < 30
        (row,) = summarise(f"{run}/recorder/sigterm-1").run.manifest.targets.values()
        assert row.steps_seen == [1, 2, 3], when


def test_a_forked_child_writes_nothing_into_its_parents_ring(session):
    """After fork the ring is the parent's alone."""
    with session.step(1):
        outer(0)
        pid = os.fork()
        if pid == 0:
            outer(0)
            os._exit(0)
        os.waitpid(pid, 0)
    (path,) = rings_of(session.layout.run_dir)
    (step,) = read_ring(path).steps
    assert len(step.rows) == 2


def test_a_ring_that_somebody_cuts_is_said_once_and_training_goes_on(tmp_path):
    """Whatever is done to the run's directory meanwhile, steps go on; the recorder says so once and writes no more."""
    code = """
        import os, shutil, sys, time, accelprof
        from accelprof.output.ring import rings_of
        s = accelprof.configure(recorder={}, output_dir=sys.argv[1], run="r", group="G", rank=0)
        work = accelprof.timer("work")(lambda: None)
        def steps(first):
            for n in range(first, first + 40):
                with s.step(n):
                    for _ in range(200): work()
                    time.sleep(0.011)
        steps(0)
        (ring,) = rings_of(s.layout.run_dir)
        os.truncate(ring, 100) if sys.argv[2] == "cut" else shutil.rmtree(s.layout.run_dir)
        steps(100)
        time.sleep(1.2)
        s.close()
        print("through")
    """
    for how in ("cut", "removed"):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code), str(tmp_path / how), how],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout.strip()) == (0, "through"), done.stderr
        assert done.stderr.count("is no longer this process's ring") == 1, done.stderr


def test_a_step_with_more_than_the_ring_keeps_is_cut_and_the_reason_said(tmp_path):
    """Of 110,000 calls in a step those that came first are kept; why others are not is said, and nothing blames another option. Marks
    are not gathered."""
    made = accelprof.configure(recorder={"slow": None, "hang": None}, run_dir=str(tmp_path / "r"), group="G", rank=0)
    quick = accelprof.timer("quick")(int)
    with made.step(1):
        for _ in range(110_000):
            quick()
            accelprof.mark("m")
    accelprof.mark("m")
    recorder = made.course.recorder
    wait_for(lambda: any("a step had more than 50,000 calls" in text for text in made.problems))
    assert recorder._rows._marks == []
    recorder.want(dumps.Cause("slow", 1, "test"))
    wait_for(lambda: dumps.parts(tmp_path / "r", "slow-1"))
    accelprof.reset()
    summary = summarise(tmp_path / "r/recorder/slow-1")
    [kept] = [row.calls for row in summary.phases if row.phase == "quick"]
    (problem,) = summary.problems
    assert problem.endswith(
        f" {110_000 - kept} spans were dropped (the flight recorder keeps 1024 KiB of a step, and 64 KiB of one that still runs)"
    )


def test_memory_and_file_stay_flat(tmp_path, monkeypatch):
    """Thousands of steps of 20 phases: the file keeps its size, and memory grows no more than in a session without recorder."""
    import gc
    import tracemalloc

    work = accelprof.timer("work")(lambda: None)
    # a bounded number of rows that come by time, not by step: a slow machine has more of them
    monkeypatch.setattr("accelprof.session.memory.MemoryOfSteps.step_ends", lambda *_: None)

    def growth(**config):
        session = accelprof.configure(output_dir=str(tmp_path), group="G", rank=0, **config)

        def steps(count):
            for step in range(count):
                with session.step(step):
                    for _ in range(20):
                        work()

        steps(1000)
        sizes = [path.stat().st_size for path in rings_of(session.layout.run_dir)]
        tracemalloc.start()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        steps(2000)
        gc.collect()  # what waits to be collected is no growth
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert [path.stat().st_size for path in rings_of(session.layout.run_dir)] == sizes
        accelprof.reset()
        return grown

    assert growth(recorder={"slow": None, "hang": None}) < growth() + 100_000


@pytest.mark.torch
@pytest.mark.timeout(200)
@pytest.mark.parametrize("where", ["in actor/forward", "outside every phase"])
def test_a_hang_of_one_of_four_ranks_names_rank_phase_and_stack(tmp_path, where):
    """Four gloo ranks, one sleeps before the collective: the dump has all four, says who was where, and the sleeper's stack."""
    pytest.importorskip("torch", reason="torch is not installed")
    code = """
        import os, sys, time, datetime, torch, torch.distributed as dist, accelprof
        rank, store = int(sys.argv[2]), dist.FileStore(sys.argv[3], 4)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group("gloo", store=store, rank=rank, world_size=4, timeout=datetime.timedelta(seconds=60))
        s = accelprof.configure(recorder={"hang": 3, "slow": None}, run_dir=sys.argv[1] + "/r", group="G", rank=rank, world_size=4)
        reduce = accelprof.timer("actor/all_reduce", category="collective")(lambda: dist.all_reduce(torch.ones(4)))
        def oversleep(seconds): time.sleep(seconds)
        forward = accelprof.timer("actor/forward")(lambda seconds: oversleep(seconds))
        dist.barrier()  # all have started: no step is long because another is still importing
        for n in range(1, 100):
            with s.step(n):
                late = n == 8 and rank == 2
                if late and sys.argv[4].startswith("outside"):
                    oversleep(60)
                forward(60 if late else .005)
                reduce()
    """
    ranks = [child(code, tmp_path, rank, tmp_path / "store", where) for rank in range(4)]
    run = str(tmp_path / "r")
    try:
        wait_for(lambda: len(dumps.parts(run, "hang-1")) == 4, 150)
    finally:
        for process in ranks:
            process.kill()
            process.wait()
            process.stdout.close()
    notices = summarise(f"{run}/recorder/hang-1").notices
    text = "\n".join(notices)
    assert f"G/rank2 was {where}" in notices
    assert any(
        line.startswith("G/rank2 was ") and line.endswith(f" longer {where} than in the steps before")
        for line in notices
    )
    for rank in (0, 1, 3):
        assert f"G/rank{rank} was in actor/all_reduce" in notices
    assert "waited for G/rank2 in actor/all_reduce" in text
    stacks = {path.name: path.read_text() for path in Path(run, "recorder/hang-1").glob("stacks-*.txt")}
    (sleeper,) = [stack for name, stack in stacks.items() if "-r2-" in name]
    assert "oversleep" in sleeper
    assert json.loads(Path(run, "recorder/hang-1/request.json").read_text())["step"] == 8


@pytest.mark.parametrize(("where", "limit"), [("in outer", 5), ("outside every phase", 1.5)])
def test_a_hang_before_the_first_step_is_written_out(tmp_path, where, limit):
    """What is recorded before the first step keeps it from being one; every part of the dump has its stacks, also that of a
    worker who does not count as hung himself."""
    code = """
        import sys, time, accelprof
        s = accelprof.configure(recorder={"hang": 60, "hang_start": None}, run_dir=sys.argv[1] + "/r", group="G", rank=1)
        print("going", flush=True)
        def oversleep(): time.sleep(60)
        oversleep()
    """
    other = child(code, tmp_path)
    assert other.stdout.readline() == "going\n"
    made = accelprof.configure(
        recorder={"slow": None, "hang_start": limit}, run_dir=str(tmp_path / "r"), group="G", rank=0
    )
    run = made.layout.run_dir
    try:
        if where == "in outer":
            until = time.monotonic() + limit + 2
            while time.monotonic() < until:
                inner(0.2)
            assert dumps.names(run) == []
            outer(limit + 4)
        wait_for(lambda: len(dumps.parts(run, "hang-1")) == 2, 60)
    finally:
        other.kill()
        other.communicate()
    with made.step(1):
        pass
    (ring,) = [path for path in rings_of(run) if "-r0-" in path.name]
    assert read_ring(ring).steps[0].step == 1
    asked = dumps.request_of(run, "hang-1")
    assert (asked.step, asked.why.rpartition(" for ")[0]) == (None, "nothing was recorded")
    assert asked.why.endswith(" s, before the first step")
    summary = summarise(f"{run}/recorder/hang-1")
    assert summary.problems == []
    assert summary.dump[:2] == [
        f"G/rank0 was {'in inner' if where == 'in outer' else where}, and had not begun a step",
        "G/rank1 was outside every phase, and had not begun a step",
    ]
    stacks = {path.name: path.read_text() for path in Path(run, "recorder/hang-1").glob("stacks-*.txt")}
    assert ["oversleep" in text for _, text in sorted(stacks.items())] == [False, True]
    (mine,) = Path(run, "recorder/hang-1/G").glob("*-r0-*")
    step = [span for span in read_chrome(str(mine), "trace").spans if span.name == "outside steps"]
    assert [limit < span.duration_ns / 1e9 < 60 for span in step] == [True]  # from the session's beginning on
    accelprof.reset()


def test_who_hangs_too_joins_the_dump_that_another_began(session):
    """Before the first step and in one; for a step that came later there is another dump."""
    run, recorder = session.layout.run_dir, session.course.recorder
    for number, step in ((1, None), (2, 7)):
        if step is not None:
            session.begin_step(step)
            time.sleep(0.01)
        dumps.begin(run, dumps.Cause("hang", step, "another's"), "other", 9, apart=dumps.names(run))
        wait_for(lambda number=number: dumps.parts(run, f"hang-{number}"))
        wait_for(lambda number=number: recorder._seen[f"hang-{number}"])
        recorder.now("hang", "mine", step)
        assert dumps.names(run) == ["hang-1", "hang-2"][:number]
    session.end_step()
    with session.step(3):  # numbers need not grow
        recorder.now("hang", "mine", 3)
    assert dumps.names(run) == ["hang-1", "hang-2", "hang-3"]


def test_a_dump_from_before_a_step_is_not_joined_for_it(session):
    """What another began a moment ago, and this process has not heard of yet, has none of a step that began since."""
    run, recorder = session.layout.run_dir, session.course.recorder
    with session.step(1):
        dumps.begin(run, dumps.Cause("exception", 1, "another's"), "other", 9)
        dumps.begin(run, dumps.Cause("sigterm", 1, "another was told to end"), "other", 9)
    with session.step(2):
        recorder.now("exception", "mine", 2)
        recorder.now("sigterm", "told to end")  # which is of the process, whatever step it is in
    assert dumps.names(run) == ["exception-1", "exception-2", "sigterm-1"]
    (target,) = summarise(f"{run}/recorder/exception-2").run.manifest.targets.values()
    assert target.steps_seen == [1, 2]


def test_an_exception_without_a_text_reaches_the_caller(session):
    """One whose own method raises when it is asked for its text: the caller has it, and the dump says so."""

    class SilentError(Exception):
        def __str__(self):
            raise ValueError("no text")

    with pytest.raises(SilentError), session.step(1):
        raise SilentError
    run = session.layout.run_dir
    wait_for(lambda: dumps.parts(run, "exception-1"))
    assert dumps.request_of(run, "exception-1").why.endswith("SilentError: (its text could not be had: ValueError)")


def test_a_process_that_is_killed_at_once_has_a_part(tmp_path):
    """Before its recorder has looked for the first time; an empty ring, of which there is nothing to write, is named."""
    code = """
        import os, signal, sys, accelprof
        accelprof.configure(recorder={}, run_dir=sys.argv[1] + "/r", group="G", rank=0)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    killed = child(code, tmp_path)
    assert killed.wait(60) == -signal.SIGKILL
    killed.stdout.close()
    Ring(str(tmp_path / "r/.recorder/empty.ring"), {}).close()
    said = []
    name = dumps.ask(str(tmp_path / "r"), 0.1, 20, said.append)
    assert [key.split("-")[0] for key in dumps.parts(tmp_path / "r", name)] == ["G"]
    assert said == ["empty has no part in request-1: its ring holds no step"]
    summary = summarise(tmp_path / "r/recorder" / name)
    assert (summary.problems, [worker.rank for worker in summary.run.manifest.targets.values()]) == ([], [0])
