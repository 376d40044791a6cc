"""Load: sessions, steps and windows in numbers leave nothing behind that grows."""

from __future__ import annotations

import gc
import os
import threading
import tracemalloc

import accelprof
from accelprof import Worker
from accelprof.testing import RecordingTool, capture


class Job(Worker):
    @Worker.timer("phase")
    def phase(self):
        return None


def descriptors():
    return sorted(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else []


def grown(work):
    """Bytes that ``work`` left behind when it was done a second time."""
    work()
    gc.collect()
    tracemalloc.start()
    try:
        work()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        work()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def test_sessions_leave_no_thread_no_descriptor_and_no_memory(tmp_path):
    """Configured and closed again and again, with windows, a budget and requests listened for: nothing of it stays."""
    (tmp_path / "run").mkdir()

    def one():
        session = accelprof.configure(
            steps=[1], on_demand=True, output_dir=str(tmp_path), run_dir=str(tmp_path / "run"), group="G", rank=0
        )
        with session.step(1):
            Job().phase()
        threads = [session.requests._thread, session.captures.budget._thread]
        session.close()
        accelprof.reset()
        for thread in threads:
            if thread is not None:
                thread.join(10)

    one()
    threads, open_files = threading.active_count(), descriptors()

    def several():
        for _ in range(15):
            one()

    assert grown(several) < 200_000
    assert threading.active_count() <= threads
    assert set(descriptors()) <= set(open_files)  # of earlier tests some may be closed meanwhile


def test_steps_without_a_window_take_no_memory():
    """Steps go on for ever; what is remembered of them has a bound."""
    with capture(steps=[10**9]) as run:
        session, job, numbers = run.session, Job(), iter(range(10**9 - 1))
        for _ in range(10_000):  # as many as are remembered
            session.begin_step(next(numbers))
        run.backend.clear()

        def some():
            for _ in range(3_000):
                with session.step(next(numbers)):
                    job.phase()
            run.backend.clear()

        assert grown(some) < 100_000


def test_a_window_takes_little_memory_once_it_is_closed():
    """Its row is kept once, whatever was written of it, and has no dictionary of its own: it has no more fields than share one."""

    class Quiet(RecordingTool):
        name = "quiet"

        def _note(self, name, what=None):
            return None

    with capture(tool="quiet", tools=(Quiet,), steps="all", budget={"free_space": None}) as run:
        session, job, numbers = run.session, Job(), iter(range(10**6))

        def some():
            for _ in range(100):
                with session.step(next(numbers)):
                    job.phase()
            run.backend.clear()

        assert grown(some) < 100 * 4_000
        rows = [record for record in session.journal.records if record["kind"] == "window"]
        assert len(rows) == len(session.windows) == 300
        assert all(row["closed"] is not None for row in rows)


def test_many_threads_at_once():
    """64 threads call, arm and announce at the same time: windows open and close in turn, and every call is counted once."""
    with capture(steps="all", on_demand=True, timeline=False) as run:
        session, job = run.session, Job()
        stop, errors, calls = threading.Event(), [], [0] * 64

        def work(number):
            try:
                while not stop.is_set():
                    job.phase()
                    calls[number] += 1
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(64)]
        for thread in threads:
            thread.start()
        for step in range(30):
            with session.step(step):
                session.demand.open(5)
            session.demand.open(5)
            session.demand.close("over")
        stop.set()
        for thread in threads:
            thread.join(30)
        session.close()
        assert errors == []
        assert session.problems == []
        assert run.backend.balanced()
        order = run.backend.names("capture_start", "capture_stop")
        assert order == ["capture_start", "capture_stop"] * len(session.windows)
        assert job.timing_stats()["phase"]["count"] == sum(calls)
