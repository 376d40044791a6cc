"""Tables of an nsys export as arrays, and rows of all tables as one table of columns.

SQLite's rows come a part at a time: numbers become ``int64`` arrays, whatever else stands where a number should be reads
as :data:`MISSING`, as do columns that are not there.
"""

from __future__ import annotations

import itertools
import re
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from accelprof.contracts.spans import Kind

if TYPE_CHECKING:
    from accelprof.reading.columns import Array, Columns

    #: numbers, or codes with the texts that they stand for
    Held = Array | tuple[Array, Sequence[str]]

#: stands for a number that is not there
MISSING = -(1 << 63) + 1
NONE = -1
#: as ``accelprof.reading.columns.CODES``, without numpy
CODES: dict[Kind, int] = {kind: code for code, kind in enumerate(Kind)}
PART = 20_000
#: rows that are asked first which columns have something in them
SAMPLE = 1_000
#: columns that rows of an export fill
WRITTEN = (
    "kind", "name", "thread", "device", "stream", "start", "end", "correlation", "domain", "category", "color", "cut",
)  # fmt: skip
#: column of a part: 1 where the column that was asked about is there and empty
EMPTY = "is empty"
_VERSIONED = re.compile(r"^(.*?)_V(\d+)$")


class Tables:
    """Tables of an export by their plain name, whatever their version suffix."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self.names: dict[str, str] = {}
        found = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")]
        for name in sorted(found, key=_table_version):
            self.names[_plain_name(name)] = name

    def __contains__(self, table: str) -> bool:
        return table in self.names

    def quoted(self, table: str) -> str:
        return '"' + self.names[table].replace('"', '""') + '"'

    def columns(self, table: str) -> list[str]:
        return [row[1] for row in self._database.execute(f"PRAGMA table_info({self.quoted(table)})")]

    def rows(self, table: str, *columns: str, where: str = "") -> Iterator[tuple[Any, ...]]:
        """``columns`` of every row, missing ones as ``None``; nothing when the table is not there."""
        if table not in self.names:
            return iter(())
        there = set(self.columns(table))
        wanted = ", ".join(f'"{column}"' if column in there else f'NULL AS "{column}"' for column in columns)
        return iter(self._database.execute(f"SELECT {wanted} FROM {self.quoted(table)}{self._where(where, there)}"))

    def distinct(self, table: str, column: str) -> Iterator[tuple[Any, ...]]:
        """What stands in a column, each once."""
        if table not in self.names or column not in self.columns(table):
            return iter(())
        return iter(self._database.execute(f'SELECT DISTINCT "{column}" FROM {self.quoted(table)}'))

    def parts(
        self, table: str, numbers: Sequence[str], text: str = "", where: str = "", empty: str = ""
    ) -> Iterator[tuple[dict[str, Any], list[Any]]]:
        """``(column -> int64 array, texts)`` of at most :data:`PART` rows at a time; texts are empty without ``text``. With ``empty``,
        a column, there is :data:`EMPTY` too, which tells nothing from something that is no number."""
        import numpy as np

        if table not in self.names:
            return
        there = set(self.columns(table))
        filled = self._filled(table, [name for name in numbers if name in there])
        hollow = [name for name in numbers if name not in filled]
        numbers = [name for name in numbers if name in filled]
        fields = [f'ifnull("{name}", {MISSING})' for name in numbers]
        if empty:
            fields.append(f'"{empty}" IS NULL' if empty in there else "0")
            numbers.append(EMPTY)
        if not fields:  # rows all the same
            fields.append("0")
            numbers.append("")
        if text:
            fields.append(f'CAST("{text}" AS TEXT)' if text in there else "NULL")
        query = f"SELECT {', '.join(fields)} FROM {self.quoted(table)}{self._where(where, there)}"
        cursor = self._database.execute(query)
        while rows := cursor.fetchmany(PART):
            count, width = len(rows), len(numbers)
            flat: Iterable[Any] = itertools.chain.from_iterable(rows)
            texts: list[Any] = []
            if text:
                *by_column, last = zip(*rows, strict=True)
                flat, texts = itertools.chain.from_iterable(by_column), list(last)
            packed = bytearray(8 * count * width)
            try:
                struct.pack_into(f"={count * width}q", packed, 0, *flat)  # takes whole numbers alone
                table_of = np.frombuffer(packed, dtype=np.int64)
            except struct.error:  # something else in a column of numbers
                flat = itertools.chain.from_iterable(by_column if text else rows)
                table_of = np.array(list(map(_number, flat)), dtype=np.int64)
            del rows
            np.maximum(table_of, MISSING, out=table_of)  # the least number of all has no absolute value
            table_of = table_of.reshape(width, count) if text else table_of.reshape(count, width).T
            part = {name: np.ascontiguousarray(table_of[at]) for at, name in enumerate(numbers)}
            part.update((name, np.full(count, MISSING, dtype=np.int64)) for name in hollow)
            yield part, texts

    def _filled(self, table: str, columns: Sequence[str]) -> set[str]:
        """Those of the columns that have something in any row: asking is cheaper than fetching what is not there."""
        found: set[str] = set()
        for rows in (f"(SELECT * FROM {self.quoted(table)} LIMIT {SAMPLE})", self.quoted(table)):
            rest = [name for name in columns if name not in found]
            if rest:
                counts = ", ".join(f'count("{name}")' for name in rest)
                told = self._database.execute(f"SELECT {counts} FROM {rows}").fetchone()
                found.update(name for name, count in zip(rest, told, strict=True) if count)
        return found

    def count(self, *tables: str) -> int:
        """Rows of these tables together."""
        return sum(
            self._database.execute(f"SELECT count(*) FROM {self.quoted(table)}").fetchone()[0]
            for table in tables
            if table in self.names
        )

    @staticmethod
    def _where(where: str, there: set[str]) -> str:
        """A condition on columns that are there; a table that lacks one has no such rows."""
        if not where:
            return ""
        asked = re.findall(r'^"(\w+)"', where)
        return f" WHERE {where}" if there.issuperset(asked) else " WHERE 0"


def _number(value: object) -> int:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return int(value)
    return value if isinstance(value, int) and -(1 << 63) < value < 1 << 63 else MISSING


def _plain_name(name: str) -> str:
    versioned = _VERSIONED.match(name)
    return versioned[1] if versioned else name


def _table_version(name: str) -> int:
    versioned = _VERSIONED.match(name)
    return int(versioned[2]) if versioned else 0


class Stretches:
    """Rows of one table after another, in the end one table of columns sorted by start. Rows that are ``cut`` go on to the last
    moment of all.

    Places, devices and streams become codes as the rows come, so that a row takes 40 bytes.
    """

    def __init__(self, capacity: int) -> None:
        """``capacity``: rows of all tables together, at most."""
        import numpy as np

        from accelprof.reading.columns import FIELDS, Names

        self._names, self._words = Names(), Names([""])
        self._processes, self._threads, self._streams = Names(), Names(), Names()
        #: (pid, number of the device in that process, MISSING for none)
        self._pairs = Names()
        # pages that nothing is written to take no memory
        self._columns: dict[str, Any] = {
            field: np.zeros(capacity, dtype=dtype) for field, (dtype, _) in FIELDS.items() if field in WRITTEN
        }
        self._count = 0
        self._first: list[int] = []
        self._extras: list[dict[str, object]] = []
        self.name, self.word, self.names_of = self._names.code, self._words.code, self._names.codes_of

    def add(
        self,
        *,
        where: Array,
        device: Array | int | None = None,
        stream: object = None,
        extra: Mapping[str, Any] | None = None,
        **columns: Array,
    ) -> None:
        """Rows of one kind of table. ``where``: globalTid or globalPid; ``extra``: other arguments, by name."""
        import numpy as np

        count = int(where.size)
        if not count:
            return
        rows = slice(self._count, self._count + count)
        for name, values in columns.items():
            self._columns[name][rows] = values
        if "correlation" not in columns:
            self._columns["correlation"][rows] = NONE
        places, at = np.unique(where & ((1 << 48) - 1), return_inverse=True)
        threads = [(self._processes.code(place >> 24 & 0xFFFFFF), place & 0xFFFFFF) for place in places.tolist()]
        self._columns["thread"][rows] = np.array([self._threads.code(thread) for thread in threads], dtype=np.int32)[at]
        if device is None:
            self._columns["device"][rows] = self._columns["stream"][rows] = NONE
        else:
            pids = np.array([place >> 24 & 0xFFFFFF for place in places.tolist()], dtype=np.int64)[at]
            numbers, number = np.unique(device, return_inverse=True)
            both, at = np.unique(pids * numbers.size + number, return_inverse=True)
            pairs = [(pair // numbers.size, int(numbers[pair % numbers.size])) for pair in both.tolist()]
            self._columns["device"][rows] = np.array([self._pairs.code(pair) for pair in pairs], dtype=np.int32)[at]
            streams, at = np.unique(stream, return_inverse=True)
            codes = np.array([self._streams.code(number) for number in streams.tolist()], dtype=np.int32)
            self._columns["stream"][rows] = codes[at]
        self._first.append(self._count)
        self._extras.append({name: _narrow(held) for name, held in (extra or {}).items() if not _empty(held)})
        self._count += count

    def columns(self, known: Mapping[tuple[int, int], int | str]) -> Columns:
        """All rows; ``known``: ``(pid, device of the process)`` -> device of the machine. The parts are let go."""
        import numpy as np

        from accelprof.reading.columns import Columns

        count, extras = self._count, self._extras
        ends, cut = self._columns["end"][:count], self._columns["cut"][:count]
        ends[cut] = ends.max(initial=MISSING)
        first = np.array(self._first or [0], dtype=np.int64)
        order = np.argsort(self._columns["start"][:count], kind="stable").astype(np.uint32)
        joined: dict[str, Array] = {}
        for field in list(self._columns):
            joined[field] = self._columns.pop(field)[:count][order]
        processes, threads = list(self._processes.values), list(self._threads.values)
        if threads:
            joined["process"] = np.array([process for process, _ in threads], dtype=np.int32)[joined["thread"]]
        labels, codes = _devices(list(self._pairs.values), known)
        if codes:
            device = joined["device"]
            joined["device"] = np.where(device == NONE, NONE, np.array(codes, dtype=np.int32)[device])

        return Columns(
            count, names=self._names.values or [""], processes=processes or [0], threads=threads or [(0, 0)],
            devices=labels, streams=[number if number != MISSING else "unknown" for number in self._streams.values],
            words=self._words.values, args=_Arguments(order, first, extras), **joined,
        )  # fmt: skip


class _Arguments:
    """Arguments of rows by their number in the sorted table; each part of the table has its own, in the order of reading."""

    __slots__ = ("_extras", "_first", "_order")

    def __init__(self, order: Array, first: Array, extras: list[dict[str, object]]) -> None:
        self._order, self._first, self._extras = order, first, extras

    def __call__(self, row: int) -> Mapping[str, object]:
        return self.many(slice(row, row + 1))[0]

    def many(self, rows: Array | slice) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, object]] = [{}] * self._order[rows].size
        for places, held in self.by_column(rows):
            for place, *values in zip(places.tolist(), *held.values(), strict=True):
                found[place] = dict(zip(held, values, strict=True))
        return found

    def by_column(self, rows: Array | slice) -> Iterator[tuple[Array, dict[str, list[Any]]]]:
        """As :meth:`accelprof.reading.columns.Columns.args_by_column`."""
        import numpy as np

        at = self._order[rows].astype(np.int64)
        parts = np.searchsorted(self._first, at, side="right") - 1
        for part in np.unique(parts).tolist():
            extras = self._extras[part]
            if not extras:
                continue
            mine = np.flatnonzero(parts == part)
            within = at[mine] - self._first[part]
            columns = {key: held if isinstance(held, tuple) else (held, None) for key, held in extras.items()}
            values = {key: numbers[within] for key, (numbers, _) in columns.items()}
            there: Array = np.zeros(mine.size, dtype=np.int64)
            for bit, (key, (_, texts)) in enumerate(columns.items()):
                there |= (1 if texts is not None else values[key] != MISSING) << np.int64(bit)
            for which in np.unique(there).tolist():
                rows_of = np.flatnonzero(there == which)
                kept = [key for bit, key in enumerate(columns) if which >> bit & 1]
                if kept:
                    yield mine[rows_of], {key: _told(values[key][rows_of].tolist(), columns[key][1]) for key in kept}


def _told(numbers: list[int], texts: Mapping[int, str] | None) -> list[Any]:
    if texts is None:
        return numbers
    known = {number: texts.get(number, "") for number in set(numbers)}
    return list(map(known.__getitem__, numbers))


def _narrow(held: Held) -> Held:
    """Numbers in half the bytes where they fit."""
    import numpy as np

    if isinstance(held, tuple):
        return (_narrow(held[0]), held[1])
    return held.astype(np.int32) if abs(held).max() < 1 << 31 else held


def _empty(held: Held) -> bool:
    values = held[0] if isinstance(held, tuple) else held
    return not isinstance(held, tuple) and bool((values == MISSING).all())


def _devices(
    pairs: list[tuple[int, int]], known: Mapping[tuple[int, int], int | str]
) -> tuple[list[int | str], list[int]]:
    """``(names, code of each pair)``. The report says which GPU a process calls by which number; where it does not, two
    processes that use one number are taken for two devices."""
    from accelprof.reading.columns import Names

    labels = Names()
    unknown = [number for pid, number in pairs if (pid, number) not in known]
    codes = []
    for pid, number in pairs:
        shown: int | str = "unknown" if number == MISSING else known.get((pid, number), number)
        if (pid, number) not in known and unknown.count(number) > 1:
            shown = f"{shown} of process {pid}"
        codes.append(labels.code(shown))
    return labels.values, codes
