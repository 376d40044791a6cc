"""What ``rocprof_sys`` and ``rocprofv3`` share: they wrap the worker, may be paused from inside, and write at exit only."""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from accelprof.contracts.backend import Emitter, Probe
from accelprof.contracts.options import Words
from accelprof.contracts.spans import HostCalls, Trace
from accelprof.contracts.targets import WRAPPED_ENV, ArtifactFile, Assignment, Target, WindowInfo
from accelprof.contracts.tool import Tool, ToolContext, ToolOptions, not_started_under
from accelprof.contracts.words import Count, TriggerCall
from accelprof.errors import CaptureError, ConfigError, Problem
from accelprof.launch.command import render_value
from accelprof.output.layout import Layout, safe
from accelprof_rocm import arguments, artifacts, installation, releases, roctx, vendor
from accelprof_rocm.children import leave_alone
from accelprof_rocm.ranges import OverlappingRanges, RoctxRanges
from accelprof_rocm.releases import Release

#: marks around every window; readers cut a recording of the whole process by them
WINDOW_MARK = "accelprof window {which} {id}"
#: what the tools would replace in a path: ``%pid%``, ``%p``, ``%env{NAME}%``
PATH_KEYS = re.compile(r"%(env\{|cfg\{|arg\d*|[a-z_]+%|[prjsmh](?![A-Za-z_]))")
SCRATCH = "d=$(mktemp -d) || exit 73; trap 'rm -rf \"$d\"' EXIT; "


def _release_text(value: object) -> object:
    if value is None:
        return value
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is a number, and 7.1 and 7.10 would be the same; write it in quotes")
    releases.parse(value)
    return value


def _env(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    return {str(name): render_value(item) for name, item in value.items() if item is not None}


TRUE = frozenset({"1", "true", "on", "yes", "y", "t"})
FALSE = frozenset({"0", "false", "off", "no", "n", "f"})


class RocprofOptions(ToolOptions):
    """What users write under ``tools.rocprof_sys`` and ``tools.rocprofv3``.

    Attributes:
        args: options with values, ``{T: true, output-format: [csv, json]}``.
        flags: options without.
        env: environment of the worker; wins over ours.
        extra_args: passed on as they are, for options that this version does not know.
        rocm: release of ROCm on the workers (``"7.0"``, in quotes); else that of the tool found here, else 7.0.
        program: the launcher to start, where it is not the release's own.
        windows: ``auto`` (pause and resume where the release can), ``pause`` (ask for it), ``whole`` (record all, cut when read).
        preflight: whether the launcher is tried once on each node before workers start.
        children: ``leave`` (processes that a worker starts are not recorded) or ``follow``.
    """

    args: dict[str, Any] = Field(default_factory=dict)
    flags: Words = ()
    env: Annotated[dict[str, str], BeforeValidator(_env)] = Field(default_factory=dict)
    extra_args: Words = ()
    rocm: Annotated[str | None, BeforeValidator(_release_text)] = None
    program: str | None = Field(None, min_length=1)
    windows: Literal["auto", "pause", "whole"] = "auto"
    preflight: bool = True
    children: Literal["leave", "follow"] = "leave"


class RocprofTool(Tool):
    """See the module. Subclasses name their program, and say whether windows can be paused and which ranges are safe."""

    Options: ClassVar[type[ToolOptions]] = RocprofOptions
    count: ClassVar[Count] = "open"
    #: torch's profiler claims the device's tracing interface as ``cupti`` on every accelerator
    exclusive: ClassVar[frozenset[str]] = frozenset({"rocprofiler", "cupti"})
    accelerators: ClassVar[frozenset[str]] = frozenset({"rocm"})
    host_calls: ClassVar[HostCalls] = HostCalls(
        launches=r"^hip(?:\w*Launch(?:Cooperative|Multi)?Kernel|GraphLaunch|LaunchByPtr)",
        capture_begins=r"^hipStreamBeginCapture",
        capture_ends=r"^hipStreamEndCapture",
    )

    def __init__(self, options: ToolOptions | Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        self._library: roctx.Library | None = None
        self._emitter = Emitter()
        self._paused = False
        self._opened: list[WindowInfo] = []

    # --- what subclasses say ----------------------------------------------------------------------------------------

    #: whose files these are, as :data:`readers.FORMATS` has it
    files_of: ClassVar[str]

    @property
    def program(self) -> str:
        """The launcher's name."""
        raise NotImplementedError

    @property
    def pausable(self) -> bool:
        """Whether this release can be paused and resumed from inside."""
        raise NotImplementedError

    @property
    def legacy(self) -> bool:
        """Whether this release listens to roctracer's ``libroctx64`` only."""
        return False

    @property
    def overlapping(self) -> bool:
        """Whether this release keeps ranges by id that overlap."""
        return False

    def started_under(self) -> bool:
        """Whether this process shows that it was started under the tool."""
        raise NotImplementedError

    def waits_paused(self) -> bool:
        """Whether this process was started so that recording waits for :meth:`resume`."""
        raise NotImplementedError

    def opener(self, library: roctx.Library) -> str:
        """The functions that ``library`` lacks to start and stop recording; empty when it has them."""
        return "roctxProfilerResume" if library.resume is None or library.pause is None else ""

    def resume(self, library: roctx.Library) -> None:
        """Start recording, where :meth:`waits_paused`.

        Raises:
            CaptureError: the library refuses.
        """
        status = library.resume(0) if library.resume is not None else 0
        if status != 0:
            raise CaptureError(f"roctxProfilerResume(0) answered {status}")

    def pause(self, library: roctx.Library) -> None:
        """Stop recording again; the same errors."""
        status = library.pause(0) if library.pause is not None else 0
        if status != 0:
            raise CaptureError(f"roctxProfilerPause(0) answered {status}")

    # --- on the driver ----------------------------------------------------------------------------------------------

    @classmethod
    def normalise(cls, options: Mapping[str, Any]) -> Mapping[str, object]:
        return {str(name).replace("-", "_"): value for name, value in options.items()}

    def meaning(self) -> Mapping[str, Any]:
        """What a worker is started with: each argument and setting under one name, with what is given where nothing is chosen."""
        env = {name: text.strip() for name, text in {**self.defaults(), **self.options.env}.items()}
        return {
            **super().meaning(),
            "args": {**arguments.meaning(self.options.args, self.options.flags, self.known)},
            "flags": (),
            "env": {
                name: "true" if text.lower() in TRUE else text.lower() if text.lower() in FALSE else text
                for name, text in env.items()
            },
            "rocm": self.release,
            "program": self.program,
            "windows": "whole" if self.options.windows == "auto" and not self.pausable else self.options.windows,
        }

    def defaults(self) -> dict[str, str]:
        """The settings that every worker is given, and that the user's own replace."""
        return {}

    @property
    def known(self) -> arguments.Known:
        """The options of :attr:`program`; of a tool that takes none there are none."""
        return arguments.Known(self.program, {}, self.release)

    @property
    def release(self) -> Release:
        """The release whose rules hold: stated, of the tool that is installed here, or assumed."""
        return self.known_release or releases.ASSUMED

    @property
    def known_release(self) -> Release | None:
        if self.options.rocm is not None:
            return releases.parse(self.options.rocm)
        for program in self.programs():
            path = installation.find(program)
            if path is not None:
                return installation.release_of(path)
        return None

    def help_options(self, env: Mapping[str, str] | None = None) -> dict[str, str]:
        """What the help of the installed launcher shows, when it is of the release that is meant; empty otherwise.

        A worker does not ask: it was started already, and would start the launcher under the tool.
        """
        path = installation.find(self.program) if self.context is None else None
        if path is None or (self.options.rocm is not None and installation.release_of(path) != self.release):
            return {}
        return installation.options_of(path, env)

    def programs(self) -> Sequence[str]:
        """Names under which the launcher may be installed, newest first."""
        return (self.options.program,) if self.options.program else ()

    def probe(self) -> Probe:
        path = installation.find(self.program)
        if path is None:
            return Probe(None, f"{self.program} is not on PATH and in no ROCm installation of this machine")
        release = installation.release_of(path)
        text = f"ROCm {releases.show(release)}" if release else "its release is not known"
        return Probe(0, f"{self.program} at {path} ({text})", {"path": path, "release": release})

    def trigger(self, target: Target) -> TriggerCall:
        return "pause" if self.pausable and self.options.windows != "whole" else "none"

    def trigger_of(self, assignment: Assignment) -> TriggerCall:
        """``none`` when the whole life of the process is one capture, else :meth:`trigger`."""
        whole = assignment.whole_process and self.options.windows != "pause"
        return "none" if whole else self.trigger(assignment.target)

    def notes(self, assignment: Assignment) -> list[str]:
        """What the user should know about this launch."""
        notes, release = [], f"ROCm {releases.show(self.release)}"
        if self.known_release is None:
            unknown = f"{self.program} is not installed here and no release is stated (tools.{self.name}.rocm)"
            notes.append(f"{unknown}; the rules of {release} are taken")
        if self.trigger_of(assignment) == "none" and assignment.mode != "process":
            why = ", as asked (windows: whole)" if self.pausable else f"; {release} cannot be paused"
            notes.append(f"recorded from start to exit and cut by its windows when read{why}")
        notes.append("files are written when the worker ends in order, not after ray.kill")
        return [f"{self.name}: {note}" for note in notes]

    def check_windows(self) -> list[Problem]:
        if self.options.windows != "pause" or self.pausable:
            return []
        said = f"{self.program} of ROCm {releases.show(self.release)} cannot be paused from inside"
        mend = "windows: auto; the whole process is then recorded and cut by its windows when read"
        return [Problem(f"tools.{self.name}.windows", said, value="pause", allowed="auto, whole", mend=mend)]

    def file_name(self, target: Target, directory: str) -> str:
        """``ActorGroup-r0``, with the node where it is known: these tools have names made before the process exists."""
        name = Layout(directory).target_name(target)
        return f"{name}-{safe(target.node)}" if target.node else name

    @staticmethod
    def any_file_name(target: Target, directory: str) -> str:
        """A glob for every name made of :meth:`file_name` on any node: a worker's is known only once it runs."""
        return f"{glob.escape(Layout(directory).target_name(target))}-*"

    def checked_directory(self, directory: str) -> str:
        """``directory``, refused when the tool would replace a part of it.

        Raises:
            ConfigError: it holds one of the tool's own keys; there is no way to escape them.
        """
        if key := PATH_KEYS.search(directory):
            said = f"{self.program} would replace {key[0]!r} in this path"
            raise ConfigError(Problem("output_dir", said, value=directory, mend="choose a directory without '%'"))
        return directory

    @staticmethod
    def interpreter(target: Target) -> list[str]:
        return list(target.interpreter) or [sys.executable]

    def trial(self, target: Target) -> list[str]:
        """A command that ends at once under the worker's own interpreter."""
        interpreter = self.interpreter(target)
        return [interpreter[0], "--version"] if {"-m", "-c"} & set(interpreter) else [*interpreter, "-c", "pass"]

    # --- in the worker ----------------------------------------------------------------------------------------------

    def attach(self, context: ToolContext) -> None:
        super().attach(context)
        if not self.started_under() and os.environ.get(WRAPPED_ENV) != self.name:
            raise not_started_under(self.program)
        self._paused = self.waits_paused()
        try:
            self._library = roctx.find(self.legacy)
        except roctx.NotFoundError as error:
            if self._paused:
                raise CaptureError(f"recording waits for ROCTX calls that cannot be made: {error}") from None
            context.say(f"{self.name}: no ranges in its files: {error}")
        else:
            self._use(self._library, context)
        if self.options.children == "leave":
            leave_alone(os.environ)

    def _use(self, library: roctx.Library, context: ToolContext) -> None:
        missing = self.opener(library) if self._paused else ""
        if missing:
            raise CaptureError(f"recording waits for {missing}, and {library.path} has none")
        if (library.source == "roctx64" and not self.legacy) or (library.sdk and self.legacy):
            context.say(f"{self.name}: no ranges in its files: it does not listen to {library.path}")
        if self.overlapping:
            self._emitter = OverlappingRanges(library)
        else:
            self._emitter = RoctxRanges(library, vendor.DeviceReady() if vendor.visible_devices() else None)

    def open(self, window: WindowInfo) -> None:
        if self._paused and self._library is not None:
            self.resume(self._library)
        self._mark("begin", window)
        self._opened.append(window)

    def close(self, window: WindowInfo) -> list[ArtifactFile]:
        self._mark("end", window)
        if self._paused and self._library is not None:
            self.pause(self._library)
        return []

    def _mark(self, which: str, window: WindowInfo) -> None:
        # a recording of the whole process is not to be cut down to what the session saw of it
        if self._library is not None and (self._paused or window.kind != "process"):
            self._library.mark(self._library.message(WINDOW_MARK.format(which=which, id=window.id)))

    # --- afterwards -------------------------------------------------------------------------------------------------

    def match(self, files: Sequence[str], windows: Sequence[WindowInfo]) -> list[ArtifactFile]:
        return artifacts.match(files, windows, self.name)

    @classmethod
    def can_read(cls, path: str) -> bool:
        from accelprof_rocm import readers

        return readers.format_of(path) in readers.FORMATS[cls.files_of]

    def read(self, path: str) -> Trace:
        from accelprof_rocm import readers

        return readers.read(path, self.name)


def pattern(directory: str, *parts: str) -> str:
    """An absolute glob; ``*`` in ``parts`` stays a wildcard, ``directory`` does not."""
    return os.path.join(glob.escape(directory), *parts)
