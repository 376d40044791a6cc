"""``Config`` -> ``Plan``: who is wrapped, who opens which windows, and how many. Pure functions; no I/O, no clock.

One predicate, :meth:`Plan.assign`, answers for the launch and for the session alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Protocol

from accelprof.config.model import Config, Rule
from accelprof.contracts.targets import Assignment, CaptureCount, ScheduleSpec, Target
from accelprof.errors import ConfigError, Problem, nearest
from accelprof.numberset import NumberSet
from accelprof.planning.sampling import check_schedules, facts_fit, schedule_notes, scheduled_captures, to_spec
from accelprof.planning.selection import group_matches, role_fits, selects

LISTED_WINDOWS = 1000


class ToolLookup(Protocol):
    """What the plan asks about tools; the registry answers. Without one, two tools in a process are always refused."""

    def normalise(self, name: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """``options`` under one spelling, so that layers can be merged."""

    def excludes(
        self, one: tuple[str, Mapping[str, Any]], other: tuple[str, Mapping[str, Any]], target: Target
    ) -> str | None:
        """Why the two cannot run in one process, or ``None``."""


@dataclass(frozen=True, slots=True)
class _Resolved:
    """One rule with everything the top level lends it."""

    path: str
    role: str | None
    tool: str | None
    options: Mapping[str, Any]
    timeline: bool
    discrete: bool
    merge_steps: bool
    steps: Any  # None | "all" | "process" | NumberSet
    phases: tuple[str, ...]
    schedules: tuple[ScheduleSpec, ...]


@dataclass(frozen=True)
class Plan:
    """What a configuration means. Make it with :func:`make_plan`."""

    config: Config
    lookup: ToolLookup | None = None

    def assign(self, target: Target) -> Assignment:
        """What ``target`` does: the union over its roles of the first rule that fits each.

        Raises:
            ConfigError: colocated roles contradict each other (two exclusive tools, two ``discrete``).
        """
        if not self.config.enabled:
            return Assignment(target, False, notes=("enabled is false",))
        rules, group_path, notes = self._rules_for(target.group)
        if rules is None:
            return Assignment(target, False, notes=notes)
        chosen: list[_Resolved] = []
        for role in target.roles or (None,):
            for index, rule in enumerate(rules):
                path = group_path if len(rules) == 1 or not group_path else f"{group_path}[{index}]"
                if not role_fits(rule, role):
                    continue
                fits, why = selects(rule, self.config, target)
                if why:
                    notes = (*notes, f"{path or 'ranks'}: {why}")
                if fits:
                    if rule.enabled:
                        chosen.append(self._resolve(rule, path, role, target))
                    break
        if self.config.on_demand is None:
            chosen = [rule for rule in chosen if rule.steps is not None or rule.schedules]
        if not chosen:
            return Assignment(target, False, notes=tuple(dict.fromkeys(notes)))
        return self._unite(target, chosen, tuple(dict.fromkeys(notes)))

    def selects(self, target: Target) -> bool:
        """Whether ``target`` is wrapped and opens windows."""
        return self.assign(target).selected

    def check_names(self, groups: Iterable[str], phases: Iterable[str] = ()) -> list[Problem]:
        """Groups and phases named in the configuration that no worker has, with the nearest that was seen."""
        seen_groups, seen_phases = sorted(set(groups)), sorted(set(phases))
        problems = []
        for name in self.config.groups or {}:
            if not any(group_matches(name, group) for group in seen_groups):
                problems.append(
                    Problem(
                        f"groups.{name}",
                        "no worker of this group was attached",
                        allowed=", ".join(seen_groups) or "none seen",
                        mend=nearest(name, seen_groups),
                    )
                )
        if seen_phases:
            for path, pattern in self._phase_patterns():
                if not any(fnmatchcase(phase, pattern) for phase in seen_phases):
                    problems.append(
                        Problem(
                            path,
                            f"no phase matched {pattern!r}",
                            allowed=", ".join(seen_phases),
                            mend=nearest(pattern, seen_phases),
                        )
                    )
        return problems

    def groups(self) -> tuple[str, ...]:
        """Groups named in the configuration; empty when every group is profiled."""
        return tuple(self.config.groups or ())

    def tools(self) -> tuple[str, ...]:
        """Names of all tools the configuration can use, in order of first mention."""
        names = [self.config.tool]
        for rules in (self.config.groups or {}).values():
            names.extend(rule.tool for rule in rules)
        if self.config.controller is not None:
            names.append(self.config.controller.tool)
        return tuple(dict.fromkeys(name for name in names if name))

    def preview(self, worlds: Mapping[str, int] | None = None) -> list[Assignment]:
        """Assignments of imagined targets, for ``config show``: each group, its ranks up to ``worlds[group]`` or those named."""
        rows = []
        for group in self.groups() or tuple(worlds or ()) or ("(every group)",):
            size = (worlds or {}).get(group)
            rules, _, _ = self._rules_for(group)
            roles = tuple(dict.fromkeys(role for rule in rules or () for role in rule.roles or ()))
            replicas = sorted(
                {number for rule in rules or () if isinstance(rule.replicas, NumberSet) for number in rule.replicas}
            )
            ranks: Sequence[int | None] = range(size) if size is not None else self._named_ranks(group)
            for rank in ranks:
                replica = replicas[0] if replicas and size is None else None
                rows.append(self.assign(Target(group, roles, rank, size, replica)))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """For the manifest: the resolved configuration and what it says for each named group."""
        return {
            "groups": list(self.groups()) or "all",
            "tools": list(self.tools()),
            "steps": _steps_text(self.config.steps),
            "rows": [describe(row) for row in self.preview()],
        }

    # --- inside -----------------------------------------------------------------------------------------------------

    def _rules_for(self, group: str) -> tuple[tuple[Rule, ...] | None, str, tuple[str, ...]]:
        named = self.config.groups
        if named is None:
            return (Rule(),), "", ()
        if group in named:
            return named[group], f"groups.{group}", ()
        for pattern, rules in named.items():
            if group_matches(pattern, group):
                return rules, f"groups.{pattern}", ()
        near = nearest(group, named)
        return (
            None,
            "",
            (f"group {group!r} is not named under groups, so it is not profiled" + (f" ({near})" if near else ""),),
        )

    def _resolve(self, rule: Rule, path: str, role: str | None, target: Target) -> _Resolved:
        config = self.config
        tool = rule.tool if "tool" in rule.model_fields_set else config.tool
        discrete = config.discrete if rule.discrete is None else rule.discrete
        merge_steps = config.merge_steps if rule.merge_steps is None else rule.merge_steps
        steps = rule.steps if "steps" in rule.model_fields_set else config.steps
        if isinstance(steps, NumberSet) and not steps:
            steps = None
        timeline = config.timeline if rule.timeline is None else rule.timeline
        schedules = tuple(to_spec(schedule) for schedule in (rule.schedule or config.schedule))
        schedules += tuple(
            to_spec(item.schedule)
            for item in config.instrument
            if item.schedule is not None and facts_fit(item.when, target, role)
        )
        options = {**self._normal(tool, config.tools.get(tool or "", {})), **self._normal(tool, rule.options)}
        where = path or "config"
        if discrete and merge_steps:
            raise ConfigError(
                Problem(
                    f"{where}.merge_steps",
                    "adjacent steps cannot share a window when discrete makes one per phase",
                    mend="set discrete: false or merge_steps: false",
                )
            )
        if merge_steps and steps == "all":
            raise ConfigError(
                Problem(
                    f"{where}.merge_steps",
                    "all steps are adjacent, so there is no end at which a shared window would close",
                    value=True,
                    mend="set steps: process for one window over the whole run, merge_steps: false for one per step, or list steps",
                )
            )
        if discrete and steps == "process":
            raise ConfigError(
                Problem(
                    f"{where}.steps",
                    "one window for the whole process and one per phase contradict each other",
                    value="process",
                    mend="set discrete: false, or steps: all",
                )
            )
        if tool is None and not timeline:
            raise ConfigError(
                Problem(
                    f"{where}.tool",
                    "nothing would be recorded: tool is null and timeline is false",
                    mend="set timeline: true or name a tool",
                )
            )
        phases = rule.phases or config.phases
        return _Resolved(path, role, tool, options, timeline, discrete, merge_steps, steps, phases, schedules)

    def _normal(self, tool: str | None, options: Mapping[str, Any]) -> Mapping[str, Any]:
        return options if self.lookup is None or tool is None or not options else self.lookup.normalise(tool, options)

    def _unite(self, target: Target, rules: list[_Resolved], notes: tuple[str, ...]) -> Assignment:
        first = rules[0]
        for other in rules[1:]:
            for key in ("discrete", "merge_steps"):
                if getattr(first, key) != getattr(other, key):
                    raise ConfigError(_contradiction(target, first, other, key))
        tools: dict[str, Mapping[str, Any]] = {}
        for rule in rules:
            if rule.tool is None:
                continue
            if rule.tool in tools and tools[rule.tool] != rule.options:
                raise ConfigError(
                    _contradiction(target, next(r for r in rules if r.tool == rule.tool), rule, "options")
                )
            for name, options in tools.items():
                if name == rule.tool:
                    continue
                reason = (
                    "one tool a process"
                    if self.lookup is None
                    else self.lookup.excludes((name, options), (rule.tool, rule.options), target)
                )
                if reason:
                    owner = next(r for r in rules if r.tool == name)
                    raise ConfigError(_contradiction(target, owner, rule, "tool", reason))
            tools[rule.tool] = rule.options
        names = list(tools)
        modes = [_mode(rule.steps) for rule in rules]
        if "process" in modes and set(modes) != {"process"}:
            other = next(rule for rule in rules if _mode(rule.steps) != "process")
            raise ConfigError(_contradiction(target, next(r for r in rules if r.steps == "process"), other, "steps"))
        mode = "all" if "all" in modes else modes[0] if len(set(modes)) == 1 else "steps"
        steps = (
            NumberSet.parse([list(rule.steps) for rule in rules if isinstance(rule.steps, NumberSet)])
            if mode == "steps"
            else NumberSet()
        )
        schedules = tuple(dict.fromkeys(spec for rule in rules for spec in rule.schedules))
        check_schedules(first.path or "config", schedules)
        phases = (
            ()
            if any(not rule.phases for rule in rules)
            else tuple(dict.fromkeys(p for rule in rules for p in rule.phases))
        )
        windows = tuple(_windows(steps, first.merge_steps)) if mode == "steps" and not schedules else ()
        count = _count(mode, steps, first, schedules)
        if mode in ("all", "process") and not schedules:
            notes = (*notes, f"steps: {mode} records without an end; files grow with the length of the run")
        notes = (*notes, *schedule_notes(schedules, mode, first.discrete))
        return Assignment(
            target=target,
            selected=True,
            tool=names[0] if names else None,
            options=tools[names[0]] if names else {},
            also=tuple((name, tools[name]) for name in names[1:]),
            timeline=any(rule.timeline for rule in rules),
            mode=mode,
            steps=steps,
            windows=windows[:LISTED_WINDOWS],
            merge_steps=first.merge_steps,
            discrete=first.discrete,
            phases=phases,
            schedules=schedules,
            count=count,
            asked_by={rule.role or target.group: rule.path or "config" for rule in rules},
            notes=notes,
        )

    def _phase_patterns(self) -> Iterable[tuple[str, str]]:
        yield from (("phases", pattern) for pattern in self.config.phases)
        yield from (("schedule", schedule.phase) for schedule in self.config.schedule)
        for group, rules in (self.config.groups or {}).items():
            for rule in rules:
                yield from ((f"groups.{group}.phases", pattern) for pattern in rule.phases)
                yield from ((f"groups.{group}.schedule", schedule.phase) for schedule in rule.schedule)

    def _named_ranks(self, group: str) -> list[int]:
        rules, _, _ = self._rules_for(group)
        numbers: set[int] = set()
        for rule in rules or ():
            ranks = rule.ranks if rule.ranks is not None else self.config.ranks
            if isinstance(ranks, NumberSet):
                numbers.update(ranks)
        return sorted(numbers)[:64] or [0]


def make_plan(config: Config, lookup: ToolLookup | None = None) -> Plan:
    """The plan of ``config``; contradictions that need no target are found here.

    Raises:
        ConfigError: as :meth:`Plan.assign`.
    """
    plan = Plan(config, lookup)
    plan.preview()
    return plan


def describe(assignment: Assignment) -> dict[str, Any]:
    """One row of ``config show`` and of the manifest's plan."""
    target = assignment.target
    return {
        "group": target.group,
        "roles": list(target.roles),
        "rank": target.rank,
        "replica": target.replica,
        "selected": assignment.selected,
        "tool": assignment.tool,
        "also": [name for name, _ in assignment.also],
        "timeline": assignment.timeline,
        "mode": assignment.mode,
        "windows": [list(window) for window in assignment.windows],
        "discrete": assignment.discrete,
        "phases": list(assignment.phases),
        "schedule": [spec.phase for spec in assignment.schedules],
        "captures": assignment.count.exact,
        "asked_by": dict(assignment.asked_by),
        "notes": list(assignment.notes),
    }


def _mode(steps: Any) -> str:
    return "off" if steps is None else steps if isinstance(steps, str) else "steps"


def _windows(steps: NumberSet, merge: bool) -> Iterable[tuple[int, ...]]:
    made = 0
    for first, last, _ in steps.runs:
        if merge:
            yield tuple(range(first, min(last, first + LISTED_WINDOWS) + 1))
            made += 1
            continue
        for step in range(first, last + 1):
            if made >= LISTED_WINDOWS:
                return
            yield (step,)
            made += 1


def _count(mode: str, steps: NumberSet, rule: _Resolved, schedules: tuple[ScheduleSpec, ...]) -> CaptureCount:
    if schedules:
        return scheduled_captures(schedules, mode, steps)
    if mode == "process":
        return CaptureCount(1)
    if mode == "off":
        return CaptureCount(0)
    if mode == "all" or rule.discrete:
        return CaptureCount(None)
    return CaptureCount(len(steps.runs) if rule.merge_steps else len(steps))


def _steps_text(steps: Any) -> Any:
    return steps.to_config() if isinstance(steps, NumberSet) else steps


def _contradiction(target: Target, one: _Resolved, other: _Resolved, key: str, reason: str = "") -> Problem:
    first, second = getattr(one, key), getattr(other, key)
    where = [f"{rule.path or 'config'}.{key}" + (f" (role {rule.role})" if rule.role else "") for rule in (one, other)]
    message = f"roles that share one process contradict each other: {where[0]} is {_steps_text(first)!r}, {where[1]} is {_steps_text(second)!r}"
    return Problem(
        f"{other.path or 'config'}.{key}",
        message + (f" ({reason})" if reason else ""),
        mend="make them equal, or place the roles in processes of their own",
    )
