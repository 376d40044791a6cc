"""Very many calls, threads, coroutines and labels: all are counted, memory stays bounded, and nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import pytest

import accelprof
from accelprof import Worker, mark, profiling_range
from accelprof.testing import capture
from accelprof.timing import labels, metrics, running

CALLS = 100


class Actor(Worker):
    @Worker.timer("call")
    def call(self):
        return None

    @Worker.timer("sleep")
    async def sleep(self, seconds):
        await asyncio.sleep(seconds)

    @Worker.timer("items")
    def items(self):
        yield 1
        yield 2


def nothing_is_left(state):
    """The state has its token, nobody is inside, and nothing is registered as running."""
    assert (len(state), state.held, state.inside) == (1, [], set())
    assert (running.Run.live, running._calls) == ({}, {})


def test_a_million_calls_in_a_window():
    """Every one is counted; the timeline keeps what it may and says how many more there were."""
    actor = Actor()
    with capture(steps=[1], tool=None, options={"trace": {"max_spans": 50_000}}) as run:
        with run.session.step(1):
            call = actor.call
            for _ in range(1_000_000):
                call()
        [row] = run.session.windows
        assert row["spans"] == 50_000
        assert row["dropped"] == 950_000
    assert actor.timing_stats()["call"]["count"] == 1_000_000
    [state] = metrics.states_of(actor)
    assert len(state.buffer) <= metrics.FOLD_AT + 1
    nothing_is_left(state)


@pytest.mark.parametrize("opened", [False, True])
def test_sixty_four_threads(opened):
    """On one instance and on one function at once: no call is lost, none counted twice, ranges are balanced."""
    actor = Actor()

    @accelprof.timer("function")
    def function(depth=1):
        return function(depth - 1) if depth else None

    def work():
        for _ in range(CALLS):
            actor.call()
            function()
            with profiling_range("r"):
                pass
            list(actor.items())

    with capture(steps=[1]) as run:
        if opened:
            run.session.begin_step(1)
        threads = [threading.Thread(target=work) for _ in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        counts = {tag: row["count"] for tag, row in actor.timing_stats().items()}
        assert counts == {"call": 64 * CALLS, "items": 64 * CALLS}
        state = metrics.process_states["function"]
        assert metrics.stats([state])["function"]["count"] == 64 * CALLS
        for one in (state, *metrics.states_of(actor)):
            nothing_is_left(one)
        run.session.close()
        assert run.backend.balanced()
        usual = ("closing window", "armed, 0 windows opened")  # how long it took; that no step came
        assert [text for text in run.session.problems if not any(words in text for words in usual)] == []


def test_ten_thousand_coroutines_at_once():
    """In time that grows with their number, and each with its own."""
    actor = Actor()

    async def main(count):
        await asyncio.gather(*(actor.sleep(0.01) for _ in range(count)))

    took = {}
    with capture(steps=[1]) as run:
        run.session.begin_step(1)
        for count in (1_000, 10_000):
            began = time.perf_counter()
            asyncio.run(main(count))
            took[count] = time.perf_counter() - began
        run.session.end_step(1)
        assert run.backend.balanced()
    assert actor.timing_stats()["sleep"]["count"] == 11_000
    assert took[10_000] < 40 * took[1_000]  # ten times the work; a hundred if each looked at all the others
    [state] = metrics.states_of(actor)
    nothing_is_left(state)


def test_labels_without_bound():
    """Thirty thousand labels made at run time: the first ten thousand are kept apart, the rest is one, said once."""
    actor = Actor()
    with capture(steps=[1], options={"trace": {"max_spans": 10}}) as run:
        with run.session.step(1):
            for number in range(30_000):
                with actor.worker_timer(f"timer {number}"):
                    pass
            for number in range(15_000):
                with profiling_range(f"range {number}"), profiling_range(f"red {number}", color="red"):
                    pass
                mark(f"mark {number}")
        stats = actor.timing_stats()
        assert len(stats) == labels.KEPT + 1
        assert stats[labels.OTHER]["count"] == 20_000
        assert sum(row["count"] for row in stats.values()) == 30_000
        said = [text for text in run.session.problems if "different labels" in text]
        assert len(said) == 1
        assert "timer 10000" in said[0]
        assert len(set(run.backend.labels())) == labels.KEPT + 1
        assert run.backend.balanced()


def test_instances_that_come_and_go_leave_nothing():
    """A hundred thousand short-lived instances: their states go with them, their counts stay."""

    class Brief(Worker):
        @Worker.timer("brief")
        def call(self):
            return None

    gc.collect()
    before = len(metrics.all_states())
    total = metrics.process_totals().get("brief", (0, 0))[1]
    for _ in range(100_000):
        Brief().call()
    assert len(metrics.all_states()) <= before + 1
    assert metrics.process_totals()["brief"][1] == total + 100_000
