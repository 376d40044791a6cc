"""The plan: one predicate for wrap and windows; absent and empty mean the same everywhere."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelprof.config.load import load_config
from accelprof.contracts.targets import Target
from accelprof.errors import ConfigError
from accelprof.numberset import NumberSet
from accelprof.planning.plan import LISTED_WINDOWS, to_spec
from tests.planning.plans import make_plan


def plan(**config):
    return make_plan(load_config(config).config)


def assign(target, **config):
    return plan(**config).assign(target)


def T(rank=0, group="G", world=None, replica=None, roles=(), node=None):
    return Target(group, roles, rank, world, replica, node)


@pytest.mark.parametrize(
    ("ranks", "selected"),
    [
        (None, [0]),
        ("all", [0, 1, 2, 3]),
        ([], []),
        (2, [2]),
        ("1-2", [1, 2]),
        ([0, 0], [0]),
        ((0, 3), [0, 3]),
        (range(2), [0, 1]),
    ],
)
def test_ranks(ranks, selected):
    """Absent = rank 0, all = everybody, [] = nobody; every other form is the numbers it says."""
    rows = plan(steps=[1], ranks=ranks)
    assert [rank for rank in range(4) if rows.assign(T(rank, world=4)).selected] == selected


def test_default_is_one_rank_and_lean():
    """B37, B42: enabled with steps and nothing else selects rank 0 of the first replica, one bounded window."""
    rows = plan(steps=[1])
    chosen = [
        (replica, rank)
        for replica in range(2)
        for rank in range(4)
        if rows.assign(T(rank, world=8, replica=replica)).selected
    ]
    assert chosen == [(0, 0)]
    assert rows.assign(T(0)).count.exact == 1


def test_ranks_are_group_ranks_in_every_role():
    """B09: ranks [0, 8] of two replicas of 8 are ranks 0 and 8, in replica 0 and 1; ranks outside the world are named."""
    rows = plan(steps=[1], groups={"Rollout": {"ranks": [0, 8]}})
    chosen = [rank for rank in range(16) if rows.assign(T(rank, "Rollout", 16, rank // 8)).selected]
    assert chosen == [0, 8]
    notes = rows.assign(T(0, "Rollout", 4)).notes
    assert any("[8] are outside 0..3" in note for note in notes)


def test_replicas_select_whole_replicas():
    """A rule that names replicas alone selects all their ranks; the top level's ranks do not narrow it."""
    rows = plan(steps=[1], ranks=[0], groups={"R": {"replicas": [1]}})
    assert [rank for rank in range(8) if rows.assign(T(rank, "R", 8, rank // 4)).selected] == [4, 5, 6, 7]


def test_nodes():
    """Nodes select by name pattern."""
    rows = plan(steps=[1], ranks="all", nodes=["gpu-0*"])
    assert rows.assign(T(node="gpu-01")).selected
    assert not rows.assign(T(node="gpu-11")).selected
    assert not rows.assign(T(node=None)).selected


def test_groups():
    """A group that is not named is not profiled when groups are given; patterns work; without groups all are."""
    assert plan(steps=[1]).assign(T(group="Anything")).selected
    rows = plan(steps=[1], groups={"Actor*": None})
    assert rows.assign(T(group="ActorGroup")).selected
    assignment = rows.assign(T(group="Critic"))
    assert not assignment.selected
    assert any("not named under groups" in note for note in assignment.notes)


def test_first_rule_that_fits():
    """In a list of rules the first that fits a rank counts."""
    rows = plan(steps=[1], groups={"C": [{"ranks": [0], "tool": "torch"}, {"ranks": [0, 1], "steps": [4]}]})
    assert (rows.assign(T(0, "C")).tool, rows.assign(T(0, "C")).windows) == ("torch", ((1,),))
    assert (rows.assign(T(1, "C")).tool, rows.assign(T(1, "C")).windows) == (None, ((4,),))


def test_off_means_off():
    """``enabled: false``, no steps, and a rule with ``enabled: false`` select nobody."""
    assert not plan(enabled=False, steps=[1]).assign(T()).selected
    assert not plan(steps=None).assign(T()).selected
    assert not plan(steps=[]).assign(T()).selected
    assert not plan(steps=[1], groups={"G": {"enabled": False}}).assign(T()).selected


@pytest.mark.parametrize(
    ("config", "windows", "count"),
    [
        ({"steps": [2, "5-7"]}, ((2,), (5,), (6,), (7,)), 4),
        ({"steps": [2, "5-7"], "merge_steps": True}, ((2,), (5, 6, 7)), 2),
        ({"steps": [2, 4], "discrete": True}, ((2,), (4,)), None),
        ({"steps": "all"}, (), None),
        ({"steps": "process"}, (), 1),
        ({"steps": "0-20/10"}, ((0,), (10,), (20,)), 3),
    ],
)
def test_windows_and_captures(config, windows, count):
    """Windows and the number of captures are derived from the plan; a count that is not certain is not guessed."""
    assignment = assign(T(), **config)
    assert (assignment.windows, assignment.count.exact) == (windows, count)


def test_union_of_colocated_roles():
    """A process with several roles has the union of their selections, with who asked for it."""
    groups = {
        "W": [
            {"roles": ["actor"], "ranks": [0]},
            {"roles": ["rollout"], "ranks": [1]},
            {"roles": ["ref"], "ranks": "all"},
        ]
    }
    rows = plan(steps=[1], groups=groups)
    everyone = ("actor", "rollout", "ref")
    assert rows.assign(T(0, "W", roles=everyone)).asked_by == {"actor": "groups.W[0]", "ref": "groups.W[2]"}
    assert rows.assign(T(1, "W", roles=everyone)).asked_by == {"rollout": "groups.W[1]", "ref": "groups.W[2]"}
    assert rows.assign(T(2, "W", roles=everyone)).asked_by == {"ref": "groups.W[2]"}
    assert not rows.assign(T(2, "W", roles=("actor", "rollout"))).selected


@pytest.mark.parametrize(
    ("first", "second", "key"),
    [
        ({"discrete": True}, {"discrete": False}, "discrete"),
        ({"merge_steps": True}, {}, "merge_steps"),
        ({"tool": "a"}, {"tool": "b"}, "tool"),
        ({"tool": "a", "options": {"x": 1}}, {"tool": "a"}, "options"),
        ({"steps": "process"}, {}, "steps"),
    ],
)
def test_contradictions_are_refused_by_name(first, second, key):
    """Roles of one process that contradict each other are refused when the plan is made, both paths and roles named."""
    with pytest.raises(ConfigError, match=rf"groups\.W\[0\]\.{key} \(role actor\).*groups\.W\[1\]\.{key} \(role ref\)"):
        plan(steps=[1], groups={"W": [{"roles": "actor", **first}, {"roles": "ref", **second}]})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"steps": [1], "discrete": True, "merge_steps": True}, "merge_steps"),
        ({"steps": "process", "discrete": True}, "steps"),
        ({"steps": "all", "merge_steps": True}, "merge_steps.*all steps are adjacent"),
        ({"steps": [1], "merge_steps": True, "groups": {"G": {"steps": "all"}}}, r"groups\.G\.merge_steps"),
        ({"steps": [1], "timeline": False}, "nothing would be recorded"),
    ],
)
def test_contradictions_inside_a_rule(config, message):
    """A rule that cannot be had is refused when the plan is made, with the mend."""
    with pytest.raises(ConfigError, match=message) as caught:
        plan(**config)
    assert "Mend:" in str(caught.value)


def test_unknown_rank():
    """An unknown rank is selected only where it is the only process; otherwise it is said why not."""
    assert plan(steps=[1]).assign(T(None)).selected
    alone = assign(T(None), steps=[1], ranks=[0])
    assert alone.selected
    assert any("unknown" in note for note in alone.notes)
    many = assign(T(None, world=4), steps=[1], ranks=[1])
    assert not many.selected
    assert any("set RANK" in note for note in many.notes)


def test_endless_windows_are_said():
    """Windows without an end carry a note."""
    for steps in ("all", "process"):
        assert any("without an end" in note for note in assign(T(), steps=steps).notes)


def test_names_that_no_worker_has():
    """B05: misspelt groups and phases are named with what was seen and the nearest."""
    rows = plan(steps=[1], groups={"ActrGroup": {"phases": ["actr/*"]}})
    problems = rows.check_names(["ActorGroup"], ["actor/update"])
    assert [problem.path for problem in problems] == ["groups.ActrGroup", "groups.ActrGroup.phases"]
    assert "did you mean 'ActorGroup'" in str(problems[0])


def test_schedule_start_and_stop():
    """``start``/``stop`` say the same as wait and active."""
    schedule = load_config({"schedule": {"phase": "decode", "start": 30, "stop": 60, "warmup": 1}}).config.schedule[0]
    spec = to_spec(schedule)
    assert (spec.wait, spec.warmup, spec.active) == (29, 1, 30)


@given(
    st.lists(
        st.one_of(st.integers(0, 60), st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(1, 5))), max_size=8
    ),
    st.integers(0, 70),
)
def test_number_sets_against_plain_sets(parts, number):
    """A parsed set holds exactly the numbers written, in order, and its text parses back to itself."""
    plain, written = set(), []
    for part in parts:
        if isinstance(part, int):
            plain.add(part)
            written.append(part)
        else:
            first, length, stride = part
            plain.update(range(first, first + length + 1, stride))
            written.append(f"{first}-{first + length}/{stride}")
    numbers = NumberSet.parse(written)
    assert list(numbers) == sorted(plain)
    assert len(numbers) == len(plain)
    assert (number in numbers) == (number in plain)
    assert NumberSet.parse(numbers.to_config()) == numbers


@pytest.mark.parametrize("wrong", [True, -1, 1.5, "x", "5-2", "1-9/0", {"a": 1}, [True], None])
def test_number_sets_refuse(wrong):
    """What is no number, range or list of them is a ValueError; True is not 1."""
    with pytest.raises(ValueError, match=r".+"):
        NumberSet.parse(wrong)


def test_a_group_of_roles_asks_for_one():
    """A target without a role in a group whose rules are all for roles is not profiled, and the roles are named."""
    groups = {"G": [{"roles": ["actor"], "ranks": "all"}, {"roles": ["ref"], "ranks": "all"}]}
    row = assign(T(), steps=[1], groups=groups)
    assert not row.selected
    assert any("(actor, ref), and none is given; give role= too" in note for note in row.notes)
    assert assign(T(roles=("ref",)), steps=[1], groups=groups).selected


@given(
    st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 1_500), st.integers(1, 3)), min_size=1, max_size=4),
    st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_a_list_of_windows_is_cut_at_its_end_only(ranges, merge):
    """However many steps a plan names, its windows are the first thousand of those that grouping all steps gives, and of a long
    merged one the first steps; how many captures there will be is counted in full."""
    words = [f"{first}-{first + length}/{stride}" for first, length, stride in ranges]
    numbers = sorted({n for first, length, stride in ranges for n in range(first, first + length + 1, stride)})
    groups = [[numbers[0]]]
    for number in numbers[1:]:
        if merge and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    found = make_plan(load_config({"steps": words, "merge_steps": merge, "tool": "nsys"}).config).assign(
        Target("G", rank=0)
    )
    assert found.count.exact == len(groups)
    assert len(found.windows) == min(len(groups), LISTED_WINDOWS)
    for window, whole in zip(found.windows, groups):
        assert list(window) == whole[: LISTED_WINDOWS + 1]
