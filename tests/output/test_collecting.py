"""Files that lie elsewhere come to the run whole, under a name of their own, or stay where they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accelprof.contracts.words import COMPLETE, MISSING
from accelprof.output import collecting
from accelprof.output.collecting import fetch, relocate
from accelprof.output.nodes import ThisHost
from accelprof.output.records import ArtifactRow, Manifest


class Changing(ThisHost):
    """While a file is read there, something happens to it."""

    def __init__(self, happens: Callable[[], object]) -> None:
        self.happens = happens

    def call(self, node: str | None, function: Callable[..., object], *args: object) -> Any:
        found = function(*args)
        if function is collecting.read:
            self.happens()
        return found


@pytest.fixture
def apart(tmp_path: Path) -> tuple[Path, Path]:
    """The run's directory, and another."""
    for name in ("run", "away"):
        (tmp_path / name).mkdir()
    return tmp_path / "run", tmp_path / "away"


def bring(how: str, run: Path, *rows: ArtifactRow) -> tuple[Manifest, list[str]]:
    found, said = Manifest(), list[str]()
    found.artifacts = {row.place: row for row in rows}
    relocate(how, str(run), found, ThisHost(), said.append)
    return found, said


@pytest.mark.parametrize("how", ["copy", "move"])
def test_files_of_one_name_are_each_kept(how: str, apart: tuple[Path, Path]) -> None:
    """The second gets a number; rows say where they are now, and where they came from; who copies leaves the source."""
    run, away = apart
    rows = []
    for number in range(3):
        path = away / f"{number}" / "a.json"
        path.parent.mkdir()
        path.write_text(f"{number}" * 10)
        rows.append(ArtifactRow(str(path), "torch", "G", rank=number, bytes=10, state=MISSING if number else COMPLETE))
    rows[1].remote = True
    found, said = bring(how, run, *rows[:2])
    assert said == []
    assert [(run / row.path).read_text() for row in found.artifacts.values()] == ["0" * 10, "1" * 10]
    assert sorted(row.path for row in found.artifacts.values()) == ["G/a-2.json", "G/a.json"]
    for number, row in enumerate(found.artifacts.values()):
        assert (row.collected, row.remote, row.state) == (True, False, COMPLETE)
        assert row.came_from == str(away / f"{number}" / "a.json")
        assert Path(row.came_from).exists() == (how == "copy")
        assert found.artifacts[row.place] is row


def test_what_is_here_or_nowhere_stays_as_it_is(apart: tuple[Path, Path]) -> None:
    """A file inside the run, one that is not there, and one that is missing."""
    run, away = apart
    (run / "own.json").write_text("x")
    rows = [
        ArtifactRow("own.json", "torch", "G", bytes=1),
        ArtifactRow(str(away / "gone.json"), "torch", "G", bytes=1),
        ArtifactRow(str(away / "missing.json"), "torch", "G", state=MISSING),
    ]
    before = [row.to_json() for row in rows]
    found, said = bring("move", run, *rows)
    assert ([row.to_json() for row in found.artifacts.values()], said) == (before, [])
    assert [path.name for path in run.rglob("*")] == ["own.json"]


@pytest.mark.parametrize("empty", [True, False])
def test_a_directory_comes_whole(empty: bool, apart: tuple[Path, Path]) -> None:
    """With all that is in it, however deep; an empty one too."""
    run, away = apart
    (away / "d.rep" / "deep").mkdir(parents=True)
    if not empty:
        (away / "d.rep" / "deep" / "b").write_bytes(b"b" * 7)
        (away / "d.rep" / "none").touch()
    fetch(ThisHost(), None, str(away / "d.rep"), str(run / "to" / "d.rep"), remove=True)
    names = sorted(str(path.relative_to(run / "to")) for path in run.rglob("*") if path.is_file())
    assert (run / "to" / "d.rep").is_dir()
    assert names == ([] if empty else ["d.rep/deep/b", "d.rep/none"])
    assert not (away / "d.rep").exists()


@pytest.mark.parametrize("change", ["grew", "shrank", "other"])
def test_a_copy_that_is_not_the_source_is_none(change: str, apart: tuple[Path, Path]) -> None:
    """Nothing stands in its place, no half is left, and the source is not removed."""
    run, away = apart
    source = away / "a"
    source.write_bytes(b"x" * 50)
    then = {"grew": b"x" * 60, "shrank": b"x" * 40, "other": b"y" * 50}[change]
    with pytest.raises(OSError, match="is not what the source is"):
        fetch(Changing(lambda: source.write_bytes(then)), None, str(source), str(run / "a"), remove=True)
    assert source.read_bytes() == then
    assert list(run.iterdir()) == []


def test_pieces_make_the_whole(apart: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a size that no piece divides, of one that it does, and of nothing."""
    run, away = apart
    monkeypatch.setattr(collecting, "CHUNK", 7)
    for size in (0, 6, 7, 8, 21, 23):
        (away / "a").write_bytes(bytes(range(size)))
        fetch(ThisHost(), None, str(away / "a"), str(run / f"{size}"))
        assert (run / f"{size}").read_bytes() == bytes(range(size))
