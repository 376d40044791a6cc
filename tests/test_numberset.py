"""Sets of numbers against plain sets, and never listed out."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelprof import numberset
from accelprof.numberset import LARGEST, NumberSet

PARTS = st.lists(
    st.one_of(
        st.integers(0, 60),
        st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(1, 5)).map(
            lambda p: range(p[0], p[0] + p[1] + 1, p[2])
        ),
        st.lists(st.integers(0, 40), max_size=3),
    ),
    max_size=6,
)


def plain(parts):
    numbers = set()
    for part in parts:
        numbers.update([part] if isinstance(part, int) else part)
    return numbers


@settings(deadline=None)
@given(PARTS, st.integers(0, 70), st.sampled_from([0, 2, 10_000]))
def test_against_plain_sets(parts, number, listed):
    """Numbers, length, membership, adjacent stretches and text are those of the plain set, whether strides are listed out or kept."""
    before = numberset.LISTED
    numberset.LISTED = listed
    try:
        numbers, wanted = NumberSet.parse(parts), plain(parts)
    except ValueError as error:
        assert listed < 10_000
        assert "reach into each other" in str(error)
        return
    finally:
        numberset.LISTED = before
    assert sorted(numbers) == sorted(wanted)
    assert (len(numbers), bool(numbers)) == (len(wanted), bool(wanted))
    assert (number in numbers) == (number in wanted)
    stretches = list(numbers.stretches())
    assert len(stretches) == numbers.stretch_count()
    assert [n for first, last in stretches for n in range(first, last + 1)] == sorted(wanted)
    assert all(later[0] > earlier[1] + 1 for earlier, later in pairwise(stretches))
    assert numbers.run_of(number) == next((s for s in stretches if s[0] <= number <= s[1]), None)
    assert set(NumberSet.parse(numbers.to_config())) == wanted


@settings(deadline=None)
@given(PARTS, PARTS)
def test_subsets_and_unions(one, other):
    """``issubset`` and ``union`` are those of plain sets."""
    first, second = NumberSet.parse(one), NumberSet.parse(other)
    assert first.issubset(second) == (plain(one) <= plain(other))
    assert set(first.union(second)) == plain(one) | plain(other)


def test_huge_sets_take_no_room():
    """A stride over 10¹⁸ numbers is one run; equal, contained and single numbers beside it do not disturb it."""
    numbers = NumberSet.parse(["0-999999999999999999/2", "0-999999999999999999/2", "0-99999999999/4", 8])
    assert numbers.runs == ((0, 999999999999999998, 2),)
    assert (len(numbers), 10**15 in numbers, 10**15 + 1 in numbers) == (5 * 10**17, True, False)
    assert numbers.run_of(10**15) == (10**15, 10**15)
    assert str(numbers) == "0-999999999999999998/2"
    assert NumberSet.parse(numbers.to_config()) == numbers
    assert NumberSet.parse("5-999999999999999999").issubset(NumberSet.parse([f"0-{LARGEST}"]))
    assert not NumberSet.parse("0-99999999/3").issubset(NumberSet.parse("0-99999999/2"))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (True, "truth value"), (-1, "negative"), (1.5, "float"), ("x", "neither a number nor a range"),
        ("9" * 5000, "neither a number nor a range"), ("5-2", "backwards"), ("1-9/0", "stride 0"), ({"a": 1}, "dict"), ([True], "truth"),
        (None, "NoneType"), (b"12", "bytes"), (LARGEST + 1, "above"), (range(10**30), "above"), (["0-99999999/2", "1-99999999/2"], "reach into each other"),
        (["0-99999999/2", 99999999], "reach into each other"),
    ],
)  # fmt: skip
def test_refused(value, said):
    """What is no number, no range, too large, or cannot be told apart without listing it out is a ValueError that says why."""
    with pytest.raises(ValueError, match=said):
        NumberSet.parse(value)


def test_a_list_that_contains_itself_is_refused():
    """No recursion without an end."""
    endless = []
    endless.append(endless)
    with pytest.raises(ValueError, match="without an end"):
        NumberSet.parse(endless)
    with pytest.raises(ValueError, match="a number is negative"):
        NumberSet.parse(-(10**5000))
