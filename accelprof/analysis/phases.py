"""Phases of a run from the timelines of its workers: calls, times, self time, share, and the spread over ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from accelprof.analysis.nesting import clip, parents, row_of, segments, shares
from accelprof.analysis.run import WorkerId
from accelprof.spans import Kind, Span, Trace, merge_intervals

TIMED = frozenset({Kind.PHASE, Kind.RANGE})


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a phase on one worker; ``cut``: it began before the window or went on after it."""

    phase: str
    kind: Kind
    start_ns: int
    end_ns: int
    taken_ns: int
    cut: bool


@dataclass
class WorkerTimeline:
    """What one worker's timelines hold. ``windows``: ``(id, steps, start_ns, end_ns)`` on the worker's own clock."""

    worker: WorkerId
    windows: list[tuple[str, tuple[int, ...], int, int]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    self_ns: dict[str, int] = field(default_factory=dict)
    shared_ns: dict[str, float] = field(default_factory=dict)
    parents: dict[str, set[str | None]] = field(default_factory=lambda: defaultdict(set))
    dropped: int = 0
    _rows: dict[object, list[Span]] = field(default_factory=lambda: defaultdict(list))

    @property
    def window_ns(self) -> int:
        return sum(end - start for start, end in merge_intervals((row[2], row[3]) for row in self.windows))

    def add(self, trace: Trace) -> None:
        """Take in one file of the worker; call :meth:`finish` after the last."""
        for span in trace.spans:
            if span.kind is Kind.WINDOW:
                identity = trace.origin.windows[0] if trace.origin.windows else span.name
                self.windows.append((identity, trace.origin.steps, span.start_ns, span.end_ns))
            elif span.kind in TIMED:
                self._rows[row_of(span)].append(span)
        dropped = (trace.metadata.get("accelprof") or {}).get("dropped")
        self.dropped += dropped if isinstance(dropped, int) else 0

    def finish(self) -> None:
        """Work out calls, self time and shares."""
        inside = merge_intervals((row[2], row[3]) for row in self.windows)
        stretches: list[tuple[int, int, str]] = []
        own: dict[str, int] = defaultdict(int)
        for spans in self._rows.values():
            bounds = [(span.start_ns, span.end_ns) for span in spans]
            for start, end, index in segments(bounds):
                for low, high in clip(start, end, inside):
                    own[spans[index].name] += high - low
                    stretches.append((low, high, spans[index].name))
            for span, parent in zip(spans, parents(bounds), strict=True):
                self.parents[span.name].add(None if parent is None else spans[parent].name)
                taken = span.args.get("own_ns")
                cut = bool(span.args.get("in_progress"))
                self.calls.append(
                    Call(
                        span.name,
                        span.kind,
                        span.start_ns,
                        span.end_ns,
                        taken if isinstance(taken, int) and not cut else span.duration_ns,
                        cut,
                    )
                )
        self._rows.clear()
        self.self_ns = dict(own)
        self.shared_ns = {str(label): taken for label, taken in shares(stretches).items()}


@dataclass
class RankFigures:
    """One phase on one worker: times in ns, ``per_window_ns`` the total by the worker's number of windows."""

    calls: int
    total_ns: int
    per_window_ns: float


@dataclass
class PhaseRow:
    """One phase of one group over its ranks. Times in ns over all ranks and windows.

    Attributes:
        calls: whole calls; ``cut``: calls that a window's edge cut, counted in ``total_ns`` and ``self_ns`` only.
        mean_ns, p50_ns, p95_ns: of whole calls; ``None`` without one.
        self_ns: time in which it was the innermost phase of its thread or task.
        share: part of the windows' time that is its own (concurrent threads and tasks share an instant); over a group's
            rows these sum to at most 1. ``None`` without a window.
        slowest: worker with the largest time per window, ``fastest`` the smallest; ``None`` with one worker.
        missing: workers of the group that never called it.
        parent: the phase around it, when that is always the same.
    """

    group: str
    phase: str
    kind: str
    calls: int = 0
    cut: int = 0
    total_ns: int = 0
    mean_ns: float | None = None
    p50_ns: float | None = None
    p95_ns: float | None = None
    self_ns: int = 0
    share: float | None = None
    ranks: dict[str, RankFigures] = field(default_factory=dict)
    slowest: str | None = None
    fastest: str | None = None
    missing: list[str] = field(default_factory=list)
    parent: str | None = None
    depth: int = 0

    @property
    def spread(self) -> float | None:
        """Slowest by fastest, per window; ``None`` with one worker."""
        if self.slowest is None or self.fastest is None:
            return None
        fast = self.ranks[self.fastest].per_window_ns
        return self.ranks[self.slowest].per_window_ns / fast if fast else None


def phase_rows(timelines: Sequence[WorkerTimeline]) -> list[PhaseRow]:
    """All phases of all groups; nested ones stand below the phase around them, the longest first."""
    groups: dict[str, list[WorkerTimeline]] = defaultdict(list)
    for timeline in timelines:
        groups[timeline.worker.group].append(timeline)
    return [row for group in sorted(groups) for row in _group_rows(group, groups[group])]


def _group_rows(group: str, workers: Sequence[WorkerTimeline]) -> list[PhaseRow]:
    calls: dict[str, list[tuple[WorkerTimeline, Call]]] = defaultdict(list)
    for worker in workers:
        for call in worker.calls:
            calls[call.phase].append((worker, call))
    rows = {phase: _row(group, phase, workers, found) for phase, found in calls.items()}
    for phase, row in rows.items():
        around = set().union(*(worker.parents.get(phase, set()) for worker in workers)) - {phase}
        row.parent = next(iter(around)) if len(around) == 1 else None
    return _tree(rows)


def _row(
    group: str, phase: str, workers: Sequence[WorkerTimeline], found: Sequence[tuple[WorkerTimeline, Call]]
) -> PhaseRow:
    row = PhaseRow(group, phase, found[0][1].kind.value)
    whole = sorted(call.taken_ns for _, call in found if not call.cut)
    row.calls, row.cut = len(whole), len(found) - len(whole)
    row.total_ns = sum(call.taken_ns for _, call in found)
    if whole:
        row.mean_ns, row.p50_ns, row.p95_ns = sum(whole) / len(whole), percentile(whole, 0.5), percentile(whole, 0.95)
    row.self_ns = sum(worker.self_ns.get(phase, 0) for worker in workers)
    available = sum(worker.window_ns for worker in workers)
    row.share = sum(worker.shared_ns.get(phase, 0.0) for worker in workers) / available if available else None
    for worker in workers:
        mine = [call for owner, call in found if owner is worker]
        if not mine:
            row.missing.append(worker.worker.label)
            continue
        total = sum(call.taken_ns for call in mine)
        windows = max(len(worker.windows), 1)
        row.ranks[worker.worker.label] = RankFigures(sum(not call.cut for call in mine), total, total / windows)
    if len(row.ranks) > 1:
        row.slowest = max(row.ranks, key=lambda label: row.ranks[label].per_window_ns)
        row.fastest = min(row.ranks, key=lambda label: row.ranks[label].per_window_ns)
    return row


def _tree(rows: dict[str, PhaseRow]) -> list[PhaseRow]:
    below: dict[str | None, list[PhaseRow]] = defaultdict(list)
    for row in rows.values():
        below[row.parent].append(row)
    result: list[PhaseRow] = []

    def walk(parent: str | None, depth: int) -> None:
        for row in sorted(below.pop(parent, []), key=lambda item: (-item.total_ns, item.phase)):
            row.depth = depth
            result.append(row)
            walk(row.phase, depth + 1)

    walk(None, 0)
    while below:  # phases that hold each other in turn
        walk(next(iter(below)), 0)
    return result


def percentile(ordered: Sequence[int], share: float) -> float:
    """Linear interpolation between the closest ranks of an ordered, non-empty sequence."""
    at = (len(ordered) - 1) * share
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def windows_in_order(timelines: Iterable[WorkerTimeline]) -> list[tuple[int, ...]]:
    """The distinct step tuples of all windows, ascending."""
    return sorted({window[1] for timeline in timelines for window in timeline.windows})
