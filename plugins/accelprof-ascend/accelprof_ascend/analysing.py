"""torch_npu's own analysis of one directory, in a child process, judged by what it leaves.

``analyse()`` always returns ``None``, writes ``analyse.done`` even when every task failed, switches the start method of
multiprocessing for its whole process, and refuses to run in a daemon: none of that belongs in a worker.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from accelprof_ascend import directory

_CODE = """
import inspect, sys
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
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        return not self.reason


class Analysis:
    """One running child. ``wait`` ends it and judges."""

    def __init__(self, path: str, exports: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start.

        Raises:
            OSError: the child could not be started.
        """
        self.path, self.exports, self.began = path, tuple(exports), time.time()
        self._output: TextIO = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        environment = os.environ if environment is None else environment
        self._child = subprocess.Popen(
            [sys.executable, "-c", _CODE, path, ",".join(exports)],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env={name: value for name, value in environment.items() if not name.startswith(_LEFT_OUT)},
            start_new_session=True,  # a Ctrl-C for the training must not cut the files
        )

    def wait(self, timeout: float | None = None) -> Outcome:
        """The outcome, after at most ``timeout`` seconds; a child that takes longer is killed."""
        try:
            status = self._child.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            return Outcome(self.path, f"not finished after {timeout:.0f} s, ended", time.time() - self.began)
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

    def _judge(self, status: int, text: str) -> Outcome:
        seconds = time.time() - self.began
        errors = list(dict.fromkeys(_ERROR.findall(text)))
        missing = [
            directory.RESULTS[export]
            for export in self.exports
            if not any(os.path.getmtime(file) >= self.began - 1 for file in directory.results(self.path, export))
        ]
        failed = _FAILED.findall(text)
        if status == 0 and not missing and not failed:
            return Outcome(self.path, "", seconds, tuple(errors))
        what = (
            f"{' and '.join(missing)} not written"
            if missing
            else f"parts failed ({', '.join(failed)})"
            if failed
            else ""
        )
        tail = [line.strip() for line in text.splitlines() if line.strip()]
        said = next((line for line in errors if "run failed" not in line), "") or (tail[-1] if tail and status else "")
        reason = ": ".join(part for part in (what or f"the child ended with status {status}", said) if part)
        directory.note_failure(self.path, reason)
        return Outcome(self.path, reason, seconds, tuple(errors))
