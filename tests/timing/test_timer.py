"""The timer: timing is always recorded, the function runs once and as it was, nothing is lost."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import threading

import pytest

import accelprof
from accelprof import Worker
from accelprof.testing import FakeClock
from accelprof.timing import metrics


@pytest.fixture
def clock():
    with FakeClock() as fake:
        yield fake


class Actor(Worker):
    clock: FakeClock

    @Worker.timer("actor/update")
    def update(self, seconds, *more, scale=1, **rest):
        """Docstring of update."""
        self.clock.advance(seconds)
        return (seconds, more, scale, rest)

    @Worker.timer("actor/deep")
    def deep(self, depth):
        self.clock.advance(0.01)
        return self.deep(depth - 1) if depth > 1 else "bottom"

    @Worker.timer("actor/items")
    def items(self, count):
        for index in range(count):
            self.clock.advance(0.05)
            yield index
        return "done"

    @Worker.timer("actor/stream")
    async def stream(self, count):
        for index in range(count):
            self.clock.advance(0.05)
            yield index

    @Worker.timer("actor/wait")
    async def wait(self, event, value):
        await event.wait()
        return value

    @Worker.timer("actor/static")
    @staticmethod
    def static(value):
        return value

    @staticmethod
    @Worker.timer("actor/static_inside")
    def static_inside(value):
        return value

    @classmethod
    @Worker.timer("actor/class")
    def of_class(cls, value, *, extra=2):
        return cls.__name__, value, extra

    @Worker.timer
    def unnamed(self):
        return "unnamed"

    @Worker.timer("actor/prop")
    @property
    def prop(self):
        self.clock.advance(0.25)
        return "property"


class Heir(Actor):
    @Worker.timer
    def unnamed(self):
        return super().unnamed() + " heir"


@pytest.fixture
def actor(clock):
    instance = Actor()
    instance.clock = clock
    return instance


def test_result_and_arguments_pass_through(actor):
    """Positional, keyword, star and default arguments arrive as given, and the result comes back."""
    assert actor.update(0.5, 1, 2, scale=3, other=4) == (0.5, (1, 2), 3, {"other": 4})
    assert actor.pop_execution_times() == {"actor/update": 0.5}


def test_pop_empties_and_stats_stay(actor):
    """Popped times are gone; ``timing_stats`` goes on counting from the start."""
    actor.update(0.5)
    actor.update(1.5)
    assert actor.pop_execution_time("actor/update") == pytest.approx(2.0)
    assert actor.pop_execution_times() == {}
    row = actor.timing_stats()["actor/update"]
    assert row["count"] == 2
    assert (row["total"], row["mean"], row["min"], row["max"], row["last"]) == pytest.approx((2.0, 1.0, 0.5, 1.5, 1.5))
    assert (row["p50"], row["p95"]) == pytest.approx((1.0, 1.45))


def test_unknown_tag_names_the_known(actor):
    """Popping a tag that nothing recorded is a KeyError that names what was recorded, with the nearest."""
    actor.update(0.1)
    with pytest.raises(KeyError, match="did you mean 'actor/update'"):
        actor.pop_execution_time("actor/updat")


def test_recursion_counts_once(actor):
    """B29: depth 4 of 10 ms each is one call of 40 ms, not 100 ms."""
    assert actor.deep(4) == "bottom"
    row = actor.timing_stats()["actor/deep"]
    assert (row["count"], row["total"]) == (1, pytest.approx(0.04))


def test_instances_are_kept_apart(clock):
    """Two instances of one class have times of their own, and a copy starts at nothing."""
    one, two = Actor(), Actor()
    one.clock = two.clock = clock
    one.update(1)
    assert two.pop_execution_times() == {}
    assert copy.deepcopy(one).timing_stats() == {}
    assert one.pop_execution_times() == {"actor/update": 1.0}


def test_the_exception_is_the_users_own(actor):
    """An exception passes through unchanged, without context of ours, after one call; the time counts."""
    calls = []

    class Failing(Worker):
        @Worker.timer("failing")
        def fail(self):
            calls.append(1)
            raise ValueError("mine")

    worker = Failing()
    with pytest.raises(ValueError, match="mine") as caught:
        worker.fail()
    assert calls == [1]
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    assert worker.timing_stats()["failing"]["count"] == 1
    with pytest.raises(ValueError, match="mine"):
        worker.fail()
    assert worker.timing_stats()["failing"]["count"] == 2


def test_generator_counts_own_time_only(actor, clock):
    """B26: three items of 50 ms are 150 ms whatever the consumer takes; the return value and the kind stay."""
    generator = actor.items(3)
    assert inspect.isgenerator(generator)
    received = []
    try:
        while True:
            received.append(next(generator))
            clock.advance(1.0)
    except StopIteration as stop:
        assert stop.value == "done"
    assert received == [0, 1, 2]
    assert actor.pop_execution_times() == {"actor/items": pytest.approx(0.15)}


def test_generator_closed_early(actor):
    """A generator closed after one item counts what it did and is closed inside too."""
    generator = actor.items(3)
    next(generator)
    generator.close()
    assert actor.pop_execution_times() == {"actor/items": pytest.approx(0.05)}
    assert not metrics.states_of(actor)[0].held


def test_generator_send_and_throw():
    """``send`` and ``throw`` reach the user's generator."""

    class Echo(Worker):
        @Worker.timer("echo")
        def echo(self):
            got = yield "ready"
            try:
                yield got
            except KeyError:
                yield "caught"

    generator = Echo().echo()
    assert next(generator) == "ready"
    assert generator.send("value") == "value"
    assert generator.throw(KeyError("x")) == "caught"
    with pytest.raises(StopIteration):
        next(generator)


def test_async_generator(actor, clock):
    """An async generator yields the same items, counts its own time, and closes early."""

    async def consume(limit):
        got = []
        stream = actor.stream(3)
        async for item in stream:
            got.append(item)
            clock.advance(2.0)
            if len(got) == limit:
                break
        await stream.aclose()
        return got

    assert asyncio.run(consume(9)) == [0, 1, 2]
    assert actor.pop_execution_times() == {"actor/stream": pytest.approx(0.15)}
    assert asyncio.run(consume(1)) == [0]
    assert actor.pop_execution_times() == {"actor/stream": pytest.approx(0.05)}


def test_interleaved_coroutines_keep_their_own_time(actor, clock):
    """B25: three overlapping coroutines are 0.3, 0.1 and 0.2 s, counted one by one."""

    async def main():
        events = [asyncio.Event() for _ in range(3)]
        tasks = [asyncio.ensure_future(actor.wait(event, index)) for index, event in enumerate(events)]
        await asyncio.sleep(0)
        for index in (1, 2, 0):
            clock.advance(0.1)
            events[index].set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return await asyncio.gather(*tasks)

    assert asyncio.run(main()) == [0, 1, 2]
    state = next(state for state in metrics.states_of(actor) if state.tag == "actor/wait")
    state.fold()
    assert sorted(state.kept) == [100_000_000, 200_000_000, 300_000_000]


def test_kinds_signature_and_attributes_stay():
    """B27: kind, name, signature, docstring and ``__wrapped__`` are those of the undecorated function."""
    assert inspect.iscoroutinefunction(Actor.wait)
    assert inspect.isgeneratorfunction(Actor.items)
    assert inspect.isasyncgenfunction(Actor.stream)
    assert str(inspect.signature(Actor.update)) == "(self, seconds, *more, scale=1, **rest)"
    assert str(inspect.signature(Actor.update, follow_wrapped=False)) == "(self, seconds, *more, scale=1, **rest)"
    assert Actor.update.__doc__ == "Docstring of update."
    assert Actor.update.__name__ == "update"
    assert Actor.update.__wrapped__.__qualname__ == "Actor.update"
    assert isinstance(inspect.getattr_static(Actor, "static"), staticmethod)
    assert isinstance(inspect.getattr_static(Actor, "of_class"), classmethod)


def test_static_class_and_property_methods(actor):
    """Static and class methods count for the process, a property for its instance."""
    accelprof.reset()
    assert actor.static(1) == 1
    assert Actor.static_inside(2) == 2
    assert Actor.static_inside(actor) is actor
    assert Actor.of_class(3) == ("Actor", 3, 2)
    assert actor.prop == "property"
    assert actor.pop_execution_times() == {"actor/prop": 0.25}
    assert set(accelprof.pop_execution_times()) == {"actor/static", "actor/static_inside", "actor/class"}


def test_label_without_argument_is_the_qualified_name(actor, clock):
    """B30: bare ``@timer`` labels by class and method; an override has its own label."""
    heir = Heir()
    heir.clock = clock
    assert heir.unnamed() == "unnamed heir"
    assert set(heir.pop_execution_times()) == {"Actor.unnamed", "Heir.unnamed"}


def test_override_with_the_same_tag_counts_once(clock):
    """The same tag inside itself counts once, also when an override calls its base."""

    class Base(Worker):
        @Worker.timer("same")
        def run(self):
            clock.advance(1)

    class Sub(Base):
        @Worker.timer("same")
        def run(self):
            super().run()
            clock.advance(1)

    worker = Sub()
    worker.run()
    row = worker.timing_stats()["same"]
    assert (row["count"], row["total"]) == (1, 2.0)


def test_worker_timer_block_and_nested_same_tag(actor, clock):
    """``worker_timer`` times its block; a decorated call of the same tag inside counts once with it."""
    with actor.worker_timer("actor/update"):
        actor.update(0.5)
        clock.advance(0.5)
    row = actor.timing_stats()["actor/update"]
    assert (row["count"], row["total"]) == (1, 1.0)
    actor.update(0.25)
    assert actor.timing_stats()["actor/update"]["count"] == 2


def test_async_worker_timer(actor, clock):
    """``async with`` works the same."""

    async def main():
        async with actor.worker_timer("actor/block"):
            clock.advance(0.5)
            await asyncio.sleep(0)

    asyncio.run(main())
    assert actor.pop_execution_times() == {"actor/block": 0.5}


def test_threads_lose_nothing():
    """Eight threads that call one timer of one instance 2000 times each make 16000 counts."""

    class Counter(Worker):
        @Worker.timer("count")
        def count(self):
            return None

    counter = Counter()
    threads = [threading.Thread(target=lambda: [counter.count() for _ in range(2000)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.timing_stats()["count"]["count"] == 16000


def test_recursion_while_another_thread_times_the_same(actor):
    """A recursive call is told from a concurrent one: 2 threads x 5 calls of depth 3 are 10 counts."""

    class Nested(Worker):
        @Worker.timer("nested")
        def run(self, depth, barrier):
            if depth:
                return self.run(depth - 1, barrier)
            barrier.wait()
            return None

    worker, barrier = Nested(), threading.Barrier(2)
    threads = [threading.Thread(target=lambda: [worker.run(3, barrier) for _ in range(5)]) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert worker.timing_stats()["nested"]["count"] == 10


def test_slots_and_unhashable_instances():
    """Classes with ``__slots__``, frozen ones and unhashable ones are timed all the same."""

    class Slotted(Worker):
        __slots__ = ("__weakref__",)

        @Worker.timer("slotted")
        def run(self):
            return 1

    class Unhashable(Worker):
        __slots__ = ()
        __hash__ = None

        @Worker.timer("unhashable")
        def run(self):
            return 2

    assert Slotted().run() == 1
    slotted = Slotted()
    slotted.run()
    assert slotted.pop_execution_times().keys() == {"slotted"}
    assert Unhashable().run() == 2
    assert "unhashable" in accelprof.pop_execution_times()


def test_memory_is_bounded():
    """Durations are folded as they grow: a hundred thousand calls keep at most two buffers of 4096."""

    class Busy(Worker):
        @Worker.timer("busy")
        def run(self):
            return None

    worker = Busy()
    for _ in range(20_000):
        worker.run()
    state = metrics.states_of(worker)[0]
    assert len(state.buffer) <= metrics.FOLD_AT + 1
    assert worker.timing_stats()["busy"]["count"] == 20_000


def test_workers_pickle(actor):
    """An instance with timings pickles; the other side starts counting anew."""
    actor.update(1)
    del actor.clock
    other = pickle.loads(pickle.dumps(actor))
    assert other.timing_stats() == {}


def test_plain_functions(clock):
    """``accelprof.timer`` times plain functions, with keyword-only and positional-only parameters."""

    @accelprof.timer("plain")
    def plain(a, b=2, /, c=3, *args, d, e=5, **rest):
        clock.advance(0.5)
        return a, b, c, args, d, e, rest

    assert plain(1, d=4, z=0) == (1, 2, 3, (), 4, 5, {"z": 0})
    with pytest.raises(TypeError):
        plain(a=1, d=4)
    assert accelprof.timing_stats()["plain"]["count"] == 1


def test_wrong_uses_are_refused():
    """An empty tag and something that is no function are TypeErrors that say what is wanted."""
    with pytest.raises(TypeError, match="empty"):
        Worker.timer("")
    with pytest.raises(TypeError, match="decorates functions"):
        Worker.timer("x")(3)
    with pytest.raises(TypeError, match="accelprof.timer"):
        accelprof.profiling_range("x")(lambda: None)


def test_profiling_range_closed_is_one_shared_object():
    """While nothing is open, ranges cost one object that exists already and marks do nothing."""
    assert accelprof.profiling_range("a") is accelprof.profiling_range("b")
    with accelprof.profiling_range("a", color="red", domain="d"):
        accelprof.mark("m")
