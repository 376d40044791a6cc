"""What a plan asks by step: kept in few words, cut where another answers, and said in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from accelprof.numberset import LISTED, NumberSet
from accelprof.output.asked import NAMED, ByStep, first_of, none_opened, recorded, steps_of, unreached
from accelprof.output.records import STEPS_SEEN, Manifest, StretchesRow, TargetRow, WindowRow
from accelprof.output.verdict import verdict

STEPS = st.sets(st.integers(0, 60), max_size=30)


def asked(steps: object, **more: bool) -> ByStep:
    return ByStep(NumberSet.parse(steps), **more)


@given(STEPS)
def test_steps_are_the_same_when_they_are_read_again(steps: set[int]) -> None:
    """Ranges, single numbers, and numbers at equal distances in one text."""
    one = asked(sorted(steps))
    assert list(NumberSet.parse(one.to_config())) == sorted(steps)


def test_numbers_at_equal_distances_are_one_text() -> None:
    """Three of them or more; two are as short by themselves."""
    assert asked([2, 12, 22, 32]).to_config() == ["2-32/10"]
    assert asked([2, 12]).to_config() == [2, 12]
    far = f"5-{5 + 100 * LISTED}/100"
    assert asked([far, "1-3"]).to_config() == ["1-3", far]


@given(STEPS, st.integers(0, 61), st.booleans())
def test_until_a_step_is_all_before_it_and_nothing_after(steps: set[int], step: int, merged: bool) -> None:
    """Where it falls into a window of several steps, the part before."""
    cut = asked(sorted(steps), merged=merged).until(step)
    assert list(cut.steps) == sorted(one for one in steps if one < step)
    assert cut.merged == merged
    assert not cut.until(None).steps


def test_listed_windows_are_cut_too() -> None:
    """As rows of older versions have them."""
    one = ByStep(listed=[(1, 2), (4, 6), (8, 9)])
    assert one.until(5).listed == [(1, 2), (4, 4)]
    assert one.until(1).listed == []
    assert not one.until(None).listed


@given(STEPS, st.integers(0, 61), st.booleans())
def test_windows_since_a_step_are_counted_as_they_come(steps: set[int], begin: int, merged: bool) -> None:
    """Without going over them."""
    one = asked(sorted(steps), merged=merged)
    windows = list(one.since(begin))
    assert one.number_since(begin) == len(windows)
    assert windows == sorted(windows)
    assert all(last >= begin for _, last in windows)
    assert set(windows) >= one.holding([step for step in steps if step >= begin])


def test_a_huge_plan_is_named_in_part_and_counted_whole() -> None:
    """Nothing is listed out."""
    words = asked("0-999999999999").missed([WindowRow(id="w", steps=[0])], [0]).words
    assert words.startswith("windows for steps 1, 2, 3, ")
    assert words.endswith(f" and {10**12 - 1 - NAMED:,} more never opened")


def test_a_step_is_missed_where_its_window_is() -> None:
    """Another that nobody asked for is not, nor anything that is no step."""
    missed = asked([1, 3, 4, 9], merged=True).missed([WindowRow(id="w", steps=[1])], [1, 2])
    assert [step for step in range(12) if step in missed] == [3, 4, 9]
    assert "3" not in missed
    assert missed.words == "windows for steps 3-4, 9 never opened"


def test_timings_leave_no_step_open() -> None:
    """Of one that was killed: with them a step without its phase came, and one that passed did not; without them neither is known."""
    windows = [WindowRow(id="w", steps=[5])]
    one = asked([1, 3, 5, 7], sure=False)
    assert one.missed(windows, [], ended=False).words == "windows for steps 7 never opened"
    assert one.missed(windows, [], ended=False, known=[1, 2, 5]).words == "windows for steps 3, 7 never opened"


def test_the_first_step_of_a_process_is_the_least_that_anything_tells() -> None:
    """Windows, the step before the first of them, announced steps, timings; nothing where nothing tells."""
    windows = [WindowRow(id="w", steps=[7, 8]), WindowRow(id="v", steps=[9])]
    windows[0].seen_from = 4
    assert steps_of(windows) == {4, 7, 8, 9}
    assert first_of(TargetRow(key="k"), windows) == 4
    assert first_of(TargetRow(key="k", steps_came=["3-5"]), windows) == 3
    assert first_of(TargetRow(key="k", steps_seen=[2]), ()) == 2
    assert first_of(TargetRow(key="k"), ()) is None


def test_stretches_count_once_and_only_those_that_were_asked() -> None:
    """Two windows may hold parts of one; another's phase and another's first call are none."""
    three = StretchesRow(phase="decode", first=2, every=10, count=3)
    held = [("decode", 2), ("decode", 12), ("decode", 13), ("score", 22), ("decode", 32)]
    windows = [WindowRow(id="w", stretches=held), WindowRow(id="v", stretches=held[:1])]
    assert recorded(three, windows) == 2
    assert unreached(three, windows) == "schedule on decode: 2 of 3 stretches were recorded"
    assert unreached(three, windows, named=1) == ""
    endless = StretchesRow(phase="score", first=0, every=2, count=0)
    assert unreached(endless, windows) == ""
    assert unreached(endless, []) == "schedule on score: 0 of 1 stretches were recorded"


def test_what_a_process_saw_is_said_as_far_as_it_is_known() -> None:
    """Of one that ended in order these are all of its steps; of a killed one its row has the first, and there may have been more."""
    words = none_opened(range(STEPS_SEEN), ["a"], "steps 900", "torch")
    assert "maybe" not in words
    assert words.endswith("phases seen: a; tool: torch; wanted: steps 900")
    for number in (STEPS_SEEN - 1, STEPS_SEEN):
        found = Manifest()
        seen = list(range(number))
        found.targets["k"] = TargetRow(
            key="k", group="G", rank=0, armed=True, tool="torch", steps_seen=seen, ended=False
        )
        [lack] = verdict(found)
        assert ("and maybe later ones" in lack.words) == (number == STEPS_SEEN)
    assert none_opened([], [], None, None).endswith("steps seen: none; phases seen: none")
