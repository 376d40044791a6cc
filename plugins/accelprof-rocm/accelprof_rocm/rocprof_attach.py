"""Tool ``rocprofv3_attach``: ``rocprofv3 --attach`` to the worker for each window, which need not be known when the worker starts.

The worker is started as it is, with ``ROCP_TOOL_ATTACH=1``, which the runtime wants from the start (ROCm 7.1 on). When a window opens,
the worker starts the tool as a child of its own and lets that child trace it; when it closes, the tool is told to detach, and writes.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field

from accelprof.contracts.backend import Backend, Emitter
from accelprof.contracts.targets import ArtifactFile, Assignment, Expectation, Launch, Target, WindowInfo
from accelprof.contracts.tool import Tool, ToolContext, ToolOptions
from accelprof.errors import CaptureError, Problem
from accelprof_rocm import installation, releases
from accelprof_rocm.rocprofv3 import PATH, SUFFIX, Rocprofv3Options, Rocprofv3Tool

ATTACH_ENV = "ROCP_TOOL_ATTACH"
SINCE = (7, 1)
#: prctl: who may trace this process where the kernel lets only ancestors do it
PR_SET_PTRACER = 0x59616D61


class RocprofAttachOptions(Rocprofv3Options):
    """Those of ``rocprofv3``, and:

    Attributes:
        settle: seconds after its start in which the tool may attach, before the window counts as open.
        detach: seconds in which it may detach and write.
    """

    settle: float = Field(3.0, ge=0, le=600)
    detach: float = Field(300.0, gt=0, le=3600)


class RocprofAttachTool(Rocprofv3Tool):
    """See the module."""

    name: ClassVar[str] = "rocprofv3_attach"
    aliases: ClassVar[tuple[str, ...]] = ("rocprof_attach",)
    Options: ClassVar[type[ToolOptions]] = RocprofAttachOptions
    count: ClassVar[str] = "open"
    on_demand: ClassVar[bool] = True

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._running: subprocess.Popen[bytes] | None = None
        self._log = ""

    # --- on the driver ----------------------------------------------------------------------------------------------

    def trigger(self, target: Target) -> str:
        return "in_process"

    def check(self, assignments: Sequence[Assignment]) -> list[Problem]:
        problems = super().check(assignments)
        if self.release < SINCE:
            problems.append(
                Problem(
                    f"tools.{self.name}",
                    f"rocprofv3 of ROCm {releases.show(self.release)} cannot attach to a process",
                    allowed=f"ROCm {releases.show(SINCE)} and later",
                    mend="tool: rocprofv3",
                )
            )
        if self.options.windows != "auto":
            problems.append(
                Problem(f"{PATH}.windows", "windows decide when this tool is attached", value=self.options.windows, mend="leave it out")
            )  # fmt: skip
        return problems

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

    def emitter(self, backend: Backend) -> Emitter:
        return Emitter()

    def open(self, window: WindowInfo) -> None:
        if self.context is None:
            raise CaptureError("tool rocprofv3_attach was not attached to this session")
        directory, name = os.path.split(window.stem)
        argv = [
            installation.command(self.program), "--attach", str(os.getpid()), "-d", directory, "-o", name,
            *self._arguments(self.context.assignment),
        ]  # fmt: skip
        self._log = window.stem + ".attach.log"
        env = {key: value for key, value in os.environ.items() if key != ATTACH_ENV}
        try:
            with open(self._log, "wb") as log:
                running = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, env=env, start_new_session=True)  # fmt: skip
        except OSError as error:
            raise CaptureError(f"{self.program} --attach: {error}") from error
        _let_trace(running.pid)
        until = time.monotonic() + self.options.settle
        while time.monotonic() < until and running.poll() is None:
            time.sleep(0.02)
        if running.poll() is not None:
            raise CaptureError(f"{self.program} --attach ended with status {running.returncode}: {self._said()}")
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
            raise CaptureError(f"{self.program} --attach ended with status {running.returncode}: {self._said()}")
        found = [
            ArtifactFile(path, self.name, (window.id,), os.path.getsize(path))
            for kind in self.formats()
            if kind in SUFFIX
            for path in sorted(glob.glob(glob.escape(window.stem) + SUFFIX[kind]))
        ]
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

    def _said(self) -> str:
        try:
            with open(self._log, encoding="utf-8", errors="replace") as file:
                lines = [line.strip() for line in file.read()[-4000:].splitlines() if line.strip()]
        except OSError:
            lines = []
        return lines[-1][:300] if lines else "it said nothing"


def _let_trace(pid: int) -> None:
    """Let ``pid``, a child, trace this process; kernels with Yama let only ancestors do it by themselves."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PTRACER, pid, 0, 0, 0)
