"""Host operators: what the framework's operators and calls of the vendor's API took on the host, by the phase they ran in.

Self time is what is left when everything nested on the same thread (operators, calls, ranges) is taken off, so that the self
times of a thread add up to the time in which it was inside any of them. Python functions that a trace with stacks holds are
none of these: their time inside an operator is the operator's. docs/analysis.md says how this compares with torch's own table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from accelprof.analysis.holders import RANGES, innermost_of, label
from accelprof.analysis.intervals import distinct
from accelprof.analysis.nesting import segments
from accelprof.analysis.report_rows import OperatorRow
from accelprof.contracts.spans import Kind
from accelprof.reading.columns import CODES, NONE, Array, Columns, Names, groups_of

#: rows of this category are no operators
PYTHON = "python_function"
#: what a row of each kind is called
KIND_NAMES = {Kind.OPERATOR: "operator", Kind.RUNTIME: "call", Kind.SYNC: "wait"}
#: rows of a whole report; the others, with less self time, are summed in one
MAX_ROWS = 2000
#: rows that are kept of each file, for its own table and for what operators take from window to window
PER_FILE = 500


@dataclass
class Operator:
    """All calls of one operator in one phase (``None``: outside every phase). Times in ns.

    Attributes:
        kind: ``operator`` of the framework, ``call`` of the vendor's API, ``wait``: such a call that waits for the device.
        total_ns: length of all calls; an operator inside itself counts twice, as in torch's table.
        self_ns: time in which nothing else of its thread was nested in it.
    """

    name: str
    kind: str
    phase: str | None
    calls: int = 0
    total_ns: int = 0
    self_ns: int = 0


def operators(columns: Columns) -> list[Operator]:
    """A row for each operator and phase of one file, the most self time first."""
    rows = _rows(columns, KIND_NAMES)
    if not rows.size:
        return []
    own: Array = np.zeros(len(columns), dtype=np.int64)
    nested = _rows(columns, (*KIND_NAMES, *RANGES))
    # of equal ones the range is around the operator, and that around the call, in whatever order the file has them
    nested = nested[np.argsort(columns.kind[nested], kind="stable")]
    own[nested] = self_times(columns.start[nested], columns.end[nested], _thread_of(columns, nested))
    ranges = columns.rows(*RANGES)
    labels = Names()
    inside = innermost_of(columns, rows, ranges)
    named: Array = np.array([labels.code(label(name)) for name in columns.names] or [0], dtype=np.int64)
    phase: Array = np.zeros(rows.size, dtype=np.int64)
    held = np.flatnonzero(inside != NONE)
    phase[held] = named[columns.name[ranges[inside[held]]]]
    # a range may be called as nothing: outside every phase is a code of its own
    phase[inside == NONE] = len(labels.values)
    width, kinds = len(columns.names), len(CODES)
    key = (phase * width + columns.name[rows]) * kinds + columns.kind[rows]
    keys, place = np.unique(key, return_inverse=True)
    calls = np.bincount(place, minlength=keys.size)
    total: Array = np.zeros(keys.size, dtype=np.int64)
    mine: Array = np.zeros(keys.size, dtype=np.int64)
    np.add.at(total, place, columns.end[rows] - columns.start[rows])
    np.add.at(mine, place, own[rows])
    names = {CODES[kind]: name for kind, name in KIND_NAMES.items()}
    found = []
    for at in np.lexsort((keys, -mine)).tolist():
        both, kind = divmod(int(keys[at]), kinds)
        where, name = divmod(both, width)
        inner = labels.values[where] if where < len(labels.values) else None
        found.append(Operator(columns.names[name], names[kind], inner, int(calls[at]), int(total[at]), int(mine[at])))
    return found


def _rows(columns: Columns, kinds: Iterable[Kind]) -> Array:
    rows = columns.rows(*kinds)
    if PYTHON in columns.words:
        rows = rows[columns.category[rows] != columns.words.index(PYTHON)]
    return rows


def _thread_of(columns: Columns, rows: Array) -> Array:
    return columns.thread[rows].astype(np.int64) * len(columns.tasks) + columns.task[rows]


def self_times(start: Array, end: Array, thread: Array) -> Array:
    """For each span the time in which it is the innermost of its thread, in ns.

    Where spans nest, a span's is its length without those directly in it. Where some do not (times of a file are rounded,
    or it has asynchronous spans), the one that began last is the innermost, for all spans that overlap with these.
    """
    own: Array = np.zeros(start.size, dtype=np.int64)
    for _, mine in groups_of(thread):
        own[mine] = _of_thread(start[mine], end[mine])
    return own


def _of_thread(start: Array, end: Array) -> Array:
    own: Array = np.zeros(start.size, dtype=np.int64)
    lasting = np.flatnonzero(end > start)
    order = lasting[np.lexsort((-end[lasting], start[lasting]))]
    if not order.size:
        return own
    begins, ends = start[order], end[order]
    depth = np.arange(order.size) - np.searchsorted(np.sort(ends), begins, side="right")
    own[order] = ends - begins
    parent = _parents(depth)
    below = parent != NONE
    np.subtract.at(own, order[parent[below]], (ends - begins)[below])
    # spans that overlap, directly or through others, stand together; they are looked at again where one sticks out
    together = np.cumsum(depth == 0)
    odd = np.zeros(order.size, dtype=np.bool_)
    odd[below] = ends[below] > ends[parent[below]]
    numbers = distinct(together[odd])
    firsts: Array = np.searchsorted(together, numbers)
    lasts: Array = np.searchsorted(together, numbers, side="right")
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        mine = order[first:last]
        own[mine] = 0
        # by their place among all spans, which decides between equal ones
        mine = np.sort(mine)
        for begin, until, index in segments(list(zip(start[mine].tolist(), end[mine].tolist(), strict=True))):
            own[mine[index]] += until - begin
    return own


def _parents(depth: Array) -> Array:
    """For each span, sorted by start and the longer first, the last before it that is one level higher."""
    found: Array = np.full(depth.size, NONE, dtype=np.int64)
    for level in range(1, int(depth.max()) + 1):
        mine = np.flatnonzero(depth == level)
        above = np.flatnonzero(depth == level - 1)
        at = np.searchsorted(above, mine) - 1
        found[mine] = np.where(at >= 0, above[np.maximum(at, 0)], NONE)
    return found


class OperatorTable:
    """Operators over the files of a report: by tool, phase and name, and by how many workers they ran on. ``files``: how many have any."""

    def __init__(self) -> None:
        self.files = 0
        self._rows: dict[tuple[str, str | None, str, str], list[int]] = {}
        self._workers: dict[tuple[str, str | None, str, str], set[str]] = {}

    def add(self, tool: str, worker: str, found: Iterable[Operator]) -> None:
        """The operators of one file."""
        rows = list(found)
        self.files += bool(rows)
        for row in rows:
            key = (tool, row.phase, row.name, row.kind)
            mine = self._rows.setdefault(key, [0, 0, 0])
            mine[0] += row.calls
            mine[1] += row.total_ns
            mine[2] += row.self_ns
            self._workers.setdefault(key, set()).add(worker)

    def take(self, other: OperatorTable) -> None:
        """What another table was given."""
        self.files += other.files
        for key, sums in other._rows.items():
            mine = self._rows.setdefault(key, [0, 0, 0])
            for at, value in enumerate(sums):
                mine[at] += value
            self._workers.setdefault(key, set()).update(other._workers[key])

    def rows(self) -> list[OperatorRow]:
        """A row each, the most self time first; beyond :data:`MAX_ROWS` the others are one row, named by their number."""
        order = sorted(self._rows, key=lambda key: (-self._rows[key][2], str(key)))
        rows = [_row(*key, self._rows[key], len(self._workers[key])) for key in order[:MAX_ROWS]]
        rest = order[MAX_ROWS:]
        if rest:
            sums = [sum(self._rows[key][at] for key in rest) for at in range(3)]
            workers = len(set().union(*(self._workers[key] for key in rest)))
            rows.append(_row("", None, f"({len(rest)} others)", "", sums, workers))
        return rows


def _row(tool: str, phase: str | None, name: str, kind: str, sums: list[int], workers: int) -> OperatorRow:
    return OperatorRow(name, kind, phase, tool, workers, *sums)
