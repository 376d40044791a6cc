"""The JSON that a run leaves on disk: what is written now has the shape it had, and what was written then is read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from accelprof.contracts.targets import ArtifactFile
from accelprof.output import manifest as manifests
from accelprof.output.records import FailureRow, Manifest, WindowRow
from accelprof.testing import RecordingTool, capture
from accelprof.timing.timer import timer

GOLDEN = Path(__file__).parent / "golden"
#: values that differ from run to run, and what they are written as in the golden files
VOLATILE: dict[str, Any] = {
    "epoch_ns": 1, "monotonic_ns": 1, "open_ms": 0.5, "close_ms": 0.5, "open_ns": 1, "close_ns": 1, "drain_ns": 1, "host": "HOST", "node": "HOST", "pid": 1,
    "python": "3", "bytes": 1,
}  # fmt: skip


class WritingTool(RecordingTool):
    """Leaves a file for every window but the second, whose close fails."""

    name = "writing"

    def close(self, window):
        super().close(window)
        if window.sequence == 2:
            raise OSError("no space left")
        path = window.stem + ".log"
        Path(path).write_text("x", encoding="utf-8")
        return [ArtifactFile(path, self.name, (window.id,), 1)]


def steady(value: Any, run_dir: str) -> Any:
    """``value`` with what differs from run to run put aside."""
    if isinstance(value, dict):
        return {
            key: VOLATILE[key] if key in VOLATILE and item is not None else steady(item, run_dir)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [steady(item, run_dir) for item in value]
    if isinstance(value, str):
        value = value.replace(run_dir + "/", "").replace(run_dir, "RUN")
        return re.sub(r"(Group-r0(?:-s\d+)?(?:-w\d+)?)-[^\s:/]+?-\d+(?=[-.]|$|:| )", r"\1-HOST-1", value)
    return value


def a_run(directory: Path) -> str:
    """Three windows of a tool and the timeline; the second window's tool fails, the third is left open."""
    with capture(
        tools=(WritingTool,),
        tool="writing",
        timeline=True,
        directory=str(directory),
        run="r",
        steps=[1, 2, 3],
        merge_steps=False,
        identity={"role": ("actor", "critic"), "world_size": 2},
    ) as run:
        work = timer("actor/update")(lambda: None)
        for step in (1, 2):
            with run.session.step(step):
                work()
        run.session.begin_step(3)
        journal = Path(run.session.journal.path or "")
        left = journal.read_text(encoding="utf-8")
        key = run.session.key
    journal.write_text(left, encoding="utf-8")  # as a process that was killed in step 3 leaves it
    assert journal.stem == key
    return run.run_dir


def as_then(now: Any, then: Any) -> Any:
    """``now`` without the keys that have come since."""
    if isinstance(now, dict) and isinstance(then, dict):
        return {key: as_then(item, then[key]) for key, item in now.items() if key in then}
    if isinstance(now, list) and isinstance(then, list) and len(now) == len(then):
        return [as_then(one, other) for one, other in zip(now, then)]
    return now


def lines(path: Path, run_dir: str) -> list[Any]:
    return [steady(json.loads(line), run_dir) for line in path.read_text(encoding="utf-8").splitlines()]


def manifest_of(run_dir: str) -> dict[str, Any]:
    manifest = manifests.build(
        run_dir,
        version="1",
        config={"steps": [1, 2, 3]},
        plan={"groups": {}},
        journals=manifests.read_journals(run_dir),
        clock_offsets={"other": {"offset_ns": 5, "error_ns": 1}},
        metrics={"steps": [{"step": 1, "seconds": {}}]},
        problems=["said by the driver"],
        created=0.0 + 1_700_000_000,
    )
    manifests.write(run_dir, manifest)
    written: dict[str, Any] = json.loads(Path(run_dir, "manifest.json").read_text(encoding="utf-8"))
    return written


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    return a_run(tmp_path_factory.mktemp("golden"))


def test_a_journal_is_written_as_ever(run_dir: str) -> None:
    """Line for line the golden journal, and nothing of it is gone or another kind."""
    [path] = Path(run_dir, ".workers").glob("*.jsonl")
    expected = [json.loads(line) for line in (GOLDEN / "journal.jsonl").read_text(encoding="utf-8").splitlines()]
    known = {row["kind"] for row in expected}
    assert as_then([row for row in lines(path, run_dir) if row["kind"] in known], expected) == expected


def test_a_manifest_is_written_as_ever(run_dir: str) -> None:
    """Key for key the golden manifest, for a window that never closed and a tool that failed too."""
    expected = json.loads((GOLDEN / "manifest.json").read_text(encoding="utf-8"))
    assert as_then(steady(manifest_of(run_dir), run_dir), expected) == expected


def test_older_journals_and_manifests_are_read() -> None:
    """Every row of the golden files, with nothing odd about them, and the same from both."""
    journal = [json.loads(line) for line in (GOLDEN / "journal.jsonl").read_text(encoding="utf-8").splitlines()]
    written = Manifest.of_journals([journal])
    listed = Manifest.of_json(json.loads((GOLDEN / "manifest.json").read_text(encoding="utf-8")))
    assert written.odd == listed.odd == []
    assert [row.kind for row in written.windows.values()] == ["step"] * 3
    failed = FailureRow(tool="writing", message="OSError: no space left")
    assert [[one.to_json() for one in row.failures] for row in written.windows.values()] == [[], [failed.to_json()], []]
    assert written.targets["Group-r0-HOST-1"].to_json() == listed.targets["Group-r0-HOST-1"].to_json()
    assert {path: row.to_json() for path, row in written.artifacts.items()} == {
        path: row.to_json() for path, row in listed.artifacts.items()
    }
    states = [{**row.to_json(), "state": None} for row in written.windows.values()]
    assert states == [{**row.to_json(), "state": None} for row in listed.windows.values()]


def test_the_tool_that_failed_is_a_field() -> None:
    """A name or a message with a colon in it changes nothing; the words stand beside for those who read older manifests."""
    failed = FailureRow(tool="a: b", message="OSError: no space: left")
    row = WindowRow(id="w", failures=[failed])
    for written in (row.to_json(), row.to_journal()):
        assert written["errors"] == ["a: b: OSError: no space: left"]
        [back] = Manifest.of_journals([[{**written, "kind": "window"}]]).windows.values()
        assert (back.failures[0].tool, back.failures[0].message, back.extra) == ("a: b", "OSError: no space: left", {})
