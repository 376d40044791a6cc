"""Files that are whole or not there: written beside their place, then moved into it.

The name of a half says whose it is, should the process be killed meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import IO

from accelprof.processes import Writer

#: entries of a run's directory that are looked at for halves
MOST = 100_000
#: bytes of a name that common file systems take
LONGEST_NAME = 255
#: process, when it began, where it counts, thread; earlier versions had process and thread, or process alone
_HALF = re.compile(r"\.(\d{1,10})-(\w*)-([0-9a-f]{8})\.\d{1,20}\.part\Z|\.(\d{1,10})(?:\.\d{1,20})?\.part\Z")


def half(path: str) -> str:
    """Where a file is written before it is moved to ``path``."""
    me = Writer.me()
    mine = f".{me.pid}-{me.started}-{_place(me)}.{threading.get_native_id()}.part"
    directory, name = os.path.split(path)
    room = LONGEST_NAME - len(mine)
    if len(name.encode(errors="surrogateescape")) > room:
        check = f"~{zlib.crc32(name.encode(errors='surrogateescape')):08x}"
        while len(name.encode(errors="surrogateescape")) > room - len(check):
            name = name[:-1]
        name += check
    return os.path.join(directory, name + mine)


@contextlib.contextmanager
def whole(path: str) -> Iterator[str]:
    """Where to write a file or make a directory, which is moved to ``path`` after the block; a failure leaves nothing behind.

    Raises:
        OSError: it cannot be moved; what stood at ``path`` stands there still.
    """
    temporary = half(path)
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        discard(temporary)


def discard(path: str) -> None:
    """Remove a half, where there is one."""
    if os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.unlink(path)


def write(path: str, fill: Callable[[IO[str]], object], mode: int = 0o644) -> None:
    """``fill`` writes the text; a reader never sees half of it.

    Raises:
        OSError: the directory cannot be written, or the disk is full; what stood at ``path`` stands there still.
    """
    with whole(path) as temporary:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            fill(file)


def halves(directory: str, unknown: bool = True) -> list[str]:
    """Files and directories below ``directory`` that somebody was writing when their process ended: paths relative to it, in order.

    Those of a process that lives, or that say no process, may still be written and are left out; links are not followed.
    ``unknown``: those of a process that cannot be seen from here, as it is on another host, count too.
    """
    found = []
    for path in _entries(directory, 3):
        there = _is_written(path)
        if there is False or (there is None and unknown):
            found.append(os.path.relpath(path, directory))
    return sorted(found)


def _is_written(path: str) -> bool | None:
    name, me = _HALF.search(path), Writer.me()
    if name is None:
        return True
    pid, started, place, old = name.groups()
    if old is not None:
        return Writer(me.host, int(old)).is_there() or None
    return Writer(me.host, int(pid), started, me.space).is_there() if place == _place(me) else None


def _place(writer: Writer) -> str:
    """Stands for a host's, or a container's, numbers of processes."""
    return f"{zlib.crc32(f'{writer.host} {writer.space}'.encode(errors='surrogateescape')):08x}"


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
                    if entry.name.endswith(".part") and not entry.is_symlink():
                        yield entry.path
                    elif entry.is_dir(follow_symlinks=False) and level < depth:
                        places.append((entry.path, level + 1))
        except OSError:
            continue
