"""How large an artifact is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from accelprof.contracts.sizes import size_of


def test_links_below_a_directory_count_as_themselves_and_the_path_itself_may_be_one(tmp_path: Path) -> None:
    """Of files, of directories, and links that lead nowhere: what they point at is counted where it is."""
    elsewhere, trace = tmp_path / "elsewhere", tmp_path / "trace"
    (elsewhere / "raw").mkdir(parents=True)
    (elsewhere / "raw" / "large").write_bytes(b"x" * 10_000)
    trace.mkdir()
    (trace / "own").write_bytes(b"x" * 100)
    targets = {"file": elsewhere / "raw" / "large", "directory": elsewhere, "gone": tmp_path / "gone"}
    for name, target in targets.items():
        (trace / name).symlink_to(target)
    links = sum(len(os.fsencode(target)) for target in targets.values())
    assert size_of(str(trace)) == 100 + links
    (tmp_path / "latest").symlink_to(trace)
    assert size_of(str(tmp_path / "latest")) == 100 + links
    assert size_of(str(trace / "file")) == 10_000
    with pytest.raises(FileNotFoundError):
        size_of(str(trace / "gone"))
