"""The records that readers yield and reports eat. Bump ``FORMAT_VERSION`` when a field changes meaning.

All times are integers in nanoseconds: Unix-epoch times near 1.7e18 ns do not fit a float64 (steps of 256 ns there).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

FORMAT_VERSION = 1


class Kind(str, enum.Enum):
    """What a span is. Busy time of a device counts ``DEVICE_WORK`` kinds only; annotations are never work."""

    PHASE = "phase"  # Worker.timer, accelprof.timer, worker_timer
    RANGE = "range"  # profiling_range and other annotations on the host
    STEP = "step"
    WINDOW = "window"
    OPERATOR = "operator"  # host side framework operators
    RUNTIME = "runtime"  # host side vendor API calls (cudaLaunchKernel, hipMemcpyAsync, aclrt*)
    SYNC = "sync"  # host waits for the device
    KERNEL = "kernel"
    COMMUNICATION = "communication"  # collective kernels: NCCL, RCCL, HCCL
    COPY = "copy"
    MEMSET = "memset"
    DEVICE_ANNOTATION = "device_annotation"  # ranges projected to the device side (gpu_user_annotation)


DEVICE_WORK = frozenset({Kind.KERNEL, Kind.COMMUNICATION, Kind.COPY, Kind.MEMSET})


class Clock(str, enum.Enum):
    """The base of a trace's times."""

    EPOCH = "epoch"  # nanoseconds since 1970-01-01 UTC on the writer's node
    MONOTONIC = "monotonic"
    BOOTTIME = "boottime"
    RELATIVE = "relative"  # the file's own zero


@dataclass(slots=True)
class Span:
    """One interval ``[start_ns, end_ns]``.

    ``tid`` is the OS thread (or the file's own thread number), ``task`` a label for the asyncio task or generator when
    the code could be suspended. ``device`` and ``stream`` are set for device work only.
    """

    name: str
    kind: Kind
    start_ns: int
    end_ns: int
    pid: int | str = 0
    tid: int | str = 0
    task: str = ""
    domain: str = ""
    category: str = ""
    color: str = ""
    device: int | str | None = None
    stream: int | str | None = None
    args: Mapping[str, Any] = field(default_factory=dict)

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass(slots=True)
class Mark:
    """One instant."""

    name: str
    at_ns: int
    pid: int | str = 0
    tid: int | str = 0
    domain: str = ""
    category: str = ""
    color: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Origin:
    """Which worker a trace came from; unknown is ``None``, never 0."""

    group: str | None = None
    role: str | None = None
    rank: int | None = None
    replica: int | None = None
    host: str | None = None
    pid: int | None = None
    windows: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()


@dataclass(slots=True)
class Trace:
    """All that one file holds.

    Attributes:
        source: path of the file.
        tool: name of the tool whose reader made this.
        clock: base of the times; with ``Clock.EPOCH`` files of several workers can be put on one axis.
        problems: what was left out and why (NaN durations, negative spans, missing tables), one line each.
        metadata: facts of the file worth showing: versions, device names, dropped counts.
    """

    source: str
    tool: str
    clock: Clock = Clock.RELATIVE
    spans: list[Span] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    origin: Origin = field(default_factory=Origin)

    def of_kind(self, *kinds: Kind) -> Iterator[Span]:
        return (span for span in self.spans if span.kind in kinds)

    def devices(self) -> list[int | str]:
        return sorted({span.device for span in self.spans if span.device is not None}, key=str)


def union_ns(intervals: Iterable[tuple[int, int]]) -> int:
    """Length in ns of the union of ``(start, end)`` intervals; overlaps count once."""
    return sum(end - start for start, end in merge_intervals(intervals))


def merge_intervals(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted disjoint intervals that cover the same points."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
        elif end > start:
            merged.append((start, end))
    return merged


def busy_ns(spans: Iterable[Span]) -> dict[int | str, int]:
    """Busy time in ns per device: the union, not the sum, of its ``DEVICE_WORK`` spans."""
    by_device: dict[int | str, list[tuple[int, int]]] = {}
    for span in spans:
        if span.kind in DEVICE_WORK and span.device is not None:
            by_device.setdefault(span.device, []).append((span.start_ns, span.end_ns))
    return {device: union_ns(intervals) for device, intervals in by_device.items()}
