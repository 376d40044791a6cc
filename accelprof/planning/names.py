"""Names in the configuration that no worker has: groups, roles, phases. Known only when workers are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from accelprof.contracts.targets import Assignment, Target, ranks_by_group
from accelprof.errors import Problem, nearest
from accelprof.numberset import NumberSet
from accelprof.planning.selection import chosen, is_driver, name_of_rules

if TYPE_CHECKING:
    from accelprof.config.dialect import Note
    from accelprof.config.model import Config
    from accelprof.planning.plan import Plan


def nothing_profiled(plan: Plan, notes: Iterable[Note], node: str | None = None) -> str:
    """Why no process would open a window, where a reason can be told from the configuration alone; empty where one would.

    ``notes``: those of the file; the ones of kind ``off`` say it by the file's own keys. ``node``: where all processes are, where
    that is known.
    """
    config = plan.config
    if config.on_demand is not None or any(row.selected for row in plan.preview(node=node)):
        return ""
    theirs = [f"{note.path}: {note.text}" for note in notes if note.kind == "off"]
    if theirs:
        return " · ".join(theirs)
    if not config.enabled:
        return "enabled is false"
    rules = None if config.groups is None else [rule for found in config.groups.values() for rule in found]
    if rules is not None and not any(rule.enabled for rule in rules):
        return "every rule under groups has enabled: false" if rules else "groups names nobody"
    if not plan.opens():
        return "steps is absent (or empty) and there is no schedule; write steps: [2], a schedule, or on_demand: true"
    if node is not None and any(row.selected for row in plan.preview()):
        return f"no rule takes any process on this host ({node}); see nodes"
    return "no rule takes any process; see ranks, replicas, nodes and roles under groups"


def unmatched_roles(config: Config, seen: Mapping[str, Iterable[str]]) -> list[Problem]:
    """Role patterns that fit no role of an attached group; ``seen``: group -> roles its workers were attached with."""
    problems = []
    for name, rules in (config.groups or {}).items():
        groups = [group for group in seen if name_of_rules(group, config) == name]
        roles = sorted({role for group in groups for role in seen[group]})
        if not groups:
            continue
        for index, rule in enumerate(rules):
            for pattern in rule.roles or ():
                if not any(fnmatchcase(role, pattern) for role in roles):
                    where = f"groups.{name}[{index}].roles" if len(rules) > 1 else f"groups.{name}.roles"
                    problems.append(
                        Problem(
                            where,
                            "no worker of this group has this role",
                            value=pattern,
                            allowed=", ".join(roles)
                            or "none seen (role= of attach, or of options before the start, names them)",
                            mend=nearest(pattern, roles),
                        )
                    )
    return problems


def absent_ranks(
    config: Config, targets: Iterable[tuple[str, int | None, int | None]], everyone: bool
) -> list[Problem]:
    """Ranks that are named and that nobody has. ``targets``: group, rank and world size of those that took part; ``everyone``:
    nobody else did, so that one within the world that is not among them is missing too."""
    problems = []
    for group, (there, size) in ranks_by_group(targets).items():
        for path, ranks, plain in _named_ranks(config, group):
            for item in ranks.to_config():
                named = NumberSet.parse(item)
                first, last, _ = named.runs[0]
                single = everyone and plain and first == last and first not in there
                if first >= size or single:
                    problems.append(
                        Problem(path, f"no process of {group} has this rank", value=item, allowed=f"0..{size - 1}")
                        if first >= size
                        else Problem(path, f"no process of {group} with this rank took part", value=item)
                    )
    return problems


def _named_ranks(config: Config, group: str) -> Iterable[tuple[str, NumberSet, bool]]:
    """Where ranks of a group are named, which, and whether they alone choose."""
    from accelprof.config.model import Rule  # who reads a file looks up tools by name, and has no configuration

    name = name_of_rules(group, config)
    if name is None and (config.groups is not None or is_driver(group, config)):
        return
    rules = (Rule(),) if config.groups is None else config.groups[name or ""]
    lent = False
    for index, rule in enumerate(rules):
        taken = chosen(rule, config)
        if not rule.enabled or not isinstance(taken.ranks, NumberSet):
            continue
        if taken.whose == "rule":
            plain = not (taken.replicas or taken.nodes or rule.roles)
            yield f"groups.{name}[{index}].ranks", taken.ranks, plain
        lent = lent or taken.whose == "config"
    if lent:
        yield "ranks", config.ranks, not (config.replicas or config.nodes)


def unmatched_ranks(assignments: Sequence[Assignment]) -> list[str]:
    """Groups of which nobody was selected although the configuration names them, with the ranks that were attached."""
    by_group: dict[str, list[Assignment]] = {}
    for assignment in assignments:
        by_group.setdefault(assignment.target.group, []).append(assignment)
    return [
        f"{group}: none of its {len(rows)} workers is selected (ranks attached: {_ranks(row.target for row in rows)})"
        for group, rows in by_group.items()
        if not any(row.selected for row in rows)
    ]


def _ranks(targets: Iterable[Target]) -> str:
    ranks = sorted({target.rank for target in targets if target.rank is not None})
    return str(NumberSet.parse(ranks)) if ranks else "unknown"


#: backends of graphics cards, by vendor; "gpu" alone says none
VENDORS = {"cuda": "NVIDIA", "rocm": "AMD", "xpu": "Intel"}


def nearest_accelerator(word: str, names: Iterable[str]) -> str:
    """What may be meant by a word that is no accelerator type; empty where nothing is near."""
    known = list(names)
    if word.casefold() in ("gpu", "gpus", "graphics"):
        there = [f"{name} ({vendor})" for name, vendor in VENDORS.items() if name in known]
        return f"say whose: {', '.join(there)}, or auto" if there else "auto takes what the machine has"
    return nearest(word.casefold(), known)
