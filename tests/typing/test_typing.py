"""Type checkers see the types that functions had before they were timed."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("mypy", reason="mypy is not installed")


def test_decorated_functions_keep_their_types():
    """mypy, strict, accepts every ``assert_type`` of decorators.py and finds the two deliberate mistakes in it."""
    file = pathlib.Path(__file__).with_name("decorators.py")
    process = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", "--follow-imports=silent", str(file)],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=pathlib.Path(__file__).resolve().parents[2],
    )
    assert process.returncode == 0, process.stdout + process.stderr
