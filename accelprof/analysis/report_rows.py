"""Rows of the report and of its tables, each a type that owns its names: JSON, the tables' columns and the page's data follow from it."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypedDict, Union, get_args, get_origin, get_type_hints

from accelprof.output.layout import steps_text

#: a step in which windows of others were opened or closed is another than the usual ones from this part of its time on
COSTLY = 0.05


class Row:
    """A dataclass whose fields are a row's columns, in the order of :func:`names_of`."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """As ``accelprof report --json`` has it; lists and mappings are the row's own."""
        return self.cells()

    def cells(self) -> dict[str, Any]:
        """As its table has it."""
        names, values = _fields(type(self))
        return dict(zip(names, values(self), strict=True))


_known: dict[type, tuple[tuple[str, ...], Callable[[Row], tuple[Any, ...]]]] = {}


def _fields(row: type) -> tuple[tuple[str, ...], Callable[[Row], tuple[Any, ...]]]:
    found = _known.get(row)
    if found is None:
        (base,) = row.__bases__
        shared = names_of(base) if dataclasses.is_dataclass(base) else ()
        names = (*(one.name for one in dataclasses.fields(row) if one.name not in shared), *shared)
        found = _known[row] = names, attrgetter(*names)
    return found


def names_of(row: type) -> tuple[str, ...]:
    """A row's columns, its own before those that it shares with others."""
    return _fields(row)[0]


def columns_of(row: type[Row]) -> dict[str, type]:
    """A row's columns and what is in them where there is anything: the first of several types, text of a list."""
    hints = get_type_hints(row)
    return {name: _column(hints[name]) for name in names_of(row)}


def _column(hint: object) -> type:
    if get_origin(hint) in (Union, types.UnionType):
        return _column(get_args(hint)[0])
    return hint if isinstance(hint, type) and get_origin(hint) is None else str


def step_name(steps: Sequence[int]) -> int | str:
    """A window's step, or its steps, as rows name them: ``7``, ``4-9``; empty for none."""
    return steps[0] if len(steps) == 1 else steps_text(steps)


# --- of the report -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Straggler(Row):
    """The last to arrive in a collective, and what the others waited for it: on their hosts or their devices. ``after``: the one
    that came before it; ``alone_ns`` of ``waited_ns`` is what they would not have waited had the last come with that one. Times in
    ns, with their bounds where clocks are not compared exactly; see docs/analysis.md."""

    step: int | str | None
    phase: str
    number: int | None
    group: str
    worker: str
    waited_ns: int
    low_ns: int
    high_ns: int
    waited_by: list[str]
    late_in: str | None
    missing: list[str]
    without_ns: int
    transfer_ns: int | None
    on: str
    process_group: str | None
    after: str
    alone_ns: int


@dataclass(frozen=True, slots=True)
class PathSegment(Row):
    """A stretch of a step's critical path; a gap stands under :data:`replay.OUTSIDE`. ``unseen``: it may be waiting of which nothing
    was recorded, see :class:`UnseenWait`."""

    worker: str
    phase: str
    ns: int
    unseen: bool = False

    def to_json(self) -> dict[str, Any]:
        return _only_true(self.cells(), "unseen")


@dataclass(frozen=True, slots=True)
class CriticalPath(Row):
    """The chain that decided a step's end, first to last; its segments' sum is ``wall_ns``."""

    step: int | str
    wall_ns: int
    segments: list[PathSegment]
    ended: bool = True

    def to_json(self) -> dict[str, Any]:
        ended = {} if self.ended else {"ended": False}
        segments = [one.to_json() for one in self.segments]
        return {"step": self.step, "wall_ns": self.wall_ns, "segments": segments, **ended}


@dataclass(frozen=True, slots=True)
class SlackRow(Row):
    """What is not on a step's critical path: how long a phase's stretches on a worker are in all, and how much later each could end
    without moving the step's end. ``unseen``: others may have waited for it."""

    unseen: bool = field(default=False, kw_only=True)
    step: int | str
    worker: str
    phase: str
    spans: int
    ns: int
    slack_ns: int
    low_ns: int
    high_ns: int

    def to_json(self) -> dict[str, Any]:
        return _only_true(self.cells(), "unseen")


def _only_true(row: dict[str, Any], name: str) -> dict[str, Any]:
    """JSON has this where it is so, behind the rest."""
    found = row.pop(name)
    return {**row, name: found} if found else row


class _MayWait(TypedDict, total=False):
    unseen: bool


class Segment(_MayWait):
    """A :class:`PathSegment` while its length still grows."""

    worker: str
    phase: str
    ns: int


class Slack(_MayWait):
    """A :class:`SlackRow` while its figures still grow."""

    step: int | str
    worker: str
    phase: str
    spans: int
    ns: int
    slack_ns: int
    low_ns: int
    high_ns: int


@dataclass(frozen=True, slots=True)
class UnseenWait(Row):
    """A phase whose calls the ranks of a group began up to ``apart_ns`` apart, ``last`` as the last, and ended together: those before may
    have waited in it, of which nothing was recorded."""

    step: int | str
    group: str
    phase: str
    apart_ns: int
    last: str


@dataclass(frozen=True, slots=True)
class StepTime(Row):
    """A step that was announced, or that a window holds, and whether one does; ``recording_ns`` of it windows were being opened
    or closed on some rank (``None`` where that is not known), in JSON where that is what made a step without a window long."""

    step: int
    wall_ns: int | None
    window: bool
    recording_ns: int | None = None

    @property
    def is_beside(self) -> bool:
        """Whether windows of others were being opened or closed for much of it."""
        return not self.window and (self.recording_ns or 0) > COSTLY * (self.wall_ns or 0)

    @property
    def is_costly(self) -> bool:
        """Whether profiling's own cost is in its times."""
        return self.window or self.is_beside

    def to_json(self) -> dict[str, Any]:
        row = self.cells()
        if not self.is_beside:
            del row["recording_ns"]
        return row


@dataclass(frozen=True, slots=True)
class Outlier(Row):
    """A step that took longer than usual; phase and worker are of what grew most on its slowest rank."""

    step: int
    wall_ns: int
    usual_ns: int
    phase: str | None
    phase_ns: int | None
    phase_usual_ns: int | None
    worker: str | None


@dataclass(frozen=True, slots=True)
class Drift(Row):
    """What grew or shrank from the first step to the last: a phase, or (``None``) the steps themselves; ``change`` is part of the
    first, and lies between ``low`` and ``high`` for sure. ``cause`` made the steps grow, longest on ``worker``."""

    phase: str | None
    steps: int
    first_ns: int
    last_ns: int
    change: float
    low: float
    high: float
    cause: str | None = None
    worker: str | None = None


@dataclass(frozen=True, slots=True)
class OperatorRow(Row):
    """An operator's calls in one phase (``None``: outside every phase), over files and workers."""

    operator: str
    kind: str
    phase: str | None
    tool: str
    workers: int
    calls: int
    total_ns: int
    self_ns: int


@dataclass(frozen=True, slots=True)
class Cost(Row):
    """What recording itself took of a worker's windows; ``None`` where it was not counted, or not measured."""

    worker: str
    windows: int
    undrained: int
    open_ns: int
    drain_ns: int
    close_ns: int
    spans: int
    ranges: int | None
    ranges_ns: int | None
    ranges_unmeasured: int
    range_ns: int | None
    range_calls: int | None


@dataclass(frozen=True, slots=True)
class Memory(Row):
    """A worker's memory at the end of a step in bytes, by the names that its backend has for it, each of which is a column; ``workers``
    among them is of how many the step has rows of those with the most."""

    step: int
    worker: str
    figures: Mapping[str, int]

    def cells(self) -> dict[str, Any]:
        return {"step": self.step, "worker": self.worker, **self.figures}


# --- of tables ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkerMemory(Row):
    """A worker's memory at the end of its steps, in bytes, see :func:`memory.by_worker`."""

    worker: str
    what: str
    steps: int
    first: int
    last: int
    largest: int
    at_step: int
    allocated: int | None
    peak: int | None


@dataclass(frozen=True, slots=True)
class DeviceRow(Row):
    """A device's figures over a worker's files of one tool."""

    worker: str
    tool: str
    device: str
    files: int
    kernels: int
    copies: int
    busy_ns: int
    kernel_ns: int
    communication_ns: int
    idle_ns: int
    span_ns: int
    window_ns: int
    busy_in_window_ns: int
    busy_share: float | None
    share_of: str
    work_share: float | None


@dataclass(frozen=True, slots=True)
class PhaseLine(Row):
    """A phase of a group over all ranks and windows, see :class:`phases.PhaseRow`; ``missing`` counts ranks without it."""

    group: str
    phase: str
    parent: str | None
    depth: int
    calls: int
    cut: int
    total_ns: int
    mean_ns: float | None
    p50_ns: float | None
    p95_ns: float | None
    self_ns: int
    share: float | None
    slowest: str | None
    fastest: str | None
    spread: float | None
    missing: int


@dataclass(frozen=True, slots=True)
class RankLine(Row):
    """A phase on one worker."""

    group: str
    phase: str
    worker: str
    calls: int
    total_ns: int
    per_window_ns: float


@dataclass(frozen=True, slots=True)
class WindowLine(Row):
    """A window of a worker, on the worker's own clock."""

    worker: str
    window: str
    steps: str
    start_ns: int
    end_ns: int
    window_ns: int


@dataclass(frozen=True, slots=True)
class StepPhase(Row):
    """A phase in an announced step, over ranks."""

    step: int
    phase: str
    min_ns: float | None
    mean_ns: float | None
    max_ns: float | None


@dataclass(frozen=True, slots=True)
class PhaseOnDevice(Row):
    """Device time in a phase."""

    calls: int
    wall_ns: int
    busy_ns: int | None
    own_busy_ns: int | None
    idle_ns: int | None
    communication_ns: int
    kernels: int
    longest_kernel: str | None


@dataclass(frozen=True, slots=True)
class DevicePhase(PhaseOnDevice):
    """Device time in a phase over all files of a tool."""

    tool: str
    phase: str
    files: int


@dataclass(frozen=True, slots=True)
class FilePhase(PhaseOnDevice):
    """Device time in a phase in one file."""

    worker: str
    tool: str
    file: str
    phase: str


@dataclass(frozen=True, slots=True)
class LeftOver(Row):
    """Kernels in no phase, by reason; ``held``: in a framework's range, and in no phase around it."""

    tool: str
    reason: str
    held: bool
    kernels: int


@dataclass(frozen=True, slots=True)
class KernelLine(Row):
    """A kernel among the longest of a phase, over all files of a tool."""

    tool: str
    phase: str
    kernel: str
    count: int
    total_ns: int


@dataclass(frozen=True, slots=True)
class SegmentLine(Row):
    """A stretch of a step's critical path, the how-manieth of it, and of what step."""

    step: int | str
    wall_ns: int
    number: int
    worker: str
    phase: str
    ns: int
    ended: bool
    unseen: bool


@dataclass(frozen=True, slots=True)
class FileLine(Row):
    """A file of a tool."""

    worker: str
    tool: str
    file: str
    windows: str
    kernels: int
    note: str | None
