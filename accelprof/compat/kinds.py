"""Wrappers that keep the kind of what they wrap."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
_NOTHING = contextlib.nullcontext()


def _nothing(_: object) -> object:
    return _NOTHING


def by_kind_of_function(function: F, block: Callable[[], Any]) -> F:
    """A function of the same kind that runs inside ``with block()``, a new one for each call."""
    wrapper: Any
    if inspect.iscoroutinefunction(function):

        async def wrapper(*args: Any, **kwargs: Any) -> object:
            with block():
                return await function(*args, **kwargs)

    elif inspect.isgeneratorfunction(function):

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with block():
                return (yield from function(*args, **kwargs))

    else:

        def wrapper(*args: Any, **kwargs: Any) -> object:
            with block():
                return function(*args, **kwargs)

    return functools.update_wrapper(wrapper, function)  # type: ignore[return-value]


def by_kind(function: F, choose: Callable[[Any], Any], around: Callable[[object], Any] = _nothing) -> F:
    """A method of the same kind as ``function`` that calls what ``choose(self)`` gives, inside ``with around(self)``."""
    wrapper: Any
    if inspect.isasyncgenfunction(function):

        async def wrapper(self: object, *args: object, **kwargs: object) -> Any:
            with around(self):
                inner = choose(self)(self, *args, **kwargs)
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

        async def wrapper(self: object, *args: object, **kwargs: object) -> Any:
            with around(self):
                return await choose(self)(self, *args, **kwargs)

    elif inspect.isgeneratorfunction(function):

        def wrapper(self: object, *args: object, **kwargs: object) -> Any:
            with around(self):
                return (yield from choose(self)(self, *args, **kwargs))

    else:

        def wrapper(self: object, *args: object, **kwargs: object) -> Any:
            with around(self):
                return choose(self)(self, *args, **kwargs)

    return functools.update_wrapper(wrapper, function)  # type: ignore[return-value]
