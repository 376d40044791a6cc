"""Reads what nsys left: ``.sqlite`` directly, ``.nsys-rep`` through a fresh export, ``.qdstrm`` through the importer.

The tables are those of ``nsys export --type sqlite`` (documented in each export's own schema). Any table may be
missing, or carry a version suffix (``NVTX_EVENTS_V2``); columns come and go with the version of nsys.

Launches and device work carry the same ``args["correlation"]``, unique in the file, so that device work can be given
to the phase whose thread launched it.
"""

from __future__ import annotations

import os
import re
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from accelprof.contracts.spans import Clock, Kind, Mark, Origin, Span, Trace
from accelprof.errors import ReadError
from accelprof_cuda import colors, installation
from accelprof_cuda.backend import DOMAIN
from accelprof_cuda.nsys_files import RAW, REPORT

PUSH_POP, START_END, MARK, CATEGORY, DOMAIN_CREATE = 59, 60, 34, 33, 75
WINDOW = "window"
#: kernels that move data between devices, by the beginning of their name
COMMUNICATION = re.compile(
    r"^(void )?(nccl|nvshmem|ncclDev|oneShot|twoShot|cross_device_reduce|multimem_)", re.IGNORECASE
)
#: host calls that wait for the device
WAITING = re.compile(r"^cu(da)?(Device|Stream|Event|Ctx|Thread)Synchronize")
#: CUpti_ActivitySynchronizationType of a wait on the device, not on the host
STREAM_WAIT = 2
COPY_KINDS = {
    1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP",
}  # fmt: skip
SYNC_KINDS = {1: "event", 2: "stream wait", 3: "stream", 4: "context"}
_SUFFIX = re.compile(r"_v\d+(_ptsz)?$")
_VERSIONED = re.compile(r"^(.*?)_V(\d+)$")
OURS = frozenset({"StringIds"})
SHOWN = ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME")


def can_read(path: str) -> bool:
    """By suffix; an ``.sqlite`` is opened to see whether nsys wrote it."""
    if path.endswith((REPORT, RAW)):
        return True
    if not path.endswith((".sqlite", ".db")) or not os.path.isfile(path):
        return False
    try:
        with closing(_open(path)) as database:
            return Tables(database, []).names.keys() >= OURS
    except (ReadError, sqlite3.Error):
        return False


def read(path: str) -> Trace:
    """All spans of one file. An ``.sqlite`` beside a report is never taken for its export.

    Raises:
        ReadError: the file is not what it claims to be, or cannot be exported here.
    """
    if path.endswith((REPORT, RAW)):
        if not os.path.isfile(path):
            raise ReadError(path, "no such file")
        if os.path.getsize(path) == 0:
            raise ReadError(path, "the file is empty; nsys had not finished writing it")
        with tempfile.TemporaryDirectory(prefix="accelprof-nsys-") as scratch:
            report = (
                installation.convert(path, os.path.join(scratch, "report" + REPORT)) if path.endswith(RAW) else path
            )
            exported = os.path.join(scratch, "report.sqlite")
            installation.export_sqlite(report, exported)
            return _read_sqlite(exported, path)
    return _read_sqlite(path, path)


def _open(path: str) -> sqlite3.Connection:
    try:
        with open(path, "rb") as file:
            head = file.read(16)
    except OSError as error:
        raise ReadError(path, str(error)) from None
    if head != b"SQLite format 3\0":
        raise ReadError(path, "not an SQLite file" if head else "the file is empty")
    # immutable: reports lie on read-only and network file systems where SQLite's locks fail
    return sqlite3.connect(f"file:{_quoted(path)}?mode=ro&immutable=1", uri=True)


def _quoted(path: str) -> str:
    return os.path.abspath(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _read_sqlite(path: str, source: str) -> Trace:
    trace = Trace(source=source, tool="nsys")
    try:
        with closing(_open(path)) as database:
            _Reading(Tables(database, trace.problems), trace).all()
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise ReadError(source, f"the database is damaged or cut off: {error}") from None
    trace.spans.sort(key=lambda span: span.start_ns)
    return trace


class Tables:
    """Tables of an export by their plain name, whatever their version suffix; columns that are missing read as NULL."""

    def __init__(self, database: sqlite3.Connection, problems: list[str]) -> None:
        self._database, self._problems = database, problems
        self.names: dict[str, str] = {}
        found = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")]
        for name in sorted(found, key=_table_version):
            self.names[_plain_name(name)] = name

    def __contains__(self, table: str) -> bool:
        return table in self.names

    def columns(self, table: str) -> list[str]:
        return [row[1] for row in self._database.execute(f'PRAGMA table_info("{self.names[table]}")')]

    def rows(self, table: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        """``columns`` of every row; nothing when the table is not there."""
        if table not in self.names:
            return iter(())
        there = set(self.columns(table))
        wanted = ", ".join(f'"{column}"' if column in there else f'NULL AS "{column}"' for column in columns)
        return iter(self._database.execute(f'SELECT {wanted} FROM "{self.names[table]}"'))


def _plain_name(name: str) -> str:
    versioned = _VERSIONED.match(name)
    return versioned[1] if versioned else name


def _table_version(name: str) -> int:
    versioned = _VERSIONED.match(name)
    return int(versioned[2]) if versioned else 0


class _Reading:
    """One pass over one export."""

    def __init__(self, tables: Tables, trace: Trace) -> None:
        self.tables, self.trace = tables, trace
        if "StringIds" not in tables:
            raise ReadError(trace.source, "no table StringIds; this is not an export of nsys")
        self.strings: dict[int, str] = dict(tables.rows("StringIds", "id", "value"))
        self.base = 0
        self.bad: dict[str, int] = {}
        self.devices: dict[tuple[int | None, int], int] = {}

    def all(self) -> None:
        self._clock()
        self._facts()
        self._nvtx()
        synced = self._synchronisations()
        self._runtime(synced)
        self._kernels()
        self._copies()
        self._graphs()
        missing = [table for table in SHOWN if table not in self.tables]
        if missing:
            names, them = ", ".join(missing), "them" if len(missing) > 1 else "it"
            self.trace.problems.append(f"not in the file, because nsys did not trace {them} or saw nothing: {names}")
        for what, count in self.bad.items():
            self.trace.problems.append(f"{count} {what} left out")
            self.trace.completeness.leave_out(what, count)

    # --- facts ------------------------------------------------------------------------------------------------------

    def _clock(self) -> None:
        """Times of an export count from the capture's start; newer exports keep the system clock and say where it stood."""
        for epoch, system in self.tables.rows("TARGET_INFO_SESSION_START_TIME", "utcEpochNs", "systemClockNs"):
            if epoch:
                self.base = int(epoch) - int(system or 0)
                self.trace.clock = Clock.EPOCH
                return

    def _facts(self) -> None:
        metadata = self.trace.metadata
        for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
            for name, value in self.tables.rows(table, "name", "value"):
                if name in ("EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION", "VERSION"):
                    metadata[str(name).lower()] = value
        for (
            gpu,
            cuda,
            pid,
        ) in self.tables.rows("TARGET_INFO_CUDA_DEVICE", "gpuId", "cudaId", "pid"):
            if gpu is not None and cuda is not None:
                self.devices[(pid, cuda)] = gpu
        gpus = dict(self.tables.rows("TARGET_INFO_GPU", "id", "name"))
        if gpus:
            metadata["devices"] = gpus
        for name, value in self.tables.rows("TARGET_INFO_SYSTEM_ENV", "name", "value"):
            if name == "Hostname":
                self.trace.origin = Origin(host=value)
        duration = next(iter(self.tables.rows("ANALYSIS_DETAILS", "duration")), (None,))[0]
        if duration is not None:
            metadata["capture_ns"] = duration

    # --- host -------------------------------------------------------------------------------------------------------

    def _nvtx(self) -> None:
        columns = (
            "start", "end", "eventType", "category", "color", "text", "textId", "globalTid", "domainId", "int64Value",
            "uint64Value",
        )  # fmt: skip
        rows = list(self.tables.rows("NVTX_EVENTS", *columns))
        strings, base = self.strings, self.base
        domains: dict[tuple[int, int], str] = {}
        categories: dict[tuple[int, int, int], str] = {}
        for _, _, kind, category, _, text, text_id, thread, domain, _, _ in rows:
            if kind == DOMAIN_CREATE:
                domains[(_process(thread), domain)] = text or strings.get(text_id, "")
            elif kind == CATEGORY:
                categories[(_process(thread), domain, category)] = text or strings.get(text_id, "")
        for start, end, kind, category, color, text, text_id, thread, domain, payload, unsigned in rows:
            if kind not in (PUSH_POP, START_END, MARK):
                continue
            name = text if text is not None else strings.get(text_id, "")
            pid, tid = _process(thread), _thread(thread)
            where = domains.get((pid, domain), "" if not domain else f"domain {domain}")
            args = (
                {}
                if payload is None and unsigned is None
                else {"payload": payload if payload is not None else unsigned}
            )
            of = categories.get((pid, domain, category), "") if category else ""
            if kind == MARK:
                self.trace.marks.append(Mark(name, start + base, pid, tid, where, of, colors.from_argb(color), args))
                continue
            if not self._sound(start, end, "NVTX ranges that never ended or ended before they began"):
                continue
            ours = Kind.WINDOW if name == WINDOW else Kind.PHASE
            what = ours if where == DOMAIN else Kind.RANGE
            self.trace.spans.append(
                Span(name, what, start + base, end + base, pid, tid, "", where, of, colors.from_argb(color), args=args)
            )

    def _runtime(self, synced: set[int]) -> None:
        columns = ("start", "end", "correlationId", "globalTid", "nameId")
        names: dict[int, tuple[str, bool]] = {}
        for start, end, correlation, thread, name_id in self.tables.rows("CUPTI_ACTIVITY_KIND_RUNTIME", *columns):
            if not self._sound(start, end, "CUDA calls that never ended or ended before they began"):
                continue
            known = names.get(name_id)
            if known is None:
                name = _SUFFIX.sub("", self.strings.get(name_id, ""))
                known = names[name_id] = (name, bool(WAITING.match(name)))
            pid, key = _process(thread), _correlation(thread, correlation)
            # a wait that CUPTI reports by itself is shown once, with its stream
            kind = Kind.SYNC if known[1] and key not in synced else Kind.RUNTIME
            args = {} if key is None else {"correlation": key}
            self.trace.spans.append(
                Span(known[0], kind, start + self.base, end + self.base, pid, _thread(thread), args=args)
            )

    def _synchronisations(self) -> set[int]:
        seen: set[int] = set()
        table = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
        threads: dict[int, int] = {}
        if table in self.tables:
            for correlation, thread in self.tables.rows("CUPTI_ACTIVITY_KIND_RUNTIME", "correlationId", "globalTid"):
                key = _correlation(thread, correlation)
                if key is not None:
                    threads[key] = _thread(thread)
        for start, end, stream, correlation, process, kind in self.tables.rows(
            table, "start", "end", "streamId", "correlationId", "globalPid", "syncType"
        ):
            key = _correlation(process, correlation)
            if kind == STREAM_WAIT:
                continue  # the device waits, not the host
            if not self._sound(start, end, "waits that never ended or ended before they began"):
                continue
            if key is not None:
                seen.add(key)
            name = f"{SYNC_KINDS.get(kind, 'device')} synchronize"
            self.trace.spans.append(
                Span(
                    name,
                    Kind.SYNC,
                    start + self.base,
                    end + self.base,
                    _process(process),
                    threads.get(key, 0) if key is not None else 0,
                    args={"correlation": key, "stream": stream},
                )
            )
        return seen

    # --- device -----------------------------------------------------------------------------------------------------

    def _kernels(self) -> None:
        columns = (
            "start",
            "end",
            "deviceId",
            "streamId",
            "correlationId",
            "globalPid",
            "demangledName",
            "shortName",
            "graphNodeId",
        )
        kinds: dict[int, Kind] = {}
        for start, end, device, stream, correlation, process, full, short, node in self.tables.rows(
            "CUPTI_ACTIVITY_KIND_KERNEL", *columns
        ):
            if not self._sound(start, end, "kernels that never ended or ended before they began"):
                continue
            name_id = full if full is not None else short
            name = self.strings.get(name_id) or self.strings.get(short, "unnamed kernel")
            kind = kinds.get(name_id)
            if kind is None:
                kind = kinds[name_id] = Kind.COMMUNICATION if COMMUNICATION.match(name) else Kind.KERNEL
            args: dict[str, Any] = {
                "correlation": _correlation(process, correlation),
                "short": self.strings.get(short, ""),
            }
            if node is not None:
                args["graph_node"] = node
            self._device_span(name, kind, start, end, process, device, stream, args)

    def _copies(self) -> None:
        columns = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes", "copyKind")
        for start, end, device, stream, correlation, process, size, how in self.tables.rows(
            "CUPTI_ACTIVITY_KIND_MEMCPY", *columns
        ):
            if self._sound(start, end, "copies that never ended or ended before they began"):
                args = {"correlation": _correlation(process, correlation), "bytes": size}
                self._device_span(
                    f"Memcpy {COPY_KINDS.get(how, '?')}", Kind.COPY, start, end, process, device, stream, args
                )
        for start, end, device, stream, correlation, process, size in self.tables.rows(
            "CUPTI_ACTIVITY_KIND_MEMSET", *columns[:7]
        ):
            if self._sound(start, end, "memsets that never ended or ended before they began"):
                args = {"correlation": _correlation(process, correlation), "bytes": size}
                self._device_span("Memset", Kind.MEMSET, start, end, process, device, stream, args)

    def _graphs(self) -> None:
        """Whole CUDA graphs (``cuda-graph-trace: graph``): their kernels are not listed one by one."""
        columns = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphId")
        for start, end, device, stream, correlation, process, graph in self.tables.rows(
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", *columns
        ):
            if self._sound(start, end, "graphs that never ended or ended before they began"):
                args = {"correlation": _correlation(process, correlation), "graph": graph}
                self._device_span("CUDA graph", Kind.KERNEL, start, end, process, device, stream, args)

    def _device_span(
        self,
        name: str,
        kind: Kind,
        start: int,
        end: int,
        process: int | None,
        device: int,
        stream: int,
        args: dict[str, Any],
    ) -> None:
        pid = _process(process)
        number = self.devices.get((pid, device), device)
        self.trace.spans.append(
            Span(name, kind, start + self.base, end + self.base, pid, device=number, stream=stream, args=args)
        )

    def _sound(self, start: Any, end: Any, what: str) -> bool:
        if start is None or end is None or end < start:
            self.bad[what] = self.bad.get(what, 0) + 1
            return False
        return True


def _process(number: int | None) -> int:
    """The pid inside a globalTid or globalPid."""
    return (number or 0) >> 24 & 0xFFFFFF


def _thread(number: int | None) -> int:
    return (number or 0) & 0xFFFFFF


def _correlation(number: int | None, correlation: int | None) -> int | None:
    """CUPTI numbers launches per process; with the pid the number is unique in the file."""
    return None if correlation is None else _process(number) << 32 | correlation
