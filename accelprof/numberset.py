"""Sets of steps and of ranks as users write them: ``[2, "5-7"]``, ``"1-3,7"``, ``all``, a range with a stride ``"100-9000/500"``."""

from __future__ import annotations

import operator
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, SupportsIndex

_RANGE = re.compile(r"^\s*(\d+)\s*(?:-\s*(\d+)\s*(?:/\s*(\d+)\s*)?)?$")
NUMBERS_ALLOWED = "a number >= 0, a text such as '5-7' or '100-900/50', or a list of them"
#: the largest number: steps and ranks are counts, and the size of a set must be a number that ``len`` can give
LARGEST = 10**18
#: numbers with a stride that are kept one by one; more stay a run with its stride
LISTED = 10_000


@dataclass(frozen=True, slots=True)
class NumberSet:
    """Sorted, disjoint, inclusive ``(first, last, stride)`` runs; may be huge without taking memory.

    Two runs never touch. A stride other than 1 is kept where there are more than :data:`LISTED` numbers in it.
    """

    runs: tuple[tuple[int, int, int], ...] = ()

    @classmethod
    def parse(cls, value: object) -> NumberSet:
        """Numbers from an int, a text, a ``range`` or an iterable of these. Duplicates are one; nothing is listed out.

        Raises:
            ValueError: anything else; ``True`` is not 1, ``2.0`` is not 2; a number above :data:`LARGEST`; a large range with
                a stride that reaches into another one.
        """
        plain: list[tuple[int, int]] = []
        strided: list[tuple[int, int, int]] = []
        _collect(value, plain, strided)
        return cls(tuple(_merged(plain, strided)))

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.runs, number, key=lambda run: run[0]) - 1
        if at < 0:
            return False
        first, last, stride = self.runs[at]
        return first <= number <= last and (number - first) % stride == 0

    def __iter__(self) -> Iterator[int]:
        for first, last, stride in self.runs:
            yield from range(first, last + 1, stride)

    def __len__(self) -> int:
        return sum((last - first) // stride + 1 for first, last, stride in self.runs)

    def __bool__(self) -> bool:
        return bool(self.runs)

    def union(self, *others: NumberSet) -> NumberSet:
        """The numbers of all of them.

        Raises:
            ValueError: as :meth:`parse`.
        """
        return NumberSet.parse([item for numbers in (self, *others) for item in numbers.to_config()])

    def stretches(self) -> Iterator[tuple[int, int]]:
        """``(first, last)`` of adjacent numbers, in order."""
        for first, last, stride in self.runs:
            if stride == 1:
                yield first, last
            else:
                yield from ((number, number) for number in range(first, last + 1, stride))

    def stretch_count(self) -> int:
        """How many :meth:`stretches` there are."""
        return sum(1 if stride == 1 else (last - first) // stride + 1 for first, last, stride in self.runs)

    def run_of(self, number: int) -> tuple[int, int] | None:
        """``(first, last)`` of the adjacent numbers that ``number`` belongs to."""
        if number not in self:
            return None
        first, last, stride = self.runs[bisect_right(self.runs, number, key=lambda run: run[0]) - 1]
        return (first, last) if stride == 1 else (number, number)

    def issubset(self, other: NumberSet) -> bool:
        """Whether every number of this set is in ``other``; where only listing them all would tell, ``False``."""
        return all(_inside(run, other) for run in self.runs)

    def to_config(self) -> list[int | str]:
        """The shortest list that parses back to this set."""
        return [
            first if first == last else f"{first}-{last}" if stride == 1 else f"{first}-{last}/{stride}"
            for first, last, stride in self.runs
        ]

    def __str__(self) -> str:
        return ", ".join(str(item) for item in self.to_config()) or "none"


def _inside(run: tuple[int, int, int], other: NumberSet) -> bool:
    first, last, stride = run
    if stride == 1:
        within = other.run_of(first)
        return within is not None and last <= within[1]
    for start, end, step in other.runs:
        if start <= first and last <= end and (stride % step, (first - start) % step) == (0, 0):
            return True
    return False


def _collect(value: object, plain: list[tuple[int, int]], strided: list[tuple[int, int, int]]) -> None:
    """Put the parts of ``value`` into ``plain`` (adjacent numbers) and ``strided``."""
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is a truth value, not a number")
    if isinstance(value, str):
        for part in value.split(","):
            _add(*_range_of(part), plain, strided)
    elif isinstance(value, range):
        if value:
            low, high = min(value[0], value[-1]), max(value[0], value[-1])
            _add(low, high, abs(value.step), plain, strided)
    elif isinstance(value, NumberSet):
        for first, last, stride in value.runs:
            _add(first, last, stride, plain, strided)
    elif isinstance(value, SupportsIndex):
        number = operator.index(value)
        _add(number, number, 1, plain, strided)
    elif isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray, Mapping)):
        try:
            for item in value:
                _collect(item, plain, strided)
        except RecursionError:
            raise ValueError("lists within lists without an end") from None
    else:
        raise ValueError(f"{value!r} is a {type(value).__name__}")


def _range_of(part: str) -> tuple[int, int, int]:
    match = _RANGE.match(part) if len(part) <= 80 else None
    if not match:
        text = part.strip()
        raise ValueError(f"{text[:40] + '…' if len(text) > 40 else text!r} is neither a number nor a range")
    first = int(match[1])
    last = int(match[2]) if match[2] else first
    stride = int(match[3]) if match[3] else 1
    if last < first:
        raise ValueError(f"{part.strip()!r} runs backwards")
    if stride < 1:
        raise ValueError(f"{part.strip()!r} has stride 0")
    return first, last, stride


def _add(first: int, last: int, stride: int, plain: list[tuple[int, int]], strided: list[tuple[int, int, int]]) -> None:
    if first < 0:
        raise ValueError(f"{first if first > -LARGEST else 'a number'} is negative")
    if last > LARGEST:
        raise ValueError("a number above 10^18 is no step and no rank")
    last = last - (last - first) % stride
    count = (last - first) // stride + 1
    if stride == 1 or count == 1:
        plain.append((first, last))
    elif count <= LISTED:
        plain.extend((number, number) for number in range(first, last + 1, stride))
    else:
        strided.append((first, last, stride))


def _merged(plain: list[tuple[int, int]], strided: list[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Runs in order: adjacent ones joined, equal ones once, those that lie inside others left out."""
    joined: list[list[int]] = []
    for first, last in sorted(plain):
        if joined and first <= joined[-1][1] + 1:
            joined[-1][1] = max(joined[-1][1], last)
        else:
            joined.append([first, last])
    runs = [(first, last, 1) for first, last in joined]
    solid = NumberSet(tuple(runs))
    kept = [run for run in dict.fromkeys(strided) if not _inside(run, solid)]
    for run in kept:
        rest = NumberSet(tuple(other for other in kept if other != run))
        if _inside(run, rest):
            continue
        runs.append(run)
    runs = _one_by_one(sorted(runs))
    for one, other in pairwise(runs):
        if other[0] <= one[1] + 1:
            texts = [NumberSet((run,)).__str__() for run in (one, other)]
            raise ValueError(
                f"{texts[0]} and {texts[1]} reach into each other; write them so that one ends before the other"
            )
    yield from runs


def _one_by_one(runs: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Single numbers that a large run with a stride has already are left out."""
    large = [run for run in runs if run[2] != 1]
    return [
        run
        for run in runs
        if run[2] != 1
        or run[0] != run[1]
        or not any(first <= run[0] <= last and (run[0] - first) % stride == 0 for first, last, stride in large)
    ]


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
