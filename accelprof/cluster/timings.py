"""Timings of a step over ranks: reduced over the union of tags, with the ranks that lack one named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from accelprof.contracts.timings import Timing, Timings, seconds_by_tag
from accelprof.errors import UserError, nearest

REDUCTIONS: dict[str, Callable[[list[float]], float]] = {
    "max": max,
    "min": min,
    "sum": sum,
    "mean": lambda values: sum(values) / len(values),
}


class StepTimings(dict[str, object]):
    """``{tag: seconds}``, or ``{tag: {"ActorGroup/rank0": seconds}}`` per rank.

    Attributes:
        step: the step these are of.
        reduce: how ranks were reduced; ``None`` per rank.
        missing: tag -> ranks of the same group that have no timing of it.
        absent: rank -> why nothing of it is in here.
        at: tag -> the rank with the largest value.
    """

    def __init__(
        self,
        values: Mapping[str, object],
        step: int | None,
        reduce: str | None,
        missing: Mapping[str, list[str]],
        absent: Mapping[str, str],
        at: Mapping[str, str],
    ) -> None:
        super().__init__(values)
        self.step, self.reduce, self.missing, self.absent, self.at = step, reduce, dict(missing), dict(absent), dict(at)

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (dict(self), self.step, self.reduce, self.missing, self.absent, self.at))


def reduce_timings(
    rows: Mapping[str, Timings],
    groups: Mapping[str, str],
    step: int | None,
    reduce: str,
    per_rank: bool,
    absent: Mapping[str, str],
) -> StepTimings:
    """``rows``: rank label -> tag -> ``{"seconds", "count"}``; ``groups``: rank label -> group.

    Raises:
        UserError: ``reduce`` is not one of max, mean, min, sum.
    """
    if reduce not in REDUCTIONS:
        raise UserError(
            f"metrics: reduce={reduce!r} is unknown; allowed: {', '.join(sorted(REDUCTIONS))}. {nearest(reduce, REDUCTIONS)}".rstrip(
                ". "
            )
        )
    by_tag = seconds_by_tag(rows)
    missing: dict[str, list[str]] = {}
    at: dict[str, str] = {}
    values: dict[str, Any] = {}
    for tag in sorted(by_tag):
        found = by_tag[tag]
        owners = {groups[label] for label in found}
        lacking = [label for label in rows if groups[label] in owners and label not in found]
        if lacking:
            missing[tag] = lacking
        at[tag] = max(found, key=lambda label: found[label])
        values[tag] = dict(found) if per_rank else REDUCTIONS[reduce](list(found.values()))
    return StepTimings(values, step, None if per_rank else reduce, missing, absent, at)


def added(one: Timings, other: Timings) -> dict[str, Timing]:
    """Timings of two stretches of one rank as those of both."""
    result: dict[str, Timing] = {tag: {**row} for tag, row in one.items()}
    for tag, row in other.items():
        mine = result.setdefault(tag, Timing(seconds=0.0, count=0))
        mine["seconds"] += row["seconds"]
        mine["count"] += row["count"]
    return result
