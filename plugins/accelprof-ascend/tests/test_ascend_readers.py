"""Readers: public samples with sums computed elsewhere, and small files of every kind of fault."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from accelprof_ascend import reading
from accelprof_ascend.npu import NpuTool
from accelprof_ascend.reading import read
from accelprof_ascend.times import ns_of_ns, ns_of_us
from click.testing import CliRunner

from accelprof.analysis.attribution import attribute
from accelprof.analysis.reading import read_any
from accelprof.contracts.spans import Clock, Kind
from accelprof.errors import ReadError
from accelprof.reading.columns import columns_of
from accelprof.testing.files import union_ns


def union(trace: Any, *kinds: Kind) -> int:
    return union_ns((span.start_ns, span.end_ns) for span in trace.of_kind(*kinds))


def test_trace_view_of_msprof_analyze(shared: Path) -> None:
    """2,212 intervals with text times: first one, extent and order to the ns; kernels are what the file itself calls Computing."""
    trace = read_any(shared / "samples" / "ascend" / "trace_view.json")
    assert (trace.tool, trace.clock, len(trace.spans), trace.problems) == ("npu", Clock.EPOCH, 2212, [])
    first = min(span.start_ns for span in trace.spans)
    assert first == 1_704_161_511_420_289_011
    assert max(span.end_ns for span in trace.spans) - first == 14_133_430
    computing = [span for span in trace.of_kind(Kind.DEVICE_ANNOTATION) if span.name == "Computing"]
    assert len(list(trace.of_kind(Kind.KERNEL))) == len(computing) == 274
    assert abs(union(trace, Kind.KERNEL) - union_ns((span.start_ns, span.end_ns) for span in computing)) < 274
    assert [span.name for span in trace.of_kind(Kind.STEP)] == ["ProfilerStep#1"]
    assert all(span.name.startswith("AscendCL@aclrtSynchronize") for span in trace.of_kind(Kind.SYNC))


def test_kernels_belong_to_the_thread_of_torch_that_launched_them(shared: Path) -> None:
    """Every kernel has its launch in the file, in the process of torch and not on the task queue of CANN."""
    trace = read_any(shared / "samples" / "ascend" / "trace_view.json")
    assert attribute(trace).unlaunched == 0
    launches = {span.args["correlation"]: span for span in trace.of_kind(Kind.RUNTIME) if "correlation" in span.args}
    kernels = list(trace.of_kind(Kind.KERNEL))
    assert {launches[span.args["correlation"]].pid for span in kernels} == {437675}


def test_kernel_details_with_a_tab_in_the_times(shared: Path) -> None:
    """Start times end in a TAB inside the quotes; they are read to the ns, with the device's kernels as kernels."""
    trace = read_any(shared / "samples" / "ascend" / "kernel_details_small.csv")
    assert (len(trace.spans), trace.problems, trace.clock) == (29, [], Clock.EPOCH)
    assert (trace.spans[0].start_ns, trace.spans[0].duration_ns) == (1_736_413_971_558_972_912, 185_504)
    assert trace.spans[0].stream == "2"


def test_cluster_step_trace_time(shared: Path) -> None:
    """Per rank computing, communication, overlap and free in ns; the Step column is empty, so the step is unknown and not 0."""
    trace = read_any(shared / "samples" / "ascend" / "cluster_step_trace_time.csv")
    first = trace.metadata["steps"][0]
    assert (first["step"], first["rank"], first["computing_ns"], first["free_ns"]) == (None, 0, 80_309_687, 990_605_104)
    for row in trace.metadata["steps"]:
        parts = row["communication_not_overlapped_ns"] + row["overlapped_ns"]
        assert abs(parts - row["communication_ns"]) <= 1


EVENTS: list[dict[str, Any]] = [
    {"ph": "M", "name": "process_name", "pid": 9, "args": {"name": "Ascend Hardware"}},
    {"ph": "M", "name": "process_labels", "pid": 9, "args": {"labels": "NPU 3"}},
    {"ph": "M", "name": "process_name", "pid": 8, "args": {"name": "Communication"}},
    {"ph": "M", "name": "process_labels", "pid": 8, "args": {"labels": "NPU 3"}},
    {"ph": "M", "name": "thread_name", "pid": 8, "tid": 1, "args": {"name": "Group 0 Communication"}},
    {"ph": "M", "name": "thread_name", "pid": 8, "tid": 2, "args": {"name": "Plane 0"}},
    {"ph": "X", "name": "MatMul", "pid": 9, "tid": 2, "ts": "1704161511000000.125", "dur": "10.5", "args": {"Task Type": "AI_CORE"}},
    {"ph": "X", "name": "EVENT_WAIT", "pid": 9, "tid": 2, "ts": "1704161511000020", "dur": 500, "args": {}},
    {"ph": "X", "name": "MEMCPY_ASYNC", "pid": 9, "tid": 2, "ts": "1704161511000600", "dur": 2, "args": {}},
    {"ph": "X", "name": "hcom_allReduce__1", "pid": 8, "tid": 1, "ts": "1704161511000005", "dur": 20, "args": {}},
    {"ph": "X", "name": "Reduce_Inline", "pid": 8, "tid": 2, "ts": "1704161511000006", "dur": 3, "args": {}},
    {"ph": "X", "name": "broken", "pid": 9, "tid": 2, "ts": "1704161511000700", "dur": "NaN"},
]  # fmt: skip


def test_waits_are_no_work_and_collectives_count_once(tmp_path: Path) -> None:
    """Waiting tasks and the planes of a collective are annotations; the device comes from the label; NaN is left out by name."""
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps(EVENTS))
    trace = read_any(path)
    kinds = {span.name: span.kind for span in trace.spans}
    assert kinds == {
        "MatMul": Kind.KERNEL, "EVENT_WAIT": Kind.DEVICE_ANNOTATION, "MEMCPY_ASYNC": Kind.COPY,
        "hcom_allReduce__1": Kind.COMMUNICATION, "Reduce_Inline": Kind.DEVICE_ANNOTATION,
    }  # fmt: skip
    assert {span.device for span in trace.spans} - {None} == {3}
    assert (trace.spans[0].start_ns, trace.spans[0].end_ns) == (1704161511000000125, 1704161511000010625)
    assert trace.problems == ["left out: 1 event, time NaN"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "0 bytes"),
        (b"[", "no intervals"),
        (json.dumps(EVENTS).encode()[:-30], "1"),
        (json.dumps(EVENTS).replace("MatMul", 'say "hi"').encode(), "unescaped quote"),
        (gzip.compress(json.dumps(EVENTS).encode(), mtime=0)[:-4], "gzip"),
    ],
    ids=["empty", "nothing", "unclosed", "unescaped", "cut gzip"],
)
def test_damaged_traces_are_named(tmp_path: Path, content: bytes, says: str) -> None:
    """Each damaged file is refused, or read as far as it goes with what was wrong; never silently nothing."""
    path = tmp_path / "trace_view.json"
    path.write_bytes(content)
    try:
        trace = read_any(path)
    except ReadError as error:
        assert says in str(error)
    else:
        assert trace.problems
        assert any(says in problem for problem in trace.problems)


def make_database(path: Path) -> None:
    """The tables of torch_npu and msprof that hold a step: an operator, its kernel, a collective, a copy, a range."""
    base = 1_795_852_602_000_000_000
    with closing(sqlite3.connect(path)) as database, database:
        run = database.executescript
        run(
            "CREATE TABLE STRING_IDS (id INTEGER, value TEXT);"
            "INSERT INTO STRING_IDS VALUES (1,'aten::mm'),(2,'MatMul'),(3,'AI_CORE'),(4,'hcom_allReduce_'),(5,'group0'),"
            "(6,'actor/update'),(7,'default'),(8,'aclnnMatmul'),(9,'MEMCPY_ASYNC'),(10,'EVENT_WAIT'),(11,'NOTIFY_WAIT');"
        )
        run(
            "CREATE TABLE PYTORCH_API (startNs TEXT, endNs TEXT, globalTid INTEGER, connectionId INTEGER, name INTEGER,"
            " inputDtypes INTEGER, inputShapes INTEGER, type INTEGER);"
            f"INSERT INTO PYTORCH_API VALUES ('{base}','{base + 100}',{(77 << 32) + 78},0,1,NULL,NULL,50001);"
        )
        run(
            "CREATE TABLE CONNECTION_IDS (id INTEGER, connectionId INTEGER); INSERT INTO CONNECTION_IDS VALUES (0,500);"
        )
        run(
            "CREATE TABLE CANN_API (startNs INTEGER, endNs INTEGER, type INTEGER, globalTid INTEGER, connectionId INTEGER, name INTEGER);"
            f"INSERT INTO CANN_API VALUES ({base + 10},{base + 20},NULL,{(77 << 32) + 79},500,8);"
        )
        run(
            "CREATE TABLE TASK (startNs INTEGER, endNs INTEGER, deviceId INTEGER, connectionId INTEGER, globalTaskId INTEGER,"
            " globalPid INTEGER, taskType INTEGER, contextId INTEGER, streamId INTEGER, taskId INTEGER, modelId INTEGER);"
            f"INSERT INTO TASK VALUES ({base + 30},{base + 90},3,500,1,77,3,0,2,1,0),({base + 95},{base + 99},3,NULL,2,77,9,0,2,2,0),"
            f"({base + 99},{base + 900},3,NULL,3,77,10,0,2,3,0),({base + 50},{base + 60},3,NULL,4,77,11,0,5,4,0);"
        )
        run(
            "CREATE TABLE COMPUTE_TASK_INFO (name INTEGER, globalTaskId INTEGER, opType INTEGER, taskType INTEGER);"
            "INSERT INTO COMPUTE_TASK_INFO VALUES (2,1,2,3);"
        )
        run(
            "CREATE TABLE COMMUNICATION_TASK_INFO (globalTaskId INTEGER); INSERT INTO COMMUNICATION_TASK_INFO VALUES (4);"
        )
        run(
            "CREATE TABLE COMMUNICATION_OP (opName INTEGER, startNs INTEGER, endNs INTEGER, connectionId INTEGER, groupName INTEGER);"
            f"INSERT INTO COMMUNICATION_OP VALUES (4,{base + 45},{base + 70},501,5);"
        )
        run(
            "CREATE TABLE MSTX_EVENTS (startNs INTEGER, endNs INTEGER, eventType INTEGER, message INTEGER, globalTid INTEGER, domainId INTEGER);"
            f"INSERT INTO MSTX_EVENTS VALUES ({base - 5},{base + 200},2,6,{(77 << 32) + 78},7),({base},{base},0,6,0,7);"
        )
        run(
            "CREATE TABLE STEP_TIME (id INTEGER, startNs INTEGER, endNs INTEGER);"
            f"INSERT INTO STEP_TIME VALUES (7,{base - 9},{base + 300});"
        )
        run(
            "CREATE TABLE RANK_DEVICE_MAP (rankId INTEGER, deviceId INTEGER); INSERT INTO RANK_DEVICE_MAP VALUES (1,3);"
        )
        run(
            "CREATE TABLE StepTraceTime (deviceId INTEGER, step TEXT, computing NUMERIC, free NUMERIC);"
            "INSERT INTO StepTraceTime VALUES (3,'7',0.06,0.2);"
        )
    database.close()  # fmt: skip


def test_database(tmp_path: Path) -> None:
    """Operators, kernels, collectives, ranges and steps by the documented tables; the kernel falls to the range that launched it."""
    path = tmp_path / "ascend_pytorch_profiler_1.db"
    make_database(path)
    trace = read_any(path)
    assert (trace.tool, trace.clock, trace.problems, trace.origin.rank) == ("npu", Clock.EPOCH, [], 1)
    assert [(span.name, span.device) for span in trace.of_kind(Kind.KERNEL, Kind.COMMUNICATION, Kind.COPY)] == [
        ("MatMul", 3), ("MEMCPY_ASYNC", 3), ("hcom_allReduce_", 3)
    ]  # fmt: skip
    assert [span.name for span in trace.of_kind(Kind.STEP)] == ["ProfilerStep#7"]
    assert [mark.name for mark in trace.marks] == ["actor/update"]
    assert trace.metadata["steps"] == [{"step": 7, "type": "device", "device": 3, "computing_ns": 60, "free_ns": 200}]
    phase = next(row for row in attribute(trace).phases if row.name == "actor/update")
    assert (phase.kernels, phase.busy_ns) == (1, {3: 60})


def test_a_range_that_was_open_when_recording_stopped_goes_to_the_end_of_the_file(tmp_path: Path) -> None:
    """It is there, cut, and the file is whole."""
    path = tmp_path / "ascend_pytorch_profiler_1.db"
    make_database(path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE MSTX_EVENTS SET endNs = NULL WHERE eventType = 2")
    trace = read_any(path)
    (found,) = (span for span in trace.spans if span.category == "mstx")
    assert found.end_ns == max(span.end_ns for span in trace.spans) > found.start_ns
    assert columns_of(trace).cut.sum() == 1
    assert (trace.problems, trace.completeness.complete) == ([], True)


def test_a_database_without_device_tables_says_so(tmp_path: Path) -> None:
    """The host side alone is no empty device: the missing table is named."""
    path = tmp_path / "ascend_pytorch_profiler.db"
    make_database(path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DROP TABLE TASK")
    assert any("no table TASK" in problem for problem in read_any(path).problems)


#: units as task types and accelerator cores name them -> what a task on one is, unless HCCL gave it its name
UNITS = {
    **dict.fromkeys(("AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV", "AI_CPU", "KERNEL_AICORE", "KERNEL_AIVEC", "DSA_SQE"), Kind.KERNEL),
    **dict.fromkeys(("HCCL", "COMMUNICATION", "AI_CORE_HCCL"), Kind.COMMUNICATION),
    **dict.fromkeys(("EVENT_WAIT_SQE", "NOTIFY_WAIT_SQE", "PLACE_HOLDER_SQE"), Kind.DEVICE_ANNOTATION),
    **dict.fromkeys(("SDMA", "MEMCPY_ASYNC", "PCIE_DMA"), Kind.COPY),
}  # fmt: skip
OPERATORS = (
    "BroadcastTo21",
    "broadcast",
    "AllReduceAdd",
    "allGather",
    "MatMulV3",
    "DSAStatelessGenBitMask",
    "one_hot",
    "all_to_all",
)
OF_HCCL = ("hcom_allReduce__1", "hcom_broadcast__2", "hcclAllGather", "HcclAiCpuKernel", "aiv_all_reduce_910b")


@pytest.mark.parametrize("turned", [str, str.lower, str.upper])
def test_a_task_is_what_its_unit_does_in_every_file(tmp_path: Path, turned: Any) -> None:
    """Names times units: an operator on a unit that computes is compute whatever it is called, HCCL's own are communication on
    any unit; the table of kernels and the trace say the same."""
    expected, events, rows = [], list(EVENTS[:2]), []
    for unit, kind in UNITS.items():
        for name in (*OPERATORS, *OF_HCCL):
            expected.append((name, unit, Kind.COMMUNICATION if name in OF_HCCL else kind))
            ts = f"{1704161511000000 + 10 * len(expected)}.125"
            at = {"pid": 9, "tid": 2, "ts": ts, "dur": "5"}
            events.append({"ph": "X", "name": name, **at, "args": {"Task Type": turned(unit)}})
            rows.append(f"{name},{turned(unit)},{ts},5")
    (tmp_path / "trace_view.json").write_text(json.dumps(events))
    (tmp_path / "kernel_details.csv").write_text(
        "\n".join(["Name,Accelerator Core,Start Time(us),Duration(us)", *rows])
    )
    for file in ("trace_view.json", "kernel_details.csv"):
        found = [span.kind for span in read_any(tmp_path / file).spans]
        wrong = [(*row, kind) for row, kind in zip(expected, found, strict=True) if row[2] is not kind]
        assert not wrong, (file, wrong[:5])


@pytest.mark.parametrize("content", [b"", b"not sqlite at all" * 100])
def test_a_damaged_database_is_refused(tmp_path: Path, content: bytes) -> None:
    """An empty or foreign file is an error with its reason."""
    path = tmp_path / "ascend_pytorch_profiler.db"
    path.write_bytes(content)
    with pytest.raises(ReadError):
        NpuTool().read(str(path))


def test_step_trace_time_and_operator_details(tmp_path: Path) -> None:
    """µs become ns exactly; a value that is no number is named and left out; operators are summed by name."""
    steps = tmp_path / "step_trace_time.csv"
    steps.write_text("Device_id,Step,Computing,Communication,Free\n0,12,1.0015,N/A,2\n")
    trace = read_any(steps)
    assert trace.metadata["steps"] == [
        {"step": 12, "type": "device", "device": 0, "computing_ns": 1002, "free_ns": 2000}
    ]
    assert trace.problems == ["left out: 1 value, Communication missing"]
    operators = tmp_path / "operator_details.csv"
    operators.write_text("Name,Host Self Duration(us)\naten::mm,1.5\naten::mm,2.25\n")
    found = read_any(operators).metadata["operators"]["aten::mm"]
    assert (found["count"], found["host_self_ns"]) == (2, 3750)


def test_a_directory_is_read_through_its_analysis(tmp_path: Path) -> None:
    """Rank from its info file, spans from its trace, sums from its table; before an analysis the reason says what to do."""
    place = tmp_path / "npu-s2-w0001" / "A-r1-s2_1_20260101000000000_ascend_pt"
    place.mkdir(parents=True)
    (place / "profiler_info_1.json").write_text("{}")
    with pytest.raises(ReadError, match="accelprof analyse"):
        read_any(place)
    output = place / "ASCEND_PROFILER_OUTPUT"
    output.mkdir()
    (output / "trace_view.json").write_text(json.dumps(EVENTS[:-1]))
    (output / "step_trace_time.csv").write_text("Device_id,Step,Computing\n3,2,10.5\n")
    trace = read_any(place)
    assert (trace.origin.rank, trace.source, trace.problems) == (1, str(place), [])
    assert trace.metadata["steps"][0]["computing_ns"] == 10_500
    (output / "accelprof-analysis-failed.txt").write_text("no msprof\n")
    assert read_any(place).problems == ["the analysis was not whole: no msprof"]


def test_foreign_files_are_left_to_their_readers(tmp_path: Path) -> None:
    """Names that others use are not claimed."""
    (tmp_path / "other.db").write_bytes(b"")
    for name in ("other.db", "trace.json", "x.csv", "report.sqlite"):
        assert not reading.can_read(str(tmp_path / name))


@pytest.mark.parametrize("value", ["", None, "N/A", "nan", "inf", "x", "1e30"])
def test_what_is_no_time_is_refused(value: Any) -> None:
    """Missing, not a number or endless: an error that says which, never 0."""
    with pytest.raises(ValueError, match=r"missing|number|NaN|endless"):
        ns_of_us(value)


def test_times_are_exact() -> None:
    """An epoch time in µs keeps its ns, as text, with a TAB, or from a database."""
    assert ns_of_us("1736413971558972.913\t") == 1_736_413_971_558_972_913
    assert ns_of_ns("1795852602450540287") == 1_795_852_602_450_540_287


# --- figures without a place in time ------------------------------------------------------------------------------------------

MEMORY_RECORD = """Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB),Total Active(MB),Stream Ptr,Device Type
PTA,"1704161511420289.011\t",1.5,20.0,1.5,281,NPU:0
PTA,"1704161511420300.011\t",9.25,22.0,9.0,281,NPU:0
PTA,"1704161511420310.511\t",0.5,22.0,0.5,281,NPU:0
APP,"1704161511420290.000\t",,1024.0,,,NPU:0
GE,not a time,1,1,1,,NPU:0
"""
OPERATOR_MEMORY = """Name,Size(KB),Allocation Time(us),Release Time(us),Active Release Time(us),Duration(us),Active Duration(us),Device Type
aten::empty,512,"1704161511420289.011\t","1704161511420299.011\t",,10.0,10.0,NPU:0
aten::empty,1024.5,"1704161511420289.011\t",,,,,NPU:0
aten::mm,2048,"1704161511420289.011\t","1704161511420290.000\t",,0.989,,NPU:0
aten::mm,N/A,,,,,,NPU:0
"""


def table(trace: Any, title: str) -> list[dict[str, Any]]:
    [found] = [table for table in trace.tables if table.title == title]
    return [dict(zip([name for name, _ in found.columns], row, strict=True)) for row in found.rows]


def test_memory_over_time_and_its_peaks(tmp_path: Path) -> None:
    """``memory_record.csv``: the course of each component in bytes, its peaks and when; KB and MB are of 1024."""
    path = tmp_path / "memory_record.csv"
    path.write_text(MEMORY_RECORD)
    trace = read(str(path))
    course = trace.metadata["memory"]["PTA", "NPU:0"]
    assert course[1] == (1704161511420300011, 9699328, 23068672, 9437184)
    rows = table(trace, "memory: peaks by component")
    assert [
        (row["component"], row["allocated"], row["reserved"], row["reserved peak at"], row["records"]) for row in rows
    ] == [
        ("APP", None, 1 << 30, 989, 1),
        ("PTA", 9699328, 23068672, 11000, 3),
    ]
    assert trace.problems == ["left out: 1 value, time not a number"]
    assert not trace.completeness.complete


def test_memory_by_operator(tmp_path: Path) -> None:
    """``operator_memory.csv``: what each operator allocated, and what was not released inside the window."""
    path = tmp_path / "operator_memory.csv"
    path.write_text(OPERATOR_MEMORY)
    rows = table(read(str(path)), "memory by operator")
    assert [tuple(row.values()) for row in rows] == [
        ("aten::mm", "NPU:0", 1, 2 << 20, 2 << 20, 0, 0, 989),
        ("aten::empty", "NPU:0", 2, 1573376, 1049088, 1, 1049088, 10000),
    ]


def collective(elapsed: float, transit: float, wait: float, size: float) -> dict[str, Any]:
    return {
        "Communication Time Info": {
            "Start Timestamp(us)": 1704161511420289.0, "Elapse Time(ms)": elapsed, "Transit Time(ms)": transit,
            "Wait Time(ms)": wait, "Synchronization Time(ms)": wait / 2, "Idle Time(ms)": 0.1,
            "Wait Time Ratio": 0.5, "Synchronization Time Ratio": 0.25,
        },
        "Communication Bandwidth Info": {
            "SDMA": {"Transit Size(MB)": size, "Transit Time(ms)": transit, "Bandwidth(GB/s)": size / transit,
                     "Large Packet Ratio": 0, "Size Distribution": {}},
            "RDMA": {"Transit Size(MB)": 0, "Transit Time(ms)": 0, "Bandwidth(GB/s)": 0, "Large Packet Ratio": 0,
                     "Size Distribution": {}},
        },
    }  # fmt: skip


CALLS = {
    "hcom_allReduce__629_0_1@123": collective(1.25, 0.5, 0.125, 33.5),
    "hcom_allReduce__629_1_1@123": collective(2.5, 1.0, 0.25, 67.25),
    "hcom_send__629_2_1@123": collective(0.75, 0.5, 0.0625, 8.0),
}


def test_collectives_by_operation_and_link(tmp_path: Path) -> None:
    """``communication.json`` of a rank: calls of one collective together, the file's own sum not counted again."""
    content = {"step3": {"p2p": {"hcom_send__629_2_1@123": CALLS["hcom_send__629_2_1@123"]},
                         "collective": {**{k: v for k, v in CALLS.items() if "allReduce" in k}, "Total Op Info": CALLS["hcom_send__629_2_1@123"]}}}  # fmt: skip
    path = tmp_path / "communication.json"
    path.write_text(json.dumps(content))
    trace = read(str(path))
    rows = table(trace, "collectives by operation")
    assert [
        (row["step"], row["kind"], row["operation"], row["calls"], row["elapsed"], row["transit"]) for row in rows
    ] == [
        ("step3", "p2p", "hcom_send", 1, 750_000, 500_000),
        ("step3", "collective", "hcom_allReduce", 2, 3_750_000, 1_500_000),
    ]
    assert [tuple(row.values()) for row in table(trace, "collectives by link")] == [
        ("step3", "p2p", "SDMA", 8_000_000, 500_000, "16"),
        ("step3", "collective", "SDMA", 100_750_000, 1_500_000, "67.17"),
    ]


def test_the_clusters_collectives_keep_their_ranks(tmp_path: Path) -> None:
    """``cluster_communication.json``: a rank stands below the operation, and in a column of its own."""
    content = {"collective": {"step3": {"hcom_allReduce__629_0_1@123": {"0": CALLS["hcom_allReduce__629_0_1@123"], "1": CALLS["hcom_allReduce__629_1_1@123"]}}}}  # fmt: skip
    path = tmp_path / "cluster_communication.json"
    path.write_text(json.dumps(content))
    rows = table(read(str(path)), "collectives by operation")
    assert [(row["rank"], row["operation"], row["elapsed"]) for row in rows] == [
        ("0", "hcom_allReduce", 1_250_000),
        ("1", "hcom_allReduce", 2_500_000),
    ]


@pytest.mark.npu
def test_sums_of_collectives_are_the_vendors(npu: Any, tmp_path: Path) -> None:
    """torch_npu's own parser, given the same calls, writes totals that ours are equal to."""
    code = """
    from torch_npu.profiler.analysis.prof_view._communication_parser import CommunicationParser
    parser = CommunicationParser.__new__(CommunicationParser)
    calls = json.load(open(os.environ["CALLS"]))
    json.dump({"step": parser.get_communication_ops_dict(calls)}, open(os.environ["WROTE"], "w"))
    """
    (tmp_path / "calls.json").write_text(json.dumps(CALLS))
    wrote = tmp_path / "communication.json"
    ran = npu(code, CALLS=str(tmp_path / "calls.json"), WROTE=str(wrote))
    assert ran.status == 0, ran.err
    theirs = json.loads(wrote.read_text())["step"]["collective"]["Total Op Info"]
    [ours] = [row for row in table(read(str(wrote)), "collectives by operation") if row["kind"] == "collective"]
    keys = {
        "elapsed": "Elapse",
        "transit": "Transit",
        "wait": "Wait",
        "synchronization": "Synchronization",
        "idle": "Idle",
    }
    for name, key in keys.items():
        assert ours[name] == round(theirs["Communication Time Info"][f"{key} Time(ms)"] * 1e6)
    [link] = [row for row in table(read(str(wrote)), "collectives by link") if row["kind"] == "collective"]
    assert link["size"] == round(theirs["Communication Bandwidth Info"]["SDMA"]["Transit Size(MB)"] * 1e6)


def test_a_report_of_a_directory_has_the_vendors_sums(tmp_path: Path, shared: Path) -> None:
    """``accelprof report x_ascend_pt cluster_step_trace_time.csv``: kernels, memory and the sums by step and rank, in report and page."""
    import shutil

    from accelprof.cli.main import cli

    output = tmp_path / "node_1_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    for name in ("trace_view.json", "cluster_step_trace_time.csv"):
        shutil.copyfile(shared / "samples" / "ascend" / name, (tmp_path if "cluster" in name else output) / name)
    (output / "memory_record.csv").write_text(MEMORY_RECORD)
    page = tmp_path / "page.html"
    argv = ["report", str(output.parent), str(tmp_path / "cluster_step_trace_time.csv")]
    done = CliRunner().invoke(cli, [*argv, "--json", "--html", str(page)])
    assert done.exit_code == 0, done.output
    files = {os.path.basename(row["path"]): row for row in json.loads(done.stdout)["devices"]}
    assert files["node_1_ascend_pt"]["devices"][0]["kernels"] == 274
    assert [table["title"] for table in files["node_1_ascend_pt"]["tables"]] == ["memory: peaks by component"]
    [steps] = files["cluster_step_trace_time.csv"]["tables"]
    names = [name for name, _ in steps["columns"]]
    with open(shared / "samples" / "ascend" / "cluster_step_trace_time.csv", newline="") as file:
        theirs = list(csv.DictReader(file))
    for ours, given in ((name, f"{name[0].upper()}{name[1:]}") for name in ("computing", "free", "stage")):
        mine = [row[names.index(ours)] for row in steps["rows"]]
        assert mine == [round(Decimal(row[given]) * 1000) for row in theirs], ours
    text = page.read_text()
    assert "communication not overlapped" in text
    assert "memory: peaks by component" in text


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ([], "neither ASCEND_PROFILER_OUTPUT nor data of a profile (PROF_*, FRAMEWORK); copy the whole directory"),
        (["FRAMEWORK/torch.op_range"], "ASCEND_PROFILER_OUTPUT is missing. `accelprof analyse {}` makes them"),
        (["PROF_1/device_0/data/x", "ASCEND_PROFILER_OUTPUT/"], "which hold its timeline. `accelprof analyse {}` makes them where torch_npu is installed (with --force"),
        (["ASCEND_PROFILER_OUTPUT/kernel_details.csv"], "has neither of trace_view.json and ascend_pytorch_profiler*.db, which hold its timeline. copy them from where it was recorded; or give a file of it that is there: kernel_details.csv"),
        (["ASCEND_PROFILER_OUTPUT/accelprof-analysis-failed.txt"], "its analysis failed: Name"),
    ],
)  # fmt: skip
def test_a_directory_without_its_timeline_says_what_is_missing(tmp_path: Path, files: list[str], says: str) -> None:
    """Never analysed, analysed in part, copied in part, failed: the file that is missing and what makes it."""
    place = tmp_path / "host_1_20260101_ascend_pt"
    place.mkdir()
    for name in files:
        target = place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.mkdir() if name.endswith("/") else target.write_text("Name\n")
    with pytest.raises(ReadError, match=re.escape(says.format(place))):
        read_any(place)
