"""How large an artifact is: one answer for files and for directories, whoever asks."""

from __future__ import annotations

import contextlib
import os


def size_of(path: str) -> int:
    """Bytes of a file, or of all files below a directory; what vanishes there meanwhile does not count.

    Raises:
        OSError: nothing is there.
    """
    if not os.path.isdir(path):
        return os.path.getsize(path)
    total = 0
    for place, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.path.getsize(os.path.join(place, name))
    return total
