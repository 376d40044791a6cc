"""Presets on verl and RLinf as released, in the environment that has them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-frameworks" / "bin" / "python"
CASES = Path(__file__).with_name("cases_of_frameworks.py")


@pytest.mark.frameworks
@pytest.mark.timeout(600)
def test_cases_pass_where_the_frameworks_are():
    """Every case passes there: verl's update loop gives its first mini-batch, stages and micro-batches are phases."""
    if not PYTHON.exists():
        pytest.skip("verl and rlinf are not installed; .ci/install-frameworks does it")
    command = [str(PYTHON), "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    cases = len(re.findall(r"^def test_", CASES.read_text(), re.MULTILINE))
    assert f"{cases} passed" in done.stdout
