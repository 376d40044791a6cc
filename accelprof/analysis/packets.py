"""Perfetto's packets as bytes: fields as protobuf writes them, columns of events at once, and the files they stand in.

Field numbers are those of ``perfetto/trace/trace_packet.proto`` and ``track_event.proto``.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from accelprof.analysis.timeline import Behind
from accelprof.reading.columns import Array

SLICE_BEGIN, SLICE_END, INSTANT, COUNTER = 1, 2, 3, 4
#: bytes of packets that are compressed together, and how hard
TOGETHER, LEVEL = 1 << 20, 2


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


class Squeezed:
    """A file of packets, compressed some at a time into packets that hold them, on a thread while the next are made.

    Raises:
        OSError: of the thread, at the next write or at the end.
    """

    def __init__(self, path: str) -> None:
        self._file = Behind(open(path, "wb"), self._packed)  # noqa: SIM115 - closed with this
        self._waiting: list[bytes] = []
        self._size = 0

    @staticmethod
    def _packed(data: bytes) -> bytes:
        return packet(field(50, zlib.compress(data, LEVEL)))

    def write(self, data: bytes) -> int:
        """``data`` is whole packets."""
        self._waiting.append(data)
        self._size += len(data)
        if self._size >= TOGETHER:
            self._flush()
        return len(data)

    def _flush(self) -> None:
        if self._waiting:
            self._file.write(b"".join(self._waiting))
        self._waiting, self._size = [], 0

    def close(self) -> None:
        self._flush()
        self._file.close()

    def __enter__(self) -> Squeezed:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def packets_of(data: bytes) -> Iterator[bytes]:
    """The packets of a trace, those inside compressed ones in their place."""
    at = 0
    while at < len(data):
        size, at = read_varint(data, at + 1)
        inner, at = data[at : at + size], at + size
        found = dict(fields_of(inner))
        if 50 in found:
            yield from packets_of(zlib.decompress(found[50]))
        else:
            yield inner


def fields_of(data: bytes) -> Iterator[tuple[int, Any]]:
    """``(number, value)`` of the fields of a message: whole numbers, and bytes of what has a length or a fixed width."""
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        wire = tag & 7
        if wire == 0:
            value, at = read_varint(data, at)
            yield tag >> 3, value
            continue
        size = 8
        if wire == 2:
            size, at = read_varint(data, at)
        yield tag >> 3, data[at : at + size]
        at += size


def has(data: bytes, number: int) -> bool:
    return any(found == number for found, _ in fields_of(data))


def moved(snapshot: bytes, by_ns: int) -> bytes:
    """A sequence's own snapshot with its beginning moved."""
    parts = []
    for number, value in fields_of(snapshot):
        if number == 6:
            clocks = []
            for _, clock in fields_of(value):
                of = dict(fields_of(clock))
                of[2] = (of[2] + by_ns) & (1 << 64) - 1
                clocks.append(field(1, b"".join(field(key, of[key]) for key in sorted(of))))
            value = b"".join(clocks)
        parts.append(field(number, value))
    return b"".join(parts)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _varints(values: Array) -> tuple[Array, Array]:
    """Each value's bytes in a row of a table, and how many of them count."""
    table: Array = np.zeros((len(values), 10), np.uint8)
    rest = values.astype(np.uint64)
    size: Array = np.ones(len(values), np.int64)
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


def encoded(types: Array, when: Array, name: Array, cat: Array, extra: Sequence[bytes] | None, sequence: int) -> bytes:
    count = len(types)
    named = (types != SLICE_END).astype(np.int64)
    times, time_size = _varints(when)
    names, name_size = _varints(name)
    cats, cat_size = _varints(cat)
    tail = field(10, sequence)
    extra_size: Array = (
        np.array([len(text) for text in extra], np.int64) if extra is not None else np.zeros(count, np.int64)
    )
    event = 2 + named * (2 + name_size + cat_size) + extra_size
    events, event_size = _varints(event)
    inner = 1 + time_size + 1 + event_size + event + len(tail)
    inners, inner_size = _varints(inner)
    total = 1 + inner_size + inner
    ends = np.cumsum(total)
    out: Array = np.empty(int(ends[-1]), np.uint8)
    at = ends - total

    def put(value: int, where: Array | None = None) -> None:
        nonlocal at
        if where is None:
            out[at] = value
            at = at + 1
        else:
            out[at[where]] = value
            at = at + where

    def fill(table: Array, size: Array, where: Array | None = None) -> None:
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
    fill(types.astype(np.uint8)[:, None], np.ones(count, np.int64))
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
