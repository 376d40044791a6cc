"""A window ends when its work has ended: the device is waited for once, before any of the window's captures stops."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from accelprof import Worker, profiling_range
from accelprof.testing import RecordingBackend, RecordingTool, capture


class Actor(Worker):
    @Worker.timer("actor/update")
    def update(self, inside=None):
        if inside is not None:
            inside()


def steps(run, *numbers):
    for number in numbers:
        with run.session.step(number):
            Actor().update()


def merged(run):
    for number in (1, 2, 5):
        run.session.begin_step(number)
        Actor().update()


def discrete(run):
    with run.session.step(1):
        Actor().update()
        Actor().update()


def calls(run):
    for _ in range(5):
        Actor().update()


def by_exception(run):
    with pytest.raises(ZeroDivisionError), run.session.step(1):
        Actor().update(lambda: 1 / 0)


def on_demand(run):
    run.session.open_window("on_demand")
    Actor().update()
    run.session.captures.request_close("asked to")


KINDS = {
    "step": (lambda run: steps(run, 1, 2), {"steps": [1, 2]}, 2),
    "merged": (merged, {"steps": [1, 2, 5], "merge_steps": True}, 2),
    "discrete": (discrete, {"steps": [1], "discrete": True}, 2),
    "schedule": (calls, {"schedule": {"phase": "actor/*", "wait": 1, "active": 2}}, 1),
    "process": (lambda run: steps(run, 1, 2), {"steps": "process"}, 1),
    "exception": (by_exception, {"steps": [1]}, 1),
    "on demand": (on_demand, {"on_demand": True}, 1),
    "left open": (lambda run: run.session.begin_step(1), {"steps": [1]}, 1),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_device_is_waited_for_once_before_a_capture_stops(kind):
    """Every kind of window: opening does not wait, closing waits exactly once, and only then the capture stops."""
    job, config, windows = KINDS[kind]
    with capture(**config) as run:
        run.backend.device_list = [{"index": 0, "name": "pretended"}]
        job(run)
        run.session.close()
        order = run.backend.names("capture_start", "synchronize", "capture_stop")
        assert order == ["capture_start", "synchronize", "capture_stop"] * windows
        assert len(run.session.windows) == windows
        for row in run.session.windows:
            assert row["drained"] is True
            assert row["drain_ns"] >= 0
            assert row["open_ns"] > 0
            assert row["close_ns"] > 0
        assert run.backend.balanced()


def test_the_wait_comes_before_every_tool():
    """With several tools the device is waited for before the first of them is closed, not between two."""
    order = []

    class Waited(RecordingBackend):
        name = "waited"
        aliases = ()

        def synchronize(self):
            order.append("synchronize")

    class One(RecordingTool):
        name = "one"

        def trigger(self, target):
            return "in_process"

        def close(self, window):
            order.append(self.name)
            return super().close(window)

    class Two(One):
        name = "two"

    with capture(
        backend=Waited,
        tools=(One, Two),
        groups={"Group": [{"roles": ["a"], "tool": "one"}, {"roles": ["b"], "tool": "two"}]},
        identity={"role": ["a", "b"]},
        tool="one",
        steps=[1],
    ) as run:
        steps(run, 0, 1, 2)
        assert order[0] == "synchronize"
        assert sorted(order[1:]) == ["one", "two"]


def test_without_drain_nothing_waits_and_the_record_says_so():
    """``drain: false``: no wait at all, and each window says that its device was not waited for."""
    with capture(steps=[1], drain=False) as run:
        steps(run, 1)
        assert run.backend.count("synchronize") == 0
        assert [(row["drained"], row["drain_ns"]) for row in run.session.windows] == [(False, 0)]


def test_a_wait_that_fails_stops_nothing():
    """A device that cannot be waited for is said once; captures are stopped all the same, and the windows say it."""
    with capture(steps=[1, 2]) as run:
        run.backend.failing = {"synchronize"}
        steps(run, 1, 2)
        assert run.backend.names("synchronize", "capture_stop") == ["synchronize", "capture_stop"] * 2
        assert [row["drained"] for row in run.session.windows] == [False, False]
        assert sum("waiting for the device" in text for text in run.session.problems) == 1


def test_our_own_timeline_alone_waits_for_nothing():
    """Where nothing of the device is recorded, no step pays for a wait."""
    with capture(tool=None, steps=[1]) as run:
        steps(run, 1)
        assert run.backend.count("synchronize") == 0
        assert len(run.session.windows) == 1


def test_nothing_waits_where_no_window_closes():
    """Steps without a window, and a session without one, never wait."""
    with capture(steps=[9]) as run:
        steps(run, 1, 2)
        run.session.close_window("none is open")
        run.session.close()
        assert run.backend.count("synchronize") == 0


def test_phases_of_other_threads_are_emitted_while_the_device_is_waited_for():
    """What another thread launches during the wait is still captured, so its phase is still marked there."""
    waiting, released = threading.Event(), threading.Event()

    class Slow(RecordingBackend):
        name = "slow"
        aliases = ()

        def synchronize(self):
            waiting.set()
            assert released.wait(10)
            super().synchronize()

    with capture(backend=Slow, steps=[1]) as run:
        run.session.begin_step(1)
        closer = threading.Thread(target=run.session.end_step)
        closer.start()
        assert waiting.wait(10)
        with profiling_range("other"):
            Actor().update()
        released.set()
        closer.join(10)
        assert run.backend.labels() == ["other", "actor/update"]
        assert run.backend.balanced()
        assert run.backend.names("synchronize", "capture_stop") == ["synchronize", "capture_stop"]


def test_a_range_that_is_open_while_its_window_closes():
    """A range around a step that closes its window is popped after the wait and the stop, once."""
    with capture(steps=[1]) as run:
        run.session.begin_step(1)
        with profiling_range("around"):
            run.session.end_step(1)
        assert run.backend.names("push", "synchronize", "capture_stop", "pop") == [
            "push",
            "synchronize",
            "capture_stop",
            "pop",
        ]


@pytest.mark.parametrize("end", ["sys.exit(3)", "os.kill(os.getpid(), signal.SIGTERM); time.sleep(5)"])
def test_a_process_that_ends_in_a_window_waits_too(tmp_path, end):
    """Exit and SIGTERM with an open window: waited for, then stopped."""
    code = f"""
        import os, signal, sys, time, accelprof
        from accelprof.testing import RecordingBackend, RecordingTool
        class Told(RecordingBackend):
            name = "told"
            def synchronize(self): os.write(1, b"synchronize\\n")
            def capture_stop(self): os.write(1, b"capture_stop\\n")
        accelprof.register(type("P", (), {{
            "accelprof_backends": accelprof.hookimpl(lambda self: [Told]),
            "accelprof_tools": accelprof.hookimpl(lambda self: [RecordingTool]),
        }})())
        s = accelprof.configure(steps=[1], tool="recording", accelerator="told", output_dir="o", group="G", rank=0)
        s.begin_step(1)
        {end}
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["synchronize", "capture_stop"], done.stderr
    assert done.returncode in (3, -signal.SIGTERM)
    assert os.listdir(tmp_path / "o")
