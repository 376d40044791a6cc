"""Interpolations of OmegaConf without OmegaConf: ``${a.b}``, ``${.sibling}``, ``${oc.select:a.b,default}`` and their like.

What comes out is what OmegaConf makes of the same file; resolvers that only a framework registers are refused by name.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

#: what OmegaConf writes for a value that somebody must still give
MISSING = "???"
_DEEPEST = 64
_KEY = re.compile(r"[^.\[\]]+")
_INT = re.compile(r"[+-]?(0|[1-9]\d*(_\d+)*)$")
_FLOAT = re.compile(r"[+-]?(\d+(_\d+)*\.(\d+(_\d+)*)?|\.\d+|\d+(\.\d*)?[eE][+-]?\d+|inf|nan)$", re.IGNORECASE)
_WORDS: dict[str, Any] = {"null": None, "true": True, "false": False}
_ABSENT: Any = object()


class InterpolationError(Exception):
    """An interpolation that has no value here; the text says why."""


class Resolver:
    """Values of one mapping with every interpolation in them resolved."""

    def __init__(self, mapping: Mapping[str, object]) -> None:
        self._root = mapping
        self._depth = 0

    def node(self, keys: tuple[str, ...]) -> Any:
        """The value at ``keys``, as plain data.

        Raises:
            InterpolationError: it cannot be resolved.
        """
        value = self._raw(keys)
        if value is _ABSENT:
            raise InterpolationError(f"there is nothing at {'.'.join(keys)}")
        return self._whole(value, keys)

    def _raw(self, keys: tuple[str, ...]) -> Any:
        """What stands at ``keys``; interpolations on the way to it are followed, it itself is left as it is written."""
        here: Any = self._root
        for at, key in enumerate(keys):
            if _is_interpolation(here):
                here = self._text(here, keys[:at])
            if isinstance(here, Mapping):
                here = here.get(key, _ABSENT)
            elif isinstance(here, (list, tuple)) and key.isdecimal() and int(key) < len(here):
                here = here[int(key)]
            else:
                return _ABSENT
            if here is _ABSENT:
                return _ABSENT
        return here

    def _whole(self, value: Any, keys: tuple[str, ...]) -> Any:
        if isinstance(value, Mapping):
            return {str(key): self._whole(item, (*keys, str(key))) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._whole(item, (*keys, str(index))) for index, item in enumerate(value)]
        if _is_interpolation(value):
            return self._text(value, keys)
        return value.replace("\\$", "$") if isinstance(value, str) and "\\${" in value else value

    def _text(self, text: str, keys: tuple[str, ...]) -> Any:
        self._depth += 1
        try:
            if self._depth > _DEEPEST:
                raise InterpolationError("the interpolations refer to each other in a circle")
            return _Reader(text, lambda inner: self._one(inner, keys)).whole()
        finally:
            self._depth -= 1

    def _one(self, inner: _Inner, keys: tuple[str, ...]) -> Any:
        if inner.resolver:
            known = RESOLVERS.get(inner.resolver)
            if known is None:
                raise InterpolationError(f"resolver {inner.resolver!r} is not known here")
            return known(self, keys, *inner.arguments)
        return self._found(inner.arguments[0], keys)

    def _found(self, path: str, keys: tuple[str, ...], default: object = _ABSENT) -> Any:
        place = self._place(path, keys)
        if place is None:
            if default is _ABSENT:
                raise InterpolationError(f"{path!r} points above the whole file")
            return default
        value = self._raw(place)
        if value is not _ABSENT and _is_interpolation(value):
            return self._text(value, place)
        if value is _ABSENT or (isinstance(value, str) and value == MISSING):
            if default is _ABSENT:
                raise InterpolationError(f"interpolation key {path!r} not found")
            return default
        return self._whole(value, place)

    @staticmethod
    def _place(path: str, keys: tuple[str, ...]) -> tuple[str, ...] | None:
        up = len(path) - len(path.lstrip("."))
        below = tuple(_KEY.findall(path))
        if up > len(keys):
            return None
        return below if not up else (*keys[: len(keys) - up], *below)

    # --- the resolvers that are there without any framework -------------------------------------------------------------

    def select(self, keys: tuple[str, ...], path: str, default: object = None) -> Any:
        return self._found(path, keys, default)

    def env(self, keys: tuple[str, ...], name: str, default: object = _ABSENT) -> Any:
        if name in os.environ:
            return os.environ[name]
        if default is _ABSENT:
            raise InterpolationError(f"environment variable {name!r} is not set")
        return None if default is None else str(default)

    def decode(self, keys: tuple[str, ...], text: object) -> Any:
        if text is None or not isinstance(text, str):
            return text
        return _Reader(text, lambda inner: self._one(inner, keys)).value()

    def now(self, keys: tuple[str, ...], pattern: str) -> str:
        return datetime.datetime.now().strftime(pattern)

    def names(self, keys: tuple[str, ...], path: str) -> list[str]:
        return list(self._found(path, keys))

    def values(self, keys: tuple[str, ...], path: str) -> list[Any]:
        return list(self._found(path, keys).values())


RESOLVERS: dict[str, Callable[..., Any]] = {
    "oc.select": Resolver.select,
    "oc.env": Resolver.env,
    "oc.decode": Resolver.decode,
    "oc.dict.keys": Resolver.names,
    "oc.dict.values": Resolver.values,
    "now": Resolver.now,
}


def _is_interpolation(value: object) -> bool:
    return isinstance(value, str) and re.search(r"(?<!\\)(\\\\)*\$\{", value) is not None


class _Inner:
    """What stands between ``${`` and ``}``: a path, or a resolver and its arguments."""

    def __init__(self, resolver: str, arguments: list[Any]) -> None:
        self.resolver, self.arguments = resolver, arguments


class _Reader:
    """Reads one text; ``resolve`` gives the value of what stands between braces."""

    def __init__(self, text: str, resolve: Callable[[_Inner], object]) -> None:
        self.text, self.at, self.resolve = text, 0, resolve

    def whole(self) -> Any:
        """The text as a node's value: one interpolation keeps its type, anything beside it makes a text."""
        parts: list[Any] = []
        literal = ""
        while self.at < len(self.text):
            if self._next("${"):
                parts.extend([literal] if literal else [])
                literal = ""
                parts.append(self._interpolation())
            elif self._next("\\${"):
                literal += "${"
                self.at += 3
            else:
                literal += self.text[self.at]
                self.at += 1
        parts.extend([literal] if literal else [])
        return parts[0] if len(parts) == 1 else "".join(str(part) for part in parts)

    def value(self) -> Any:
        """The text as one argument: a word, a number, a list, a mapping."""
        value = self._argument("")
        self._blank()
        if self.at < len(self.text):
            raise InterpolationError(f"{self.text!r} cannot be read")
        return value

    def _next(self, word: str) -> bool:
        return self.text.startswith(word, self.at)

    def _blank(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1

    def _interpolation(self) -> Any:
        self.at += 2
        head = ""
        while not self._next("}") and not self._next(":"):
            if self.at >= len(self.text):
                raise InterpolationError(f"{self.text!r} has no closing brace")
            if self._next("${"):
                head += str(self._interpolation())
            else:
                head += self.text[self.at]
                self.at += 1
        self.at += 1
        if self.text[self.at - 1] == "}":
            return self.resolve(_Inner("", [head.strip()]))
        arguments: list[Any] = []
        self._blank()
        if not self._next("}"):
            arguments = self._several("}")
        else:
            self.at += 1
        return self.resolve(_Inner(head.strip(), arguments))

    def _several(self, end: str) -> list[Any]:
        """Arguments up to ``end``, with commas between."""
        found = []
        while True:
            found.append(self._argument("," + end))
            self._blank()
            if self.at >= len(self.text):
                raise InterpolationError(f"{self.text!r} ends too early")
            self.at += 1
            if self.text[self.at - 1] == end:
                return found

    def _argument(self, ends: str) -> Any:
        self._blank()
        if self._next("["):
            self.at += 1
            self._blank()
            if self._next("]"):
                self.at += 1
                return []
            return self._several("]")
        if self._next("{"):
            return self._mapping()
        if self.at < len(self.text) and self.text[self.at] in "'\"":
            return self._quoted()
        parts: list[Any] = []
        word = ""
        while self.at < len(self.text) and self.text[self.at] not in ends:
            if self._next("${"):
                parts.extend([word] if word else [])
                word = ""
                parts.append(self._interpolation())
            elif self._next("\\") and self.at + 1 < len(self.text):
                word += self.text[self.at + 1]
                self.at += 2
            else:
                word += self.text[self.at]
                self.at += 1
        if not parts:
            return _primitive(word.strip())
        word = word.rstrip()
        parts.extend([word] if word else [])
        return parts[0] if len(parts) == 1 else "".join(str(part) for part in parts)

    def _quoted(self) -> str:
        quote = self.text[self.at]
        end = self.text.find(quote, self.at + 1)
        if end < 0:
            raise InterpolationError(f"{self.text!r} has no closing quote")
        found = self.text[self.at + 1 : end]
        self.at = end + 1
        return str(_Reader(found, self.resolve).whole()) if "${" in found else found

    def _mapping(self) -> dict[Any, Any]:
        self.at += 1
        found: dict[Any, Any] = {}
        self._blank()
        if self._next("}"):
            self.at += 1
            return found
        while True:
            key = self._argument(":")
            self.at += 1
            found[key] = self._argument(",}")
            self._blank()
            if self.at >= len(self.text):
                raise InterpolationError(f"{self.text!r} ends too early")
            self.at += 1
            if self.text[self.at - 1] == "}":
                return found


def _primitive(word: str) -> Any:
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    if _INT.match(word):
        return int(word.replace("_", ""))
    if _FLOAT.match(word):
        return float(word.replace("_", ""))
    return word
