"""``accelprof run``: any command under the plan, its own exit status, and a manifest of what its processes left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from accelprof.launch.run import split_python

SCRIPT = """
import os, sys, time
import accelprof

@accelprof.timer("train/step")
def work():
    time.sleep(0.002)

session = accelprof.configure(group="Workers")
for step in range(int(sys.argv[1])):
    with session.step(step):
        work()
if len(sys.argv) > 2:
    print("ready", flush=True)
    time.sleep(float(sys.argv[2]))
sys.exit(int(os.environ.get("END", 0)))
"""

#: starts two ranks, as a launcher such as torchrun does
LAUNCHER = """
import os, subprocess, sys
ranks = [subprocess.Popen([sys.executable, *sys.argv[1:]], env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"})
         for rank in range(2)]
sys.exit(max(rank.wait() for rank in ranks))
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    (tmp_path / "profile.yaml").write_text("steps: [1]\noutput_dir: out\nrun: run\n")
    return tmp_path


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "accelprof.cli.main", "run", "-c", "profile.yaml", *words]


def start(place: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words), cwd=place, capture_output=True, text=True, timeout=100, env={**os.environ, **env}, check=False
    )


def manifest(place: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((place / "out" / "run" / "manifest.json").read_text())
    return found


def test_the_command_runs_under_the_plan_and_the_run_is_whole(place: Path) -> None:
    """The script says nothing of configuration; its window is in the manifest, timeline and page lie beside it."""
    done = start(place, "--", sys.executable, "train.py", "3")
    assert done.returncode == 0, done.stderr
    assert manifest(place)["status"] == "complete"
    assert [window["steps"] for window in manifest(place)["windows"]] == [[1]]
    assert "train/step" in done.stdout
    for name in ("timeline.json.gz", "report.html", "config.json"):
        assert (place / "out" / "run" / name).stat().st_size > 0


def test_ranks_of_a_launcher_share_one_run_and_only_the_selected_record(place: Path) -> None:
    """Two processes with RANK 0 and 1: rank 1 alone has a window, by an override on the command line."""
    done = start(place, "ranks=[1]", "--", sys.executable, "launcher.py", "train.py", "2")
    assert done.returncode == 0, done.stderr
    assert [(target["group"], target["rank"]) for target in manifest(place)["targets"]] == [("Workers", 1)]
    assert len(manifest(place)["windows"]) == 1


def test_the_exit_status_is_the_commands_own(place: Path) -> None:
    """Status 3 of the command comes through, and what it recorded is there."""
    done = start(place, "--", sys.executable, "train.py", "2", END="3")
    assert done.returncode == 3
    assert manifest(place)["status"] == "complete"


def test_armed_and_never_opened_makes_a_successful_command_fail(place: Path) -> None:
    """Step 1 never came: status 1, said with the steps that were seen."""
    done = start(place, "--", sys.executable, "train.py", "1")
    assert done.returncode == 1
    assert "armed, 0 windows opened; steps seen: 0" in done.stderr
    assert manifest(place)["status"] == "incomplete"


def test_a_command_without_a_session_is_not_shown_as_a_result(place: Path) -> None:
    """A command that knows nothing of accelprof ends with status 1 and the reason."""
    done = start(place, "--", sys.executable, "-c", "pass")
    assert done.returncode == 1
    assert "made a session" in done.stderr


def test_a_users_mistake_shows_no_traceback(place: Path) -> None:
    """No command, a program that is not there, a misspelt key: status 2 and one line."""
    for words, said in (
        ([], "no command"),
        (["--", "no-such-program"], "no such program"),
        (["stpes=[1]", "--", "true"], "did you mean 'steps'"),
    ):
        done = start(place, *words)
        assert done.returncode == 2
        assert said in done.stderr
        assert "Traceback" not in done.stderr


def test_signals_are_handed_on_and_the_run_is_finished(place: Path) -> None:
    """SIGTERM reaches the command, which ends by it; the manifest is written all the same."""
    words = command("--", sys.executable, "train.py", "2", "60")
    process = subprocess.Popen(words, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 128 + signal.SIGTERM
    process.stdout.close()
    assert time.monotonic() - began < 50
    assert len(manifest(place)["windows"]) == 1


@pytest.mark.parametrize(
    ("words", "python", "rest"),
    [
        (["python3", "-u", "-W", "error", "train.py", "-x"], ["python3", "-u", "-W", "error"], ["train.py", "-x"]),
        (["/usr/bin/python3.11", "-m", "pkg"], ["/usr/bin/python3.11"], ["-m", "pkg"]),
        (["torchrun", "--nproc-per-node=2", "train.py"], [], ["torchrun", "--nproc-per-node=2", "train.py"]),
    ],
)
def test_interpreter_and_script_are_told_apart(words: list[str], python: list[str], rest: list[str]) -> None:
    """The interpreter's own options stay with it; other programs have none."""
    assert split_python(words) == (python, rest)
