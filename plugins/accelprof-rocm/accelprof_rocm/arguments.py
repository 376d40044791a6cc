"""A user's ``args`` and ``flags``: checked against the options that the tool has, and rendered to an argument list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from accelprof.errors import Problem, nearest
from accelprof.launch.command import canonical, render_value
from accelprof_rocm.option_tables import Option, Table, aliases, known
from accelprof_rocm.releases import Release, show

TRUTH = ("true", "false", "yes", "no", "on", "off", "1", "0")
#: what to write in place of an option that is not there: (name, value) -> text, or empty
Mend = Callable[[str, object], str]


class Known:
    """The options of one program of one release.

    Args:
        table: ours, for the release.
        help_options: what the installed tool's help shows (see ``installation.options_of``); when there, it decides which
            options exist, and the table only says what they take.
    """

    def __init__(
        self, program: str, table: Table, release: Release, help_options: Mapping[str, str] | None = None
    ) -> None:
        self.program, self.release = program, release
        self.options = known(table, release)
        self.short = aliases(self.options)
        self.everywhere = table
        self.shown = dict(help_options or {})

    @property
    def origin(self) -> str:
        return "its help" if self.shown else f"ROCm {show(self.release)}"

    def long(self, name: str) -> str:
        return self.short.get(name, name)

    def option(self, name: str) -> Option | None:
        """The option ``name`` (short or long), or ``None`` when this program has none of that name."""
        if self.shown and name not in self.shown and self.long(name) not in self.shown:
            return None
        found = self.options.get(self.long(name)) or (self.everywhere.get(self.long(name)) if self.shown else None)
        return found or (Option("value") if self.shown else None)

    def names(self) -> list[str]:
        return sorted(self.shown or {*self.options, *self.short})

    def dashed(self, name: str) -> str:
        """``-x``, ``-MI`` and ``--key``."""
        return f"-{name}" if len(name) == 1 or name in self.short else f"--{name}"


def check(path: str, args: Mapping[str, object], flags: Sequence[str], options: Known, mend: Mend) -> list[Problem]:
    """Options that the program does not have, with the nearest it has, and values that they do not take."""
    problems: list[Problem] = []
    try:
        canonical(args, options.short)
    except ValueError as error:
        problems.append(Problem(f"{path}.args", str(error)))
    for key, value in args.items():
        name = bare(key)
        problem = _problem(f"{path}.args.{key}", name, value, options, mend)
        problems += [] if problem is None else [problem]
    for flag in flags:
        name = bare(flag)
        option = options.option(name)
        if option is None:
            problems.append(_unknown(f"{path}.flags", name, True, options, mend))
        elif option.takes == "value" and name in options.options:
            said, instead = f"{options.dashed(name)} takes a value", f"args: {{{name}: …}}"
            problems.append(Problem(f"{path}.flags", said, value=flag, mend=instead))
    return problems


def meaning(args: Mapping[str, object], flags: Sequence[str], options: Known) -> dict[str, Any]:
    """Arguments by their long names as they will be rendered, words in any order; what is not rendered is left out."""
    found: dict[str, Any] = {}
    for key, value in {**args, **dict.fromkeys(flags, True)}.items():
        name = options.long(bare(key))
        takes = (options.option(name) or Option()).takes
        if takes in ("flag", "switch") and str(value).lower() in TRUTH:
            value = str(value).lower() in TRUTH[::2]
        if value is None or (value is False and takes == "switch"):
            continue
        words = value if isinstance(value, (list, tuple)) else str(value).split() if takes == "words" else None
        found[name] = tuple(sorted({str(word) for word in words})) if words is not None else str(value)
    return found


def bare(name: Any) -> str:
    """An option's name without dashes; ``output_format`` is ``output-format``."""
    return str(name).lstrip("-").replace("_", "-")


def _problem(path: str, name: str, value: object, options: Known, mend: Mend) -> Problem | None:
    option = options.option(name)
    if option is None:
        return _unknown(path, name, value, options, mend)
    if option.takes in ("switch", "flag") and not isinstance(value, bool) and value is not None:
        if option.takes == "flag" and str(value).lower() in TRUTH:
            return None
        said, instead = f"{options.dashed(name)} of {options.program} is a switch", mend(name, value) or f"{name}: true"
        return Problem(path, said, value=value, allowed="true, false", mend=instead)
    if option.choices and value is not None:
        words = value if isinstance(value, (list, tuple)) else str(value).split()
        wrong = [str(word) for word in words if str(word) not in option.choices]
        if wrong:
            hint = nearest(wrong[0], option.choices) or mend(name, value) or f"{name}: [{option.choices[0]}]"
            said = f"{options.dashed(name)} of {options.program} does not know {', '.join(map(repr, wrong))}"
            return Problem(path, said, value=value, allowed=", ".join(option.choices), mend=hint)
    return None


def _unknown(path: str, name: str, value: object, options: Known, mend: Mend) -> Problem:
    message = f"{options.program} has no option {options.dashed(name)} (by {options.origin})"
    elsewhere = options.everywhere.get(aliases(options.everywhere).get(name, name))
    if elsewhere is not None and not options.shown:
        message += f"; it came with ROCm {show(elsewhere.since)}"
    allowed = f"see {options.program} --help; what this version of accelprof does not know goes to extra_args"
    instead = mend(name, value) or nearest(name, options.names()) or "take it out"
    return Problem(path, message, value=value, allowed=allowed, mend=instead)


def render(args: Mapping[str, object], flags: Sequence[str], options: Known) -> list[str]:
    """``{x: v}`` -> ``-x v``, ``{key: v}`` -> ``--key=v``, lists as words of their own, ``true`` as a bare flag."""
    argv: list[str] = []
    for key, value in args.items():
        if value is None:
            continue
        name = bare(key)
        option, dashed = options.option(name) or Option(), options.dashed(name)
        if value is True:
            argv.append(dashed)
        elif value is False and option.takes == "switch":
            continue
        elif isinstance(value, (list, tuple)) and option.takes == "words":
            argv += [dashed, *(render_value(item) for item in value)]
        elif dashed.startswith("--"):
            argv.append(f"{dashed}={render_value(value)}")
        else:
            argv += [dashed, render_value(value)]
    return [*argv, *(options.dashed(bare(flag)) for flag in flags)]
