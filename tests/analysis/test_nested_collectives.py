"""Work that is nested in a collective's call (packing before, unpacking after, or beside it), in programs that are run in a simulation which
knows when each rank really came and left."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from accelprof.analysis.critical import Leaf, Step
from accelprof.analysis.late import stragglers
from accelprof.analysis.replay import Graph
from accelprof.analysis.seconds import COLLECTIVE
from accelprof.analysis.whatif import what_if
from tests.analysis.test_host_collectives import Made

MS = 1_000_000
#: what the call of a collective takes around what it does, ns
CALL_NS = 20_000


@dataclass
class Round:
    """What each rank does: it works, and calls a collective in which it packs before it comes (or, ``beside``, after it launched, and then
    waits), transfers, and unpacks. Times in ns by rank."""

    work: list[int]
    pack: list[int]
    unpack: list[int]
    transfer: int
    beside: bool = False


@dataclass
class Ran:
    leaves: list[Leaf] = field(default_factory=list)
    #: by round: what the ranks waited in all, and for whom
    waited: list[tuple[int, int]] = field(default_factory=list)
    wall_ns: int = 0

    @property
    def step(self) -> Step:
        return Step((1,), 0, self.wall_ns, self.leaves)


def ran(rounds: list[Round], tail: list[int], factors: dict[str, float], rank: int | None) -> Ran:
    """The program with phases so many times as long on a rank."""
    found = Ran()
    ranks = range(len(tail))
    now = [0 for _ in ranks]

    def long(ns: int, who: int, *phases: str) -> int:
        factor = 1.0
        for phase in phases:
            factor *= factors.get(phase, 1.0) if rank in (None, who) else 1.0
        return round(ns * factor)

    def leaf(who: int, phase: str, start: int, end: int, began: int | None = None) -> None:
        call = ("reduce", began) if began is not None else None
        category, around = (COLLECTIVE if phase == "reduce" else ""), ("reduce",) if call and phase != "reduce" else ()
        if end > start:
            found.leaves.append(
                Leaf(f"G/rank{who}", "G", 0, phase, category, start, end, who, around, call, first=True)
            )

    for number, one in enumerate(rounds):
        came, packed, began = {}, {}, {}
        for who in ranks:
            end = now[who] + long(one.work[who], who, f"work{number}")
            leaf(who, f"work{number}", now[who], end)
            began[who] = end
            packed[who] = end + (CALL_NS if one.pack[who] else 0) + long(one.pack[who], who, f"pack{number}")
            came[who] = end if one.beside else packed[who]
        last = max(ranks, key=came.__getitem__)
        for who in ranks:
            left = max(came[last] + one.transfer, packed[who])
            if one.pack[who]:
                leaf(who, "reduce", began[who], began[who] + CALL_NS, began[who])
                leaf(who, f"pack{number}", began[who] + CALL_NS, packed[who], began[who])
            leaf(who, "reduce", packed[who], left, began[who])
            at = left + long(one.unpack[who], who, f"unpack{number}")
            leaf(who, f"unpack{number}", left, at, began[who])
            leaf(who, "reduce", at, at + CALL_NS, began[who])
            now[who] = at + CALL_NS
        found.waited.append((sum(came[last] - at for at in came.values()), last))
    for who in ranks:
        end = now[who] + long(tail[who], who, "tail")
        leaf(who, "tail", now[who], end)
        now[who] = end
    found.wall_ns = max(now)
    return found


def made(seed: int) -> tuple[list[Round], list[int], dict[str, float], int | None]:
    rng = random.Random(seed)
    ranks = range(rng.randrange(2, 5))
    rounds = []

    def some(high: float) -> int:
        return round(rng.uniform(0.1, high) * MS)

    for _ in range(rng.randrange(1, 4)):
        packs, unpacks, apart = rng.random() < 0.7, rng.random() < 0.6, rng.random() < 0.5
        pack, unpack = some(20), some(20)
        rounds.append(
            Round(
                [some(60) for _ in ranks],
                [(some(20) if apart else pack) if packs else 0 for _ in ranks],
                [(some(20) if apart else unpack) if unpacks else 0 for _ in ranks],
                some(8),
                rng.random() < 0.2,
            )
        )
    number = rng.randrange(len(rounds))
    phase = rng.choice([f"work{number}", f"pack{number}", f"unpack{number}", "tail"])
    return rounds, [some(30) for _ in ranks], {phase: rng.choice([0.0, 0.3, 0.5, 2.0, 3.0])}, rng.choice([None, 0, 1])


def test_it_is_no_transfer_and_the_answer_is_what_the_program_takes() -> None:
    """Of 2,000 programs what they really take with the change is in the interval, and what was waited in that of its row; where ranks come
    when they have packed the answer is right too, and the transfer is said rightly or not at all."""
    right = asked = told = 0
    for seed in range(2_000):
        rounds, tail, factors, rank = made(seed)
        before, after = ran(rounds, tail, {}, None), ran(rounds, tail, factors, rank)
        found = what_if(before.step, factors, rank)
        spare = MS // 10
        assert found["low_ns"] - spare <= after.wall_ns <= found["high_ns"] + spare, (seed, rounds, factors, rank)
        assert what_if(before.step, {})["predicted_ns"] == before.wall_ns
        if not any(one.beside for one in rounds):
            asked += 1
            right += abs(found["predicted_ns"] - after.wall_ns) <= 0.01 * after.wall_ns
        rows = stragglers(Graph(before.step))
        for number, (one, (waited, last)) in enumerate(zip(rounds, before.waited, strict=True)):
            mine = [row for row in rows if row.number == number]
            low, high = sum(row.low_ns for row in mine), sum(row.high_ns for row in mine)
            assert low - spare <= waited <= high + spare, (seed, number, one)
            for row in mine:
                if row.transfer_ns is not None:
                    told += 1
                    assert abs(row.transfer_ns - one.transfer) <= spare, (seed, number, one, last, row)
    assert right == asked > 1_200
    assert told > 900


def test_on_paper(run_maker: Any, event: Any) -> None:
    """Rank 0 is in the call 10-60, rank 1 calls at 40, packs until 55 and comes then: 45 ms are waited for it, of which at least 30; it is
    late in pack and not in work if its packing is what took it longer. Half of the packing ends the step 7.5 ms earlier, and that is on
    the critical path; what of the call is transfer is not known, as it may have begun at 40."""
    ranks = [[("work", 0, 10), ("reduce*", 10, 60)], [("work", 0, 40), ("reduce*", 40, 60), ("pack", 40, 55)]]
    made = Made(run_maker, event, ranks)
    [row] = made.found["stragglers"]
    assert (row["waited_ns"], row["low_ns"], row["high_ns"]) == (45 * MS, 30 * MS, 45 * MS)
    assert (row["worker"], row["transfer_ns"]) == ("G/rank1", None)
    assert made.path == [("rank1", "work", 40), ("rank1", "pack", 15), ("rank1", "reduce", 5)]
    found = what_if(made.step, {"pack": 0.5})
    assert found["predicted_ns"] == 52.5 * MS
    assert found["low_ns"] <= 52.5 * MS < 60 * MS <= found["high_ns"]
    assert any("before, after or beside the 15 ms of pack in it" in note for note in found["notes"])
    [line] = [line for line in made.found["notices"] if "nested in collectives" in line]
    assert "up to 15 ms of pack in reduce on G/rank1, step 2" in line


def test_unpacking_is_the_ranks_own(run_maker: Any, event: Any) -> None:
    """All left the collective at 45; rank 1 unpacks until 75: 5 ms of transfer, not 35, and with a fifth of the unpacking it is through at 51.
    A factor of the call counts for what is nested in it too."""
    ranks = [
        [("work", 0, 10), ("reduce*", 10, 46), ("unpack", 45, 46)], [("work", 0, 40), ("reduce*", 40, 75), ("unpack", 45, 75)],
    ]  # fmt: skip
    made = Made(run_maker, event, ranks)
    [row] = made.found["stragglers"]
    assert (row["waited_ns"], row["transfer_ns"]) == (30 * MS, 5 * MS)
    assert made.after(unpack=0.2) == 51
    assert made.after(reduce=2.0) == 40 + 2 * 35
