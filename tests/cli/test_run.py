"""``accelprof run``: its own arguments and what it prints. What happens to the command is ``tests/launch/test_run.py``'s matter."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "work.py").write_text(
        "import accelprof\nwith accelprof.configure().step(1):\n    accelprof.timer('actor/update')(lambda: None)()\n"
    )
    return tmp_path


def test_the_table_is_standard_output_and_what_is_said_is_not(call, place):
    """Status 0, the table on standard output, the run's place on standard error; ``--no-table`` prints none."""
    words = ("run", "steps=[1]", "run=one", "--", sys.executable, "work.py")
    status, out, err = call(*words)
    assert status == 0, err
    assert "actor/update" in out
    assert "complete" in err
    assert f"{os.sep}one" in err
    status, out, err = call("run", "--no-table", "steps=[1]", "run=two", "--", sys.executable, "work.py")
    assert (status, out) == (0, ""), err


def test_what_did_not_come_is_status_one(call, place):
    """A command that succeeded without what was asked for ends with 1, and says what; its own status goes first."""
    status, _, err = call("run", "--no-table", "steps=[7]", "--", sys.executable, "work.py")
    assert status == 1
    assert "not delivered" in err
    words = ("run", "--no-table", "steps=[7]", "--", sys.executable, "work.py")
    alone = subprocess.run([sys.executable, "-m", "accelprof", *words], capture_output=True, text=True, timeout=100)
    assert (alone.returncode, alone.stderr.count("not delivered")) == (1, 1), alone.stderr
    status, _, _ = call("run", "--no-table", "steps=[7]", "--", sys.executable, "-c", "raise SystemExit(5)")
    assert status == 5


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "--config"),
        (("steps=[1]",), "--"),
        (("-c", "none.yaml", "--", "true"), "none.yaml"),
        (("steeps=[1]", "--", "true"), "steeps"),
        (("steps=[1]", "engines.vlm={}", "--", "true"), "engines.vlm"),
    ],
)
def test_mistakes_are_status_two(call, place, monkeypatch, words, says):
    """No plan, no command, no such file, key or program: named, and nothing is made."""
    monkeypatch.delenv("ACCELPROF_INSTALL", raising=False)
    status, _, err = call("run", *words)
    assert status == 2
    assert says in err
    assert sorted(path.name for path in place.iterdir()) == ["work.py"]


def test_a_command_that_is_not_there(call, place):
    """It is named, and ends with status 2."""
    status, _, err = call("run", "--no-table", "steps=[1]", "--", "no-such-command-here")
    assert status == 2
    assert "no-such-command-here" in err
