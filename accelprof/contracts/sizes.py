"""How large an artifact is: one answer for files and for directories, whoever asks."""

from __future__ import annotations

import contextlib
import os


def size_of(path: str) -> int:
    """Bytes of a file, or of all files below a directory; what vanishes there meanwhile does not count. ``path`` may be a link; one
    below it counts as itself, since what it points at is not there and may count elsewhere.

    Raises:
        OSError: nothing is there.
    """
    if not os.path.isdir(path):
        return os.path.getsize(path)
    total = 0
    for place, directories, files in os.walk(path):
        for name in (*files, *(name for name in directories if os.path.islink(os.path.join(place, name)))):
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total
