"""Allocator snapshots are listed and never run."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console

from accelprof.analysis.files import summarise_files
from accelprof.analysis.html import render_html
from accelprof.analysis.reading import load_any
from accelprof.analysis.table import render
from accelprof.errors import ReadError
from accelprof.reading.snapshot import read_snapshot
from accelprof.testing import RecordingTool, capture

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


class Counts(RecordingTool):
    """A third party's tool whose files hold figures alone."""

    name = "counts"
    has_spans = False

    @classmethod
    def can_read(cls, path: str) -> bool:
        return path.endswith(".counts")

    def figures(self, path: str) -> tuple[Mapping[str, object], str]:
        text = Path(path).read_text()
        if text == "odd":
            raise ReadError(path, "no counts")
        return {"count": int(text)}, "nothing was counted" * (text == "0")


def test_files_without_spans_are_listed_whoever_brings_their_tool(tmp_path: Path) -> None:
    """A snapshot's facts and a third party's stand in the report, with what to note; a merged timeline leaves both out."""
    (tmp_path / "a.memory.pickle").write_bytes(pickle.dumps({**SNAPSHOT, "segments": [], "device_traces": []}, 4))
    for name, text in (("b", "7"), ("c", "0"), ("d", "odd"), ("e", "text")):
        (tmp_path / f"{name}.counts").write_text(text)
    with capture(tool=None, tools=(Counts,)):
        summary = summarise_files([str(tmp_path)])
        with pytest.raises(ReadError, match="files of tool 'counts' hold no spans"):
            load_any(str(tmp_path / "b.counts")).trace()
    rows = {os.path.basename(row["path"]): row for row in summary.to_json()["devices"]}
    assert {
        name: (row["tool"], row["facts"], row["note"]) for name, row in rows.items() if name != "a.memory.pickle"
    } == {
        "b.counts": ("counts", {"count": 7}, ""),
        "c.counts": ("counts", {"count": 0}, "nothing was counted"),
    }
    snapshot = rows["a.memory.pickle"]
    assert (snapshot["tool"], snapshot["facts"]["protocol"], snapshot["note"]) == (
        "torch_memory",
        4,
        "the snapshot is empty",
    )
    console = Console(width=200, file=io.StringIO())
    render(summary, console)
    text, page = console.file.getvalue(), " ".join(render_html(summary).split())
    assert "b.counts (counts): count 7\n" in text
    assert "a.memory.pickle (torch_memory): protocol 4, segments 0, reserved 0 B, allocated 0 B" in text
    assert "<code>b.counts</code> (counts): count 7</p>" in page
    said = " ".join(summary.problems)
    assert "d.counts was not read: no counts" in said
    assert "e.counts was not read: the reader of tool 'counts' failed: ValueError" in said
