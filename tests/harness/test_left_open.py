"""What a test leaves open, or what is raised where nobody can catch it, fails that test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BODIES = {
    "a file that nobody closes": "open(__file__); gc.collect()",
    "an exception in a finaliser": "Falls(); gc.collect()",
    "an exception in a thread": "thread = threading.Thread(target=lambda: 1 / 0); thread.start(); thread.join()",
}


def outcome(tmp_path, body):
    (tmp_path / "test_it.py").write_text(
        f"import gc, threading\n\nclass Falls:\n    def __del__(self):\n        raise ValueError('falls')\n\ndef test_it():\n    {body}\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    return subprocess.run([*command, "test_it.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize("what", BODIES)
def test_it_fails_the_test(tmp_path, what):
    """Under the project's settings a test that does nothing wrong but this fails."""
    done = outcome(tmp_path, BODIES[what])
    assert done.returncode == 1, done.stdout
    assert "1 failed" in done.stdout or "1 error" in done.stdout


def test_one_that_is_tidy_passes(tmp_path):
    """The same with its file closed passes, so the settings are what fails the others."""
    done = outcome(tmp_path, "open(__file__).close()")
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout
