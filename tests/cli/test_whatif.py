"""``accelprof whatif``: its arguments, its answer in both forms, and how it ends."""

from __future__ import annotations

import json

import pytest


def test_a_phase_that_takes_twice_as_long(call, finished):
    """The answer names the step, the time it took and the one it would take, the same in both forms."""
    words = ("whatif", finished, "--step", "2", "--scale", "actor/update=2")
    status, out, _ = call(*words, "--json")
    answer = json.loads(out)
    assert status == 0
    assert {"step", "wall_ns", "predicted_ns", "low_ns", "high_ns", "notes"} <= answer.keys()
    assert answer["predicted_ns"] > answer["wall_ns"]
    status, out, _ = call(*words)
    assert status == 0
    assert out.startswith("step 2: ")
    assert "(+" in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--scale", "actor/update"], "no PHASE=FACTOR"),
        (["--scale", "actor/update=-1"], "factor from 0 on"),
        (["--scale", "actor/update=inf"], "factor from 0 on"),
        (["--scale", "actor/updat=2"], "no phase 'actor/updat'"),
        (["--step", "77"], "step 77 has no window"),
        (["--rank", "5"], "--rank 5 has no phase"),
        (["--rank", "-1"], "--rank"),
        ([], "nothing to change; give --scale PHASE=FACTOR"),
    ],
)
def test_mistakes_are_status_two(call, finished, words, says):
    """What the user got wrong is named with what there is."""
    status, _, err = call("whatif", finished, *words)
    assert status == 2
    assert says in " ".join(err.split())


def test_a_run_without_windows(call, missing):
    """Where no step was recorded the mend is said."""
    status, _, err = call("whatif", missing)
    assert status == 2
    assert "no window of a step" in err
