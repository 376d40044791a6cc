"""``profiling_range`` and ``worker_timer``: entered and left in any order, what begins ends exactly once."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import accelprof
from accelprof import Worker, profiling_range
from accelprof.testing import RecordingBackend, capture
from accelprof.timing import metrics


class Actor(Worker): ...


def leave(block):
    block.__exit__(None, None, None)


def test_a_block_that_is_left_twice_pops_once():
    """The second leaving finds nothing of its own, and takes nothing of the block around it."""
    with capture(steps=[1]) as run, run.session.step(1):
        for block in (profiling_range("x"), Actor().worker_timer("x")):
            with profiling_range("outer"):
                block.__enter__()
                leave(block)
                leave(block)
                leave(profiling_range("never entered"))
            assert run.backend.balanced()


@pytest.mark.parametrize("make", [lambda: profiling_range("x"), lambda: Actor().worker_timer("x")])
@settings(deadline=None, max_examples=60)
@given(st.lists(st.booleans(), max_size=12))
def test_any_order_of_entering_and_leaving_one_block(make, moves):
    """An object that is entered inside itself, left too often, entered again: pushes and pops are like brackets."""
    with capture(steps=[1]) as run:
        with run.session.step(1), profiling_range("outer"):
            block, depth, entered = make(), 0, 0
            for enters in moves:
                if enters:
                    block.__enter__()
                    depth, entered = depth + 1, entered + 1
                else:
                    leave(block)
                    depth = max(depth - 1, 0)
            for _ in range(depth):
                leave(block)
        assert run.backend.balanced()
        # the same tag inside itself is one timed call
        labels = run.backend.labels()
        assert labels[0] == "outer"
        assert len(labels) - 1 <= entered
        assert (len(labels) > 1) == (entered > 0)


def test_a_timer_that_is_entered_inside_itself_gives_its_state_back():
    """The tag runs once, and afterwards plain calls of it are plain again."""
    actor = Actor()
    block = actor.worker_timer("b")
    with block, block, block:
        pass
    leave(block)
    [state] = metrics.states_of(actor)
    assert (len(state), state.held, state.inside) == (1, [], set())
    assert actor.timing_stats()["b"]["count"] == 1


def test_ranges_over_the_edges_of_windows():
    """Made before, entered in, left after a window: balanced, and the timeline has what lay inside it."""
    with capture(steps=[1, 2, 3]) as run:
        made_closed = profiling_range("closed")
        with run.session.step(1):
            with made_closed:
                pass
            made_open = profiling_range("open")
            over = profiling_range("over")
            over.__enter__()
        with made_open:  # its window is gone
            pass
        with run.session.step(2):
            leave(over)
            with made_open:
                pass
        assert run.backend.labels() == ["over", "open"]
        assert run.backend.balanced()


def test_a_range_in_code_that_can_be_suspended():
    """In a coroutine, a generator or an ExitStack under a loop the block overlaps others: start and end, never push."""

    async def coroutine():
        with profiling_range("coroutine"):
            await asyncio.sleep(0)
        async with profiling_range("async with"):
            await asyncio.sleep(0)
        with contextlib.ExitStack() as stack:
            stack.enter_context(profiling_range("stack"))
            await asyncio.sleep(0)

    def generator():
        with profiling_range("generator"):
            yield

    with capture(steps=[1]) as run:
        with run.session.step(1):
            list(generator())
            asyncio.run(coroutine())
            with profiling_range("plain"):
                pass
        assert [call.what for call in run.backend.calls if call.name == "push"] == ["plain"]
        assert run.backend.labels() == ["generator", "coroutine", "async with", "stack", "plain"]
        assert run.backend.balanced()


def test_a_vendor_that_fails_at_a_range():
    """Said once; the block runs, and what was not pushed is not popped."""
    with capture(steps=[1]) as run:
        with run.session.step(1):
            run.backend.failing.add("push")
            ran = 0
            for _ in range(3):
                with profiling_range("x"):
                    ran += 1
            run.backend.failing.clear()
            with profiling_range("y"):
                pass
        assert ran == 3
        assert run.backend.count("pop") == 1
        assert len(run.session.problems) == 1


def test_labels_are_text_with_their_looks():
    """Anything becomes text; colour, domain and category make another range of the same label."""
    seen = []

    class Looks(RecordingBackend):
        name = "looks"

        def bind(self, spec):
            seen.append(tuple(spec))
            return super().bind(spec)

    with capture(backend=Looks, steps=[1]) as run, run.session.step(1):
        for label, looks in (
            (1, {}),
            (None, {}),
            ("1", {}),
            ("1", {"color": "red"}),
            ("1", {"domain": "d"}),
            ([1], {}),
        ):
            with profiling_range(label, **looks):
                pass
    assert seen == [
        ("1", "", "", ""),
        ("None", "", "", ""),
        ("1", "", "red", ""),
        ("1", "d", "", ""),
        ("[1]", "", "", ""),
    ]


def test_marks_outside_a_window_are_nothing():
    """Before, after and without a session."""
    accelprof.mark("m")
    with capture(steps=[1]) as run:
        accelprof.mark("m")
        with run.session.step(1):
            accelprof.mark("in")
        assert run.backend.count("mark") == 1


LATE = """
import sys, accelprof
from accelprof.testing import capture
@accelprof.timer("plain")
def plain(): return None
with capture(steps=[1], tool=None) as run:
    with run.session.step(1):
        assert "asyncio" not in sys.modules
        plain()
        import asyncio
        async def main():
            plain()
            with accelprof.profiling_range("range"): pass
        asyncio.run(main())
        plain()
        tasks = [bool(row[5]) for row in run.session.window.trace.rows]
assert tasks == [False, True, True, False], tasks
print("whole")
"""


def test_a_loop_that_comes_after_the_window_was_opened():
    """asyncio imported inside a window: calls in its tasks are those tasks', as if it had been there before."""
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "whole\n", done.stderr
