"""``keep_others``: a schedule thins out one phase, and whatever else the step runs is recorded too, against slow models."""

from __future__ import annotations

import random

import pytest

import accelprof
from accelprof.testing import capture


def windows(calls):
    """Labels of the ranges in each capture, in order."""
    found: list[list[str]] = []
    for call in calls:
        if call.name == "capture_start":
            found.append([])
        elif call.name == "push" and found:
            found[-1].append(call.what)
    return found


def run(steps, work, **config):
    phases = {name: accelprof.timer(name)(lambda: None) for name in ("train", "infer", "sync")}

    @accelprof.timer("update")
    def update(trains):
        for _ in range(trains):
            phases["train"]()
            phases["sync"]()

    with capture(steps=list(steps), ranks="all", timeline=False, **config) as captured:
        for step in steps:
            with captured.session.step(step):
                for item in work[step]:
                    update(item) if isinstance(item, int) else phases[item]()
        captured.session.close()
        assert captured.backend.balanced()
        return windows(captured.backend.calls)


def continuous(spec, steps, work):
    """One trace from the step's beginning to the end of the last call of its first stretch; later stretches as ever."""
    found = []
    for step in steps:
        flat = [
            name
            for item in work[step]
            for name in (["update", *["train", "sync"] * item] if isinstance(item, int) else [item])
        ]
        trains, current = 0, []
        open_ = True
        for name in flat:
            if name == "train":
                action, turn = spec.place(trains)
                if action == "active" and not open_:
                    open_, current = True, []
                if open_:
                    current.append(name)
                following, next_turn = spec.place(trains + 1)
                if open_ and action == "active" and (following != "active" or next_turn != turn):
                    found.append(current)
                    open_ = False
                trains += 1
            elif open_:
                current.append(name)
        if open_:
            found.append(current)
    return found


def discrete(spec, steps, work):
    """Every outermost phase has a window; in ``update`` only the stretches have."""
    found = []
    for step in steps:
        for item in work[step]:
            if not isinstance(item, int):
                found.append([item])
                continue
            current, last = None, None
            for number in range(item):
                action, turn = spec.place(number)
                if action == "active" and (current is None or turn != last):
                    if current is not None:
                        found.append(current)
                    current, last = [], turn
                if current is not None and action == "active":
                    current.append("train")
                    following, next_turn = spec.place(number + 1)
                    if following == "active" and next_turn == turn:
                        current.append("sync")
                    else:
                        found.append(current)
                        current = None
            if current is not None:
                found.append(current)
    return found


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize(("mode", "model"), [(False, continuous), (True, discrete)], ids=["continuous", "discrete"])
def test_what_is_kept(seed, mode, model):
    """Any schedule over any work keeps what the model keeps, window by window."""
    draw = random.Random(seed)
    steps = range(1, draw.randint(2, 4))
    work = {
        step: draw.choices(["infer", "sync", *([] if mode else ["train"]), 0, 1, 2, 4], k=draw.randint(1, 5))
        for step in steps
    }
    schedule = {"phase": "train", "per": "update" if mode else "step", "active": draw.randint(1, 3), "keep_others": True,
                "repeat": draw.randint(0, 2)}  # fmt: skip
    if mode:
        schedule |= {"skip_first": draw.randint(0, 1), "wait": draw.randint(0, 1)}
    else:
        schedule |= {"warmup": 0}
    from accelprof.config.model import Schedule
    from accelprof.planning.sampling import to_spec

    expected = model(to_spec(Schedule.model_validate(schedule)), steps, work)
    assert run(steps, work, schedule=[schedule], discrete=mode) == expected


def test_calls_left_out_first_leave_the_rest_out():
    """Where calls are left out before the first that is recorded, the window begins with that one."""
    schedule = [{"phase": "train", "per": "step", "skip_first": 1, "keep_others": True}]
    assert run([1], {1: ["infer", 3, "infer"]}, schedule=schedule) == [["train"]]
