"""Text of anybody's as a file can have it: half a surrogate pair is shown by its number, and what is endless is cut.

A label, a path or a name in a file may hold halves of surrogate pairs, which no UTF-8 has and no strict reader of JSON takes.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

#: characters of a name that are kept; a C++ kernel's has some thousands
LONGEST = 10_000
_HALF = re.compile(r"[\ud800-\udfff]")
#: ends a text that is percent-encoded; no percent-encoding has it
QUOTED = "%%"
_PERCENT = re.compile(rb"%([0-9A-F]{2})")
#: C ends a text at a NUL, and some of its libraries refuse an empty one; for :func:`quoted`
C_TEXT = re.compile(r"\0|^\Z")
#: the same of a library behind which text is written into JSON or CSV as it stands
PLAIN_C_TEXT = re.compile(r'[\x00-\x1f\x7f"\\]|^\Z')
#: in JSON's ASCII: a pair, a half, any other escape
_ESCAPES = re.compile(r"\\(?:ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|(ud[89a-f][0-9a-f]{2})|.)")


class Counted(Protocol):
    """Values whose number is known."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[object]: ...


def from_here(path: str | os.PathLike[str]) -> str:
    """``path`` as seen from the working directory; as it is where that was removed."""
    try:
        return os.path.relpath(path)
    except OSError:
        return os.fspath(path)


def encodable(text: str) -> str:
    """``text`` with each half of a surrogate pair as ``\\ud800`` in letters."""
    return text if text.isascii() else _HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def all_encodable(given: Sequence[str]) -> Sequence[str]:
    """:func:`encodable` of each."""
    return given if ascii_alone(given) else list(map(encodable, given))


def ascii_alone(given: Iterable[str]) -> bool:
    """Whether these have nothing else; asked of all of them together, because there may be a million."""
    return all(map(str.isascii, given))


def bounded(text: str) -> str:
    """``text``, encodable; one of more than :data:`LONGEST` characters by its ends, its length and a checksum, so that two stay two."""
    if len(text) > LONGEST:
        check = zlib.crc32(text.encode("utf-8", "surrogatepass"))
        text = f"{text[: LONGEST - 1100]}…({len(text):,} characters, {check:08x})…{text[-1000:]}"
    return encodable(text)


def listed(values: Counted, most: int) -> str:
    """The first ``most`` with commas, and how many more there are."""
    shown = ", ".join(map(str, itertools.islice(values, most)))
    return f"{shown} and {len(values) - most:,} more" if len(values) > most else shown


def quoted(text: str, spoilt: re.Pattern[str]) -> str:
    """``text`` for a format that does not keep what ``spoilt`` finds: that in percent-encoding, with :data:`QUOTED` behind all of it;
    encodable in any case. :func:`unquoted` gives it back."""
    text = encodable(text)
    if not spoilt.search(text) and not text.endswith(QUOTED):
        return text
    plain = text.replace("%", "%25")
    return spoilt.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), plain) + QUOTED


def unquoted(text: str) -> str:
    """What :func:`quoted` made of a text back again; any other as it is."""
    if not text.endswith(QUOTED):
        return text
    sent = text.removesuffix(QUOTED).encode("utf-8", "replace")
    plain, escapes = _PERCENT.subn(lambda found: bytes([int(found[1], 16)]), sent)
    return plain.decode("utf-8", "replace") if escapes or not sent else text


def dumps(value: object, **options: Any) -> str:
    """``json.dumps`` in ASCII that a strict reader takes; NaN and infinities are refused unless ``allow_nan`` says otherwise.

    Raises:
        ValueError, TypeError: as of ``json.dumps``.
    """
    text = json.dumps(value, **{"allow_nan": False, **options})
    return _ESCAPES.sub(lambda found: f"\\{found[0]}" if found[1] else found[0], text) if "\\ud" in text else text
