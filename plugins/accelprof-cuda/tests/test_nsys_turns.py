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
    time.sleep(draw.random() * 0.05)  # nsys writes the report
    told("stopped", step)

turns = Turns(directory, "7", lambda text: told("said", text.replace(" ", "_")), patience)
for step in range(6):
    time.sleep(draw.random() * 0.04)
    turns.open(f"step {step}", f"r{rank}-s{step}", lambda: told("start", step))
    told("in", step)
    time.sleep(draw.random() * 0.02)
    told("out", step)
    turns.close(lambda: stop(step))
turns.leave()
"""


def run(tmp_path: Path, seed: int, patience: float) -> list[tuple[int, str, str, str]]:
    argv = [sys.executable, "-c", RANK, str(tmp_path)]
    ranks = [subprocess.Popen([*argv, str(rank), str(seed), str(patience)]) for rank in range(3)]
    assert [rank.wait(60) for rank in ranks] == [0, 0, 0]
    rows = [line.split(" ") for line in (tmp_path / "log").read_text().splitlines()]
    return sorted((int(at), what, rank, step) for at, what, rank, step in rows)


HOLDER = """
import sys
from accelprof_cuda.nsys_turns import Turns
turns = Turns(sys.argv[1], "7", print)
turns.open("a", sys.argv[2], lambda: None)
print("open", flush=True)
sys.stdin.read()
"""


def holder(directory: Path, window: str) -> subprocess.Popen[str]:
    """Another process that has begun a capture of stretch ``a``, and lives until its input ends."""
    other = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(directory), window], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "open\n"
    return other


@pytest.mark.parametrize("seed", range(6))
def test_windows_are_noted_with_the_capture_they_went_into(tmp_path: Path, seed: int) -> None:
    """Beside a plain account of the calls: captures follow one another, each begun and ended by one process, and every window
    lies whole inside the one that was noted for it, with windows of its own step alone."""
    captures: list[list[str]] = []
    owner = ""
    running = False
    for _, what, rank, step in run(tmp_path, seed, 30.0):
        if what == "start":
            assert not running
            running, owner = True, rank
            captures.append([])
        elif what == "in":
            assert running
            captures[-1].append(f"r{rank}-s{step}")
        elif what == "out":
            assert running
            assert f"r{rank}-s{step}" in captures[-1]
        elif what == "stops":
            assert (running, rank) == (True, owner)
            running = False
        assert what != "said"
    noted = captures_in(str(tmp_path / f"{PREFIX}7.txt"))
    assert noted == {name: number for number, names in enumerate(captures, 1) for name in names}
    assert len(noted) == 18
    assert all(len({name[-1] for name in names}) == 1 for names in captures)


def test_the_process_that_asks_nsys_stays_the_same(tmp_path: Path) -> None:
    """Who begins later than the first one's window of the same step waits for nobody, and who comes before it waits for it."""
    other = holder(tmp_path, "w1")
    said: list[str] = []
    turns = Turns(str(tmp_path), "7", said.append, patience=0.3)
    turns.open("a", "w2", lambda: said.append("start"))
    turns.close(lambda: said.append("stop"))
    assert said == []
    other.communicate("", timeout=20)
    turns.open("b", "w3", lambda: said.append("start"))
    assert said == ["start"]
    assert captures_in(str(tmp_path / f"{PREFIX}7.txt")) == {"w1": 1, "w2": 1, "w3": 2}


def test_who_waits_too_long_goes_on_and_says_so(tmp_path: Path) -> None:
    """Another process's window of another step is waited for once, for the time that was set, and then its capture is shared."""
    other = holder(tmp_path, "w1")
    said: list[str] = []
    turns = Turns(str(tmp_path), "7", said.append, patience=0.2)
    for window in ("w2", "w3"):
        turns.open("b", window, lambda: None)
        turns.close(lambda: None)
    assert captures_in(str(tmp_path / f"{PREFIX}7.txt")) == {"w1": 1, "w2": 1, "w3": 1}
    assert len(said) == 1
    assert "were not ready for it within 0.2 s" in said[0]
    other.communicate("", timeout=20)
    turns.open("c", "w4", lambda: None)
    assert captures_in(str(tmp_path / f"{PREFIX}7.txt"))["w4"] == 2
    turns.leave()


def test_a_window_that_outlasts_its_capture_says_so(tmp_path: Path) -> None:
    """The process that began the capture is gone: who is still inside says that its window was cut, and does not ask nsys."""
    other = holder(tmp_path, "w1")
    said: list[str] = []
    turns = Turns(str(tmp_path), "7", said.append, patience=0.2)
    turns.open("a", "w2", lambda: said.append("start"))
    other.communicate("", timeout=20)
    turns.close(lambda: said.append("stop"))
    assert len(said) == 1
    assert "ended it before the window was over" in said[0]


def test_a_capture_that_nsys_left_nothing_of_is_missing_by_name(tmp_path: Path) -> None:
    """Two captures were noted and one report is there, without a number as nsys names a lone one: the second is missing."""
    from accelprof_cuda import nsys_files

    from accelprof.contracts.targets import WindowInfo

    windows = [
        WindowInfo(f"w{number}", number, (number,), None, "step", str(tmp_path / f"G-r{rank}-host-{rank}"))
        for number in (1, 2)
        for rank in (8, 9)
    ]
    windows = [WindowInfo(f"{w.id}-{w.stem[-1]}", w.sequence, w.steps, None, "step", w.stem) for w in windows]
    lines = [f"{window.sequence} 5 {window.id}\n" for window in windows]
    (tmp_path / f"{PREFIX}7.txt").write_text("".join(lines))
    (tmp_path / "G-rX-host-3.nsys-rep").write_text("report")
    found = nsys_files.match_files([str(tmp_path / "G-rX-host-3.nsys-rep")], windows, "nsys")
    assert [(os.path.basename(file.path), file.windows, file.state) for file in found] == [
        ("G-rX-host-3.nsys-rep", ("w1-8", "w1-9"), "complete"),
        ("G-rX-host-3.2.nsys-rep", ("w2-8", "w2-9"), "missing"),
    ]


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
    open(f"at-{step}-{rank}", "w").close()
    while not os.path.exists(f"at-{step}-{1 - rank}"):  # as ranks meet in a collective
        time.sleep(0.001)
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
    """A rank that is 150 times as fast ends its window long before the other and wants the next one at once: each report holds the
    windows of both ranks for one step, with each rank's ranges whole."""
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
    assert [sorted(held[window][1] for window in row["windows"]) for row in rows] == [[[2], [2]], [[3], [3]]]
    for row in rows:
        trace = reader.read(str(tmp_path / "run" / row["path"]))
        seen = {(span.pid, span.args["payload"]) for span in trace.of_kind(Kind.PHASE) if span.name == "train/step"}
        assert {(pids[target], steps[0]) for target, steps in map(held.__getitem__, row["windows"])} == seen


@pytest.mark.parametrize("taken", [False, True])
def test_training_that_closes_the_descriptor_loses_turns_only(taken: bool, tmp_path: Path) -> None:
    """The turns are given up with a word, windows go on, and a file of training's that got the number is neither written to
    nor closed."""
    said: list[str] = []
    turns = Turns(str(tmp_path), "7", said.append)
    turns.open("1", "w1", lambda: None)
    turns.close(lambda: None)
    number = turns._handle.number
    os.close(number)
    own = os.open(tmp_path / "own", os.O_RDWR | os.O_CREAT) if taken else None
    assert own in (None, number)
    calls: list[str] = []
    turns.open("2", "w2", lambda: calls.append("start"))
    turns.close(lambda: calls.append("stop"))
    turns.leave()
    assert calls == ["start", "stop"]
    assert len(said) == 1
    assert "cannot take turns" in said[0]
    if own is not None:
        assert os.write(own, b"training's") == 10
        os.close(own)
        assert (tmp_path / "own").read_bytes() == b"training's"
