"""Chrome traces as they come: exact times, every kind of damage, kinds by category."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accelprof.analysis.attribution import attribute
from accelprof.analysis.reading import read_any
from accelprof.cli.main import cli
from accelprof.contracts.spans import Clock, HostCalls, Kind
from accelprof.errors import ReadError
from accelprof.reading.chrome import read_chrome
from accelprof.reading.chrome_file import BadTimeError, exact_ns
from accelprof.testing import RecordingTool, capture
from accelprof.testing.files import union_ns

#: a busy machine is no failure
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
TWO = (
    '{"ph":"X","name":"a","pid":1,"tid":1,"ts":10.5,"dur":1},\n{"ph":"X","name":"b","pid":1,"tid":1,"ts":12,"dur":2.25}'
)


def kernels(trace: Any) -> list[Any]:
    return list(trace.of_kind(Kind.KERNEL, Kind.COMMUNICATION))


@pytest.mark.parametrize(
    ("sample", "count", "total_ns", "union"),
    [
        ("hta/trace_compare/base/base.json.gz", 6, 432_000, 432_000),
        ("hta/trace_compare/test/test.json.gz", 5, 428_000, 428_000),
        ("tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz", 60, 307_197, 307_197),
        ("tracelens/mi300/gaunernst_bert-small-uncased__1016001.json.gz", 60, 388_344, 388_344),
        ("tracelens/b200/eager_trace.json.gz", 768, 10_862_916, 10_793_638),
    ],
)
def test_sums_of_real_traces(shared: Path, sample: str, count: int, total_ns: int, union: int) -> None:
    """Number, sum and union of kernels are those that were computed independently; annotations are no kernels."""
    found = kernels(read_chrome(str(shared / "samples" / sample), "torch"))
    assert len(found) == count
    assert sum(span.duration_ns for span in found) == total_ns
    assert union_ns((span.start_ns, span.end_ns) for span in found) == union


def test_a_step_on_both_sides_is_one_step(shared: Path) -> None:
    """``ProfilerStep#6`` stands on the host and on the device side; only the host's is a step."""
    path = shared / "samples/tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz"
    trace = read_chrome(str(path), "torch")
    assert [span.name for span in trace.of_kind(Kind.STEP)] == ["ProfilerStep#6"]
    annotations = list(trace.of_kind(Kind.DEVICE_ANNOTATION))
    assert sum(span.duration_ns for span in annotations) == 3_907_827
    assert all(busy < 3_907_827 for busy in [row.busy_ns for row in attribute(trace).devices])


def test_string_time_stamps_keep_their_nanoseconds(shared: Path) -> None:
    """All 2,212 spans with string times are read; first and last are exact, which float64 could not hold."""
    trace = read_chrome(str(shared / "samples/ascend/trace_view.json"), "npu")
    assert len(trace.spans) == 2212
    assert min(span.start_ns for span in trace.spans) == 1_704_161_511_420_289_011
    assert max(span.end_ns for span in trace.spans) - 1_704_161_511_420_289_011 == 14_133_430
    assert trace.clock is Clock.EPOCH
    assert trace.problems == []


def test_base_time_is_added(shared: Path) -> None:
    """Times of newer Kineto files are relative to ``baseTimeNanoseconds``; the spans' are not."""
    path = next((shared / "samples/hta/cpu_only").glob("*.json.gz"))
    trace = read_chrome(str(path), "torch")
    assert min(span.start_ns for span in trace.spans) == 1_719_853_884_000_000_000 + 1_212_075_525_586_016
    assert trace.origin.rank == 34
    assert attribute(trace).devices == []


def test_a_rocm_trace_has_its_launches(shared: Path) -> None:
    """Kineto on ROCm: kernels and the calls that launched them carry the same correlation."""
    path = shared / "samples/hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz"
    trace = read_chrome(str(path), "torch")
    launches = {span.args["correlation"] for span in trace.of_kind(Kind.RUNTIME) if "correlation" in span.args}
    assert len(kernels(trace)) == 14
    assert all(span.args["correlation"] in launches for span in kernels(trace))


def test_a_trace_of_another_tool_is_read(shared: Path) -> None:
    """viztracer's trace comes out whole, with a clock of its own."""
    trace = read_chrome(str(shared / "samples/viztracer/tests_data_multithread.json"), "viztracer")
    assert len(trace.spans) == 404
    assert trace.clock is Clock.RELATIVE
    assert trace.metadata["event_count"] == 410


@patient
@given(st.integers(-(9 * 10**15), 9 * 10**15), st.integers(0, 999))
def test_times_are_exact(whole: int, fraction: int) -> None:
    """A time in µs with three decimals becomes exactly that many ns, as number and as string."""
    text = f"{whole}.{fraction:03d}"
    expected = int(Decimal(text) * 1000)
    assert exact_ns(text.encode()) == expected
    assert exact_ns(f'"{text}"'.encode()) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [(b"5", 5000), (b"5.1", 5100), (b"5.12", 5120), (b"1.5e3", 1_500_000), (b"12.77012757", 12770), (b"-2.5", -2500)],
)
def test_other_ways_to_write_a_time(raw: bytes, expected: int) -> None:
    """Exponents, fewer or more than three decimals and negative times are understood."""
    assert exact_ns(raw) == expected


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "missing"),
        (b"null", "missing"),
        (b"NaN", "NaN"),
        (b'"inf"', "endless"),
        (b"1e300", "endless"),
        (b'"x"', "not a number"),
    ],
)
def test_what_is_no_time_is_said(raw: bytes, reason: str) -> None:
    """Missing, NaN and endless times are refused by name; none becomes 0."""
    with pytest.raises(BadTimeError, match=reason):
        exact_ns(raw)


@pytest.mark.parametrize(
    ("text", "names", "said"),
    [
        ('[{"ph":"X","name":"say "hi"","ts":1,"dur":2},' + TWO + "]", ['say "hi"', "a", "b"], "unescaped quote, 2 times, first at character 23"),
        ('[{"ph":"X","name":"D:\\qa\\z","ts":1,"dur":2},' + TWO + "]", ["D:\\qa\\z", "a", "b"], "lone backslash, 2 times, first at character 21"),
        ('[{"ph":"X","name":"D:\\","ts":1,"dur":2},' + TWO + "]", ["D:\\", "a", "b"], "lone backslash, 1 time,"),
        ('[{"ph":"X","name":"n","ts":1,"dur":NaN},' + TWO + "]", ["a", "b"], "left out: 1 event, duration NaN"),
        ('[{"ph":"X","name":"n","ts":1,"dur":-1},' + TWO + "]", ["a", "b"], "left out: 1 event, negative duration"),
        ('[{"ph":["X"],"name":"n","ts":1,"dur":1},' + TWO + "]", ["a", "b"], "left out: 1 event, its ph is no text"),
        ('[{"name":"n","ts":1,"dur":1},' + TWO + "]", ["a", "b"], "left out: 1 event, its ph is no text"),
        ('[{"ph":"X","name":"n","ts":1,"dur":1e300},' + TWO + "]", ["a", "b"], "left out: 1 event, duration endless"),
        ('[{"ph":"X","name":"n","ts":1},' + TWO + "]", ["a", "b"], "left out: 1 event, duration missing"),
        ("[" + TWO, ["a", "b"], "the array of events is not closed; the file ends at character"),
        ("[" + TWO[:-20], ["a"], "inside the event that begins at 58"),
        ('{"traceEvents":[' + TWO + ',{"ph":"X","na', ["a", "b"], "inside the event that begins at"),
        ("[17," + TWO + "]", ["a", "b"], "left out: 1 event, a int where an event should be, first at character 1"),
        ('[{"ph":"X","name":?},' + TWO + "]", ["a", "b"], "left out: 1 event"),
        ('[{"ph":"X","name":"a\tb","ts":1,"dur":2},' + TWO + "]", ["a\tb", "a", "b"], "not strictly JSON"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)  # fmt: skip
def test_damage_is_repaired_or_named(trace_of: Callable[..., Any], text: str, names: list[str], said: str) -> None:
    """Each fault is named with what it is and where; the other events count, and nothing counts as 0."""
    trace = trace_of(text)
    assert [span.name for span in trace.spans] == names
    assert any(said in problem for problem in trace.problems), trace.problems
    assert all(span.duration_ns > 0 for span in trace.spans)


def test_top_level_facts_survive_a_repair(trace_of: Callable[..., Any]) -> None:
    """``baseTimeNanoseconds`` behind a damaged array still moves the events."""
    bad = '{"ph":"X","name":"a "q"","ts":1,"dur":2}'
    trace = trace_of('{"traceEvents":[' + bad + '],"baseTimeNanoseconds":1719853884000000000}')
    assert trace.spans[0].start_ns == 1_719_853_884_000_001_000
    assert trace.metadata["state"] == "repaired"


def test_a_gzip_cut_by_four_bytes(trace_of: Callable[..., Any], tmp_path: Path) -> None:
    """All events before the cut count, and the cut is named with its position."""
    data = gzip.compress(f"[{TWO}]".encode())[:-4]
    (tmp_path / "cut.json.gz").write_bytes(data)
    trace = read_chrome(str(tmp_path / "cut.json.gz"), "torch")
    assert len(trace.spans) == 2
    assert f"the gzip stream is cut off at byte {len(data)}" in trace.problems
    assert trace.metadata["state"] == "truncated"


def test_a_gzip_cut_in_the_middle(tmp_path: Path) -> None:
    """What could be decompressed is read up to the last whole event."""
    events = [{"ph": "X", "name": f"n{i * 7919 % 1000}", "ts": i, "dur": 1} for i in range(5000)]
    data = gzip.compress(json.dumps(events).encode())
    path = tmp_path / "cut.json.gz"
    path.write_bytes(data[: len(data) // 2])
    trace = read_chrome(str(path), "torch")
    assert 500 < len(trace.spans) < 5000
    assert trace.metadata["state"] == "truncated"
    assert len(trace.problems) >= 2


def test_two_gzip_members_are_one_file(tmp_path: Path) -> None:
    """A file of two gzip members is read whole, without a word."""
    text = f"[{TWO}]".encode()
    path = tmp_path / "two.json.gz"
    path.write_bytes(gzip.compress(text[:30]) + gzip.compress(text[30:]))
    trace = read_chrome(str(path), "torch")
    assert len(trace.spans) == 2
    assert trace.problems == []


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_a_second_document_ends_a_report_with_1(tmp_path: Path, own: bool, zipped: bool) -> None:
    """In the text, or a gzip member of its own: what stands in it is in no figure."""
    top: dict[str, object] = {"otherData": {"accelprof": {"format": 1, "window": "w", "steps": [2]}}} if own else {}
    text = json.dumps({**top, "traceEvents": json.loads(f"[{TWO}]")}).encode()
    path = tmp_path / f"x.json{'.gz' * zipped}"
    for parts, status in (([text], 0), ([text, text], 1)):
        path.write_bytes(b"".join(gzip.compress(part) if zipped else part for part in parts))
        told = CliRunner().invoke(cli, ["report", str(path), "--no-html"])
        assert (told.exit_code, "a second document" in " ".join(told.output.split())) == (status, status == 1)


def test_gzip_under_a_plain_name(tmp_path: Path) -> None:
    """A ``.json`` that is gzip inside is recognised by content."""
    path = tmp_path / "x.json"
    path.write_bytes(gzip.compress(f"[{TWO}]".encode()))
    assert len(read_chrome(str(path), "torch").spans) == 2


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b"hello", "not JSON: it begins with b'hello'"),
        (b'{"a": 1}', "no traceEvents"),
        (b'{"a": "b" c}', "no traceEvents in it"),
        (b"\x1f\x8b\x08\x00", "nothing could be decompressed"),
    ],
)
def test_no_trace_is_an_error(tmp_path: Path, content: bytes, reason: str) -> None:
    """A file that is no trace is refused with the path and the reason."""
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(ReadError, match=reason) as caught:
        read_chrome(str(path), "torch")
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "cat", "kind"),
    [
        ("gemm", "kernel", Kind.KERNEL),
        ("gemm", "Kernel", Kind.KERNEL),
        ("ncclDevKernel_AllReduce_Sum_f32", "kernel", Kind.COMMUNICATION),
        ("void vllm::cross_device_reduce_1stage<float>", "kernel", Kind.COMMUNICATION),
        ("rcclGenericKernel", "kernel", Kind.COMMUNICATION),
        ("Memcpy HtoD", "gpu_memcpy", Kind.COPY),
        ("Memset", "gpu_memset", Kind.MEMSET),
        ("x", "gpu_user_annotation", Kind.DEVICE_ANNOTATION),
        ("x", "user_annotation", Kind.RANGE),
        ("ProfilerStep#4", "user_annotation", Kind.STEP),
        ("nccl:all_reduce", "user_annotation", Kind.RANGE),
        ("aten::mm", "cpu_op", Kind.OPERATOR),
        ("cudaLaunchKernel", "cuda_runtime", Kind.RUNTIME),
        ("actor/update", "phase", Kind.PHASE),
    ],
)
def test_kinds(trace_of: Callable[..., Any], name: str, cat: str, kind: Kind) -> None:
    """Kineto's categories become kinds; collectives are told by name among kernels only."""
    event = {"ph": "X", "name": name, "cat": cat, "ts": 1, "dur": 1, "pid": 0, "tid": 7, "args": {"stream": 7}}
    [span] = trace_of(json.dumps([event])).spans
    assert span.kind is kind


class Abc(RecordingTool):
    """A third party's, whose Chrome traces have their own calls."""

    name = "abc"
    writes_chrome_trace = True
    host_calls = HostCalls(launches="^abcGo", waits="^abcHalt")

    @classmethod
    def can_read(cls, path: str) -> bool:
        return path.endswith(".abc.json")


@pytest.mark.parametrize(
    ("name", "of_torch", "of_abc"),
    [
        ("cudaLaunchKernel", False, False), ("cudaDeviceSynchronize", True, False), ("cuCtxSynchronize", True, False),
        ("hipStreamSynchronize", True, False), ("aclrtSynchronizeStreamWithTimeout", True, False), ("urQueueFinish", True, False),
        ("musaStreamSynchronize", True, False), ("cudaStreamWaitEvent", False, False), ("abcHalt", False, True),
    ],
)  # fmt: skip
def test_calls_that_wait_are_those_that_the_tool_names(tmp_path: Path, name: str, of_torch: bool, of_abc: bool) -> None:
    """In torch's traces every vendor's, in a third party's those that it declares; a file of nobody's has all of these."""
    event = {"ph": "X", "name": name, "cat": "cuda_runtime", "ts": 1, "dur": 1, "pid": 0, "tid": 7}
    for file in ("x.pt.trace.json", "x.abc.json", "x.json"):
        (tmp_path / file).write_text(json.dumps([event]))
    with capture(tool=None, tools=(Abc,)):
        found = [
            read_any(tmp_path / file, tool).spans[0].kind is Kind.SYNC
            for file, tool in (("x.pt.trace.json", "torch"), ("x.abc.json", "abc"), ("x.json", None))
        ]
    assert found == [of_torch, of_abc, of_torch or of_abc]


def test_begin_and_end_events_pair_per_thread(trace_of: Callable[..., Any]) -> None:
    """B and E pair as a stack per thread; an end alone is left out, a begin alone was open when recording stopped."""
    events = [
        ("B", "out", 1, 1),
        ("B", "in", 2, 1),
        ("B", "else", 2, 2),
        ("E", "", 3, 1),
        ("E", "", 9, 1),
        ("E", "", 9, 1),
    ]
    rows = [{"ph": ph, "name": name, "ts": at, "pid": 1, "tid": tid} for ph, name, at, tid in events]
    trace = trace_of(json.dumps(rows))
    found = [(span.name, span.duration_ns, span.args.get("in_progress", False)) for span in trace.spans]
    assert found == [("in", 1000, False), ("out", 8000, False), ("else", 7000, True)]
    assert trace.completeness.left_out == {"ends without a begin": 1}


def test_the_only_work_of_a_device_may_be_left_out(trace_of: Callable[..., Any]) -> None:
    """A kernel whose start nobody can mean is counted as left out, whatever else stands on its device."""
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "dur": 1, "tid": 7, "args": {"stream": 7}}
    events = [{**kernel, "pid": 0, "ts": 5}, {**kernel, "pid": 3, "ts": -1}]
    trace = trace_of(json.dumps({"baseTimeNanoseconds": 1_795_852_566_000_000_000, "traceEvents": events}))
    assert [(span.pid, span.device) for span in trace.spans] == [(0, 0)]
    assert trace.completeness.left_out == {"start before the file's base": 1}


def test_work_that_begins_and_does_not_end_is_left_out(trace_of: Callable[..., Any]) -> None:
    """How long a kernel or a call took nobody knows; a range and what is asynchronous was open when recording stopped."""
    rows = [
        ("B", "kernel", "k"),
        ("B", "cuda_runtime", "c"),
        ("B", "user_annotation", "r"),
        ("b", "x", "a"),
        ("X", "cpu_op", "o"),
    ]
    events = [
        {"ph": ph, "cat": cat, "name": name, "ts": 1, "dur": 9, "pid": 1, "tid": 1, "id": 1} for ph, cat, name in rows
    ]
    trace = trace_of(json.dumps(events))
    assert sorted((span.name, span.end_ns, span.args.get("in_progress")) for span in trace.spans) == [
        ("a", 10_000, True), ("o", 10_000, None), ("r", 10_000, True),
    ]  # fmt: skip
    assert trace.completeness.left_out == {"begins without an end": 2}


def test_asynchronous_pairs_instants_and_flows_are_counted(trace_of: Callable[..., Any]) -> None:
    """b/e pair by id, instants become marks, flows and names are counted."""
    rows = [
        {"ph": "b", "cat": "c", "id": "0x1", "name": "req", "ts": 1, "pid": 1, "tid": 1},
        {"ph": "b", "cat": "c", "id": "0x2", "name": "other", "ts": 2, "pid": 1, "tid": 1},
        {"ph": "e", "cat": "c", "id": "0x1", "name": "req", "ts": 5, "pid": 1, "tid": 2},
        {"ph": "e", "cat": "c", "id": "0x2", "name": "other", "ts": 9, "pid": 1, "tid": 2},
        {"ph": "i", "name": "mark", "ts": 4, "pid": 1, "tid": 1, "s": "t"},
        {"ph": "s", "id": 1, "name": "f", "cat": "ac2g", "ts": 4, "pid": 1, "tid": 1},
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "p"}},
    ]
    trace = trace_of(json.dumps(rows))
    assert {span.name: span.duration_ns for span in trace.spans} == {"req": 4000, "other": 7000}
    assert [mark.name for mark in trace.marks] == ["mark"]
    assert trace.metadata["events"] == {"M": 1, "b": 2, "e": 2, "i": 1, "s": 1}


def test_no_events_is_said(trace_of: Callable[..., Any]) -> None:
    """A sound file without events says so."""
    assert trace_of('{"traceEvents": []}').problems == ["the file holds no events"]


@patient
@given(st.text(max_size=40), st.sampled_from(["", '"', "\\", "\x01"]))
def test_any_name_survives_or_is_named(tmp_path_factory: pytest.TempPathFactory, name: str, raw: str) -> None:
    """Whatever stands raw inside a name, the event after it is read."""
    inner = json.dumps(name)[1:-1] + raw
    path = tmp_path_factory.mktemp("any") / "x.json"
    text = '[{"ph":"X","name":"' + inner + '","ts":1,"dur":1,"pid":1},' + TWO + "]"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    trace = read_chrome(str(path), "chrome")
    assert [span.name for span in trace.spans][-2:] == ["a", "b"]


@pytest.mark.parametrize(
    "odd", ['"a text"', "[1]", "null", '{"correlation": [2], "stream": [7]}', '{"device": {}}', ""]
)
def test_one_events_odd_arguments_take_nothing_from_its_neighbours(trace_of: Any, odd: str) -> None:
    """Arguments are read of many events in one go, and of each where that does not hold."""
    given = ['{"device": 0, "stream": 7, "correlation": 1}', odd, '{"device": 0, "stream": 8, "correlation": 3}']
    events = ", ".join(
        f'{{"ph": "X", "cat": "kernel", "name": "k{at}", "pid": 0, "tid": 5, "ts": {at}, "dur": 1'
        + (f', "args": {args}}}' if args else "}")
        for at, args in enumerate(given)
    )
    columns = trace_of(f'{{"traceEvents": [{events}]}}').columns
    streams = [columns.streams[code] for code in columns.stream.tolist()]
    assert columns.correlation.tolist()[::2] == [1, 3]
    assert (streams[0], streams[2], len(columns)) == (7, 8, 3)
    assert streams[1] == ("unknown" if "[7]" in odd else 5)
