"""The whole second: every nanosecond of a window stands in exactly one part, for each worker and device.

The first of these that holds a moment has it; docs/analysis.md has each with a trace whose answer is counted on paper:

1. ``communication_overlapped``: a collective and another kernel run. 2. ``communication_exposed``: a collective runs.
3. ``compute``: a kernel runs. 4. ``copy``: a copy or memset runs. Then the device is idle:
5. ``idle_queued``: work was launched and has not started. 6. ``idle_sync``: the host waits for the device.
7. ``idle_collective``: the host is in a phase of category ``collective`` and, without a device, not all ranks have come. 8. ``idle_waiting``: it waits for another role or
for data. 9. ``idle_launching``: it is inside a phase, operator or call, and nothing is queued. 10. ``outside``: it is in
none (a step is none), in a file that has some. 11. ``unknown``: the file has nothing of the host, or, in place of 9, no launch of the device; of a worker whose launches have no device work in its files, all of the window.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from accelprof.analysis.division import PARTS, WORKING
from accelprof.analysis.holders import launches_of, lost_launches
from accelprof.analysis.intervals import distinct, inside, intersection, merged
from accelprof.analysis.report_rows import Row
from accelprof.contracts.spans import FURTHEST_NS, Kind
from accelprof.reading.columns import NONE, Array, Columns

#: category of a phase in which ranks wait for each other
COLLECTIVE = "collective"
#: phases in which a worker waits for another role or for data, by category or by name
WAITING_CATEGORIES = frozenset({"wait", "recv", "data"})
_DATA = r"get_batch|data_?load(?:er|ing)?|next_batch"
WAITING_NAME = re.compile(
    rf"(?ai)(^|[/.:_ ])(recv|wait|ray\.(get|wait)|(?P<data>{_DATA}))([/.:_ #(]|$)|(?P<loader>DataLoader)"
)
#: one of these is in every such name, in small letters
_WORDS = re.compile(rb"recv|wait|ray\.get|_batch|load")
#: what shows that the host is at work; a step does not, which is marked around all that is done in it and between
HOST = (Kind.PHASE, Kind.RANGE, Kind.OPERATOR, Kind.RUNTIME, Kind.SYNC, Kind.OVERHEAD)
#: of a file that is not whole, when it may lack work
ALWAYS = ((-FURTHEST_NS, FURTHEST_NS),)
Intervals = tuple[Array, Array]
#: names, and rows, that are looked at together
TEXTS, ROWS = 1 << 16, 1 << 19
_TIMES = np.iinfo(np.int64)
_EMPTY: Intervals = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


@dataclass
class Second(Row):
    """One window of one worker on one device (``None``: it has none). ``parts``: ns by name; their sum is ``window_ns``. ``lost``:
    the device may have worked in it, and its work is not in the files."""

    worker: str
    window: str
    device: int | str | None
    window_ns: int
    parts: dict[str, int] = field(default_factory=dict)
    lost: bool = False

    def cells(self) -> dict[str, Any]:
        row = super().cells()
        del row["lost"]
        return row


def divided(start: int, end: int, rules: Sequence[tuple[str, Intervals]], rest: str) -> dict[str, int]:
    """Length in ns of each part of ``[start, end]``: a moment goes to the first rule whose sorted disjoint intervals hold
    it, and to ``rest`` when none does."""
    parts = dict.fromkeys(PARTS, 0)
    longest = max((begins for _, (begins, _) in rules), key=len, default=_EMPTY[0])
    # a stretch of the window after the other, so that memory does not follow all bounds at once
    cuts = [start, *np.clip(longest[ROWS::ROWS], start, end).tolist(), end]
    for low, high in itertools.pairwise(cuts):
        mine = [(name, _between(intervals, low, high)) for name, intervals in rules]
        bounds = distinct(
            np.clip(np.concatenate([np.array([low, high]), *(at for _, both in mine for at in both)]), low, high)
        )
        begins, lengths = bounds[:-1], np.diff(bounds)
        free = np.ones(begins.size, dtype=np.bool_)
        for name, intervals in mine:
            held = free & inside(*intervals, begins)
            parts[name] += int(lengths[held].sum())
            free &= ~held
        parts[rest] += int(lengths[free].sum())
    return parts


def _between(intervals: Intervals, low: int, high: int) -> Intervals:
    """Those of sorted disjoint intervals that reach into a stretch."""
    begins, ends = intervals
    some = slice(int(np.searchsorted(ends, low, side="right")), int(np.searchsorted(begins, high)))
    return begins[some], ends[some]


def waits_for_others(name: str, category: str) -> bool:
    """Whether a phase is one in which its worker waits for another role or for data."""
    return category in WAITING_CATEGORIES or (category != COLLECTIVE and WAITING_NAME.search(name) is not None)


def waits_for_data(name: str, category: str) -> bool:
    """Whether that is data, which a worker has from its own process as a rule, and not from another role."""
    if category in WAITING_CATEGORIES:
        return category == "data"
    found = WAITING_NAME.search(name)
    return found is not None and (found["data"] or found["loader"]) is not None


def name_of_compute(devices: Iterable[object]) -> str:
    """What the part ``compute`` is on these devices, in words; ``None`` is a worker without one, of whose phases nobody knows whether
    they compute or sleep."""
    known = {device is not None for device in devices}
    return (
        "compute"
        if known <= {True}
        else "inside phases (host)"
        if known == {False}
        else "compute, or inside phases (host)"
    )


def divisions(
    columns: Columns,
    worker: str,
    windows: Sequence[tuple[str, int, int]] = (),
    categories: Mapping[str, str] | None = None,
    unsure: Sequence[tuple[int, int]] = (),
) -> tuple[list[Second], list[Second]]:
    """The division of each window for each device of one file, and that for a device that did nothing in it (``None`` for its name).

    A window without work of a device in which launches lost theirs is unknown, and so is one that reaches into ``unsure``, of which
    the file does not have all.

    Args:
        windows: ``(id, start, end)`` in ns on the file's clock; without any, the file's own window spans, and without
            those the stretch from its first to its last span.
        categories: of phases by name, for files that have the phases but not their categories.
    """
    stretches = list(windows) or _own_windows(columns)
    host = _Host(columns, categories or {})
    rest = "outside" if host.there else "unknown"
    idle = [
        Second(worker, identity, None, end - start, divided(start, end, host.rules(_EMPTY[0]), rest))
        for identity, start, end in stretches
    ]
    work = columns.work()
    launch, foreign = launches_of(columns, work)
    found = []
    lost: Intervals | None = None
    for code in np.unique(columns.device[work]).tolist():
        mine = columns.device[work] == code
        rows, launched = (work, launch) if mine.all() else (work[mine], launch[mine])
        rules = [*_device_rules(columns, rows, launched), *host.rules(_launching(columns, rows, launched))]
        rules = _where_known(rules, _perhaps_queued(launched))
        for identity, start, end in stretches:
            parts = divided(start, end, rules, rest)
            if not any(parts[part] for part in WORKING):
                lost = lost or _lost(columns, work, launch, foreign, unsure)
                if any(between.size for between in _between(lost, start, end)):
                    found.append(lost_second(worker, identity, start, end, columns.devices[code]))
                    continue
            found.append(Second(worker, identity, columns.devices[code], end - start, parts))
    return found, idle


def host_seconds(
    worker: str,
    window: str,
    start: int,
    end: int,
    phases: Iterable[tuple[str, str, int, int]],
    transfers: Sequence[tuple[int, int]] = (),
) -> Second:
    """The division of one window of a worker without a device, over its host phases ``(name, category, start, end)``:
    ``compute`` is time in which a thread or task is inside a phase that waits for nobody, ``communication_overlapped`` of
    that what another is in a collective meanwhile. Waiting is what no other works in; ``transfers``, in which a collective's
    ranks had all come, are ``communication_exposed``."""
    rows = list(phases)
    by_part: dict[str, list[tuple[int, int]]] = {"compute": [], "idle_collective": [], "idle_waiting": []}
    for name, category, begin, finish in rows:
        part = (
            "idle_collective"
            if category == COLLECTIVE
            else "idle_waiting"
            if waits_for_others(name, category)
            else "compute"
        )
        by_part[part].append((begin, finish))
    held = {part: _merged_pairs(pairs) for part, pairs in by_part.items()}
    both = _both(held["compute"], held["idle_collective"])
    computes = ("compute", held.pop("compute"))
    rules = [
        ("communication_overlapped", both),
        computes,
        ("communication_exposed", _merged_pairs(transfers)),
        *held.items(),
    ]
    return Second(worker, window, None, end - start, divided(start, end, rules, "outside"))


def lost_second(worker: str, window: str, start: int, end: int, device: int | str | None = None) -> Second:
    """A window of a worker that launches to a device of which its files hold no work: nothing of it is known."""
    return Second(worker, window, device, end - start, divided(start, end, [], "unknown"), lost=True)


def _lost(columns: Columns, work: Array, launch: Array, foreign: Array, unsure: Sequence[tuple[int, int]]) -> Intervals:
    """When the file lacks work: of launches whose work is not in it, and in ``unsure``."""
    found = lost_launches(columns, work, launch, foreign)
    rows = found.rows if found.lost else found.rows[:0]
    begins, ends = np.array(unsure, dtype=np.int64).reshape(-1, 2).T
    # a call takes a moment at least
    last = np.maximum(columns.end[rows], columns.start[rows] + 1)
    return merged(np.concatenate([columns.start[rows], begins]), np.concatenate([last, np.maximum(ends, begins + 1)]))


def _merged_pairs(pairs: Sequence[tuple[int, int]]) -> Intervals:
    table: Array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return merged(table[:, 0], table[:, 1])


def _own_windows(columns: Columns) -> list[tuple[str, int, int]]:
    rows = columns.rows(Kind.WINDOW)
    if rows.size or not len(columns):
        return [
            (columns.names[columns.name[row]], int(columns.start[row]), int(columns.end[row])) for row in rows.tolist()
        ]
    return [("", int(columns.start.min()), int(columns.end.max()))]


def _device_rules(columns: Columns, rows: Array, launch: Array) -> list[tuple[str, Intervals]]:
    def of(*kinds: Kind) -> Intervals:
        return _covering(columns, rows[columns.mask(*kinds)[rows]])

    compute, talks, copies = of(Kind.KERNEL), of(Kind.COMMUNICATION), of(Kind.COPY, Kind.MEMSET)
    both = _both(compute, talks)
    known = launch != NONE
    queued = merged(columns.end[launch[known]], columns.start[rows[known]])
    return [
        ("communication_overlapped", both), ("communication_exposed", talks), ("compute", compute), ("copy", copies),
        ("idle_queued", queued),
    ]  # fmt: skip


def _perhaps_queued(launch: Array) -> Intervals:
    """When work may have been queued of which the file does not say so: at any time where it has no launch of the device. Where it lacks
    some (they lie before the file, or were left out) a notice says of how many, and what the others say counts."""
    if launch.size and (launch == NONE).all():
        return np.array([_TIMES.min], dtype=np.int64), np.array([_TIMES.max], dtype=np.int64)
    return _EMPTY


def _where_known(rules: list[tuple[str, Intervals]], unsure: Intervals) -> list[tuple[str, Intervals]]:
    """The rules, with ``idle_launching``, which says that nothing is queued, only where that is known."""
    if not unsure[0].size:
        return rules
    found: list[tuple[str, Intervals]] = []
    for part, intervals in rules:
        if part == "idle_launching":
            found.append(("unknown", _both(intervals, unsure)))
        found.append((part, intervals))
    return found


def _both(one: Intervals, other: Intervals) -> Intervals:
    return intersection(*one, *other)


def _named_so(names: Sequence[str]) -> Array:
    """Which names are those of a phase that waits. A capture has millions of names, so they are looked through as one text
    first, some at a time; the expression is asked of those alone that have one of its words in them."""
    found: Array = np.zeros(len(names), dtype=np.bool_)
    for first in range(0, len(names), TEXTS):
        part = names[first : first + TEXTS]
        text = "\x00".join(part).encode("utf-8", "surrogatepass").lower()
        begins: Array = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == 0) + 1
        if begins.size != len(part) - 1:  # a name has the separator in it
            asked: Iterable[int] = range(len(part))
        else:
            at = [match.start() for match in _WORDS.finditer(text)]
            asked = distinct(np.searchsorted(begins, np.array(at, dtype=np.int64), side="right")).tolist()
        for code in asked:
            found[first + code] = WAITING_NAME.search(part[code]) is not None
    return found


def _covering(columns: Columns, rows: Array) -> Intervals:
    """What these rows cover, some of them at a time: where they lie in each other little is left of each part."""
    if rows.size <= ROWS:
        return merged(columns.start[rows], columns.end[rows]) if rows.size else _EMPTY
    parts = [_covering(columns, rows[begin : begin + ROWS]) for begin in range(0, rows.size, ROWS)]
    return merged(*(np.concatenate(bounds) for bounds in zip(*parts, strict=True)))


def _launching(columns: Columns, rows: Array, launch: Array) -> Array:
    """The threads that launched most kernels of a device (several that launched as many); none where no launch is in the file."""
    kernels = launch[(launch != NONE) & columns.mask(Kind.KERNEL, Kind.COMMUNICATION)[rows]]
    counts = np.bincount(columns.thread[kernels])
    return np.flatnonzero(counts == counts.max(initial=1))


class _Host:
    """What the host does, as rules."""

    def __init__(self, columns: Columns, categories: Mapping[str, str]) -> None:
        phases = columns.rows(Kind.PHASE, Kind.RANGE)
        collective = np.zeros(phases.size, dtype=np.bool_)
        waiting = np.zeros(phases.size, dtype=np.bool_)
        if phases.size:
            named, word = columns.name[phases], columns.category[phases]
            others = np.array([text in WAITING_CATEGORIES for text in columns.words], dtype=np.bool_)
            together = np.array([text == COLLECTIVE for text in columns.words], dtype=np.bool_)
            collective, waiting = together[word], others[word]
            if categories:
                of_name = [categories.get(name, "") for name in columns.names]
                collective |= ~waiting & np.array([text == COLLECTIVE for text in of_name], dtype=np.bool_)[named]
                waiting |= (
                    ~collective & np.array([text in WAITING_CATEGORIES for text in of_name], dtype=np.bool_)[named]
                )
            waiting |= _named_so(columns.names)[named] & ~collective
        self._columns = columns
        self._any = columns.rows(*HOST)
        self._waits = {
            "idle_sync": columns.rows(Kind.SYNC), "idle_collective": phases[collective], "idle_waiting": phases[waiting],
        }  # fmt: skip
        self._all = [(part, _covering(columns, rows)) for part, rows in self._waits.items()]
        self._all.append(("idle_launching", _covering(columns, self._any)))
        self.there = bool(self._any.size)

    def rules(self, threads: Array) -> list[tuple[str, Intervals]]:
        """For a device whose kernels these threads launch: what they do comes before what others wait for."""
        columns = self._columns
        if not threads.size or np.isin(columns.thread[self._any], threads).all():
            return self._all
        own = [
            (part, rows[np.isin(columns.thread[rows], threads)])
            for part, rows in (*self._waits.items(), ("idle_launching", self._any))
        ]
        return [*((part, _covering(columns, rows)) for part, rows in own), *self._all]
