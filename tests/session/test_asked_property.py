"""Which windows were asked for and did not come: sessions that end or die at any moment, beside a slow reading of plan and program."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import accelprof
from accelprof.backends.cpu import CpuBackend
from accelprof.catalogue import Catalogue, make_catalogue
from accelprof.config.model import Config
from accelprof.contracts.targets import Target
from accelprof.output import codes
from accelprof.output import manifest as manifests
from accelprof.output import verdict as verdicts
from accelprof.output.layout import Layout
from accelprof.session.session import Session
from accelprof.testing import RecordingTool
from accelprof.timing.gate import gate

TAGS = ("decode", "score", "around>decode")
MISSED = re.compile(r"windows for steps (.*) never opened|schedule on (\w+): (\d+) of (\d+) stretches")


class Dead(BaseException):
    """The process is gone: nothing of it runs any more."""


def some_plan(luck: random.Random) -> dict[str, Any]:
    """Steps or none, in any way; with schedules or without."""
    plan: dict[str, Any] = {"tool": None, "ranks": "all"}
    kind = luck.choice(("steps", "steps", "all", "none"))
    if kind == "steps":
        plan["steps"] = sorted(luck.sample(range(10), luck.randint(1, 6)))
        plan["merge_steps"] = luck.random() < 0.3
    elif kind == "all":
        plan["steps"] = "all"
    if kind == "none" or luck.random() < 0.5:
        one = {
            "phase": luck.choice(("decode", "score")), "wait": luck.randint(0, 2), "warmup": luck.randint(0, 1),
            "active": luck.randint(1, 3), "repeat": luck.randint(0, 4), "per": luck.choice(("process", "process", "step", "around")),
            "keep_others": luck.random() < 0.2,
        }  # fmt: skip
        other = {
            "phase": "score" if one["phase"] == "decode" else "decode",
            "active": luck.randint(1, 2),
            "repeat": luck.randint(1, 2),
        }
        plan["schedule"] = [one, other] if luck.random() < 0.3 else [one]
    if not plan.get("merge_steps") and luck.random() < 0.3:
        plan["discrete"] = True
    return plan


def some_program(luck: random.Random) -> list[tuple[int | None, list[str]]]:
    """Steps in order, of which some are skipped, with calls in them; and calls outside of steps."""
    begin = luck.choice((0, 0, 0, 3))
    numbers = [number for number in range(begin, luck.randint(begin, 10)) if luck.random() < 0.85]
    return [
        (None if luck.random() < 0.1 else number, [luck.choice(TAGS) for _ in range(luck.randint(0, 5))])
        for number in numbers
    ]


@dataclass
class Truth:
    """What came of a program before it ended: steps and, by phase, the stretches of a schedule that counts over the process."""

    steps: list[int]
    stretches: dict[str, set[int]]


def counted(plan: dict[str, Any], came: list[tuple[int | None, str]]) -> dict[str, set[int]]:
    """Rounds of each schedule of which a call was recorded, by counting all calls that ``came``, each with its step."""
    found: dict[str, set[int]] = {}
    chosen = plan.get("steps")
    for one in plan.get("schedule", ()):
        if one.get("per", "process") != "process":
            continue
        wait, warmup, active, repeat = one.get("wait", 0), one.get("warmup", 0), one["active"], one["repeat"]
        calls = [
            step
            for step, tag in came
            if tag == one["phase"] and (chosen is None or (step is not None and (chosen == "all" or step in chosen)))
        ]
        rounds = found.setdefault(one["phase"], set())
        for index in range(len(calls)):
            turn, within = divmod(index, wait + warmup + active)
            if within >= wait + warmup and (not repeat or turn < repeat):
                rounds.add(turn)
    return found


def played(
    plan: dict[str, Any], program: Any, dies: int | None, place: Path, catalogue: Catalogue
) -> tuple[Any, Truth]:
    """The rows that are left of a session under ``plan`` which runs ``program``, and is killed after so many events."""
    assignment = catalogue.plan(Config(**plan)).assign(Target("G", rank=0, node="n"))
    backend, tool = CpuBackend(), RecordingTool()
    session = Session(Config(**plan), assignment, backend, [tool], None, Layout(str(place)), "n", catalogue)
    steps: list[int] = []
    came: list[tuple[int | None, str]] = []
    events = 0

    def event() -> None:
        nonlocal events
        events += 1
        if events == dies:  # what unwinds from here on is no part of it
            left.extend(manifests.read_journals(str(place)))
            raise Dead

    def call(tags: list[str]) -> None:
        if tags:
            came.append((session.step_now, tags[0]))
            accelprof.timer(tags[0])(lambda: (event(), call(tags[1:])))()
        event()

    gate.take(session)
    left: list[Any] = []
    try:
        session.start()
        for number, phases in program:
            if number is not None:
                steps.append(number)
                session.begin_step(number)
                event()
            for phase in phases:
                call(phase.split(">"))
            if number is not None:
                session.end_step(number)
            event()
    except Dead:
        pass
    session.close()
    gate.release(session)
    return left or manifests.read_journals(str(place)), Truth(steps, counted(plan, came))


def asked(plan: dict[str, Any]) -> tuple[list[list[int]], bool]:
    """Steps of each window by step that a plan asks for, and whether each opens with its step."""
    schedules, discrete = plan.get("schedule", []), plan.get("discrete", False)
    keeps = any(one.get("keep_others") for one in schedules)
    leads = not discrete and any(
        one.get("keep_others")
        and one.get("per", "process") in ("process", "step")
        and not one.get("wait")
        and not one.get("warmup")
        for one in schedules
    )
    sure = leads if schedules else not discrete
    by_process = schedules and all(one.get("per", "process") == "process" for one in schedules)
    if not isinstance(plan.get("steps"), list) or (by_process and not sure and not (discrete and keeps)):
        return [], sure
    windows: list[list[int]] = []
    for step in plan["steps"]:
        if sure and plan["merge_steps"] and windows and windows[-1][-1] == step - 1:
            windows[-1].append(step)
        else:
            windows.append([step])
    return windows, sure


def expected(plan: dict[str, Any], truth: Truth, recorded: set[int], ended: bool) -> set[tuple[str, ...]]:
    """What is to be named, where some window opened."""
    windows, sure = asked(plan)
    found: set[tuple[str, ...]] = set()
    missing = []
    for window in windows:
        there = recorded.intersection(window)
        before = window[-1] < min(truth.steps, default=0)
        if sure and not there and not before:
            missing.append(window)
        if not sure and ended and not there and not before and not set(window) & set(truth.steps):
            missing.append(window)
        if not sure and not ended and window[0] > max(recorded, default=-1):
            missing.append(window)
    if missing:
        found.add((", ".join(f"{w[0]}" if len(w) == 1 else f"{w[0]}-{w[-1]}" for w in missing),))
    for one in plan.get("schedule", ()):
        if one.get("per", "process") == "process" and len(truth.stretches[one["phase"]]) < max(1, one["repeat"]):
            found.add((one["phase"], str(len(truth.stretches[one["phase"]])), str(max(1, one["repeat"]))))
    return found


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return make_catalogue(entry_points=False)


@pytest.mark.parametrize("seed", range(4))
def test_what_never_came_agrees_with_the_slow_model(seed: int, tmp_path: Path, catalogue: Catalogue) -> None:
    """For plans of any shape, of sessions that end in order and of those that die at any moment."""
    luck = random.Random(seed)
    for number in range(100):
        plan, program = some_plan(luck), some_program(luck)
        dies = luck.choice((None, luck.randint(1, 40)))
        journals, truth = played(plan, program, dies, tmp_path / f"{number}", catalogue)
        found = manifests.of_journals(str(tmp_path / f"{number}"), journals)
        manifests.mark_open(found)
        [target] = found.targets.values()
        lacks = verdicts.verdict(found)
        windows = list(found.windows.values())
        where = f"{plan} {program} {dies}: {[lack.words for lack in lacks]}"
        if not windows:
            assert [lack.code for lack in lacks] == [codes.NEVER_OPENED] * target.armed, where
            continue
        recorded = {step for window in windows for step in window.steps}
        said = {tuple(filter(None, match.groups())) for lack in lacks if (match := MISSED.search(lack.words))}
        want = expected(plan, truth, recorded, bool(target.ended))
        # of who ends in order some are named in other words
        other = " ".join(target.missed)
        for row in [row for row in want if len(row) == 3]:
            named = len(re.findall(rf"schedule on {row[0]}: nothing was recorded", other))
            if int(row[1]) + named >= int(row[2]) or re.search(rf"schedule on {row[0]}: \d+ calls at most", other):
                want.remove(row)
        assert said == want, where
        assert sum(lack.code == codes.WINDOW_OPEN for lack in lacks) == sum(
            window.closed is None for window in windows
        ), where
