"""Phases that are a turn of somebody's loop, where no method is one turn: found by what the loop takes or calls.

``each``: the loop goes over what a method returned; a turn lasts from one element to the next, so all of the body is in it.
``loop``, ``begin``, ``end``: inside a call of the loop's method, a turn lasts from the first call of one method to the end of the
next call of another. Outside the loop those two are what they always were.

While nothing is open or armed, each costs one test of an attribute.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

from accelprof.timing.gate import gate
from accelprof.timing.metrics import process_state
from accelprof.timing.phase import PhaseSpec
from accelprof.timing.running import Run


class _Turns(threading.local):
    """The turn that is open on this thread, by phase, and how many calls of the loop's method are on its stack."""

    def __init__(self) -> None:
        self.open: dict[str, Run] = {}
        self.depth: dict[str, int] = {}


_turns = _Turns()


def part_of_loop(function: object, tag: str, part: str) -> object:
    """``function`` as that part of the loop whose turns are the phase ``tag``.

    Raises:
        TypeError: it is no plain function.
    """
    if (
        not inspect.isfunction(function)
        or inspect.iscoroutinefunction(function)
        or inspect.isgeneratorfunction(function)
    ):
        raise TypeError(f"it is a {type(function).__name__} and no plain method, so it is no part of a loop")
    wrapped: object = functools.wraps(function)(_PARTS[part](function, tag))
    return wrapped


def _begin(tag: str, suspends: bool) -> Run:
    """``suspends``: other ranges of this thread may begin inside this one and end outside."""
    _finish(tag)
    run = _turns.open[tag] = Run(process_state(tag), PhaseSpec(tag), suspends=suspends)
    return run


def _finish(tag: str) -> None:
    run = _turns.open.pop(tag, None)
    if run is not None:
        run.finish()


class _Each:
    """An iterable whose turns are phases; everything else is the original's."""

    def __init__(self, inner: Any, tag: str) -> None:
        self._accelprof_inner, self._accelprof_tag = inner, tag
        self._accelprof_run: Run | None = None

    def __getattr__(self, name: str) -> object:
        return getattr(self._accelprof_inner, name)

    def __len__(self) -> int:
        return len(self._accelprof_inner)

    def __iter__(self) -> Iterator[object]:
        return _Each(iter(self._accelprof_inner), self._accelprof_tag)

    def __next__(self) -> Any:
        tag = self._accelprof_tag
        _finish(tag)
        self._accelprof_run = None
        item = next(self._accelprof_inner)
        if gate.entrance is not None:
            self._accelprof_run = _begin(tag, suspends=False)
        return item

    def __del__(self) -> None:
        run = self.__dict__.get("_accelprof_run")
        if run is not None and _turns.open.get(self._accelprof_tag) is run:
            _finish(self._accelprof_tag)  # the loop was left by an exception or a break


def _each(function: Callable[..., object], tag: str) -> Callable[..., object]:
    def wrapper(*args: object, **kwargs: object) -> object:
        found = function(*args, **kwargs)
        return found if gate.entrance is None else _Each(found, tag)

    return wrapper


def _loop(function: Callable[..., object], tag: str) -> Callable[..., Any]:
    def wrapper(*args: object, **kwargs: object) -> object:
        if gate.entrance is None:
            return function(*args, **kwargs)
        depth = _turns.depth
        depth[tag] = depth.get(tag, 0) + 1
        try:
            return function(*args, **kwargs)
        finally:
            depth[tag] -= 1
            if not depth[tag]:
                _finish(tag)

    return wrapper


def _first(function: Callable[..., object], tag: str) -> Callable[..., object]:
    def wrapper(*args: object, **kwargs: object) -> object:
        if gate.entrance is not None and _turns.depth.get(tag) and tag not in _turns.open:
            _begin(tag, suspends=True)
        return function(*args, **kwargs)

    return wrapper


def _last(function: Callable[..., object], tag: str) -> Callable[..., object]:
    def wrapper(*args: object, **kwargs: object) -> object:
        try:
            return function(*args, **kwargs)
        finally:
            if _turns.open:
                _finish(tag)

    return wrapper


#: what a target may be for its phase; empty = a call is the phase
_PARTS = {"each": _each, "loop": _loop, "begin": _first, "end": _last}
