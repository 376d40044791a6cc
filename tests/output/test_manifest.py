"""What the manifest makes of clocks."""

from __future__ import annotations

import pytest

from accelprof.output.manifest import build
from accelprof.output.records import ClockRow, Records

SECOND = 1_000_000_000


def clock(first: int, last: int | None, error: int = 1000) -> dict[str, object]:
    row: dict[str, object] = {"offset_ns": first, "error_ns": error, "at_ns": 100 * SECOND}
    if last is not None:
        row["closing"] = {"offset_ns": last, "error_ns": error, "at_ns": 200 * SECOND}
    return row


def offset_at(row: object, at: int | None = None) -> int | None:
    found = Records.of_manifest({"clock_offsets": {"k": row}}).clocks.get("k")
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
    found = Records.of_manifest({"clock_offsets": {"k": odd, "n": {"offset_ns": None}, "o": 3}})
    assert (list(found.clocks), found.clocks["k"].offset_at(2), found.clocks["k"].error_ns) == (["k"], 8, None)
    assert found.odd == [
        "clock_offsets['k']: error_ns is 'little', not a whole number; left out",
        "clock_offsets['n']: offset_ns is null, not a whole number; the row is left out",
        "clock_offsets['o'] is 3, not an object; left out",
    ]
    assert Records.of_manifest({"clock_offsets": [1]}).odd == ["clock_offsets is a list, not an object; left out"]


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
