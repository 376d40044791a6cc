"""Device work by the host phase that launched it.

A kernel belongs to the ranges on the launching thread that hold its launch (the runtime call with the same
``args["correlation"]``, unique in a file): the innermost one exclusively, every enclosing one inclusively. Threads
without any range of their own (autograd's, a CUDA graph's) belong to the one other thread of the process that is inside
a range at that moment, if there is exactly one; such launches are counted.
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

    Attributes:
        unattributed: kernels whose launch lies in no range; ``unlaunched``: whose launch is not in the file;
            ``by_time``: pieces of work given to a range of another thread.
    """

    devices: list[DeviceFigures] = field(default_factory=list)
    phases: list[PhaseFigures] = field(default_factory=list)
    unattributed: int = 0
    unlaunched: int = 0
    by_time: int = 0


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
    asked: dict[tuple[Any, Any], list[tuple[int, int, int]]] = defaultdict(list)
    answer: list[tuple[Span, ...]] = [()] * len(work)
    with_ranges = {(range_.pid, range_.tid) for range_ in ranges}
    adrift: dict[Any, list[tuple[int, int, int]]] = defaultdict(list)
    for index, span in enumerate(work):
        launch = launches.get(span.args.get("correlation"))
        if launch is None:
            result.unlaunched += span.kind in KERNELS
            continue
        moment = (launch.start_ns, launch.end_ns, index)
        if (launch.pid, launch.tid) in with_ranges:
            asked[launch.pid, launch.tid].append(moment)
        else:
            adrift[launch.pid].append(moment)
    by_thread: dict[tuple[Any, Any], list[Span]] = defaultdict(list)
    by_process: dict[Any, list[Span]] = defaultdict(list)
    for range_ in ranges:
        by_thread[range_.pid, range_.tid].append(range_)
        by_process[range_.pid].append(range_)
    for place, moments in asked.items():
        for index, holding in _sweep(by_thread[place], moments):
            answer[index] = holding
    for process, moments in adrift.items():
        for index, holding in _sweep(by_process[process], moments):
            if holding and len({range_.tid for range_ in holding}) == 1:
                answer[index] = holding
                result.by_time += 1
    lost = sum(not holding and span.kind in KERNELS for span, holding in zip(work, answer, strict=True))
    result.unattributed = lost - result.unlaunched
    return answer


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
