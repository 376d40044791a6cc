"""Figures of one file for a comparison: of one step where it marks several; otherwise phases and kernels are of one call, and what
has no calls is of the file."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from accelprof.analysis.attribution import KERNELS, RANGES, Attribution, label
from accelprof.analysis.nesting import parents, segments
from accelprof.analysis.parts import Part
from accelprof.analysis.phases import MAX_STRETCHES
from accelprof.analysis.seconds import COLLECTIVE, waits_for_others
from accelprof.contracts.spans import CALL, DEVICE_WORK, Kind, merge_intervals
from accelprof.reading.columns import NONE, Array, Columns


def parts_of(columns: Columns, attribution: Attribution, steps: Steps) -> Iterator[Part]:
    """All of them; ``attribution`` with times by range."""
    if steps.several:
        walls = {str(number): float(steps.bounds[number][1] - steps.bounds[number][0]) for number in steps.whole}
        yield Part("step", "wall time of a step", "", sum(walls.values()), len(walls), walls, "step")
    yield from _of_devices(columns, attribution, steps)
    calls = calls_of(columns)
    yield from _of_phases(calls, attribution, steps)
    yield from _of_kernels(columns, steps)
    yield from _own_of_file(columns, calls, steps)


def _of_devices(columns: Columns, attribution: Attribution, steps: Steps) -> Iterator[Part]:
    for device in attribution.devices:
        mine = columns.device == columns.devices.index(device.device)
        for measure, kinds, total in (
            ("device", DEVICE_WORK, device.busy_ns), ("device kernels", KERNELS, device.kernel_ns),
        ):  # fmt: skip
            rows = np.flatnonzero(columns.mask(*kinds) & mine)
            work = merge_intervals(zip(columns.start[rows].tolist(), columns.end[rows].tolist(), strict=True))
            part = steps.part(measure, f"device {device.device}", total, steps.divided(work))
            part.calls, part.all_ns, part.device = device.kernels, total, str(device.device)
            yield part


class Piece(NamedTuple):
    """A range of a file: a call, or a stretch in which a suspended one went on. ``end``: of the time inside it, put at its beginning;
    ``nested``: inside another of its phase on its thread or task, which has its time."""

    row: int
    start: int
    end: int
    call: object
    cut: bool
    nested: bool


def calls_of(columns: Columns) -> dict[str, list[Piece]]:
    """The ranges of a file by phase. Pieces of one suspended call have its number in common, any other range is a call."""
    rows = columns.rows(*RANGES)
    names = [label(text) for text in columns.names]
    order = rows[np.lexsort((-columns.end[rows], columns.start[rows]))]
    suspended = order[columns.own[order] >= 0]
    number_of = dict(zip(suspended.tolist(), (args.get(CALL) for args in columns.args_of(suspended)), strict=True))
    reach: dict[tuple[str, int, int], int] = {}
    found: dict[str, list[Piece]] = defaultdict(list)
    for row, code, process, thread, task, start, end, own, cut in zip(
        order.tolist(), columns.name[order].tolist(), columns.process[order].tolist(), columns.thread[order].tolist(),
        columns.task[order].tolist(), columns.start[order].tolist(), columns.end[order].tolist(), columns.own[order].tolist(),
        columns.cut[order].tolist(), strict=True,
    ):  # fmt: skip
        name, number = names[code], number_of.get(row)
        around = reach.get((name, thread, task))
        nested = around is not None and end <= around
        if not nested:
            reach[name, thread, task] = end
        inside = end if own < 0 or cut else start + own
        found[name].append(Piece(row, start, inside, row if number is None else (process, str(number)), cut, nested))
    return found


def _of_phases(calls: Mapping[str, Sequence[Piece]], attribution: Attribution, steps: Steps) -> Iterator[Part]:
    for row in attribution.phases:
        pieces = calls[row.name]
        outer = [piece for piece in pieces if not piece.nested]
        total = sum(piece.end - piece.start for piece in outer)
        in_steps = steps.divided([(piece.start, piece.end) for piece in outer])
        yield steps.part("phase", row.name, total, in_steps, _by_call(pieces, [p.end - p.start for p in pieces]))
        for device, busy_ns in row.busy_ns.items():
            busy = [attribution.busy_of.get(piece.row, {}).get(device, 0) for piece in pieces]
            in_steps = steps.summed(
                (piece.start, ns) for piece, ns in zip(pieces, busy, strict=True) if not piece.nested
            )
            part = steps.part("phase on device", row.name, busy_ns, in_steps, _by_call(pieces, busy))
            part.device = str(device)
            yield part


def _by_call(pieces: Sequence[Piece], taken: Sequence[int]) -> list[float]:
    """Of each call what its pieces took together; of those that a window cut only where there is no other."""
    calls: dict[object, float] = defaultdict(float)
    counted = _whole(pieces)
    for piece, ns in zip(pieces, taken, strict=True):
        if piece.row in counted:
            calls[piece.call] += ns
    return list(calls.values())


def _whole(pieces: Sequence[Piece]) -> dict[int, object]:
    """Row -> call, of the pieces of calls that no window cut; of all where there is no such call."""
    cut = {piece.call for piece in pieces if piece.cut}
    return {piece.row: piece.call for piece in pieces if piece.call not in cut} or {
        piece.row: piece.call for piece in pieces
    }


def _of_kernels(columns: Columns, steps: Steps) -> Iterator[Part]:
    rows = columns.rows(*KERNELS)
    kernels: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for name, device, start, end in zip(
        columns.name[rows].tolist(), columns.device[rows].tolist(), columns.start[rows].tolist(), columns.end[rows].tolist(),
        strict=True,
    ):  # fmt: skip
        kernels[name, device].append((start, end - start))
    for (name, device), runs in kernels.items():
        total = sum(ns for _, ns in runs)
        part = steps.counted("kernel", columns.names[name], total, steps.summed(runs), len(runs))
        part.device = "" if device == NONE else str(columns.devices[device])
        yield part


def _own_of_file(columns: Columns, of_phase: Mapping[str, Sequence[Piece]], steps: Steps) -> Iterator[Part]:
    """Self time of each phase that waits for nobody; of more ranges than are followed elsewhere, nothing."""
    rows = columns.rows(*RANGES)
    if rows.size > MAX_STRETCHES:
        return
    names = [label(text) for text in columns.names]
    of_row: dict[tuple[int, ...], list[tuple[int, int, int, int, int]]] = defaultdict(list)
    ends = {piece.row: piece.end for pieces in of_phase.values() for piece in pieces}
    counted = {name: _whole(pieces) for name, pieces in of_phase.items()}
    for row, name, thread, task, word, start in zip(
        rows.tolist(), columns.name[rows].tolist(), columns.thread[rows].tolist(), columns.task[rows].tolist(),
        columns.category[rows].tolist(), columns.start[rows].tolist(), strict=True,
    ):  # fmt: skip
        of_row[thread, task].append((start, ends[row], name, word, row))
    waits = {
        (name, word): columns.words[word] == COLLECTIVE or waits_for_others(columns.names[name], columns.words[word])
        for name, word in {(name, word) for mine in of_row.values() for _, _, name, word, _ in mine}
    }
    joint = {word for word, text in enumerate(columns.words) if text == COLLECTIVE}
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    of_calls: Counter[str] = Counter()
    for mine in of_row.values():
        bounds = [(start, end) for start, end, *_ in mine]
        above = parents(bounds) if joint and any(word in joint for *_, word, _ in mine) else []
        for start, end, index in segments(bounds):
            place: int | None = index
            while place is not None and above and mine[place][3] not in joint:
                place = above[place]
            _, _, code, word, row = mine[index]
            if not waits[code, word] and (not above or place is None):
                found[names[code]].append((start, end))
                of_calls[names[code]] += end - start if row in counted[names[code]] else 0
    for name, stretches in found.items():
        calls = len(set(counted[name].values()))
        yield steps.counted("own time", name, of_calls[name], steps.divided(stretches), calls)


@dataclass
class Steps:
    """The steps that a file marks, each once, by start; ``whole``: places of those that are in figures, which are not cut where
    any is not."""

    bounds: list[tuple[int, int]]
    whole: list[int]

    @property
    def several(self) -> bool:
        return len(self.bounds) > 1

    @property
    def per(self) -> str:
        return "step" if self.several else "file"

    def hold(self, moments: Array) -> Array:
        """Which of these moments are in a step that counts, or behind the last one."""
        counts: Array = np.isin(np.arange(-1, len(self.bounds)), self.whole)
        return counts[np.searchsorted([start for start, _ in self.bounds], moments, side="right")]

    def divided(self, intervals: Sequence[tuple[int, int]]) -> dict[str, float]:
        """The part of these intervals that lies in each step; what goes on behind the last one is its. Where some overlap each counts."""
        if not self.several:
            return {}
        edges = np.array([start for start, _ in self.bounds], dtype=np.int64)
        begins, ends = np.array(intervals, dtype=np.int64).reshape(-1, 2).T - edges[0]
        behind = _length_behind(np.sort(ends), edges - edges[0]) - _length_behind(np.sort(begins), edges - edges[0])
        taken = (behind - np.append(behind[1:], 0)).tolist()
        return {str(number): float(taken[number]) for number in self.whole}

    def summed(self, events: Iterable[tuple[int, int]]) -> dict[str, float]:
        """``(start, ns)``: the sum of what begins in each step, or behind the last."""
        if not self.several:
            return {}
        starts = [start for start, _ in self.bounds]
        totals = [0] * len(starts)
        for start, ns in events:
            if (index := bisect_right(starts, start) - 1) >= 0:
                totals[index] += ns
        return {str(number): float(totals[number]) for number in self.whole}

    def part(
        self, measure: str, name: str, total: float, in_steps: dict[str, float], calls: Sequence[float] = ()
    ) -> Part:
        """A figure of one step where steps are marked and it is in any of them; else of one call, or of the file."""
        number, taken = len(calls), sum(calls)
        if any(in_steps.values()):
            return Part(measure, name, "", sum(in_steps.values()), len(in_steps), in_steps, "step", number, taken)
        if not calls:
            return Part(measure, name, "", total, 1, {}, "file", 0, total)
        samples = {str(at): ns for at, ns in enumerate(calls)} if number > 1 else {}
        return Part(measure, name, "", taken, number, samples, "call", number, taken)

    def counted(self, measure: str, name: str, total: float, in_steps: dict[str, float], calls: int) -> Part:
        """The same where of the calls only the number is known."""
        part = self.part(measure, name, total, in_steps)
        if part.per == "file":
            part.count, part.per = calls, "call"
        part.calls, part.all_ns = calls, total
        return part


def _length_behind(bounds: Array, edges: Array) -> Array:
    """For each edge the sum of how far the bounds behind it are away; ``bounds`` sorted."""
    sums: Array = np.append(np.cumsum(bounds[::-1])[::-1], 0)
    at = np.searchsorted(bounds, edges)
    found: Array = sums[at] - (bounds.size - at) * edges
    return found


def steps_of(columns: Columns) -> Steps:
    found: dict[str, tuple[int, int, bool]] = {}
    for row in columns.rows(Kind.STEP).tolist():
        bounds = int(columns.start[row]), int(columns.end[row]), bool(columns.cut[row])
        found.setdefault(columns.names[columns.name[row]], bounds)
    steps = sorted(found.values())
    whole = [number for number, (_, _, cut) in enumerate(steps) if not cut]
    return Steps([(start, end) for start, end, _ in steps], whole or list(range(len(steps))))
