"""Processes that share one nsys take turns, and know which capture each window went into."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from accelprof_cuda.nsys_turns import PREFIX, Turns, captures_in

RANK = """
import os, random, sys, time
from accelprof_cuda.nsys_turns import Turns

directory, rank, seed, patience = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
draw = random.Random(seed * 100 + rank)
log = os.open(os.path.join(directory, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def told(what, step):
    os.write(log, f"{time.monotonic_ns()} {what} {rank} {step}\\n".encode())

def stop(step):
    told("stops", step)
    time.sleep(draw.random() * 0.05)
    told("stopped", step)

turns = Turns(directory, "7", lambda text: told("said", text.replace(" ", "_")), patience)
for step in range(6):
    time.sleep(draw.random() * 0.04)
    turns.open(f"step {step}", f"r{rank}-s{step}", lambda: told("start", step))
    time.sleep(draw.random() * 0.02)
    turns.close(lambda: stop(step))
turns.leave()
"""


def run(tmp_path: Path, seed: int, patience: float) -> list[tuple[int, str, str, str]]:
    argv = [sys.executable, "-c", RANK, str(tmp_path)]
    ranks = [subprocess.Popen([*argv, str(rank), str(seed), str(patience)]) for rank in range(3)]
    assert [rank.wait(60) for rank in ranks] == [0, 0, 0]
    rows = [line.split(" ") for line in (tmp_path / "log").read_text().splitlines()]
    return sorted((int(at), what, rank, step) for at, what, rank, step in rows)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("patience", [30.0, 0.0])
def test_windows_are_noted_with_the_capture_they_went_into(tmp_path: Path, seed: int, patience: float) -> None:
    """Beside a plain account of the calls: a capture begins with the first window and ends with the last one's stop; none
    begins while one is being written; with patience each has windows of one step only."""
    open_windows: set[str] = set()
    captures: dict[str, int] = {}
    number, stopping = 0, ""
    for _, what, rank, step in run(tmp_path, seed, patience):
        name = f"r{rank}-s{step}"
        if what == "start":
            assert not stopping or not patience
            number += not open_windows
            open_windows.add(name)
            captures[name] = number
        elif what == "stops":
            stopping = name
        elif what == "stopped":
            stopping = ""
            open_windows.remove(name)
    if patience:
        assert captures_in(str(tmp_path / f"{PREFIX}7.txt")) == captures
        steps = {
            capture: {name[-1] for name, mine in captures.items() if mine == capture} for capture in captures.values()
        }
        assert all(len(held) == 1 for held in steps.values())
    assert len(captures) == 18


def test_who_waits_too_long_goes_on_and_says_so(tmp_path: Path) -> None:
    """Another process's window of another step is waited for once, for the time that was set, and then shares its capture."""
    code = "import sys\nfrom accelprof_cuda.nsys_turns import Turns\nTurns(sys.argv[1], '7', print).open('a', 'w1', lambda: None)\nprint('open', flush=True)\nsys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "open\n"
    said: list[str] = []
    turns = Turns(str(tmp_path), "7", said.append, patience=0.2)
    for window in ("w2", "w3"):
        turns.open("b", window, lambda: None)
        turns.close(lambda: None)
    assert captures_in(str(tmp_path / f"{PREFIX}7.txt")) == {"w1": 1, "w2": 1, "w3": 1}
    assert len(said) == 1
    assert "had a window of other steps open for 0.2 s" in said[0]
    other.communicate("", timeout=20)
    turns.open("c", "w4", lambda: None)
    assert captures_in(str(tmp_path / f"{PREFIX}7.txt"))["w4"] == 2
    turns.leave()


def test_a_start_that_fails_leaves_the_turn_to_others(tmp_path: Path) -> None:
    """An error of the vendor's call is raised as it is; the window is in no capture, and nobody waits for it."""
    turns, other = (Turns(str(tmp_path), "7", print) for _ in range(2))

    def fails() -> None:
        raise RuntimeError("no device")

    with pytest.raises(RuntimeError, match="no device"):
        turns.open("a", "w1", fails)
    other.open("b", "w2", lambda: None)
    assert captures_in(str(tmp_path / f"{PREFIX}7.txt")) == {"w2": 1}


def test_without_a_directory_it_is_said_and_windows_open(tmp_path: Path) -> None:
    """A place where no file can be made costs the turns, not the windows."""
    (tmp_path / "file").write_text("")
    said: list[str] = []
    turns = Turns(str(tmp_path / "file" / "below"), "7", said.append)
    called: list[str] = []
    turns.open("a", "w1", lambda: called.append("start"))
    turns.close(lambda: called.append("stop"))
    assert (called, len(said)) == (["start", "stop"], 1)
    assert "cannot take turns" in said[0]


TRAIN = """
import json, os, sys, time
import accelprof

rank = int(os.environ["RANK"])
session = accelprof.configure(group="ActorGroup", rank=rank, world_size=2)
for step in range(1, 5):
    with session.step(step), accelprof.profiling_range("train/step"):
        time.sleep(0.3 if rank else 0.002)
session.close()
"""
LAUNCHER = """
import os, subprocess, sys

ranks = [subprocess.Popen([sys.executable, "train.py"], env={**os.environ, "RANK": str(rank)}) for rank in (0, 1)]
sys.exit(max(rank.wait() for rank in ranks))
"""


@pytest.mark.nsys
@pytest.mark.timeout(300)
def test_the_faster_of_two_ranks_under_one_nsys_loses_no_window(nsys: str, tmp_path: Path) -> None:
    """A rank that is 150 times as fast wants its second window while the first capture goes on or is written: each report holds
    windows of one step, with the ranges of each rank that the manifest names for it."""
    from accelprof_cuda import reader

    from accelprof.contracts.spans import Kind

    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    config = {"tool": "nsys", "steps": [2, 3], "groups": {"ActorGroup": {"ranks": "all"}}, "output_dir": str(tmp_path)}
    (tmp_path / "c.yaml").write_text(json.dumps({**config, "run": "run", "tools": {"nsys": {"nsys": nsys}}}))
    argv = [sys.executable, "-m", "accelprof.cli.main", "run", "-c", "c.yaml", "--", sys.executable, "launcher.py"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=250, env=dict(os.environ))
    assert done.returncode == 0, done.stdout + done.stderr
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["status"] == "complete"
    held = {row["id"]: (row["target"], row["steps"]) for row in manifest["windows"]}
    pids = {row["key"]: row["pid"] for row in manifest["targets"]}
    rows = [row for row in manifest["artifacts"] if row["tool"] == "nsys"]
    assert sorted(window for row in rows for window in row["windows"]) == sorted(held)
    assert all(len({tuple(held[window][1]) for window in row["windows"]}) == 1 for row in rows)
    for row in rows:
        trace = reader.read(str(tmp_path / "run" / row["path"]))
        seen = {(span.pid, span.args["payload"]) for span in trace.of_kind(Kind.PHASE) if span.name == "train/step"}
        assert {(pids[target], steps[0]) for target, steps in map(held.__getitem__, row["windows"])} == seen
