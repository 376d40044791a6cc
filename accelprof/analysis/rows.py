"""Rows of a timeline: what overlaps on one without nesting gets a second, because viewers drop it otherwise."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from accelprof.analysis.intervals import among, distinct

#: one axis of whole numbers
Ints: TypeAlias = np.ndarray[Any, Any]


def lanes(rows: Ints, starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """The lane of each interval ``[start, end]``, 0 for the row itself, and the order in which they are to be drawn.

    On one lane of one row any two either follow each other or the shorter lies in the longer. Each interval gets the first
    lane where that holds; of those that begin together the longest is placed first. The order is by row, start, longest first.
    """
    order = np.lexsort((np.negative(ends), starts, rows))
    found: Ints = np.zeros(len(order), np.int32)
    if not len(order):
        return found, order
    row_of, start_of, end_of = rows[order], starts[order], ends[order]
    # where everything follows, as on most streams, there is nothing to find
    overlap = (row_of[1:] == row_of[:-1]) & (start_of[1:] < end_of[:-1])
    looked_at = np.flatnonzero(among(row_of, distinct(row_of[1:][overlap]))) if overlap.any() else order[:0]
    row: int | None = None
    first: list[int] = []
    beside: list[list[int]] = []
    for index, mine, start, end in zip(
        order[looked_at].tolist(),
        row_of[looked_at].tolist(),
        start_of[looked_at].tolist(),
        end_of[looked_at].tolist(),
        strict=True,
    ):
        if mine != row:
            row, first, beside = mine, [], []
        while first and first[-1] <= start:
            first.pop()
        if not first or end <= first[-1]:
            first.append(end)
            continue
        for lane, stack in enumerate(beside, 1):  # noqa: B007 - used behind the loop
            while stack and stack[-1] <= start:
                stack.pop()
            if not stack or end <= stack[-1]:
                break
        else:
            stack = []
            beside.append(stack)
            lane = len(beside)
        stack.append(end)
        found[index] = lane
    return found, order


class Drawn:
    """The slices of one row that has several lanes, to find the one that an arrow ends at.

    Args:
        slices: ``(start, end, lane, key)`` by start, the longest of those that begin together first; ``key`` is what an
            arrow that starts or ends exactly there has as its number, if it is known.
    """

    def __init__(self, slices: Sequence[tuple[int, int, int, object]]) -> None:
        self._slices = slices
        self._starts = [row[0] for row in slices]
        self._latest: list[int] = []  # the latest end so far, where a search backwards can stop
        for row in slices:
            self._latest.append(max(row[1], self._latest[-1]) if self._latest else row[1])

    def lane(self, at: int, key: object, following: bool) -> int:
        """The lane of the slice that an arrow at ``at`` belongs to: the one that starts there, otherwise the innermost that
        holds the moment; ``following``: the next to start (an arrow's end without a binding point)."""
        first, last = bisect_left(self._starts, at), bisect_right(self._starts, at)
        if first < last:
            together = self._slices[first:last]
            return next((row[2] for row in together if row[3] is not None and row[3] == key), together[-1][2])
        if following:
            return self._slices[first][2] if first < len(self._slices) else 0
        for index in range(first - 1, -1, -1):
            if self._latest[index] < at:
                break
            if self._slices[index][1] >= at:
                return self._slices[index][2]
        return 0
