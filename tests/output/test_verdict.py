"""What was asked for and is not there, from rows and disk."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from accelprof.analysis.run import open_run
from accelprof.output import manifest as manifests
from accelprof.output import verdict as verdicts
from accelprof.output.records import NEVER_OPENED, ArtifactRow, Lack, Moment, Records, TargetRow, WindowRow


def rows(**more: Any) -> Records:
    """One worker with one window and a file of each of its two tools."""
    found = Records()
    found.targets["k"] = TargetRow(key="k", group="G", rank=0, armed=True, tool="torch", tools=["torch", "trace"])
    window = WindowRow(id="w", target="k", steps=[1], tools=["torch", "trace"], opened=Moment(1), closed=Moment(2))
    found.windows["w"] = window
    for tool in window.tools:
        row = ArtifactRow(f"{tool}.json", tool, "G", rank=0, windows=["w"], bytes=10)
        found.artifacts[row.place] = row
    return found


def written(directory: Path, found: Records, **more: Any) -> str:
    manifest = manifests.document(str(directory), found, version="1", config={}, plan={})
    verdicts.write_into(manifest, verdicts.verdict(found))
    manifests.write(str(directory), {**manifest, **more})
    return str(directory)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    for name in ("torch.json", "trace.json"):
        (tmp_path / name).write_bytes(b"x" * 10)
    return tmp_path


def codes(directory: Path | str) -> list[str]:
    return [lack.code for lack in open_run(directory).lacks]


def test_a_whole_run_lacks_nothing(run_dir: Path) -> None:
    """Windows closed, by every tool, with files as large as they were."""
    written(run_dir, rows())
    assert codes(run_dir) == []
    assert json.loads((run_dir / "manifest.json").read_text())["status"] == "complete"


@pytest.mark.parametrize(
    ("harm", "code"),
    [
        (lambda path: path.unlink(), "file_missing"),
        (lambda path: os.truncate(path, 5), "file_cut"),
        (lambda path: os.truncate(path, 0), "file_cut"),
        (lambda path: (path.unlink(), path.mkdir()), "file_partial"),
    ],
)
@pytest.mark.parametrize("after", [True, False])
def test_the_disk_has_the_last_word(run_dir: Path, harm: Any, code: str, after: bool) -> None:
    """A file that is gone, cut, empty or replaced is said, whether it happened before or after the manifest was written."""
    if after:
        written(run_dir, rows())
        harm(run_dir / "torch.json")
    else:
        harm(run_dir / "torch.json")
        written(run_dir, rows())
    [lack] = open_run(run_dir).lacks
    assert (lack.code, lack.tool) == (code, "torch")
    assert "torch.json" in lack.words


def test_a_file_that_came_back_is_missing_no_more(run_dir: Path) -> None:
    """A lack that can be read off the disk is read off it each time."""
    (run_dir / "torch.json").unlink()
    written(run_dir, rows())
    assert codes(run_dir) == ["file_missing"]
    (run_dir / "torch.json").write_bytes(b"x" * 10)
    assert codes(run_dir) == []


def test_files_of_other_nodes_are_as_they_were_said_to_be(run_dir: Path) -> None:
    """They are not looked for on this disk."""
    found = rows()
    found.artifacts["", "torch.json"].remote = True
    (run_dir / "torch.json").unlink()
    written(run_dir, found)
    assert codes(run_dir) == []


def test_what_happened_to_windows_is_said_by_its_code(run_dir: Path) -> None:
    """Never opened, never closed, failed, and recorded without a tool are four different things."""
    found = rows()
    found.windows["w"].tools = ["trace"]
    found.windows["w"].errors = ["torch: OSError: no space left"]
    found.windows["v"] = WindowRow(id="v", target="k", tools=["torch", "trace"], opened=Moment(3))
    found.targets["other"] = TargetRow(key="other", group="G", rank=1, armed=True, tool="nsys", wanted="steps 1")
    found.targets["idle"] = TargetRow(key="idle", group="G", rank=2)
    written(run_dir, found)
    assert {(lack.code, lack.target) for lack in open_run(run_dir).lacks} == {
        (verdicts.TOOL_ABSENT, "k"),
        (verdicts.WINDOW_FAILED, "k"),
        (verdicts.WINDOW_OPEN, "k"),
        (NEVER_OPENED, "other"),
    }


def test_windows_that_are_there_are_not_denied(run_dir: Path) -> None:
    """A process that was killed never counted its windows; those that are listed count."""
    found = rows()
    found.targets["k"].windows_opened = 0
    written(run_dir, found)
    assert codes(run_dir) == []
    del found.targets["k"]
    written(run_dir, found)
    assert codes(run_dir) == []


def test_what_only_the_end_of_the_run_knew_stays(run_dir: Path) -> None:
    """Lacks that neither rows nor disk can show are kept with their codes; words of older manifests are kept as they are."""
    lack = Lack(code=verdicts.STEP_LOST, target="k", words="G/rank0: step 3 was to be recorded: the actor is dead")
    written(run_dir, rows(), lacks=[lack.to_json()], undelivered=[lack.words, "said by an older version"])
    assert [(one.code, one.words) for one in open_run(run_dir).lacks] == [
        (verdicts.STEP_LOST, lack.words),
        (verdicts.STATED, "said by an older version"),
    ]
    written(run_dir, rows(), lacks=5, status="incomplete")
    [unexplained] = open_run(run_dir).lacks
    assert "not why" in unexplained.words


def test_names_that_no_file_can_have_are_missing(run_dir: Path) -> None:
    """A path with a null character in a manifest ends nothing."""
    found = rows()
    row = ArtifactRow("a\0b", "torch", "G", rank=0, windows=["w"])
    found.artifacts[row.place] = row
    written(run_dir, found)
    assert codes(run_dir) == ["file_missing"]


@pytest.mark.parametrize("place", ["{outside}", "../{name}", "link.json", "linked/deep.json", "/"])
def test_what_lies_outside_of_the_run_is_not_looked_at(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manifest that names another file of this host, itself or by a link, tells nothing of it: not its size, nor that it is
    there; its directory is not walked."""
    run = tmp_path / "run"
    run.mkdir()
    outside = tmp_path / "secret.json"
    outside.write_bytes(b"xyz")
    (run / "link.json").symlink_to(outside)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "deep.json").write_bytes(b"xyz")
    (run / "linked").symlink_to(tmp_path / "other")
    monkeypatch.setattr(Path, "rglob", lambda *_: pytest.fail("walked"))
    look = verdicts.on_disk(str(run))
    row = ArtifactRow(place.format(outside=outside, name=outside.name), "torch", "G", rank=0, windows=["w"], bytes=561)
    assert look(row) == (561, row.state, "")
    (run / "own.json").write_bytes(b"xyz")
    own = ArtifactRow("own.json", "torch", "G", rank=0, windows=["w"], bytes=561)
    assert look(own) == (3, "truncated", "3 of 561 bytes are there")
