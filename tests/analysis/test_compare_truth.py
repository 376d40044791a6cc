"""Pairs of runs and of files with a known change: who is named, its sign and percent, and how the gate ends, beside plain means."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from click.testing import CliRunner

from accelprof.analysis.changes import headline
from accelprof.analysis.compare import Comparison, compare
from accelprof.analysis.sides import side, store
from accelprof.cli.compare import compare as command
from accelprof.errors import NotComparableError, ReadError
from tests.analysis.conftest import EPOCH_US

Event = Callable[..., dict[str, Any]]
#: rank -> step -> phase -> µs
Times = dict[int, list[dict[str, float]]]
PHASES = ("data", "forward", "backward", "update")


def _jittered(
    rng: random.Random, lengths: dict[str, float], ranks: int, steps: int, who: tuple[int, str] | None, factor: float
) -> Times:
    return {
        rank: [
            {
                phase: round(length * rng.uniform(0.99, 1.01) * (factor if who == (rank, phase) else 1), 3)
                for phase, length in lengths.items()
            }
            for _ in range(steps)
        ]
        for rank in range(ranks)
    }  # fmt: skip


def _run(maker: Any, event: Event, times: Times) -> str:
    """Ranks do their phases one after the other, then wait for the last in ``all_reduce``, for 50 µs of transfer."""
    for rank, steps in times.items():
        key = maker.target(rank, host="node0")
        at = 0.0
        for number in range(len(steps)):
            begin, events = at, []
            for phase, length in steps[number].items():
                events.append(event(phase, at, length))
                at += length
            last = max(sum(of[number].values()) for of in times.values())
            events.append(event("all_reduce", at, begin + last + 50 - at, category="collective"))
            maker.timeline(key, events, steps=[number], end_us=last + 60, at_us=begin)
            at = begin + 100_000
        if not steps:
            raise AssertionError
    return str(maker.write())


def _mean(times: Times, rank: int, phase: str) -> float:
    return 1000 * mean(step[phase] for step in times[rank])


def _own(found: Comparison, name: str) -> Any:
    return {row.name: row for row in found.of("own time")}[name]


@pytest.mark.parametrize("seed", range(12))
def test_the_changed_phase_is_named_with_its_rank(run_maker: Any, event: Event, tmp_path: Path, seed: int) -> None:
    """Of runs with different numbers of steps: the phase and rank that changed lead the first sentence, by how much its own time
    grew from before; the others' waiting is the consequence; the gate judges the same figures."""
    rng = random.Random(seed)
    lengths = {phase: rng.uniform(500, 3000) for phase in PHASES}
    ranks, who = rng.randint(2, 4), None
    who = (rng.randrange(ranks), rng.choice(PHASES))
    factor = rng.choice([0.4, 0.7, 1.5, 2.5])
    before = _jittered(rng, lengths, ranks, rng.randint(4, 9), None, 1)
    after = _jittered(rng, lengths, ranks, rng.randint(4, 9), who, factor)
    one = _run(type(run_maker)(tmp_path / "one"), event, before)
    two = _run(run_maker, event, after)
    found = compare(one, two)
    rank, phase = who
    worker = f"ActorGroup/rank{rank}"
    row = _own(found, f"{phase} on {worker}")
    assert row.clear
    assert row.before_ns == pytest.approx(_mean(before, rank, phase), abs=2)
    assert row.after_ns == pytest.approx(_mean(after, rank, phase), abs=2)
    assert row.change == pytest.approx(_mean(after, rank, phase) / _mean(before, rank, phase) - 1, rel=1e-3)
    assert (row.change > 0) == (factor > 1)
    assert (row.per, row.counts) == ("step", (len(before[0]), len(after[0])))
    said = headline(found)
    assert said.startswith(f"{phase} on {worker} takes "), said
    assert f"({row.change:+.1%})" in said
    if factor > 1.6:
        assert "Because of that others wait" in said
        assert "more in all_reduce" in said
    _gate(
        found,
        one,
        two,
        {phase: [mean(_mean(side, r, phase) for r in range(ranks)) for side in (before, after)] for phase in PHASES},
    )


def _gate(found: Comparison, one: str, two: str, means: dict[str, list[float]]) -> None:
    rows = {row.name.removeprefix("ActorGroup: "): row for row in found.of("phase")}
    for limit in (5, 20, 60):
        slower = {row.name.removeprefix("ActorGroup: ") for row, _ in found.slower(limit) if row.measure == "phase"}
        for phase, (was, now) in means.items():
            assert (phase in slower) == (now - was > was * limit / 100 and rows[phase].clear), (phase, limit)
        ended = CliRunner().invoke(command, [one, two, "--fail-above", str(limit)]).exit_code
        assert ended == (1 if found.slower(limit) else 0)


def test_two_runs_of_one_job_name_nobody_far(run_maker: Any, event: Event, tmp_path: Path) -> None:
    """Where nothing changed but the noise, no change of 2 % is said to be clear."""
    rng = random.Random(3)
    lengths = dict.fromkeys(PHASES, 1000.0)
    one = _run(type(run_maker)(tmp_path / "one"), event, _jittered(rng, lengths, 3, 8, None, 1))
    two = _run(run_maker, event, _jittered(rng, lengths, 3, 5, None, 1))
    found = compare(one, two)
    assert not [row for row in found.of("own time") if row.clear and abs(row.change or 0) > 0.02]
    assert found.slower(2) == []


# --- single files --------------------------------------------------------------------------------------------------------


def _file(path: Path, steps: list[float], lost: int = 0, marked: bool = True, busy: float = 0.5) -> str:
    """A step each: a phase of this length (µs) that launches ten kernels for ``busy`` of it; the last ``lost`` have none in the file."""
    rows: list[dict[str, Any]] = []
    at, number = 0.0, 0
    facts = {"ph": "X", "pid": 1, "tid": 1}
    for step, length in enumerate(steps):
        if marked:
            rows.append(
                {**facts, "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": at, "dur": length + 20}
            )
        rows.append({**facts, "cat": "user_annotation", "name": "update", "ts": at + 5, "dur": length})
        for launch in range(10):
            number += 1
            begin = at + 5 + launch * length / 10
            rows.append(
                {
                    **facts,
                    "cat": "cuda_runtime",
                    "name": "cudaLaunchKernel",
                    "ts": begin,
                    "dur": 0.5,
                    "args": {"correlation": number},
                }
            )
            rows.append(
                {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": "gemm", "ts": begin + 1, "dur": busy * length / 10,
                 "args": {"correlation": number, "device": 0, "stream": 7}}
            )  # fmt: skip
        at += length + 20
    if lost:
        kernels = [row for row in rows if row["cat"] == "kernel"][-lost:]
        rows = [row for row in rows if row not in kernels]
    path.write_text(json.dumps({"traceEvents": rows}))
    return str(path)


@pytest.mark.parametrize("seed", range(8))
def test_files_with_more_and_fewer_steps(tmp_path: Path, seed: int) -> None:
    """Figures are of one step, whatever number of them a file holds; every figure of one thing is judged alike."""
    rng = random.Random(seed)
    factor, noise = rng.choice([1.0, 1.3, 0.6, 2.0]), rng.choice([0.0, 0.01, 0.5])
    before, after = (
        [round(1000 * by * rng.uniform(1 - noise, 1 + noise), 1) for _ in range(rng.randint(3, 20))]
        for by in (1, factor)
    )
    one, two = _file(tmp_path / "one.json", before), _file(tmp_path / "two.json", after)
    found = compare(one, two)
    of = {
        measure: found.of(measure)[0]
        for measure in ("phase", "own time", "phase on device", "device", "device kernels", "kernel")
    }
    growth = mean(after) / mean(before) - 1
    for measure, row in of.items():
        assert (row.per, row.counts) == ("step", (len(before), len(after))), measure
        assert row.change == pytest.approx(growth, abs=2e-3), measure
        assert row.repeats == (len(before), len(after)), measure
    assert len({of[measure].clear for measure in ("phase", "phase on device", "device", "device kernels")}) == 1
    for limit in (10, 50):
        slower = {row.measure for row, _ in found.slower(limit)}
        assert (
            slower in (set(), {"step", "phase", "phase on device", "device", "device kernels"})
            or abs(growth * 100 - limit) < 5
        )
        assert bool(slower) == (growth * 100 > limit and of["phase"].clear) or abs(growth * 100 - limit) < 5


@pytest.mark.parametrize(("count", "cut"), [(5, 0), (5, 2), (5, 4), (2, 0), (2, 1)])
def test_a_step_that_was_cut_is_in_no_mean(tmp_path: Path, count: int, cut: int) -> None:
    """Of one of several steps the file has the first half, and the mark says that it was open: the others are the figures, wherever
    it stands, also where that is one alone."""
    whole = _file(tmp_path / "whole.json", [1000] * 5)
    rows = json.loads(Path(_file(tmp_path / "few.json", [1000] * count)).read_text())["traceEvents"]
    steps = [row for row in rows if row["name"].startswith("ProfilerStep")]
    begin, end = steps[cut]["ts"], steps[cut]["ts"] + steps[cut]["dur"]
    rows = [row for row in rows if not begin + 500 <= row["ts"] < end]
    for row in rows:
        if row["ts"] <= begin + 5 <= row["ts"] + row["dur"] and row["cat"] == "user_annotation":
            row |= {
                "cat": "range",
                "dur": begin + 500 - row["ts"],
                "args": {"category": "user_annotation", "in_progress": True},
            }
    ours = {"otherData": {"accelprof": {"sources": [{"pids": []}]}}}
    (tmp_path / "cut.json").write_text(json.dumps({"traceEvents": rows, **ours}))
    found = compare(whole, tmp_path / "cut.json")
    assert {row.measure for row in found.changes} >= {
        "step",
        "phase",
        "own time",
        "phase on device",
        "device",
        "kernel",
        "operator",
    }
    for row in found.changes:
        assert row.after_ns == pytest.approx(row.before_ns, abs=1), row.measure
        assert (row.per, row.counts) == ("step", (5, count - 1)), row.measure


@pytest.mark.parametrize(("lost", "refused"), [(0, False), (1, False), (2, True), (40, True)])
def test_a_file_that_lost_work_is_no_improvement(tmp_path: Path, lost: int, refused: bool) -> None:
    """Launches without their kernels stand in the way from 1 % of them on, and are said below."""
    whole, other = _file(tmp_path / "whole.json", [1000] * 10), _file(tmp_path / "lost.json", [1000] * 10, lost)
    for pair in ((whole, other), (other, whole)):
        if refused:
            with pytest.raises(
                NotComparableError, match=rf"{lost} of 100 launches have no kernel in this file.*allow-partial"
            ):
                compare(*pair)
            assert compare(*pair, allow_partial=True).partial
        else:
            notes = [note for note in compare(*pair).notes if "launches have no kernel" in note]
            assert len(notes) == (1 if lost else 0)


def test_files_without_marked_steps_are_of_one_call(tmp_path: Path) -> None:
    """20 calls against 10 of the same length: no change; what has no calls is of the whole file, and that is said."""
    one, two = (
        _file(tmp_path / "one.json", [1000] * 20, marked=False),
        _file(tmp_path / "two.json", [1000] * 10, marked=False),
    )
    found = compare(one, two)
    for measure in ("phase", "phase on device", "own time", "kernel"):
        [row] = found.of(measure)
        assert (row.change, row.per) == (0.0, "call"), measure
    [note] = [note for note in found.notes if note.startswith("device device 0")]
    assert "200 kernels before and 100 after" in note
    mixed = compare(_file(tmp_path / "marked.json", [1000] * 20), two)
    [row] = mixed.of("phase")
    assert (row.change, row.per, row.counts) == (0.0, "call", (20, 10))


def test_growth_is_of_the_first_side(tmp_path: Path) -> None:
    """10 to 11 is +10 % in table, Markdown and gate, and no more than 10."""
    one, two = _file(tmp_path / "one.json", [1000] * 4), _file(tmp_path / "two.json", [1100] * 4)
    [row] = compare(one, two).of("phase")
    assert (row.change, row.word) == (0.1, "")
    assert compare(one, two).slower(10) == []
    assert [row.measure for row, _ in compare(one, two).slower(9)] != []
    for form in ([], ["--markdown"]):
        said = CliRunner().invoke(command, [one, two, *form]).output
        assert "+10.0%" in said
        assert "growth from before" in " ".join(said.split())
    assert CliRunner().invoke(command, [one, two, "--fail-above", "10"]).exit_code == 0
    assert CliRunner().invoke(command, [one, two, "--fail-above", "9"]).exit_code == 1


@pytest.mark.parametrize("seed", range(4))
def test_marking_steps_changes_nothing(tmp_path: Path, seed: int) -> None:
    """The same work in a file that marks some of its steps and in one that marks none: no change, in either order, whatever was done
    before the first step."""
    rng = random.Random(seed)
    lengths = [rng.randint(100, 2000) * 10.0 for _ in range(rng.randint(4, 9))]
    plain, marked = _file(tmp_path / "plain.json", lengths, marked=False), _file(tmp_path / "marked.json", lengths)
    rows = json.loads(Path(marked).read_text())["traceEvents"]
    first = rng.randint(1, len(lengths) - 2)
    unmarked = {f"ProfilerStep#{step}" for step in range(first)}
    Path(marked).write_text(json.dumps({"traceEvents": [row for row in rows if row["name"] not in unmarked]}))
    for pair in ((plain, marked), (marked, plain)):
        found = compare(*pair)
        for measure in ("phase", "own time", "phase on device", "device", "device kernels", "kernel", "operator"):
            [row] = found.of(measure)
            assert (row.delta_ns, row.counts[0]) == (0, row.counts[1]), measure
        assert found.slower(0) == []
    [operator] = side(marked).figures("operator", [""]).values()
    assert (operator.ns, operator.per) == (10 * 500, "step")


def _own_timeline(path: Path, rows: list[dict[str, Any]]) -> str:
    window = {"ph": "X", "cat": "window", "name": "window 1", "pid": 7, "tid": 99, "ts": 0, "dur": 100_000}
    facts = {"format": 1, "group": "G", "rank": 0, "window": "w", "steps": [1], "dropped": 0}
    path.write_text(json.dumps({"otherData": {"accelprof": facts}, "traceEvents": [window, *rows]}))
    return str(path)


def _call(name: str, start: float, length: float, tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "phase", "name": name, "pid": 7, "tid": tid, "ts": start, "dur": length, "args": args}


def test_of_a_generator_the_time_inside_counts(tmp_path: Path) -> None:
    """A slower consumer makes its generator's life longer, and no phase slower; pieces with one number are one call."""
    one = _own_timeline(tmp_path / "one.json", [_call("gen", 0, 200, own_ns=50_000)])
    two = _own_timeline(tmp_path / "two.json", [_call("gen", 0, 400, own_ns=50_000)])
    pieces = [_call("gen", 30 * at, 10, own_ns=10_000, call=1) for at in range(4)]
    three = _own_timeline(tmp_path / "three.json", [*pieces, _call("gen", 120, 800, own_ns=10_000, call=1)])
    for pair in ((one, two), (two, three)):
        found = compare(*pair)
        for measure in ("phase", "own time"):
            [row] = found.of(measure)
            assert (row.before_ns, row.after_ns, row.per, row.counts) == (50_000, 50_000, "call", (1, 1)), measure
        assert found.slower(0) == []


def test_calls_at_once_are_as_long_as_calls_in_a_row(tmp_path: Path) -> None:
    """40 calls of 10 µs on four threads at once, and one after the other; of a call inside another of its phase each is as long as it is."""

    def file(name: str, threads: int) -> str:
        rows: list[dict[str, Any]] = []
        for at in range(40):
            tid, start = at % threads, at // threads * 20
            facts = {"ph": "X", "pid": 1, "tid": tid}
            number = {"correlation": at + 1}
            rows += [
                {**facts, "cat": "user_annotation", "name": "th", "ts": start, "dur": 10},
                {**facts, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": start + 1, "dur": 1, "args": number},
                {**facts, "pid": 0, "tid": 7, "cat": "kernel", "name": "gemm", "ts": start + 2, "dur": 1,
                 "args": {**number, "device": 0, "stream": 7}},
            ]  # fmt: skip
        path = tmp_path / name
        path.write_text(json.dumps({"traceEvents": rows}))
        return str(path)

    found = compare(file("at_once.json", 4), file("in_a_row.json", 1))
    for measure, ns in (("phase", 10_000), ("own time", 10_000), ("phase on device", 1000)):
        [row] = found.of(measure)
        assert (row.before_ns, row.after_ns, row.per, row.counts) == (ns, ns, "call", (40, 40)), measure
    nested = _own_timeline(tmp_path / "nested.json", [_call("f", 0, 100), _call("f", 10, 50), _call("f", 200, 30)])
    [row] = compare(nested, nested).of("phase")
    assert row.before_ns == pytest.approx((100 + 50 + 30) * 1000 / 3)


@pytest.mark.parametrize("seed", range(6))
def test_time_in_steps_beside_a_slow_count(tmp_path: Path, seed: int) -> None:
    """Random calls on several threads, some suspended, before, in, across and behind marked steps: the part of each call that lies in
    a step is that step's, counted µs by µs; what goes on behind the last step is its."""
    rng = random.Random(seed)
    edges = sorted(rng.sample(range(100, 1000), 4))
    rows = [{**_call(f"step {at}", edge, 20, tid=50), "cat": "step"} for at, edge in enumerate(edges)]
    wanted = [0, 0, 0, 0]
    for tid in range(3):
        at = 0
        while at < 1100:
            start, length = at + rng.randint(0, 80), rng.randint(1, 300)
            inside = rng.choice([length, rng.randint(0, length)])
            rows.append(_call("f", start, length, tid, **({"own_ns": inside * 1000} if inside < length else {})))
            for moment in range(start, start + inside):
                step = sum(edge <= moment for edge in edges) - 1
                if step >= 0:
                    wanted[step] += 1000
            at = start + length
    path = _own_timeline(tmp_path / "steps.json", rows)
    [part] = [part for part in side(path).parts if part.measure == "phase" and part.name == "f"]
    assert (list(part.samples.values()), part.total_ns, part.per) == (wanted, sum(wanted), "step")


@pytest.mark.parametrize("of_run", [True, False])
def test_a_call_that_a_window_cut_is_in_no_mean(run_maker: Any, event: Event, tmp_path: Path, of_run: bool) -> None:
    """A call takes 100 µs, and its kernel 60; of the one that is open when the window closes there are 20, without a kernel yet. Three
    whole calls and one of those, beside nine and one: nothing changed, in a run as in a file."""

    def path(maker: Any, calls: int) -> str:
        key, starts = maker.target(0), [200 * at for at in range(calls)]
        spans = [event("a", at, 100) for at in starts]
        spans.append(event("a", 200 * calls, 20, in_progress=True))
        window = maker.timeline(key, spans, steps=[], end_us=200 * calls + 20)
        maker.manifest["windows"][-1]["kind"] = "on_demand"
        facts = {"ph": "X", "pid": 100, "tid": 1}
        rows: list[dict[str, Any]] = []
        for number, at in enumerate([*starts, 200 * calls], 1):
            begin, linked = EPOCH_US + at, {"correlation": number}
            last = number > calls
            rows.append({**facts, "cat": "user_annotation", "name": "a", "ts": begin, "dur": 100})
            if last:
                rows[-1]["ph"] = "B"
            call = "cudaStreamSynchronize" if last else "cudaLaunchKernel"
            rows.append({**facts, "cat": "cuda_runtime", "name": call, "ts": begin + 10, "dur": 10, "args": linked})
            if not last:
                on = {"device": 0, "stream": 7, **linked}
                rows.append(
                    {**facts, "cat": "kernel", "name": "gemm", "ts": begin + 30, "dur": 60, "tid": 7, "args": on}
                )
        (maker.directory / "a.pt.trace.json").write_text(json.dumps({"traceEvents": rows}))
        maker.artifact("a.pt.trace.json", "torch", maker.manifest["targets"][0], [window])
        run = maker.write()
        return str(run if of_run else maker.directory / "a.pt.trace.json")

    found = compare(path(type(run_maker)(tmp_path / "one"), 3), path(run_maker, 9))
    for measure, ns in (("phase", 100_000), ("own time", 100_000), ("phase on device", 60_000)):
        [row] = found.of(measure)
        assert (row.before_ns, row.after_ns, row.per, row.counts) == (ns, ns, "call", (3, 9)), measure


def test_a_window_with_a_cut_call_alone_is_in_no_mean_of_a_run(run_maker: Any, event: Event, tmp_path: Path) -> None:
    """One window has three whole calls with kernels of 60 µs; another only a call that it cut, whose kernel took 10."""

    def path(maker: Any, *windows: tuple[int, int]) -> str:
        key = maker.target(0)
        facts = {"ph": "X", "pid": 100, "tid": 1}
        for at, (whole, cut) in enumerate(windows):
            first, rows = at * 10_000, []
            spans = [event("a", first + 200 * number, 100) for number in range(whole)]
            spans += [event("a", first + 200 * (whole + number), 50, in_progress=True) for number in range(cut)]
            window = maker.timeline(key, spans, steps=[], end_us=200 * whole + 50, at_us=first)
            maker.manifest["windows"][-1]["kind"] = "on_demand"
            for number in range(whole + cut):
                begin, linked = EPOCH_US + first + 200 * number, {"correlation": number + 1}
                phase = {**facts, "cat": "user_annotation", "name": "a", "ts": begin}
                rows += [
                    {**phase, "dur": 100} if number < whole else {**phase, "ph": "B"},
                    {**facts, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": begin + 1, "dur": 2, "args": linked},
                    {
                        **facts, "cat": "kernel", "name": "gemm", "ts": begin + 5, "dur": 60 if number < whole else 10, "tid": 7,
                        "args": {"device": 0, "stream": 7, **linked},
                    },
                ]  # fmt: skip
            name = f"{at}.pt.trace.json"
            maker.directory.mkdir(parents=True, exist_ok=True)
            (maker.directory / name).write_text(json.dumps({"traceEvents": rows}))
            maker.artifact(name, "torch", maker.manifest["targets"][0], [window])
        return str(maker.write())

    found = compare(path(type(run_maker)(tmp_path / "one"), (3, 0)), path(run_maker, (3, 0), (0, 1)))
    [row] = found.of("phase on device")
    assert (row.before_ns, row.after_ns, row.counts) == (60_000, 60_000, (3, 3))


# --- windows of other kinds, and devices that are left out ------------------------------------------------------------------


def _windows(maker: Any, event: Event, calls: list[list[float]], kind: str, steps: Callable[[int], list[int]]) -> str:
    """A window each, in which ``a`` is called for these lengths in µs."""
    key = maker.target(0)
    for number, lengths in enumerate(calls):
        at, begin, spans = number * 10_000.0, number * 10_000, []
        for length in lengths:
            spans.append(event("a", at, length))
            at += length + 1
        maker.timeline(key, spans, steps=steps(number), end_us=9000, at_us=begin)
        maker.manifest["windows"][-1]["kind"] = kind
    return str(maker.write())


@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        ("step", lambda number: [number]),
        ("on_demand", lambda _: []),
        ("schedule", lambda _: []),
        ("schedule", lambda number: [number]),
        ("on_demand", lambda _: [3]),
    ],
)
def test_windows_repeat_whatever_their_kind(
    run_maker: Any, event: Event, tmp_path: Path, kind: str, steps: Callable[[int], list[int]]
) -> None:
    """Five windows a side of one call each, whose scatter is larger than the change: the same noise with steps, without, and with one
    step for all; the gate passes."""
    before, after = (
        [[float(length)] for length in lengths] for lengths in ([100, 200, 300, 150, 250], [260, 110, 320, 160, 240])
    )
    one = _windows(type(run_maker)(tmp_path / "one"), event, before, kind, steps)
    found = compare(one, _windows(run_maker, event, after, kind, steps))
    for measure in ("phase", "own time"):
        [row] = found.of(measure)
        assert (row.before_ns, row.after_ns, row.repeats) == (200_000, 218_000, (5, 5)), measure
        assert (round(row.low_ns or 0), round(row.high_ns or 0)) == (-70_000, 106_000), measure
    assert found.slower(5) == []


def test_calls_of_one_window_repeat(run_maker: Any, event: Event, tmp_path: Path) -> None:
    """A window of many calls has their noise, as a single file has it; windows of more calls are not slower, in no measure."""
    lengths = [100.0, 140.0, 90.0, 110.0]
    one = _windows(type(run_maker)(tmp_path / "one"), event, [lengths], "on_demand", lambda _: [])
    found = compare(one, _windows(run_maker, event, [lengths * 2], "on_demand", lambda _: []))
    for measure in ("phase", "own time"):
        [row] = found.of(measure)
        assert (row.delta_ns, row.per, row.counts) == (0, "call", (4, 8)), measure
    assert found.of("phase")[0].repeats == (4, 8)


@pytest.mark.parametrize("seed", range(6))
def test_a_run_and_its_file_are_one(run_maker: Any, event: Event, seed: int) -> None:
    """Random calls, nested in their own phase, on threads, suspended with a number and without, cut: a call of the run's only window
    takes what a call of its file takes."""
    rng = random.Random(seed)
    spans, number = [], 0
    for tid in range(rng.randint(1, 3)):
        at = 0.0
        while at < 5000:
            length, name = float(rng.randint(10, 400)), rng.choice("ab")
            how = rng.random()
            if how < 0.2:
                number += 1
                for piece in range(rng.randint(1, 3)):
                    spans.append(event(name, at + piece * 30, 20, tid=tid, own_ns=rng.randint(0, 20_000), call=number))
                length = 100
            elif how < 0.4:
                spans.append(event(name, at, length, tid=tid, own_ns=rng.randint(0, int(length) * 1000)))
            else:
                spans.append(event(name, at, length, tid=tid, **({"in_progress": True} if how < 0.5 else {})))
                if how > 0.7:
                    spans.append(event(name, at + 2, length / 2, tid=tid))
            at += length + rng.randint(0, 50)
    window = run_maker.timeline(run_maker.target(0), spans, steps=[], end_us=6000)
    run_maker.manifest["windows"][-1]["kind"] = "on_demand"
    run, file = side(run_maker.write()), side(str(run_maker.directory / f"{window}.trace.json.gz"))
    for measure, name in (("phase", "ActorGroup: {}"), ("own time", "{} on ActorGroup/rank0")):
        mine, theirs = (
            {key.name: figure for key, figure in of.figures(measure, of.workers).items()} for of in (run, file)
        )
        for phase, figure in theirs.items():
            assert mine[name.format(phase)].ns == pytest.approx(figure.ns), (measure, phase)
            assert (mine[name.format(phase)].per, mine[name.format(phase)].count) == ("call", figure.count)


def _device_run(maker: Any, event: Event, windows: list[dict[int, list[float]]], kind: str) -> str:
    """A window each with a torch file: phase ``a`` launches kernels of these µs on each device."""
    key, number = maker.target(0), 0
    maker.directory.mkdir(parents=True, exist_ok=True)
    for at, work in enumerate(windows):
        begin = EPOCH_US + at * 2000
        window = maker.timeline(key, [event("a", at * 2000, 900)], steps=[at], end_us=1000, at_us=at * 2000)
        maker.manifest["windows"][-1]["kind"] = kind
        facts = {"ph": "X", "pid": 100, "tid": 1}
        rows: list[dict[str, Any]] = [
            {
                "ph": "X",
                "cat": "Trace",
                "name": "PyTorch Profiler (0)",
                "pid": "Spans",
                "tid": 0,
                "ts": begin,
                "dur": 1000,
            },
            {**facts, "cat": "user_annotation", "name": "a", "ts": begin, "dur": 900},
        ]
        for device, lengths in work.items():
            for place, length in enumerate(lengths):
                number += 1
                start = begin + 20 * place
                rows += [
                    {**facts, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": start + 1, "dur": 1,
                     "args": {"correlation": number}},
                    {"ph": "X", "pid": device, "tid": 7, "cat": "kernel", "name": "gemm", "ts": start + 3, "dur": length,
                     "args": {"correlation": number, "device": device, "stream": 7}},
                ]  # fmt: skip
        name = f"{at}.pt.trace.json"
        (maker.directory / name).write_text(json.dumps({"traceEvents": rows}))
        maker.artifact(name, "torch", maker.manifest["targets"][0], [window])
    return str(maker.write())


def test_windows_of_another_kind_are_compared_by_window(run_maker: Any, event: Event, tmp_path: Path) -> None:
    """Five windows of steps beside two of a schedule with the same work in each: no change in either order. Where a window does not
    hold as many kernels on both sides nobody can tell, which is said and not judged."""
    work = {0: [10.0] * 5}
    five = _device_run(type(run_maker)(tmp_path / "five"), event, [work] * 5, "step")
    two = _device_run(type(run_maker)(tmp_path / "two"), event, [work] * 2, "schedule")
    for pair in ((five, two), (two, five)):
        found = compare(*pair)
        for measure in ("device", "device kernels", "phase", "own time", "phase on device", "time of a window"):
            assert {row.delta_ns for row in found.of(measure)} == {0}, measure
        assert found.slower(0) == []
    more = _device_run(run_maker, event, [{0: [10.0] * 10}] * 2, "schedule")
    found = compare(five, more)
    [row] = found.of("device")
    assert (row.change, row.per, row.alike) == (1.0, "window", False)
    assert [row.measure for row, _ in found.slower(5)] == ["phase on device"]
    assert any("5 kernels before and 10 after" in note and "not judged" in note for note in found.notes)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["step", "schedule"])
def test_a_device_that_is_left_out_is_in_no_figure(
    run_maker: Any, event: Event, tmp_path: Path, seed: int, kind: str
) -> None:
    """With ``--device 0`` a run, a file of it and baselines stored of both have the figures that they have where device 1 never
    worked."""
    rng = random.Random(seed)
    windows = [{at: [rng.randint(1, 30) / 2 for _ in range(rng.randint(1, 6))] for at in (0, 1)} for _ in range(3)]
    both = _device_run(type(run_maker)(tmp_path / "both"), event, windows, kind)
    alone = _device_run(run_maker, event, [{0: work[0]} for work in windows], kind)
    for path, model in ((both, alone), (f"{both}/1.pt.trace.json", f"{alone}/1.pt.trace.json")):
        kept = tmp_path / "kept.json"
        store(side(path), str(kept))
        for found in (
            compare(path, model, devices=[0]),
            compare(kept, model, devices=[0]),
            compare(kept, path, devices=[0]),
        ):
            device = [row for row in found.changes if row.measure not in ("phase", "own time", "operator", "step")]
            rows = [row for row in device if "idle" not in row.name and "outside" not in row.name]
            assert len(rows) >= 4
            assert {row.delta_ns for row in rows} == {0}, rows
            assert not [row for row in found.changes if "device 1" in row.name]
    # all devices together: of a phase their sums
    [row] = compare(both, both).of("phase on device")
    merged = sum(sum(lengths) for work in windows for lengths in work.values())
    assert row.before_ns == pytest.approx(1000 * merged / len(windows))


def test_odd_values_in_a_baseline_are_said(run_maker: Any, event: Event, tmp_path: Path) -> None:
    """Whatever stands in the place of a value of a stored baseline: it is compared, or refused as damaged."""
    run = _device_run(run_maker, event, [{0: [10.0]}] * 2, "step")
    kept = tmp_path / "kept.json"
    store(side(run), str(kept))
    good = json.loads(kept.read_text())
    odd = [None, "x", -1, 1e308, [], {}, [1], 2**70, 0, True, {"a": "b"}]
    places: list[tuple[str | int, ...]] = [(key,) for key in good if key != "accelprof_baseline"]
    places += [("parts", 0, key) for key in good["parts"][0]] + [("parts", 0, "samples", "x")]
    refused = 0
    for place in places:
        for value in odd:
            changed = json.loads(kept.read_text())
            at = changed
            for key in place[:-1]:
                at = at[key]
            at[place[-1]] = value
            other = tmp_path / "odd.json"
            other.write_text(json.dumps(changed, separators=(",", ":")))
            try:
                json.dumps(compare(other, run).to_json(), allow_nan=False)
            except ReadError as error:
                refused += 1
                assert "a stored baseline that is damaged" in str(error)
            except NotComparableError:
                pass
    assert refused > 50


def test_a_limit_is_a_number(tmp_path: Path) -> None:
    """No number is a mistake in the command: nothing is larger than it."""
    one, two = _file(tmp_path / "one.json", [1000] * 4), _file(tmp_path / "two.json", [2000] * 4)
    ended = CliRunner().invoke(command, [one, two, "--fail-above", "nan"])
    assert (ended.exit_code, "nan" in ended.output) == (2, True)


def _recorded_in(maker: Any, event: Event, lengths: dict[int, dict[int, float]]) -> str:
    """Ranks that each were recorded in steps of their own: rank -> step -> µs of ``fwd``."""
    for rank, steps in lengths.items():
        key = maker.target(rank)
        for step, length in steps.items():
            at = step * 40_000
            maker.timeline(key, [event("fwd", at + 10, length)], steps=[step], end_us=30_000, at_us=at)
            maker.manifest["windows"][-1]["kind"] = "step"
    return str(maker.write())


@pytest.mark.parametrize("seed", range(6))
def test_who_was_recorded_more_often_weighs_no_more(
    run_maker: Any, event: Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Ranks of lengths of their own, of which any part was recorded on each side: where no rank changed nothing did, and the noise
    says so; where each took half as much more, that is the change."""
    rng = random.Random(seed)
    usual = {rank: 1000.0 * rng.randint(1, 20) for rank in range(rng.randint(2, 4))}

    def run(name: str, factor: float) -> str:
        picked = {
            rank: {
                step: length * factor * rng.uniform(0.99, 1.01)
                for step in sorted(rng.sample(range(12), rng.randint(2, 9)))
            }
            for rank, length in usual.items()
        }
        return _recorded_in(type(run_maker)(tmp_path / name), event, picked)

    one, same, slower = run("one", 1), run("same", 1), run("slower", 1.5)
    [row] = compare(one, same).of("phase")
    assert row.before_ns == pytest.approx(mean(usual.values()) * 1000, rel=0.011)
    assert row.change == pytest.approx(0, abs=0.021)
    assert row.noise is not None
    assert -0.03 < row.noise[0] < row.noise[1] < 0.03
    assert compare(one, same).slower(3) == []
    [row] = compare(one, slower).of("phase")
    assert row.change == pytest.approx(0.5, abs=0.035)
    assert row.clear


def _steps_with_and_without(maker: Any, event: Event, walls: list[tuple[float, bool]]) -> str:
    """Steps of these ms, with a window or without."""
    key, rows = maker.target(0), []
    if not any(window for _, window in walls):  # one between two steps
        maker.timeline(key, [event("fwd", 10_100, 900)], steps=[], end_us=2000, at_us=10_000)
    for step, (ms, window) in enumerate(walls):
        if window:
            at = step * 40_000
            maker.timeline(key, [event("fwd", at + 100, 900)], steps=[step], end_us=ms * 1000, at_us=at)
            maker.manifest["windows"][-1]["kind"] = "step"
        figure = {"max": ms / 1000, "mean": ms / 1000, "min": ms / 1000, "ranks": 1, "slowest": "ActorGroup/rank0"}
        began = (EPOCH_US + step * 40_000) * 1000
        rows.append(
            {"step": step, "began_ns": began, "wall_ns": round(ms * 1e6), "window": window, "seconds": {"fwd": figure}}
        )
    maker.manifest["metrics"] = {"steps": rows}
    return str(maker.write())


def test_steps_with_a_window_are_compared_with_their_like(run_maker: Any, event: Event, tmp_path: Path) -> None:
    """Recording makes a step longer; a run with fewer other steps is not slower by that. Where one side has steps of one kind alone,
    those are compared, and where the kinds differ nothing is, which is said."""

    def run(name: str, plain: int, windows: int, ms: float = 10) -> str:
        walls = [(ms + 6 + step % 2 / 10, True) for step in range(windows)]
        walls += [(ms + step % 2 / 10, False) for step in range(plain)]
        return _steps_with_and_without(type(run_maker)(tmp_path / name), event, walls)

    long, short, slower = run("long", 200, 4), run("short", 10, 4), run("slower", 10, 4, 12)
    recorded, without = run("recorded", 0, 4), run("without", 6, 0)
    for measure in ("step", "phase in steps"):
        [row] = compare(long, short).of(measure)
        assert (row.before_ns, row.after_ns, row.counts) == (10_050_000, 10_050_000, (200, 10))
        [row] = compare(long, slower).of(measure)
        assert (row.before_ns, row.after_ns) == (10_050_000, 12_050_000)
        [row] = compare(long, recorded).of(measure)
        assert (row.before_ns, row.after_ns, row.counts) == (16_050_000, 16_050_000, (4, 4))
    found = compare(recorded, long)
    assert found.slower(1) == []
    assert "step: of steps with a window, as before has no others" in found.notes
    found = compare(recorded, without)
    assert not found.of("step") + found.of("phase in steps")
    assert (
        "step: before has only steps with a window and after has only steps without a window; not compared"
        in found.notes
    )


@pytest.mark.parametrize("groups", [[[0, 1, 2, 3]], [[0, 1], [2, 3]], [[0], [1, 2, 3]]])
def test_operators_are_of_one_step_however_many_a_window_holds(
    run_maker: Any, event: Event, tmp_path: Path, groups: list[list[int]]
) -> None:
    """The same four steps, in windows of one each and in longer ones."""

    def run(name: str, windows: list[list[int]]) -> str:
        maker = type(run_maker)(tmp_path / name)
        key = maker.target(0)
        maker.directory.mkdir(parents=True)
        for number, steps in enumerate(windows):
            at, rows = steps[0] * 2000, []
            for step in steps:
                begin = EPOCH_US + step * 2000
                facts = {"ph": "X", "pid": 100, "tid": 1}
                rows += [
                    {**facts, "cat": "user_annotation", "name": "fwd", "ts": begin + 10, "dur": 900},
                    {**facts, "cat": "cpu_op", "name": "aten::mm", "ts": begin + 20, "dur": 300 + step % 2 * 20},
                ]
            spans = [event("fwd", step * 2000 + 10, 900) for step in steps]
            window = maker.timeline(key, spans, steps=steps, end_us=2000 * len(steps) - 10, at_us=at)
            maker.manifest["windows"][-1]["kind"] = "step"
            (maker.directory / f"{number}.pt.trace.json").write_text(json.dumps({"traceEvents": rows}))
            maker.artifact(f"{number}.pt.trace.json", "torch", maker.manifest["targets"][0], [window])
        return str(maker.write())

    [row] = compare(run("one", [[0], [1], [2], [3]]), run("other", groups)).of("operator")
    assert (row.before_ns, row.after_ns, row.per, row.counts) == (310_000, 310_000, "step", (4, 4))
