"""Timings of steps: what was recorded between a step's ends, whoever it belongs to, and at what cost."""

from __future__ import annotations

import gc

from accelprof import Worker
from accelprof.session.steptimes import STEPS_KEPT, STEPS_REMEMBERED, StepTimes
from accelprof.timing import metrics


class Busy(Worker):
    @Worker.timer("busy")
    def busy(self):
        return None


def test_a_step_has_what_was_called_in_it():
    """Calls before, between and after steps are in none; a step without a call has no row."""
    times, worker = StepTimes(), Busy()
    worker.busy()
    counts = []
    for number in range(3):
        times.begins(number)
        for _ in range(number):
            worker.busy()
        times.ends(number)
        worker.busy()
        counts.append(times.of(number).get("busy", {}).get("count", 0))
    assert counts == [0, 1, 2]
    assert times.of() == times.of(2)
    assert times.of(7) == {}


def test_workers_that_go_count_where_they_worked():
    """A worker that is gone before its step ends counts in that step once, and in no later one."""
    times = StepTimes()
    for number in range(3):
        times.begins(number)
        if number < 2:
            Busy().busy()
            gc.collect()
        times.ends(number)
    assert [times.of(number).get("busy", {}).get("count", 0) for number in range(3)] == [1, 1, 0]


def test_idle_workers_cost_a_step_no_folding(monkeypatch):
    """Only states that recorded something since are folded, however many there are."""
    folded = []
    fold = metrics.State.fold
    idle, worker, times = [Busy() for _ in range(50)], Busy(), StepTimes()
    for one in (*idle, worker):
        one.busy()
    times.begins(1)
    monkeypatch.setattr(metrics.State, "fold", lambda state: (folded.append(state.tag), fold(state))[1])
    worker.busy()
    times.ends(1)
    times.begins(2)
    times.ends(2)
    assert len(folded) == 1
    assert times.of(1)["busy"]["count"] == 1


def test_what_is_remembered_of_steps_has_a_bound():
    """The latest steps have their timings, and of the announced ones the first ten thousand are known."""
    times = StepTimes()
    for number in range(STEPS_REMEMBERED + 20):
        times.begins(number)
        times.ends(number)
    assert len(times.seen) == STEPS_REMEMBERED
    assert len(times._of_step) == STEPS_KEPT
    began, wall = times.last()
    assert began > 0
    assert wall >= 0
