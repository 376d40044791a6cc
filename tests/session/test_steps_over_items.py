"""``session.steps(items)``: each item is a step, and waiting for items is seen."""

from __future__ import annotations

import time

import pytest

import accelprof
from accelprof.testing import capture


def slow_items(count, seconds=0.02):
    for number in range(count):
        time.sleep(seconds)
        yield number


def test_each_item_has_a_step_and_waiting_is_a_phase_of_it():
    """Items come in order, each inside its step; the wait for the next one counts in the step before; no step is empty."""
    with capture(steps=[2]) as recorded:
        session, seen = recorded.session, []
        for item in session.steps(slow_items(3), first=2):
            seen.append((item, session.step_now))
        timings = {step: session.metrics_of_step(step) for step in (2, 3, 4)}
        assert session.step_now is None
        assert list(session.steps_seen) == [2, 3, 4]
    assert seen == [(0, 2), (1, 3), (2, 4)]
    assert [window.steps for window in session.windows] == [[2]]
    assert timings[2]["data"]["seconds"] >= 0.02
    assert timings[4]["data"]["seconds"] < 0.02  # there was none to wait for


@pytest.mark.parametrize("leave", ["break", "raise"])
def test_leaving_the_loop_ends_its_step(leave):
    """A loop that is left by break or by an exception leaves no step running, and its exception unchanged."""

    def loop(session):
        for _ in session.steps(range(5)):
            if leave == "break":
                break
            raise KeyError("mine")

    with capture(steps=[1]) as recorded:
        if leave == "raise":
            with pytest.raises(KeyError, match="mine"):
                loop(recorded.session)
        else:
            loop(recorded.session)
        assert recorded.session.step_now is None
        assert recorded.session.window is None
    assert [window.steps for window in recorded.session.windows] == [[1]]


def test_an_exception_of_the_items_is_the_callers():
    """What the loader raises reaches the loop, and the step that waited for it is closed."""

    def items():
        yield 1
        raise OSError("no such shard")

    with capture(steps=[1]) as recorded:
        with pytest.raises(OSError, match="no such shard"):
            for _ in recorded.session.steps(items()):
                pass
        assert recorded.session.window is None
    accelprof.pop_execution_times()


def test_no_items_no_step():
    """Nothing to iterate over announces nothing."""
    with capture(steps=[1]) as recorded:
        assert list(recorded.session.steps([])) == []
        assert list(recorded.session.steps_seen) == []
