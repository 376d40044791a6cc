"""Labels come from programs and files and may hold anything; here they are made safe for each place they are shown in.

A label is shown as it is: nothing of it disappears, and nothing of it acts.
"""

from __future__ import annotations

import html as _html
import re
import unicodedata
from collections.abc import Iterable, Sequence

#: what ends a line, moves a cursor or turns the direction of text; other characters are shown as they are
_ACTING = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def terminal(text: object) -> str:
    """Control characters as ``\\x1b``, so that no escape sequence reaches the terminal. No markup: print it as text."""
    return _ACTING.sub(lambda found: _shown(found.group()), str(text))


def html(text: object) -> str:
    """For the text of an element and for a quoted attribute."""
    return _html.escape(terminal(text), quote=True)


def csv(text: object) -> str:
    """For a cell of a table: text that a spreadsheet would take for a formula gets an apostrophe before it."""
    shown = terminal(text)
    return "'" + shown if shown.lstrip().startswith(_FORMULA) else shown


def perfetto(text: object) -> str:
    """For a name in a protobuf trace: valid UTF-8, of one line."""
    return terminal(text)


def _shown(character: str) -> str:
    code = ord(character)
    if character in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def width(text: str) -> int:
    """Columns of a terminal that a text without control characters takes."""
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def elide(text: str, columns: int) -> str:
    """``text`` in at most ``columns``, cut in its middle: both ends of a label tell it apart."""
    if width(text) <= columns:
        return text
    if columns < 3:
        return "…"[:columns]
    head, tail = "", ""
    left = columns - 1
    front, back = 0, len(text) - 1
    while front <= back:
        take_front = width(head) <= width(tail)
        character = text[front] if take_front else text[back]
        if _cells(character) > left:
            break
        left -= _cells(character)
        if take_front:
            head, front = head + character, front + 1
        else:
            tail, back = character + tail, back - 1
    return f"{head}…{tail}"


def elide_apart(texts: Iterable[str], columns: int) -> dict[str, str]:
    """Each text as :func:`elide` has it; of those that would look alike what they differ in is kept, and what they share is cut."""
    shown = {text: elide(text, columns) for text in texts}
    alike: dict[str, list[str]] = {}
    for text, short in shown.items():
        alike.setdefault(short, []).append(text)
    for group in alike.values():
        if len(group) < 2:
            continue
        front = _shared(group)
        back = _shared([text[len(front) :][::-1] for text in group])[::-1]
        for text in group:
            own = text[len(front) : len(text) - len(back)]
            room = columns - width(own)
            shown[text] = (
                elide(front, (room + 1) // 2) + own + elide(back, room // 2) if room >= 0 else elide(own, columns)
            )
    return shown


def _shared(texts: Sequence[str]) -> str:
    """What all of them begin with."""
    low, high = min(texts), max(texts)
    at = next((at for at, (one, other) in enumerate(zip(low, high, strict=False)) if one != other), len(low))
    return low[:at]
