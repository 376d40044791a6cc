"""Tool ``rocprof_sys``: AMD's systems profiler around the worker (``rocprof-sys-*``, ``omnitrace-*`` up to ROCm 6.2).

Three launchers. ``python`` runs a *script* inside its own interpreter: no interpreter may follow its ``--`` (it would be
compiled as source), so it stands in the interpreter's place and gets it through ``PYTHON_EXECUTABLE``. ``run`` and ``sample``
replace themselves with the command that follows ``--``, so they stand before the interpreter. What is recorded and where it
goes is chosen by settings in the environment, which all three read.

From ROCm 7.13 a window is a range: ``ROCPROFSYS_SELECTED_REGIONS`` names it, and recording runs only while it is open. AMD's
source, in ROCm/rocm-systems under projects/rocprofiler-systems/source: ``lib/rocprof-sys/library/rocprofiler-sdk/trace_control.cpp``
(names are split at commas and compared whole; a resume is ignored unless the program paused before) and ``roctx_client.cpp``
beside it (a range is kept on a stack of its thread, and a stop on another thread is skipped, which would leave the region open).
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from accelprof.contracts import reasons
from accelprof.contracts.targets import WRAPPED_ENV, ArtifactFile, Assignment, Expectation, Launch, Target
from accelprof.contracts.tool import ToolOptions
from accelprof.errors import CaptureError, ConfigError, Problem
from accelprof_rocm import arguments, artifacts, installation, option_tables, releases, roctx
from accelprof_rocm.rocprof import SCRATCH, TRUE, RocprofOptions, RocprofTool, pattern

PATH = "tools.rocprof_sys"
TABLES = {"python": option_tables.PYTHON, "run": option_tables.RUN, "sample": option_tables.SAMPLE}
#: recorded whenever nothing else is said: a Perfetto trace per process, in a place that does not change with the time
SETTINGS = {"TRACE": "true", "TIME_OUTPUT": "false", "USE_PID": "true"}
#: setting -> file that it makes (rocpd's name has not been seen on a real run)
OUTPUTS = {"TRACE": "perfetto-trace*.proto", "PROFILE": "wall_clock*", "USE_ROCPD": "rocpd*.db"}
#: what an option of the sibling launchers is under ``variant: python``: a setting and its value when none was given
AS_SETTING = {
    "profile": ("PROFILE", "true"),
    "flat-profile": ("FLAT_PROFILE", "true"),
    "host": ("USE_PROCESS_SAMPLING", "true"),
    "device": ("USE_AMD_SMI", "true"),
    "sampling-freq": ("SAMPLING_FREQ", "100"),
    "freq": ("SAMPLING_FREQ", "100"),
    "trace-file": ("PERFETTO_FILE", "perfetto-trace.proto"),
    "trace-buffer-size": ("PERFETTO_BUFFER_SIZE_KB", "1024000"),
    "trace-fill-policy": ("PERFETTO_FILL_POLICY", "ring_buffer"),
    "trace-wait": ("TRACE_DELAY", "10"),
    "trace-duration": ("TRACE_DURATION", "10"),
    "trace-periods": ("TRACE_PERIODS", "10:5"),
    "gpus": ("SAMPLING_GPUS", "0"),
    "output": ("OUTPUT_PATH", "profiles"),
}
#: the trial of the Python launcher proves that the worker's interpreter ran: exit codes are lost there
_TRIAL_PYTHON = (
    SCRATCH + 'echo \'import sys; open(sys.argv[1], "w").close()\' >"$d/trial.py"; '
    'export "$1OUTPUT_PATH=$d"; shift; "$@" "$d/trial.py" "$d/ran"; s=$?; '
    '[ -e "$d/ran" ] || { echo "the trial script was not run (status $s)"; exit 1; }; exit "$s"'
)
_TRIAL_PREFIX = SCRATCH + 'export "$1OUTPUT_PATH=$d"; shift; "$@"'


class RocprofSysOptions(RocprofOptions):
    """``variant``: which launcher. ``finalize_in_process``: have the library write when the session closes (``python`` only)."""

    variant: Literal["python", "run", "sample"] = "python"
    finalize_in_process: bool = False


class RocprofSysTool(RocprofTool):
    """See the module."""

    name: ClassVar[str] = "rocprof_sys"
    aliases: ClassVar[tuple[str, ...]] = ("rocprof-sys", "omnitrace")
    Options: ClassVar[type[ToolOptions]] = RocprofSysOptions
    files_of: ClassVar[str] = "rocprof_sys"
    #: of the range that is this window's region, while one is open
    _region: int | None = None

    # --- the release ------------------------------------------------------------------------------------------------

    @property
    def row(self) -> releases.Sys:
        return releases.at(releases.SYS, self.release)

    def programs(self) -> Sequence[str]:
        rows = [row for _, row in reversed(releases.SYS)]
        return super().programs() or list(dict.fromkeys(row.programs[self.options.variant] for row in rows))

    @property
    def program(self) -> str:
        return str(self.options.program or self.row.programs[self.options.variant])

    @property
    def pausable(self) -> bool:
        return self.row.regions

    @property
    def legacy(self) -> bool:
        return self.row.legacy

    @property
    def known(self) -> arguments.Known:
        """The options of this launcher: by the help of the installed one if its release is the one meant, else by table."""
        shown = self.help_options({"PYTHON_EXECUTABLE": sys.executable})
        return arguments.Known(os.path.basename(self.program), TABLES[self.options.variant], self.release, shown)

    # --- on the driver ----------------------------------------------------------------------------------------------

    def meaning(self) -> Mapping[str, Any]:
        """``-b`` is given to Python's launcher, and lists in settings are sets."""
        told = super().meaning()
        env, prefix = dict(told["env"]), self.row.env
        for name, split in (("ROCM_DOMAINS", _words), ("SELECTED_REGIONS", regions)):
            if prefix + name in env:
                env[prefix + name] = tuple(sorted(set(split(env[prefix + name]))))
        lean = {"builtin": "True"} if self._lean() else {}
        return {**told, "env": env, "args": {**lean, **told["args"]}}

    def defaults(self) -> dict[str, str]:
        row = self.row
        domains = {"ROCM_DOMAINS": ",".join(option_tables.DEFAULT_DOMAINS)} if row.domains else {}
        return {row.env + name: value for name, value in {**SETTINGS, **row.settings, **domains}.items()}

    def check(self, assignments: Sequence[Assignment]) -> list[Problem]:
        options = self.options
        problems = arguments.check(PATH, options.args, options.flags, self.known, self._mend)
        problems += [*self.check_windows(), *self._check_env(), *self._check_regions(), *self._check_shell()]
        problems += [*self._check_markers(assignments), *self._check_variant()]
        for assignment in assignments:
            problems += self._check_interpreter(assignment.target)
        return list({str(problem): problem for problem in problems}.values())

    def _check_variant(self) -> Iterator[Problem]:
        """What the Python launcher alone takes."""
        if self.options.variant == "python":
            return
        if "output" in {self.known.long(arguments.bare(key)) for key in self.options.args}:
            mend = f"env: {{{self.row.env}OUTPUT_PATH: …}}"
            yield Problem(f"{PATH}.args.output", "files would not lie in the run's directory", mend=mend)
        if self.options.finalize_in_process:
            yield Problem(f"{PATH}.finalize_in_process", "only the Python launcher has it", mend="variant: python")

    def _mend(self, name: str, value: object) -> str:
        """The form that works for what the user meant."""
        env, long = self.row.env, {**option_tables.aliases(option_tables.SAMPLE), "f": "sampling-freq"}.get(name, name)
        if long == "trace":
            settings = [f"{env}TRACE: 'true'", *self._settings_of(str(value).split(","))]
            return f"env: {{{', '.join(settings)}}}"
        if long in ("output-format", "profile-format"):
            return f"env: {{{env}TRACE: 'true'}} for a Perfetto trace, {{{env}PROFILE: 'true'}} for text and JSON"
        if self.options.variant == "python" and long in AS_SETTING:
            setting, default = AS_SETTING[long]
            given = default if value is True or value is None else value
            return f"env: {{{env}{setting}: '{given}'}}"
        return ""

    def _settings_of(self, words: Sequence[str]) -> list[str]:
        """``NAME: 'value'`` for what a guide's list of words means here: the default, and what was asked for beside it."""
        asked, env = [word.strip() for word in words], self.row.env
        if not self.row.domains:
            names = [name for word in asked for name in option_tables.ROCTRACER.get(word, ())]
            return [f"{env}{name}: 'true'" for name in dict.fromkeys(names)]
        domains = [word for word in (option_tables.meant(word, self.release) for word in asked) if word]
        if not domains:
            return []
        return [f"{env}ROCM_DOMAINS: '{','.join(dict.fromkeys([*option_tables.DEFAULT_DOMAINS, *domains]))}'"]

    def _in_place_of(self, setting: str, value: str) -> str:
        """What this release takes in place of a setting of another's: the mend, in one go."""
        env, row = self.row.env, self.row
        if setting == "ROCM_DOMAINS":
            settings = self._settings_of(_words(value))
            left = "leave it out: HIP, kernels, copies and ranges are recorded"
            return f"env: {{{', '.join(settings)}}}" if settings else left
        if setting == "USE_ROCTX":
            return f"env: {{{env}USE_ROCTX: 'true'}}" if row.legacy else "leave it out: ranges are recorded"
        if setting == "SELECTED_REGIONS" and not row.regions:
            return f"leave it out: it came with ROCm {_since_regions()}"
        if setting == "SELECTED_REGIONS" and _is_switch(value):
            return "leave it out; windows have a region of their own"
        return f"env: {{{env}{setting}: '{value}'}}"

    def _domains(self) -> list[str]:
        """The domains that the user chose; empty where the default holds."""
        return _words(self.options.env.get(f"{self.row.env}ROCM_DOMAINS", ""))

    def _no_domains(self) -> list[str]:
        """Chosen words that this release has not; of a release that is newer than the table nobody knows."""
        if not self.row.domains or self.release > option_tables.NEWEST_DOMAINS:
            return []
        known = option_tables.domains(self.release)
        return [word for word in self._domains() if word not in known]

    def _markers_off(self) -> tuple[str, str]:
        """The setting by which the user turned ranges off, and the value that turns them on; both empty where they are on."""
        row, off, domains = self.row, False, self._domains()
        name = f"{row.env}{'ROCM_DOMAINS' if row.domains else 'USE_ROCTX'}"
        if row.domains:
            off = bool(domains) and not option_tables.MARKERS & set(domains) and not self._no_domains()
            mend = ",".join(dict.fromkeys([*option_tables.DEFAULT_DOMAINS, *domains]))
        else:
            off, mend = name in self.options.env and not self._on(name), "true"
        return (name, mend) if off else ("", "")

    def _check_markers(self, assignments: Sequence[Assignment]) -> list[Problem]:
        """Ranges, and the marks by which a recording of the whole process is cut, are records of one domain."""
        name, mend = self._markers_off()
        if not name or (assignments and all(item.whole_process for item in assignments)):
            return []
        return [
            Problem(
                f"{PATH}.env.{name}",
                "windows and ranges would not be in the file: both are marker records",
                value=self.options.env[name],
                mend=f"env: {{{name}: '{mend}'}}",
            )
        ]

    def _check_regions(self) -> Iterator[Problem]:
        """The user's own regions: names beside ours, by the one way that both can take."""
        name, known = f"{self.row.env}SELECTED_REGIONS", self.known
        given, mend = self.options.env.get(name), f"env: {{{name}: …}}"
        if self.row.regions and "selected-regions" in {known.long(arguments.bare(key)) for key in self.options.args}:
            said = "the command line's list would take the place of the region that windows are"
            yield Problem(f"{PATH}.args.selected-regions", said, mend=mend)
        if self.row.regions and any(re.match(r"--?selected[-_]regions(=|$)", word) for word in self.options.extra_args):
            said = "its --selected-regions would take the place of the region that windows are"
            yield Problem(f"{PATH}.extra_args", said, value=list(self.options.extra_args), mend=mend)
        if given is None:
            return
        mend = self._in_place_of("SELECTED_REGIONS", given)
        if not self.row.regions:
            said = f"{self.program} of ROCm {releases.show(self.release)} does not read it"
        elif _is_switch(given):
            said = "it takes names of ranges, and is no switch"
        elif self.options.windows == "whole":
            said = "recorded in these regions only, the process is not whole, and windows cannot be cut"
            mend = "windows: auto"
        else:
            return
        yield Problem(f"{PATH}.env.{name}", said, value=given, mend=mend)

    def _check_env(self) -> Iterator[Problem]:
        row, of = self.row, f"{self.program} of ROCm {releases.show(self.release)}"
        for name, value in self.options.env.items():
            other = next((old.env for _, old in releases.SYS if old.env != row.env and name.startswith(old.env)), None)
            if other is not None:
                mend = self._in_place_of(name.removeprefix(other), value)
                yield Problem(f"{PATH}.env.{name}", f"{of} does not read {other}*", value=value, mend=mend)
        name = f"{row.env}ROCM_DOMAINS"
        domains, unknown = self.options.env.get(name, ""), self._no_domains()
        if domains and not row.domains:
            mend, said = self._in_place_of("ROCM_DOMAINS", domains), f"{of} has no such setting: it came with 6.4"
            yield Problem(f"{PATH}.env.{name}", said, value=domains, mend=mend)
        if unknown:
            yield Problem(
                f"{PATH}.env.{name}",
                f"the worker would end at its start: {', '.join(map(repr, unknown))} "
                + ("is no domain" if len(unknown) == 1 else "are no domains"),
                value=domains,
                allowed=", ".join(option_tables.domains(self.release)),
                mend=self._in_place_of("ROCM_DOMAINS", domains),
            )
        rocpd = f"{row.env}USE_ROCPD"
        if self._on(rocpd) and self.options.variant == "python" and not row.rocpd_python:
            said, value = f"{self.program} crashes with rocpd before ROCm 7.2", self.options.env[rocpd]
            yield Problem(f"{PATH}.env.{rocpd}", said, value=value, mend="variant: run, or leave it out")

    def _check_shell(self) -> list[Problem]:
        """Up to ROCm 6.2 the Python launcher hands its arguments to a shell as they are."""
        if self.options.variant != "python" or self.row.env != "OMNITRACE_":
            return []
        given = [*arguments.render(self.options.args, self.options.flags, self.known), *self.options.extra_args]
        apart = {
            word: f"{self.program} would have a shell take {word!r} apart"
            for word in given
            if shlex.quote(word) != word
        }
        allowed = "words without blanks and characters that a shell knows"
        return [Problem(f"{PATH}.args", said, value=word, allowed=allowed) for word, said in apart.items()]

    def _check_interpreter(self, target: Target) -> list[Problem]:
        interpreter = self.interpreter(target)
        if self.options.variant != "python" or not {"-m", "-c"} & set(interpreter):
            return []
        return [
            Problem(
                "runtime_env.py_executable",
                f"{self.program} takes an interpreter with its flags, and this is a program",
                value=shlex.join(interpreter),
                mend=f"{PATH}.variant: run",
            )
        ]

    def _on(self, name: str) -> bool:
        return str(self.options.env.get(name, "")).strip().lower() in TRUE

    def settings(self, assignment: Assignment, directory: str) -> dict[str, str]:
        """The launcher's environment: ours, with the user's over it."""
        row = self.row
        ours = {
            **SETTINGS,
            **row.settings,
            "OUTPUT_PATH": self.checked_directory(directory),
            # the pid by our own hand: where SLURM or MPI is seen the suffix is a rank, and not that of the worker
            "OUTPUT_PREFIX": f"{self.file_name(assignment.target, directory)}-%pid%-",
        }
        settings = {**{row.env + name: value for name, value in ours.items()}, **self.options.env}
        if self.trigger_of(assignment) == "pause":
            name = f"{row.env}SELECTED_REGIONS"
            settings[name] = ",".join([*regions(settings.get(name, "")), releases.REGION])
        return settings

    def launch(self, assignment: Assignment, directory: str) -> Launch:
        problems = self._check_interpreter(assignment.target)
        if problems:
            raise ConfigError(*problems)
        options, python = self.options, self.options.variant == "python"
        env = {WRAPPED_ENV: self.name, **self.settings(assignment, directory)}
        start = installation.command(self.program)
        known = self.known
        lean = ["-b"] if self._lean() else []
        argv = (start, *lean, *arguments.render(options.args, options.flags, known), *options.extra_args, "--")
        interpreter = self.interpreter(assignment.target)
        notes = [*self.notes(assignment), *self._notes_of_domains()]
        if python:
            env["PYTHON_EXECUTABLE"] = shlex.join(interpreter)
            notes.append(f"{self.name}: {self.program} ends with status 0 whatever the worker's own was")
        return Launch(
            mode="replace" if python else "prefix",
            argv=argv,
            env=env,
            make_dirs=(env[f"{self.row.env}OUTPUT_PATH"],),
            preflight=self._preflight(argv, assignment.target) if options.preflight else (),
            notes=tuple(notes),
        )

    def _lean(self) -> bool:
        """Whether ``-b`` is ours to give: without it every Python call of the worker is recorded, which costs more than the work."""
        given = {self.known.long(arguments.bare(key)) for key in (*self.options.args, *self.options.flags)}
        return self.options.variant == "python" and "builtin" not in given

    def _notes_of_domains(self) -> list[str]:
        """Said where it is nobody's fault yet: a choice that leaves ranges out, words that the table does not know."""
        notes, (name, mend) = [], self._markers_off()
        if name:
            notes.append(
                f"{self.name}: ranges of timers will not be in the file, {name} leaves them out; {name}: '{mend}' keeps them"
            )
        new = [word for word in self._domains() if self.row.domains and word not in option_tables.domains(self.release)]
        if new and self.release > option_tables.NEWEST_DOMAINS:
            notes.append(
                f"{self.name}: {', '.join(new)} in {self.row.env}ROCM_DOMAINS: not known here; ROCm {releases.show(self.release)} is "
                f"newer than the table ({releases.show(option_tables.NEWEST_DOMAINS)}), and a word that it has not ends the worker"
            )
        return notes

    def _preflight(self, argv: Sequence[str], target: Target) -> tuple[str, ...]:
        if self.options.variant == "python":
            return ("/bin/sh", "-c", _TRIAL_PYTHON, "sh", self.row.env, *argv)
        return ("/bin/sh", "-c", _TRIAL_PREFIX, "sh", self.row.env, *argv, *self.trial(target))

    def expects(self, assignment: Assignment, directory: str) -> list[Expectation]:
        settings, env = self.settings(assignment, directory), self.row.env
        prefix = self.any_file_name(assignment.target, directory)
        if f"{env}OUTPUT_PREFIX" in self.options.env:
            prefix = "*"
        wanted = []
        for setting, name in OUTPUTS.items():
            if settings.get(env + setting, "").strip().lower() in TRUE:
                file = self.options.env.get(f"{env}PERFETTO_FILE") if setting == "TRACE" else None
                name = f"{os.path.splitext(os.path.basename(file))[0]}*" if file else name
                wanted.append(Expectation(pattern(settings[f"{env}OUTPUT_PATH"], prefix + name), None, "process_exit"))
        return wanted

    # --- in the worker ----------------------------------------------------------------------------------------------

    def started_under(self) -> bool:
        return (
            any(name.startswith(("ROCPROFSYS_", "OMNITRACE_")) for name in os.environ) or self.row.module in sys.modules
        )

    def waits_paused(self) -> bool:
        return releases.REGION in regions(os.environ.get("ROCPROFSYS_SELECTED_REGIONS", ""))

    def opener(self, library: roctx.Library) -> str:
        if library.start is None or library.stop is None:
            return "roctxRangeStartA and roctxRangeStop"
        self.thread = "starter"
        return ""

    def resume(self, library: roctx.Library) -> None:
        """Start the region. It must be stopped by the thread that started it: another's stop is skipped."""
        if library.start is None:
            raise CaptureError(f"{library.path} has no roctxRangeStartA")
        self._region = library.start(library.message(releases.REGION))

    def pause(self, library: roctx.Library) -> None:
        number, self._region = self._region, None
        if number is not None and library.stop is not None:
            library.stop(number)

    def finalise(self, reason: str) -> list[ArtifactFile]:
        library = sys.modules.get(self.row.module)
        goes_on = reason == reasons.JOINED  # a text, as the contract has it
        if not self.options.finalize_in_process or self.context is None or goes_on or not self._opened:
            return []
        if library is None:
            self.context.say(f"{self.name}: {self.row.module} is not loaded here, so files come when the worker ends")
            return []
        library.finalize()
        files = [
            path
            for expected in self.expects(self.context.assignment, self.context.directory)
            for path in _existing(expected.pattern, os.getpid())
        ]
        return artifacts.match(files, self._opened, self.name)


def regions(value: str) -> list[str]:
    """The names in a ``SELECTED_REGIONS``, as AMD's library splits them."""
    return [word for word in value.split(",") if word]


def _words(domains: str) -> list[str]:
    """The words in a ``ROCM_DOMAINS``, as AMD's library splits them."""
    return [word for word in re.split(r"[ ,;:\t\n]+", domains) if word]


def _is_switch(value: str) -> bool:
    return value.strip().lower() in TRUE | {"0", "false", "off", "no"}


def _since_regions() -> str:
    return releases.show(next(since for since, row in releases.SYS if row.regions))


def _existing(glob_pattern: str, pid: int) -> list[str]:
    import glob

    return [path for path in sorted(glob.glob(glob_pattern)) if f"-{pid}-" in os.path.basename(path)]
