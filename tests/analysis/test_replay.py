"""The graph of a step: how much later each phase could end, and ranks that are joined in collectives on the device."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelprof.analysis import joints
from accelprof.analysis.critical import OUTSIDE, Leaf, Step
from accelprof.analysis.first import sentences
from accelprof.analysis.gaps import OVERHEAD_NS
from accelprof.analysis.joints import joints_of
from accelprof.analysis.releases import GAP_NS
from accelprof.analysis.replay import Graph
from accelprof.analysis.seconds import COLLECTIVE, waits_for_others
from accelprof.analysis.summary import summarise
from accelprof.analysis.whatif import what_if
from accelprof.contracts.spans import Kind, Span
from tests.analysis.test_device_stragglers import US, Rank, called

relaxed = settings(deadline=None, max_examples=150)
MS = 1_000_000


def leaf(rank: int, phase: str, start: int, end: int, category: str = "", row: int = 0) -> Leaf:
    return Leaf(f"G/rank{rank}", "G", row, phase, category, start * MS, end * MS, rank)


# --- slack ---------------------------------------------------------------------------------------------------------------


def test_slack_counted_on_paper() -> None:
    """Rank 0 updates for 40 ms and waits for rank 1's 70: it could take 30 more. Its write of 5 after the collective ends 4 before
    rank 1's of 9. What lies on the path has no row."""
    leaves = [
        leaf(0, "update", 0, 40), leaf(0, "all_reduce", 40, 80, COLLECTIVE), leaf(0, "write", 80, 85),
        leaf(1, "update", 0, 70), leaf(1, "all_reduce", 70, 80, COLLECTIVE), leaf(1, "write", 80, 89),
    ]  # fmt: skip
    step = Step((4,), 0, 89 * MS, leaves)
    rows = [(row["worker"], row["phase"], row["ns"] // MS, row["slack_ns"] // MS) for row in Graph(step).slack_rows()]
    assert rows == [("G/rank0", "update", 40, 30), ("G/rank0", "all_reduce", 40, 4), ("G/rank0", "write", 5, 4)]
    step.error_ns = MS
    assert [(row["low_ns"] // MS, row["high_ns"] // MS) for row in Graph(step).slack_rows()] == [
        (28, 32),
        (2, 6),
        (2, 6),
    ]


def one_by_one(calls: list[tuple[int, Leaf]]) -> list[list[int]]:
    """The calls of a name and group that are one collective: the n-th of all ranks where these have as many each, in parts that ran at
    one moment, joined where one is a rank alone or was not over when the next began; otherwise what ran at one moment."""

    def overlapping(some: list[tuple[int, Leaf]]) -> list[list[tuple[int, Leaf]]]:
        found: list[list[tuple[int, Leaf]]] = []
        for at, leaf in sorted(some, key=lambda one: one[1].start_ns):
            mine = [n for n, part in enumerate(found) if leaf.worker in {other.worker for _, other in part}]
            part = next(
                (part for part in found[max(mine, default=-1) + 1 :] if all(o.end_ns > leaf.start_ns for _, o in part)),
                None,
            )
            if part is None:
                found.append(part := [])
            part.append((at, leaf))
        return found

    ranks: dict[str, list[tuple[int, Leaf]]] = {}
    for one in sorted(calls, key=lambda one: one[1].start_ns):
        ranks.setdefault(one[1].worker, []).append(one)
    if len({len(mine) for mine in ranks.values()}) > 1 or len(ranks) < 2:
        return [[at for at, _ in part] for part in overlapping(calls)]
    found = []
    for same in zip(*ranks.values(), strict=True):
        parts: list[list[tuple[int, Leaf]]] = []
        for part in overlapping(list(same)):
            came = min(leaf.start_ns for _, leaf in part)
            if parts and (1 in (len(parts[-1]), len(part)) or any(leaf.end_ns > came for _, leaf in parts[-1])):
                parts[-1] += part
            else:
                parts.append(part)
        found += [[at for at, _ in part] for part in parts]
    return found


def launched_for(step: Step, mine: list[int]) -> dict[int, int]:
    """The calls of a collective that all were over before the last one, and were longer than that since the others came; with that."""
    calls = sorted(mine, key=lambda at: step.leaves[at].start_ns)
    last = step.leaves[calls[-1]]
    found = {}
    if all(step.leaves[at].end_ns <= last.start_ns for at in calls[:-1]):
        for at in calls[:-1]:
            came = max(step.leaves[p].start_ns for p in calls if step.leaves[p].start_ns < step.leaves[at].end_ns)
            if step.leaves[at].end_ns - came > last.ns + step.overhead_ns:
                found[at] = calls[-1]
    return found


def main_row(step: Step, at: int) -> int:
    """The row in which the worker of a leaf was longest."""
    taken: dict[int, int] = {}
    for one in step.leaves:
        if one.worker == step.leaves[at].worker and one.ns:
            taken[one.row] = taken.get(one.row, 0) + one.ns
    return max(taken, key=lambda row: (taken[row], row))


def slow(step: Step, longer: dict[int, int], late: bool = False) -> int:
    """The step's wall time with some leaves (by place) so much longer: what :mod:`accelprof.analysis.releases` and
    :mod:`accelprof.analysis.gathers` say word by word, nothing kept in order. ``late``: of a phase around other rows it is what
    follows them that is longer, otherwise what comes before."""
    leaves = step.leaves
    waits = [waits_for_others(one.phase, one.category) for one in leaves]
    places = range(len(leaves))
    ends: dict[int, int] = {}

    met = one_by_one([(at, leaves[at]) for at in places if leaves[at].category == COLLECTIVE])
    guessed = {at: last for mine in met for at, last in launched_for(step, mine).items()}

    gathered: dict[int, list[int]] = {}
    begins: dict[int, int] = {}  # leaves of rows that a phase waits for -> that phase
    for at in sorted(places, key=lambda at: (leaves[at].start_ns, -leaves[at].end_ns)):
        one = leaves[at]
        if at in begins or waits[at] or one.category == COLLECTIVE or one.ns <= OVERHEAD_NS:
            continue
        mine = {
            row: [p for p in places if (leaves[p].worker, leaves[p].row) == (one.worker, row)]
            for row in {other.row for other in leaves} - {one.row}
        }
        inside = [
            [p for p in row if one.start_ns <= leaves[p].start_ns and leaves[p].end_ns <= one.end_ns]
            for row in mine.values()
            if not any(leaves[p].start_ns < edge < leaves[p].end_ns for p in row for edge in (one.start_ns, one.end_ns))
        ]
        last = [max(row, key=lambda p: leaves[p].end_ns) for row in inside if row]
        if any(one.end_ns - leaves[p].end_ns <= max(OVERHEAD_NS, 0.02 * one.ns) for p in last):
            gathered[at] = last
            begins.update((p, at) for row in inside for p in row)

    def latest(among: list[int], key: Callable[[int], Any]) -> list[int]:
        return [max(among, key=key)] if among else []

    def released(at: int, since: int, moment: int, ends: bool) -> int | None:
        """The last to finish shortly before, or else still running, or else the last to finish: on the thread that may have let go
        on what waited from ``since`` to ``moment``."""
        one = leaves[at]
        rows = [p for p in places if not waits[p] and (leaves[p].worker, leaves[p].row) != (one.worker, one.row)]
        if ends and one.phase == "get_batch":  # no other rank of its group makes its data with what it does itself
            does = {other.phase for other in leaves if other.worker == one.worker}
            same = [p for p in rows if leaves[p].worker != one.worker and leaves[p].group == one.group]
            rows = [p for p in rows if p not in same or leaves[p].phase not in does]
        done = [p for p in rows if since < leaves[p].end_ns <= moment]
        runs = [p for p in rows if leaves[p].start_ns < moment < leaves[p].end_ns and leaves[p].category != COLLECTIVE]
        mine = [p for p in rows if leaves[p].worker == one.worker]
        finished: Callable[[int], int] = lambda p: leaves[p].end_ns  # noqa: E731
        began: Callable[[int], tuple[int, int]] = lambda p: (leaves[p].start_ns, leaves[p].end_ns)  # noqa: E731
        own, other = (
            latest([p for p in done if p in mine], finished),
            latest([p for p in done if p not in mine], finished),
        )
        own_runs, other_runs = (
            latest([p for p in runs if p in mine], began),
            latest([p for p in runs if p not in mine], began),
        )

        def shortly(found: list[int], ns: int) -> list[int]:
            return [p for p in found if moment - leaves[p].end_ns <= ns]

        if ends:
            since_begin = [p for p in rows if leaves[p].end_ns <= since]
            early = latest([p for p in since_begin if p in mine], finished)
            if one.phase != "get_batch":
                early = latest([p for p in since_begin if p not in mine], finished) + early
            inside = own_runs if one.phase == "get_batch" else other_runs + own_runs
            order = [p for ns in (OVERHEAD_NS, step.overhead_ns) for p in shortly(other, ns) + shortly(own, ns)]
            order += inside + other + own if one.ns > OVERHEAD_NS else []
            order += early
        else:
            last = latest(done, finished)
            order = shortly(own, GAP_NS) + shortly(last, OVERHEAD_NS) + own_runs + last
        return order[0] if order else None

    def gone(cause: int, moment: int) -> tuple[int, int]:
        """When it lets go on what it let go on at ``moment``, and how long before that it had finished; what makes it longer
        stands before what it did then."""
        rest = moment - leaves[cause].end_ns
        if rest >= 0:
            return end(cause), rest
        if cause in gathered:
            return begin(cause) + (0 if late else longer.get(cause, 0)) + moment - leaves[cause].start_ns, 0
        return begin(cause) + longer.get(cause, 0) + moment - leaves[cause].start_ns, 0

    def begin(at: int) -> int:
        one = leaves[at]
        before = [
            p
            for p in places
            if leaves[p].row == one.row and leaves[p].worker == one.worker and leaves[p].end_ns <= one.start_ns
        ]
        own = max(before, key=lambda p: leaves[p].end_ns, default=None)
        own_recorded = step.start_ns if own is None else leaves[own].end_ns
        own_end = step.start_ns if own is None else end(own)
        lag = one.start_ns - own_recorded
        cause = released(at, own_recorded, one.start_ns, ends=False) if lag > step.overhead_ns else None
        around = begins.get(at)
        finished = cause is not None and leaves[cause].end_ns <= one.start_ns
        if around is not None and own_recorded <= leaves[around].start_ns:  # the first of its row in there
            if cause is None or not finished or leaves[cause].start_ns < leaves[around].start_ns:
                cause = around if leaves[around].start_ns < one.start_ns else cause
        elif around is not None and not finished:
            cause = None
        return own_end + lag if cause is None else max(own_end, sum(gone(cause, one.start_ns)))

    def end(at: int) -> int:
        if at not in ends:
            one, extra = leaves[at], longer.get(at, 0)
            ends[at] = begin(at) + one.ns + extra
            if at in guessed:
                before_end = [
                    p
                    for p in places
                    if leaves[p].worker == leaves[guessed[at]].worker and leaves[p].row == main_row(step, guessed[at])
                ]
                before_end = sorted(
                    (p for p in before_end if leaves[p].start_ns < one.end_ns), key=lambda p: leaves[p].start_ns
                )
                if len(before_end) > 1 and one.end_ns - leaves[before_end[-2]].end_ns <= step.overhead_ns:
                    before_end.pop()
                cause = before_end[-1] if before_end else None
                if cause is None or waits[cause] or leaves[cause].category == COLLECTIVE:
                    pass  # nothing that it could have waited for is recorded
                elif leaves[cause].end_ns <= one.start_ns:
                    ends[at] = max(ends[at], end(cause) + extra)
                else:
                    moment, rest = gone(cause, one.end_ns)
                    ends[at] = max(begin(at), moment) + rest + extra
            elif one.category == COLLECTIVE:
                [mine] = [mine for mine in met if at in mine]
                there = [p for p in mine if leaves[p].start_ns < one.end_ns]
                last = max(leaves[p].start_ns for p in there)
                ends[at] = max(begin(p) for p in there) + one.end_ns - last + extra
            elif at in gathered:
                rest = one.end_ns - max(leaves[p].end_ns for p in gathered[at])
                ends[at] = max(begin(at), *(end(p) for p in gathered[at])) + rest + (extra if late else 0)
            elif waits[at]:
                cause = released(at, one.start_ns, one.end_ns, ends=True)
                if cause is not None and leaves[cause].end_ns <= one.start_ns:
                    ends[at] = max(ends[at], end(cause) + extra)
                elif cause is not None:
                    moment, rest = gone(cause, one.end_ns)
                    ends[at] = max(begin(at), moment) + rest + extra
        return ends[at]

    return max(end(at) for at in places) + step.end_ns - max(one.end_ns for one in leaves) - step.start_ns


def made(seed: int) -> Step:
    """A step of up to three ranks of one or two threads, the third of another group, with gaps, waits and collectives; no two leaves
    end together."""
    rng = random.Random(seed)
    leaves: list[Leaf] = []
    for rank in range(rng.randrange(1, 4)):
        for row in range(rng.randrange(1, 3)):
            at = 0
            for _ in range(rng.randrange(1, 6)):
                at += rng.choice([0, 0, 1, 7, 40]) * MS
                length = rng.choice([0, *range(1, 30)]) * MS + rng.randrange(1, MS)
                phase = rng.choice(["a", "b", "recv", "get_batch", "all_reduce"] if row == 0 else ["a", "recv"])
                group = "R" if rank == 2 else "G"
                if group == "R" and phase == "all_reduce":
                    phase = "b"
                category = COLLECTIVE if phase == "all_reduce" else ""
                leaves.append(Leaf(f"{group}/rank{rank}", group, row, phase, category, at, at + length, rank))
                at += length
    return Step((1,), 0, max(one.end_ns for one in leaves) + rng.randrange(5), leaves)


def lets_go_inside(graph: Graph, one: Leaf) -> bool:
    """Whether something went on while it was running, because of it: that moves with part of its change, as it does itself where it waits
    for rows inside it."""
    place = next(place for place, other in enumerate(graph.leaves) if other is one)
    ends = [graph.ends[wait] for wait, cause in graph.causes.items() if cause == place]
    begins = [graph.starts[later] for later, cause in enumerate(graph.after) if cause == place]
    gather = graph.gathers.get(place)
    return (gather is not None and gather.waits) or any(moment < one.end_ns for moment in (*ends, *begins))


@relaxed
@given(st.integers(0, 2**30))
def test_a_phase_can_end_so_much_later_and_no_more(seed: int) -> None:
    """Each leaf made longer by its slack leaves the step as it is, by 1 ns more makes it 1 ns longer: in a model that knows no
    order, and in the replay itself. What is on the critical path has none."""
    step = made(seed)
    graph = Graph(step)
    assert slow(step, {}) == step.wall_ns == graph.replayed(lambda _: 1.0)
    slacks = dict(zip(map(id, graph.leaves), graph.slack(), strict=True))
    for place, one in enumerate(step.leaves):
        spare = slacks[id(one)]
        assert spare >= 0
        assert max(slow(step, {place: spare}, late) for late in (False, True)) == step.wall_ns
        assert max(slow(step, {place: spare + 1}, late) for late in (False, True)) == step.wall_ns + 1
        if one.call is None and not waits_for_others(one.phase, one.category) and not lets_go_inside(graph, one):
            factor = (one.ns + spare) / one.ns
            assert abs(Graph(step).replayed(lambda other: factor if other is one else 1.0) - step.wall_ns) <= 1
            factor = (one.ns + spare + MS) / one.ns
            assert abs(Graph(step).replayed(lambda other: factor if other is one else 1.0) - step.wall_ns - MS) <= 1
    tight = {(one.worker, one.phase) for one in step.leaves if slacks[id(one)] == 0}
    on_path = {(part["worker"], part["phase"]) for part in graph.path() if part["phase"] != OUTSIDE}
    assert {(worker, phase) for worker, phase in on_path if phase in ("a", "b")} <= tight


# --- who lets go on from inside a phase -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how", ["wait of another rank", "gap of its own process", "wait of its own process", "collective"]
)
def test_what_still_runs_lets_others_go_on(how: str) -> None:
    """A second thread of rank 0 is in ``stage`` for 250 ms and lets go on after 150, outside of any phase's end, what then takes until
    380. With ``stage`` 150 ms shorter that is 230 where the change stands before that moment and 380 where it stands after it; a point
    as far into it is 290 (60 instead of 150). Another rank finished its work of 20 ms long before."""
    stage, other = leaf(0, "stage", 0, 250, row=1), leaf(2, "load", 0, 20)
    leaves = {
        "wait of another rank": [stage, other, leaf(1, "turn", 0, 150, "wait"), leaf(1, "train", 150, 380)],
        "gap of its own process": [stage, other, leaf(0, "train", 150, 380)],
        "wait of its own process": [stage, leaf(0, "get_batch", 0, 150), leaf(0, "train", 150, 380)],
        "collective": [
            stage, other, leaf(0, "all_reduce", 150, 152, COLLECTIVE), leaf(0, "train", 152, 170),
            leaf(1, "all_reduce", 0, 152, COLLECTIVE), leaf(1, "train", 152, 380),
        ],
    }[how]  # fmt: skip
    step = Step((4,), 0, 380 * MS, leaves)
    path = [(part["worker"], part["phase"], part["ns"] / MS) for part in Graph(step).path()]
    assert path[0] == ("G/rank0", "stage", 150)
    assert path[-1][1] == "train"
    found = what_if(step, {"stage": 0.4})
    assert found["predicted_ns"] == 290 * MS
    assert found["low_ns"] <= 230 * MS
    assert found["high_ns"] >= 380 * MS
    [note] = [note for note in found["notes"] if "is a guess" in note]
    assert "from inside stage on G/rank0" in note
    assert what_if(step, {"stage": 1.0})["notes"] == []


def test_what_hardly_waited_may_wait_for_what_was_there_before() -> None:
    """The rollout of 80 ms was over when the trainer, after 100 ms of its own, asked for it. With the trainer's work in a tenth of that
    it would wait for the rollout."""
    leaves = [
        leaf(0, "rollout", 0, 80),
        leaf(1, "prepare", 0, 100),
        leaf(1, "recv", 100, 101),
        leaf(1, "train", 101, 111),
    ]
    step = Step((4,), 0, 111 * MS, leaves)
    assert [part["phase"] for part in Graph(step).path()] == ["prepare", "recv", "train"]
    found = what_if(step, {"prepare": 0.1})
    assert found["predicted_ns"] == 90 * MS
    assert found["low_ns"] <= 80 * MS
    assert found["high_ns"] >= 91 * MS
    assert "is taken to follow rollout on G/rank0" in found["notes"][0]


def test_no_rank_that_does_the_same_makes_the_data_of_another() -> None:
    """Rank 1 waits 80 ms for its loader and trains for 20; rank 0 has its data after 2, trains until 22 and is in the all-reduce until 102.
    The path is rank 1's data and training, and with a tenth of its wait the step takes 8 + 20 + 2. A rollout of another role that ends in
    that wait may be what it waited for."""
    leaves = [
        leaf(0, "data", 0, 2, "data"), leaf(0, "train", 2, 22), leaf(0, "all_reduce", 22, 102, COLLECTIVE),
        leaf(1, "data", 0, 80, "data"), leaf(1, "train", 80, 100), leaf(1, "all_reduce", 100, 102, COLLECTIVE),
    ]  # fmt: skip
    step = Step((4,), 0, 102 * MS, leaves)
    path = [(part["worker"], part["phase"], part["ns"] / MS) for part in Graph(step).path()]
    assert path == [("G/rank1", "data", 80), ("G/rank1", "train", 20), ("G/rank1", "all_reduce", 2)]
    found = what_if(step, {"data": 0.1}, rank=1)
    assert found["predicted_ns"] == 30 * MS
    assert found["low_ns"] <= 30 * MS <= found["high_ns"] <= 33 * MS
    leaves.append(Leaf("R/rank0", "R", 0, "rollout", "", 0, 70 * MS, 0))
    first = Graph(Step((4,), 0, 102 * MS, leaves)).path()[0]
    assert (first["worker"], first["phase"]) == ("R/rank0", "rollout")


# --- collectives on the device -------------------------------------------------------------------------------------------


class Both(Rank):
    """A rank whose phases are leaves of the host too; times in µs."""

    def __init__(self, rank: int, **clock: Any) -> None:
        super().__init__(rank, **clock)
        self.leaves: list[Leaf] = []

    def phase(self, name: str, start: int, end: int) -> Both:
        super().phase(name, start, end)
        self.leaves.append(Leaf(self.worker.label, "G", 0, name, "", start * US, end * US, self.worker.rank))
        return self

    def waits(self, start: int, end: int) -> Both:
        self.spans.append(
            Span("cudaStreamSynchronize", Kind.SYNC, start * US + self.shift, end * US + self.shift, 1, 1)
        )
        return self


def step_of(*ranks: Both) -> Step:
    leaves = [one for rank in ranks for one in rank.leaves]
    found = Step((1,), 0, max(one.end_ns for one in leaves), leaves)
    made = joints_of([rank.file() for rank in ranks])
    found.joints, found.loose_ns = made.found.get((1,), []), made.loose.get((1,), 0)
    found.left_out = made.left_out.get((1,), [])
    return found


def late_host(**clock: Any) -> Step:
    """Both launch an all-reduce after their data, which takes rank 1 until 69 ms and rank 0 until 39, and wait for it, which
    is over at 80; then 5 ms are left of ``update``."""
    args = called("allreduce", 2)
    ranks = [Both(0, **clock), Both(1, **clock)]
    for rank, data in zip(ranks, (39_000, 69_000), strict=True):
        rank.phase("data", 0, data).phase("update", data, 85_000)
        rank.kernel("nccl", data + 1_000, 80_000, data, args=args)
        rank.waits(data + 2_000, 80_010)
    return step_of(*ranks)


@pytest.mark.parametrize(
    ("factors", "rank", "expected"),
    [
        ({}, None, 85.0),
        ({"data": 0.5}, 1, 55.0),  # rank 0 is the last now, at 40: 10 of transfer, 5 of update
        ({"data": 0.5}, 0, 85.0),
        ({"data": 2.0}, 0, 94.0),  # rank 0 arrives at 79: 79 + 10 + 5
        ({"data": 2.0}, 1, 154.0),  # rank 1 arrives at 139
        ({"allreduce (device)": 0.0}, None, 76.0),  # rank 1 has its own 2 ms between launch and wait: 71 + 5
    ],
)
def test_a_rank_that_is_late_holds_the_others_on_the_device(
    factors: dict[str, float], rank: int | None, expected: float
) -> None:
    """Counted on paper; on both ranks' clocks, however far apart they are."""
    found = what_if(late_host(), factors, rank)
    assert (found["predicted_ns"] / MS, found["notes"]) == (expected, [])
    assert found["low_ns"] <= found["predicted_ns"] <= found["high_ns"]


def test_the_path_runs_through_the_device() -> None:
    """Rank 1's data, its way to the kernel, the transfer, and the rest; rank 0 could have taken 30 ms more for its data."""
    step = late_host()
    path = [(part["worker"], part["phase"], part["ns"] / MS) for part in Graph(step).path()]
    assert path[:3] == [("G/rank1", "data", 69.0), ("G/rank1", "update", 1.0), ("G/rank1", "allreduce (device)", 10.0)]
    assert path[3][1:] == ("update", 5.0)
    rows = {(row["worker"], row["phase"]): row["slack_ns"] / MS for row in Graph(step).slack_rows()}
    assert rows["G/rank0", "data"] == 30.0


def test_a_device_that_is_late() -> None:
    """Both hosts launch at once; rank 1's device works for ``update`` until 90. In half of that it arrives at 50, rank 0's
    transfer ends at 55 and 5 are left of its update, which nobody made faster."""
    args = called("allreduce", 2)
    ranks = [Both(0), Both(1)]
    for rank, begin in zip(ranks, (25_000, 90_000), strict=True):
        rank.phase("update", 10_000, 100_000)
        rank.kernel("gemm", 12_000, begin - 5_000, 11_000)
        rank.kernel("nccl", begin, 95_000, 12_000, args=args)
        rank.waits(30_000, 95_010)
    step = step_of(*ranks)
    assert what_if(step, {})["predicted_ns"] == 100 * MS
    assert what_if(step, {"update": 0.5}, 1)["predicted_ns"] == 60 * MS


def test_who_does_not_wait_is_not_held() -> None:
    """Without a call in which the host waits for the device nothing that it does depends on when the other rank came."""
    args = called("allreduce", 2)
    ranks = [Both(0), Both(1)]
    for rank, data in zip(ranks, (39_000, 69_000), strict=True):
        rank.phase("data", 0, data).phase("update", data, data + 6_000)
        rank.kernel("nccl", data + 1_000, 80_000, data, args=args)
    step = step_of(*ranks)
    assert what_if(step, {"data": 3.0}, 0)["predicted_ns"] == (117 + 6) * MS
    assert what_if(step, {"data": 0.5}, 1)["predicted_ns"] == 45 * MS


def test_where_nobody_waits_for_the_device_that_may_decide_the_end() -> None:
    """Both launch an all-reduce, go on and are through at 75, and the window is over with the device's work at 95: the kernels begin at 40
    and 70, and 15 ms more run behind. With rank 1's data in half the time the devices are through at 65, and with rank 0's twice as long
    at 104; both are in the interval. Rank 0's data
    could end 30 ms later, and not 34, as its host's rows say."""
    args = called("allreduce", 2)
    ranks = [Both(0), Both(1)]
    for rank, data in zip(ranks, (39_000, 69_000), strict=True):
        rank.phase("data", 0, data).phase("update", data, data + (2_000 if data == 39_000 else 6_000))
        rank.kernel("nccl", data + 1_000, 80_000, data, args=args).kernel("gemm", 80_000, 95_000, data + 500)
    step = step_of(*ranks)
    step.end_ns = 95 * MS
    found = what_if(step, {"data": 0.5}, 1)
    assert found["low_ns"] <= 65 * MS <= found["high_ns"]
    found = what_if(step, {"data": 2.0}, 0)
    assert found["low_ns"] <= 104 * MS <= found["high_ns"]
    assert step.not_waited_for == ["G/rank0", "G/rank1"]
    rows = {(row["worker"], row["phase"]): row for row in Graph(step).slack_rows()}
    assert (rows["G/rank0", "data"]["low_ns"], rows["G/rank0", "data"]["slack_ns"]) == (30 * MS, 34 * MS)
    assert late_host().not_waited_for == []


def test_a_collective_behind_another_moves_with_it() -> None:
    """Two all-reduces are queued on each device; between both rank 1's works 10 ms. Rank 1's data in half the time: the first
    begins when rank 0 arrives (40), is over at 50, the second begins when rank 1's device is through (60) and is over at 70."""
    args = called("allreduce", 2)
    ranks = [Both(0), Both(1)]
    for rank, data in zip(ranks, (39_000, 69_000), strict=True):
        rank.phase("data", 0, data).phase("update", data, 105_000)
        rank.kernel("nccl", data + 1_000, 80_000, data, args=args)
    ranks[0].kernel("nccl", 80_000, 100_000, 41_000, args=args)
    ranks[1].kernel("gemm", 80_000, 90_000, 71_000).kernel("nccl", 90_000, 100_000, 72_000, args=args)
    ranks[0].waits(45_000, 100_010)
    ranks[1].waits(75_000, 100_010)
    found = what_if(step_of(*ranks), {"data": 0.5}, 1)
    assert found["predicted_ns"] == 75 * MS


def test_work_behind_a_collective_holds_the_host_too() -> None:
    """Rank 0 calls synchronize when the collective is over, while what was queued behind it still runs, until 110."""
    args = called("allreduce", 2)
    ranks = [Both(0), Both(1)]
    for rank, data in zip(ranks, (39_000, 69_000), strict=True):
        rank.phase("data", 0, data).phase("update", data, 115_000)
        rank.kernel("nccl", data + 1_000, 80_000, data, args=args)
        rank.kernel("gemm", 80_000, 110_000, data + 1_000)
        rank.waits(90_000, 110_010)
    found = what_if(step_of(*ranks), {"data": 61 / 69}, 1)  # 8 ms earlier
    assert abs(found["predicted_ns"] - 107 * MS) < 20_000


def test_clocks_that_were_not_compared_leave_it_open() -> None:
    """Kernels of files whose clocks nobody compared cannot be put beside the host's phases: the interval reaches over all of the
    change, and the note says why."""
    ranks = []
    for number, data in enumerate((39_000, 69_000)):
        rank = Both(number, host="ab"[number], error=None).phase("data", 0, data).phase("update", data, 85_000)
        ranks.append(rank.kernel("nccl", data + 1_000, 80_000, data, args=called("allreduce", 2)))
    step = step_of(*ranks)
    assert (step.joints, step.loose_ns) == ([], 30 * MS)
    found = what_if(step, {"data": 0.5}, 1)
    assert found["low_ns"] <= 50.5 * MS
    assert "30 ms waited) and are not replayed, because their files' clocks were not compared" in found["notes"][-1]


@relaxed
@given(st.integers(0, 2**30), st.integers(2, 4), st.sampled_from([0.0, 0.4, 1.0, 1.7, 4.0]), st.booleans())
def test_the_replay_is_what_would_have_been(seed: int, ranks: int, factor: float, remove: bool) -> None:
    """Ranks work, launch a collective and wait for it, some rounds: with one rank's work ``factor`` times as long the replay
    takes as long as the same run simulated so, to the ns."""
    rng = random.Random(seed)
    rounds = [
        ([rng.randrange(30, 3_000) for _ in range(ranks)], rng.randrange(30, 900)) for _ in range(rng.randrange(1, 6))
    ]
    culprit = rng.randrange(ranks)
    shifts = [rng.randrange(-(10**13), 10**13) for _ in range(ranks)]

    def run(scale: float, remove: bool) -> list[Both]:
        files = [Both(rank, shift=shifts[rank]) for rank in range(ranks)]
        at = [0.0] * ranks
        for lengths, transfer in rounds:
            arrive = [at[r] + lengths[r] * (scale if r == culprit else 1.0) for r in range(ranks)]
            for rank, file in enumerate(files):
                end = (arrive[rank] if remove else max(arrive)) + transfer
                file.phase("work", round(at[rank]), round(arrive[rank]))
                file.phase("reduce", round(arrive[rank]), round(end))
                file.kernel(
                    "nccl", round(arrive[rank]), round(end), round(arrive[rank]) - 1, args=called("allreduce", ranks)
                )
                file.waits(round(arrive[rank]), round(end))
                at[rank] = end
        return files

    before = step_of(*run(1.0, remove=False))
    expected = max(one.end_ns for file in run(factor, remove) for one in file.leaves)
    found = Graph(before).replayed(
        lambda one: factor if one.rank == culprit and one.phase == "work" else 1.0, remove_wait=remove
    )
    assert abs(found - expected) <= len(rounds) * US


@pytest.mark.parametrize(("wall", "said"), [(1_000_000, False), (1_900_000, False), (9_000_000, True)])
def test_a_step_that_took_longer_than_its_windows_is_said(run_maker: Any, event: Any, wall: int, said: bool) -> None:
    """The controller's 9 ms and the 1 ms of the step's only window both stand, with the reason; 0.9 ms apart is no news."""
    run_maker.timeline(run_maker.target(0), [event("work", 0, 1000)], steps=(2,), end_us=1000)
    run_maker.manifest["metrics"] = {"steps": [{"step": 2, "wall_ns": wall, "window": True, "seconds": {}}]}
    summary = summarise(run_maker.write()).to_json()
    assert (summary["steps"][0]["wall_ns"], summary["critical_path"][0]["wall_ns"]) == (wall, 1_000_000)
    lines = [line for line in summary["notices"] if "another time than its windows" in line]
    assert bool(lines) == said
    if said:
        assert "step 2 took another time than its windows" in lines[0]
        assert "step 2 9 ms, its windows 1 ms (the rest is before they open" in lines[0]


def test_windows_without_a_phase_are_said_so(run_maker: Any) -> None:
    """Nobody is named for a step in which nothing was recorded."""
    run_maker.timeline(run_maker.target(0), [])
    found = summarise(run_maker.write()).report()
    assert (found.critical_path[0].wall_ns, found.slack) == (1_000_000, [])
    assert sentences(found)[0] == "Step 2 took 1 ms; no phase ran in its windows."


def test_of_many_collectives_the_longest_waits_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for two kernels of four those of the collective in which a rank waited longer are followed; of the other, in which
    50 ms were waited, whatif says that it keeps its length."""
    monkeypatch.setattr(joints, "MAX_ARRIVALS", 3)
    args = called("allreduce", 2)
    ranks = [Both(0).phase("work", 0, 900), Both(1).phase("work", 0, 900)]
    for rank, (first, second) in zip(ranks, ((100, 500), (150, 700)), strict=True):
        rank.kernel("nccl", first, 200, args=args).kernel("nccl", second, 800, args=args)
    step = step_of(*ranks)
    [joint] = step.joints
    assert joint.at_ns == 700 * US
    assert step.left_out == [50 * US]
    [note] = [note for note in what_if(step, {"work": 0.5})["notes"] if "too many" in note]
    assert note.startswith("1 collectives on the device, in none of which a rank waited more than 0.05 ms")


def test_a_step_that_workers_begin_at_different_times_says_what_is_of_the_step_before(
    run_maker: Any, event: Any
) -> None:
    """Rank 1's ``opt`` of the step before goes on for 60 ms when rank 0 has begun: nothing in the step says so, and making it
    shorter in every step takes that time away too."""
    first, second = (run_maker.target(rank, host="node") for rank in (0, 1))
    sync = {"category": "collective"}
    run_maker.timeline(
        first, [event("fwd", 100_000, 50_000), event("sync", 150_000, 61_000, **sync), event("opt", 211_000, 20_000)],
        steps=(3,), at_us=100_000, end_us=130_000,
    )  # fmt: skip
    run_maker.timeline(
        second, [event("fwd", 160_000, 50_000), event("sync", 210_000, 1_000, **sync), event("opt", 211_000, 80_000)],
        steps=(3,), at_us=160_000, end_us=131_000,
    )  # fmt: skip
    (step,) = summarise(run_maker.write()).waits.of
    late = next(worker for worker in step.late if worker.endswith("rank1"))
    assert step.late[late] == 60_000_000
    unchanged = what_if(step, {"nothing": 0.5})
    assert not any("opened" in note for note in unchanged["notes"])
    faster = what_if(step, {"opt": 0.25})
    assert any(f"the window of {late} opened 60 ms after" in note for note in faster["notes"])
    # of 191 ms 60 were made in the step before, and 60 are taken from this step's own opt
    assert faster["low_ns"] <= 71_000_000 < 131_000_000 <= faster["high_ns"] < 140_000_000
    assert what_if(step, {"opt": 2})["high_ns"] >= 191_000_000 + 2 * 80_000_000
    assert any(f"the window of {late} opened" in note for note in what_if(step, {"opt": 0.25}, rank=1)["notes"])
    assert not any("opened" in note for note in what_if(step, {"opt": 0.25}, rank=0)["notes"])


def test_a_phase_is_of_the_step_that_its_worker_is_in(run_maker: Any, event: Any) -> None:
    """Rank 0 begins step 4 at 120 ms, rank 1 reads and writes in step 3 until 150: with its write at 130 still of step 3, whose path it
    is on; in step 4 rank 1 computes from 150 on."""
    first, second = (run_maker.target(rank, host="node") for rank in (0, 1))
    run_maker.timeline(first, [event("fwd", 0, 120_000)], steps=(3,), end_us=120_000)
    run_maker.timeline(first, [event("fwd", 120_000, 80_000)], steps=(4,), at_us=120_000, end_us=80_000)
    run_maker.timeline(second, [event("read", 0, 130_000), event("write", 130_000, 20_000)], steps=(3,), end_us=150_000)
    run_maker.timeline(second, [event("fwd", 150_000, 60_000)], steps=(4,), at_us=150_000, end_us=60_000)
    three, four = summarise(run_maker.write()).waits.of
    found = [[(one.rank, one.phase) for one in step.leaves] for step in (three, four)]
    assert found == [[(0, "fwd"), (1, "read"), (1, "write")], [(0, "fwd"), (1, "fwd")]]
    assert [(part["phase"], part["ns"] / MS) for part in Graph(three).path()] == [("read", 130), ("write", 20)]
    assert what_if(three, {"write": 0.0})["predicted_ns"] == 130 * MS
