"""What a dump of the flight recorder says of its last step."""

from __future__ import annotations

import random

from accelprof.analysis.differences import differences, steps_of
from accelprof.contracts.spans import Kind, Span

MS = 1_000_000


def worker(label, steps):
    """``steps``: step -> [(phase, ms)], one after the other; a step a second."""
    spans = []
    for number, phases in steps.items():
        at = begin = number * 1000 * MS
        for phase, ms in phases:
            category = "collective" if phase == "actor/all_reduce" else ""
            spans.append(Span(phase, Kind.PHASE, at, at + ms * MS, 1, 7, category=category))
            at += ms * MS
        spans.append(Span(f"step {number}", Kind.STEP, begin, at, 1, 0, task="steps"))
    return steps_of(label, spans)


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
    said = differences([steps_of("G/rank0", spans)], 3, "slow")
    assert said[1:] == ["G/rank0 was 80.0 ms longer in inner than in the steps before"]


def test_without_earlier_steps_nothing_is_called_longer():
    """A first step has nothing to be compared with: it has no sentence; nor have no steps at all."""
    assert differences([worker("G/rank0", {1: usual()})], 1, "request") == []
    assert differences([], None, "hang") == []
