"""Options of nsys that contradict the plan, found on the driver before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    problems: dict[str, Problem] = {}
    for rule in RULES:
        for row in rows:
            problem = rule(arguments, row)
            if problem is not None:
                problems.setdefault(str(problem), problem)
    output = arguments.get("output")
    if output and len(rows) > 1 and not varies(output):
        problem = Problem(
            f"{PATH}.output",
            f"{len(rows)} processes would write to one name, and nsys keeps only the first",
            value=output,
            mend=f"output: {output}-%h-%p, or leave it out",
        )
        problems.setdefault(str(problem), problem)
    return list(problems.values())


def _range(arguments: dict[str, str], row: Triggered) -> Problem | None:
    assignment, trigger = row
    value = arguments.get("capture-range")
    if value is None or trigger == "none" or assignment.mode == "process":
        return None
    path = f"{PATH}.capture-range"
    if value not in ("cudaProfilerApi", "nvtx"):
        return Problem(
            path,
            "the capture range is the trigger call that opens a window; with this value no window can be opened or ended",
            value=value,
            allowed="cudaProfilerApi, nvtx",
            mend="leave it out, or list no steps and set steps: process",
        )
    if value == "cudaProfilerApi" and assignment.target.has_devices is False:
        return Problem(
            path,
            f"{assignment.target.label} has no device, so cudaProfilerApi never fires there",
            value=value,
            allowed="nvtx",
            mend="leave it out; each process then gets the trigger call that works there",
        )
    return None


def _range_end(arguments: dict[str, str], row: Triggered) -> Problem | None:
    assignment, trigger = row
    value = arguments.get("capture-range-end")
    if value is None:
        return None
    path, exact = f"{PATH}.capture-range-end", assignment.count.exact
    if trigger == "own":
        return None  # how often the user's range comes is the user's to know
    if trigger == "none":
        return Problem(
            path, "the whole process is one capture, so no range ends", value=value, mend="leave it out, or list steps"
        )
    kind, _, number = value.partition(":")
    right = f"repeat:{exact}" if exact else "repeat"
    mend = f"capture-range-end: {right}, or leave it out"
    allowed = f"{right}, or {right.replace('repeat', 'repeat-shutdown')}" if exact else right
    if kind not in ("none", "stop", "stop-shutdown", "repeat", "repeat-shutdown") or (number and not number.isdigit()):
        return Problem(path, "nsys does not know this value", value=value, allowed=allowed, mend=mend)
    if kind == "none":
        return Problem(
            path, "a capture would go on after its window has ended", value=value, allowed=allowed, mend=mend
        )
    if kind.startswith("stop") and exact != 1:
        many = f"{exact} windows" if exact else "an unknown number of windows"
        return Problem(
            path,
            f"nsys would keep the first of {many} and ignore the others ({assignment.target.label})",
            value=value,
            allowed=allowed,
            mend=mend,
        )
    if number and exact and int(number) != exact:
        effect = "lose the later ones" if int(number) < exact else "write nothing before the process ends"
        return Problem(
            path,
            f"the plan has {exact} window(s) for {assignment.target.label}; nsys would {effect}",
            value=value,
            allowed=allowed,
            mend=mend,
        )
    if kind == "repeat-shutdown" and not exact:
        return Problem(path, "the number of windows is not known beforehand", value=value, allowed=allowed, mend=mend)
    return None


def _kill(arguments: dict[str, str], row: Triggered) -> Problem | None:
    value = arguments.get("kill")
    if value in (None, "none"):
        return None
    return Problem(
        f"{PATH}.kill",
        "nsys would end the worker with its last capture",
        value=value,
        allowed="none",
        mend="leave it out",
    )


def _timing(arguments: dict[str, str], row: Triggered) -> Problem | None:
    _, trigger = row
    for name in OWN_TIMING:
        if name in arguments and trigger not in ("none", "own"):
            return Problem(
                f"{PATH}.{name}",
                "nsys would start or end by its own clock, and windows of the plan would be missing",
                value=arguments[name],
                mend="leave it out, or set steps: process",
            )
    return None


def _domain(arguments: dict[str, str], row: Triggered) -> Problem | None:
    assignment, trigger = row
    own = arguments.get("nvtx-capture")
    if own is not None and trigger in ("api", "range") and own != "window@accelprof":
        return Problem(
            f"{PATH}.nvtx-capture",
            "the NVTX range that opens a window is accelprof's own",
            value=own,
            allowed="window@accelprof",
            mend="leave it out, or list no steps and set steps: process; then a range of yours begins the capture",
        )
    words = {word.strip() for word in arguments.get("trace", "").split(",")}
    if trigger in ("range", "own") and "nvtx" not in words:
        return Problem(
            f"{PATH}.trace",
            f"what begins the capture of {assignment.target.label} is an NVTX range, and nvtx is not traced",
            value=arguments.get("trace"),
            mend=f"trace: {','.join(sorted(words - {''} | {'nvtx'}))}",
        )
    return None


RULES: tuple[Callable[[dict[str, str], Triggered], Problem | None], ...] = (_range, _range_end, _kill, _timing, _domain)
