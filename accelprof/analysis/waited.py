"""What was waited in all, from the rows of stragglers: for whom, in which collective, and where that one was late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from accelprof.analysis.collectives import add_waits
from accelprof.analysis.report_rows import Straggler, Waits


class Sum(Waits):
    """What was waited in several rows; ``longest`` is one of them."""

    times: int
    missing: list[str]
    longest: Straggler


class Waited(Sum):
    """The same over all steps and in each."""

    steps: dict[int | str | None, Sum]


def waited(rows: Iterable[Straggler]) -> list[Waited]:
    """Waits by whom they were for, in which collective, on which side that was seen and where that one was late, the longest in all
    first. What hosts and devices saw of the same collective stands apart: it is one wait, and not the sum."""
    found: dict[tuple[str, ...], Waited] = {}
    for row in rows:
        key = tuple(str(one) for one in (row["worker"], row["phase"], row["on"], row["process_group"], row["late_in"]))
        mine = found.setdefault(key, {**_no_waits(row), "steps": {}})
        sums: tuple[Sum, ...] = (mine, mine["steps"].setdefault(row["step"], _no_waits(row)))
        for one in sums:
            one["times"] += 1
            add_waits(one, row)
            if row["waited_ns"] > one["longest"]["waited_ns"]:
                one["longest"] = row
        mine["missing"] = list(dict.fromkeys([*mine["missing"], *row["missing"]]))
    return sorted(found.values(), key=lambda row: -row["waited_ns"])


def by_phase(rows: Iterable[Straggler]) -> Counter[tuple[str, str]]:
    """ns by phase and step: of what hosts and devices saw, the longer."""
    sides: dict[str, Counter[tuple[str, str]]] = {}
    for row in rows:
        sides.setdefault(row["on"], Counter())[row["phase"], str(row["step"])] += row["waited_ns"]
    longest: Counter[tuple[str, str]] = Counter()
    for side in sides.values():
        longest |= side
    return longest


def _no_waits(row: Straggler) -> Sum:
    return {
        "times": 0, "waited_ns": 0, "alone_ns": 0, "low_ns": 0, "high_ns": 0, "without_ns": 0, "transfer_ns": 0, "missing": [],
        "longest": row,
    }  # fmt: skip
