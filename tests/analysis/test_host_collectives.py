"""Collectives on the host: what one call is, which calls of ranks are one collective, and what their clocks are worth."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from accelprof.analysis.critical import Step, scatter
from accelprof.analysis.first import sentences
from accelprof.analysis.opened import OpenedRun
from accelprof.analysis.replay import Graph
from accelprof.analysis.report import Report
from accelprof.analysis.report_rows import CriticalPath, PathSegment, Straggler
from accelprof.analysis.summary import summarise
from accelprof.analysis.table import grids
from accelprof.analysis.waits import run_steps
from accelprof.analysis.whatif import what_if
from accelprof.cli.whatif import whatif

MS = 1_000_000
#: name (``*`` = of category collective), begin, end in ms
Phases = Sequence[tuple[str, float, float]]


class Made:
    """A run of workers on one host with phases as they are counted on paper."""

    def __init__(self, run_maker: Any, event: Any, ranks: Sequence[Phases], group: Any = "G", **facts: Any) -> None:
        groups = [group] * len(ranks) if isinstance(group, str) else group
        for rank, phases in enumerate(ranks):
            key = run_maker.target(rank, groups[rank], **{"host": "node0", **facts})
            end = max(end for _, _, end in phases)
            events = [
                event(name.rstrip("*"), start * 1000, (stop - start) * 1000, **({"category": "collective"} if "*" in name else {}))
                for name, start, stop in phases
            ]  # fmt: skip
            run_maker.timeline(key, events, end_us=end * 1000)
        self.summary = summarise(run_maker.write())
        self.found = self.summary.to_json()

    @property
    def step(self) -> Step:
        [step] = run_steps(self.summary.run, self.summary.timelines)
        return step

    @property
    def waits(self) -> list[tuple[Any, ...]]:
        return [
            (row["number"], row["phase"], row["worker"], row["waited_ns"] / MS, row["late_in"], row["missing"])
            for row in self.found["stragglers"]
        ]

    @property
    def path(self) -> list[tuple[str, str, float]]:
        [path] = self.found["critical_path"]
        return [(part["worker"][-5:], part["phase"], part["ns"] / MS) for part in path["segments"]]

    def after(self, rank: int | None = None, **factors: float) -> float:
        return float(what_if(self.step, factors, rank, scatter_ns=scatter([]))["predicted_ns"] / MS)


@pytest.mark.parametrize("both", [False, True])
def test_a_phase_nested_in_a_collective_leaves_it_one(run_maker: Any, event: Any, both: bool) -> None:
    """Rank 0 packs inside the first all-reduce, or both do: there are two all-reduces, the n-th with the n-th; 30 ms are waited
    for rank 1 late in u, 25 for rank 1 late in w. With w a fifth on rank 1 rank 0's 10 ms decide: 60 + 10 + 5."""
    inside: Phases = [("pack", 45, 50)] if both else []
    made = Made(run_maker, event, [
        [("u", 0, 10), ("ar*", 10, 60), ("pack", 15, 20), ("w", 60, 70), ("ar*", 70, 100)],
        [("u", 0, 40), ("ar*", 40, 60), *inside, ("w", 60, 95), ("ar*", 95, 100)],
    ])  # fmt: skip
    assert made.waits == [(0, "ar", "G/rank1", 30, "u", []), (1, "ar", "G/rank1", 25, "w", [])]
    assert [part[:2] for part in made.path if part[1] in ("u", "w")] == [("rank1", "u"), ("rank1", "w")]
    assert sum(ns for _, _, ns in made.path) == 100
    assert made.after(w=0.2, rank=1) == 75
    assert made.after() == made.after(pack=0.5, rank=0) == 100
    assert made.after(u=0.5) == 80


def test_what_is_nested_is_replayed_in_its_place(run_maker: Any, event: Any) -> None:
    """Rank 0 packs from 50 to 55 inside the all-reduce, after rank 1 came at 40: with rank 1 at 20 rank 0 goes on at 30, packs
    until 35 and is through at 40, 20 ms after the last arrival as before; twice the packing ends it 5 ms later."""
    made = Made(run_maker, event, [
        [("u", 0, 10), ("ar*", 10, 60), ("pack", 50, 55)],
        [("u", 0, 40), ("ar*", 40, 60)],
    ])  # fmt: skip
    assert made.after(u=0.5) == 40
    assert made.after(pack=2.0) == 65


def test_a_collective_in_a_collective_is_one_wait(run_maker: Any, event: Any) -> None:
    """The outermost call counts: 30 ms for rank 1, late in u, once."""
    made = Made(run_maker, event, [
        [("u", 0, 10), ("sync*", 10, 60), ("ar*", 12, 60), ("w", 60, 70)],
        [("u", 0, 40), ("sync*", 40, 60), ("ar*", 42, 60), ("w", 60, 70)],
    ])  # fmt: skip
    assert made.waits == [(0, "sync", "G/rank1", 30, "u", [])]
    assert made.after(u=0.5) == 50


@pytest.mark.parametrize(("forward", "phase"), [(25, "micro_batch"), (60, "forward")])
def test_late_in_a_phase_with_what_is_nested_in_it(run_maker: Any, event: Any, forward: int, phase: str) -> None:
    """Rank 1 is 40 ms longer in its micro-batch alone and some in forward and backward, which are in it: the micro-batch is
    named where neither is most of the excess (25 of 40 + 25 + 20), forward where it is (60 of 40 + 60 + 10)."""
    backward = 20 if phase == "micro_batch" else 10
    made = Made(run_maker, event, [
        [("train", 0, 200), ("micro_batch", 0, 30), ("forward", 10, 20), ("backward", 20, 30), ("ar*", 30, 200)],
        [("train", 0, 200), ("micro_batch", 0, 70 + forward + backward), ("forward", 50, 60 + forward),
         ("backward", 60 + forward, 70 + forward + backward), ("ar*", 70 + forward + backward, 200)],
    ])  # fmt: skip
    assert made.waits == [(0, "ar", "G/rank1", 40 + forward + backward, phase, [])]


def test_waiting_in_pieces_is_not_scaled(run_maker: Any, event: Any) -> None:
    """Rank 0 is in an all-reduce 10-60, packs 35-38 in it, rank 1 comes at 55: 45 ms are waited, 5 transferred. Three times as slow a
    transfer ends it at 70, not at 10 + 3 x 25 + 3 = 88; without waiting rank 0 packs at 10 and rank 1 decides. With rank 1 there at 11
    rank 0 is through when it has packed, at its place in the call: 38."""
    made = Made(run_maker, event, [
        [("u", 0, 10), ("ar*", 10, 60), ("pack", 35, 38)],
        [("u", 0, 55), ("ar*", 55, 60)],
    ])  # fmt: skip
    [row] = made.found["stragglers"]
    assert (row["waited_ns"], row["transfer_ns"]) == (45 * MS, 5 * MS)
    assert row["waited_ns"] + row["transfer_ns"] == 50 * MS  # rank 0's call
    assert made.after(ar=3.0) == 70
    assert made.after(ar=0.2) == 56
    assert what_if(made.step, {"u": 0.2}, rank=1, remove_wait=True)["predicted_ns"] == 16 * MS
    assert made.after(u=0.2, rank=1) == 38


@pytest.mark.parametrize("names", ["ar*", "tp*"])
def test_subgroups_that_reduce_at_one_moment_are_said(run_maker: Any, event: Any, names: str) -> None:
    """Ranks 0 and 1 leave at 60 and 150 ms, ranks 2 and 3 at 80 and 180, twice in calls of one name that overlap: that they are one
    collective each is said to be ambiguous. With names of their own, or where all leave together, nothing is."""
    rows = [
        [("f", 0, begin), (name, begin, end), ("f", end, again), (name, again, over), ("f", over, 200)]
        for name, begin, end, again, over in (
            ("ar*", 40, 60, 120, 150), ("ar*", 45, 60, 125, 150), (names, 40, 80, 121, 180), (names, 50, 80, 124, 180),
        )
    ]  # fmt: skip
    said = [line for line in Made(run_maker, event, rows).found["notices"] if line.startswith("ambiguous")]
    assert len(said) == (names == "ar*")
    if said:
        assert "2 calls of ar " in said[0]
        assert "G/rank0, G/rank1 left together at another time than G/rank2, G/rank3" in said[0]


def test_groups_of_one_role_that_never_met(run_maker: Any, event: Any) -> None:
    """Ranks 0 and 1 reduce at 20 ms, ranks 2 and 3 at 70: two collectives, 10 ms for rank 1 and 20 for rank 3."""
    made = Made(run_maker, event, [
        [("f", 0, 10), ("ar*", 10, 22), ("g", 22, 100)], [("f", 0, 20), ("ar*", 20, 22), ("g", 22, 100)],
        [("f", 0, 50), ("ar*", 50, 72), ("g", 72, 100)], [("f", 0, 70), ("ar*", 70, 72), ("g", 72, 100)],
    ])  # fmt: skip
    assert made.waits == [(0, "ar", "G/rank1", 10, "f", []), (1, "ar", "G/rank3", 20, "f", [])]
    assert made.after(f=2.0, rank=1) == 40 + 2 + 78
    assert made.after(f=2.0, rank=3) == 140 + 2 + 28


#: s. ``test_a_late_rank_whose_call_began_when_the_others_had_left``
ASYNC: list[Phases] = [
    [("forward", 0, 50), ("backward", 50, 200), ("wait*", 200, 400), ("optimizer", 400, 440)],
    [("forward", 0, 50), ("backward", 50, 400), ("backward", 400, 500), ("wait*", 500, 500.1), ("optimizer", 500.1, 540.1)],
    [("forward", 0, 50), ("backward", 50, 202), ("wait*", 202, 400), ("optimizer", 400, 440)],
]  # fmt: skip


@pytest.mark.parametrize(("third", "alone", "says"), [(119, 3, ", 198 ms of it for G/rank2 too"), (20, 300, "")])
def test_of_several_late_ranks_the_last_is_not_the_only_one(
    run_maker: Any, event: Any, third: int, alone: int, says: str
) -> None:
    """Rank 3 comes at 120 ms, ranks 0 and 1 at 20, rank 2 at 119: 201 ms for rank 3, of which 198 for rank 2 too; without rank 3's own
    millisecond the step is 1 ms shorter. Where rank 2 comes at 20 too all 300 are for rank 3 alone."""
    works = [20, 20, third, 120]
    made = Made(
        run_maker, event, [[("work", 0, work), ("all_reduce*", work, 125), ("opt", 125, 128)] for work in works]
    )
    [row] = made.found["stragglers"]
    assert (row["worker"], row["alone_ns"]) == ("G/rank3", alone * MS)
    assert row["waited_ns"] == (120 * 3 - sum(works[:3])) * MS
    assert row["after"] == ("G/rank2" if third == 119 else "G/rank0")
    assert f"for G/rank3 in all_reduce (late in work){says}; " in sentences(made.summary.report())[0]
    assert made.after(rank=3, work=1 / 6) == (127 if third == 119 else 28)


def test_a_late_rank_whose_call_began_when_the_others_had_left(run_maker: Any, event: Any) -> None:
    """An all-reduce of ``async_op=True`` that rank 1 launches at 400 and waits for at 500: ranks 0 and 2 waited 200 and 198 ms for it, all
    but the 0.1 ms that its own call takes; what is transfer is not known. With its backward a third as long it launches at 167, ranks 0
    and 2 do not wait: 202 + 40 and the rest of their call."""
    made = Made(run_maker, event, ASYNC)
    [row] = made.found["stragglers"]
    assert (row["worker"], row["waited_by"], row["late_in"]) == ("G/rank1", ["G/rank0", "G/rank2"], "backward")
    assert (round(row["waited_ns"] / MS), row["transfer_ns"]) == (398, None)
    parts = {row["worker"]: row["parts"] for row in made.found["seconds"]}
    assert round(parts["G/rank0"]["idle_collective"] / MS) == 200
    assert "the other ranks waited 398 ms for G/rank1 in wait (late in backward)" in sentences(made.summary.report())[0]
    found = what_if(made.step, {"backward": 1 / 3}, rank=1)
    assert 240 * MS <= found["predicted_ns"] <= 250 * MS
    assert found["low_ns"] <= 242 * MS
    assert any("how long the transfer took is not known" in note for note in found["notes"])
    assert what_if(made.step, {})["predicted_ns"] == made.step.wall_ns


def test_one_that_left_a_broadcast_early_waited_for_its_sender_alone(run_maker: Any, event: Any) -> None:
    """Rank 0 sends at 50 and stays until rank 2 comes from ``eval`` at 300; rank 1 came at 20 and left at 51. Rank 1 waited 30 ms for rank
    0, rank 0 250 for rank 2. Of the all-reduce rank 0 is the last, late in the broadcast: that was no moment from which all went on.
    Without ``eval`` the step takes 250 ms less."""
    made = Made(run_maker, event, [
        [("f", 0, 50), ("broadcast*", 50, 301), ("g", 301, 401), ("ar*", 401, 402)],
        [("f", 0, 20), ("broadcast*", 20, 51), ("g", 51, 151), ("ar*", 151, 402)],
        [("f", 0, 50), ("eval", 50, 300), ("broadcast*", 300, 301), ("g", 301, 400.5), ("ar*", 400.5, 402)],
    ])  # fmt: skip
    assert made.waits == [
        (0, "broadcast", "G/rank0", 30, "f", []), (0, "broadcast", "G/rank2", 250, "eval", []),
        (0, "ar", "G/rank0", 250.5, "broadcast", []),
    ]  # fmt: skip
    assert made.after(eval=0, rank=2) == 152
    assert made.found["notices"] == []


def test_ranks_with_as_many_calls_have_their_nth_in_common(run_maker: Any, event: Any) -> None:
    """Rank 2 comes to its first call when the others are in their second: 85 ms of rank 0's second are waiting for it, none of its first."""
    made = Made(run_maker, event, [
        [("f", 0, 10), ("ar*", 10, 12), ("g", 12, 20), ("ar*", 20, 106)],
        [("f", 0, 10), ("ar*", 10, 12), ("g", 12, 20), ("ar*", 20, 106)],
        [("f", 0, 90), ("ar*", 90, 92), ("g", 92, 105), ("ar*", 105, 106)],
    ])  # fmt: skip
    assert [row[:4] for row in made.waits] == [(1, "ar", "G/rank2", 170)]


def test_a_rank_that_lacks_a_call(run_maker: Any, event: Any) -> None:
    """Rank 2 was not in the first of two: it is missing there, and its only call is the second."""
    made = Made(run_maker, event, [
        [("f", 0, 10), ("ar*", 10, 22), ("g", 22, 60), ("ar*", 60, 92), ("h", 92, 100)],
        [("f", 0, 20), ("ar*", 20, 22), ("g", 22, 90), ("ar*", 90, 92), ("h", 92, 100)],
        [("f", 0, 70), ("ar*", 70, 92), ("h", 92, 100)],
    ])  # fmt: skip
    assert made.waits == [(0, "ar", "G/rank1", 10, "f", ["G/rank2"]), (1, "ar", "G/rank1", 50, "g", [])]


def test_a_rank_that_left_nothing_is_missing(run_maker: Any, event: Any) -> None:
    """Four ranks were announced: rank 2 was killed before it wrote anything of the step, rank 3 never came. Both are missing where the
    others are all together; in what rank 0 and another group's rank do it may have had no part. The text says it too."""
    run_maker.target(2, "G", host="node0", world_size=4)
    made = Made(run_maker, event, [
        [("f", 0, 10), ("ar*", 10, 22), ("h", 22, 30)], [("f", 0, 20), ("ar*", 20, 22), ("h", 22, 30)],
    ], world_size=4)  # fmt: skip
    assert made.waits == [(0, "ar", "G/rank1", 10, "f", ["G/rank2", "rank 3"])]
    text = "\n".join(line for grid in grids(made.summary) for line, _ in grid.lines(80))
    assert "missing in some of them: G/rank2, rank 3." in " ".join(text.split())


@pytest.mark.parametrize("late_in", ["forward", "load"])
def test_a_rank_is_late_in_what_its_call_came_after(run_maker: Any, event: Any, late_in: str) -> None:
    """A thread loads the next batch meanwhile, for longer on rank 0 than its forward is: who was late in forward was not so in that. Where
    forward waits for the batch it was."""
    long = late_in == "load"
    for rank, load in enumerate((70, 4)):
        waits = (5 if rank else 50) if long else 0.01
        forward = 20 if long or rank else 60
        came = waits + forward
        events = [
            event("next", 0, waits * 1000, category="data"), event("forward", waits * 1000, forward * 1000),
            event("ar", came * 1000, (80 - came) * 1000, category="collective"),
            event("load", 0, (50.1 if long and not rank else load) * 1000, tid=2),
        ]  # fmt: skip
        run_maker.timeline(run_maker.target(rank, "G", host="node0"), events, end_us=81_000)
    [row] = summarise(run_maker.write()).to_json()["stragglers"]
    assert (row["worker"], row["late_in"]) == ("G/rank0", late_in)


@pytest.mark.parametrize("beside", ["load", "forward"])
def test_what_goes_on_beside_a_collective_hides_nothing_it_came_after(run_maker: Any, event: Any, beside: str) -> None:
    """Both ranks have a second thread that their calls did not come after, in a phase of its own or of the same name: rank 0 was late
    in the forward of its first thread, which took it 10 ms longer."""
    for rank, forward in enumerate((40, 30)):
        came = 5 + forward + 20
        events = [
            event("prepare", 0, 5000), event("forward", 5000, forward * 1000),
            event("ar", came * 1000, (80 - came) * 1000, category="collective"), event(beside, 5000, 30_000, tid=2),
        ]  # fmt: skip
        run_maker.timeline(run_maker.target(rank, "G", host="node0"), events, end_us=81_000)
    [row] = summarise(run_maker.write()).to_json()["stragglers"]
    assert (row["worker"], row["late_in"]) == ("G/rank0", "forward")


@pytest.mark.parametrize("tid", [None, 5])
def test_a_loop_on_another_thread_has_the_path_of_one_on_the_first(run_maker: Any, event: Any, tid: int | None) -> None:
    """A phase around the loop is open as the window closes: whatever thread trains, rank 0 has 30 ms of it behind its forward, which it
    ends the step with."""
    for rank, forward in enumerate((70, 99)):
        key = run_maker.target(rank, "G", host="node0")
        on = 100 + rank if tid is None else tid
        events = [
            event("fit", 0, 100_000, tid=on, in_progress=True),
            event("forward", 0, forward * 1000, tid=on),
        ]
        run_maker.timeline(key, events, end_us=100_000)
    [step] = run_steps((summary := summarise(run_maker.write())).run, summary.timelines)
    assert [(row["worker"], row["phase"], row["ns"] / MS) for row in Graph(step).path()] == [
        ("G/rank0", "forward", 70), ("G/rank0", "fit", 30),
    ]  # fmt: skip
    assert what_if(step, {"forward": 0.5}, 1)["predicted_ns"] == 100 * MS


@pytest.mark.parametrize("one", [False, True])
def test_replicas_reduce_each_for_itself(run_maker: Any, event: Any, one: bool) -> None:
    """Ranks of two replicas are in all_reduce at one moment: those of each wait for its own last one, 20 and 25 ms. Where all leave
    together it is one collective of the four, whose last came at 75."""
    arrived = {0: (40, 60), 1: (50, 75)}
    for replica, came in arrived.items():
        for rank, at in enumerate(came):
            left = 95 if one else came[1] + 20
            place = 2 * replica + rank
            key = run_maker.target(place, "R", host="node0", replica=replica, world_size=2)
            run_maker.manifest["targets"][-1]["rank"] = rank
            events = [
                event("generate", 0, at * 1000),
                event("all_reduce", at * 1000, (left - at) * 1000, category="collective"),
            ]
            run_maker.timeline(key, events, end_us=120_000)
    summary = summarise(run_maker.write())
    rows = [(row["worker"], row["number"], row["waited_ns"] / MS) for row in summary.to_json()["stragglers"]]
    if one:
        assert rows == [("R/replica1/rank1", 0, 75)]
        return
    assert rows == [("R/replica0/rank1", 0, 20), ("R/replica1/rank1", 0, 25)]
    [step] = run_steps(summary.run, summary.timelines)
    found = what_if(step, {"generate": 0.5})
    assert found["predicted_ns"] / MS == pytest.approx(95 + 25 - 37.5, abs=1)


def test_subgroups_with_names_of_their_own_miss_nobody(run_maker: Any, event: Any) -> None:
    """Two ranks reduce in one subgroup and two in another, each under a name of its own: nobody is missing, and what is behind the last
    arrival is transfer. Of a step that did not end the others may still come."""
    for rank, came in enumerate((40, 70, 50, 60)):
        name, last = ("tp0", 70) if rank < 2 else ("tp1", 60)
        events = [
            event("update", 0, came * 1000), event(name, came * 1000, (last + 10 - came) * 1000, category="collective"),
            event("write", (last + 10) * 1000, (110 - last) * 1000),
        ]  # fmt: skip
        run_maker.timeline(run_maker.target(rank, "G", host="node0"), events, end_us=120_000)
    summary = summarise(run_maker.write())
    rows = [(row["phase"], row["missing"], row["transfer_ns"] / MS) for row in summary.to_json()["stragglers"]]
    assert rows == [("tp1", [], 10), ("tp0", [], 10)]
    [step] = run_steps(summary.run, summary.timelines)
    assert not [note for note in what_if(step, {"update": 0.5})["notes"] if "missing" in note]


def test_a_transfer_shorter_than_the_clocks_error_leaves_the_answer_open(run_maker: Any, event: Any) -> None:
    """Clocks are 0.8 ms apart, as their errors allow, and the transfer takes 0.3: rank 0 seems to leave before rank 1 comes. With half
    of rank 1's update the step takes 50.3 ms, which the interval holds, and a note says why it reaches so far."""
    for rank, update in enumerate((40, 100)):
        key = run_maker.target(rank, "G", world_size=2)
        offset = {
            "offset_ns": 400_000 if rank == 0 else -400_000,
            "error_ns": 500_000,
            "at_ns": 0,
            "host": f"node{rank}",
        }
        run_maker.manifest["clock_offsets"][key] = offset
        left = 100_300 - update * 1000
        events = [event("update", 0, update * 1000), event("all_reduce", update * 1000, left, category="collective")]
        run_maker.timeline(key, events, end_us=100_300)
    summary = summarise(run_maker.write())
    [step] = run_steps(summary.run, summary.timelines)
    found = what_if(step, {"update": 0.5}, 1)
    assert found["low_ns"] <= 50.3 * MS <= found["high_ns"]
    assert [note for note in found["notes"] if "by clocks that are wrong by more than that" in note]


@pytest.mark.parametrize("beside", [(), ("serve",), ("save",), ("serve", "save")])
def test_phases_that_are_open_all_through_decide_nothing(run_maker: Any, event: Any, beside: tuple[str, ...]) -> None:
    """A loop on another thread than the first waits for a pool, and trains. What is open on the first thread, or on one more, from
    before the step until behind it changes neither path nor answer: with generations half as long the longest of them takes 60."""
    on = {"serve": 100, "save": 777}
    events = [
        event("roll", 0, 111_000, tid=555), event("gen", 10_000, 100_000, tid=600), event("gen", 10_000, 60_000, tid=601),
        event("train", 111_010, 19_990, tid=555), *(event(name, 0, 131_000, tid=on[name], in_progress=True) for name in beside),
    ]  # fmt: skip
    run_maker.timeline(run_maker.target(0, "G", host="node0"), events, end_us=131_000)
    summary = summarise(run_maker.write())
    [step] = run_steps(summary.run, summary.timelines)
    path = [(row["phase"], round(row["ns"] / MS)) for row in Graph(step).path() if row["ns"] > MS / 2]
    assert path == [("roll", 10), ("gen", 100), ("roll", 1), ("train", 20)]
    assert what_if(step, {"gen": 0.5})["predicted_ns"] / MS == pytest.approx(81, abs=0.1)


def test_work_beside_the_first_thread_may_be_for_no_one(run_maker: Any, event: Any) -> None:
    """A save that nothing came after ends at 50 ms: with the first thread's 100 ms made 10, whether the step waits for it is not known."""
    events = [
        event("a", 0, 40_000, tid=100), event("b", 40_000, 60_000, tid=100), event("save", 0, 50_000, tid=777),
    ]  # fmt: skip
    run_maker.timeline(run_maker.target(0, "G", host="node0"), events, end_us=100_000)
    summary = summarise(run_maker.write())
    [step] = run_steps(summary.run, summary.timelines)
    found = what_if(step, {"a": 0.1, "b": 0.1})
    assert found["low_ns"] <= 10 * MS
    assert found["high_ns"] >= 50 * MS
    [note] = found["notes"]
    assert note.startswith(
        "whether the step's end waits for save on G/rank0, on a thread that nothing came after, is not known"
    )


@pytest.mark.parametrize("died", [True, False])
def test_what_ranks_were_in_without_another_is_no_transfer(run_maker: Any, event: Any, died: bool) -> None:
    """Ranks 0 and 1 come at 10 and 20 ms and leave at 2,000; rank 2 has an earlier window and nothing of this step. Rank 0 waited 10 ms
    for rank 1; what both are in after that may be waiting for rank 2: 3,960 ms in all. Where the step did not end that comes first."""
    run_maker.manifest["metrics"] = {
        "steps": [{"step": 2, "seconds": {}, "window": True, **({"ended": False} if died else {"wall_ns": 2000 * MS})}]
    }
    key = run_maker.target(2, "G", host="node0")
    run_maker.timeline(key, [event("f", -500_000, 1000)], steps=(1,), end_us=1000, at_us=-500_000)
    made = Made(run_maker, event, [[("f", 0, 10), ("ar*", 10, 2000)], [("f", 0, 20), ("ar*", 20, 2000)]])
    [row] = made.found["stragglers"]
    assert made.waits == [(0, "ar", "G/rank1", 10, "f", ["G/rank2"])]
    assert (row["without_ns"], row["transfer_ns"]) == (3960 * MS, None)
    parts = {row["worker"]: {part: ns / MS for part, ns in row["parts"].items() if ns} for row in made.found["seconds"]}
    assert parts["G/rank0"] == {"compute": 10, "idle_collective": 1990}
    assert parts["G/rank1"] == {"compute": 20, "idle_collective": 1980}
    said = "did not end: G/rank2 is missing in ar, in which the other ranks were for 3.96 s in all after the last of them came."
    assert sentences(made.summary.report())[0].endswith(said) is died
    rows = OpenedRun(made.summary).rows("critical_path")
    assert {row["step"]: row["ended"] for row in rows} == {1: True, 2: not died}


def test_that_a_step_did_not_end_is_said_beside_the_longest_that_did(run_maker: Any, event: Any) -> None:
    """Rank 1 dies in step 4 and rank 0, alone in its collective, fails: nothing says what step 4 takes, and step 2 is the longest."""
    rows = [{"step": 2, "seconds": {}, "wall_ns": 100 * MS}, {"step": 4, "seconds": {}, "ended": False}]
    run_maker.manifest["metrics"] = {"steps": rows}
    for rank, steps in enumerate([(2, 4), (2,)]):
        key = run_maker.target(rank, "G", host="node0")
        for step in steps:
            at, came = 200_000 * (step == 4), 20_000 * (1 + rank)
            begun = [event("f", at, came), event("ar", at + came, 50_000 - came, category="collective")]
            run_maker.timeline(key, begun, steps=(step,), end_us=100_000, at_us=at)
    [first, *_] = sentences(summarise(run_maker.write()).report())
    assert first.startswith(
        "Step 4 did not end: the process failed in it, or was told to end; step 2 took 100 ms: the other ranks waited"
    )


def test_whatif_of_a_step_that_did_not_end_says_so(run_maker: Any, event: Any) -> None:
    """Step 4 took longest because rank 2 died in it: without ``--step`` step 2 is replayed. Asked for, its notes say that it did not end,
    who is missing, and that what was waiting and what transfer is not known; nor are the ends of the interval."""
    run_maker.manifest["metrics"] = {
        "steps": [
            {"step": 2, "seconds": {}, "window": True, "wall_ns": 100 * MS},
            {"step": 4, "seconds": {}, "window": True, "ended": False},
        ]
    }
    for rank, came in enumerate((10, 20, 60)):
        key = run_maker.target(rank, "G", host="node0")
        for step, end, at in ((2, 100, 0), (4, 8000, 200)):
            begun = [event("f", at * 1000, came * 1000)]
            if step == 2 or rank < 2:
                begun.append(event("ar", (at + came) * 1000, (end - came) * 1000, category="collective"))
            run_maker.timeline(
                key, begun, steps=(step,), end_us=(end if len(begun) > 1 else came) * 1000, at_us=at * 1000
            )
    directory = run_maker.write()
    asked = ["--scale", "f=0.5"]
    found = json.loads(CliRunner().invoke(whatif, [directory, *asked, "--json"]).output)
    assert (found["step"], found["predicted_ns"], found["notes"]) == (2, 70 * MS, [])
    found = json.loads(CliRunner().invoke(whatif, [directory, "--step", "4", *asked, "--json"]).output)
    assert (found["step"], found["low_ns"], found["high_ns"]) == (4, None, None)
    assert found["notes"][0].startswith("step 4 did not end")
    [note] = [note for note in found["notes"] if "missing" in note]
    assert note.startswith(
        "G/rank2 is missing in ar, in which G/rank0 is 7980 ms after the last of the others came: what of that is"
    )
    assert "transfer is not known" in note
    text = CliRunner().invoke(whatif, [directory, "--step", "4", *asked]).output
    assert "interval not known" in text


def test_whatif_of_a_step_with_a_missing_rank_holds_what_it_may_have_waited(run_maker: Any, event: Any) -> None:
    """Rank 2 is not recorded: of the 60 ms after rank 1 came any part may be waiting for it. With ``f`` half as long the step takes 70
    where all of it is transfer, and up to 80 where it is all waiting for rank 2, whose ``f`` nobody knows."""
    run_maker.target(2, "G", host="node0")
    made = Made(run_maker, event, [[("f", 0, 10), ("ar*", 10, 80)], [("f", 0, 20), ("ar*", 20, 80)]])
    found = what_if(made.step, {"f": 0.5})
    assert found["low_ns"] <= 10 * MS
    assert found["high_ns"] >= 80 * MS
    [note] = found["notes"][:1]
    assert note.startswith("G/rank2 is missing in ar, in which G/rank0 is 60 ms after the last of the others came")
    assert what_if(made.step, {})["low_ns"] == what_if(made.step, {})["high_ns"] == 80 * MS


def test_a_rank_without_a_record_is_not_missing_in_a_part_of_its_group(run_maker: Any, event: Any) -> None:
    """Ranks 0 and 1 reduce without 2 and 3, who reduce later: rank 4, of which nothing is there, may be of either part or of none."""
    run_maker.target(4, "G", host="node0")
    made = Made(run_maker, event, [
        [("f", 0, 10), ("ar*", 10, 22), ("g", 22, 100)], [("f", 0, 20), ("ar*", 20, 22), ("g", 22, 100)],
        [("f", 0, 50), ("ar*", 50, 72), ("g", 72, 100)], [("f", 0, 70), ("ar*", 70, 72), ("g", 72, 100)],
    ])  # fmt: skip
    assert [row[-1] for row in made.waits] == [[], []]


def test_waiting_ends_when_the_last_has_come(run_maker: Any, event: Any) -> None:
    """Rank 0 arrives at 40 ms, rank 1 at 70, both leave at 80: rank 0 waited 30 ms and communicated for 10, rank 1 for 10; the straggler's
    row says the same. A collective of one recorded rank says nothing of its waiting: all of it is."""
    made = Made(run_maker, event, [
        [("update", 0, 40), ("ar*", 40, 80), ("push*", 80, 90)], [("update", 0, 70), ("ar*", 70, 80), ("write", 80, 90)],
    ])  # fmt: skip
    parts = {row["worker"]: {part: ns / MS for part, ns in row["parts"].items() if ns} for row in made.found["seconds"]}
    assert parts == {
        "G/rank0": {"compute": 40, "communication_exposed": 10, "idle_collective": 30 + 10},
        "G/rank1": {"compute": 80, "communication_exposed": 10},
    }
    [row] = made.found["stragglers"]
    assert (row["waited_ns"], row["transfer_ns"]) == (30 * MS, 10 * MS)


def test_what_nobody_recorded_is_noted_once(run_maker: Any, event: Any) -> None:
    """Three ranks wait for data that no phase brings: one note, of the rank that waited longest."""
    made = Made(run_maker, event, [[("get_batch", 0, 30 + rank), ("f", 30 + rank, 90 + rank)] for rank in range(3)])
    [note] = [note for note in what_if(made.step, {"f": 0.5})["notes"] if "no phase of another ended" in note]
    assert note.startswith("G/rank2 waits 32 ms in get_batch (2 other workers at most as long)")


def test_a_collective_over_two_roles(run_maker: Any, event: Any) -> None:
    """The rollout waits 30 ms for the actor's update; with half of that the actor arrives at 30, as the rollout does."""
    made = Made(run_maker, event, [
        [("update", 0, 60), ("sync*", 60, 70), ("post", 70, 75)], [("gen", 0, 30), ("sync*", 30, 70), ("post", 70, 80)],
    ], ["Actor", "Rollout"])  # fmt: skip
    assert made.waits == [(0, "sync", "Actor/rank0", 30, "update", [])]
    assert made.after(update=0.5) == 50


def test_collectives_of_two_roles_that_end_apart_are_two(run_maker: Any, event: Any) -> None:
    """Two ranks of the actor and two of the critic reduce at the same time, each among themselves: 20 ms apart at their ends."""
    made = Made(run_maker, event, [
        [("u", 0, 10), ("ar*", 10, 40)], [("u", 0, 35), ("ar*", 35, 40)],
        [("v", 0, 20), ("ar*", 20, 60)], [("v", 0, 30), ("ar*", 30, 60)],
    ], ["Actor", "Actor", "Critic", "Critic"])  # fmt: skip
    assert made.waits == [(0, "ar", "Critic/rank3", 10, "v", []), (0, "ar", "Actor/rank1", 25, "u", [])]


def test_roles_on_clocks_that_nobody_compared_are_not_joined(run_maker: Any, event: Any) -> None:
    """Actor and critic reduce among themselves on a host each; nothing says that they ran at the same time. In a role the n-th calls are
    one, as ever."""
    for number, (group, phase) in enumerate([("Actor", "u"), ("Actor", "u"), ("Critic", "v"), ("Critic", "v")]):
        key = run_maker.target(number, group, host=f"node{number // 2}")
        late = 10_000 + 20_000 * (number % 2)
        events = [event(phase, 0, late), event("ar", late, 40_000 - late, category="collective")]
        run_maker.timeline(key, events, end_us=40_000)
    rows = summarise(run_maker.write()).to_json()["stragglers"]
    assert sorted((row["worker"], row["waited_ns"] / MS, row["low_ns"]) for row in rows) == [
        ("Actor/rank1", 20, 0), ("Critic/rank3", 20, 0),
    ]  # fmt: skip


def test_ranks_on_clocks_that_are_wrong_keep_their_order(run_maker: Any, event: Any) -> None:
    """Rank 1's clock is 5 ms ahead and said to be good to 6: its calls begin after rank 0's are over, and are still the same."""
    run_maker.manifest["clock_offsets"] = {
        f"G-r{rank}-node{rank}-{100 + rank}": {"offset_ns": 0, "error_ns": rank * 6 * MS, "host": f"node{rank}"}
        for rank in (0, 1)
    }
    made = Made(run_maker, event, [
        [("u", 0, 20), ("ar*", 20, 22), ("w", 22, 50), ("ar*", 50, 52), ("x", 52, 60)],
        [("u", 5, 24), ("ar*", 24, 27), ("w", 27, 40), ("ar*", 40, 57), ("x", 57, 65)],
    ], host="node")  # fmt: skip
    assert [row[:3] for row in made.waits] == [(0, "ar", "G/rank1"), (1, "ar", "G/rank0")]


def test_the_interval_is_that_of_two_clocks(run_maker: Any, event: Any) -> None:
    """20 ms were waited; one clock is right, the other within 10: 10 to 30."""
    run_maker.manifest["clock_offsets"] = {
        f"G-r{rank}-node{rank}-{100 + rank}": {"offset_ns": 0, "error_ns": rank * 10 * MS, "host": f"node{rank}"}
        for rank in (0, 1)
    }
    made = Made(run_maker, event, [[("u", 0, 40), ("ar*", 40, 80)], [("u", 0, 60), ("ar*", 60, 80)]], host="node")
    [row] = made.found["stragglers"]
    assert [row[name] / MS for name in ("low_ns", "waited_ns", "high_ns")] == [10, 20, 30]
    assert made.step.doubt_ns == 10 * MS


def test_a_collective_of_one_recorded_rank_is_said(run_maker: Any, event: Any) -> None:
    """Actor and rollout name the same weight sync differently, so neither has a partner: nothing of the answer is sure, and both
    the notes and the report say why."""
    made = Made(run_maker, event, [
        [("update", 0, 60), ("push*", 60, 70), ("post", 70, 75)], [("gen", 0, 30), ("pull*", 30, 70), ("post", 70, 80)],
    ], ["Actor", "Rollout"])  # fmt: skip
    assert made.waits == []
    found = what_if(made.step, {"update": 0.5})
    assert found["low_ns"] <= 50 * MS <= found["high_ns"]
    assert any(
        "Rollout/rank1 is 40 ms in pull, a collective in which no other rank was recorded" in note
        for note in found["notes"]
    )
    [line] = [line for line in made.found["notices"] if "no other rank was recorded" in line]
    assert line.startswith(
        "pull on Rollout/rank1 (step 2, 40 ms) is a collective in which no other rank was recorded, and 1 more"
    )
    same = what_if(made.step, {})
    assert same["low_ns"] == same["high_ns"] == 80 * MS


def test_the_first_sentence_says_that_clocks_are_not_known(run_maker: Any, event: Any) -> None:
    """Two hosts whose clocks nobody compared: the step's length stands with that."""
    ranks: list[Phases] = [[("u", 0, 40), ("ar*", 40, 80)], [("u", 0, 70), ("ar*", 70, 80)]]
    for rank, phases in enumerate(ranks):
        key = run_maker.target(rank, "G", host=f"node{rank}")
        run_maker.timeline(
            key, [event(name.rstrip("*"), a * 1000, (b - a) * 1000) for name, a, b in phases], end_us=80_000
        )
    found = summarise(run_maker.write()).report()
    assert sentences(found)[0].startswith(
        "Step 2 took 80 ms, as far as the clocks are known (those of node0, node1 were not compared); "
    )
    assert found.clocks_not_compared == ["node0", "node1"]


def test_the_first_sentence_says_of_a_step_what_was_waited_in_it(run_maker: Any, event: Any) -> None:
    """Of two steps that gather gradients only the second reduces them, and the first is the longer: the waiting is said of the step
    that it was in."""
    for rank, late in ((0, 0), (1, 230)):
        key = run_maker.target(rank, "G", host="node0")
        first = [event("forward", 0, 600_000), event("backward", 600_000, 100_000)]
        run_maker.timeline(key, first, [3], end_us=700_000)
        at, came = 1_000_000, 1_100_000 + late * 1000
        reduce = event("all_reduce", came, 1_340_000 - came, category="collective")
        run_maker.timeline(key, [event("backward", at, came - at), reduce], [4], end_us=340_000, at_us=at)
    assert sentences(summarise(run_maker.write()).report())[0] == (
        "Step 3 took 700 ms; 86% of its critical path is forward on G/rank0; in step 4 the other ranks waited 230 ms for G/rank1 in "
        "all_reduce (late in backward)."
    )


WAIT = Straggler(
    step=None, phase="ar", number=0, group="G", worker="", waited_ns=0, low_ns=0, high_ns=0, waited_by=["G/rank9"], late_in="b",
    missing=[], without_ns=0, transfer_ns=0, on="host", process_group=None, after="G/rank9", alone_ns=0,
)  # fmt: skip


@pytest.mark.parametrize("seed", range(50))
def test_a_wait_is_named_with_its_step(seed: int) -> None:
    """Of any steps and waits: a wait that stands before the critical path is the longest step's own, and another names its step."""
    rng = random.Random(seed)
    paths = [
        CriticalPath(step, rng.randrange(10, 20) * 100 * MS, [PathSegment("G/rank0", "p", 1)])
        for step in rng.sample(range(9), 3)
    ]  # fmt: skip
    waits = [
        replace(WAIT, step=rng.choice([None, *range(9)]), worker=f"G/rank{n}", waited_ns=rng.randrange(400) * MS, low_ns=rng.choice([0, 1]))
        for n in range(rng.randrange(6))
    ]  # fmt: skip
    longest = max(paths, key=lambda row: row.wall_ns)
    line = sentences(Report(critical_path=paths, stragglers=waits))[0]
    counted = {row.worker: row for row in waits if row.low_ns and row.waited_ns > longest.wall_ns / 100}
    own = [row for row in counted.values() if row.step == longest.step]
    others = [row for row in counted.values() if row.step not in (None, longest.step)]
    said = re.search(r"(?:in step (\d) )?the other ranks waited \S+ \S+ for (\S+) in ar", line)
    assert (said is not None) == bool(own or others)
    if said is not None:
        assert counted[said[2]].step == (longest.step if said[1] is None else int(said[1]))
        assert (said[1] is None) == bool(own)
        assert (line.index("the other ranks") < line.index("critical path")) == bool(own)


@pytest.mark.parametrize("recorded", [1, 2, 3, 4])
def test_ranks_that_are_not_recorded_leave_waiting_unknown(run_maker: Any, event: Any, recorded: int) -> None:
    """Of four ranks, however few are recorded: that others are not is said, and that their collective may be waiting or transfer; only
    of all four it is known."""
    ranks: list[Phases] = [[("update", 0, 20), ("all_reduce*", 20, 90), ("step", 90, 100)]] * recorded
    made = Made(run_maker, event, ranks, world_size=4)
    lines = [line for line in made.found["notices"] if "recorded (not" in line]
    said = [line for line in sentences(made.summary.report()) if "ranks are missing" in line]
    if recorded == 4:
        assert (lines, said, made.found["without_ns"]) == ([], [], 0)
        return
    [line] = lines
    assert line.startswith(f"G: {recorded} of 4 ranks {'is' if recorded == 1 else 'are'} recorded (not {recorded}")
    assert made.found["without_ns"] == recorded * 70 * MS
    [sentence] = said
    assert sentence.endswith(
        "in 70.0% a rank waited for another in a collective, or was in one of which ranks are missing, so that it is not known whether "
        "it waited (70.0%)."
    )


def test_the_only_rank_misses_nobody(run_maker: Any, event: Any) -> None:
    """A group of one rank is whole, and of a group that does not say its size nobody knows that others are missing."""
    for number, facts in enumerate([{"world_size": 1}, {}]):
        made = Made(type(run_maker)(run_maker.directory / str(number)), event, [[("all_reduce*", 20, 90)]], **facts)
        assert (made.found["without_ns"], made.found["notices"]) == (0, [])
