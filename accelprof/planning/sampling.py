"""Schedules as the plan sees them: from the configuration's words to calls, how many windows, and what cannot go together.

Pure functions; counting at run time is in :mod:`accelprof.session.triggers.schedules`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from accelprof.config.model import Schedule
from accelprof.contracts.targets import CaptureCount, ScheduleSpec, Target
from accelprof.errors import ConfigError, Problem
from accelprof.numberset import NumberSet


def to_spec(schedule: Schedule) -> ScheduleSpec:
    """``start``/``stop`` and token windows become wait and active: a call of a decode phase yields one token a sequence."""
    wait, warmup, active = schedule.wait, schedule.warmup, schedule.active
    first, end = (
        (schedule.start, schedule.stop) if schedule.start is not None else (schedule.token_start, schedule.token_end)
    )
    if first is not None and end is not None:
        # a warm-up longer than what comes before is cut, so that the first call to record stays where it was asked for
        warmup = min(warmup, first)
        wait, active = first - warmup, end - first
    return ScheduleSpec(
        schedule.phase, wait, warmup, active, schedule.repeat, schedule.skip_first, schedule.per, schedule.keep_others
    )


def scheduled_captures(schedules: Sequence[ScheduleSpec], mode: str, steps: NumberSet) -> CaptureCount:
    """Windows that schedules make when every loop is long enough; unknown when that depends on the run."""
    total = 0
    for spec in schedules:
        if spec.repeat == 0 or spec.per not in ("process", "step") or (spec.per == "step" and mode != "steps"):
            return CaptureCount(None)
        total += spec.repeat * (len(steps) if spec.per == "step" else 1)
    return CaptureCount(total)


def facts_fit(when: Mapping[str, Any], target: Target, role: str | None) -> bool:
    """Whether the ``role``, ``group`` and ``rank`` among the facts of an instrument hold; attributes are not asked here.

    A value is one name (patterns work), number or number set, or a list of which one must hold.
    """
    roles = target.roles if role is None else (role,)
    for fact, have in (("role", roles), ("group", (target.group,))):
        if fact in when:
            wanted = when[fact] if isinstance(when[fact], (list, tuple)) else [when[fact]]
            if not any(fnmatchcase(name, str(pattern)) for name in have for pattern in wanted):
                return False
    if "rank" in when and when["rank"] != "all":
        return target.rank is not None and target.rank in NumberSet.parse(when["rank"])
    return True


def check_schedules(path: str, schedules: Sequence[ScheduleSpec]) -> None:
    """Refuse pairs whose windows would certainly be open at the same time in one process.

    Raises:
        ConfigError: names both, and why.
    """
    for spec in schedules:
        if spec.per == spec.phase:
            raise ConfigError(
                Problem(
                    f"{path}.schedule",
                    f"{spec.phase!r} is counted per call of itself",
                    value=spec.per,
                    allowed="process, step, or the name of an enclosing phase",
                )
            )
    for index, one in enumerate(schedules):
        for other in schedules[index + 1 :]:
            reason = _overlap(one, other) or _overlap(other, one)
            if reason:
                raise ConfigError(
                    Problem(
                        f"{path}.schedule",
                        f"the schedules on {one.phase!r} and {other.phase!r} cannot both have a window in one process: {reason}",
                        mend="keep one of them, or move one to another group",
                    )
                )


def _overlap(one: ScheduleSpec, other: ScheduleSpec) -> str:
    """Why the window of ``other`` always falls into one of ``one``; empty where that is not certain."""
    if one.phase == other.phase and one.per == other.per:
        shared = sorted(_recorded(one, 10_000) & _recorded(other, 10_000))
        return f"both record call {shared[0]} (counted from 0)" if shared else ""
    if other.per == one.phase:
        return f"{other.phase!r} is counted in every {one.phase!r}, and calls of that are recorded as a whole"
    return ""


def _recorded(spec: ScheduleSpec, limit: int) -> set[int]:
    """Numbers of the calls that are recorded, those below ``limit``."""
    turns = spec.repeat or limit // spec.cycle + 1
    numbers: set[int] = set()
    for turn in range(turns):
        first = spec.first + turn * spec.cycle
        if first >= limit:
            break
        numbers.update(range(first, min(first + spec.active, limit)))
    return numbers


def schedule_notes(schedules: Sequence[ScheduleSpec], mode: str, discrete: bool) -> Iterable[str]:
    if schedules and discrete and not any(spec.keep_others for spec in schedules):
        yield "discrete has no effect here: the windows are those of the schedule"
    if schedules and mode == "process":
        yield "steps: process has no window of its own here: the windows are those of the schedule"
    for spec in schedules:
        if spec.keep_others and discrete and spec.per in ("process", "step"):
            yield (
                f"schedule on {spec.phase}: keep_others with discrete needs per: the phase that {spec.phase!r} runs in; "
                "the calls to record lie in the windows of whatever phase encloses them"
            )
        elif spec.keep_others and not discrete and spec.first:
            yield f"schedule on {spec.phase}: keep_others keeps nothing here, because calls are left out before the first one"
        if not spec.repeat:
            yield f"schedule on {spec.phase}: repeat 0 opens windows without an end; files grow with the length of the run"
