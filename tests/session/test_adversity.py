"""Vendors that fail, forks, odd classes: the user's call goes through, once, and nothing is left open."""

from __future__ import annotations

import copy
import subprocess
import sys
import threading

import pytest

import accelprof
from accelprof import Worker
from accelprof.contracts.backend import DeviceTimer
from accelprof.errors import CaptureError
from accelprof.testing import FakeClock, RecordingBackend, RecordingTool, capture
from accelprof.timing import metrics


class FailingTimer(DeviceTimer):
    failing = ""

    def _maybe(self, what):
        if what == self.failing:
            raise RuntimeError(f"{what} failed")

    def begin(self):
        self._maybe("begin")

    def finish(self):
        self._maybe("finish")

    def resolve(self, wait=False):
        self._maybe("resolve")
        return 5


class WithTimers(RecordingBackend):
    name = "with_timers"
    aliases = ()

    def device_timer(self):
        return FailingTimer()


class Actor(Worker):
    @Worker.timer("timed", device=True)
    def timed(self, fail=False):
        if fail:
            raise KeyError("mine")
        return "result"

    @Worker.timer("gen")
    def gen(self, clock, count):
        for index in range(count):
            clock.advance(0.1)
            yield index

    @Worker.timer("plain")
    def plain(self, inside=None):
        if inside is not None:
            inside()


@pytest.mark.parametrize("failing", ["begin", "finish", "resolve"])
@pytest.mark.parametrize("discrete", [False, True])
def test_failing_device_timers(failing, discrete, monkeypatch):
    """A device timer that raises anywhere is said once; calls, the user's exception, windows and stats are whole."""
    monkeypatch.setattr(FailingTimer, "failing", failing)
    with capture(backend=WithTimers, steps=[1], discrete=discrete) as run:
        actor = Actor()
        with run.session.step(1):
            assert actor.timed() == "result"
            with pytest.raises(KeyError, match="mine"):
                actor.timed(fail=True)
            assert actor.timing_stats()["timed"]["count"] == 2
        assert run.session.window is None
        assert sum("timing on the device" in text for text in run.session.problems) == 1


def test_interleaved_generators_of_one_tag():
    """Two generators of one tag that take turns, and plain calls while one is suspended, are all counted."""
    with FakeClock() as clock:
        actor = Actor()
        assert list(zip(actor.gen(clock, 3), actor.gen(clock, 3))) == [(0, 0), (1, 1), (2, 2)]
        row = actor.timing_stats()["gen"]
        assert row["count"] == 2
        assert row["total"] == pytest.approx(0.6)


def test_a_late_owner_closes_only_its_own_window():
    """Under ``discrete`` a phase that outlives its step does not close the window of a phase of the next one."""
    with capture(steps=[1, 2], discrete=True) as run:
        actor = Actor()
        inside_a, release_a = threading.Event(), threading.Event()
        run.session.begin_step(1)
        thread = threading.Thread(target=actor.plain, args=(lambda: (inside_a.set(), release_a.wait(10)),))
        thread.start()
        inside_a.wait(10)
        run.session.end_step(1)
        run.session.begin_step(2)

        def let_a_end():
            release_a.set()
            thread.join()
            assert run.session.window is not None

        actor.plain(let_a_end)
        run.session.end_step(2)
        assert [(row["steps"], row["reason"]) for row in run.session.windows] == [
            ([1], "step ended"),
            ([2], "phase ended"),
        ]


def test_the_exception_of_a_step_closes_a_merged_window():
    """A window that would have held later steps closes when a step of it raises; the next one is normal."""
    with capture(steps="1-3", merge_steps=True) as run:
        with run.session.step(1):
            pass
        with pytest.raises(KeyError), run.session.step(2):
            raise KeyError
        assert run.session.window is None
        assert run.session.windows[0]["reason"] == "exception"


def test_on_error_raise_never_replaces_the_users_exception():
    """With ``on_error: raise`` a failing tool raises at the step's ends, never in place of what the user's code raised."""
    with capture(steps=[1, 2], on_error="raise") as run:
        run.backend.failing.add("capture_stop")
        with pytest.raises(KeyError), run.session.step(1):
            raise KeyError
        run.backend.failing.clear()
        run.backend.failing.add("push")
        run.session.begin_step(2)
        Actor().plain()
        with pytest.raises(CaptureError, match="push"):
            run.session.end_step(2)


def test_close_with_on_error_raise_finishes_everything():
    """``close`` raises only when all is closed and written; ``reset`` then has nothing left to undo."""
    with capture(steps=[1], on_error="raise") as run:
        run.session.begin_step(1)
        run.backend.failing.add("capture_stop")
        with pytest.raises(CaptureError, match="capture_stop"):
            run.session.close()
        (target,) = [record for record in run.session.journal.records if record["kind"] == "target"]
        assert target["windows_opened"] == 1  # as it was when all was closed
        assert run.tool.calls[-1].name == "finalise"


class NoEmitter(RecordingTool):
    name = "no_emitter"

    def emitter(self, backend):
        raise RuntimeError("no emitter")


def test_a_tool_without_an_emitter_still_captures():
    """A tool that cannot say where ranges go is reported; its window opens and closes."""
    with capture(tool="no_emitter", tools=(NoEmitter,), steps=[1]) as run:
        with run.session.step(1):
            Actor().plain()
        assert run.backend.names("capture_start", "capture_stop") == ["capture_start", "capture_stop"]
        assert any("no emitter" in text for text in run.session.problems)


@pytest.mark.parametrize("failing", ["push", "start"])
def test_what_did_not_begin_is_not_ended(failing):
    """A push or start that raises is followed by no pop or end: a surplus one would end the parent's range."""

    async def wait(actor):
        async with actor.worker_timer("suspended"):
            pass

    with capture(steps=[1]) as run:
        run.backend.failing.add(failing)
        actor = Actor()
        with run.session.step(1):
            actor.plain()
            import asyncio

            asyncio.run(wait(actor))
        names = run.backend.names("push", "pop", "start", "end")
        assert names == (["push", "start", "end"] if failing == "push" else ["push", "pop", "start"])


class Answering:
    def __getattr__(self, name):
        return {}


class Odd(Answering, Worker):
    @Worker.timer("odd")
    def run(self):
        return "ran"


@accelprof.timer("of an odd object")
def of_an_odd_object(thing):
    return "ran"


def test_classes_that_answer_any_attribute():
    """A class whose ``__getattr__`` answers anything is timed like any other."""
    odd = Odd()
    assert odd.run() == odd.run() == "ran"
    assert odd.timing_stats()["odd"]["count"] == 2
    assert of_an_odd_object(odd) == "ran"
    assert copy.deepcopy(Actor()).timing_stats() == {}


def test_states_made_while_others_are_listed():
    """Instances that are first timed on one thread do not disturb a step that begins on another."""
    stop, failures = threading.Event(), []

    def make():
        while not stop.is_set():
            Actor().plain()

    thread = threading.Thread(target=make)
    thread.start()
    try:
        for _ in range(300):
            try:
                metrics.process_totals()
            except RuntimeError as error:
                failures.append(error)
    finally:
        stop.set()
        thread.join()
    assert failures == []


FORK = """
import os, signal, sys, time
import accelprof
signal.signal(signal.SIGTERM, lambda *a: os._exit(7))
accelprof.configure(steps=[1], output_dir=sys.argv[1], group="G", rank=0)
pid = os.fork()
if pid == 0:
    if sys.argv[2] == "configure":
        accelprof.configure(steps=[1], output_dir=sys.argv[1], group="G", rank=1, ranks="all")
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(20)
    os._exit(9)
_, status = os.waitpid(pid, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.parametrize("what", ["nothing", "configure"])
def test_sigterm_in_a_forked_child(tmp_path, what):
    """In a forked child, with or without a session of its own, the user's SIGTERM handler runs as before."""
    process = subprocess.run(
        [sys.executable, "-c", FORK, str(tmp_path), what], capture_output=True, text=True, timeout=60
    )
    assert process.returncode == 7, process.stderr


def test_roles_join_a_window_of_the_whole_process():
    """Colocated roles with ``steps: process`` share the one window; no second one is opened."""
    with capture(steps="process", identity={"role": "actor"}) as run:
        joined = accelprof.configure(
            run.session.config, group="Group", role="ref", rank=0, accelerator="recording", run_dir=run.run_dir
        )
        assert joined is run.session
        assert joined.target.roles == ("actor", "ref")
        joined.close()
        assert len(joined.windows) == 1
        assert run.backend.names("capture_start", "capture_stop") == ["capture_start", "capture_stop"]


FORK_WHILE_LOADING = """
import os, signal, sys, threading
import accelprof
from accelprof import catalogue as registry
accelprof.configure(steps=[1], output_dir=sys.argv[1], group="G", rank=0)  # from here on a fork is noticed
registry.reset_catalogue()
taken, done = threading.Event(), threading.Event()

def hold():
    with registry._lock:
        taken.set()
        done.wait()

threading.Thread(target=hold, daemon=True).start()
taken.wait()
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    registry.get_catalogue()
    os._exit(5)
done.set()
_, status = os.waitpid(pid, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_the_registry_can_be_asked_in_a_child_that_was_forked_while_plugins_were_loaded(tmp_path):
    """The lock that another thread of the parent held is not held in the child."""
    process = subprocess.run(
        [sys.executable, "-c", FORK_WHILE_LOADING, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert process.returncode == 5, process.stderr


TOLD_AT_ONCE = """
import os, signal, sys, threading, time
import accelprof
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests under nohup have it ignored
session = accelprof.configure(steps=[1], output_dir=sys.argv[1], group="G", rank=0)

def children(number):
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    for _ in range(10):
        pid = os.fork()
        if pid == 0:
            if signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask:
                time.sleep(20)
            os._exit(5)
        os.kill(pid, number)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -number
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask
    done.append(number)

done = []
for number in (signal.SIGTERM, signal.SIGHUP):
    children(number)
    thread = threading.Thread(target=children, args=(number,))
    thread.start()
    thread.join()
assert len(done) == 4 and not session.closed
"""


def test_a_child_that_is_told_to_end_as_soon_as_it_is_there_ends(tmp_path):
    """Python forgets in a child which signals wait for their handlers: they are its parent's, and those that came since."""
    process = subprocess.run(
        [sys.executable, "-c", TOLD_AT_ONCE, str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    assert process.returncode == 0, process.stderr
