"""Tools that attach to a running worker for each window, which need not be known when the worker starts: ``rocprofv3_attach`` is
``rocprofv3 --attach``, and ``rocprof_sys_attach`` is ``rocprof-sys-attach``.

The worker is started as it is, with ``ROCP_TOOL_ATTACH=1``, which the runtime wants from the start. When a window opens, the worker
starts the tool as a child of its own and lets that child trace it; when it closes, the tool is told to detach, and the files are written.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from pydantic import Field

from accelprof.contracts.options import Words
from accelprof.contracts.targets import ArtifactFile, Assignment, Expectation, Launch, Target, WindowInfo
from accelprof.contracts.tool import Tool, ToolContext, ToolOptions
from accelprof.contracts.words import TriggerCall
from accelprof.errors import CaptureError, Problem
from accelprof_rocm import installation, releases
from accelprof_rocm.releases import Release
from accelprof_rocm.rocprof import RocprofOptions, RocprofTool
from accelprof_rocm.rocprofv3 import SUFFIX, Rocprofv3Options, Rocprofv3Tool

ATTACH_ENV = "ROCP_TOOL_ATTACH"
#: ``rocprofv3`` waits for the worker's files before it ends
SYNC, SYNC_SINCE = "attach-sync-output", (7, 14)
#: prctl: who may trace this process where the kernel lets only ancestors do it
PR_SET_PTRACER = 0x59616D61
#: seconds in which a file that the worker itself writes may appear once the tool has ended
APPEAR_S = 10.0
#: formats of ``rocprof-sys-attach``: what its files are called, and what ends the names of ours
SYS_FORMATS = {"rocpd": ("rocpd-{pid}.db", ".db"), "perfetto": ("perfetto-trace-{pid}.proto", ".proto")}


class AttachOptions(RocprofOptions):
    """Of tools that attach.

    Attributes:
        settle: seconds after its start in which the tool may attach, before the window counts as open.
        detach: seconds in which it may detach and write.
    """

    settle: float = Field(3.0, ge=0, le=600)
    detach: float = Field(300.0, gt=0, le=3600)


class RocprofAttachOptions(AttachOptions, Rocprofv3Options):
    """Those of ``rocprofv3``, and those of tools that attach."""


class RocprofSysAttachOptions(AttachOptions):
    """Those of tools that attach, and:

    Attributes:
        format: ``rocpd``, ``perfetto``, or both.
    """

    format: Words = ("rocpd",)


class AttachingTool(RocprofTool):
    """See the module. Subclasses say how their tool is told to attach, and which files a window has left."""

    on_demand: ClassVar[bool] = True
    #: the first release that can attach, and what to take before it
    since: ClassVar[Release]
    before: ClassVar[str]

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._running: subprocess.Popen[bytes] | None = None
        self._log = ""

    def attaching(self, window: WindowInfo, assignment: Assignment) -> list[str]:
        """The command that attaches to this process."""
        raise NotImplementedError

    def left(self, window: WindowInfo) -> list[str]:
        """The files of a window that has closed."""
        raise NotImplementedError

    # --- on the driver ----------------------------------------------------------------------------------------------

    def trigger(self, target: Target) -> TriggerCall:
        return "in_process"

    def check(self, assignments: Sequence[Assignment]) -> list[Problem]:
        return [*super().check(assignments), *self._check_attaching(f"tools.{self.name}")]

    def _check_attaching(self, path: str) -> Iterator[Problem]:
        if self.release < self.since:
            said = f"{self.program} of ROCm {releases.show(self.release)} cannot attach to a process"
            allowed = f"ROCm {releases.show(self.since)} and later"
            yield Problem(path, said, allowed=allowed, mend=f"tool: {self.before}")
        if (windows := self.options.windows) != "auto":
            said = "windows decide when this tool is attached"
            yield Problem(f"{path}.windows", said, value=windows, mend="leave it out")

    def launch(self, assignment: Assignment, directory: str) -> Launch:
        return Launch(mode="env", env={ATTACH_ENV: "1", **self.options.env}, make_dirs=(directory,))

    def expects(self, assignment: Assignment, directory: str) -> list[Expectation]:
        return []  # each window hands its files over when it has closed

    # --- in the worker ----------------------------------------------------------------------------------------------

    def attach(self, context: ToolContext) -> None:
        Tool.attach(self, context)
        if os.environ.get(ATTACH_ENV) != "1":
            raise CaptureError(
                f"this process was started without {ATTACH_ENV}=1, so nothing can attach to it; start it through accelprof "
                f"(accelprof run, or the controller's options), or with that variable"
            )
        if installation.find(self.program) is None:
            raise CaptureError(f"{self.program} is not on PATH here, and a window is started through it")

    def open(self, window: WindowInfo) -> None:
        if self.context is None:
            raise CaptureError(f"tool {self.name} was not attached to this session")
        argv = self.attaching(window, self.context.assignment)
        self._log = window.stem + ".attach.log"
        env = {key: value for key, value in os.environ.items() if key != ATTACH_ENV}
        try:
            with open(self._log, "wb") as log:
                running = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, env=env, start_new_session=True)  # fmt: skip
        except OSError as error:
            raise CaptureError(f"{self.program}: {error}") from error
        _let_trace(running.pid)
        until = time.monotonic() + self.options.settle
        while time.monotonic() < until and running.poll() is None:
            time.sleep(0.02)
        if running.poll() is not None:
            _hang_up(running)
            raise CaptureError(f"{self.program} ended with status {running.returncode}: {self._said()}")
        self._running = running

    def close(self, window: WindowInfo) -> list[ArtifactFile]:
        running, self._running = self._running, None
        if running is None:
            return []
        try:
            self._detach(running)
        finally:
            if running.poll() is None:
                running.kill()
                running.wait()
        if running.returncode not in (0, -signal.SIGINT, 128 + signal.SIGINT):
            raise CaptureError(f"{self.program} ended with status {running.returncode}: {self._said()}")
        found = [ArtifactFile(path, self.name, (window.id,), os.path.getsize(path)) for path in self.left(window)]
        if not found:
            raise CaptureError(f"{self.program} left no file for {window.stem}: {self._said()}")
        with contextlib.suppress(OSError):
            os.unlink(self._log)
        return found

    def finalise(self, reason: str) -> list[ArtifactFile]:
        running, self._running = self._running, None
        if running is not None and running.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._detach(running)
        return []

    def _detach(self, running: subprocess.Popen[bytes]) -> None:
        """A line on its standard input is how it is told; where it no longer listens there, an interrupt."""
        try:
            running.communicate(b"\n", timeout=self.options.detach)
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGINT)
            try:
                running.wait(10)
            except subprocess.TimeoutExpired:
                raise CaptureError(
                    f"{self.program} did not detach within {self.options.detach:g} s (tools.{self.name}.detach)"
                ) from None
        finally:
            _hang_up(running)

    def _appeared(self, pattern: str) -> list[str]:
        """Files of ``pattern``: the worker itself writes them, maybe after the tool has ended."""
        until = time.monotonic() + min(APPEAR_S, self.options.detach)
        while not (found := sorted(glob.glob(pattern, recursive=True))) and time.monotonic() < until:
            time.sleep(0.05)
        return found

    def _said(self) -> str:
        try:
            with open(self._log, encoding="utf-8", errors="replace") as file:
                lines = [line.strip() for line in file.read()[-4000:].splitlines() if line.strip()]
        except OSError:
            lines = []
        return lines[-1][:300] if lines else "it said nothing"


def _hang_up(running: subprocess.Popen[bytes]) -> None:
    """Nothing more is said to it."""
    if running.stdin is not None:
        with contextlib.suppress(OSError):  # what it did not take is lost with it
            running.stdin.close()


class RocprofAttachTool(AttachingTool, Rocprofv3Tool):
    """``rocprofv3 --attach``, with the options of ``rocprofv3``."""

    name: ClassVar[str] = "rocprofv3_attach"
    aliases: ClassVar[tuple[str, ...]] = ("rocprof_attach",)
    Options: ClassVar[type[ToolOptions]] = RocprofAttachOptions
    since: ClassVar[Release] = (7, 1)
    before: ClassVar[str] = "rocprofv3"

    def attaching(self, window: WindowInfo, assignment: Assignment) -> list[str]:
        directory, name = os.path.split(window.stem)
        argv = [installation.command(self.program), "--attach", str(os.getpid()), "-d", directory, "-o", name]
        if self.release >= SYNC_SINCE and self._given(SYNC) is None:
            argv.append(f"--{SYNC}")
        return [*argv, *self._arguments(assignment)]

    def left(self, window: WindowInfo) -> list[str]:
        endings = [SUFFIX[kind] for kind in self.formats() if kind in SUFFIX]
        return [path for ending in endings for path in self._appeared(glob.escape(window.stem) + ending)]


class RocprofSysAttachTool(AttachingTool):
    """``rocprof-sys-attach``. What it was told when it attached first holds for all later windows of the process, so that the place is
    one for all, and a window's files get their names when it has closed."""

    name: ClassVar[str] = "rocprof_sys_attach"
    Options: ClassVar[type[ToolOptions]] = RocprofSysAttachOptions
    files_of: ClassVar[str] = "rocprof_sys"
    since: ClassVar[Release] = (7, 12)
    before: ClassVar[str] = "rocprof_sys"

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._place = ""

    @property
    def program(self) -> str:
        return str(self.options.program or "rocprof-sys-attach")

    def programs(self) -> Sequence[str]:
        return (self.program,)

    @property
    def pausable(self) -> bool:
        return False

    def _check_attaching(self, path: str) -> Iterator[Problem]:
        yield from super()._check_attaching(path)
        wrong = [word for word in self.options.format if word not in SYS_FORMATS]
        if wrong or not self.options.format:
            yield Problem(f"{path}.format", "no such format", value=wrong[:1] or [], allowed=", ".join(SYS_FORMATS))
        for key, given in (("args", self.options.args), ("flags", self.options.flags)):
            if given:
                said = f"{self.program} has no options of its own but format"
                yield Problem(f"{path}.{key}", said, value=given, mend="env: {ROCPROFSYS_...: ...}")

    def attaching(self, window: WindowInfo, assignment: Assignment) -> list[str]:
        self._place = self._place or f"{window.stem}.rocprof-sys"
        argv = [installation.command(self.program), "-p", str(os.getpid()), "-o", self._place]
        return [*argv, "-F", ",".join(self.options.format), *self.options.extra_args]

    def left(self, window: WindowInfo) -> list[str]:
        found = []
        for word in self.options.format:
            name, ending = SYS_FORMATS[word]
            for path in self._appeared(os.path.join(glob.escape(self._place), "**", name.format(pid=os.getpid())))[-1:]:
                os.replace(path, window.stem + ending)
                found.append(window.stem + ending)
        return found


def _let_trace(pid: int) -> None:
    """Let ``pid``, a child, trace this process; kernels with Yama let only ancestors do it by themselves."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PTRACER, pid, 0, 0, 0)
