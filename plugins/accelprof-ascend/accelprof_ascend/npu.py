"""Tool ``npu``: ``torch_npu.profiler`` in the process; a fresh profile and a ``*_ascend_pt`` directory for each window.

Success is what lies on disk after the profile has stopped. torch_npu must start and stop on one thread and takes one
profile at a time in a process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from accelprof.contracts.backend import Probe
from accelprof.contracts.sizes import size_of
from accelprof.contracts.spans import HostCalls, Trace
from accelprof.contracts.targets import ArtifactFile, Assignment, Launch, Target, WindowInfo
from accelprof.contracts.tool import Tool, ToolContext, ToolOptions
from accelprof.contracts.words import Counting, Thread, TriggerCall
from accelprof.errors import CaptureError, ConfigError, Problem, ReadError
from accelprof_ascend import checks, directory, vendor
from accelprof_ascend.analysing import Analysis
from accelprof_ascend.backend import NpuBackend
from accelprof_ascend.options import NpuOptions, lacking
from accelprof_ascend.profile import Profile


class NpuTool(Tool):
    """See the module."""

    name: ClassVar[str] = "npu"
    aliases: ClassVar[tuple[str, ...]] = ("torch_npu", "ascend_pytorch_profiler")
    Options: ClassVar[type[ToolOptions]] = NpuOptions
    thread: Thread = "starter"
    exclusive: ClassVar[frozenset[str]] = frozenset({"cann", "torch_profiler"})
    schedule: ClassVar[Counting] = "native"
    accelerators: ClassVar[frozenset[str]] = frozenset({"npu"})
    host_calls: ClassVar[HostCalls] = vendor.CALLS

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._profile: Profile | None = None
        self._running: list[tuple[Analysis, ArtifactFile]] = []

    # --- on the driver ----------------------------------------------------------------------------------------------

    def meaning(self) -> Mapping[str, Any]:
        """Absent and empty ``contents`` are the default ones."""
        return {**super().meaning(), "contents": tuple(sorted(self.options.wanted))}

    def probe(self) -> Probe:
        reason = vendor.reason_not_loadable()
        if reason is not None:
            return Probe(None, reason)
        return Probe(0, f"torch_npu {vendor.installed()} is installed")

    def check(self, assignments: Sequence[Assignment]) -> list[Problem]:
        return checks.check(self.options, assignments)

    def launch(self, assignment: Assignment, directory: str) -> Launch:
        return Launch(notes=tuple(checks.notes(self.options, [assignment])))

    def trigger(self, target: Target) -> TriggerCall:
        return "in_process"

    # --- in the worker ----------------------------------------------------------------------------------------------

    def attach(self, context: ToolContext) -> None:
        """Load torch_npu and refuse what this wheel cannot do.

        Raises:
            CaptureError: torch_npu does not load, or another profiler owns the process.
            ConfigError: an option that this wheel does not have.
        """
        super().attach(context)
        silenced = vendor.set_in_environment(vendor.SILENCING)
        if silenced:
            raise CaptureError(f"{'; '.join(silenced)}; start the process without it, or choose tool msprof")
        try:
            vendor.load()
        except RuntimeError as error:
            raise CaptureError(str(error)) from error
        parameters = vendor.config_parameters()
        if parameters is not None:
            refused, degraded = lacking(self.options, parameters, vendor.installed())
            if refused:
                raise ConfigError(*refused)
            for text in degraded:
                context.say(text)
        for text in vendor.set_in_environment(vendor.INTERFERING):
            context.say(f"{text}; windows fail while that profiler runs")
        if not os.environ.get(vendor.HOME_ENV):
            context.say(f"{vendor.HOME_ENV} is {vendor.NO_HOME}; source CANN's set_env.sh")
        self._emitter = context.backend if isinstance(context.backend, NpuBackend) else NpuBackend()

    def warm_up(self, window: WindowInfo) -> None:
        self._start(window, warmup=True)

    def open(self, window: WindowInfo) -> None:
        if self._profile is None:
            self._start(window)
        else:
            self._profile.record(self._number(window, warmup=False))

    def _start(self, window: WindowInfo, warmup: bool = False) -> None:
        if self._profile is not None:
            self._profile.cancel()
        self._profile = None
        self._say_which_device()
        parent = directory.parent_of(window)
        os.makedirs(parent, exist_ok=True)
        profile = Profile(self.options, parent, directory.worker_of(window))
        profile.start(self._number(window, warmup), warmup)
        self._profile = profile

    def _number(self, window: WindowInfo, warmup: bool) -> int:
        """N of the first ``ProfilerStep#N``: of a schedule the call's, with the warm-up's calls before it; else the step's."""
        if window.kind == "schedule" and self.options.numbering == "call":
            return window.first - (window.warmup if warmup else 0)
        return window.steps[0] if window.steps else 0

    def _say_which_device(self) -> None:
        """Making a profile starts a device, the first one unless the worker has chosen."""
        if self.context is not None and not vendor.load().npu.is_initialized():
            self.context.say(
                "no NPU was in use when the window opened, so torch_npu takes the first one it sees; call torch.npu.set_device before the first window"
            )

    def step(self, step: int) -> None:
        if self._profile is not None:
            self._profile.step(step)

    def tick(self) -> None:
        if self._profile is not None:
            self._profile.step()

    def abandon(self, window: WindowInfo) -> None:
        profile, self._profile = self._profile, None
        if profile is not None:
            profile.cancel()
            _remove_if_empty(directory.parent_of(window))

    def close(self, window: WindowInfo) -> list[ArtifactFile]:
        """Stop and look at the disk.

        Raises:
            CaptureError: nothing of the window is there.
        """
        profile, self._profile = self._profile, None
        if profile is None or self.context is None:
            return []
        profile.stop()
        path = profile.directory
        if not os.path.isdir(path):
            gone = f"{path} is gone: another torch_npu profile removed it"
            raise CaptureError(profile.disturbed or "; ".join(profile.errors) or gone)
        said = (f"torch_npu said: {line}" for line in profile.errors)
        faults = [*filter(None, [profile.disturbed]), *said, *self._lacking(path)]
        if self.context.target.rank is not None:
            directory.give_rank(path, self.context.target.rank)
        artifact = ArtifactFile(path, self.name, (window.id,), size_of(path))
        if faults:
            self._fault(artifact, "; ".join(faults))
        elif self.options.analysis != "offline":
            self._analyse(artifact)
        beside = path + directory.OPERATOR_ARGUMENTS
        if os.path.isdir(beside):
            return [artifact, ArtifactFile(beside, self.name, (window.id,), size_of(beside))]
        return [artifact]

    def _fault(self, artifact: ArtifactFile, reason: str) -> None:
        artifact.state, artifact.reason = "partial", reason
        if self.context is not None:
            self.context.say(f"tool npu: the window's directory {artifact.path} is not complete: {reason}")

    def _analyse(self, artifact: ArtifactFile) -> None:
        try:
            analysis = Analysis(artifact.path, self.options.exports)
        except OSError as error:
            self._fault(artifact, f"its analysis could not be started: {error}")
            return
        if self.options.analysis == "async":
            self._running.append((analysis, artifact))
        else:
            self._judge(analysis, artifact)

    def _judge(self, analysis: Analysis, artifact: ArtifactFile) -> None:
        outcome = analysis.wait(self.options.analysis_timeout)
        if not outcome.done:
            self._fault(artifact, f"its analysis failed, the data is kept for `accelprof analyse`: {outcome.reason}")
        artifact.bytes = size_of(artifact.path)

    def finalise(self, reason: str) -> list[ArtifactFile]:
        """Wait for analyses that still run."""
        running, self._running = self._running, []
        for analysis, artifact in running:
            self._judge(analysis, artifact)
        return [artifact for _, artifact in running]

    # --- afterwards -------------------------------------------------------------------------------------------------

    def match(self, files: Sequence[str], windows: Sequence[WindowInfo]) -> list[ArtifactFile]:
        """``*_ascend_pt`` directories by the name that :func:`accelprof_ascend.directory.worker_of` gave them."""
        found = []
        for path in files:
            name = os.path.basename(path.rstrip(os.sep))
            if not name.endswith(directory.SUFFIX):
                continue
            ids = tuple(window.id for window in windows if name.startswith(directory.worker_of(window) + "_"))
            faults = "; ".join(self._lacking(path))
            found.append(ArtifactFile(path, self.name, ids, size_of(path), "partial" if faults else "complete", faults))
        return found

    def _lacking(self, path: str) -> list[str]:
        return directory.faults(path, self.options.wanted, self.options.level != "level_none")

    @classmethod
    def can_read(cls, path: str) -> bool:
        from accelprof_ascend.reading import can_read

        return can_read(path)

    def read(self, path: str) -> Trace:
        from accelprof_ascend.reading import read

        if not os.path.exists(path):
            raise ReadError(path, "no such file or directory")
        return read(path)


def _remove_if_empty(path: str) -> None:
    try:
        os.rmdir(path)
    except OSError:
        pass  # other ranks have their directories in it
