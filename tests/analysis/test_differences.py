"""What a dump of the flight recorder says of its last step."""

from __future__ import annotations

import random

import pytest

from accelprof.analysis.differences import WorkerSteps, differences, steps_of
from accelprof.analysis.run import WorkerId
from accelprof.analysis.summary import summarise
from accelprof.contracts.spans import ROW_COLUMNS, Kind, Span
from accelprof.output import dumps
from tests.analysis.conftest import RunMaker

MS = 1_000_000


def named(label, group="G", **facts):
    return WorkerId(label, label, group, **facts)


def worker(label, steps, **facts):
    """``steps``: step -> [(phase, ms)], one after the other; a step a second."""
    spans = []
    for number, phases in steps.items():
        at = begin = number * 1000 * MS
        for phase, ms in phases:
            category = "collective" if phase == "actor/all_reduce" else ""
            spans.append(Span(phase, Kind.PHASE, at, at + ms * MS, 1, 7, category=category))
            at += ms * MS
        spans.append(Span(f"step {number}", Kind.STEP, begin, at, 1, 0, task="steps"))
    return steps_of(named(label, **facts), spans)


def usual(forward=20, reduce=5):
    return [("actor/forward", forward), ("actor/all_reduce", reduce)]


def test_the_slow_rank_and_its_phase_are_named_and_who_waited():
    """One rank is long in a phase of its own, the others in the collective: the first is named, the others waited for it."""
    normal = {number: usual() for number in range(1, 6)}
    workers = [
        worker("G/rank0", {**normal, 6: usual(20, 105)}),
        worker("G/rank1", {**normal, 6: usual(120, 5)}),
    ]
    said = differences(workers, 6, "slow")
    assert said[0] == "step 6 took 0.12 s, 5.0 times the median of the 5 steps before"
    assert said[1] == "G/rank1 was 0.10 s longer in actor/forward than in the steps before"
    assert said[2] == "G/rank0 waited for G/rank1 in actor/all_reduce, up to 0.10 s longer than usual"
    assert len(said) == 3


def test_the_injected_rank_is_found_whichever_it_is():
    """Generated runs with noise: the rank and phase that were slowed are the first that are named, in every one."""
    draw = random.Random(3)
    for _ in range(100):
        ranks, slow = draw.randrange(2, 9), 0
        slow, phase = draw.randrange(ranks), draw.choice(["a", "b", "c"])
        workers = []
        for rank in range(ranks):
            steps = {}
            for number in range(1, 12):
                times = {name: draw.randrange(10, 14) for name in "abc"}
                extra = 200 if number == 11 else 0
                if rank == slow:
                    times[phase] += extra
                steps[number] = [*times.items(), ("actor/all_reduce", 4 if rank == slow else 4 + extra)]
            workers.append(worker(f"G/rank{rank}", steps))
        said = differences(workers, 11, "slow")
        assert said[1].startswith(f"G/rank{slow} was 0.20 s longer in {phase} ")
        assert f"waited for G/rank{slow} in actor/all_reduce" in said[2]


def hung(label, running, phases=(), until=4000, **facts):
    """Five steps of 25 ms, then one that runs from 6000 ms to ``until`` ms later, with ``phases`` done and ``running`` in progress."""
    spans = []
    for number in range(1, 7):
        at = begin = number * 1000 * MS
        for phase, ms in [("actor/forward", 20), ("actor/all_reduce", 5)] if number < 6 else phases:
            category = "collective" if phase == "actor/all_reduce" else ""
            spans.append(Span(phase, Kind.PHASE, at, at + ms * MS, 1, 7, category=category))
            at += ms * MS
        end = at if number < 6 else begin + until * MS
        if number == 6 and running:
            category = "collective" if running == "actor/all_reduce" else ""
            spans.append(Span(running, Kind.PHASE, at, end, 1, 7, category=category, args={ROW_COLUMNS["cut"]: True}))
        cut = {ROW_COLUMNS["cut"]: True} if number == 6 else {}
        spans.append(Span(f"step {number}", Kind.STEP, begin, end, 1, 0, task="steps", args=cut))
    return steps_of(named(label, **facts), spans)


def test_a_rank_that_hangs_outside_every_phase_is_the_one_they_wait_for():
    """It has no phase that is longer: the time of its step that is in none is, wherever in the step it stands."""
    for done in ([], [("actor/forward", 20)], [("actor/forward", 20), ("actor/all_reduce", 5)]):
        waiters = [hung(f"G/rank{rank}", "actor/all_reduce", [("actor/forward", 20)]) for rank in (0, 1, 3)]
        said = differences([*waiters, hung("G/rank2", "", done)], 6, "hang", {"G/rank2": "stacks-G-r2.txt"})
        assert said[0] == "step 6 had taken 4.00 s, 160.0 times the median of the 5 steps before and was still running"
        assert said[1].startswith("G/rank2 was ")
        assert said[1].endswith(" s longer outside every phase than in the steps before")
        assert said[2].startswith("G/rank0, G/rank1, G/rank3 waited for G/rank2 in actor/all_reduce, up to ")
        assert said[3:] == [
            *(f"G/rank{rank} was in actor/all_reduce" for rank in (0, 1, 3)),
            "G/rank2 was outside every phase",
            "what G/rank2 was doing there is in stacks-G-r2.txt",
        ]


def test_whoever_does_not_wait_is_waited_for_where_nothing_can_be_compared():
    """A rank that stands in a phase that is no longer than usual, or whose ring ends early, is named all the same in a hang."""
    waiters = [hung(f"G/rank{rank}", "actor/all_reduce", [("actor/forward", 20)]) for rank in (0, 1)]
    said = differences([*waiters, hung("G/rank2", "actor/forward", until=20)], 6, "hang")
    assert "G/rank0, G/rank1 waited for G/rank2 in actor/all_reduce, up to 3.98 s longer than usual" in said


def test_ranks_that_wait_unseen_hide_nobody():
    """Where no range says that ranks wait, all of them are longer in one phase: that is one sentence, and the slow one has its own."""
    steps = {number: [("forward", 20), ("sync", 5)] for number in range(1, 6)}
    late = {**steps, 6: [("forward", 20), ("sync", 106)]}
    workers = [worker(f"G/rank{rank}", late) for rank in (0, 1, 3, 4)]
    said = differences([*workers, worker("G/rank2", {**steps, 6: [("forward", 120), ("sync", 5)]})], 6, "slow")
    assert said[1:] == [
        "G/rank4, G/rank3, G/rank1 and 1 more were up to 0.10 s longer in sync than in the steps before",
        "G/rank2 was 0.10 s longer in forward than in the steps before",
    ]


def test_who_has_not_begun_the_step_of_a_hang_is_looked_for_first():
    """Others are longer in a phase in which they wait unseen: the stacks that matter are those of the rank that is a step behind."""
    waiters = [hung(f"G/rank{rank}", "actor/sync", [("actor/forward", 20)]) for rank in (0, 2)]
    files = {f"G/rank{rank}": f"stacks-{rank}.txt" for rank in range(3)}
    behind = worker("G/rank1", {number: usual() for number in range(1, 6)})
    said = differences([*waiters, behind], 6, "hang", files)
    assert said[-1] == "what G/rank1 was doing there is in stacks-1.txt"


def test_a_worker_of_another_group_is_not_what_a_hang_waits_for():
    """A critic that works in every other step is behind nobody: the others wait for the rank that is long in a phase."""
    waiters = [hung(f"G/rank{rank}", "actor/all_reduce", [("actor/forward", 20)]) for rank in (0, 2)]
    critic = worker("Critic/rank0", {number: [("critic/values", 20)] for number in (1, 3, 5)}, group="Critic")
    files = {"G/rank1": "stacks-1.txt", "Critic/rank0": "stacks-critic.txt"}
    said = differences([critic, *waiters, hung("G/rank1", "actor/forward")], 6, "hang", files)
    assert "G/rank0, G/rank2 waited for G/rank1 in actor/all_reduce, up to 3.98 s longer than usual" in said
    assert said[-1] == "what G/rank1 was doing there is in stacks-1.txt"


@pytest.mark.parametrize(
    ("labels", "facts"),
    [
        (["G/replica0/rank0", "G/replica0/rank1"], {"replica": 0}),
        (["G/rank0", "G/rank0/engine1"], {}),
        (["G/rank0", "G/rank0 (pid 7 on rack/3)"], {}),
    ],
)
def test_whose_ranks_wait_for_each_other_is_no_matter_of_labels(labels, facts):
    """The second is a step behind: the first waits for it, and not for a rank of another replica, which is behind too and works in
    every other step, nor for a group whose name begins alike."""
    others = [
        worker("G/replica3/rank0", {number: [("load", 20)] for number in (1, 3, 5)}, replica=3),
        worker("G/rank9/rank0", {number: [("load", 20)] for number in (1, 3, 5)}, group="G/rank9"),
    ]
    waits = hung(labels[0], "actor/all_reduce", [("actor/forward", 20)], **facts)
    behind = worker(labels[1], {number: usual() for number in range(1, 6)}, **facts)
    said = differences([*others, waits, behind], 6, "hang", {labels[1]: "stacks-1.txt"})
    assert f"{labels[0]} waited for {labels[1]} in actor/all_reduce, up to 3.98 s longer than usual" in said
    assert said[-1] == f"what {labels[1]} was doing there is in stacks-1.txt"


def test_stacks_are_of_the_process_that_is_waited_for(event, tmp_path):
    """Two processes have one label, so the dump says which is which; the one that is a step behind has its stacks named."""
    dumps.begin(str(tmp_path), dumps.Cause("hang", 3, "nothing ended"), "watcher", 9)
    maker = RunMaker(tmp_path / "recorder/hang-1")
    for rank, last in ((0, 3), (1, 2)):
        key = maker.target(rank, "G", replica=1)
        maker.manifest["targets"][-1]["rank"] = 0
        steps = [event(f"step {n}", n * 1000, 900, "step", tid=0) for n in range(1, last + 1)]
        phases = [event("sync", n * 1000, 800 if n == 3 else 5, category="collective") for n in range(1, last + 1)]
        maker.timeline(key, [*steps, *phases], range(1, last + 1), end_us=5000)
        (maker.directory / f"stacks-{key}.txt").touch()
    said = summarise(maker.write()).dump
    assert said[-1] == "what G/replica1/rank0 (pid 101 on node1) was doing there is in stacks-G-r1-node1-101.txt", said


def test_time_outside_every_phase_is_somebody_elses_wait_in_a_slow_step_too():
    """A step that ended: the same."""
    steps = {number: usual() for number in range(1, 6)}
    slow = worker("G/rank1", steps)
    slow.times[6], slow.walls[6] = (
        {"actor/forward": 20 * MS, "actor/all_reduce": 5 * MS, "(outside every phase)": 100 * MS},
        125 * MS,
    )
    said = differences([worker("G/rank0", {**steps, 6: usual(20, 105)}), slow], 6, "slow")
    assert said[1] == "G/rank1 was 0.10 s longer outside every phase than in the steps before"
    assert said[2] == "G/rank0 waited for G/rank1 in actor/all_reduce, up to 0.10 s longer than usual"


def test_nested_time_counts_once():
    """What an inner phase took longer is the inner phase's alone."""
    spans = []
    for number in (1, 2, 3):
        at, inner = number * 1000 * MS, (10 if number < 3 else 90) * MS
        spans += [
            Span("outer", Kind.PHASE, at, at + inner + 10 * MS, 1, 7),
            Span("inner", Kind.PHASE, at + MS, at + MS + inner, 1, 7),
            Span(f"step {number}", Kind.STEP, at, at + inner + 10 * MS, 1, 0),
        ]
    said = differences([steps_of(named("G/rank0"), spans)], 3, "slow")
    assert said[1:] == ["G/rank0 was 80.0 ms longer in inner than in the steps before"]


def test_without_earlier_steps_nothing_is_called_longer():
    """A first step has nothing to be compared with: it has no sentence; nor have no steps at all."""
    assert differences([worker("G/rank0", {1: usual()})], 1, "request") == []
    assert differences([], None, "hang") == []


def test_who_never_began_the_first_step_is_awaited():
    """Rank 1 has begun no step while rank 0 waits in its first: rank 1 is named, with its stacks; also where nobody began one."""
    files = {"G/rank0": "stacks-0.txt", "G/rank1": "stacks-1.txt"}
    behind = WorkerSteps(named("G/rank1"), running=["load"])
    first = WorkerSteps(named("G/rank0"), {1: {"reduce": 9}}, {1: 9}, ["other"], 1)
    assert differences([first, behind], 1, "hang", files) == [
        "G/rank0 was in other",
        "G/rank1 was in load, and had not begun a step",
        "what G/rank1 was doing there is in stacks-1.txt",
    ]
    assert differences([behind], None, "hang", files) == [
        "G/rank1 was in load, and had not begun a step",
        "what G/rank1 was doing there is in stacks-1.txt",
    ]
    assert differences([behind], None, "slow") == []
