"""Budget: windows close early rather than filling a disk, and the expected size is known beforehand where it can be."""

from __future__ import annotations

import threading
import time

import pytest

from accelprof import Worker
from accelprof.catalogue import make_catalogue
from accelprof.config.model import Budget
from accelprof.contracts.targets import ArtifactFile, Assignment, CaptureCount, Target
from accelprof.errors import CaptureError, ConfigError
from accelprof.session.budget import BudgetWatch, expected_size, history, size_text
from accelprof.testing import RecordingTool, capture

MIB = 1 << 20


class Writer(RecordingTool):
    """Writes while its window is open, when a test tells it to."""

    name = "writer"

    def open(self, window):
        super().open(window)
        self.path = window.stem + ".raw"

    def write(self, size):
        with open(self.path, "ab") as file:
            file.truncate(size)  # sparse: the size counts, not what is in it

    def close(self, window):
        super().close(window)
        return [ArtifactFile(self.path, self.name, (window.id,))]


class Late(RecordingTool):
    """Writes 4 MiB when its window closes, and nothing before."""

    name = "late"

    def close(self, window):
        super().close(window)
        path = window.stem + ".late"
        with open(path, "wb") as file:
            file.truncate(4 * MIB)
        return [ArtifactFile(path, self.name, (window.id,))]


class Job(Worker):
    @Worker.timer("phase")
    def phase(self):
        return None


def until(condition, seconds=10.0):
    """Wait for what another thread does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.005)


def quick(run, **kwargs):
    """The session's watch, looking often."""
    captures = run.session.captures
    captures.budget.end()
    captures.budget = BudgetWatch(run.session.config.budget, captures, interval=0.01, **kwargs)
    return captures.budget


def test_a_window_that_grows_too_large_closes_early():
    """Watched while it is written: the window closes at its limit, says so in the log and in the manifest; the step goes on."""
    with capture(tool="writer", tools=(Writer,), steps=[1, 2], budget={"per_window": "2MiB"}) as run:
        quick(run)
        with run.session.step(1):
            run.tool.write(MIB)
            time.sleep(0.05)
            assert run.session.window is not None
            run.tool.write(3 * MIB)
            until(lambda: run.session.window is None and run.session.windows[-1]["closed"] is not None)
        assert run.session.windows[0]["reason"] == "budget"
        assert (
            "budget.per_window is 2.0 MiB, and this window has about 3.0 MiB" in run.session.windows[0]["closed_early"]
        )
        assert any("window 1 closed early" in text for text in run.session.problems)
        assert run.backend.count("capture_stop") == 1
        with run.session.step(2):
            assert run.session.window is not None, "a later window has its own limit"


def test_a_late_writer_is_estimated_from_its_rate():
    """Nothing is on disk before such a window closes: the bytes a second of its first window stand in for it."""
    with capture(tool="late", tools=(Late,), timeline=False, steps=[1, 2], budget={"per_window": "8MiB"}) as run:
        watch = quick(run)
        with run.session.step(1):
            time.sleep(0.05)
        rate = watch.rates["late"]
        assert 4 * MIB / 1.0 < rate <= 4 * MIB / 0.05
        begun = time.monotonic()
        with run.session.step(2):
            until(lambda: run.session.window is None and run.session.windows[-1]["closed"] is not None)
        assert 8 * MIB / rate <= time.monotonic() - begun + 0.01
        assert run.session.windows[1]["reason"] == "budget"


def test_free_space_is_kept():
    """A window closes before less than ``free_space`` would be left, and none opens once it is; training goes on."""
    free = [4 << 30]
    with capture(tool="writer", tools=(Writer,), steps=[1, 2], budget={"free_space": "2GiB"}) as run:
        quick(run, free=lambda path: free[0])
        with run.session.step(1):
            free[0] = 1 << 30
            until(lambda: run.session.window is None and run.session.windows[-1]["closed"] is not None)
        with run.session.step(2):
            assert run.session.window is None
        texts = "\n".join(run.session.problems)
        assert "budget.free_space is 2.0 GiB, and about 1.0 GiB would be free" in texts
        assert "no further window is opened: budget.free_space is 2.0 GiB, and 1.0 GiB are free" in texts


def test_the_run_has_a_limit_too():
    """What all processes left in the run's directory counts; beyond it no window opens."""
    with capture(tool="late", tools=(Late,), timeline=False, steps=[1, 2, 3], budget={"per_run": "6MiB"}) as run:
        for step in (1, 2, 3):
            with run.session.step(step):
                pass
        assert len(run.session.windows) == 2
        assert any(
            "budget.per_run is 6.0 MiB, and the run has 8.0 MiB already" in text for text in run.session.problems
        )


class BoundLate(Late):
    name = "bound"
    thread = "starter"


def test_a_tool_bound_to_its_thread_is_closed_there():
    """The watching thread does not stop a tool that must stop where it started; the next phase there does."""
    with capture(tool="bound", tools=(BoundLate,), timeline=False, steps=[1], budget={"per_window": "1MiB"}) as run:
        watch = quick(run)
        watch.rates["bound"] = 1e9
        with run.session.step(1):
            until(lambda: run.session.window.overdue)
            Job().phase()
            assert run.session.window is None
        assert {call.thread for call in run.tool.calls if call.name in ("open", "close")} == {threading.get_ident()}


def test_no_thread_outlives_the_session():
    """The watching thread ends with its session."""
    with capture(steps=[1]) as run:
        with run.session.step(1):
            pass
        assert any(thread.name == "accelprof budget" for thread in threading.enumerate())
        run.session.close()
        until(lambda: not any(thread.name == "accelprof budget" for thread in threading.enumerate()))


def test_no_limits_no_watch():
    """All limits null: nothing is watched."""
    with capture(steps=[1], budget={"free_space": None}) as run:
        assert run.session.captures.budget is None


def test_expected_size_of_a_rank(tmp_path):
    """From what earlier runs left in the same directory, times the windows that are planned; unknown is said."""
    with capture(tool="late", tools=(Late,), timeline=False, steps=[1], run="first", output_dir=str(tmp_path)) as run:
        with run.session.step(1):
            pass
        run.session.close()
        from accelprof.output.manifest import build, read_journals, write

        write(run.run_dir, build(run.run_dir, version="0", config={}, plan={}, journals=read_journals(run.run_dir)))
    known = history(str(tmp_path))
    assert known == {"late": (4 * MIB, "first")}
    three = Assignment(Target("G"), True, "late", timeline=False, count=CaptureCount(3))
    assert expected_size(three, known, Budget()) == "about 12.0 MiB (3 x 4.0 MiB, as in run first)"
    limited = Budget(per_window=MIB)
    assert (
        expected_size(three, known, limited) == "about 3.0 MiB (3 x 1.0 MiB, as in run first, at most 1.0 MiB a window)"
    )
    many = Assignment(Target("G"), True, "late", timeline=True, count=CaptureCount(None))
    assert expected_size(many, known, Budget()) == "unknown before a first window of trace"
    assert expected_size(Assignment(Target("G"), False), known, Budget()) == "0"
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "manifest.json").write_text("{")
    assert history(str(tmp_path)) == known


def test_sizes_are_checked():
    """Sizes are bytes or texts with a unit; something else is refused with its path."""
    registry = make_catalogue(entry_points=False)
    config = registry.load({"budget": {"per_window": "2GiB", "per_run": "20 GB", "free_space": 10}}).config
    assert (config.budget.per_window, config.budget.per_run, config.budget.free_space) == (2 << 30, 20 * 10**9, 10)
    with pytest.raises(ConfigError, match=r"budget.per_run: 'much' is not a size"):
        registry.load({"budget": {"per_run": "much"}})
    assert [size_text(n) for n in (0, 1023, 1536, 3 << 40)] == ["0 B", "1023 B", "1.5 KiB", "3.0 TiB"]


def test_the_watch_survives_a_window_that_cannot_be_closed():
    """Under ``on_error: raise`` the step ends with the failure, not the watching thread: the next window is watched."""

    class Stuck(Writer):
        def close(self, window):
            if window.sequence == 1:
                raise OSError("stuck")
            return super().close(window)

    with capture(tool="writer", tools=(Stuck,), steps=[1, 2], budget={"per_window": "2MiB"}, on_error="raise") as run:
        quick(run)
        run.session.begin_step(1)
        run.tool.write(3 * MIB)
        until(lambda: run.session.window is None and run.session.windows[-1]["closed"] is not None)
        with pytest.raises(CaptureError, match="stuck"):
            run.session.end_step(1)
        with run.session.step(2):
            run.tool.write(3 * MIB)
            until(lambda: run.session.window is None and run.session.windows[-1]["closed"] is not None)
        assert [window["reason"] for window in run.session.windows] == ["budget", "budget"]


def test_the_watch_survives_a_size_that_cannot_be_read():
    """A look that fails is reported, and the window is looked at again."""
    looks = []

    def free(path):
        looks.append(path)
        if len(looks) == 2:  # the first one is made before the window opens
            raise OSError("gone for a moment")
        return 0 if len(looks) > 2 else 4 << 30

    with capture(tool="writer", tools=(Writer,), steps=[1], budget={"free_space": "2GiB"}) as run:
        quick(run, free=free)
        with run.session.step(1):
            until(lambda: run.session.window is None and run.session.windows[-1]["closed"] is not None)
        texts = "\n".join(run.session.problems)
        assert "gone for a moment" in texts
        assert "would be free" in texts
