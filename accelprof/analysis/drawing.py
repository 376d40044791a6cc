"""Where the events of one file stand in a timeline: found in a first pass over the file that keeps numbers only.

The second pass reads the events again, a block at a time, and writes each to its place; so a file of any size takes the
memory of some numbers an event and of one block.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from accelprof.analysis.rows import Drawn, lanes
from accelprof.analysis.tracks import Place
from accelprof.contracts.spans import Flow
from accelprof.reading.chrome import may_be_open
from accelprof.reading.chrome_file import ChromeFile, Stream
from accelprof.reading.columns import Array
from accelprof.reading.times import exact_column

#: codes of the phase letters that matter here; 0 is what stands on no row of a thread
POINT, COMPLETE, META, BEGIN, END, FLOW, FLOW_END, ELSEWHERE = 1, 2, 3, 4, 5, 6, 7, 0
CODES = {"X": COMPLETE, "M": META, "B": BEGIN, "E": END, "s": FLOW, "t": FLOW, "f": FLOW_END, "i": POINT, "I": POINT, "P": POINT}  # fmt: skip
#: no end: an event without length, or one that is left out
NEVER = -(1 << 62)


class Head(msgspec.Struct, gc=False):
    """What the first pass needs of an event."""

    ph: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = msgspec.Raw()
    dur: msgspec.Raw = msgspec.Raw()
    id: Any = None
    bp: Any = None
    cat: Any = None


def plain(value: object) -> Any:
    """A process or thread as a key: what is no number or text as text."""
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


class Correlated(msgspec.Struct, gc=False):
    args: msgspec.Raw = msgspec.Raw()


class _Number(msgspec.Struct, gc=False):
    correlation: Any = None


class Codes(dict[Place, int]):
    """Rows by number in the order in which they came first; looking one up gives it one."""

    def __missing__(self, place: Place) -> int:
        number = self[place] = len(self)
        return number


_LETTER, _PLACE = attrgetter("ph"), attrgetter("pid", "tid")


def chosen(events: Sequence[Head], which: Array) -> Sequence[Head]:
    """Those with these numbers, in order; mostly all."""
    return events if len(which) == len(events) else [events[index] for index in which.tolist()]


class Drawing:
    """The places of a file's events, by their number in the file.

    Attributes:
        code: what each event is (see :data:`CODES`); ``kept`` whether it is written.
        at, end: ns; ``end`` is :data:`NEVER` for what does not last.
        row: the number in ``rows``, which are process and thread as the file has them; ``lane`` is 0 for the row itself.
        flows: of each arrow's end its number in the file, and whether it means the next slice to begin.
        deferred: events to be written behind all others, in this order: at one moment the longest has to come first.
        cut: those that were open when recording stopped, until which they last.
        bad: why events are left out, and how many; ``no_spans`` by phase letter those that no report counts; ``moved`` counts events by row that got a lane of their own.
    """

    def __init__(self) -> None:
        self.rows: dict[Place, int] = Codes()
        self.bad: Counter[str] = Counter()
        self.no_spans: Counter[str] = Counter()
        self.moved: Counter[int] = Counter()
        self.deferred: list[int] = []
        self.cut: set[int] = set()
        self._parts: list[tuple[Array, ...]] = []
        self._bases: list[int] = []
        self._open: dict[int, list[int]] = {}
        self._lost: set[int] = set()
        self._partner: dict[int, int] = {}
        self.flows: dict[int, tuple[Any, bool]] = {}
        self._count = 0

    # --- taking in ----------------------------------------------------------------------------------------------------

    def add(self, events: Sequence[Head]) -> None:
        """A block of events, in the file's order."""
        count = len(events)
        try:
            code: Array = np.fromiter(map(CODES.get, map(_LETTER, events), repeat(0)), np.uint8, count)
            row: Array = np.fromiter(map(self.rows.__getitem__, map(_PLACE, events)), np.int32, count)
        except TypeError:  # a list or an object in place of a number or letter
            code = np.array([CODES.get(plain(event.ph), 0) for event in events], np.uint8)
            row = np.array([self.rows[plain(event.pid), plain(event.tid)] for event in events], np.int32)
        timed = np.flatnonzero(code != META)
        at: Array = np.zeros(count, np.int64)
        kept: Array = np.ones(count, np.bool_)
        at[timed], bad = exact_column([event.ts for event in chosen(events, timed)])
        for index, why in bad.items():
            kept[timed[index]] = False
            self.bad[f"time {why}"] += 1
        end: Array = np.full(count, NEVER, np.int64)
        whole = np.flatnonzero((code == COMPLETE) & kept)
        length, bad = exact_column([event.dur for event in chosen(events, whole)])
        end[whole] = at[whole] + length
        for index, why in bad.items():
            kept[whole[index]], end[whole[index]] = False, NEVER
            self.bad[f"duration {why}"] += 1
        for index in whole[length < 0].tolist():
            kept[index], end[index] = False, NEVER
            self.bad["duration negative"] += 1
        for index in np.flatnonzero((code == FLOW) | (code == FLOW_END)).tolist():
            event = events[index]
            self.flows[self._count + index] = (event.id, code[index] == FLOW_END and event.bp != "e")
        self._parts.append((code, row, at, end, kept))
        self._bases.append(self._count)
        self._pairs(events, code, row, at, kept)
        self._count += count

    def _pairs(self, events: Sequence[Head], code: Array, row: Array, at: Array, kept: Array) -> None:
        """Ends find their begins, also of earlier blocks."""
        for index in np.flatnonzero(((code == BEGIN) | (code == END)) & kept).tolist():
            mine, moment = int(row[index]), int(at[index])
            stack = self._open.setdefault(mine, [])
            if code[index] == BEGIN:
                stack.append(self._count + index)
                if not may_be_open(events[index].cat):
                    self._lost.add(self._count + index)
            elif stack and self._at(stack[-1]) <= moment:
                first = stack.pop()
                self._partner[self._count + index] = first
                self._set_end(first, moment)
            else:
                kept[index] = False
                self.bad["ends without a begin"] += 1

    def _find(self, number: int) -> tuple[tuple[Array, ...], int]:
        part = bisect_right(self._bases, number) - 1
        return self._parts[part], number - self._bases[part]

    def _at(self, number: int) -> int:
        part, index = self._find(number)
        return int(part[2][index])

    def _set_end(self, number: int, moment: int) -> None:
        part, index = self._find(number)
        part[3][index] = moment

    # --- finding places -----------------------------------------------------------------------------------------------

    def finish(self, correlations: Callable[[set[int]], dict[int, Any]]) -> None:
        """Find lanes; ``correlations`` gives the arguments' number of events, asked where two begin together and an arrow ends."""
        empty: tuple[Array, ...] = tuple(
            np.zeros(0, kind) for kind in (np.uint8, np.int32, np.int64, np.int64, np.bool_)
        )
        columns = zip(*(self._parts or [empty]), strict=True)
        self.code, self.row, self.at, self.end, self.kept = (np.concatenate(parts) for parts in columns)
        self._parts.clear()
        endless = {number for stack in self._open.values() for number in stack}
        lost, self.cut = endless & self._lost, endless - self._lost
        if lost:
            self.kept[list(lost)] = False
            self.bad["begins without an end"] += len(lost)
        if self.cut:
            opened, last = list(self.cut), self.kept & (self.end != NEVER)
            self.code[opened] = COMPLETE
            self.end[opened] = max(int(self.end[last].max(initial=NEVER)), int(self.at[opened].max()))
        slices = np.flatnonzero(self.kept & (self.end != NEVER))
        found, order = lanes(self.row[slices], self.at[slices], self.end[slices])
        self.lane: Array = np.zeros(len(self.code), np.int32)
        self.lane[slices] = found
        moved = slices[found > 0]
        self.moved.update(self.row[moved].tolist())
        for last, first in self._partner.items():
            self.lane[last] = self.lane[first]
        if self.moved and self.flows:
            self._arrows(slices[order], correlations)
        self._ties(slices[order])

    def _arrows(self, ordered: Array, correlations: Callable[[set[int]], dict[int, Any]]) -> None:
        """Arrows go with the slice they begin or end at, on rows with several lanes."""
        on_rows = np.isin(self.row, list(self.moved))
        mine = ordered[on_rows[ordered]]
        arrows = [number for number in self.flows if on_rows[number] and self.kept[number]]
        starts: Counter[tuple[int, int]] = Counter(zip(self.row[mine].tolist(), self.at[mine].tolist(), strict=True))
        where = {number: (int(self.row[number]), int(self.at[number])) for number in arrows}
        several = {place for place in where.values() if starts[place] > 1}
        asked = {n for n in mine.tolist() if (int(self.row[n]), int(self.at[n])) in several} if several else set()
        numbers = correlations(asked) if asked else {}
        slices: dict[int, list[tuple[int, int, int, Any]]] = {row: [] for row in self.moved}
        for number in mine.tolist():
            entry = (int(self.at[number]), int(self.end[number]), int(self.lane[number]), numbers.get(number))
            slices[int(self.row[number])].append(entry)
        drawn = {row: Drawn(found) for row, found in slices.items()}
        for number in arrows:
            row, at = where[number]
            key, following = self.flows[number]
            self.lane[number] = drawn[row].lane(at, key, following)

    def _ties(self, ordered: Array) -> None:
        """Of slices of one row that begin together the longest must come first: where the file has them otherwise, all wait."""
        if not len(ordered):
            return
        same = (self.row[ordered][1:] == self.row[ordered][:-1]) & (self.at[ordered][1:] == self.at[ordered][:-1])
        wrong = np.flatnonzero(same & (ordered[1:] < ordered[:-1]))
        groups = np.concatenate([[0], np.cumsum(~same)])
        if len(wrong):
            late = ordered[np.isin(groups, groups[wrong])]
            self.deferred = late[self.code[late] == COMPLETE].tolist()


def drawing_of(
    path: str, record: type[Head] = Head, look: Callable[[Sequence[Any]], None] | None = None
) -> tuple[Drawing, ChromeFile]:
    """Places of the events of a Chrome trace, and what of the file is not events.

    Args:
        record: what is read of each event.
        look: gets each block before its events are placed, and may change where they stand.

    Raises:
        ReadError: the file cannot be read.
    """
    stream = Stream(path, record)
    drawing = Drawing()
    for block in stream.blocks():
        if look is not None:
            look(block)
        drawing.add(block)
    drawing.finish(lambda asked: _correlations(path, asked))
    return drawing, stream.file


def _correlations(path: str, asked: set[int]) -> dict[int, Any]:
    decoder, found, first = msgspec.json.Decoder(_Number), {}, 0
    for block in Stream(path, Correlated).blocks():
        for number in asked.intersection(range(first, first + len(block))):
            try:
                found[number] = decoder.decode(block[number - first].args).correlation
            except (msgspec.MsgspecError, ValueError):
                continue
        first += len(block)
    return found


def drawing_of_spans(
    rows: Array, places: Sequence[Place], marks: Iterable[Place], starts: Array, ends: Array, flows: Sequence[Flow] = ()
) -> Drawing:
    """Places of the spans of another format, then of its marks and the ends of its arrows.

    Args:
        rows, places: of each span which of the places it stands on.
        marks: the places of marks and of ends of arrows.
        starts, ends: ns, of spans, then of marks and ends of arrows, whose end is :data:`NEVER`.
        flows: the arrows' ends themselves.
    """
    drawing = Drawing()
    codes: Array = np.array([drawing.rows[place] for place in places] or [0], np.int32)
    row = np.concatenate([codes[rows], np.array([drawing.rows[place] for place in marks], np.int32)])
    code = np.where(ends == NEVER, POINT, COMPLETE).astype(np.uint8)
    for index, flow in enumerate(flows, len(code) - len(flows)):
        code[index] = FLOW_END if flow.step == "f" else FLOW
        drawing.flows[index] = (flow.id, flow.following)
    kept = (ends >= starts) | (ends == NEVER)
    if not kept.all():
        drawing.bad["duration negative"] += int((~kept).sum())
    drawing._parts.append((code, row, starts, np.where(kept, ends, NEVER), kept))
    drawing._count = len(starts)
    drawing.finish(lambda asked: {})
    return drawing
