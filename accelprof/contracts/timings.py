"""Timings of steps, as workers, journals, hooks and exporters pass them on: plain JSON, the same on both sides of any wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict


class Timing(TypedDict):
    """What one phase took in a step, in one process, over its calls."""

    seconds: float
    count: int


#: by tag, of one step in one process
Timings = Mapping[str, Timing]


def seconds_by_tag(rows: Mapping[str, Timings]) -> dict[str, dict[str, float]]:
    """``rows``, rank label -> tag -> timing, the other way round: tag -> label -> seconds, in the order in which they come."""
    by_tag: dict[str, dict[str, float]] = {}
    for label, tags in rows.items():
        for tag, row in tags.items():
            by_tag.setdefault(tag, {})[label] = row["seconds"]
    return by_tag
