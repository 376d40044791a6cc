"""Whose a file's figures are, and what of its windows is not in it."""

from __future__ import annotations

import io
import json
import random
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from accelprof.analysis.accounts import cost_rows, doubts, not_in_files, shared_out, windows_in
from accelprof.analysis.attribution import attribute
from accelprof.analysis.first import sentences
from accelprof.analysis.html import render_html
from accelprof.analysis.report import Report
from accelprof.analysis.report_rows import StepTime
from accelprof.analysis.run import open_run
from accelprof.analysis.seconds import Second
from accelprof.analysis.summary import summarise
from accelprof.analysis.table import drained, ranges_cost, render
from accelprof.analysis.toolfile import ToolFile
from accelprof.cli.main import cli
from accelprof.contracts.spans import Kind, Span, Trace
from accelprof.output.records import Moment, WindowRow
from accelprof.reading.columns import columns_of
from tests.analysis.conftest import EPOCH_US


def two_ranks(run_maker: Any, pids: tuple[int, ...] = (100, 101)) -> tuple[Any, Any, Trace]:
    """A report of one nsys around two ranks, with a phase, a launch and a kernel of each process in ``pids``."""
    windows = []
    for rank in (0, 1):
        key = run_maker.target(rank)
        windows.append(f"{key}-w1")
        run_maker.manifest["windows"].append(
            {"id": f"{key}-w1", "target": key, "steps": [2], "open_ns": 5, "close_ns": 7}
        )
    run_maker.artifact("around.sqlite", "nsys", run_maker.manifest["targets"][1], windows)
    (run_maker.directory).mkdir(parents=True, exist_ok=True)
    (run_maker.directory / "around.sqlite").write_bytes(b"x")
    run = open_run(run_maker.write())
    spans = []
    for at, pid in enumerate(pids):
        number = pid << 32 | 1
        spans += [
            Span("update", Kind.PHASE, 0, 100, pid, pid, domain="accelprof"),
            Span("cudaLaunchKernel", Kind.RUNTIME, 10, 12, pid, pid, args={"correlation": number}),
            Span("gemm", Kind.KERNEL, 20, 30 + at, pid, device=at, stream=7, args={"correlation": number}),
        ]
    [file] = list(run.files())
    return run, file, Trace("around.sqlite", "nsys", spans=spans)


def test_a_report_around_two_ranks_is_split_by_process(run_maker: Any) -> None:
    """Each rank gets its own kernels and windows, whichever the file is filed under."""
    run, file, trace = two_ranks(run_maker)
    notices: list[str] = []
    parts = list(shared_out(run, file, trace, notices))
    assert [mine.worker.label for mine, _ in parts] == ["ActorGroup/rank0", "ActorGroup/rank1"]
    figures = [attribute(part) for _, part in parts]
    assert [found.devices[0].kernel_ns for found in figures] == [10, 11]
    assert [(row.name, row.kernels, row.calls) for found in figures for row in found.phases] == [("update", 1, 1)] * 2
    assert [len(mine.windows) for mine, _ in parts] == [1, 1]
    assert notices == []


def test_work_of_a_process_that_is_no_worker_is_said(run_maker: Any) -> None:
    """A third process's kernel stands under no rank, and is counted by its process id."""
    run, file, trace = two_ranks(run_maker, (100, 101, 999))
    notices: list[str] = []
    parts = list(shared_out(run, file, trace, notices))
    assert sum(attribute(part).kernels for _, part in parts) == 2
    assert "1 pieces of device work are of processes 999" in notices[0]


def test_a_rank_that_is_not_in_the_report_is_missing_by_name(run_maker: Any) -> None:
    """Without a process of one of the ranks the other has its own figures, and the lost window is named."""
    run, file, trace = two_ranks(run_maker, (100, 55))
    notices: list[str] = []
    [(mine, part)] = list(shared_out(run, file, trace, notices))
    assert (mine.worker.label, attribute(part).kernels) == ("ActorGroup/rank0", 1)
    assert "holds nothing of ActorGroup/rank1 (pid 101): its window" in notices[0]
    assert "1 pieces of device work are of processes 55" in notices[1]


def test_a_report_that_cannot_be_split_is_refused_by_name(run_maker: Any) -> None:
    """Without a process of any of the ranks the file is shown for both together, and says whose are missing."""
    run, file, trace = two_ranks(run_maker, (54, 55))
    notices: list[str] = []
    [(mine, part)] = list(shared_out(run, file, trace, notices))
    assert mine.worker.label == "ActorGroup/rank0 + ActorGroup/rank1"
    assert len(columns_of(part)) == 6
    assert "ActorGroup/rank1 (pid 101)" in notices[0]
    assert "cannot be split" in notices[0]


def test_empty_calls_and_work_that_outlasts_its_call_are_said(run_maker: Any) -> None:
    """Eight calls of a phase with one kernel that is launched in the first and lasts to the end: seven calls without
    device work and the kernel are named."""
    _, file, _ = two_ranks(run_maker)
    spans = [Span("update", Kind.PHASE, at * 1000, at * 1000 + 900, 1, 1) for at in range(8)]
    spans += [Span(f"ProfilerStep#{at}", Kind.STEP, at * 1000, at * 1000 + 950, 1, 1) for at in range(8)]
    spans += [
        Span("l", Kind.RUNTIME, 10, 11, 1, 1, args={"correlation": 1}),
        Span("stuck", Kind.KERNEL, 20, 7900, 1, device=0, stream=7, args={"correlation": 1}),
    ]
    found = attribute(Trace("x", "torch", spans=spans))
    said = list(doubts([ToolFile(file.worker, "torch", "x", (), found)]))
    assert any("update: 7 of 8 calls launched no device work" in line for line in said)
    assert any("stuck took" in line and "longer than the call of update" in line for line in said)
    assert any(
        "ProfilerStep#1, ProfilerStep#2" in line and "of 8 steps launched no device work" in line for line in said
    )


def test_what_recording_cost_is_a_row(run_maker: Any) -> None:
    """Opening and closing of a worker's windows are added up."""
    run, _, _ = two_ranks(run_maker)
    assert [(row.worker, row.windows, row.open_ns, row.close_ns) for row in cost_rows(run)] == [
        ("ActorGroup/rank0", 1, 5, 7),
        ("ActorGroup/rank1", 1, 5, 7),
    ]


def test_ranges_cost_what_each_window_says(run_maker: Any) -> None:
    """Ranges of windows whose cost was measured, those of others counted apart; not counted where no timeline ran."""
    run, _, _ = two_ranks(run_maker)
    first, second = run.manifest.windows.values()
    first.spans, first.dropped, first.range_ns, first.range_calls = 100, 20, 3_000, 16
    rows = cost_rows(run)
    assert (rows[0].ranges, rows[0].ranges_ns, rows[0].ranges_unmeasured) == (120, 360_000, 0)
    assert (rows[0].range_ns, rows[0].range_calls) == (3_000, 16)
    second.spans = 7
    row = cost_rows(run)[1]
    assert (row.ranges, row.ranges_ns, row.ranges_unmeasured) == (7, None, 7)
    assert ranges_cost(row) == "not measured"
    second.target, second.range_ns = first.target, None
    (row,) = cost_rows(run)
    assert ranges_cost(row) == "360 µs, 7 not measured"
    second.spans = first.spans = None
    (row,) = cost_rows(run)
    assert row.ranges is None
    assert ranges_cost(row) == "not counted"


def test_idle_at_both_ends_of_a_window_counts(tmp_path: Any) -> None:
    """A device that works 10 of the 20 ns between its first and last work, in a window of 100, is busy for a tenth."""
    import json

    from accelprof.analysis.files import summarise_files
    from accelprof.analysis.frames import devices

    def event(name: str, cat: str, ts: float, dur: float, tid: int = 1, **args: Any) -> dict[str, Any]:
        return {"ph": "X", "name": name, "cat": cat, "ts": ts, "dur": dur, "pid": 1, "tid": tid, "args": args}

    rows = [event("PyTorch Profiler (0)", "Trace", 0, 100), event("update", "user_annotation", 0, 50)]
    rows += [event("k", "kernel", at, 5, 7, device=0, stream=7) for at in (40, 55)]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": rows}))
    summary = summarise_files([str(path)])
    [row] = devices(summary)
    assert (row.busy_share, row.share_of, row.work_share) == (0.1, "window", 0.5)
    assert row.idle_ns == 90_000
    [device] = summary.to_json()["devices"][0]["devices"]
    assert (device["window_share"], device["work_share"], device["window_ns"]) == (0.1, 0.5, 100_000)


def test_launches_whose_kernels_are_not_there_are_counted(run_maker: Any) -> None:
    """Of four launches two have a kernel in the file; a call that launches nothing is none of them."""
    run, file, _ = two_ranks(run_maker)
    names = ("cudaLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch", "hipModuleLaunchKernel", "cudaEventRecord")
    spans = [Span(name, Kind.RUNTIME, at, at + 1, 1, 1, args={"correlation": at}) for at, name in enumerate(names)]
    spans += [Span("k", Kind.KERNEL, 20, 30, 1, device=0, stream=7, args={"correlation": at}) for at in (0, 2)]
    found = attribute(Trace("x", "torch", spans=spans))
    assert (found.launches, found.launches_without_work) == (4, 2)
    [(said, much)] = not_in_files(run, [ToolFile(file.worker, "torch", "x", (), found)], [])
    assert said.endswith(": x: 2 of 4 launches have no kernel in this file")
    assert much


def test_a_collective_that_waits_is_no_doubt(run_maker: Any) -> None:
    """A collective kernel lasts until the last rank arrives, however short the call that launched it: nothing is said of it."""
    _, file, _ = two_ranks(run_maker)
    spans = [
        Span("update", Kind.PHASE, 0, 900, 1, 1),
        Span("l", Kind.RUNTIME, 10, 11, 1, 1, args={"correlation": 1}),
        Span("ncclDevKernel_AllReduce", Kind.COMMUNICATION, 20, 7900, 1, device=0, stream=7, args={"correlation": 1}),
    ]
    found = attribute(Trace("x", "torch", spans=spans))
    assert found.phases[0].outlasting is None
    assert list(doubts([ToolFile(file.worker, "torch", "x", (), found)])) == []


def test_what_windows_cost_the_steps_is_a_sentence_for_machines_too(run_maker: Any, event: Any) -> None:
    """From the wall times of all steps in the manifest; the tool that ran is named with its worker."""
    key = run_maker.target(0)
    run_maker.timeline(key, [event("actor/update", 10, 300)])
    trace = {"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 5}]}
    (run_maker.directory / "t.pt.trace.json").write_text(json.dumps(trace))
    run_maker.artifact("t.pt.trace.json", "torch", run_maker.manifest["targets"][0])
    run_maker.manifest["metrics"] = {
        "steps": [{"step": n, "seconds": {}, "wall_ns": 160 if n == 2 else 100, "window": n == 2} for n in range(1, 6)]
    }
    run_maker.write()
    found = CliRunner().invoke(cli, ["report", str(run_maker.directory), "--json", "--no-html"])
    assert (
        "Steps with a window took 1.6 times the others; torch ran on ActorGroup/rank0."
        in json.loads(found.output)["first"]
    )


FILE = [Span("gemm", Kind.KERNEL, 1000, 1500, 1, device=0), Span("recv", Kind.PHASE, 1600, 2000, 1)]


def row(opened: int, closed: int, close_ns: int | None = 0) -> dict[str, WindowRow]:
    return {"w": WindowRow("w", opened=Moment(opened), closed=Moment(closed), close_ns=close_ns)}


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (row(700, 2600, 100), (700, 2500, True)),  # idle before the first event and behind the last
        (row(1030, 1980), (1000, 2000, True)),  # no event is cut off by what two reads of a clock differ
        (row(700, 1990), (700, 2000, True)),
        (row(0, 1800), (1000, 2000, False)),  # half of the file lies outside: another clock
        (row(5000, 6000), (1000, 2000, False)),
        (row(700, 2600, None), (1000, 2000, False)),  # killed while it closed
        ({}, (1000, 2000, False)),
    ],
)
def test_a_window_is_as_long_as_it_was_open(known: dict[str, WindowRow], expected: tuple[int, int, bool]) -> None:
    """A file without a span for its window ends with its last event; the window does not."""
    start, end, certain = expected
    columns = columns_of(Trace("x", "nsys", spans=list(FILE)))
    assert windows_in(columns, ["w"], known) == ([("w", start, end)], certain)


def test_a_mark_in_the_file_is_the_window() -> None:
    columns = columns_of(Trace("x", "nsys", spans=[*FILE, Span("window", Kind.WINDOW, 900, 2100, 1)]))
    assert windows_in(columns, ["w"], row(0, 9000)) == ([("w", 900, 2100)], True)


def test_idle_ends_of_a_window_count_against_its_device(run_maker: Any) -> None:
    """A step that loads data for 60 ms of 100 before its first kernel: the device is busy for 30 % of the window, and 60 ms stand
    outside of any phase, although the file knows nothing of them. What the profiler itself took is said."""
    key = run_maker.target(0)
    base = 1_700_000_000_000_000_000
    run_maker.manifest["windows"].append(
        {"id": f"{key}-w1", "target": key, "steps": [2], "opened": {"epoch_ns": base},
         "closed": {"epoch_ns": base + 105_000_000}, "close_ns": 5_000_000}
    )  # fmt: skip
    run_maker.artifact("a.pt.trace.json", "torch", run_maker.manifest["targets"][0], [f"{key}-w1"])
    args = {"correlation": 1, "device": 0, "stream": 7}
    events = [
        {"ph": "X", "cat": "user_annotation", "name": "update", "pid": 1, "tid": 1, "ts": 60_000, "dur": 40_000},
        {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
            "pid": 1,
            "tid": 1,
            "ts": 64_000,
            "dur": 5,
            "args": args,
        },
        {
            "ph": "X",
            "cat": "overhead",
            "name": "Activity Buffer Request",
            "pid": -1,
            "tid": 0,
            "ts": 60_500,
            "dur": 3000,
        },
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 65_000, "dur": 30_000, "args": args},
    ]
    run_maker.directory.mkdir(parents=True, exist_ok=True)
    (run_maker.directory / "a.pt.trace.json").write_text(
        json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": base, "traceEvents": events})
    )
    found = summarise(run_maker.write())
    [device] = found.files[0].attribution.devices
    assert device.window_share == pytest.approx(0.3)
    [second] = found.to_json()["seconds"]
    assert (second["window_ns"], second["parts"]["outside"]) == (100_000_000, 60_000_000)
    [said] = [line for line in found.notices if "Activity Buffer Request" in line]
    assert said.endswith("the profiler's own work took 3.000 ms of this file: Activity Buffer Request")


@pytest.mark.parametrize(
    ("inside", "others", "said"),
    [
        ([160], [100, 101, 99, 100], "Steps with a window took 1.6 times the others."),
        ([100], [100, 101, 99, 100], ""),
        ([103], [100, 101, 99, 100], ""),
        ([120], [100, 160, 70, 130, 90, 110], ""),
        ([120, 121, 119], [100, 101, 99, 100], "Steps with a window took 1.2 times the others."),
        ([80], [100, 101, 99, 100], ""),
        ([167, 195], [100, 101, 99, 100], ""),
        ([160, 162], [100, 101, 99, 100], "Steps with a window took 1.6 times the others."),
        ([130, 205, 170], [100, 101, 99, 100], ""),
        ([110, 150, 200, 120], [100, 101, 99, 100], ""),
        ([150, 160, 170, 158], [100, 101, 99, 100], "Steps with a window took 1.6 times the others."),
        ([160], [100], ""),
        (
            [160],
            [100, 101, 99, 100, 160, 165],
            "Steps with a window took 1.6 times the others (2 without one took as long).",
        ),
    ],
)
def test_what_windows_cost_is_said_beyond_the_noise(inside: list[int], others: list[int], said: str) -> None:
    """What rounds to 1.0 and what the other steps scatter by is no cost."""
    steps = [StepTime(at, wall * 1000, at < len(inside)) for at, wall in enumerate([*inside, *others])]
    assert sentences(Report(steps=steps))[1:] == ([said] if said else [])


@pytest.mark.parametrize(
    ("windows", "cost", "said"),
    [
        ({3, 6}, 0, None),
        ({3}, 0, None),
        ({3, 6}, 130, "1.4"),  # 430 beside the 300 of other steps that save
        ({2, 3, 6}, 30, "1.1"),  # 130 beside 100, and 330 beside 300 twice
        ({2, 4, 3}, 30, "1.3"),
        ({3, 6, 9, 12}, 100, None),  # no step without a window saves
    ],
)
def test_a_step_with_a_window_is_compared_with_its_like(windows: set[int], cost: int, said: str | None) -> None:
    """Every third step saves a checkpoint and takes 300, with a window or without; the others take 100."""
    steps, timed = [], []
    for step in range(1, 13):
        save = step % 3 == 0
        wall = (300 if save else 100) + (cost if step in windows else 0)
        steps.append(StepTime(step, wall, step in windows))
        timed.append({"step": step, "seconds": {"train": {"max": 1.0}, **({"save": {"max": 2.0}} if save else {})}})
    found = [line for line in sentences(Report(steps=steps, metrics={"steps": timed})) if "with a window" in line]
    assert found == ([f"Steps with a window took {said} times the others."] if said else [])


def test_a_worker_without_device_sleeps_or_computes(run_maker: Any, event: Any) -> None:
    """Of a phase on the host nobody knows whether it computes: it is inside a phase, by that name in sentence, table and page."""
    run_maker.timeline(run_maker.target(0), [event("sleep", 0, 900)])
    summary = summarise(run_maker.write())
    assert any(line.startswith("90.0% of the windows is inside phases (host);") for line in sentences(summary.report()))
    console = Console(width=120, record=True, file=io.StringIO())
    render(summary, console)
    text = console.export_text()
    assert "in phases (host)" in text
    assert "compute" not in text.replace("to compute beside it", "")
    assert "inside phases (host)" in render_html(summary)
    device = [Second("a", "w", 0, 100, {"compute": 60, "outside": 40})]
    assert sentences(Report(seconds=device))[0].startswith("60.0% of the windows is compute;")
    host = [replace(device[0], device=None)]
    assert "is compute, or inside phases (host);" in sentences(Report(seconds=device + host))[0]


@pytest.mark.parametrize("seed", range(6))
def test_lost_calls_are_counted_window_by_window(run_maker: Any, event: Any, seed: int) -> None:
    """Torch writes a file a window: each is held against the calls of its own window, those that the window cut aside, in the file
    too. Lost calls stand in the way of a comparison, whatever number of windows a worker has."""
    rng = random.Random(seed)
    key = run_maker.target(0)
    wanted = []
    for number in range(rng.randint(1, 4)):
        calls, begin = rng.randint(1, 6), number * 2000
        spans = [event("a", begin + 50 * at, 10) for at in range(calls)]
        if cut := rng.random() < 0.5:
            spans.append(event("a", begin + 900, 100, in_progress=True))
        window = run_maker.timeline(key, spans, steps=[number], at_us=begin)
        there, name = rng.randint(1, calls), f"{number}.pt.trace.json"
        rows = [
            {"ph": "X", "cat": "user_annotation", "name": "a", "pid": 100, "tid": 1, "ts": EPOCH_US + begin + 50 * at, "dur": 10}
            for at in range(there)
        ]  # fmt: skip
        if cut:
            rows.append({**rows[0], "ph": "B", "ts": EPOCH_US + begin + 900})
        (run_maker.directory / name).write_text(json.dumps({"traceEvents": rows}))
        run_maker.artifact(name, "torch", run_maker.manifest["targets"][0], [window])
        if there < calls:
            wanted.append(f"ActorGroup/rank0: {name}: a: {there} of {calls} calls are in the file")
    found = summarise(run_maker.write())
    assert [line for line in found.absent if "calls are in the file" in line] == wanted
    assert [line for line in found.notices if "calls are in the file" in line] == wanted


def test_a_phase_of_which_a_file_has_no_call_is_said(run_maker: Any, event: Any) -> None:
    """Where it has others of the phase's thread it is not whole; of another thread the tool may record nothing. A file without
    any phase marks none."""
    key = run_maker.target(0)
    spans = [
        event("a", 0, 10),
        event("a", 50, 10),
        event("b", 20, 10),
        event("b", 70, 10),
        event("load", 0, 100, tid=2),
    ]
    window = run_maker.timeline(key, spans)
    rows = [
        {"ph": "X", "cat": "user_annotation", "name": "a", "pid": 100, "tid": 1, "ts": EPOCH_US + at, "dur": 10}
        for at in (0, 50)
    ]
    bare = [{**rows[0], "cat": "cpu_op", "name": "aten::add"}]
    for name, events in (("marked.pt.trace.json", rows), ("bare.pt.trace.json", bare)):
        (run_maker.directory / name).write_text(json.dumps({"traceEvents": events}))
        run_maker.artifact(name, "torch", run_maker.manifest["targets"][0], [window])
    found = summarise(run_maker.write())
    where = "ActorGroup/rank0: marked.pt.trace.json"
    lines = [f"{where}: b: 0 of 2 calls are in the file", f"{where}: load: 0 of 1 calls are in the file"]
    assert sorted(line for line in found.notices if "calls are in the file" in line) == lines
    assert [line for line in found.absent if "calls are in the file" in line] == lines[:1]


def test_windows_that_did_not_wait_for_the_device_are_said(run_maker: Any, event: Any) -> None:
    """With ``drain: false`` no 0 ns stands for a wait that there was not: on the terminal, in ``--json`` and in a notice."""
    key = run_maker.target(0)
    for number, waited in enumerate((False, True, None)):
        run_maker.timeline(key, [event("a", number * 2000, 10)], steps=[number], at_us=number * 2000)
        if waited is not None:
            run_maker.manifest["windows"][-1].update(drained=waited, drain_ns=7 if waited else 0)
    found = summarise(run_maker.write())
    [line] = [line for line in found.notices if "without waiting for the device" in line]
    assert line.startswith("ActorGroup/rank0: 1 of 3 windows ended without waiting for the device (drain: false")
    [row] = found.report().cost
    assert (row.windows, row.undrained, row.drain_ns) == (3, 1, 7)
    assert drained(row) == "7 ns"
    assert drained(replace(row, undrained=3, drain_ns=0)) == "not waited"
