"""Whom a rule takes, against the question asked rank by rank."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelprof.config.load import load_config
from accelprof.contracts.targets import Target
from accelprof.planning.selection import covering, group_matches, role_fits, selects

SETS = st.one_of(st.none(), st.just("all"), st.lists(st.integers(0, 4), max_size=3))
NODES = st.one_of(st.none(), st.lists(st.sampled_from(["a", "b", "n*", "*"]), min_size=1, max_size=2))
ROLES = st.one_of(st.none(), st.lists(st.sampled_from(["actor", "ref", "r*", "*"]), min_size=1, max_size=2))
CHOICE = st.fixed_dictionaries({}, optional={"ranks": SETS, "replicas": SETS, "nodes": NODES})
RULE = st.tuples(CHOICE, ROLES).map(lambda both: {**both[0], **({"roles": both[1]} if both[1] is not None else {})})
TARGETS = [
    Target("G", ("actor",), rank, 5, replica, node)
    for rank in range(5)
    for replica in (None, 0, 1, 4)
    for node in ("a", "n1")
]


def read(config, *rules):
    loaded = load_config({**config, "steps": [1], "groups": {"G": [dict(rule) for rule in rules]}}).config
    return loaded, loaded.groups["G"]


def given_of(rule, config):
    """Ranks, replicas and nodes that count: the rule's own where it names any, else the configuration's, else rank 0."""
    for source in (rule, config):
        chosen = [source.get(name) for name in ("ranks", "replicas", "nodes")]
        if any(value is not None for value in chosen):
            return chosen
    return None


def taken(rule, config, target):
    """The slow obvious answer for a process whose rank is known."""
    chosen = given_of(rule, config)
    if chosen is None:
        return target.rank == 0 and target.replica in (None, 0)
    ranks, replicas, nodes = chosen
    if isinstance(ranks, list) and target.rank not in ranks:
        return False
    if isinstance(replicas, list) and (target.replica or 0) not in replicas:
        return False
    return nodes is None or any(fnmatchcase(target.node, pattern) for pattern in nodes)


@given(RULE, CHOICE)
@settings(max_examples=150, deadline=None)
def test_a_rule_takes_whom_it_says(rule, config):
    """Of every rank, replica and node the rule takes exactly those that its words, or else the configuration's, name."""
    loaded, (made,) = read(config, rule)
    for target in TARGETS:
        assert selects(made, loaded, target)[0] == taken(rule, config, target), target


@given(st.lists(RULE, min_size=1, max_size=3), RULE, CHOICE)
@settings(max_examples=200, deadline=None)
def test_what_covers_takes_all_that_the_other_takes(earlier, other, config):
    """Where earlier rules are said to cover another, no process of any role is the other's alone."""
    loaded, (*before, rule) = read(config, *earlier, other)
    found = [before[index] for index in covering(before, rule, loaded)]
    if not found:
        return
    for target in TARGETS:
        for role in ("actor", "ref", "reward"):
            if role_fits(rule, role) and selects(rule, loaded, target)[0]:
                assert any(role_fits(one, role) and selects(one, loaded, target)[0] for one in found), target


def test_a_rule_covers_an_equal_one_and_several_do_together():
    """A later rule that says the same, or no more than two earlier ones say together, can never apply; one that says more can."""
    loaded, (low, high, both, everybody) = read(
        {}, {"ranks": "0-1"}, {"ranks": "2-3"}, {"ranks": "0-3"}, {"ranks": "all"}
    )
    assert covering([low], low, loaded) == [0]
    assert covering([low, high], both, loaded) == [0, 1]
    assert covering([low, both], high, loaded) == [1]
    assert covering([low], both, loaded) == []
    assert covering([low, high], everybody, loaded) == []
    assert covering([everybody], both, loaded) == [0]


@pytest.mark.parametrize(
    ("config", "target", "expected", "words"),
    [
        ({"ranks": [1]}, Target("G"), False, "is unknown, so ranks 1 cannot be matched"),
        ({"ranks": [0]}, Target("G"), True, "taken as selected because it is the only process known"),
        ({"ranks": [0]}, Target("G", world_size=4), False, "pass rank= or set RANK"),
        ({}, Target("G"), True, ""),
        ({"ranks": "0-9"}, Target("G", rank=1, world_size=4), True, "are outside 0..3 of G"),
        ({"replicas": [0]}, Target("G", rank=1), True, "replica of G/rank1 is unknown; taken as replica 0"),
        ({"replicas": [2]}, Target("G", rank=1), False, "replica of G/rank1 is unknown, so replicas 2"),
        ({"nodes": ["a"]}, Target("G", rank=1), False, "node of G/rank1 is unknown, so nodes ['a']"),
        ({"nodes": ["a*"]}, Target("G", rank=1, node="a7"), True, ""),
    ],
)
def test_what_is_unknown_is_said(config, target, expected, words):
    """A process whose rank, replica or node is unknown is taken only where nothing else can be meant, and that is said."""
    loaded, (rule,) = read(config, {})
    found, why = selects(rule, loaded, target)
    assert found is expected
    assert words in why if words else why == ""


@pytest.mark.parametrize(
    ("pattern", "group", "expected"),
    [
        ("ActorGroup", "ActorGroup", True),
        ("actorgroup", "ActorGroup", True),
        ("Actor*", "ActorGroup", True),
        ("actor*", "ActorGroup", False),
        ("G[", "G[", True),
        ("Rollout", "ActorGroup", False),
    ],
)
def test_groups_by_name_pattern_or_case(pattern, group, expected):
    """A group is meant by its name in any case, or by a pattern in its own; a name that is no pattern still means itself."""
    assert group_matches(pattern, group) is expected


def test_rank_0_of_another_replica_is_left_to_the_next_rule():
    """A rule that names nobody takes rank 0 of replica 0 alone, so one for rank 0 behind it can apply, and is not refused."""
    loaded = load_config(
        {"steps": [1], "groups": {"G": [{"tool": "torch"}, {"ranks": [0], "tool": "torch_memory"}]}}
    ).config
    first, second = loaded.groups["G"]
    taken = [selects(rule, loaded, Target("G", rank=0, replica=1))[0] for rule in (first, second)]
    assert taken == [False, True]
    assert covering([first], second, loaded) == []
