"""The bytes of a file in parts, decompressed when it is gzip inside, with what is wrong with the stream."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterator
from typing import IO

from accelprof.contracts.spans import Completeness
from accelprof.errors import ReadError

GZIP = b"\x1f\x8b"
#: bytes of one part
PART = 1 << 22
#: decompressed sizes below this are never too large; above, a stream may grow to this many times its size. Traces
#: compress 10 to 40 fold; what grows more is made to fill the memory of who reads it
MIN_LIMIT = 1 << 28
MAX_RATIO = 200


def opened(path: str) -> IO[bytes]:
    """A regular file, opened for reading; never waits, as opening a FIFO does.

    Raises:
        ReadError: it cannot be read, or is a directory, FIFO, socket or device.
    """
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise ReadError(path, f"no regular file but {_kind(found.st_mode)}")
        return open(path, "rb")
    except (OSError, ValueError) as error:
        raise ReadError(path, getattr(error, "strerror", None) or str(error)) from None


def edges(path: str, size: int = 1 << 16) -> tuple[bytes, bytes]:
    """The first bytes of what a regular file holds, unpacked, and its last ones where it is not packed; empty where there are none."""
    if not os.path.isfile(path):
        return b"", b""
    try:
        with open(path, "rb") as file:
            head = file.read(size)
            if head.startswith(GZIP):
                return zlib.decompressobj(31).decompress(head, size), b""
            file.seek(max(os.fstat(file.fileno()).st_size - size, 0))
            return head, file.read(size)
    except (OSError, zlib.error):
        return b"", b""


def is_json(path: str) -> bool:
    """Whether what a file holds begins as a JSON document does."""
    return edges(path, 256)[0].removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a block device",
    }  # fmt: skip
    return kinds.get(stat.S_IFMT(mode), "something else")


def allowed(size: int) -> int:
    """Bytes that what is packed in ``size`` bytes may have at most."""
    return max(MIN_LIMIT, MAX_RATIO * size)


def parts(path: str, problems: list[str], completeness: Completeness) -> Iterator[bytes]:
    """The content of a file, at most :data:`PART` bytes at a time; damage is noted in ``problems`` and ``completeness``.

    Raises:
        ReadError: the file cannot be read, has 0 bytes, or decompresses to :data:`MAX_RATIO` times its size.
    """
    with opened(path) as file:
        data = file.read(PART)
        if not data:
            raise ReadError(path, "the file is empty (0 bytes)")
        if data.startswith(GZIP):
            limit = allowed(os.fstat(file.fileno()).st_size)
            for part in _inflated(file, data, problems, completeness):
                limit -= len(part)
                if limit < 0:
                    raise ReadError(path, f"it decompresses to more than {MAX_RATIO} times its size; not read")
                yield part
            return
        while data:
            yield data
            data = file.read(PART)


def _inflated(file: IO[bytes], data: bytes, problems: list[str], completeness: Completeness) -> Iterator[bytes]:
    """Any number of members one behind the other."""

    def damaged(reason: str) -> None:
        problems.append(reason)
        completeness.cut = completeness.cut or reason

    at, member = 0, zlib.decompressobj(31)
    while True:
        data = data or file.read(PART)
        if not data:
            if not member.eof:
                yield member.flush()
                damaged(f"the gzip stream is cut off at byte {at}")
            return
        if member.eof:
            stripped = data.lstrip(b"\0")  # padding, as tar and tape drives add it
            at += len(data) - len(stripped)
            data = stripped
            if not data:
                continue
            if len(data) < len(GZIP):
                data += file.read(PART)
            if not data.startswith(GZIP):
                extra = len(data) + sum(map(len, iter(lambda: file.read(PART), b"")))
                damaged(f"{extra} bytes after the gzip stream are no gzip (from byte {at})")
                return
            member = zlib.decompressobj(31)
        before = member.copy()
        try:
            part = member.decompress(data, PART)
        except zlib.error as error:
            part, used = _salvaged(before, data)
            if part:
                yield part
            if "incorrect data check" in str(error) or "incorrect length check" in str(error):
                more = len(data) - used + len(file.read(PART)) > 8
                damaged(
                    f"the checksum of the gzip stream is wrong near byte {at + used}: its content was read, but may "
                    f"differ from what was written{'; what follows was not read' if more else ''}"
                )
            else:
                damaged(f"the gzip stream is damaged near byte {at + used}: {error}")
            return
        left = member.unused_data if member.eof else member.unconsumed_tail
        at += len(data) - len(left)
        data = left
        if part:
            yield part


def _salvaged(member: zlib._Decompress, data: bytes) -> tuple[bytes, int]:
    """What comes out before the fault, and how many bytes went in: zlib gives nothing of a call that fails."""
    found, used = [], 0
    for step in (4096, 64, 1):
        while used < len(data):
            before = member.copy()
            try:
                found.append(member.decompress(data[used : used + step]))
            except zlib.error:
                member = before
                break
            used += min(step, len(data) - used)
    return b"".join(found), used
