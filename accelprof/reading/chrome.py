"""Reader of Chrome traces (Kineto and others) into spans. Categories become kinds by the tables below.

One module, because the tables and the one pass that reads them change together.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import compress
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
import numpy as np

from accelprof.contracts.spans import (
    DEVICE_WORK,
    EPOCH_NS,
    FURTHEST_NS,
    ROW_COLUMNS,
    UNKNOWN,
    Clock,
    Completeness,
    Kind,
    Mark,
    Origin,
    Trace,
    merge_intervals,
)
from accelprof.errors import ReadError
from accelprof.reading import frameworks
from accelprof.reading.chrome_file import (
    Arguments,
    BadTimeError,
    ChromeFile,
    Event,
    Stream,
    exact_ns,
    hashable,
    is_letter,
    load,
)
from accelprof.reading.columns import (
    CODES,
    FIELDS,
    KINDS,
    NONE,
    OFF_CLOCK,
    Array,
    Columns,
    Correlations,
    Names,
    groups_of,
    off_clock,
    place,
    say_lacking,
    whole,
)  # fmt: skip
from accelprof.reading.kernels import kernel_kind
from accelprof.reading.numbers import identities
from accelprof.reading.times import exact_column
from accelprof.texts import unquoted

#: stands for a time that the file's base puts beyond all times, and for a number of a launch that is there and none
BEYOND = np.iinfo(np.int64).min
#: stands for time of its own that is there and none
ODD_OWN = NONE - 1
#: category of an event, case-folded -> kind. Kineto's are those of ``libkineto/include/ActivityType.h``; the capitalised
#: ones without underscore are older (torch up to 1.11).
KINDS_OF: dict[str, Kind] = {
    **{kind.value: kind for kind in Kind},  # as merged timelines have them
    "cpu_op": Kind.OPERATOR,
    "operator": Kind.OPERATOR,
    "python_function": Kind.OPERATOR,
    "fee": Kind.OPERATOR,
    "user_annotation": Kind.RANGE,
    "gpu_user_annotation": Kind.DEVICE_ANNOTATION,
    "kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.COPY,
    "memcpy": Kind.COPY,
    "gpu_memset": Kind.MEMSET,
    "memset": Kind.MEMSET,
    "runtime": Kind.RUNTIME,
    "cuda_runtime": Kind.RUNTIME,
    "cuda_driver": Kind.RUNTIME,
    "hip_runtime": Kind.RUNTIME,
    "hip_driver": Kind.RUNTIME,
    "xpu_runtime": Kind.RUNTIME,
    "xpu_driver": Kind.RUNTIME,
    "mtia_runtime": Kind.RUNTIME,
    "glow_runtime": Kind.RUNTIME,
    "privateuse1_runtime": Kind.RUNTIME,
    "privateuse1_driver": Kind.RUNTIME,
    "overhead": Kind.OVERHEAD,
    "cuda_sync": Kind.SYNC,
    "trace": Kind.WINDOW,
}
PROFILER_STEP = re.compile(r"^ProfilerStep\*?#(\d+)$")
_SHOWN = ("deviceProperties", "distributedInfo", "traceName", "schemaVersion", "cuda_runtime_version",
          "cuda_driver_version", "hip_runtime_version", "hip_driver_version", "metadata")  # fmt: skip


def read_chrome(path: str, tool: str) -> Trace:
    """Read a Chrome trace, ``.json`` or gzip by content, as the file of ``tool``. Memory grows with the table, not the file.

    ``Trace.metadata`` has ``state`` (complete | repaired | truncated), ``events`` (count by phase letter), ``event_count``.

    Raises:
        ReadError: empty, not there, or no trace; the message has the reason and the position.
    """
    stream = Stream(path, Row)
    reading = _Reading(stream.file, tool)
    for events in stream.blocks():
        reading.add(events)
    return reading.finish()


class Row(msgspec.Struct, gc=False):
    """What a table needs of an event; the others of its fields are skipped."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = msgspec.Raw()
    dur: msgspec.Raw = msgspec.Raw()
    id: Any = None
    id2: Any = None
    args: msgspec.Raw = msgspec.Raw()


class _Known(msgspec.Struct, gc=False):
    """The arguments that have columns."""

    device: Any = None
    stream: Any = None
    correlation: Any = None
    domain: Any = None
    category: Any = None
    color: Any = None
    task: Any = msgspec.field(default=None, name=ROW_COLUMNS["task"])
    own: Any = msgspec.field(default=None, name=ROW_COLUMNS["own"])
    cut: Any = msgspec.field(default=None, name=ROW_COLUMNS["cut"])
    collective: Any = msgspec.field(default=None, name="Collective name")


K = TypeVar("K")
#: process and thread, or process and device, as a file has them
Pair = tuple[object, object]
#: an event as far as it was read
Some = Row | Event
_known, _all_known = msgspec.json.Decoder(_Known), msgspec.json.Decoder(list[_Known])
_NOTHING = _Known()
#: kinds whose arguments are looked at while reading: work for its device, launches for their number
_LINKED = frozenset({*DEVICE_WORK, Kind.DEVICE_ANNOTATION, Kind.RUNTIME, Kind.SYNC})
_WORK = frozenset({*DEVICE_WORK, Kind.DEVICE_ANNOTATION})
_LINKED_CODES, _WORK_CODES = (np.array([kind in kinds for kind in KINDS]) for kinds in (_LINKED, _WORK))
_HOST_CODES = np.array([kind in (Kind.PHASE, Kind.RANGE, Kind.STEP, Kind.OPERATOR, Kind.RUNTIME) for kind in KINDS])
_COLUMNS = ("kind", "name", "thread", "device", "stream", "start", "end", "correlation", "category")
#: columns of our own timeline, and the categories of the rows that have them
_OURS = ("domain", "category", "color", *ROW_COLUMNS)
_OUR_CATEGORIES = frozenset(kind.value for kind in (Kind.PHASE, Kind.RANGE, Kind.STEP, Kind.WINDOW))


_OUR_OWN = frozenset(kind.value for kind in Kind)


class _Codes(dict[K, int]):
    """Codes of values in the order in which they came first; looking one up gives it one."""

    def __missing__(self, value: K) -> int:
        code = self[value] = len(self)
        return code


def _texts(codes: _Codes[object]) -> list[str]:
    return [_text(value) for value in codes]


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(place(value))


class _Reading:
    """One pass over the events of one file."""

    def __init__(self, file: ChromeFile, tool: str) -> None:
        self.file = file
        self.trace = Trace(file.path, tool, problems=file.problems, completeness=file.completeness)
        self.counts: Counter[object] = Counter()
        self.bad: Counter[str] = Counter()
        self.unmatched: Counter[str] = Counter()
        self.open: dict[tuple[object, object], list[tuple[Some, int, int]]] = {}
        self.pending: dict[tuple[object, object, object], list[tuple[Some, int, int]]] = {}
        self.names, self.categories, self.streams = _Codes[object](), _Codes[object](), _Codes[object]()
        self.rows, self.devices = _Codes[Pair](), _Codes[Pair]()
        self.words, self.tasks = _Codes[str](), _Codes[str]()
        self.words[""] = self.tasks[""] = 0
        self.kinds: list[int] = []
        self.numbers = Correlations()
        self.parts: dict[str, list[Array]] = {
            column: [] for column in (*_COLUMNS, *(f"our {name}" for name in _OURS), "ordinal")
        }
        self.raw: dict[int, msgspec.Raw | bytes] = {}
        self.called: dict[object, dict[object, str]] = {}
        self.merged = False
        self.count = 0
        self.seen = 0

    def add(self, events: Sequence[Some]) -> None:
        """Take in a block of events."""
        phases = [event.ph for event in events]
        try:
            self.counts.update(phases)
        except TypeError:  # a list or an object in place of a letter
            self.counts.update(map(hashable, phases))
        if phases.count("X") == len(events):
            self._complete(events, np.arange(self.seen, self.seen + len(events)))
        else:
            chosen = [at for at, phase in enumerate(phases) if phase == "X"]
            if chosen:
                self._complete([events[at] for at in chosen], np.array(chosen, dtype=np.int64) + self.seen)
            others: list[tuple[Some, int, int, int]] = []
            for at, event in enumerate(events, self.seen):
                if event.ph in ("B", "E", "b", "e", "i", "I", "R"):
                    self._other(event, event.ph, at, others)
                elif event.ph == "M" and event.name == "thread_name":
                    self._thread_name(event)
                elif not isinstance(event.ph, str):
                    self.bad["its ph is no text"] += 1
                elif not is_letter(event.ph):
                    self.bad["its ph is no letter of the format"] += 1
            if others:
                ended, begins, ends, ordinals = zip(*others, strict=True)
                self._spans(list(ended), np.array(begins), np.array(ends), np.array(ordinals, dtype=np.int64))
        self.seen += len(events)

    def _complete(self, events: Sequence[Some], ordinals: Array) -> None:
        starts, bad_start = exact_column([event.ts for event in events])
        durations, bad_duration = exact_column([event.dur for event in events])
        for row, why in bad_start.items():
            self.bad[f"start {why}"] += 1
            bad_duration.pop(row, None)
        for why in bad_duration.values():
            self.bad[f"duration {why}"] += 1
        negative = durations < 0
        if bad_start or bad_duration or negative.any():
            keep = ~negative
            self.bad["negative duration"] += int(negative.sum())
            keep[[*bad_start, *bad_duration]] = False
            rows = np.flatnonzero(keep)
            events = [events[row] for row in rows.tolist()]
            starts, durations, ordinals = starts[rows], durations[rows], ordinals[rows]
        self._spans(events, starts, starts + durations, ordinals)

    def _thread_name(self, event: Some) -> None:
        """Note what the file calls a thread; of several names for one, a framework's."""
        name, threads = _args(event).get("name"), self.called.setdefault(_place(event.pid), {})
        if isinstance(name, str) and not frameworks.is_thread(threads.get(_place(event.tid))):
            threads[_place(event.tid)] = name

    def _other(self, event: Some, phase: str, ordinal: int, found: list[tuple[Some, int, int, int]]) -> None:
        try:
            at = exact_ns(bytes(event.ts))
        except BadTimeError as bad:
            self.bad[f"time {bad}"] += 1
            return
        row = (hashable(event.pid), hashable(event.tid))
        if phase == "B":
            self.open.setdefault(row, []).append((event, at, ordinal))
        elif phase == "E":
            self._ended(self.open.get(row), at, "ends without a begin", found)
        elif phase == "b":
            self.pending.setdefault(self._async_key(event), []).append((event, at, ordinal))
        elif phase == "e":
            self._ended(self.pending.get(self._async_key(event)), at, "asynchronous ends without a begin", found)
        else:
            args = _args(event)
            category = event.cat if isinstance(event.cat, str) else "" if event.cat is None else str(place(event.cat))
            mark = Mark(str(place(event.name)), at, _place(event.pid), _place(event.tid), category=category, args=args)
            self.trace.marks.append(mark)

    @staticmethod
    def _async_key(event: Some) -> tuple[object, object, object]:
        number = event.id if event.id is not None else event.id2
        return (hashable(event.cat), str(place(number)), hashable(event.pid) if event.id is None else None)

    def _ended(
        self,
        stack: list[tuple[Some, int, int]] | None,
        at: int,
        otherwise: str,
        found: list[tuple[Some, int, int, int]],
    ) -> None:
        if not stack:
            self.unmatched[otherwise] += 1
            return
        event, start, ordinal = stack.pop()
        if at < start:
            self.bad["negative duration"] += 1
            return
        found.append((event, start, at, ordinal))

    def _spans(self, events: Sequence[Some], starts: Array, ends: Array, ordinals: Array, *, cut: bool = False) -> None:
        """Rows of whole events whose times are known."""
        try:
            names = [self.names[event.name] for event in events]
            categories = [self.categories[event.cat] for event in events]
            rows = [self.rows[event.pid, event.tid] for event in events]
        except TypeError:  # lists and objects where a name or number should be
            names = [self.names[event.name if isinstance(event.name, str) else None] for event in events]
            categories = [self.categories[hashable(event.cat)] for event in events]
            rows = [self.rows[hashable(event.pid), hashable(event.tid)] for event in events]
        self._new_kinds()
        category = np.array(categories, dtype=np.int32)
        kind = np.array(self.kinds or [0], dtype=np.uint8)[category]
        device: Array = np.full(len(events), NONE, dtype=np.int32)
        stream: Array = np.full(len(events), NONE, dtype=np.int32)
        correlation: Array = np.full(len(events), NONE, dtype=np.int64)
        linked, works = np.flatnonzero(_LINKED_CODES[kind]), _WORK_CODES[kind]
        known = _decoded([events[at].args for at in linked.tolist()])
        correlation[linked] = self._numbers([one.correlation for one in known])
        working = linked[works[linked]]
        where, on = [], []
        for at, one in zip(working.tolist(), compress(known, works[linked].tolist()), strict=True):
            event = events[at]
            number = event.pid if one.device is None else one.device
            track = event.tid if one.stream is None else one.stream
            try:
                where.append(self.devices[event.pid, number])
                on.append(self.streams[track])
            except TypeError:
                del where[len(on) :]
                where.append(self.devices[hashable(event.pid), hashable(number)])
                on.append(self.streams[hashable(track)])
            if one.collective is not None:  # those are asked for
                self.raw[self.count + at] = bytes(event.args)
        device[working], stream[working] = where, on
        parts = self.parts
        parts["kind"].append(kind)
        for column, values in (("name", names), ("thread", rows)):
            parts[column].append(np.array(values, dtype=np.int32))
        parts["device"].append(device)
        parts["stream"].append(stream)
        parts["category"].append(category)
        parts["correlation"].append(correlation)
        parts["start"].append(starts)
        parts["end"].append(ends)
        parts["ordinal"].append(ordinals)
        self._own_fields(events, categories)
        if cut:
            parts["our cut"][-1][:] = True
        self.count += len(events)

    def _numbers(self, values: list[Any]) -> Array:
        """Correlations; :data:`BEYOND` for what stands there and is neither a whole number nor text."""
        found = self.numbers.column(values)
        for at in np.flatnonzero(found < NONE).tolist():
            if not isinstance(values[at], str) or not values[at]:
                found[at] = BEYOND
        return found

    def _own_fields(self, events: Sequence[Some], categories: list[int]) -> None:
        """The fields that our own timelines keep in the arguments of the rows that only they have."""
        ours = {code for code, category in enumerate(self.categories) if category in _OUR_CATEGORIES}
        columns: dict[str, Array] = {}
        for column in _OURS:
            columns[column] = np.full(len(events), FIELDS[column][1] if column != "category" else NONE, dtype=np.int64)
        for at, (event, category) in enumerate(zip(events, categories, strict=True) if ours else ()):
            if category in ours:
                known = _decode(event.args)
                columns["task"][at] = self.tasks[_text(known.task)]
                columns["domain"][at] = self.words[_text(known.domain)]
                columns["category"][at] = self.words[_text(known.category)]
                columns["color"][at] = self.words[_text(known.color)]
                if known.own is not None:
                    columns["own"][at] = known.own if whole(known.own) and known.own >= 0 else ODD_OWN
                columns["cut"][at] = bool(known.cut)
                if known.own is not None:  # which call a piece of a suspended one belongs to is asked for
                    self.raw[self.count + at] = bytes(event.args)
        for column, values in columns.items():
            self.parts["our " + column].append(values)

    def _new_kinds(self) -> None:
        self.kinds += [CODES[kind_of(category)] for category in list(self.categories)[len(self.kinds) :]]

    # --- the end ----------------------------------------------------------------------------------------------------

    def finish(self) -> Trace:
        """The trace of all blocks.

        Raises:
            ReadError: a JSON list of something else.
        """
        trace, top = self.trace, self.file.top
        if self.seen and set(self.counts) == {None}:
            raise ReadError(self.file.path, f"JSON, but no trace: none of its {self.seen:,} objects has a ph")
        self._open_ones()
        columns, lacking = self._columns(facts_of(top))
        trace.columns = columns
        say_lacking(trace, columns, lacking.pop("correlation"), lacking)
        for what, count in [*(+self.bad).items(), *self.unmatched.items()]:
            trace.problems.append(f"left out: {count} event{'s' * (count != 1)}, {what}")
            trace.completeness.leave_out(what, count)
        if not self.seen:
            trace.problems.append("the file holds no events")
        counts = {str(place(phase)): count for phase, count in self.counts.items()}
        if self.called:
            trace.metadata["thread_names"] = self.called
        trace.metadata.update(state=self.file.state, events=dict(sorted(counts.items())), event_count=self.seen)
        trace.metadata.update({key: top[key] for key in _SHOWN if key in top})
        first = int(columns.start.min()) if len(columns) else trace.marks[0].at_ns if trace.marks else None
        if first is not None and EPOCH_NS[0] <= first <= EPOCH_NS[1]:
            trace.clock = Clock.EPOCH
        trace.origin = _origin(top)
        ours = facts_of(top)
        if ours is not None:
            trace.metadata["accelprof"] = ours
        said_before(top, trace.completeness, trace.problems)
        return trace

    def _open_ones(self) -> None:
        """What began and has no end was open when recording stopped, and is cut there; work and calls are left out."""
        rows = [row for rows in (*self.open.values(), *self.pending.values()) for row in rows]
        kept = [row for row in rows if may_be_open(row[0].cat)]
        if len(kept) < len(rows):
            self.unmatched["begins without an end"] = len(rows) - len(kept)
        if not kept:
            return
        events, begins, ordinals = zip(*kept, strict=True)
        last = max(int(ends.max()) for ends in (np.array(begins), *self.parts["end"]) if ends.size)
        stops: Array = np.full(len(kept), last, dtype=np.int64)
        self._spans(list(events), np.array(begins), stops, np.array(ordinals, dtype=np.int64), cut=True)

    def _columns(self, ours: Mapping[str, object] | None) -> tuple[Columns, dict[str, Array]]:
        """The table, and which rows lack what of :data:`~accelprof.contracts.spans.LACKING`, where the table does not tell."""
        joined = {
            column: np.concatenate(found) if found else np.zeros(0, dtype=FIELDS.get(column, (np.int64,))[0])
            for column, found in self.parts.items()
        }
        self.parts.clear()
        self.merged = bool(sources_of(ours))
        ordinal = joined.pop("ordinal")
        joined["start"], joined["end"] = self._based(joined["start"], joined["end"], _WORK_CODES[joined["kind"]])
        keep = joined["start"] != BEYOND
        if not keep.all():
            rows = np.flatnonzero(keep)
            joined = {column: values[rows] for column, values in joined.items()}
            ordinal = ordinal[rows]
            self.raw = {at: self.raw[row] for at, row in enumerate(rows.tolist()) if row in self.raw}
        names = [name if isinstance(name, str) else "" for name in self.names]
        if ours is None:
            names = [unquoted(name) for name in names]
            for mark in self.trace.marks:
                mark.name = unquoted(mark.name)
        lacking = self._lacking(joined, plain=ours is None)
        # whose numbers are asked for: work and what launched it, or holds that
        work, host = _WORK_CODES[joined["kind"]], _HOST_CODES[joined["kind"]]
        judged = bool(_LINKED_CODES[joined["kind"]].any())
        joined["kind"] = _by_name(joined["kind"], joined["name"], names)
        categories = _texts(self.categories)
        processes, threads, lanes = _Codes[int | str](), Names(), lanes_of(ours)
        pairs, of_row = list(self.rows), joined["thread"].copy()
        on_work: dict[object, int | str] = {}
        texts = ours is not None
        for rows, judging in ((host, judged), (~work & ~host, False), (work, judged)):
            mine = np.unique(of_row[rows]).tolist()
            pids, threads_of = ([pairs[code][side] for code in mine] for side in (0, 1))
            on_work = identities(pids, settle=True) if judging else {pid: _place(pid) for pid in pids}
            tids = identities(threads_of, negative=True) if judging else {t: _place(t) for t in threads_of}
            codes: Array = np.zeros(len(pairs), dtype=np.int32)
            for code in mine:
                pid, tid = on_work[pairs[code][0]], tids[pairs[code][1]]
                codes[code] = threads.code((processes[pid], lanes.get(str(tid), tid)))
            joined["thread"][rows] = codes[of_row[rows]]
        process_of: Array = np.array([process for process, _ in threads.values] or [0], dtype=np.int32)
        joined["process"] = process_of[joined["thread"]] if len(keep) else joined["thread"]
        scopes, workers = _scopes(ours, list(processes))
        if scopes.any():
            joined["scope"] = scopes[joined["process"]]
            _number_by_file(ours, scopes, list(processes), joined)
        devices, labels = self._devices(workers, on_work, texts=texts)
        streams = identities(self.streams, texts=texts)
        if len(devices):
            joined["device"] = np.where(joined["device"] == NONE, NONE, devices[joined["device"]])
        words = Names(self.words)
        category_codes: Array = np.array([words.code(text) for text in categories] or [0], dtype=np.int32)
        joined["category"] = category_codes[joined["category"]] if len(keep) else joined["category"]
        own_columns = {column: joined.pop(f"our {column}") for column in _OURS}
        joined["cut"] = own_columns.pop("cut")
        if ours is not None:
            given = own_columns.pop("category")
            joined["category"] = np.where(given == NONE, joined["category"], given)
            joined.update(own_columns)
            self._our_marks()
        columns = Columns(
            len(joined["start"]), names=names or [""], processes=list(processes) or [0], threads=threads.values or [(0, 0)],
            tasks=list(self.tasks), devices=labels, streams=[streams[stream] for stream in self.streams],
            words=words.values, args=_Arguments(self.file.path, ordinal, self.raw), **joined,
        )  # fmt: skip
        return columns, lacking

    def _lacking(self, joined: dict[str, Array], *, plain: bool) -> dict[str, Array]:
        """Which rows lack a correlation, a category or time of their own that they should have. Work and calls of a tool's own file
        all have numbers where one has; a merged timeline holds what other formats have too."""
        numbers, own = joined["correlation"], joined["our own"]
        host, linked = _HOST_CODES[joined["kind"]], _LINKED_CODES[joined["kind"]]
        unlinked = numbers == BEYOND
        unknown: Array = np.zeros(len(numbers), dtype=np.bool_)
        if plain and (numbers >= 0).any():
            due = (_WORK_CODES[joined["kind"]] & (joined["kind"] != CODES[Kind.DEVICE_ANNOTATION])) | (
                joined["kind"] == CODES[Kind.RUNTIME]
            )
            unlinked = due & (numbers < 0)
        numbers[numbers == BEYOND] = NONE
        if not plain and not self.merged:  # a timeline that is none of several has our own categories alone
            others = [not isinstance(text, str) or text not in _OUR_OWN for text in self.categories]
            unknown = np.array(others, dtype=np.bool_)[joined["category"]] & (not all(others))
        elif plain and linked.any():
            none = [not isinstance(category, str) or not category for category in self.categories]
            unknown = host & np.array(none, dtype=np.bool_)[joined["category"]]
            self._other_categories(joined["category"])
        endless = (own == ODD_OWN) | (own > joined["end"] - joined["start"])
        own[endless] = NONE
        return {"correlation": unlinked, "category": unknown, "own time": endless}

    def _other_categories(self, category: Array) -> None:
        """Say which categories are not among those that are known."""
        counts = np.bincount(category, minlength=len(self.categories)).tolist()
        for text, count in zip(self.categories, counts, strict=True):
            if isinstance(text, str) and text and count and text.casefold() not in KINDS_OF:
                self.trace.problems.append(
                    f"category {text[:80]!r} is not known; its {count:,} events are taken for ranges of the host"
                )

    def _based(self, starts: Array, ends: Array, work: Array) -> tuple[Array, Array]:
        """Times with the file's base; what that puts beyond all times is marked and counted."""
        base = self.file.base_ns
        for mark in self.trace.marks:
            mark.at_ns += base
        if not base and not (len(ends) and int(ends.max()) >= FURTHEST_NS):
            strange = off_clock(starts, work) & (not self.merged)  # which holds files of several clocks
            if strange.any():
                self.bad[OFF_CLOCK] += int(strange.sum())
            return (np.where(strange, BEYOND, starts) if strange.any() else starts), ends
        beyond = (np.abs(starts.astype(np.float64) + base) >= FURTHEST_NS) | (
            np.abs(ends.astype(np.float64) + base) >= FURTHEST_NS
        )
        if beyond.any():
            self.bad["start endless"] += int(beyond.sum())
        early = (starts < 0) & ~beyond if base else np.zeros(0, dtype=np.bool_)
        if early.any():
            self.bad["start before the file's base"] += int(early.sum())
            beyond |= early
        return np.where(beyond, BEYOND, starts + base), np.where(beyond, BEYOND, ends + base)

    def _devices(
        self, workers: Mapping[object, str], processes: Mapping[object, int | str], *, texts: bool
    ) -> tuple[Array, list[int | str]]:
        """Devices by process and number: two processes that both call theirs 0 have two. Kineto's process of device
        work is the device, so a plain file keeps the numbers as they are."""
        shown_as = identities([number for _, number in self.devices], texts=texts)
        pairs = [(processes.get(pid, UNKNOWN), shown_as[number]) for pid, number in self.devices]
        numbers = Counter(number for _, number in set(pairs))
        labels = Names()
        codes = []
        for pid, shown in pairs:
            if numbers[shown] > 1 and shown != UNKNOWN:
                shown = f"{workers.get(pid) or f'process {pid}'}: {shown}"
            codes.append(labels.code(shown))
        return np.array(codes, dtype=np.int32), labels.values

    def _our_marks(self) -> None:
        for mark in self.trace.marks:
            args = mark.args
            mark.domain, mark.color = str(args.get("domain", "")), str(args.get("color", ""))
            mark.category = str(args.get("category", ""))


def kind_of(category: object) -> Kind:
    """The kind of events of a category."""
    return KINDS_OF.get(category.casefold() if isinstance(category, str) else "", Kind.RANGE)


def may_be_open(category: object) -> bool:
    """Whether an event of this category that begins and has no end was open when recording stopped. Work and calls are not: how long
    they took nobody knows."""
    return kind_of(category) not in _LINKED


def _by_name(kinds: Array, name: Array, names: list[str]) -> Array:
    """Kinds that depend on the name too: collectives among kernels, the profiler's steps."""
    talks = np.array([kernel_kind(text) is Kind.COMMUNICATION for text in names] or [False], dtype=np.bool_)
    steps = np.array([PROFILER_STEP.match(text) is not None for text in names] or [False], dtype=np.bool_)
    if not len(kinds):
        return kinds
    device = np.isin(kinds, [CODES[kind] for kind in _WORK])
    found = kinds.copy()
    found[~device & steps[name]] = CODES[Kind.STEP]
    found[(kinds == CODES[Kind.KERNEL]) & talks[name]] = CODES[Kind.COMMUNICATION]
    return found


def lanes_of(ours: Mapping[str, object] | None) -> dict[str, int | str]:
    """Threads of a merged timeline that hold what overlapped on another, and which."""
    lanes = ours.get("lanes") if ours is not None else None
    return {str(lane): _place(thread) for lane, thread in lanes.items()} if isinstance(lanes, dict) else {}


def sources_of(ours: Mapping[str, object] | None) -> list[tuple[int, Mapping[str, Any], list[object]]]:
    """The files that a merged timeline was made of, by their numbers from 1, each with the numbers of its processes; none of any
    other file."""
    said = ours.get("sources") if ours is not None else None
    found: list[tuple[int, Mapping[str, Any], list[object]]] = []
    for number, source in enumerate(said if isinstance(said, list) else [], 1):
        if isinstance(source, dict):
            pids = source.get("pids")
            found.append((number, source, pids if isinstance(pids, list) else []))
    return found


def _scopes(ours: Mapping[str, object] | None, processes: Sequence[object]) -> tuple[Array, dict[object, str]]:
    """For each process of a merged timeline a number that all files have in common which share processes, and what the first of them is
    called; 0 for all others. A launch and its work may stand on processes that no one file was the first to have both of."""
    scopes: Array = np.zeros(max(len(processes), 1), dtype=np.int32)
    workers: dict[object, str] = {}
    places = {process: code for code, process in enumerate(processes)}
    for number, source, pids in sources_of(ours):
        mine = [places[pid] for pid in pids if isinstance(pid, int) and pid in places]
        shared = np.unique(scopes[mine])
        scopes[np.isin(scopes, shared[shared > 0])] = number
        scopes[mine] = number
        for code in mine:
            workers.setdefault(processes[code], str(source.get("worker") or source.get("path") or number))
    return scopes, workers


def _number_by_file(
    ours: Mapping[str, object] | None, scopes: Array, processes: Sequence[object], joined: dict[str, Array]
) -> None:
    """Give launches of a merged timeline numbers of their own in each of the files that have processes in common, as a tool
    may count anew in each. Files are told apart by their times; those that overlap keep the numbers they have."""
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
    places = {process: code for code, process in enumerate(processes)}
    for _, source, pids in sources_of(ours):
        begin, end = source.get("begin_ns"), source.get("end_ns")
        if isinstance(begin, int) and isinstance(end, int) and max(abs(begin), abs(end)) < FURTHEST_NS:
            for scope in {int(scopes[places[pid]]) for pid in pids if isinstance(pid, int) and pid in places}:
                spans[scope].append((begin, end))
    begins = {scope: [begin for begin, _ in merge_intervals(found)] for scope, found in spans.items()}
    numbers = joined["correlation"]
    several = [scope for scope, found in begins.items() if len(found) > 1]
    if not several:
        return
    rows = np.flatnonzero((numbers != NONE) & np.isin(joined["scope"], several))
    following = max(int(numbers.max(initial=0)), 0) + 1
    for scope, mine in groups_of(joined["scope"][rows]):
        file = np.searchsorted(begins[scope], joined["start"][rows[mine]], side="right") - 1
        for number, part in groups_of(file):
            if number > 0:
                different, at = np.unique(numbers[rows[mine[part]]], return_inverse=True)
                numbers[rows[mine[part]]] = following + at
                following += different.size


def _decoded(raws: Sequence[msgspec.Raw]) -> list[_Known]:
    """:func:`_decode` of each, in one go where all are objects."""
    try:
        return _all_known.decode(b"".join((b"[", b",".join([raw or b"{}" for raw in raws]), b"]")))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return [_decode(raw) for raw in raws]


def _decode(raw: msgspec.Raw) -> _Known:
    try:
        return _known.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _NOTHING


class _Arguments:
    """Arguments by row. Those that reports ask for were kept; the file is read again for the first of the others."""

    def __init__(self, path: str, ordinal: Array, kept: Mapping[int, msgspec.Raw | bytes]) -> None:
        self._path, self._ordinal, self._kept = path, ordinal, kept
        self._all: list[msgspec.Raw] | None = None

    def __call__(self, row: int) -> Mapping[str, Any]:
        raw = self._kept.get(row)
        if raw is None:
            if self._all is None:
                try:
                    self._all = [event.args for event in load(self._path).events]
                except (ReadError, OSError):
                    self._all = []  # the file went away meanwhile
            at = int(self._ordinal[row])
            raw = self._all[at] if at < len(self._all) else b""
        return self._made(raw)

    def kept(self, row: int) -> Mapping[str, Any]:
        """The same for what was kept; nothing of the others."""
        return self._made(self._kept.get(row, b""))

    @staticmethod
    def _made(raw: msgspec.Raw | bytes) -> Mapping[str, Any]:
        return Arguments(raw) if bytes(raw) not in (b"", b"{}") else NO_ARGUMENTS


NO_ARGUMENTS: Mapping[str, Any] = MappingProxyType({})


def _args(event: Some) -> Mapping[str, Any]:
    raw = event.args
    return Arguments(raw) if bytes(raw) not in (b"", b"{}") else NO_ARGUMENTS


#: a pid or tid: a number, or text such as ``Spans``
_place = place


def is_ours(top: Mapping[str, object]) -> bool:
    """Whether accelprof wrote the file: labels stand there as they were given. In other tools' they may be
    :func:`accelprof.texts.quoted`."""
    return facts_of(top) is not None


def facts_of(top: Mapping[str, object]) -> Mapping[str, Any] | None:
    """What our own timeline says of itself, ``None`` for other files."""
    other = top.get("otherData")
    ours = other.get("accelprof") if isinstance(other, dict) else None
    return ours if isinstance(ours, dict) else None


def said_before(top: Mapping[str, object], completeness: Completeness, problems: list[str]) -> None:
    """Add what our own timeline says is not in it, and of a merged one what was wrong with the files it was made of."""
    ours = facts_of(top) or {}
    completeness.dropped += _count(ours.get("dropped"))
    said = ours.get("problems")
    problems.extend(line for line in (said if isinstance(said, list) else ()) if isinstance(line, str))
    for _, source, _ in sources_of(ours):
        lacks = source.get("completeness")
        if not isinstance(lacks, dict):
            continue
        name = f"{source.get('worker')}: {os.path.basename(str(source.get('path')))}"
        cut, left_out, unread = lacks.get("cut"), lacks.get("left_out"), lacks.get("unread")
        if isinstance(cut, str) and cut:
            completeness.cut += f"{'; ' if completeness.cut else ''}{name}: {cut}"
        for reason, count in left_out.items() if isinstance(left_out, dict) else ():
            if lost := _count(count):
                completeness.leave_out(str(reason), lost)
        completeness.dropped += _count(lacks.get("dropped"))
        completeness.unread.extend(f"{name}: {part}" for part in (unread if isinstance(unread, list) else ()))


def _count(value: object) -> int:
    return value if isinstance(value, int) and whole(value) and value > 0 else 0


def _origin(top: dict[str, Any]) -> Origin:
    ours = facts_of(top)
    if ours is not None:
        roles, steps, window = ours.get("roles"), ours.get("steps"), _said(ours.get("window"))
        return Origin(
            group=_said(ours.get("group")),
            role="+".join(map(str, roles if isinstance(roles, list) else ())) or None,
            rank=_number(ours.get("rank")),
            replica=_number(ours.get("replica")),
            host=_said(ours.get("host")),
            pid=_number(ours.get("pid")),
            windows=(window,) if window is not None else (),
            steps=tuple(step for step in map(_number, steps if isinstance(steps, list) else ()) if step is not None),
            engine_rank=_number(ours.get("engine_rank")),
        )
    distributed = top.get("distributedInfo")
    rank = distributed.get("rank") if isinstance(distributed, dict) else None
    return Origin(rank=_number(rank), host=_said(top.get("host_name")))


def _said(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
