"""Two runs, or two files, side by side: phases, devices, kernels. What cannot be compared is refused, with the reason.

A capture without device work looks like the largest improvement ever, and a lost device like half the work; so both
sides must have the same workers and the same devices, and neither may be empty.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from accelprof.analysis.attribution import KERNELS, Attribution, attribute
from accelprof.analysis.reading import read_any
from accelprof.analysis.run import is_run
from accelprof.analysis.summary import summarise
from accelprof.contracts.spans import Trace
from accelprof.errors import NotComparableError

#: what is compared -> what one figure of it is
MEASURES = {
    "device": "busy time (union of kernels and copies)",
    "device kernels": "time in kernels (union)",
    "phase": "wall time",
    "phase on device": "device time of a phase (union)",
    "kernel": "time of all calls",
}


@dataclass(frozen=True, slots=True)
class Change:
    """One figure on both sides, in ns (per window for runs); ``None`` = not on that side."""

    measure: str
    name: str
    before_ns: float | None
    after_ns: float | None

    @property
    def delta_ns(self) -> float | None:
        return None if self.before_ns is None or self.after_ns is None else self.after_ns - self.before_ns

    @property
    def change(self) -> float | None:
        """The difference as part of the larger side, so that swapping the sides flips the sign and nothing else."""
        if self.before_ns is None or self.after_ns is None:
            return None
        larger = max(self.before_ns, self.after_ns)
        return (self.after_ns - self.before_ns) / larger if larger else 0.0

    @property
    def ratio(self) -> float | None:
        """After by before."""
        return self.after_ns / self.before_ns if self.before_ns and self.after_ns is not None else None


@dataclass
class Comparison:
    """All changes, the largest differences of each measure first. ``notes``: what a reader must know."""

    before: str
    after: str
    changes: list[Change] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def unchanged(self) -> bool:
        """Every figure is exactly the same on both sides."""
        return all(change.delta_ns == 0 for change in self.changes)

    def of(self, measure: str) -> list[Change]:
        return [change for change in self.changes if change.measure == measure]

    def to_json(self) -> dict[str, Any]:
        """Plain data; times in ns, ``change`` as part of the larger side."""
        return {
            "before": self.before,
            "after": self.after,
            "unchanged": self.unchanged,
            "notes": self.notes,
            "changes": [
                {
                    "measure": change.measure,
                    "name": change.name,
                    "before_ns": change.before_ns,
                    "after_ns": change.after_ns,
                    "delta_ns": change.delta_ns,
                    "change": change.change,
                    "ratio": change.ratio,
                }
                for change in self.changes
            ],
        }


@dataclass
class Side:
    """The figures of one side: measure -> name -> ns; ``devices``: worker -> its devices (text)."""

    path: str
    figures: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    devices: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    workers: set[str] = field(default_factory=set)
    kernels: int = 0
    broken: list[str] = field(default_factory=list)


def compare(
    before: str | os.PathLike[str], after: str | os.PathLike[str], devices: Sequence[str | int] = ()
) -> Comparison:
    """Compare two run directories or two files.

    Args:
        devices: only these devices, by number; others are left out on both sides.

    Raises:
        NotComparableError: an empty side, a device or worker on one side only, or a device asked for that neither has.
        ReadError: a side cannot be read.
    """
    one, other = (_side(os.fspath(path), [str(device) for device in devices]) for path in (before, after))
    result = Comparison(one.path, other.path)
    _pair_single_devices(one, other, result.notes)
    reasons = list(dict.fromkeys(_reasons(one, other, [str(device) for device in devices])))
    if reasons:
        raise NotComparableError(f"not comparable: {one.path} and {other.path}: {'; '.join(reasons)}")
    for measure in MEASURES:
        left, right = one.figures.get(measure, {}), other.figures.get(measure, {})
        rows = [Change(measure, name, left.get(name), right.get(name)) for name in dict.fromkeys([*left, *right])]
        rows.sort(key=lambda row: (row.delta_ns is None, -abs((row.after_ns or 0) - (row.before_ns or 0)), row.name))
        result.changes.extend(rows)
        lonely = Counter("before" if row.after_ns is None else "after" for row in rows if row.delta_ns is None)
        result.notes.extend(f"{count} {measure} figures are only in {where}" for where, count in sorted(lonely.items()))
    return result


def _side(path: str, devices: Sequence[str]) -> Side:
    return _run_side(path, devices) if os.path.isdir(path) and is_run(path) else _file_side(path, devices)


def _file_side(path: str, devices: Sequence[str]) -> Side:
    side = Side(path, workers={""})
    trace = read_any(path)
    _add_trace(side, "", _only(trace, devices), 1)
    side.broken = [
        f"{path}: {problem}" for problem in trace.problems if "cut off" in problem or "not closed" in problem
    ]
    return side


def _run_side(path: str, devices: Sequence[str]) -> Side:
    summary = summarise(path)
    side = Side(path, workers={timeline.worker.label for timeline in summary.timelines})
    side.broken = list(summary.undelivered)
    for row in summary.phases:
        windows = sum(len(t.windows) for t in summary.timelines if t.worker.group == row.group)
        side.figures["phase"][f"{row.group}: {row.phase}"] = row.total_ns / max(windows, 1)
    files = Counter(file.worker.label for file in summary.files if file.attribution.devices)
    for file in summary.files:
        found = file.attribution
        found.devices = [row for row in found.devices if not devices or str(row.device) in devices]
        side.workers.add(file.worker.label)
        _add_attribution(side, f"{file.worker.label} ", file.worker.label, found, files[file.worker.label] or 1)
    return side


def _only(trace: Trace, devices: Sequence[str]) -> Trace:
    if devices:
        trace.spans = [span for span in trace.spans if span.device is None or str(span.device) in devices]
    return trace


def _add_trace(side: Side, worker: str, trace: Trace, windows: int) -> None:
    found = attribute(trace)
    _add_attribution(side, "", worker, found, windows)
    for row in found.phases:
        side.figures["phase"][row.name] = row.wall_ns
    for span in trace.spans:
        if span.kind in KERNELS:
            side.figures["kernel"][span.name] = side.figures["kernel"].get(span.name, 0) + span.duration_ns


def _add_attribution(side: Side, prefix: str, worker: str, found: Attribution, windows: int) -> None:
    """``windows`` files of one worker are added up and divided, so that runs with more windows are not slower."""
    for device in found.devices:
        side.devices[worker].add(str(device.device))
        side.kernels += device.kernels
        _add(side.figures["device"], f"{prefix}device {device.device}", device.busy_ns, windows)
        _add(side.figures["device kernels"], f"{prefix}device {device.device}", device.kernel_ns, windows)
    for phase in found.phases:
        if phase.busy_ns:
            _add(side.figures["phase on device"], f"{prefix}{phase.name}", sum(phase.busy_ns.values()), windows)


def _add(figures: dict[str, float], name: str, value: int, windows: int) -> None:
    figures[name] = figures.get(name, 0) + (value if windows == 1 else value / windows)


def _pair_single_devices(one: Side, other: Side, notes: list[str]) -> None:
    """Two files with one device each are about that device, whatever its number is."""
    left, right = (side.devices.get("", set()) for side in (one, other))
    if len(left) != 1 or len(right) != 1 or left == right:
        return
    mine, theirs = next(iter(left)), next(iter(right))
    notes.append(f"device {mine} of before is compared with device {theirs} of after: the only one of each")
    other.devices[""] = set(left)
    for measure in ("device", "device kernels"):
        figures = other.figures[measure]
        figures[f"device {mine}"] = figures.pop(f"device {theirs}")


def _reasons(one: Side, other: Side, devices: Sequence[str]) -> Iterator[str]:
    for name, side in (("before", one), ("after", other)):
        yield from (f"{name} is not complete: {line}" for line in side.broken)
        if not side.kernels and not side.figures.get("phase"):
            yield f"{name} is empty: no phase and no device work"
    for label in sorted(one.workers ^ other.workers):
        yield f"{label} is only in {'before' if label in one.workers else 'after'}"
    for device in devices:
        if not any(device in found for side in (one, other) for found in side.devices.values()):
            yield f"device {device} is in neither"
    if bool(one.kernels) != bool(other.kernels):
        empty, full = ("before", "after") if not one.kernels else ("after", "before")
        yield f"{empty} has no kernels, {full} has {one.kernels or other.kernels:,}"
    for worker in sorted(one.devices.keys() | other.devices.keys()):
        yield from _device_reasons(worker, one.devices, other.devices)


def _device_reasons(worker: str, one: Mapping[str, set[str]], other: Mapping[str, set[str]]) -> Iterator[str]:
    left, right = one.get(worker, set()), other.get(worker, set())
    of = f" of {worker}" if worker else ""
    for device in sorted(left ^ right):
        yield f"device {device}{of} is only in {'before' if device in left else 'after'}"
    if len(left) != len(right):
        yield f"{len(left)} device{'s' * (len(left) != 1)}{of} before, {len(right)} after"
