"""Runs the trainings of other frameworks' loops, under the interpreter that has them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

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
    """Two workers of Ray Train, trained together, and one of them failing."""
    assert "2 passed" in run("with_ray_train.py", "ray.train", "torch")
