"""Self time and shares against models that count nanoseconds one by one."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accelprof.analysis.nesting import clip, parents, segments, shares
from accelprof.analysis.phases import WorkerTimeline
from accelprof.analysis.run import WorkerId
from accelprof.contracts.spans import Kind, Span, Trace, merge_intervals
from accelprof.testing.files import union_ns

spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)).map(lambda pair: (pair[0], sum(pair))), max_size=12)
#: a busy machine is no failure
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def test_nested_phases() -> None:
    """The outer span keeps what its inner ones leave."""
    row = [(0, 100), (10, 40), (20, 30), (60, 70)]
    own = [0] * 4
    for start, end, index in segments(row):
        own[index] += end - start
    assert own == [60, 20, 10, 10]
    assert parents(row) == [None, 0, 1, 0]


def test_equal_spans_nest_in_order() -> None:
    """Of two equal spans the first is the parent, and the time belongs to the second."""
    assert parents([(0, 5), (0, 5)]) == [None, 0]
    assert segments([(0, 5), (0, 5)]) == [(0, 5, 1)]


@patient
@given(spans)
def test_every_instant_has_one_owner(row: list[tuple[int, int]]) -> None:
    """Self times add up to the union, and each instant belongs to the span that began last."""
    found = segments(row)
    assert sum(end - start for start, end, _ in found) == union_ns(row)
    for start, end, index in found:
        for at in range(start, end):
            running = [other for other, (low, high) in enumerate(row) if low <= at < high]
            assert index == max(running, key=lambda other: (row[other][0], -row[other][1], other))


@patient
@given(spans)
def test_a_parent_holds_its_child(row: list[tuple[int, int]]) -> None:
    """Whatever is named a parent holds the child whole, and no other holder began later."""
    for child, parent in enumerate(parents(row)):
        start, end = row[child]
        holders = [
            other
            for other, (low, high) in enumerate(row)
            if other != child and low <= start and high >= end and (low, high) != (start, end) and high > start
        ]
        if parent is None:
            assert holders == []
        else:
            assert row[parent][0] <= start
            assert row[parent][1] >= end
            assert row[parent][0] >= max((row[other][0] for other in holders), default=0)


@st.composite
def nested_calls(draw: st.DrawFn, low: int = 0, high: int = 60, depth: int = 4) -> list[tuple[str, int, int]]:
    """Calls of one thread, which nest: ``(name, start, end)``."""
    found: list[tuple[str, int, int]] = []
    at = low
    while depth and at < high and draw(st.booleans()):
        begin = draw(st.integers(at, high - 1))
        at = draw(st.integers(begin + 1, high))
        found += [(draw(st.sampled_from("fg")), begin, at), *draw(nested_calls(begin, at, depth - 1))]
    return found


@patient
@given(st.lists(nested_calls(), max_size=3))
def test_a_total_counts_recursion_once(threads: list[list[tuple[str, int, int]]]) -> None:
    """A phase's total is the time its thread is inside it, added over threads; each call of a recursion is counted as one."""
    timeline = WorkerTimeline(WorkerId("w", "w", "g"))
    timeline.add(
        Trace("x", "timeline", spans=[
            Span("window", Kind.WINDOW, 0, 60, 1, 99),
            *(Span(name, Kind.PHASE, start, end, 1, tid) for tid, calls in enumerate(threads) for name, start, end in calls),
        ])
    )  # fmt: skip
    timeline.finish()
    for name in {name for calls in threads for name, *_ in calls}:
        model = sum(union_ns((start, end) for called, start, end in calls if called == name) for calls in threads)
        times = timeline.phases[name]
        assert (times.total_ns, len(times.whole)) == (
            model,
            sum(called == name for calls in threads for called, *_ in calls),
        )
        assert times.self_ns <= times.total_ns


@patient
@given(st.lists(st.tuples(spans, st.sampled_from("abc")), max_size=4))
def test_shares_add_up_to_the_union(rows: list[tuple[list[tuple[int, int]], str]]) -> None:
    """Concurrent rows share each instant evenly, so the sum over labels is the time in which anything ran."""
    stretches = [(start, end, name) for row, name in rows for start, end in row]
    found = shares(stretches)
    model: dict[str, float] = defaultdict(float)
    for at in range(70):
        running = [name for start, end, name in stretches if start <= at < end]
        for name in running:
            model[name] += 1 / len(running)
    assert set(found) == set(model)
    assert all(abs(found[name] - model[name]) < 1e-6 for name in model)
    assert abs(sum(found.values()) - union_ns((start, end) for start, end, _ in stretches)) < 1e-6


@patient
@given(st.integers(0, 50), st.integers(0, 20), spans)
def test_clip_keeps_what_lies_inside(start: int, length: int, windows: list[tuple[int, int]]) -> None:
    """Clipped parts are exactly the instants that lie in a window."""
    inside = merge_intervals(windows)
    kept = {at for low, high in clip(start, start + length, inside) for at in range(low, high)}
    assert kept == {at for at in range(start, start + length) if any(low <= at < high for low, high in inside)}
