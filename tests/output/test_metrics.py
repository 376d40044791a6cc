"""Timings of steps over ranks, and memory, as a manifest has them."""

from __future__ import annotations

from typing import Any

from accelprof.output.metrics import MEMORY_ROWS, STEPS_KEPT, memory_rows, metrics_of
from accelprof.output.records import Manifest, MemoryRow, MetricsRow, TargetRow, WindowRow


def timed(label: str, step: int, seconds: float, began: int = 1, wall: int | None = 1) -> MetricsRow:
    return MetricsRow(label, step, {"a": {"seconds": seconds, "count": 1}}, began, wall)


def rows(*timings: MetricsRow) -> list[dict[str, Any]]:
    found = Manifest()
    found.timings = list(timings)
    return list(metrics_of(found)["steps"])  # type: ignore[call-overload]


def test_a_step_is_over_its_ranks() -> None:
    """The slowest is named; it begins with the first rank and is as long as the longest."""
    [row] = rows(timed("G/rank0", 3, 1.0, began=20, wall=5), timed("G/rank1", 3, 3.0, began=10, wall=9))
    figures = row["seconds"]["a"]
    assert (figures["max"], figures["mean"], figures["min"], figures["ranks"], figures["slowest"]) == (3.0, 2.0, 1.0, 2, "G/rank1")  # fmt: skip
    assert (row["step"], row["began_ns"], row["wall_ns"], row["window"]) == (3, 10, 9, False)


def test_the_later_attempt_counts_whichever_is_read_first() -> None:
    """Of a rank that was started again."""
    first, again = timed("G/rank0", 1, 1.0, began=10), timed("G/rank0", 1, 2.0, began=20)
    for order in ((first, again), (again, first)):
        [row] = rows(*order)
        assert (row["seconds"]["a"]["max"], row["seconds"]["a"]["ranks"], row["began_ns"]) == (2.0, 1, 20)


def test_a_step_that_did_not_end_has_no_length() -> None:
    """Until it was done again by the same rank; another's end is not its own."""
    cut = timed("G/rank0", 1, 1.0, began=10, wall=None)
    [row] = rows(cut, timed("G/rank1", 1, 1.0))
    assert (row.get("ended"), "wall_ns" in row) == (False, False)
    [row] = rows(cut, timed("G/rank0", 1, 1.0, began=20, wall=7))
    assert ("ended" in row, row["wall_ns"]) == (False, 7)


def test_the_latest_steps_are_kept_in_order() -> None:
    """However they come, and whether a window holds them."""
    found = Manifest(timings=[timed("G/rank0", step, 1.0) for step in reversed(range(STEPS_KEPT + 5))])
    found.windows["w"] = WindowRow(id="w", steps=[7])
    kept = metrics_of(found)["steps"]
    assert isinstance(kept, list)
    assert [row["step"] for row in kept] == list(range(5, STEPS_KEPT + 5))
    assert [row["step"] for row in kept if row["window"]] == [7]


def test_of_too_many_rows_of_memory_those_with_the_most_are_kept() -> None:
    """And how many workers there were is said; fewer are all there, by name."""
    few = Manifest(memories=[MemoryRow(f"k{at}", 1, {"peak": at, "odd": "x"}) for at in (2, 1)])
    few.targets["k1"] = TargetRow(key="k1", group="G", rank=1)
    assert memory_rows(few) == [
        {"step": 1, "worker": "G/rank1", "peak": 1},
        {"step": 1, "worker": "k2", "peak": 2},
    ]
    many = Manifest(memories=[MemoryRow(f"k{at}", step, {"peak": at}) for step in range(20) for at in range(1500)])
    kept = memory_rows(many)
    assert len(kept) == MEMORY_ROWS
    assert {row["workers"] for row in kept} == {1500}
    assert [row["peak"] for row in kept[:3]] == [1499, 1498, 1497]
    assert memory_rows(Manifest(memories=[MemoryRow("k", 1, {"peak": "much"})])) == []
