"""Work that has a thread of its own is done also where the interpreter starts none any more."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from accelprof.threads import each, started

AT_EXIT = """
import atexit, sys, threading
from accelprof.analysis.timeline import Zipped
from accelprof.session.writing import Writing
from accelprof.threads import each

def end():
    said = []
    writing = Writing()
    writing.add(lambda: said.append("written"))
    writing.finish()
    each(said.append, ["a", "b", "c"], 2, "jobs")
    with Zipped(sys.argv[1]) as file:
        file.write(b"packed")
    print(" ".join(sorted(said)))

atexit.register(end)
"""


def test_at_the_end_of_the_interpreter_everything_is_written(tmp_path: Path) -> None:
    """Files of a window, files of other hosts and a packed timeline are written in ``atexit`` functions, too."""
    done = subprocess.run(
        [sys.executable, "-c", AT_EXIT, str(tmp_path / "file.gz")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout.split(), done.stderr, done.returncode) == (["a", "b", "c", "written"], "", 0)
    assert gzip.decompress((tmp_path / "file.gz").read_bytes()) == b"packed"


@pytest.mark.parametrize("at_once", [1, 3, 50])
def test_every_job_is_done_once(at_once: int) -> None:
    """However many threads there are, each job is done once, and all of them before the call returns."""
    done: list[int] = []

    def work(job: int) -> None:
        time.sleep(0.001)
        done.append(job)

    each(work, range(30), at_once, "jobs")
    assert sorted(done) == list(range(30))


def test_where_no_thread_starts_its_work_can_be_done_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system without a thread to spare is told by ``None``, and jobs are done one after another."""

    def refuses(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuses)
    assert started(lambda: None, "one") is None
    names: list[str] = []
    each(lambda job: names.append(threading.current_thread().name), [1, 2], 4, "jobs")
    assert names == [threading.current_thread().name] * 2
