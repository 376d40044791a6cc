"""Runs the tests that need the exporters' own packages, under the interpreter that has them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.exporters
ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-exporters/bin/python"


@pytest.mark.ray
@pytest.mark.timeout(300)
def test_written_figures_are_read_back_by_the_packages_own_readers():
    """TensorBoard, W&B, MLflow, Prometheus, Ray, OpenTelemetry and Parquet each read back what was exported."""
    if not PYTHON.exists():
        pytest.skip("the packages that exporters write to are not installed; .ci/install-exporters does it")
    done = subprocess.run(
        [PYTHON, "-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider", "tests/exporters/with_packages.py"],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if key != "ACCELPROF_CI_NO_SKIP"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "13 passed" in done.stdout
