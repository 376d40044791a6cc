"""Spans of any tool as events of a timeline: which row they stand on, what it is called, what goes with them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from accelprof import texts
from accelprof.contracts.spans import ROW_COLUMNS, Flow, Mark, Trace
from accelprof.reading.columns import NONE, Array, Columns

#: the process and the thread of a file's own, as it writes them
Place = tuple[object, object]
#: characters of a number that is longer than 64 bits
LONGEST = 40


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
    """Arguments of events, mappings that strict JSON can hold, that keep what rows have beside their times."""
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
