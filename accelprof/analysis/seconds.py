"""The whole second: every nanosecond of a window stands in exactly one part, for each worker and device.

The first of these that holds a moment has it; docs/analysis.md has each with a trace whose answer is counted on paper:

1. ``communication_overlapped``: a collective and another kernel run. 2. ``communication_exposed``: a collective runs.
3. ``compute``: a kernel runs. 4. ``copy``: a copy or memset runs. Then the device is idle:
5. ``idle_queued``: work was launched and has not started. 6. ``idle_sync``: the host waits for the device.
7. ``idle_collective``: the host is in a phase of category ``collective``. 8. ``idle_waiting``: it waits for another role or
for data. 9. ``idle_launching``: it is inside a phase, operator or call, and nothing is queued. 10. ``outside``: it is in
none, in a file that has some. 11. ``unknown``: the file has nothing of the host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from accelprof.analysis.holders import launches_of
from accelprof.analysis.intervals import inside, merged
from accelprof.contracts.spans import Kind
from accelprof.reading.columns import NONE, Columns

Array = Any  # numpy.ndarray
PARTS = (
    "compute", "communication_exposed", "communication_overlapped", "copy", "idle_launching", "idle_queued", "idle_sync",
    "idle_collective", "idle_waiting", "outside", "unknown",
)  # fmt: skip
#: parts in which the device works
WORKING = ("compute", "communication_exposed", "communication_overlapped", "copy")
#: category of a phase in which ranks wait for each other
COLLECTIVE = "collective"
#: phases in which a worker waits for another role or for data, by category or by name
WAITING_CATEGORIES = frozenset({"wait", "recv", "data"})
WAITING_NAME = re.compile(
    r"(?i)(^|[/.:_ ])(recv|wait|ray\.(get|wait)|get_batch|data_?load(er|ing)?|next_batch)([/.:_ #(]|$)|DataLoader"
)
#: what shows that the host is at work
HOST = (Kind.PHASE, Kind.RANGE, Kind.STEP, Kind.OPERATOR, Kind.RUNTIME, Kind.SYNC)
Intervals = tuple[Array, Array]
_EMPTY: Intervals = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


@dataclass
class Second:
    """One window of one worker on one device (``None``: it has none). ``parts``: ns by name; their sum is ``window_ns``."""

    worker: str
    window: str
    device: int | str | None
    window_ns: int
    parts: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "worker": self.worker, "window": self.window, "device": self.device, "window_ns": self.window_ns,
            "parts": self.parts,
        }  # fmt: skip


def divided(start: int, end: int, rules: Sequence[tuple[str, Intervals]], rest: str) -> dict[str, int]:
    """Length in ns of each part of ``[start, end]``: a moment goes to the first rule whose sorted disjoint intervals hold
    it, and to ``rest`` when none does."""
    cuts = [np.array([start, end], dtype=np.int64)]
    for _, (begins, ends) in rules:
        cuts += [begins, ends]
    bounds = np.unique(np.clip(np.concatenate(cuts), start, end))
    parts = dict.fromkeys(PARTS, 0)
    if bounds.size < 2:
        return parts
    begins, lengths = bounds[:-1], np.diff(bounds)
    free = np.ones(begins.size, dtype=np.bool_)
    for name, intervals in rules:
        mine = free & inside(*intervals, begins)
        parts[name] += int(lengths[mine].sum())
        free &= ~mine
    parts[rest] += int(lengths[free].sum())
    return parts


def waits_for_others(name: str, category: str) -> bool:
    """Whether a phase is one in which its worker waits for another role or for data."""
    return category in WAITING_CATEGORIES or (category != COLLECTIVE and WAITING_NAME.search(name) is not None)


def device_seconds(columns: Columns, worker: str, windows: Sequence[tuple[str, int, int]] = ()) -> list[Second]:
    """The division of each window for each device of one file.

    Args:
        windows: ``(id, start, end)`` in ns on the file's clock; without any, the file's own window spans, and without
            those the stretch from its first to its last span.
    """
    work = columns.work()
    if not work.size:
        return []
    stretches = list(windows) or _own_windows(columns)
    launch, _ = launches_of(columns, work)
    host = _Host(columns)
    found = []
    for code in np.unique(columns.device[work]).tolist():
        mine = columns.device[work] == code
        rows, launched = work[mine], launch[mine]
        device_rules = _device_rules(columns, rows, launched)
        for identity, start, end in stretches:
            parts = divided(start, end, [*device_rules, *host.rules], "outside" if host.there else "unknown")
            found.append(Second(worker, identity, columns.devices[code], end - start, parts))
    return found


def host_seconds(worker: str, window: str, start: int, end: int, phases: Iterable[tuple[str, str, int, int]]) -> Second:
    """The division of one window of a worker without a device, over its host phases ``(name, category, start, end)``:
    ``compute`` is time inside a phase that waits for nobody."""
    rows = list(phases)
    kinds: dict[str, list[tuple[int, int]]] = {"idle_collective": [], "idle_waiting": [], "compute": []}
    for name, category, begin, finish in rows:
        part = (
            "idle_collective"
            if category == COLLECTIVE
            else "idle_waiting"
            if waits_for_others(name, category)
            else "compute"
        )
        kinds[part].append((begin, finish))
    rules = [(part, _merged_pairs(pairs)) for part, pairs in kinds.items()]
    return Second(worker, window, None, end - start, divided(start, end, rules, "outside"))


def _merged_pairs(pairs: Sequence[tuple[int, int]]) -> Intervals:
    table: Array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return merged(table[:, 0], table[:, 1])


def _own_windows(columns: Columns) -> list[tuple[str, int, int]]:
    rows = columns.rows(Kind.WINDOW)
    if rows.size:
        return [
            (columns.names[columns.name[row]], int(columns.start[row]), int(columns.end[row])) for row in rows.tolist()
        ]
    return [("", int(columns.start.min()), int(columns.end.max()))]


def _device_rules(columns: Columns, rows: Array, launch: Array) -> list[tuple[str, Intervals]]:
    def of(*kinds: Kind) -> Intervals:
        mine = rows[columns.mask(*kinds)[rows]]
        return merged(columns.start[mine], columns.end[mine])

    compute, talks, copies = of(Kind.KERNEL), of(Kind.COMMUNICATION), of(Kind.COPY, Kind.MEMSET)
    both = _both(compute, talks)
    known = launch != NONE
    queued = merged(columns.end[launch[known]], columns.start[rows[known]])
    return [
        ("communication_overlapped", both), ("communication_exposed", talks), ("compute", compute), ("copy", copies),
        ("idle_queued", queued),
    ]  # fmt: skip


def _both(one: Intervals, other: Intervals) -> Intervals:
    from accelprof.analysis.intervals import intersection

    return intersection(*one, *other)


class _Host:
    """What the host does, as rules: the same for all devices of the file."""

    def __init__(self, columns: Columns) -> None:
        phases = columns.rows(Kind.PHASE, Kind.RANGE)
        pairs = phases[:0]
        collective = np.zeros(phases.size, dtype=np.bool_)
        waiting = np.zeros(phases.size, dtype=np.bool_)
        if phases.size:
            width = len(columns.words)
            keys, at = np.unique(
                columns.name[phases].astype(np.int64) * width + columns.category[phases], return_inverse=True
            )
            kinds = [(columns.names[key // width], columns.words[key % width]) for key in keys.tolist()]
            collective = np.array([category == COLLECTIVE for _, category in kinds])[at]
            waiting = np.array([waits_for_others(name, category) for name, category in kinds])[at]
        sync, any_ = columns.rows(Kind.SYNC), columns.rows(*HOST)
        self.there = bool(any_.size)

        def of(rows: Array) -> Intervals:
            return merged(columns.start[rows], columns.end[rows]) if rows.size else _EMPTY

        self.rules: list[tuple[str, Intervals]] = [
            ("idle_sync", of(sync)), ("idle_collective", of(phases[collective])), ("idle_waiting", of(phases[waiting])),
            ("idle_launching", of(any_)),
        ]  # fmt: skip
        del pairs
