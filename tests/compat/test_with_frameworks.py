"""Runs the tests that need verl or rlinf, under the interpreter that has them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.frameworks
ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-frameworks/bin/python"


def run(name, *arguments, timeout, **env):
    if not PYTHON.exists():
        pytest.skip("verl and rlinf are not installed; .ci/install-frameworks does it")
    done = subprocess.run(
        [PYTHON, "-m", "pytest", "-q", "-W", "ignore", "-o", f"timeout={timeout}", f"tests/compat/{name}", *arguments],
        cwd=ROOT,
        env={**{key: value for key, value in os.environ.items() if key != "ACCELPROF_CI_NO_SKIP"}, **env},
        capture_output=True,
        text=True,
        timeout=timeout + 60,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.timeout(600)
def test_verl():
    """verl's own decorators, timers and profilers in one process."""
    assert " passed" in run("with_verl.py", timeout=500)


@pytest.mark.ray
@pytest.mark.timeout(600)
def test_verl_on_ray():
    """verl's own worker class in its own worker group on Ray, by nothing but ACCELPROF_INSTALL."""
    assert "1 passed" in run("with_verl_ray.py", timeout=500, ACCELPROF_INSTALL="verl")


@pytest.mark.timeout(600)
def test_rlinf():
    """RLinf's own timers and ranges in one process."""
    assert "8 passed" in run("with_rlinf.py", timeout=500)


@pytest.mark.ray
@pytest.mark.nsys
@pytest.mark.timeout(900)
def test_rlinf_on_ray():
    """RLinf's own worker groups on Ray, wrapped by nsys as the plan says."""
    import shutil

    if shutil.which("nsys") is None:
        pytest.skip("nsys is not installed; .ci/install-nsys does it")
    assert "1 passed" in run("with_rlinf.py", "-k", "cluster", timeout=800, RLINF_CLUSTER_TEST="1")
