"""Of a process that was killed the same is named as missing as of one that ended at the same place, for each shape of plan."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from accelprof.analysis.run import Run, open_run
from accelprof.output.codes import NEVER_OPENED

FOLLOWER = str(Path(__file__).parent / "follower.py")
AT_ONCE = 3
RUN = (sys.executable, "-m", "accelprof", "run", "-c", "c.yaml", "--no-table", "--")

Steps = Sequence[tuple[int | None, Sequence[str]]]


@dataclass(frozen=True)
class Row:
    """A plan, the steps that came of it, and what is then missing, in words."""

    plan: Mapping[str, Any]
    came: Steps
    missing: tuple[str, ...] = ()


def calls(number: int, phase: str = "decode") -> list[tuple[int | None, Sequence[str]]]:
    """So many calls of a phase outside of steps."""
    return [(None, [phase] * number)]


def steps(*numbers: int, phases: Sequence[str] = ("decode",)) -> list[tuple[int | None, Sequence[str]]]:
    return [(number, phases) for number in numbers]


DECODE = {"phase": "decode", "wait": 1, "active": 2}
ROWS = {
    "steps": Row({"steps": [1, 3, 5]}, steps(1, 2, 3), ("windows for steps 5 never opened",)),
    "ranges": Row({"steps": ["1-2", "5-9"], "merge_steps": True}, steps(1, 2, 3), ("windows for steps 5-9 never opened",)),
    "many steps": Row({"steps": "1-5000"}, steps(1, 2), ("windows for steps 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22 and 4,978 more never opened",)),
    "beyond the first thousand": Row({"steps": ["0-999", 1500]}, steps(*range(1001), phases=()), ("windows for steps 1500 never opened",)),
    "discrete": Row({"steps": [1, 3, 5], "discrete": True}, steps(1, 2, 3), ("windows for steps 5 never opened",)),
    "every step": Row({"steps": "all"}, steps(1, 2)),
    "whole process": Row({"steps": "process"}, steps(1, 2)),
    "schedule": Row({"schedule": [{**DECODE, "repeat": 3}]}, calls(7), ("schedule on decode: 2 of 3 stretches",)),
    "schedule, one of one": Row({"schedule": [DECODE]}, calls(7)),
    "schedule without an end": Row({"schedule": [{**DECODE, "repeat": 0}]}, calls(7)),
    "schedule in steps": Row({"steps": [1, 2], "schedule": [{**DECODE, "repeat": 3}]}, steps(1, 2, phases=["decode"] * 3), ("schedule on decode: 2 of 3 stretches",)),
    "schedule of each step": Row({"steps": [1, 3, 5], "schedule": [{**DECODE, "per": "step"}]}, steps(1, 2, 3, phases=["decode"] * 3), ("windows for steps 5 never opened",)),
    "schedule of each call around": Row({"steps": [1, 3, 5], "schedule": [{"phase": "decode", "per": "around"}]}, steps(1, 2, phases=["around>decode"]), ("windows for steps 3, 5 never opened",)),
    "two schedules": Row({"schedule": [{**DECODE, "repeat": 2}, {"phase": "score"}]}, calls(4), ("schedule on decode: 1 of 2 stretches", "schedule on score: 0 of 1 stretches")),
    "schedule that leads": Row({"steps": [1, 3], "schedule": [{"phase": "decode", "active": 2, "per": "step", "keep_others": True}]}, steps(1, phases=["decode"] * 3), ("windows for steps 3 never opened",)),
}  # fmt: skip


def follow(how: str, row: Row, place: Path, prefix: Sequence[str] = (), ranks: int = 1) -> Run:
    """The run that so many processes leave who all end in that way."""
    place.mkdir(parents=True)
    plan = {"merge_steps": False, "timeline": True, "output_dir": "o", "run": "r", "ranks": "all", **row.plan}
    (place / "c.yaml").write_text(json.dumps(plan), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ACCELPROF_")}
    command = [*prefix, sys.executable, FOLLOWER, "null" if prefix else json.dumps(plan), json.dumps(row.came), how]
    job = {"TORCHELASTIC_RUN_ID": place.name, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29501"} if ranks > 1 else {}
    processes = []
    for rank in range(ranks):
        own = {"RANK": str(rank), "WORLD_SIZE": str(ranks), **job} if ranks > 1 else {}
        processes.append(subprocess.Popen(command, cwd=place, env={**environment, **own}, stderr=subprocess.PIPE, text=True))  # fmt: skip
    said = [process.communicate(timeout=120)[1] for process in processes]
    assert (place / "o" / "r").is_dir(), said
    return open_run(place / "o" / "r")


def missing(run: Run) -> list[tuple[str, str]]:
    """Whose windows never opened, and which, without how that is known."""
    found = []
    for lack in run.lacks:
        words = re.search(r"windows for steps .* never opened|schedule on \w+: \d+ of \d+ stretches", lack.words)
        if lack.code == NEVER_OPENED:
            found.append((str(run.workers[lack.target].rank), words[0] if words else lack.words))
    return found


WAYS = {"alone": ((), 1), "two ranks": ((), 2), "run": (RUN, 1)}
#: in other ways than alone the rule is the same: some of them
ELSEWHERE = ("ranges", "schedule", "schedule of each step")
CASES = [(way, name) for way in WAYS for name in (ROWS if way == "alone" else ELSEWHERE)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str, str], Future[Run]]]:
    """Every plan in every way, killed and ended, a few at a time."""
    place = tmp_path_factory.mktemp("planned")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            (way, name, how): pool.submit(follow, how, ROWS[name], place / f"{at}-{how}", *WAYS[way])
            for at, (way, name) in enumerate(CASES)
            for how in ("killed", "ended")
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("how", ["killed", "ended"])
@pytest.mark.parametrize(("way", "name"), CASES)
def test_what_never_came_is_named(way: str, name: str, how: str, runs: dict[tuple[str, str, str], Future[Run]]) -> None:
    """For every shape of plan, of those that come to say it themselves and of those that do not."""
    run, row = runs[way, name, how].result(), ROWS[name]
    ranks = {str(worker.rank) for worker in run.workers.values()}
    assert len(ranks) == WAYS[way][1]
    assert sorted(missing(run)) == sorted((rank, text) for rank in ranks for text in row.missing)


DISCRETE = {"steps": [1, 3, 5], "discrete": True}
#: what the one that is killed goes through, what the one in its place does, and the steps of windows that are lost
REPLACED: dict[str, tuple[Mapping[str, Any], Steps, Steps, tuple[str, ...]]] = {
    "before any step": ({"steps": [1, 3, 5]}, [], steps(0, 1, 2, 3, 4, 5), ()),
    "before its first window": ({"steps": [3, 5]}, steps(0, 1), steps(1, 2, 3, 4, 5), ()),
    "and steps are passed over": ({"steps": [3, 5]}, steps(0, 1), steps(4, 5), ("windows for steps 3 never opened",)),
    "after a window": ({"steps": [1, 3, 5]}, steps(0, 1), steps(4, 5), ("windows for steps 3 never opened",)),
    "and ends too early": ({"steps": [3, 5]}, steps(0, 1), steps(2, 3, 4), ("windows for steps 5 never opened",)),
    "a part of a window": ({"steps": ["3-6"], "merge_steps": True}, steps(0, 1), steps(5, 6), ("windows for steps 3-4 never opened",)),
    "without its phase": (DISCRETE, steps(0, 1, phases=()), steps(2, 3, 5), ()),
    "a schedule": ({"schedule": [{**DECODE, "repeat": 2}]}, calls(1), calls(6), ()),
}  # fmt: skip


@pytest.mark.parametrize("name", REPLACED)
def test_who_goes_on_in_its_place_delivers_for_it(name: str, tmp_path: Path) -> None:
    """Of a worker that was killed, and of the process that was started in its place, what nobody recorded is named, and no more."""
    plan, before, after, lost = REPLACED[name]
    plan = {"merge_steps": False, "timeline": True, "output_dir": "o", "run": "r", "ranks": "all", **plan}
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ACCELPROF_")}
    job = {"TORCHELASTIC_RUN_ID": "again", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29501"}
    job |= {"RANK": "0", "WORLD_SIZE": "1"}
    for came, how in ((before, "killed"), (after, "ended")):
        command = [sys.executable, FOLLOWER, json.dumps(plan), json.dumps(came), how]
        subprocess.run(command, cwd=tmp_path, env={**environment, **job}, check=False, timeout=120)
    run = open_run(tmp_path / "o" / "r")
    assert len(run.workers) == 2
    assert [text for _, text in missing(run)] == list(lost)


#: steps with and without the phase that makes a window, and what is missing: as of one that ended after the same steps
WITHOUT = {
    "came without its phase": ([*steps(1, 2), *steps(3, 4, phases=())], "5"),
    "left out before the last window": ([*steps(1), *steps(5)], "3"),
    "never came": (steps(1, 2), "3, 5"),
}


@pytest.mark.parametrize("how", ["killed", "ended"])
@pytest.mark.parametrize("name", WITHOUT)
def test_timings_tell_which_steps_came(name: str, how: str, tmp_path: Path) -> None:
    """Of one that was killed too: a planned step that came without the phase is no lack, and one that was left out is."""
    came, lost = WITHOUT[name]
    assert missing(follow(how, Row(DISCRETE, came), tmp_path / "p")) == [
        ("None", f"windows for steps {lost} never opened")
    ]
