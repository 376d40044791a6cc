"""Figures of one file for a comparison: of one step where it marks several; otherwise phases and kernels are of one call, and what
has no calls is of the file."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from accelprof.analysis.attribution import KERNELS, RANGES, Attribution, label
from accelprof.analysis.nesting import parents, segments
from accelprof.analysis.parts import Part
from accelprof.analysis.phases import MAX_STRETCHES
from accelprof.analysis.seconds import COLLECTIVE, waits_for_others
from accelprof.contracts.spans import DEVICE_WORK, Kind, merge_intervals
from accelprof.reading.columns import Columns


def parts_of(columns: Columns, attribution: Attribution, steps: Steps) -> Iterator[Part]:
    """All of them; ``attribution`` with times by call."""
    if steps.several:
        walls = {str(number): float(end - start) for number, (start, end) in enumerate(steps.bounds)}
        yield Part("step", "wall time of a step", "", sum(walls.values()), len(walls), walls, "step")
    yield from _of_devices(columns, attribution, steps)
    yield from _of_phases(columns, attribution, steps)
    yield from _of_kernels(columns, steps)
    yield from _own_of_file(columns, steps)


def _of_devices(columns: Columns, attribution: Attribution, steps: Steps) -> Iterator[Part]:
    for device in attribution.devices:
        mine = columns.device == columns.devices.index(device.device)
        for measure, kinds, total in (
            ("device", DEVICE_WORK, device.busy_ns), ("device kernels", KERNELS, device.kernel_ns),
        ):  # fmt: skip
            rows = np.flatnonzero(columns.mask(*kinds) & mine)
            work = merge_intervals(zip(columns.start[rows].tolist(), columns.end[rows].tolist(), strict=True))
            part = steps.part(measure, f"device {device.device}", total, steps.divided(work))
            part.calls = device.kernels
            yield part


def _of_phases(columns: Columns, attribution: Attribution, steps: Steps) -> Iterator[Part]:
    of_process: dict[str, dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    names = [label(text) for text in columns.names]
    rows = columns.rows(*RANGES)
    for name, process, start, end in zip(
        columns.name[rows].tolist(), columns.process[rows].tolist(), columns.start[rows].tolist(),
        columns.end[rows].tolist(), strict=True,
    ):  # fmt: skip
        of_process[names[name]][process].append((start, end))
    for row in attribution.phases:
        calls = [call for mine in of_process[row.name].values() for call in mine]
        walls_of = [steps.divided(merge_intervals(mine)) for mine in of_process[row.name].values()]
        in_steps = {step: sum(mine[step] for mine in walls_of) for step in walls_of[0]} if walls_of else {}
        yield steps.part("phase", row.name, row.wall_ns, in_steps, [float(end - start) for start, end in calls])
        if row.busy_ns:
            busy = attribution.busy_by_call[row.name]
            total, taken = sum(row.busy_ns.values()), [float(ns) for _, ns in busy]
            yield steps.part("phase on device", row.name, total, steps.summed(busy), taken)


def _of_kernels(columns: Columns, steps: Steps) -> Iterator[Part]:
    rows = columns.rows(*KERNELS)
    kernels: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for name, start, end in zip(
        columns.name[rows].tolist(), columns.start[rows].tolist(), columns.end[rows].tolist(), strict=True
    ):
        kernels[name].append((start, end - start))
    for name, runs in kernels.items():
        part = steps.part("kernel", columns.names[name], sum(ns for _, ns in runs), steps.summed(runs))
        if part.per == "file":
            part.count, part.per = len(runs), "call"
        part.calls = len(runs)
        yield part


def _own_of_file(columns: Columns, steps: Steps) -> Iterator[Part]:
    """Self time of each phase that waits for nobody; of more ranges than are followed elsewhere, nothing."""
    rows = columns.rows(*RANGES)
    if rows.size > MAX_STRETCHES:
        return
    names = [label(text) for text in columns.names]
    of_row: dict[tuple[int, ...], list[tuple[int, int, int, int]]] = defaultdict(list)
    for name, thread, task, word, start, end, own in zip(
        columns.name[rows].tolist(), columns.thread[rows].tolist(), columns.task[rows].tolist(), columns.category[rows].tolist(),
        columns.start[rows].tolist(), columns.end[rows].tolist(), columns.own[rows].tolist(), strict=True,
    ):  # fmt: skip
        of_row[thread, task].append((start, end if own < 0 else start + own, name, word))
    waits = {
        (name, word): columns.words[word] == COLLECTIVE or waits_for_others(columns.names[name], columns.words[word])
        for name, word in {(name, word) for mine in of_row.values() for _, _, name, word in mine}
    }
    joint = {word for word, text in enumerate(columns.words) if text == COLLECTIVE}
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    calls: Counter[str] = Counter()
    for mine in of_row.values():
        bounds = [(start, end) for start, end, _, _ in mine]
        above = parents(bounds) if joint and any(word in joint for *_, word in mine) else []
        calls.update(names[name] for *_, name, _ in mine)
        for start, end, index in segments(bounds):
            place: int | None = index
            while place is not None and above and mine[place][3] not in joint:
                place = above[place]
            if not waits[mine[index][2:]] and (not above or place is None):
                found[names[mine[index][2]]].append((start, end - start))
    for name, pieces in found.items():
        part = steps.part("own time", name, sum(ns for _, ns in pieces), steps.summed(pieces))
        part.calls = calls[name]
        if part.per == "file":
            part.count, part.per = calls[name], "call"
        yield part


@dataclass
class Steps:
    """The steps that a file marks, each once, by start."""

    bounds: list[tuple[int, int]]

    @property
    def several(self) -> bool:
        return len(self.bounds) > 1

    @property
    def per(self) -> str:
        return "step" if self.several else "file"

    def divided(self, intervals: Sequence[tuple[int, int]]) -> dict[str, float]:
        """The part of sorted disjoint intervals that lies in each step; what goes on behind the last one is its."""
        if not self.several:
            return {}
        begins, ends = np.array(intervals, dtype=np.int64).reshape(-1, 2).T
        done = np.concatenate([[0], np.cumsum(ends - begins)])
        edges = np.array([start for start, _ in self.bounds], dtype=np.int64)
        at = np.searchsorted(begins, edges, side="right")
        before = done[at] - np.where(at > 0, np.maximum(ends[at - 1] - edges, 0) if ends.size else 0, 0)
        return {str(number): float(ns) for number, ns in enumerate(np.diff(before, append=done[-1]).tolist())}

    def summed(self, events: Iterable[tuple[int, int]]) -> dict[str, float]:
        """``(start, ns)``: the sum of what begins in each step, or behind the last."""
        if not self.several:
            return {}
        starts = [start for start, _ in self.bounds]
        totals = [0] * len(starts)
        for start, ns in events:
            if (index := bisect_right(starts, start) - 1) >= 0:
                totals[index] += ns
        return {str(number): float(total) for number, total in enumerate(totals)}

    def part(
        self, measure: str, name: str, total: float, in_steps: dict[str, float], calls: Sequence[float] = ()
    ) -> Part:
        """A figure of one step where steps are marked and it is in any of them; else of one call, or of the file."""
        if any(in_steps.values()):
            return Part(measure, name, "", sum(in_steps.values()), len(in_steps), in_steps, "step", len(calls))
        samples = {str(number): ns for number, ns in enumerate(calls)} if len(calls) > 1 else {}
        return Part(measure, name, "", total, len(calls) or 1, samples, "call" if calls else "file", len(calls))


def steps_of(columns: Columns) -> Steps:
    found: dict[str, tuple[int, int]] = {}
    for row in columns.rows(Kind.STEP).tolist():
        found.setdefault(columns.names[columns.name[row]], (int(columns.start[row]), int(columns.end[row])))
    return Steps(sorted(found.values()))
