"""Slow writing does not kill training: files are written behind it, slow closes are said, and nothing is lost at the end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from typing import ClassVar

import pytest

import accelprof
from accelprof.contracts.targets import ArtifactFile
from accelprof.session import closetimes
from accelprof.session.writing import AHEAD, Writing, group_timeout
from accelprof.testing import RecordingTool, capture


class Later(RecordingTool):
    """Stops at once; its files are written when ``go`` is set."""

    name = "later"
    go = threading.Event()
    error: Exception | None = None
    writers: ClassVar[list[str]] = []

    def stop(self, window):
        self._note("stop", window.sequence)
        self.context.backend.capture_stop()
        path = window.stem + ".later"

        def write():
            assert self.go.wait(20)
            self.writers.append(threading.current_thread().name)
            if self.error is not None:
                raise self.error
            with open(path, "w", encoding="utf-8") as file:
                file.write("whole")
            return [ArtifactFile(path, self.name, (window.id,), 5)]

        return write


@pytest.fixture
def later(monkeypatch):
    monkeypatch.setattr(Later, "go", threading.Event())
    monkeypatch.setattr(Later, "error", None)
    monkeypatch.setattr(Later, "writers", [])
    yield Later
    Later.go.set()


def artifacts(session, tool):
    return [row["path"] for row in session.journal.records if row["kind"] == "artifact" and row["tool"] == tool]


def test_files_are_written_behind_the_training(later):
    """The step goes on and the next window opens while the first is being written; ``close`` waits for all of them."""
    with capture(tool="later", tools=(later,), steps=[1, 2]) as run:
        session = run.session
        with session.step(1):
            pass
        with session.step(2):
            assert session.window is not None
        assert artifacts(session, "later") == []
        assert run.backend.names("synchronize", "capture_stop") == ["synchronize", "capture_stop"] * 2
        threading.Timer(0.2, later.go.set).start()
        session.close()
        paths = artifacts(session, "later")
        assert [os.path.getsize(path) for path in paths] == [5, 5]
        assert set(later.writers) == {"accelprof writing"}
        assert all(row.write_ns > 0 and row.close_ns < 10**9 for row in session.windows)
        assert [call.name for call in run.tool.calls if call.name in ("open", "stop", "close", "finalise")] == [
            "open",
            "stop",
            "open",
            "stop",
            "finalise",
        ]


def test_what_fails_behind_the_training_is_said(later):
    """A file that cannot be written is named with its reason, in the window's row too, and training hears nothing of it."""
    later.error = OSError(28, "No space left on device")
    later.go.set()
    with capture(tool="later", tools=(later,), steps=[1, 2]) as run:
        for step in (1, 2):
            with run.session.step(step):
                pass
        summary = run.session.close()
        said = [text for text in summary["problems"] if "later failed writing the files of a window" in text]
        assert len(said) == 1
        assert all("No space left" in row.errors[0] for row in run.session.windows)
        last = [row for row in summary["journal"] if row["kind"] == "window"][-1]
        assert "No space left" in last["errors"][0]


def test_a_plug_in_hears_that_a_window_is_closed_when_its_files_are_there(later):
    """``accelprof_window_closed`` comes when what the tools write is on disk."""
    heard = []
    with capture(tool="later", tools=(later,), steps=[1]) as run:
        session = run.session
        session.captures.listeners.append(lambda what, info: heard.append((what, bool(artifacts(session, "later")))))
        with session.step(1):
            pass
        assert heard == [("opened", False)]
        later.go.set()
        session.wait_for_files()
        assert heard == [("opened", False), ("closed", True)]


def test_memory_has_a_bound():
    """A tool that writes slower than windows come is waited for, rather than kept in memory without end."""
    writing, go, done = Writing(), threading.Event(), []
    for number in range(AHEAD + 1):
        writing.add(lambda number=number: (go.wait(20), done.append(number)))
    late = threading.Thread(target=writing.add, args=(lambda: done.append("late"),))
    late.start()
    late.join(0.2)
    assert late.is_alive()
    go.set()
    late.join(10)
    writing.finish()
    assert done == [*range(AHEAD + 1), "late"]


def test_a_writer_that_ended_is_started_again():
    """The thread goes when there is nothing to write for a while; what comes later is written all the same."""
    writing, threads = Writing(idle=0.01), []
    writing.finish()
    for _ in range(3):
        writing.add(lambda: threads.append(threading.current_thread()))
        writing.finish()
        threads[-1].join(10)
        assert not threads[-1].is_alive()
    assert len(set(threads)) == 3


@pytest.mark.parametrize(
    "end", ["s.close()", "pass", "sys.exit(3)", "os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)"]
)
def test_no_end_of_a_process_loses_a_file_that_is_being_written(tmp_path, end):
    """``close``, the end of the script, exit and SIGTERM wait for the writing."""
    code = f"""
        import os, signal, sys, time, accelprof
        from accelprof.contracts.targets import ArtifactFile
        from accelprof.testing import RecordingTool
        class Later(RecordingTool):
            name = "later"
            def stop(self, window):
                def write():
                    time.sleep(0.5); open(window.stem + ".later", "w").write("whole")
                    return [ArtifactFile(window.stem + ".later", "later", (window.id,), 5)]
                return write
        accelprof.register(type("P", (), {{"accelprof_tools": accelprof.hookimpl(lambda self: [Later])}})())
        s = accelprof.configure(steps=[1], tool="later", output_dir="o", run="r", group="G", rank=0)
        with s.step(1): pass
        {end}
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode in (0, 3, -signal.SIGTERM), done.stderr
    (path,) = tmp_path.glob("o/r/G/*.later")
    assert path.read_text() == "whole"
    (journal,) = tmp_path.glob("o/r/.workers/*.jsonl")
    rows = [json.loads(line) for line in journal.read_text().splitlines()]
    assert any(row["kind"] == "artifact" and row["tool"] == "later" for row in rows)


def test_a_forked_child_does_not_write_what_waits(later):
    """What waits to be written is the parent's; a forked child does not wait for it either."""
    with capture(tool="later", tools=(later,), steps=[1]) as run:
        with run.session.step(1):
            pass
        pid = os.fork()
        if pid == 0:
            try:
                run.session.close()
                run.session.captures.wait_for_files()
            finally:
                os._exit(len(artifacts(run.session, "later")))
        assert os.waitpid(pid, 0)[1] == 0
        later.go.set()
        run.session.close()
        assert len(artifacts(run.session, "later")) == 1


# --- what is said -------------------------------------------------------------------------------------------------------


class Slow(RecordingTool):
    name = "slow"

    def close(self, window):
        time.sleep(0.15)
        return super().close(window)


def test_a_slow_close_is_said_with_rank_tool_and_seconds(monkeypatch):
    """Every close that takes long names the rank, the window, each tool and its seconds; quick ones are not said."""
    monkeypatch.setattr(closetimes, "SLOW_NS", 100_000_000)
    with capture(tool="slow", tools=(Slow,), steps=[1, 2]) as run:
        for step in (1, 2):
            with run.session.step(step):
                pass
        said = [text for text in run.session.problems if text.startswith("closing window")]
        assert [text.split(" took")[0] for text in said] == ["closing window 1", "closing window 2"]
        assert all("took Group/rank0 0." in text and "(slow 0." in text for text in said)
    with capture(steps=[1]) as run:
        with run.session.step(1):
            pass
        assert run.session.problems == []


def test_a_close_that_nears_the_groups_timeout_is_warned_of_beforehand(monkeypatch):
    """Where the process group's timeout is known, a window like the last one is warned of before it opens, once."""
    monkeypatch.setattr(closetimes, "SLOW_NS", 100_000_000)
    monkeypatch.setattr(closetimes, "group_timeout", lambda: 0.2)
    with capture(tool="slow", tools=(Slow,), steps=[1, 2, 3]) as run:
        for step in (1, 2, 3):
            with run.session.step(step):
                beforehand = [text for text in run.session.problems if "is about to open" in text]
                assert len(beforehand) == (step > 1)
        assert "window 2 is about to open; closing the last one took 0." in beforehand[0]
        assert "gives up on a rank after 0.2 s" in beforehand[0]
        assert any(text.startswith("closing window 1") and "gives up" in text for text in run.session.problems)


def test_no_group_no_timeout():
    """Without torch's process group nothing is known, and nothing is warned of."""
    assert group_timeout() is None


GLOO = """
import datetime, os, sys, time
import torch, torch.distributed as dist, torch.profiler
import accelprof
rank = int(os.environ["RANK"])
export = torch.profiler.profile.export_chrome_trace
def slow(self, path):
    time.sleep(12)
    return export(self, path)
torch.profiler.profile.export_chrome_trace = slow
s = accelprof.configure(steps=[1], ranks=[0], tool="torch", output_dir="o", run="r", group="G")
open(f"ready{rank}", "w").close()
while not os.path.exists(f"ready{1 - rank}"):  # what takes long on a busy machine is done before anybody counts seconds
    time.sleep(0.01)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
from accelprof.session.writing import group_timeout
assert group_timeout() == 6.0, group_timeout()
for n in range(4):
    with s.step(n):
        t = torch.ones(4); dist.all_reduce(t)
assert t.tolist() == [2.0] * 4
print("trained", flush=True)
dist.destroy_process_group()  # gloo's own threads may abort a process that ends without
s.close()
"""


@pytest.mark.torch
def test_an_export_longer_than_the_groups_timeout_does_not_end_training(tmp_path):
    """Two gloo ranks with a 6 s timeout and a torch window whose export takes 12 s finish training, and the file is whole."""
    pytest.importorskip("torch", reason="torch is not installed")
    (tmp_path / "job.py").write_text(GLOO)
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29600 + os.getpid() % 300), "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "job.py"],
            cwd=tmp_path,
            env={**env, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    told = [process.communicate(timeout=120) for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], told
    assert all("trained" in out for out, _ in told)
    assert len(list(tmp_path.glob("o/r/G/*.pt.trace.json.gz"))) == 1


@pytest.mark.torch
def test_torch_windows_one_after_another_are_whole(tmp_path):
    """A window that records while the one before it is written has its own operators, and so has the other."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from accelprof.analysis.reading import read_any

    with capture(tool="torch", steps="0-4", directory=str(tmp_path)) as run:
        for step in range(5):
            with run.session.step(step):
                for _ in range(200 * (step + 1)):
                    torch.add(torch.ones(2), 1)
        run.session.close()
        paths = artifacts(run.session, "torch")
        assert len(paths) == 5
        counts = [sum(span.name == "aten::add" for span in read_any(path).spans) for path in sorted(paths)]
        assert counts == [200 * (step + 1) for step in range(5)]
        assert accelprof.current_session() is None


def test_a_close_that_waits_for_files_says_so(later):
    """The end waits for what is written behind training: over a second it says who and how long; a shorter wait is not said."""
    for seconds, said in ((1.3, 1), (0.0, 0)):
        later.go.clear()
        with capture(tool="later", tools=(later,), steps=[1]) as run:
            with run.session.step(1):
                pass
            threading.Timer(seconds, later.go.set).start()
            run.session.close()
            found = [text for text in run.session.problems if "for files of its windows" in text]
        assert len(found) == said
        assert all(re.search(r"Group.* waited 1\.[0-9] s for files", text) for text in found)
