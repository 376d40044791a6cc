"""Device work by the phase that launched it, against a slow model and a real trace."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accelprof.analysis.attribution import attribute, device_figures, label
from accelprof.contracts.spans import Kind, Span, Trace
from accelprof.reading.chrome import read_chrome

MAIN, OTHER = 1, 2
#: a busy machine is no failure
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


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


def test_communication_stands_apart() -> None:
    """Collective kernels count as busy and are given apart."""
    spans = [phase("f", 0, 9), launch(1, 1), launch(2, 3)]
    work = [kernel(1, 10, 30), kernel(2, 20, 50, "ncclDevKernel", kind=Kind.COMMUNICATION)]
    [row] = attribute(trace(*spans, *work)).phases
    assert (row.busy_ns, row.communication_ns) == ({0: 40}, 30)
    assert row.top == [("ncclDevKernel", 1, 30), ("gemm", 1, 20)]


def test_threads_without_ranges_are_given_to_the_one_phase_that_runs() -> None:
    """What autograd's thread launches belongs to the phase on the one other thread that is inside a range then."""
    found = attribute(trace(phase("backward", 0, 50), launch(1, 10, OTHER), kernel(1, 60, 70)))
    assert found.phases[0].busy_ns == {0: 10}
    assert found.by_time == 1


def test_two_running_phases_are_no_answer() -> None:
    """With phases on two threads at that moment a launch of a third belongs to neither."""
    spans = [phase("a", 0, 50), phase("b", 0, 50, OTHER), launch(1, 10, 3), kernel(1, 60, 70)]
    found = attribute(trace(*spans))
    assert found.unattributed == 1
    assert all(row.kernels == 0 for row in found.phases)


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
