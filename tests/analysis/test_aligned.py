"""Clocks of hosts that are known worse than a transfer takes: what the step would take, and what was waited, beside what a simulation knows."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import mean

from accelprof.analysis.aligned import aligned, corrections
from accelprof.analysis.critical import Leaf, Step
from accelprof.analysis.late import stragglers
from accelprof.analysis.replay import Graph
from accelprof.analysis.whatif import what_if
from tests.analysis.test_nested_collectives import MS, Ran, Round, ran

#: worst error of a clock that is not the driver's
ERROR_NS = 5 * MS


def made(seed: int) -> tuple[list[Round], list[int], dict[str, float], int | None]:
    """Programs of two to four ranks whose transfers are shorter than their clocks may be wrong."""
    rng = random.Random(seed)
    ranks = range(rng.randrange(2, 5))
    none = [0 for _ in ranks]
    rounds = [
        Round([round(rng.uniform(5, 60) * MS) for _ in ranks], none, none, round(rng.uniform(0.1, 1) * MS))
        for _ in range(rng.randrange(1, 5))
    ]
    phase = f"work{rng.randrange(len(rounds))}"
    tail = [round(rng.uniform(1, 30) * MS) for _ in ranks]
    return rounds, tail, {phase: rng.choice([0.1, 0.5, 2.0])}, rng.choice([0, 1])


def seen(of: Ran, seed: int) -> tuple[Step, dict[str, list[tuple[int, int]]]]:
    """The step as clocks show it that are wrong by up to 5 ms; rank 0 is on the driver's host."""
    rng = random.Random(-seed)
    workers = sorted({leaf.worker for leaf in of.leaves})
    ahead = {worker: rng.randrange(-ERROR_NS, ERROR_NS) if worker != workers[0] else 0 for worker in workers}
    leaves = []
    for leaf in of.leaves:
        by = ahead[leaf.worker]
        call = None if leaf.call is None else (leaf.call[0], leaf.call[1] + by)
        leaves.append(replace(leaf, start_ns=leaf.start_ns + by, end_ns=leaf.end_ns + by, call=call))
    windows = {worker: [(ahead[worker], of.wall_ns + ahead[worker])] for worker in workers}
    low, high = min(ahead.values()), of.wall_ns + max(ahead.values())
    errors = {worker: ERROR_NS if worker != workers[0] else 0 for worker in workers}
    return Step((1,), low, high, leaves, errors=errors), windows


def test_they_are_put_right_by_when_ranks_left_together() -> None:
    """Of 800 programs the answer on clocks as they are is off by ms, and on those put right by less than a hundredth of that; what the program
    really takes is in the interval, and what was waited in that of its row, always."""
    as_they_are, put_right = [], []
    for seed in range(800):
        rounds, tail, factors, rank = made(seed)
        before, real = ran(rounds, tail, {}, None), ran(rounds, tail, factors, rank).wall_ns
        step, windows = seen(before, seed)
        as_they_are.append(abs(what_if(step, factors, rank)["predicted_ns"] - real))
        step, _ = seen(before, seed)
        step = aligned(step, windows)
        found = what_if(step, factors, rank)
        put_right.append(abs(found["predicted_ns"] - real))
        assert found["low_ns"] <= real <= found["high_ns"], seed
        rows = stragglers(Graph(step))
        for number, (waited, _) in enumerate(before.waited):
            mine = [row for row in rows if row.number == number]
            assert sum(row.low_ns for row in mine) <= waited, (seed, number)
            assert sum(row.high_ns for row in mine) >= waited, (seed, number)
    assert mean(as_they_are) > 2 * MS
    assert mean(put_right) < 0.01 * mean(as_they_are)


def test_clocks_that_are_known_well_stay_as_they_are() -> None:
    """Ranks that leave 0.2 ms apart after a transfer of 10 are no news of clocks, nor are those of one host."""
    leaves = [
        Leaf("G/rank0", "G", 0, "work", "", 0, 40 * MS, 0), Leaf("G/rank0", "G", 0, "ar", "collective", 40 * MS, 80 * MS, 0),
        Leaf("G/rank1", "G", 0, "work", "", 0, 70 * MS, 1), Leaf("G/rank1", "G", 0, "ar", "collective", 70 * MS, 80 * MS + 200_000, 1),
    ]  # fmt: skip
    assert corrections(Step((1,), 0, 81 * MS, leaves, errors={"G/rank0": 0, "G/rank1": ERROR_NS})) == {}
    assert corrections(Step((1,), 0, 81 * MS, leaves)) == {}


def test_a_clock_is_moved_by_no_more_than_it_may_be_wrong() -> None:
    """Rank 1 seems to leave 9 ms after rank 0, on a clock that is good to 6 ms: 6."""
    leaves = [
        Leaf("G/rank0", "G", 0, "work", "", 0, 10 * MS, 0), Leaf("G/rank0", "G", 0, "ar", "collective", 10 * MS, 41 * MS, 0),
        Leaf("G/rank1", "G", 0, "work", "", 0, 46 * MS, 1), Leaf("G/rank1", "G", 0, "ar", "collective", 46 * MS, 50 * MS, 1),
    ]  # fmt: skip
    step = Step((1,), 0, 50 * MS, leaves, errors={"G/rank0": 0, "G/rank1": 6 * MS})
    assert abs(corrections(step)["G/rank1"] - 6 * MS) < 1_000
