"""Runs the trainings of other frameworks' loops, under the interpreter that has them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import accelprof
from accelprof.integrations.loop import Loop
from accelprof.session.configure import current_session

pytestmark = pytest.mark.frameworks
ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-frameworks/bin/python"


def run(name, *modules):
    if not PYTHON.exists() or subprocess.run([PYTHON, "-c", f"import {', '.join(modules)}"], check=False).returncode:
        pytest.skip(f"{' and '.join(modules)} are not installed beside verl and rlinf; .ci/install-frameworks does it")
    done = subprocess.run(
        [PYTHON, "-m", "pytest", "-q", "-W", "ignore", "-o", "timeout=280", "-p", "no:cacheprovider", name],
        cwd=Path(__file__).parent,
        env={key: value for key, value in os.environ.items() if key != "ACCELPROF_CI_NO_SKIP"},
        capture_output=True,
        text=True,
        timeout=340,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.torch
@pytest.mark.timeout(400)
def test_trainers():
    """Transformers, TRL's GRPO and Lightning, each trained for a few steps on the CPU."""
    assert "11 passed" in run("with_trainers.py", "transformers", "trl", "lightning")


@pytest.mark.ray
@pytest.mark.torch
@pytest.mark.timeout(400)
def test_ray_train():
    """Two workers of Ray Train, trained together, and one of them failing; as many steps as batches."""
    assert "5 passed" in run("with_ray_train.py", "ray.train", "torch")


def test_what_a_session_that_is_there_leaves_unused_is_said(caplog, tmp_path):
    """A second callback, or one beside a session of the user's, says which of its words are not used; the session stays as it is."""
    first = Loop(None, "Trainer", {"steps": [1], "output_dir": str(tmp_path)})
    second = Loop(None, "Trainer", {"steps": [2], "tool": None, "rank": 3})
    silent = Loop(None, "Trainer", {})
    try:
        for loop in (first, second, silent, first):
            loop.begin(rank=0, world_size=1)
        assert list(current_session().assignment.steps) == [1]
        said = [record.getMessage() for record in caplog.records if "not used" in record.getMessage()]
        assert len(said) == 1
        assert said[0].endswith("not used: steps, tool")
        for loop in (second, silent):
            loop.end()
        assert not current_session().closed
        first.end()
        assert current_session() is None
    finally:
        accelprof.reset()
