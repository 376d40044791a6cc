"""Unions, intersections and lengths against counting nanoseconds one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelprof.analysis import intervals

spans = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=10
)
relaxed = settings(deadline=None)

pytestmark = pytest.mark.usefixtures("in_parts")


def arrays(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def moments(pairs: list[tuple[int, int]]) -> set[int]:
    return {at for start, end in pairs for at in range(start, end)}


def listed(found: tuple[np.ndarray, np.ndarray]) -> list[tuple[int, int]]:
    return list(zip(found[0].tolist(), found[1].tolist()))


def length(found: tuple[np.ndarray, np.ndarray]) -> int:
    return int((found[1] - found[0]).sum())


@relaxed
@given(spans, spans)
def test_sets_of_intervals_are_sets_of_moments(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    """Union, intersection and overlap are those of the moments; what comes out is sorted and disjoint."""
    left, right = intervals.merged(*arrays(one)), intervals.merged(*arrays(other))
    assert moments(listed(left)) == moments(one)
    assert length(left) == len(moments(one))
    for found, expected in (
        (left, moments(one)),
        (intervals.intersection(*left, *right), moments(one) & moments(other)),
    ):
        pairs = listed(found)
        assert moments(pairs) == expected
        assert all(before[1] < after[0] for before, after in itertools.pairwise(pairs))
    lengths = intervals.overlap_length(*arrays(one), *right)
    assert lengths.tolist() == [len(set(range(start, end)) & moments(other)) for start, end in one]
    at = np.arange(-2, 60)
    assert intervals.inside(*left, at).tolist() == [moment in moments(one) for moment in at.tolist()]


@relaxed
@given(st.lists(st.tuples(st.integers(0, 3), spans), max_size=6))
def test_groups_do_not_touch_each_other(groups: list[tuple[int, list[tuple[int, int]]]]) -> None:
    """The length of each group is that of its own intervals."""
    rows = [(group, start, end) for group, pairs in groups for start, end in pairs]
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    found = intervals.lengths_by(table[:, 0], table[:, 1], table[:, 2], 4)
    assert found.tolist() == [
        len(moments([(start, end) for of, start, end in rows if of == group])) for group in range(4)
    ]


def test_times_of_today_are_exact() -> None:
    """Lengths near 1.8e18 ns are whole nanoseconds."""
    base = 1_795_852_566_123_456_789
    found = intervals.merged(*arrays([(base, base + 1), (base + 1, base + 4), (base + 10, base + 11)]))
    assert length(found) == 5


numbers = st.lists(st.one_of(st.integers(0, 12), st.integers(-(2**62), 2**62)), max_size=12)


@relaxed
@given(numbers, numbers)
def test_distinct_values_and_who_is_among_them(one: list[int], other: list[int]) -> None:
    """As sets have it, for close numbers and for far ones."""
    known = intervals.distinct(np.array(one, dtype=np.int64))
    assert known.tolist() == sorted(set(one))
    assert intervals.among(np.array(other, dtype=np.int64), known).tolist() == [value in set(one) for value in other]
