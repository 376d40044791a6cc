"""Processes are kept apart, whatever numbers they share: each alone, in one merged file, and in one report around all."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accelprof.analysis.accounts import by_process, doubts, not_in_files, shared_out
from accelprof.analysis.attribution import Attribution, attribute
from accelprof.analysis.files import summarise_files
from accelprof.analysis.reading import Loaded, read_any
from accelprof.analysis.run import WorkerId, open_run
from accelprof.analysis.seconds import divisions
from accelprof.analysis.summary import Summary, _not_in_a_phase, summarise
from accelprof.analysis.timeline import Source, TimelineWriter, merge_files
from accelprof.analysis.toolfile import ToolFile
from accelprof.contracts.spans import DEVICE_WORK, Kind, Span, Trace
from accelprof.reading.columns import columns_of

patient = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
moments = st.integers(0, 40)
lengths = st.integers(1, 20)
#: phases on two threads; work: when its launch is, on which thread, the kernel's delay and length, on which of two devices
phases = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from((1, 2)), moments, lengths), max_size=5)
work = st.lists(st.tuples(moments, st.sampled_from((1, 2)), moments, lengths, st.integers(0, 1)), max_size=6)
process = st.tuples(phases, work)
Process = tuple[list[tuple[str, int, int, int]], list[tuple[int, int, int, int, int]]]


def spans_of(what: Process, pid: int, key: int = 0) -> list[Span]:
    """Spans of one process, which numbers its launches from 1 and its devices from 0 as any other does."""
    spans = [Span(name, Kind.PHASE, at, at + length, pid, tid) for name, tid, at, length in what[0]]
    for number, (at, tid, delay, length, device) in enumerate(what[1], 1):
        args = {"correlation": key + number}
        begin = at + delay
        spans.append(Span("cudaLaunchKernel", Kind.RUNTIME, at, at + 1, pid, tid, args=args))
        spans.append(Span("gemm", Kind.KERNEL, begin, begin + length, pid, device=device, stream=7, args=args))
    return spans


def chrome(path: Path, what: Process, pid: int) -> str:
    """The same as Kineto writes it: work stands on the device's own process."""
    events = []
    for span in spans_of(what, pid):
        place = {"pid": pid, "tid": span.tid} if span.device is None else {"pid": span.device, "tid": 7}
        cat = {Kind.PHASE: "user_annotation", Kind.RUNTIME: "cuda_runtime"}.get(span.kind, "kernel")
        args = {**span.args, **({} if span.device is None else {"device": span.device, "stream": 7})}
        times = {"ts": span.start_ns, "dur": span.duration_ns}
        events.append({"ph": "X", "cat": cat, "name": span.name, **place, **times, "args": args})
    path.write_text(json.dumps({"traceEvents": events}))
    return str(path)


def figures(found: Attribution) -> tuple[Any, ...]:
    """What a process's figures are, without the names of its devices."""
    rows = {
        row.name: (row.calls, row.wall_ns, row.kernels, row.own_kernels, sum(row.busy_ns.values()))
        for row in found.phases
    }
    devices = Counter((row.kernels, row.busy_ns, row.span_ns) for row in found.devices)
    left = (found.kernels, found.unattributed, found.unlaunched, found.undecided.total(), found.launches)
    return rows, devices, left


def _in_ns(found: tuple[Any, ...]) -> tuple[Any, ...]:
    """Figures of a file whose times are µs as if they were ns."""
    rows, devices, left = found
    of_rows = {name: (row[0], row[1] // 1000, *row[2:4], row[4] // 1000) for name, row in rows.items()}
    of_devices = Counter({(count, busy // 1000, span // 1000): times for (count, busy, span), times in devices.items()})
    return of_rows, of_devices, left


def together(alone: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Figures of processes added up by hand."""
    rows: dict[str, tuple[int, ...]] = {}
    devices: Counter[Any] = Counter()
    left = (0, 0, 0, 0, 0)
    for its_rows, its_devices, its_left in alone:
        for name, row in its_rows.items():
            rows[name] = tuple(map(sum, zip(rows.get(name, (0,) * len(row)), row, strict=True)))
        devices += its_devices
        left = tuple(map(sum, zip(left, its_left, strict=True)))
    return rows, devices, left


@patient
@given(st.lists(process, min_size=2, max_size=3), st.booleans())
def test_a_merged_timeline_has_the_sum_of_its_ranks(tmp_path: Path, ranks: list[Process], same_pid: bool) -> None:
    """Ranks that share pids, cards and launch numbers (containers do) are in one file what they are by themselves."""
    paths = [chrome(tmp_path / f"{rank}.json", what, 42 if same_pid else 42 + rank) for rank, what in enumerate(ranks)]
    alone = [figures(attribute(read_any(path))) for path in paths]
    for what, found in zip(ranks, alone, strict=True):
        assert figures(attribute(Trace("x", "t", spans=spans_of(what, 42)))) == _in_ns(found)
    merged = merge_files(paths, str(tmp_path / "all.json"))
    assert merged.left_out == 0
    assert figures(attribute(read_any(merged.path))) == together(alone)


@patient
@given(st.lists(process, min_size=2, max_size=3), st.sampled_from(tuple(DEVICE_WORK)))
def test_a_merged_timeline_of_reports_too(tmp_path: Path, ranks: list[Process], kind: Kind) -> None:
    """The same of reports that are no Chrome traces, whatever kind of work they have: what is merged reads back as it was."""
    traces = []
    for what in ranks:
        spans = spans_of(what, 42, 42 << 32)
        traces.append(
            Trace("x", "nsys", spans=[s if s.device is None else dataclasses.replace(s, kind=kind) for s in spans])
        )
    alone = [figures(attribute(trace)) for trace in traces]
    with TimelineWriter(str(tmp_path / "all.json"), None) as made:
        for rank, trace in enumerate(traces):
            made.add(Source(str(rank), f"rank{rank}", str(rank), "nsys"), Loaded("x", "nsys", trace))
    back = read_any(made.merged.path)
    assert figures(attribute(back)) == together(alone)
    assert Counter((span.kind, span.stream) for span in back.spans if span.device is not None) == Counter(
        (span.kind, span.stream) for trace in traces for span in trace.spans if span.device is not None
    )


#: where the windows of each rank begin, and how long they are
marks = st.lists(st.tuples(moments, lengths), max_size=2, unique_by=lambda mark: mark[0])


def reported(summary: Summary) -> tuple[Any, ...]:
    """A report's figures of devices, seconds and phases, without the names of workers and devices."""
    devices = [
        (row.kernels, row.copies, row.busy_ns, row.span_ns, row.window_ns, row.busy_in_window_ns, row.idle_ns)
        for file in summary.files
        for row in file.attribution.devices
    ]
    seconds = [(row.window, row.window_ns, sorted(row.parts.items())) for row in summary.seconds]
    phases = [
        (row.name, row.calls, row.wall_ns, row.kernels, row.own_kernels, sorted(row.busy_ns.values()), row.idle_ns)
        for file in summary.files
        for row in file.attribution.phases
    ]
    rows = [(row.phase, row.calls, row.total_ns, row.self_ns, row.share, len(row.ranks)) for row in summary.phases]
    windows = [timeline.window_ns for timeline in summary.timelines]
    return sorted(devices), sorted(seconds), sorted(phases, key=str), sorted(rows), sorted(windows)


@settings(patient, max_examples=20)
@given(st.lists(st.tuples(process, marks), min_size=2, max_size=3))
def test_a_report_of_a_merged_timeline_is_that_of_its_files(tmp_path: Path, ranks: list[tuple[Process, Any]]) -> None:
    """A window counts for the devices of its own file alone, also where those of ranks overlap, and so does what the host does."""
    paths = []
    for rank, (what, windows) in enumerate(ranks):
        paths.append(chrome(tmp_path / f"{rank}.pt.trace.json", what, 42))
        events = json.loads(Path(paths[-1]).read_text())["traceEvents"]
        place = {"pid": "Spans", "tid": "PyTorch Profiler"}
        for number, (at, length) in enumerate(windows):
            name = f"PyTorch Profiler ({number})"
            events.append({"ph": "X", "cat": "Trace", "name": name, "ts": at, "dur": length, **place})
        events.append({"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 3, "dur": 4, "pid": 42, "tid": 1})
        Path(paths[-1]).write_text(json.dumps({"traceEvents": events}))
    merged = merge_files(paths, str(tmp_path / "all.json.gz"))
    assert reported(summarise_files([merged.path])) == reported(summarise_files(paths))


def test_a_report_of_two_real_ranks_merged_is_that_of_their_files(tmp_path: Path, shared: Path) -> None:
    """The same of two ranks of a training run."""
    paths = [str(shared / "samples" / "hta" / "trace_filter" / f"sampled_rank-{rank}.json.gz") for rank in (0, 1)]
    merged = merge_files(paths, str(tmp_path / "all.json.gz"))
    assert reported(summarise_files([merged.path])) == reported(summarise_files(paths))


@patient
@given(st.lists(st.tuples(process, marks), min_size=2, max_size=3))
def test_a_window_belongs_to_its_process(ranks: list[tuple[Process, Any]]) -> None:
    """In one report around several ranks too, of which some may launch nothing: each device has its own process's windows. Where
    one process alone marks windows they are when the file was recorded, for each."""
    marked = [windows for _, windows in ranks if windows]
    alone: list[Any] = []
    spans: list[Span] = []
    for rank, (what, windows) in enumerate(ranks):
        pid = 100 + rank
        mine = [Span("p", Kind.PHASE, 3, 7, pid, 1), *spans_of(what, pid, pid << 32)]
        mine = [s if s.device is None else dataclasses.replace(s, device=f"{rank}.{s.device}") for s in mine]
        spans.extend(mine)
        spans.extend(Span(f"w{at}", Kind.WINDOW, at, at + length, pid, 1) for at, length in windows)
        stretches = [(f"w{at}", at, at + length) for at, length in (marked[0] if len(marked) == 1 else windows)]
        alone.extend(row.to_json() for row in divisions(columns_of(Trace("x", "t", spans=mine)), "w", stretches)[0])
    parts = by_process(columns_of(Trace("x", "t", spans=spans)))
    found = [row.to_json() for part in parts for row in divisions(part, "w")[0]]
    assert sorted(found, key=str) == sorted(alone, key=str)


def around(run_maker: Any, pids: tuple[int, ...]) -> tuple[Any, Any]:
    """A run whose one file holds a window of each of these processes."""
    run_maker.manifest.update(targets=[], windows=[], artifacts=[])
    windows = []
    for rank, pid in enumerate(pids):
        key = run_maker.target(rank, pid=pid)
        windows.append(f"{key}-w1")
        run_maker.manifest["windows"].append({"id": windows[-1], "target": key, "steps": [2]})
    run_maker.artifact("around.sqlite", "nsys", run_maker.manifest["targets"][0], windows)
    run_maker.directory.mkdir(parents=True, exist_ok=True)
    (run_maker.directory / "around.sqlite").write_bytes(b"x")
    run = open_run(run_maker.write())
    [file] = list(run.files())
    return run, file


@patient
@given(st.lists(process, min_size=2, max_size=3), st.booleans())
def test_one_report_around_ranks_is_each_of_them(run_maker: Any, ranks: list[Process], stranger: bool) -> None:
    """Split by pid each part is what the process is alone; the work of one that is no worker is counted, and nobody's."""
    pids = tuple(100 + rank for rank in range(len(ranks)))
    workers = pids[:-1] if stranger and len(pids) > 2 else pids
    run, file = around(run_maker, workers)
    spans = [span for pid, what in zip(pids, ranks, strict=True) for span in spans_of(what, pid, pid << 32)]
    notices: list[str] = []
    parts = {
        part.worker.pid: attribute(trace)
        for part, trace in shared_out(run, file, Trace("around.sqlite", "nsys", spans=spans), notices)
    }
    there = {span.pid for span in spans}
    if not there & set(workers):
        assert len(parts) == 1
        assert "cannot be split" in notices[0]
        return
    assert set(parts) == there & set(workers)
    for pid, found in parts.items():
        mine = [span for span in spans if span.pid == pid]
        assert figures(found) == figures(attribute(Trace("x", "nsys", spans=mine)))
    missing = [pid for pid in workers if pid not in there]
    assert sum("is missing" in line for line in notices) == len(missing)
    of_others = sum(span.kind is Kind.KERNEL for span in spans if span.pid not in workers)
    assert sum(found.kernels for found in parts.values()) + of_others == sum(span.kind is Kind.KERNEL for span in spans)
    assert any(f"{of_others:,} pieces of device work" in line for line in notices) == bool(of_others)


# --- shares, and what is only in part there ---------------------------------------------------------------------------


@patient
@given(st.integers(1, 12), st.sets(st.integers(0, 11)), st.sets(st.integers(0, 11)))
def test_steps_that_are_lost_or_empty_are_counted(run_maker: Any, steps: int, lost: set[int], empty: set[int]) -> None:
    """Of the steps of a window: how many are in the file, and which of those launched nothing."""
    run, file = around(run_maker, (100,))
    window = next(iter(run.manifest.windows.values()))
    window.steps = list(range(steps))
    there = [step for step in range(steps) if step not in lost]
    spans = []
    for step in there:
        spans.append(Span(f"ProfilerStep#{step}", Kind.STEP, step * 100, step * 100 + 90, 100, 1))
        if step not in empty:
            spans += spans_of(([], [(step * 100 + 5, 1, 5, 10, 0)]), 100, step * 10)
    found = attribute(Trace("x", "nsys", spans=spans))
    files = [ToolFile(file.worker, "nsys", file.path, tuple(file.windows), found)]
    said = [*(line for line, _ in not_in_files(run, files, [])), *doubts(files)]
    full = [step for step in there if step not in empty]
    counted = [line for line in said if "steps of its windows are in the file" in line]
    assert bool(counted) == (0 < len(there) < steps and steps > 1)
    assert all(f"{len(there)} of {steps} steps" in line for line in counted)
    without = [line for line in said if "launched no device work" in line]
    assert bool(without) == (0 < len(full) < len(there))
    assert sum(found.steps.values()) == found.kernels == len(full)


@patient
@given(st.lists(st.tuples(st.booleans(), st.sampled_from(("nsys", "torch"))), min_size=1, max_size=6))
def test_a_worker_without_device_work_is_named_where_others_have_some(ranks: list[tuple[bool, str]]) -> None:
    """Its ranges are there and its kernels are not (a vendor's library that did not take hold in one process): said of each tool by
    itself, and not where nobody has any."""
    launched = spans_of(([("a", 1, 0, 30)], [(5, 1, 5, 10, 0)]), 100)
    bare = [span for span in launched if span.kind is Kind.PHASE]
    files = [
        ToolFile(WorkerId(f"k{rank}", f"G/rank{rank}", "G", rank), tool, "x", (), attribute(Trace("x", tool, spans=launched if there else bare)))
        for rank, (there, tool) in enumerate(ranks)
    ]  # fmt: skip
    said = [line for line in doubts(files) if "no device work in any file" in line]
    for tool in ("nsys", "torch"):
        mine = {f"G/rank{rank}": there for rank, (there, used) in enumerate(ranks) if used == tool}
        named = [worker for worker, there in mine.items() if not there] if any(mine.values()) else []
        lines = [line for line in said if f"of {tool}," in line]
        assert len(lines) == bool(named)
        assert all(worker in lines[0] for worker in named[:5])


@pytest.mark.usefixtures("in_parts")
@patient
@given(st.lists(process, min_size=1, max_size=2), st.integers(0, 30), st.integers(1, 60))
def test_busy_shares_are_of_the_window(ranks: list[Process], begin: int, length: int) -> None:
    """Busy and idle of a device in a window, counted ns by ns; both ends count."""
    spans = [span for pid, what in enumerate(ranks, 10) for span in spans_of(what, pid, pid << 32)]
    by_device: dict[Any, set[int]] = defaultdict(set)
    for span in spans:
        if span.kind is Kind.KERNEL:
            by_device[span.device] |= set(range(span.start_ns, span.end_ns))
    window = Span("window", Kind.WINDOW, begin, begin + length, 10, 1)
    rows = divisions(columns_of(Trace("x", "t", spans=[*spans, window])), "w")[0]
    inside = set(range(begin, begin + length))
    for row in rows:
        if row.device is None:
            continue
        parts = row.to_json()["parts"]
        busy = sum(parts[name] for name in ("compute", "communication_exposed", "communication_overlapped", "copy"))
        if row.window_ns == length:
            assert busy == len(by_device[row.device] & inside)
            assert sum(parts.values()) == length


# --- self time of generators -----------------------------------------------------------------------------------------

#: pieces of calls: how long each runs inside, and how long the consumer has it between
piece = st.tuples(st.integers(1, 9), st.integers(0, 9))


@patient
@given(st.lists(st.lists(piece, min_size=1, max_size=4), min_size=1, max_size=4), st.booleans())
def test_a_generator_has_the_time_inside_it(
    run_maker: Any, event: Any, calls: list[list[tuple[int, int]]], outer: bool
) -> None:
    """Self time never exceeds the total, and both are the pieces alone, whatever runs between them."""
    run_maker.manifest.update(targets=[], windows=[], artifacts=[])
    at, inside, events = 1, 0, []
    for number, pieces in enumerate(calls, 1):
        for runs, waits in pieces:
            events.append(event("gen", at, runs, own_ns=runs * 1000, call=number))
            inside += runs
            at += runs
            if waits:
                events.append(event("consumer", at, waits))
            at += waits
        at += 1
    if outer:
        events.append(event("loop", 0, at + 1))
    run_maker.timeline(run_maker.target(0), events, end_us=at + 5)
    rows = {row.phase: row for row in summarise(run_maker.write()).phases}
    gen = rows["gen"]
    assert (gen.calls, gen.total_ns, gen.self_ns) == (len(calls), inside * 1000, inside * 1000)
    for row in rows.values():
        assert 0 <= row.self_ns <= row.total_ns
    if outer:
        consumed = sum(waits for pieces in calls for _, waits in pieces)
        assert rows["loop"].self_ns == (at + 1 - inside - consumed) * 1000


@patient
@given(process, st.integers(0, 3), st.integers(0, 3))
def test_the_line_at_the_top_adds_up(tmp_path: Path, what: Process, orphans: int, outside: int) -> None:
    """How many kernels stand in no phase is the sum of the reasons that follow, and one of ours counts once."""
    spans = spans_of(what, 42)
    for number in range(orphans):
        spans.append(
            Span("lost", Kind.KERNEL, 500 + number, 501 + number, 42, device=0, args={"correlation": 900 + number})
        )
    for number in range(outside):
        args = {"correlation": 800 + number}
        spans.append(Span("cudaLaunchKernel", Kind.RUNTIME, 600 + number, 601 + number, 42, 3, args=args))
        spans.append(Span("out", Kind.KERNEL, 700 + number, 701 + number, 42, device=0, args=args))
    found = attribute(Trace("f.json", "t", spans=spans))
    worker = WorkerId("f", "f.json", "files")
    line = _not_in_a_phase(ToolFile(worker, "t", "/x/f.json", (), found))
    held = sum(row.own_kernels for row in found.phases)
    lost = found.kernels - held
    assert bool(line) == (lost > 0.01 * found.kernels)
    if line and found.phases:
        said = [int(count) for count in re.findall(r"(?:phase: |; )(\d+) ", line)]
        assert f"f.json: {lost} of {found.kernels} kernels" in line
        assert sum(said) == lost


#: of each file the process that left it: its host, pid and rank; few values, as containers number theirs from 1
left_by = st.lists(
    st.tuples(st.sampled_from(["nodeA", "nodeB"]), st.sampled_from([1, 7]), st.sampled_from([None, 0])),
    min_size=1,
    max_size=6,
)


@patient
@given(left_by, st.booleans())
def test_single_files_belong_to_the_process_that_left_them(
    tmp_path: Path, owners: list[tuple[str, int, int | None]], merged: bool
) -> None:
    """Files in any order, of processes that share a pid, a host or a rank, or have none: each process is a worker with a name of its
    own, its files are windows one after the other, and no time of one hides that of another. So are two merged timelines."""
    paths = []
    for number, (host, pid, rank) in enumerate(owners):
        place = {"ph": "X", "pid": pid, "ts": 1000 * number}
        events = [{**place, "cat": "window", "name": f"w{number}", "dur": 100, "tid": 99}]
        events.append({**place, "cat": "phase", "name": "generate", "dur": 80, "tid": 1})
        facts = {"format": 1, "group": "Rollout", "window": f"w{number}", "rank": rank, "host": host, "pid": pid}
        paths.append(str(tmp_path / f"{number}.trace.json"))
        Path(paths[-1]).write_text(json.dumps({"traceEvents": events, "otherData": {"accelprof": facts}}))
    processes: list[object] = [*dict.fromkeys(owners)]
    if merged:
        for number, path in enumerate(paths):
            with TimelineWriter(f"{path}.merged.json", None) as made:
                made.read(Source(path, "Rollout/rank0", "one", "trace", group="Rollout"))
            paths[number] = made.merged.path
        processes = [*range(len(paths))]
    found = summarise_files(paths).to_json()
    [row] = found["phases"]
    assert [worker["window_ns"] for worker in found["workers"]] == [
        100_000 * (1 if merged else owners.count(process))
        for process in processes  # type: ignore[arg-type]
    ]
    assert len({worker["worker"] for worker in found["workers"]}) == len(processes) == len(row["ranks"])
    assert row["total_ns"] == row["self_ns"] == 80_000 * len(owners)
    assert sum(of["total_ns"] for of in row["ranks"].values()) == row["total_ns"]
