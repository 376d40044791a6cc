"""What a session says of itself: its row among the targets, what it was to open and did not, and what plug-ins get to see."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from accelprof.output.records import NEVER_OPENED, TargetRow
from accelprof.timing import metrics

if TYPE_CHECKING:
    from accelprof.config.model import Budget
    from accelprof.contracts.targets import Target
    from accelprof.session.session import Session
    from accelprof.session.steptimes import Timings


@dataclass(frozen=True)
class SessionFacts:
    """What hooks get as ``session``: plain facts, as they were when the event came.

    Attributes:
        target: the process as the plan sees it: group, roles, rank, replica, node.
        key: the process in journals and manifests.
        run_dir: directory of the run.
        accelerator: type of the backend in use.
        step: the running step, or ``None``.
        window: id of the open window, or ``None``.
        timings: ``{tag: {"seconds", "count"}}`` of the step that ended last.
    """

    target: Target
    key: str
    host: str
    pid: int
    run_dir: str
    accelerator: str
    selected: bool
    step: int | None
    window: str | None
    timings: Timings = field(repr=False)
    _session: Any = field(repr=False, compare=False, default=None)

    @classmethod
    def of(cls, session: Session) -> SessionFacts:
        window = session.window
        return cls(
            session.target,
            session.key,
            session.host,
            session.pid,
            session.layout.run_dir,
            session.backend.name,
            session.assignment.selected,
            session.step_now,
            None if window is None else window.info.id,
            session.metrics_of_step(),
            session,
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._session, name)
        warnings.warn(
            f"hooks get facts of the session ({', '.join(f for f in self.__dataclass_fields__ if f != '_session')}), not the session; {name} goes with the next release",
            DeprecationWarning,
            stacklevel=2,
        )
        return found


def is_limited(budget: Budget) -> bool:
    """Whether any limit of size is set."""
    return any(limit is not None for limit in (budget.per_window, budget.per_run, budget.free_space))


def target_row(session: Session) -> TargetRow:
    """The manifest's ``targets`` row of a process."""
    assignment, target = session.assignment, session.target
    return TargetRow(
        key=session.key,
        group=target.group,
        roles=list(target.roles),
        rank=target.rank,
        world_size=target.world_size,
        replica=target.replica,
        node=target.node,
        host=session.host,
        pid=session.pid,
        accelerator=session.backend.name,
        tool=assignment.tool,
        armed=assignment.selected and (assignment.mode != "off" or bool(assignment.schedules)),
        wanted=wanted(session),
        asked_by=dict(assignment.asked_by),
        steps_seen=list(session.steps_seen)[:200],
        phases_seen=metrics.tags_seen(),
        windows_opened=len(session.windows),
        python=sys.version.split()[0],
        tools=list(assignment.tools),
    )


def wanted(session: Session) -> str:
    """What the plan asks of a process, in words."""
    assignment = session.assignment
    text = f"steps {assignment.steps}" if assignment.mode == "steps" else f"steps: {assignment.mode}"
    if assignment.phases:
        text += f", phases {', '.join(assignment.phases)}"
    if assignment.schedules:
        text += f", schedule on {', '.join(spec.phase for spec in assignment.schedules)}"
    return text


def say_what_never_opened(session: Session) -> None:
    """Say which windows were asked for and never opened, with the steps and phases that were seen."""
    assignment = session.assignment
    if not assignment.selected or (assignment.mode == "off" and not assignment.schedules):
        return
    seen = steps_text(session.steps_seen)
    if session.windows:
        recorded = {step for row in session.windows for step in row.steps}
        missed = [list(steps) for steps in assignment.windows if recorded.isdisjoint(steps)]
        if missed and not assignment.discrete:
            session.say(f"windows for steps {missed[:20]} never opened; steps seen: {seen}", level=logging.INFO)
        return
    phases = ", ".join(metrics.tags_seen()) or "none"
    text = f"armed, 0 windows opened; steps seen: {seen}; phases seen: {phases}; wanted: {wanted(session)}"
    session.say(text, code=NEVER_OPENED)


def steps_text(seen: Mapping[int, None]) -> str:
    """The announced steps, for messages."""
    if not seen:
        return "none"
    return f"{min(seen)}..{max(seen)}" if len(seen) > 8 else ", ".join(map(str, seen))
