"""Spans as a table: one numpy array a field, text as codes into lists.

A span as an object takes about 400 bytes and a microsecond for each look at it; a row here takes about 60 bytes, and
sorting, joining and summing run over whole columns. Times are ``int64`` ns, so that nothing near 1.7e18 is rounded.

numpy alone, without Arrow: attribution needs sorting, searching and sums over fixed-width columns, and text as codes is
what Arrow's dictionaries are; a data frame library takes these arrays as they are. This module and all that import it
are loaded when files are read, never by training code.

One module, because rows come in at one door: there spans become columns, and what rows of either form lack is counted.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from accelprof.contracts.spans import (
    DEVICE_WORK,
    EPOCH_NS,
    FURTHEST_NS,
    LACKING,
    ROW_COLUMNS,
    UNKNOWN,
    HostCalls,
    Kind,
    Span,
    Trace,
    settle_processes,
)
from accelprof.reading import frameworks
from accelprof.reading.numbers import identities
from accelprof.reading.numbers import place as place
from accelprof.reading.numbers import whole_number as whole_number

#: code in ``Columns.kind`` -> kind
KINDS: tuple[Kind, ...] = tuple(Kind)
CODES: dict[Kind, int] = {kind: code for code, kind in enumerate(KINDS)}
CALLS = frozenset({Kind.RUNTIME, Kind.SYNC})
#: what processes, threads, devices and streams are called by
_PLACES = frozenset({int, float, str, type(None)})
UNNAMED = "without a name"
OFF_CLOCK = "start on another clock than the others'"
#: code of an absent device or stream; number of an absent correlation or own time
NONE = -1
Array = Any  # numpy.ndarray: numpy's own types are not asked of those who check this package
Arguments = Callable[[int], Mapping[str, object]]
#: columns that hold a value for each row, and what they hold where a reader says nothing
FIELDS: dict[str, tuple[type, int]] = {
    "kind": (np.uint8, CODES[Kind.RANGE]),
    "name": (np.int32, 0),
    "process": (np.int32, 0),
    "thread": (np.int32, 0),
    "task": (np.int32, 0),
    "device": (np.int32, NONE),
    "stream": (np.int32, NONE),
    "start": (np.int64, 0),
    "end": (np.int64, 0),
    "correlation": (np.int64, NONE),
    "scope": (np.int32, 0),
    "domain": (np.int32, 0),
    "category": (np.int32, 0),
    "color": (np.int32, 0),
    "own": (np.int64, NONE),
    "cut": (np.bool_, 0),
}


class Names:
    """Values as codes, in the order in which they came first."""

    __slots__ = ("_codes", "values")

    def __init__(self, values: Iterable[object] = ()) -> None:
        self.values: list[Any] = []
        self._codes: dict[Any, int] = {}
        for value in values:
            self.code(value)

    def code(self, value: object) -> int:
        """The code of a hashable value; ``1`` and ``"1"`` are two."""
        code = self._codes.get(value)
        if code is None:
            code = self._codes[value] = len(self.values)
            self.values.append(value)
        return code

    def codes_of(self, values: Collection[Hashable]) -> list[int]:
        """:meth:`code` of each, in one go."""
        codes = self._codes
        fresh = [value for value in dict.fromkeys(values) if value not in codes]
        codes.update(zip(fresh, range(len(self.values), len(self.values) + len(fresh)), strict=True))
        self.values += fresh
        return list(map(codes.__getitem__, values))


class Columns:
    """A table of spans; row ``i`` of every array is span ``i``.

    Attributes:
        kind: codes into :data:`KINDS`.
        name: codes into ``names``.
        process: codes into ``processes``. Of device work the process that launched it where the file says it, otherwise
            what the file gives (Kineto: the device's number).
        thread: codes into ``threads``, whose entries are ``(process code, thread)``: threads of two processes differ.
        task: codes into ``tasks``, of which 0 is the empty text: the asyncio task or generator.
        device, stream: codes into ``devices`` and ``streams``, :data:`NONE` for what runs on none. Devices of two
            processes that both call theirs 0 are two, where the reader can tell them apart.
        start, end: ns.
        correlation: number that a launch shares with its work, :data:`NONE` without one; values that are no numbers get
            negative ones. Unique within a ``scope``.
        scope: codes of stretches of the file in which a correlation means one launch (nsys: a process; a merged
            timeline: the sources that have processes in common).
        domain, category, color: codes into ``words``, of which 0 is the empty text.
        own: time in ns inside a call that was suspended, :data:`NONE` where it is the whole span.
        cut: whether a window's edge cut the span.
        framework: codes of the threads that the file calls by a framework's name.
        calls: what the tool whose file it is calls launches; ``None`` where it does not say.
    """

    __slots__ = (
        *FIELDS, "_args", "calls", "devices", "framework", "names", "processes", "streams", "tasks", "threads", "words",
    )  # fmt: skip
    kind: Array
    name: Array
    process: Array
    thread: Array
    task: Array
    device: Array
    stream: Array
    start: Array
    end: Array
    correlation: Array
    scope: Array
    domain: Array
    category: Array
    color: Array
    own: Array
    cut: Array

    def __init__(
        self,
        count: int,
        *,
        names: list[str] | None = None,
        processes: list[int | str] | None = None,
        threads: list[tuple[int, int | str]] | None = None,
        tasks: list[str] | None = None,
        devices: list[int | str] | None = None,
        streams: list[int | str] | None = None,
        words: list[str] | None = None,
        args: Arguments | None = None,
        **columns: Array,
    ) -> None:
        """``columns``: arrays of :data:`FIELDS` with ``count`` values; those not given take no memory.

        Raises:
            ValueError: a column that there is not, or one of another length.
        """
        unknown = set(columns) - set(FIELDS)
        if unknown:
            raise ValueError(f"no such column: {', '.join(sorted(unknown))} (there are {', '.join(FIELDS)})")
        for field, (dtype, default) in FIELDS.items():
            values = columns.get(field)
            if values is None:
                values = np.broadcast_to(np.asarray(default, dtype=dtype), (count,))
            values = np.asarray(values, dtype=dtype)
            if values.shape != (count,):
                raise ValueError(f"column {field} has shape {values.shape}, the table {count} rows")
            setattr(self, field, values)
        self.names: list[str] = names if names is not None else [""]
        self.processes: list[int | str] = processes if processes is not None else [0]
        self.threads: list[tuple[int, int | str]] = threads if threads is not None else [(0, 0)]
        self.tasks: list[str] = tasks if tasks is not None else [""]
        self.devices: list[int | str] = devices if devices is not None else []
        self.streams: list[int | str] = streams if streams is not None else []
        self.words: list[str] = words if words is not None else [""]
        self.framework: frozenset[int] = frozenset()
        self.calls: HostCalls | None = None
        self._args = args

    def __len__(self) -> int:
        return int(self.start.shape[0])

    # --- looking ----------------------------------------------------------------------------------------------------

    def mask(self, *kinds: Kind) -> Array:
        """Which rows are of one of these kinds."""
        wanted: Array = np.zeros(len(KINDS), dtype=np.bool_)
        wanted[[CODES[kind] for kind in kinds]] = True
        return wanted[self.kind]

    def rows(self, *kinds: Kind) -> Array:
        """Numbers of the rows of these kinds."""
        return np.flatnonzero(self.mask(*kinds))

    def work(self) -> Array:
        """Numbers of the rows that are work of a device."""
        return np.flatnonzero(self.mask(*DEVICE_WORK) & (self.device != NONE))

    def args(self, row: int) -> Mapping[str, Any]:
        """The other arguments of a row, as the file gives them."""
        return self._args(int(row)) if self._args is not None else {}

    def args_of(self, rows: Array) -> Sequence[Mapping[str, Any]]:
        """:meth:`args` of each of ``rows``; of readers whose arguments have a ``many`` for that, all at once."""
        if self._args is None:
            return [{}] * len(rows)
        many = getattr(self._args, "many", None)
        return many(rows) if many is not None else list(map(self._args, rows.tolist()))

    def args_by_column(self, rows: Array) -> Iterable[tuple[Array, Mapping[str, Sequence[int | str]]]] | None:
        """:meth:`args` by name, of readers that keep them as columns (their arguments have a ``by_column`` for that): for each group
        of ``rows`` that have the same names the places of those rows, and the values, whole numbers of 64 bits or text (no domain,
        category or color). Rows in no group have none. ``None`` where the reader keeps them another way."""
        told = getattr(self._args, "by_column", None)
        return None if told is None else told(rows)

    def known_args(self, row: int) -> Mapping[str, Any]:
        """The arguments of a row that reading kept (those of collectives); empty where the file would be read again."""
        return getattr(self._args, "kept", self._args)(int(row)) if self._args is not None else {}

    # --- other forms ------------------------------------------------------------------------------------------------

    def take(self, rows: Array) -> Columns:
        """The table of these rows (numbers, or one truth value a row); texts are shared."""
        rows = np.asarray(rows)
        rows = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows.astype(np.int64)
        args = self._args
        taken = Columns(
            int(rows.size), **self._texts(),
            args=None if args is None else _Taken(args, rows),
            **{field: getattr(self, field)[rows] for field in FIELDS},
        )  # fmt: skip
        taken.framework, taken.calls = self.framework, self.calls
        return taken

    def _texts(self) -> dict[str, Any]:
        return {
            "names": self.names, "processes": self.processes, "threads": self.threads, "tasks": self.tasks,
            "devices": self.devices, "streams": self.streams, "words": self.words,
        }  # fmt: skip

    def span(self, row: int) -> Span:
        """One row as an object."""
        row = int(row)
        device, stream, correlation = int(self.device[row]), int(self.stream[row]), int(self.correlation[row])
        args = self.args(row)
        if correlation >= 0 and "correlation" not in args:
            args = {**args, "correlation": correlation}
        if self.cut[row]:
            args = {**args, ROW_COLUMNS["cut"]: True}
        return Span(
            self.names[self.name[row]], KINDS[self.kind[row]], int(self.start[row]), int(self.end[row]),
            self.processes[self.process[row]], self.threads[self.thread[row]][1], self.tasks[self.task[row]],
            self.words[self.domain[row]], self.words[self.category[row]], self.words[self.color[row]],
            None if device == NONE else self.devices[device], None if stream == NONE else self.streams[stream], args,
        )  # fmt: skip

    def spans(self) -> list[Span]:
        """All rows as objects."""
        return [self.span(row) for row in range(len(self))]

    @classmethod
    def from_spans(cls, spans: Sequence[Span]) -> Columns:
        """The table of a list of spans. Values that cannot be kept as they are (a list for a device) become text."""
        names, processes, threads, tasks, devices, streams, words = (
            Names(), Names(), Names(), Names([""]), Names(), Names(), Names([""]),
        )  # fmt: skip
        numbers = Correlations()
        columns: dict[str, list[int]] = {field: [] for field in FIELDS if field != "scope"}
        for span in spans:
            process = processes.code(place(span.pid))
            args = span.args
            own, cut = args.get(ROW_COLUMNS["own"]), args.get(ROW_COLUMNS["cut"])
            row = (
                CODES[span.kind], names.code(str(span.name)), process, threads.code((process, place(span.tid))),
                tasks.code(str(span.task)), NONE if span.device is None else devices.code(place(span.device)),
                NONE if span.stream is None else streams.code(place(span.stream)), span.start_ns, span.end_ns,
                numbers.number(args.get("correlation")), words.code(str(span.domain)), words.code(str(span.category)),
                words.code(str(span.color)), int(own or 0) if whole(own) else NONE, bool(cut),
            )  # fmt: skip
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
        kept = [span.args for span in spans]
        return cls(
            len(kept), names=names.values or [""], processes=processes.values, threads=threads.values,
            tasks=tasks.values, devices=devices.values, streams=streams.values, words=words.values,
            args=kept.__getitem__,
            **{field: np.array(values, dtype=FIELDS[field][0]) for field, values in columns.items()},
        )  # fmt: skip


class _Taken:
    """Arguments of some rows of a table."""

    __slots__ = ("_args", "_rows")

    def __init__(self, args: Arguments, rows: Array) -> None:
        self._args, self._rows = args, rows

    def __call__(self, row: int) -> Mapping[str, Any]:
        return self._args(int(self._rows[row]))

    def kept(self, row: int) -> Mapping[str, Any]:
        known: Arguments = getattr(self._args, "kept", self._args)
        return known(int(self._rows[row]))


class Correlations:
    """Correlations as numbers: whole ones from 0 on as they are, others (text, lists, negative ones) below -1."""

    __slots__ = ("_odd",)

    def __init__(self) -> None:
        self._odd: dict[str, int] = {}

    def column(self, values: list[Any]) -> Array:
        """:meth:`number` of each."""
        if set(map(type, values)) == {int} and 0 <= min(values) <= max(values) < 1 << 63:
            return np.array(values, dtype=np.int64)
        return np.array(list(map(self.number, values)), dtype=np.int64)

    def number(self, value: object) -> int:
        if value is None or value == UNKNOWN:
            return NONE
        if type(value) is int and 0 <= value < 1 << 63:
            return value
        return self._odd.setdefault(str(place(value)), NONE - 1 - len(self._odd))


def whole(value: object) -> bool:
    """Whether a value is a whole number that a column holds."""
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def columns_of(trace: Trace) -> Columns:
    """The spans of a trace as a table; a list of spans becomes one here, at the door.

    Spans whose times are no whole numbers, lie beyond 64 bits or run backwards are left out and counted in
    ``trace.completeness``, and so is what those that are kept do not say of themselves (:data:`LACKING`).
    """
    found = trace.columns
    if not isinstance(found, Columns):
        sound = []
        _name_places(trace.spans)
        settle_processes(trace.spans)
        told = any(span.device is not None for span in trace.spans if span.kind in DEVICE_WORK)
        faults = [_fault(span) for span in trace.spans]
        starts = np.array(
            [0 if fault else span.start_ns for span, fault in zip(trace.spans, faults, strict=True)], np.int64
        )
        work = np.array([span.kind in DEVICE_WORK for span in trace.spans], dtype=np.bool_)
        timed = np.flatnonzero([not fault for fault in faults])
        for at in timed[off_clock(starts[timed], work[timed])].tolist():
            faults[at] = OFF_CLOCK
        for span, fault in zip(trace.spans, faults, strict=True):
            if fault:
                trace.completeness.leave_out(fault)
            else:
                if span.device is None and span.kind in DEVICE_WORK:
                    span.device = UNKNOWN  # so that it counts
                sound.append(span)
        found = trace.columns = Columns.from_spans(sound)
        unlinked = np.array([_is_none(span.args.get("correlation")) for span in sound], dtype=np.bool_)
        say_lacking(trace, found, unlinked, devices=told)
    named = frameworks.threads_of(trace.metadata)
    if named:
        found.framework = frozenset(
            code for code, (process, thread) in enumerate(found.threads) if (found.processes[process], thread) in named
        )
    return found


def _fault(span: Span) -> str:
    """Why a span cannot stand in a table; empty when it can."""
    try:
        start, end = operator.index(span.start_ns), operator.index(span.end_ns)
    except TypeError:
        return "times that are no whole numbers"
    if not -FURTHEST_NS < start < FURTHEST_NS or not -FURTHEST_NS < end < FURTHEST_NS:
        return "times beyond 64 bits"
    return "negative duration" if end < start else ""


def off_clock(starts: Array, work: Array) -> Array:
    """Which of the times of one file cannot be meant, as most are dates and these are none. Where all of the device's are none, or all
    of the host's, there are two clocks; none of those but what is negative is left out."""
    early = starts < EPOCH_NS[0]
    if 2 * int(early.sum()) > len(early):
        return np.zeros(len(early), dtype=np.bool_)
    for side in (work, ~work):
        if early[side].all():
            early &= ~side | (starts < 0)
    return early


def _name_places(spans: Sequence[Span]) -> None:
    """What is no process, thread, device or stream where other rows have one is :data:`UNKNOWN`; what is no text names nothing."""
    for field in ("pid", "tid", "device", "stream"):
        given: list[Any] = [getattr(span, field) for span in spans]
        if not _PLACES.issuperset(map(type, given)):
            given = [_plain(value) for value in given]
            for span, value in zip(spans, given, strict=True):
                setattr(span, field, value)
        values = set(given) - ({None} if field in ("device", "stream") else set())
        named = identities(values, texts=True, negative=field == "tid")
        odd = {value for value in values if named[value] == UNKNOWN}
        for span, value in zip(spans, given, strict=True) if odd else ():
            if value in odd:
                setattr(span, field, UNKNOWN)
    for span in spans:
        span.name = _text(span.name)


def _plain(value: Any) -> Any:
    """A number of numpy's as Python's, and nothing for what is neither number nor text."""
    if type(value) in _PLACES:
        return value
    try:
        return "" if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return str(value) if isinstance(value, str) else ""


def _text(name: object) -> str:
    return name if isinstance(name, str) else ""


def _is_none(correlation: Any) -> bool:
    """Whether this stands where the number of a launch should, and is none."""
    if correlation is None or (isinstance(correlation, str) and correlation not in ("", UNKNOWN)):
        return False
    return not whole(correlation) or correlation < 0


def say_lacking(
    trace: Trace,
    columns: Columns,
    unlinked: Array,
    others: Mapping[str, Array] = MappingProxyType({}),
    *,
    devices: bool = True,
) -> None:
    """Count in ``trace`` what its rows do not say of themselves, and give those without a name one.

    ``unlinked``: whether a row's correlation should be there and is none; ``others``: the same of what else :data:`LACKING` has.
    ``devices``: whether the file names devices at all.
    """
    work, call, shadow = columns.mask(*DEVICE_WORK), columns.mask(*CALLS), columns.mask(Kind.DEVICE_ANNOTATION)
    kept = ~shadow
    nameless = np.array([text in ("", UNNAMED) for text in columns.names], dtype=np.bool_)[columns.name]
    columns.names[:] = [text or UNNAMED for text in columns.names]
    threads = [thread for _, thread in columns.threads]
    lacking = {
        "device": work & _is_unknown(columns.devices, columns.device) & devices,
        "stream": work & _is_unknown(columns.streams, columns.stream),
        "thread": kept & ~work & _is_unknown(threads, columns.thread),
        "process": kept & _is_unknown(columns.processes, columns.process),
        "correlation": (work | call) & unlinked,
        "name": kept & nameless,
        **others,
    }
    for field, rows in lacking.items():
        for what, mine in (("device work", work), ("the host's calls", call), ("the host's ranges", ~work & ~call)):
            say_lack(trace, field, int((rows & mine).sum()), what)


def say_lack(trace: Trace, field: str, count: int, what: str) -> None:
    """Count in ``trace`` that so many of its rows, which are ``what``, do not say ``field``, one of :data:`LACKING`."""
    if count:
        line = f"no {field} in {count:,} row{'s' * (count != 1)} of {what}; such rows {LACKING[field]}"
        trace.unread(line)


def _is_unknown(values: Sequence[object], codes: Array) -> Array:
    """Which rows have :data:`UNKNOWN` for a value."""
    unknown = np.array([value == UNKNOWN for value in values], dtype=np.bool_)
    return unknown[codes] & (codes != NONE) if unknown.any() else np.zeros(len(codes), dtype=np.bool_)


def groups_of(values: Array) -> Iterator[tuple[int, Array]]:
    """``(value, its places)`` for each value, places in order."""
    order = np.argsort(values, kind="stable")
    found, first = np.unique(values[order], return_index=True)
    yield from zip(found.tolist(), np.split(order, first[1:]) if found.size else [], strict=True)
