"""Text of anybody's as a file can have it: half a surrogate pair is shown by its number, and what is endless is cut.

A label, a path or a name in a file may hold halves of surrogate pairs, which no UTF-8 has and no strict reader of JSON takes.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from typing import Any

#: characters of a name that are kept; a C++ kernel's has some thousands
LONGEST = 10_000
_HALF = re.compile(r"[\ud800-\udfff]")
#: in JSON's ASCII: a pair, a half, any other escape
_ESCAPES = re.compile(r"\\(?:ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|(ud[89a-f][0-9a-f]{2})|.)")


def from_here(path: str | os.PathLike[str]) -> str:
    """``path`` as seen from the working directory; as it is where that was removed."""
    try:
        return os.path.relpath(path)
    except OSError:
        return os.fspath(path)


def encodable(text: str) -> str:
    """``text`` with each half of a surrogate pair as ``\\ud800`` in letters."""
    return text if text.isascii() else _HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def bounded(text: str) -> str:
    """``text``, encodable; one of more than :data:`LONGEST` characters by its ends, its length and a checksum, so that two stay two."""
    if len(text) > LONGEST:
        check = zlib.crc32(text.encode("utf-8", "surrogatepass"))
        text = f"{text[: LONGEST - 1100]}…({len(text):,} characters, {check:08x})…{text[-1000:]}"
    return encodable(text)


def dumps(value: object, **options: Any) -> str:
    """``json.dumps`` in ASCII that a strict reader takes; NaN and infinities are refused unless ``allow_nan`` says otherwise.

    Raises:
        ValueError, TypeError: as of ``json.dumps``.
    """
    text = json.dumps(value, **{"allow_nan": False, **options})
    return _ESCAPES.sub(lambda found: f"\\{found[0]}" if found[1] else found[0], text) if "\\ud" in text else text
