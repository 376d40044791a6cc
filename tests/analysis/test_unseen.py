"""Ranks that wait for each other inside phases, of which no file says so: the report and ``whatif`` do."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelprof.analysis.changes import headline
from accelprof.analysis.compare import compare
from accelprof.analysis.critical import Leaf, Step
from accelprof.analysis.first import sentences
from accelprof.analysis.frames import table
from accelprof.analysis.replay import Graph
from accelprof.analysis.sides import side, store
from accelprof.analysis.summary import summarise
from accelprof.analysis.table import grids
from accelprof.analysis.unseen import Apart, unseen_waits
from accelprof.analysis.whatif import what_if
from tests.analysis.conftest import RunMaker
from tests.analysis.test_host_collectives import Made, Phases
from tests.analysis.test_replay import late_host

MS = 1_000_000
#: rank 1 prepares for 200 ms longer, and rank 0 waits for it inside its backward
SLOW: list[Phases] = [
    [("prepare", 0, 20), ("forward", 20, 60), ("backward", 60, 330), ("optimizer", 330, 340)],
    [("prepare", 0, 220), ("forward", 220, 260), ("backward", 260, 330), ("optimizer", 330, 340)],
]


def test_ranks_that_may_wait_in_a_phase_are_said(run_maker: Any, event: Any) -> None:
    """The notice names backward, which began 200 ms apart and ended together; without rank 1's 200 ms the step takes 140, which the
    interval of ``whatif`` holds, and its note says why it reaches so far."""
    made = Made(run_maker, event, SLOW)
    [line] = [line for line in made.found["notices"] if "unseen inside phases" in line]
    assert line.startswith("G: no collective of its 2 ranks was recorded")
    assert "(backward began up to 200 ms apart, last on G/rank1, and ended together)" in line
    assert 'category="collective"' in line
    assert "tool torch" in line
    found = what_if(made.step, {"prepare": 1 / 11}, rank=1)
    assert found["low_ns"] <= 140 * MS
    [note] = [note for note in found["notes"] if "unseen inside phases" in note]
    assert "backward began up to 200 ms apart" in note
    assert what_if(made.step, {})["notes"] == []
    assert what_if(made.step, {}, remove_wait=True)["low_ns"] <= 140 * MS


def test_the_first_sentence_does_not_take_such_a_wait_for_work(run_maker: Any, event: Any) -> None:
    """79 % of the path is rank 0's backward, of which 200 of 270 ms may be waiting for rank 1: the sentence and the row say it."""
    made = Made(run_maker, event, [[*phases[:-1], (*phases[-1][:2], 340 - rank)] for rank, phases in enumerate(SLOW)])
    assert made.found["unseen"] == [
        {"step": 2, "group": "G", "phase": "backward", "apart_ns": 200 * MS, "last": "G/rank1"}
    ]
    [first, *_] = sentences(made.summary.report())
    assert "79% of its critical path is backward on G/rank0, which may have waited in it unseen" in first
    assert "began it up to 200 ms apart, last G/rank1, and ended together" in first
    # a step in which a rank left it a little later than the others is no other
    [row] = made.summary.waits.unseen
    made.summary.waits.unseen[0] = replace(row, step=1)
    assert "unseen (in step 1 its ranks began it" in sentences(made.summary.report())[0]
    # the rank that was the last of them there waited for nobody
    made.summary.waits.unseen[0] = replace(row, step=1, last="G/rank0")
    assert "unseen" not in sentences(made.summary.report())[0]


def test_path_and_slack_say_what_may_be_waiting(run_maker: Any, event: Any) -> None:
    """200 of the 270 ms of rank 0's backward on the path may be waiting, its forward is work; and rank 1's phases, which seem to have 1 ms to
    spare, may be what rank 0 waited for, so that they have none: with 1 ms more of prepare the real step is 1 ms longer."""
    made = Made(run_maker, event, [[*phases[:-1], (*phases[-1][:2], 340 - rank)] for rank, phases in enumerate(SLOW)])
    [path] = made.found["critical_path"]
    told = [(part["worker"], part["phase"], part.get("unseen", False)) for part in path["segments"]]
    assert told == [
        ("G/rank0", "prepare", False), ("G/rank0", "forward", False), ("G/rank0", "backward", True), ("G/rank0", "optimizer", False),
    ]  # fmt: skip
    rows = {row["phase"]: row for row in made.found["slack"]}
    assert {row["worker"] for row in made.found["slack"]} == {"G/rank1"}
    assert (rows["prepare"]["slack_ns"], rows["prepare"]["low_ns"], rows["prepare"]["unseen"]) == (MS, 0, True)
    text = "\n".join(line for grid in grids(made.summary) for line, _ in grid.lines(200))
    assert "backward (work or waiting)" in text
    assert "forward (work or waiting)" not in text
    assert "0 to 201 ms" in text
    on_path = {row["phase"] for row in table(made.summary, "critical_path").rows if row["unseen"]}
    assert on_path == {"backward"}
    assert all(row["unseen"] for row in table(made.summary, "slack").rows)


def test_a_group_whose_name_begins_alike_is_another(run_maker: Any, event: Any) -> None:
    """The path's largest part is backward of a worker of G/x, who waits for nobody: what is said of G's backward is not said of it."""
    alone: list[Phases] = [("prepare", 0, 10), ("backward", 10, 500)]
    for rank, (group, phases) in enumerate(zip(("G", "G", "G/x"), [*SLOW, alone])):
        run_maker.target(rank, group, host="node0", key=f"k{rank}")
        events = [event(name, start * 1000, (end - start) * 1000) for name, start, end in phases]
        run_maker.timeline(f"k{rank}", events, end_us=phases[-1][2] * 1000)
    found = summarise(run_maker.write()).report()
    assert [row.group for row in found.unseen] == ["G"]
    [first, *_] = sentences(found)
    assert "backward on G/x/rank2" in first
    assert "unseen" not in first


def test_what_the_windows_end_cut_did_not_end_together(run_maker: Any, event: Any) -> None:
    """Both ranks save on a thread of their own, since 20 and 200 ms, and still do when their windows close at 340 ms."""
    for rank, since in enumerate((20, 200)):
        key = run_maker.target(rank, "G", host="node0")
        saves = event("save", since * 1000, (340 - since) * 1000, tid=2, in_progress=True)
        run_maker.timeline(key, [event("train", 0, 339_000 - 60_000 * rank), saves], end_us=340_000)
    assert summarise(run_maker.write()).to_json()["unseen"] == []


def test_replicas_do_not_wait_for_each_other(run_maker: Any, event: Any) -> None:
    """Two engines of two ranks each: those of one replica may wait for each other, each said by its own; an engine of one rank waits
    for nobody, although another does the same at the same time."""
    ranks = [SLOW[0], SLOW[1], SLOW[0], SLOW[1], SLOW[0]]
    for rank, phases in enumerate(ranks):
        key = run_maker.target(rank, "G", host="node0", replica=rank // 2)
        run_maker.timeline(
            key, [event(name, start * 1000, (end - start) * 1000) for name, start, end in phases], end_us=340_000
        )
    lines = [line for line in summarise(run_maker.write()).to_json()["notices"] if "unseen inside phases" in line]
    assert [line.partition(":")[0] for line in lines] == ["G/replica0", "G/replica1"]
    assert all("of its 2 ranks" in line for line in lines)


def test_without_a_rank_that_is_late_no_phase_is_named(run_maker: Any, event: Any) -> None:
    """Both begin and end backward together: which of both was the slow one nothing tells, and that is said too."""
    made = Made(run_maker, event, [SLOW[1], SLOW[1]])
    [line] = [line for line in made.found["notices"] if "unseen inside phases" in line]
    assert "ended together" not in line
    found = what_if(made.step, {"backward": 0.5}, rank=1)
    assert found["low_ns"] <= (340 - 35) * MS


@pytest.mark.parametrize("how", ["on the host", "on the device", "one rank", "different programs", "a wait"])
def test_where_waiting_is_recorded_nothing_is_said(run_maker: Any, event: Any, how: str) -> None:
    """A collective, a phase in which one waits for the work of another, or nobody to wait for."""
    if how == "on the device":
        assert unseen_waits(Graph(late_host())) == []
        return
    ranks: dict[str, list[Phases]] = {
        "on the host": [[("f", 0, 10), ("ar*", 10, 40)], [("f", 0, 30), ("ar*", 30, 40)]],
        "one rank": [SLOW[0]],
        "different programs": [[("f", 0, 10)], [("g", 0, 30)]],
        "a wait": [[("f", 0, 10), ("recv", 10, 30), ("g", 30, 40)], [("f", 0, 30), ("g", 30, 40)]],
    }
    made = Made(run_maker, event, ranks[how])
    assert not any("unseen" in line for line in made.found["notices"])
    assert not any("unseen" in line for line in what_if(made.step, {"f": 0.5})["notes"])


def test_a_comparison_names_the_phase_that_made_others_wait_unseen(tmp_path: Path, event: Any) -> None:
    """Rank 1 prepares for 200 ms longer than before, and rank 0's backward grows by 205: prepare made both slower."""
    before = [[("prepare", 0, 20), ("forward", 20, 60), ("backward", 60, 125), ("optimizer", 125, 135)]] * 2
    for name, ranks in (("before", before), ("after", SLOW)):
        Made(RunMaker(tmp_path / name), event, ranks)
    found = compare(tmp_path / "before", tmp_path / "after")
    assert headline(found).startswith("prepare on G/rank1 takes 200 ms more")
    assert [note for note in found.notes if "ranks ended backward together" in note]
    # where nothing else changed it is backward, with what that may be
    store(side(str(tmp_path / "after")), str(tmp_path / "stored"))
    Made(
        RunMaker(tmp_path / "again"),
        event,
        [[*row[:2], ("backward", row[2][1], 400), ("optimizer", 400, 410)] for row in SLOW],
    )
    found = compare(tmp_path / "stored", tmp_path / "again")
    assert headline(found).startswith("backward on G/rank")
    assert "(in which ranks may wait for each other) takes 70 ms more" in headline(found)


def test_a_phase_in_which_ranks_wait_unseen_is_not_what_made_a_step_slow(run_maker: Any, event: Any) -> None:
    """In step 7 prepare of rank 1 is 100 ms longer and backward of rank 0 120: the windows say that ranks wait in backward."""
    rows = []
    for step in range(20):
        slow = step == 7
        seconds = {"prepare": (0.1 + 0.1 * slow, 1), "backward": (0.1 + 0.12 * slow, 0), "optimizer": (0.01, 0)}
        rows.append(
            {
                "step": step, "wall_ns": round((210 + 0.1 * (step % 3) + 120 * slow) * MS), "window": step == 2,
                "seconds": {name: {"max": taken, "mean": taken, "ranks": 2, "slowest": f"G/rank{rank}"} for name, (taken, rank) in seconds.items()},
            }
        )  # fmt: skip
    run_maker.manifest["metrics"] = {"steps": rows}
    made = Made(run_maker, event, SLOW)
    assert [(row["step"], row["phase"], row["worker"]) for row in made.found["outliers"]] == [(7, "prepare", "G/rank1")]


def test_calls_of_a_phase_are_compared_one_by_one() -> None:
    """Two micro-batches: in the first rank 1 is late and both end together, in the second nothing is; what is nested in backward,
    begins apart and ends apart, is none."""
    rows = {
        0: [("forward", 0, 10), ("backward", 10, 50), ("hook", 50, 52), ("backward", 52, 60), ("forward", 60, 70), ("backward", 70, 90)],
        1: [("forward", 0, 40), ("backward", 40, 44), ("hook", 44, 46), ("backward", 46, 60), ("forward", 60, 70), ("backward", 70, 90)],
    }  # fmt: skip
    leaves = [
        Leaf(f"G/rank{rank}", "G", 0, name, "", start * MS, end * MS, rank, ("backward",) if name == "hook" else ())
        for rank, mine in rows.items()
        for name, start, end in mine
    ]
    [found] = unseen_waits(Graph(Step((1,), 0, 90 * MS, leaves)))
    assert (found.group, found.workers, found.phases) == ("G", 2, {"backward": Apart(30 * MS, "G/rank1")})


def ddp(work: list[list[tuple[str, int]]]) -> Step:
    """Ranks whose ``backward`` ends when the last one has done its own part of it and 3 ms more, each by its work in ns."""
    at = [0] * len(work)
    leaves = []
    for place, (phase, _) in enumerate(work[0]):
        ends = [begin + mine[place][1] for begin, mine in zip(at, work, strict=True)]
        if phase == "backward":
            ends = [max(ends) + 3 * MS] * len(work)
        for rank, (begin, end) in enumerate(zip(at, ends, strict=True)):
            leaves.append(Leaf(f"G/rank{rank}", "G", 0, phase, "", begin, end, rank))
        at = ends
    return Step((1,), 0, max(at), leaves)


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 2**30))
def test_the_interval_holds_what_programs_that_wait_unseen_do(seed: int) -> None:
    """Two to four ranks, one to three backward passes, any phase of one rank or all in another time, and the step run again."""
    rng = random.Random(seed)
    phases = ["prepare", "forward", "backward"] * rng.randrange(1, 4) + ["optimizer"]
    work = [[(phase, rng.randrange(1, 100) * MS) for phase in phases] for _ in range(rng.randrange(2, 5))]
    phase, factor = rng.choice(phases), rng.choice([0.1, 0.5, 2.0])
    rank = rng.choice([None, *range(len(work))])
    changed = [
        [(name, round(ns * factor) if name == phase and rank in (None, at) else ns) for name, ns in mine]
        for at, mine in enumerate(work)
    ]
    found = what_if(ddp(work), {phase: factor}, rank)
    assert found["low_ns"] <= ddp(changed).wall_ns <= found["high_ns"]
