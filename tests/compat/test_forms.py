"""Wrappers keep what callers do with a generator."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from accelprof.compat import rlinf, verl_marks
from accelprof.compat.forms import by_form, within


def test_async_generators_are_delegated_to():
    """What is sent or thrown in reaches the inner generator, and closing the outer one closes it at once."""
    seen = []

    class Worker:
        async def talk(self):
            item = 0
            try:
                while True:
                    try:
                        item = yield item
                        seen.append(("sent", item))
                    except KeyError as error:
                        seen.append(("thrown", error.args[0]))
                        item = -1
            finally:
                seen.append("closed")

    async def use():
        talk = by_form(Worker.talk, lambda _: Worker.talk)(Worker())
        assert await talk.asend(None) == 0
        assert await talk.asend(7) == 7
        assert await talk.athrow(KeyError("x")) == -1
        await talk.aclose()
        assert seen == [("sent", 7), ("thrown", "x"), "closed"]

    asyncio.run(use())


def functions(seen):
    """One function of each kind, which tells when its body begins and ends."""

    def plain():
        seen.append("begins")
        seen.append("ends")

    async def coroutine():
        seen.append("begins")
        await asyncio.sleep(0)
        seen.append("ends")

    def generator():
        seen.append("begins")
        yield 1
        seen.append("ends")

    async def agenerator():
        seen.append("begins")
        yield 1
        seen.append("ends")

    return {"plain": plain, "coroutine": coroutine, "generator": generator, "agenerator": agenerator}


async def run_through(kind, function):
    if kind == "plain":
        function()
    elif kind == "coroutine":
        await function()
    elif kind == "generator":
        assert list(function()) == [1]
    else:
        assert [item async for item in function()] == [1]


@pytest.mark.parametrize("kind", ["plain", "coroutine", "generator", "agenerator"])
@pytest.mark.parametrize("way", ["within", "trace_func", "marked_timer", "memory"])
def test_a_decorated_functions_block_holds_its_body(monkeypatch, way, kind):
    """Whatever decorates a function with a block: the block opens before the body begins and closes after it has ended."""
    seen = []

    class Block(contextlib.ContextDecorator):
        def __enter__(self):
            seen.append("in")

        def __exit__(self, *error):
            seen.append("out")

    if way == "within":
        decorate = lambda function: within(function, Block)  # noqa: E731
    elif way == "trace_func":
        monkeypatch.setattr(rlinf, "profiling_range", lambda *args, **kwargs: Block())
        decorate = rlinf.Tracer.trace_func
    elif way == "marked_timer":
        monkeypatch.setattr(verl_marks._Timed, "__enter__", Block.__enter__)
        monkeypatch.setattr(verl_marks._Timed, "__exit__", Block.__exit__)
        decorate = verl_marks.marked_timer("gen", {})
    else:
        monkeypatch.setattr(verl_marks, "_say", lambda text, *_: seen.append("in" if "Before" in text else "out"))
        decorate = verl_marks.GPUMemoryLogger("actor")
    asyncio.run(run_through(kind, decorate(functions(seen)[kind])))
    assert seen == ["in", "begins", "ends", "out"]


@pytest.mark.parametrize("around", [None, lambda self: contextlib.nullcontext()])
def test_a_method_called_without_self_raises_as_any_does(around):
    """Under ``staticmethod`` it gets none; what comes is what the method itself would raise."""

    class Worker:
        def update(self):
            return 1

    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        by_form(Worker.update, lambda self: Worker.update, around)()
