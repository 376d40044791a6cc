"""Tool ``msprof``: CANN's ``msprof`` around the whole process, for what ``torch_npu.profiler`` cannot see.

It records from start to exit; windows only say where accelprof's ranges are emitted. Ranges of ``torch_npu.npu.mstx`` reach
it only through wheels that look at the configuration msprof leaves in the environment; with others they would be lost, and
that is refused.
"""

from __future__ import annotations

import functools
import glob
import mmap
import os
import re
import shutil
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from accelprof.contracts.backend import Probe
from accelprof.contracts.options import unique
from accelprof.contracts.sizes import size_of
from accelprof.contracts.spans import HostCalls, Trace
from accelprof.contracts.targets import WRAPPED_ENV, ArtifactFile, Assignment, Expectation, Launch, Target, WindowInfo
from accelprof.contracts.tool import Tool, ToolContext, ToolOptions, not_started_under
from accelprof.contracts.words import Count, TriggerCall
from accelprof.errors import Problem, ReadError
from accelprof.output.layout import Layout
from accelprof_ascend import vendor
from accelprof_ascend.backend import NpuBackend
from accelprof_ascend.trace_view import is_one as is_trace_view
from accelprof_ascend.trace_view import read_trace_view

#: what msprof sets in the application, and what a wheel must look at for its ranges to be recorded
CONFIG_ENV = "PROFILER_SAMPLECONFIG"
#: options that msprof has and accelprof gives from settings of its own
OWN = frozenset({"output", "msproftx", "mstx-domain-include", "mstx-domain-exclude", "application", "dynamic", "pid"})
DIRECTORY = re.compile(r"^PROF_\d+_\d+_[0-9a-zA-Z]+")


class MsprofOptions(ToolOptions):
    """``ranges``: accelprof's ranges go into the data. ``options``: further options of msprof, without dashes, for instance
    ``{aic-metrics: PipeUtilization, task-time: l1}``. ``command``: msprof itself."""

    command: str = "msprof"
    ranges: bool = True
    type: Literal["text", "db"] = "text"
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)
    mstx_domain_include: Annotated[tuple[str, ...], BeforeValidator(unique)] = Field(())
    mstx_domain_exclude: Annotated[tuple[str, ...], BeforeValidator(unique)] = Field(())


class MsprofTool(Tool):
    """See the module."""

    name: ClassVar[str] = "msprof"
    Options: ClassVar[type[ToolOptions]] = MsprofOptions
    count: ClassVar[Count] = "whole_process"
    exclusive: ClassVar[frozenset[str]] = frozenset({"cann"})
    on_demand: ClassVar[bool] = False
    accelerators: ClassVar[frozenset[str]] = frozenset({"npu"})
    host_calls: ClassVar[HostCalls] = vendor.CALLS

    def probe(self) -> Probe:
        path = shutil.which(self.options.command)
        if path is None:
            return Probe(None, f"{self.options.command} is not on PATH; source CANN's set_env.sh")
        return Probe(0, f"msprof at {path}", {"path": path, "ranges": wheel_passes_ranges()})

    def check(self, assignments: Sequence[Assignment]) -> list[Problem]:
        problems = [
            Problem(f"tools.msprof.options.{name}", "accelprof sets it itself", value=value, mend=_mend(name))
            for name, value in self.options.options.items()
            if name.lstrip("-") in OWN
        ]
        if self.options.ranges and wheel_passes_ranges() is False:
            said = f"torch_npu {vendor.installed()} sends no ranges to msprof: outside its own profiler it calls mstx only in wheels that read {CONFIG_ENV}"
            mend = "ranges: false to record without them, tool npu, or a newer torch_npu"
            problems.append(Problem("tools.msprof.ranges", said, value=True, mend=mend))
        return problems

    def trigger(self, target: Target) -> TriggerCall:
        return "none"

    def output(self, target: Target, directory: str) -> str:
        """Directory in which msprof makes ``PROF_*``; one for each target, since names of ``PROF_*`` hold none."""
        return os.path.join(directory, f"{Layout(directory).target_name(target)}-msprof")

    def launch(self, assignment: Assignment, directory: str) -> Launch:
        place = self.output(assignment.target, directory)
        argv = [self.options.command, f"--output={place}", f"--type={self.options.type}"]
        argv.append(f"--msproftx={'on' if self.options.ranges else 'off'}")
        for which in ("include", "exclude"):
            words = getattr(self.options, f"mstx_domain_{which}")
            if words and self.options.ranges:
                argv.append(f"--mstx-domain-{which}={','.join(words)}")
        argv += [f"--{name.lstrip('-')}={_value(value)}" for name, value in self.options.options.items()]
        note = "msprof records the whole process; steps only say where ranges are emitted"
        return Launch(
            mode="prefix",
            argv=tuple(argv),
            env={WRAPPED_ENV: self.name},
            make_dirs=(place,),
            preflight=(self.options.command, "--help"),
            notes=() if assignment.mode == "process" else (note,),
        )

    def expects(self, assignment: Assignment, directory: str) -> list[Expectation]:
        pattern = os.path.join(glob.escape(self.output(assignment.target, directory)), "PROF_*")
        return [Expectation(pattern, None, "process_exit")]

    # --- in the worker ----------------------------------------------------------------------------------------------

    def attach(self, context: ToolContext) -> None:
        super().attach(context)
        if not os.environ.get(CONFIG_ENV):
            raise not_started_under(f"msprof ({CONFIG_ENV} is not set)")
        if self.options.ranges and wheel_passes_ranges() is False:
            context.say(f"msprof: torch_npu {vendor.installed()} sends it no ranges; they will not be in the data")
        self._emitter = context.backend if isinstance(context.backend, NpuBackend) else NpuBackend()

    def open(self, window: WindowInfo) -> None:
        """Nothing to start: msprof records already."""

    def close(self, window: WindowInfo) -> list[ArtifactFile]:
        return []

    # --- afterwards -------------------------------------------------------------------------------------------------

    def match(self, files: Sequence[str], windows: Sequence[WindowInfo]) -> list[ArtifactFile]:
        """``PROF_*`` directories: each holds every window of its process."""
        ids = tuple(window.id for window in windows)
        return [
            ArtifactFile(path, self.name, ids, size_of(path))
            for path in files
            if DIRECTORY.match(os.path.basename(path.rstrip(os.sep)))
        ]

    @classmethod
    def can_read(cls, path: str) -> bool:
        name = os.path.basename(path.rstrip(os.sep))
        if os.path.isdir(path):
            return DIRECTORY.match(name) is not None
        if not name.startswith("msprof_"):
            return False
        from accelprof_ascend import database  # tables are loaded by who reads, not by training code

        return database.can_read(path) or is_trace_view(path, called=name.endswith(".json"))

    def read(self, path: str) -> Trace:
        """A ``PROF_*`` directory, or one of ``msprof_*.json`` and ``msprof_*.db`` in it.

        Raises:
            ReadError: not there, or msprof has not exported it.
        """
        if not os.path.isdir(path):
            from accelprof.reading import sqlite
            from accelprof.reading.gzipped import is_json
            from accelprof_ascend import database  # tables are loaded by who reads, not by training code

            database_file = (path.endswith(".db") and not is_json(path)) or sqlite.is_one(path)
            return database.read_database(path, self.name) if database_file else read_trace_view(path, self.name)
        below = glob.escape(path)
        found = [
            *sorted(glob.glob(os.path.join(below, "mindstudio_profiler_output", "msprof_*.json"))),
            *sorted(glob.glob(os.path.join(below, "msprof_*.db"))),
        ]
        if not found:
            raise ReadError(path, "not exported; `msprof --export=on --output=DIR` does it where CANN is installed")
        trace = self.read(found[-1])
        trace.source = path
        return trace


def _value(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _mend(name: str) -> str:
    words = {"msproftx": "tools.msprof.ranges", "mstx-domain-include": "tools.msprof.mstx_domain_include",
             "mstx-domain-exclude": "tools.msprof.mstx_domain_exclude", "output": "output_dir"}  # fmt: skip
    return f"use {words[name.lstrip('-')]}" if name.lstrip("-") in words else "leave it out"


@functools.cache
def wheel_passes_ranges() -> bool | None:
    """Whether the installed torch_npu calls mstx under msprof; ``None`` without torch_npu.

    The wheels that do hold the variable's name in their library; there is nothing to ask.
    """
    found = vendor.places()
    if not found:
        return None
    for place in found:
        for library in glob.glob(os.path.join(glob.escape(place), "lib", "libtorch_npu.so")):
            with open(library, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                if content.find(CONFIG_ENV.encode()) >= 0:
                    return True
    return False
