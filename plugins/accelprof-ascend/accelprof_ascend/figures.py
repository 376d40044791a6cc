"""Readers of files whose numbers have no place in time: memory by component and operator, collectives by step and link.

They become tables (:class:`accelprof.contracts.spans.Table`), summed as the vendor's own tools sum them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from accelprof.contracts.spans import Table, Trace
from accelprof.errors import ReadError
from accelprof.reading.lenient import fraction
from accelprof.reading.numbers import whole_number
from accelprof_ascend.csv_rows import Row, column, rows
from accelprof_ascend.times import leave_out, ns_of_us, whole

KIB, MIB = 1 << 10, 1 << 20
#: the group's sum in communication.json
TOTAL = "Total Op Info"
TIMES: Mapping[str, str] = {
    "elapsed": "Elapse Time(ms)",
    "transit": "Transit Time(ms)",
    "wait": "Wait Time(ms)",
    "synchronization": "Synchronization Time(ms)",
    "idle": "Idle Time(ms)",
}
#: ``hcom_allReduce__629_0_1@group`` and ``allreduce-top1@…`` are calls of one collective
_CALL = re.compile(r"(?:__\d.*|-(?:top|middle|bottom|total)\d*)?(?:@.*)?$")


# --- memory ---------------------------------------------------------------------------------------------------------------


def read_memory_record(path: str, tool: str = "npu") -> Trace:
    """``memory_record.csv``: what each component (torch's allocator, GE, the whole process) holds over time, and its peaks.

    ``metadata["memory"]`` has the whole course: ``{(component, device): [(time_ns, allocated, reserved, active), …]}`` in bytes.
    """
    trace = Trace(path, tool)
    course: dict[tuple[str, str], list[tuple[int, int | None, int | None, int | None]]] = {}
    bad: Counter[str] = Counter()
    for row in rows(path):
        try:
            at = ns_of_us(column(row, "Timestamp(us)"))
        except ValueError as error:
            bad[f"time {error}"] += 1
            continue
        held = tuple(_bytes(row, f"Total {name}", bad) for name in ("Allocated", "Reserved", "Active"))
        course.setdefault((column(row, "Component"), column(row, "Device Type", "Device")), []).append((at, *held))  # type: ignore[arg-type]
    for values in course.values():
        values.sort(key=lambda value: value[0])
    trace.metadata["memory"] = course
    trace.tables.append(_peaks(course))
    leave_out(trace, bad, "value")
    return trace


def _peaks(course: Mapping[tuple[str, str], list[Any]]) -> Table:
    first = min((values[0][0] for values in course.values()), default=0)
    found = []
    for (component, device), values in course.items():
        peaks = [max((value[at] for value in values if value[at] is not None), default=None) for at in (1, 2, 3)]
        when = next((value[0] - first for value in values if value[2] == peaks[1] and peaks[1] is not None), None)
        found.append((component, device, *peaks, when, values[-1][2], len(values)))
    columns = (
        ("component", ""), ("device", ""), ("allocated", "bytes"), ("reserved", "bytes"), ("active", "bytes"),
        ("reserved peak at", "ns"), ("reserved at the end", "bytes"), ("records", "count"),
    )  # fmt: skip
    return Table("memory: peaks by component", columns, sorted(found, key=lambda row: -(row[3] or 0)))


@dataclass
class _Operator:
    count: int = 0
    size: int = 0
    largest: int = 0
    held: int = 0
    held_bytes: int = 0
    longest: int | None = None


def read_operator_memory(path: str, tool: str = "npu") -> Trace:
    """``operator_memory.csv``: allocations by operator; an allocation without a release is still held when the window ends."""
    trace = Trace(path, tool)
    found: dict[tuple[str, str], _Operator] = {}
    bad: Counter[str] = Counter()
    for row in rows(path):
        size = _bytes(row, "Size", bad)
        if size is None:
            continue
        mine = found.setdefault((column(row, "Name"), column(row, "Device Type")), _Operator())
        mine.count += 1
        mine.size += size
        mine.largest = max(mine.largest, size)
        if not _number(column(row, "Release Time(us)")):
            mine.held += 1
            mine.held_bytes += size
        length = column(row, "Duration(us)")
        if _number(length):
            try:
                mine.longest = max(mine.longest or 0, ns_of_us(length))
            except ValueError as error:
                bad[f"Duration(us) {error}"] += 1
    columns = (
        ("operator", ""), ("device", ""), ("allocations", "count"), ("bytes", "bytes"), ("largest", "bytes"),
        ("not released", "count"), ("bytes not released", "bytes"), ("longest held", "ns"),
    )  # fmt: skip
    largest_first = sorted(found.items(), key=lambda item: -item[1].size)
    lines = [
        (*key, one.count, one.size, one.largest, one.held, one.held_bytes, one.longest) for key, one in largest_first
    ]
    trace.tables.append(Table("memory by operator", columns, lines))
    leave_out(trace, bad, "value")
    return trace


def _number(text: str) -> bool:
    return bool(text) and text.casefold() not in ("n/a", "null", "none")


def _bytes(row: Row, name: str, bad: Counter[str]) -> int | None:
    """A size that stands in KB, MB or bytes, by the column's own unit; the vendor's KB are 1024."""
    for unit, size in (("KB", KIB), ("MB", MIB), ("B", 1)):
        text = row.get(f"{name}({unit})")
        if text is not None and _number(text):
            try:
                return whole(text, size)
            except ValueError as error:
                bad[f"{name} {error}"] += 1
    return None


# --- collectives ----------------------------------------------------------------------------------------------------------


def read_communication(path: str, tool: str = "npu") -> Trace:
    """``communication.json`` (one rank's, or the cluster's): collectives summed by operation and by link.

    ``metadata["communication"]`` is the file as it is. The vendor's own sum, where it stands in the file, is not counted again.
    """
    trace = Trace(path, tool)
    content = load(path)
    trace.metadata["communication"] = content
    times: dict[tuple[str, ...], dict[str, int]] = {}
    links: dict[tuple[str, ...], list[int]] = {}
    bad: Counter[str] = Counter()
    for place, operation, info in _operations(content):
        _add_times(times.setdefault((*place, _CALL.sub("", operation) or operation), {"calls": 0}), info, bad)
        for link, figures in _mapping(info.get("Communication Bandwidth Info")).items():
            mine = links.setdefault((*place, str(link)), [0, 0])
            for at, (key, factor) in enumerate((("Transit Size(MB)", 10**6), ("Transit Time(ms)", 10**6))):
                mine[at] += _figure(_mapping(figures).get(key), factor, bad)
    names = ("step", "kind", "rank")[: max((len(key) - 1 for key in times), default=0)]
    trace.tables += [
        Table(
            "collectives by operation",
            (*((name, "") for name in names), ("operation", ""), ("calls", "count"), *((name, "ns") for name in TIMES)),
            [(*key, row["calls"], *(row.get(name, 0) for name in TIMES)) for key, row in times.items()],
        ),
        Table(
            "collectives by link",
            (*((name, "") for name in names), ("link", ""), ("size", "bytes"), ("transit", "ns"), ("GB/s", "")),
            [
                (*key, size, transit, f"{size / transit:.4g}" if transit else None)
                for key, (size, transit) in links.items()
                if size or transit
            ],
            "The vendor's MB are 10^6 bytes here, as in its GB/s. SDMA sums the links it uses (HCCS, PCIE, SIO).",
        ),
    ]
    leave_out(trace, bad, "value")
    return trace


def load(path: str) -> Any:
    """A JSON file with its numbers as they are written.

    Raises:
        ReadError: it is not there, or is no JSON.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file, parse_float=fraction)
    except (OSError, ValueError) as error:
        raise ReadError(path, str(error)) from error


def _operations(content: object) -> Any:
    """``((step, kind[, rank]), operation, figures)``: one rank's file is step, kind, operation; the cluster's has ranks inside.

    A cluster's file is kind (or group), step, operation, rank in some releases; what holds the times is found by its key.
    """

    def walk(value: object, path: tuple[str, ...]) -> Any:
        if not isinstance(value, Mapping):
            return
        if "Communication Time Info" in value or "Communication Bandwidth Info" in value:
            if TOTAL not in path and len(path) >= 1:
                *place, last = path
                rank = place and isinstance(whole_number(last), int)
                operation = place.pop() if rank else last
                yield ((*place, last) if rank else tuple(place)), operation, value
            return
        for name, inner in value.items():
            yield from walk(inner, (*path, str(name)))

    return walk(content, ())


def _add_times(row: dict[str, int], info: Mapping[str, Any], bad: Counter[str]) -> None:
    row["calls"] += 1
    figures = _mapping(info.get("Communication Time Info"))
    for name, key in TIMES.items():
        row[name] = row.get(name, 0) + _figure(figures.get(key), 10**6, bad)


def _figure(value: object, factor: int, bad: Counter[str]) -> int:
    if value is None:
        return 0
    try:
        return whole(value, factor)
    except ValueError as error:
        bad[f"figure {error}"] += 1
        return 0


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
