"""Every part of a second is drawn, has a column and, where it is no work, words: none is counted and not shown."""

from __future__ import annotations

from collections import Counter

from accelprof.analysis import division, first, table
from accelprof.analysis.html import data


def test_who_shows_parts_has_them_all() -> None:
    """The page draws each once; each is in one column of the table; what is no work has words in the first sentences."""
    assert sorted(data.PARTS) == sorted(division.PARTS)
    assert Counter(name for _, names, _ in table.GROUPS for name in names) == dict.fromkeys(division.PARTS, 1)
    assert first.IDLE.keys() >= set(division.PARTS) - set(division.WORKING)
    assert first.IDLE.keys() <= set(division.PARTS)
    assert [part.place for part in sorted(division.TABLE, key=lambda part: part.place)] == list(
        range(len(division.TABLE))
    )


def test_their_order_is_that_of_files_written_before() -> None:
    """Columns of exported tables and keys of ``report --json`` stay in order; drawn, communication stands beside compute."""
    assert division.PARTS == (
        "compute", "communication_exposed", "communication_overlapped", "copy", "idle_launching", "idle_queued", "idle_sync",
        "idle_collective", "idle_waiting", "outside", "unknown",
    )  # fmt: skip
    assert list(data.PARTS)[:3] == ["compute", "communication_overlapped", "communication_exposed"]
    assert list(first.IDLE) == [
        "idle_launching", "idle_queued", "idle_sync", "idle_collective", "idle_waiting", "outside", "unknown",
        "communication_exposed",
    ]  # fmt: skip
