"""Runs the tests that need verl or rlinf, under the interpreter that has them."""

from __future__ import annotations

import json
import os
import shutil
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
    assert " passed" in run("with_verl.py", "tests/compat/with_verl_decorators.py", timeout=500)


@pytest.mark.ray
@pytest.mark.timeout(600)
def test_verl_on_ray():
    """verl's own worker class in its own worker group on Ray, by nothing but ACCELPROF_INSTALL."""
    assert "1 passed" in run("with_verl_ray.py", timeout=500, ACCELPROF_INSTALL="verl")


@pytest.mark.timeout(600)
def test_rlinf():
    """RLinf's own timers and ranges in one process."""
    assert " passed" in run("with_rlinf.py", timeout=500)


@pytest.mark.ray
@pytest.mark.nsys
@pytest.mark.timeout(900)
def test_rlinf_on_ray():
    """RLinf's own worker groups on Ray, wrapped by nsys as the plan says."""
    if shutil.which("nsys") is None:
        pytest.skip("nsys is not installed; .ci/install-nsys does it")
    assert "1 passed" in run("with_rlinf.py", "-k", "cluster", timeout=800, RLINF_CLUSTER_TEST="1")


def live(framework, directory, install):
    """What a real worker group of the framework gives back, with ``ACCELPROF_INSTALL`` alone or without us."""
    from accelprof.compat.startup import environment

    if not PYTHON.exists():
        pytest.skip("verl and rlinf are not installed; .ci/install-frameworks does it")
    env = {key: value for key, value in os.environ.items() if not key.startswith("ACCELPROF_")}
    env["RAY_USAGE_STATS_ENABLED"] = "0"
    done = subprocess.run(
        [PYTHON, "-W", "ignore", ROOT / "tests/compat/live.py", framework, directory],
        cwd=directory,
        env={**env, **(environment(env, framework) if install else {})},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    found = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert found, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads(found[-1].removeprefix("RESULT "))


@pytest.mark.ray
@pytest.mark.timeout(900)
@pytest.mark.parametrize("framework", ["verl", pytest.param("rlinf", marks=pytest.mark.nsys)])
def test_a_live_worker_group_is_the_same_with_us(framework, tmp_path):
    """Three steps, a window on the second: same values, exceptions and dispatch with us as without, and the window is there."""
    if framework == "rlinf" and shutil.which("nsys") is None:
        pytest.skip("nsys is not installed; .ci/install-nsys does it")
    for name in ("with", "without"):
        (tmp_path / name).mkdir()
    mine = live(framework, tmp_path / "with", install=True)
    theirs = live(framework, tmp_path / "without", install=False)
    assert mine == theirs
    assert len(mine["steps"]) >= 3
    raised = [call for row in mine["steps"] for call in row if call and call[0] == "raised"]
    assert ["KeyError" in kinds for _, kinds, _ in raised] == [True] * 3
    (path,) = (tmp_path / "with").glob("*/manifest.json")
    windows = json.loads(path.read_text())["windows"]
    assert len(windows) == 2
    assert len({row["target"] for row in windows}) == 2
    assert not list((tmp_path / "without").glob("*/manifest.json"))
