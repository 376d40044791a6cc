"""rocprofv3's CSV files, by header name: columns come and go between releases. In the marker file ``Function`` is the message.

The kernel file's reader takes the other files of the same process along, so that one recording is one trace; any other file
is read by itself.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from accelprof.contracts.spans import UNKNOWN, Kind, Origin, Trace
from accelprof.errors import ReadError
from accelprof.reading.kernels import kernel_kind
from accelprof.reading.numbers import identity, identity_in, whole_number
from accelprof_rocm.artifacts import CSV_LEADS, csv_stem
from accelprof_rocm.readers.building import MARK_NAMES, Builder, call_kind, copy_name, launch_number
from accelprof_rocm.readers.packed import content

#: columns by which a file is known
SHAPES = (
    frozenset({"Kernel_Name", "Start_Timestamp", "End_Timestamp"}),
    frozenset({"Domain", "Function", "Start_Timestamp", "End_Timestamp"}),
    frozenset({"Kind", "Direction", "Start_Timestamp", "End_Timestamp"}),
)
TOGETHER = ("marker_api_trace", "hip_api_trace", "hsa_api_trace", "rccl_api_trace", "memory_copy_trace")
_NUMBER = re.compile(r"([0-9]+)$")
#: an agent by its node's number, ``4`` or ``Agent 4`` (from 7.0), or by its kind's (``--agent-index=type-relative``)
_AGENT = re.compile(r"(?:Agent[ _])?([0-9]+)", re.IGNORECASE)
_OF_KIND = re.compile(r"(GPU|CPU)[ _]([0-9]+)", re.IGNORECASE)
#: domains of ROCTX records; their names begin so in every release
MARKER = "MARKER"
CONTROL = "MARKER_CONTROL"
Row = Mapping[str, str]


def read(path: str, tool: str) -> Trace:
    build = Builder(path, tool)
    stem = csv_stem(path)
    devices = _agents(f"{stem}_agent_info.csv")
    # a kernel's row has no process: it is in the host calls of the same recording, or in the name
    pid = _pid(path, stem)
    files = [path]
    if path.endswith(CSV_LEADS[0]):
        files += [name for name in (f"{stem}_{part}.csv" for part in TOGETHER) if os.path.exists(name)]
    for name in files:
        _read_one(name, build, devices, pid)
    facts = {"format": "rocprofv3 csv", "files": [os.path.basename(name) for name in files]}
    trace = build.finish(facts)
    trace.origin = Origin(pid=pid or None)
    return trace


def _pid(path: str, stem: str) -> int:
    for name in (path, *(f"{stem}_{part}.csv" for part in TOGETHER)):
        if os.path.exists(name):
            for _, row in _rows(name):
                if "Process_Id" not in row:
                    break
                if isinstance(owner := identity(row["Process_Id"]), int) and owner:
                    return owner
    match = _NUMBER.search(os.path.basename(stem))
    found = whole_number(match[1]) if match else 0
    return found if isinstance(found, int) else 0


def _rows(path: str) -> Iterator[tuple[int, Row]]:
    text = content(path).decode("utf-8", "replace")
    try:
        reader = csv.DictReader(text.splitlines(keepends=True))
        for row in reader:
            known = {key: value or "" for key, value in row.items() if key is not None and not isinstance(value, list)}
            yield reader.line_num, known
    except csv.Error as error:
        raise ReadError(path, f"line {reader.line_num}: {error}") from None


def _agents(path: str) -> dict[str, int | str]:
    """Agent as the other files name it -> GPU number among the GPUs."""
    if not os.path.exists(path):
        return {}
    found: dict[str, int | str] = {}
    gpus = 0
    for _, row in sorted(_rows(path), key=lambda item: _order(item[1].get("Node_Id") or "0")):
        node, agent = row.get("Node_Id", ""), row.get("Agent_Type", "").upper()
        if agent == "GPU":
            found[node] = identity(row["Logical_Node_Type_Id"]) if "Logical_Node_Type_Id" in row else gpus
            gpus += 1
        else:
            found[node] = f"cpu {node}" if agent == "CPU" else UNKNOWN
    return found


def _order(node: str) -> tuple[int, str]:
    """Nodes by number, those without one behind."""
    known = whole_number(node)
    return (known, "") if isinstance(known, int) else (1 << 62, node)


def _device(text: str, devices: Mapping[str, int | str]) -> int | str:
    """The GPU's number where the agent file is there, else the agent's; unknown where neither says it."""
    of_kind = _OF_KIND.fullmatch(text.strip())
    if of_kind is not None:
        return identity(of_kind[2]) if of_kind[1].upper() == "GPU" else f"cpu {of_kind[2]}"
    match = _AGENT.fullmatch(text.strip())
    if match is None:
        return UNKNOWN
    return devices.get(match[1], UNKNOWN) if devices else identity(match[1])


def _read_one(path: str, build: Builder, devices: Mapping[str, int | str], pid: int) -> None:
    name = os.path.basename(path)
    seen = 0
    for line, row in _rows(path):
        seen += 1
        where = f"{name} line {line}"
        start, end = row.get("Start_Timestamp", ""), row.get("End_Timestamp", "")
        told = identity(row.get("Process_Id"))
        owner = told if isinstance(told, int) and told else pid
        fields: dict[str, Any] = {"pid": owner, "tid": identity_in(row, "Thread_Id") or 0}
        args = {"correlation": launch_number(row["Correlation_Id"]) if "Correlation_Id" in row else None}
        if "Kernel_Name" in row:
            kernel = row["Kernel_Name"].removesuffix(".kd")
            queue = identity_in(row, "Queue_Id")
            fields["stream"] = identity_in(row, "Stream_Id") if "Stream_Id" in row else queue
            fields.update(device=_device(row.get("Agent_Id", ""), devices), args={**args, "queue": queue})
            build.span(kernel, kernel_kind(kernel), start, end, where, **fields)
        elif "Direction" in row:
            ends = [_device(row.get(key, ""), devices) for key in ("Destination_Agent_Id", "Source_Agent_Id")]
            device = next((one for one in ends if isinstance(one, int)), UNKNOWN if UNKNOWN in ends else ends[0])
            fields.update(device=device, stream=identity_in(row, "Stream_Id"), args=args)
            build.span(copy_name(row["Direction"]), Kind.COPY, start, end, where, **fields)
        elif row.get("Domain", "").startswith(MARKER):
            _marker(row, start, end, where, build, fields)
        else:
            if "API" not in row.get("Domain", ""):
                build.lack("do not say whether they are calls or ranges", where)
            function = row.get("Function", "")
            fields.update(category=row.get("Domain", ""), args=args)
            build.span(function, call_kind(function), start, end, where, **fields)
    if not seen:
        build.trace.problems.append(f"{name}: a header and no records")


def _marker(row: Row, start: str, end: str, where: str, build: Builder, fields: Mapping[str, object]) -> None:
    """A range has a length and a mark has none: the operation's own name is not in this file."""
    message = row.get("Function", "")
    if row["Domain"].startswith(CONTROL):
        build.marker(message, message, start, end, where, **fields)
        return
    build.marker(MARK_NAMES[1] if start == end else "roctxRange", message, start, end, where, **fields)
