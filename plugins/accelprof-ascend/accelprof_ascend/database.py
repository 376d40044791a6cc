"""Reader of ``ascend_pytorch_profiler*.db`` and of msprof's ``msprof_*.db``: SQLite, times in ns since the epoch.

Tables are those of MindStudio's "db data" documentation; any may be missing, as torch_npu writes only what was recorded.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from accelprof.contracts.spans import UNKNOWN, Kind, Mark, Origin, Span, Trace, end_open
from accelprof.errors import ReadError
from accelprof.reading import sqlite
from accelprof.reading.numbers import identity, identity_in, whole_number
from accelprof.texts import unquoted
from accelprof_ascend import kinds
from accelprof_ascend.tables import STEP_COLUMNS, add_steps
from accelprof_ascend.times import add_us, clock_of, leave_out, ns_of_ns

CLUSTER = "ClusterStepTraceTime"
#: tables that nobody else has
OURS = frozenset({"PYTORCH_API", "CANN_API", "MSTX_EVENTS", "StepTraceTime", CLUSTER})
#: ENUM_API_TYPE of torch_npu: 50001 op, 50002 queue, 50003 trace (Python functions)
QUEUE = 50002
#: MSTX_EVENTS.eventType: 0 marker, 1 push/pop, 2 start/end, 3 marker with stream
MSTX_MARKS = frozenset({0, 3})
_STEP_TABLE = "StepTraceTime"
Row = Mapping[str, object]


def can_read(path: str) -> bool:
    """Whether an SQLite file holds tables of torch_npu, msprof or a cluster analysis; a damaged one, whether it names them."""
    try:
        tables = set(sqlite.tables_of(path))
    except ReadError:
        return sqlite.mentions(path, *(name.encode() for name in (*OURS, "STRING_IDS")))
    return bool(tables & OURS) or tables >= {"STRING_IDS", "TASK"}


def read_database(path: str, tool: str = "npu") -> Trace:
    """All spans of one file; per-step sums in ``metadata["steps"]``, versions and host in ``metadata``.

    Raises:
        ReadError: not there, empty, not SQLite, or damaged.
    """
    return sqlite.read(path, "of torch_npu or msprof", lambda database: _Reading(path, tool, database).all())


def _tables(database: sqlite3.Connection) -> dict[str, set[str]]:
    names = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")]
    return {name: {row[1] for row in database.execute(f'PRAGMA table_info("{name}")')} for name in names}


class _Reading:
    def __init__(self, path: str, tool: str, database: sqlite3.Connection) -> None:
        self.database, self.tables = database, _tables(database)
        self.trace = Trace(source=path, tool=tool)
        self.bad: Counter[str] = Counter()
        #: rows that are in the trace, by what they do not say of themselves
        self.unsaid: Counter[str] = Counter()
        self.strings: dict[object, str] = {
            row["id"]: row["value"]
            for row in self._rows("STRING_IDS", "id", "value")
            if isinstance(row["id"], int) and isinstance(row["value"], str)
        }
        #: CANN's connection -> the host row of torch that made it
        self.launched_by: dict[object, str] = {}

    def all(self) -> Trace:
        self._facts()
        self._host()
        self._device()
        self._mstx()
        trace = self.trace
        leave_out(trace, self.bad, "row")
        for what, count in self.unsaid.items():
            trace.unread(f"{count} row{'s' * (count != 1)} {what}")
        if "TASK" not in self.tables and "PYTORCH_API" in self.tables:
            trace.problems.append("no table TASK: the device's data was not recorded or not analysed")
        trace.clock = clock_of(span.start_ns for span in trace.spans)
        trace.metadata["tables"] = sorted(self.tables)
        return trace

    def _rows(self, table: str, *needed: str) -> Iterator[Row]:
        """The rows of a table; none, and said so, where it lacks a column without which they mean nothing."""
        lacking = [column for column in needed if column not in self.tables.get(table, needed)]
        if lacking:
            self.trace.problems.append(f"table {table} has no column {', '.join(lacking)}; its rows are not used")
        elif table in self.tables:
            yield from sqlite.rows(self.database, table)

    def _text(self, value: object) -> str:
        """A name: an id of STRING_IDS, or text as it is; empty for what is neither."""
        return self.strings.get(value, value if isinstance(value, str) else "")

    def _add(self, row: Row, name: str, kind: Kind, **more: Any) -> Span | None:
        try:
            start, end = ns_of_ns(row.get("startNs")), ns_of_ns(row.get("endNs"))
        except ValueError as error:
            self.bad[f"time {error}"] += 1
            return None
        if end < start:
            self.bad["negative duration"] += 1
            return None
        if "globalTid" in row:
            tid = identity(row["globalTid"])
            if isinstance(tid, int) and tid >> 32:
                more |= {"pid": tid >> 32, "tid": tid & 0xFFFFFFFF}
            else:
                more |= {"pid": UNKNOWN, "tid": UNKNOWN}
        span = Span(name, kind, start, end, **more)
        self.trace.spans.append(span)
        return span

    def _facts(self) -> None:
        metadata = self.trace.metadata
        for row in self._rows("META_DATA"):
            if row.get("name") != "ENV_VARIABLES":
                metadata[str(row.get("name"))] = row.get("value")
        hosts = [str(row.get("hostName")) for row in self._rows("HOST_INFO")]
        ranks = [row.get("rankId") for row in self._rows("RANK_DEVICE_MAP")]
        known = [rank for rank in ranks if isinstance(rank, int) and rank >= 0]  # -1: nobody said
        self.trace.origin = Origin(rank=known[0] if known else None, host=hosts[0] if hosts else None)
        steps = [_step_row(row, self.bad) for table in (_STEP_TABLE, CLUSTER) for row in self._rows(table)]
        if steps:
            add_steps(self.trace, steps)

    def _host(self) -> None:
        connections: dict[object, list[object]] = {}
        for row in self._rows("CONNECTION_IDS", "id", "connectionId"):
            connections.setdefault(row["id"], []).append(row["connectionId"])
        for number, row in enumerate(self._rows("PYTORCH_API")):
            name = self._text(row.get("name"))
            kind = Kind.RUNTIME if row.get("type") == QUEUE else kinds.host_kind(name, Kind.OPERATOR)
            args: dict[str, Any] = {
                key: self._text(row[key]) for key in ("inputShapes", "inputDtypes") if row.get(key) is not None
            }
            made = connections.get(row.get("connectionId"), [])
            if made and kind is Kind.OPERATOR:  # the row that hands the kernel over; its correlation is its own number
                kind, args["correlation"] = Kind.RUNTIME, f"torch:{number}"
                self.launched_by.update(dict.fromkeys(made, args["correlation"]))
            self._add(row, name, kind, category="torch", args=args)
        seen = {span.name for span in self.trace.of_kind(Kind.STEP)}
        for row in self._rows("STEP_TIME", "id"):
            if f"ProfilerStep#{row['id']}" in seen:
                continue  # the same step, once from torch and once summed up
            if identity(row["id"]) == UNKNOWN:
                self.bad["a step that does not say its number"] += 1
            else:
                self._add(row, f"ProfilerStep#{row['id']}", Kind.STEP, category="STEP_TIME")
        for row in self._rows("CANN_API"):
            name = self._text(row.get("name"))
            connection = row.get("connectionId")
            more: dict[str, object] = {
                "connection_id": connection,
                "type": self.strings.get(row.get("type"), row.get("type")),
            }
            if connection is not None and connection not in self.launched_by:
                more["correlation"] = UNKNOWN if identity(connection) == UNKNOWN else f"cann:{connection}"
            self._add(row, name, kinds.host_kind(name, Kind.RUNTIME), category="CANN", args=more)

    def _correlation(self, row: Row) -> dict[str, Any]:
        connection = row.get("connectionId")
        if connection is None:
            return {}
        if identity(connection) == UNKNOWN:
            return {"correlation": UNKNOWN}
        return {"connection_id": connection, "correlation": self.launched_by.get(connection, f"cann:{connection}")}

    def _device(self) -> None:
        compute: dict[int | str, Row] = {}
        for row in self._rows("COMPUTE_TASK_INFO", "globalTaskId"):
            compute[identity(row["globalTaskId"])] = row
        parts = {identity(row.get("globalTaskId")) for row in self._rows("COMMUNICATION_TASK_INFO")}
        if UNKNOWN in parts:
            self.unsaid["of COMMUNICATION_TASK_INFO do not say their task, which may count beside its collective"] += 1
        devices: set[int | str] = set()
        tasks: set[int | str] = set()
        for row in self._rows("TASK"):
            task, device = identity(row.get("globalTaskId")), _device_of(row)
            devices.add(device)
            tasks.add(task)
            told = task != UNKNOWN
            info = compute.get(task, {}) if told else {}
            task_type = self._text(row.get("taskType"))
            name = self._text(info.get("name")) or ("" if info else task_type)
            kind = kinds.device_kind(name, task_type)
            if task in parts and told:
                kind = (
                    Kind.DEVICE_ANNOTATION
                )  # the tasks a collective is made of; COMMUNICATION_OP holds the collective
            elif not info and not task_type:
                self.bad["a task that does not say what it is"] += 1
                continue
            elif not told and kind is not Kind.DEVICE_ANNOTATION:
                self.unsaid["of TASK do not say which kernel they are"] += 1
            elif not info and kind is Kind.KERNEL:
                kind = Kind.DEVICE_ANNOTATION  # no kernel is known for it: queue handling of the device
            args = {"task_type": task_type, "op_type": self._text(info.get("opType")), **self._correlation(row)}
            self._add(row, name, kind, device=device, stream=identity_in(row, "streamId"), args=args)
        lost = len(compute.keys() - tasks - {UNKNOWN}) + (UNKNOWN in compute)
        if lost:
            self.bad["a kernel whose task is not in the file"] += lost
        known = devices - {UNKNOWN}
        only = next(iter(known)) if len(known) == 1 else UNKNOWN if known else "npu"
        for row in self._rows("COMMUNICATION_OP"):
            args = {"group": self._text(row.get("groupName")), **self._correlation(row)}
            device = _device_of(row) if "deviceId" in row else only
            self._add(row, self._text(row.get("opName")), Kind.COMMUNICATION, device=device, args=args)

    def _mstx(self) -> None:
        opened: list[Span] = []
        for row in self._rows("MSTX_EVENTS"):
            name, domain = unquoted(self._text(row.get("message"))), self._text(row.get("domainId"))
            if identity(row.get("eventType")) == UNKNOWN:
                self.unsaid["of MSTX_EVENTS do not say whether they are ranges or marks"] += 1
            if row.get("eventType") in MSTX_MARKS:
                try:
                    self.trace.marks.append(Mark(name, ns_of_ns(row.get("startNs")), domain=domain))
                except ValueError as error:
                    self.bad[f"time {error}"] += 1
                continue
            # newer wheels mark their steps here too, for the device's timeline
            kind = Kind.DEVICE_ANNOTATION if kinds.STEP.match(name) else Kind.RANGE
            if "endNs" not in row or row["endNs"] is not None:
                self._add(row, name, kind, domain=domain, category="mstx")
                continue
            span = self._add({**row, "endNs": row.get("startNs")}, name, kind, domain=domain, category="mstx")
            opened += [] if span is None else [span]
        end_open(opened, self.trace.spans)


def _device_of(row: Row) -> int | str:
    found = identity_in(row, "deviceId")
    return "npu" if found is None else found


#: our names -> columns of StepTraceTime and ClusterStepTraceTime, in µs
_STEP_COLUMNS = {ours: ours.removesuffix("_ns") for ours in STEP_COLUMNS}


def _step_row(row: Row, bad: Counter[str]) -> dict[str, object]:
    step = str(row.get("step") if row.get("step") is not None else "")
    found: dict[str, Any] = {"step": None if step == "" else whole_number(step), "type": row.get("type", "device")}
    for theirs, ours in (("deviceId", "device"), ("index", "rank")):
        if row.get(theirs) is not None:
            found[ours] = row[theirs]
    add_us(found, row, _STEP_COLUMNS, bad)
    return found
