"""Rows of the report, each a type: who makes one and who reads one agree on its keys, and the columns of its table follow."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any, TypedDict, Union, get_args, get_origin, get_type_hints

from accelprof.output.layout import steps_text


class Waits(TypedDict):
    """Times in ns that others waited, with their bounds where clocks are not compared exactly; see docs/analysis.md.

    ``alone_ns`` of ``waited_ns`` is what they would not have waited had the last to arrive come with the one before it.
    """

    waited_ns: int
    alone_ns: int
    low_ns: int
    high_ns: int
    without_ns: int
    transfer_ns: int | None


class Straggler(TypedDict):
    """The last to arrive in a collective, and what the others waited for it: on their hosts or their devices. ``after``: the one
    that came before it."""

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


class _MayWait(TypedDict, total=False):
    #: ``True`` where a worker may have waited of which nothing was recorded; see :class:`UnseenWait`
    unseen: bool


class Segment(_MayWait):
    """A stretch of a step's critical path; a gap stands under :data:`replay.OUTSIDE`. ``unseen``: it may be waiting."""

    worker: str
    phase: str
    ns: int


class _Ended(TypedDict, total=False):
    #: of a step that did not end, ``False``
    ended: bool


class CriticalPath(_Ended):
    """The chain that decided a step's end, first to last; its segments' sum is ``wall_ns``."""

    step: int | str
    wall_ns: int
    segments: list[Segment]


class Slack(_MayWait):
    """What is not on a step's critical path: how long a phase's stretches on a worker are in all, and how much later each could end
    without moving the step's end. ``unseen``: others may have waited for it."""

    step: int | str
    worker: str
    phase: str
    spans: int
    ns: int
    slack_ns: int
    low_ns: int
    high_ns: int


class UnseenWait(TypedDict):
    """A phase whose calls the ranks of a group began up to ``apart_ns`` apart, ``last`` as the last, and ended together: those before may
    have waited in it, of which nothing was recorded."""

    step: int | str
    group: str
    phase: str
    apart_ns: int
    last: str


class StepTime(TypedDict):
    """A step that was announced, or that a window holds, and whether one does; ``recording_ns`` of it windows were being opened
    or closed on some rank, ``None`` where that is not known."""

    step: int
    wall_ns: int | None
    window: bool
    recording_ns: int | None


class Outlier(TypedDict):
    """A step that took longer than usual; phase and worker are of what grew most on its slowest rank."""

    step: int
    wall_ns: int
    usual_ns: int
    phase: str | None
    phase_ns: int | None
    phase_usual_ns: int | None
    worker: str | None


class Drift(TypedDict):
    """What grew or shrank from the first step to the last: a phase, or (``None``) the steps themselves; ``change`` is part of the
    first, and lies between ``low`` and ``high`` for sure. ``cause`` made the steps grow, longest on ``worker``."""

    phase: str | None
    steps: int
    first_ns: int
    last_ns: int
    change: float
    low: float
    high: float
    cause: str | None
    worker: str | None


class WindowParts(TypedDict):
    """The division of one window of a worker on one device: ``parts`` by name, whose sum is ``window_ns``."""

    worker: str
    window: str
    device: int | str | None
    window_ns: int
    parts: dict[str, int]


class OperatorRow(TypedDict):
    """An operator's calls in one phase (``None``: outside every phase), over files and workers."""

    operator: str
    kind: str
    phase: str | None
    tool: str
    workers: int
    calls: int
    total_ns: int
    self_ns: int


class Cost(TypedDict):
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


class _OfStep(TypedDict):
    step: int
    worker: str


class Memory(_OfStep, total=False):
    """A worker's memory at the end of a step, in bytes: of these what its backend knows, and others that it may."""

    allocated: int
    reserved: int
    peak: int
    resident: int


class WorkerMemory(TypedDict):
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


class DeviceRow(TypedDict):
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


class PhaseLine(TypedDict):
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


class _OfTool(TypedDict):
    tool: str
    phase: str
    files: int


class _OfFile(TypedDict):
    worker: str
    tool: str
    file: str
    phase: str


class _OnDevice(TypedDict):
    calls: int
    wall_ns: int
    busy_ns: int | None
    own_busy_ns: int | None
    idle_ns: int | None
    communication_ns: int
    kernels: int
    longest_kernel: str | None


class DevicePhase(_OfTool, _OnDevice):
    """Device time in a phase over all files of a tool."""


class FilePhase(_OfFile, _OnDevice):
    """Device time in a phase in one file."""


class LeftOver(TypedDict):
    """Kernels in no phase, by reason; ``held``: in a framework's range, and in no phase around it."""

    tool: str
    reason: str
    held: bool
    kernels: int


class Dump(TypedDict, total=False):
    """What a report has besides."""

    #: of a recorder's dump: what is said of its last step
    dump: list[str]
    #: added by the command line: the first sentences
    first: list[str]


class Worker(TypedDict):
    """One worker, and its windows on its own clock; ``window_ns``: how long they were open in all."""

    worker: str
    key: str
    group: str
    replica: int | None
    window_ns: int
    dropped: int
    windows: list[dict[str, object]]


class Report(Dump):
    """A summary as ``accelprof report --json`` has it, and as everything is drawn from."""

    format: int
    run: object
    directory: str
    created: object
    delivered: bool
    undelivered: list[str]
    notices: list[str]
    problems: list[str]
    workers: list[Worker]
    phases: list[dict[str, Any]]
    devices: list[dict[str, Any]]
    seconds: list[WindowParts]
    stragglers: list[Straggler]
    critical_path: list[CriticalPath]
    clocks_not_compared: list[str]
    without_ns: int
    unseen: list[UnseenWait]
    slack: list[Slack]
    steps: list[StepTime]
    outliers: list[Outlier]
    drift: list[Drift]
    memory: list[Memory]
    operators: list[OperatorRow]
    cost: list[Cost]
    metrics: dict[str, object]


def step_name(steps: Sequence[int]) -> int | str:
    """A window's step, or its steps, as rows name them: ``7``, ``4-9``; empty for none."""
    return steps[0] if len(steps) == 1 else steps_text(steps)


def columns_of(row: type) -> dict[str, type]:
    """A row's columns and what is in them where there is anything: the first of several types, text of a list."""
    return {name: _column(hint) for name, hint in get_type_hints(row).items()}


def _column(hint: object) -> type:
    if get_origin(hint) in (Union, types.UnionType):
        return _column(get_args(hint)[0])
    return hint if isinstance(hint, type) and get_origin(hint) is None else str
