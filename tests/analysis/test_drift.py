"""Steps that took longer and what grew over the steps: against what was built in, and silent where nothing was."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelprof.analysis.drift import drifts, outliers
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
    assert (found[0]["step"], found[0]["phase"], found[0]["worker"]) == (at, "generate", "G/rank1")
    assert abs(found[0]["wall_ns"] - found[0]["usual_ns"] - 40 * MS) < 12 * MS
    assert abs(found[0]["phase_ns"] - found[0]["phase_usual_ns"] - 40 * MS) < 10 * MS


def test_where_only_waiting_grew_that_is_named() -> None:
    """A step that was slow in a collective alone (a link, say) says so; one that was slow in no phase names none."""
    rows = steps(30, 1)
    slow(rows, 7, 50 * MS, "all_reduce")
    slow(rows, 9, 60 * MS)
    assert [(row["step"], row["phase"]) for row in outliers(rows, ["all_reduce"])] == [(9, None), (7, "all_reduce")]


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
        wrong_drift += any(row["phase"] is None for row in drifts(rows))
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
    found = {row["phase"]: row for row in drifts(rows)}
    row = found["update"]
    assert abs(row["change"] - growth) < 0.1
    assert row["low"] - 0.05 <= growth <= row["high"] + 0.05
    assert abs(row["first_ns"] / (30 * MS) - 1) < 0.05
    assert "all_reduce" not in found


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
    titles = [grid.title for grid in steps_grids(found)]
    assert titles == ["steps that took longer than the others", "what changed from the first step to the last"]
    text = "\n".join(line for grid in steps_grids(found) for line, _ in grid.lines(80))
    assert "G/rank1" in text
    assert "(the whole step)" in text


@pytest.mark.parametrize("odd", [{}, {"seconds": {"a": {"max": 1.0}}}, {"wall_ns": None, "seconds": {}}])
def test_rows_that_lack_something(odd: dict[str, Any]) -> None:
    """Steps without a wall time, or a phase that a single step has, disturb nobody."""
    rows = steps(30, 4)
    rows[3] = {"step": 3, "window": False, "seconds": {}, **odd}
    slow(rows, 20, 80 * MS, "update")
    assert [row["step"] for row in outliers(rows)] == [20]
    drifts(rows)
