"""Records read from files that anybody may have written."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accelprof import texts
from accelprof.analysis.run import open_run
from accelprof.analysis.summary import summarise
from accelprof.contracts.targets import Target
from accelprof.errors import ReadError
from accelprof.output import dumps
from accelprof.output import manifest as manifests
from accelprof.output.records import (
    JOURNALLED,
    ArtifactRow,
    Manifest,
    MetricsRow,
    Moment,
    ProblemRow,
    Record,
    TargetRow,
    WindowRow,
)
from accelprof.output.ring import Ring

#: values of every kind that JSON has, and of none that a field expects
ODD: list[Any] = [None, True, 5, -1, 10**400, 1.5, "", "x", "é\ud800", [], [None], [{}], {}, {"a": 1}, [[[]]], 2**63]
VALUES = st.sampled_from(ODD)


def a_manifest() -> dict[str, Any]:
    window = WindowRow(
        id="w", target="k", steps=[1], kind="step", opened=Moment(5, 5), closed=Moment(9, 9), tools=["t"]
    )
    return {
        "format": 1,
        "run": "r",
        "created": "now",
        "targets": [TargetRow(key="k", group="G", rank=0, armed=True).to_json()],
        "windows": [window.to_json()],
        "artifacts": [ArtifactRow("a", "trace", "G", rank=0, windows=["w"]).to_json()],
        "clock_offsets": {"k": {"offset_ns": 1, "error_ns": 1}},
        "metrics": {"steps": [{"step": 1, "seconds": {"p": {"max": 1.0}}}]},
        "problems": ["p"],
        "undelivered": [],
        "status": "complete",
    }


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document where another value can stand."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in below for place in places(item, (*path, key)))] if path else [
        place for key, item in below for place in places(item, (key,))
    ]  # fmt: skip


PLACES = places(a_manifest())


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=3))
def test_a_manifest_with_odd_values_is_read_or_refused(tmp_path: Path, changes: list[tuple[Any, Any]]) -> None:
    """Whatever stands anywhere in a manifest, a report comes of it or a ReadError."""
    document = a_manifest()
    for place, value in changes:
        inside: Any = document
        try:
            for key in place[:-1]:
                inside = inside[key]
            inside[place[-1]] = copy.deepcopy(value)  # the same list in two places may come to stand in itself
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took the place away
    (tmp_path / "manifest.json").write_text(json.dumps(document), encoding="utf-8")
    try:
        summary = summarise(tmp_path)
    except ReadError as error:
        assert "manifest.json" in str(error)
    else:
        assert isinstance(summary.to_json()["undelivered"], list)


@pytest.mark.parametrize("text", ["[]", "5", "null", "{", "", '{"format": NaN}', "[" * 100_000, '{"format": 2}'])
def test_what_is_no_manifest_is_refused(tmp_path: Path, text: str) -> None:
    """With the file's name and the reason."""
    (tmp_path / "manifest.json").write_text(text, encoding="utf-8")
    with pytest.raises(ReadError, match=r"manifest\.json"):
        open_run(tmp_path)


def test_odd_fields_are_said_and_whole_rows_count() -> None:
    """A field of another kind gets its default, a row without identity is left out, and both are said with their place."""
    document = {"windows": [None, {"id": "w", "steps": "1", "spans": 4}, {"steps": [1]}], "targets": 5}
    found = Manifest.of_json(document)
    [window] = found.windows.values()
    assert (window.steps, window.spans) == ([], 4)
    assert found.odd == [
        "targets is 5, not a list; left out",
        "windows[0] is null, not an object; left out",
        "windows[1]: steps is '1', not a list of whole numbers; left out",
        "windows[2]: id is null, not given; the row is left out",
    ]


def test_fields_of_other_versions_are_kept() -> None:
    """What this version does not know goes through it unchanged, in journals and in manifests."""
    row = {"kind": "window", "id": "w", "target": "k", "window_kind": "step", "later": {"a": [1]}}
    [window] = Manifest.of_journals([[row]]).windows.values()
    assert window.kind == "step"
    assert window.to_json()["later"] == {"a": [1]}
    assert window.to_journal().items() >= row.items()


@settings(max_examples=100, deadline=None)
@given(
    kind=st.sampled_from([*JOURNALLED, "other", "", None, 5]),
    fields=st.dictionaries(
        st.sampled_from(["key", "id", "path", "host", "message", "steps", "opened", "rows"]), VALUES
    ),
)
def test_any_record_in_a_journal_is_read(kind: Any, fields: dict[str, Any]) -> None:
    """Nothing in a journal ends the reading of the rows around it."""
    good = TargetRow(key="good").to_journal()
    found = Manifest.of_journals([[{"kind": kind, **fields}, good, 5, None, []]])
    assert "good" in found.targets
    assert json.loads(json.dumps([row.to_json() for row in found.windows.values()])) is not None


def test_a_row_reads_like_what_is_on_disk() -> None:
    """By the names of journal and manifest, and by no others."""
    window = WindowRow(id="w", kind="step", steps=[2])
    assert (window["steps"], window["window_kind"], window["kind"], window["closed"]) == ([2], "step", "step", None)
    assert window.get("spans", 7) == 7
    assert "spans" not in window
    assert set(window) == set(window.to_json())
    with pytest.raises(KeyError):
        window["nothing"]


def test_journals_that_are_none_are_named_and_the_others_count(tmp_path: Path) -> None:
    """A loop of links, a link out, a directory, a pipe and a file without rights stop nothing and never block."""
    place = tmp_path / ".workers"
    place.mkdir()
    outside = tmp_path / "outside.jsonl"
    outside.write_text(json.dumps(TargetRow(key="outside").to_journal()) + "\n")
    (place / "loop.jsonl").symlink_to("loop.jsonl")
    (place / "out.jsonl").symlink_to(outside)
    (place / "directory.jsonl").mkdir()
    os.mkfifo(place / "pipe.jsonl")
    good = TargetRow(key="good").to_journal()
    (place / "whole.jsonl").write_bytes(
        b"\xff\xfe\n[1]\nnull\n{\n" + b"[" * 50_000 + b"\n" + json.dumps(good).encode() + b'\n{"kind": "window", "id"'
    )
    found = manifests.of_journals(str(tmp_path), manifests.read_journals(str(tmp_path)))
    assert list(found.targets) == ["good"]
    named = {row.message.split()[2].removeprefix(".workers/") for row in found.said}
    assert named == {"loop.jsonl", "out.jsonl", "directory.jsonl", "pipe.jsonl"}
    assert {row.code for row in found.said} == {manifests.JOURNAL_UNREAD}


def test_a_line_longer_than_any_record_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is never held as a whole, and the records behind it count."""
    monkeypatch.setattr(manifests, "MAX_LINE", 200)
    place = tmp_path / ".workers"
    place.mkdir()
    rows = [ProblemRow(message="before"), ProblemRow(message="x" * 1000), ProblemRow(message="behind")]
    (place / "a.jsonl").write_text("".join(json.dumps(row.to_journal()) + "\n" for row in rows))
    found = manifests.of_journals(str(tmp_path), manifests.read_journals(str(tmp_path)))
    assert [row.message for row in found.said] == ["before", "behind"]


@given(
    st.text(max_size=8),
    st.integers(-(1 << 70), 1 << 70),
    st.dictionaries(
        st.text(max_size=6), st.fixed_dictionaries({"seconds": st.floats(0, 1e6), "count": st.integers(0, 1 << 70)})
    ),
    st.one_of(st.none(), st.integers(0, 1 << 62)),
    st.text(max_size=8),
)
@settings(max_examples=200)
def test_a_row_of_a_step_is_written_like_any_other(
    label: str, step: int, rows: dict[str, Any], began: int | None, peers: str
) -> None:
    """The quick way that rows of steps take gives the fields, their order and the values that every record's way gives."""
    record = MetricsRow(label, step, rows, began, 1, peers)
    entry = record.to_journal()
    assert list(entry.items()) == list(Record.to_journal(record).items())
    line = manifests._line(entry)
    assert line.endswith(b"\n")
    assert json.loads(line) == json.loads(texts.dumps(entry))


def test_a_step_whose_phase_is_no_text_of_a_file_is_written_too(tmp_path: Path) -> None:
    """A phase with half a surrogate pair in its name comes back from the journal with the half by its number, in letters."""
    journal = manifests.Journal(str(tmp_path / ".workers" / "w.jsonl"), print)
    rows = {"a\ud800": {"seconds": 0.5, "count": 1}}
    journal.add(MetricsRow("G/rank0", 1, rows, 1, 1))
    journal.close()
    ((row,),) = manifests.read_journals(str(tmp_path))
    assert row["rows"] == {"a\\ud800": rows["a\ud800"]}


def test_what_a_full_disk_did_not_take_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a batch that came to the file in part are in memory too, and so is every later one."""
    said: list[str] = []
    journal = manifests.Journal(str(tmp_path / ".workers" / "w.jsonl"), said.append)
    write = os.write
    monkeypatch.setattr(os, "write", lambda number, data: write(number, data[: len(data) // 2]))
    journal.add(*(MetricsRow("G/rank0", step, {}, 1, 1) for step in range(40)))
    journal.add(MetricsRow("G/rank0", 40, {}, 1, 1))
    monkeypatch.undo()
    journal.close()
    assert [row["step"] for row in journal.records] == list(range(41))
    assert len(said) == 1
    assert "kept in memory" in said[0]


def a_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))


@pytest.mark.parametrize(
    ("put", "said"),
    [
        (os.mkfifo, "it is no regular file"),
        (os.mkdir, "it is no regular file"),
        (a_socket, "it is no regular file"),
        (lambda path: os.symlink("/dev/zero", path), "it is no regular file"),
        (lambda path: os.symlink("/dev/null", path), "it is no regular file"),
        (lambda path: os.symlink(path, path), "Too many levels of symbolic links"),
        (lambda path: os.symlink("nowhere", path), "no manifest; is this a run directory"),
    ],
)
def test_a_manifest_that_is_no_file_is_refused(tmp_path, monkeypatch, put, said):
    """Nothing waits for a pipe or reads an endless device, and no descriptor stays open."""
    monkeypatch.chdir(tmp_path)
    put(str(tmp_path / "manifest.json"))
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ReadError, match=rf"manifest\.json: {said}"):
        manifests.read(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "5", "{}", '{"reason": 5}', '{"reason": "hang", "at": "x", "step": []}']
)
def test_an_odd_request_for_a_dump_stops_no_other(tmp_path: Path, text: str) -> None:
    """What cannot be read asks for nothing, an odd field of it has its default, and the next dump is begun beside it."""
    where = tmp_path / dumps.PLACE / "hang-1"
    where.mkdir(parents=True)
    (where / dumps.REQUEST).write_text(text, encoding="utf-8")
    odd = dumps.request_of(str(tmp_path), "hang-1")
    assert odd is None or (odd.reason, odd.at, odd.step) == ("hang", 0.0, None)
    assert dumps.begin(str(tmp_path), dumps.Cause("hang", 3, "stands"), "me", 10) == "hang-2"
    asked = dumps.request_of(str(tmp_path), "hang-2")
    assert asked is not None
    assert (asked.reason, asked.step, asked.why, asked.by) == ("hang", 3, "stands", "me")
    assert dumps.write_part(str(tmp_path), "hang-2", a_ring(tmp_path, {"group": 5, "pid": "x", "rank": [1]}), 9)
    [journal] = Path(tmp_path, dumps.PLACE, "hang-2", ".workers").glob("*.jsonl")
    found = Manifest.of_journals([[json.loads(line) for line in journal.read_text().splitlines()]])
    [target] = found.targets.values()
    assert (target.group, target.rank, target.tool, target.armed) == ("unknown", None, "trace", True)
    assert any("the ring: group is 5, not text" in problem.message for problem in found.said)


def a_ring(directory: Path, who: dict[str, Any]) -> str:
    """A ring with one step, of a process that says ``who`` it is."""
    ring = Ring(str(directory / "x.ring"), who)
    ring.add(1, 10, 20, [])
    ring.close()
    return ring.path


def test_a_process_has_one_name_in_all_rows() -> None:
    """An engine's child too: what the plan calls it, its row, what is read of that again, and its timings."""
    for target in (Target("G", rank=0), Target("G", rank=0, replica=2), Target("G", rank=0, engine_rank=2)):
        row = TargetRow.of("k", target, "host", 1)
        read = TargetRow.read(row.to_json(), fail, "")
        assert read is not None
        assert row.label == row.target.label == read.label == target.label
        assert read.who == row.who
        assert ("engine_rank" in row.to_json()) == (target.engine_rank is not None)


def fail(text: str) -> None:
    raise AssertionError(text)


def test_the_quick_way_to_write_a_steps_timings_writes_the_same() -> None:
    """It is written for every step, so it does not go over the fields; each field stands in both ways under its name."""
    full = MetricsRow("G/rank0", 3, {"a": {"seconds": 0.1, "count": 1}}, 5, 7, "G")
    for row in (full, dataclasses.replace(full, wall_ns=None), dataclasses.replace(full, peers="")):
        assert list(row.to_journal().items()) == list(Record.to_journal(row).items())
    assert {*full.to_journal()} == {
        "kind",
        *(one.name for one in dataclasses.fields(MetricsRow) if one.name != "extra"),
    }
