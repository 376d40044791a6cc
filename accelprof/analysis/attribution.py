"""Device work by the host phase that launched it.

A piece of work belongs to the ranges that hold its launch (the runtime call with the same ``args["correlation"]``, unique
in a file): the innermost one exclusively, every enclosing one inclusively.

The ranges are those on the launching thread. Where none there holds the launch (autograd's thread runs backward while
the thread that called it waits inside the phase), they are those of the one other thread of the process that is inside a
range at that moment. Where one does (DDP, FSDP and NCCL put their own on autograd's thread), it counts inside the ranges
of the one other thread that hold it whole. Where several threads qualify nothing is guessed: the work is given to none
of them and counted by the names of the ranges it could belong to.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from accelprof.analysis.nesting import clip
from accelprof.contracts.spans import DEVICE_WORK, Kind, Span, Trace, merge_intervals, union_ns

RANGES = frozenset({Kind.PHASE, Kind.RANGE})
LAUNCHES = frozenset({Kind.RUNTIME, Kind.SYNC})
KERNELS = frozenset({Kind.KERNEL, Kind.COMMUNICATION})
_NUMBERED = re.compile(r",? (?:seq|op_id|sizes|input_op_ids) = .*$")
Intervals = list[tuple[int, int]]
Device = int | str


@dataclass
class DeviceFigures:
    """One device in one file. Times in ns; ``busy_ns`` and ``communication_ns`` are unions, ``idle_ns`` what is left of
    the stretch from the first to the last piece of work."""

    device: Device
    kernels: int = 0
    copies: int = 0
    busy_ns: int = 0
    kernel_ns: int = 0
    communication_ns: int = 0
    span_ns: int = 0

    @property
    def idle_ns(self) -> int:
        return self.span_ns - self.busy_ns


@dataclass
class PhaseFigures:
    """One phase (all calls of one name) in one file.

    Attributes:
        wall_ns: union of its calls on the host; a call inside one of the same name counts once.
        busy_ns: device -> union of the work launched inside it, nested ranges included.
        own_busy_ns: device -> the same for work whose innermost range it is.
        idle_ns: time of its wall in which none of its devices did any work, whoever launched it; ``None`` without device work.
        communication_ns: union over its devices of collective kernels, also contained in ``busy_ns``.
        top: ``(kernel name, count, total ns)``, longest first.
    """

    name: str
    calls: int = 0
    wall_ns: int = 0
    kernels: int = 0
    own_kernels: int = 0
    busy_ns: dict[Device, int] = field(default_factory=dict)
    own_busy_ns: dict[Device, int] = field(default_factory=dict)
    communication_ns: int = 0
    idle_ns: int | None = None
    top: list[tuple[str, int, int]] = field(default_factory=list)


@dataclass
class Attribution:
    """What :func:`attribute` found.

    The kernels of the devices are exactly the ``own_kernels`` of all phases, the unattributed and the unlaunched.

    Attributes:
        unattributed: kernels whose launch lies in no range, or in ranges of several other threads (``undecided``).
        undecided: of the unattributed, by the innermost range of each thread that could have been meant.
        undecided_around: kernels of a range on a thread of its own that counts inside none of the ranges around it,
            because several threads are inside one.
        unlaunched: kernels whose launch is not in the file: launched before the window, or by what was not recorded.
        by_time: pieces of work given to a range of another thread.
    """

    devices: list[DeviceFigures] = field(default_factory=list)
    phases: list[PhaseFigures] = field(default_factory=list)
    unattributed: int = 0
    undecided: Counter[tuple[str, ...]] = field(default_factory=Counter)
    undecided_around: int = 0
    unlaunched: int = 0
    by_time: int = 0

    @property
    def kernels(self) -> int:
        """Kernels of all devices, collectives included."""
        return sum(row.kernels for row in self.devices)

    def left_over(self) -> list[tuple[str, int]]:
        """``(reason, kernels)`` for the kernels that stand in no phase; the longest list first, empty when all do."""
        outside = self.unattributed - self.undecided.total()
        rows = [(f"undecided: {' or '.join(names)}", count) for names, count in self.undecided.most_common()]
        if outside:
            rows.append(("launched outside every range", outside))
        if self.unlaunched:
            rows.append(("launch not in the file", self.unlaunched))
        return sorted(rows, key=lambda row: -row[1])


def label(name: str) -> str:
    """A range's name without the numbers that ``torch.autograd.profiler.emit_nvtx`` adds to every call."""
    return _NUMBERED.sub("", name) if " = " in name else name


def attribute(trace: Trace, top: int = 5, kinds: Iterable[Kind] = RANGES) -> Attribution:
    """Figures per device and per phase (by :func:`label`) of one trace; see the module for the rule."""
    wanted = frozenset(kinds)
    result = Attribution(devices=device_figures(trace.spans))
    work = [span for span in trace.spans if span.kind in DEVICE_WORK and span.device is not None]
    ranges = [span for span in trace.spans if span.kind in wanted]
    holders = _holders(trace.spans, ranges, work, result)
    inclusive: dict[str, list[Span]] = defaultdict(list)
    exclusive: dict[str, list[Span]] = defaultdict(list)
    for span, holding in zip(work, holders, strict=True):
        if not holding:
            continue
        exclusive[label(holding[-1].name)].append(span)
        for name in {label(range_.name) for range_ in holding}:
            inclusive[name].append(span)
    busy = {device: merge_intervals(found) for device, found in _by_device(work).items()}
    calls: dict[str, list[Span]] = defaultdict(list)
    for range_ in ranges:
        calls[label(range_.name)].append(range_)
    for name, mine in calls.items():
        result.phases.append(_figures(name, mine, inclusive[name], exclusive[name], busy, top))
    result.phases.sort(key=lambda row: (-sum(row.busy_ns.values()), -row.wall_ns, row.name))
    return result


def device_figures(spans: Iterable[Span]) -> list[DeviceFigures]:
    """Busy time (union), communication and counts per device."""
    by_device: dict[Device, list[Span]] = defaultdict(list)
    for span in spans:
        if span.kind in DEVICE_WORK and span.device is not None:
            by_device[span.device].append(span)
    rows = []
    for device in sorted(by_device, key=str):
        mine = by_device[device]
        kernels = [span for span in mine if span.kind in KERNELS]
        rows.append(
            DeviceFigures(
                device,
                len(kernels),
                len(mine) - len(kernels),
                union_ns(_intervals(mine)),
                union_ns(_intervals(kernels)),
                union_ns(_intervals(span for span in mine if span.kind is Kind.COMMUNICATION)),
                max(span.end_ns for span in mine) - min(span.start_ns for span in mine),
            )
        )
    return rows


def _figures(
    name: str, calls: Sequence[Span], mine: list[Span], own: list[Span], busy: dict[Device, Intervals], top: int
) -> PhaseFigures:
    wall = merge_intervals(_intervals(calls))
    row = PhaseFigures(name, calls=len(calls), wall_ns=sum(end - start for start, end in wall))
    kernels = [span for span in mine if span.kind in KERNELS]
    row.kernels = len(kernels)
    row.own_kernels = sum(span.kind in KERNELS for span in own)
    row.busy_ns = {device: union_ns(found) for device, found in _by_device(mine).items()}
    row.own_busy_ns = {device: union_ns(found) for device, found in _by_device(own).items()}
    talking = [span for span in mine if span.kind is Kind.COMMUNICATION]
    row.communication_ns = sum(union_ns(found) for found in _by_device(talking).values())
    if row.busy_ns:
        working = merge_intervals(interval for device in row.busy_ns for interval in busy[device])
        row.idle_ns = row.wall_ns - _overlap(wall, working)
    times: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for span in kernels:
        times[span.name] += span.duration_ns
        counts[span.name] += 1
    row.top = [(kernel, counts[kernel], time) for kernel, time in times.most_common(top)]
    return row


def _holders(
    spans: Iterable[Span], ranges: Sequence[Span], work: Sequence[Span], result: Attribution
) -> list[tuple[Span, ...]]:
    """For each piece of work the ranges that hold its launch, outermost first."""
    launches = _launches(spans)
    asked: dict[Any, list[tuple[int, int, int]]] = defaultdict(list)
    answer: list[tuple[Span, ...]] = [()] * len(work)
    launched: list[Span | None] = [launches.get(span.args.get("correlation")) for span in work]
    for index, launch in enumerate(launched):
        if launch is not None:
            asked[launch.pid].append((launch.start_ns, launch.end_ns, index))
    by_process: dict[Any, list[Span]] = defaultdict(list)
    for range_ in ranges:
        by_process[range_.pid].append(range_)
    for process, moments in asked.items():
        for index, holding in _sweep(by_process[process], moments):
            launch = launched[index]
            if launch is not None and holding:
                kernel = work[index].kind in KERNELS
                answer[index] = _decided(holding, launch.tid, kernel, result)
    for span, launch, holding in zip(work, launched, answer, strict=True):
        if span.kind in KERNELS:
            result.unlaunched += launch is None
            result.unattributed += launch is not None and not holding
    return answer


def _decided(holding: Sequence[Span], thread: Any, kernel: bool, result: Attribution) -> tuple[Span, ...]:
    """The ranges a launch on ``thread`` belongs to, of those of its process that hold it, outermost first."""
    own = tuple(range_ for range_ in holding if range_.tid == thread)
    others: dict[Any, list[Span]] = defaultdict(list)
    for range_ in holding:
        if range_.tid != thread and (not own or _holds(range_, own[0])):
            others[range_.tid].append(range_)
    if len(others) == 1:
        result.by_time += 1
        return (*next(iter(others.values())), *own)
    if others and kernel:
        if own:
            result.undecided_around += 1
        else:
            result.undecided[tuple(sorted({label(found[-1].name) for found in others.values()}))] += 1
    return own


def _holds(outer: Span, inner: Span) -> bool:
    """Whether ``inner`` lies in ``outer``; of two ranges over the same stretch neither is around the other."""
    return (
        outer.start_ns <= inner.start_ns
        and inner.end_ns <= outer.end_ns
        and (outer.start_ns, outer.end_ns) != (inner.start_ns, inner.end_ns)
    )


def _launches(spans: Iterable[Span]) -> dict[Any, Span]:
    """Launch by correlation; of several (a runtime call around a driver call) the outermost."""
    found: dict[Any, Span] = {}
    for span in spans:
        if span.kind in LAUNCHES:
            key = span.args.get("correlation")
            if key is None:
                continue
            known = found.get(key)
            if known is None or span.start_ns < known.start_ns:
                found[key] = span
    return found


def _sweep(ranges: Sequence[Span], moments: Sequence[tuple[int, int, int]]) -> Iterable[tuple[int, tuple[Span, ...]]]:
    """``(index, ranges that hold [start, end], outermost first)`` for each ``(start, end, index)``."""
    waiting = sorted(ranges, key=lambda range_: (range_.start_ns, -range_.end_ns))
    active: list[Span] = []
    following = 0
    for start, end, index in sorted(moments):
        while following < len(waiting) and waiting[following].start_ns <= start:
            active.append(waiting[following])
            following += 1
        if any(range_.end_ns < start for range_ in active):
            active = [range_ for range_ in active if range_.end_ns >= start]
        yield index, tuple(range_ for range_ in active if range_.end_ns >= end)


def _by_device(spans: Iterable[Span]) -> dict[Device, Intervals]:
    found: dict[Device, Intervals] = defaultdict(list)
    for span in spans:
        if span.device is not None:
            found[span.device].append((span.start_ns, span.end_ns))
    return found


def _intervals(spans: Iterable[Span]) -> Intervals:
    return [(span.start_ns, span.end_ns) for span in spans]


def _overlap(one: Intervals, other: Intervals) -> int:
    """Length of the intersection of two sorted disjoint lists."""
    total, at = 0, 0
    for start, end in one:
        while at < len(other) and other[at][1] <= start:
            at += 1
        for low, high in other[at:]:
            if low >= end:
                break
            total += sum(until - begin for begin, until in clip(start, end, [(low, high)]))
    return total
