"""Which ranges hold which launch: the join of device work with the phases that launched it, by sorting.

The rule stands in :mod:`accelprof.analysis.attribution`. Ranges of a thread are laid on as many lanes as are open at
once, so that those of one lane are disjoint; then one search in each lane finds all ranges that hold any number of
launches. The time is that of sorting, whatever the ranges are called.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from accelprof.analysis.intervals import among, distinct
from accelprof.catalogue import get_catalogue
from accelprof.contracts.spans import HostCalls, Kind
from accelprof.reading import frameworks
from accelprof.reading.columns import NONE, Array, Columns, groups_of

RANGES = frozenset({Kind.PHASE, Kind.RANGE})
LAUNCHES = frozenset({Kind.RUNTIME, Kind.SYNC})
KERNELS = frozenset({Kind.KERNEL, Kind.COMMUNICATION})
#: launches that are looked up together
PART = 1 << 16
#: what is said of a kernel whose launch number several processes of the file used
SEVERAL = "launches of several processes with one number"
_NUMBERED = re.compile(r",? (?:seq|op_id|sizes|input_op_ids) = .*$")


def label(name: str) -> str:
    """A range's name without the numbers that ``torch.autograd.profiler.emit_nvtx`` adds to every call."""
    return _NUMBERED.sub("", name) if " = " in name else name


@dataclass
class Holders:
    """Device work and the ranges that hold its launch.

    Attributes:
        work: rows of device work; ``kernel``: which of them are kernels.
        ranges: rows of the ranges.
        launch: for each piece of work the row of its launch, :data:`NONE` without one.
        foreign: for each piece of work whether several processes launched with its number.
        innermost, outermost: for each piece of work a place in ``ranges``, or :data:`NONE`.
        pair_work, pair_range: places in ``work`` and ``ranges``, one for each range that holds the launch of a piece.
        undecided: kernels by the innermost range of each of several threads that could have been meant.
        undecided_around: kernels in a range of a framework's thread that counts inside no phase, in the same way.
        by_time: pieces of work given to a range of another thread.
    """

    work: Array
    kernel: Array
    ranges: Array
    launch: Array
    foreign: Array
    innermost: Array
    outermost: Array
    pair_work: Array
    pair_range: Array
    undecided: Counter[tuple[str, ...]] = field(default_factory=Counter)
    undecided_around: Counter[tuple[str, ...]] = field(default_factory=Counter)
    by_time: int = 0


def holders(columns: Columns, kinds: Iterable[Kind] = RANGES) -> Holders:
    """See the module."""
    work, ranges = columns.work().astype(np.int32), columns.rows(*kinds).astype(np.int32)
    launch, foreign = launches_of(columns, work)
    kernel = columns.mask(*KERNELS)[work]
    none: Array = np.full(work.size, NONE, dtype=np.int32)
    empty: Array = np.zeros(0, dtype=np.int64)
    found = Holders(work, kernel, ranges, launch, foreign, none, none.copy(), empty, empty)
    several = int((foreign & kernel).sum())
    if several:
        found.undecided[SEVERAL,] += several
    launched: Array = np.flatnonzero(launch != NONE).astype(np.int32)
    calls = distinct(launch[launched])
    number: Array = np.zeros(len(columns), dtype=np.int32)
    number[calls] = np.arange(calls.size, dtype=np.int32)
    place = number[launch[launched]]
    del number
    asked = _Ranges(columns, ranges)
    kernels = np.bincount(place[kernel[launched]], minlength=calls.size)
    first: Array = np.zeros(calls.size + 1, dtype=np.int64)
    held: list[Array] = []
    outer: Array = np.full(calls.size, NONE, dtype=np.int32)
    inner: Array = np.full(calls.size, NONE, dtype=np.int32)
    by_other: Array = np.zeros(calls.size, dtype=np.bool_)
    for begin in range(0, calls.size, PART):
        part = slice(begin, begin + PART)
        of_call, of_range, by_other[part] = asked.of(calls[part], kernels[part])
        own = columns.thread[ranges[of_range]] == columns.thread[calls[part][of_call]]
        # outermost first; ranges of the launching thread lie in those of another
        order = np.lexsort((of_range, -columns.end[ranges[of_range]], columns.start[ranges[of_range]], own, of_call))
        count = np.bincount(of_call, minlength=calls[part].size)
        first[begin + 1 : begin + 1 + count.size] = count
        of_range = of_range[order].astype(np.int32)
        last = np.cumsum(count)
        some = np.flatnonzero(count)
        outer[begin + some], inner[begin + some] = of_range[(last - count)[some]], of_range[last[some] - 1]
        held.append(of_range)
    found.undecided.update(asked.undecided)
    found.undecided_around.update(asked.undecided_around)
    found.by_time = int(by_other[place].sum())
    del asked
    found.outermost[launched], found.innermost[launched] = outer[place], inner[place]
    if held:
        ranges_of = np.concatenate(held)
        held.clear()
        ends = np.cumsum(first)
        found.pair_work, found.pair_range = _spread(launched, ends[place], ends[place + 1], ranges_of)
    return found


def innermost_of(columns: Columns, rows: Array, ranges: Array) -> Array:
    """For each row of the host the place in ``ranges`` of the innermost range around it, by the rule for launches;
    :data:`NONE` without one, or where it is not decided."""
    found: Array = np.full(rows.size, NONE, dtype=np.int64)
    asked = _Ranges(columns, ranges)
    for begin in range(0, rows.size, PART):
        part = rows[begin : begin + PART]
        of_row, of_range, _ = asked.of(part, np.zeros(part.size))
        own = columns.thread[ranges[of_range]] == columns.thread[part[of_row]]
        order = np.lexsort((of_range, -columns.end[ranges[of_range]], columns.start[ranges[of_range]], own, of_row))
        found[begin + of_row[order]] = of_range[order]  # the last of each row stays: the innermost
    return found


class Launches(NamedTuple):
    """Launches of kernels and graphs in a file: how many, how many of them have no work in it, and the rows of those that seem to
    have none (more than these where the work of some may be any of several launches')."""

    number: int
    lost: int
    rows: Array


def lost_launches(columns: Columns, work: Array, launch: Array, foreign: Array) -> Launches:
    """The launches of a file.

    A driver's call inside a runtime's is one launch with it. A capture of a graph launches nothing: its calls without work
    are none. ``work``, ``launch``, ``foreign``: as :func:`launches_of` has them; work that could be of any of several
    processes, and kernels without a number, are taken for those that are missing.
    """
    calls = columns.rows(Kind.RUNTIME)
    said = calls_said(columns)
    calls = calls[
        named(columns, [one.launches for one in said])[columns.name[calls]] & (columns.correlation[calls] != NONE)
    ]
    if not calls.size:
        return Launches(0, 0, calls)
    calls = calls[np.lexsort((-columns.end[calls], columns.start[calls], columns.thread[calls]))]
    numbers = distinct(columns.correlation[calls])

    def keys(rows: Array, process: Array | int) -> Array:
        place = columns.scope[rows].astype(np.int64) * len(columns.processes) + process
        return place * numbers.size + np.searchsorted(numbers, columns.correlation[rows])

    served = distinct(launch[launch != NONE])
    served = served[among(columns.correlation[served], numbers)]
    shared = work[foreign]
    shared = shared[among(columns.correlation[shared], numbers)]
    outer = _outermost(columns, calls)
    found = np.logical_or.reduceat(
        among(keys(calls, columns.process[calls]), distinct(keys(served, columns.process[served]))), outer
    )
    lost = calls[outer[~found]]
    lost = lost[~_recorded(columns, lost, said)]
    missing = lost.size
    if shared.size:
        missing = (Counter(keys(lost, 0).tolist()) - Counter(keys(shared, 0).tolist())).total()
    unnumbered = int((columns.mask(*KERNELS)[work] & (columns.correlation[work] == NONE)).sum())
    return Launches(int(found.sum()) + int(lost.size), max(int(missing) - unnumbered, 0), lost)


def calls_said(columns: Columns) -> tuple[HostCalls, ...]:
    """What the file's tool calls what puts work on a device; where that does not say it, as of a merged timeline, what any does."""
    if columns.calls is not None:
        return (columns.calls,)
    catalogue = get_catalogue()
    found = [catalogue.tool_class(name).host_calls for name in catalogue.tool_names()]
    return tuple(one for one in found if isinstance(one, HostCalls) and not one.fault())


def named(columns: Columns, patterns: Iterable[str]) -> Array:
    """Which names one of the patterns is found in. Each is compiled alone: flags and groups of one are nothing to the others."""
    searches = [re.compile(pattern).search for pattern in dict.fromkeys(patterns) if pattern]
    return np.array([any(search(name) for search in searches) for name in columns.names] or [False], dtype=np.bool_)


def _outermost(columns: Columns, calls: Array) -> Array:
    """The places of the calls that lie in no other of their thread; ``calls`` are sorted by thread, start and the longer first."""
    begins = np.flatnonzero(np.diff(columns.thread[calls], prepend=-1))
    outer: Array = np.ones(calls.size, dtype=np.bool_)
    for begin, until in zip(begins.tolist(), [*begins[1:].tolist(), calls.size], strict=True):
        start, end = columns.start[calls[begin:until]], columns.end[calls[begin:until]]
        reach = np.maximum.accumulate(end)
        outer[begin + 1 : until] = (start[1:] >= reach[:-1]) | (end[1:] > reach[:-1])
    return np.flatnonzero(outer)


def _recorded(columns: Columns, calls: Array, said: Sequence[HostCalls]) -> Array:
    """Which of the calls lie between the begin and the end of a capture, on whichever thread of their process: autograd's
    launches into the stream that another captures. A capture whose begin or end is not in the file goes on to its edge."""
    inside: Array = np.zeros(calls.size, dtype=np.bool_)
    rows = columns.rows(Kind.RUNTIME)
    change: Array = np.zeros(max(len(columns.names), 1), dtype=np.int64)
    begins, ends = [one.capture_begins for one in said], [one.capture_ends for one in said]
    for patterns, sign in ((begins, 1), (ends, -1)):
        change[named(columns, patterns)] = sign
    if not calls.size or not change.any():
        return inside
    rows = rows[change[columns.name[rows]] != 0]
    rows = rows[np.argsort(columns.start[rows], kind="stable")]
    for thread, mine in groups_of(columns.thread[rows]):
        depth: Array = np.concatenate(([0], np.cumsum(change[columns.name[rows[mine]]])))
        asked = np.flatnonzero(columns.process[calls] == columns.threads[thread][0])
        at = np.searchsorted(columns.start[rows[mine]], columns.start[calls[asked]], side="right")
        inside[asked] |= (depth - min(int(depth.min()), 0))[at] > 0
    return inside


def launches_of(columns: Columns, work: Array) -> tuple[Array, Array]:
    """For each piece of work the row of its launch (of several calls of one number the outermost), :data:`NONE` without
    one; and whether launches of several processes have its number, of which none is its own."""
    calls = columns.rows(*LAUNCHES).astype(np.int32)
    calls = calls[columns.correlation[calls] != NONE]
    launch: Array = np.full(work.size, NONE, dtype=np.int32)
    foreign: Array = np.zeros(work.size, dtype=np.bool_)
    if not calls.size or not work.size:
        return launch, foreign
    numbers = distinct(columns.correlation[calls])
    key = columns.scope[calls].astype(np.int64) * numbers.size + np.searchsorted(numbers, columns.correlation[calls])
    order = np.argsort(key, kind="stable")
    calls, key = calls[order], key[order]
    del order
    begins = np.ones(key.size, dtype=np.bool_)
    begins[1:] = key[1:] != key[:-1]
    first = np.flatnonzero(begins)
    keys = key[first]
    count: Array = np.diff(first, append=key.size)
    nested = np.flatnonzero(np.repeat(count > 1, count))
    if nested.size:  # several calls of one number: the outermost first
        rows = calls[nested]
        calls[nested] = rows[np.lexsort((-columns.end[rows], columns.start[rows], key[nested]))]
    del key, begins
    process = columns.process[calls]
    mixed = np.minimum.reduceat(process, first) != np.maximum.reduceat(process, first)

    at = np.minimum(np.searchsorted(numbers, columns.correlation[work]), numbers.size - 1)
    known = numbers[at] == columns.correlation[work]
    wanted = columns.scope[work].astype(np.int64) * numbers.size + at
    group = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    known &= keys[group] == wanted
    plain = known & ~mixed[group]
    launch[plain] = calls[first[group[plain]]]
    for place in np.flatnonzero(known & mixed[group]).tolist():
        begin = int(first[group[place]])
        rows = calls[begin : begin + int(count[group[place]])]
        mine = rows[columns.process[rows] == columns.process[work[place]]]
        if mine.size:
            launch[place] = mine[0]
        else:
            foreign[place] = True
    return launch, foreign


class _Ranges:
    """The ranges of a trace by process and thread. Ranges are meant by their place among them."""

    def __init__(self, columns: Columns, ranges: Array) -> None:
        self.columns, self.ranges = columns, ranges
        self.start, self.end = columns.start[ranges], columns.end[ranges]
        places = dict(groups_of(columns.thread[ranges]))
        self.threads = {code: _Thread(self.start, self.end, mine) for code, mine in places.items()}
        self.framework = _frameworks(columns, ranges, places)
        self.process: dict[int, list[int]] = {}
        for code in self.threads:
            self.process.setdefault(columns.threads[code][0], []).append(code)
        self.undecided: Counter[tuple[str, ...]] = Counter()
        self.undecided_around: Counter[tuple[str, ...]] = Counter()

    def of(self, calls: Array, kernels: Array) -> tuple[Array, Array, Array]:
        """``(call, range, by other)``: pairs of a place in ``calls`` (rows of launches) and a range that holds it, and for
        each call whether a range of another thread is among them. ``kernels``: how many kernels each call launched."""
        columns = self.columns
        pairs: list[tuple[Array, Array]] = []
        by_other: Array = np.zeros(calls.size, dtype=np.bool_)
        for code, mine in groups_of(columns.thread[calls]):
            start, end = columns.start[calls[mine]], columns.end[calls[mine]]
            own: Array = np.zeros(mine.size, dtype=np.bool_)
            if code in self.threads:
                for which, held in self.threads[code].holding(start, end):
                    pairs.append((mine[which], held))
                    own[which] = True
            thread_of = self._other(code, start, end, own, kernels[mine])
            by_other[mine] = thread_of != NONE
            for other in np.unique(thread_of[thread_of != NONE]).tolist():
                asked = np.flatnonzero(thread_of == other)
                for which, held in self.threads[other].holding(start[asked], end[asked]):
                    pairs.append((mine[asked[which]], held))
        if not pairs:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), by_other
        one, other = zip(*pairs, strict=True)
        return np.concatenate(one), np.concatenate(other), by_other

    def _other(self, thread: int, start: Array, end: Array, own: Array, kernels: Array) -> Array:
        """For each launch of ``thread`` the one other thread whose ranges it belongs to as well, :data:`NONE` with none or
        with several. ``own``: whether a range of the launching thread holds it."""
        others = [other for other in self.process.get(self.columns.threads[thread][0], []) if other != thread]
        asked: Array = np.ones(start.size, dtype=np.bool_) if thread in self.framework else ~own
        meant: Array = np.full(start.size, NONE, dtype=np.int64)
        several: Array = np.zeros(start.size, dtype=np.bool_)
        for candidates, wanted in (
            ([other for other in others if other not in self.framework], asked),
            ([other for other in others if other in self.framework], ~own),
        ):
            wanted = wanted & (meant == NONE) & ~several
            if not wanted.any():
                continue
            inside: Array = np.zeros(start.size, dtype=np.int64)
            last = meant.copy()
            for other in candidates:
                held = wanted & self.threads[other].holds(start, end)
                inside += held
                last[held] = other
            meant = np.where(inside == 1, last, meant)
            self._name(candidates, start, end, np.where(inside > 1, kernels, 0), own)
            several |= inside > 1
        return meant

    def _name(self, candidates: list[int], start: Array, end: Array, kernels: Array, own: Array) -> None:
        """Count the kernels of launches by the innermost range of each of several threads that could be meant."""
        asked = np.flatnonzero(kernels)
        if not asked.size:
            return
        innermost: Array = np.full((asked.size, len(candidates)), NONE, dtype=np.int64)
        for column, other in enumerate(candidates):
            for which, held in self.threads[other].holding(start[asked], end[asked]):
                known = innermost[which, column]
                begin, until = self.start[known], self.end[known]
                better = (
                    (known == NONE)
                    | (self.start[held] > begin)
                    | ((self.start[held] == begin) & (self.end[held] <= until))
                )
                innermost[which[better], column] = held[better]
        names = np.where(innermost == NONE, NONE, self.columns.name[self.ranges[innermost]])
        found, place = np.unique(np.column_stack((own[asked], names)), axis=0, return_inverse=True)
        counts: Array = np.zeros(len(found), dtype=np.int64)
        np.add.at(counts, place.reshape(-1), kernels[asked].astype(np.int64))
        for (inner, *codes), count in zip(found.tolist(), counts.tolist(), strict=True):
            texts = tuple(sorted(label(self.columns.names[code]) for code in codes if code != NONE))
            (self.undecided_around if inner else self.undecided)[texts] += count


def _frameworks(columns: Columns, ranges: Array, places: dict[int, Array]) -> set[int]:
    """The threads that are a framework's: those that the file calls so, and those of whose ranges each is one of a
    framework or inside one (an operator counts as such a range)."""
    named: Array = np.array([frameworks.is_span(name) for name in columns.names] or [False], dtype=np.bool_)
    rows = columns.rows(*RANGES, Kind.OPERATOR)
    rows = rows[named[columns.name[rows]]]
    found = set(columns.framework & places.keys())
    for thread, mine in groups_of(columns.thread[rows]):
        if thread in places:
            around = _Thread(columns.start[rows], columns.end[rows], mine)
            held = ranges[places[thread]]
            if around.holds(columns.start[held], columns.end[held]).all():
                found.add(thread)
    return found


def _spread(keys: Array, first: Array, last: Array, values: Array) -> tuple[Array, Array]:
    """Each key with every value of its stretch ``[first, last)``."""
    count = last - first
    total = int(count.sum())
    one: Array = np.zeros(total, dtype=np.int32)
    other: Array = np.zeros(total, dtype=np.int32)
    at = 0
    for begin in range(0, keys.size, PART):
        mine, low = count[begin : begin + PART], first[begin : begin + PART]
        places: Array = np.repeat(low - (np.cumsum(mine) - mine), mine)
        places += np.arange(places.size)
        one[at : at + places.size] = np.repeat(keys[begin : begin + PART], mine)
        other[at : at + places.size] = values[places]
        at += places.size
    return one, other


class _Thread:
    """The ranges of one thread on lanes: those of one lane are disjoint, and touch at most where both last."""

    def __init__(self, start: Array, end: Array, mine: Array) -> None:
        order = mine[np.lexsort((-end[mine], start[mine]))].astype(np.int32)
        self.start, self.end = start[order], end[order]
        #: the furthest end among the ranges that begin no later
        self.reach: Array = np.maximum.accumulate(self.end)
        lane = _lanes(self.start, self.end)
        self.lanes = [order[lane == number] for number in range(int(lane.max()) + 1)]
        del lane, order
        self._bounds = [(start[lane], end[lane]) for lane in self.lanes]

    def holds(self, start: Array, end: Array) -> Array:
        """Whether one of the ranges holds each stretch."""
        until = np.searchsorted(self.start, start, side="right")
        return (until > 0) & (self.reach[np.maximum(until - 1, 0)] >= end)

    def holding(self, start: Array, end: Array) -> Iterator[tuple[Array, Array]]:
        """``(place of the stretch, range)`` for all ranges that hold a stretch, some of them at a time."""
        for places, (begins, ends) in zip(self.lanes, self._bounds, strict=True):
            at = np.searchsorted(begins, start, side="right") - 1
            for back in (0, 1):  # the one before ends where this one begins, at most
                place = at - back
                held = np.flatnonzero((place >= 0) & (ends[np.maximum(place, 0)] >= end))
                if held.size:
                    yield held, places[place[held]]


def _lanes(start: Array, end: Array) -> Array:
    """A lane for each of the ranges, which are sorted by start and the longer first."""
    ended = np.searchsorted(np.sort(end), start, side="right")
    depth: Array = np.maximum(np.arange(start.size) - ended, 0)
    order = np.lexsort((np.arange(start.size), depth))
    same = depth[order[1:]] == depth[order[:-1]]
    before, after = order[:-1][same], order[1:][same]
    apart = (start[after] > end[before]) | (
        (start[after] == end[before]) & (end[after] > start[after]) & (end[before] > start[before])
    )
    if apart.all():
        return depth  # ranges that nest: their depth is a lane of its own
    lane: Array = np.zeros(start.size, dtype=np.int64)
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    lanes = 0
    for at, (begin, finish) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while busy and busy[0][0] < begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            number = heapq.heappop(free)
        else:
            number, lanes = lanes, lanes + 1
        lane[at] = number
        heapq.heappush(busy, (finish, number))
    return lane
