"""The rule that nothing installed by CI is skipped silently, tried on small suites in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

MARKED = """
import pytest

@pytest.mark.torch
def test_needs_torch():
    pytest.skip("torch is too old")

@pytest.mark.nsys
def test_needs_nsys():
    pytest.skip("nsys is not installed")

def test_plain():
    pytest.skip("no sample files")
"""
UNMARKED = 'import pytest\npytest.skip("could not import torch_npu", allow_module_level=True)\n'


def run(tmp_path: Path, test: str, no_skip: str) -> str:
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  torch:\n  nsys:\n")
    (tmp_path / "test_suite.py").write_text(test)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("ACCELPROF_", "PYTEST_"))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", str(tmp_path)]
    done = subprocess.run(
        command,
        env={**environment, "ACCELPROF_CI_NO_SKIP": no_skip},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout + done.stderr


def test_skips_stay_skips_without_the_variable(tmp_path: Path) -> None:
    """Without the variable nothing changes."""
    assert "3 skipped" in run(tmp_path, MARKED, "")


def test_a_skip_of_an_installed_tier_fails_with_its_reason(tmp_path: Path) -> None:
    """A marked test of a named tier fails and keeps its reason; other tiers and unmarked tests may still be skipped."""
    output = run(tmp_path, MARKED, "torch,ray")
    assert "1 failed, 2 skipped" in output
    assert "torch is too old" in output


def test_one_means_every_tier(tmp_path: Path) -> None:
    """``1`` names all tiers, and tests without a marker are still free to skip."""
    assert "2 failed, 1 skipped" in run(tmp_path, MARKED, "1")


@pytest.mark.parametrize(("no_skip", "outcome"), [("npu", "1 error"), ("nsys", "1 skipped")])
def test_a_module_that_skips_itself_is_judged_by_its_reason(tmp_path: Path, no_skip: str, outcome: str) -> None:
    """A module without markers fails exactly when what it lacks belongs to a named tier."""
    assert outcome in run(tmp_path, UNMARKED, no_skip)
