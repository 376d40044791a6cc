"""Spans of any tool as events of a timeline: which row they stand on, what it is called, what goes with them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from accelprof import texts
from accelprof.contracts.spans import ROW_COLUMNS, Flow, Mark, Trace
from accelprof.reading.columns import NONE, Array, Columns

#: the process and the thread of a file's own, as it writes them
Place = tuple[object, object]
#: characters of a number that is longer than 64 bits
LONGEST = 40
_encode = msgspec.json.Encoder().encode
_NOTHING = msgspec.Raw(b"{}")


class Tracks:
    """Rows of a file that is no Chrome trace: host work by process, thread and task; device work by device and by the
    process and track it stands on in the file, so that two tracks with one number are two rows.

    A reader that knows names leaves them in ``metadata``: ``process_names`` by pid and ``thread_names`` by pid and tid.
    """

    def __init__(self, trace: Trace) -> None:
        self.threads: dict[Place, str] = {}
        self.processes: dict[object, str] = {}
        names, tracks = trace.metadata.get("process_names", {}), trace.metadata.get("thread_names", {})
        self._names = {pid: texts.bounded(str(name)) for pid, name in names.items()}
        self._tracks = {pid: {tid: texts.bounded(str(name)) for tid, name in of.items()} for pid, of in tracks.items()}
        self._rows: dict[object, Place] = {}
        #: the rows that spans of a process and thread stand on: device work has them too
        self._of_place: dict[Place, list[int]] = {}

    def rows(self, columns: Columns) -> tuple[Array, list[Place]]:
        """For each row of a table the number of the process and thread to draw it on, and these; text as it is shown."""
        fields = ("process", "thread", "task", "device", "stream")
        number: Array = np.zeros(len(columns), np.int64)
        for field in fields:
            values = getattr(columns, field)
            if len(values) and (values != values[0]).any():
                _, number = np.unique(number << 32 | values.astype(np.int64) - NONE, return_inverse=True)
        _, first, number = np.unique(number, return_index=True, return_inverse=True)
        places: list[tuple[Any, Any]] = []
        for row in first.tolist():
            process, thread, task, device, stream = (int(getattr(columns, field)[row]) for field in fields)
            here = (columns.processes[process], columns.threads[thread][1])
            self._of_place.setdefault(here, []).append(len(places))
            places.append(
                self._made(
                    *here,
                    None if device == NONE else columns.devices[device],
                    None if stream == NONE else columns.streams[stream],
                    columns.tasks[task],
                )
            )
        return number, places

    def of_mark(self, mark: Mark) -> Place:
        """The process and the thread to draw a mark on."""
        key = (mark.pid, mark.tid)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = self._made(mark.pid, mark.tid, None, None, "")
        return row

    def of_flows(self, flows: Sequence[Flow], number: Array, starts: Array, places: Sequence[Place]) -> list[Place]:
        """The process and thread to draw each end of an arrow on: where the spans of its place are drawn, and of several such
        rows where one begins at that moment. ``number``, ``starts``: of each span its row and begin; ``places``: of rows."""
        begun: set[tuple[int, int]] = set()
        if any(len(rows) > 1 for rows in self._of_place.values()):
            begun = set(zip(number.tolist(), starts.tolist(), strict=True))
        found = []
        for flow in flows:
            rows = self._of_place.get((flow.pid, flow.tid))
            if rows is None:
                found.append(self._made(flow.pid, flow.tid, None, None, ""))
            else:
                found.append(places[next((row for row in rows if (row, flow.at_ns) in begun), rows[0])])
        return found

    def _made(self, pid: object, tid: object, device: object, stream: object, task: str) -> Place:
        known = self._tracks.get(pid, {}).get(tid)
        if device is None:
            row: Place = (pid, tid if not task else f"{tid} {task}")
            if known is not None or task:
                self.threads[row] = " ".join(filter(None, (known or f"thread {tid}", task)))
            if pid in self._names:
                self.processes[pid] = self._names[pid]
            return row
        process = self._names.get(pid)
        shown = f"device {device}" + (f", {process}" if process else "")
        if process:
            self.processes[shown] = shown
        row = (shown, f"stream {stream} of {pid}, {tid}")
        self.threads[row] = known or f"stream {stream}"
        return row


def arguments(columns: Columns, rows: Array) -> list[Any]:
    """Arguments of events, mappings that strict JSON can hold, or their JSON, that keep what rows have beside their times."""
    held = columns.args_by_column(rows)
    if held is not None:
        return _as_json(columns, rows, held)
    found = [plain_arguments(args) if args else {} for args in columns.args_of(rows)]
    numbers = columns.correlation[rows]
    there = np.flatnonzero(numbers >= 0)
    for at, number in zip(there.tolist(), numbers[there].tolist(), strict=True):
        found[at].setdefault("correlation", number)
    words = [texts.encodable(word) for word in columns.words]
    for field in ("domain", "category", "color"):
        codes = getattr(columns, field)[rows]
        there = np.flatnonzero(codes > 0)
        for at, code in zip(there.tolist(), codes[there].tolist(), strict=True):
            found[at][field] = words[code]
    for field, values in (("device", columns.devices), ("stream", columns.streams)):
        labels, codes = [_plain(value) for value in values], getattr(columns, field)[rows]
        there = np.flatnonzero(codes != NONE)
        for at, code in zip(there.tolist(), codes[there].tolist(), strict=True):
            found[at].setdefault(field, labels[code])
    for at in np.flatnonzero(columns.cut[rows]).tolist():
        found[at][ROW_COLUMNS["cut"]] = True
    return found


def _as_json(
    columns: Columns, rows: Array, held: Iterable[tuple[Array, Mapping[str, Sequence[int | str]]]]
) -> list[Any]:
    """The same in JSON, a column at a time: rows with the same names differ in nothing but the values."""
    found = [_NOTHING] * rows.size
    alone: Array = np.ones(rows.size, dtype=np.bool_)
    groups = []
    for places, values in held:
        groups.append((places, values))
        alone[places] = False
    groups.append((np.flatnonzero(alone), {}))
    words = _json(columns.words)
    labels = {"device": _json(map(_plain, columns.devices)), "stream": _json(map(_plain, columns.streams))}
    for places, values in groups:
        of = rows[places]
        known: dict[str, list[Any]] = {key: _json_of(column) for key, column in values.items()}
        # name -> which rows have it, and what stands there
        more: dict[str, tuple[Array, Array, list[str] | None]] = {
            "correlation": (columns.correlation[of] >= 0, columns.correlation[of], None)
        }
        for field in ("domain", "category", "color"):
            codes = getattr(columns, field)[of]
            more[field] = (codes > 0, codes, words)
        for field, texts_of in labels.items():
            codes = getattr(columns, field)[of]
            more[field] = (codes != NONE, codes, texts_of)
        cut = columns.cut[of]
        more[ROW_COLUMNS["cut"]] = (cut, cut.astype(np.int64), ["false", "true"])
        more = {key: column for key, column in more.items() if key not in known}
        kinds: Array = np.zeros(of.size, dtype=np.int64)
        for bit, (there, _, _) in enumerate(more.values()):
            kinds |= there.astype(np.int64) << bit
        for kind in np.unique(kinds).tolist():
            mine = np.flatnonzero(kinds == kind)
            every = mine.size == of.size
            written = {key: column if every else [column[at] for at in mine.tolist()] for key, column in known.items()}
            for bit, (key, (_, codes, told)) in enumerate(more.items()):
                if kind >> bit & 1:
                    numbers = codes[mine].tolist()
                    written[key] = numbers if told is None else [told[number] for number in numbers]
            if written:
                names = _json(written)
                form = "{" + ",".join(name.replace("%", "%%") + ":%s" for name in names) + "}"
                made = map(msgspec.Raw, map(form.__mod__, zip(*written.values(), strict=True)))
                for place, raw in zip(places[mine].tolist(), made, strict=True):
                    found[place] = raw
    return found


def _json(values: Iterable[object]) -> list[str]:
    return [_encode(texts.encodable(value) if isinstance(value, str) else value).decode() for value in values]


def _json_of(column: Sequence[int | str]) -> list[Any]:
    """Values of one argument; whole numbers are their own text."""
    if not column or isinstance(column[0], int):
        return list(column)
    distinct = list(dict.fromkeys(column))
    return list(map(dict(zip(distinct, _json(distinct), strict=True)).__getitem__, column))


def of_mark(mark: Mark) -> Any:
    """The same of a mark."""
    extra = (("domain", mark.domain), ("category", mark.category), ("color", mark.color))
    return plain_arguments({**mark.args, **{key: value for key, value in extra if value}})


def plain_arguments(values: Mapping[str, object]) -> dict[str, object]:
    """Arguments that strict JSON can hold; others as text."""
    return {texts.encodable(str(key)): _plain(value) for key, value in values.items()}


def _plain(value: object) -> object:
    if isinstance(value, str):
        return texts.encodable(value)
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 64 else str(value)[:LONGEST]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None:
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return plain_arguments(value) if isinstance(value, Mapping) else texts.encodable(str(value))
