"""What overlaps on a row without nesting gets a row beside it; nothing is lost, every row has a name, arrows stay with theirs."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accelprof.analysis.reading import Loaded
from accelprof.analysis.rows import lanes
from accelprof.analysis.timeline import Source, TimelineWriter, merge_files
from accelprof.contracts.spans import Kind, Span, Trace
from accelprof.reading.chrome import read_chrome

Row = dict[str, Any]


def slice_(name: str, start: float, dur: float, pid: Any = 0, tid: Any = 7, **more: Any) -> Row:
    return {"ph": "X", "cat": "kernel", "name": name, "ts": start, "dur": dur, "pid": pid, "tid": tid, **more}


def merge(folder: Path, *files: Any) -> tuple[Any, list[Row]]:
    """The merge of files with these events, and its events with exact times in ns."""
    paths = []
    for number, events in enumerate(files):
        paths.append(str(folder / f"{number}.json"))
        Path(paths[-1]).write_text(json.dumps(events))
    merged = merge_files(paths, str(folder / "all.json"))
    return merged, json.loads(Path(merged.path).read_text(), parse_float=ns)["traceEvents"]


def ns(text: str) -> int:
    whole, _, fraction = text.partition(".")
    return int(whole) * 1000 + int(fraction.ljust(3, "0"))


def crossings(events: list[Row]) -> list[tuple[str, str]]:
    """Pairs on one row of which neither follows nor holds the other, by looking at every pair; ``B``/``E`` pairs included."""
    rows: dict[Any, list[tuple[int, int, str]]] = defaultdict(list)
    begun: dict[Any, list[Row]] = defaultdict(list)
    for event in events:
        place = (event["pid"], event["tid"])
        if event["ph"] == "X":
            rows[place].append((event["ts"], event["ts"] + event["dur"], event["name"]))
        elif event["ph"] == "B":
            begun[place].append(event)
        elif event["ph"] == "E":
            first = begun[place].pop()
            rows[place].append((first["ts"], event["ts"], first["name"]))
    assert not any(begun.values())
    found = []
    for mine in rows.values():
        found += [(a[2], b[2]) for a in mine for b in mine if a[0] < b[0] < a[1] < b[1]]
    return found


def unnamed(events: list[Row]) -> set[tuple[Any, Any]]:
    """Rows with events that no ``thread_name`` or whose process no ``process_name`` names."""
    threads = {(row["pid"], row["tid"]) for row in events if row["ph"] == "M" and row["name"] == "thread_name"}
    pids = {row["pid"] for row in events if row["ph"] == "M" and row["name"] == "process_name"}
    used = {(row["pid"], row["tid"]) for row in events if row["ph"] not in "MCbne"}
    return {place for place in used if place not in threads or place[0] not in pids}


def test_work_that_overlaps_is_kept_on_a_row_beside(tmp_path: Path) -> None:
    """Of two kernels that overlap the later stands on a second row, named after the first; the count is said."""
    merged, events = merge(
        tmp_path, [slice_("a", 0, 100), slice_("b", 50, 100), slice_("c", 60, 10), slice_("d", 100, 5)]
    )
    assert crossings(events) == []
    assert (merged.moved, merged.left_out) == (1, 0)
    assert "1 event on 1 row overlapped without nesting" in merged.notes[0]
    rows = {row["name"]: row["tid"] for row in events if row["ph"] == "X"}
    assert rows["a"] == rows["c"] == rows["d"] == 7 != rows["b"]
    names = {row["tid"]: row["args"]["name"] for row in events if row["name"] == "thread_name"}
    assert names == {7: "thread 7 [0.json (1)]", rows["b"]: "thread 7 (2) [0.json (1)]"}


def test_kernels_of_a_real_trace(shared: Path, tmp_path: Path) -> None:
    """38 kernels and 4 Python calls of a B200 trace overlap others on their rows: none of them does in the merged file."""
    path = str(shared / "samples/tracelens/b200/eager_trace.json.gz")
    merged = merge_files([path], str(tmp_path / "all.json"))
    events = json.loads(Path(merged.path).read_text(), parse_float=ns)["traceEvents"]
    assert merged.moved == 42
    rows: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for row in events:
        if row["ph"] == "X":
            rows[row["pid"], row["tid"]].append((row["ts"], row["ts"] + row["dur"]))
    for mine in rows.values():
        stack: list[int] = []
        for start, end in sorted(mine, key=lambda pair: (pair[0], -pair[1])):
            while stack and stack[-1] <= start:
                stack.pop()
            assert not stack or end <= stack[-1]
            stack.append(end)
    # every arrow ends at the start of a kernel on its own row, as in the file itself
    starts = {(row["pid"], row["tid"], row["ts"]) for row in events if row["ph"] == "X"}
    assert all(
        (row["pid"], row["tid"], row["ts"]) in starts for row in events if row["ph"] == "f" and row["cat"] == "ac2g"
    )
    assert unnamed(events) == set()


def arrow(ph: str, at: float, number: int, tid: int = 7, **more: Any) -> Row:
    return {"ph": ph, "cat": "ac2g", "name": "ac2g", "id": number, "ts": at, "pid": 0, "tid": tid, **more}


@pytest.mark.parametrize("binding", [{"bp": "e"}, {}])
def test_arrows_go_with_the_work_they_point_at(tmp_path: Path, binding: Row) -> None:
    """An arrow ends on the row of the kernel that starts there; of two that start together, at the one of its number."""
    kernels = [
        slice_(name, at, dur, args={"correlation": n})
        for n, (name, at, dur) in enumerate([("a", 0, 100), ("b", 50, 100), ("c", 50, 90)])
    ]
    _, events = merge(
        tmp_path,
        [
            *kernels,
            arrow("f", 50, 1, **binding),
            arrow("f", 50, 2, **binding),
            arrow("s", 0, 1, tid=3),
            arrow("s", 1, 2, tid=3),
        ],
    )
    rows = {row["name"]: row["tid"] for row in events if row["ph"] == "X"}
    ends = [row["tid"] for row in events if row["ph"] == "f"]
    assert ends == [rows["b"], rows["c"]]
    assert {row["tid"] for row in events if row["ph"] == "s"} == {3}


launched = st.tuples(st.integers(0, 8), st.integers(1, 9), st.sampled_from([7, 8]), st.booleans())


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(launched, max_size=10), st.randoms(use_true_random=False), st.integers(1, 3))
def test_every_arrow_still_joins_a_launch_with_its_work(
    tmp_path: Path, work: list[Any], random: Any, files: int
) -> None:
    """Whatever overlaps and in whatever order it is written: each arrow begins at its launch and ends at its kernel."""
    events: list[Row] = []
    for n, (at, length, stream, bound) in enumerate(work):
        events += [
            slice_(f"l{n}", 4 * n, 2, tid=3, cat="cuda_runtime", args={"correlation": n}),
            slice_(f"k{n}", 100 + at, length, tid=stream, args={"correlation": n}),
            arrow("s", 4 * n, n, tid=3),
            arrow("f", 100 + at, n, tid=stream, **({"bp": "e"} if bound else {})),
        ]
    random.shuffle(events)
    _, found = merge(tmp_path, *[events] * files)
    starts: dict[Any, set[str]] = defaultdict(set)
    for row in found:
        if row["ph"] == "X":
            starts[row["pid"], row["tid"], row["ts"]].add(row["name"])
    ends: dict[int, dict[str, set[str]]] = defaultdict(dict)
    for row in found:
        if row["ph"] in "sf":
            assert row["ph"] not in ends[row["id"]]
            ends[row["id"]][row["ph"]] = starts[row["pid"], row["tid"], row["ts"]]
    assert len(ends) == files * len(work)
    joined = [{(a[1:], b[1:]) for a in pair["s"] for b in pair["f"]} for pair in ends.values()]
    assert all(any(a == b for a, b in pairs) for pairs in joined)
    launches = sorted(name for pair in ends.values() for name in pair["s"])
    assert launches == sorted(f"l{n}" for n in range(len(work)) for _ in range(files))


def lanes_one_by_one(rows: list[int], starts: list[int], ends: list[int]) -> list[int]:
    """The first lane of its row where an interval crosses none that was placed before it: every pair compared."""
    found = [0] * len(rows)
    placed: list[int] = []
    for index in sorted(range(len(rows)), key=lambda index: (rows[index], starts[index], -ends[index])):
        taken = {
            found[other] for other in placed if rows[other] == rows[index] and starts[index] < ends[other] < ends[index]
        }
        while found[index] in taken:
            found[index] += 1
        placed.append(index)
    return found


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 12)), max_size=30),
    st.integers(-(10**18), 10**18),
)
def test_lanes_are_those_of_every_pair_compared(spans: list[tuple[int, int, int]], base: int) -> None:
    rows, starts, lengths = (list(column) for column in zip(*spans, strict=True)) if spans else ([], [], [])
    starts = [base + start for start in starts]
    ends = [start + length for start, length in zip(starts, lengths, strict=True)]
    found, order = lanes(np.array(rows, np.int64), np.array(starts, np.int64), np.array(ends, np.int64))
    assert found.tolist() == lanes_one_by_one(rows, starts, ends)
    assert order.tolist() == sorted(range(len(rows)), key=lambda index: (rows[index], starts[index], -ends[index]))


@pytest.mark.parametrize("crossing", [False, True])
def test_lanes_of_rows_deeper_than_is_asked(crossing: bool) -> None:
    """Three hundred in each other, and one more at the end that crosses the innermost, or lies in it."""
    count = 300
    starts = [*range(count), count]
    ends = [*range(3 * count, 2 * count, -1), 2 * count + (2 if crossing else 1)]
    found, _ = lanes(np.zeros(count + 1, np.int64), np.array(starts), np.array(ends))
    assert found.tolist() == [0] * count + [int(crossing)]


def test_begins_and_ends_stay_together(tmp_path: Path) -> None:
    """A begin that overlaps is moved with its end; a begin without end is whole and cut, an end without begin is left out and said."""
    begin = {"ph": "B", "name": "b", "pid": 0, "tid": 7, "ts": 50}
    end = {"ph": "E", "pid": 0, "tid": 7, "ts": 150}
    lost = [{"ph": "E", "pid": 0, "tid": 9, "ts": 1}, {"ph": "B", "name": "endless", "pid": 0, "tid": 9, "ts": 2}]
    merged, events = merge(tmp_path, [slice_("a", 0, 100), begin, end, *lost])
    assert crossings(events) == []
    assert len({row["tid"] for row in events if row["ph"] in "BE"}) == 1
    assert (merged.read, merged.left_out, merged.moved) == (5, 1, 1)
    assert merged.read + merged.added - merged.left_out == merged.written == len(events)
    assert [problem.rpartition(": ")[2] for problem in merged.problems] == ["ends without a begin"]
    [cut] = [span for span in read_chrome(merged.path, "trace").spans if span.args.get("in_progress")]
    assert (cut.name, cut.duration_ns) == ("endless", 148_000)


def test_tracks_of_one_number_are_rows_of_their_own(tmp_path: Path) -> None:
    """Device work on two processes' tracks of one number and one stream number does not share a row; tasks of a thread neither."""
    spans = [
        Span("MatMul", Kind.KERNEL, 0, 10, pid=1, tid=3, device=0, stream=3),
        Span("Free", Kind.DEVICE_ANNOTATION, 5, 20, pid=2, tid=3, device=0, stream=3),
        Span("x", Kind.PHASE, 0, 10, pid=9, tid=1, task="a"),
        Span("y", Kind.PHASE, 5, 15, pid=9, tid=1, task="b"),
        Span("lost", Kind.PHASE, 5, 4, pid=9, tid=1),
    ]
    out = str(tmp_path / "all.json")
    with TimelineWriter(out, None) as writer:
        writer.add(Source("x", "W", "0", "npu"), Loaded("x", "npu", Trace("x", "npu", spans=spans)))
    events = json.loads(Path(out).read_text(), parse_float=ns)["traceEvents"]
    assert len({(row["pid"], row["tid"]) for row in events if row["ph"] == "X"}) == 4
    assert (writer.merged.moved, writer.merged.left_out) == (0, 1)
    assert unnamed(events) == set()


times = st.integers(0, 12)
sliced = st.builds(
    slice_, st.sampled_from("abc"), times, times, st.sampled_from([0, "Spans"]), st.sampled_from([7, None])
)
begun = st.builds(
    lambda ph, at, tid: {"ph": ph, "name": "n", "ts": at, "pid": 0, "tid": tid},
    st.sampled_from("BE"),
    times,
    st.just(7),
)
points = st.builds(
    lambda ph, at, number: arrow(ph, at, number), st.sampled_from(["s", "t", "f", "i", "C"]), times, st.integers(0, 3)
)
broken = st.sampled_from(
    [slice_("late", 5, -1), {"ph": "i", "name": "when", "pid": 0, "tid": 7}, {"ph": "X", "name": "no", "ts": 1}]
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.one_of(sliced, sliced, begun, points, broken), max_size=25), min_size=1, max_size=3))
def test_nothing_crosses_and_nothing_is_lost(tmp_path: Path, files: list[list[Row]]) -> None:
    """Whatever the files hold: on no row anything overlaps without nesting, events in = out + left out, rows are named."""
    merged, events = merge(tmp_path, *files)
    assert crossings(events) == []
    assert merged.read == sum(map(len, files))
    assert merged.read + merged.added - merged.left_out == merged.written == len(events)
    assert unnamed(events) == set()
    owners = [set(source.pids) for source in merged.sources]
    assert sum(map(len, owners)) == len(set().union(*owners))
    original = sorted(
        (row["name"], row["dur"] * 1000)
        for rows in files
        for row in rows
        if row["ph"] == "X" and row.get("dur", -1) >= 0
    )
    whole = [row for row in events if row["ph"] == "X" and not row.get("args", {}).get("in_progress")]
    assert sorted((row["name"], row["dur"]) for row in whole) == original
    begun = sum(row["ph"] == "B" and isinstance(row.get("ts"), int) for rows in files for row in rows)
    cut = sum(row["ph"] == "X" for row in events) - len(whole)
    assert sum(row["ph"] == "B" for row in events) == sum(row["ph"] == "E" for row in events) == begun - cut
