"""Processes as a configuration would have them before any is there: for every rule of a group at least one that it takes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from accelprof.contracts.targets import Target
from accelprof.numberset import NumberSet
from accelprof.planning.sampling import facts_fit
from accelprof.planning.selection import Chosen, chosen, first_that_fits, group_matches, is_driver, node_fits

if TYPE_CHECKING:
    from accelprof.config.model import Config, Rule

#: ranks of a group that are listed where its size is not known
LISTED_RANKS = 64
#: places that are looked at for one rule, and for all of a group
TRIES, TRIES_OF_GROUP = 300, 3000
#: where sets of numbers begin and end that are looked at
POINTS = 64
#: facts of an instrument that the plan knows
FACTS = ("role", "group", "rank")

_CLASS = re.compile(r"\[(!?)(.[^\]]*)\]", re.DOTALL)


def groups(config: Config, worlds: Iterable[str]) -> list[str]:
    """Groups that are worth a row: those that are named, else those of ``worlds``; and those that instruments are for. Not the
    driver's, whose own rule is none under ``groups``."""
    asked = list(config.groups or ()) or list(worlds) or ["(every group)"]
    named = [name for name in asked if not is_driver(name, config)]
    for when in _timed(config):
        for pattern in _list_of(when.get("group", ())):
            if not any(group_matches(str(pattern), name) for name in named):
                group = example(str(pattern))
                if config.groups is None or any(group_matches(name, group) for name in config.groups):
                    named.append(group)
    return named


def processes(
    group: str, rules: Sequence[Rule], config: Config, size: int | None = None, node: str | None = None
) -> list[Target]:
    """Ranks up to ``size``, else those that are named, each where the rule that names it would take it, with all roles that the
    rules name in one process; then one for each rule, and each instrument with a schedule, that counts for none of these.

    Args:
        node: the name of the node where all of them are; otherwise each is where its rule wants it.
    """
    roles = tuple(dict.fromkeys(example(pattern) for rule in rules for pattern in rule.roles or ()))
    found: list[Target] = []
    for rule in rules:
        taken = chosen(rule, config)
        place = _first(taken.replicas), _node(taken.nodes, node)
        found += [Target(group, roles, rank, size, *place) for rank in _ranks(taken.ranks, size)]
    if size is not None:
        there = {target.rank for target in found}
        found += [Target(group, roles, rank, size, node=node) for rank in range(size) if rank not in there]
    found = sorted(dict.fromkeys(found), key=lambda target: target.rank or 0)
    if size is None:
        found = found[:LISTED_RANKS]
    found = found or [Target(group, roles, 0, node=node)]
    if config.enabled and size is None:
        found += _Search(group, rules, config, node).beyond(found)
    return found


class _Search:
    """A process for each rule, where it counts and none before it does."""

    def __init__(self, group: str, rules: Sequence[Rule], config: Config, node: str | None) -> None:
        self._group, self._rules, self._config, self._here = group, rules, config, node
        self._left = TRIES_OF_GROUP
        self._chosen = [chosen(rule, config) for rule in rules]
        self._whens = [when for when in _timed(config) if facts_fit(_group_of(when), Target(group), None)]

    def beyond(self, there: Sequence[Target]) -> list[Target]:
        """Those that are needed beside those that are ``there``."""
        wanted = [
            (index, when) for index, rule in enumerate(self._rules) if rule.enabled for when in ({}, *self._whens)
        ]
        seen = [
            (first_that_fits(self._rules, self._config, role, target)[0], role, target)
            for target in there
            for role in target.roles or (None,)
        ]
        found: dict[Target, None] = {}
        count = {first for first, _, _ in seen}
        for index, when in wanted:
            if index in count and (
                not when or any(first == index and facts_fit(when, target, role) for first, role, target in seen)
            ):
                continue
            target = self._one(index, when)
            if target is not None:
                found[target] = None
                seen += [(index, role, target) for role in target.roles or (None,)]
                count.add(index)
        return list(found)

    def _one(self, index: int, when: Mapping[str, Any]) -> Target | None:
        """A process for which the rule counts and these facts hold."""
        for target in itertools.islice(self._candidates(index, when), min(TRIES, self._left)):
            self._left -= 1
            role = target.roles[0] if target.roles else None
            if not facts_fit(when, target, role):
                continue
            if first_that_fits(self._rules, self._config, role, target)[0] == index:
                return target
        return None

    def _candidates(self, index: int, when: Mapping[str, Any]) -> Iterator[Target]:
        rule, taken = self._rules[index], self._chosen[index]
        names = [example(str(pattern)) for pattern in (*(rule.roles or ()), *_list_of(when.get("role", ())))]
        roles: list[tuple[str, ...]] = [(name,) for name in dict.fromkeys(names)]
        if rule.roles is None:
            roles.insert(0, ())
        sets = [one.ranks for one in self._chosen]
        if "rank" in when and when["rank"] != "all":
            sets.insert(0, NumberSet.parse(when["rank"]))
        ranks = list(_points(taken.ranks, sets))
        replicas = [_first(taken.replicas), *_points(taken.replicas, [one.replicas for one in self._chosen])]
        for role, node, replica, rank in itertools.product(roles, self._nodes(taken), dict.fromkeys(replicas), ranks):
            yield Target(self._group, role, rank, None, replica, node)

    def _nodes(self, taken: Chosen) -> list[str | None]:
        if not isinstance(taken.nodes, tuple) or self._here is not None:
            return [_node(taken.nodes, self._here)]
        patterns = itertools.chain(*(one.nodes for one in self._chosen if isinstance(one.nodes, tuple)))
        return [name for name in dict.fromkeys(map(example, patterns)) if any(node_fits(p, name) for p in taken.nodes)]


def example(pattern: str) -> str:
    """A name that ``pattern`` fits: itself nearly always, else one for its first character class and so on."""
    if fnmatchcase(pattern, pattern):
        return pattern
    return _CLASS.sub(lambda found: found[2][0] if not found[1] else "_" if "_" not in found[2] else "-", pattern)


def _node(nodes: object, here: str | None) -> str | None:
    """Where a process is that these take: ``here`` where that is known, but a number is told to a process by who starts it."""
    if not isinstance(nodes, tuple) or not nodes:
        return here
    if here is None:
        return example(nodes[0])
    if any(node_fits(pattern, here) for pattern in nodes):
        return here
    return next((pattern for pattern in nodes if pattern.isdecimal()), here)


def _ranks(ranks: object, size: int | None) -> Iterable[int]:
    if size is not None:
        return (rank for rank in range(size) if not isinstance(ranks, NumberSet) or rank in ranks)
    return itertools.islice(ranks, LISTED_RANKS) if isinstance(ranks, NumberSet) else (0,)


def _first(numbers: object) -> int | None:
    return next(iter(numbers), None) if isinstance(numbers, NumberSet) else None


def _points(own: object, sets: Iterable[object]) -> Iterator[int]:
    """Numbers of ``own`` that tell the sets apart: where each begins, and after its end; each once."""
    runs = itertools.chain(*(numbers.runs[:POINTS] for numbers in (own, *sets) if isinstance(numbers, NumberSet)))
    points = itertools.chain([0], *((first, first + 1, last, last + 1) for first, last, _ in runs))
    yield from (number for number in dict.fromkeys(points) if not isinstance(own, NumberSet) or number in own)


def _timed(config: Config) -> list[Mapping[str, Any]]:
    """For whom instruments are that bring windows of their own, where not for everybody."""
    facts = [
        {fact: item.when[fact] for fact in FACTS if fact in item.when}
        for item in config.instrument
        if item.schedule is not None
    ]
    return [when for when in facts if when]


def _group_of(when: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"group": when["group"]} if "group" in when else {}


def _list_of(value: object) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]
