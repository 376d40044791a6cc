"""Options of nsys that contradict the plan, found on the driver before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from accelprof.contracts.targets import Assignment
from accelprof.errors import Problem
from accelprof_cuda.nsys_files import varies

#: an assignment and the trigger call it gets (``none``, ``api``, ``range``; ``own`` where a range of the user's begins a capture)
Triggered = tuple[Assignment, str]
#: options that start or end the collection by themselves, beside the windows of the plan
OWN_TIMING = ("delay", "duration", "duration-frames", "start-frame-index", "start-later", "hotkey-capture")
PATH = "tools.nsys"


def check(options: Any, rows: Sequence[Triggered]) -> list[Problem]:
    """Every contradiction once."""
    arguments: dict[str, str] = options.arguments()
    problems = [problem for rule in RULES for row in rows for problem in rule(arguments, row)]
    output = arguments.get("output")
    if output and len(rows) > 1 and not varies(output):
        said = f"{len(rows)} processes would write to one name, and nsys keeps only the first"
        mend = f"output: {output}-%h-%p, or leave it out"
        problems.append(Problem(f"{PATH}.output", said, value=output, mend=mend))
    return list({str(problem): problem for problem in problems}.values())


def _range(arguments: dict[str, str], row: Triggered) -> Iterator[Problem]:
    assignment, trigger = row
    value = arguments.get("capture-range")
    if value is None or trigger == "none" or assignment.mode == "process":
        return
    if value not in ("cudaProfilerApi", "nvtx"):
        said = "the capture range is the trigger call that opens a window; with this value no window can be opened or ended"
        allowed, mend = "cudaProfilerApi, nvtx", "leave it out, or list no steps and set steps: process"
    elif value == "cudaProfilerApi" and assignment.target.has_devices is False:
        said = f"{assignment.target.label} has no device, so cudaProfilerApi never fires there"
        allowed, mend = "nvtx", "leave it out; each process then gets the trigger call that works there"
    else:
        return
    yield Problem(f"{PATH}.capture-range", said, value=value, allowed=allowed, mend=mend)


def _range_end(arguments: dict[str, str], row: Triggered) -> Iterator[Problem]:
    assignment, trigger = row
    value = arguments.get("capture-range-end")
    if value is None or trigger == "own":  # how often the user's range comes is the user's to know
        return
    path, exact = f"{PATH}.capture-range-end", assignment.count.exact
    if trigger == "none":
        said = "the whole process is one capture, so no range ends"
        yield Problem(path, said, value=value, mend="leave it out, or list steps")
        return
    way, _, number = value.partition(":")
    right = f"repeat:{exact}" if exact else "repeat"
    allowed = f"{right}, or {right.replace('repeat', 'repeat-shutdown')}" if exact else right
    if way not in ("none", "stop", "stop-shutdown", "repeat", "repeat-shutdown") or (number and not number.isdigit()):
        said = "nsys does not know this value"
    elif way == "none":
        said = "a capture would go on after its window has ended"
    elif way.startswith("stop") and exact != 1:
        many = f"{exact} windows" if exact else "an unknown number of windows"
        said = f"nsys would keep the first of {many} and ignore the others ({assignment.target.label})"
    elif number and exact and int(number) != exact:
        effect = "lose the later ones" if int(number) < exact else "write nothing before the process ends"
        said = f"the plan has {exact} window(s) for {assignment.target.label}; nsys would {effect}"
    elif way == "repeat-shutdown" and not exact:
        said = "the number of windows is not known beforehand"
    else:
        return
    yield Problem(path, said, value=value, allowed=allowed, mend=f"capture-range-end: {right}, or leave it out")


def _kill(arguments: dict[str, str], row: Triggered) -> Iterator[Problem]:
    value = arguments.get("kill")
    if value not in (None, "none"):
        said = "nsys would end the worker with its last capture"
        yield Problem(f"{PATH}.kill", said, value=value, allowed="none", mend="leave it out")


def _timing(arguments: dict[str, str], row: Triggered) -> Iterator[Problem]:
    _, trigger = row
    for name in OWN_TIMING:
        if name in arguments and trigger not in ("none", "own"):
            said = "nsys would start or end by its own clock, and windows of the plan would be missing"
            mend = "leave it out, or set steps: process"
            yield Problem(f"{PATH}.{name}", said, value=arguments[name], mend=mend)


def _domain(arguments: dict[str, str], row: Triggered) -> Iterator[Problem]:
    assignment, trigger = row
    own, ours = arguments.get("nvtx-capture"), "window@accelprof"
    if own is not None and trigger in ("api", "range") and own != ours:
        said = "the NVTX range that opens a window is accelprof's own"
        mend = "leave it out, or list no steps and set steps: process; then a range of yours begins the capture"
        yield Problem(f"{PATH}.nvtx-capture", said, value=own, allowed=ours, mend=mend)
    words = {word.strip() for word in arguments.get("trace", "").split(",")}
    if trigger in ("range", "own") and "nvtx" not in words:
        said = f"what begins the capture of {assignment.target.label} is an NVTX range, and nvtx is not traced"
        mend = f"trace: {','.join(sorted(words - {''} | {'nvtx'}))}"
        yield Problem(f"{PATH}.trace", said, value=arguments.get("trace"), mend=mend)


RULES: tuple[Callable[[dict[str, str], Triggered], Iterator[Problem]], ...] = (
    _range, _range_end, _kill, _timing, _domain,
)  # fmt: skip
