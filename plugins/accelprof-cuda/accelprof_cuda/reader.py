"""Reads what nsys left: ``.sqlite`` directly, ``.nsys-rep`` through a fresh export, ``.qdstrm`` through the importer.

The tables are those of ``nsys export --type sqlite`` (documented in each export's own schema). Any table may be
missing, or carry a version suffix (``NVTX_EVENTS_V2``); columns come and go with the version of nsys.

Rows are read a part at a time into columns. Launches and device work carry the same correlation, unique in the file, so
that device work can be given to the phase that launched it.
"""

from __future__ import annotations

import functools
import os
import re
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from accelprof.contracts.spans import FURTHEST_NS, Clock, Kind, Mark, Origin, Trace
from accelprof.contracts.spans import LACKING as LACKED
from accelprof.errors import ReadError
from accelprof.reading import sqlite
from accelprof.reading.gzipped import is_json
from accelprof.reading.kernels import kernel_kind
from accelprof.texts import QUOTED, unquoted
from accelprof_cuda import colors, installation
from accelprof_cuda.backend import DOMAIN
from accelprof_cuda.nsys_files import RAW, REPORT
from accelprof_cuda.tables import CODES, EMPTY, MISSING, NONE, Stretches, Tables

if TYPE_CHECKING:
    from accelprof.reading.columns import Array

PUSH_POP, START_END, MARK, CATEGORY, DOMAIN_CREATE = 59, 60, 34, 33, 75
WINDOW = "window"
#: host calls that wait for the device
WAITING = re.compile(r"^cu(da)?(Device|Stream|Event|Ctx|Thread)Synchronize")
#: CUpti_ActivitySynchronizationType of a wait on the device, not on the host
STREAM_WAIT = 2
COPY_KINDS = {
    1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP",
}  # fmt: skip
SYNC_KINDS = {1: "event", 2: "stream wait", 3: "stream", 4: "context"}
_SUFFIX = re.compile(r"_v\d+(_ptsz)?$")
DEVICE_COLUMNS = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
#: tables whose rows become spans
ROWS = (
    "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
)  # fmt: skip
#: those with a globalPid
WORK = tuple(name for name in ROWS if name not in ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"))
#: a column that a table or a row lacks -> what becomes of the row
LACKING = {
    "start": "are left out", "end": "are left out", "deviceId": LACKED["device"], "streamId": LACKED["stream"],
    "correlationId": LACKED["correlation"], "globalTid": "do not say their process and thread", "globalPid": LACKED["process"],
    "nameId": LACKED["name"], "name": LACKED["name"], "eventType": "are left out", "syncType": "may be of a stream, and not of the host",
}  # fmt: skip
#: columns whose numbers are not negative, and columns of processes
NUMBERED = frozenset({"deviceId", "streamId", "correlationId"})
OWNERS = frozenset({"globalTid", "globalPid"})
UNNAMED = "unnamed kernel"
#: the greatest process id of Linux
LAST_PID = 1 << 22
SHOWN = ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME")


def can_read(path: str) -> bool:
    """By suffix; a database of whatever name is opened to see whether nsys wrote it, or, damaged, what it was."""
    if path.endswith((REPORT, RAW)):
        return _is_export(path) if sqlite.is_one(path) else not is_json(path)
    return sqlite.is_one(path) and _is_export(path)


def _is_export(path: str) -> bool:
    try:
        return "StringIds" in sqlite.tables_of(path)
    except ReadError:
        return sqlite.mentions(path, b"CUPTI_ACTIVITY_KIND_", b"NVTX_EVENTS", b"StringIds")


def read(path: str) -> Trace:
    """All spans of one file. An ``.sqlite`` beside a report is never taken for its export.

    Raises:
        ReadError: the file is not what it claims to be, or cannot be exported here.
    """
    if path.endswith((REPORT, RAW)) and not sqlite.is_one(path):
        if not os.path.isfile(path):
            raise ReadError(path, "no such file")
        if os.path.getsize(path) == 0:
            raise ReadError(path, "the file is empty; nsys had not finished writing it")
        with tempfile.TemporaryDirectory(prefix="accelprof-nsys-") as scratch:
            made, exported = os.path.join(scratch, "report" + REPORT), os.path.join(scratch, "report.sqlite")
            installation.export_sqlite(installation.convert(path, made) if path.endswith(RAW) else path, exported)
            return _read_sqlite(exported, path)
    return _read_sqlite(path, path)


def _read_sqlite(path: str, source: str) -> Trace:
    def of(database: sqlite3.Connection) -> Trace:
        trace = Trace(source=source, tool="nsys")
        Reading(Tables(database), trace).all()
        return trace

    return sqlite.read(path, "an export of nsys", of, source)


class Reading:
    """One pass over one export, table by table; each becomes a stretch of rows."""

    def __init__(self, tables: Tables, trace: Trace) -> None:
        import numpy as np  # only who reads a report loads it

        self.np = np
        self.tables, self.trace = tables, trace
        if "StringIds" not in tables:
            raise ReadError(trace.source, "no table StringIds; this is not an export of nsys")
        strings = tables.rows("StringIds", "id", "value")
        self.strings = {number: text for number, text in strings if isinstance(text, str)}
        self.base = 0
        self.bad: dict[str, int] = {}
        #: rows by their table, what they are, and a column that is there but empty in them
        self.empty: Counter[tuple[str, str, str]] = Counter()
        self.devices: dict[tuple[int, int], int | str] = {}
        #: of the processes that called CUDA, as a globalPid has them
        self.processes: set[int] = set()
        self.stretch = Stretches(tables.count(*ROWS))

    def all(self) -> None:
        self._clock()
        self._facts()
        self._nvtx()
        synced = self._synchronisations()
        self._runtime(synced)
        self._kernels()
        self._copies()
        self._graphs()
        self.trace.columns = self.stretch.columns(self.devices)
        missing = [table for table in SHOWN if table not in self.tables]
        if missing:
            names, them = ", ".join(missing), "them" if len(missing) > 1 else "it"
            self.trace.problems.append(f"not in the file, because nsys did not trace {them} or saw nothing: {names}")
        for (table, what, column), count in self.empty.items():
            self.trace.unread(f"{count:,} {what} of {table} have no {column}: {what} {LACKING[column]}")
        for what, count in self.bad.items():
            self.trace.problems.append(f"{count} {what} left out")
            self.trace.completeness.leave_out(what, count)

    # --- facts ------------------------------------------------------------------------------------------------------

    def _clock(self) -> None:
        """Times of an export count from the capture's start; newer exports keep the system clock and say where it stood."""
        for epoch, system in self.tables.rows("TARGET_INFO_SESSION_START_TIME", "utcEpochNs", "systemClockNs"):
            if isinstance(epoch, int) and epoch:
                base = epoch - (system if isinstance(system, int) else 0)
                if abs(base) < FURTHEST_NS:
                    self.base = base
                    self.trace.clock = Clock.EPOCH
                    return

    def _facts(self) -> None:
        metadata = self.trace.metadata
        for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
            for name, value in self.tables.rows(table, "name", "value"):
                if name in ("EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION", "VERSION"):
                    metadata[str(name).lower()] = value
        for gpu, cuda, pid in self.tables.rows("TARGET_INFO_CUDA_DEVICE", "gpuId", "cudaId", "pid"):
            if isinstance(gpu, int) and isinstance(cuda, int) and isinstance(pid, int):
                self.devices[(pid, cuda)] = gpu
        gpus = dict(self.tables.rows("TARGET_INFO_GPU", "id", "name"))
        if gpus:
            metadata["devices"] = gpus
        for name, value in self.tables.rows("TARGET_INFO_SYSTEM_ENV", "name", "value"):
            if name == "Hostname":
                self.trace.origin = Origin(host=str(value))
        called: dict[int, dict[int, str]] = {}
        for number, where in self.tables.rows("ThreadNames", "nameId", "globalTid"):
            name = self.strings.get(number)
            if name and isinstance(where, int):
                pid, tid = _process(where), _thread(where)
                called.setdefault(pid, {})[tid] = f"thread {tid} ({name})"
        if called:
            metadata["thread_names"] = called
        duration = next(iter(self.tables.rows("ANALYSIS_DETAILS", "duration")), (None,))[0]
        if duration is not None:
            metadata["capture_ns"] = duration

    # --- host -------------------------------------------------------------------------------------------------------

    def _nvtx(self) -> None:
        np, strings = self.np, self.strings
        kinds = ("eventType", "category", "textId", "globalTid", "domainId")
        self._lacking("NVTX_EVENTS", "ranges", ("start", "end", "globalTid", "eventType"))
        domains: dict[tuple[int, int], str] = {}
        categories: dict[tuple[int, int, int], str] = {}
        named = f'"eventType" IN ({CATEGORY}, {DOMAIN_CREATE})'
        for event, category, text_id, thread, domain, text in self.tables.rows(
            "NVTX_EVENTS", *kinds, "text", where=named
        ):
            name = unquoted(str(text or strings.get(text_id, "")))
            if event == DOMAIN_CREATE:
                domains[(_process(thread), domain)] = name
            else:
                categories[(_process(thread), domain, category)] = name
        code, word = self.stretch.name, self.stretch.word
        known = (PUSH_POP, START_END, MARK)
        wanted = f'"eventType" IN {known} OR typeof("eventType") != \'integer\' OR "eventType" < 0'
        numbers = (*kinds, "start", "end", "color", "int64Value", "uint64Value")
        for part, texts in self._parts("NVTX_EVENTS", numbers, "text", where=wanted, empty="end"):
            told = np.isin(part["eventType"], known)
            self._count("NVTX_EVENTS", "rows", "eventType", int((~told).sum()))
            mark = part["eventType"] == MARK
            for at in np.flatnonzero(mark).tolist():
                self._mark({name: int(values[at]) for name, values in part.items()}, texts[at], domains, categories)
            self._hollow("NVTX_EVENTS", "ranges", part, ("globalTid",))
            ranges = told & ~mark
            # without an end: open when recording stopped, which is where it goes to
            part["cut"] = ranges & (part[EMPTY] == 1)
            part["end"] = np.where(part["cut"], part["start"], part["end"])
            keep = ranges & self._sound(part, ranges, "NVTX ranges without a beginning or that ended before it")
            rows = np.flatnonzero(keep)
            part = {name: values[rows] for name, values in part.items()}
            ids = part["textId"].tolist()
            names = [
                texts[row] if texts[row] is not None else strings.get(number, "")
                for row, number in zip(rows.tolist(), ids, strict=True)
            ]
            self._count("NVTX_EVENTS", "ranges", "name", names.count(""))
            pids = (part["globalTid"] >> 24) & 0xFFFFFF
            where = _mapped(np, lambda pid, domain: word(_domain(domains, pid, domain)), pids, part["domainId"])
            ours = where == word(DOMAIN)
            if QUOTED in "".join(names):
                names = list(map(unquoted, names))
            name_codes = np.array(self.stretch.names_of(names), dtype=np.int32)
            kind = np.where(name_codes == code(WINDOW), CODES[Kind.WINDOW], CODES[Kind.PHASE])
            of = _mapped(
                np, lambda pid, domain, number: word(categories.get((pid, domain, number), "") if number > 0 else ""),
                pids, part["domainId"], part["category"],
            )  # fmt: skip
            color = _mapped(
                np, lambda number: word(colors.from_argb(number if number != MISSING else None)), part["color"]
            )
            payload = np.where(part["int64Value"] != MISSING, part["int64Value"], part["uint64Value"])
            self.stretch.add(
                kind=np.where(ours, kind, CODES[Kind.RANGE]), name=name_codes, where=part["globalTid"],
                start=part["start"] + self.base, end=part["end"] + self.base, domain=where, category=of, color=color,
                cut=part["cut"], extra={"payload": payload},
            )  # fmt: skip

    def _mark(
        self,
        row: dict[str, int],
        text: Array,
        domains: dict[tuple[int, int], str],
        categories: dict[tuple[int, int, int], str],
    ) -> None:
        if row["start"] == MISSING:
            self.bad["NVTX marks without a time"] = self.bad.get("NVTX marks without a time", 0) + 1
            return
        pid, category = _process(row["globalTid"]), row["category"]
        payload = row["int64Value"] if row["int64Value"] != MISSING else row["uint64Value"]
        self.trace.marks.append(
            Mark(
                unquoted(str(text if text is not None else self.strings.get(row["textId"], ""))), row["start"] + self.base, pid,
                _thread(row["globalTid"]), _domain(domains, pid, row["domainId"]),
                categories.get((pid, row["domainId"], category), "") if category > 0 else "",
                colors.from_argb(row["color"] if row["color"] != MISSING else None),
                {} if payload == MISSING else {"payload": payload},
            )
        )  # fmt: skip

    def _runtime(self, synced: Array | None) -> None:
        np = self.np
        table = "CUPTI_ACTIVITY_KIND_RUNTIME"
        known: dict[int, tuple[int, bool]] = {}
        self._lacking(table, "calls", ("start", "end", "correlationId", "globalTid", "nameId"))
        for part, _ in self._parts(table, ("start", "end", "correlationId", "globalTid", "nameId")):
            where = part["globalTid"]
            self.processes.update(np.unique(where[where != MISSING] & ~0xFFFFFF).tolist())
            self._hollow(table, "calls", part, ("correlationId", "globalTid"))
            part = self._rows(part, "CUDA calls that never ended or ended before they began")
            for number in np.unique(part["nameId"]).tolist():
                if number not in known:
                    name = _SUFFIX.sub("", self.strings.get(number, ""))
                    known[number] = (self.stretch.name(name), bool(WAITING.match(name)))
            names = _mapped(np, lambda number: known[number][0], part["nameId"])
            self._count(table, "calls", "name", int((names == self.stretch.name("")).sum()))
            key = _correlations(np, part["globalTid"], part["correlationId"])
            # a wait that CUPTI reports by itself is shown once, with its stream
            waits = (_mapped(np, lambda number: int(known[number][1]), part["nameId"]) > 0) & ~np.isin(key, synced)
            self.stretch.add(
                kind=np.where(waits, CODES[Kind.SYNC], CODES[Kind.RUNTIME]), name=names, where=part["globalTid"],
                start=part["start"] + self.base, end=part["end"] + self.base, correlation=key,
            )  # fmt: skip

    def _synchronisations(self) -> Array | None:
        """Waits that CUPTI reports by themselves; returns the numbers of their calls."""
        np = self.np
        table, calls = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_RUNTIME"
        seen = [np.zeros(0, dtype=np.int64)]
        if table not in self.tables:
            return seen[0]
        threads: dict[int, int] = {}
        wanted = f'"correlationId" IN (SELECT "correlationId" FROM {self.tables.quoted(table)})'
        for thread, correlation in self.tables.rows(calls, "globalTid", "correlationId", where=wanted):
            if isinstance(thread, int) and isinstance(correlation, int):
                threads[_process(thread) << 32 | correlation] = thread
        columns = ("start", "end", "streamId", "correlationId", "globalPid", "syncType")
        for part, _ in self._parts(table, columns):
            self._hollow(table, "waits", part, ("correlationId", "globalPid", "syncType"))
            host = part["syncType"] != STREAM_WAIT  # otherwise the device waits, not the host
            part = {name: values[host] for name, values in part.items()}
            part = self._rows(part, "waits that never ended or ended before they began")
            key = _correlations(np, part["globalPid"], part["correlationId"])
            seen.append(key[key != NONE])
            where = [
                threads.get(number, process & ~0xFFFFFF)
                for number, process in zip(key.tolist(), part["globalPid"].tolist(), strict=True)
            ]
            names = [
                self.stretch.name(f"{SYNC_KINDS.get(kind, 'device')} synchronize") for kind in part["syncType"].tolist()
            ]
            self.stretch.add(
                kind=np.full(len(names), CODES[Kind.SYNC]), name=np.array(names, dtype=np.int32),
                where=np.array(where, dtype=np.int64), start=part["start"] + self.base, end=part["end"] + self.base,
                correlation=key, extra={"stream": part["streamId"]},
            )  # fmt: skip
        return np.concatenate(seen)

    # --- device -----------------------------------------------------------------------------------------------------

    def _kernels(self) -> None:
        np = self.np
        columns = (*DEVICE_COLUMNS, "demangledName", "shortName", "graphNodeId")
        known: dict[tuple[int, int], tuple[int, int]] = {}

        def found(full: int, short: int) -> tuple[int, int]:
            pair = known.get((full, short))
            if pair is None:
                name = self.strings.get(full) or self.strings.get(short) or UNNAMED
                pair = known[full, short] = (self.stretch.name(name), CODES[kernel_kind(name)])
            return pair

        for part in self._device_parts("CUPTI_ACTIVITY_KIND_KERNEL", columns, "kernels"):
            called = (part["demangledName"], part["shortName"])
            names = _mapped(np, lambda full, short: found(full, short)[0], *called)
            unnamed = int((names == self.stretch.name(UNNAMED)).sum())
            self._count("CUPTI_ACTIVITY_KIND_KERNEL", "kernels", "name", unnamed)
            kinds = _mapped(np, lambda full, short: found(full, short)[1], *called)
            self._work(kinds, names, part, {"short": part["shortName"], "graph_node": part["graphNodeId"]})

    def _copies(self) -> None:
        np = self.np
        for part in self._device_parts("CUPTI_ACTIVITY_KIND_MEMCPY", (*DEVICE_COLUMNS, "bytes", "copyKind"), "copies"):
            names = _mapped(np, lambda how: self.stretch.name(f"Memcpy {COPY_KINDS.get(how, '?')}"), part["copyKind"])
            self._work(np.full(names.size, CODES[Kind.COPY]), names, part, {"bytes": part["bytes"]})
        for part in self._device_parts("CUPTI_ACTIVITY_KIND_MEMSET", (*DEVICE_COLUMNS, "bytes"), "memsets"):
            self._same(Kind.MEMSET, "Memset", part, {"bytes": part["bytes"]})

    def _graphs(self) -> None:
        """Whole CUDA graphs (``cuda-graph-trace: graph``): their kernels are not listed one by one."""
        for part in self._device_parts("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", (*DEVICE_COLUMNS, "graphId"), "graphs"):
            self._same(Kind.KERNEL, "CUDA graph", part, {"graph": part["graphId"]})

    def _device_parts(self, table: str, columns: Sequence[str], what: str) -> Iterator[dict[str, object]]:
        needed = [name for name in columns if name in LACKING]
        if table in self.tables and "globalPid" not in self.tables.columns(table) and self.alone is not None:
            needed.remove("globalPid")
            line = f"{table} has no column globalPid; its {what} are taken for those of process {_process(self.alone)}, the only one"
            self.trace.problems.append(f"{line} with CUDA calls")
        self._lacking(table, what, needed)
        for part, _ in self._parts(table, columns):
            unsaid = part["globalPid"] == MISSING
            if unsaid.any() and self.alone is not None:
                part["globalPid"] = self.np.where(unsaid, self.alone, part["globalPid"])
            self._hollow(table, what, part, [name for name in needed if name not in ("start", "end")])
            yield self._rows(part, f"{what} that never ended or ended before they began")

    @functools.cached_property
    def alone(self) -> int | None:
        """The only process that device work may be of, as a globalPid has it; ``None`` where there are several, or none.

        That only one has calls does not say so: those of another may be lost, or lie before what was recorded. So whoever has a
        context, a device, or work in any table may be meant, and where nothing says who has, whoever has ranges.
        """
        if len(self.processes) != 1:
            return None
        only = next(iter(self.processes))
        used = {pid for pid, _ in self.devices}
        used.update(pid for (pid,) in self.tables.rows("TARGET_INFO_CUDA_CONTEXT_INFO", "processId"))
        owners = dict.fromkeys(WORK, "globalPid") | ({} if used else {"NVTX_EVENTS": "globalTid"})
        for table, column in owners.items():
            used.update(_process(owner) for (owner,) in self.tables.distinct(table, column) if isinstance(owner, int))
        return only if used <= {_process(only), None, 0} else None

    def _lacking(self, table: str, what: str, columns: Sequence[str]) -> None:
        """Say which columns a table that is there does not have, and what that means for its rows."""
        there = self.tables.columns(table) if table in self.tables else columns
        for name in columns:
            if name not in there:
                self.trace.unread(f"{table} has no column {name}; its {what} {LACKING[name]}")

    def _hollow(self, table: str, what: str, part: dict[str, Array], columns: Sequence[str]) -> None:
        """Count the rows that have nothing in a column that the table has."""
        there = set(self.tables.columns(table))
        for name in columns:
            if name in there:
                self._count(table, what, name, int((part[name] == MISSING).sum()))

    def _count(self, table: str, what: str, column: str, lacking: int) -> None:
        if lacking:
            self.empty[table, what, column] += lacking

    def _parts(
        self, table: str, numbers: Sequence[str], text: str = "", where: str = "", empty: str = ""
    ) -> Iterator[tuple[dict[str, Array], list[Any]]]:
        """The parts of a table; a number that names no device, stream, call or process is none."""
        for part, texts in self.tables.parts(table, numbers, text, where, empty):
            for name in part.keys() & NUMBERED:
                part[name][part[name] < 0] = MISSING
            for name in part.keys() & OWNERS:
                part[name][(part[name] >> 24 & 0xFFFFFF) > LAST_PID] = MISSING
            yield part, texts

    def _same(self, kind: Kind, name: str, part: dict[str, Any], extra: dict[str, Any]) -> None:
        count = part["start"].size
        code = self.stretch.name(name)
        self._work(self.np.full(count, CODES[kind]), self.np.full(count, code), part, extra)

    def _work(self, kind: Array, name: Array, part: dict[str, Array], extra: dict[str, Any]) -> None:
        process = part["globalPid"]
        self.stretch.add(
            kind=kind, name=name, where=process & ~0xFFFFFF, start=part["start"] + self.base, end=part["end"] + self.base,
            correlation=_correlations(self.np, process, part["correlationId"]), device=part["deviceId"],
            stream=part["streamId"], extra={key: (values, self.strings if key == "short" else None) for key, values in extra.items()},
        )  # fmt: skip

    def _rows(self, part: dict[str, Array], what: str) -> dict[str, Array]:
        """The rows of a part whose times make sense; the others are counted."""
        keep = self._sound(part, self.np.ones(part["start"].size, dtype=self.np.bool_), what)
        return part if keep.all() else {name: values[keep] for name, values in part.items()}

    def _sound(self, part: dict[str, Array], asked: Array, what: str) -> Array:
        start, end = part["start"], part["end"]
        limit = FURTHEST_NS - abs(self.base)
        good = (start != MISSING) & (end != MISSING) & (end >= start) & (abs(start) < limit) & (abs(end) < limit)
        bad = int((asked & ~good).sum())
        if bad:
            self.bad[what] = self.bad.get(what, 0) + bad
        return good


def _mapped(np: Any, code: Callable[..., int], *keys: Array) -> Array:
    """``code(*key)`` for each row, asked once for each combination of keys."""
    if not keys[0].size:
        return np.zeros(0, dtype=np.int32)
    if len(keys) == 1:
        found, at = np.unique(keys[0], return_inverse=True)
        return np.array([code(key) for key in found.tolist()], dtype=np.int32)[at]
    # numbers of combinations from the numbers of the single keys
    at = np.zeros(keys[0].size, dtype=np.int64)
    for column in keys:
        found, inverse = np.unique(column, return_inverse=True)
        at = at * found.size + inverse
    _, first, inverse = np.unique(at, return_index=True, return_inverse=True)
    values = [code(*(int(column[row]) for column in keys)) for row in first.tolist()]
    return np.array(values, dtype=np.int32)[inverse]


def _domain(domains: dict[tuple[int, int], str], pid: int, domain: int) -> str:
    return domains.get((pid, domain), "" if domain in (0, MISSING) else f"domain {domain}")


def _process(number: int | None) -> int:
    """The pid inside a globalTid or globalPid."""
    return (number or 0) >> 24 & 0xFFFFFF


def _thread(number: int | None) -> int:
    return (number or 0) & 0xFFFFFF


def _correlations(np: Any, where: Array, correlation: Array) -> Array:
    """CUPTI numbers launches per process; with the pid the number is unique in the file."""
    key = ((where >> 24) & 0xFFFFFF) << 32 | (correlation & 0xFFFFFFFF)
    return np.where((correlation < 0) | (where == MISSING), NONE, key)
