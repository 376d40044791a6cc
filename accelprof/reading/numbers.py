"""Numbers that files have as text, with the standard library alone: plug-ins load this with their tools."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from accelprof.contracts.spans import UNKNOWN

_LONGEST = 200
_ENDLESS = 1 << 63

_WHOLE = re.compile(r"-?[0-9]{1,18}")


def whole_number(text: str) -> int | str:
    """The whole number that a text is; any other text as it is (``"²"`` is a digit and no number, and 5,000 digits are none
    that ``int`` takes)."""
    return int(text) if _WHOLE.fullmatch(text) else text


def place(value: object) -> int | str:
    """A process, thread, device or stream as it can be kept: a number or text; anything else by how it is written."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return int(value)
    try:
        return str(value)[:_LONGEST]
    except (RecursionError, ValueError):  # nested without end, or a number of too many digits
        return f"a {type(value).__name__}"


def identity(value: object) -> int | str:
    """The number by which a file calls a device, stream, process, thread or call; :data:`UNKNOWN` for what is none: nothing, text,
    a fraction, a negative one."""
    found = whole_number(value) if isinstance(value, str) else place(value)
    return found if isinstance(found, int) and 0 <= found < _ENDLESS else UNKNOWN


def identity_in(row: Mapping[str, object], column: str) -> int | str | None:
    """:func:`identity` of what stands in a column; ``None`` where a row has no such column."""
    return identity(row[column]) if column in row else None


def identities(
    values: Iterable[object], *, texts: bool = False, negative: bool = False, settle: bool = False
) -> dict[object, int | str]:
    """What each of these hashable values names, which are all of one sort: a number, or a text where none of them is a number. What
    names nothing is :data:`UNKNOWN` where others do.

    Args:
        texts: numbers and texts may stand beside each other.
        negative: the sort has negative numbers, bar -1 (threads).
        settle: what names nothing is what all others are, where that is one.
    """
    values = list(values)
    found = {value: place(value) for value in values if _names(value, negative)}
    numbers = bool(found)
    for value in values:
        if isinstance(value, str) and value.strip():
            number = value if texts or not numbers else whole_number(value)
            if texts or not numbers or _names(number, negative):
                found[value] = number
    known = set(found.values())
    other = known.pop() if settle and len(known) == 1 else UNKNOWN
    return {value: found.get(value, other) if found else place(value) for value in values}


def _names(value: object, negative: bool) -> bool:
    """Whether this number is one of a process, thread, device or stream."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value % 1 != 0:
        return False
    return (value >= 0 or (negative and value != -1)) and -_ENDLESS <= value < _ENDLESS
