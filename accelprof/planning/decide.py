"""``decide(config, catalogue)``: a configuration becomes a plan, once. Its tools are made and validated here and nowhere else.

What is asked of the catalogue is asked here; a :class:`~accelprof.planning.plan.Plan` answers without it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from accelprof.config.model import Config, ControllerRule, Rule
from accelprof.contracts.backend import Backend
from accelprof.contracts.targets import Assignment
from accelprof.contracts.tool import Tool, ToolUse
from accelprof.errors import ConfigError, PluginError, Problem, nearest
from accelprof.planning.names import nearest_accelerator
from accelprof.planning.plan import Plan, every_rule, use_of
from accelprof.planning.presets import Preset
from accelprof.planning.presets import check as check_presets
from accelprof.planning.selection import covering

RuleT = TypeVar("RuleT", Rule, ControllerRule)


class Names(Protocol):
    """What is asked of the catalogue."""

    def tool_class(self, name: str) -> type[Tool]: ...
    def make_tool(self, name: str, options: Mapping[str, object] | None = None) -> Tool: ...
    def tool_names(self) -> list[str]: ...
    def backend_class(self, name: str) -> type[Backend]: ...
    def backend_names(self) -> list[str]: ...
    def presets(self) -> Mapping[str, Preset]: ...


def decide(config: Config, catalogue: Names, *, decided: bool = False) -> Plan:
    """The plan of ``config``: one tool for each distinct (name, options), one assignment for each target that is asked for.

    ``config`` has its tools under their registered names, as :meth:`accelprof.catalogue.Catalogue.load` gives it.
    ``decided``: somebody did this before the process was started (``accelprof run``, the controller), so what concerns
    the plan as a whole is not looked at again.

    Raises:
        ConfigError: everything that is wrong, at once: an unknown tool, preset, accelerator or engine, options refused,
            options under two names of a tool, a rule that can never apply; then contradictions between roles of one process;
            then what the tools object to.
    """
    problems: list[Problem] = []
    if not decided:
        problems += [*_presets(config, catalogue), *_accelerator(config, catalogue), *unreachable(config)]
        problems += _engines(config)
    maker = _Maker(config, catalogue)
    uses: dict[str, ToolUse] = {}
    for path, rule in every_rule(config):
        use = use_of(config, rule)
        if use is None:
            continue
        try:
            uses[path] = maker.use(path, rule, use.name)
        except ConfigError as error:
            problems.extend(error.problems)
    if not decided:
        try:
            maker.validate_the_rest(uses.values())
        except ConfigError as error:
            problems.extend(error.problems)
    if problems:
        raise ConfigError(*{str(problem): problem for problem in problems}.values())
    plan = Plan(config, uses)
    if not decided:
        problems = _objections(plan, plan.preview(), catalogue)
        if problems:
            raise ConfigError(*problems)
    return plan


def canonical(config: Config, catalogue: Names) -> Config:
    """``config`` with every tool under its registered name in place of an alias; a name that nobody knows stays.

    Raises:
        ConfigError: a tool has options under two of its names.
    """
    tools: dict[str, dict[str, Any]] = {}
    written: dict[str, str] = {}
    problems = []
    for word, options in config.tools.items():
        name = _registered(word, catalogue)
        if name in tools:
            problems.append(
                Problem(
                    f"tools.{word}",
                    f"{word!r} and {written[name]!r} are names of one tool, {name!r}, and both have options",
                    mend=f"put all its options under tools.{name}",
                )
            )
        tools[name], written[name] = options, word
    if problems:
        raise ConfigError(*problems)
    changed: dict[str, object] = {}
    if list(tools) != list(config.tools):
        changed["tools"] = tools
    if config.tool is not None and _registered(config.tool, catalogue) != config.tool:
        changed["tool"] = _registered(config.tool, catalogue)
    groups = {
        group: tuple(_rightly_named(rule, catalogue) for rule in rules)
        for group, rules in (config.groups or {}).items()
    }
    if config.groups is not None and groups != config.groups:
        changed["groups"] = groups
    if config.controller is not None and config.controller != _rightly_named(config.controller, catalogue):
        changed["controller"] = _rightly_named(config.controller, catalogue)
    return config.model_copy(update=changed) if changed else config


def _registered(name: str, catalogue: Names) -> str:
    try:
        return catalogue.tool_class(name).name
    except PluginError:
        return name


def _rightly_named(rule: RuleT, catalogue: Names) -> RuleT:
    if rule.tool is None:
        return rule
    name = _registered(rule.tool, catalogue)
    return rule if name == rule.tool else rule.model_copy(update={"tool": name})


class _Maker:
    """Makes each distinct (name, options) once."""

    def __init__(self, config: Config, catalogue: Names) -> None:
        self._config, self._catalogue = config, catalogue
        self._made: dict[tuple[str, str], Tool] = {}

    def use(self, path: str, rule: Rule, name: str) -> ToolUse:
        where = f"{path}.tool" if path and "tool" in rule.model_fields_set else "tool"
        try:
            cls = self._catalogue.tool_class(name)
        except PluginError as error:
            mend = nearest(name, self._catalogue.tool_names())
            raise ConfigError(Problem(where, str(error), value=name, mend=mend)) from None
        base = _normalised(cls, self._config.tools.get(name, {}), f"tools.{name}")
        own = _normalised(cls, rule.options, f"{path}.options")
        return ToolUse(cls.name, {**base, **own}, self._tool(cls.name, {**base, **own}, f"{path}.options", own))

    def _tool(self, name: str, options: Mapping[str, object], own_path: str = "", own: Iterable[str] = ()) -> Tool:
        key = (name, json.dumps(options, sort_keys=True, default=repr))
        if key not in self._made:
            try:
                self._made[key] = self._catalogue.make_tool(name, options)
            except ConfigError as error:
                raise ConfigError(
                    *(_at_home(problem, f"tools.{name}", own_path, own) for problem in error.problems)
                ) from None
        return self._made[key]

    def validate_the_rest(self, used: Iterable[ToolUse]) -> None:
        """Options of tools that no rule uses: checked too, unless nobody here has the tool (a file may be shared)."""
        names = {use.name for use in used}
        problems: list[Problem] = []
        if self._config.tool is not None and self._config.tool not in names and self._config.groups is not None:
            try:
                self._catalogue.tool_class(self._config.tool)
            except PluginError as error:
                mend = nearest(self._config.tool, self._catalogue.tool_names())
                problems.append(Problem("tool", str(error), value=self._config.tool, mend=mend))
        for name, options in self._config.tools.items():
            if name in names:
                continue
            try:
                cls = self._catalogue.tool_class(name)
            except PluginError:
                continue
            try:
                self._tool(name, _normalised(cls, options, f"tools.{name}"))
            except ConfigError as error:
                problems.extend(error.problems)
        if problems:
            raise ConfigError(*problems)


def _normalised(cls: type[Tool], options: Mapping[str, object], where: str) -> Mapping[str, object]:
    try:
        return cls.normalise(options) if options else {}
    except ConfigError:
        raise
    except (ValueError, TypeError) as error:
        raise ConfigError(Problem(where, str(error))) from None


def _at_home(problem: Problem, shared: str, own_path: str, own: Iterable[str]) -> Problem:
    """A problem of an option that the rule itself brought, under the rule's path."""
    key = problem.path.removeprefix(f"{shared}.")
    first = key.partition(".")[0].partition("[")[0]
    if key == problem.path or first not in set(own):
        return problem
    return problem.at(f"{own_path}.{key}")


def _presets(config: Config, catalogue: Names) -> list[Problem]:
    return check_presets(config, catalogue.presets()) if config.presets else []


def _engines(config: Config) -> Sequence[Problem]:
    if config.engines:
        from accelprof.engines.options import engines_of  # only who has engines pays for the import

        try:
            engines_of(config)
        except ConfigError as error:
            return error.problems
    return ()


def _accelerator(config: Config, catalogue: Names) -> list[Problem]:
    if config.accelerator == "auto":
        return []
    try:
        catalogue.backend_class(config.accelerator)
    except PluginError as error:
        names = catalogue.backend_names()
        return [
            Problem(
                "accelerator",
                str(error),
                value=config.accelerator,
                allowed=", ".join(["auto", *names]),
                mend=nearest_accelerator(config.accelerator, names) or "auto takes what the machine has",
            )
        ]
    return []


def unreachable(config: Config) -> list[Problem]:
    """Rules of a group that can never apply: an earlier one takes every process that they would."""
    problems = []
    for group, rules in (config.groups or {}).items():
        for index, rule in enumerate(rules):
            earlier = covering(rules[:index], rule, config)
            if earlier:
                names = " and ".join(f"groups.{group}[{at}]" for at in earlier)
                problems.append(
                    Problem(
                        f"groups.{group}[{index}]",
                        f"this rule can never apply: {names} take{'s' * (len(earlier) == 1)} every process that it would, and the first rule that fits counts",
                        mend="put the narrower rule first, or take one out; a second tool or other steps in the same processes are had with rules for other roles, or in a run of their own",
                    )
                )
    return problems


def _objections(plan: Plan, assignments: Sequence[Assignment], catalogue: Names) -> list[Problem]:
    """What tools object to in the plan, each asked once about all its targets."""
    rows_of: dict[int, list[Assignment]] = {}
    tools: dict[int, Tool] = {}
    for assignment in assignments:
        if not assignment.selected:
            continue
        for use in plan.uses_of(assignment):
            if use.tool is not None:
                tools[id(use.tool)] = use.tool
                rows_of.setdefault(id(use.tool), []).append(assignment)
    accelerator = plan.config.accelerator
    wanted = "" if accelerator == "auto" else catalogue.backend_class(accelerator).name
    problems: dict[str, Problem] = {}
    for key, tool in tools.items():
        problems.update((str(problem), problem) for problem in tool.check(rows_of[key]))
        if wanted and tool.accelerators and wanted not in tool.accelerators:
            problem = Problem(
                "tool",
                f"{tool.name} does not serve accelerator {accelerator!r}",
                value=tool.name,
                allowed=f"accelerator: {', '.join(sorted(tool.accelerators))}",
            )
            problems[str(problem)] = problem
    return list(problems.values())
