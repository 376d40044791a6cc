"""What ``vtune`` and ``unitrace`` share: they stand before the worker, wait paused, and are resumed by ITT for each window."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from accelprof.contracts.backend import Probe
from accelprof.contracts.sizes import size_of
from accelprof.contracts.targets import WRAPPED_ENV, ArtifactFile, Assignment, Expectation, Launch, Target, WindowInfo
from accelprof.contracts.tool import Tool, ToolContext, ToolOptions, not_started_under
from accelprof.contracts.words import ArtifactState, TriggerCall
from accelprof.errors import Problem, nearest
from accelprof.launch.command import canonical, render_value
from accelprof.output.layout import Layout
from accelprof_xpu.option_tables import FLAG, Table


class LaunchOptions(ToolOptions):
    """``args``: options with values, ``flags``: without, both without dashes. ``extra_args``: passed on as they are, for
    options that this version does not know. ``program``: the launcher, where it is not on PATH."""

    args: dict[str, Any] = Field(default_factory=dict)
    flags: tuple[str, ...] = ()
    extra_args: tuple[str, ...] = ()
    program: str | None = Field(None, min_length=1)


class IttTool(Tool):
    """See the module. Subclasses name the program, its table of options and what is always given."""

    Options: ClassVar[type[ToolOptions]] = LaunchOptions
    accelerators: ClassVar[frozenset[str]] = frozenset({"xpu"})
    program_name: ClassVar[str] = ""
    table: ClassVar[Table] = {}
    #: short spelling -> long one
    short: ClassVar[Mapping[str, str]] = {}

    @property
    def program(self) -> str:
        return str(self.options.program or self.program_name)

    def meaning(self) -> Mapping[str, Any]:
        """Arguments and flags by their long names."""
        try:
            args = {name: render_value(value) for name, value in self.given().items() if value not in (None, False)}
        except ValueError:  # one is given twice, which check says
            return super().meaning()
        return {**super().meaning(), "args": args, "flags": (), "program": self.program}

    def probe(self) -> Probe:
        path = shutil.which(self.program)
        return Probe(0, f"{self.program} at {path}") if path else Probe(None, f"{self.program} is not on PATH")

    def trigger(self, target: Target) -> TriggerCall:
        return "api"

    def given(self) -> dict[str, Any]:
        """The user's options by their long names; ``True`` for a flag."""
        return canonical({**self.options.args, **dict.fromkeys(self.options.flags, True)}, self.short)

    def check(self, assignments: Sequence[Assignment]) -> list[Problem]:
        path = f"tools.{self.name}"
        try:
            given = self.given()
        except ValueError as error:
            return [Problem(f"{path}.args", str(error))]
        problems = []
        for name, value in given.items():
            allowed, mend = self.table.get(name), f"{name}: true"
            if allowed is None:
                said = f"{self.program} has no option {name}"
                mend = nearest(name, self.table) or "take it out, or give it as extra_args"
            elif allowed == FLAG and value not in (True, False):
                said = "it is a switch"
            elif allowed != FLAG and value is True:
                said, mend = "it takes a value", f"args: {{{name}: …}}"
            elif isinstance(allowed, tuple) and str(value) not in allowed:
                said, mend = f"no such value; allowed: {', '.join(allowed)}", nearest(str(value), allowed) or allowed[0]
            else:
                continue
            problems.append(Problem(f"{path}.args.{name}", said, value=value, mend=mend))
        return problems

    def render(self, options: Mapping[str, Any]) -> list[str]:
        """Options as words; a switch that is false is left out, a list is given once for each."""
        argv: list[str] = []
        for name, value in options.items():
            for item in value if isinstance(value, (list, tuple)) else (value,):
                if item is True:
                    argv.append(self.dashed(name))
                elif item is not False and item is not None:
                    argv += [self.dashed(name), render_value(item)]
        return argv

    @staticmethod
    def dashed(name: str) -> str:
        return f"--{name}"

    def place(self, target: Target, directory: str) -> str:
        """The directory of one target's results: these tools choose the names in it."""
        return os.path.join(directory, f"{Layout(directory).target_name(target)}-{self.name}")

    def fixed(self, assignment: Assignment, directory: str) -> dict[str, Any]:
        """Options that accelprof gives; the user's win."""
        raise NotImplementedError

    def launch(self, assignment: Assignment, directory: str) -> Launch:
        options = {**self.fixed(assignment, directory), **self.given()}
        return Launch(
            mode="prefix",
            argv=(self.program, *self.render(options), *self.options.extra_args, *self.separator),
            env={WRAPPED_ENV: self.name},
            make_dirs=(self.place(assignment.target, directory),),
            notes=(f"{self.name}: results are complete when the worker process has ended in order",),
        )

    #: what stands between the options and the command
    separator: ClassVar[tuple[str, ...]] = ()
    #: a glob of results below :meth:`place`
    results: ClassVar[str] = "*"

    def expects(self, assignment: Assignment, directory: str) -> list[Expectation]:
        where = glob.escape(self.place(assignment.target, directory))
        return [Expectation(os.path.join(where, self.results), None, "process_exit")]

    # --- in the worker ----------------------------------------------------------------------------------------------

    def attach(self, context: ToolContext) -> None:
        super().attach(context)
        if os.environ.get(WRAPPED_ENV) != self.name:
            raise not_started_under(self.program)

    def open(self, window: WindowInfo) -> None:
        if window.kind != "process":
            super().open(window)

    def close(self, window: WindowInfo) -> list[ArtifactFile]:
        if window.kind != "process":
            super().close(window)
        return []

    def match(self, files: Sequence[str], windows: Sequence[WindowInfo]) -> list[ArtifactFile]:
        """What lies in a target's directory holds every window of the process (of its pid, where the name has one)."""
        found = []
        for path in files:
            pid = self.pid_of(path)
            mine = [window for window in windows if pid is None or window.stem.endswith(f"-{pid}")]
            held = tuple(window.id for window in sorted(mine, key=lambda item: item.sequence))
            size = size_of(path) if os.path.exists(path) else 0
            state: tuple[ArtifactState, str] = ("complete", "") if size else ("truncated", "empty")
            found.append(ArtifactFile(path, self.name, held, size, *state))
        return found

    def pid_of(self, path: str) -> str | None:
        """The pid in a result's name, where the tool puts one there."""
