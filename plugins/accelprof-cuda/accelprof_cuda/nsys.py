"""Tool ``nsys``: Nsight Systems around the worker, triggered from inside, one report per window.

nsys must know beforehand how many captures will come: with too few it loses some, with too many it writes nothing
before the process ends. So the number comes from the plan: ``repeat:N``, or ``repeat`` where the plan cannot know it;
then the session's end has nsys write what it has (``nsys stop`` on this process's own session).
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from accelprof.contracts.backend import Backend, Emitter, Probe
from accelprof.contracts.spans import HostCalls, Trace
from accelprof.contracts.targets import LAUNCH_ENV, ArtifactFile, Assignment, Expectation, Launch, Target, WindowInfo
from accelprof.contracts.tool import Tool, ToolContext, ToolOptions, not_started_under, unordered
from accelprof.contracts.words import Count, TriggerCall
from accelprof.errors import CaptureError, Problem, ReadError
from accelprof.launch.command import render
from accelprof.output.layout import Layout
from accelprof_cuda import domains, installation, nsys_checks, nsys_files, vendor
from accelprof_cuda.backend import DOMAIN, CudaBackend
from accelprof_cuda.nsys_files import RAW, REPORT
from accelprof_cuda.nsys_options import CUPTI_TRACES, OPTIONS, NsysOptions, normalise
from accelprof_cuda.nsys_turns import Turns

#: the NVTX range that a window is in the report, and that opens it where ``cudaProfilerApi`` cannot fire
WINDOW = "window"
TRIGGERS = {"api": "cudaProfilerApi", "range": "nvtx"}
OUR_RANGE = f"{WINDOW}@{DOMAIN}"
#: nsys looks at registered strings only unless it is told; a user's own range is mostly pushed with a plain one
PLAIN_STRINGS = {"NSYS_NVTX_PROFILER_REGISTER_ONLY": "0"}
SHORT = {"trace": "t", "output": "o"}
#: tells the worker which trigger call its nsys waits for
TRIGGER_ENV = "ACCELPROF_NSYS_GATE"
#: and its ``-o``, with nsys's placeholders: the launch may have been made for another target than the session
OUTPUT_ENV = "ACCELPROF_NSYS_OUTPUT"
#: and how many captures it expects; ``open`` when it was not told
CAPTURES_ENV = "ACCELPROF_NSYS_CAPTURES"
#: seconds; writing large reports takes long
STOP_TIMEOUT = 300.0


def _window_range() -> Any:
    where = domains.domain(DOMAIN)
    return where.start_range(where.get_event_attributes(message=WINDOW))


class NsysTool(Tool):
    """See the module."""

    name: ClassVar[str] = "nsys"
    aliases: ClassVar[tuple[str, ...]] = ("nsight", "nsight_systems", "nsight-systems")
    Options: ClassVar[type[ToolOptions]] = NsysOptions
    count: ClassVar[Count] = "exact"
    exclusive: ClassVar[frozenset[str]] = frozenset({"cupti"})
    accelerators: ClassVar[frozenset[str]] = frozenset({"cuda"})
    host_calls: ClassVar[HostCalls] = HostCalls(
        launches=r"^cu(?:da)?(?:Launch(?:Cooperative)?Kernel|GraphLaunch|Launch(?:Grid(?:Async)?)?(?:_v\d+)?$)",
        capture_begins=r"^cu(?:da)?StreamBeginCapture",
        capture_ends=r"^cu(?:da)?StreamEndCapture",
    )

    def __init__(self, options: ToolOptions | Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        self._opened: list[WindowInfo] = []
        self._seen: Counter[tuple[object, ...]] = Counter()  # windows of each stretch of the run
        self._handle: Any = None
        self._mark: object = None
        self._trigger = ""
        self._output = ""
        self._exact: int | None = None
        self._ranges: CudaBackend | None = None
        self._finished = False
        self._hides = False
        self._session: str | None = None
        self._turns: Turns | None = None

    # --- on the driver ----------------------------------------------------------------------------------------------

    @classmethod
    def normalise(cls, options: Mapping[str, Any]) -> Mapping[str, object]:
        return normalise(options)

    def meaning(self) -> Mapping[str, Any]:
        """The preset with the options over it, lists with commas in any order; ``kill`` is always the same."""
        own = {key: value for key, value in super().meaning().items() if key not in OPTIONS and key != "preset"}
        given = {**self.options.arguments(), "kill": "none"}
        return {**own, **{name: unordered([word.strip() for word in text.split(",")]) for name, text in given.items()}}

    def probe(self) -> Probe:
        nsys = self.options.nsys
        path = installation.find(nsys)
        if path is None:
            return Probe(None, f"{nsys} is not on PATH and in no CUDA or Nsight installation of this machine")
        facts = {"path": path, "importer": installation.importer(path)}
        return Probe(0, f"nsys {installation.version(path)} at {path}", facts)

    def check(self, assignments: Sequence[Assignment]) -> list[Problem]:
        return nsys_checks.check(self.options, [(row, self.trigger_of(row)) for row in assignments])

    def claims(self, target: Target) -> frozenset[str]:
        on_device = self.options.traces() & CUPTI_TRACES and target.has_devices is not False
        return self.exclusive if on_device else frozenset()

    def trigger(self, target: Target) -> TriggerCall:
        given = self.options.arguments().get("capture-range")
        if given not in TRIGGERS.values():
            return "api" if target.has_devices else "range"
        return "api" if given == TRIGGERS["api"] else "range"

    def trigger_of(self, assignment: Assignment) -> str:
        """What begins a capture: :meth:`trigger`; ``none`` where the whole process is one, ``own`` where a range of the user's does.

        A whole process under ``capture-range: cudaProfilerApi`` that has no device gets the range, since that call never comes there.
        """
        arguments = self.options.arguments()
        given = arguments.get("capture-range")
        if not assignment.whole_process:
            return self.trigger(assignment.target)
        if given is None:
            return "none"
        if given == TRIGGERS["range"] and arguments.get("nvtx-capture") not in (None, OUR_RANGE):
            return "own"
        without = given == TRIGGERS["api"] and assignment.target.has_devices is False
        return "range" if without else self.trigger(assignment.target)

    def output(self, target: Target, directory: str) -> str:
        """``-o``: absolute, without suffix, with nsys's own placeholders ``%h`` (host) and ``%p`` (the worker's pid)."""
        given = self.options.arguments().get("output")
        if given:
            return os.path.join(directory, given.removesuffix(REPORT))
        name = Layout(directory).target_name(target).replace("%", "%%")
        return os.path.join(directory.replace("%", "%%"), f"{name}-%h-%p")

    def arguments(self, assignment: Assignment, directory: str) -> dict[str, str]:
        """Options of ``nsys profile`` for one process, under their long names, in nsys's order of help."""
        arguments = dict(self.options.arguments())
        trigger = self.trigger_of(assignment)
        if trigger in TRIGGERS:
            arguments["capture-range"] = TRIGGERS[trigger]
            exact = assignment.count.exact
            arguments.setdefault("capture-range-end", f"repeat:{exact}" if exact else "repeat")
        elif "capture-range" in arguments:
            # of the user's own; nsys's default ends its session, and the command is left alone
            arguments.setdefault("capture-range-end", "stop")
        if trigger == "range":
            arguments["nvtx-capture"] = OUR_RANGE
        arguments["kill"] = "none"
        arguments["output"] = self.output(assignment.target, directory)
        return arguments

    def launch(self, assignment: Assignment, directory: str) -> Launch:
        arguments = self.arguments(assignment, directory)
        nsys = installation.command(self.options.nsys)
        argv = (nsys, "profile", *self._rendered(arguments), *self.options.extra_args)
        trigger, output = self.trigger_of(assignment), arguments["output"]
        late = "nsys: the number of windows is not known beforehand, so reports are written when the session ends"
        captures = "open" if trigger == "own" else str(assignment.count.exact or "open")
        env = {TRIGGER_ENV: trigger, OUTPUT_ENV: output, CAPTURES_ENV: captures}
        return Launch(
            mode="prefix",
            argv=argv,
            env={**env, **(PLAIN_STRINGS if trigger == "own" else {})},
            make_dirs=(os.path.dirname(output).replace("%%", "%"),),
            preflight=self._preflight(assignment, arguments) if self.options.preflight else (),
            notes=(late,) if trigger in TRIGGERS and not assignment.count.certain else (),
        )

    def _rendered(self, arguments: Mapping[str, str]) -> list[str]:
        return render({SHORT.get(name, name): value for name, value in arguments.items()}, self.options.flags)

    def _preflight(self, assignment: Assignment, arguments: Mapping[str, str]) -> tuple[str, ...]:
        """The same options around the same interpreter, with a trigger call that never comes: nothing is written."""
        trigger = {"capture-range": "nvtx", "nvtx-capture": "never@accelprof-preflight", "capture-range-end": "stop"}
        never = {**arguments, **trigger}
        never.pop("output")
        interpreter = list(assignment.target.interpreter) or [sys.executable]
        trial = [*interpreter, "-c", "pass"] if not {"-m", "-c"} & set(interpreter) else [interpreter[0], "--version"]
        nsys = installation.command(self.options.nsys)
        return (nsys, "profile", *self._rendered(never), *self.options.extra_args, *trial)

    def expects(self, assignment: Assignment, directory: str) -> list[Expectation]:
        output = self.output(assignment.target, directory)
        pattern, raw = nsys_files.pattern(output), nsys_files.pattern(output, RAW)
        if self.trigger_of(assignment) not in TRIGGERS:
            return [Expectation(pattern, 1, "process_exit", raw)]
        exact = assignment.count.exact
        return [Expectation(pattern, exact or None, "last_window" if exact else "process_exit", raw)]

    # --- in the worker ----------------------------------------------------------------------------------------------

    def attach(self, context: ToolContext) -> None:
        super().attach(context)
        self._session = installation.session_here()
        if self._session is None:
            raise not_started_under("nsys")
        # what nsys waits for was settled at launch, when it may not have been known whether there is a device
        self._trigger = os.environ.get(TRIGGER_ENV) or self.trigger_of(context.assignment)
        self._output = os.environ.get(OUTPUT_ENV) or self.output(context.target, context.directory)
        told = os.environ.get(CAPTURES_ENV)
        self._exact = (int(told) if told.isdecimal() else None) if told else context.assignment.count.exact
        self._settle_trigger(context)
        if os.environ.get(LAUNCH_ENV) == "shared" and self._trigger in TRIGGERS:
            directory = os.path.dirname(nsys_files.expand(self._output, os.getpid(), os.environ))
            self._turns = Turns(directory, self._session, context.say)
        if self._trigger == "range" and (silent := self._silent()):
            raise CaptureError(f"the window is an NVTX range, and {silent}; no window would open")
        self._use_ranges(context)

    def _use_ranges(self, context: ToolContext) -> None:
        """Ranges go to NVTX, and this process's children are left alone unless they are to be followed."""
        self._ranges = context.backend if isinstance(context.backend, CudaBackend) else CudaBackend()
        silent = self._silent()
        if silent and "nvtx" in self.options.traces():
            context.say(f"nsys: no ranges in the reports: {silent}")
        self._hides = self.options.children != "follow"
        if self._hides:
            leave_children_alone()
            hide_cuda_injection(at_once=context.target.has_devices is False)

    def _settle_trigger(self, context: ToolContext) -> None:
        """``cudaProfilerApi`` never fires in a process without a device, so such a process cannot open a window by itself."""
        if self._trigger != "api" or context.target.has_devices is not False or vendor.visible_devices():
            return  # where nvtx is missing the session's backend is another one, which lists no device
        if os.environ.get(LAUNCH_ENV) == "shared":
            self._trigger = "none"
            context.say(
                "nsys: no device in this process, so its windows are recorded only while one of a process with a device is open"
            )
            return
        raise CaptureError(
            "nsys waits for cudaProfilerApi here, and this process sees no device, so no window would open; "
            "set tools.nsys.capture-range to nvtx for it, or let it see its device"
        )

    @staticmethod
    def _silent() -> str:
        """Why NVTX ranges of this process would be recorded nowhere; empty when they are recorded."""
        try:
            recorded = domains.recorded(DOMAIN)
        except ImportError as error:
            return str(error)
        silent = "nvtx hands out domains that record nothing (NVTX_DISABLE is set, or no tool listens)"
        return "" if recorded else silent

    def emitter(self, backend: Backend) -> Emitter:
        return self._ranges or backend

    def open(self, window: WindowInfo) -> None:
        if self.context is None or self._ranges is None:
            raise CaptureError("tool nsys was not attached to this session")
        exact = self._exact
        if self._trigger in TRIGGERS and exact and len(self._opened) >= exact:
            raise CaptureError(
                f"nsys was told to expect {exact} capture(s) and has taken them; it would ignore this one"
            )
        if self._finished:
            raise CaptureError("nsys has ended its session for this process")
        if self._turns is None:
            self._start(self._ranges)
        else:
            what = nsys_files.stretch_of(window)
            self._seen[what] += 1
            self._turns.open(f"{what} {self._seen[what]}", window.id, functools.partial(self._start, self._ranges))
        self._begin_mark()
        self._opened.append(window)
        if self._hides:
            hide_cuda_injection()

    def _start(self, ranges: Backend) -> None:
        if self._trigger == "api":
            ranges.capture_start()
        elif self._trigger == "range":
            self._handle = _window_range()

    def _stop(self, ranges: Backend) -> None:
        if self._trigger == "api":
            ranges.capture_stop()
        elif self._trigger == "range":
            domains.domain(DOMAIN).end_range(self._handle)
            self._handle = None

    def _begin_mark(self) -> None:
        """A report begins and ends with its first and last event; the window does not. Where the range is the trigger call it is
        there already, and a second one would be another trigger."""
        if self._trigger != "range" and "nvtx" in self.options.traces() and not self._silent():
            self._mark = _window_range()

    def _end_mark(self) -> None:
        if self._mark is not None:
            domains.domain(DOMAIN).end_range(self._mark)
            self._mark = None

    def close(self, window: WindowInfo) -> list[ArtifactFile]:
        if self._ranges is None:
            return []
        self._end_mark()
        if self._turns is None:
            self._stop(self._ranges)
        else:
            self._turns.close(functools.partial(self._stop, self._ranges))
        if self._trigger in TRIGGERS and self.context is not None and len(self._opened) == self._exact:
            self._finished = True
            return self._collect(self.context)
        return []

    def finalise(self, reason: str) -> list[ArtifactFile]:
        """Have nsys write the windows it holds back; only this process's own session is ended.

        One that other selected processes share goes on until the command ends, and whoever started that collects.
        """
        if self._turns is not None:
            self._turns.leave()
        if self._finished or not self._opened or self.context is None:
            return []
        self._finished = True
        if os.environ.get(LAUNCH_ENV) == "shared":
            return []
        nsys = installation.find(self.options.nsys)
        if nsys is None:
            self.context.say("nsys: reports will be written when the process ends (nsys itself is not on PATH here)")
            return []
        try:
            done = installation.run([nsys, "stop", f"--session={self._session}"], STOP_TIMEOUT)
        except (OSError, subprocess.TimeoutExpired) as error:
            self.context.say(f"nsys: reports will be written when the process ends ({error})")
            return []
        if done.returncode != 0:
            self.context.say(
                f"nsys: reports will be written when the process ends (nsys stop: {installation.last_line(done)})"
            )
            return []
        return self._collect(self.context)

    def _collect(self, context: ToolContext) -> list[ArtifactFile]:
        """This process's files as they are on disk now; raw data is converted where an importer is here."""
        files = nsys_files.files_of(self._output, os.environ)
        if not files:
            context.say(f"nsys wrote no report as {self._output}; was this nsys started with another output?")
        for path in [path for path in files if path.endswith(RAW) and path[: -len(RAW)] + REPORT not in files]:
            try:
                files.append(installation.convert(path))
            except ReadError as error:
                context.say(f"nsys left raw data and no report: {error}")
        return nsys_files.match_files(files, self._opened, self.name)

    # --- afterwards -------------------------------------------------------------------------------------------------

    def match(self, files: Sequence[str], windows: Sequence[WindowInfo]) -> list[ArtifactFile]:
        return nsys_files.match_files(files, windows, self.name)

    @classmethod
    def can_read(cls, path: str) -> bool:
        from accelprof_cuda.reader import can_read

        return can_read(path)

    def read(self, path: str) -> Trace:
        from accelprof_cuda.reader import read

        return read(path)


def leave_children_alone() -> None:
    """Take nsys's injection out of the environment that child processes inherit; this process has it loaded already.

    NVTX copies inside libraries that are used later in this process (NCCL's) find no tool then; torch's is woken first.
    What CUDA itself reads when it starts stays until it has started.
    """
    cuda = vendor.torch_cuda()
    if cuda is not None:
        cuda.nvtx.mark("accelprof")
    rest = installation.other_preloads(os.environ)
    os.environ.pop(installation.PRELOAD_ENV, None)
    if rest:
        os.environ[installation.PRELOAD_ENV] = rest
    domains.keep_injected()
    os.environ.pop(domains.INJECTION_ENV, None)


def hide_cuda_injection(at_once: bool = False) -> None:
    """Once CUDA has started here (or never will, ``at_once``), child processes that use it need not be recorded."""
    if installation.CUDA_INJECTION_ENV in os.environ and (at_once or vendor.cuda_in_use()):
        os.environ.pop(installation.CUDA_INJECTION_ENV)
