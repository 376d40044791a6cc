"""What is imagined before any process is there, against every process of small worlds asked one by one."""

from __future__ import annotations

import itertools
import random
from fnmatch import fnmatchcase

import pytest

from accelprof.config.load import load_config
from accelprof.contracts.targets import Target
from accelprof.planning import imagined
from accelprof.planning.imagined import LISTED_RANKS, TRIES_OF_GROUP, example
from accelprof.planning.names import nothing_profiled
from accelprof.planning.plan import Plan

GROUPS = ("A", "B1")
NODES = ("n1", "n2", "m")
WORLD = [
    Target(group, roles, rank, None, replica, node)
    for group in GROUPS
    for roles in ((), ("actor",), ("ref",), ("other",))
    for rank in (None, *range(6))
    for replica in (None, *range(4))
    for node in NODES
]


def numbers(chance):
    return chance.choice(["all", [], chance.sample(range(4), chance.randint(1, 3))])


def place(chance):
    """Some of ranks, replicas and nodes, or none."""
    found = {}
    if chance.random() < 0.4:
        found["ranks"] = numbers(chance)
    if chance.random() < 0.25:
        found["replicas"] = numbers(chance)
    if chance.random() < 0.25:
        found["nodes"] = chance.choice(["all", ["n1"], ["n*"], ["*"], ["m", "n2"], ["[mn]*"], []])
    return found


def rule(chance):
    found = place(chance)
    if chance.random() < 0.4:
        found["roles"] = chance.choice([["actor"], ["a*"], ["*"], ["ref", "actor"], ["[r]ef"]])
    if chance.random() < 0.2:
        found["enabled"] = False
    if chance.random() < 0.3:
        found["steps"] = chance.choice([[1], [2, 3], []])
    return found


def configuration(seed):
    """One of many small ones; whatever stands in it stands in it often."""
    chance = random.Random(seed)
    found = {"steps": chance.choice([[1], [1], [1], None]), **place(chance)}
    if chance.random() < 0.8:
        names = chance.choice([["A"], ["A", "B*"], ["A", "*"], ["*"]])
        found["groups"] = {name: [rule(chance) for _ in range(chance.randint(1, 3))] for name in names}
    if chance.random() < 0.25:
        when = {
            "rank": chance.choice([3, "all", [2, 5]]),
            "role": chance.choice(["ref", "a*"]),
            "group": chance.choice(["A", "B*", "B1"]),
        }
        kept = {fact: value for fact, value in when.items() if chance.random() < 0.5}
        found["instrument"] = [{"target": "m:C.f", "when": kept, "schedule": {"phase": "p", "active": 2}}]
    return found


def paths_of(config, target):
    """The slow obvious answer: the rules that open windows in this process, by group and number; ``None``: no group is named."""
    if "groups" not in config:
        name, rules = None, [{}]
    else:
        name = next(
            (name for name in config["groups"] if fnmatchcase(target.group, name) or target.group == name), None
        )
        if target.group in config["groups"]:
            name = target.group
        if name is None:
            return set()
        rules = config["groups"][name]
    found = set()
    for role in target.roles or (None,):
        for index, one in enumerate(rules):
            if "roles" in one and not (role and any(fnmatchcase(role, pattern) for pattern in one["roles"])):
                continue
            if not takes(one, config, target):
                continue
            steps = one["steps"] if "steps" in one else config.get("steps")
            if one.get("enabled", True) and (steps or instrumented(config, target, role)):
                found.add((name, index))
            break
    return found


def takes(one, config, target):
    places = [[source.get(key) for key in ("ranks", "replicas", "nodes")] for source in (one, config)]
    ranks, replicas, nodes = next((place for place in places if any(v is not None for v in place)), [[0], [0], None])
    if isinstance(ranks, list) and (target.rank or 0) not in ranks:
        return False
    if isinstance(replicas, list) and (target.replica or 0) not in replicas:
        return False
    return not isinstance(nodes, list) or (
        target.node is not None and any(fnmatchcase(target.node, pattern) for pattern in nodes)
    )


def instrumented(config, target, role):
    for item in config.get("instrument", ()):
        when = item["when"]
        wanted = when.get("rank", "all")
        wanted = wanted if isinstance(wanted, list) or wanted == "all" else [wanted]
        if (
            ("role" not in when or (role is not None and fnmatchcase(role, when["role"])))
            and ("group" not in when or fnmatchcase(target.group, when["group"]))
            and (wanted == "all" or target.rank in wanted)
        ):
            return True
    return False


def row_paths(row):
    found = set()
    for path in row.asked_by.values():
        name, _, rest = path.removeprefix("groups.").partition("[")
        found.add((None if path == "config" else name, int(rest.rstrip("]")) if rest else 0))
    return found


@pytest.mark.parametrize("block", range(8))
def test_whom_the_plan_takes_is_imagined_and_nobody_else(block):
    """Each rule that opens windows in some process of a world does so in a process that is imagined, and what is imagined of a
    process is what that process would do."""
    selected = 0
    for seed in range(block * 30, block * 30 + 30):
        config = configuration(seed)
        plan = Plan(load_config(config).config)
        rows = plan.preview()
        shown = set().union(*(row_paths(row) for row in rows if row.selected))
        there = set()
        for target in WORLD:
            mine = paths_of(config, target)
            assert plan.assign(target).selected == bool(mine), (seed, config, target)
            there |= mine
        assert there <= shown, (seed, config, there - shown)
        for row in rows:
            assert row_paths(row) == paths_of(config, row.target), (seed, config, row.target)
        selected += bool(there)
        here = plan.preview(node="n1")
        assert {row.target.node for row in here} == {"n1"}
        told = set().union(*(row_paths(row) for row in here if row.selected))
        ours = set().union(*(paths_of(config, target) for target in WORLD if target.node == "n1"))
        assert ours <= told, (seed, config, ours - told)
    assert selected > 10


@pytest.mark.parametrize(
    ("config", "shown"),
    [
        ({"nodes": ["gpu-*"]}, [(0, None, "gpu-*")]),
        ({"nodes": ["[ab]?"], "ranks": [2]}, [(2, None, "a?")]),
        ({"ranks": [3], "groups": {"A": {"replicas": [0]}}}, [(0, 0, None)]),
        ({"replicas": [2]}, [(0, 2, None)]),
        ({"groups": {"A": [{"ranks": [3]}, {"ranks": "all"}]}}, [(0, None, None), (3, None, None)]),
        (
            {"groups": {"A": [{"ranks": "0-9"}, {"ranks": "all"}]}},
            [*((n, None, None) for n in range(10)), (10, None, None)],
        ),
        ({"groups": {"A": [{"replicas": [0]}, {"ranks": [0]}]}}, [(0, 0, None), (0, None, None), (0, 1, None)]),
    ],
)
def test_a_rule_is_shown_where_it_counts(config, shown):
    """At ranks, replicas and nodes of its own, or else of the top level; behind other rules where they do not take all."""
    rows = Plan(load_config({"steps": [1], **config}).config).preview()
    assert [(row.target.rank, row.target.replica, row.target.node) for row in rows] == shown
    assert all(row.selected for row in rows)


def test_ranks_of_a_world_are_listed_where_their_rule_takes_them():
    """Of a group of known size every rank has a row; one with replicas or nodes of its own has its own."""
    config = {"steps": [1], "groups": {"A": [{"ranks": [1], "replicas": [2]}, {"ranks": [3], "nodes": ["n*"]}]}}
    rows = Plan(load_config(config).config).preview({"A": 4})
    found = [(row.target.rank, row.target.replica, row.target.node, row.selected) for row in rows]
    assert found == [(0, None, None, False), (1, 2, None, True), (2, None, None, False), (3, None, "n*", True)]


def test_a_process_behind_a_rule_that_is_switched_off_is_imagined():
    """A rule with ``enabled: false`` for one role leaves the others to the next."""
    config = {"steps": [1], "groups": {"A": [{"roles": ["actor"], "enabled": False}, {}]}}
    rows = Plan(load_config(config).config).preview()
    assert [(row.target.roles, row.selected) for row in rows] == [(("actor",), False), ((), True)]


DRIVER = {"steps": [1], "groups": {"A": {"steps": []}}, "controller": {"tool": "torch"}}


@pytest.mark.parametrize(
    ("config", "opens"),
    [
        (DRIVER, True),
        ({**DRIVER, "enabled": False}, False),
        ({**DRIVER, "steps": []}, False),
        ({**DRIVER, "controller": None}, False),
        ({"steps": [1], "groups": {"A": {"ranks": []}}}, True),
        ({"steps": [1], "groups": {"A": {"enabled": False}}}, False),
        ({"steps": [1], "groups": {}}, False),
        ({"steps": [1], "groups": {}, "controller": {}}, True),
        ({"schedule": {"phase": "p"}}, True),
        ({"on_demand": True}, False),
        ({"instrument": [{"target": "m:C.f", "schedule": {"phase": "p"}}]}, True),
    ],
)
def test_a_plan_opens_windows_where_a_rule_does(config, opens):
    """The driver's own rule is one of them; whom the rules take is another question."""
    assert Plan(load_config(config).config).opens() == opens


def test_the_driver_is_imagined_first_and_the_group_of_its_name_is_nobody():
    """It has one row, by its own rule, whatever stands under ``groups``; where nothing else records it is what is profiled."""
    config = {**DRIVER, "groups": {"controller": {"steps": [7]}, "A": {"steps": []}}}
    plan = Plan(load_config(config).config)
    rows = plan.preview()
    assert [(row.target.group, row.selected) for row in rows] == [("controller", True), ("A", False)]
    assert list(rows[0].steps) == [1]
    assert plan.to_dict()["rows"][0]["asked_by"] == {"controller": "controller"}
    assert nothing_profiled(plan, ()) == ""


@pytest.mark.parametrize(("pattern", "name"), [("gpu-*", "gpu-*"), ("[!a]x", "_x"), ("[a-c]?", "a?"), ("[!_]", "-")])
def test_an_example_fits_its_pattern(pattern, name):
    """A name that a pattern means, the pattern itself where it means itself."""
    assert example(pattern) == name
    assert fnmatchcase(name, pattern)


def test_many_rules_are_imagined_within_bounds(monkeypatch):
    """Rules whose sets lie inside each other's do not make the search endless: it stops, and each rank that is listed is there."""
    asked = itertools.count()
    real = imagined.first_that_fits

    def counting(*args):
        next(asked)
        return real(*args)

    monkeypatch.setattr(imagined, "first_that_fits", counting)
    rules = [{"roles": [f"r{n}"], "ranks": f"0-{10**9}/{n + 2}", "replicas": [n, n + 1]} for n in range(150)]
    rows = Plan(load_config({"steps": [1], "groups": {"A": rules}}).config).preview()
    assert len(rows) >= LISTED_RANKS
    assert next(asked) < TRIES_OF_GROUP + LISTED_RANKS * len(rules) + len(rules)
