"""The contract of a tool: what collects data and leaves files.

A tool *declares* how it is, and the core acts on the declaration, never on a name. One instance is made per role it
plays: on the driver (``check``, ``launch``, ``expects``), in the worker (``attach``, ``open``, ``close``, ``finalise``)
and in reports (``match``, ``read``).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from accelprof.contracts.backend import Backend, Emitter, Probe
from accelprof.contracts.options import Options
from accelprof.contracts.sizes import size_of
from accelprof.contracts.spans import HostCalls, Trace
from accelprof.contracts.targets import ArtifactFile, Assignment, Expectation, Launch, Target, WindowInfo
from accelprof.contracts.words import Count, Counting, Thread, TriggerCall
from accelprof.errors import CaptureError, Problem


class ToolOptions(Options):
    """Base of option models; see :class:`accelprof.contracts.options.Options`."""


@dataclass(frozen=True)
class ToolContext:
    """What a tool gets in the worker.

    Attributes:
        directory: this target's own output directory, made when its first window opens.
        say: ``say(message)`` says something once through the session (rank and group are added there).
    """

    target: Target
    assignment: Assignment
    backend: Backend
    directory: str
    say: Callable[[str], object]
    run_dir: str = ""

    @property
    def report(self) -> Callable[[str], object]:
        """The name of ``say`` in 0.1."""
        warnings.warn(
            "ToolContext.report is ToolContext.say now; the old name goes with the next release", DeprecationWarning, 2
        )
        return self.say


class Tool:
    """Base of every tool. The defaults describe a tool that the backend's call starts and stops, and that needs nothing else."""

    name: ClassVar[str] = ""
    aliases: ClassVar[tuple[str, ...]] = ()
    Options: ClassVar[type[ToolOptions]] = ToolOptions

    #: ``exact`` (must be told how many captures) | ``open`` (any number) | ``whole_process`` (one, from start to exit)
    count: ClassVar[Count] = "open"
    #: ``any`` | ``starter`` (start and stop on one thread, the one that works) | ``work`` (start on the working thread)
    thread: Thread = "any"
    #: resources only one tool may own in a process: ``cupti``, ``torch_profiler``, ``cann``, ``rocprofiler``
    exclusive: ClassVar[frozenset[str]] = frozenset()
    #: who counts a schedule: ``ours`` or the tool's ``native`` one where it fits
    schedule: ClassVar[Counting] = "ours"
    #: a window may be opened on a live process that was not planned to
    on_demand: ClassVar[bool] = True
    #: files are Chrome traces to which ``read`` adds nothing; a merged timeline takes their events over as they are
    writes_chrome_trace: ClassVar[bool] = False
    #: its files hold figures and no spans: reports list what :meth:`figures` says of each, a merged timeline leaves them out
    has_spans: ClassVar[bool] = True
    #: a process of this host whose interpreter is held, and which cannot open a window itself, is recorded by
    #: :meth:`record_from_outside`
    records_from_outside: ClassVar[bool] = False
    #: the calls in its files that put kernels on a device: launches whose work is not in the file are counted by it. A tool that says
    #: none is asked with the names of all that are registered
    host_calls: ClassVar[HostCalls] = HostCalls()
    #: accelerator types this tool serves; empty = all
    accelerators: ClassVar[frozenset[str]] = frozenset()
    #: set in :meth:`attach` where ranges go elsewhere than to the backend
    _emitter: Emitter | None = None

    def __init__(self, options: ToolOptions | Mapping[str, Any] | None = None) -> None:
        """``options`` as the user wrote them under ``tools.<name>``, or a validated model.

        Raises:
            pydantic.ValidationError: an option is unknown or has a value that is not allowed.
        """
        if not isinstance(options, ToolOptions):
            options = self.Options.model_validate(dict(options or {}))
        self.options: Any = options
        self.context: ToolContext | None = None

    # --- on the driver, before anything starts -------------------------------------------------------------------

    @classmethod
    def normalise(cls, options: Mapping[str, object]) -> Mapping[str, object]:
        """Bring the user's spelling into one form before merging (``t`` and ``trace`` become one key). Pure."""
        return options

    def meaning(self) -> Mapping[str, Any]:
        """What the options come to, for comparing two uses: defaults filled in, names in any order.

        Override where a value stands for others (an empty list for a default one, a preset for several options).
        """
        given = self.options.model_dump()
        return {key: value if key == "extra_args" else unordered(value) for key, value in given.items()}

    def probe(self) -> Probe:
        """Whether the tool is installed here; must not raise. Asked by doctor, plan display, never on a hot path."""
        return Probe(0, "built in")

    def check(self, assignments: Sequence[Assignment]) -> list[Problem]:
        """Options that contradict the plan (all targets that use this tool). Pure; works without the tool installed."""
        return []

    def claims(self, target: Target) -> frozenset[str]:
        """Exclusive resources this configuration will own in the target's process."""
        return self.exclusive

    def launch(self, assignment: Assignment, directory: str) -> Launch:
        """How the worker must be started; ``directory`` is its output directory, maybe on another node. Pure."""
        return Launch()

    def trigger(self, target: Target) -> TriggerCall:
        """The tool's trigger call, by which a window starts and stops what it records: ``none`` (it records from start to
        exit), ``api`` (the backend's capture_start/stop), ``range``, ``pause``, or ``in_process``."""
        if type(self).gate is not Tool.gate:
            _warn_of_gate(type(self).__name__)
            return self.gate(target)
        return "api"

    def gate(self, target: Target) -> TriggerCall:
        """The name of :meth:`trigger` in the last release; it goes with the next."""
        if type(self).gate is not Tool.gate:
            return "api"
        _warn_of_gate(type(self).__name__)
        return self.trigger(target)

    def expects(self, assignment: Assignment, directory: str) -> list[Expectation]:
        """Files this target will leave, for the controller to wait for. In-process tools report theirs from ``close``."""
        return []

    # --- in the worker --------------------------------------------------------------------------------------------

    def attach(self, context: ToolContext) -> None:
        """The worker's session takes the tool into use. May raise; the tool is then disabled there, with the reason."""
        self.context = context

    def emitter(self, backend: Backend) -> Emitter:
        """Where ranges go in this tool; the backend unless :meth:`attach` has set an emitter of the tool's own."""
        return self._emitter or backend

    def open(self, window: WindowInfo) -> None:
        """Start capturing. On failure raise; the state then stays closed.

        The default serves trigger ``api``.
        """
        if self.context is not None:
            self.context.backend.capture_start()

    def close(self, window: WindowInfo) -> list[ArtifactFile]:
        """Stop capturing; return files that are complete now. Called exactly once for each successful ``open``."""
        if self.context is not None:
            self.context.backend.capture_stop()
        return []

    def stop(self, window: WindowInfo) -> Callable[[], Sequence[ArtifactFile]] | None:
        """Stop capturing, and leave the writing for later: the function that is returned writes the files and returns them.

        The session calls it behind the training, on another thread, and waits for it when it closes; ``open`` for the next
        window may come before. ``None`` (the default): nothing was done, and ``close`` is called, on this thread.
        """
        return None

    def step(self, step: int) -> None:
        """A further announced step begins inside an open window."""

    def warm_up(self, window: WindowInfo) -> None:
        """A scheduled stretch begins ``window.warmup`` calls from now: start, and throw away what is seen until ``open``.

        Only asked of tools with a ``native`` schedule, and only when the schedule has a warm-up. ``open`` with the same
        window follows, or ``abandon`` where the loop ended first.
        """

    def abandon(self, window: WindowInfo) -> None:
        """The loop ended during the warm-up of ``window``: stop, and leave no file."""

    def tick(self) -> None:
        """One call of a scheduled phase ended and another of the same stretch follows (tools with a ``native`` schedule).

        Called in the warm-up and in the open window, but not after the last call: ``close`` ends that one.
        """

    def finalise(self, reason: str) -> list[ArtifactFile]:
        """The session closes; no window is open. Return files that were completed by this."""
        return []

    # --- in another process ---------------------------------------------------------------------------------------

    @classmethod
    def record_from_outside(
        cls, run_dir: str, pid: int, name: str, seconds: float, say: Callable[[str], object]
    ) -> str:
        """Record ``seconds`` of a process that uses this tool and does not answer, from the process of ``accelprof window``, and wait
        for what it leaves: in the run's directory, in files called ``name``. What was done, in words that name the files.

        Raises:
            CaptureError: nothing was left, and why.
            OSError: the process or the run's directory cannot be looked at.
        """
        raise NotImplementedError

    @classmethod
    def withdraw(cls, run_dir: str, pids: Sequence[int]) -> None:
        """Whoever asked for these processes to be recorded from outside does not want it any more; must not raise."""

    # --- afterwards -----------------------------------------------------------------------------------------------

    def match(self, files: Sequence[str], windows: Sequence[WindowInfo]) -> list[ArtifactFile]:
        """Say which files hold which windows, by this tool's naming, and whether each is complete."""
        stems = {window.stem: window.id for window in windows}
        return [
            ArtifactFile(
                path=path,
                tool=self.name,
                windows=tuple(wid for stem, wid in stems.items() if path.startswith(stem)),
                bytes=size_of(path) if os.path.exists(path) else 0,
            )
            for path in files
        ]

    @classmethod
    def can_read(cls, path: str) -> bool:
        """Whether ``read`` understands this file, by name and (cheaply) content."""
        return False

    def read(self, path: str) -> Trace:
        """Read one file into spans.

        Raises:
            ReadError: the file is not readable as a whole; partial trouble goes to ``Trace.problems``.
        """
        raise NotImplementedError(f"tool {self.name!r} has no reader")

    def figures(self, path: str) -> tuple[Mapping[str, object], str]:
        """Figures by name of a file without spans (see ``has_spans``), and what to note of it; empty: nothing.

        Raises:
            ReadError: the file is not readable.
        """
        raise NotImplementedError(f"tool {self.name!r} has no reader")


def not_started_under(program: str) -> CaptureError:
    """For a tool in whose process ``program`` should have been around the worker, and is not."""
    return CaptureError(
        f"this process was not started under {program}; start it through accelprof (accelprof run, or the controller's options)"
    )


def _warn_of_gate(tool: str) -> None:
    warnings.warn(
        f"{tool}.gate() is trigger() now; the old name goes with the next release", DeprecationWarning, stacklevel=3
    )


def unordered(value: Any) -> object:
    """A list of names as the set that it stands for, sorted; anything else as it is."""
    names = isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)
    return tuple(sorted(set(value))) if names else value


@dataclass(frozen=True)
class ToolUse:
    """A tool as one place of the configuration uses it.

    Attributes:
        options: in the tool's own spelling, with what the rule says over what ``tools.<name>`` says.
        tool: made with these options; ``None`` in a plan that was made without a catalogue.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    tool: Tool | None = None

    def same(self, other: ToolUse) -> bool:
        """Whether both mean the same, however it is written: defaults filled in, order of names ignored."""
        if self.name != other.name:
            return False
        if self.tool is None or other.tool is None:
            return self.options == other.options
        return self.tool is other.tool or self.tool.meaning() == other.tool.meaning()

    def excludes(self, other: ToolUse, target: Target) -> str:
        """Why the two cannot run in the process of ``target``; empty where they can."""
        if self.tool is None or other.tool is None:
            return "one tool a process"
        shared = sorted(self.tool.claims(target) & other.tool.claims(target))
        return f"both own {', '.join(shared)}" if shared else ""
