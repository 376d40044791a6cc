"""Numbers that files have as text, with the standard library alone: plug-ins load this with their tools."""

from __future__ import annotations

import re

_WHOLE = re.compile(r"-?[0-9]{1,18}")


def whole_number(text: str) -> int | str:
    """The whole number that a text is; any other text as it is (``"²"`` is a digit and no number, and 5,000 digits are none
    that ``int`` takes)."""
    return int(text) if _WHOLE.fullmatch(text) else text
