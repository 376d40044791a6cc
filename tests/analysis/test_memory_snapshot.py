"""Allocator snapshots are listed and never run."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from accelprof.errors import ReadError
from accelprof.reading.snapshot import read_snapshot

SNAPSHOT = {
    "segments": [{"device": 0, "total_size": 2048, "allocated_size": 512, "blocks": []}],
    "device_traces": [[{"action": "alloc", "size": 512}, {"action": "oom", "size": 1 << 40}], []],
    "allocator_settings": {"expandable_segments": False},
}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_facts_of_a_snapshot(tmp_path: Path, protocol: int) -> None:
    """Sizes, events and out-of-memory events come out of every pickle protocol."""
    path = tmp_path / "x.memory.pickle"
    path.write_bytes(pickle.dumps(SNAPSHOT, protocol))
    facts = read_snapshot(str(path))
    assert (facts.segments, facts.reserved_bytes, facts.allocated_bytes) == (1, 2048, 512)
    assert (facts.events, facts.out_of_memory, facts.devices) == (2, 1, 1)
    assert facts.protocol == (protocol if protocol > 1 else 0)


class Evil:
    """Makes a directory when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, (self.path,))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_no_code_of_a_snapshot_runs(tmp_path: Path, protocol: int) -> None:
    """A pickle that calls a function is refused, named, and the function was not called."""
    path, mark = tmp_path / "x.memory.pickle", tmp_path / "ran"
    path.write_bytes(pickle.dumps({"segments": [Evil(str(mark))]}, protocol))
    with pytest.raises(ReadError, match=r"asks for (posix|nt|os)\.mkdir"):
        read_snapshot(str(path))
    assert not mark.exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (pickle.dumps(SNAPSHOT)[:-30], "no readable snapshot"),
        (b"not a pickle", "no readable snapshot"),
        (pickle.dumps([1]), "holds a list"),
    ],
)
def test_what_is_no_snapshot(tmp_path: Path, content: bytes, reason: str) -> None:
    """Empty, cut and foreign files are refused with the reason."""
    path = tmp_path / "x.memory.pickle"
    path.write_bytes(content)
    with pytest.raises(ReadError, match=reason):
        read_snapshot(str(path))
