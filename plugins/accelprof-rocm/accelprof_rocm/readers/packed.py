"""Files of AMD's tools as bytes: some are packed with gzip."""

from __future__ import annotations

import gzip

from accelprof.contracts.spans import Trace
from accelprof.errors import ReadError
from accelprof.reading.gzipped import parts

GZIP = b"\x1f\x8b"
HEAD = 64 << 10


def head_of(path: str) -> bytes:
    """The first bytes, unpacked; empty for a file that cannot be unpacked."""
    with open(path, "rb") as file:
        head = file.read(HEAD)
    if not head.startswith(GZIP):
        return head
    try:
        with gzip.open(path) as packed:
            return packed.read(HEAD)
    except (OSError, EOFError):
        return b""


def content(path: str, damaged: Trace | None = None) -> bytes:
    """The whole file, unpacked.

    Args:
        damaged: of a stream that is cut off or damaged what comes before is returned, and this trace says so.

    Raises:
        ReadError: it is cut off or not what its first bytes say, or unpacks to far more than its size.
    """
    with open(path, "rb") as file:
        data = file.read()
    if not data.startswith(GZIP):
        return data
    trace = Trace(path, "") if damaged is None else damaged
    unpacked = b"".join(parts(path, trace.problems, trace.completeness))
    if damaged is None and trace.problems:
        raise ReadError(path, f"gzip: {trace.problems[0]}")
    return unpacked
