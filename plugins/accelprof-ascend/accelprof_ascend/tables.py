"""Readers of the CSV files of an analysis and of a cluster analysis.

Column names differ between versions of the tools, so columns are looked up by several names; text keeps its spelling.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from accelprof.contracts.spans import Span, Table, Trace
from accelprof.reading.gzipped import edges
from accelprof.reading.numbers import identity, whole_number
from accelprof_ascend import figures, kinds
from accelprof_ascend.csv_rows import column, rows
from accelprof_ascend.times import add_us, clock_of, counted, leave_out, ns_of_us

#: our name -> the columns of step_trace_time.csv and cluster_step_trace_time.csv, all in µs
STEP_COLUMNS: Mapping[str, str] = {
    "computing_ns": "Computing",
    "communication_not_overlapped_ns": "Communication(Not Overlapped)",
    "free_ns": "Free",
    "communication_ns": "Communication",
    "overlapped_ns": "Overlapped",
    "stage_ns": "Stage",
    "bubble_ns": "Bubble",
    "preparing_ns": "Preparing",
}
OPERATOR_COLUMNS: Mapping[str, str] = {
    "host_self_ns": "Host Self Duration(us)",
    "host_total_ns": "Host Total Duration(us)",
    "device_self_ns": "Device Self Duration(us)",
    "device_total_ns": "Device Total Duration(us)",
}


def read_kernel_details(path: str, tool: str = "npu") -> Trace:
    """``kernel_details.csv``: one span a row, ``args`` the whole row."""
    trace = Trace(source=path, tool=tool)
    bad: Counter[str] = Counter()
    for row in rows(path):
        name = column(row, "Name", "Op Name", "OP Name")
        try:
            start = ns_of_us(column(row, "Start Time(us)", "Task Start Time(us)"))
            length = ns_of_us(column(row, "Duration(us)", "Task Duration(us)"))
        except ValueError as error:
            bad[f"time {error}"] += 1
            continue
        if length < 0 or start <= 0:
            bad["negative duration" if length < 0 else "time no time"] += 1
            continue
        kind = kinds.device_kind(name, column(row, "Accelerator Core", "Task Type"))
        device = next((identity(row[name]) for name in ("Device_id", "Device Id") if name in row), "npu")
        category, stream = column(row, "Type", "OP Type"), column(row, "Stream ID", "Stream Id") or None
        span = Span(name, kind, start, start + length, category=category, device=device, stream=stream, args=row)
        trace.spans.append(span)
    leave_out(trace, bad, "row")
    if not trace.spans:
        trace.problems.append("the file holds no kernels")
    trace.clock = clock_of(span.start_ns for span in trace.spans)
    return trace


def step_times(path: str, problems: list[str]) -> list[dict[str, object]]:
    """Rows of a ``step_trace_time.csv``, or of the cluster's: ``step``, ``device`` or ``rank``, and times in ns.

    ``step`` is ``None`` where the column is empty; the cluster's file also has rows of type ``stage``, whose ``rank`` is
    the text of the stage.
    """
    found: list[dict[str, Any]] = []
    bad: Counter[str] = Counter()
    for row in rows(path):
        step, device, index = column(row, "Step"), column(row, "Device_id"), column(row, "Index")
        of = column(row, "Type") or "device"
        times: dict[str, Any] = {"step": None if step == "" else whole_number(step), "type": of}
        if device:
            times["device"] = whole_number(device)
        if index:
            times["rank"] = whole_number(index)
        add_us(times, row, STEP_COLUMNS, bad)
        found.append(times)
    problems.extend(counted(bad, "value"))
    return found


def read_step_times(path: str, tool: str = "npu") -> Trace:
    """``step_trace_time.csv`` and ``cluster_step_trace_time.csv``: sums without a place in time, so ``metadata["steps"]``."""
    trace = Trace(source=path, tool=tool)
    add_steps(trace, step_times(path, trace.problems))
    return trace


def add_steps(trace: Trace, steps: list[dict[str, Any]]) -> None:
    """Figures by step (and rank) of a ``step_trace_time.csv`` or of a database: into ``metadata["steps"]`` and a table."""
    trace.metadata["steps"] = steps
    where = [name for name in ("device", "rank") if any(name in row for row in steps)]
    columns = [name for name in STEP_COLUMNS if any(name in row for row in steps)]
    titles = (("step", ""), *((name, "") for name in where), *_titles(columns))
    rows = [(row["step"], *(row.get(name) for name in (*where, *columns))) for row in steps]
    note = "free: neither computing nor communicating; communication not overlapped: the device computes nothing meanwhile."
    trace.tables.append(Table("time by step, the vendor's sums", titles, rows, note))


def _titles(names: Iterable[str]) -> list[tuple[str, str]]:
    """Columns of a table for our names of times."""
    return [(name.removesuffix("_ns").replace("_", " "), "ns") for name in names]


def read_operator_details(path: str, tool: str = "npu") -> Trace:
    """``operator_details.csv`` summed by name into ``metadata["operators"]``: ``{name: {"count", "host_self_ns", …}}``."""
    trace = Trace(source=path, tool=tool)
    operators: dict[str, dict[str, int]] = {}
    bad: Counter[str] = Counter()
    for row in rows(path):
        mine = operators.setdefault(column(row, "Name"), {"count": 0, **dict.fromkeys(OPERATOR_COLUMNS, 0)})
        mine["count"] += 1
        add_us(mine, {theirs: row.get(theirs) for theirs in OPERATOR_COLUMNS.values()}, OPERATOR_COLUMNS, bad)
    trace.metadata["operators"] = operators
    titles = (("operator", ""), ("calls", "count"), *_titles(OPERATOR_COLUMNS))
    by_device = sorted(operators.items(), key=lambda item: -item[1]["device_self_ns"])
    trace.tables.append(Table("operators", titles, [(name, *row.values()) for name, row in by_device]))
    trace.problems.extend(counted(bad, "value"))
    return trace


#: name -> the function that reads it, and columns of which it has one
READERS: Sequence[tuple[re.Pattern[str], object, tuple[str, ...]]] = (
    (re.compile(r"step_trace_time\.csv$"), read_step_times, ("Step", "Computing")),
    (re.compile(r"kernel_details\w*\.csv$"), read_kernel_details, ("Start Time(us)",)),
    (re.compile(r"operator_details\.csv$"), read_operator_details, ("Duration(us)",)),
    (re.compile(r"operator_memory\w*\.csv$"), figures.read_operator_memory, ("(KB)", "(us)")),
    (re.compile(r"memory_record\w*\.csv$"), figures.read_memory_record, ("Component", "Timestamp(us)")),
)


def reader(path: str) -> Any | None:
    """The function that reads this CSV, by its name; a file of that name with another tool's columns is left to that one."""
    name = os.path.basename(path)
    function, known = next((row[1:] for row in READERS if row[0].search(name)), (None, ()))
    if function is None or not os.path.isfile(path):
        return function
    head, _ = edges(path)
    return function if any(column.encode() in head for column in known) or b"," not in head else None
