"""Whatever the user's function, its parameters and its label are called, it runs as it was and is timed under its label."""

from __future__ import annotations

import asyncio
import builtins
import inspect
import keyword

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import accelprof
from accelprof.testing import capture
from accelprof.timing.gate import wrapper_globals
from accelprof.timing.running import LOCALS
from accelprof.timing.sampled import sampled
from accelprof.timing.timer import OWN, RESERVED

#: all that a generated wrapper says: its own locals, its globals, and the builtins
TAKEN = sorted(
    {*LOCALS.values(), *(RESERVED + name for name in OWN), *(name for name in wrapper_globals if name[0] == "_")}
)
NAMES = [
    *dir(builtins),
    *TAKEN,
    "self",
    "cls",
    "match",
    "type",
    "größe",
    "参数",
    "_",
    "__x",
    "_accelprof_",
    "_accelprof_d0",
]
NAMES = [name for name in NAMES if name.isidentifier() and not keyword.iskeyword(name) and name != "__debug__"]
KINDS = {
    "sync": "def {name}({p}, *, {q}=2): return ({p}, {q})",
    "async": "async def {name}({p}, *, {q}=2): return ({p}, {q})",
    "generator": "def {name}({p}, *, {q}=2): yield ({p}, {q})",
    "asyncgen": "async def {name}({p}, *, {q}=2): yield ({p}, {q})",
}


def result(value):
    """What a call of any kind of function gave in the end."""
    if inspect.iscoroutine(value):
        return asyncio.run(value)
    if inspect.isasyncgen(value):

        async def first():
            async for item in value:
                return item

        return asyncio.run(first())
    return next(value) if inspect.isgenerator(value) else value


def made(kind, name, p, q):
    space = {}
    exec(KINDS[kind].format(name=name, p=p, q=q), space)
    return space[name]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "wrap", [lambda f: accelprof.timer("t")(f), lambda f: sampled(f, "t")], ids=["timer", "sampled"]
)
def test_every_name_that_python_allows(kind, wrap):
    """A function and its parameters may be called like a builtin, or like anything that our wrapper itself uses."""
    for name in NAMES:
        other = "other" if name != "other" else "another"
        for function_name, p, q in (
            (name, other, "q"),
            ("plain", name, other),
            ("plain", other, name),
            (name, name, other),
        ):
            function = made(kind, function_name, p, q)
            wrapped = wrap(function)
            assert result(wrapped(1)) == (1, 2), (function_name, p, q)
            assert result(wrapped(**{p: 3, q: 4})) == (3, 4), (function_name, p, q)
            assert inspect.signature(wrapped) == inspect.signature(function)
            assert wrapped.__name__ == function_name


@pytest.mark.parametrize("name", ["<lambda>", "lambda", "None", "__debug__", "", "a b", "\ud800", "_accelprof_fn"])
def test_names_that_are_not_written_in_code(name):
    """A function may be given any name afterwards."""

    def function(x):
        return x

    function.__name__ = name
    assert accelprof.timer("t")(function)(1) == 1
    assert sampled(function, "t")(1) == 1


def test_such_names_in_an_open_window():
    """The paths of an open window use no name of the user's either."""
    with capture(steps=[1]) as run:
        with run.session.step(1):
            for name in NAMES:
                function = accelprof.timer(f"label {name}")(made("sync", name, "len", "Exception"))
                assert function(1) == (1, 2)
        assert run.backend.labels() == [f"label {name}" for name in NAMES]
        assert run.backend.balanced()


def test_a_method_called_like_a_builtin():
    """``len`` of a class: the wrapper's own ``len`` is not it."""

    class Bag(accelprof.Worker):
        @accelprof.Worker.timer("bag/len")
        def len(self):
            return len([1, 2])

        @accelprof.Worker.timer("bag/type")
        def type(self, IndexError=3):
            return IndexError

    bag = Bag()
    assert (bag.len(), bag.type(), bag.type(IndexError=4)) == (2, 3, 4)
    assert {tag: row["count"] for tag, row in bag.timing_stats().items()} == {"bag/len": 1, "bag/type": 2}


@settings(deadline=None, max_examples=60)
@given(st.text(min_size=1))
def test_any_text_is_a_label(text):
    """Quotes, line ends, NUL, half a surrogate: the label is what it was, and the function runs."""
    assert accelprof.timer(text)(lambda x: x)(5) == 5
    assert sampled(lambda x: x, text)(5) == 5

    class W(accelprof.Worker):
        @accelprof.Worker.timer(text)
        def m(self):
            return 1

    worker = W()
    worker.m()
    assert list(worker.timing_stats()) == [text]


def test_a_signature_that_says_something_else():
    """What a function says of itself to readers (``__signature__``) is not how it is called."""

    def real(a, b=2, /, *, c=3):
        return a, b, c

    real.__signature__ = inspect.Signature([inspect.Parameter("shown", inspect.Parameter.KEYWORD_ONLY)])
    timed = accelprof.timer("t")(real)
    assert timed(1, c=5) == (1, 2, 5)
    assert list(inspect.signature(timed).parameters) == ["shown"]
    for missing in ({}, {"a": 1}):
        with pytest.raises(TypeError):
            timed(**missing)
