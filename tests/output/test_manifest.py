"""What the manifest makes of clocks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import accelprof
from accelprof import texts
from accelprof.output import manifest as manifests
from accelprof.output.manifest import build
from accelprof.output.records import ClockRow, Manifest
from accelprof.testing import capture

SECOND = 1_000_000_000


def clock(first: int, last: int | None, error: int = 1000) -> dict[str, object]:
    row: dict[str, object] = {"offset_ns": first, "error_ns": error, "at_ns": 100 * SECOND}
    if last is not None:
        row["closing"] = {"offset_ns": last, "error_ns": error, "at_ns": 200 * SECOND}
    return row


def offset_at(row: object, at: int | None = None) -> int | None:
    found = Manifest.of_json({"clock_offsets": {"k": row}}).clock_offsets.get("k")
    return None if found is None else found.offset_at(at)


@pytest.mark.parametrize(
    ("at", "offset"),
    [
        (100 * SECOND, 5_000_000),
        (150 * SECOND, 7_000_000),
        (200 * SECOND, 9_000_000),
        (0, 5_000_000),
        (900 * SECOND, 9_000_000),
        (None, 5_000_000),
    ],
)
def test_a_clock_that_drifted_lies_between_its_two_measurements(at: int | None, offset: int) -> None:
    """On the line between them, and never beyond either."""
    assert offset_at(clock(5_000_000, 9_000_000), at) == offset


def test_what_the_errors_allow_is_no_drift() -> None:
    """Two measurements that differ by less than both can be wrong are one offset, the first."""
    assert offset_at(clock(5_000_000, 5_001_999), 200 * SECOND) == 5_000_000
    assert offset_at(clock(5_000_000, 5_002_001), 200 * SECOND) == 5_002_001


def test_nothing_measured_is_nothing_known() -> None:
    """Neither an empty row nor an older manifest without the second measurement is taken for a drift."""
    assert offset_at({}) is None
    assert offset_at(clock(7, None), 150 * SECOND) == 7
    assert offset_at({"offset_ns": 7, "error_ns": 1, "closing": {}}, 150 * SECOND) == 7


def test_a_clock_that_somebody_else_wrote_is_read_as_far_as_it_is_one() -> None:
    """A field of an odd kind is said and left out, here an error that a drift was compared with; a row without an offset is none."""
    odd = {"offset_ns": 7, "error_ns": "little", "at_ns": 1, "closing": {"offset_ns": 9, "error_ns": 1, "at_ns": 3}}
    found = Manifest.of_json({"clock_offsets": {"k": odd, "n": {"offset_ns": None}, "o": 3}})
    assert (list(found.clock_offsets), found.clock_offsets["k"].offset_at(2), found.clock_offsets["k"].error_ns) == (
        ["k"],
        8,
        None,
    )
    assert found.odd == [
        "clock_offsets['k']: error_ns is 'little', not a whole number; left out",
        "clock_offsets['n']: offset_ns is null, not a whole number; the row is left out",
        "clock_offsets['o'] is 3, not an object; left out",
    ]
    assert Manifest.of_json({"clock_offsets": [1]}).odd == ["clock_offsets is a list, not an object; left out"]


def test_a_clock_is_written_as_it_was_measured() -> None:
    """All its fields, in their order, the second measurement before the worker's name."""
    first = {"measured_ns": 5, "round_trip_ns": 2, "rounds": 5, "basis": "least round trip"}
    row = {**clock(5, None), **first, "closing": {**clock(6, None), **first}, "label": "G/rank0"}
    read = ClockRow.many({"k": row}, pytest.fail)["k"]
    assert list(read.to_json().items()) == list(row.items())


def test_windows_get_the_drivers_time_by_the_drift(tmp_path: object) -> None:
    """Each end of a window with the offset of its own moment."""
    window = {
        "kind": "window",
        "id": "w",
        "target": "k",
        "opened": {"epoch_ns": 100 * SECOND},
        "closed": {"epoch_ns": 200 * SECOND},
    }
    manifest = build(
        str(tmp_path), version="", config={}, plan={}, journals=[[window]], clock_offsets={"k": clock(0, SECOND)}
    )
    [row] = manifest["windows"]
    assert (row["opened"]["driver_ns"], row["closed"]["driver_ns"]) == (100 * SECOND, 199 * SECOND)


class Hears:
    """Keeps what the hook at the end of a run is given."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    @accelprof.hookimpl
    def accelprof_run_end(self, manifest: Any) -> None:
        self.heard.append(manifest)


@pytest.fixture
def ended(tmp_path: Path) -> tuple[Path, Any, Hears]:
    """The directory of a run, what its ``close()`` gave, and who heard of its end."""
    hears = Hears()
    with capture(directory=str(tmp_path), run="r", steps=[1, 9]) as run:
        accelprof.register(hears)
        with run.session.step(1):
            pass
        closed = run.session.close()
    return tmp_path / "r", closed, hears


def test_whoever_is_handed_a_manifest_gets_plain_json(ended: tuple[Path, Any, Hears]) -> None:
    """A ``dict`` as it stands on disk, from ``close()`` and to hooks: it can be dumped, and taken for what it is."""
    directory, closed, hears = ended
    written = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    [heard] = hears.heard
    assert [type(given) for given in (closed, heard)] == [dict, dict]
    assert json.loads(json.dumps(heard)) == written
    assert {key: json.loads(json.dumps(closed))[key] for key in written} == written
    assert (written["status"], [lack["code"] for lack in written["lacks"]]) == ("incomplete", ["never_opened"])


def test_a_manifest_goes_through_its_record_unchanged(ended: tuple[Path, Any, Hears]) -> None:
    """To the byte, with rows of all kinds, who is still at work, and what this version does not know."""
    directory, *_ = ended
    path = directory / "manifest.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["targets"]
    assert document["windows"]
    assert document["artifacts"]
    later = {
        "memory": [{"step": 1, "worker": "a", "resident": 5}],
        "running": ["k"],
        "clock_offsets": {"k": clock(1, 2)},
    }
    order = [*document]
    at = order.index("problems")
    keys = [*order[:at], "memory", "problems", "versions", "running", *order[order.index("versions") + 1 :], "later"]
    whole = {key: {**document, **later, "later": {"a": [1]}}[key] for key in keys}
    for each in (document, whole):
        path.write_text(texts.dumps(each, indent=1) + "\n", encoding="utf-8")
        before, read = path.read_bytes(), manifests.load(directory)
        manifests.write(str(directory), read)
        assert (path.read_bytes(), read.odd) == (before, [])


def test_fields_of_a_manifest_of_another_kind_are_said(tmp_path: Path) -> None:
    """They are as if they were not there; of lists what is whole counts, and of lacks the words alone."""
    odd = {
        "format": 1, "run": 5, "created": None, "config": [], "metrics": "x", "problems": ["one", 3, None, "two"],
        "notes": {}, "memory": [1, {"step": 1}], "status": [], "undelivered": ["lost", 5], "running": "k",
    }  # fmt: skip
    (tmp_path / "manifest.json").write_text(json.dumps(odd), encoding="utf-8")
    read = manifests.load(tmp_path)
    assert (read.run, read.created, read.config, read.metrics, read.status) == (None, None, {}, {}, "")
    assert (read.problems, read.memory, read.running) == (["one", "two"], [{"step": 1}], [])
    assert [(lack.code, lack.words) for lack in read.lacks] == [("stated", "lost")]
    assert sorted(read.odd) == [
        "config is a list, not an object; left out",
        "metrics is 'x', not an object; left out",
        "notes is an object, not a list of texts; left out",
        "run is 5, not text; left out",
        "running is 'k', not a list of texts; left out",
        "status is a list, not text; left out",
    ]
