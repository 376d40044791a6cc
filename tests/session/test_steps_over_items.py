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
    """Items come in order, each inside its step, and each step has the wait for its own item: the slow second one is seen in step 3."""

    def items():
        for number in range(3):
            time.sleep(0.06 if number == 1 else 0.02)
            yield number

    with capture(steps=[2]) as recorded:
        session, seen = recorded.session, []
        for item in session.steps(items(), first=2):
            seen.append((item, session.step_now))
        timings = {step: session.metrics_of_step(step) for step in (2, 3, 4)}
        assert session.step_now is None
        assert list(session.steps_seen) == [2, 3, 4]
    assert seen == [(0, 2), (1, 3), (2, 4)]
    assert [window.steps for window in session.windows] == [[2]]
    waited = [timings[step]["data"]["seconds"] for step in (2, 3, 4)]
    assert min(waited) >= 0.02
    assert waited[1] >= 0.06
    assert waited[1] == max(waited)


class Sized:
    """Items that say how many they are, rightly or not."""

    def __init__(self, said, count):
        self.said, self.count = said, count

    def __len__(self):
        if self.said is None:
            raise NotImplementedError("of no known length")
        return self.said

    def __iter__(self):
        return slow_items(self.count, 0)


@pytest.mark.parametrize("said", [0, 2, 3, 4, None])
def test_no_step_is_one_too_many(said):
    """However many items there are said to be, as many steps are as items: none of a run's figures has another, and a window of the
    step that did not come holds none and is not taken for it."""
    with capture(steps=[3, 4]) as recorded:
        session = recorded.session
        assert list(session.steps(Sized(said, 3))) == [0, 1, 2]
        assert (list(session.steps_seen), session.step_now, session.window) == ([1, 2, 3], None, None)
        assert session.metrics_of_step(4) == {}
        assert next(window.steps for window in session.windows) == [3]
        assert all(not window.steps for window in session.windows[1:])
        assert list(session.steps(slow_items(1), first=4)) == [0]  # the next epoch has it
        assert list(session.steps_seen) == [1, 2, 3, 4]
        assert [window.steps for window in session.windows if window.steps] == [[3], [4]]


def test_a_step_that_did_not_come_leaves_an_earlier_one_of_its_number():
    """A second epoch that is shorter, numbered anew, takes nothing away from the first."""
    with capture(steps=[3]) as recorded:
        session = recorded.session
        list(session.steps(slow_items(3, 0)))
        list(session.steps(slow_items(2, 0)))
        assert list(session.steps_seen) == [1, 2, 3]
        assert [window.steps for window in session.windows] == [[3]]


def test_a_window_of_several_steps_ends_with_the_last_that_came():
    """Of 2-5 the items make 2 and 3: the window holds those."""
    with capture(steps=["2-5"], merge_steps=True) as recorded:
        session = recorded.session
        list(session.steps(slow_items(3, 0)))
    assert [window.steps for window in session.windows] == [[2, 3]]


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
        assert list(recorded.session.steps(iter([]))) == []
        assert list(recorded.session.steps_seen) == []
