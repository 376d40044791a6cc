"""Interpolations of OmegaConf without OmegaConf: ``${a.b}``, ``${.sibling}``, ``${oc.select:a.b,default}`` and their like.

What comes out is what OmegaConf makes of the same file; resolvers that only a framework registers are refused by name.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from accelprof.config.door import parse
from accelprof.errors import ConfigError

#: what OmegaConf writes for a value that somebody must still give
MISSING = "???"
_DEEPEST = 64
_KEY = re.compile(r"[^.\[\]]+")
_INT = re.compile(r"[+-]?(0|[1-9]\d*(_\d+)*)$")
_DIGITS = r"\d+(_\d+)*"
_FLOAT = re.compile(
    rf"[+-]?(({_DIGITS}\.({_DIGITS})?|\.{_DIGITS})([eE][+-]?{_DIGITS})?|{_DIGITS}[eE][+-]?{_DIGITS}|inf|nan)$",
    re.IGNORECASE,
)
_SLASHES = re.compile(r"\\*")
_ESCAPED = "\\()[]{}:=, \t"
_UNQUOTED = re.compile(r"[A-Za-z0-9_/\-\\+.$%*@?|: \t]")
_PATH = re.compile(r"\.*([^.\[\]\s]+|\[[^.\[\]\s]+\])(\.[^.\[\]\s]+|\[[^.\[\]\s]+\])*$|\.+$")
_WORDS: dict[str, object] = {"null": None, "true": True, "false": False}
_ABSENT: object = object()


class InterpolationError(Exception):
    """An interpolation that has no value here; the text says why."""


class _Node(NamedTuple):
    """A value as it is written, and where: paths in it that begin with a dot count from there. Inside a text it is printed as it
    is written, interpolations and all."""

    value: Any
    place: tuple[str, ...]

    def __repr__(self) -> str:
        return repr(self.value)


class Resolver:
    """Values of one mapping with every interpolation in them resolved."""

    def __init__(self, mapping: Mapping[str, object]) -> None:
        self._root = mapping
        self._depth = 0

    def node(self, keys: tuple[str, ...]) -> Any:
        """The value at ``keys``, as plain data; ``None`` where there is nothing.

        Raises:
            InterpolationError: it cannot be resolved.
        """
        value, place = self._raw(keys)
        return None if value is _ABSENT else self._whole(value, place)

    def _raw(self, keys: tuple[str, ...]) -> _Node:
        """What stands at ``keys`` as it is written. Interpolations on the way to it are followed, and of what they stand for
        nothing else is resolved: it may refer back to here."""
        here, place = _Node(self._root, ())
        for key in keys:
            if isinstance(here, _Node):  # in what a resolver was given
                here, place = here
            if _is_interpolation(here):
                here, place = self._behind(here, place)
            if isinstance(here, Mapping):
                here = here.get(key, here.get(int(key), _ABSENT) if key.isdecimal() else _ABSENT)
            elif isinstance(here, (list, tuple)):
                if not key.isdecimal():
                    if self._is_made(place):
                        return _Node(_ABSENT, keys)
                    raise InterpolationError(f"a list has no {key!r}")
                here = here[int(key)] if int(key) < len(here) else _ABSENT
            else:
                return _Node(_ABSENT, keys)
            place = (*place, key)
            if here is _ABSENT:
                return _Node(_ABSENT, keys)
        return _Node(here, place)

    def _is_made(self, place: tuple[str, ...]) -> bool:
        """Whether a resolver made what stands at ``place``: a list of that kind is a leaf to OmegaConf, with nothing below."""
        here: Any = self._root
        for key in place:
            if isinstance(here, Mapping):
                here = here.get(key)
            elif isinstance(here, (list, tuple)) and key.isdecimal() and int(key) < len(here):
                here = here[int(key)]
            else:
                return True
        return not isinstance(here, (list, tuple))

    def _behind(self, text: str, place: tuple[str, ...]) -> _Node:
        """What the interpolation at ``place`` stands for, as it is written there."""
        found = self._read(text, place)
        return found if isinstance(found, _Node) else _Node(found, place)

    def _read(self, text: str, keys: tuple[str, ...]) -> Any:
        """The value of the text at ``keys``; of a container its node."""
        self._depth += 1
        try:
            if self._depth > _DEEPEST:
                raise InterpolationError("the interpolations refer to each other in a circle")
            return _Reader(text, lambda inner: self._one(inner, keys)).whole()
        finally:
            self._depth -= 1

    def _whole(self, value: Any, keys: tuple[str, ...]) -> object:
        """``value``, which stands at ``keys``, with everything in it resolved."""
        self._depth += 1
        try:
            if self._depth > _DEEPEST:
                raise InterpolationError("the interpolations refer to each other in a circle")
            if _is_interpolation(value):
                found = self._read(value, keys)
                return self._whole(found, keys) if isinstance(found, (_Node, dict, list)) else found
            if isinstance(value, _Node):
                return self._whole(*value)
            if isinstance(value, Mapping):
                return {key: self._whole(item, (*keys, str(key))) for key, item in value.items()}
            if isinstance(value, (list, tuple)):
                return [self._whole(item, (*keys, str(index))) for index, item in enumerate(value)]
            return value
        finally:
            self._depth -= 1

    def _one(self, inner: _Inner, keys: tuple[str, ...]) -> Any:
        if not inner.resolver:
            return self._found(inner.arguments[0], keys, inside=keys)
        known = RESOLVERS.get(inner.resolver)
        if known is None:
            raise InterpolationError(f"resolver {inner.resolver!r} is not known here")
        try:
            return known(self, keys, *inner.arguments)
        except (TypeError, ConfigError) as error:  # too many arguments or too few, or one of another kind
            raise InterpolationError(f"{inner.resolver}: {error}") from None

    def _found(self, path: str, keys: tuple[str, ...], default: object = _ABSENT, inside: tuple[str, ...] = ()) -> Any:
        """The value at ``path``, or the node of a container; ``inside``: what it must not hold."""
        if not isinstance(path, str):
            raise TypeError(f"{path!r} is no path")
        place = self._place(path, keys)
        if place is None:
            if default is _ABSENT:
                raise InterpolationError(f"{path!r} points above the whole file")
            return default
        value, place = self._raw(place)
        if _is_interpolation(value):
            return self._read(value, place)
        if value is _ABSENT or (isinstance(value, str) and value == MISSING):
            if default is _ABSENT:
                raise InterpolationError(f"interpolation key {path!r} not found")
            return default
        if len(place) < len(inside) and place == inside[: len(place)]:
            raise InterpolationError("the interpolation refers to what it stands in")
        return _Node(value, place) if isinstance(value, (Mapping, list, tuple)) else value

    @staticmethod
    def _place(path: str, keys: tuple[str, ...]) -> tuple[str, ...] | None:
        up = len(path) - len(path.lstrip("."))
        below = tuple(_KEY.findall(path))
        if up > len(keys):
            return None
        return below if not up else (*keys[: len(keys) - up], *below)

    # --- the resolvers that are there without any framework -------------------------------------------------------------

    def select(self, keys: tuple[str, ...], path: str, default: object = None) -> object:
        return self._found(path, keys, default)

    def env(self, keys: tuple[str, ...], name: str, default: object = _ABSENT) -> Any:
        if name in os.environ:
            return os.environ[name]
        if default is _ABSENT:
            raise InterpolationError(f"environment variable {name!r} is not set")
        return None if default is None else str(default)

    def decode(self, keys: tuple[str, ...], text: object) -> Any:
        if text is None:
            return None
        if not isinstance(text, str):
            raise TypeError(f"{text!r} is no text")
        return _Reader(text, lambda inner: self._one(inner, keys)).value()

    def create(self, keys: tuple[str, ...], value: object) -> Any:
        if isinstance(value, str):
            value = parse(value, "oc.create")
            value = {} if value is None else {value: None} if isinstance(value, str) else value
        if value is not None and not isinstance(value, (_Node, dict, list)):
            raise TypeError(f"{value!r} is no mapping and no list")
        return value if isinstance(value, _Node) else _Node(value, keys)

    def deprecated(self, keys: tuple[str, ...], path: str, message: str = "") -> object:
        if not isinstance(message, str):
            raise TypeError(f"{message!r} is no text")
        return self._found(path, keys)

    def now(self, keys: tuple[str, ...], pattern: str) -> str:
        return datetime.datetime.now().strftime(pattern)

    def names(self, keys: tuple[str, ...], path: str) -> list[object]:
        return list(self._mapping(path, keys))

    def values(self, keys: tuple[str, ...], path: str) -> _Node:
        """References to the values; they stand one level below ``keys``."""
        written = f".{path}" if str(path).startswith(".") else path
        return _Node([f"${{{written}.{name}}}" for name in self._mapping(path, keys)], keys)

    def _mapping(self, path: str, keys: tuple[str, ...]) -> Mapping[object, object]:
        found = self._found(path, keys)
        if not isinstance(found, _Node) or not isinstance(found.value, Mapping):
            raise TypeError(f"{path!r} is no mapping")
        return found.value


RESOLVERS: dict[str, Callable[..., object]] = {
    "oc.select": Resolver.select,
    "oc.env": Resolver.env,
    "oc.create": Resolver.create,
    "oc.decode": Resolver.decode,
    "oc.deprecated": Resolver.deprecated,
    "oc.dict.keys": Resolver.names,
    "oc.dict.values": Resolver.values,
    "now": Resolver.now,
}


def _is_interpolation(value: object) -> bool:
    return isinstance(value, str) and "${" in value


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
        return _joined(self._literal(""))

    def value(self) -> Any:
        """The text as one argument: a word, a number, a list, a mapping."""
        value = self._argument("")
        if self.at < len(self.text):
            raise InterpolationError(f"{self.text!r} cannot be read")
        return value

    def _next(self, word: str) -> bool:
        return self.text.startswith(word, self.at)

    def _blank(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1

    def _literal(self, quote: str) -> list[object]:
        """Texts and values up to ``quote``, or to the end. Backslashes escape what would end or interpolate, and each other
        before it; everywhere else they are backslashes."""
        parts: list[object] = []
        while self.at < len(self.text):
            slashes = _SLASHES.match(self.text, self.at)[0]  # type: ignore[index]
            after = self.at + len(slashes)
            special = "${" if self.text.startswith("${", after) else quote
            if not special or not self.text.startswith(special, after):
                step = max(len(slashes), 1)
                parts.append(self.text[self.at : self.at + step])
                self.at += step
                continue
            parts.append(slashes[: len(slashes) // 2])
            self.at = after
            if len(slashes) % 2:
                parts.append(special)
                self.at += len(special)
            elif special == quote:
                return parts
            else:
                parts.append(self._interpolation())
        if quote:
            raise InterpolationError(f"{self.text!r} has no closing quote")
        return parts

    def _interpolation(self) -> object:
        self.at += 2
        self._blank()
        head = ""
        while not self._next("}") and not self._next(":"):
            if self.at >= len(self.text):
                raise InterpolationError(f"{self.text!r} has no closing brace")
            if self._next("${"):
                name = self._interpolation()
                if isinstance(name, bool) or not isinstance(name, (str, int)):
                    raise InterpolationError(f"{name!r} is no key")
                head += str(name)
            else:
                head += self.text[self.at]
                self.at += 1
        head = head.rstrip(" \t")
        self.at += 1
        if self.text[self.at - 1] == "}":
            if not _PATH.match(head):
                raise InterpolationError(f"{head!r} is no path")
            return self.resolve(_Inner("", [head]))
        self._blank()
        if self._next("}"):
            self.at += 1
            return self.resolve(_Inner(head, []))
        return self.resolve(_Inner(head, self._several("}")))

    def _several(self, end: str) -> list[object]:
        """Arguments up to ``end``, with commas between; one that is left out is an empty text."""
        found = []
        while True:
            self._blank()
            found.append("" if self._next(",") or self._next(end) else self._argument("," + end))
            if self._ended() == end:
                return found

    def _ended(self) -> str:
        self._blank()
        if self.at >= len(self.text):
            raise InterpolationError(f"{self.text!r} ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def _argument(self, ends: str) -> object:
        """One value; ``ends``: what stands behind it, which is left for the caller."""
        if self._next("["):
            self.at += 1
            self._blank()
            if not self._next("]"):
                return self._before(ends, self._several("]"))
            self.at += 1
            return self._before(ends, [])
        if self._next("{"):
            return self._before(ends, self._pairs())
        if self._next("'") or self._next('"'):
            self.at += 1
            found = "".join(map(str, self._literal(self.text[self.at - 1])))
            self.at += 1
            return self._before(ends, found)
        return self._word(ends)

    def _before(self, ends: str, value: object) -> object:
        at = self.at
        self._blank()
        if self.at < len(self.text) and self.text[self.at] not in ends:
            raise InterpolationError(f"{self.text!r}: {self.text[self.at :]!r} behind a value")
        self.at = self.at if ends else at
        return value

    def _word(self, ends: str) -> object:
        """A word without quotes: a number, a truth value, null, or a text."""
        parts: list[object] = []
        began, plain, kept = self.at, True, self.at  # kept: where the text ends, blanks behind it left out
        while self.at < len(self.text) and self.text[self.at] not in ends:
            if self._next("${"):
                parts.append(self._interpolation())
                plain, kept = False, self.at
                continue
            char, following = self.text[self.at], self.text[self.at + 1 : self.at + 2]
            if char == "\\" and following and following in _ESCAPED:
                parts.append(following)
                self.at += 2
                plain, kept = False, self.at
                continue
            if not _UNQUOTED.match(char):
                raise InterpolationError(f"{self.text!r}: {char!r} needs quotes")
            parts.append(char)
            self.at += 1
            kept = kept if char in " \t" and ends else self.at
        if not parts:
            raise InterpolationError(f"{self.text!r} has nothing where a value is expected")
        del parts[len(parts) - (self.at - kept) :]
        return _primitive(self.text[began:kept]) if plain else _joined(parts)

    def _pairs(self) -> dict[object, object]:
        self.at += 1
        found: dict[object, object] = {}
        self._blank()
        if self._next("}"):
            self.at += 1
            return found
        while True:
            self._blank()
            key = self._word(":")
            self._ended()
            self._blank()
            found[key] = self._argument(",}")
            if self._ended() == "}":
                return found


def _joined(parts: list[object]) -> object:
    kept = [part for part in parts if not isinstance(part, str) or part]
    return kept[0] if len(kept) == 1 else "".join(map(str, kept))


def _primitive(word: str) -> object:
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    if _INT.match(word):
        return int(word.replace("_", ""))
    if _FLOAT.match(word):
        return float(word.replace("_", ""))
    return word
