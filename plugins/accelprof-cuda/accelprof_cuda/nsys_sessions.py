"""Tool ``nsys_session``: a worker started ready for Nsight Systems and recorded only when a window is asked for.

``nsys launch`` puts nsys's libraries into the process and collects nothing; a window is ``nsys start`` … ``nsys stop`` on the
process's own session. So any number of windows may come, planned or on demand (``accelprof window open``), without a restart
and without a number at launch; each report is there when its window has closed. That costs what starting and stopping a
collection costs, once a window (half a second and two seconds on a small machine).
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from typing import Any, ClassVar

from accelprof.contracts.targets import LAUNCH_ENV, ArtifactFile, Assignment, Expectation, Launch, Target, WindowInfo
from accelprof.contracts.tool import ToolContext, not_started_under
from accelprof.contracts.words import Count, TriggerCall
from accelprof.errors import CaptureError, Problem
from accelprof.launch.command import render
from accelprof.output.layout import Layout
from accelprof_cuda import installation
from accelprof_cuda.nsys import NsysTool, hide_cuda_injection
from accelprof_cuda.nsys_files import REPORT

#: name of the process's nsys session, set at launch
SESSION_ENV = "ACCELPROF_NSYS_SESSION"
#: options of ``nsys start``, by its help; all others are the application's and go to ``nsys launch``
AT_START = frozenset(
    {
        "backtrace", "cpu-core-events", "cpu-core-metrics", "cpu-socket-events", "cpu-socket-metrics", "cpuctxsw",
        "event-sample", "event-sampling-frequency", "event-sampling-interval", "export", "force-overwrite", "ftrace",
        "ftrace-keep-user-config", "gpu-metrics-device", "gpu-metrics-devices", "gpu-metrics-frequency", "gpu-metrics-set",
        "gpuctxsw", "ib-switch-metrics-devices", "isr", "nic-metrics", "os-events", "sample", "samples-per-backtrace",
        "sampling-frequency", "sampling-period", "sampling-trigger", "soc-metrics", "soc-metrics-frequency",
        "soc-metrics-set", "stats", "stop-on-exit", "storage-metrics", "xhv-trace", "xhv-trace-events",
    }
)  # fmt: skip
#: options by which nsys itself would decide when to collect, or under which name
OURS = frozenset(
    {
        "capture-range", "capture-range-end", "nvtx-capture", "delay", "duration", "duration-frames", "start-frame-index",
        "start-later", "hotkey-capture", "kill", "output", "session-new", "command-file",
    }
)  # fmt: skip
#: seconds; starting is quick, and writing a large report takes long
START_TIMEOUT, STOP_TIMEOUT = 60.0, 300.0


class NsysSessionTool(NsysTool):
    """See the module. Options are those of ``nsys``."""

    name: ClassVar[str] = "nsys_session"
    aliases: ClassVar[tuple[str, ...]] = ("nsys_attach",)
    count: ClassVar[Count] = "open"
    on_demand: ClassVar[bool] = True

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._named = ""

    # --- on the driver ----------------------------------------------------------------------------------------------

    def trigger(self, target: Target) -> TriggerCall:
        return "pause"  # nothing is collected until ``nsys start``

    def check(self, assignments: Sequence[Assignment]) -> list[Problem]:
        given, said = self.options.arguments(), "windows decide when this tool collects, and where its reports lie"
        mend, path = "leave it out, or take tool nsys", f"tools.{self.name}"
        return [Problem(f"{path}.{name}", said, value=given[name], mend=mend) for name in sorted(OURS & given.keys())]

    def session_name(self, target: Target, directory: str) -> str:
        """The same for one worker that is started again, and another for every other of the run: letters and digits."""
        name = Layout(directory).target_name(target) + directory
        return f"ap{hashlib.sha256(name.encode()).hexdigest()[:12]}"

    def _options(self, at_start: bool) -> list[str]:
        given = {name: value for name, value in self.options.arguments().items() if (name in AT_START) == at_start}
        return render({"t" if name == "trace" else name: value for name, value in given.items()}, [])

    def launch(self, assignment: Assignment, directory: str) -> Launch:
        name, flags = self.session_name(assignment.target, directory), [f"--{flag}" for flag in self.options.flags]
        program = (installation.command(self.options.nsys), "launch", f"--session-new={name}")
        argv = (*program, *self._options(False), *flags, *self.options.extra_args)
        notes = () if assignment.target.rank is not None else (
            "nsys_session: one session for each rank; workers whose rank is not known here would share one",
        )  # fmt: skip
        return Launch(mode="prefix", argv=argv, env={SESSION_ENV: name}, make_dirs=(directory,), notes=notes)

    def expects(self, assignment: Assignment, directory: str) -> list[Expectation]:
        return []  # each window hands its report over when it has closed

    # --- in the worker ----------------------------------------------------------------------------------------------

    def attach(self, context: ToolContext) -> None:
        self.context = context
        self._named = os.environ.get(SESSION_ENV, "")
        if installation.session_here() is None or not self._named:
            raise not_started_under("nsys launch")
        if os.environ.get(LAUNCH_ENV) == "shared":
            raise CaptureError(
                "several selected processes share this nsys; give each its own (accelprof run under torchrun)"
            )
        if installation.find(self.options.nsys) is None:
            raise CaptureError(f"{self.options.nsys} is not on PATH here, and a window is started through it")
        self._use_ranges(context)

    def open(self, window: WindowInfo) -> None:
        stem = window.stem
        self._nsys("start", "-o", stem, *self._options(True), timeout=START_TIMEOUT)
        self._begin_mark()
        if self._hides:
            hide_cuda_injection()

    def close(self, window: WindowInfo) -> list[ArtifactFile]:
        self._end_mark()
        self._nsys("stop", timeout=STOP_TIMEOUT)
        path = window.stem + REPORT
        if not os.path.isfile(path):
            raise CaptureError(f"nsys stop left no {path}")
        return [ArtifactFile(path, self.name, (window.id,), os.path.getsize(path))]

    def finalise(self, reason: str) -> list[ArtifactFile]:
        return []

    def _nsys(self, command: str, *arguments: str, timeout: float) -> None:
        program = installation.find(self.options.nsys) or self.options.nsys
        try:
            done = installation.run([program, command, f"--session={self._named}", *arguments], timeout)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CaptureError(f"nsys {command}: {error}") from error
        if done.returncode != 0:
            raise CaptureError(f"nsys {command} ended with status {done.returncode}: {installation.last_line(done)}")
