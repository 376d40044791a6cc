"""Wrappers that keep the form of what they wrap: coroutine function, generator, async generator, or none of these."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
_NOTHING = contextlib.nullcontext()


def within(function: F, block: Callable[[], Any]) -> F:
    """A function of the same form that runs inside ``with block()``, a new one for each call; of a generator from its first item to its
    end."""
    return _made(function, lambda args: function, lambda args: block())


def by_form(function: F, choose: Callable[[Any], Any], around: Callable[[object], Any] | None = None) -> F:
    """A method of the same form as ``function`` that calls what ``choose(self)`` gives, inside ``with around(self)``."""
    # without self a TypeError, as any method raises
    return _made(
        function, lambda args: choose(*args[:1]), lambda args: _NOTHING if around is None else around(*args[:1])
    )


def _made(function: F, choose: Callable[[tuple[Any, ...]], Any], around: Callable[[tuple[Any, ...]], Any]) -> F:
    wrapper: Any
    if inspect.isasyncgenfunction(function):

        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            with around(args):
                inner = choose(args)(*args, **kwargs)
                sent: Any = None
                thrown: BaseException | None = None
                try:
                    while True:
                        try:
                            item = await (inner.asend(sent) if thrown is None else inner.athrow(thrown))
                        except StopAsyncIteration:
                            return
                        sent = thrown = None
                        try:
                            sent = yield item
                        except GeneratorExit:
                            raise
                        except BaseException as error:  # noqa: BLE001 - whatever is thrown in belongs to the inner one
                            thrown = error
                finally:
                    await inner.aclose()

    elif inspect.iscoroutinefunction(function):

        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            with around(args):
                return await choose(args)(*args, **kwargs)

    elif inspect.isgeneratorfunction(function):

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with around(args):
                return (yield from choose(args)(*args, **kwargs))

    else:

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with around(args):
                return choose(args)(*args, **kwargs)

    return functools.update_wrapper(wrapper, function)  # type: ignore[return-value]
