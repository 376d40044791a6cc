"""Readers: a real rocprofv3 JSON; the other formats are made here from the documented schemas, since no AMD machine made one."""

from __future__ import annotations

import csv
import gzip
import json
import re
import sqlite3
import tempfile
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from accelprof_rocm import readers
from accelprof_rocm.rocprof_sys import RocprofSysTool
from accelprof_rocm.rocprofv3 import Rocprofv3Tool
from hypothesis import given, settings
from hypothesis import strategies as st

from accelprof.analysis.attribution import attribute
from accelprof.cli.main import main
from accelprof.contracts.spans import Clock, Kind, Trace
from accelprof.errors import ReadError
from accelprof.testing import ToolConformance
from accelprof.testing.files import union_ns

BOOT = 63_855_948_165_371  # ns since boot: far beyond what a float32 keeps


def by_kind(trace: Trace) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for span in sorted(trace.spans, key=lambda item: item.start_ns):
        found.setdefault(span.kind.value, []).append(span)
    return found


# --- rocprofv3's JSON ---------------------------------------------------------------------------------------------------


def test_the_real_sample(shared: Path) -> None:
    """ROCm 7, MI350X: every dispatch, their sum and their union, to the nanosecond; one device of eight was used."""
    path = shared / "samples" / "rocm" / "908_results.json.gz"
    if not path.exists():
        pytest.skip(f"no sample {path}")
    assert Rocprofv3Tool.can_read(str(path))
    assert not RocprofSysTool.can_read(str(path))
    trace = Rocprofv3Tool().read(str(path))
    assert len(trace.spans) == 43_915
    assert sum(span.duration_ns for span in trace.spans) == 4_441_741_378
    assert union_ns((span.start_ns, span.end_ns) for span in trace.spans) == 4_233_112_334
    assert {row.device: row.busy_ns for row in attribute(trace).devices} == {0: 4_233_112_334}
    assert trace.clock is Clock.BOOTTIME
    assert trace.problems == []
    assert trace.origin.pid == 908
    assert trace.metadata["devices"][0] == "AMD Instinct MI350X"
    names = {span.name for span in trace.spans}
    assert not any(name.endswith(".kd") for name in names)
    assert {span.kind for span in trace.spans} == {Kind.KERNEL, Kind.COMMUNICATION}


def kinds(order: int) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """``strings.buffer_records`` with the kinds at other numbers, as releases have them, and where each is."""
    table = [
        {"kind": "MARKER_CORE_RANGE_API", "operations": ["roctxMarkA", "roctxThreadRangeA", "roctxProcessRangeA"]},
        {"kind": "MARKER_CONTROL_API", "operations": ["roctxProfilerPause", "roctxProfilerResume"]},
        {"kind": "HIP_RUNTIME_API", "operations": ["hipLaunchKernel", "hipDeviceSynchronize"]},
        {"kind": "KERNEL_DISPATCH", "operations": ["NONE", "ENQUEUE", "COMPLETE"]},
        {"kind": "MEMORY_COPY", "operations": ["NONE", "MEMORY_COPY_HOST_TO_DEVICE", "MEMORY_COPY_DEVICE_TO_HOST"]},
        {"kind": "MARKER_CORE_API", "operations": ["roctxMarkA", "roctxRangePushA", "roctxRangePop"]},
        {"kind": "RCCL_API", "operations": ["ncclAllReduce"]},
    ]
    table = [{"kind": "NONE", "operations": []}, *table[order:], *table[:order]]
    return table, {row["kind"]: index for index, row in enumerate(table)}


def sdk_json(order: int = 0, *, ranges: str = "MARKER_CORE_RANGE_API") -> dict[str, Any]:
    """One process: two windows, a phase and a kernel in each, and one of both between them; records out of order."""
    table, at = kinds(order)
    push = 1  # roctxThreadRangeA, and roctxRangePushA up to 6.4

    def record(kind: str, operation: int, correlation: int, start: int, end: int, **more: Any) -> dict[str, Any]:
        row = {
            "kind": at[kind],
            "operation": operation,
            "thread_id": 11,
            "correlation_id": {"internal": correlation, "external": 0},
        }
        return {**row, "start_timestamp": BOOT + start, "end_timestamp": BOOT + end, **more}

    def kernel(correlation: int, number: int, start: int, end: int) -> dict[str, Any]:
        info = {
            "agent_id": {"handle": 7002},
            "queue_id": {"handle": 3},
            "kernel_id": number,
            "dispatch_id": correlation,
        }
        return record("KERNEL_DISPATCH", 2, correlation, start, end, dispatch_info=info, stream_id={"handle": 4})

    messages = {
        1: "accelprof window begin w1", 2: "actor/update", 3: "accelprof window end w1", 4: "between",
        5: "accelprof window begin w2", 6: "actor/update", 7: "accelprof window end w2",
    }  # fmt: skip
    process = {
        "metadata": {"pid": 41, "node": {"hostname": "node1"}, "command": ["python", "train.py"]},
        "agents": [
            {"id": {"handle": 7000}, "type": 1, "node_id": 0, "logical_node_type_id": 0, "name": "EPYC"},
            {"id": {"handle": 7001}, "type": 2, "node_id": 1, "logical_node_type_id": 0, "name": "gfx950"},
            {"id": {"handle": 7002}, "type": 2, "node_id": 2, "logical_node_type_id": 1, "product_name": "MI350X"},
        ],
        "kernel_symbols": [
            {"kernel_id": 9, "kernel_name": "ncclDevKernel_Generic.kd", "formatted_kernel_name": "ncclDevKernel_Generic"},
            {"kernel_id": 5, "kernel_name": "_Z4gemm.kd", "formatted_kernel_name": "gemm<float>(int)"},
        ],
        "strings": {
            "buffer_records": table,
            "marker_api": [{"key": key, "value": value} for key, value in messages.items()],
        },
        "buffer_records": {
            "kernel_dispatch": [kernel(103, 5, 320, 380), kernel(101, 5, 90, 230), kernel(102, 5, 240, 250), kernel(104, 9, 385, 395)],
            "memory_copy": [
                record("MEMORY_COPY", 1, 105, 340, 350, dst_agent_id={"handle": 7002}, src_agent_id={"handle": 7000}, bytes=64),
            ],
            "hip_api": [
                record("HIP_RUNTIME_API", 0, 103, 310, 312), record("HIP_RUNTIME_API", 0, 101, 50, 55),
                record("HIP_RUNTIME_API", 0, 102, 205, 210), record("HIP_RUNTIME_API", 1, 106, 360, 390),
            ],
            "rccl_api": [record("RCCL_API", 0, 107, 313, 314)],
            "marker_api": [
                record(ranges, 0, 5, 300, 300), record(ranges, push, 6, 305, 395), record(ranges, 0, 7, 398, 398),
                record("MARKER_CONTROL_API", 1, 8, 299, 299),
                record(ranges, 0, 1, 20, 20), record(ranges, push, 2, 30, 150), record(ranges, 0, 3, 160, 160),
                record(ranges, push, 4, 200, 220),
            ],
            "scratch_memory": [{"kind": 1}],
        },
    }  # fmt: skip
    return {"rocprofiler-sdk-tool": [process]}


@pytest.mark.parametrize("order", range(7))
@pytest.mark.parametrize("ranges", ["MARKER_CORE_RANGE_API", "MARKER_CORE_API"])
def test_kinds_are_found_by_name_and_windows_cut(tmp_path: Path, order: int, ranges: str) -> None:
    """Whatever number a release gives a kind: phases, kernels, copies, RCCL; what lies outside both windows is left out."""
    path = tmp_path / "h-41_results.json"
    path.write_text(json.dumps(sdk_json(order, ranges=ranges)))
    trace = Rocprofv3Tool().read(str(path))
    found = by_kind(trace)
    assert trace.problems == []
    assert [(span.name, span.start_ns - BOOT, span.end_ns - BOOT) for span in found["phase"]] == [
        ("actor/update", 30, 150),
        ("actor/update", 305, 395),
    ]
    assert [span.args["window"] for span in found["window"]] == ["w1", "w2"]
    # the first kernel runs on after its window has ended; it was launched inside
    assert [(span.name, span.start_ns - BOOT, span.device, span.stream) for span in found["kernel"]] == [
        ("gemm<float>(int)", 90, 1, 4),
        ("gemm<float>(int)", 320, 1, 4),
    ]
    assert [span.name for span in found["communication"]] == ["ncclDevKernel_Generic"]
    assert [(span.name, span.device, span.args["bytes"]) for span in found["copy"]] == [("Memcpy HtoD", 1, 64)]
    assert [span.name for span in found["runtime"]] == ["hipLaunchKernel", "hipLaunchKernel", "ncclAllReduce"]
    assert [span.name for span in found["sync"]] == ["hipDeviceSynchronize"]
    assert trace.metadata["outside_windows"] == 3  # the range between, its call and its kernel
    assert trace.metadata["left_out"] == {"scratch_memory": 1}
    assert trace.origin.host == "node1"


def test_attribution_by_phase(tmp_path: Path) -> None:
    """The report's own attribution finds each kernel in the phase that launched it."""
    path = tmp_path / "h-41_results.json"
    path.write_text(json.dumps(sdk_json()))
    result = attribute(Rocprofv3Tool().read(str(path)))
    [phase] = [figures for figures in result.phases if figures.name == "actor/update"]
    assert phase.calls == 2
    assert phase.kernels == 2


def test_a_window_without_an_end_is_said(tmp_path: Path) -> None:
    """A worker that ended inside a window still has it, up to its last record."""
    data = sdk_json()
    process = data["rocprofiler-sdk-tool"][0]
    process["buffer_records"]["marker_api"] = [
        row for row in process["buffer_records"]["marker_api"] if row["correlation_id"]["internal"] != 7
    ]
    path = tmp_path / "h-41_results.json"
    path.write_text(json.dumps(data))
    trace = Rocprofv3Tool().read(str(path))
    assert [problem for problem in trace.problems if "w2 has no end" in problem]
    assert len(by_kind(trace)["window"]) == 2


def test_bad_records_are_counted_and_left_out(tmp_path: Path) -> None:
    """Negative, endless, absent and non-numeric times are named by place; the others still count."""
    data = sdk_json()
    rows = data["rocprofiler-sdk-tool"][0]["buffer_records"]["kernel_dispatch"]
    rows[0]["end_timestamp"] = rows[0]["start_timestamp"] - 1
    rows[1]["end_timestamp"] = 0
    rows[2]["start_timestamp"] = None
    del rows[3]["dispatch_info"]
    path = tmp_path / "h-41_results.json"
    path.write_text(json.dumps(data))
    trace = Rocprofv3Tool().read(str(path))
    assert "kernel" not in by_kind(trace)
    assert len(trace.problems) == 4
    assert any("ends before it starts (kernel_dispatch[0]" in problem for problem in trace.problems)


def _records(data: dict[str, Any]) -> set[tuple[int, int]]:
    rows = data["rocprofiler-sdk-tool"][0]["buffer_records"]
    return {
        (row["start_timestamp"], row["end_timestamp"])
        for name in ("kernel_dispatch", "memory_copy", "hip_api", "rccl_api", "marker_api")
        for row in rows[name]
    }


@settings(max_examples=120, deadline=None)
@given(
    st.floats(0.2, 0.999),
    st.sampled_from(["cut", "cut gzip", "a brace", "a quote", "no comma"]),
    st.sampled_from([None, 1]),
)
def test_of_a_damaged_file_what_can_be_read_is_and_the_rest_is_said(part: float, how: str, indent: int | None) -> None:
    """Nothing is invented, nothing before the damage is lost, and the file is never called complete."""
    data = sdk_json()
    text = json.dumps(data, indent=indent)
    at = int(len(text) * part)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "h-41_results.json"
        path.write_text(text)
        if how == "cut gzip":
            path = path.with_suffix(".json.gz")
            packed = gzip.compress(text.encode(), compresslevel=1)
            path.write_bytes(packed[: int(len(packed) * part)])
        elif how == "cut":
            path.write_text(text[:at])
        elif how == "no comma":
            at = text.index(", {" if indent is None else ",\n", at - 200)
            path.write_text(text[:at] + " " + text[at + 1 :])
        else:
            path.write_text(text[:at] + ("}" if how == "a brace" else '"') + text[at:])
        try:
            trace = Rocprofv3Tool().read(str(path))
        except ReadError as error:
            assert str(path) in str(error)
            return
        if trace.completeness.complete:  # a brace or a quote inside a text, or between two elements of nothing
            assert how in ("a brace", "a quote")
            return
    assert trace.problems
    assert {(s.start_ns, s.end_ns) for s in trace.spans if s.kind.value != "window"} <= _records(data)
    if how in ("cut", "no comma"):
        ends = [m.end() for m in re.finditer(r'"dispatch_info":.*?"stream_id": \{[^}]*\}\s*\}', text, re.DOTALL)]
        there = sum(span.kind.value in ("kernel", "communication") for span in trace.spans)
        # a window whose marks are there leaves out what lies outside of it
        assert there + trace.metadata.get("outside_windows", 0) >= sum(end <= at for end in ends)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("x_results.json", b"", "empty file"),
        ("x_results.json", b'{"rocprofiler-sdk-tool": [{', "not valid JSON"),
        ("x_results.json", b'{"rocprofiler-sdk-tool": 3}', "no 'rocprofiler-sdk-tool' in it"),
        ("x_results.json.gz", gzip.compress(b'{"rocprofiler-sdk-tool": [1, 2, 3]}' * 4000, mtime=0)[:-9], "gzip"),
        ("x_results.db", b"SQLite format 3\x00 rocpd_ and nothing else", "SQLite"),
        ("perfetto-trace-1.proto", b"hello", "does not begin with a packet"),
        ("x.txt", b"hello", "none of the formats"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    """A file that is not what it says is an error with its path and reason, not an empty result."""
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ReadError, match=reason) as caught:
        Rocprofv3Tool().read(str(path))
    assert str(path) in str(caught.value)


# --- CSV ----------------------------------------------------------------------------------------------------------------

KERNEL_63 = [
    "Kind",
    "Agent_Id",
    "Queue_Id",
    "Thread_Id",
    "Dispatch_Id",
    "Kernel_Id",
    "Kernel_Name",
    "Correlation_Id",
    "Start_Timestamp",
    "End_Timestamp",
    "Private_Segment_Size",
]
KERNEL_70 = [
    "Kind",
    "Agent_Id",
    "Queue_Id",
    "Stream_Id",
    "Thread_Id",
    "Dispatch_Id",
    "Kernel_Id",
    "Kernel_Name",
    "Correlation_Id",
    "Start_Timestamp",
    "End_Timestamp",
    "LDS_Block_Size",
    "Workgroup_Size_X",
]
CALL = ["Domain", "Function", "Process_Id", "Thread_Id", "Correlation_Id", "Start_Timestamp", "End_Timestamp"]


def write_csv(path: Path, header: list[str], rows: list[dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, header, restval=0, quoting=csv.QUOTE_NONNUMERIC, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


@pytest.mark.parametrize(("header", "agent", "stream"), [(KERNEL_63, "4", 3), (KERNEL_70, "Agent 4", 8)])
def test_csv_by_header(tmp_path: Path, header: list[str], agent: str, stream: int) -> None:
    """Columns of 6.3 and 7.0; the kernel file's reader takes the marker and call files of the process along."""
    stem = str(tmp_path / "my_group-r0-h-41")
    times = {"Start_Timestamp": BOOT + 50, "End_Timestamp": BOOT + 80}
    kernel = {
        "Kind": "KERNEL_DISPATCH",
        "Agent_Id": agent,
        "Queue_Id": 3,
        "Stream_Id": 8,
        "Thread_Id": 11,
        "Kernel_Name": 'gemm<"a", b>(int).kd',
        "Correlation_Id": 5,
        **times,
    }
    write_csv(Path(f"{stem}_kernel_trace.csv"), header, [kernel])
    base = {"Process_Id": 41, "Thread_Id": 11}
    write_csv(
        Path(f"{stem}_marker_api_trace.csv"),
        CALL,
        [
            {"Domain": "MARKER_CORE_RANGE_API", "Function": "actor/update, é", "Start_Timestamp": BOOT + 10, "End_Timestamp": BOOT + 90, **base},
            {"Domain": "MARKER_CORE_RANGE_API", "Function": "hello", "Start_Timestamp": BOOT + 12, "End_Timestamp": BOOT + 12, **base},
            {"Domain": "MARKER_CONTROL_API", "Function": "roctxProfilerPause", "Start_Timestamp": BOOT + 13, "End_Timestamp": BOOT + 14, **base},
        ],
    )  # fmt: skip
    write_csv(
        Path(f"{stem}_hip_api_trace.csv"),
        CALL,
        [{"Domain": "HIP_RUNTIME_API", "Function": "hipLaunchKernel", "Correlation_Id": 5, "Start_Timestamp": BOOT + 20, "End_Timestamp": BOOT + 21, **base}],
    )  # fmt: skip
    write_csv(
        Path(f"{stem}_agent_info.csv"),
        ["Node_Id", "Logical_Node_Id", "Agent_Type"],
        [{"Node_Id": n, "Logical_Node_Id": n, "Agent_Type": "CPU" if n < 3 else "GPU"} for n in range(6)],
    )
    tool = Rocprofv3Tool()
    assert tool.can_read(f"{stem}_kernel_trace.csv")
    assert not tool.can_read(f"{stem}_agent_info.csv")
    trace = tool.read(f"{stem}_kernel_trace.csv")
    assert trace.problems == []
    found = by_kind(trace)
    [kernel_span] = found["kernel"]
    assert (kernel_span.name, kernel_span.device, kernel_span.stream, kernel_span.pid) == (
        'gemm<"a", b>(int)',
        1,
        stream,
        41,
    )
    assert [(span.name, span.duration_ns) for span in found["range"]] == [("actor/update, é", 80)]
    assert [span.args["correlation"] for span in found["runtime"]] == [5]
    assert [(mark.name, mark.category) for mark in trace.marks] == [("hello", ""), ("roctxProfilerPause", "control")]
    alone = tool.read(f"{stem}_marker_api_trace.csv")
    assert set(by_kind(alone)) == {"range"}


def test_csv_of_another_tool_is_not_ours(tmp_path: Path) -> None:
    """A table without our columns is left to others."""
    path = tmp_path / "kernel_details.csv"
    path.write_text("Name,Start,End\nx,1,2\n")
    assert not Rocprofv3Tool.can_read(str(path))


# --- rocpd --------------------------------------------------------------------------------------------------------------


def rocpd(path: Path, *, views: tuple[str, ...] = ("kernels", "regions", "memory_copies", "processes")) -> None:
    """Views with the columns of schema 3, over plain tables with a suffix, as the real file has them."""
    connection = sqlite3.connect(path)
    shapes: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
        "kernels": (
            "id, guid, tid, name, pid, agent_abs_index, agent_log_index, agent_type_index, agent_type, dispatch_id, stream_id, queue_id, start, end, stack_id, corr_id",
            [
                (1, "g", 11, "gemm", 41, 4, 4, 1, "GPU", 1, 2, 3, BOOT + 60, BOOT + 90, 21, 0),
                (2, "g", 11, "ncclDevKernel.kd", 41, 4, 4, 1, "GPU", 2, None, 3, BOOT + 70, BOOT + 80, 22, 0),
            ],
        ),
        "regions": (
            "id, guid, category, name, pid, tid, start, end, event_id, stack_id, corr_id, extdata",
            [
                (1, "g", "MARKER_CORE_RANGE_API", "roctxThreadRangeA", 41, 11, BOOT + 10, BOOT + 95, 1, 0, 0, '{"message": "actor/update"}'),
                (2, "g", "HIP_RUNTIME_API", "hipLaunchKernel", 41, 11, BOOT + 20, BOOT + 22, 2, 21, 0, "{}"),
                (3, "g", "MARKER_CORE_RANGE_API", "roctxMarkA", 41, 11, BOOT + 5, BOOT + 5, 3, 0, 0, '{"message": "accelprof window begin w1"}'),
                (4, "g", "MARKER_CORE_RANGE_API", "roctxMarkA", 41, 11, BOOT + 97, BOOT + 98, 4, 0, 0, '{"message": "accelprof window end w1"}'),
            ],
        ),
        "memory_copies": (
            "id, guid, pid, tid, start, end, name, stream_id, queue_id, size, dst_agent_type_index, dst_agent_type, src_agent_type_index, src_agent_type, stack_id, corr_id",
            [(1, "g", 41, 11, BOOT + 30, BOOT + 40, "MEMORY_COPY_DEVICE_TO_HOST", 2, 3, 4096, 0, "CPU", 1, "GPU", 23, 0)],
        ),
        "processes": ("nid, hostname, pid", [(1, "node1", 41)]),
    }  # fmt: skip
    connection.execute("CREATE TABLE rocpd_metadata_ab12 (id INTEGER, tag TEXT, value TEXT)")
    connection.execute("INSERT INTO rocpd_metadata_ab12 VALUES (1, 'schema_version', '3')")
    connection.execute("CREATE VIEW rocpd_metadata AS SELECT * FROM rocpd_metadata_ab12")
    for view in views:
        columns, rows = shapes[view]
        quoted = ", ".join(f'"{name.strip()}"' for name in columns.split(","))
        connection.execute(f"CREATE TABLE rocpd_{view}_ab12 ({quoted})")
        marks = ", ".join("?" * len(columns.split(",")))
        connection.executemany(f"INSERT INTO rocpd_{view}_ab12 VALUES ({marks})", rows)
        connection.execute(f"CREATE VIEW {view} AS SELECT * FROM rocpd_{view}_ab12")
    connection.commit()
    connection.close()


def test_rocpd_views(tmp_path: Path) -> None:
    """Views are asked, a marker's text comes out of extdata, and call and kernel share their stack id."""
    path = tmp_path / "h-41_results.db"
    rocpd(path)
    assert Rocprofv3Tool.can_read(str(path))
    assert not RocprofSysTool.can_read(str(path))
    trace = Rocprofv3Tool().read(str(path))
    assert trace.problems == []
    found = by_kind(trace)
    assert [span.name for span in found["phase"]] == ["actor/update"]
    assert [(span.name, span.device, span.stream) for span in found["kernel"]] == [("gemm", 1, 2)]
    assert [(span.name, span.stream) for span in found["communication"]] == [("ncclDevKernel", 3)]
    assert [(span.name, span.device, span.args["bytes"]) for span in found["copy"]] == [("Memcpy DtoH", 1, 4096)]
    assert found["kernel"][0].args["correlation"] == found["runtime"][0].args["correlation"] == 21
    assert [(span.args["window"], span.duration_ns) for span in found["window"]] == [("w1", 92)]
    assert trace.metadata["schema_version"] == "3"
    assert (trace.origin.host, trace.origin.pid) == ("node1", 41)


@pytest.mark.parametrize("window", [True, False])
def test_a_range_that_was_open_goes_to_the_end_of_its_window(tmp_path: Path, window: bool) -> None:
    """Where a window is known that is when recording stopped, otherwise with the last record; a call without an end is lost."""
    path = tmp_path / "h-41_results.db"
    rocpd(path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE rocpd_regions_ab12 SET end = NULL WHERE id = 1")
        if not window:
            database.execute("DELETE FROM rocpd_regions_ab12 WHERE id > 2")
    trace = Rocprofv3Tool().read(str(path))
    [opened] = by_kind(trace)["phase" if window else "range"]
    assert (opened.name, opened.end_ns - BOOT, opened.args["in_progress"]) == (
        "actor/update",
        97 if window else 90,
        True,
    )
    assert trace.completeness.complete
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE rocpd_regions_ab12 SET end = NULL WHERE id = 2")
    assert Rocprofv3Tool().read(str(path)).completeness.left_out == {"time is not a number": 1}


#: of two databases that were merged: guid, number of the node, host, machine
TWO_NODES = [("ga", 1, "alpha", "m1"), ("gb", 1, "beta", "m2")]


def merged(
    path: Path, nodes: list[tuple[str, int, str, str]] = TWO_NODES, left_out: tuple[str, ...] = (), *, shift: int = 0
) -> None:
    """Views as of databases that were merged: process 41 on each node launches kernel 1 in its range ``actor/<host>``, thread 11,
    device 1; each node's clock is ``shift`` ns behind the one before."""
    launch = "id, guid, category, name, nid, pid, tid, start, end, event_id, stack_id, corr_id, extdata"
    work = "id, guid, tid, name, nid, pid, agent_type_index, agent_type, dispatch_id, stream_id, queue_id, start, end, stack_id, corr_id"
    shapes: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
        "kernels": (work, []),
        "regions": (launch, []),
        "memory_copies": ("id, guid, nid, pid, tid, start, end, name, stream_id, size, dst_agent_type_index, dst_agent_type, stack_id, corr_id", []),
        "processes": ("nid, guid, hostname, machine_id, pid", []),
    }  # fmt: skip
    for at, (guid, nid, host, machine) in enumerate(nodes):
        begin = BOOT + at * shift
        who, message = (nid, 41, 11), f'{{"message": "actor/{host}"}}'
        shapes["processes"][1].append((nid, guid, host, machine, 41))
        shapes["regions"][1].extend([
            (1, guid, "MARKER_CORE_RANGE_API", "roctxThreadRangeA", *who, begin + 10, begin + 95, 1, 0, 0, message),
            (2, guid, "HIP_RUNTIME_API", "hipLaunchKernel", *who, begin + 20, begin + 22, 2, 21, 0, "{}"),
        ])  # fmt: skip
        shapes["kernels"][1].append((1, guid, 11, "gemm", nid, 41, 1, "GPU", 1, 2, 3, begin + 60, begin + 90, 21, 0))
    connection = sqlite3.connect(path)
    for view, (columns, rows) in shapes.items():
        connection.execute(f"CREATE TABLE rocpd_{view}_ab12 ({columns.replace('end', '[end]')})")
        connection.executemany(
            f"INSERT INTO rocpd_{view}_ab12 VALUES ({', '.join('?' * len(columns.split(',')))})", rows
        )
        kept = [name.strip() for name in columns.split(",") if name.strip() not in left_out]
        connection.execute(
            f"CREATE VIEW {view} AS SELECT {', '.join(f'[{name}]' for name in kept)} FROM rocpd_{view}_ab12"
        )
    connection.commit()
    connection.close()


def by_phase(trace: Trace) -> dict[str, tuple[int, dict[Any, int]]]:
    return {row.name: (row.own_kernels, row.busy_ns) for row in attribute(trace).phases}


@pytest.mark.parametrize("shift", [0, 15, 10**12])
@pytest.mark.parametrize("left_out", [(), ("guid",), ("machine_id",), ("hostname",)])
def test_processes_of_two_nodes_with_one_number_are_two(tmp_path: Path, left_out: tuple[str, ...], shift: int) -> None:
    """Each kernel belongs to the range of its own node, whatever the other's clock shows; their devices are two."""
    path = tmp_path / "merged.db"
    nodes = [(guid, at if "guid" in left_out or "hostname" in left_out else 1, *rest) for at, (guid, _, *rest) in enumerate(TWO_NODES, 1)]  # fmt: skip
    merged(path, nodes, left_out, shift=shift)
    trace = Rocprofv3Tool().read(str(path))
    names = ("(m1)", "(m2)") if "hostname" in left_out else ("alpha", "beta")
    assert {span.pid for span in trace.spans} == {f"41 of {name}" for name in names}
    assert by_phase(trace) == {
        f"actor/{host}": (1, {f"1 of {name}": 30}) for host, name in zip(("alpha", "beta"), names)
    }
    assert trace.clock is Clock.RELATIVE
    assert any(f"several nodes in this file ({', '.join(names)})" in line for line in trace.problems)
    assert (trace.origin.host, trace.origin.pid) == (None, None)


def test_two_hosts_of_one_name_are_two(tmp_path: Path) -> None:
    """They are told by their machine; two databases of one node are of one."""
    merged(tmp_path / "one.db", [("ga", 1, "localhost", "m1"), ("gb", 1, "localhost", "m2")])
    trace = Rocprofv3Tool().read(str(tmp_path / "one.db"))
    assert {span.pid for span in trace.spans} == {"41 of localhost (m1)", "41 of localhost (m2)"}
    merged(tmp_path / "two.db", [("ga", 1, "alpha", "m1"), ("gb", 1, "alpha", "m1")], shift=1000)
    trace = Rocprofv3Tool().read(str(tmp_path / "two.db"))
    assert ({span.pid for span in trace.spans}, trace.clock, trace.problems) == ({41}, Clock.BOOTTIME, [])


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_lost_launch_is_no_other_processs(tmp_path: Path, nodes: int) -> None:
    """Each process numbers its launches from 1: work whose own launch is not in the file is nobody's, on one node or two."""
    path = tmp_path / "x.db"
    merged(path, TWO_NODES if nodes == 2 else [("ga", 1, "alpha", "m1"), ("gb", 1, "alpha", "m1")])
    with closing(sqlite3.connect(path)) as database, database:
        if nodes == 1:
            for view in ("kernels", "regions", "processes"):
                database.execute(f"UPDATE rocpd_{view}_ab12 SET pid = 42 WHERE guid = 'gb'")
        database.execute("DELETE FROM rocpd_regions_ab12 WHERE id = 2 AND guid = 'gb'")
    found = attribute(Rocprofv3Tool().read(str(path)))
    assert found.unlaunched == 1
    assert sum(row.own_kernels for row in found.phases) == 1


def test_rocpd_without_a_view_says_so(tmp_path: Path) -> None:
    """A missing view is named; a file that has none of them is an error."""
    path = tmp_path / "h-41_results.db"
    rocpd(path, views=("kernels",))
    trace = Rocprofv3Tool().read(str(path))
    assert trace.problems == ["no view regions in this file", "no view memory_copies in this file"]
    assert len(trace.spans) == 2
    other = tmp_path / "h-42_results.db"
    rocpd(other, views=())
    with pytest.raises(ReadError, match="not a rocpd database"):
        Rocprofv3Tool().read(str(other))


def test_rocpd_of_rocprof_sys_is_its_own(tmp_path: Path) -> None:
    """The same schema under rocprof-sys's name belongs to that tool."""
    path = tmp_path / "ActorGroup-r0-41-rocpd-41.db"
    rocpd(path)
    assert RocprofSysTool.can_read(str(path))
    assert len(RocprofSysTool().read(str(path)).spans) == 6


# --- Perfetto -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def protos() -> Any:
    return pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")


class Writer:
    """Packets as the SDK writes them: interned names, a sequence's own incremental clock, tracks inside a process."""

    def __init__(self, protos: Any) -> None:
        self.protos = protos
        self.trace = protos.Trace()
        self.last = 0

    def packet(self, **fields: Any) -> Any:
        packet = self.trace.packet.add()
        packet.trusted_packet_sequence_id = 1
        for name, value in fields.items():
            setattr(packet, name, value)
        return packet

    def begin(self) -> None:
        packet = self.packet(sequence_flags=1)
        packet.trace_packet_defaults.timestamp_clock_id = 64
        clock = packet.clock_snapshot.clocks.add()
        clock.clock_id, clock.timestamp = 6, BOOT
        clock = packet.clock_snapshot.clocks.add()
        clock.clock_id, clock.timestamp, clock.is_incremental, clock.unit_multiplier_ns = 64, 0, True, 1
        process = self.packet().track_descriptor
        process.uuid, process.process.pid, process.process.process_name = 1, 41, "python"
        thread = self.packet().track_descriptor
        thread.uuid, thread.parent_uuid, thread.thread.pid, thread.thread.tid = 2, 1, 41, 11
        for uuid, name in ((3, "HIP Activity Stream 5"), (4, "GPU Kernel Dispatch [1] Queue 2"), (5, "Memory")):
            track = self.packet().track_descriptor
            track.uuid, track.parent_uuid, track.name = uuid, 1, name

    def event(self, kind: int, at: int, track: int, name: str = "", category: str = "", **notes: Any) -> None:
        packet = self.packet(timestamp=at - self.last)
        self.last = at
        event = packet.track_event
        event.type, event.track_uuid = kind, track
        if category:
            event.categories.append(category)
        if name:
            iid = sum(name.encode()) + 1
            event.name_iid = iid
            interned = packet.interned_data.event_names.add()
            interned.iid, interned.name = iid, name
        for key, value in notes.items():
            note = event.debug_annotations.add()
            note.name = key
            if isinstance(value, str):
                note.string_value = value
            else:
                note.uint_value = value

    def slice(self, start: int, end: int, track: int, name: str, category: str, **notes: Any) -> None:
        self.event(1, start, track, name, category, **notes)
        self.event(2, end, track)


def sys_trace(protos: Any) -> bytes:
    writer = Writer(protos)
    writer.begin()
    writer.event(3, 5, 2, "accelprof window begin w1", "rocm_marker_api")
    writer.event(1, 10, 2, "actor/update", "rocm_marker_api")
    writer.slice(12, 14, 2, "hipLaunchKernel", "rocm_hip_api", corr_id=21)
    writer.slice(20, 50, 3, "gemm.kd", "rocm_hip_stream", corr_id=21, device=1)
    writer.slice(55, 60, 4, "ncclDevKernel_Generic", "rocm_kernel_dispatch")
    writer.slice(61, 63, 5, "MEMORY_COPY_HOST_TO_DEVICE", "rocm_memory_copy", device=1, stream=3)
    writer.slice(64, 65, 2, "train.py:step", "python")
    writer.slice(66, 67, 2, "poll", "sampling")
    writer.event(2, 70, 2)
    writer.event(3, 80, 2, "accelprof window end w1", "rocm_marker_api")
    writer.slice(90, 95, 3, "late", "rocm_hip_stream")
    writer.event(1, 96, 2, "open", "rocm_marker_api")
    return bytes(writer.trace.SerializeToString())


def test_perfetto_trace_of_rocprof_sys(tmp_path: Path, protos: Any) -> None:
    """Interned names, times as increments, devices from annotations or tracks; what is outside the window is left out."""
    path = tmp_path / "ActorGroup-r0-41-perfetto-trace-41.proto"
    path.write_bytes(sys_trace(protos))
    assert RocprofSysTool.can_read(str(path))
    trace = RocprofSysTool().read(str(path))
    found = by_kind(trace)
    times = [(span.name, span.start_ns - BOOT, span.end_ns - BOOT, span.pid, span.tid) for span in found["phase"]]
    assert times == [("actor/update", 10, 70, 41, 11)]
    assert [(span.name, span.device, span.stream) for span in found["kernel"]] == [("gemm", 1, 5)]
    assert [(span.name, span.device, span.stream) for span in found["communication"]] == [
        ("ncclDevKernel_Generic", 1, 2)
    ]
    assert [(span.name, span.device, span.stream) for span in found["copy"]] == [("Memcpy HtoD", 1, 3)]
    assert [span.name for span in found["operator"]] == ["train.py:step"]
    assert found["kernel"][0].args["correlation"] == found["runtime"][0].args["correlation"] == 21
    assert trace.metadata["left_out"] == {"sampling": 1}
    assert trace.metadata["outside_windows"] == 2
    assert trace.problems == []
    assert trace.origin.pid == 41


def test_an_open_slice_of_a_range_is_cut(tmp_path: Path, protos: Any) -> None:
    """A range and a function that ran on are there until the window's end; how long a kernel or a call ran on nobody knows."""
    writer = Writer(protos)
    writer.begin()
    writer.event(3, 5, 2, "accelprof window begin w1", "rocm_marker_api")
    writer.event(1, 10, 2, "actor/update", "rocm_marker_api")
    writer.event(1, 11, 2, "train.py:main", "python")
    writer.event(1, 12, 2, "hipLaunchKernel", "rocm_hip_api", corr_id=21)
    writer.event(1, 20, 3, "gemm.kd", "rocm_hip_stream", corr_id=21, device=1)
    writer.event(3, 80, 6, "accelprof window end w1", "rocm_marker_api")
    path = tmp_path / "x-perfetto-trace-41.proto"
    path.write_bytes(writer.trace.SerializeToString())
    trace = RocprofSysTool().read(str(path))
    found = [
        (span.name, span.end_ns - BOOT, span.args["in_progress"])
        for span in trace.spans
        if span.kind is not Kind.WINDOW
    ]
    assert found == [("actor/update", 80, True), ("train.py:main", 80, True)]
    assert trace.problems == ["2 slice(s) without an end are left out"]


def test_a_trace_that_is_cut_off_gives_what_it_has(tmp_path: Path, protos: Any) -> None:
    """At every length: an error or a trace that says where it ends; never a crash, never silence."""
    whole = sys_trace(protos)
    ends, at = set(), 0  # a file that ends with a packet does not show that others came behind it
    for packet in protos.Trace.FromString(whole).packet:
        at += len(protos.Trace(packet=[packet]).SerializeToString())
        ends.add(at)
    path = tmp_path / "x-perfetto-trace-41.proto"
    for size in range(1, len(whole), 7):
        path.write_bytes(whole[:size])
        trace = RocprofSysTool().read(str(path))
        assert trace.problems, size
        assert trace.completeness.cut or size in ends, size
    path.write_bytes(whole + b"garbage")
    assert any("no packet begins here" in problem for problem in RocprofSysTool().read(str(path)).problems)


def test_compressed_packets_are_inflated_as_far_as_their_size_allows(tmp_path: Path, protos: Any) -> None:
    """The same trace as without; nothing but a refusal from what would be 300 MB; damage is said with where it lies."""
    plain, packed = tmp_path / "a-perfetto-trace-41.proto", tmp_path / "b-perfetto-trace-41.proto"
    whole = sys_trace(protos)
    plain.write_bytes(whole)

    def wrapped(data: bytes) -> bytes:
        return bytes(
            protos.Trace(packet=[protos.TracePacket(compressed_packets=zlib.compress(data))]).SerializeToString()
        )

    packed.write_bytes(wrapped(whole))
    one, other = RocprofSysTool().read(str(plain)), RocprofSysTool().read(str(packed))
    assert len(one.spans) == len(other.spans) > 0
    assert [repr(span) for span in one.spans] == [repr(span) for span in other.spans]
    packed.write_bytes(wrapped(bytes(300 << 20)))
    with pytest.raises(ReadError, match="inflate to more than 200 times its size"):
        RocprofSysTool().read(str(packed))
    packed.write_bytes(wrapped(b"hello"))
    trace = RocprofSysTool().read(str(packed))
    assert (
        trace.completeness.cut
        == "in the compressed packets at byte 0, byte 0: no packet begins here; what follows is left out"
    )
    early = protos.TracePacket(compressed_packets=zlib.compress(whole)[:-4])
    packed.write_bytes(protos.Trace(packet=[early]).SerializeToString())
    trace = RocprofSysTool().read(str(packed))
    assert (len(trace.spans), trace.completeness.cut) == (
        len(one.spans),
        "cut off: the compressed packets at byte 0 end early; what came before counts",
    )
    packed.write_bytes(gzip.compress(bytes(300 << 20)))
    with pytest.raises(ReadError, match="decompresses to more than 200 times its size"):
        RocprofSysTool().read(str(packed))


def test_a_merged_timeline_of_accelprof_is_no_empty_file_of_rocprofv3(tmp_path: Path, protos: Any) -> None:
    """It says whose it is, compressed or not, and what to give in its place."""
    source = tmp_path / "r0.pt.trace.json"
    event = {
        "ph": "X",
        "cat": "kernel",
        "name": "gemm",
        "pid": 0,
        "tid": 7,
        "ts": 1,
        "dur": 2,
        "args": {"device": 0, "stream": 7},
    }
    source.write_text(json.dumps({"traceEvents": [event]}))
    for name in ("merged.pftrace", "merged.gz.pftrace"):
        out = tmp_path / name
        with pytest.raises(SystemExit, match="^0$"):
            main(["timeline", str(source), "--format", "perfetto", "-o", str(out)])
        with pytest.raises(ReadError, match="a merged timeline that accelprof wrote"):
            Rocprofv3Tool().read(str(out))


def test_pftrace_of_rocprofv3_has_exact_times(tmp_path: Path, protos: Any) -> None:
    """Its slices carry begin_ns and end_ns, which count."""
    writer = Writer(protos)
    writer.begin()
    exact = {"begin_ns": BOOT + 1001, "end_ns": BOOT + 1999, "tid": 12, "corr_id": 3}
    writer.slice(1000, 2000, 2, "actor/update", "marker_api", **exact)
    path = tmp_path / "h-41_results.pftrace"
    path.write_bytes(writer.trace.SerializeToString())
    assert Rocprofv3Tool.can_read(str(path))
    [span] = Rocprofv3Tool().read(str(path)).spans
    assert (span.name, span.kind, span.start_ns, span.end_ns, span.tid) == (
        "actor/update",
        Kind.RANGE,
        BOOT + 1001,
        BOOT + 1999,
        12,
    )


# --- metadata -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("root", ["rocprofiler-systems", "omnitrace"])
def test_the_metadata_lists_what_was_written(tmp_path: Path, root: str) -> None:
    """Files by kind, those that are not there named; the environment, which may hold secrets, is not taken over."""
    there = tmp_path / "perfetto-trace-41.proto"
    there.write_bytes(b"\x0a\x00")
    output = {
        "protobuf": [{"key": "perfetto", "value": [str(there)]}],
        "text": [{"key": "wall_clock", "value": "/gone/wall_clock.txt"}],
    }
    data = {
        root: {"metadata": {"environment": [{"key": "API_KEY", "value": "hunter2"}], "output": output, "settings": {}}}
    }
    path = tmp_path / "metadata-41.json"
    path.write_text(json.dumps(data, indent=1))
    assert RocprofSysTool.can_read(str(path))
    trace = RocprofSysTool().read(str(path))
    assert [name for row in trace.metadata["output"] for name in row["files"]] == [str(there), "/gone/wall_clock.txt"]
    assert trace.problems == ["listed, but not there: /gone/wall_clock.txt"]
    assert "hunter2" not in repr(trace)


def test_the_front_door_reads_them(tmp_path: Path) -> None:
    """``read_any`` finds the reader by content and names the tool."""
    from accelprof.analysis.reading import read_any

    path = tmp_path / "results_without_a_telling_name.json"
    path.write_text(json.dumps(sdk_json()))
    assert readers.format_of(str(path)) == "json"
    assert read_any(path).tool == "rocprofv3"


def test_device_work_passes_the_kit(tmp_path: Path) -> None:
    """What the kit demands of files with device work."""

    class Kit(ToolConformance):
        def make(self) -> Rocprofv3Tool:
            return Rocprofv3Tool()

        def device_file(self, directory: str) -> str:
            path = Path(directory) / "h-41_results.json"
            data = sdk_json()
            calls = data["rocprofiler-sdk-tool"][0]["buffer_records"]["hip_api"]
            calls += [{**calls[0], "correlation_id": {"internal": number}} for number in (104, 105)]
            path.write_text(json.dumps(data))
            return str(path)

    Kit().test_device_work_belongs_to_the_phase_that_launched_it(tmp_path)
