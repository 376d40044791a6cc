"""Timings belong to one instance: copies, however they are made, and equal instances start their own."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle

import pytest

import accelprof
from accelprof import Worker


class Plain(Worker):
    @Worker.timer("t")
    def t(self):
        return self


class Unmixed:
    """Timed without the mixin."""

    @accelprof.timer("t")
    def t(self):
        return self


class CopiesItself(Plain):
    def __copy__(self):
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made


class KeepsState(Plain):
    def __getstate__(self):
        return dict(self.__dict__)

    def __setstate__(self, state):
        self.__dict__.update(state)


class Reduces(Plain):
    def __reduce__(self):
        return (type(self), (), self.__dict__)


class Forwards(Plain):
    """Answers every attribute that it lacks with one of another instance."""

    def __init__(self, of=None):
        self.of = of

    def __getattr__(self, name):
        if name.startswith("__") or self.__dict__.get("of") is None:
            raise AttributeError(name)
        return getattr(self.of, name)


def by_dict(instance):
    made = object.__new__(type(instance))
    made.__dict__.update(instance.__dict__)
    return made


def count(instance):
    from accelprof.timing import metrics

    return metrics.stats(metrics.states_of(instance)).get("t", {}).get("count", 0)


WAYS = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda instance: pickle.loads(pickle.dumps(instance)),
    "its dict": by_dict,
}


@pytest.mark.parametrize("cls", [Plain, Unmixed, CopiesItself, KeepsState, Reduces, Forwards])
@pytest.mark.parametrize("way", WAYS)
def test_a_copy_starts_its_own_timings(cls, way):
    """The original keeps its count, the copy has its own from its first call, and a copy of the copy too."""
    first = cls()
    first.t()
    second = WAYS[way](first)
    assert (count(first), count(second)) == (1, 0)
    second.t()
    second.t()
    third = WAYS[way](second)
    for _ in range(3):
        third.t()
    first.t()
    assert (count(first), count(second), count(third)) == (2, 2, 3)


def test_a_copy_of_a_running_instance():
    """Made inside the timed call itself: the copy is not inside it."""

    class Splits(Worker):
        @Worker.timer("t")
        def t(self, depth=1):
            return copy.copy(self).t(depth - 1) if depth else self

    first = Splits()
    inner = first.t()
    assert (count(first), count(inner)) == (1, 1)


def test_what_stands_for_an_instance_is_not_it():
    """A proxy that answers with the attributes of another instance times itself under its own calls."""
    inner = Plain()
    inner.t()
    outer = Forwards(inner)
    outer.t()
    outer.t()
    assert (count(inner), count(outer)) == (1, 2)


def test_equal_instances_are_kept_apart():
    """Equality and hash are the user's: frozen instances without room for an attribute have timings of their own."""

    @dataclasses.dataclass(frozen=True)
    class Frozen(Worker):
        __slots__ = ("__weakref__", "x")
        x: int

        @Worker.timer("t")
        def t(self):
            return self.x

    one, two = Frozen(1), Frozen(1)
    one.t()
    two.t()
    two.t()
    assert one == two
    assert (count(one), count(two)) == (1, 2)
    del one
    gc.collect()
    three = Frozen(1)
    assert count(three) == 0


def test_instances_that_cannot_be_referred_to_weakly():
    """A subclass of tuple keeps its own timings; its copy is another one."""

    class Batch(tuple, Worker):
        @Worker.timer("t")
        def t(self):
            return len(self)

    first, second = Batch([1]), Batch([1])
    first.t()
    second.t()
    second.t()
    third = copy.copy(second)
    third.t()
    assert (count(first), count(second), count(third)) == (1, 2, 1)


def test_timings_do_not_keep_an_instance():
    """An instance goes when its last name goes, without the garbage collector, and what it did counts for the process."""
    import weakref

    from accelprof.timing import metrics

    gc.disable()
    try:
        worker = Plain()
        worker.t()
        before = metrics.process_totals()["t"][1]
        gone = weakref.ref(worker)
        del worker
        assert gone() is None
        assert metrics.process_totals()["t"][1] == before
    finally:
        gc.enable()
