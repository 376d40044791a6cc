"""The merged timeline as Perfetto's own packets: small, exact ns, nesting and arrows as they are.

Format: ``perfetto/trace/trace_packet.proto`` and ``track_event.proto``; field numbers are theirs. Each row is a sequence of its
own, so that its track and its names stand once before its events, whose times are those since the event before (an incremental
clock of the sequence); events are made a column at a time, and packets are compressed (``compressed_packets``) where the file
as a whole is not. Arguments of events stay in the JSON timeline.
"""

from __future__ import annotations

import gzip
import operator
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, cast

import msgspec
import numpy as np

from accelprof import texts
from accelprof.analysis import escape
from accelprof.analysis.drawing import (
    BEGIN,
    COMPLETE,
    FLOW_END,
    NEVER,
    POINT,
    Drawing,
    Head,
    drawing_of,
)  # fmt: skip
from accelprof.analysis.packets import (
    COUNTER,
    INSTANT,
    SLICE_BEGIN,
    SLICE_END,
    Squeezed,
    encoded,
    field,
    has,
    moved,
    packet,
    packets_of,
    read_varint,
    varint,
)
from accelprof.analysis.rows import Drawn
from accelprof.analysis.timeline import LANES, Source, TimelineWriter, decoded
from accelprof.contracts.spans import Trace
from accelprof.reading.chrome import is_ours
from accelprof.reading.chrome_file import Event
from accelprof.reading.columns import KINDS, Array
from accelprof.reading.gzipped import GZIP
from accelprof.release import VERSION

#: clocks: those of the format, and one of a sequence's own, whose times are since the packet before
REALTIME, BOOTTIME, SINCE = 1, 6, 64
_TIMESTAMP, _SNAPSHOT = bytes([8 << 3]), bytes([6 << 3 | 2])
#: records of one row that are made at once
CHUNK = 100_000


class Named(Head, gc=False):
    """An event with what a packet needs of it."""

    name: Any = None
    cat: Any = None
    id2: Any = None
    args: msgspec.Raw = msgspec.Raw()


class _Names(dict[str, int]):
    """Texts by number, in the order in which they came first."""

    def __missing__(self, name: str) -> int:
        if type(name) is not str:
            raise TypeError
        number = self[name] = len(self)
        return number

    def of(self, block: Sequence[Any], get: Callable[[Any], Any], other: Callable[[Any], str]) -> Array:
        """The numbers of what ``get`` gives of each event; ``other`` makes text of what is none."""
        try:
            return np.fromiter(map(self.__getitem__, map(get, block)), np.int32, len(block))
        except TypeError:
            found = (value if isinstance(value, str) else other(value) for value in map(get, block))
            return np.fromiter((self[text] for text in found), np.int32, len(block))


_name, _cat = operator.attrgetter("name"), operator.attrgetter("cat")


def _empty(value: object) -> str:
    return ""


def _unusual(block: Sequence[Any]) -> bool:
    """Whether an event of a block is more than a slice, an instant or an arrow."""
    try:
        return not {event.ph for event in block} <= _USUAL
    except TypeError:
        return True


#: phase letters of events that need no look
_USUAL = frozenset("XBEisft")


class PerfettoWriter(TimelineWriter):
    """Writes packets where its base writes JSON; clocks, numbers, names and lanes are the same."""

    def _opened(self, path: str) -> IO[bytes]:
        return super()._opened(path) if self._zipped else cast("IO[bytes]", Squeezed(path))

    def _head(self) -> None:
        self._tracks = 0
        self._labels: dict[tuple[int, int], str] = {}
        self._processes: dict[int, int] = {}
        self._drawn: dict[tuple[int, int], int] = {}
        self._counters: dict[tuple[int, str], int] = {}
        # SystemInfo.tracing_service_version: whose file this is, so that nobody takes it for another tool's
        self._file.write(packet(field(45, field(4, f"accelprof {VERSION}"))))

    def _add_name(self, what: str, pid: int, tid: int, name: str) -> None:
        self.merged.added += 1
        if what == "thread_name":
            self._labels[pid, tid] = name
        else:
            self._named[pid] = name

    def _add(self, event: Event, place: tuple[int, int], args: Mapping[str, Any]) -> None:
        """Rows stand in the order of their tracks; there is no number to sort by."""

    # --- sources --------------------------------------------------------------------------------------------------------

    def _chrome(self, number: int, source: Source) -> None:
        names, cats = _Names(), _Names()
        parts: list[tuple[Any, Any]] = []
        metas: list[Event] = []
        counters: list[tuple[int, Any, str, dict[str, Any]]] = []
        count = 0

        def look(block: Sequence[Any]) -> None:
            nonlocal count
            for index, event in enumerate(block) if _unusual(block) else ():
                if event.ph in ("b", "e", "n"):  # on a track of its own, by its number
                    identity = event.id if event.id is not None else event.id2
                    event.tid = f"{event.cat} {identity}"
                    event.ph = {"b": "B", "e": "E", "n": "i"}[event.ph]
                elif event.ph == "M":
                    metas.append(
                        Event(
                            ph="M", name=event.name, pid=event.pid, tid=event.tid, args=msgspec.Raw(bytes(event.args))
                        )
                    )
                elif event.ph == "C":
                    counters.append((count + index, event.pid, str(event.name), decoded(event.args)))
            parts.append((names.of(block, _name, str), cats.of(block, _cat, _empty)))
            count += len(block)

        drawing, file = drawing_of(source.path, Named, look)
        for problem in file.problems:
            self.problem(source, problem)
        self.merged.read += len(drawing.code)
        shift = self._shift(source, drawing, file.base_ns)
        places = self._places(source, drawing)
        for event in metas:
            self._meta(source, event)
            if event.name == "thread_name":
                self._labels[event.pid, event.tid] = str(decoded(event.args).get("name", ""))
        self.merged.written += len(metas)
        self._name_rows(source, drawing, places)
        name, cat = (
            (np.concatenate(columns) for columns in zip(*parts, strict=True)) if parts else (np.zeros(0, np.int32),) * 2
        )
        shown = list(names) if is_ours(file.top) else [texts.unquoted(text) for text in names]
        self._rows(
            drawing, places, shift, shown, name, list(cats), cat, self._arrows(source, number, drawing, cats, cat)
        )
        self._count(source, drawing, counters, shift)

    def _spans(self, source: Source, trace: Trace) -> None:
        number = len(self.merged.sources)
        columns, marks, flows, drawing, shift, places = self._laid_out(source, trace)
        self._name_rows(source, drawing, places)
        names, cats = _Names(), _Names()
        kinds: Array = np.array([cats[kind.value] for kind in KINDS], np.int32)
        codes: Array = np.array([names[name] for name in columns.names] or [0], np.int32)
        points: Array = np.array([names[mark.name] for mark in marks] + [names[flow.name] for flow in flows], np.int32)
        name = np.concatenate([codes[columns.name], points])
        of_flows: Array = np.array([cats[flow.category] for flow in flows], np.int32)
        cat = np.concatenate([kinds[columns.kind], np.full(len(marks), cats["mark"], np.int32), of_flows])
        arrows = self._arrows(source, number, drawing, cats, cat)
        self._rows(drawing, places, shift, list(names), name, list(cats), cat, arrows)

    # --- packets --------------------------------------------------------------------------------------------------------

    def _rows(
        self,
        drawing: Drawing,
        places: Mapping[tuple[int, int], tuple[int, int]],
        shift: int,
        names: Sequence[str],
        name: Array,
        cats: Sequence[str],
        cat: Array,
        arrows: Mapping[int, bytes],
    ) -> None:
        """The events of each row and lane: a descriptor, the names on it, then begins, ends and instants by time."""
        drawn = np.isin(drawing.code, (COMPLETE, BEGIN, POINT)) & drawing.kept
        chosen = np.flatnonzero(drawn)
        keys = drawing.row[chosen].astype(np.int64) * LANES + drawing.lane[chosen]
        order = np.argsort(keys, kind="stable")
        for mine in np.split(chosen[order], np.flatnonzero(np.diff(keys[order])) + 1):
            if not len(mine):
                continue
            place = places[int(drawing.row[mine[0]]), int(drawing.lane[mine[0]])]
            first = int(drawing.at[mine].min()) + shift
            sequence = self._track(place, names, name[mine], cats, cat[mine], first)
            for part in _records(drawing, mine, shift, sequence, name[mine], cat[mine], arrows):
                self._file.write(part)
        # a begin and its end are two events of the file
        self.merged.written += int(drawn.sum()) + int(((drawing.code == BEGIN) & drawn).sum())

    def _track(
        self, place: tuple[int, int], names: Sequence[str], name: Array, cats: Sequence[str], cat: Array, first: int
    ) -> int:
        """Describe a row and begin its sequence, whose packets all stand on it and whose clock begins at ``first``; returns its
        number."""
        pid, tid = place
        parent = self._processes.get(pid)
        if parent is None:
            parent = self._processes[pid] = self._next()
        self._tracks += 1
        uuid = self._drawn[place] = self._tracks
        label = escape.perfetto(self._labels.get(place, ""))
        thread = field(4, field(1, pid) + field(2, tid) + field(5, label))
        self._file.write(packet(field(60, field(1, uuid) + field(5, parent) + thread)))
        interned = b"".join(
            field(1, field(1, int(code) + 1) + field(2, escape.perfetto(cats[code])))
            for code in np.unique(cat).tolist()
        )
        interned += b"".join(
            field(2, field(1, int(code) + 1) + field(2, escape.perfetto(names[code])))
            for code in np.unique(name).tolist()
        )
        defaults = field(59, field(58, SINCE) + field(11, field(11, uuid)))
        here = field(1, field(1, BOOTTIME) + field(2, first))
        since = field(1, field(1, SINCE) + field(2, first) + field(3, 1) + field(4, 1))
        self._file.write(packet(field(6, here + since), field(10, uuid), field(13, 1), defaults, field(12, interned)))
        return uuid

    def _arrow(
        self, identity: int, name: str, begin: tuple[tuple[int, int], int], end: tuple[tuple[int, int], int]
    ) -> None:
        """Packets' arrows go from event to event, so each end is an instant."""
        for number, (place, at_ns) in ((47, begin), (48, end)):
            event = (
                field(9, INSTANT) + field(11, self._drawn[place]) + field(22, "accelprof") + field(23, name)
                + varint(number << 3 | 1) + struct.pack("<Q", identity)
            )  # fmt: skip
            self._file.write(packet(field(8, at_ns), field(58, BOOTTIME), field(11, event)))
        self.merged.written += 2

    def _next(self) -> int:
        self._tracks += 1
        return self._tracks

    def _arrows(
        self, source: Source, number: int, drawing: Drawing, cats: Mapping[str, int], cat: Array
    ) -> dict[int, bytes]:
        """By slice: the fields of the arrows that begin or end at it; an arrow without a slice is left out and counted."""
        flows = [index for index in drawing.flows if drawing.kept[index]]
        if not flows:
            return {}
        used = {(int(drawing.row[index]), int(drawing.lane[index])) for index in flows}
        slices: dict[tuple[int, int], list[tuple[int, int, int, Any]]] = {place: [] for place in used}
        found = np.flatnonzero(drawing.kept & (drawing.end != NEVER))
        found = found[np.lexsort((np.negative(drawing.end[found]), drawing.at[found]))]
        for index, row, lane in zip(
            found.tolist(), drawing.row[found].tolist(), drawing.lane[found].tolist(), strict=True
        ):
            if (row, lane) in used:
                slices[row, lane].append((int(drawing.at[index]), int(drawing.end[index]), index + 1, None))
        drawn = {place: Drawn(mine) for place, mine in slices.items()}
        categories = list(cats)
        result: dict[int, bytes] = {}
        lost = 0
        for index in flows:
            identity, following = drawing.flows[index]
            at = (
                drawn[int(drawing.row[index]), int(drawing.lane[index])].lane(int(drawing.at[index]), None, following)
                - 1
            )
            if at < 0:
                lost += 1
                continue
            ends = drawing.code[index] == FLOW_END
            flow = struct.pack("<Q", self.places.flow(number, categories[int(cat[index])], identity))
            result[at] = result.get(at, b"") + varint((48 if ends else 47) << 3 | 1) + flow
        self.merged.written += len(flows) - lost
        if lost:
            self.merged.left_out += lost
            self.problem(source, f"{lost} event{'s' * (lost != 1)} left out: arrows without a slice at their end")
        return result

    def _count(
        self, source: Source, drawing: Drawing, counters: Iterable[tuple[int, Any, str, dict[str, Any]]], shift: int
    ) -> None:
        """Counters: a track for each value; then what else the format has no place for is counted."""
        shown = 0
        for index, pid, name, args in counters:
            if not drawing.kept[index]:
                continue
            shown += 1
            number = self._row(source, pid, None)[0]
            for series, value in args.items():
                if isinstance(value, bool) or not isinstance(value, (int, float)):
                    continue
                label = name if series in ("value", name) else f"{name} {series}"
                event = (
                    field(9, COUNTER)
                    + field(11, self._counter(number, label))
                    + varint(44 << 3 | 1)
                    + struct.pack("<d", value)
                )
                self._file.write(
                    packet(field(8, int(drawing.at[index]) + shift), field(58, BOOTTIME), field(11, event))
                )
        self.merged.written += shown
        other = drawing.kept & (drawing.code == 0)
        rest = int(other.sum()) - shown
        if rest:
            self.merged.left_out += rest
            self.problem(
                source, f"{rest} event{'s' * (rest != 1)} left out: of a kind that Perfetto's packets do not have"
            )

    def _counter(self, pid: int, label: str) -> int:
        uuid = self._counters.get((pid, label))
        if uuid is None:
            uuid = self._counters[pid, label] = self._next()
            parent = self._processes.get(pid)
            if parent is None:
                parent = self._processes[pid] = self._next()
            self._file.write(
                packet(field(60, field(1, uuid) + field(2, escape.perfetto(label)) + field(5, parent) + field(8, b"")))
            )
        return uuid

    def _finish(self) -> None:
        for pid, uuid in self._processes.items():
            name = self._named.get(pid) or self._seen.get(pid, "")
            process = field(3, field(1, pid) + field(6, escape.perfetto(name)))
            self._file.write(packet(field(60, field(1, uuid) + process)))
        base = self.merged.base_ns = (self.base or 0) + min(self._earliest, 0)
        clocks = field(1, field(1, REALTIME) + field(2, base)) + field(1, field(1, BOOTTIME) + field(2, 0))
        self._file.write(packet(field(6, clocks)))
        self._close()

    def _rebase(self, by_ns: int) -> None:
        """Move every packet later; for the rare file with events long before the first window."""
        with open(self._temporary, "rb") as old:
            data = old.read()
        data = gzip.decompress(data) if data.startswith(GZIP) else data
        with self._opened(self._temporary) as new:
            for part in packets_of(data):
                if part.startswith(_TIMESTAMP):
                    if has(part, 58):  # of a counter; others are since the packet before
                        when, rest = read_varint(part, 1)
                        part = field(8, (when + by_ns) & (1 << 64) - 1) + part[rest:]
                elif part.startswith(_SNAPSHOT) and has(part, 10):
                    part = moved(part, by_ns)
                new.write(field(1, part))


def _records(
    drawing: Drawing, mine: Array, shift: int, sequence: int, name: Array, cat: Array, arrows: Mapping[int, bytes]
) -> Iterator[bytes]:
    """Packets of one row, some at a time, whose slices nest: what ends before what begins at one moment, what is longer before what it holds."""
    at, end = drawing.at[mine] + shift, drawing.end[mine] + shift
    lasting = drawing.end[mine] != NEVER
    place = np.arange(len(mine))
    ordered = _ordered(at, np.where(lasting, -(end - at), 1), place)
    rank: Array = np.empty(len(mine), np.int64)
    rank[ordered] = place
    some = np.flatnonzero(lasting)
    empty = end[some] == at[some]
    event = np.concatenate([np.where(lasting, SLICE_BEGIN, INSTANT), np.full(len(some), SLICE_END)])
    when = np.concatenate([at, end[some]])
    first = np.concatenate([np.ones(len(mine), np.int64), np.where(empty, 1, 0)])
    # begins by rank; ends of what lasts the other way round, those of what does not right behind their begins
    then = np.concatenate([2 * rank, np.where(empty, 2 * rank[some] + 1, -rank[some])])
    order = _ordered(when, first, then)
    item = np.concatenate([np.arange(len(mine)), some])[order]
    event, when = event[order], when[order]
    extra = (
        [
            arrows.get(index, b"") if begins else b""
            for index, begins in zip(mine[item].tolist(), (event == SLICE_BEGIN).tolist(), strict=True)
        ]
        if arrows
        else None
    )
    since = np.diff(when, prepend=when[:1])
    for low in range(0, len(order), CHUNK):
        now = slice(low, low + CHUNK)
        more = extra[now] if extra is not None else None
        yield encoded(event[now], since[now], name[item[now]] + 1, cat[item[now]] + 1, more, sequence)


def _ordered(when: Array, first: Array, then: Array) -> Array:
    """The order by time, at one moment by ``first`` and ``then``: times that are nearly sorted take one pass, and only those
    that several have are looked at further."""
    order = np.argsort(when, kind="stable")
    sorted_ = when[order]
    same = sorted_[1:] == sorted_[:-1]
    shared = np.flatnonzero(np.append(same, False) | np.append(False, same))
    mine = order[shared]
    order[shared] = mine[np.lexsort((then[mine], first[mine], when[mine]))]
    return order
