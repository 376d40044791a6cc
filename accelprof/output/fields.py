"""Values of records as they stand in JSON: what each field takes, and a word for what it does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Read = Callable[[object], object]

_LARGEST = 1 << 63
_SHOWN = 60


class OddError(Exception):
    """A value of another kind; the text says which is expected."""


def text(value: object) -> str:
    if not isinstance(value, str):
        raise OddError("text")
    return value


def whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -_LARGEST <= value < _LARGEST:
        raise OddError("a whole number")
    return value


def number(value: object) -> float:
    if isinstance(value, float) and abs(value) < _LARGEST:  # neither NaN nor what a sum or another unit makes endless
        return value
    try:
        return whole(value)
    except OddError:
        raise OddError("a number") from None


def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise OddError("true or false")
    return value


def an_object(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise OddError("an object")
    return dict(value)


def maybe(read: Read) -> Read:
    return lambda value: None if value is None else read(value)


def many(read: Read, what: str) -> Read:
    def values(value: object) -> list[Any]:
        if not isinstance(value, (list, tuple)):
            raise OddError(f"a list of {what}")
        try:
            return [read(item) for item in value]
        except OddError:
            raise OddError(f"a list of {what}") from None

    return values


def some(read: Read, what: str) -> Read:
    """Those of a list that are what they should be."""

    def values(value: object) -> list[Any]:
        if not isinstance(value, (list, tuple)):
            raise OddError(f"a list of {what}")
        return [read(item) for item in value if _taken(read, item)]

    return values


def texts_by_name(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(item, str) for item in value.values()):
        raise OddError("texts by name")
    return {str(key): item for key, item in value.items()}


def name(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise OddError("a name")
    return value


texts, wholes = many(text, "texts"), many(whole, "whole numbers")


def _taken(read: Read, value: object) -> bool:
    try:
        read(value)
    except OddError:
        return False
    return True


def is_whole(value: object) -> bool:
    return _taken(whole, value)


def is_number(value: object) -> bool:
    return _taken(number, value)


def shown(value: object) -> str:
    """A value for a message, short, without walking through all of a large one."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, float):
        return str(value)
    if isinstance(value, int):
        return str(value) if abs(value) < _LARGEST else "a number beyond 64 bits"
    if isinstance(value, str):
        return repr(value if len(value) <= _SHOWN else value[:_SHOWN] + "…")
    if isinstance(value, (list, tuple)):
        return "a list"
    return "an object" if isinstance(value, Mapping) else f"a {type(value).__name__}"
