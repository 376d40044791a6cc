"""Device work by the phase that launched it, against a slow model and a real trace."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accelprof.analysis.attribution import attribute, device_figures, label
from accelprof.contracts.spans import Kind, Span, Trace
from accelprof.reading.chrome import read_chrome

MAIN, OTHER = 1, 2
#: a busy machine is no failure
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

pytestmark = pytest.mark.usefixtures("in_parts")


def phase(name: str, start: int, end: int, tid: int = MAIN) -> Span:
    return Span(name, Kind.PHASE, start, end, 10, tid)


def launch(number: int, at: int, tid: int = MAIN) -> Span:
    return Span("cudaLaunchKernel", Kind.RUNTIME, at, at + 1, 10, tid, args={"correlation": number})


def kernel(number: int, start: int, end: int, name: str = "gemm", device: int = 0, kind: Kind = Kind.KERNEL) -> Span:
    return Span(name, kind, start, end, 10, device=device, stream=7, args={"correlation": number})


def trace(*spans: Span) -> Trace:
    return Trace("x", "test", spans=list(spans))


def test_a_kernel_belongs_to_every_range_around_its_launch_once() -> None:
    """Inclusive time counts for each enclosing phase, exclusive time for the innermost; when the kernel ran is no matter."""
    found = attribute(
        trace(
            phase("update", 0, 100), phase("forward", 10, 40), phase("loss", 50, 60),
            launch(1, 15), launch(2, 55), launch(3, 80), launch(4, 200),
            kernel(1, 300, 400), kernel(2, 350, 450), kernel(3, 500, 510), kernel(4, 600, 601), kernel(9, 700, 701),
        )
    )  # fmt: skip
    rows = {row.name: row for row in found.phases}
    assert rows["update"].busy_ns == {0: 160}
    assert rows["update"].own_busy_ns == {0: 10}
    assert rows["forward"].busy_ns == rows["forward"].own_busy_ns == {0: 100}
    assert (rows["update"].kernels, rows["update"].own_kernels, rows["loss"].kernels) == (3, 1, 1)
    assert (found.unattributed, found.unlaunched) == (1, 1)


def test_recursion_counts_once() -> None:
    """A phase inside one of the same name adds neither wall nor device time."""
    found = attribute(trace(phase("f", 0, 100), phase("f", 10, 50), launch(1, 20), kernel(1, 20, 30)))
    [row] = found.phases
    assert (row.calls, row.wall_ns, row.busy_ns, row.kernels) == (2, 100, {0: 10}, 1)


def test_idle_is_wall_without_any_work_on_its_devices() -> None:
    """Idle is the phase's wall minus what its devices did meanwhile, whoever launched that."""
    found = attribute(trace(phase("f", 0, 100), launch(1, 5), kernel(1, 90, 140), kernel(2, 0, 20)))
    [row] = found.phases
    assert row.idle_ns == 100 - 20 - 10
    assert attribute(trace(phase("host only", 0, 9))).phases[0].idle_ns is None


def test_a_cut_call_is_no_call_without_work() -> None:
    """What a call launched before recording began, or would have after it ended, is not in the file; its work counts, not in a mean."""
    opened = phase("f", 200, 210)
    opened.args = {"in_progress": True}
    spans = [phase("f", 0, 100), phase("f", 110, 190), opened, launch(1, 20), kernel(1, 20, 30)]
    [row] = attribute(trace(*spans)).phases
    assert (row.calls, row.cut, row.calls_without_work, row.busy_ns, row.of_calls) == (3, 1, 1, {0: 10}, ({0: 10}, 2))
    [row] = attribute(trace(*spans, launch(2, 205), kernel(2, 206, 210))).phases
    assert (row.busy_ns, row.of_calls) == ({0: 14}, ({0: 10}, 2))


def test_communication_stands_apart() -> None:
    """Collective kernels count as busy and are given apart."""
    spans = [phase("f", 0, 9), launch(1, 1), launch(2, 3)]
    work = [kernel(1, 10, 30), kernel(2, 20, 50, "ncclDevKernel", kind=Kind.COMMUNICATION)]
    [row] = attribute(trace(*spans, *work)).phases
    assert (row.busy_ns, row.communication_ns) == ({0: 40}, 30)
    assert row.top == [("ncclDevKernel", 1, 30), ("gemm", 1, 20)]


BACKWARD = (launch(2, 50, OTHER), kernel(2, 60, 70), launch(3, 71, OTHER), kernel(3, 80, 90))


def test_what_autograds_thread_launches_is_the_phases_around_it() -> None:
    """The work of a thread without a range belongs to the one other thread that is inside a range then."""
    found = attribute(trace(phase("update", 0, 100), launch(1, 10), kernel(1, 20, 30), *BACKWARD))
    [row] = found.phases
    assert (row.kernels, row.own_kernels, found.unattributed, found.by_time) == (3, 3, 0, 2)


def test_a_range_on_autograds_thread_counts_inside_the_phase_around_it() -> None:
    """A kernel in such a range is its exclusively and the phase's inclusively; the others of the thread stay the phase's."""
    own = phase("FSDP::post_backward", 69, 75, OTHER)
    found = attribute(trace(phase("update", 0, 100), launch(1, 10), kernel(1, 20, 30), *BACKWARD, own))
    rows = {row.name: (row.kernels, row.own_kernels) for row in found.phases}
    assert rows == {"update": (3, 2), "FSDP::post_backward": (1, 1)}
    assert found.unattributed == 0


def test_a_frameworks_range_that_ends_after_the_phase_is_inside_it_meanwhile() -> None:
    """A range of gloo's thread that began inside the phase counts in it until the phase ends, and alone after that."""
    spans = [phase("a", 0, 50), phase("gloo:all_reduce", 40, 80, OTHER)]
    work = [launch(1, 45, OTHER), kernel(1, 60, 70), launch(2, 60, OTHER), kernel(2, 70, 80)]
    assert {row.name: row.kernels for row in attribute(trace(*spans, *work)).phases} == {"a": 1, "gloo:all_reduce": 2}


def test_what_a_thread_launches_in_a_phase_of_its_own_is_no_other_threads() -> None:
    """Two threads in phases of their own: neither has the other's work, wherever their phases begin and end."""
    for begin, end in ((40, 80), (10, 20), (-10, 60)):
        spans = [phase("rollout", 0, 50), phase("update", begin, end, OTHER)]
        found = attribute(trace(*spans, launch(1, 45 if begin > 20 else 15, OTHER), kernel(1, 60, 70)))
        assert {row.name: row.kernels for row in found.phases} == {"rollout": 0, "update": 1}
        assert (found.by_time, found.left_over(), found.around()) == (0, [], [])


def own(called: dict[int, str], *spans: Span) -> Trace:
    """A file that says what its threads are called."""
    return Trace("x", "test", spans=list(spans), metadata={"thread_names": {10: called}})


def test_a_users_range_on_autograds_thread_counts_inside_the_phase_around_it() -> None:
    """Activation checkpointing runs the user's own ranges on autograd's thread, which the file shows by its name (nsys), or
    by the operator around them (torch); by nothing, they are a phase beside the other."""
    spans = [phase("backward", 0, 100), phase("block", 20, 40, OTHER), launch(1, 30, OTHER), kernel(1, 50, 60)]
    spans += [launch(2, 45, OTHER), kernel(2, 60, 70)]
    around = Span("autograd::engine::evaluate_function: CheckpointFunctionBackward", Kind.OPERATOR, 19, 41, 10, OTHER)
    for known in (own({OTHER: "thread 2 (pt_autograd_0)"}, *spans), trace(*spans, around)):
        assert {row.name: row.kernels for row in attribute(known).phases} == {"backward": 2, "block": 1}
    for known in (own({MAIN: "pt_main_thread", OTHER: "python3"}, *spans), trace(*spans)):
        assert {row.name: row.kernels for row in attribute(known).phases} == {"backward": 1, "block": 1}


def test_a_thread_that_also_has_ranges_of_the_user_alone_is_the_users() -> None:
    """One that runs backward by itself is inside autograd's operators too, and no other thread's for that."""
    around = Span("autograd::engine::evaluate_function: MulBackward0", Kind.OPERATOR, 19, 41, 10, OTHER)
    spans = [phase("load", 0, 100), phase("block", 20, 40, OTHER), around, phase("forward", 5, 10, OTHER)]
    found = attribute(trace(*spans, launch(1, 30, OTHER), kernel(1, 50, 60)))
    assert {row.name: row.kernels for row in found.phases} == {"load": 0, "forward": 0, "block": 1}


def test_a_range_around_the_phase_is_not_inside_it() -> None:
    """What a thread launches inside its own long range is not the phase's that ran on another thread meanwhile."""
    spans = [phase("loop", 0, 100, OTHER), phase("a", 10, 20), launch(1, 15, OTHER), kernel(1, 30, 40)]
    assert {row.name: row.kernels for row in attribute(trace(*spans)).phases} == {"a": 0, "loop": 1}


G1, G2 = 3, 4


def test_gloos_threads_beside_the_phase_take_no_kernel_from_it() -> None:
    """While gloo's threads are inside ranges of their own, wherever those begin and end, what autograd's thread launches
    is the phase's; its own ranges have theirs exclusively."""
    gloo = [
        phase("gloo:all_reduce", -20, 30, G1), phase("gloo:all_reduce", 100, 300, G1), phase("gloo:all_reduce", 600, 900, G1),
        phase("gloo:all_reduce", 200, 500, G2), phase("inner", 210, 480, G2), phase("gloo:all_reduce", 550, 950, G2),
        phase("gloo:all_reduce", 980, 1020, G2),
    ]  # fmt: skip
    copied = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
    own = [phase(copied, at, at + 20, OTHER) for at in (105, 305, 605)]
    moments = [10, 110, 150, 215, 310, 450, 520, 610, 700, 990]
    work = [span for at in moments for span in (launch(at, at, OTHER), kernel(at, at + 2000, at + 2005))]
    found = attribute(trace(phase("step", -100, 1100), phase("backward", 0, 1000), *gloo, *own, *work))
    rows = {row.name: (row.kernels, row.own_kernels) for row in found.phases}
    assert rows["step"] == (10, 0)
    assert rows["backward"] == (10, 7)
    assert rows[copied] == (3, 3)
    assert rows["gloo:all_reduce"] == rows["inner"] == (0, 0)
    assert (found.unattributed, found.around()) == (0, [])


def test_two_running_phases_are_no_answer_and_are_named() -> None:
    """With phases on two threads at that moment a launch of a third belongs to neither; both are named with the count."""
    spans = [phase("a", 0, 50), phase("b", 0, 50, OTHER), launch(1, 10, 3), kernel(1, 60, 70)]
    found = attribute(trace(*spans))
    assert found.unattributed == 1
    assert all(row.kernels == 0 for row in found.phases)
    assert found.left_over() == [("undecided: a or b", 1)]


def test_the_longest_phase_of_several_threads_is_no_answer_either() -> None:
    """Whose phases hold the others' and whose began first says nothing of who launched: none of them has the work."""
    spans = [
        phase("train", 0, 100),
        phase("load", 10, 90, OTHER),
        phase("inner", 20, 60, OTHER),
        phase("eval", 30, 60, 4),
    ]
    work = [
        launch(1, 50, 3),
        kernel(1, 60, 70),
        launch(2, 70, 3),
        kernel(2, 80, 90),
        launch(3, 95, 3),
        kernel(3, 96, 97),
    ]
    found = attribute(trace(*spans, *work))
    assert {row.name: row.kernels for row in found.phases} == {"train": 1, "load": 0, "inner": 0, "eval": 0}
    assert found.undecided == {("eval", "inner", "train"): 1, ("load", "train"): 1}
    assert (found.unattributed, found.by_time) == (2, 1)


def test_one_phase_on_several_threads_is_named_as_often() -> None:
    """Threads in phases of one name are several candidates all the same."""
    spans = [phase("work", 0, 50), phase("work", 0, 50, OTHER), launch(1, 10, 3), kernel(1, 60, 70)]
    assert attribute(trace(*spans)).left_over() == [("undecided: work or work", 1)]


def test_a_frameworks_range_beside_several_phases_counts_in_none_and_is_said() -> None:
    """Its kernels stay in it, and those of the phases that could be around it are counted by their names."""
    spans = [phase("a", 0, 50), phase("b", 0, 50, OTHER), phase("nccl:all_reduce", 5, 20, 3), launch(1, 10, 3)]
    found = attribute(trace(*spans, kernel(1, 60, 70)))
    assert {row.name: row.kernels for row in found.phases} == {"nccl:all_reduce": 1, "a": 0, "b": 0}
    assert (found.unattributed, found.around()) == (0, [("around it undecided: a or b", 1)])


def test_ranges_of_another_process_are_never_meant() -> None:
    """A phase of another process that runs at that moment holds nothing of this one."""
    foreign = Span("f", Kind.PHASE, 0, 50, 11, MAIN)
    found = attribute(trace(foreign, launch(1, 10), kernel(1, 60, 70)))
    assert (found.unattributed, found.phases[0].kernels) == (1, 0)
    assert found.left_over() == [("launched outside every range", 1)]


def test_kernels_of_before_the_window_are_counted_apart() -> None:
    """Kernels whose launch is not in the file are in no phase and counted as such."""
    early = [kernel(number, number, number + 1) for number in (91, 92, 93, 94)]
    found = attribute(trace(phase("f", 0, 100), *early, launch(1, 5), kernel(1, 10, 20)))
    assert found.phases[0].kernels == 1
    assert (found.unlaunched, found.left_over()) == (4, [("launch not in the file", 4)])


def test_all_kernels_of_one_launch_are_in_its_phase() -> None:
    """A CUDA graph of 20 kernels has one launch."""
    found = attribute(trace(phase("f", 0, 9), launch(1, 5), *(kernel(1, 10 + at, 11 + at) for at in range(20))))
    assert (found.phases[0].kernels, found.phases[0].busy_ns) == (20, {0: 20})


def test_backward_of_a_real_trace_is_whole(shared: Path) -> None:
    """529 pieces of work were launched on another thread inside this trace's backward."""
    for rank, kernels, backward in ((0, 1154, 523), (1, 1104, 495)):
        found = attribute(read_chrome(str(shared / f"samples/hta/trace_filter/sampled_rank-{rank}.json.gz"), "torch"))
        rows = {row.name: row for row in found.phases}
        assert (found.kernels, found.unattributed, found.unlaunched) == (kernels, 0, 0)
        assert rows["## backward ##"].kernels == backward


def test_annotations_are_no_work() -> None:
    """Ranges projected to the device are not counted as busy."""
    shadow = Span("f", Kind.DEVICE_ANNOTATION, 0, 1000, 10, device=0, stream=7)
    [row] = device_figures([shadow, kernel(1, 10, 20)])
    assert (row.busy_ns, row.kernels, row.idle_ns) == (10, 1, 0)


def test_numbers_of_emit_nvtx_do_not_split_a_range() -> None:
    """``emit_nvtx`` gives each call a number; figures are by operator."""
    assert label("aten::to, op_id = 998949") == "aten::to"
    assert label("FlashAttnFunc, seq = 46588, op_id = 995009") == "FlashAttnFunc"
    assert label("actor/update") == "actor/update"


def test_busy_time_of_a_real_trace_is_the_union(shared: Path) -> None:
    """768 kernels with 74 overlaps on one stream: busy is their union, never above the span."""
    trace = read_chrome(str(shared / "samples/tracelens/b200/eager_trace.json.gz"), "torch")
    [row] = attribute(trace).devices
    assert (row.kernels, row.kernel_ns) == (768, 10_793_638)
    assert row.busy_ns <= row.span_ns


times = st.tuples(st.integers(0, 60), st.integers(1, 30)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@patient
@given(st.lists(times, max_size=8), st.lists(st.tuples(st.integers(0, 80), times), max_size=12))
def test_against_an_obvious_model(ranges: list[tuple[int, int]], work: list[tuple[int, tuple[int, int]]]) -> None:
    """Per phase the busy time is the number of ns in which any of its kernels runs, counted one by one."""
    spans = [phase(f"p{index % 3}", start, end) for index, (start, end) in enumerate(ranges)]
    for number, (at, (start, end)) in enumerate(work):
        spans += [launch(number, at), kernel(number, start, end)]
    for row in attribute(trace(*spans)).phases:
        mine = [span for span in spans if span.name == row.name and span.kind is Kind.PHASE]
        held = [
            (start, end)
            for at, (start, end) in work
            if any(span.start_ns <= at and at + 1 <= span.end_ns for span in mine)
        ]
        assert row.kernels == len(held)
        busy = len({at for start, end in held for at in range(start, end)})
        assert sum(row.busy_ns.values()) == busy
        assert row.wall_ns == len({at for span in mine for at in range(span.start_ns, span.end_ns)})


NAMES = ("p0", "p1", "p2", "FSDP::post_backward", "gloo:all_reduce")


@st.composite
def programs(draw: st.DrawFn) -> Trace:
    """Ranges of two processes with four threads each, nested or not, some of them a framework's by their names, an
    operator of autograd's around them or the names of their threads, and launches with any number of kernels."""
    places = st.tuples(st.sampled_from((10, 11)), st.sampled_from((1, 2, 3, 4)))
    spans: list[Span] = []
    for (pid, tid), (start, end), name in draw(st.lists(st.tuples(places, times, st.sampled_from(NAMES)), max_size=14)):
        spans.append(Span(name, Kind.PHASE, start, end, pid, tid))
    for (pid, tid), (start, end) in draw(st.lists(st.tuples(places, times), max_size=3)):
        spans.append(Span("autograd::engine::evaluate_function: B", Kind.OPERATOR, start, end, pid, tid))
    launches = st.tuples(places, st.integers(0, 80), st.integers(0, 3), st.booleans())
    for number, ((pid, tid), at, count, there) in enumerate(draw(st.lists(launches, max_size=14))):
        if there:
            spans.append(Span("l", Kind.RUNTIME, at, at + 1, pid, tid, args={"correlation": number}))
        spans += [kernel(number, 100 + at, 104 + at, f"k{count}") for _ in range(count)]
    called = draw(
        st.dictionaries(st.sampled_from((1, 2, 3, 4)), st.sampled_from(("python3", "pt_autograd_0")), max_size=2)
    )
    return Trace("x", "test", spans=spans, metadata={"thread_names": {10: called}})


def over(outer: Span, inner: Span) -> bool:
    return outer.start_ns <= inner.start_ns and inner.end_ns <= outer.end_ns


def is_frameworks(program: Trace, pid: int | str, tid: int | str) -> bool:
    """Called so by the file, or nowhere outside what is a framework's by its name."""
    if "autograd" in program.metadata["thread_names"].get(pid, {}).get(tid, ""):
        return True
    mine = [span for span in program.spans if (span.pid, span.tid) == (pid, tid)]
    shown = [span for span in mine if ":" in span.name and span.kind in (Kind.PHASE, Kind.OPERATOR)]
    return all(any(over(known, span) for known in shown) for span in mine if span.kind is Kind.PHASE)


def slow_holders(program: Trace, launch: Span) -> tuple[list[Span], list[str]]:
    """The ranges a launch belongs to, on its own thread and on another, and between which innermost ranges of others it is
    not decided.

    A launch belongs to the ranges that hold it on its own thread, or to those of the one other thread that is inside one; a
    framework's thread is one with the phase beside it, and counts inside that. Several: none.
    """
    held = [span for span in program.spans if span.kind is Kind.PHASE and span.pid == launch.pid and over(span, launch)]
    own = [span for span in held if span.tid == launch.tid]
    others = sorted({span.tid for span in held if span.tid != launch.tid})
    users = [tid for tid in others if not is_frameworks(program, launch.pid, tid)]
    meant = users or others
    if own:
        meant = users if is_frameworks(program, launch.pid, launch.tid) else []
    if len(meant) == 1:
        return own + [span for span in held if span.tid == meant[0]], []
    return own, sorted(innermost([span for span in held if span.tid == tid]).name for tid in meant)


def innermost(ranges: list[Span]) -> Span:
    """The one that began last; of those that began together the one that ends first, of those the last in the file."""
    best = ranges[0]
    for span in ranges[1:]:
        if (span.start_ns, -span.end_ns) >= (best.start_ns, -best.end_ns):
            best = span
    return best


@patient
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(10, 12), times), max_size=6),
    st.lists(st.tuples(st.integers(10, 13), st.integers(0, 90)), max_size=12),
)
def test_a_step_counts_what_its_process_launched_in_it(
    steps: list[tuple[int, int, tuple[int, int]]], launches: list[tuple[int, int]]
) -> None:
    """Ends included, whatever the order; steps of one name are added up."""
    spans = [Span(f"ProfilerStep#{number}", Kind.STEP, *bounds, pid, MAIN) for number, pid, bounds in steps]
    expected = {f"ProfilerStep#{number}": 0 for number, _, _ in steps}
    for number, (pid, at) in enumerate(launches):
        linked = {"correlation": number}
        spans.append(Span("cudaLaunchKernel", Kind.RUNTIME, at, at + 1, pid, MAIN, args=linked))
        spans.append(Span("gemm", Kind.KERNEL, at + 2, at + 3, pid, device=0, stream=7, args=linked))
        for step, process, (start, end) in steps:
            expected[f"ProfilerStep#{step}"] += process == pid and start <= at <= end
    assert attribute(trace(*spans)).steps == expected


@patient
@given(programs())
def test_every_kernel_is_counted_once_on_whatever_thread(program: Trace) -> None:
    """Own kernels of all phases, unattributed and unlaunched are all kernels; each phase has what the rule gives it."""
    spans = list(program.spans)
    found = attribute(program)
    launches = {span.args["correlation"]: span for span in spans if span.kind is Kind.RUNTIME}
    inclusive: dict[str, int] = dict.fromkeys({span.name for span in spans if span.kind is Kind.PHASE}, 0)
    exclusive = dict(inclusive)
    unlaunched = unattributed = 0
    undecided: Counter[tuple[str, ...]] = Counter()
    around: Counter[tuple[str, ...]] = Counter()
    kernels = [span for span in spans if span.kind is Kind.KERNEL]
    for span in kernels:
        if span.args["correlation"] not in launches:
            unlaunched += 1
            continue
        launched = launches[span.args["correlation"]]
        held, between = slow_holders(program, launched)
        unattributed += not held
        if between:
            (around if held else undecided)[tuple(between)] += 1
        for name in {range_.name for range_ in held}:
            inclusive[name] += 1
        if held:
            own = [range_ for range_ in held if range_.tid == launched.tid] or held
            exclusive[innermost(own).name] += 1
    assert {row.name: row.kernels for row in found.phases} == inclusive
    assert {row.name: row.own_kernels for row in found.phases} == exclusive
    assert (found.unlaunched, found.unattributed) == (unlaunched, unattributed)
    assert (found.undecided, found.undecided_around) == (undecided, around)
    assert sum(row.own_kernels for row in found.phases) + found.unattributed + found.unlaunched == len(kernels)
    assert found.kernels == len(kernels)
    assert sum(count for _, count in found.left_over()) == found.unattributed + found.unlaunched
