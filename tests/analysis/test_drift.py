"""Steps that took longer and what grew over the steps: against what was built in, and silent where nothing was."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelprof.analysis.drift import drifts, outliers
from accelprof.analysis.first import sentences
from accelprof.analysis.report import Report
from accelprof.analysis.report_rows import StepTime
from accelprof.analysis.summary import summarise
from accelprof.analysis.table import steps_grids

MS = 1_000_000


def steps(count: int, seed: int, *, noise: float = 0.02, growth: float = 0.0) -> list[dict[str, Any]]:
    """``rollout`` of 60 ms with ``generate`` in it, ``update`` of 30 (which grows by ``growth`` over all), ``all_reduce``."""
    rng = random.Random(seed)
    found = []
    for number in range(count):
        generate, update = 0.05 * rng.gauss(1, noise), 0.03 * (1 + growth * number / (count - 1)) * rng.gauss(1, noise)
        seconds = {"rollout": generate + 0.01, "generate": generate, "update": update, "all_reduce": 0.002}
        rows = {phase: {"max": taken, "slowest": f"G/rank{rng.randrange(2)}"} for phase, taken in seconds.items()}
        wall = round(sum(seconds[phase] for phase in ("rollout", "update", "all_reduce")) * 1e9)
        found.append({"step": number, "wall_ns": wall, "window": False, "seconds": rows})
    return found


def slow(rows: list[dict[str, Any]], at: int, ns: int, *phases: str, rank: int = 1) -> None:
    rows[at]["wall_ns"] += ns
    for phase in phases:
        rows[at]["seconds"][phase]["max"] += ns / 1e9
        rows[at]["seconds"][phase]["slowest"] = f"G/rank{rank}"


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**30), st.integers(8, 120), st.booleans())
def test_a_slow_step_is_found_with_its_phase_and_rank(seed: int, count: int, grows: bool) -> None:
    """40 ms more in ``generate`` on one rank, seen in ``rollout`` around it and as waiting in ``all_reduce``: ``generate`` is
    named, whether or not the steps drift meanwhile."""
    rows = steps(count, seed, growth=0.5 if grows and count >= 30 else 0.0)
    at = random.Random(seed).randrange(count)
    slow(rows, at, 40 * MS, "rollout", "generate")
    rows[at]["seconds"]["all_reduce"]["max"] += 0.04
    found = outliers(rows, ["all_reduce"])
    assert found
    assert (found[0].step, found[0].phase, found[0].worker) == (at, "generate", "G/rank1")
    assert abs(found[0].wall_ns - found[0].usual_ns - 40 * MS) < 12 * MS
    assert abs(found[0].phase_ns - found[0].phase_usual_ns - 40 * MS) < 10 * MS


def test_where_only_waiting_grew_that_is_named() -> None:
    """A step that was slow in a collective alone (a link, say) says so; one that was slow in no phase names none."""
    rows = steps(30, 1)
    slow(rows, 7, 50 * MS, "all_reduce")
    slow(rows, 9, 60 * MS)
    assert [(row.step, row.phase) for row in outliers(rows, ["all_reduce"])] == [(9, None), (7, "all_reduce")]


def over_ranks(rows: list[dict[str, Any]], at: int, phase: str, *more: float) -> None:
    """``phase`` in step ``at`` is so many s longer on each rank."""
    figures = rows[at]["seconds"][phase]
    most = max(range(len(more)), key=lambda rank: more[rank])
    figures["mean"] = figures["max"] + sum(more) / len(more)
    figures["max"] += more[most]
    figures["slowest"] = f"G/rank{most}"


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_who_made_the_others_wait_is_named(ranks: int) -> None:
    """``update`` holds a collective that nothing names: one rank's ``generate`` is 100 ms longer, and all others wait for it in their
    ``update``, which grew as much. With two ranks each grew on one: what begins first made the other wait."""
    rows = steps(30, 5)
    rows[7]["wall_ns"] += 100 * MS
    over_ranks(rows, 7, "update", *[0.1] * (ranks - 1), 0.0)
    over_ranks(rows, 7, "generate", *[0.0] * (ranks - 1), 0.1)
    begins = {"rollout": 0, "generate": 1, "update": 60} if ranks == 2 else {}
    [row] = outliers(rows, (), begins)
    assert (row.phase, row.worker) == ("generate", f"G/rank{ranks - 1}")


def test_a_slow_step_in_no_timed_phase_is_said(run_maker: Any) -> None:
    """Where phases are ranges alone nothing says what made step 7 slow; why that is, and what would say it, is."""
    rows = [{**row, "seconds": {}} for row in steps(20, 6)]
    rows[7]["wall_ns"] += 90 * MS
    run_maker.target(0)
    run_maker.manifest["metrics"] = {"steps": rows}
    found = summarise(run_maker.write()).report()
    assert [(row.step, row.phase, row.worker) for row in found.outliers] == [(7, None, None)]
    [line] = [line for line in found.notices if line.startswith("step 7 ")]
    assert "profiling_range records in windows alone; a timer" in line
    assert "Step 7 took " in sentences(found)[1]


def test_the_first_sentences_have_what_cost_most(run_maker: Any) -> None:
    """Step 20 was slow and all steps grew: both stand among the first sentences; a run without either says nothing of it."""
    rows = steps(40, 3, growth=0.4)
    slow(rows, 20, 80 * MS, "update")
    run_maker.target(0)
    run_maker.manifest["metrics"] = {"steps": rows}
    first = sentences(summarise(run_maker.write()).report())
    assert len(first) <= 3
    assert "tep 20 took " in first[1]
    assert "more than usual: update on G/rank1" in first[1]
    assert "teps grew from " in first[1]
    assert "most in update" in first[1]
    run_maker.manifest["metrics"] = {"steps": steps(40, 3)}
    assert not any("than usual" in line or "grew" in line for line in sentences(summarise(run_maker.write()).report()))


def test_steps_with_a_window_are_no_outliers() -> None:
    """Recording costs; a step with a window is neither slow nor part of what is usual."""
    rows = steps(20, 2)
    for at in (3, 9):
        slow(rows, at, 90 * MS, "update")
        rows[at]["window"] = True
    assert outliers(rows) == []


def test_quiet_runs_say_nothing() -> None:
    """Of 300 runs with nothing in them but scatter hardly any has an outlier in a step or a drift: what is said can be relied on."""
    wrong_steps = wrong_drift = 0
    for seed in range(300):
        rows = steps(60, seed)
        wrong_steps += bool(outliers(rows))
        wrong_drift += any(row.phase is None for row in drifts(rows))
    assert wrong_steps <= 3
    assert wrong_drift <= 6
    assert outliers(steps(5, 0)) == drifts(steps(11, 0)) == []


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**30), st.sampled_from([0.2, 0.5, -0.3]))
def test_a_drift_is_found_and_its_size_is_right(seed: int, growth: float) -> None:
    """``update`` grows by a known part over 80 steps, two of which are outliers: the line has both ends right, the interval
    holds the truth, and nothing else is said to drift but the step."""
    rows = steps(80, seed, growth=growth)
    slow(rows, 11, 100 * MS, "update")
    slow(rows, 77, 100 * MS, "update")
    found = {row.phase: row for row in drifts(rows)}
    row = found["update"]
    assert abs(row.change - growth) < 0.1
    assert row.low - 0.05 <= growth <= row.high + 0.05
    assert abs(row.first_ns / (30 * MS) - 1) < 0.05
    assert "all_reduce" not in found


@pytest.mark.parametrize("which", [[2], [0, 1, 2, 3]])
def test_what_made_steps_grow_is_named_with_its_rank(which: list[int]) -> None:
    """``train`` grows by 2 ms a step on one of four ranks, and the others are as much longer in ``sync``, which nothing calls a
    collective: ``train`` on that rank is named in each of 20 runs. Where it grows on all of them no rank is."""
    for seed in range(20):
        rng, rows = random.Random(seed), []
        for number in range(40):
            work = [0.1 * rng.gauss(1, 0.02) + 0.002 * number * (rank in which) for rank in range(4)]
            phases = {"train": work, "sync": [max(work) - mine + 0.003 for mine in work]}
            seconds = {
                phase: {
                    "max": max(times), "mean": sum(times) / 4, "min": min(times), "ranks": 4,
                    "slowest": f"G/rank{times.index(max(times))}",
                }
                for phase, times in phases.items()
            }  # fmt: skip
            rows.append(
                {"step": number, "wall_ns": round(max(work) * 1e9) + 3 * MS, "window": False, "seconds": seconds}
            )
        found = drifts(rows)
        worker = "G/rank2" if which == [2] else None
        assert (found[0].phase, found[0].cause, found[0].worker) == (None, "train", worker)
        assert {row.worker for row in found if row.phase == "train"} == {worker}
        times = [StepTime(row["step"], row["wall_ns"], row["window"]) for row in rows]
        text = sentences(Report(steps=times, metrics={"steps": rows}, drift=found))[1]
        assert text.endswith(f"most in train{f' on {worker}' if worker else ''}.")


def test_a_report_has_them(run_maker: Any) -> None:
    """They are made of the manifest's steps, stand in ``--json`` under their names and as tables."""
    rows = steps(40, 3, growth=0.4)
    slow(rows, 20, 80 * MS, "update")
    run_maker.target(0)
    run_maker.manifest["metrics"] = {"steps": rows}
    summary = summarise(run_maker.write())
    found = summary.to_json()
    assert [(row["step"], row["phase"], row["worker"]) for row in found["outliers"]] == [(20, "update", "G/rank1")]
    assert [row["phase"] for row in found["drift"]] == [None, "update"]
    titles = [grid.title for grid in steps_grids(summary.report())]
    assert titles == ["steps that took longer than the others", "what changed from the first step to the last"]
    text = "\n".join(line for grid in steps_grids(summary.report()) for line, _ in grid.lines(80))
    assert "G/rank1" in text
    assert "(the whole step)" in text


@pytest.mark.parametrize("every", [3, 5, 10])
@pytest.mark.parametrize("saves", [0, 3])
def test_a_phase_of_few_steps_is_what_made_them_slow(every: int, saves: int) -> None:
    """Every few steps one of four ranks saves for 300 ms while the others are in ``checkpoint`` until it is done: ``save`` on that
    rank is named, of which the usual step has nothing."""
    rows = steps(40, 8)
    for row in rows[::every]:
        row["wall_ns"] += 304 * MS
        around = {"max": 0.306, "mean": 0.303, "min": 0.3, "ranks": 4, "slowest": "G/rank2"}
        one = {"max": 0.3, "mean": 0.3, "min": 0.3, "ranks": 1, "slowest": f"G/rank{saves}"}
        row["seconds"].update(checkpoint=around, save=one)
        row["seconds"]["update"]["ranks"] = 4
    found = outliers(rows, (), {"checkpoint": 90 * MS, "save": 91 * MS})
    assert {row.step for row in found} == set(range(0, 40, every))
    assert {(row.phase, row.worker, row.phase_ns, row.phase_usual_ns) for row in found} == {
        ("save", f"G/rank{saves}", 300 * MS, 0)
    }


def test_of_phases_of_few_steps_around_each_other_the_innermost_is_named() -> None:
    """Both are new in the step, so what the usual step has of them tells neither from the other."""
    rows = steps(40, 8)
    for name, taken in (("evaluate", 0.302), ("predict", 0.3)):
        rows[9]["seconds"][name] = {"max": taken, "slowest": "G/rank0"}
    rows[9]["wall_ns"] += 302 * MS
    assert [(row.step, row.phase) for row in outliers(rows)] == [(9, "predict")]


@pytest.mark.parametrize("odd", [{}, {"seconds": {"a": {"max": 1.0}}}, {"wall_ns": None, "seconds": {}}])
def test_rows_that_lack_something(odd: dict[str, Any]) -> None:
    """Steps without a wall time, or a phase that a single step has, disturb nobody."""
    rows = steps(30, 4)
    rows[3] = {"step": 3, "window": False, "seconds": {}, **odd}
    slow(rows, 20, 80 * MS, "update")
    assert [row.step for row in outliers(rows)] == [20]
    drifts(rows)
