"""What passes between plan, tool, launch and session: plain data, no behaviour beyond naming."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from accelprof.contracts.names import TIMELINE_TOOL
from accelprof.contracts.words import ArtifactState, LaunchMode, Mode, WindowKind, Written
from accelprof.numberset import NumberSet

#: a run directory whose resolved configuration a process takes when it is given none (set by ``accelprof run``)
RUN_ENV = "ACCELPROF_RUN"
#: the resolved configuration in a run directory
CONFIG_NAME = "config.json"
#: set in every wrapped worker, so that a second wrap (or a child that inherits it) can be recognised
WRAPPED_ENV = "ACCELPROF_WRAPPED"
#: group of the process that has a controller
DRIVER_GROUP = "controller"
#: what an engine's child processes inherit from the worker that started them, as JSON: group, roles, rank, replica
PARENT_ENV = "ACCELPROF_PARENT"
#: set beside it: the target (``ActorGroup/rank0``) that the launch was made for
TARGET_ENV = "ACCELPROF_TARGET"
#: set beside it: ``own`` where the launcher surrounds one selected process, ``shared`` where it surrounds several
LAUNCH_ENV = "ACCELPROF_LAUNCH"
#: set beside it, as JSON: names that the session takes out of the environment, with what the launch put there (null: all of it)
UNSET_ENV = "ACCELPROF_UNSET"


@dataclass(frozen=True, slots=True)
class Target:
    """One process as the plan sees it. Unknown facts are ``None``, never a default number.

    Attributes:
        group: worker group, the key under ``groups`` in the configuration.
        roles: roles that live in the process; several when colocated (``("actor", "rollout", "ref")``).
        rank: rank within the group, as the training framework numbers it.
        replica: index of the engine replica or data-parallel copy, where the group has such.
        node: host name or node id.
        has_devices: whether the process will see an accelerator; decides which trigger call can work.
        interpreter: argv of the worker's own Python, default the running one.
        engine_rank: in a child process of an engine, its rank within that engine; ``rank`` is then its parent's.
    """

    group: str
    roles: tuple[str, ...] = ()
    rank: int | None = None
    world_size: int | None = None
    replica: int | None = None
    node: str | None = None
    accelerator: str | None = None
    has_devices: bool | None = None
    interpreter: tuple[str, ...] = ()
    engine_rank: int | None = None

    @property
    def label(self) -> str:
        """``ActorGroup/rank0`` for messages."""
        number = self.rank if self.engine_rank is None else self.engine_rank
        return f"{self.peers}/{'rank' if self.engine_rank is None else 'engine'}{'?' if number is None else number}"

    @property
    def peers(self) -> str:
        """Whose ranks wait for each other, as :func:`peers_of`; of an engine's child processes its parent's label."""
        mine = peers_of(self.group, self.replica)
        return mine if self.engine_rank is None else f"{mine}/rank{'?' if self.rank is None else self.rank}"


def peers_of(group: str, replica: int | None) -> str:
    """``ActorGroup``, or ``ActorGroup/replica1``: of a group with replicas the ranks of each wait for each other."""
    return group if replica is None else f"{group}/replica{replica}"


def peers_in(label: str) -> str:
    """:attr:`Target.peers` of whom a label names, for rows of versions that wrote the label alone."""
    return label.rpartition("/")[0]


def in_group(label: str, group: str) -> str:
    """A label where its group is said beside it: ``rank0``, ``replica1/rank0``."""
    return label.removeprefix(f"{group}/")


class CaptureCount(NamedTuple):
    """How many captures a process will make. ``exact`` is ``None`` when the plan cannot know (discrete, ``all``)."""

    exact: int | None

    @property
    def certain(self) -> bool:
        return self.exact is not None


NO_STEPS = NumberSet()
NO_CAPTURES = CaptureCount(0)


#: what a schedule does with a call
WAIT, WARMUP, ACTIVE, DONE = "wait", "warmup", "active", "done"


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """A sampling schedule on one phase, in calls of that phase (see ``config.model.Schedule`` for the meaning)."""

    phase: str
    wait: int = 0
    warmup: int = 0
    active: int = 1
    repeat: int = 1
    skip_first: int = 0
    per: str = "process"  # process | step | the name of an enclosing phase
    keep_others: bool = False

    @property
    def cycle(self) -> int:
        """Calls of one round: waited for, warmed up, recorded."""
        return self.wait + self.warmup + self.active

    @property
    def first(self) -> int:
        """Number of the first call that is recorded, counted from 0."""
        return self.skip_first + self.wait + self.warmup

    def place(self, index: int) -> tuple[str, int]:
        """``(wait | warmup | active | done, round)`` of call ``index`` where counting began, both counted from 0."""
        at = index - self.skip_first
        if at < 0:
            return WAIT, 0
        turn, offset = divmod(at, self.cycle)
        if self.repeat and turn >= self.repeat:
            return DONE, turn
        return (WAIT if offset < self.wait else WARMUP if offset < self.wait + self.warmup else ACTIVE), turn


@dataclass(frozen=True, slots=True)
class StepWindows:
    """Which windows a set of steps makes, however many: nothing is listed out. ``merged``: adjacent steps share one."""

    steps: NumberSet = NO_STEPS
    merged: bool = False

    def of(self, step: int) -> tuple[int, int] | None:
        """First and last step of the window that ``step`` belongs to; ``None``: to none."""
        return _window_of(self.steps, self.merged, step)

    def since(self, begin: int = 0) -> Iterator[tuple[int, int]]:
        """First and last step of those that end at ``begin`` or later, in order."""
        for first, last, stride in self.steps.runs:
            if self.merged and stride == 1:
                if last >= begin:
                    yield first, last
            else:
                yield from ((step, step) for step in range(_at_least(begin, first, stride), last + 1, stride))

    def __len__(self) -> int:
        return self.steps.stretch_count() if self.merged else len(self.steps)

    def number_since(self, begin: int) -> int:
        """How many of them end at ``begin`` or later."""
        return sum(
            last >= begin
            if self.merged and stride == 1
            else len(range(_at_least(begin, first, stride), last + 1, stride))
            for first, last, stride in self.steps.runs
        )


def _window_of(steps: NumberSet, merged: bool, step: int) -> tuple[int, int] | None:
    if merged:
        return steps.run_of(step)
    return (step, step) if step in steps else None


def _at_least(begin: int, first: int, stride: int) -> int:
    """The first number from ``begin`` on of those that start at ``first``."""
    return first + max(0, -(-(begin - first) // stride)) * stride


@dataclass(frozen=True, slots=True)
class Assignment:
    """What the plan gives one target. ``tool`` is ``None`` when only the timeline runs; ``selected`` False = nothing.

    Attributes:
        tool, options: the tool that captures, and its options as the user wrote them (global ones and the rule's merged).
        also: further tools (name, options) in the same process; colocated roles may ask for tools that do not exclude
            each other.
        windows: the windows as tuples of their steps, in order, where they can be listed; empty for ``all``,
            ``process`` and purely scheduled captures, and cut after 1000.
        steps: the steps that are selected, for any number of them.
        mode: ``steps`` (windows by announced step), ``all`` (every step), ``process`` (one for the whole life), ``off``
            (no step opens anything; schedules and on-demand windows still may).
        count: captures this process will make, for tools that must be told beforehand.
        phases: phase patterns (fnmatch) that may open a window under ``discrete``; empty = every phase.
        asked_by: role -> the configuration path whose rule selected it.
        notes: what the user should know, one line each.
    """

    target: Target
    selected: bool
    tool: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    also: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    timeline: bool = True
    mode: Mode = "off"
    steps: NumberSet = NO_STEPS
    windows: tuple[tuple[int, ...], ...] = ()
    merge_steps: bool = False
    discrete: bool = False
    phases: tuple[str, ...] = ()
    schedules: tuple[ScheduleSpec, ...] = ()
    count: CaptureCount = NO_CAPTURES
    asked_by: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def armed(self) -> bool:
        """Whether the plan opens windows here."""
        return self.selected and (self.mode != "off" or bool(self.schedules))

    @property
    def whole_process(self) -> bool:
        """Whether the process is one capture from start to exit, with nothing that opens or closes a window in it."""
        return self.mode == "process" and not self.schedules

    @property
    def leads(self) -> bool:
        """Whether a schedule's window begins with the step, before the first call, because its stretch begins with that one."""
        return not self.discrete and any(
            spec.keep_others and spec.per in ("step", "process") and not spec.first for spec in self.schedules
        )

    @property
    def keeps_others(self) -> bool:
        """Whether phases outside of what schedules count have windows of their own, where they may."""
        return any(spec.keep_others for spec in self.schedules)

    @property
    def by_step(self) -> bool:
        """Whether a window opens with its step, where ``steps`` selects it."""
        return self.leads if self.schedules else not self.discrete

    @property
    def by_phase(self) -> bool:
        """Whether phases in the steps that are selected have windows of their own."""
        return self.discrete and (self.keeps_others or not self.schedules)

    def window_of(self, step: int) -> tuple[int, int] | None:
        """First and last step of the window that ``step`` belongs to, or would if no schedule made the windows; ``None``: it
        is not selected."""
        if self.mode == "all":
            return step, step
        return _window_of(self.steps, self.merge_steps, step) if self.mode == "steps" else None

    def stays(self, step: int, following: int | None) -> bool:
        """Whether the window of ``step`` also holds ``following``, or any later step where that is not known."""
        window = self.window_of(step)
        if window is None:
            return False
        return step < window[1] if following is None else window[0] <= following <= window[1]

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of all that record in each window: the tool, those beside it, and the timeline."""
        if not self.selected:
            return ()
        names = (self.tool, *(name for name, _ in self.also), TIMELINE_TOOL if self.timeline else None)
        return tuple(dict.fromkeys(name for name in names if name is not None))


def ranks_by_group(targets: Iterable[tuple[str, int | None, int | None]]) -> dict[str, tuple[set[int], int]]:
    """By name of the group its ranks among ``targets`` (group, rank, world size) and its size, the largest that one says; those that
    do not say both count for nothing."""
    found: dict[str, tuple[set[int], int]] = {}
    for group, rank, size in targets:
        if rank is not None and size is not None:
            there, known = found.setdefault(group, (set(), 0))
            there.add(rank)
            found[group] = there, max(known, size)
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class WindowInfo:
    """One window in one process.

    Attributes:
        id: unique in the run: the worker's key and ``sequence``, as ``ActorGroup-r0-<host>-<pid>-w0001``.
        sequence: 1-based count of windows in this process.
        steps: announced steps known when it opened; grows to the final list in the manifest.
        phase: the phase that made the window under ``discrete`` or a schedule, else ``None``.
        kind: what it was opened for.
        stem: absolute path without suffix; a tool appends its own suffix. The directory exists, the name is unique.
        warmup, active: calls of a scheduled stretch: those that a ``native`` tool runs through before ``open``, and those
            to record; 0 for every other kind of window.
        first: number of the first call to record, counted from 0 as the schedule counts (anew in each step or phase).
        seconds: of a window on demand: for how long at most it was asked for; 0 for every other kind.
    """

    id: str
    sequence: int
    steps: tuple[int, ...]
    phase: str | None
    kind: WindowKind
    stem: str
    warmup: int = 0
    active: int = 0
    first: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Launch:
    """How a worker must be started so that the tool can work.

    Attributes:
        mode: ``none`` (start as ever), ``env`` (environment only), ``prefix`` (``argv`` goes before the worker's own
            interpreter), ``replace`` (``argv`` stands in the interpreter's place; the interpreter travels in ``env``).
        argv: argument list; never a shell string.
        env: variables to set in the worker.
        unset_in_children: variables the session removes once it runs under the tool, so that child processes are not captured
            too. The worker knows them by :data:`UNSET_ENV`, which is put into ``env`` when all tools and plug-ins have been asked.
        make_dirs: directories to make on the node that runs the worker, before it starts.
        preflight: argv of a short command whose success proves on that node that the tool starts; empty = none.
        notes: what the user should know, one line each.
    """

    mode: LaunchMode = "none"
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    unset_in_children: tuple[str, ...] = ()
    make_dirs: tuple[str, ...] = ()
    preflight: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Expectation:
    """A file (or directory) that a target should leave. ``pattern`` is an absolute glob on the target's node.

    ``when`` it is written: at ``window_close``, with the ``last_window`` of ``count``, at ``process_exit``; ``count`` ``None`` = at
    least one when any window opened.
    ``instead``: an absolute glob of what stands in a report's place, under the same name without suffix, where the tool could
    not make the report (raw data without its importer); once that lies there untouched, nobody waits for the report.
    """

    pattern: str
    count: int | None
    when: Written
    instead: str = ""


@dataclass(slots=True)
class ArtifactFile:
    """A file (or directory) found on disk."""

    path: str
    tool: str
    windows: tuple[str, ...] = ()
    bytes: int = 0
    state: ArtifactState = "complete"
    reason: str = ""
