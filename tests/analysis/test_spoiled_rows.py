"""One cell of one row spoiled: work of a device is in the figures as it was, or the file says what of it is not."""

from __future__ import annotations

import copy
import csv
import itertools
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from accelprof.analysis.attribution import attribute
from accelprof.analysis.reading import load_any
from accelprof.catalogue import get_catalogue
from accelprof.cli.main import cli
from accelprof.contracts.spans import DEVICE_WORK, Clock, Kind, Span, Trace
from accelprof.errors import ReadError
from accelprof.reading.columns import columns_of
from tests.fuzz.files import module_of, seeds

#: what is no number of a device, process, thread or call, nor a time
ODD = ("NULL", "'text'", "-1", "1.5", "''", "x'00ff'", "1e300")
#: the same in text
ODD_TEXT = ("", "text", "-1", "1.5", "N/A", "1e300", "\u0663")
#: columns that may hold any text, whose NULL alone says that something is missing
TEXTS = frozenset(
    {
        "name",
        "value",
        "text",
        "extdata",
        "category",
        "copyKind",
        "agent_type",
        "src_agent_type",
        "taskType",
        "message",
        "opName",
    }
)
#: what may be empty in a whole file: work that nobody's number launched, sizes, second places of what stands elsewhere too
MAY_LACK = frozenset({
    "connectionId", "corr_id", "id", "guid", "bytes", "size", "copyKind", "shortName", "dispatch_id", "queue_id", "event_id", "extdata",
    "agent_abs_index", "agent_log_index", "dst_agent_type_index", "dst_agent_type", "domainId", "globalPid", "contextId", "taskId",
    "modelId", "opType", "groupName", "Step Id", "Task ID", "Wait Time(us)", "Kind", "Dispatch_Id", "Kernel_Id", "Queue_Id", "Type",
})  # fmt: skip


def figures(path: Path, tool: str) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]], bool]:
    """Work as it counts, phases with their kernels, and whether the file is said to be whole."""
    trace = load_any(str(path), tool).trace()
    columns, found = columns_of(trace), attribute(trace)
    work = [columns.span(row) for row in columns.work()]
    assert len(work) == int(columns.mask(*DEVICE_WORK).sum()), "work that is on no device counts nowhere"
    kernels = sum(row.own_kernels for row in found.phases) + found.unattributed + found.unlaunched
    assert kernels == found.kernels
    return (
        sorted((one.kind.value, one.start_ns, one.end_ns, str(one.device)) for one in work),
        sorted((row.name, row.kernels, row.own_kernels) for row in found.phases),
        trace.completeness.complete,
    )


def an_export(place: Path) -> Path:
    path = place / "n.sqlite"
    module_of("plugins/accelprof-cuda/tests/test_nsys_reader.py").small_export(path)
    return path


def a_rocpd(place: Path) -> Path:
    path = place / "41_results.db"
    module_of("plugins/accelprof-rocm/tests/test_rocm_readers.py").rocpd(path)
    return path


def an_ascend_database(place: Path) -> Path:
    path = place / "ascend_pytorch_profiler_1.db"
    module_of("plugins/accelprof-ascend/tests/test_ascend_readers.py").make_database(path)
    return path


#: format -> tool, maker, tables that hold device work, what launched it or what it is called
DATABASES: dict[str, tuple[str, Callable[[Path], Path], tuple[str, ...]]] = {
    "nsys": (
        "nsys", an_export,
        ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"),
    ),
    "rocpd": ("rocprofv3", a_rocpd, ("rocpd_kernels_ab12", "rocpd_memory_copies_ab12", "rocpd_regions_ab12")),
    "ascend": (
        "npu", an_ascend_database,
        ("TASK", "COMPUTE_TASK_INFO", "COMMUNICATION_OP", "MSTX_EVENTS", "PYTORCH_API", "STRING_IDS"),
    ),
}  # fmt: skip


def skip_without(tool: str) -> None:
    if tool not in get_catalogue().tool_names():
        pytest.skip(f"no tool {tool}: its distribution is not installed")


def cells(database: sqlite3.Connection, table: str) -> Iterator[tuple[str, int, str]]:
    """What to set where: column, row, expression."""
    columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
    rows = database.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]
    for row in range(1, rows + 1):
        for column in columns:
            if column not in MAY_LACK or (column in ("globalPid", "dst_agent_type_index") and "KIND" in table):
                values = ODD[:1] if column in TEXTS else ODD
                # a time of an export counts from the capture's start, and may lie before it
                yield from ((column, row, odd) for odd in values if odd != "-1" or column not in ("start", "end"))
        for start, end in (("start", "end"), ("startNs", "endNs")):
            if start in columns:
                yield f'{start}" = "{end}", "{end}', row, f'"{start}"'


@pytest.mark.parametrize("kind", DATABASES)
def test_a_cell_of_a_database(tmp_path: Path, kind: str) -> None:
    """NULL, text, a negative number, a fraction, bytes, an endless number, or two times in each other's place."""
    tool, make, tables = DATABASES[kind]
    skip_without(tool)
    good = make(tmp_path)
    work, phases, whole = figures(good, tool)
    assert whole
    assert work
    assert phases
    path = tmp_path / "spoiled" / good.name
    path.parent.mkdir()
    unsaid = []
    with closing(sqlite3.connect(good)) as database:
        asked = [(table, *cell) for table in tables for cell in cells(database, table)]
    assert len(asked) > 100
    for table, column, row, odd in asked:
        shutil.copy(good, path)
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(f'UPDATE "{table}" SET "{column}" = {odd} WHERE rowid = {row}')
        found = figures(path, tool)
        if found != (work, phases, True) and found[2]:
            unsaid.append((table, row, column, odd))
    assert unsaid == []


def a_recording(place: Path) -> Path:
    """rocprofv3's CSV files of one process: a kernel, a collective and a copy in a range, with their launches."""
    rocm = module_of("plugins/accelprof-rocm/tests/test_rocm_readers.py")
    base = rocm.BOOT
    place.mkdir()
    stem = str(place / "g-r0-h-41")
    kernel = {
        "Kind": "KERNEL_DISPATCH", "Agent_Id": "Agent 4", "Queue_Id": 3, "Stream_Id": 8, "Thread_Id": 11, "Kernel_Name": "gemm",
        "Correlation_Id": 5, "Start_Timestamp": base + 50, "End_Timestamp": base + 80,
    }  # fmt: skip
    other = {
        "Kernel_Name": "ncclAllReduce",
        "Start_Timestamp": base + 82,
        "End_Timestamp": base + 90,
        "Correlation_Id": 6,
    }
    rocm.write_csv(Path(f"{stem}_kernel_trace.csv"), rocm.KERNEL_70, [kernel, kernel | other])
    copy = {
        "Kind": "MEMORY_COPY", "Direction": "MEMORY_COPY_HOST_TO_DEVICE", "Stream_Id": 8, "Source_Agent_Id": "Agent 0",
        "Destination_Agent_Id": "Agent 4", "Correlation_Id": 7, "Start_Timestamp": base + 60, "End_Timestamp": base + 70,
    }  # fmt: skip
    rocm.write_csv(Path(f"{stem}_memory_copy_trace.csv"), list(copy), [copy])
    marker = {
        "Domain": "MARKER_CORE_RANGE_API",
        "Function": "actor/update",
        "Process_Id": 41,
        "Thread_Id": 11,
        "Start_Timestamp": base + 10,
        "End_Timestamp": base + 95,
    }
    rocm.write_csv(Path(f"{stem}_marker_api_trace.csv"), rocm.CALL, [marker])
    calls = [
        {"Domain": "HIP_RUNTIME_API", "Function": "hipLaunchKernel", "Process_Id": 41, "Thread_Id": 11, "Correlation_Id": number, "Start_Timestamp": base + 20 + number, "End_Timestamp": base + 21 + number}
        for number in (5, 6, 7)
    ]  # fmt: skip
    rocm.write_csv(Path(f"{stem}_hip_api_trace.csv"), rocm.CALL, calls)
    agents = ["Node_Id", "Agent_Type", "Logical_Node_Type_Id"]
    rows = [dict(zip(agents, row, strict=True)) for row in ((0, "CPU", 0), (4, "GPU", 1))]
    rocm.write_csv(Path(f"{stem}_agent_info.csv"), agents, rows)
    return Path(f"{stem}_kernel_trace.csv")


def kernel_details(place: Path) -> Path:
    """Ascend's table of kernels: a kernel, a collective and a copy."""
    place.mkdir()
    path = place / "kernel_details.csv"
    head = "Step Id,Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Stream ID,Task ID"
    rows = [
        "7,3,MatMul,MatMul,AI_CORE,1704161511420289.011\t,10.5,1.0,2,7",
        "7,3,hcom_allReduce_,,COMMUNICATION,1704161511420309.011\t,10.5,1.0,2,8",
        "7,3,MEMCPY,,SDMA,1704161511420329.011\t,10.5,1.0,2,8",
    ]
    path.write_text("\n".join([head, *rows]) + "\n")
    return path


#: columns of CSV files whose values are numbers
NUMBERS = frozenset({
    "Agent_Id", "Stream_Id", "Correlation_Id", "Start_Timestamp", "End_Timestamp", "Source_Agent_Id", "Destination_Agent_Id", "Node_Id",
    "Logical_Node_Type_Id", "Device_id",
})  # fmt: skip
NAMED = frozenset(
    {"Kernel_Name", "Function", "Domain", "Agent_Type", "Direction", "Name", "Start Time(us)", "Duration(us)"}
)


@pytest.mark.parametrize(("tool", "make"), [("rocprofv3", a_recording), ("npu", kernel_details)])
def test_a_cell_of_csv_files(tmp_path: Path, tool: str, make: Callable[[Path], Path]) -> None:
    """The same in text: an agent ``1.5`` or ``-1`` is no device 5 or 1."""
    skip_without(tool)
    good = make(tmp_path / "good")
    work, phases, whole = figures(good, tool)
    assert whole
    assert len(work) == 3
    unsaid = []
    for file in sorted(good.parent.iterdir()):
        with file.open(newline="") as stream:
            rows = list(csv.reader(stream))
        for number, column in ((r, c) for r in range(1, len(rows)) for c in range(len(rows[0]))):
            name = rows[0][column]
            for odd in ODD_TEXT if name in NUMBERS else ODD_TEXT[:1] if name in NAMED else ():
                if tool == "npu" and name == "Name" and odd:
                    continue
                place = tmp_path / "spoiled"
                shutil.copytree(good.parent, place)
                spoiled = [list(row) for row in rows]
                spoiled[number][column] = odd
                with (place / file.name).open("w", newline="") as stream:
                    csv.writer(stream).writerows(spoiled)
                found = figures(place / good.name, tool)
                if found != (work, phases, True) and found[2]:
                    unsaid.append((file.name, number, name, odd))
                shutil.rmtree(place)
    assert unsaid == []


def leaves(value: object, place: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from leaves(inner, (*place, key))
    if not isinstance(value, (dict, list)):
        yield place


def a_kineto_trace() -> dict[str, Any]:
    """Two threads with a range each, an operator, launches, and work of each kind, a kernel that nobody launched among it."""
    host = {"ph": "X", "pid": 41}

    def launch(number: int, at: float, tid: int = 41, name: str = "cudaLaunchKernel") -> dict[str, Any]:
        return {
            **host,
            "cat": "cuda_runtime",
            "name": name,
            "tid": tid,
            "ts": at,
            "dur": 1,
            "args": {"correlation": number, "cbid": 211},
        }

    def work(number: int, at: float, cat: str = "kernel", name: str = "gemm", stream: int = 7) -> dict[str, Any]:
        args = {"device": 0, "stream": stream, "correlation": number, "grid": [1, 2, 3]}
        return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": stream, "ts": at, "dur": 4.125, "args": args}

    events = [
        {"ph": "M", "name": "process_name", "pid": 41, "tid": 0, "ts": 0, "args": {"name": "python"}},
        {"ph": "M", "name": "thread_name", "pid": 41, "tid": 41, "ts": 0, "args": {"name": "thread 41 (python)"}},
        {**host, "cat": "user_annotation", "name": "ProfilerStep#3", "tid": 41, "ts": 10.25, "dur": 120.0, "args": {}},
        {**host, "cat": "user_annotation", "name": "actor/update", "tid": 41, "ts": 10.5, "dur": 100.0, "args": {"External id": 1}},
        {**host, "cat": "user_annotation", "name": "ref/logp", "tid": 42, "ts": 130.0, "dur": 50.0, "args": {}},
        {**host, "cat": "cpu_op", "name": "aten::mm", "tid": 41, "ts": 12, "dur": 20, "args": {"External id": 2}},
        launch(1, 13), launch(2, 20), launch(3, 40, name="cudaMemcpyAsync"), launch(4, 135, 42), launch(5, 136, 42, "cudaMemsetAsync"),
        work(1, 22), work(2, 30, name="ncclDevKernel_AllReduce", stream=20), work(3, 50, "gpu_memcpy", "Memcpy HtoD"), work(4, 140),
        work(5, 150, "gpu_memset", "Memset"), work(6, 160),
        {"ph": "X", "cat": "gpu_user_annotation", "name": "actor/update", "pid": 0, "tid": 7, "ts": 22, "dur": 30, "args": {}},
        {"ph": "s", "id": 1, "cat": "ac2g", "name": "ac2g", "pid": 41, "tid": 41, "ts": 13},
        {"ph": "f", "id": 1, "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 7, "ts": 22, "bp": "e"},
    ]  # fmt: skip
    return {"schemaVersion": 1, "baseTimeNanoseconds": 1_795_852_566_000_000_000, "traceEvents": events}


def a_unitrace() -> dict[str, Any]:
    """Two kernels and a copy; a launch has an arrow to its kernel."""
    events = module_of("plugins/accelprof-xpu/tests/test_xpu_tools.py").EVENTS[:-1]
    gemm = next(event for event in events if event["name"].startswith("gemm"))
    return {"traceEvents": [*events, {**gemm, "ts": "1795887644999000.000", "name": "other", "args": {"id": "9"}}]}


#: format -> file's name, tool, maker
VALUES: dict[str, tuple[str, str, Callable[[], Any]]] = {
    "torch": ("t.pt.trace.json", "torch", a_kineto_trace),
    "timeline": ("w.timeline.json", "trace", lambda: json.loads(seeds()["timeline"][2])),
    "unitrace": ("python.41.json", "unitrace", a_unitrace),
    "ascend view": ("trace_view.json", "npu", lambda: json.loads(seeds()["ascend view"][2])),
    "rocprofv3 json": ("41_results.json", "rocprofv3", lambda: json.loads(seeds()["rocprofv3 json"][2])),
}
GONE = object()
ODD_VALUES = (GONE, None, "", "text", -1, 1.5, True, [], [1], {"a": 1}, 1e300, 2**70, "NaN")
#: any text is a name; other numbers in place of a time are times
NAMES = ("name", "window", "value", "formatted_kernel_name", "demangled_kernel_name", "kernel_name", "product_name", "message", "hostname", "command")  # fmt: skip
TIMES = ("ts", "dur")


def spoiled(good: Any) -> Iterator[tuple[tuple[object, ...], object, Any]]:
    """Each value in turn gone, or each of the odd ones: where, what, and the file."""
    for *place, last in leaves(good):
        for odd in ODD_VALUES:
            if (last in NAMES and isinstance(odd, str) and odd) or (last in TIMES and odd == 1.5):
                continue
            data = copy.deepcopy(good)
            at = data
            for key in place:
                at = at[key]
            if odd is not GONE:
                at[last] = odd
            elif isinstance(at, dict):
                del at[last]
            yield (*place, last), odd, data


@pytest.mark.parametrize("kind", VALUES)
def test_a_value_of_a_json_file(tmp_path: Path, kind: str) -> None:
    """Gone, null, of another type, negative or endless: no work is lost, on another device, in another phase or of another kind
    without a word."""
    name, tool, make = VALUES[kind]
    skip_without(tool)
    good = make()
    path = tmp_path / name
    path.write_text(json.dumps(good))
    before = figures(path, tool)
    assert before[2]
    assert before[0] or kind == "timeline"
    unsaid = []
    asked = list(spoiled(good))
    assert len(asked) > 200
    for place, odd, data in asked:
        path.write_text(json.dumps(data))
        try:
            found = figures(path, tool)
        except ReadError:
            continue
        if found == before or not found[2] or place[-1] == "baseTimeNanoseconds":
            continue
        if not any("is not known" in line for line in load_any(str(path), tool).trace().problems):
            unsaid.append((place, odd))
    assert unsaid == []


@pytest.mark.parametrize("odd", [None, "", "text", -1, 1.5, True, [1], 1e300, 2**70])
def test_a_base_that_is_none_is_said(tmp_path: Path, odd: object) -> None:
    """The times count from 0 then, which the file says; no length changes."""
    path = tmp_path / "t.pt.trace.json"
    path.write_text(json.dumps({**a_kineto_trace(), "baseTimeNanoseconds": odd}))
    trace = load_any(str(path), "torch").trace()
    assert columns_of(trace).start.min() == 10_250
    assert "baseTimeNanoseconds that is no time" in trace.completeness.repaired
    assert trace.clock is Clock.RELATIVE


def spans_of_a_reader() -> list[Span]:
    """As a third party's reader yields them: two threads with a range each, launches and kernels."""
    spans = [Span("p", Kind.PHASE, 100, 200, 1, 1), Span("q", Kind.RANGE, 300, 400, 1, 2)]
    for number, (at, thread) in enumerate(((110, 1), (120, 1), (310, 2)), 1):
        args = {"correlation": number}
        spans.append(Span("launch", Kind.RUNTIME, at, at + 1, 1, thread, args=args))
        spans.append(Span("k", Kind.KERNEL, at + 200, at + 205, 1, 7, device=0, stream=7, args=args))
    return spans


def of_spans(spans: list[Span]) -> tuple[object, bool]:
    """Kernels with their devices and phases with their kernels, and whether the trace is said to be whole."""
    trace = Trace("x", "other", spans=spans)
    columns, found = columns_of(trace), attribute(trace)
    devices = sorted(str(columns.devices[columns.device[row]]) for row in columns.work())
    return (
        devices,
        sorted((row.name, row.kernels, row.own_kernels) for row in found.phases),
    ), trace.completeness.complete


@pytest.mark.parametrize("field", ["name", "pid", "tid", "device", "stream", "correlation", "start_ns", "end_ns"])
def test_a_field_of_a_span(field: str) -> None:
    """A list of spans passes the same door: what is no name, number or time is counted, whoever wrote the reader."""
    good, whole = of_spans(spans_of_a_reader())
    assert whole
    odd: list[Any] = [None, "", -1, 1.5, True, [], {}, float("nan"), float("inf"), 2**70, "unknown"]
    if field.endswith("_ns"):
        odd = [value for value in odd if value is not True and value != -1]  # which are times
    if field == "name":
        odd.remove("unknown")  # which is one
    for at, value in itertools.product(range(8), odd):
        spans = spans_of_a_reader()
        one = spans[at]
        if field != "correlation" and (field not in ("device", "stream") or one.device is not None):
            setattr(one, field, value)
        elif field == "correlation" and field in one.args and value is not None:
            one.args = {field: value}
        found, complete = of_spans(spans)
        assert found == good or not complete, (at, value)


def test_numbers_of_numpy_are_numbers() -> None:
    """A reader that takes its processes and devices from an array has them as they are."""
    spans = spans_of_a_reader()
    for span in spans:
        span.pid, span.tid = np.int64(span.pid), np.int32(span.tid)
        span.device = None if span.device is None else np.int16(span.device)
    assert of_spans(spans) == of_spans(spans_of_a_reader())
    assert {type(span.pid) for span in spans} == {int}


def test_the_exits_follow(tmp_path: Path) -> None:
    """A kernel whose device nobody knows counts on a device called unknown; the report ends with 1, and compare refuses."""
    skip_without("rocprofv3")
    good = a_recording(tmp_path / "good")
    assert CliRunner().invoke(cli, ["report", str(good)]).exit_code == 0
    shutil.copytree(good.parent, tmp_path / "bad")
    bad = tmp_path / "bad" / good.name
    bad.write_text(bad.read_text().replace("Agent 4", "-1", 1))
    told = CliRunner().invoke(cli, ["report", str(bad)])
    assert told.exit_code == 1
    assert "no device in 1 row of device work; such rows stand on a device called unknown" in " ".join(
        told.output.split()
    )
    told = CliRunner().invoke(cli, ["compare", str(good), str(bad)])
    assert told.exit_code == 1
    assert "--allow-partial" in str(told.exception)
