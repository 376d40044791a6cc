"""Which triggers a plan gives a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accelprof.contracts.targets import Assignment
from accelprof.session.triggers import Trigger
from accelprof.session.triggers.phases import Phases, never
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
    found: list[Trigger] = []
    inside = never
    if assignment.schedules:
        from accelprof.session.triggers.schedules import Schedules

        schedules = Schedules(assignment, captures, course)
        found.append(schedules)
        inside = schedules.inside
    elif assignment.mode == "process":
        found.append(Whole(captures, pending))
    if assignment.by_phase:
        found.append(Phases(assignment, captures, course, inside))
    elif assignment.by_step:
        found.append(Steps(assignment, captures, pending))
    return found
