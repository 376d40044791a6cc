"""Tool ``rocprofv3``: the SDK's tracer around the worker. From ROCm 7.0 it starts paused and each window resumes it.

It builds an environment and replaces itself with what follows its ``--``, so it stands before the worker's interpreter, and
the worker's exit status is kept. Its libraries are preloaded into the worker and, unless the session takes them out of the
environment, into everything that the worker starts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from accelprof.contracts.options import Words
from accelprof.contracts.targets import WRAPPED_ENV, Assignment, Expectation, Launch
from accelprof.contracts.tool import ToolOptions
from accelprof.errors import Problem
from accelprof_rocm import arguments, installation, option_tables, releases
from accelprof_rocm.rocprof import SCRATCH, RocprofOptions, RocprofTool, pattern

PATH = "tools.rocprofv3"
#: format -> what the file's name ends with
SUFFIX = {
    "csv": "_*.csv",
    "json": "_results.json",
    "pftrace": "_results.pftrace",
    "otf2": "_results.otf2",
    "rocpd": "_results.db",
}
#: options that make it start the worker in another way than once, now
REFUSED = {
    "input": "with several passes it runs the worker several times",
    "attach": "it would attach to a process and start none",
    "pid": "it would attach to a process and start none",
    "list-avail": "it would list counters and start none",
    "help": "it would show its help and start none",
    "version": "it would show its version and start none",
}
#: options that name a place: ours are left out where the user has their own
DIRECTORY, FILE, FORMAT = "output-directory", "output-file", "output-format"
REGIONS, PERIOD = "selected-regions", "collection-period"
#: options that have ranges recorded; without one of them nothing hears a window's resume before ROCm 7.13, or its marks at all
MARKERS = ("marker-trace", "runtime-trace", "sys-trace")
OFF = frozenset({"false", "no", "off", "0"})
_TRIAL = SCRATCH + 't=$1; shift; "$t" -d "$d" "$@"'


class Rocprofv3Options(RocprofOptions):
    """``format``: output formats; default by release (csv 6.2, json 6.3 and 6.4, rocpd from 7.0)."""

    format: Words = ()


class Rocprofv3Tool(RocprofTool):
    """See the module."""

    name: ClassVar[str] = "rocprofv3"
    aliases: ClassVar[tuple[str, ...]] = ("rocprof_v3", "rocprof-v3")
    Options: ClassVar[type[ToolOptions]] = Rocprofv3Options
    files_of: ClassVar[str] = "rocprofv3"

    # --- the release ------------------------------------------------------------------------------------------------

    @property
    def row(self) -> releases.V3:
        return releases.at(releases.V3S, self.release)

    @property
    def program(self) -> str:
        return str(self.options.program or "rocprofv3")

    def programs(self) -> Sequence[str]:
        return (self.program,)

    @property
    def pausable(self) -> bool:
        return self.row.pause and not self._given(PERIOD)

    @property
    def overlapping(self) -> bool:
        return self.row.overlapping

    @property
    def known(self) -> arguments.Known:
        """The options: by the help of the installed tool if its release is the one meant, else by table."""
        return arguments.Known(
            os.path.basename(self.program), option_tables.ROCPROFV3, self.release, self.help_options()
        )

    def _given(self, long: str) -> Any:
        """The user's value for an option under either spelling, ``True`` for a flag, else ``None``."""
        short = option_tables.aliases(option_tables.ROCPROFV3)
        for key, value in self.options.args.items():
            name = arguments.bare(key)
            if short.get(name, name) == long:
                return value
        names = {short.get(arguments.bare(flag), arguments.bare(flag)) for flag in self.options.flags}
        return True if long in names else None

    def _on(self, long: str) -> bool:
        value = self._given(long)
        return value is not None and str(value).lower() not in OFF

    # --- on the driver ----------------------------------------------------------------------------------------------

    def meaning(self) -> Mapping[str, Any]:
        """Formats by either spelling, and the traces of a user who chose none."""
        told = super().meaning()
        args = {key: value for key, value in told["args"].items() if key != FORMAT}
        if not self._chosen(args):
            args.update({name.lstrip("-"): "True" for name in self.row.arguments})
        return {**told, "args": args, "format": tuple(sorted(self.formats()))}

    @staticmethod
    def _chosen(given: Iterable[str]) -> bool:
        return any(name.endswith("-trace") or name in ("pmc", "stats") for name in given)

    def check(self, assignments: Sequence[Assignment]) -> list[Problem]:
        problems = arguments.check(PATH, self.options.args, self.options.flags, self.known, self._mend)
        problems += self._check_options(assignments)
        return list({str(problem): problem for problem in problems}.values())

    def _check_options(self, assignments: Sequence[Assignment]) -> Iterator[Problem]:
        options = self.options
        for name, reason in REFUSED.items():
            if self._given(name) not in (None, False):
                yield Problem(f"{PATH}.args.{name}", reason, value=self._given(name), mend="take it out")
        wrong = [name for name in options.format if name not in option_tables.FORMATS]
        if wrong:
            yield Problem(f"{PATH}.format", "no such format", value=wrong[0], allowed=", ".join(option_tables.FORMATS))
        if options.format and self._given(FORMAT) is not None:
            yield Problem(f"{PATH}.format", f"stands beside args: {{{FORMAT}: …}}", mend="keep one")
        period, where = self._given(PERIOD), f"{PATH}.args.{PERIOD}"
        if period is not None:
            if self._given(REGIONS) or options.windows == "pause":
                yield Problem(where, "periods by time and windows exclude each other", value=period, mend="keep one")
            if any(str(item).count(":") != 2 for item in (period if isinstance(period, (list, tuple)) else [period])):
                yield Problem(where, "all three numbers are needed", value=period, allowed="delay:duration:repeat")
        else:
            yield from self.check_windows()
        off = next((name for name in MARKERS if str(self._given(name)).lower() in OFF), None)
        if off and not any(self._on(name) for name in MARKERS) and any(map(self._needs_markers, assignments)):
            said, mend = (
                "windows and ranges would not be in the file: both are marker records",
                f"args: {{{MARKERS[0]}: true}}",
            )
            yield Problem(f"{PATH}.args.{off}", said, value=self._given(off), mend=mend)

    @staticmethod
    def _needs_markers(assignment: Assignment) -> bool:
        return not assignment.whole_process

    def _mend(self, name: str, value: object) -> str:
        words = [word.strip() for word in str(value).split(",")]
        if name in ("T", "trace") and value is not True:
            traces = [f"{word}-trace: true" for word in words if f"{word}-trace" in option_tables.ROCPROFV3]
            return f"args: {{{', '.join(traces)}}}" if traces else ""
        if name in ("f", FORMAT) and all(word in option_tables.FORMATS for word in words):
            return f"args: {{{FORMAT}: [{', '.join(words)}]}}"
        return ""

    def formats(self) -> tuple[str, ...]:
        given = self._given(FORMAT)
        if given is not None:
            return tuple(str(word) for word in given) if isinstance(given, (list, tuple)) else tuple(str(given).split())
        return self.options.format or (self.row.format,)

    def place(self, assignment: Assignment, directory: str) -> tuple[str, str]:
        """``(-d, -o)``: the directory and the name in it, with the tool's own keys for host and pid."""
        own = self._given(DIRECTORY)
        where = os.path.join(directory, str(own)) if own else self.checked_directory(directory)
        name = self._given(FILE) or f"{self.file_name(assignment.target, directory)}-%hostname%-%pid%"
        return where, str(name)

    def _arguments(self, assignment: Assignment) -> list[str]:
        """Everything but the place."""
        options, known = self.options, self.known
        given = {known.long(arguments.bare(key)) for key in (*options.args, *options.flags)}
        chosen = self._chosen(given)
        argv = [] if chosen else list(self.row.arguments)
        if chosen and self._needs_markers(assignment) and not any(self._on(name) for name in MARKERS):
            argv.append(f"--{MARKERS[0]}")
        if self.trigger_of(assignment) == "pause" and REGIONS not in given:
            argv.append(f"--{REGIONS}")
        own = {
            key: value
            for key, value in options.args.items()
            if known.long(arguments.bare(key)) not in (DIRECTORY, FILE)
        }
        if FORMAT not in given:
            argv += ["--output-format", *self.formats()]
        return [*argv, *arguments.render(own, options.flags, known), *options.extra_args]

    def launch(self, assignment: Assignment, directory: str) -> Launch:
        start = installation.command(self.program)
        where, name = self.place(assignment, directory)
        rest = (*self._arguments(assignment), "--")
        preflight: tuple[str, ...] = ()
        if self.options.preflight:
            preflight = ("/bin/sh", "-c", _TRIAL, "sh", start, *rest, *self.trial(assignment.target))
        return Launch(
            mode="prefix",
            argv=(start, "-d", where, "-o", name, *rest),
            env={WRAPPED_ENV: self.name, **self.options.env},
            make_dirs=(where,),
            preflight=preflight,
            notes=tuple(self.notes(assignment)),
        )

    def expects(self, assignment: Assignment, directory: str) -> list[Expectation]:
        where, _ = self.place(assignment, directory)
        stem = "*" if self._given(FILE) else self.any_file_name(assignment.target, directory)
        return [
            Expectation(pattern(where, stem + SUFFIX[name]), None, "process_exit")
            for name in self.formats()
            if name in SUFFIX
        ]

    # --- in the worker ----------------------------------------------------------------------------------------------

    def started_under(self) -> bool:
        return any(name.startswith(("ROCPROF_", "ROCP_TOOL_LIBRARIES")) for name in os.environ)

    def waits_paused(self) -> bool:
        return os.environ.get("ROCPROF_SELECTED_REGIONS", "").strip().lower() in ("1", "true", "on", "yes")
