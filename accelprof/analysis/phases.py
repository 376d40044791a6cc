"""Phases of a run from the timelines of its workers: calls, times, self time, share, and the spread over ranks."""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from accelprof.analysis.nesting import clip, parents, segments, shares
from accelprof.analysis.packed import Packed
from accelprof.analysis.run import WorkerId
from accelprof.analysis.seconds import COLLECTIVE
from accelprof.contracts.spans import CALL, Kind, Trace, merge_intervals
from accelprof.output.records import WindowRow
from accelprof.reading.columns import KINDS, columns_of

TIMED = frozenset({Kind.PHASE, Kind.RANGE})
MAX_CALLS = 10_000
#: with more stretches than this a worker's are not kept: who waited for whom is not asked of it
MAX_STRETCHES = 200_000


class Call(NamedTuple):
    """One call of a phase on one worker; ``cut``: it began before the window or went on after it; ``nested``: it is inside another
    of its phase, which has its time."""

    phase: str
    cut: bool
    nested: bool
    start_ns: int
    end_ns: int
    taken_ns: int


class Timed(NamedTuple):
    """One call as the timeline has it; ``own_ns``: time inside it where it was suspended. ``call``: number that the pieces of one
    call have in common (of a generator each time it goes on is a piece), ``None`` for a call in one piece. ``file``: which of the
    worker's; nothing in one is inside what another has."""

    name: str
    kind: Kind
    start_ns: int
    end_ns: int
    own_ns: int | None
    cut: bool
    call: object = None
    category: str = ""
    file: int = 0


class Stretch(NamedTuple):
    """A stretch of a window in which ``phase`` is the innermost of its row, on the worker's own clock.

    ``around``: the phases around it, the innermost first. ``collective``, ``call_ns``: name and beginning of the outermost
    collective that it is a part of; the name is empty for what is in none. ``cut``: of a call that a window cut.
    """

    phase: str
    category: str
    around: tuple[str, ...]
    collective: str
    cut: bool
    row: int
    start_ns: int
    end_ns: int
    call_ns: int


def _no_calls() -> Packed[Call]:
    return Packed(Call, 3)


def _no_stretches() -> Packed[Stretch]:
    return Packed(Stretch, 4)


@dataclass
class PhaseTimes:
    """One phase on one worker: ``whole`` are the times of whole calls in ns, ``cut_ns`` is of those that a window cut; of both
    ``nested_ns`` is of calls inside a call of the same phase, whose time the outer one has."""

    kind: Kind
    whole: array[int] = field(default_factory=lambda: array("q"))
    cut: int = 0
    cut_ns: int = 0
    nested_ns: int = 0
    self_ns: int = 0
    shared_ns: float = 0.0
    parents: set[str | None] = field(default_factory=set)

    @property
    def total_ns(self) -> int:
        return sum(self.whole) + self.cut_ns - self.nested_ns

    @property
    def of_calls(self) -> tuple[int, int]:
        """``(ns, calls)`` of whole calls, those inside another too; of cut ones where there is no other."""
        return (sum(self.whole), len(self.whole)) if self.whole else (self.cut_ns, self.cut)


@dataclass
class WorkerTimeline:
    """What one worker's timelines hold.

    Attributes:
        windows: ``(id, steps, start_ns, end_ns)`` on the worker's own clock.
        calls: the longest calls, at most ``MAX_CALLS``, for drawing; ``calls_left_out`` the number of the others.
        rows: process, thread and task of each row that stretches stand on, as the files have them.
        transfers: of a merged timeline the stretches in which its collectives no longer waited, ``matched`` those of which it says so.
    """

    worker: WorkerId
    windows: list[tuple[str, tuple[int, ...], int, int]] = field(default_factory=list)
    phases: dict[str, PhaseTimes] = field(default_factory=dict)
    calls: Packed[Call] = field(default_factory=_no_calls)
    calls_left_out: int = 0
    dropped: int = 0
    stretches: Packed[Stretch] = field(default_factory=_no_stretches)
    stretches_left_out: bool = False
    rows: list[tuple[int | str, object, str]] = field(default_factory=list)
    transfers: list[tuple[int, int]] = field(default_factory=list)
    matched: list[tuple[int, int]] = field(default_factory=list)
    _rows: dict[tuple[int | str, object, str], list[Timed]] = field(default_factory=lambda: defaultdict(list))
    _pieces: dict[tuple[str, object], list[int]] = field(default_factory=dict)
    _files: int = 0

    @property
    def window_ns(self) -> int:
        return sum(end - start for start, end in merge_intervals((row[2], row[3]) for row in self.windows))

    def in_one_piece(self) -> frozenset[str]:
        """Phases of which :attr:`calls` has each call, and as one."""
        heads, _ = self.calls.columns()
        kept: Counter[str] = Counter()
        for code, count in Counter(heads).items():
            kept[self.calls.heads[code][0]] += 0 if self.calls_left_out else count
        return frozenset(name for name, times in self.phases.items() if kept[name] == len(times.whole) + times.cut)

    def called_in(self, windows: Collection[str]) -> dict[str, int]:
        """How many whole calls of each phase lie in these windows: those that a window cut a tool need not show. Of some of the windows
        only for phases :meth:`in_one_piece`."""
        mine = sorted((start, name in windows) for name, _, start, _ in self.windows)
        if all(within for _, within in mine):
            return {name: len(times.whole) for name, times in self.phases.items()}
        starts = [start for start, _ in mine]
        found: Counter[str] = Counter()
        for call in self.calls:
            found[call.phase] += not call.cut and mine[max(bisect_right(starts, call.start_ns) - 1, 0)][1]
        return {phase: found[phase] for phase in self.in_one_piece()}

    def add(self, trace: Trace, rows: Mapping[str, WindowRow] | None = None) -> None:
        """Take in one file of the worker; call :meth:`finish` after the last. ``rows``: windows as the run has them, which knows of one
        that was opened for a step whether that came, and others after it."""
        columns = columns_of(trace)
        for row in columns.rows(Kind.WINDOW).tolist():
            identity = trace.origin.windows[0] if trace.origin.windows else columns.names[columns.name[row]]
            span, known = columns.span(row), (rows or {}).get(identity)
            steps = tuple(known.steps) if known is not None and known.kind == "step" else trace.origin.steps
            self.windows.append((identity, steps, span.start_ns, span.end_ns))
        timed = columns.rows(*TIMED)
        threads, tasks, names, words = columns.threads, columns.tasks, columns.names, columns.words
        for row, name, kind, thread, task, start, end, own, cut, category in zip(
            timed.tolist(), columns.name[timed].tolist(), columns.kind[timed].tolist(), columns.thread[timed].tolist(),
            columns.task[timed].tolist(), columns.start[timed].tolist(), columns.end[timed].tolist(),
            columns.own[timed].tolist(), columns.cut[timed].tolist(), columns.category[timed].tolist(), strict=True,
        ):  # fmt: skip
            process, tid = threads[thread]
            row_key = (columns.processes[process], tid, tasks[task])
            number = columns.args(row).get(CALL) if own >= 0 else None
            call = None if number is None else (columns.processes[process], str(number))
            self._rows[row_key].append(
                Timed(
                    names[name],
                    KINDS[kind],
                    start,
                    end,
                    None if own < 0 else own,
                    cut,
                    call,
                    words[category],
                    self._files,
                )
            )
        self._files += 1
        dropped = (trace.metadata.get("accelprof") or {}).get("dropped")
        self.dropped += dropped if isinstance(dropped, int) else 0

    def finish(self) -> None:
        """Work out times, self time and shares; the spans are let go."""
        inside = merge_intervals((row[2], row[3]) for row in self.windows)
        stretches: list[tuple[int, int, str]] = []
        calls: list[Call] = []
        suspended = (span for spans in self._rows.values() for span in spans if span.call is not None)
        cut = {(span.name, span.call) for span in suspended if span.cut}
        for row, spans in enumerate(self._rows.values()):
            bounds = [(span.start_ns, span.end_ns) for span in spans]
            above = parents(bounds)
            for span, parent, nested in zip(spans, above, _in_own_call(spans), strict=True):
                calls.append(self._take(span, None if parent is None else spans[parent].name, nested))
            around: dict[int, tuple[int, ...]] = {}
            # of code that was suspended only the time inside it, which is put at its beginning
            inner = [(s.start_ns, s.end_ns if s.own_ns is None or s.cut else s.start_ns + s.own_ns) for s in spans]
            for start, end, index in segments(inner):
                for low, high in clip(start, end, inside):
                    self.phases[spans[index].name].self_ns += high - low
                    stretches.append((low, high, spans[index].name))
                    if len(self.stretches) < MAX_STRETCHES:
                        span = spans[index]
                        outer = [spans[at] for at in _around(index, above, around)]
                        names = tuple(one.name for one in outer)
                        joint = next((one for one in (*outer[::-1], span) if one.category == COLLECTIVE), None)
                        name, since = (joint.name, joint.start_ns) if joint is not None else ("", 0)
                        part = span.cut or (span.name, span.call) in cut
                        self.stretches.append(
                            Stretch(span.name, span.category, names, name, part, row, low, high, since)
                        )
        if len(stretches) > len(self.stretches):
            self.stretches_left_out = True
            self.stretches = _no_stretches()
        self.rows = list(self._rows)
        self._rows.clear()
        for (name, _), (whole, cuts) in self._pieces.items():
            times = self.phases[name]
            if cuts:
                times.cut, times.cut_ns = times.cut + 1, times.cut_ns + whole
            else:
                times.whole.append(whole)
        self._pieces.clear()
        for label, taken in shares(stretches).items():
            self.phases[str(label)].shared_ns = taken
        for call in heapq.nlargest(MAX_CALLS, calls, key=lambda call: call.end_ns - call.start_ns):
            self.calls.append(call)
        self.calls_left_out = len(calls) - len(self.calls)

    def _take(self, span: Timed, parent: str | None, nested: bool) -> Call:
        times = self.phases.get(span.name)
        if times is None:
            times = self.phases[span.name] = PhaseTimes(span.kind)
        times.parents.add(parent)
        cut = span.cut
        taken = span.own_ns if span.own_ns is not None and not cut else span.end_ns - span.start_ns
        times.nested_ns += taken if nested else 0
        if span.call is not None:  # all pieces are one call, cut if one of them is
            pieces = self._pieces.setdefault((span.name, span.call), [0, 0])
            pieces[0], pieces[1] = pieces[0] + taken, pieces[1] + cut
        elif cut:
            times.cut += 1
            times.cut_ns += taken
        else:
            times.whole.append(taken)
        return Call(span.name, cut, nested, span.start_ns, span.end_ns, taken)


def _in_own_call(spans: Sequence[Timed]) -> list[bool]:
    """For each span of one row whether another of its phase and file holds it whole; of equal ones the first is the outer one."""
    found = [False] * len(spans)
    reach: dict[tuple[str, int], int] = {}
    for index in sorted(range(len(spans)), key=lambda index: (spans[index].start_ns, -spans[index].end_ns, index)):
        span = spans[index]
        phase = span.name, span.file
        furthest = reach.get(phase)
        found[index] = furthest is not None and span.end_ns <= furthest
        if not found[index]:
            reach[phase] = span.end_ns
    return found


def _around(index: int, above: Sequence[int | None], known: dict[int, tuple[int, ...]]) -> tuple[int, ...]:
    """Places of the spans around one, the innermost first."""
    found = known.get(index)
    if found is None:
        places: list[int] = []
        at = above[index]
        while at is not None and len(places) <= len(above):
            places.append(at)
            at = above[at]
        found = known[index] = tuple(places)
    return found


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
        total_ns: of all calls; one inside a call of the same phase on its thread or task is in that one's time already.
        mean_ns, p50_ns, p95_ns: of whole calls, each of a recursion too; ``None`` without one.
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
    rows = {}
    for phase in dict.fromkeys(phase for worker in workers for phase in worker.phases):
        rows[phase] = row = _row(group, phase, workers)
        around = {parent for worker in workers if phase in worker.phases for parent in worker.phases[phase].parents}
        around.discard(phase)
        row.parent = next(iter(around)) if len(around) == 1 else None
    return _tree(rows)


def _row(group: str, phase: str, workers: Sequence[WorkerTimeline]) -> PhaseRow:
    found = [(worker, worker.phases[phase]) for worker in workers if phase in worker.phases]
    row = PhaseRow(group, phase, found[0][1].kind.value)
    whole = sorted(taken for _, times in found for taken in times.whole)
    row.calls, row.cut = len(whole), sum(times.cut for _, times in found)
    row.total_ns = sum(times.total_ns for _, times in found)
    if whole:
        row.mean_ns, row.p50_ns, row.p95_ns = sum(whole) / len(whole), percentile(whole, 0.5), percentile(whole, 0.95)
    row.self_ns = sum(times.self_ns for _, times in found)
    available = sum(worker.window_ns for worker in workers)
    row.share = sum(times.shared_ns for _, times in found) / available if available else None
    for worker, times in found:
        windows = max(len(worker.windows), 1)
        row.ranks[worker.worker.label] = RankFigures(len(times.whole), times.total_ns, times.total_ns / windows)
    row.missing = [worker.worker.label for worker in workers if phase not in worker.phases]
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
