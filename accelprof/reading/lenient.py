"""JSON as profilers really write it: unescaped quotes, lone backslashes, NaN, arrays that were never closed.

Only text that a strict parser refuses comes here. Every repair is named with its position, and what cannot be repaired
is left out with its position, so that nothing is counted that was not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

#: characters of the longest whole number that is one
LONGEST = 400
_SPACE = re.compile(r"[ \t\r\n]*")
_BETWEEN = re.compile(r"[ \t\r\n,]*")
_NUMBER = re.compile(r"-?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|Infinity|NaN|inf(?:inity)?|nan)")
_WORDS = {"true": True, "false": False, "null": None, "None": None, "True": True, "False": False}
_SPECIAL = re.compile(r'["\\]')
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]')
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_NEXT_EVENT = re.compile(r"\}\s*,?\s*(?=\{\s*\")")
#: a quote really ends a string when this follows it
_AFTER_KEY = re.compile(r"\s*:")
_AFTER_MEMBER = re.compile(r"\s*(?:\}\s*(?:[,\]}]|$)|,\s*(?:\"[^\"\\]{1,80}\"\s*:|\}))")
_AFTER_ELEMENT = re.compile(r"\s*(?:\]|,\s*[\[{\"\-\dtfnNI\]])")


class BrokenError(ValueError):
    """The text at ``position`` cannot be read as JSON even with leniency."""

    def __init__(self, reason: str, position: int, ended: bool = False) -> None:
        super().__init__(reason)
        self.position, self.ended = position, ended


@dataclass
class Repairs:
    """What had to be mended or left out: kind -> (how often, first position). ``offset``: characters before the text."""

    offset: int = 0
    mended: dict[str, tuple[int, int]] = field(default_factory=dict)
    left_out: dict[str, tuple[int, int]] = field(default_factory=dict)
    ended: str = ""

    def mend(self, what: str, position: int) -> None:
        count, first = self.mended.get(what, (0, position + self.offset))
        self.mended[what] = (count + 1, first)

    def leave_out(self, what: str, position: int) -> None:
        count, first = self.left_out.get(what, (0, position + self.offset))
        self.left_out[what] = (count + 1, first)

    def lines(self) -> Iterator[str]:
        """One line for each kind of trouble, with its count and first position."""
        for what, (count, first) in self.mended.items():
            yield f"repaired: {what}, {count} time{'s' * (count != 1)}, first at character {first}"
        for what, (count, first) in self.left_out.items():
            yield f"left out: {count} event{'s' * (count != 1)}, {what}, first at character {first}"
        if self.ended:
            yield self.ended


def until_damage(text: str) -> tuple[object, int | None]:
    """A document as far as it can be read: all before the first damage, to the end of the last whole object or list that is an
    element of a list there; and the character the rest begins at, ``None`` where nothing is missing (NaN alone).

    Raises:
        ValueError: not even that.
    """
    try:
        return json.loads(text, parse_int=integer), None
    except json.JSONDecodeError as error:
        damage = error.pos
        if error.msg == "Extra data":
            return json.JSONDecoder(parse_int=integer).raw_decode(text.lstrip())[0], damage
    stack: list[str] = []
    whole, open_there = 0, ""
    for token in _STRUCTURE.finditer(text, 0, damage):
        char = token.group()
        if char in "{[":
            stack.append(char)
        elif char in "}]" and stack:
            stack.pop()
            if stack and stack[-1] == "[":
                whole, open_there = token.end(), "".join(stack)
    closed = text[:whole] + "".join("}" if char == "{" else "]" for char in reversed(open_there))
    return json.loads(closed, parse_int=integer), whole


def objects(text: str, position: int, repairs: Repairs) -> Iterator[tuple[dict[str, object], int]]:
    """The objects of the array whose first element begins at or after ``position``, each with where it ended.

    Numbers with a fraction come as ``Decimal``, NaN and infinities as ``float``.
    """
    strict = _Strict(text)
    size = len(text)
    while True:
        position = _end(_BETWEEN, text, position)
        if position >= size:
            end = size + repairs.offset
            repairs.ended = f"the array of events is not closed; the file ends at character {end}"
            return
        char = text[position]
        if char == "]":
            return
        begin = position
        try:
            value, position = strict.value(position)
        except (json.JSONDecodeError, RecursionError):
            try:
                value, position = _Lenient(text, repairs).value(position, _AFTER_ELEMENT)
            except BrokenError as broken:
                if broken.ended:
                    end, at = size + repairs.offset, begin + repairs.offset
                    repairs.ended = f"the file ends at character {end}, inside the event that begins at {at}"
                    return
                repairs.leave_out(str(broken), broken.position)
                position = _following(text, begin)
                continue
            except RecursionError:
                repairs.leave_out("nested too deeply", begin)
                position = _following(text, begin)
                continue
        if isinstance(value, dict):
            yield value, position
        else:
            repairs.leave_out(f"a {type(value).__name__} where an event should be", begin)


def _following(text: str, position: int) -> int:
    """Where the next event seems to begin; the end of the array or of the text without one."""
    found = _NEXT_EVENT.search(text, position)
    if found is not None:
        return found.end()
    close = text.rfind("]", position)
    return close if close > position else len(text)


def _end(pattern: re.Pattern[str], text: str, position: int) -> int:
    found = pattern.match(text, position)
    return position if found is None else found.end()


class _Strict:
    """Strict decoding of one value at a time out of a piece of the text: an error counts the lines before it, so that of a text
    of many damaged events each would cost all that went before."""

    PIECE = 1 << 16

    def __init__(self, text: str) -> None:
        self.text, self.begin, self.piece = text, 0, ""
        self.decode = json.JSONDecoder(strict=False, parse_float=fraction, parse_int=integer).raw_decode

    def value(self, at: int) -> tuple[object, int]:
        """The value that begins at ``at``, and where it ends.

        Raises:
            json.JSONDecodeError: there is none.
        """
        size = self.PIECE
        while True:
            if not self.begin <= at < self.begin + len(self.piece):
                self.begin, self.piece = at, self.text[at : at + size]
            last = self.begin + len(self.piece) == len(self.text)
            try:
                value, end = self.decode(self.piece, at - self.begin)
                if last or end < len(self.piece):
                    return value, self.begin + end
            except json.JSONDecodeError as error:
                if last or error.pos < len(self.piece) // 2:
                    raise
            # the end of the piece may be what is wrong with it
            size = size * 4 if self.begin == at else self.PIECE
            self.begin, self.piece = at, ""


class _Lenient:
    """Recursive descent over one value. A quote ends a string only when what follows it makes sense."""

    def __init__(self, text: str, repairs: Repairs) -> None:
        self.text, self.repairs = text, repairs

    def value(self, at: int, after: re.Pattern[str]) -> tuple[Any, int]:
        at = _end(_SPACE, self.text, at)
        if at >= len(self.text):
            raise BrokenError("the text ends", at, ended=True)
        char = self.text[at]
        if char == "{":
            return self.object(at + 1)
        if char == "[":
            return self.array(at + 1)
        if char == '"':
            return self.string(at, after)
        number = _NUMBER.match(self.text, at)
        if number is not None:
            return _number(number.group()), number.end()
        for word, meaning in _WORDS.items():
            if self.text.startswith(word, at):
                return meaning, at + len(word)
        raise BrokenError(f"{self.text[at : at + 12]!r} is no JSON value", at)

    def object(self, at: int) -> tuple[dict[str, Any], int]:
        result: dict[str, Any] = {}
        while True:
            at = _end(_BETWEEN, self.text, at)
            char = self._char(at)
            if char == "}":
                return result, at + 1
            if char != '"':
                raise BrokenError(f"a key was expected, found {self.text[at : at + 12]!r}", at)
            key, at = self.string(at, _AFTER_KEY)
            at = _end(_SPACE, self.text, at)
            if self._char(at) != ":":
                raise BrokenError("a colon was expected", at)
            result[key], at = self.value(at + 1, _AFTER_MEMBER)
            at = _end(_SPACE, self.text, at)
            if self._char(at) not in ",}":
                raise BrokenError(f"a comma or brace was expected, found {self.text[at : at + 12]!r}", at)

    def array(self, at: int) -> tuple[list[Any], int]:
        result: list[Any] = []
        while True:
            at = _end(_BETWEEN, self.text, at)
            if self._char(at) == "]":
                return result, at + 1
            item, at = self.value(at, _AFTER_ELEMENT)
            result.append(item)
            at = _end(_SPACE, self.text, at)
            if self._char(at) not in ",]":
                raise BrokenError(f"a comma or bracket was expected, found {self.text[at : at + 12]!r}", at)

    def string(self, at: int, after: re.Pattern[str]) -> tuple[str, int]:
        parts: list[str] = []
        position = at + 1
        while True:
            found = _SPECIAL.search(self.text, position)
            if found is None:
                raise BrokenError("a string is not closed", at, ended=True)
            parts.append(self.text[position : found.start()])
            here = found.start()
            if found.group() == '"':
                if after.match(self.text, here + 1):
                    return "".join(parts), here + 1
                self.repairs.mend("unescaped quote", here)
                parts.append('"')
                position = here + 1
                continue
            char, position, lone = self._escape(here, after)
            if lone:
                self.repairs.mend("lone backslash", here)
            parts.append(char)

    def _escape(self, at: int, after: re.Pattern[str]) -> tuple[str, int, bool]:
        following = self.text[at + 1 : at + 2]
        if following == "u":
            code = _HEX.match(self.text, at + 2)
            return (chr(int(code.group(), 16)), at + 6, False) if code is not None else ("\\", at + 1, True)
        if following == '"' and after.match(self.text, at + 2):
            return "\\", at + 1, True  # a path that ends in a backslash: the quote after it is the string's end
        if following in _ESCAPES and following:
            return _ESCAPES[following], at + 2, False
        return "\\", at + 1, True

    def _char(self, at: int) -> str:
        if at >= len(self.text):
            raise BrokenError("the text ends", at, ended=True)
        return self.text[at]


def integer(word: str) -> int | Decimal:
    """A whole number; Python makes none of more than 4,300 digits, and nothing in a trace has more than 20."""
    return int(word) if len(word) <= LONGEST else Decimal(word)


def fraction(word: str) -> float | Decimal:
    """A number with a fraction or an exponent, exact; one whose exponent is beyond all of ``Decimal``'s as infinity or zero."""
    try:
        return Decimal(word)
    except InvalidOperation:
        return float(word)


def _number(word: str) -> int | float | Decimal:
    bare = word.lstrip("-")
    if bare.isdigit():
        return integer(word)
    return float(word) if bare[0].isalpha() else fraction(word)
