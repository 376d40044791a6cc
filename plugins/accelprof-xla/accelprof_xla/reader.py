"""Reader of ``*.xplane.pb`` through ``jax.profiler.ProfileData``: planes hold lines, lines hold events.

On TPU and GPU device work has planes of its own. On GPUs it has the number of the driver's call that launched it; the calls stand on
the threads that made them, some under the name of what they launch. On the CPU it runs on threads of the host's plane, where an operation of a
compiled program carries ``hlo_op``, its program's name and the number of the run. The launch on several devices at once has that
number too. That on one device has none, but runs of one program are numbered in the order of their launches, and a launch lies inside the call of the jitted
function that the program is named after: so the k-th run of a program is its k-th launch.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from accelprof.contracts.spans import FURTHEST_NS, UNKNOWN, Clock, Kind, Mark, Span, Trace
from accelprof.errors import ReadError
from accelprof.reading.kernels import kernel_kind
from accelprof.reading.numbers import identity, whole_number
from accelprof.texts import unquoted
from accelprof_xla.backend import KEY

HOST, ENVIRONMENT = "/host:CPU", "Task Environment"
_DEVICE = re.compile(r"^/device:(?:TPU|GPU|CUSTOM):(.+)$")
#: lines of device planes whose events are work; the others show the same again by step, module or name scope
_WORK = re.compile(r"^(?:Stream #|XLA Ops$|Async XLA Ops$)")
#: HLO's own names, and those that operations have from JAX's functions
_COLLECTIVE = re.compile(
    r"^(?:all[-_](?:reduce|gather|to[-_]all)|reduce[-_]scatter|collective-|send|recv|psum|pmin|pmax|pmean|ppermute|pshuffle)"
)
_COPY = re.compile(r"^(?:Memcpy|copy-start|copy-done|infeed|outfeed)")
_WAIT = re.compile(r"(?:BlockHostUntilReady|::Await$|BlockUntilReady|StreamExecutor::BlockHost)")
_JIT = re.compile(r"^PjitFunction\((.*)\)$")
_LAUNCH = re.compile(r"LoadedExecutable::ExecuteHelperOnSingleDevice$|LoadedExecutable::Execute$")
_ON_SEVERAL = re.compile(r"LoadedExecutable::Execute \(")
#: what the driver's calls and the work that they launched have in common
_NUMBER = "correlation_id"
Event = tuple[str, int, int, dict[str, Any]]
#: start, end, line, program, number of the run where the launch has it
Launch = tuple[int, int, int, str, int | str | None]


def read_xplane(path: str, files: Sequence[str], tool: str = "jax") -> Trace:
    """Spans of the files of one window, one a host; of several hosts each has processes and devices of its own.

    Raises:
        ReadError: jax is not installed here, or a file is none of its own.
    """
    try:
        from jax.profiler import ProfileData
    except ImportError as error:
        raise ReadError(path, f"reading it needs jax ({error}); pip install 'accelprof-xla[jax]'") from None
    trace = Trace(path, tool, Clock.EPOCH)
    for file in files:
        try:
            planes = list(ProfileData.from_file(file).planes)
        except Exception as error:  # noqa: BLE001 - whatever JAX's parser raises for bytes that are none of its own
            raise ReadError(file, f"no xplane file: {' '.join(str(error).split())[:200]}") from None
        if planes and not any(plane.name.startswith("/") or plane.name == ENVIRONMENT for plane in planes):
            raise ReadError(file, "no xplane file: none of its planes is of a host or device")
        host = os.path.basename(file).removesuffix(".xplane.pb")
        _Reading(trace, planes, f"{host}: " if len(files) > 1 else "").read()
    if not len(trace):
        trace.problems.append("the file holds no device work and no range")
    return trace


class _Reading:
    def __init__(self, trace: Trace, planes: list[Any], on: str) -> None:
        self.trace, self.planes, self.on = trace, planes, on
        facts = next((dict(plane.stats) for plane in planes if plane.name == ENVIRONMENT), {})
        start = identity(facts.get("profile_start_time"))
        self.base = start if isinstance(start, int) and start < FURTHEST_NS else 0
        if not self.base:
            trace.clock = Clock.RELATIVE
            trace.problems.append("the file does not say when it began; its times count from there")
        host = next((dict(plane.stats) for plane in planes if plane.name == "/host:metadata"), {})
        self.pid = self._of_host(identity(host.get("process_id", 0)))
        #: work of devices' planes has the numbers of calls; work on the host says its device
        self.numbered, self.placed = (self._has(key) for key in (_NUMBER, "device_ordinal"))
        trace.metadata.update({name: host[name] for name in ("jax_version", "jaxlib_version") if name in host})

    def _of_host(self, number: int | str) -> int | str:
        """A process, device or call, with its host where the files are of several, which have the same numbers."""
        return f"{self.on}{number}" if self.on and number != UNKNOWN else number

    def _has(self, key: str) -> bool:
        return any(key in dict(event.stats) for plane in self.planes for line in plane.lines for event in line.events)

    def read(self) -> None:
        for plane in self.planes:
            device = _DEVICE.match(plane.name)
            if device:
                number = self._of_host(whole_number(device[1]))
                for line in plane.lines:
                    self._device_line(line, number)
            elif plane.name == HOST:
                self._host(plane)

    def _device_line(self, line: Any, device: int | str) -> None:
        work = _WORK.match(line.name) is not None
        for name, start, end, stats in self._events(line):
            kind = _kind(name) if work else Kind.DEVICE_ANNOTATION
            args = {**stats, "correlation": self._of_host(identity(stats.get(_NUMBER)))} if self.numbered else stats
            self.trace.spans.append(Span(name, kind, start, end, self.pid, device=device, stream=line.name, args=args))

    def _host(self, plane: Any) -> None:
        lines = [(line.name, list(self._events(line))) for line in plane.lines]
        launches = _Launches([events for _, events in lines])
        names = Counter(name for name, _ in lines)
        # Python's threads have the name of the process, all of them
        threads = [f"{name}/{number}" if names[name] > 1 else name for number, (name, _) in enumerate(lines)]
        for tid, (_, events) in zip(threads, lines, strict=True):
            for name, start, end, stats in _once(events):
                if KEY in stats and stats[KEY] == "mark":
                    self.trace.marks.append(Mark(name, start, self.pid, tid))
                elif "hlo_op" in stats:
                    self._operation(name, start, end, stats, launches, tid)
                elif _NUMBER in stats:
                    args = {**stats, "correlation": self._of_host(identity(stats[_NUMBER]))}
                    self.trace.spans.append(Span(name, Kind.RUNTIME, start, end, self.pid, tid, args=args))
                elif (kind := _host_kind(name, stats)) is not None:
                    label = f"{name}#{stats['step_num']}" if kind is Kind.STEP else name
                    self.trace.spans.append(Span(label, kind, start, end, self.pid, tid, args=stats))
        for at, end, line, name, run in launches.all if launches.runs else ():  # on the thread that made them
            args = {"correlation": UNKNOWN if run == UNKNOWN else self._of_host(f"{line}:{at}")}
            self.trace.spans.append(Span(name, Kind.RUNTIME, at, end, self.pid, threads[line], args=args))

    def _operation(self, name: str, start: int, end: int, stats: dict[str, Any], launches: _Launches, tid: str) -> None:
        launched = launches.of(stats)
        args = stats if launched is None else {**stats, "correlation": self._of_host(launched)}
        device = self._of_host(identity(stats.get("device_ordinal", None if self.placed else 0)))
        self.trace.spans.append(Span(name, _kind(name), start, end, self.pid, device=device, stream=tid, args=args))

    def _events(self, line: Any) -> Iterator[Event]:
        for event in line.events:
            if event.start_ns < 0:
                self.trace.completeness.leave_out("start before the file's own")
                continue
            start = self.base + round(event.start_ns)
            stats = dict(event.stats)
            name = unquoted(event.name) if KEY in stats else event.name
            yield name, start, start + round(event.duration_ns), stats


def _once(events: list[Event]) -> Iterator[Event]:
    """Events of a thread, in the order of their beginnings. JAX notes a call of a jitted function twice, the second directly inside
    the first: that one is left out."""
    around: list[tuple[int, str]] = []
    for event in sorted(events, key=lambda event: (event[1], -event[2])):
        name, start, end, _ = event
        while around and around[-1][0] <= start:
            around.pop()
        if around and around[-1][1] == name and _JIT.match(name):
            around[-1] = (around[-1][0], "")  # a further one inside is a call of its own
            continue
        around.append((end, name))
        yield event


class _Launches:
    """Launches of compiled programs, and which of them a run goes back to."""

    def __init__(self, lines: list[list[Event]]) -> None:
        #: in the order of time
        self.all: list[Launch] = []
        by_program: dict[str, list[str]] = defaultdict(list)
        runs: dict[str, set[int]] = defaultdict(set)
        for number, events in enumerate(lines):
            self.all += _launches(number, events)
            for _, _, _, stats in events:
                of, counted = _run(stats)
                if of != UNKNOWN and isinstance(counted, int):
                    runs[of].add(counted)
        self.all.sort()
        #: whether any work on the host goes back to them
        self.runs = bool(runs)
        self._of: dict[tuple[str, int], str] = {}
        for at, _, line, name, run in self.all:
            program = _plain(name)
            if run == UNKNOWN:
                continue
            if not isinstance(run, int):
                by_program[program].append(f"{line}:{at}")
            else:
                self._of[program, run] = f"{line}:{at}"
                runs[program].discard(run)
        for program, numbers in runs.items():
            if not numbers:
                continue
            launched = by_program[program]
            each = max(1, len(launched) // len(numbers))  # a program on several devices is launched once for each
            launched = launched[::each]
            # what was launched before the window has runs in front that no launch is seen of; fewer launches than that are not told apart
            if len(launched) <= len(numbers):
                ordered = sorted(numbers)[len(numbers) - len(launched) :]
                self._of.update(((program, number), launch) for number, launch in zip(ordered, launched, strict=True))

    def of(self, stats: dict[str, Any]) -> str | None:
        """The correlation of the launch that an operation's run goes back to; ``None`` where it was not recorded."""
        program, run = _run(stats)
        return self._of.get((program, run)) if isinstance(run, int) and program != UNKNOWN else UNKNOWN


def _launches(number: int, events: list[Event]) -> Iterator[Launch]:
    """Launches of one thread, with the program's own name, or that of the jitted function that each lies in (the innermost)."""
    around: list[tuple[int, str]] = []
    for name, start, end, stats in sorted(events, key=lambda event: (event[1], -event[2])):
        while around and around[-1][0] <= start:
            around.pop()
        jitted = _JIT.match(name)
        if jitted:
            around.append((end, jitted[1]))
        elif _ON_SEVERAL.search(name) and "run_id" in stats:
            yield start, end, number, str(stats.get("name", "")), _number(stats["run_id"])
        elif _LAUNCH.search(name) and around:
            yield start, end, number, f"jit_{around[-1][1]}", None


def _run(stats: dict[str, Any]) -> tuple[str, int | str]:
    """An operation's program and the number of its run; :data:`UNKNOWN` for what it does not say."""
    program = stats.get("hlo_module")
    return (_plain(program) if isinstance(program, str) and program else UNKNOWN), _number(stats.get("run_id"))


def _number(run: object) -> int | str:
    """The number of a run, which may be any whole number."""
    return run if isinstance(run, int) else UNKNOWN


def _plain(name: str) -> str:
    """A function's and a program's name in one spelling: XLA replaces what is no letter (``<lambda>``)."""
    return re.sub(r"[\W_]+", "", name)


def _kind(name: str) -> Kind:
    if name.startswith("Memset"):
        return Kind.MEMSET
    return Kind.COMMUNICATION if _COLLECTIVE.match(name) else Kind.COPY if _COPY.match(name) else kernel_kind(name)


def _host_kind(name: str, stats: dict[str, Any]) -> Kind | None:
    """Kind of an event of the host; ``None`` for what only the runtime's authors read (queues, reference counts)."""
    if "step_num" in stats:
        return Kind.STEP
    if KEY in stats:
        return Kind.RANGE
    if _WAIT.search(name):
        return Kind.SYNC
    if name.startswith(("PjitFunction", "pjit", "$")):
        return Kind.OPERATOR
    return Kind.RUNTIME if "::Execute" in name else None
