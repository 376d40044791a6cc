"""torch_npu's own analysis of one directory, in a child process, judged by what it leaves.

``analyse()`` always returns ``None``, writes ``analyse.done`` even when every task failed, switches the start method of
multiprocessing for its whole process, and refuses to run in a daemon: none of that belongs in a worker.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from accelprof_ascend import directory

#: memory, not cores, is what analyses run out of; more than this many at a time on a node only when asked for
MOST_PROCESSES = 4
_CODE = """
import fcntl, inspect, os, sys, time
place, most = sys.argv[3], int(sys.argv[4])
held = None
while place and held is None:
    for number in range(most):
        slot = os.open(os.path.join(place, f"slot-{number}"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(slot)
        else:
            held = slot  # until this process and the pool it forks have ended, however they do
            break
    else:
        time.sleep(0.1)
from torch_npu.profiler.profiler import analyse
arguments = {"profiler_path": sys.argv[1], "max_process_number": 1}
known = inspect.signature(analyse).parameters
if "export_type" in known:
    arguments["export_type"] = sys.argv[2].split(",")
analyse(**{name: value for name, value in arguments.items() if name in known})
"""
#: without msprof, or when it fails, a trace of the host side is written all the same; these lines tell
_FAILED = re.compile(r"Task \[(\w+)\] run failed")
_ERROR = re.compile(r"\[ERROR\] \[\d+\] (?:[\w.]+: )?(.*)")
#: what a child must not inherit: a run's session, and what turns torch_npu's profiler or warnings off
_LEFT_OUT = ("ACCELPROF_", "PROFILER_SAMPLECONFIG", "PROFILING_MODE", "PROF_CONFIG_PATH", "MSMONITOR_USE_DAEMON")


@dataclass
class Outcome:
    """How one analysis went. ``reason`` is empty when the wanted files are there."""

    path: str
    reason: str = ""

    @property
    def done(self) -> bool:
        return not self.reason


def at_once() -> int:
    """How many analyses run at the same time on a node where nobody says: half as many as there are cores, four at most."""
    return min(MOST_PROCESSES, max(1, (os.cpu_count() or 2) // 2))


def slots() -> str:
    """A directory of this user's on this node whose locks count running analyses; empty where none can be had or trusted."""
    place = os.path.join(tempfile.gettempdir(), f"accelprof-analyses-{os.getuid()}")
    try:
        os.makedirs(place, mode=0o700, exist_ok=True)
        facts = os.lstat(place)
    except OSError:
        return ""
    return place if stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and not facts.st_mode & 0o022 else ""


class Analysis:
    """One running child. ``wait`` ends it and judges.

    Workers of one node each start theirs when a window closes: it waits for one of ``most`` places of the node before it loads
    anything, so that eight cards do not analyse in the memory of one at the same moment.
    """

    def __init__(
        self, path: str, exports: Sequence[str], environment: Mapping[str, str] | None = None, most: int | None = None
    ) -> None:
        """Start. ``most``: analyses at a time on this node; absent = :func:`at_once`.

        Raises:
            OSError: the child could not be started.
        """
        self.path, self.exports, self.began = path, tuple(exports), time.time()
        self._output: TextIO = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        environment = os.environ if environment is None else environment
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-c", _CODE, path, ",".join(exports), slots(), str(most or at_once())],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                env={name: value for name, value in environment.items() if not name.startswith(_LEFT_OUT)},
                start_new_session=True,  # a Ctrl-C for the training must not cut the files
            )
        except OSError:
            self._output.close()
            raise

    def wait(self, timeout: float | None = None) -> Outcome:
        """The outcome, after at most ``timeout`` seconds; a child that takes longer is killed."""
        try:
            status = self._child.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            return Outcome(self.path, f"not finished after {timeout:.0f} s, ended")
        with self._output:
            self._output.seek(0)
            text = self._output.read()
        return self._judge(status, text)

    def kill(self) -> None:
        """End the child and the pool it forked."""
        try:
            os.killpg(self._child.pid, 9)
        except ProcessLookupError:
            pass  # it had just ended
        self._child.wait()
        self._output.close()

    def _judge(self, status: int, text: str) -> Outcome:
        errors = list(dict.fromkeys(_ERROR.findall(text)))
        missing = [
            directory.RESULTS[export]
            for export in self.exports
            if not any(os.path.getmtime(file) >= self.began - 1 for file in directory.results(self.path, export))
        ]
        failed = _FAILED.findall(text)
        if status == 0 and not missing and not failed:
            return Outcome(self.path)
        what = f"parts failed ({', '.join(failed)})" if failed else ""
        what = f"{' and '.join(missing)} not written" if missing else what
        tail = [line.strip() for line in text.splitlines() if line.strip()]
        said = next((line for line in errors if "run failed" not in line), "") or (tail[-1] if tail and status else "")
        reason = ": ".join(part for part in (what or f"the child ended with status {status}", said) if part)
        directory.note_failure(self.path, reason)
        return Outcome(self.path, reason)
