"""Operators on the host: self time by nesting, by phase; as a slow model and as torch itself have them."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from accelprof.analysis import operators as module
from accelprof.analysis.compare import compare
from accelprof.analysis.files import summarise_files
from accelprof.analysis.operators import Operator, OperatorTable, operators, self_times
from accelprof.analysis.summary import summarise
from accelprof.cli.report import report
from accelprof.contracts.spans import Kind, Span
from accelprof.reading.chrome import read_chrome
from accelprof.reading.columns import Columns, columns_of

relaxed = settings(deadline=None, max_examples=100)


def slow(spans: list[tuple[int, int, int]]) -> list[int]:
    """Every nanosecond goes to the span of its thread that began last; of those to the one that ends first, then to the
    later of the list."""
    own = [0] * len(spans)
    for thread in {row[2] for row in spans}:
        for at in range(60):
            open_ = [(-b, e, -i) for i, (b, e, t) in enumerate(spans) if t == thread and b <= at < e]
            if open_:
                own[-min(open_)[2]] += 1
    return own


any_spans = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 20), st.integers(0, 1)).map(lambda r: (r[0], r[0] + r[1], r[2])),
    max_size=14,
)


@st.composite
def nested(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Spans of two threads that nest as calls do, in any order of the list."""
    found: list[tuple[int, int, int]] = []

    def fill(low: int, high: int, thread: int, depth: int) -> None:
        at = low
        while at < high and depth and draw(st.booleans()):
            begin = draw(st.integers(at, high))
            end = draw(st.integers(begin, high))
            found.append((begin, end, thread))
            fill(begin, end, thread, depth - 1)
            at = end

    for thread in (0, 1):
        fill(0, 50, thread, 4)
    return draw(st.permutations(found))


def columns_from(spans: list[tuple[int, int, int]]) -> list[int]:
    table = np.array(spans, dtype=np.int64).reshape(-1, 3)
    found: list[int] = self_times(table[:, 0], table[:, 1], table[:, 2]).tolist()
    return found


@relaxed
@given(any_spans)
def test_self_time_is_that_of_the_innermost(spans: list[tuple[int, int, int]]) -> None:
    """Whatever overlaps how, each moment of a thread counts for one span: the one that counting every ns finds."""
    assert columns_from(spans) == slow(spans)


@relaxed
@given(nested())
def test_self_time_of_calls_that_nest(spans: list[tuple[int, int, int]]) -> None:
    """Of proper calls too; self times of a thread add up to the time in any of its calls."""
    found = columns_from(spans)
    assert sum(found) == sum(slow(spans))
    by_span: dict[Any, int] = defaultdict(int)
    expected: dict[Any, int] = defaultdict(int)
    for span, mine, right in zip(spans, found, slow(spans)):  # equal spans are one another's parent in either order
        by_span[span] += mine
        expected[span] += right
    assert by_span == expected


def test_a_file_counted_on_paper() -> None:
    """A linear of 40 ns with an addmm of 30 in it, which launches for 5: self 10, 25 and 5; backward's thread is in the phase
    of the one that waits for it; what lies outside stands outside; Python's functions are no operators."""
    spans = [
        Span("update", Kind.RANGE, 0, 100, 1, 1),
        Span("aten::linear", Kind.OPERATOR, 10, 50, 1, 1, category="cpu_op"),
        Span("train.py(3): forward", Kind.OPERATOR, 11, 49, 1, 1, category="python_function"),
        Span("aten::addmm", Kind.OPERATOR, 15, 45, 1, 1, category="cpu_op"),
        Span("cudaLaunchKernel", Kind.RUNTIME, 20, 25, 1, 1),
        Span("MmBackward0", Kind.OPERATOR, 60, 70, 1, 2),
        Span("aten::linear", Kind.OPERATOR, 110, 150, 1, 1),
        Span("cudaDeviceSynchronize", Kind.SYNC, 160, 190, 1, 1),
    ]
    assert operators(Columns.from_spans(spans)) == [
        Operator("aten::linear", "operator", None, 1, 40, 40),
        Operator("cudaDeviceSynchronize", "wait", None, 1, 30, 30),
        Operator("aten::addmm", "operator", "update", 1, 30, 25),
        Operator("aten::linear", "operator", "update", 1, 40, 10),
        Operator("MmBackward0", "operator", "update", 1, 10, 10),
        Operator("cudaLaunchKernel", "call", "update", 1, 5, 5),
    ]


def test_equal_spans_nest_by_what_they_are() -> None:
    """A call as long as its operator, and that as long as its range, as times of whole µs have them: the time is the call's."""
    spans = [
        Span("cudaLaunchKernel", Kind.RUNTIME, 5, 9, 1, 1),
        Span("forward", Kind.RANGE, 5, 9, 1, 1),
        Span("aten::mm", Kind.OPERATOR, 5, 9, 1, 1),
    ]
    for order in itertools.permutations(spans):
        found = {row.name: row.self_ns for row in operators(Columns.from_spans(order))}
        assert found == {"cudaLaunchKernel": 4, "aten::mm": 0}


def test_figures_are_torchs_own(tmp_path: Path) -> None:
    """On a real CPU trace calls, total and self time of each operator are those of ``key_averages()``, to the ns.

    But for an operator that holds nothing but a call of its own name: torch takes the two for one.
    """
    torch = pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, profile, record_function

    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(2):
            with record_function("forward"):
                loss = model(torch.randn(8, 16)).pow(2).mean()
            loss.backward()
            optimizer.step()
    path = tmp_path / "t.pt.trace.json"
    profiler.export_chrome_trace(str(path))
    theirs = {row.key: (row.count, row.cpu_time_total, row.self_cpu_time_total) for row in profiler.key_averages()}
    ours: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    rows = operators(columns_of(read_chrome(str(path), "torch")))
    for row in rows:
        for at, value in enumerate((row.calls, row.total_ns, row.self_ns)):
            ours[row.name][at] += value
    assert {"forward"} == {row.phase for row in rows if row.name == "aten::linear"}
    assert len(ours) > 15
    merged = {name for name, row in ours.items() if row[0] != theirs[name][0]}
    assert len(merged) <= len(ours) // 4
    for name, (calls, total, own) in ours.items():
        assert abs(theirs[name][2] * 1000 - own) < 1 + calls
        if name not in merged:
            assert abs(theirs[name][1] * 1000 - total) < 1 + calls


def test_self_times_of_a_real_trace_add_up(shared: Path) -> None:
    """On HTA's traces, whose µs do not nest exactly, self times of operators, calls and ranges are the union of each thread."""
    from accelprof.contracts.spans import merge_intervals

    for sample in (
        "hta/trace_filter/sampled_rank-0.json.gz",
        "hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    ):
        columns = columns_of(read_chrome(str(shared / "samples" / sample), "torch"))
        rows = columns.rows(Kind.OPERATOR, Kind.RUNTIME, Kind.SYNC, Kind.RANGE)
        own = self_times(columns.start[rows], columns.end[rows], columns.thread[rows])
        threads: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for row in rows.tolist():
            threads[int(columns.thread[row])].append((int(columns.start[row]), int(columns.end[row])))
        union = sum(end - start for spans in threads.values() for start, end in merge_intervals(spans))
        assert own.sum() == union
        assert (own >= 0).all()


def test_many_operators_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit the least are one row with their number; calls and times stay whole; workers count once."""
    monkeypatch.setattr(module, "MAX_ROWS", 2)
    table = OperatorTable()
    for worker in ("a", "b"):
        table.add("torch", worker, [Operator(f"op{n}", "operator", "p", 1, 10 * n, n) for n in range(5)])
    rows = table.rows()
    assert [row.operator for row in rows] == ["op4", "op3", "(3 others)"]
    assert (sum(row.calls for row in rows), sum(row.self_ns for row in rows)) == (10, 20)
    assert [row.workers for row in rows] == [2, 2, 2]


def test_a_report_of_a_cpu_trace_says_something(shared: Path) -> None:
    """On the command line, as JSON and as a table, without a device."""
    path = str(shared / "samples/hta/trace_filter/sampled_rank-1.json.gz")
    found = json.loads(CliRunner().invoke(report, [path, "--json"]).output)["operators"]
    assert found[0]["self_ns"] > 0
    assert set(found[0]) == {"operator", "kind", "phase", "tool", "workers", "calls", "total_ns", "self_ns"}
    text = CliRunner().invoke(report, [path]).output
    assert "operators on the host, over all files" in text
    assert summarise_files([path]).to_json()["operators"] == found


def test_each_file_and_each_window_has_its_operators() -> None:
    """``--by-file`` shows a table a file, whose calls are those of the whole; compare has an interval for operators, from step to
    step: of a run with itself it holds 0."""
    path = str(Path(__file__).parent / "two_gpus")
    summary = summarise(path)
    assert sum(row.calls for file in summary.files for row in file.operators) == sum(
        row.calls for row in summary.operators.rows()
    )
    text = CliRunner().invoke(report, [path, "--no-html", "--by-file"]).output
    assert text.count("operators on the host in") == len(summary.files) == 4
    rows = [row for row in compare(path, path).changes if row.measure == "operator"]
    assert rows
    for row in rows:
        assert (row.delta_ns, row.repeats) == (0, (2, 2))
        assert row.low_ns is not None
        assert row.high_ns is not None
        assert row.low_ns <= 0 <= row.high_ns
        assert not row.clear
