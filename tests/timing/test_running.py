"""Which phases run: on every thread, while modules are half imported, and without a look at what other threads may free."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import accelprof
from accelprof import Worker
from accelprof.testing import capture
from accelprof.timing import loops, metrics, running


class Actor(Worker):
    @Worker.timer("hold")
    def hold(self, started, release):
        started.set()
        assert release.wait(20)

    @Worker.timer("hold/async")
    async def wait(self, started, release):
        started.set()
        await release.wait()

    @Worker.timer("hold/device", device=True)
    def device(self, started, release):
        started.set()
        assert release.wait(20)

    @Worker.timer("items")
    def items(self, count):
        yield from range(count)


class Held:
    """``with Held(method)``: the method runs on a thread of its own until the end of the block."""

    def __init__(self, method):
        self.started, self.release = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=method, args=(self.started, self.release))

    def __enter__(self):
        self.thread.start()
        assert self.started.wait(20)
        return self.thread

    def __exit__(self, *_):
        self.release.set()
        self.thread.join(20)


def test_phases_of_all_threads_with_what_is_known_of_them():
    """Begun in the window: with its start and thread. Begun before it: that it runs. On this thread: all of it."""
    actor, other = Actor(), Actor()

    @accelprof.timer("here")
    def here():
        return running.running_phases()

    with Held(actor.hold):
        pass  # the first call of an instance registers itself
    with capture(steps=[1]) as run, Held(actor.hold) as before, Held(actor.device) as device:
        at = time.perf_counter_ns()
        with run.session.step(1), Held(other.hold) as inside:
            found = [(row.spec.tag, row.start >= at, row.thread) for row in here()]
        assert sorted(found) == sorted(
            [
                ("hold", False, 0),
                ("hold/device", False, device.ident),
                ("hold", True, inside.ident),
                ("here", True, threading.get_ident()),
            ]
        )
        assert before.ident != inside.ident
    assert [row for row in running.running_phases() if row.spec.tag.startswith(("hold", "here"))] == []


def test_frames_of_other_threads_are_not_looked_at(monkeypatch):
    """They may be freed meanwhile (CPython 3.11 ends with a segmentation fault): the interpreter is never asked for them."""

    def never():
        raise AssertionError("frames of all threads were asked for")

    monkeypatch.setattr(sys, "_current_frames", never)
    with capture(steps=[1]) as run, Held(Actor().hold):
        run.session.begin_step(1)
        run.session.begin_step(2)
        assert run.session.problems == []


def test_a_paused_generator_does_not_run():
    """Between two items a generator is in no list of what runs; inside it is, with when this piece began."""
    with capture(steps=[1]) as run, run.session.step(1):
        generator = Actor().items(2)
        next(generator)
        assert [row for row in running.running_phases() if row.spec.tag == "items"] == []
        generator.close()

        @accelprof.timer("inside")
        def inside():
            yield running.running_phases()

        at = time.perf_counter_ns()
        [row] = [row for row in next(inside()) if row.spec.tag == "inside"]
        assert row.start >= at
        assert row.call > 0


def test_windows_close_while_many_threads_call():
    """A hundred windows over eight threads at full speed: every call is counted once, and nothing ends the process."""
    stop, calls = threading.Event(), []

    @accelprof.timer("busy")
    def busy(depth=2):
        return busy(depth - 1) if depth else None

    def work():
        count = 0
        while not stop.is_set():
            busy()
            count += 1
        calls.append(count)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with capture(steps="all") as run:
            threads = [threading.Thread(target=work) for _ in range(8)]
            for thread in threads:
                thread.start()
            for step in range(100):
                with run.session.step(step):
                    time.sleep(0.001)
            stop.set()
            for thread in threads:
                thread.join(30)
            assert run.session.problems == []
            assert len(run.session.windows) == 100
            assert run.backend.balanced()
            assert metrics.stats([metrics.process_states["busy"]])["busy"]["count"] == sum(calls)
    finally:
        sys.setswitchinterval(before)


HALF = """
import sys, threading, types
import accelprof
from accelprof.timing.loops import loaded

name = sys.argv[1]
assert name not in sys.modules, name
# what other threads see while the module is being imported: there, with nothing in it
module = types.ModuleType(name)
module.__spec__ = types.SimpleNamespace(_initializing=True, name=name, parent="", origin=None, submodule_search_locations=None)
sys.modules[name] = module
assert loaded(name) is None

class W(accelprof.Worker):
    @accelprof.Worker.timer("sync")
    def sync(self, depth=1): return self.sync(depth - 1) if depth else 1
    @accelprof.Worker.timer("device", device=True)
    def device(self): return 1
    @accelprof.Worker.timer("items")
    def items(self): yield 1
    @accelprof.Worker.timer("coroutine")
    async def coroutine(self): return 1
    @accelprof.Worker.timer("stream")
    async def stream(self): yield 1

errors = []
def work():
    try:
        w = W()
        assert w.sync() == w.device() == 1 and list(w.items()) == [1]
        try: w.coroutine().send(None)
        except StopIteration as stop: assert stop.value == 1
        with w.worker_timer("block"), accelprof.profiling_range("range"): pass
        import contextlib
        with contextlib.ExitStack() as stack: stack.enter_context(w.worker_timer("stacked"))
        assert {tag: row["count"] for tag, row in w.timing_stats().items()} == dict.fromkeys(
            ("sync", "device", "items", "coroutine", "block", "stacked"), 1)
    except BaseException as error: errors.append(repr(error))
thread = threading.Thread(target=work); thread.start(); thread.join()
assert not errors, errors
print("whole")
"""


@pytest.mark.parametrize("name", ["asyncio", "trio", "gevent", "greenlet", "torch", "torch._dynamo.eval_frame"])
def test_timers_work_while_a_module_is_half_imported(name):
    """asyncio and all else that timers ask of sys.modules may be half there, seen from another thread."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(HALF), name], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "whole\n", done.stderr


# --- who is inside whom, under other loops -------------------------------------------------------------------------------


def test_tasks_of_trio_are_kept_apart():
    """Two tasks of trio in one phase at once: two calls; a call inside the task's own is counted once."""
    trio = pytest.importorskip("trio")

    class W(Worker):
        @Worker.timer("t")
        async def t(self, depth=1):
            await trio.sleep(0.01)
            return await self.t(depth - 1) if depth else None

    async def main(worker):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(worker.t)

    worker = W()
    with capture(steps=[1]) as run:
        with run.session.step(1):
            trio.run(main, worker)
        assert run.backend.balanced()
        assert run.backend.count("start") == 3
    stats = worker.timing_stats()["t"]
    assert stats["count"] == 3
    assert stats["min"] >= 0.02


def test_tasks_of_uvloop_are_kept_apart():
    """uvloop's loop is asyncio's to us."""
    uvloop = pytest.importorskip("uvloop")

    class W(Worker):
        @Worker.timer("t")
        async def t(self):
            await asyncio.sleep(0.01)

    async def main(worker):
        await asyncio.gather(*(worker.t() for _ in range(3)))

    worker = W()
    with capture(steps=[1]) as run:
        with run.session.step(1):
            loop = uvloop.new_event_loop()
            loop.run_until_complete(main(worker))
            loop.close()
        assert run.backend.balanced()
    assert worker.timing_stats()["t"]["count"] == 3


GREENLETS = """
import gevent.monkey; gevent.monkey.patch_all()
import gevent, accelprof
from accelprof.testing import capture

class W(accelprof.Worker):
    @accelprof.Worker.timer("t")
    def t(self, seconds, depth=1):
        gevent.sleep(seconds)
        return self.t(seconds, depth - 1) if depth else None

worker = W()
def work():
    with accelprof.profiling_range("around"): worker.t(0.01)
with capture(steps=[1]) as run:
    with run.session.step(1):
        gevent.joinall([gevent.spawn(work) for _ in range(3)], raise_error=True)
    assert run.backend.balanced()
    assert run.backend.names("push") == [], run.backend.names("push")
    assert run.backend.count("start") == 6
    assert run.session.problems == [], run.session.problems
gevent.joinall([gevent.spawn(worker.t, 0.01) for _ in range(4)], raise_error=True)
stats = worker.timing_stats()["t"]
assert stats["count"] == 7 and stats["min"] >= 0.02, stats
print("whole")
"""


def test_greenlets_are_kept_apart():
    """Under gevent plain calls of one thread overlap: each is timed for itself, and ranges swap no labels."""
    if importlib.util.find_spec("gevent") is None:  # imported, it would be here for the tests behind
        pytest.skip("gevent is not installed")
    done = subprocess.run([sys.executable, "-c", GREENLETS], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "whole\n", done.stderr


def test_what_runs_here():
    """Without a loop it is the thread; in a task it is the task."""
    assert loops.runner() == threading.get_ident()

    async def main():
        return loops.runner() == id(asyncio.current_task()), loops.running_loop() is asyncio.get_running_loop()

    assert asyncio.run(main()) == (True, True)
    assert loops.overlaps() is None


def test_a_forked_child_times_on():
    """What other threads of the parent were inside of does not make a child's calls late or lost; what it is inside of itself
    still counts once."""
    code = """
        import os, sys, threading, accelprof
        from accelprof.timing import metrics
        go = threading.Event()
        @accelprof.timer("elsewhere")
        def elsewhere(event=None): event and event.wait()
        @accelprof.timer("around")
        def around(depth=1):
            if depth: return around(0)
            pid = os.fork()
            if pid: return os.waitpid(pid, 0)[1]
            for _ in range(3): elsewhere()
            state = metrics.process_states["elsewhere"]
            os._exit(0 if state and metrics.stats([state])["elsewhere"]["count"] == 3 else 7)
        thread = threading.Thread(target=elsewhere, args=(go,)); thread.start()
        status = around()
        go.set(); thread.join()
        print(os.waitstatus_to_exitcode(status))
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "0\n", done.stderr
