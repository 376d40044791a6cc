"""Many files at once: pieces of work shared out over processes of this interpreter, results in their order.

Each process holds one piece at a time and ends with whoever started it, so that memory here follows the results alone.
One that dies of its piece (killed for its memory) is told from one whose piece failed, and the others go on. Processes
are plain children on pipes: nothing of the program that asks is run again in them, whatever its ``__main__`` is.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from accelprof.environment import ONE_THREAD
from accelprof.errors import failures, text_of

Job = TypeVar("Job")
Result = TypeVar("Result")
#: called with the bytes read so far and those of all pieces, some times a second
Progress = Callable[[int, int], None]
#: below this many bytes the processes would take longer to start than the files to read
WORTH = 32 << 20
#: bytes of memory for a byte of a file
MEMORY = 8
#: bytes that a byte of a gzip file comes to: traces are text that repeats itself
PACKED = 10
#: results that are ready and wait for an earlier one, for each process
AHEAD = 4
TICK_S = 0.2
#: how long a process that is not needed any more may take to see it, in the middle of a job
ENDS_S = 0.5
_CHILD = "import sys; sys.path[:] = {path!r}; from accelprof.analysis.many import serve; serve({read}, {write})"


@dataclass(frozen=True)
class Failed:
    """In place of a result: what went wrong with the job, or how the process that worked on it ended."""

    why: str


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def weight(path: str, size: int) -> int:
    """What reading a file of ``size`` bytes comes to, in bytes of one that is not packed."""
    return size * PACKED if path.endswith(".gz") else size


def each(
    work: Callable[[Any, Job], Result],
    shared: object,
    jobs: Sequence[Job],
    sizes: Sequence[int],
    *,
    processes: int = 1,
    progress: Progress | None = None,
) -> Iterator[Result | Failed]:
    """``work(shared, job)`` for each job, in their order; in this process where more would not be worth it.

    Args:
        work: a function of a module; with more than one process its arguments and result are pickled, ``shared`` once.
        sizes: :func:`weight` of each job's files, to share out the work and the memory.
        processes: at most so many, of which each takes one job at a time.
    """
    total, done = sum(sizes), 0
    processes = min(processes, len(jobs), _room(sizes))
    if processes < 2 or total < WORTH:
        for job, size in zip(jobs, sizes, strict=True):
            yield _done(work, shared, job)
            done += size
            if progress is not None:
                progress(done, total)
        return
    ready: dict[int, Result | Failed] = {}
    following = given = 0
    children = [_Child() for _ in range(processes)]
    try:
        while following < len(jobs):
            for child in children:
                if child.job < 0 and given < min(len(jobs), following + processes * AHEAD):
                    child.give(work, shared, jobs[given], given)
                    given += 1
            busy = [child for child in children if child.job >= 0]
            there = wait([child.answers for child in busy], TICK_S) if following not in ready else []
            for child in busy:
                if child.answers in there:
                    number = child.job
                    done += sizes[number]
                    ready[number] = child.take()
            if progress is not None:
                progress(done, total)
            if following in ready:
                following += 1
                yield ready.pop(following - 1)
    finally:
        for child in children:
            child.end()


def _room(sizes: Sequence[int]) -> int:
    """How many processes the memory that is free holds, each with the largest of the files."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            free = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return cores()
    return max(1, free // (max(sizes, default=0) * MEMORY + (64 << 20)))


def _done(work: Callable[[object, Job], Result], shared: object, job: Job) -> Result | Failed:
    try:
        return work(shared, job)
    except failures() as error:  # one job's; the others go on
        return Failed(text_of(error))


class _Child:
    """One process and its two pipes; ``job`` is the number of what it works on, below 0 without. It starts with its first."""

    def __init__(self) -> None:
        self.job = -1
        self._process: subprocess.Popen[bytes] | None = None
        self._jobs: Connection
        self.answers: Connection

    def _start(self, work: object, shared: object) -> None:
        reads, ours = os.pipe()
        answers, writes = os.pipe()
        self._jobs, self.answers = Connection(ours, readable=False), Connection(answers, writable=False)
        try:
            code = _CHILD.format(path=sys.path, read=reads, write=writes)
            self._process = subprocess.Popen(
                [sys.executable, "-c", code], pass_fds=(reads, writes), stdin=subprocess.DEVNULL,
                env={**os.environ, **ONE_THREAD},
            )  # fmt: skip
        finally:
            os.close(reads)
            os.close(writes)
        self._jobs.send((work, shared))

    def give(self, work: object, shared: object, job: object, number: int) -> None:
        """Have a job done; another process is started in place of one that died."""
        self.job = number
        try:
            if self._process is None:
                self._start(work, shared)
            self._jobs.send(job)
        except BrokenPipeError:
            pass  # it has ended, and its answer will be missing

    def take(self) -> Any:
        """The result of its job."""
        try:
            found = self.answers.recv()
        except (EOFError, OSError):
            found = Failed(f"the process that read it ended with {self.end()}")
        except failures() as error:  # of a plug-in's own type: its place in the results says so
            found = Failed(f"what came of it cannot be handed over: {text_of(error)}")
        self.job = -1
        return found

    def end(self) -> str:
        """End the process; with what it had ended."""
        process, self._process = self._process, None
        if process is None:
            return ""
        self._jobs.close()
        self.answers.close()
        try:
            status = process.wait(None if self.job < 0 else ENDS_S)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        return signal.Signals(-status).name if status < 0 else f"status {status}"


def _pickled(result: object) -> bytes:
    try:
        return pickle.dumps(result)
    except failures() as error:  # something of a plug-in's that no other process can have
        return pickle.dumps(Failed(f"what came of it cannot be handed over: {text_of(error)}"))


def serve(read: int, write: int) -> None:
    """What a process of :func:`each` does: answers jobs until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asked is interrupted too, and closes the pipes
    os.dup2(2, 1)
    jobs, answers = Connection(read, writable=False), Connection(write, readable=False)
    try:
        work, shared = jobs.recv()
        while True:
            answers.send_bytes(_pickled(_done(work, shared, jobs.recv())))
    except (EOFError, BrokenPipeError):
        return
