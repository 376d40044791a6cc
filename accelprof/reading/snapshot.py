"""Facts of a torch allocator snapshot, read without running anything that stands in the file.

A snapshot is a pickle of plain lists and dictionaries (``torch.cuda.memory._snapshot``). A pickle can name any function
to call; here every such name is refused before it is looked up. It can ask for any amount of memory in a few bytes; so it
is loaded in a process of its own, under a limit.
"""

from __future__ import annotations

import json
import os
import pickle
import pickletools
import subprocess
import sys
from dataclasses import dataclass

from accelprof.errors import ReadError
from accelprof.reading import snapshot_child
from accelprof.reading.gzipped import opened

#: address space that reading a snapshot may take: this much, and this many times the file's size
BASE_BYTES = 256 << 20
FACTOR = 64
TIMEOUT_S = 600


@dataclass
class SnapshotFacts:
    """Sizes in bytes. ``events`` counts allocator events, ``out_of_memory`` those that are OOM; ``protocol`` the pickle's."""

    protocol: int
    segments: int = 0
    reserved_bytes: int = 0
    allocated_bytes: int = 0
    devices: int = 0
    events: int = 0
    out_of_memory: int = 0


def read_snapshot(path: str) -> SnapshotFacts:
    """Count what a snapshot holds, in a process that may take :data:`BASE_BYTES` and :data:`FACTOR` times the file's size.

    Raises:
        ReadError: empty, cut off, no pickle, it asks for code to be loaded or for more memory than that.
    """
    with opened(path) as file:
        head = file.read(2)
        size = os.fstat(file.fileno()).st_size
    if not head:
        raise ReadError(path, "the file is empty (0 bytes)")
    limit = BASE_BYTES + FACTOR * size
    command = [sys.executable, "-I", "-S", snapshot_child.__file__, os.path.abspath(path), str(limit)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)
        answer = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise ReadError(path, f"no readable snapshot: not done after {TIMEOUT_S} s") from None
    except (OSError, ValueError) as error:
        raise ReadError(path, f"no readable snapshot: its reader ended without an answer ({error})") from None
    if "error" in answer:
        raise ReadError(path, str(answer["error"]) + (_position(path) if answer.get("position") else ""))
    protocol = head[1] if head[0] == pickle.PROTO[0] and len(head) > 1 else 0
    return SnapshotFacts(protocol, **answer["facts"])


def _position(path: str) -> str:
    """Where the opcodes stop making sense, if they do; only the opcodes are looked at, nothing is run."""
    try:
        with open(path, "rb") as file:
            for _ in pickletools.genops(file):
                pass
    except (ValueError, EOFError, OSError, MemoryError, OverflowError) as error:
        return f" ({error})"
    return ""
