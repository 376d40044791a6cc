"""``scripts/compat-suites`` on a suite that was made up: every outcome is counted, whatever a test is called."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/compat-suites"
SUITE = """
import os
import pytest

WITH_US = "ACCELPROF_INSTALL" in os.environ


@pytest.mark.parametrize("word", ["one two", "a - b", "x[0]"])
def test_words(word):
    pass


@pytest.mark.parametrize("word", ["a b", "c"])
def test_reduce_timing(word):
    assert not (WITH_US and word == "a b")


@pytest.mark.skipif(WITH_US, reason="for theirs alone")
def test_only_theirs():
    pass


def test_never():
    pytest.skip("nowhere")


@pytest.fixture
def fails_late():
    yield
    assert False


class TestOfClass:
    def test_error(self, fails_late):
        pass

    @pytest.mark.xfail
    def test_expected(self):
        assert False
"""


def suites(directory, *arguments):
    return subprocess.run(
        [sys.executable, SCRIPT, directory, *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def test_outcomes_and_rows(tmp_path):
    """Names with spaces, dashes and brackets are compared, skipped tests and errors of fixtures counted, differences stand by row."""
    (tmp_path / "verl").mkdir()
    (tmp_path / "verl/__init__.py").touch()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_profiler_made_up.py").write_text(SUITE)
    (tmp_path / "tests/test_others.py").write_text("def test_no(): assert False")
    done = suites(tmp_path, sys.executable)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"verl: 1 files of tests in {tmp_path}"
    without, with_us = (
        dict(reversed(part.split()) for part in line.partition(": ")[2].split(", ")) for line in lines[1:3]
    )
    assert without == {"passed": "6", "skipped": "2", "error": "1"}
    assert with_us == {"passed": "4", "skipped": "3", "error": "1", "failed": "1"}
    at = lines.index("verl `reduce_timing`, `gather_timing`")
    assert lines[at + 1] == "  tests.test_profiler_made_up::test_reduce_timing[a b]: passed -> failed"
    assert "  tests.test_profiler_made_up::test_only_theirs: passed -> skipped" in lines
    assert len([line for line in lines if "->" in line]) == 2


@pytest.mark.parametrize("made", [(), ("verl",)], ids=["nothing", "no tests"])
def test_what_is_no_checkout(tmp_path, made):
    """A directory without a framework, or without tests of its profiler, is refused."""
    for name in made:
        (tmp_path / name).mkdir()
    done = suites(tmp_path, sys.executable)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no checkout of verl, RLinf or NeMo-RL" in done.stderr
