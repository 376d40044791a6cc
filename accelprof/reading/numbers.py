"""Numbers that files have as text, with the standard library alone: plug-ins load this with their tools."""

from __future__ import annotations

import re

from accelprof.contracts.spans import UNKNOWN

_LONGEST = 200

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
    return found if isinstance(found, int) and found >= 0 else UNKNOWN
