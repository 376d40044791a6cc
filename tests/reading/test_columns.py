"""Spans as a table and back, exactly; what cannot stand in one is counted; completeness is a field."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accelprof.contracts.spans import UNKNOWN, Completeness, Kind, Span, Trace
from accelprof.reading.columns import FIELDS, KINDS, NONE, Columns, columns_of

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
EPOCH_NS = 1_795_852_566_123_456_789
texts = st.sampled_from(("", "a", "b", "ü"))
places = st.one_of(st.integers(0, 3), texts, st.just(1 << 63))
spans = st.builds(
    lambda name, kind, start, taken, pid, tid, task, words, device, stream, args: Span(
        name, kind, EPOCH_NS + start, EPOCH_NS + start + taken, pid, tid, task, *words, device, stream, args
    ),
    texts, st.sampled_from(KINDS), st.integers(-5, 200), st.integers(0, 50), places, places, texts,
    st.tuples(texts, texts, texts), st.none() | places, st.none() | places,
    st.fixed_dictionaries({}, optional={"correlation": st.integers(0, 9), "own_ns": st.integers(0, 9), "bytes": texts}),
)  # fmt: skip


@patient
@given(st.lists(spans, max_size=20))
def test_a_table_gives_back_the_spans_it_was_made_of(given_spans: list[Span]) -> None:
    """Every field of every span comes back as it was, to the nanosecond, with its arguments."""
    assert Columns.from_spans(given_spans).spans() == given_spans


@patient
@given(st.lists(spans, max_size=20), st.data())
def test_tables_are_cut_as_lists_are(whole: list[Span], data: st.DataObject) -> None:
    """A selection of rows, and one of that, hold the selected spans, with their arguments."""
    rows = data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=6)) if whole else []
    taken = Columns.from_spans(whole).take(np.array(rows, dtype=np.int64))
    assert taken.spans() == [whole[row] for row in rows]
    assert taken.take(np.arange(len(rows))[::-1]).spans() == [whole[row] for row in reversed(rows)]


def test_a_column_that_does_not_fit_is_refused() -> None:
    """A column of another length, or one that there is not, is an error that names it."""
    with pytest.raises(ValueError, match="column start has shape"):
        Columns(2, start=np.zeros(3))
    with pytest.raises(ValueError, match="no such column: begin"):
        Columns(2, begin=np.zeros(2))


def test_columns_that_a_reader_does_not_fill_take_no_memory() -> None:
    """A table of a million rows without any column given shares one value a column."""
    table = Columns(1_000_000)
    assert all(getattr(table, field).strides == (0,) for field in FIELDS)
    assert len(table) == 1_000_000


@pytest.mark.parametrize(
    ("odd", "kept"),
    [([0], "[0]"), ({"a": 1}, "{'a': 1}"), (True, "True"), (3.0, 3), (1.5, "1.5"), (1 << 70, 1 << 70)],
)
def test_odd_values_of_places_become_text(odd: Any, kept: int | str) -> None:
    """A list, a truth value or a huge number for a process, thread, device or stream is no end of the table."""
    [span] = Columns.from_spans([Span("k", Kind.KERNEL, 0, 1, odd, odd, device=odd, stream=odd)]).spans()
    assert (span.pid, span.tid, span.device, span.stream) == (kept, kept, kept, kept)


def test_odd_correlations_are_told_apart() -> None:
    """Correlations that are no whole numbers still mean one launch each, and never one with a number."""
    values = [[1], "1", 1, -1, 1 << 64, None, [1]]
    numbers = Columns.from_spans([Span("k", Kind.KERNEL, 0, 1, args={"correlation": v}) for v in values]).correlation
    assert numbers[2] == 1
    assert numbers[5] == NONE
    assert numbers[0] == numbers[6] < NONE
    assert len({int(number) for number in numbers}) == 6


def test_spans_with_impossible_times_are_left_out_and_counted() -> None:
    """Spans of a third party's reader whose times no column can hold are counted in the trace's completeness."""
    bad = [Span("a", Kind.RANGE, 0, 1 << 70), Span("b", Kind.RANGE, 5, 4), Span("c", Kind.RANGE, 0.5, 1)]  # type: ignore[arg-type]
    trace = Trace("x", "t", spans=[Span("good", Kind.RANGE, 0, 1), *bad])
    assert [span.name for span in columns_of(trace).spans()] == ["good"]
    assert trace.completeness.events_left_out == 3
    assert not trace.completeness.complete
    assert len(columns_of(trace)) == 1
    assert trace.completeness.events_left_out == 3


def test_work_of_a_format_without_devices_lacks_none() -> None:
    """It stands on one device called unknown; in a file that names devices, work that does not say its own is counted."""
    work = [Span("k", Kind.KERNEL, 1, 2), Span("k", Kind.KERNEL, 3, 4)]
    trace = Trace("f", "mine", spans=[*work, Span("r", Kind.RANGE, 0, 9)])
    assert columns_of(trace).devices == [UNKNOWN]
    assert trace.completeness.complete
    for device in (0, "d", -1):
        trace = Trace("f", "mine", spans=[Span("k", Kind.KERNEL, 1, 2), Span("k", Kind.KERNEL, 3, 4, device=device)])
        assert UNKNOWN in columns_of(trace).devices
        assert [line.split(":")[0] for line in trace.completeness.lacks()] == ["not read"]


def test_a_trace_has_one_truth() -> None:
    """Spans that are changed after the table was made are in the next table; a table that is set replaces the spans."""
    trace = Trace("x", "t", spans=[Span("a", Kind.RANGE, 0, 1)])
    assert len(columns_of(trace)) == 1
    trace.spans.append(Span("b", Kind.RANGE, 1, 2))
    assert columns_of(trace).names == ["a", "b"]
    trace.columns = columns_of(trace).take(np.array([1]))
    assert [span.name for span in trace.spans] == ["b"]
    assert len(trace) == 1


def test_completeness_says_what_is_not_there() -> None:
    """Whatever is cut, left out, dropped or unread makes a trace incomplete; what was mended does not."""
    assert Completeness(repaired={"unescaped quote": 2}).complete
    for lack in (
        Completeness(cut="the gzip stream is cut off at byte 9"),
        Completeness(left_out={"negative duration": 1}),
        Completeness(dropped=5),
        Completeness(unread=["NVTX_EVENTS"]),
    ):
        assert not lack.complete
        assert len(lack.lacks()) == 1


def test_readers_set_completeness(trace_of: Any) -> None:
    """A cut array, an event with a negative duration and dropped spans are fields of what the reader returns."""
    event = '{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":%s}'
    whole = trace_of('{"traceEvents":[' + event % 2 + "]}")
    assert whole.completeness.complete
    cut = trace_of('{"traceEvents":[' + event % 2 + "," + (event % 2)[:30])
    assert "inside the event" in cut.completeness.cut
    negative = trace_of('{"traceEvents":[' + event % -2 + "]}")
    assert negative.completeness.left_out == {"negative duration": 1}
    dropped = trace_of('{"otherData":{"accelprof":{"dropped":7}},"traceEvents":[' + event % 2 + "]}")
    assert dropped.completeness.dropped == 7
    mended = trace_of('{"traceEvents":[{"ph":"X","name":"a "b" c","pid":1,"tid":1,"ts":1,"dur":2}]}')
    assert mended.completeness.complete
    assert mended.completeness.repaired["unescaped quote"] == 2


def test_training_code_never_loads_tables(tmp_path: Path) -> None:
    """A worker that times phases and records a timeline loads nothing that needs numpy for tables."""
    script = (
        "import sys, accelprof\n"
        "p = accelprof.timer('p')(lambda: None)\n"
        f"s = accelprof.configure(steps=[1], output_dir={str(tmp_path)!r}, run='r', group='G', rank=0, timeline=True)\n"
        "with s.step(1): p()\n"
        "assert 'accelprof.reading.columns' not in sys.modules, 'tables were loaded'\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
