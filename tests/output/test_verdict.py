"""What was asked for and is not there, from rows and disk."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import accelprof
from accelprof import texts
from accelprof.analysis.compare import compare
from accelprof.analysis.run import open_run
from accelprof.cli.report import report
from accelprof.config.model import Config
from accelprof.contracts.targets import DRIVER_GROUP
from accelprof.errors import NotComparableError
from accelprof.numberset import NumberSet
from accelprof.output import codes as lack_codes
from accelprof.output import manifest as manifests
from accelprof.output import verdict as verdicts
from accelprof.output.asked import ByStep
from accelprof.output.codes import NEVER_OPENED, STATED
from accelprof.output.presence import at_work
from accelprof.output.records import (
    ArtifactRow,
    FailureRow,
    Lack,
    Manifest,
    Moment,
    StretchesRow,
    TargetRow,
    WindowRow,
)
from accelprof.planning.names import absent_ranks, unmatched_roles
from accelprof.testing import capture


def rows(**more: Any) -> Manifest:
    """One worker with one window and a file of each of its two tools."""
    found = Manifest()
    found.targets["k"] = TargetRow(key="k", group="G", rank=0, armed=True, tool="torch", tools=["torch", "trace"])
    window = WindowRow(id="w", target="k", steps=[1], tools=["torch", "trace"], opened=Moment(1), closed=Moment(2))
    found.windows["w"] = window
    for tool in window.tools:
        row = ArtifactRow(f"{tool}.json", tool, "G", rank=0, windows=["w"], bytes=10)
        found.artifacts[row.place] = row
    return found


def written(directory: Path, found: Manifest, **more: Any) -> str:
    manifests.complete(found, str(directory), version="1", config={}, plan={})
    found.judged(verdicts.verdict(found))
    put(directory, {**found.to_json(), **more})
    return str(directory)


def put(directory: Path, document: dict[str, Any]) -> None:
    (directory / "manifest.json").write_text(texts.dumps(document, indent=1) + "\n", encoding="utf-8")


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


@pytest.mark.parametrize("parts", [["deep/a.csv"], ["deep/a.csv", "b.bin"], []])
def test_a_directory_is_held_to_its_bytes(run_dir: Path, parts: list[str]) -> None:
    """Files that are gone from it, or cut in it, are said as a file that was cut is; one that grew is whole."""
    place = run_dir / "profile"
    (place / "deep").mkdir(parents=True)
    for name in ("deep/a.csv", "b.bin"):
        (place / name).write_bytes(b"x" * 600)
    found = rows()
    row = ArtifactRow("profile", "torch", "G", rank=0, windows=["w"], bytes=1200)
    found.artifacts[row.place] = row
    written(run_dir, found)
    assert codes(run_dir) == []
    for name in parts:
        (place / name).unlink()
    if not parts:
        os.truncate(place / "b.bin", 1)
    [lack] = open_run(run_dir).lacks
    left = 601 if not parts else 1200 - 600 * len(parts)
    assert lack.code == ("file_cut" if left else "file_partial")
    assert (f"{left} of 1,200 bytes are there" if left else "the directory is empty") in lack.words
    (place / "results.db").write_bytes(b"x" * 5000)
    assert codes(run_dir) == []


def test_what_its_own_tool_made_smaller_is_whole(run_dir: Path) -> None:
    """An analysis that replaces data by results, after the run: the size is that of now, and others' rows stay."""
    (run_dir / "profile").mkdir()
    (run_dir / "profile" / "raw").write_bytes(b"x" * 600)
    found = rows()
    row = ArtifactRow("profile", "torch", "G", rank=0, windows=["w"], bytes=600)
    found.artifacts[row.place] = row
    written(run_dir, found)
    os.truncate(run_dir / "profile" / "raw", 10)
    os.truncate(run_dir / "torch.json", 5)
    manifests.resized(str(run_dir / "profile"))
    [lack] = open_run(run_dir).lacks
    assert "torch.json" in lack.words
    manifests.resized(str(run_dir.parent))


def test_a_row_that_changes_size_stays_what_it_is_otherwise(run_dir: Path) -> None:
    """A file that was collected: its manifest differs in the one number; rows that are none are left as they stand."""
    (run_dir / "profile").mkdir()
    (run_dir / "profile" / "raw").write_bytes(b"x" * 10)
    row = ArtifactRow(
        "profile", "torch", "G", rank=0, windows=["w"], bytes=600, collected=True, came_from="/far/profile"
    )
    found = rows()
    found.artifacts[row.place] = row
    written(run_dir, found)
    before = json.loads((run_dir / "manifest.json").read_text())
    before["artifacts"].append("none")
    put(run_dir, before)
    as_it_was = (run_dir / "manifest.json").read_text()
    assert '"from": "/far/profile"' in as_it_was
    manifests.resized(str(run_dir / "profile"))
    assert (run_dir / "manifest.json").read_text() == as_it_was.replace('"bytes": 600', '"bytes": 10')


def test_a_directory_that_came_is_missing_no_more(run_dir: Path) -> None:
    """As a file that came back."""
    found = rows()
    row = ArtifactRow("profile", "torch", "G", rank=0, windows=["w"], state="missing")
    found.artifacts[row.place] = row
    written(run_dir, found)
    assert codes(run_dir) == ["file_missing"]
    (run_dir / "profile").mkdir()
    (run_dir / "profile" / "a").write_bytes(b"x")
    assert codes(run_dir) == []


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
    found.windows["w"].failures = [FailureRow(tool="torch", message="OSError: no space left")]
    found.windows["v"] = WindowRow(id="v", target="k", tools=["torch", "trace"], opened=Moment(3))
    found.targets["other"] = TargetRow(key="other", group="G", rank=1, armed=True, tool="nsys", wanted="steps 1")
    found.targets["idle"] = TargetRow(key="idle", group="G", rank=2)
    written(run_dir, found)
    assert {(lack.code, lack.target) for lack in open_run(run_dir).lacks} == {
        (lack_codes.TOOL_ABSENT, "k"),
        (lack_codes.WINDOW_FAILED, "k"),
        (lack_codes.WINDOW_OPEN, "k"),
        (NEVER_OPENED, "other"),
    }


def cut_short(**more: Any) -> Manifest:
    """One worker that was to open windows for steps 1, 3 and 5, and whose journal ends after the first."""
    found = rows()
    planned = {"windows_planned": [(1, 1), (3, 3), (5, 5)], "ended": False, **more}
    found.targets["k"] = dataclasses.replace(found.targets["k"], **planned)
    return found


@pytest.mark.parametrize(
    ("more", "missing"),
    [
        ({}, "3, 5"),
        ({"rank": None}, "3, 5"),
        ({"discrete": True}, "3, 5"),
        ({"windows_planned": [(0, 0), (1, 2), (4, 6)]}, "4-6"),
        ({"windows_planned": [(1, 1)]}, ""),
        ({"windows_planned": []}, ""),
        ({"ended": True}, ""),
        ({"ended": None}, ""),
    ],
)
def test_who_was_killed_between_windows_lacks_those_that_were_to_come(
    run_dir: Path, more: dict[str, Any], missing: str
) -> None:
    """They are told by plan and rows, because the process did not come to say it; who ended in order has said all."""
    written(run_dir, cut_short(**more))
    said = [(lack.code, lack.target, lack.words) for lack in open_run(run_dir).lacks]
    words = f"k: windows for steps {missing} never opened; its journal does not say that it ended"
    assert [row[:2] for row in said] == ([(NEVER_OPENED, "k")] if missing else [])
    assert all(words in row[2] for row in said)
    assert verdicts.verdict(cut_short(**more), running=["k"]) == []


@pytest.mark.parametrize(
    ("more", "step", "codes"),
    [
        ({}, 3, [NEVER_OPENED]),  # the plan's own window, which the verdict names
        ({}, 1, [NEVER_OPENED]),  # recorded after all
        ({}, 4, [lack_codes.STEP_LOST, NEVER_OPENED]),  # of no window that the plan lists
        ({"windows_planned": []}, 3, [lack_codes.STEP_LOST]),
        ({"ended": True}, 3, [lack_codes.STEP_LOST]),
        ({"ended": True, "missed": ["windows for steps 3 never opened"], "steps_seen": [1, 5]}, 3, [NEVER_OPENED]),
        ({"ended": True, "missed": ["windows for steps 5 never opened"], "steps_seen": [3]}, 2, [lack_codes.STEP_LOST, NEVER_OPENED]),
    ],
)  # fmt: skip
def test_a_window_that_was_lost_is_named_once(more: dict[str, Any], step: int, codes: list[str]) -> None:
    """What a driver could not tell a worker of is a lack of its own only where no window and no other lack tells of the step."""
    lost = Lack(
        code=lack_codes.STEP_LOST, target="k", step=step, words=f"G/rank0: step {step} was to be recorded: dead"
    )
    assert [lack.code for lack in verdicts.verdict(cut_short(**more), [lost])] == codes
    other = dataclasses.replace(lost, target="other")
    assert lack_codes.STEP_LOST in [lack.code for lack in verdicts.verdict(cut_short(**more), [other])]


@pytest.mark.parametrize("windows", [True, False])
def test_what_a_driver_saw_of_a_worker_stands_with_the_windows_that_it_lacks(run_dir: Path, windows: bool) -> None:
    """In the manifest, and in what is read of it later, where nobody sees it any more."""
    found = cut_short(wanted="steps 1-5")
    if not windows:
        found.windows, found.artifacts = {}, {}
    lacks = verdicts.verdict(found, causes={"k": "its actor is dead"})
    assert [lack.words.rpartition("; ")[2] for lack in lacks] == ["its actor is dead"]
    written(run_dir, found, lacks=[lack.to_json() for lack in lacks])
    assert [lack.words for lack in open_run(run_dir).lacks] == [lack.words for lack in lacks]


def test_another_end_of_the_run_keeps_what_the_first_saw() -> None:
    """A launcher ends the run that a controller has ended: the cause that only that one knew stands with the lacks of rows."""
    found = cut_short(steps_planned=[1, 2, 3])
    first = verdicts.verdict(found, causes={"k": "its actor is dead"})
    assert any("its actor is dead" in lack.words for lack in first)
    again = verdicts.verdict(found, first)
    assert [lack.words for lack in again] == [lack.words for lack in first]
    newer = verdicts.verdict(found, first, causes={"k": "it does not answer"})
    assert [lack.words for lack in newer] == [
        lack.words.replace("its actor is dead", "it does not answer") for lack in first
    ]


def test_a_step_that_came_without_the_phase_is_no_lack_of_a_killed_worker() -> None:
    """Where phases make windows, a step before the last that was recorded had none; where steps do, its window is missing."""
    for discrete, missing in ((True, "5"), (False, "3, 5")):
        found = cut_short(discrete=discrete)
        found.windows["v"] = WindowRow(id="v", target="k", steps=[4], opened=Moment(3), closed=Moment(4))
        [lack] = verdicts.verdict(found)
        assert f"windows for steps {missing} never opened" in lack.words


@pytest.mark.parametrize(
    ("later", "running", "missing"),
    [
        ({"ended": True}, [], set()),
        ({"ended": False, "windows_planned": [(1, 1), (3, 3), (5, 5)]}, [], {"again"}),
        ({"ended": False, "windows_planned": [(1, 1), (3, 3), (5, 5)]}, ["again"], set()),
        ({"ended": True, "rank": 1}, [], {"k"}),
        ({"ended": True, "group": "H"}, [], {"k"}),
        ({"ended": True, "opened": 1}, [], {"k"}),
    ],
)
def test_who_was_started_in_its_place_answers(later: dict[str, Any], running: list[str], missing: set[str]) -> None:
    """Of a worker that was started again the last one is asked, not the one before, and no other worker stands in."""
    found = cut_short()
    found.windows["w"].opened = Moment(10)
    opened = Moment(later.pop("opened", 20))
    row = TargetRow(**{"key": "again", "group": "G", "rank": 0, "armed": True, **later})
    found.targets["again"] = row
    found.windows["v"] = WindowRow(id="v", target="again", steps=[3], opened=opened, closed=Moment(30))
    lacks = verdicts.verdict(found, running=running)
    assert {lack.target for lack in lacks} == missing
    assert all("steps 5 never" in lack.words for lack in lacks if lack.target == "again")


def test_an_engines_child_is_not_its_parent() -> None:
    """A parent that ended with all its windows does not answer for its engine's child that was killed after the first, nor one child
    for another; a child that was started in its place does."""
    found = cut_short(engine_rank=1)
    for key, more in (("parent", {}), ("sibling", {"engine_rank": 0})):
        found.targets[key] = TargetRow(key=key, group="G", rank=0, armed=True, ended=True, **more)
        for step in (1, 3, 5):
            window = WindowRow(id=f"{key}{step}", target=key, steps=[step], opened=Moment(9 + step), closed=Moment(20))
            found.windows[window.id] = window
    [lack] = verdicts.verdict(found)
    assert (lack.target, lack.label) == ("k", "G/rank0/engine1")
    assert "windows for steps 3, 5 never opened" in lack.words
    found.targets["sibling"].engine_rank = 1
    assert verdicts.verdict(found) == []


def test_a_step_that_its_driver_could_not_tell_and_the_next_recorded_is_there() -> None:
    """A call to a worker that was dying is no lack where the one in its place recorded the step, or names it itself."""
    found = cut_short()
    found.windows["w"].target = "again"
    found.targets["again"] = TargetRow(key="again", group="G", rank=0, armed=True, ended=True)
    lost = [Lack(code=lack_codes.STEP_LOST, target="k", step=step, words=f"step {step}: dead") for step in (1, 2)]
    lacks = verdicts.verdict(found, lost)
    assert [(lack.code, lack.step) for lack in lacks] == [(lack_codes.STEP_LOST, 2)]


@pytest.mark.parametrize("steps", ["0-999999999999999999", [1, "3-1000000000000"], [-1], "x"])
def test_odd_steps_of_a_killed_worker_are_read_in_bounds(steps: object) -> None:
    """Whatever stands there in a manifest: nothing is listed out without an end."""
    found = cut_short(discrete=True)
    row = TargetRow.read({**found.targets["k"].to_json(), "steps_came": steps}, lambda text: None, "targets[0]")
    assert row is not None
    found.targets["k"] = row
    came = bool(row.steps_came)
    assert ["3, 5" in lack.words for lack in verdicts.verdict(found)] == ([] if came else [True])


def test_the_rule_of_windows_that_never_opened() -> None:
    """As a slow reading of it, step by step, on many small plans; and as many windows are kept, not one by one."""
    luck = random.Random(5)
    for _ in range(2000):
        numbers = sorted(luck.sample(range(12), 6))
        planned = [(one, luck.randint(one, other - 1)) for one, other in itertools.pairwise(numbers)]
        seen = luck.sample(range(12), luck.randint(0, 8))
        steps = [step for step in seen if luck.random() < 0.4]
        windows = [WindowRow(id=f"{step}", target="k", steps=[step]) for step in steps]
        for discrete in (False, True):
            missed = []
            for first, last in planned:
                own = set(range(first, last + 1))
                before = bool(seen) and last < min(seen)
                without_phase = discrete and bool(own & set(seen))
                if not own & set(steps) and not before and not without_phase:
                    missed.append(f"{first}" if first == last else f"{first}-{last}")
            said = f"windows for steps {', '.join(missed)} never opened" if missed else ""
            assert ByStep(listed=planned, sure=not discrete).missed(windows, seen).words == said
    for _ in range(2000):
        chosen = NumberSet.parse(luck.sample(range(12), 6))
        kept = NumberSet(((0, 20, 4), *((first + 40, last + 40, 1) for first, last, _ in chosen.runs)))
        seen = luck.sample(range(60), luck.randint(0, 30))
        windows = [WindowRow(id=f"{step}", target="k", steps=[step]) for step in seen if luck.random() < 0.4]
        for sure, merged in ((True, False), (True, True), (False, False)):
            listed = list(kept.stretches()) if merged else [(step, step) for step in kept]
            for ended in (True, False):
                said = ByStep(listed=listed, sure=sure).missed(windows, seen, ended)
                found = ByStep(kept, merged, sure).missed(windows, seen, ended)
                assert found.words == said.words
                assert all((step in found) == (step in said) for step in range(70))


@pytest.mark.parametrize(
    ("more", "missing"),
    [
        ({"steps_planned": ["0-4999"]}, "0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20 and 4,979 more"),
        ({"steps_planned": [1, "2000-3000"], "merged": True}, "2000-3000"),
        ({"steps_planned": ["1-1000000000000000000/3"], "discrete": True}, "4, 7, 10"),
        ({"steps_planned": [1]}, ""),
    ],
)  # fmt: skip
def test_windows_of_a_killed_worker_are_known_however_many(run_dir: Path, more: dict[str, Any], missing: str) -> None:
    """They are kept as steps, which have no end at a thousand; listing what a row of an older version has stays as it was."""
    found = cut_short(**more)
    found.targets["k"].steps_seen = [0] if "4,979" in missing else []
    written(run_dir, found)
    texts = [lack.words for lack in open_run(run_dir).lacks]
    assert all(f"windows for steps {missing}" in text for text in texts)
    assert len(texts) == bool(missing)


@pytest.mark.parametrize(
    ("count", "firsts", "missing"),
    [
        (3, [("decode", 1), ("decode", 4)], "2 of 3"),
        (3, [("decode", 1), ("decode", 4), ("decode", 7)], ""),
        (3, [("decode", 1), ("decode", 2), ("decode", 10), ("score", 4)], "1 of 3"),
        (0, [("decode", 301)], ""),
        (0, [("score", 1)], "0 of 1"),
    ],
)
def test_stretches_of_a_killed_worker_are_counted(
    run_dir: Path, count: int, firsts: list[tuple[str, int]], missing: str
) -> None:
    """By what its windows hold of them; of a schedule without an end one is asked for."""
    asked = StretchesRow(phase="decode", first=1, every=3, count=count)
    found = cut_short(windows_planned=[], stretches_planned=[asked])
    found.windows["w"].stretches = firsts
    written(run_dir, found)
    texts = [lack.words for lack in open_run(run_dir).lacks]
    assert all(f"schedule on decode: {missing} stretches were recorded" in text for text in texts)
    assert len(texts) == bool(missing)


def test_odd_plans_and_processes_in_a_manifest_end_nothing(run_dir: Path) -> None:
    """Windows without an end are one window, what is none is said, and a number that no process has is nobody's."""
    found = cut_short(windows_planned=[(3, 10**18)], pid=10**30, host=os.uname().nodename)
    written(run_dir, found)
    assert [lack.code for lack in open_run(run_dir).lacks] == [NEVER_OPENED]
    assert at_work(str(run_dir), found.targets) == set()
    manifest = json.loads((run_dir / "manifest.json").read_text())
    for odd in ([[5, 3]], [[1]], ["1-3"], 5, [[1, 2.5]]):
        manifest["targets"][0]["windows_planned"] = odd
        put(run_dir, manifest)
        run = open_run(run_dir)
        assert run.lacks == []
        assert any("windows_planned" in line for line in run.problems)
    del manifest["targets"][0]["windows_planned"]
    for name, values in {
        "steps_planned": ("1-3", 5, [True], [{}], ["3-1"], [[10**19]], {"1": 2}),
        "stretches_planned": ("decode", [5], [{"phase": "decode"}], [{"phase": 1, "first": 1, "every": 0, "count": 1}]),
    }.items():
        for odd in values:
            put(run_dir, {**manifest, "targets": [{**manifest["targets"][0], name: odd}]})
            run = open_run(run_dir)
            assert run.lacks == []
            assert any(name in line for line in run.problems)


def test_a_run_that_goes_on_lacks_nothing_yet(tmp_path: Path) -> None:
    """Its journal names the process, which is there; another process that has got the number since is not it."""
    with capture(directory=str(tmp_path), run="r", tool=None, timeline=True, steps=[1, 3], merge_steps=False) as run:
        with run.session.step(1):
            pass
        journal = Path(run.session.journal.path or "")
        assert codes(run.run_dir) == []
        text = journal.read_text(encoding="utf-8")
        journal.write_text(text.replace('"started": "', '"started": "1'), encoding="utf-8")
        [lack] = open_run(run.run_dir).lacks
        assert (lack.code, "steps 3 never opened" in lack.words) == (NEVER_OPENED, True)
        journal.write_text(text, encoding="utf-8")


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
    lack = Lack(code=lack_codes.STEP_LOST, target="k", words="G/rank0: step 3 was to be recorded: the actor is dead")
    written(run_dir, rows(), lacks=[lack.to_json()], undelivered=[lack.words, "said by an older version"])
    assert [(one.code, one.words) for one in open_run(run_dir).lacks] == [
        (lack_codes.STEP_LOST, lack.words),
        (STATED, "said by an older version"),
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
    monkeypatch.setattr(os, "walk", lambda *_: pytest.fail("walked"))
    look = verdicts.on_disk(str(run))
    row = ArtifactRow(place.format(outside=outside, name=outside.name), "torch", "G", rank=0, windows=["w"], bytes=561)
    assert look(row) == (561, row.state, "")
    (run / "own.json").write_bytes(b"xyz")
    own = ArtifactRow("own.json", "torch", "G", rank=0, windows=["w"], bytes=561)
    assert look(own) == (3, "truncated", "3 of 561 bytes are there")


# --- asked for, and not delivered -----------------------------------------------------------------------------------------


def _ended(place: Path, calls: int = 0, identity: dict[str, Any] | None = None, **config: Any) -> dict[str, Any]:
    """The manifest of a process that ran eight steps, with calls of ``work`` in each."""
    work = accelprof.Worker.timer("work")(lambda: None)
    with capture(
        directory=str(place), run="run", tool=None, identity=identity or {"rank": 0, "world_size": 1}, **config
    ) as run:
        for number in range(1, 9):
            with run.session.step(number):
                for _ in range(calls):
                    work()
        return run.session.close()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"steps": [2]}, ""),
        ({"steps": [2, 12]}, "windows for steps 12 never opened; steps seen: 1, 2, 3, 4, 5, 6, 7, 8"),
        ({"steps": [12]}, "armed, 0 windows opened; steps seen: 1, 2, 3, 4, 5, 6, 7, 8"),
        ({"steps": ["2-3", "12-13"], "merge_steps": True}, "windows for steps 12-13 never opened"),
        ({"steps": [2, 12], "discrete": True, "calls": 1}, "windows for steps 12 never opened"),
        ({"steps": [2], "discrete": True, "calls": 1}, ""),
        ({"steps": [2], "identity": {"rank": 0, "world_size": 4}, "ranks": [0, 9]}, "ranks: no process of Group has this rank"),
        ({"steps": [2], "identity": {"rank": 0, "world_size": 4}, "ranks": ["0-9"]}, ""),
        ({"schedule": {"phase": "work", "active": 4}, "calls": 1}, ""),
        ({"schedule": {"phase": "work", "active": 20}, "calls": 1}, "schedule on work: partial, 8 of 20 calls were recorded"),
        ({"schedule": {"phase": "work", "active": 3, "repeat": 2}, "calls": 1}, ""),
        (
            {"schedule": {"phase": "work", "wait": 4, "active": 3, "repeat": 4}, "calls": 1},
            "schedule on work: 1 of 4 stretches were recorded in its 8 calls",
        ),
        (
            {"schedule": {"phase": "work", "warmup": 3, "active": 2, "repeat": 2}, "calls": 1},
            "schedule on work: nothing was recorded",
        ),
        (
            {"schedule": [{"phase": "work", "active": 1}, {"phase": "work", "wait": 50}], "calls": 1},
            "schedule on work: 8 calls at most, the first to record is call 50",
        ),
    ],
)  # fmt: skip
def test_what_was_asked_for_beside_what_came_is_missing(tmp_path: Path, config: dict[str, Any], words: str) -> None:
    """A window, rank, stretch or call that did not come is a lack, also where others came: in the manifest, in ``report``, and to
    ``compare``."""
    manifest = _ended(tmp_path, **config)
    said = " ".join(manifest["undelivered"])
    assert (manifest["status"], words in said) == ("incomplete" if words else "complete", True), said
    assert bool(said) == bool(words)
    result = CliRunner().invoke(report, [manifest["run_dir"], "--json", "--no-html"])
    assert result.exit_code == (1 if words else 0), result.output
    assert json.loads(result.output)["undelivered"] == manifest["undelivered"]
    if words and manifest["windows"]:
        with pytest.raises(NotComparableError, match="is not complete"):
            compare(manifest["run_dir"], manifest["run_dir"])


def test_a_step_that_failed_and_was_done_again_has_its_end(tmp_path: Path) -> None:
    """It is as long as when it ended; one that only failed has no length, and counts in no step's path when runs are compared."""
    with capture(
        directory=str(tmp_path), run="again", steps=[1, 2], tool=None, identity={"rank": 0, "world_size": 1}
    ) as run:
        with pytest.raises(ValueError, match="once"), run.session.step(1):
            raise ValueError("once")
        with run.session.step(1):
            pass
        with pytest.raises(ValueError, match="for good"), run.session.step(2):
            raise ValueError("for good")
        manifest = run.session.close()
    rows = {row["step"]: row for row in manifest["metrics"]["steps"]}
    assert ("wall_ns" in rows[1], rows[1].get("ended"), "wall_ns" in rows[2], rows[2]["ended"]) == (
        True,
        None,
        False,
        False,
    )


def test_a_rank_that_nobody_had_is_missing_where_all_are_known() -> None:
    """Of ranks that are named one by one each must have taken part; a range may be longer than the job; patterns and rules with
    other choosers leave it open who is meant."""

    def missing(everyone: bool = True, **values: Any) -> list[object]:
        config = Config(steps=[1], **values)
        there = [("G", rank, 4) for rank in (0, 1, 2)]
        return [problem.value for problem in absent_ranks(config, there, everyone)]

    assert missing(ranks=[0, 2]) == []
    assert missing(ranks=[0, 3]) == [3]
    assert missing(False, ranks=[0, 3, 5]) == [5]
    assert missing(ranks=["0-100"]) == []
    assert missing(ranks="all") == []
    assert missing(groups={"G": {"ranks": [3]}}) == [3]
    assert missing(groups={"g*": {"ranks": [3]}, "G": {"ranks": [7], "roles": ["x"]}}) == [7]
    assert missing(groups={"G": {}}, ranks=[0, 3]) == [3]
    assert missing(groups={"G": {"ranks": [0]}}, ranks=[0, 3]) == []
    # rules that the group does not have: of a pattern before its own name, of a second pattern, of another group
    assert missing(groups={"?": {"ranks": [9]}, "G": {"ranks": [0]}}) == []
    assert missing(groups={"g": {"ranks": [0]}, "*": {"ranks": [9]}}) == []
    assert missing(groups={"H": {}}, ranks=[0, 9]) == []
    # the driver has a rule of its own, for all of its one rank
    alone = [*((DRIVER_GROUP, 0, 1),), *(("G", rank, 4) for rank in range(4))]
    assert absent_ranks(Config(steps=[1], ranks=[0, 3], controller={}), alone, True) == []
    assert absent_ranks(Config(steps=[1], groups={"*": {"ranks": [3]}}, controller={}), alone, True) == []


def test_roles_are_missed_of_the_groups_that_have_the_rule() -> None:
    """Those that a group has by its name in other case too, and none that another rule takes from it."""

    def missing(**groups: Any) -> list[object]:
        found = unmatched_roles(
            Config(steps=[1], groups=groups, controller={}), {"Actor": ["critic"], DRIVER_GROUP: []}
        )
        return [problem.value for problem in found]

    assert missing(actor={"roles": "citric"}) == ["citric"]
    assert missing(**{"Act*": {"roles": "rollout"}, "Actor": {"roles": "critic"}}) == []
    assert missing(**{"c*": {"roles": "critic"}}) == []


# --- which lacks are the same ---------------------------------------------------------------------------------------------


def test_two_workers_that_are_called_the_same_lack_two_things(run_dir: Path) -> None:
    """Two processes of one rank, or of unknown ranks, that opened nothing: each is told, by its key, in the manifest and when read."""
    for rank in (0, None):
        found = Manifest()
        for key in ("a", "b"):
            found.targets[key] = TargetRow(key=key, group="G", rank=rank, armed=True, tool="torch", wanted="steps 1")
        written(run_dir, found)
        lacks = open_run(run_dir).lacks
        assert [(lack.target, lack.label) for lack in lacks] == [(key, found.targets[key].label) for key in ("a", "b")]
        assert len({lack.words for lack in lacks}) == 2


def test_lacks_are_one_by_what_they_are_of_and_not_by_words() -> None:
    """Whatever the words; those of older files, which have nothing else, are one where they say the same."""
    step = Lack(code=lack_codes.STEP_LOST, target="k", step=3, words="dead")
    again = dataclasses.replace(step, words="silent")
    other = dataclasses.replace(step, step=4)
    stated = [Lack(words="gone"), Lack(words="gone"), Lack(words="gone, too")]
    found = verdicts.verdict(Manifest(), [step, again, other, *stated])
    assert [(lack.step, lack.words) for lack in found] == [
        (3, "silent"),
        (4, "dead"),
        (None, "gone"),
        (None, "gone, too"),
    ]


def test_what_failed_in_one_window_is_told_each(run_dir: Path) -> None:
    """Two failures of one tool, and two tools that took no part, are four lacks of the one window."""
    found = rows()
    found.targets["k"].tools = ["torch", "trace", "nsys", "other"]
    found.windows["w"].failures = [FailureRow(tool="torch", message=text) for text in ("no space", "no memory")]
    written(run_dir, found)
    assert sorted(codes(run_dir)) == [lack_codes.TOOL_ABSENT] * 2 + [lack_codes.WINDOW_FAILED] * 2


def test_how_a_process_says_that_it_opened_nothing_is_how_it_is_said_of_it(tmp_path: Path) -> None:
    """One that ended in order says it itself; of one that was killed its row tells it, in the same words."""
    manifest = _ended(tmp_path, steps=[12], calls=1)
    [said] = manifest["undelivered"]
    found = Manifest.of_json(manifest)
    [row] = found.targets.values()
    row.missed, row.ended = [], False
    assert [lack.words for lack in verdicts.verdict(found)] == [said]


def test_a_file_is_of_the_worker_that_left_it(run_dir: Path) -> None:
    """By its key, and under the name that everything else calls it by: of a replica too, where the file's own row has none."""
    for about in ({"target": "k"}, {"windows": ["w"]}):  # older rows have the windows alone
        found = rows()
        found.targets["k"].replica = 1
        found.artifacts.clear()
        row = ArtifactRow("torch.json", "torch", "G", rank=0, bytes=10, state="missing", **about)
        found.artifacts[row.place] = row
        [lack] = verdicts.verdict(found)
        assert (lack.target, lack.label, lack.about) == ("k", "G/replica1/rank0", "torch.json")
        assert lack.words.startswith("G/replica1/rank0: torch.json")


def test_a_file_whose_worker_nobody_knows_is_called_as_its_row_says() -> None:
    """Rows of older versions, and files of a launcher."""
    found = Manifest()
    row = ArtifactRow("torch.json", "torch", "G", rank=0, state="missing")
    found.artifacts[row.place] = row
    [lack] = verdicts.verdict(found)
    assert (lack.target, lack.label, lack.words) == ("", "G/rank0", "G/rank0: torch.json (torch) is missing")


def test_a_file_that_shrinks_again_is_told_as_it_is(run_dir: Path) -> None:
    """The words that a manifest has of it were those of then."""
    os.truncate(run_dir / "torch.json", 5)
    written(run_dir, rows())
    os.truncate(run_dir / "torch.json", 2)
    [lack] = open_run(run_dir).lacks
    assert "2 of 10 bytes" in lack.words or "2 of 5 bytes" in lack.words
