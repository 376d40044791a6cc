"""Unions, intersections and lengths of many intervals at once, in whole nanoseconds.

Intervals are two ``int64`` arrays, ``start`` and ``end``; "by group" means that each belongs to one of many sets of its
own, given by a third array of whole numbers. Nothing here loops over intervals.
"""

from __future__ import annotations

import numpy as np

from accelprof.reading.columns import Array

#: intervals that are looked at together
PART = 1 << 17


def distinct(values: Array) -> Array:
    """The values in order, each once. ``np.unique`` does the same by hashing, which takes a hundred times as long where
    most values differ."""
    ordered = np.sort(values)
    if ordered.size < 2:
        return ordered
    first = np.ones(ordered.size, dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    found: Array = ordered[first]
    return found


def among(values: Array, known: Array) -> Array:
    """Which of the values are in ``known``, whose values are sorted and each there once."""
    if not known.size or not values.size:
        return np.zeros(values.shape, dtype=np.bool_)
    low, high = int(known[0]), int(known[-1])
    if high - low <= 8 * (values.size + known.size):
        table: Array = np.zeros(high - low + 1, dtype=np.bool_)
        table[known - low] = True
        there = (values >= low) & (values <= high)
        there[there] = table[values[there] - low]
        return there
    order = np.argsort(values)
    place = np.minimum(np.searchsorted(known, values[order]), known.size - 1)
    found = np.zeros(values.shape, dtype=np.bool_)
    found[order] = known[place] == values[order]
    return found


def merged_by(group: Array, start: Array, end: Array) -> tuple[Array, Array, Array]:
    """``(group, start, end)`` of sorted disjoint intervals that cover the same points of each group.

    Intervals that touch become one; empty ones cover nothing.
    """
    there = end > start
    if not there.all():
        group, start, end = group[there], start[there], end[there]
    if not start.size:
        return group.astype(np.int64), start, end
    one = group[0] == group[-1] and bool((group == group[0]).all())
    order = np.argsort(start, kind="stable") if one else np.lexsort((start, group))
    group, start, end = group[order], start[order], end[order]
    del order
    begins = np.ones(start.size, dtype=np.bool_)
    if one:
        reach = np.maximum.accumulate(end)
        begins[1:] = start[1:] > reach[:-1]
    else:
        changes = group[1:] != group[:-1]
        reach = _reach(changes, start, end)
        begins[1:] = changes | (start[1:] > reach[:-1])
    first = np.flatnonzero(begins)
    last: Array = np.append(first[1:], start.size) - 1
    return group[first].astype(np.int64), start[first], reach[last]


def _reach(changes: Array, start: Array, end: Array) -> Array:
    """The furthest end so far within each group: ends are lifted above all of the groups before."""
    number = np.concatenate(([0], np.cumsum(changes)))
    low = int(start.min())
    width = int(end.max()) - low + 1
    if width * (int(number[-1]) + 1) < 1 << 62:
        lift = number * width
        return np.maximum.accumulate(end - low + lift) - lift + low
    values, ranks = np.unique(end, return_inverse=True)  # times too far apart to be lifted: their ranks are
    found: Array = values[np.maximum.accumulate(ranks + number * values.size) - number * values.size]
    return found


def merged(start: Array, end: Array) -> tuple[Array, Array]:
    """:func:`merged_by` with one group."""
    _, begins, ends = merged_by(np.zeros(start.size, dtype=np.int64), start, end)
    return begins, ends


def lengths_by(group: Array, start: Array, end: Array, groups: int, rows: Array | None = None) -> Array:
    """For each of ``groups`` groups, numbered from 0, the length in ns of the union of its intervals.

    ``rows``: the intervals are those at these places of ``start`` and ``end``, ``group`` goes with them. Whole groups are
    taken a part at a time, so that memory follows the largest group.
    """
    total: Array = np.zeros(groups, dtype=np.int64)
    order: Array = np.argsort(group, kind="stable")
    at = 0
    while at < order.size:
        until = order.size
        if until - at > PART:
            last = group[order[at + PART]]  # the group that does not fit any more; alone when it is larger than a part
            until = int(np.searchsorted(group[order[at:]], last)) + at
            if until == at:
                until = int(np.searchsorted(group[order[at:]], last, side="right")) + at
        part = order[at:until]
        places = part if rows is None else rows[part]
        which, begins, finishes = merged_by(group[part], start[places], end[places])
        np.add.at(total, which, finishes - begins)
        at = until
    return total


def covered(start: Array, end: Array, at: Array) -> Array:
    """For each moment ``at`` how many ns before it the sorted disjoint intervals ``start``, ``end`` cover."""
    if not start.size:
        return np.zeros(at.shape, dtype=np.int64)
    before = np.concatenate(([0], np.cumsum(end - start)))
    index = np.searchsorted(start, at, side="right")
    last = np.maximum(index - 1, 0)
    within = np.where(index > 0, np.minimum(at, end[last]) - start[last], 0)
    found: Array = np.where(index > 0, before[last] + within, 0)
    return found


def overlap_length(start: Array, end: Array, other_start: Array, other_end: Array) -> Array:
    """For each interval the length of what the sorted disjoint ``other`` intervals cover of it."""
    found: Array = covered(other_start, other_end, end) - covered(other_start, other_end, start)
    return found


def intersection(start: Array, end: Array, other_start: Array, other_end: Array) -> tuple[Array, Array]:
    """What two lists of sorted disjoint intervals both cover, sorted and disjoint."""
    bounds = distinct(np.concatenate((start, end, other_start, other_end)))
    if bounds.size < 2:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    begins, ends = bounds[:-1], bounds[1:]
    wanted = inside(start, end, begins) & inside(other_start, other_end, begins)
    return merged(begins[wanted], ends[wanted])


def inside(start: Array, end: Array, at: Array) -> Array:
    """Whether each moment lies in one of the sorted disjoint intervals, whose ends do not belong to them."""
    if not start.size:
        return np.zeros(at.shape, dtype=np.bool_)
    index = np.searchsorted(start, at, side="right") - 1
    found: Array = (index >= 0) & (at < end[np.maximum(index, 0)])
    return found
