"""Known sleeps in four real processes: who was late, in what, and what a step takes without it. All 20: ``make injected``."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.analysis.injected import RANKS, SCENARIOS, STEPS, run_all, scenario

SEEDS = (3, 4, 6, 9)


def test_scenarios_are_what_they_say() -> None:
    """The same seed gives the same; each collective has a rank that is clearly last; the injection is of one rank's one phase."""
    for seed in range(1, SCENARIOS + 1):
        one, again = scenario(seed), scenario(seed)
        assert (one.segments, one.plain, one.rank, one.phase) == (again.segments, again.plain, again.rank, again.phase)
        assert all(one.last(segment) is not None for segment in one.plain)
        changed = [
            (phase[0], rank)
            for slow, plain in zip(one.segments, one.plain, strict=True)
            for phase, before in zip(slow["phases"], plain["phases"], strict=True)
            for rank in range(RANKS)
            if phase[1][rank] != before[1][rank]
        ]
        assert changed == [(one.phase, one.rank)]
    assert {len(scenario(seed).plain) for seed in SEEDS} == {1, 2, 3}


def test_what_was_built_in_comes_out(tmp_path: Path) -> None:
    """Four processes over gloo: of every collective the rank is named that came last, by the processes' own notes; where that is
    the one that was made late, it is late in the phase that was made longer; the step without that takes what ``whatif`` said,
    within 10 %."""
    pytest.importorskip("torch.distributed")
    outcomes = run_all([scenario(seed) for seed in SEEDS], tmp_path / "runs", timeout=300)
    right = [named for one in outcomes for named in one.culprits]
    assert len(right) == sum(2 * STEPS * len(scenario(seed).plain) for seed in SEEDS)
    assert right.count(False) <= len(right) // 100
    built = [as_built for one in outcomes for as_built in one.as_built]
    assert built.count(True) > len(built) / 2  # a busy machine makes another rank late now and then
    assert sum(len(one.phases) for one in outcomes) > 0
    assert all(all(one.phases) for one in outcomes)
    assert {one.scenario.seed: round(one.error, 3) for one in outcomes if abs(one.error) > 0.10} == {}
    assert all(one.wall_ns > one.real_ns * 1.1 for one in outcomes)  # there was something to win
