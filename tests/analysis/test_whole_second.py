"""Every nanosecond of a window in one part, who waited for whom, the chain that decided a step's end: counted on paper."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelprof.analysis.critical import Leaf, Step
from accelprof.analysis.division import PARTS
from accelprof.analysis.files import summarise_files
from accelprof.analysis.first import sentences
from accelprof.analysis.holders import launches_of
from accelprof.analysis.late import stragglers
from accelprof.analysis.replay import Graph
from accelprof.analysis.report import Report
from accelprof.analysis.seconds import WAITING_NAME, _named_so, divided, divisions, host_seconds
from accelprof.analysis.summary import summarise
from accelprof.analysis.whatif import what_if
from accelprof.contracts.spans import Kind, Span
from accelprof.reading.columns import CODES, NONE, Columns
from tests.analysis.conftest import EPOCH_US

relaxed = settings(deadline=None)

pytestmark = pytest.mark.usefixtures("in_parts")


def host(name: str, kind: Kind, start: int, end: int, category: str = "", **args: Any) -> Span:
    return Span(name, kind, start, end, 1, 1, category=category, args=args)


def work(name: str, kind: Kind, start: int, end: int, number: int, stream: int = 7) -> Span:
    return Span(name, kind, start, end, 1, device=0, stream=stream, args={"correlation": number})


def test_every_part_of_a_device_second() -> None:
    """A window of 100 ns with a hand-made moment for each part; what each is is counted in docs/analysis.md."""
    spans = [
        host("window", Kind.WINDOW, 0, 100),
        host("update", Kind.PHASE, 5, 70),
        host("cudaLaunchKernel", Kind.RUNTIME, 10, 12, correlation=1), work("gemm", Kind.KERNEL, 15, 25, 1),
        host("cudaLaunchKernel", Kind.RUNTIME, 12, 14, correlation=2),
        work("ncclAllReduce", Kind.COMMUNICATION, 20, 30, 2, stream=20),
        host("cudaMemcpyAsync", Kind.RUNTIME, 31, 32, correlation=3), work("Memcpy", Kind.COPY, 32, 35, 3),
        host("cudaDeviceSynchronize", Kind.SYNC, 33, 41),
        host("all_reduce", Kind.PHASE, 45, 50, category="collective"),
        host("recv", Kind.PHASE, 50, 60),
        host("next batch", Kind.RANGE, 75, 80),
    ]  # fmt: skip
    [second] = divisions(Columns.from_spans(spans), "G/rank0")[0]
    assert second.parts == {
        "compute": 5,  # 15-20
        "communication_overlapped": 5,  # 20-25
        "communication_exposed": 5,  # 25-30
        "copy": 3,  # 32-35
        "idle_queued": 3,  # 12-15: the first kernel was launched and had not started
        "idle_sync": 6,  # 35-41
        "idle_collective": 5,  # 45-50
        "idle_waiting": 10,  # 50-60
        "idle_launching": 7 + 2 + 4 + 10 + 5,  # 5-12, 30-32, 41-45, 60-70, 75-80
        "outside": 5 + 5 + 20,  # 0-5, 70-75, 80-100
        "unknown": 0,
    }
    assert sum(second.parts.values()) == second.window_ns == 100


def test_a_file_without_a_host_is_unknown_where_the_device_idles() -> None:
    """Device work alone says nothing of why it is idle."""
    [second] = divisions(Columns.from_spans([work("k", Kind.KERNEL, 0, 4, 1), work("k", Kind.KERNEL, 9, 10, 2)]), "w")[
        0
    ]
    assert (second.parts["compute"], second.parts["unknown"]) == (5, 5)


@relaxed
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 8), st.integers(1, 5), st.none() | st.integers(0, 6)), min_size=1, max_size=8
    ),
    st.none() | st.tuples(st.integers(0, 50), st.integers(0, 20)),
)  # fmt: skip
def test_nothing_is_said_to_be_queued_or_not_without_its_launch(
    pieces: list[tuple[int, int, int, int | None]], waits: tuple[int, int] | None
) -> None:
    """Where all launches are missing nothing is known of what is queued; where some are, the others count. Beside a count of each
    nanosecond."""
    window = 100
    spans = [host("update", Kind.PHASE, 0, window)]
    free: dict[int, int] = {}
    busy, queued, perhaps = set[int](), set[int](), set[int]()
    for number, (stream, gap, length, early) in enumerate(pieces):
        begin = free.get(stream, 0) + gap
        free[stream] = begin + length
        spans.append(work("gemm", Kind.KERNEL, begin, begin + length, number, stream))
        busy |= set(range(begin, begin + length))
        if early is not None:
            launched = max(begin - early, 0)
            spans.append(host("cudaLaunchKernel", Kind.RUNTIME, max(launched - 1, 0), launched, correlation=number))
            queued |= set(range(launched, begin))
    if all(early is None for *_, early in pieces):
        perhaps = set(range(window))
    waiting = set[int]()
    if waits is not None:
        spans.append(host("recv", Kind.PHASE, waits[0], sum(waits)))
        waiting = set(range(waits[0], sum(waits)))
    [second] = divisions(Columns.from_spans(spans), "w", [("w", 0, window)])[0]
    idle = set(range(window)) - busy - queued
    expected = {
        "compute": len(busy), "idle_queued": len(queued - busy), "idle_waiting": len(idle & waiting),
        "unknown": len((idle - waiting) & perhaps), "idle_launching": len(idle - waiting - perhaps),
    }  # fmt: skip
    assert {name: ns for name, ns in second.parts.items() if ns} == {name: ns for name, ns in expected.items() if ns}


#: what a moment of the host is, by the first of these that holds it; a step is none of them
RULES = ("idle_sync", "idle_collective", "idle_waiting", "idle_launching")
OF_KIND = {
    (Kind.SYNC, "cudaStreamSynchronize"): "idle_sync", (Kind.PHASE, "all_reduce"): "idle_collective",
    (Kind.RANGE, "recv"): "idle_waiting", (Kind.PHASE, "fwd"): "idle_launching", (Kind.RANGE, "fwd"): "idle_launching",
    (Kind.OPERATOR, "aten::mm"): "idle_launching", (Kind.RUNTIME, "cudaMalloc"): "idle_launching",
    (Kind.OVERHEAD, "Activity Buffer Request"): "idle_launching", (Kind.STEP, "ProfilerStep#1"): None,
}  # fmt: skip
of_host = st.tuples(st.sampled_from(sorted(OF_KIND)), st.integers(1, 2), st.integers(0, 50), st.integers(1, 30))


@relaxed
@given(st.lists(of_host, max_size=6), st.integers(1, 2), st.integers(0, 40), st.integers(0, 5), st.integers(1, 9))
def test_what_the_host_does_beside_a_count_of_each_nanosecond(
    rows: list[tuple[tuple[Kind, str], int, int, int]], thread: int, at: int, delay: int, length: int
) -> None:
    """A step is no phase, operator or call: what lies in it alone is outside. The thread that launches comes first."""
    launch, kernel = range(at, at + 2), range(at + 2 + delay, at + 2 + delay + length)
    spans = [
        Span("cudaLaunchKernel", Kind.RUNTIME, launch.start, launch.stop, 1, thread, args={"correlation": 1}),
        work("gemm", Kind.KERNEL, kernel.start, kernel.stop, 1),
    ]
    held = [(thread, launch, "idle_launching")]
    for (kind, name), tid, begin, taken in rows:
        category = "collective" if name == "all_reduce" else ""
        spans.append(Span(name, kind, begin, begin + taken, 1, tid, category=category))
        held.append((tid, range(begin, begin + taken), OF_KIND[kind, name] or ""))

    def part(moment: int) -> str:
        if moment in kernel:
            return "compute"
        if launch.stop <= moment < kernel.start:
            return "idle_queued"
        for mine in ({thread}, {1, 2}):
            here = {part for tid, stretch, part in held if tid in mine and moment in stretch}
            for name in RULES:
                if name in here:
                    return name
        return "outside"

    [second] = divisions(Columns.from_spans(spans), "w", [("w", 0, 60)])[0]
    assert {name: ns for name, ns in second.parts.items() if ns} == dict(Counter(map(part, range(60))))


def _torch(path: Any, *rows: dict[str, Any]) -> Report:
    """The report of a trace of torch with a window of 1 ms, all of it in a phase."""
    marks = [
        {"ph": "X", "cat": cat, "name": name, "pid": 9, "tid": 1, "ts": 0, "dur": 1000}
        for cat, name in (("Trace", "PyTorch Profiler (0)"), ("user_annotation", "train"))
    ]
    path.write_text(json.dumps({"traceEvents": [*marks, *rows]}))
    return summarise_files([str(path)]).report()


def test_a_window_whose_device_work_is_all_lost_is_no_computing(tmp_path: Any) -> None:
    """Fifty launches and no kernel: the file says so and is not whole, and nothing of the window is known; the phases alone, of a worker
    that launches nothing, are its computing."""
    launches = [
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 1, "ts": 10 + at, "dur": 1, "args": {"correlation": at}}
        for at in range(50)
    ]  # fmt: skip
    path = tmp_path / "t.json"
    found = _torch(path, *launches)
    [second] = found.seconds
    assert {part: ns for part, ns in second.parts.items() if ns} == {"unknown": 1_000_000}
    assert "t.json: 50 of 50 launches have no kernel in this file" in found.notices
    assert any("50 of 50 launches" in line for line in summarise_files([str(path)]).absent)
    assert not any("compute" in text for text in sentences(found))
    [second] = _torch(path).seconds
    assert second.parts["compute"] == 1_000_000


def test_kernels_without_any_launch_do_not_say_why_the_device_idles(tmp_path: Any) -> None:
    """Two kernels of 100 us in a phase of 1 ms and no launch: what was queued meanwhile is unknown, and a notice says why."""
    kernels = [
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": at, "dur": 100,
         "args": {"device": 0, "stream": 7, "correlation": at}}
        for at in (100, 500)
    ]  # fmt: skip
    found = _torch(tmp_path / "t.json", *kernels)
    [second] = found.seconds
    assert {part: ns for part, ns in second.parts.items() if ns} == {"compute": 200_000, "unknown": 800_000}
    assert any("Without their launches it is unknown whether they were queued" in text for text in found.notices)
    [said] = [text for text in sentences(found) if "compute" in text]
    assert said == "20.0% of the windows is compute; in 80.0% the device was idle and the files do not say why."


def test_a_worker_without_a_device_is_divided_by_its_phases() -> None:
    """Host phases: computing, communicating beside it on another thread, waiting for others, waiting for data, outside any. Who
    computes on one thread does not idle because another waits."""
    rows = [("update", "", 0, 40), ("all_reduce", "collective", 30, 50), ("recv", "", 35, 70)]
    second = host_seconds("w", "w1", 0, 100, rows)
    expected = {
        "compute": 30, "communication_overlapped": 10, "idle_collective": 10, "idle_waiting": 20, "outside": 30,
    }  # fmt: skip
    assert {part: ns for part, ns in second.parts.items() if ns} == expected


def test_a_thread_that_receives_hides_no_training() -> None:
    """Counted on paper: a thread trains from 0 to 95 while another is in recv until 100; one reduces from 10 to 60 beside a backward of
    0 to 50, and goes on alone after it."""
    second = host_seconds("w", "w1", 0, 100, [("train", "", 0, 95), ("recv", "", 0, 100)])
    assert {part: ns for part, ns in second.parts.items() if ns} == {"compute": 95, "idle_waiting": 5}
    rows = [("bwd", "", 0, 50), ("ar", "collective", 10, 60), ("w", "", 60, 70)]
    second = host_seconds("w", "w1", 0, 70, rows)
    expected = {"compute": 10 + 10, "communication_overlapped": 40, "idle_collective": 10}
    assert {part: ns for part, ns in second.parts.items() if ns} == expected


def test_a_data_loader_on_its_own_thread_hides_no_launching() -> None:
    """The main thread is busy launching for 90 of 100, ten kernels of 1 run; a thread that loads data all the time has what is left
    of the main thread's time, where that waits for nothing itself. The device idles because of who launches."""
    spans = [Span("loader", Kind.RANGE, 0, 100, 1, 9, category="data")]
    for n in range(10):
        begin = 10 * n
        spans += [
            host("aten::mm", Kind.OPERATOR, begin, begin + 9),
            host("cudaLaunchKernel", Kind.RUNTIME, begin + 7, begin + 8, correlation=n),
            work("gemm", Kind.KERNEL, begin + 8, begin + 9, n),
        ]
    [second] = divisions(Columns.from_spans(spans), "w", [("w", 0, 100)])[0]
    assert {part: ns for part, ns in second.parts.items() if ns} == {
        "compute": 10, "idle_launching": 80, "idle_waiting": 10,
    }  # fmt: skip
    spans.append(host("recv", Kind.PHASE, 91, 97))  # the main thread's own wait holds the device up
    [second] = divisions(Columns.from_spans(spans), "w", [("w", 0, 100)])[0]
    assert (second.parts["idle_waiting"], second.parts["idle_launching"]) == (10 + 6, 80 - 6)


def test_threads_that_launch_as_many_kernels_both_come_first() -> None:
    """Threads 1 and 2 launch a kernel each; 2 waits for the device from 20 to 60 while 1 computes until 50 and 3 loads data. Whose row
    stands first in the file changes nothing."""
    spans = [
        host("aten::mm", Kind.OPERATOR, 0, 50),
        host("cudaLaunchKernel", Kind.RUNTIME, 4, 5, correlation=1),
        work("gemm", Kind.KERNEL, 5, 10, 1),
        Span("cudaLaunchKernel", Kind.RUNTIME, 12, 13, 1, 2, args={"correlation": 2}),
        work("gemm", Kind.KERNEL, 13, 20, 2),
        Span("cudaDeviceSynchronize", Kind.SYNC, 20, 60, 1, 2),
        Span("loader", Kind.RANGE, 0, 70, 1, 9, category="data"),
    ]
    for order in (spans, spans[::-1]):
        [second] = divisions(Columns.from_spans(order), "w", [("w", 0, 100)])[0]
        assert {part: ns for part, ns in second.parts.items() if ns} == {
            "compute": 12, "idle_launching": 5 + 3, "idle_sync": 40, "idle_waiting": 10, "outside": 30,
        }  # fmt: skip


def test_categories_come_from_the_own_timeline(run_maker: Any, event: Any) -> None:
    """A torch trace has the phases by name alone; that ``grads`` is a collective and ``fetch`` a wait stands in the timeline. A name
    whose calls have several categories stays what the file says."""
    key = run_maker.target(0)
    phases = [
        ("update", 5, 40, {}), ("grads", 45, 50, {"category": "collective"}), ("fetch", 50, 60, {"category": "wait"}),
        ("post", 60, 70, {"category": "wait"}), ("post", 80, 85, {}),
    ]  # fmt: skip
    window = run_maker.timeline(key, [event(name, a, b - a, **more) for name, a, b, more in phases], end_us=100)
    [target] = run_maker.manifest["targets"]
    run_maker.artifact("a.pt.trace.json", "torch", target, [window])
    marks = [("accelprof window", 0, 100), *((name, a, b) for name, a, b, _ in phases)]
    events = [
        {"ph": "X", "cat": "user_annotation", "name": name, "pid": 100, "tid": 1, "ts": a, "dur": b - a} for name, a, b in marks
    ]  # fmt: skip
    where = {"correlation": 1, "device": 0, "stream": 7}
    launch = {"name": "cudaLaunchKernel", "pid": 100, "tid": 1, "ts": 12, "dur": 1, "args": {"correlation": 1}}
    events.append({"ph": "X", "cat": "cuda_runtime", **launch})
    events.append({"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 15, "dur": 10, "args": where})
    run_maker.directory.mkdir(parents=True, exist_ok=True)
    (run_maker.directory / "a.pt.trace.json").write_text(
        json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": EPOCH_US * 1000, "traceEvents": events})
    )
    [second] = summarise(run_maker.write()).to_json()["seconds"]
    found = {part: ns // 1000 for part, ns in second["parts"].items() if ns}
    assert (found["compute"], found["idle_collective"], found["idle_waiting"]) == (10, 5, 10)


stretches = st.lists(st.tuples(st.integers(-5, 40), st.integers(0, 10)).map(lambda p: (p[0], p[0] + p[1])), max_size=6)


@relaxed
@given(st.lists(stretches, min_size=1, max_size=4))
def test_a_moment_stands_in_the_first_part_that_holds_it(rules: list[list[tuple[int, int]]]) -> None:
    """Against counting every nanosecond one by one; the sum is the window exactly."""
    from accelprof.analysis.intervals import merged

    named = []
    for name, pairs in zip(PARTS, rules):
        table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        named.append((name, merged(table[:, 0], table[:, 1])))
    found = divided(0, 35, named, "unknown")
    expected = dict.fromkeys(PARTS, 0)
    for at in range(35):
        part = next((n for n, pairs in zip(PARTS, rules) if any(a <= at < b for a, b in pairs)), "unknown")
        expected[part] += 1
    assert found == expected
    assert sum(found.values()) == 35


MS = 1_000_000


def leaf(rank: int, phase: str, start: int, end: int, category: str = "") -> Leaf:
    return Leaf(f"G/rank{rank}", "G", 0, phase, category, start * MS, end * MS, rank)


def two_ranks() -> Step:
    """Rank 1 takes 70 ms for what rank 0 does in 40; the collective transfers for 10, then both write for 5."""
    leaves = [
        leaf(0, "update", 0, 40), leaf(0, "all_reduce", 40, 80, "collective"), leaf(0, "write", 80, 85),
        leaf(1, "update", 0, 70), leaf(1, "all_reduce", 70, 80, "collective"), leaf(1, "write", 80, 85),
    ]  # fmt: skip
    return Step((4,), 0, 85 * MS, leaves)


def test_who_was_late_and_in_what() -> None:
    """Rank 0 waited 30 ms for rank 1, which was late in its update."""
    [row] = stragglers(Graph(two_ranks()))
    assert (row.worker, row.waited_by, row.waited_ns, row.late_in) == (
        "G/rank1",
        ["G/rank0"],
        30 * MS,
        "update",
    )
    assert (row.step, row.phase, row.missing) == (4, "all_reduce", [])


def test_the_critical_path_runs_over_the_last_to_arrive() -> None:
    """The chain is rank 1's update, the transfer, and a write; its parts are the step's wall time."""
    path = Graph(two_ranks()).path()
    assert [(part["worker"], part["phase"], part["ns"] // MS) for part in path[:2]] == [
        ("G/rank1", "update", 70),
        ("G/rank1", "all_reduce", 10),
    ]
    assert path[2]["phase"] == "write"
    assert sum(part["ns"] for part in path) == 85 * MS


@pytest.mark.parametrize(
    ("factors", "rank", "remove_wait", "expected"),
    [
        ({}, None, False, 85), ({"update": 0.5}, None, False, 50), ({"update": 0.5}, 1, False, 55),
        ({"update": 2.0}, 0, False, 95), ({"write": 0.0}, None, False, 80), ({"all_reduce": 0.0}, None, False, 75),
        ({}, None, True, 85),
    ],
)  # fmt: skip
def test_what_another_speed_would_change(
    factors: dict[str, float], rank: int | None, remove_wait: bool, expected: int
) -> None:
    """The replay of two ranks with a collective, counted by hand; with factors of 1 it is the step itself."""
    found = what_if(two_ranks(), factors, rank, remove_wait)
    assert found["predicted_ns"] == expected * MS
    assert found["low_ns"] <= found["predicted_ns"] <= found["high_ns"]
    assert found["wall_ns"] == 85 * MS


def test_a_role_that_waits_for_another_follows_it() -> None:
    """The actor begins 2 ms after rollout's end; a faster rollout lets it begin earlier by as much."""
    step = Step(
        (1,), 0, 102 * MS,
        [Leaf("R/rank0", "R", 0, "rollout", "", 0, 60 * MS, 0), Leaf("A/rank0", "A", 0, "update", "", 62 * MS, 102 * MS, 0)],
    )  # fmt: skip
    assert [(part["phase"], part["ns"] // MS) for part in Graph(step).path()] == [
        ("rollout", 60), ("(outside every phase)", 2), ("update", 40),
    ]  # fmt: skip
    found = what_if(step, {"rollout": 0.5})
    assert found["predicted_ns"] == 72 * MS
    assert found["low_ns"] <= 72 * MS
    assert found["high_ns"] >= 102 * MS  # that it waited for rollout is a guess
    assert (
        "is a guess (update on A/rank0 began after a gap of 62 ms and is taken to follow rollout on R/rank0)"
        in found["notes"][0]
    )


@pytest.mark.parametrize(("name", "category"), [("recv", ""), ("ray.get", ""), ("pull", "data"), ("turn", "wait")])
@pytest.mark.parametrize(
    ("factors", "expected"),
    [({}, 181), ({"rollout": 0.3}, 111), ({"rollout": 0.1}, 101), ({"rollout": 2.0}, 281), ({"train": 0.5}, 141)],
)
def test_a_phase_that_waits_ends_when_what_it_waits_for_is_there(
    name: str, category: str, factors: dict[str, float], expected: int
) -> None:
    """The trainer is ready after 20 ms, receives 1 ms after rollout's end at 100 and trains for 80: rollout decides, until
    it takes less than 20 ms. The 1 ms stays."""
    leaves = [
        leaf(0, "rollout", 0, 100), leaf(1, "prepare", 0, 20), leaf(1, name, 20, 101, category), leaf(1, "train", 101, 181),
    ]  # fmt: skip
    step = Step((3,), 0, 181 * MS, leaves)
    assert [(part["worker"], part["phase"], part["ns"] // MS) for part in Graph(step).path()] == [
        ("G/rank0", "rollout", 100), ("G/rank1", name, 1), ("G/rank1", "train", 80),
    ]  # fmt: skip
    found = what_if(step, factors)
    assert found["predicted_ns"] == expected * MS
    assert found["low_ns"] <= found["predicted_ns"] <= found["high_ns"]
    assert found["notes"] == []


def test_a_wait_that_goes_on_long_after_is_a_guess() -> None:
    """What ended 50 ms before the wait may not be what it waited for: the interval holds both answers. A wait in which
    nothing of others ended is replayed as it was, and said."""
    leaves = [leaf(0, "tick", 0, 50), leaf(1, "prepare", 0, 20), leaf(1, "recv", 20, 100)]
    found = what_if(Step((3,), 0, 100 * MS, leaves), {"tick": 0.1})
    assert found["predicted_ns"] == 70 * MS
    assert found["low_ns"] <= 70 * MS
    assert found["high_ns"] >= 100 * MS
    assert "(recv on G/rank1 ends a wait of 80 ms and is taken to follow tick on G/rank0)" in found["notes"][0]
    alone = what_if(Step((3,), 0, 100 * MS, leaves[1:]), {"prepare": 0.5})
    assert alone["predicted_ns"] == 90 * MS
    assert "G/rank1 waits 80 ms in recv and no phase of another ended in it" in alone["notes"][0]


def test_ranks_that_wait_for_each_other_are_no_cause() -> None:
    """Two ranks receive at nearly the same time: neither is what the other waited for."""
    leaves = [
        leaf(0, "work", 0, 40), leaf(0, "recv", 40, 70), leaf(1, "work", 0, 39), leaf(1, "recv", 39, 69),
    ]  # fmt: skip
    step = Step((3,), 0, 70 * MS, leaves)
    assert what_if(step, {"recv": 0.0}, rank=1)["predicted_ns"] == 70 * MS


def test_a_little_time_between_phases_joins_no_ranks() -> None:
    """Rank 0's rollout ends in the 2 ms between two phases of rank 1, which did not wait for it: three times the rollout on
    rank 0 ends at 94, before rank 1 arrives at 152."""
    leaves = [
        leaf(0, "rollout", 0, 21), leaf(0, "update", 22, 52), leaf(0, "all_reduce", 52, 153, "collective"),
        leaf(1, "rollout", 0, 20), leaf(1, "update", 22, 152), leaf(1, "all_reduce", 152, 153, "collective"),
    ]  # fmt: skip
    step = Step((4,), 0, 153 * MS, leaves)
    found = what_if(step, {"rollout": 3.0}, rank=0)
    assert (found["predicted_ns"], found["low_ns"], found["high_ns"]) == (153 * MS, 153 * MS, 153 * MS)
    assert {part["worker"] for part in Graph(step).path()} == {"G/rank1"}


def test_another_thread_of_the_process_goes_before_other_ranks() -> None:
    """Backward runs on a thread of its own, right after forward, when another rank's phase ended too: it follows forward."""
    backward = Leaf("G/rank0", "G", 1, "backward", "", 50 * MS, 90 * MS, 0)
    step = Step((4,), 0, 90 * MS, [leaf(0, "forward", 0, 50), leaf(1, "other", 0, 50), backward])
    assert [part["phase"] for part in Graph(step).path()] == ["forward", "backward"]
    found = what_if(step, {"forward": 0.5})
    assert (found["predicted_ns"], found["notes"]) == (65 * MS, [])


@relaxed
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 50), st.integers(1, 20), st.sampled_from(["a", "b", "recv"])),
        min_size=1,
        max_size=12,
    )
)
def test_a_replay_without_a_change_changes_nothing(rows: list[tuple[int, int, int, str]]) -> None:
    """Whatever the leaves of the rows are, factors of 1 give the wall time of the step."""
    free: dict[int, int] = {}
    leaves = []
    for rank, gap, length, phase in rows:
        begin = free.get(rank, 0) + gap
        leaves.append(leaf(rank, phase, begin, begin + length))
        free[rank] = begin + length
    step = Step((1,), 0, max(free.values()) * MS + 3, leaves)
    assert Graph(step).replayed(lambda _: 1.0) == step.wall_ns
    assert Graph(step).replayed(lambda _: 1.0, bound=-1) == Graph(step).replayed(lambda _: 1.0, bound=1) == step.wall_ns
    assert sum(part["ns"] for part in Graph(step).path()) == step.wall_ns


def test_windows_that_do_not_overlap_are_said(run_maker: Any, event: Any) -> None:
    """Two workers that never wait for each other run step 5 at different times: 8 of 10 ms lie between their windows."""
    for rank, begin in ((0, 0), (1, 9_000)):
        run_maker.timeline(run_maker.target(rank), [event("fwd", begin, 900)], steps=(5,), end_us=1000, at_us=begin)
    found = summarise(run_maker.write())
    [line] = [line for line in found.notices if "do not overlap" in line]
    assert "windows of step 5 do not overlap: up to 80% of its length lies between them" in line
    [step] = found.waits.of
    assert step.apart_ns == 8 * MS
    assert "8 ms lie between them" in what_if(step, {})["notes"][0]


def test_a_report_has_all_of_it_under_its_fixed_names(run_maker: Any, event: Any) -> None:
    """``report --json``: seconds whose parts sum to the window, stragglers, critical path, steps."""
    for rank, update in ((0, 300), (1, 700)):
        key = run_maker.target(rank)
        events = [
            event("actor/update", 0, update),
            event("all_reduce", update, 900 - update, category="collective"),
        ]
        run_maker.timeline(key, events, steps=(2,), end_us=1000)
    found = summarise(run_maker.write()).to_json()
    assert [(row["worker"], row["device"], row["window_ns"]) for row in found["seconds"]] == [
        ("ActorGroup/rank0", None, 1_000_000),
        ("ActorGroup/rank1", None, 1_000_000),
    ]
    assert all(sum(row["parts"].values()) == row["window_ns"] for row in found["seconds"])
    assert set(found["seconds"][0]["parts"]) == set(PARTS)
    [late] = found["stragglers"]
    assert (late["worker"], late["waited_ns"], late["late_in"]) == ("ActorGroup/rank1", 400_000, "actor/update")
    [path] = found["critical_path"]
    assert sum(part["ns"] for part in path["segments"]) == path["wall_ns"] == 1_000_000
    assert found["steps"] == [{"step": 2, "wall_ns": 1_000_000, "window": True}]


@pytest.mark.parametrize("hosts", [("one", "one"), ("one", "two")])
@pytest.mark.parametrize("size", [2, 4])
def test_who_waited_is_as_certain_as_clocks_and_ranks_are(
    run_maker: Any, event: Any, hosts: tuple[str, str], size: int
) -> None:
    """Clocks of two hosts that were never compared leave everything open, and the first sentence blames nobody; ranks that are not
    recorded are said, because the others may have waited for them."""
    for rank, update in ((0, 300), (1, 700)):
        key = run_maker.target(rank, host=hosts[rank], world_size=size)
        events = [
            event("actor/update", 0, update),
            event("all_reduce", update, 900 - update, category="collective"),
        ]
        run_maker.timeline(key, events, steps=(2,), end_us=1000)
    summary = summarise(run_maker.write())
    found = summary.report()
    [late] = found.stragglers
    apart = hosts[0] != hosts[1]
    assert (late.low_ns, late.high_ns > 1_000_000) == ((0, True) if apart else (400_000, False))
    assert ("rank1 in all_reduce" in sentences(found)[0]) != apart
    assert any("clocks of one, two were not compared" in text for text in found.notices) == apart
    assert any("2 of 4 ranks are recorded (not 2-3)" in text for text in found.notices) == (size == 4)


def figures(columns: Columns) -> tuple[float, float, float, float | None]:
    """Idle, compute and other work in µs and overlap in %, from the first to the last piece of device work, as HTA divides it."""
    work = columns.work()
    [second] = divisions(columns, "w", [("all", int(columns.start[work].min()), int(columns.end[work].max()))])[0]
    parts = {name: ns / 1000 for name, ns in second.parts.items()}
    assert parts["unknown"] <= 0.01 * second.window_ns / 1000
    talking = parts["communication_overlapped"] + parts["communication_exposed"]
    return (
        sum(us for name, us in parts.items() if name.startswith("idle") or name in ("outside", "unknown")),
        parts["compute"] + parts["communication_overlapped"],
        parts["communication_exposed"] + parts["copy"],
        round(100 * parts["communication_overlapped"] / talking, 2) if talking else None,
    )


def of_sample(shared: Any, sample: str) -> Columns:
    from accelprof.reading.chrome import read_chrome
    from accelprof.reading.columns import columns_of

    return columns_of(read_chrome(str(shared / "samples" / f"{sample}.json.gz"), "torch"))


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        ("hta/trace_filter/sampled_rank-0", (675_191, 210_320, 337_336, 14.95)),
        ("hta/trace_filter/sampled_rank-1", (651_136, 271_973, 308_077, 19.93)),
    ],
)
def test_figures_are_those_of_another_tool(shared: Any, sample: str, expected: tuple[float, ...]) -> None:
    """On HTA's own traces of two ranks idle, compute, other work and overlap are what HTA 0.5.0 gives, in µs."""
    assert figures(of_sample(shared, sample)) == expected


@pytest.mark.parametrize(
    ("sample", "theirs", "ours", "host"),
    [
        ("hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto", (8780, 96, 35), (8762.845, 110.881, 38.161), 0),
        ("tracelens/h100/gaunernst_bert-small-uncased__1016001", (3653, 252, 2), (3598.388, 307.197, 2.24), 0),
        ("tracelens/mi300/gaunernst_bert-small-uncased__1016001", (3168, 326, 1), (3105.228, 388.344, 2.404), 0),
        ("tracelens/b200/eager_trace", (73_669, 10_153, 664), (72_890.696, 8652.137, 2944.345), 73),
    ],
)
def test_what_the_other_tool_rounds(
    shared: Any, sample: str, theirs: tuple[int, ...], ours: tuple[float, ...], host: int
) -> None:
    """HTA rounds each start up and each end down to µs, takes a host operator with an argument ``stream`` for a kernel, and a
    collective that is not called ``nccl`` (torch's symmetric memory) for compute: so, ours are its figures; as they are, ours
    are the file's."""
    columns = of_sample(shared, sample)
    assert figures(columns)[:3] == pytest.approx(ours, abs=1e-6)
    unknown_to_it = np.array(["nccl" not in name for name in columns.names])[columns.name]
    columns.kind[unknown_to_it & columns.mask(Kind.COMMUNICATION)] = CODES[Kind.KERNEL]
    first = int(columns.start.min()) // 1000 * 1000
    columns.start = -(-(columns.start - first) // 1000) * 1000
    columns.end = np.maximum((columns.end - first) // 1000 * 1000, columns.start)
    idle, compute, rest, _ = figures(columns)
    assert (idle - host, compute + host, rest) == theirs


@pytest.mark.parametrize(
    ("sample", "launched", "ours"), [("base/base", (117_124, 8, 0), (272_804, 432, 1262)), ("test/test", (0, 4, 0), (272_663, 428, 1262))]
)  # fmt: skip
def test_what_the_other_tool_leaves_out(
    shared: Any, sample: str, launched: tuple[int, ...], ours: tuple[int, ...]
) -> None:
    """HTA counts work only whose launch is in the file; of that alone ours are its figures."""
    columns = of_sample(shared, f"hta/trace_compare/{sample}")
    assert figures(columns)[:3] == ours
    work = columns.work()
    launch, _ = launches_of(columns, work)
    kept = np.ones(len(columns), dtype=np.bool_)
    kept[work[launch == NONE]] = False
    assert figures(columns.take(kept))[:3] == launched


def test_a_trace_without_a_device_has_no_device_second(shared: Any) -> None:
    """HTA's trace of the CPU alone has no device to divide; HTA ends with an IndexError there."""
    columns = of_sample(shared, "hta/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace")
    assert divisions(columns, "w")[0] == []


def test_what_if_from_the_command_line(run_maker: Any, event: Any, tmp_path: Any) -> None:
    """``accelprof whatif`` prints the new time of the step; a phase that is not there is refused with those that are."""
    import json

    from click.testing import CliRunner

    from accelprof.cli.whatif import whatif

    for rank, update in ((0, 300), (1, 700)):
        key = run_maker.target(rank)
        events = [event("actor/update", 0, update), event("all_reduce", update, 900 - update, category="collective")]
        run_maker.timeline(key, events, steps=(2,), end_us=900)
    directory = run_maker.write()
    run = CliRunner().invoke(whatif, [directory, "--scale", "actor/update=0.5", "--json"])
    assert run.exit_code == 0, run.output
    answer = json.loads(run.output)
    assert (answer["step"], answer["wall_ns"], answer["predicted_ns"]) == (2, 900_000, 550_000)
    refused = CliRunner().invoke(whatif, [directory, "--scale", "update=0.5"])
    assert "no phase 'update' in step 2; there are actor/update, all_reduce" in str(refused.exception)
    refused = CliRunner().invoke(whatif, [directory, "--scale", "actor/update=0.5", "--rank", "7"])
    assert "--rank 7 has no phase in step 2; there are 0, 1" in str(refused.exception)


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                [
                    "recv",
                    "RECV x",
                    "ray.get",
                    "loader",
                    "DataLoader",
                    "a/wait",
                    "await",
                    "get_batch#1",
                    "\ud800",
                    "İwait",
                    "",
                ]
            ),
            st.text(max_size=6),
        ),
        max_size=9,
    )
)
def test_names_that_wait_are_found_in_whatever_company(names: list[str]) -> None:
    """Looked through together as each by itself."""
    assert _named_so(names).tolist() == [WAITING_NAME.search(name) is not None for name in names]


def test_the_fixed_names() -> None:
    """What others build on, as a real run of two GPUs has it: keys, units and parts under exactly these names, in order; their sums
    are exact, and at most 1 % of a window is unknown."""
    import json
    from pathlib import Path

    from click.testing import CliRunner

    from accelprof.cli.report import report
    from accelprof.cli.whatif import whatif

    run = str(Path(__file__).parent / "two_gpus")
    found = json.loads(CliRunner().invoke(report, [run, "--json", "--no-html"]).output)
    assert {tuple(row) for row in found["seconds"]} == {("worker", "window", "device", "window_ns", "parts")}
    names = (
        "compute", "communication_exposed", "communication_overlapped", "copy", "idle_launching", "idle_queued", "idle_sync",
        "idle_collective", "idle_waiting", "outside", "unknown",
    )  # fmt: skip
    assert {tuple(row["parts"]) for row in found["seconds"]} == {names}
    assert {(row["worker"], row["device"]) for row in found["seconds"]} == {
        ("ActorGroup/rank0", 0),
        ("ActorGroup/rank1", 1),
    }
    for row in found["seconds"]:
        assert sum(row["parts"].values()) == row["window_ns"]
        assert row["parts"]["unknown"] <= row["window_ns"] // 100
    for row in found["stragglers"]:
        assert {"step", "phase", "worker", "waited_ns", "waited_by", "late_in"} <= set(row)
    for row in found["critical_path"]:
        assert tuple(row) == ("step", "wall_ns", "segments")
        assert {tuple(segment) for segment in row["segments"]} == {("worker", "phase", "ns")}
        assert sum(segment["ns"] for segment in row["segments"]) == row["wall_ns"]
    assert {tuple(row) for row in found["steps"]} == {("step", "wall_ns", "window")}
    assert [(row["step"], row["window"]) for row in found["steps"]] == [
        (1, False), (2, True), (3, False), (4, True), (5, False)
    ]  # fmt: skip
    asked = ["--scale", "rollout=0.1", "--rank", "1", "--step", "2", "--json"]
    answer = json.loads(CliRunner().invoke(whatif, [run, *asked]).output)
    assert tuple(answer) == ("step", "wall_ns", "predicted_ns", "low_ns", "high_ns", "notes")
    assert answer["low_ns"] <= answer["predicted_ns"] <= answer["high_ns"] < answer["wall_ns"]
    # rank 0 waited 60 ms for rank 1's rollout in a collective on the device, which lets it go with nine tenths of that gone
    assert abs((answer["wall_ns"] - answer["predicted_ns"]) / 59.6e6 - 1) < 0.01
    assert {tuple(row) for row in found["slack"]} == {
        ("step", "worker", "phase", "spans", "ns", "slack_ns", "low_ns", "high_ns")
    }  # fmt: skip
    [early] = [row for row in found["slack"] if (row["step"], row["phase"]) == (2, "rollout")]
    assert (early["worker"], round(early["slack_ns"] / 1e6)) == ("ActorGroup/rank0", 62)
    [path] = [row for row in found["critical_path"] if row["step"] == 4]
    longest = max(path["segments"], key=lambda segment: segment["ns"])
    assert longest["worker"] == "ActorGroup/rank0"  # its device was busy for 34 ms, in which rank 1 waited
