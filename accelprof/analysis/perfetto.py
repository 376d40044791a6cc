"""The merged timeline as Perfetto's own packets: a fifth of the JSON's size, exact ns, nesting and arrows as they are.

Format: ``perfetto/trace/trace_packet.proto`` and ``track_event.proto``; field numbers are theirs. Each row is a sequence of its
own, so that its track and its names stand once before its events; events are made a column at a time. Arguments of
events stay in the JSON timeline.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

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
from accelprof.analysis.rows import Drawn
from accelprof.analysis.timeline import LANES, Source, TimelineWriter, decoded, open_written
from accelprof.contracts.spans import Span, Trace
from accelprof.reading.chrome_file import Event
from accelprof.reading.gzipped import GZIP

SLICE_BEGIN, SLICE_END, INSTANT, COUNTER = 1, 2, 3, 4
REALTIME, BOOTTIME = 1, 6
_TIMESTAMP = bytes([8 << 3])
#: records of one row that are made at once
CHUNK = 200_000


def varint(value: int) -> bytes:
    """A whole number as protobuf writes it."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, value: int | bytes | str) -> bytes:
    """One field: a whole number, or bytes and text with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode("utf-8") if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def packet(*fields: bytes) -> bytes:
    """One packet of a trace."""
    return field(1, b"".join(fields))


class Named(Head, gc=False):
    """An event with what a packet needs of it."""

    name: Any = None
    cat: Any = None
    id2: Any = None
    args: msgspec.Raw = msgspec.Raw()


class _Names(dict[str, int]):
    def __missing__(self, name: str) -> int:
        number = self[name] = len(self)
        return number


class PerfettoWriter(TimelineWriter):
    """Writes packets where its base writes JSON; clocks, numbers, names and lanes are the same."""

    def _head(self) -> None:
        self._tracks = 0
        self._labels: dict[tuple[int, int], str] = {}
        self._processes: dict[int, int] = {}
        self._counters: dict[tuple[int, str], int] = {}

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
            for index, event in enumerate(block):
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
            name = np.array([names[e.name if isinstance(e.name, str) else str(e.name)] for e in block], np.int32)
            cat = np.array([cats[e.cat if isinstance(e.cat, str) else ""] for e in block], np.int32)
            parts.append((name, cat))
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
        self._rows(
            drawing, places, shift, list(names), name, list(cats), cat, self._arrows(source, number, drawing, cats, cat)
        )
        self._count(source, drawing, counters, shift)

    def _spans(self, source: Source, trace: Trace) -> None:
        items, _, _, drawing, shift, places = self._laid_out(source, trace)
        self._name_rows(source, drawing, places)
        names, cats = _Names(), _Names()
        name = np.array([names[item.name] for item in items], np.int32)
        cat = np.array([cats[item.kind.value if isinstance(item, Span) else "mark"] for item in items], np.int32)
        self._rows(drawing, places, shift, list(names), name, list(cats), cat, {})

    # --- packets --------------------------------------------------------------------------------------------------------

    def _rows(
        self,
        drawing: Drawing,
        places: Mapping[tuple[int, int], tuple[int, int]],
        shift: int,
        names: Sequence[str],
        name: Any,
        cats: Sequence[str],
        cat: Any,
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
            sequence = self._track(place, names, name[mine], cats, cat[mine])
            self._file.write(_records(drawing, mine, shift, sequence, name[mine], cat[mine], arrows))
        # a begin and its end are two events of the file
        self.merged.written += int(drawn.sum()) + int(((drawing.code == BEGIN) & drawn).sum())

    def _track(self, place: tuple[int, int], names: Sequence[str], name: Any, cats: Sequence[str], cat: Any) -> int:
        """Describe a row and begin its sequence, whose packets all stand on it; returns its number."""
        pid, tid = place
        parent = self._processes.get(pid)
        if parent is None:
            parent = self._processes[pid] = self._next()
        self._tracks += 1
        uuid = self._tracks
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
        defaults = field(59, field(11, field(11, uuid)))
        self._file.write(packet(field(10, uuid), field(13, 1), defaults, field(12, interned)))
        return uuid

    def _next(self) -> int:
        self._tracks += 1
        return self._tracks

    def _arrows(
        self, source: Source, number: int, drawing: Drawing, cats: Mapping[str, int], cat: Any
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
        kinds = list(cats)
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
            flow = struct.pack("<Q", self.places.flow(number, kinds[int(cat[index])], identity))
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
                self._file.write(packet(field(8, int(drawing.at[index]) + shift), field(11, event), field(10, 1)))
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
        with open_written(self._temporary) as new:
            at = 0
            while at < len(data):
                size, at = _read_varint(data, at + 1)
                inner, at = data[at : at + size], at + size
                if inner.startswith(_TIMESTAMP):
                    when, rest = _read_varint(inner, 1)
                    inner = field(8, (when + by_ns) & (1 << 64) - 1) + inner[rest:]
                new.write(field(1, inner))


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _records(
    drawing: Drawing, mine: Any, shift: int, sequence: int, name: Any, cat: Any, arrows: Mapping[int, bytes]
) -> bytes:
    """Packets of one row, whose slices nest: what ends before what begins at one moment, what is longer before what it holds."""
    at, end = drawing.at[mine] + shift, drawing.end[mine] + shift
    lasting = drawing.end[mine] != NEVER
    place = np.arange(len(mine))
    ordered = np.lexsort((place, np.where(lasting, -(end - at), 1), at))
    rank: Any = np.empty(len(mine), np.int64)
    rank[ordered] = place
    some = np.flatnonzero(lasting)
    empty = end[some] == at[some]
    kind = np.concatenate([np.where(lasting, SLICE_BEGIN, INSTANT), np.full(len(some), SLICE_END)])
    when = np.concatenate([at, end[some]])
    first = np.concatenate([np.ones(len(mine), np.int64), np.where(empty, 1, 0)])
    # begins by rank; ends of what lasts the other way round, those of what does not right behind their begins
    then = np.concatenate([2 * rank, np.where(empty, 2 * rank[some] + 1, -rank[some])])
    order = np.lexsort((then, first, when))
    item = np.concatenate([np.arange(len(mine)), some])[order]
    kind, when = kind[order], when[order]
    extra = (
        [
            arrows.get(index, b"") if begins else b""
            for index, begins in zip(mine[item].tolist(), (kind == SLICE_BEGIN).tolist(), strict=True)
        ]
        if arrows
        else None
    )
    out = []
    for low in range(0, len(order), CHUNK):
        now = slice(low, low + CHUNK)
        more = extra[now] if extra is not None else None
        out.append(_encoded(kind[now], when[now], name[item[now]] + 1, cat[item[now]] + 1, more, sequence))
    return b"".join(out)


def _varints(values: Any) -> tuple[Any, Any]:
    """Each value's bytes in a row of a table, and how many of them count."""
    table: Any = np.zeros((len(values), 10), np.uint8)
    rest = values.astype(np.uint64)
    size: Any = np.ones(len(values), np.int64)
    width = 1
    for column in range(10):
        table[:, column] = (rest & np.uint64(0x7F)).astype(np.uint8)
        rest = rest >> np.uint64(7)
        more = rest > 0
        if not more.any():
            break
        table[more, column] |= 0x80
        size += more
        width = column + 2
    return table[:, :width], size


def _encoded(kind: Any, when: Any, name: Any, cat: Any, extra: Sequence[bytes] | None, sequence: int) -> bytes:
    count = len(kind)
    named = (kind != SLICE_END).astype(np.int64)
    times, time_size = _varints(when)
    names, name_size = _varints(name)
    cats, cat_size = _varints(cat)
    tail = field(10, sequence)
    extra_size: Any = (
        np.array([len(text) for text in extra], np.int64) if extra is not None else np.zeros(count, np.int64)
    )
    event = 2 + named * (2 + name_size + cat_size) + extra_size
    events, event_size = _varints(event)
    inner = 1 + time_size + 1 + event_size + event + len(tail)
    inners, inner_size = _varints(inner)
    total = 1 + inner_size + inner
    ends = np.cumsum(total)
    out: Any = np.empty(int(ends[-1]), np.uint8)
    at = ends - total

    def put(value: int, where: Any = None) -> None:
        nonlocal at
        if where is None:
            out[at] = value
            at = at + 1
        else:
            out[at[where]] = value
            at = at + where

    def fill(table: Any, size: Any, where: Any = None) -> None:
        nonlocal at
        size = size if where is None else np.where(where, size, 0)
        for column in range(table.shape[1]):
            has = size > column
            out[at[has] + column] = table[has, column]
        at = at + size

    has_name = named.astype(np.bool_)
    put(1 << 3 | 2)
    fill(inners, inner_size)
    put(8 << 3)
    fill(times, time_size)
    put(11 << 3 | 2)
    fill(events, event_size)
    put(9 << 3)
    fill(kind.astype(np.uint8)[:, None], np.ones(count, np.int64))
    put(3 << 3, has_name)
    fill(cats, cat_size, has_name)
    put(10 << 3, has_name)
    fill(names, name_size, has_name)
    if extra is not None:
        for index in np.flatnonzero(extra_size).tolist():
            begin = int(at[index])
            out[begin : begin + len(extra[index])] = np.frombuffer(extra[index], np.uint8)
        at = at + extra_size
    for value in tail:
        put(value)
    return bytes(out.tobytes())
