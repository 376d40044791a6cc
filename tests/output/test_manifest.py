"""What the manifest makes of clocks."""

from __future__ import annotations

import pytest

from accelprof.output.manifest import build, offset_at

SECOND = 1_000_000_000


def clock(first: int, last: int | None, error: int = 1000) -> dict[str, object]:
    row: dict[str, object] = {"offset_ns": first, "error_ns": error, "at_ns": 100 * SECOND}
    if last is not None:
        row["closing"] = {"offset_ns": last, "error_ns": error, "at_ns": 200 * SECOND}
    return row


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
