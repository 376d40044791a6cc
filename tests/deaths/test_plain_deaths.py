"""How plain processes, jobs of several and `accelprof run` end: one test a row of docs/reliability.md."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from accelprof.analysis.run import open_run

WORKER = str(Path(__file__).parent / "worker.py")
AT_ONCE = 3


@dataclass(frozen=True)
class Row:
    """One way to end, and what is promised of it.

    Attributes:
        status: the process's own exit status, as without a profiler.
        closed: steps of the windows that were closed.
        lacks: codes of what is said to be missing.
        send: a signal that it gets from outside as soon as it says ``writing``, or ``hung``.
        prefix: what the command is started by.
        small: it runs on a file system of 256 KiB.
        halves: files that stay half written, because nothing of the process ran any more.
    """

    how: str
    status: int
    closed: tuple[int, ...] = (1, 2, 3)
    lacks: tuple[str, ...] = ()
    send: int | None = None
    prefix: tuple[str, ...] = ()
    small: bool = False
    halves: int = 0
    id: str = ""

    @property
    def name(self) -> str:
        return self.id or self.how


RUN = (sys.executable, "-m", "accelprof", "run", "-c", "c.yaml", "--no-table", "--")
#: a script that goes on when the process is gone, and succeeds
SHELL = (*RUN, "sh", "-c", '"$@"; true', "sh")
#: the process ended in order before the step of its last window came
LATER = ("never_opened",)
#: it ended inside window 2, and said nothing
KILLED = ("never_opened", "window_open")
ROWS = [
    Row("nothing", 0),
    Row("exit", 3, (1, 2), LATER),
    Row("exception", 1, (1, 2), LATER),
    Row("SIGTERM", -signal.SIGTERM, (1, 2), LATER),
    Row("SIGHUP", -signal.SIGHUP, (1, 2), LATER),
    Row("SIGTERM ignored", 0),
    Row("SIGHUP ignored", 0),
    Row("SIGINT", -signal.SIGINT, (1, 2), LATER),
    Row("SIGABRT", -signal.SIGABRT, (1,), KILLED),
    Row("out of memory", 1, (1, 2), LATER),
    Row("os._exit", 5, (1,), KILLED),
    Row("os._exit between windows", 5, (1, 2), LATER),
    Row("os._exit at exit", 7, (1, 2), LATER),
    Row("a thread goes on", 3, (1, 2), LATER),
    Row("descriptors closed", 0),
    Row("working directory removed", 0),
    Row("SIGKILL", -signal.SIGKILL, (1,), KILLED),
    Row("hung in C", -signal.SIGKILL, (1,), KILLED, send=signal.SIGKILL),
    Row("killed while writing", -signal.SIGKILL, (1,), KILLED, send=signal.SIGKILL),
    Row("killed between windows", -signal.SIGKILL, (1, 2), LATER),
    Row("ended while writing", -signal.SIGTERM, (1, 2), LATER, send=signal.SIGTERM),
    Row("ended twice while writing", -signal.SIGTERM, (1, 2), LATER, send=signal.SIGTERM),
    Row("killed in the manifest", -signal.SIGKILL, (1, 2, 3), halves=1),
    Row("os.execv", 6, (1,), KILLED),
    Row("fork while writing", 0),
    Row("pool terminated", 0),
    Row("fork and _exit", 0),
    Row("fork and exit", 0),
    Row("multiprocessing fork", 0),
    Row("multiprocessing spawn", 0),
    Row("multiprocessing forkserver", 0),
    Row("sessions of fork", 0),
    Row("sessions of spawn", 0),
    Row("sessions of forkserver", 0),
    Row("directory removed inside", 0, lacks=("file_missing", "file_missing")),
    Row("directory removed after", 0, lacks=("file_missing",) * 6),
    Row("disk full from the start", 0, (), ("nothing",), small=True),
    Row("disk full inside", 0, (1, 2), ("window_failed",) * 2, small=True),
    Row("disk full inside, freed", 0, lacks=("window_failed",) * 2, small=True),
    Row("nothing", 0, prefix=RUN, id="run: nothing"),
    Row("exit", 3, (1, 2), LATER, prefix=RUN, id="run: exit"),
    Row("SIGTERM", 128 + signal.SIGTERM, (1, 2), LATER, prefix=RUN, id="run: SIGTERM"),
    Row("SIGHUP", 128 + signal.SIGHUP, (1, 2), LATER, prefix=RUN, id="run: SIGHUP"),
    Row("SIGKILL", 128 + signal.SIGKILL, (1,), KILLED, prefix=RUN, id="run: SIGKILL"),
    Row("os._exit", 5, (1,), KILLED, prefix=RUN, id="run: os._exit"),
    Row("killed between windows", 128 + signal.SIGKILL, (1, 2), LATER, prefix=RUN, id="run: killed between windows"),
    Row("killed between windows", 1, (1, 2), LATER, prefix=SHELL, id="run: killed between windows in a script"),
]


@dataclass
class Ended:
    """What a process left."""

    status: int
    said: str
    directory: Path
    skipped: str = ""
    entries: list[str] = field(default_factory=list)


def play(row: Row, directory: Path) -> Ended:
    directory.mkdir()
    place = directory / "o"
    if row.small:
        place.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            return Ended(0, "", directory, "mounting a tmpfs is not allowed here")
    (directory / "c.yaml").write_text("steps: [1, 2, 3]\nmerge_steps: false\noutput_dir: o\nrun: r\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ACCELPROF_")}
    command = [*row.prefix, sys.executable, WORKER, row.how, "o"]
    with subprocess.Popen(
        command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        said: list[str] = []
        try:
            assert process.stdout is not None
            if row.send is not None:
                said = list(_until(process.stdout, ("writing\n", "hung\n")))
                time.sleep(0.2)
                process.send_signal(row.send)
                if row.how.startswith("ended twice"):
                    time.sleep(0.2)
                    process.send_signal(row.send)
            said.append(process.communicate(timeout=120)[0])
        finally:
            process.kill()
    return Ended(process.returncode, "".join(said), directory)


def _until(lines: Any, wanted: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield line
        if line in wanted:
            return


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Ended]]]:
    """Every row is played once, a few at a time."""
    place = tmp_path_factory.mktemp("deaths")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {row.name: pool.submit(play, row, place / f"{number}") for number, row in enumerate(ROWS)}
        pool.shutdown(cancel_futures=True)
    for number, row in enumerate(ROWS):
        if row.small:
            subprocess.run(["umount", str(place / f"{number}" / "o")], capture_output=True, check=False)


def odd_entries(directory: Path) -> list[str]:
    """What nobody should leave: halves of files, sockets, pipes, and children that live on."""
    found = []
    for path in directory.rglob("*"):
        mode = path.lstat().st_mode
        half = path.name.endswith((".part", ".tmp")) or path.name.startswith(".manifest-")
        if half or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            found.append(str(path.relative_to(directory)))
    return found


def living(directory: Path) -> list[str]:
    """Processes whose working directory is the row's own."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(place / "cwd") == str(directory):
                found.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_how_a_process_ends(row: Row, ended: dict[str, Future[Ended]]) -> None:
    """Its own outcome is as without a profiler; every window is there or named; nothing else is left."""
    outcome = ended[row.name].result()
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert outcome.status == row.status, outcome.said
    assert living(outcome.directory) == []
    if row.closed or row.lacks != ("nothing",):
        run = open_run(outcome.directory / "o" / "r")
        windows = sorted(run.manifest.windows.values(), key=lambda window: window.sequence)
        assert tuple(window.steps[0] for window in windows if window.closed is not None) == row.closed
        codes = tuple(lack.code for lack in run.lacks)
        if row.how == "disk full inside":  # the journal's last page may have room for the line that opens window 3
            assert codes in ((*LATER, *row.lacks), (*row.lacks, "window_open"))
        else:
            assert codes == row.lacks
        assert len(run.manifest.targets) == 1
        whole = [file for file in run.files() if not file.skip]
        each = 1 if row.prefix else 2
        unwritten = [code for code in row.lacks if code not in ("window_open", *LATER)]
        assert len(whole) == each * len(row.closed) - len(unwritten)
    else:
        assert "nothing is recorded" in outcome.said or "cannot be made" in outcome.said
    halves = odd_entries(outcome.directory)
    assert len(halves) == row.halves, halves
    if row.halves:  # found and said by whoever reads the run
        said = subprocess.run(
            [sys.executable, "-m", "accelprof", "report", "--no-html", "o/r"], cwd=outcome.directory, capture_output=True, text=True,
        )  # fmt: skip
        assert os.path.basename(halves[0]) in "".join((said.stdout + said.stderr).split())


def test_every_row_is_promised_in_the_documentation() -> None:
    """docs/reliability.md names each row, and no row that is not tried."""
    page = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text(encoding="utf-8")
    table = page.partition("## Plain processes")[2].partition("\n## ")[0]
    named = [line.split("|")[1].strip().strip("`") for line in table.splitlines() if line.startswith("| ")][2:]
    assert named == [row.name for row in ROWS]


#: how rank 0 of two ends (or the launcher is ended) -> its exit status, closed windows of rank 0 and of rank 1, what is named
TORCHRUN_ROWS: dict[str, tuple[int, tuple[int, ...], tuple[int, ...], list[str]]] = {
    "nothing": (0, (1, 2, 3), (1, 2, 3), []),
    "exit": (1, (1, 2), (1, 2), [*LATER, *LATER]),
    "exception": (1, (1, 2), (1, 2), [*LATER, *LATER]),
    "SIGTERM": (1, (1, 2), (1, 2), [*LATER, *LATER]),
    "SIGKILL": (1, (1,), (1, 2), [*KILLED, *LATER]),
    "os._exit": (1, (1,), (1, 2), [*KILLED, *LATER]),
    "killed between windows": (1, (1, 2), (1, 2), [*LATER, *LATER]),
    "directory removed inside": (0, (1, 2, 3), (1, 2, 3), ["file_missing"] * 4),
    "launcher: SIGTERM": (1, (1, 2), (1, 2), [*LATER, *LATER]),
}


def torchrun(how: str, place: Path) -> tuple[int, str]:
    """Exit status of the job, and what it said."""
    place.mkdir()
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", WORKER]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ACCELPROF_")}
    command = [*launcher, "wait" if how.startswith("launcher") else how, "o"]
    with subprocess.Popen(
        command, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        said: list[str] = []
        try:
            if how.startswith("launcher"):
                assert process.stdout is not None
                said = [*_until(process.stdout, ("waiting\n",)), *_until(process.stdout, ("waiting\n",))]
                process.send_signal(signal.SIGTERM)
            said.append(process.communicate(timeout=120)[0])
        finally:
            process.kill()
    return process.returncode, "".join(said)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Future[tuple[int, str]], Path]]]:
    """Every job is played once, two at a time."""
    place = tmp_path_factory.mktemp("torchrun")
    with ThreadPoolExecutor(2) as pool:
        places = {how: place / f"{number}" for number, how in enumerate(TORCHRUN_ROWS)}
        yield {how: (pool.submit(torchrun, how, path), path) for how, path in places.items()}
        pool.shutdown(cancel_futures=True)


@pytest.mark.torch
@pytest.mark.parametrize("how", TORCHRUN_ROWS)
def test_how_a_torchrun_job_ends(how: str, request: pytest.FixtureRequest) -> None:
    """torchrun ends the other rank, which closes its window; its exit status is its own, and what is lost is named."""
    pytest.importorskip("torch", reason="torch is not installed")
    status, first, second, codes = TORCHRUN_ROWS[how]
    job, place = request.getfixturevalue("jobs")[how]
    returned, said = job.result()
    assert returned == status, said
    assert living(place) == []
    run = open_run(place / "o" / "r")
    closed: dict[int | None, list[int]] = {0: [], 1: []}
    for window in sorted(run.manifest.windows.values(), key=lambda window: window.sequence):
        if window.closed is not None:
            closed[run.workers[window.target].rank].append(window.steps[0])
    assert (tuple(closed[0]), tuple(closed[1])) == (first, second)
    assert [lack.code for lack in run.lacks] == codes
    assert odd_entries(place) == []


def test_every_torchrun_row_is_promised_in_the_documentation() -> None:
    """The table of torchrun names each row, and no row that is not tried."""
    page = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text(encoding="utf-8")
    table = page.partition("## torchrun")[2].partition("\n## ")[0]
    named = [line.split("|")[1].strip().strip("`") for line in table.splitlines() if line.startswith("| ")][2:]
    assert named == list(TORCHRUN_ROWS)
