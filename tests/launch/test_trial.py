"""What a trial run that failed says."""

from __future__ import annotations

import sys

import pytest

from accelprof.launch.trial import LINE, LINES, trial


def say(*lines: str) -> tuple[bool, str]:
    code = f"import sys; print({chr(10).join(lines)!r}); sys.exit(1)"
    return trial([sys.executable, "-c", code], {}, 60)


@pytest.mark.parametrize(
    "lines",
    [
        ("unrecognised option '--bogus=3'", "", "usage: nsys profile [<args>]", "Try 'nsys profile --help'"),
        ("Traceback (most recent call last):", *(f"  line {n}" for n in range(40)), "OSError: it is not there"),
    ],
    ids=["reason first", "reason last"],
)
def test_the_tools_own_line_survives(lines):
    """The reason is shown whether a program says it first, with its usage behind, or last, behind a traceback."""
    works, why = say(*lines)
    assert not works
    assert ("unrecognised option" in why) or why.endswith("OSError: it is not there")


def test_what_a_trial_shows_is_bounded():
    """A program that says very much is shown in part, one that says nothing is said to."""
    _, much = say(*(f"{n} " + "x" * 5000 for n in range(5000)))
    assert len(much) < (LINES + 1) * (LINE + 3) + 40
    assert trial([sys.executable, "-c", "raise SystemExit(4)"], {}, 60) == (False, "status 4: no output")


def test_a_trial_without_end_is_not_tried_again(tmp_path):
    """One that had to be killed is killed once; what a program says of an end of its own does not matter."""
    code = "import sys, time; open(sys.argv[1], 'a').write('x'); time.sleep(60)"
    assert trial([sys.executable, "-c", code, str(tmp_path / "runs")], {}, 2) == (False, "no end after 2 s")
    assert (tmp_path / "runs").read_text() == "x"
    assert trial(["no end"], {}, 2)[1].startswith("no end: ")
