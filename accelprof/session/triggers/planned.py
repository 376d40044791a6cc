"""Which triggers a plan gives a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accelprof.contracts.targets import Assignment
from accelprof.session.triggers import Trigger
from accelprof.session.triggers.phases import Phases
from accelprof.session.triggers.steps import Steps
from accelprof.session.triggers.whole import Whole

if TYPE_CHECKING:
    from accelprof.session.captures import Captures
    from accelprof.session.course import Course
    from accelprof.session.pending import Pending


def planned(assignment: Assignment, captures: Captures, pending: Pending, course: Course) -> list[Trigger]:
    """One for each reason that ``assignment`` has for windows; none where it selects nobody."""
    if not assignment.selected:
        return []
    if assignment.schedules:
        from accelprof.session.triggers.schedules import Schedules

        schedules = Schedules(assignment, captures, course)
        if assignment.discrete and assignment.keeps_others:
            return [schedules, Phases(assignment, captures, course, schedules.inside)]
        if assignment.leads:
            return [schedules, Steps(assignment, captures, pending)]
        return [schedules]
    whole: list[Trigger] = [Whole(captures, pending)] if assignment.mode == "process" else []
    if assignment.discrete:
        return [*whole, Phases(assignment, captures, course)]
    return [*whole, Steps(assignment, captures, pending)]
