"""rocpd, the SQLite schema of rocprofv3 (default from ROCm 7.0) and of rocprof-sys.

Tables carry a suffix per process, views do not: only views are asked, and each by the columns it has. A marker's text is JSON in
``extdata``, not in ``name``.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from accelprof.contracts.spans import UNKNOWN, Clock, Kind, Origin, Trace
from accelprof.errors import ReadError
from accelprof.reading import sqlite
from accelprof.reading.kernels import kernel_kind
from accelprof.reading.numbers import identity
from accelprof_rocm.readers.building import CONTROL_NAMES, OPEN, Builder, call_kind, copy_name, launch_number

Row = Mapping[str, object]
#: views without which the file says nothing; others may be missing
NEEDED = ("kernels", "regions")
OPTIONAL = ("memory_copies",)
#: category of rows in ``regions`` -> kind; others are calls
MARKER = "MARKER"
LAUNCHING = ("HIP", "HSA")
GPU = "GPU"
HOST = {"python": Kind.OPERATOR, "user": Kind.RANGE, "host": Kind.OPERATOR}


class Nodes:
    """The nodes that a file is of: several where databases were merged. Then processes of two that have one number are two, and so
    are their devices.

    Attributes:
        names: by their host, with the machine's id where two hosts have one name.
    """

    def __init__(self, processes: Sequence[Row]) -> None:
        told = [
            (_place(row), (_text(row, "hostname"), _text(row, "machine_id") or _text(row, "nid"))) for row in processes
        ]
        hosts = Counter(host for host, _ in dict.fromkeys(node for _, node in told))
        called = {
            node: node[0] if hosts[node[0]] == 1 and node[0] else f"{node[0]} ({node[1]})".lstrip() for _, node in told
        }
        self.names = list(dict.fromkeys(called.values()))
        self._of = {place: called[node] for place, node in told}
        # where rows have less than a place: what all of the same guid, or of the same node, say
        for at in (0, 1):
            known: dict[object, set[str]] = {}
            for place, name in list(self._of.items()):
                known.setdefault(place[at], set()).add(name)
            self._of |= {
                (part, None) if at == 0 else (None, part): names.pop()
                for part, names in known.items()
                if part is not None and len(names) == 1
            }
        owners: dict[object, set[str]] = {}
        for row, (_, node) in zip(processes, told, strict=True):
            owners.setdefault(identity(row.get("pid")), set()).add(called[node])
        self._shared = {pid for pid, names in owners.items() if len(names) > 1}

    @property
    def several(self) -> bool:
        return len(self.names) > 1

    def owner(self, row: Row) -> dict[str, int | str]:
        """Process and thread of a row; a process has no number 0."""
        pid = identity(row.get("pid")) or UNKNOWN
        return {"pid": self._at(row, pid) if pid in self._shared else pid, "tid": identity(row.get("tid"))}

    def device(self, row: Row, side: str) -> int | str:
        """The device that a row names for its ``dst_`` or ``src_`` side, or its only one."""
        number = _device(row, side)
        return self._at(row, number) if self.several and number != UNKNOWN else number

    def _at(self, row: Row, number: int | str) -> int | str:
        guid, nid = _place(row)
        name = self._of.get((guid, nid)) or self._of.get((guid, None)) or self._of.get((None, nid))
        return UNKNOWN if name is None else f"{number} of {name}"


def _place(row: Row) -> tuple[object, object]:
    """Database and node that a row is of."""
    return row.get("guid"), row.get("nid")


def _text(row: Row, column: str) -> str:
    value = row.get(column)
    return "" if value is None else str(value)


def read(path: str, tool: str) -> Trace:
    return sqlite.read(path, "rocpd, an SQLite database", lambda connection: _read(connection, path, tool))


def _read(connection: sqlite3.Connection, path: str, tool: str) -> Trace:
    views = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('view', 'table')")}
    missing = [name for name in NEEDED if name not in views]
    if len(missing) == len(NEEDED):
        raise ReadError(
            path, f"no view {' and none '.join(NEEDED)}: not a rocpd database, or one that was not finished"
        )
    processes = list(_rows(connection, "processes")) if "processes" in views else []
    nodes = Nodes(processes)
    build = Builder(path, tool, Clock.RELATIVE if nodes.several else Clock.BOOTTIME)
    if nodes.several:
        line = "each has a clock of its own, so that times do not tell what was at once on two of them"
        build.trace.problems.append(f"several nodes in this file ({', '.join(nodes.names)}): {line}")
    build.trace.problems += [f"no view {name} in this file" for name in (*missing, *OPTIONAL) if name not in views]
    if "kernels" in views:
        _kernels(connection, build, nodes)
    if "memory_copies" in views:
        _copies(connection, build, nodes)
    if "regions" in views:
        _regions(connection, build, nodes)
    facts: dict[str, Any] = {"format": "rocpd"}
    if "rocpd_metadata" in views:
        facts.update(connection.execute("SELECT tag, value FROM rocpd_metadata"))
    trace = build.finish(facts)
    if len(processes) == 1:
        trace.origin = Origin(host=processes[0].get("hostname"), pid=processes[0].get("pid"))
    return trace


def _rows(connection: sqlite3.Connection, view: str) -> Iterator[dict[str, Any]]:
    for row in sqlite.rows(connection, view):
        yield {key.lower(): value for key, value in row.items()}


def _correlation(row: Row) -> int | str:
    """What a call and the work it launched share: the stack id; in some files only the correlation id is set."""
    return launch_number(row.get("stack_id") or row.get("corr_id"))


def _kernels(connection: sqlite3.Connection, build: Builder, nodes: Nodes) -> None:
    for row in _rows(connection, "kernels"):
        name = _name(row).removesuffix(".kd")
        queue = row.get("queue_id")
        stream = identity(row["stream_id"] if row.get("stream_id") is not None else queue)
        args = {"correlation": _correlation(row), "queue": queue, "dispatch": row.get("dispatch_id")}
        fields = {**nodes.owner(row), "device": nodes.device(row, ""), "stream": stream, "args": args}
        build.span(name, kernel_kind(name), row.get("start"), row.get("end"), f"kernels id {row.get('id')}", **fields)


def _copies(connection: sqlite3.Connection, build: Builder, nodes: Nodes) -> None:
    for row in _rows(connection, "memory_copies"):
        where = "dst_" if str(row.get("dst_agent_type", "")).upper() == GPU else "src_"
        stream = identity(row["stream_id"]) if row.get("stream_id") is not None else None
        args = {"correlation": _correlation(row), "bytes": row.get("size")}
        fields = {**nodes.owner(row), "device": nodes.device(row, where), "stream": stream, "args": args}
        place = f"memory_copies id {row.get('id')}"
        build.span(copy_name(_name(row)), Kind.COPY, row.get("start"), row.get("end"), place, **fields)


def _device(row: Row, side: str) -> int | str:
    """A GPU's number among the GPUs of its node."""
    for column in ("agent_type_index", "agent_log_index", "agent_abs_index"):
        if side + column in row:
            number, agent = identity(row[side + column]), str(row.get(f"{side}agent_type", GPU)).upper()
            return number if number == UNKNOWN or agent == GPU else f"cpu {number}" if agent == "CPU" else UNKNOWN
    return UNKNOWN


def _regions(connection: sqlite3.Connection, build: Builder, nodes: Nodes) -> None:
    for row in _rows(connection, "regions"):
        name, category = _name(row), row["category"] if isinstance(row.get("category"), str) else ""
        where = f"regions id {row.get('id')}"
        fields = nodes.owner(row)
        end = OPEN if "end" in row and row["end"] is None else row.get("end")
        called = name.startswith("roctx")
        if called or category.upper().startswith(MARKER) or "marker_api" in category.lower():
            message = _message(row.get("extdata"))
            if called and not message and name not in CONTROL_NAMES:
                build.lack("without the text of their range", where)
            # rocprof-sys names a range by its text and has no operation there
            operation = name if called else "roctxRange"
            build.marker(operation, message or name, row.get("start"), end, where, **fields)
            continue
        if not category:
            build.lack("do not say whether they are calls or ranges", where)
        kind = HOST.get(category.lower(), call_kind(name))
        correlation = _correlation(row)
        numbered = correlation != UNKNOWN or category.upper().startswith(
            LAUNCHING
        )  # calls of other libraries launch nothing
        args = {"correlation": correlation} if numbered else {}
        build.span(name, kind, row.get("start"), end, where, category=category, args=args, **fields)


def _name(row: Row) -> str:
    name = row.get("name")
    return name if isinstance(name, str) else ""


def _message(extdata: Any) -> str:
    if not extdata:
        return ""
    try:
        found = json.loads(extdata)
    except (TypeError, ValueError):
        return ""
    return str(found.get("message") or "") if isinstance(found, dict) else ""
