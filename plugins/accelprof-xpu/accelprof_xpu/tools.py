"""Tool ``vtune``: Intel VTune Profiler around the worker. Tool ``unitrace``: Intel's tracer of Level Zero and ITT, and its reader.

Both start paused where windows are planned, and each window resumes and pauses them through ITT.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from accelprof.contracts.spans import HostCalls, Trace
from accelprof.contracts.targets import Assignment
from accelprof_xpu.launching import IttTool
from accelprof_xpu.option_tables import UNITRACE, UNITRACE_SHORT, VTUNE, VTUNE_SHORT, Table

#: ``<application>.<pid>.json``, ``<application>.<pid>.<rank>.json`` under MPI
_NAME = re.compile(r"^.+?\.(\d+)(?:\.\d+)?\.json$")


class VtuneTool(IttTool):
    """A result directory for each process: ``@@@`` in its name is VTune's own counter, so that none is overwritten."""

    name: ClassVar[str] = "vtune"
    exclusive: ClassVar[frozenset[str]] = frozenset({"itt_collector"})
    program_name: ClassVar[str] = "vtune"
    table: ClassVar[Table] = VTUNE
    short: ClassVar[Mapping[str, str]] = VTUNE_SHORT
    separator: ClassVar[tuple[str, ...]] = ("--",)
    results: ClassVar[str] = "r[0-9][0-9][0-9]*"

    def fixed(self, assignment: Assignment, directory: str) -> dict[str, Any]:
        place = self.place(assignment.target, directory)
        return {
            "collect": "hotspots",
            "result-dir": os.path.join(place, "r@@@{at}"),
            "start-paused": not assignment.whole_process,
            "quiet": True,
        }

    @staticmethod
    def dashed(name: str) -> str:
        return f"-{name}"


class UnitraceTool(IttTool):
    """Kernels, host calls and ITT ranges in one file a process; with windows, ``--conditional-collection`` waits for ITT."""

    name: ClassVar[str] = "unitrace"
    exclusive: ClassVar[frozenset[str]] = frozenset({"itt_collector", "level_zero"})
    host_calls: ClassVar[HostCalls] = HostCalls(
        launches=r"^(?:ur|pi)Enqueue(?:Cooperative)?KernelLaunch|^zeCommandListAppendLaunch(?:Cooperative|Multiple)?Kernel"
        r"|EnqueueCommandBuffer|CommandBufferEnqueue",
    )
    program_name: ClassVar[str] = "unitrace"
    table: ClassVar[Table] = UNITRACE
    short: ClassVar[Mapping[str, str]] = UNITRACE_SHORT
    results: ClassVar[str] = "*.json"

    def fixed(self, assignment: Assignment, directory: str) -> dict[str, Any]:
        return {
            "chrome-kernel-logging": True,
            "chrome-itt-logging": True,
            "conditional-collection": not assignment.whole_process,
            "output-dir-path": self.place(assignment.target, directory),
        }

    def pid_of(self, path: str) -> str | None:
        match = _NAME.match(os.path.basename(path))
        return match[1] if match else None

    @classmethod
    def can_read(cls, path: str) -> bool:
        from accelprof_xpu.reader import is_unitrace

        return is_unitrace(path)

    def read(self, path: str) -> Trace:
        from accelprof_xpu.reader import read_unitrace

        return read_unitrace(path, self.name)
