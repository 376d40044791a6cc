"""Files that are whole or not there: written beside their place, then moved into it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import IO

from accelprof.contracts.names import half

#: entries of a run's directory that are looked at for halves
MOST = 100_000
_HALF = re.compile(r"\.(\d{1,10})(?:\.\d{1,20})?\.part\Z")


def write(path: str, fill: Callable[[IO[str]], object], mode: int = 0o644) -> None:
    """``fill`` writes the text; a reader never sees half of it, and a failure leaves nothing behind.

    Raises:
        OSError: the directory cannot be written, or the disk is full; what stood at ``path`` stands there still.
    """
    temporary = half(path)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            fill(file)
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def halves(directory: str) -> list[str]:
    """Files below ``directory`` that somebody was writing when their process ended: paths relative to it, in order.

    Those of a process that lives, or that say no process, may still be written and are left out; links are not followed.
    """
    found = []
    for path in _entries(directory, 3):
        half = _HALF.search(path)
        if half is not None and not os.path.isdir(f"/proc/{half[1]}"):
            found.append(os.path.relpath(path, directory))
    return sorted(found)


def _entries(directory: str, depth: int) -> Iterator[str]:
    seen, places = 0, [(directory, 1)]
    while places:
        place, level = places.pop()
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    seen += 1
                    if seen > MOST:
                        return
                    if entry.is_dir(follow_symlinks=False):
                        if level < depth:
                            places.append((entry.path, level + 1))
                    elif entry.name.endswith(".part") and entry.is_file(follow_symlinks=False):
                        yield entry.path
        except OSError:
            continue
