"""The windows that a set of steps makes, against the set listed out."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from accelprof.config.load import load_config
from accelprof.contracts.targets import Assignment, StepWindows, Target
from accelprof.numberset import LISTED, NumberSet
from accelprof.planning.plan import LISTED_WINDOWS, Plan
from accelprof.session.triggers.phases import Phases

records = pytest.importorskip("accelprof.cluster.roster", reason="ray").records


def listed(steps: NumberSet, merged: bool) -> list[tuple[int, int]]:
    """Number after number: a new window, or the last one goes on."""
    found: list[tuple[int, int]] = []
    for step in sorted(steps):
        if merged and found and found[-1][1] == step - 1:
            found[-1] = found[-1][0], step
        else:
            found.append((step, step))
    return found


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_every_answer_about_windows_of_steps_is_one(seed: int, merged: bool) -> None:
    """Of whom a step is, which there are from a step on, how many, and what plan, controller and phases make of them."""
    luck = random.Random(seed)
    steps = NumberSet.parse(luck.sample(range(30), luck.randint(1, 15)))
    if seed % 4 == 3:
        steps = steps.union(NumberSet.parse(f"40-{40 + 3 * LISTED + 6}/3"))
    windows, slow = StepWindows(steps, merged), listed(steps, merged)
    assert (len(windows), list(windows.since())) == (len(slow), slow)
    config = {"steps": steps.to_config(), "merge_steps": merged}
    assignment = Plan(load_config(config).config).assign(Target("G", rank=0))
    assert [(window[0], window[-1]) for window in assignment.windows] == slow[:LISTED_WINDOWS]
    assert assignment.count.exact == len(slow)
    captures: Any = SimpleNamespace(window=None)
    phases = Phases(assignment, captures, captures)
    for step in range(50):
        own = next((window for window in slow if window[0] <= step <= window[1]), None)
        assert windows.of(step) == assignment.window_of(step) == own
        assert records(assignment, step) == (own is not None)
        phases.step_begins(step, False)
        assert phases.watching() == (own is not None)
        later = [window for window in slow if window[1] >= step]
        assert (list(windows.since(step)), windows.number_since(step)) == (later, len(later))


@pytest.mark.parametrize(("mode", "own"), [("all", (3, 3)), ("process", None), ("off", None)])
def test_without_a_set_of_steps_each_is_alone_or_none_is(mode: Any, own: tuple[int, int] | None) -> None:
    """``all``: every step a window; otherwise no step makes one."""
    assignment = Assignment(Target("G"), True, mode=mode)
    assert assignment.window_of(3) == own
    assert records(assignment, 3) == (own is not None)
