"""Files of many workers are read in processes of their own, and come to what they come to one after the other."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from accelprof.analysis import many, phases, waits
from accelprof.analysis.files import summarise_files
from accelprof.analysis.many import Failed, each
from accelprof.analysis.packed import Packed
from accelprof.analysis.phases import Stretch
from accelprof.analysis.report_rows import StepTime
from accelprof.analysis.summary import Summary, summarise
from accelprof.environment import ONE_THREAD


def work(shared: str, job: Any) -> Any:
    if job == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if job == "raise":
        raise ValueError("of the job")
    if job == "unpicklable":
        return lambda: None
    if job == "print":
        print("of a reader")
    if isinstance(job, float):
        time.sleep(job)
    return f"{shared} {job}", os.getpid()


@pytest.fixture
def worth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes for files of any size, on any machine."""
    monkeypatch.setattr(many, "WORTH", 0)
    monkeypatch.setattr(many, "_room", lambda sizes: 3)


@pytest.mark.usefixtures("worth")
def test_results_come_in_order_of_the_jobs() -> None:
    """Whatever job is ready first, and none is done by the process that asked."""
    jobs = [0.4, *range(12)]
    seen: list[tuple[int, int]] = []
    found = list(each(work, "s", jobs, [1] * 13, processes=3, progress=lambda *at: seen.append(at)))
    assert [row[0] for row in found] == [f"s {job}" for job in jobs]
    assert os.getpid() not in {row[1] for row in found}
    assert seen == sorted(seen)
    assert seen[-1] == (13, 13)


@pytest.mark.usefixtures("worth")
def test_a_job_that_fails_or_kills_its_process_is_told_and_the_others_go_on() -> None:
    """Each failure stands in the place of its own job."""
    jobs = [1, "die", "raise", "unpicklable", "print", "die", 2]
    found = list(each(work, "s", jobs, [1] * 7, processes=2))
    assert isinstance(found[1], Failed)
    assert "SIGKILL" in found[1].why
    assert found[2] == Failed("ValueError: of the job")
    assert isinstance(found[3], Failed)
    assert "cannot be handed over" in found[3].why
    assert [row[0] for row in (found[0], found[4], found[6])] == ["s 1", "s print", "s 2"]
    assert isinstance(found[5], Failed)


@pytest.mark.usefixtures("worth")
def test_no_process_is_left_when_nobody_takes_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the middle of a job."""
    started: list[subprocess.Popen[bytes]] = []  # this process may have others, of other tests
    popen = subprocess.Popen

    def start(*args: Any, **values: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*args, **values))
        return started[-1]

    monkeypatch.setattr(many, "ENDS_S", 0.01)
    monkeypatch.setattr(subprocess, "Popen", start)
    results = each(work, "s", [0, 60.0, 60.0], [1] * 3, processes=3)
    next(results)
    began = time.monotonic()
    results.close()
    assert time.monotonic() - began < 10
    assert len(started) == 3
    assert None not in {child.returncode for child in started}


def same(one: Summary, other: Summary) -> bool:
    mine, theirs = one.to_json(), other.to_json()
    assert mine == theirs
    return [list(row.calls) for row in one.timelines] == [list(row.calls) for row in other.timelines]


@pytest.mark.usefixtures("worth")
def test_a_run_read_in_processes_is_the_same(run_maker: Any, event: Any) -> None:
    """Every figure, problem and line, in the same order; files that cannot be read too."""
    for rank in range(4):
        key = run_maker.target(rank)
        for steps in ((2,), (3,)):
            run_maker.timeline(key, [event("actor/update", 10, 300 + 50 * rank)], steps=steps)
    (run_maker.directory / "broken.json").write_text("{")
    run_maker.artifact("broken.json", "torch", run_maker.manifest["targets"][1])
    run_maker.write()
    alone = summarise(run_maker.directory)
    assert any("broken.json" in line for line in alone.problems)
    assert len(alone.timelines) == 4
    assert same(alone, summarise(run_maker.directory, processes=3))


@pytest.mark.usefixtures("worth")
def test_single_files_read_in_processes_are_the_same(run_maker: Any, event: Any) -> None:
    """Two files of one process belong together, whoever read them."""
    key, other = run_maker.target(0), run_maker.target(1)
    for steps in ((2,), (3,)):
        run_maker.timeline(key, [event("actor/update", 10, 300)], steps=steps)
    run_maker.timeline(other, [event("actor/update", 10, 300)])
    paths = sorted(str(path) for path in run_maker.directory.rglob("*.json*"))
    assert len(paths) == 3
    alone = summarise_files(paths)
    assert same(alone, summarise_files(paths, processes=3))


def test_packed_rows_are_the_rows() -> None:
    """In any order of looking, and with equal texts once."""
    rows = [Stretch(f"p{n % 3}", "", ("a",) * (n % 2), "", n % 5 == 0, n % 4, n, n + 5, 0) for n in range(50)]
    packed = Packed(Stretch, 3)
    for row in rows:
        packed.append(row)
    assert list(packed) == rows
    assert len(packed) == 50
    assert packed[7] == rows[7]
    assert packed[-1] == rows[-1]
    assert packed[5:9] == rows[5:9]


def test_too_much_to_say_who_waited_is_said(run_maker: Any, event: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No straggler is named from half of the workers without a word."""
    for rank in range(2):
        calls = [event(f"p{n}", 10 * n, 5) for n in range(20 + 20 * rank)]
        run_maker.timeline(run_maker.target(rank), calls)
    run_maker.write()
    assert not any("worked out" in line for line in summarise(run_maker.directory).notices)
    monkeypatch.setattr(waits, "MAX_LEAVES", 30)
    summary = summarise(run_maker.directory)
    assert any("60 stretches" in line for line in summary.notices)
    assert summary.waits.steps == [StepTime(2, 1_000_000, True)]
    monkeypatch.setattr(waits, "MAX_LEAVES", 1000)
    monkeypatch.setattr(phases, "MAX_STRETCHES", 30)
    assert any("without ActorGroup/rank1:" in line for line in summarise(run_maker.directory).notices)


PROGRAM = """
import time
from accelprof.cli.progress import Bar
with Bar("reading", after_s={after}) as bar:
    for done in range(5):
        bar(done, 5)
        time.sleep(0.15)
    bar(5, 5)
"""


@pytest.mark.parametrize(("after", "terminal", "shown"), [(0.2, True, True), (60, True, False), (0, False, False)])
def test_a_bar_is_shown_on_a_terminal_when_it_takes_long(after: float, terminal: bool, shown: bool) -> None:
    """Nothing is written into a pipe, and nothing for what is soon done."""
    ours, theirs = pty.openpty() if terminal else os.pipe()
    done = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(after=after)], stderr=theirs, env={**os.environ, "TERM": "xterm"}
    )
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 4096):
            said += part
    except OSError:  # what a terminal says at its end
        pass
    os.close(ours)
    assert done.wait(30) == 0
    assert (b"reading" in said) is shown, said


def stretch(shared: object, seconds: float) -> tuple[int, float, float]:
    """When and in which process this ran."""
    began = time.monotonic()
    time.sleep(seconds)
    return os.getpid(), began, time.monotonic()


@pytest.mark.usefixtures("worth")
def test_processes_work_at_the_same_time() -> None:
    """As many jobs run at once as there are processes to be, and none runs here."""
    found: list[Any] = list(many.each(stretch, None, [0.3] * 8, [1] * 8, processes=2))
    pids = {pid for pid, _, _ in found}
    assert len(pids) == 2
    assert os.getpid() not in pids
    at_once = [sum(began < end and start < until for _, start, end in found) for _, began, until in found]
    assert max(at_once) >= 2


def threads(shared: None, job: int) -> int:
    import numpy

    assert numpy.ones(3).sum() == 3
    return len(os.listdir("/proc/self/task"))


@pytest.mark.usefixtures("worth")
def test_nobody_who_only_reads_has_a_thread_for_each_core() -> None:
    """numpy's library for matrices would start them, in each process, and keep them busy; the environment is left as it was."""
    assert list(many.each(threads, None, [0, 1], [1, 1], processes=2)) == [1, 1]
    code = (
        "import os, accelprof.environment as e; before = dict(os.environ); e.numpy_on_one_thread(); import numpy; "
        "print(len(os.listdir('/proc/self/task')), before == dict(os.environ))"
    )
    plain = {name: value for name, value in os.environ.items() if name not in ONE_THREAD}
    for said in ({}, {"OPENBLAS_NUM_THREADS": "2"}):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=plain | said, check=True
        )
        assert done.stdout.split() == ["1", "True"]


def test_packed_files_weigh_what_is_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred packed timelines of 200 kB are worth processes: they take as long as 200 MB."""
    assert many.weight("a.json", 5) == 5
    assert many.weight("a.json.gz", 5) == 5 * many.PACKED
    assert 100 * many.weight("w.trace.json.gz", 200_000) > many.WORTH
