"""Schedules as the plan sees them, against counting the calls one by one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelprof.config.model import Schedule
from accelprof.contracts.targets import ScheduleSpec, Target
from accelprof.errors import ConfigError
from accelprof.numberset import NumberSet
from accelprof.planning.sampling import (
    _recorded,
    check_schedules,
    facts_fit,
    schedule_notes,
    scheduled_captures,
    to_spec,
)

SPECS = st.builds(
    ScheduleSpec,
    phase=st.sampled_from(["a", "b"]),
    wait=st.integers(0, 4),
    warmup=st.integers(0, 3),
    active=st.integers(1, 4),
    repeat=st.integers(0, 3),
    skip_first=st.integers(0, 5),
    per=st.sampled_from(["process", "step", "outer"]),
)


def counted(spec, limit):
    """Calls that are recorded, by walking through them as torch's schedule does."""
    numbers, windows, call = set(), 0, spec.skip_first
    while call < limit and (not spec.repeat or windows < spec.repeat):
        call += spec.wait + spec.warmup
        numbers.update(number for number in range(call, call + spec.active) if number < limit)
        call += spec.active
        windows += 1
    return numbers


@given(SPECS, st.integers(1, 60))
@settings(max_examples=300)
def test_recorded_calls_are_those_that_counting_finds(spec, limit):
    """The numbers of recorded calls are what walking call by call gives, for any schedule and any length of the loop."""
    assert _recorded(spec, limit) == counted(spec, limit)


@given(SPECS, SPECS)
@settings(max_examples=300)
def test_schedules_that_share_a_call_are_refused_together(one, other):
    """Two schedules of one loop pass exactly where no call is recorded by both; the message names such a call."""
    if one.phase != other.phase or one.per != other.per:
        return
    shared = counted(one, 10_000) & counted(other, 10_000)
    if not shared:
        check_schedules("groups.G", [one, other])
        return
    with pytest.raises(ConfigError, match=rf"groups\.G\.schedule.*both record call {min(shared)} "):
        check_schedules("groups.G", [one, other])


@given(st.integers(0, 30), st.integers(1, 30), st.integers(0, 40))
def test_from_one_call_to_another_records_just_those(first, length, warmup):
    """``start`` and ``stop`` mean the calls from one up to the other, however long a warm-up was asked for."""
    spec = to_spec(Schedule(phase="p", start=first, stop=first + length, warmup=warmup))
    assert _recorded(spec, 100) == set(range(first, min(first + length, 100)))
    assert spec.warmup <= first


def test_what_is_counted_per_call_of_itself_is_refused():
    """A phase cannot be the loop of its own calls."""
    with pytest.raises(ConfigError, match="counted per call of itself"):
        check_schedules("config", [ScheduleSpec("a", active=1, per="a")])


def test_calls_inside_what_is_recorded_as_a_whole_are_refused():
    """A window of the inner phase would fall into one of the outer."""
    outer, inner = ScheduleSpec("a", active=1), ScheduleSpec("b", active=1, per="a")
    for pair in ([outer, inner], [inner, outer]):
        with pytest.raises(ConfigError, match="recorded as a whole"):
            check_schedules("config", pair)


@pytest.mark.parametrize(
    ("specs", "mode", "steps", "count"),
    [
        ([ScheduleSpec("a", active=1, repeat=3)], "steps", [1, 2], 3),
        ([ScheduleSpec("a", active=1, repeat=3, per="step")], "steps", [1, 2], 6),
        ([ScheduleSpec("a", active=1, repeat=3, per="step")], "all", [1, 2], None),
        ([ScheduleSpec("a", active=1, repeat=3, per="outer")], "steps", [1, 2], None),
        ([ScheduleSpec("a", active=1, repeat=0)], "steps", [1], None),
        ([ScheduleSpec("a", active=1, repeat=2), ScheduleSpec("b", active=1, repeat=5)], "steps", [1], 7),
        ([], "steps", [1], 0),
    ],
)
def test_windows_are_counted_where_they_can_be(specs, mode, steps, count):
    """The number of windows is known only where it does not hang on how often an enclosing phase runs."""
    assert scheduled_captures(specs, mode, NumberSet.parse(steps)).exact == count


@pytest.mark.parametrize(
    ("when", "role", "expected"),
    [
        ({}, None, True),
        ({"role": "actor"}, None, True),
        ({"role": "actor"}, "ref", False),
        ({"role": ["ref", "act*"]}, None, True),
        ({"group": "H"}, None, False),
        ({"group": ["H", "G"]}, None, True),
        ({"rank": 3}, None, True),
        ({"rank": "0-2"}, None, False),
        ({"rank": "all"}, None, True),
        ({"some.attribute": 1}, None, True),
    ],
)
def test_facts_of_an_instrument(when, role, expected):
    """Role, group and rank all have to hold; attributes of an instance are asked elsewhere."""
    assert facts_fit(when, Target("G", ("actor", "ref"), 3), role) is expected


def test_an_unknown_rank_is_none_of_those_asked_for():
    """Unknown is not rank 0; only ``all`` takes it."""
    assert not facts_fit({"rank": 0}, Target("G"), None)
    assert facts_fit({"rank": "all"}, Target("G"), None)


def test_what_has_no_effect_is_said():
    """Notes name what a schedule makes of discrete, of a whole process, of keep_others and of repeat 0."""
    plain = ScheduleSpec("a", active=1)
    assert list(schedule_notes([], "process", True)) == []
    assert list(schedule_notes([plain], "steps", False)) == []
    (note,) = schedule_notes([plain], "steps", True)
    assert "discrete has no effect" in note
    (note,) = schedule_notes([plain], "process", False)
    assert "no window of its own" in note
    endless = ScheduleSpec("a", active=1, repeat=0, wait=1, keep_others=True)
    notes = list(schedule_notes([endless], "steps", False))
    assert ["keeps nothing here" in notes[0], "without an end" in notes[1], len(notes)] == [True, True, 2]
