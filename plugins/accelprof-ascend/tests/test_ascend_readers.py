"""Readers: public samples with sums computed elsewhere, and small files of every kind of fault."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from accelprof_ascend import reading
from accelprof_ascend.npu import NpuTool
from accelprof_ascend.times import ns_of_ns, ns_of_us

from accelprof.analysis.attribution import attribute
from accelprof.analysis.reading import read_any
from accelprof.contracts.spans import Clock, Kind, union_ns
from accelprof.errors import ReadError


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
    assert trace.devices() == [3]
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
    with sqlite3.connect(path) as database:
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


def test_a_database_without_device_tables_says_so(tmp_path: Path) -> None:
    """The host side alone is no empty device: the missing table is named."""
    path = tmp_path / "ascend_pytorch_profiler.db"
    make_database(path)
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE TASK")
    database.close()
    assert any("no table TASK" in problem for problem in read_any(path).problems)


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
