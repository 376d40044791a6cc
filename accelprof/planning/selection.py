"""Whom a rule takes: ranks, replicas, nodes, roles and groups against one target; pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, NamedTuple

from accelprof.contracts.targets import DRIVER_GROUP, Target
from accelprof.numberset import NumberSet

if TYPE_CHECKING:
    from accelprof.config.model import Config, Rule


class Chosen(NamedTuple):
    """Ranks, replicas and nodes that count for a rule. What is no set (of nodes: no tuple) is no condition.

    Attributes:
        whose: the rule's own three, those of the whole configuration, or the default where ``nobody`` named any: rank 0, replica 0.
    """

    ranks: NumberSet | Literal["all"] | None
    replicas: NumberSet | Literal["all"] | None
    nodes: tuple[str, ...] | Literal["all"] | None
    whose: Literal["rule", "config", "nobody"]


FIRST = NumberSet.parse(0)


def chosen(rule: Rule, config: Config) -> Chosen:
    """A rule's own ranks, replicas and nodes where it names any, else the whole configuration's."""
    if rule.ranks is not None or rule.replicas is not None or rule.nodes is not None:
        return Chosen(rule.ranks, rule.replicas, rule.nodes, "rule")
    if config.ranks is not None or config.replicas is not None or config.nodes is not None:
        return Chosen(config.ranks, config.replicas, config.nodes, "config")
    return Chosen(FIRST, FIRST, None, "nobody")


def selects(rule: Rule, config: Config, target: Target) -> tuple[bool, str]:
    """Whether ``rule`` (with the whole configuration's ranks, where it has none) takes ``target``; and what is to be said of it."""
    ranks, replicas, nodes, whose = chosen(rule, config)
    default = whose == "nobody"
    why = ""
    if isinstance(ranks, NumberSet):
        if target.rank is None:
            alone = 0 in ranks and target.world_size in (None, 1)
            if not alone:
                return (
                    False,
                    f"rank of {target.label} is unknown, so ranks {ranks} cannot be matched; pass rank= or set RANK",
                )
            if not default:
                why = f"rank of {target.label} is unknown; taken as selected because it is the only process known"
        elif target.rank not in ranks:
            return False, _out_of_range(ranks, target)
        why = why or _out_of_range(ranks, target)
    if isinstance(replicas, NumberSet) and (target.replica is None or target.replica not in replicas):
        if target.replica is not None or not _known_as_replica(replicas):
            return (
                False,
                ""
                if target.replica is not None
                else f"replica of {target.label} is unknown, so replicas {replicas} cannot be matched",
            )
        if not default:
            why = why or f"replica of {target.label} is unknown; taken as replica 0"
    if isinstance(nodes, tuple) and not any(node_fits(node, target.node) for node in nodes):
        return (
            False,
            ""
            if target.node is not None
            else f"node of {target.label} is unknown, so nodes {list(nodes)} cannot be matched",
        )
    return True, why


def _known_as_replica(replicas: NumberSet) -> bool:
    """A worker without replica numbering counts as replica 0."""
    return 0 in replicas


def role_fits(rule: Rule, role: str | None) -> bool:
    """Whether a rule is for this role; one without roles is for all."""
    return rule.roles is None or (role is not None and any(fnmatchcase(role, pattern) for pattern in rule.roles))


def first_that_fits(
    rules: Sequence[Rule], config: Config, role: str | None, target: Target
) -> tuple[int | None, list[tuple[int, str]]]:
    """Which of a group's ``rules`` counts for ``target`` in ``role``, and what is to be said of it and of those before it."""
    said = []
    for index, rule in enumerate(rules):
        if not role_fits(rule, role):
            continue
        fits, why = selects(rule, config, target)
        if why:
            said.append((index, why))
        if fits:
            return index, said
    return None, said


def covering(earlier: Sequence[Rule], rule: Rule, config: Config) -> list[int]:
    """Which of ``earlier`` rules together take every process that ``rule`` could, whatever the world; none where that is not certain."""
    wanted = chosen(rule, config).ranks
    found: list[int] = []
    taken = NumberSet(())
    for index, one in enumerate(earlier):
        if not _covers_but_for_ranks(one, rule, config):
            continue
        ranks = chosen(one, config).ranks
        if _within(wanted, ranks):
            return [index]
        if isinstance(ranks, NumberSet):
            taken = taken.union(ranks)
            found.append(index)
    return found if isinstance(wanted, NumberSet) and wanted and wanted.issubset(taken) else []


def _covers_but_for_ranks(one: Rule, other: Rule, config: Config) -> bool:
    if one.roles is not None and (
        other.roles is None
        or not all(
            role in one.roles or any(fnmatchcase(role, pattern) for pattern in one.roles) for role in other.roles
        )
    ):
        return False
    mine, theirs = chosen(one, config), chosen(other, config)
    if not _within(theirs.replicas, mine.replicas):
        return False
    return not isinstance(mine.nodes, tuple) or (
        isinstance(theirs.nodes, tuple) and set(theirs.nodes) <= set(mine.nodes)
    )


def _within(numbers: object, others: object) -> bool:
    """Whether every number of the first is in the second; what is no set stands for all."""
    if not isinstance(others, NumberSet):
        return True
    return isinstance(numbers, NumberSet) and numbers.issubset(others)


def group_matches(pattern: str, group: str) -> bool:
    """Whether a name under ``groups`` means ``group``: itself, a pattern, or itself in other case."""
    return pattern == group or fnmatchcase(group, pattern) or pattern.casefold() == group.casefold()


def is_driver(group: str, config: Config) -> bool:
    """Whether the group is the driver's, which has a rule of its own and none under ``groups``."""
    return group == DRIVER_GROUP and config.controller is not None


def name_of_rules(group: str, config: Config) -> str | None:
    """The name under ``groups`` whose rules ``group`` has: its own, else the first that means it; ``None`` where none does."""
    named = config.groups or {}
    if is_driver(group, config):
        return None
    return group if group in named else next((name for name in named if group_matches(name, group)), None)


def node_fits(pattern: str, node: str | None) -> bool:
    """Whether a pattern under ``nodes`` means a node of this name."""
    return node is not None and fnmatchcase(str(node), pattern)


def _out_of_range(ranks: NumberSet, target: Target) -> str:
    if target.world_size is None or not ranks or ranks.runs[-1][1] < target.world_size:
        return ""
    beyond = [rank for rank in ranks.to_config() if _last(rank) >= target.world_size]
    return f"ranks {beyond} are outside 0..{target.world_size - 1} of {target.group}"


def _last(item: int | str) -> int:
    return item if isinstance(item, int) else int(item.rpartition("-")[2].partition("/")[0])
