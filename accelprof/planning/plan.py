"""``Config`` -> ``Plan``: who is wrapped, who opens which windows, and how many. Pure functions; no I/O, no clock.

One predicate, :meth:`Plan.assign`, answers for the launch and for the session alike.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

from accelprof.config.beside import in_their_words
from accelprof.config.model import Config, ControllerRule, Rule, Schedule
from accelprof.contracts.targets import DRIVER_GROUP, Assignment, CaptureCount, ScheduleSpec, StepWindows, Target
from accelprof.contracts.tool import ToolUse
from accelprof.contracts.words import Mode
from accelprof.errors import ConfigError, Problem, nearest
from accelprof.numberset import NumberSet
from accelprof.planning import imagined
from accelprof.planning.sampling import check_schedules, facts_fit, schedule_notes, scheduled_captures, to_spec
from accelprof.planning.selection import first_that_fits, group_matches, is_driver, name_of_rules

LISTED_WINDOWS = 1000


@dataclass(frozen=True, slots=True)
class _Resolved:
    """One rule with everything the top level lends it."""

    path: str
    role: str | None
    use: ToolUse | None
    timeline: bool
    discrete: bool
    merge_steps: bool
    steps: NumberSet | Literal["all", "process"] | None
    phases: tuple[str, ...]
    schedules: tuple[ScheduleSpec, ...]

    @property
    def tool(self) -> str | None:
        return None if self.use is None else self.use.name

    @property
    def options(self) -> Mapping[str, Any]:
        return {} if self.use is None else self.use.options


@dataclass(frozen=True)
class Plan:
    """What a configuration means. Make it with :func:`accelprof.planning.decide.decide`.

    Attributes:
        config: with every tool under its registered name.
        uses: by the path of the rule (``groups.Actor[1]``, empty where no groups are named), and ``controller``: the tool
            it has, made and validated. Empty in a plan that was made without a catalogue.
    """

    config: Config
    uses: Mapping[str, ToolUse] = field(default_factory=dict)
    _rows: dict[Target, Assignment] = field(default_factory=dict, compare=False, repr=False)
    _imagined: dict[object, tuple[Target, ...]] = field(default_factory=dict, compare=False, repr=False)

    def assign(self, target: Target) -> Assignment:
        """What ``target`` does: the union over its roles of the first rule that fits each. Worked out once a target.

        Raises:
            ConfigError: colocated roles contradict each other (two exclusive tools, two ``discrete``).
        """
        row = self._rows.get(target)
        if row is None:
            try:
                row = self._rows[target] = self._assign(target)
            except ConfigError as error:
                raise in_their_words(error, self.config) from None
        return row

    def driver(self) -> Assignment | None:
        """What the driver itself does as a worker of its own group; ``None`` where ``controller`` does not ask for it.

        It leaves the devices to its workers: a trigger call that makes a context there would take memory from one of them.

        Raises:
            ConfigError: as :meth:`assign`.
        """
        if self.config.controller is None:
            return None
        return self.assign(Target(DRIVER_GROUP, rank=0, world_size=1, has_devices=False))

    def opens(self) -> bool:
        """Whether any rule, the driver's among them, opens windows (steps or a schedule, also of an instrumented method), whomever
        it takes."""
        config = self.config
        timed = any(item.schedule is not None for item in config.instrument)
        return config.enabled and any(
            rule.enabled and (timed or steps_of(config, rule) is not None or bool(schedules_of(config, rule)))
            for _, rule in every_rule(config)
        )

    def uses_of(self, assignment: Assignment) -> tuple[ToolUse, ...]:
        """The tools of ``assignment``, in its order, as they were made when the plan was.

        Raises:
            ValueError: the assignment is none of this plan.
        """
        if assignment.tool is None:
            return ()
        found = []
        for name, options in ((assignment.tool, assignment.options), *assignment.also):
            use = self.use_of(name, options)
            if use is None:
                raise ValueError(f"{assignment.target.label}: {name} with these options is not in this plan")
            found.append(use)
        return tuple(found)

    def use_of(self, name: str, options: Mapping[str, object]) -> ToolUse | None:
        """The tool of this name and these options as it was made when the plan was; ``None``: no rule asks for it."""
        return next((use for use in self.uses.values() if use.name == name and use.options == options), None)

    def _assign(self, target: Target) -> Assignment:
        if not self.config.enabled:
            return Assignment(target, False, notes=("enabled is false",))
        rules, group_path, notes = self._rules_for(target.group)
        if rules is None:
            return Assignment(target, False, notes=notes)
        chosen: list[_Resolved] = []
        if lack := self.lacks_role(target):
            notes = (*notes, lack)
        for role in target.roles or (None,):
            taken, said = first_that_fits(rules, self.config, role, target)
            notes = (*notes, *(f"{_path(group_path, at, len(rules)) or 'ranks'}: {why}" for at, why in said))
            if taken is not None and rules[taken].enabled:
                chosen.append(self._resolve(rules[taken], _path(group_path, taken, len(rules)), role, target))
        if self.config.on_demand is None:
            chosen = [rule for rule in chosen if rule.steps is not None or rule.schedules]
        if not chosen:
            return Assignment(target, False, notes=tuple(dict.fromkeys(notes)))
        return self._unite(target, chosen, tuple(dict.fromkeys(notes)))

    def lacks_role(self, target: Target) -> str:
        """What ``target`` must be told where every rule of its group is for a role and it has none; else empty."""
        rules = self._rules_for(target.group)[0] if self.config.enabled and not target.roles else None
        if not rules or any(rule.roles is None for rule in rules):
            return ""
        named = ", ".join(dict.fromkeys(role for rule in rules for role in rule.roles or ()))
        return f"every rule of {target.group} is for a role ({named}), and none is given; give role= too"

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

    def preview(self, worlds: Mapping[str, int] | None = None, node: str | None = None) -> list[Assignment]:
        """Assignments of imagined targets, for ``config show`` and for who starts processes: the driver's first, where it has one;
        of each group its ranks up to ``worlds[group]`` or those named, and whatever else it takes so that each rule has a target
        for which it counts.

        Args:
            node: where all of them are, where that is known.
        """
        driver = self.driver()
        rows = [self.assign(target) for target in self._targets(worlds or {}, node)]
        return rows if driver is None else [driver, *rows]

    def _targets(self, worlds: Mapping[str, int], node: str | None) -> tuple[Target, ...]:
        key = (tuple(worlds.items()), node)
        if key not in self._imagined:
            self._imagined[key] = tuple(
                target
                for group in imagined.groups(self.config, worlds)
                for target in imagined.processes(
                    group, self._rules_for(group)[0] or (), self.config, worlds.get(group), node
                )
            )
        return self._imagined[key]

    def to_dict(self) -> dict[str, object]:
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
        if self.config.controller is not None and is_driver(group, self.config):
            return (as_rule(self.config.controller),), "controller", ()
        if named is None:
            return (Rule(),), "", ()
        name = name_of_rules(group, self.config)
        if name is not None:
            return named[name], f"groups.{name}", ()
        near = nearest(group, named)
        return (
            None,
            "",
            (f"group {group!r} is not named under groups, so it is not profiled" + (f" ({near})" if near else ""),),
        )

    def _resolve(self, rule: Rule, path: str, role: str | None, target: Target) -> _Resolved:
        config = self.config
        use = self.uses.get(path) or use_of(config, rule)
        discrete = config.discrete if rule.discrete is None else rule.discrete
        merge_steps = config.merge_steps if rule.merge_steps is None else rule.merge_steps
        steps = steps_of(config, rule)
        timeline = config.timeline if rule.timeline is None else rule.timeline
        schedules = tuple(to_spec(schedule) for schedule in schedules_of(config, rule))
        schedules += tuple(
            to_spec(item.schedule)
            for item in config.instrument
            if item.schedule is not None and facts_fit(item.when, target, role)
        )
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
        if use is None and not timeline:
            raise ConfigError(
                Problem(
                    f"{where}.tool",
                    "nothing would be recorded: tool is null and timeline is false",
                    mend="set timeline: true or name a tool",
                )
            )
        phases = rule.phases or config.phases
        return _Resolved(path, role, use, timeline, discrete, merge_steps, steps, phases, schedules)

    def _unite(self, target: Target, rules: list[_Resolved], notes: tuple[str, ...]) -> Assignment:
        first = rules[0]
        for other in rules[1:]:
            for key in ("discrete", "merge_steps"):
                if getattr(first, key) != getattr(other, key):
                    raise ConfigError(_contradiction(first, other, key))
        owners: list[tuple[ToolUse, _Resolved]] = []
        for rule in rules:
            if rule.use is None:
                continue
            for use, owner in owners:
                if use.name != rule.use.name:
                    reason = use.excludes(rule.use, target)
                    if reason:
                        raise ConfigError(_contradiction(owner, rule, "tool", reason))
                elif not use.same(rule.use):
                    raise ConfigError(_contradiction(owner, rule, "options"))
            if all(use.name != rule.use.name for use, _ in owners):
                owners.append((rule.use, rule))
        uses = [use for use, _ in owners]
        modes = [_mode(rule.steps) for rule in rules]
        if "process" in modes and set(modes) != {"process"}:
            other = next(rule for rule in rules if _mode(rule.steps) != "process")
            raise ConfigError(_contradiction(next(r for r in rules if r.steps == "process"), other, "steps"))
        mode = "all" if "all" in modes else modes[0] if len(set(modes)) == 1 else "steps"
        steps = (
            NumberSet().union(*(rule.steps for rule in rules if isinstance(rule.steps, NumberSet)))
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
        by_step = StepWindows(steps, first.merge_steps)
        windows = tuple(_windows(by_step)) if mode == "steps" and not schedules else ()
        count = _count(mode, steps, first, schedules)
        if mode in ("all", "process") and not schedules:
            notes = (*notes, f"steps: {mode} records without an end; files grow with the length of the run")
        notes = (*notes, *schedule_notes(schedules, mode, first.discrete))
        return Assignment(
            target=target,
            selected=True,
            tool=uses[0].name if uses else None,
            options=uses[0].options if uses else {},
            also=tuple((use.name, use.options) for use in uses[1:]),
            timeline=any(rule.timeline for rule in rules),
            mode=mode,
            steps=steps,
            windows=windows,
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


def use_of(config: Config, rule: Rule) -> ToolUse | None:
    """The tool that a rule names, or that the top level lends it, with the options of both as they are written."""
    name = rule.tool if "tool" in rule.model_fields_set else config.tool
    return None if name is None else ToolUse(name, {**config.tools.get(name, {}), **rule.options})


def steps_of(config: Config, rule: Rule) -> NumberSet | Literal["all", "process"] | None:
    """A rule's own steps, or those that the top level lends it; ``None``: no step opens anything, as where the set is empty."""
    steps: NumberSet | Literal["all", "process"] | None = (
        rule.steps if "steps" in rule.model_fields_set else config.steps
    )
    return None if isinstance(steps, NumberSet) and not steps else steps


def schedules_of(config: Config, rule: Rule) -> tuple[Schedule, ...]:
    """A rule's own schedules, or those that the top level lends it."""
    return rule.schedule or config.schedule


def as_rule(controller: ControllerRule) -> Rule:
    """The driver's own rule, which the top level lends no tool."""
    return Rule(ranks="all", tool=controller.tool, options=controller.options)


def rules_of(config: Config) -> Iterator[tuple[str, Rule]]:
    """Every rule with its path: ``groups.Actor[1]``; one without a path where no groups are named."""
    if config.groups is None:
        yield "", Rule()
    for group, rules in (config.groups or {}).items():
        for index, rule in enumerate(rules):
            yield _path(f"groups.{group}", index, len(rules)), rule


def every_rule(config: Config) -> Iterator[tuple[str, Rule]]:
    """Those, and the driver's own, where it has one: every place that can name a tool."""
    yield from rules_of(config)
    if config.controller is not None:
        yield "controller", as_rule(config.controller)


def _path(group_path: str, index: int, count: int) -> str:
    return group_path if count == 1 or not group_path else f"{group_path}[{index}]"


def describe(assignment: Assignment) -> dict[str, Any]:
    """One row of ``config show`` and of the manifest's plan."""
    target = assignment.target
    return {
        "group": target.group,
        "roles": list(target.roles),
        "rank": target.rank,
        "replica": target.replica,
        "node": target.node,
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


def _mode(steps: NumberSet | Literal["all", "process"] | None) -> Mode:
    return "off" if steps is None else "steps" if isinstance(steps, NumberSet) else steps


def _windows(windows: StepWindows) -> Iterator[tuple[int, ...]]:
    """The first of them, of one that is long the first steps."""
    for first, last in itertools.islice(windows.since(), LISTED_WINDOWS):
        yield tuple(range(first, min(last, first + LISTED_WINDOWS) + 1))


def _count(mode: str, steps: NumberSet, rule: _Resolved, schedules: tuple[ScheduleSpec, ...]) -> CaptureCount:
    if schedules:
        return scheduled_captures(schedules, mode, steps)
    if mode == "process":
        return CaptureCount(1)
    if mode == "off":
        return CaptureCount(0)
    if mode == "all" or rule.discrete:
        return CaptureCount(None)
    return CaptureCount(len(StepWindows(steps, rule.merge_steps)))


def _steps_text(steps: object) -> object:
    return steps.to_config() if isinstance(steps, NumberSet) else steps


def _contradiction(one: _Resolved, other: _Resolved, key: str, reason: str = "") -> Problem:
    first, second = getattr(one, key), getattr(other, key)
    where = [f"{rule.path or 'config'}.{key}" + (f" (role {rule.role})" if rule.role else "") for rule in (one, other)]
    message = f"roles that share one process contradict each other: {where[0]} is {_steps_text(first)!r}, {where[1]} is {_steps_text(second)!r}"
    return Problem(
        f"{other.path or 'config'}.{key}",
        message + (f" ({reason})" if reason else ""),
        mend="make them equal, or place the roles in processes of their own",
    )
