"""Clocks of hosts that are known worse than a transfer takes: what the step would take, and what was waited, beside what a simulation knows."""

from __future__ import annotations

import random
from dataclasses import replace

from accelprof.analysis.aligned import corrections
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


def seen(of: Ran, seed: int) -> Step:
    """The step as clocks show it that are wrong by up to 5 ms; rank 0 is on the driver's host."""
    rng = random.Random(-seed)
    workers = sorted({leaf.worker for leaf in of.leaves})
    ahead = {worker: rng.randrange(-ERROR_NS, ERROR_NS) if worker != workers[0] else 0 for worker in workers}
    leaves = []
    for leaf in of.leaves:
        by = ahead[leaf.worker]
        call = None if leaf.call is None else (leaf.call[0], leaf.call[1] + by)
        leaves.append(replace(leaf, start_ns=leaf.start_ns + by, end_ns=leaf.end_ns + by, call=call))
    late = {worker: ahead[worker] - min(ahead.values()) for worker in workers}
    low, high = min(ahead.values()), of.wall_ns + max(ahead.values())
    errors = {worker: ERROR_NS if worker != workers[0] else 0 for worker in workers}
    return Step((1,), low, high, leaves, errors=errors, late=late)


def test_what_is_said_on_them_holds() -> None:
    """Of 800 programs what the program really takes is in the interval, and what was waited in that of its rows, always. Without what the step
    would be if ranks had left together some would not."""
    missed = 0
    for seed in range(800):
        rounds, tail, factors, rank = made(seed)
        before, real = ran(rounds, tail, {}, None), ran(rounds, tail, factors, rank).wall_ns
        step = seen(before, seed)
        found = what_if(step, factors, rank)
        assert found["low_ns"] <= real <= found["high_ns"], seed
        alone = what_if(replace(step, hosts=dict.fromkeys(step.errors, "one")), factors, rank)
        missed += not alone["low_ns"] <= real <= alone["high_ns"]
        assert found["predicted_ns"] == alone["predicted_ns"], seed
        rows = stragglers(Graph(step))
        for number, (waited, _) in enumerate(before.waited):
            mine = [row for row in rows if row.number == number]
            assert sum(row.low_ns for row in mine) <= waited, (seed, number)
            assert sum(row.high_ns for row in mine) >= waited, (seed, number)
    assert missed > 5


def test_on_clocks_that_are_right_answers_are() -> None:
    """The same programs on right clocks of which only the errors are not known better: the answer is what the program takes."""
    for seed in range(200):
        rounds, tail, factors, rank = made(seed)
        before, real = ran(rounds, tail, {}, None), ran(rounds, tail, factors, rank).wall_ns
        errors = {leaf.worker: ERROR_NS for leaf in before.leaves}
        step = Step((1,), 0, before.wall_ns, before.leaves, errors=errors)
        assert step.wall_ns == before.wall_ns == what_if(step, {})["predicted_ns"]
        assert abs(what_if(step, factors, rank)["predicted_ns"] - real) < MS // 100, seed
        waited = [
            sum(row.waited_ns for row in stragglers(Graph(step)) if row.number == at) for at in range(len(rounds))
        ]
        assert waited == [ns for ns, _ in before.waited], seed


def test_a_broadcast_moves_no_figure() -> None:
    """Rank 0 sends at 10 ms and leaves at 12, rank 1 comes at 13 and leaves at 14, on a clock that is right: the step stays what it is."""
    leaves = [
        Leaf("G/rank0", "G", 0, "work", "", 0, 10 * MS, 0), Leaf("G/rank0", "G", 0, "bcast", "collective", 10 * MS, 12 * MS, 0),
        Leaf("G/rank0", "G", 0, "tail", "", 12 * MS, 50 * MS, 0),
        Leaf("G/rank1", "G", 0, "work", "", 0, 13 * MS, 1), Leaf("G/rank1", "G", 0, "bcast", "collective", 13 * MS, 14 * MS, 1),
        Leaf("G/rank1", "G", 0, "tail", "", 14 * MS, 47 * MS, 1),
    ]  # fmt: skip
    step = Step((1,), 0, 50 * MS, leaves, errors={"G/rank0": 0, "G/rank1": ERROR_NS})
    assert corrections(step)["G/rank1"] == 2 * MS
    found = what_if(step, {})
    assert found["wall_ns"] == found["predicted_ns"] == 50 * MS
    assert found["low_ns"] <= 50 * MS - ERROR_NS
    assert step.wall_ns == sum(part["ns"] for part in Graph(step).path())


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


def test_ranks_of_one_host_share_its_clock() -> None:
    """Both ranks of host b seem to leave 5 ms after rank 0, and 1 ms apart: they are moved alike, and on one host alone none is."""
    leaves = [
        Leaf(f"G/rank{rank}", "G", 0, phase, category, start * MS, end * MS, rank)
        for rank, ends in enumerate([(10, 41), (44, 46), (20, 47)])
        for phase, category, start, end in [("work", "", 0, ends[0]), ("ar", "collective", *ends)]
    ]
    errors = {"G/rank0": 0, "G/rank1": 6 * MS, "G/rank2": 6 * MS}
    step = Step((1,), 0, 50 * MS, leaves, errors=errors, hosts={"G/rank0": "a", "G/rank1": "b", "G/rank2": "b"})
    moved = corrections(step)
    assert moved["G/rank1"] == moved["G/rank2"] == round(5.5 * MS)
    assert corrections(replace(step, hosts=dict.fromkeys(errors, "a"), errors=dict.fromkeys(errors, 6 * MS))) == {}
