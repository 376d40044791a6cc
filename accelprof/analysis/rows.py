"""Rows of a timeline: what overlaps on one without nesting gets a second, because viewers drop it otherwise."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np

from accelprof.analysis.intervals import distinct
from accelprof.reading.columns import Array

#: intervals inside another, on average, up to which a row is asked whether any cross
_DEEP = 64


def lanes(rows: Array, starts: Array, ends: Array) -> tuple[Array, Array]:
    """The lane of each interval ``[start, end]``, 0 for the row itself, and the order in which they are to be drawn.

    On one lane of one row any two either follow each other or the shorter lies in the longer. Each interval gets the first
    lane where that holds; of those that begin together the longest is placed first. The order is by row, start, longest first.
    """
    order = np.lexsort((np.negative(ends), starts, rows))
    found: Array = np.zeros(len(order), np.int32)
    if not len(order):
        return found, order
    row_of, start_of, end_of = rows[order], starts[order], ends[order]
    # where everything follows, as on most streams, there is nothing to find
    overlap = (row_of[1:] == row_of[:-1]) & (start_of[1:] < end_of[:-1])
    looked_at = _crossed(row_of, start_of, end_of, distinct(row_of[1:][overlap])) if overlap.any() else order[:0]
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


def _crossed(rows: Array, starts: Array, ends: Array, asked: Array) -> Array:
    """The numbers of the intervals of those rows ``asked`` for where some cross: one begins in the other and ends behind it.
    The intervals are in order; a row where telling would take longer than placing counts as crossed."""
    bounds: Array = np.searchsorted(rows, np.stack((asked, asked + 1), axis=1))
    spans = [slice(low, high) for low, high in bounds.tolist()]
    found = [np.arange(span.start, span.stop) for span in spans if _cross(starts[span], ends[span])]
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _cross(starts: Array, ends: Array) -> bool:
    inner = np.arange(1, len(starts) + 1)
    behind: Array = np.searchsorted(starts, np.atleast_1d(ends))  # the first that does not begin in it
    some = np.flatnonzero(behind > inner)
    if int((behind - inner)[some].sum()) > _DEEP * len(starts):
        return True
    pairs: Array = np.stack((inner[some], behind[some]), axis=1).ravel()
    latest: Array = np.maximum.reduceat(np.append(ends, ends[:1]), pairs)[::2] if len(some) else ends[:0]
    return bool((latest > ends[some]).any())


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
