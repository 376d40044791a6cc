"""Sets of steps and of ranks as users write them: ``[2, "5-7"]``, ``"1-3,7"``, ``all``, a range with a stride ``"100-9000/500"``."""

from __future__ import annotations

import operator
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

_RANGE = re.compile(r"^\s*(\d+)\s*(?:-\s*(\d+)\s*(?:/\s*(\d+)\s*)?)?$")
NUMBERS_ALLOWED = "a number >= 0, a text such as '5-7' or '100-900/50', or a list of them"


@dataclass(frozen=True, slots=True)
class NumberSet:
    """Sorted, disjoint, inclusive ``(first, last, stride)`` runs; may be huge without taking memory."""

    runs: tuple[tuple[int, int, int], ...] = ()

    @classmethod
    def parse(cls, value: Any) -> NumberSet:
        """Numbers from an int, a text, a ``range`` or an iterable of these. Duplicates are one.

        Raises:
            ValueError: anything else; ``True`` is not 1, ``2.0`` is not 2.
        """
        runs: list[tuple[int, int, int]] = []
        _collect(value, runs)
        numbers: set[int] = set()
        wide: list[tuple[int, int, int]] = []
        for first, last, stride in runs:
            if stride == 1 or first == last:
                wide.append((first, last, 1))
            else:
                numbers.update(range(first, last + 1, stride))
        wide.extend((number, number, 1) for number in numbers)
        return cls(tuple(_merge(wide)))

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.runs, number, key=lambda run: run[0]) - 1
        return at >= 0 and self.runs[at][0] <= number <= self.runs[at][1]

    def __iter__(self) -> Iterator[int]:
        for first, last, _ in self.runs:
            yield from range(first, last + 1)

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last, _ in self.runs)

    def __bool__(self) -> bool:
        return bool(self.runs)

    def run_of(self, number: int) -> tuple[int, int] | None:
        """``(first, last)`` of the adjacent numbers that ``number`` belongs to."""
        at = bisect_right(self.runs, number, key=lambda run: run[0]) - 1
        if at < 0 or number > self.runs[at][1]:
            return None
        return self.runs[at][0], self.runs[at][1]

    def issubset(self, other: NumberSet) -> bool:
        """Whether every number of this set is in ``other``."""
        return all((within := other.run_of(first)) is not None and last <= within[1] for first, last, _ in self.runs)

    def to_config(self) -> list[int | str]:
        """The shortest list that parses back to this set."""
        return [first if first == last else f"{first}-{last}" for first, last, _ in self.runs]

    def __str__(self) -> str:
        return ", ".join(str(item) for item in self.to_config()) or "none"


def _collect(value: Any, runs: list[tuple[int, int, int]]) -> None:
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is a truth value, not a number")
    if isinstance(value, int):
        if value < 0:
            raise ValueError(f"{value} is negative")
        runs.append((value, value, 1))
    elif isinstance(value, range):
        for number in value:
            _collect(number, runs)
    elif isinstance(value, str):
        for part in value.split(","):
            match = _RANGE.match(part)
            if not match:
                raise ValueError(f"{part.strip()!r} is neither a number nor a range")
            first = int(match[1])
            last = int(match[2]) if match[2] else first
            stride = int(match[3]) if match[3] else 1
            if last < first:
                raise ValueError(f"{part.strip()!r} runs backwards")
            if stride < 1:
                raise ValueError(f"{part.strip()!r} has stride 0")
            runs.append((first, last, stride))
    elif isinstance(value, Iterable) and not isinstance(value, (bytes, dict)):
        for item in value:
            _collect(item, runs)
    else:
        raise ValueError(f"{value!r} is a {type(value).__name__}")


def _merge(runs: list[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    current: tuple[int, int, int] | None = None
    for first, last, _ in sorted(runs):
        if current is not None and first <= current[1] + 1:
            current = (current[0], max(current[1], last), 1)
            continue
        if current is not None:
            yield current
        current = (first, last, 1)
    if current is not None:
        yield current


def whole(value: Any, what: str, text: bool = False) -> int:
    """``value`` as an ``int``: whatever is a whole number by ``__index__`` (numpy's are), and with ``text`` also digits.

    Args:
        what: names the value in the message, in the plural: ``begin_step: step numbers``.
        text: take ``"0"``, where the value may come from an environment.

    Raises:
        TypeError: it is none; ``True`` is not 1, ``1.0`` is not 1.
    """
    if type(value) is int:
        return value
    if not isinstance(value, bool):
        try:
            return int(operator.index(value))
        except TypeError:
            pass
        if text and isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
            return int(value)
    raise TypeError(f"{what} are whole numbers, got {value!r}")
