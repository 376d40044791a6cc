"""What a session says of itself: its row among the targets, and what it was to open and did not."""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from accelprof import texts
from accelprof.output import layout
from accelprof.output.records import NEVER_OPENED, STEPS_SEEN, TargetRow
from accelprof.timing import metrics

if TYPE_CHECKING:
    from accelprof.config.model import Budget
    from accelprof.contracts.targets import Assignment
    from accelprof.output.records import WindowRow
    from accelprof.session.captures import Process
    from accelprof.voice import Voice


def is_limited(budget: Budget) -> bool:
    """Whether any limit of size is set."""
    return any(limit is not None for limit in (budget.per_window, budget.per_run, budget.free_space))


def target_row(
    process: Process,
    assignment: Assignment,
    accelerator: str,
    steps_seen: Collection[int],
    windows: int,
    missed: Sequence[str],
) -> TargetRow:
    """The manifest's ``targets`` row of a process that has opened so many ``windows``; ``missed``: what of its windows did not come."""
    target = process.target
    return replace(
        TargetRow.of(process.key, target, process.host, process.pid),
        accelerator=accelerator,
        tool=assignment.tool,
        armed=assignment.selected and (assignment.mode != "off" or bool(assignment.schedules)),
        wanted=wanted(assignment),
        asked_by=dict(assignment.asked_by),
        steps_seen=list(steps_seen)[:STEPS_SEEN],
        phases_seen=metrics.tags_seen(),
        windows_opened=windows,
        python=sys.version.split()[0],
        tools=list(assignment.tools),
        missed=list(missed),
    )


def wanted(assignment: Assignment) -> str:
    """What the plan asks of a process, in words."""
    text = f"steps {assignment.steps}" if assignment.mode == "steps" else f"steps: {assignment.mode}"
    if assignment.phases:
        text += f", phases {', '.join(assignment.phases)}"
    if assignment.schedules:
        text += f", schedule on {', '.join(spec.phase for spec in assignment.schedules)}"
    return text


def say_what_never_opened(
    voice: Voice, assignment: Assignment, steps_seen: Collection[int], windows: Sequence[WindowRow]
) -> None:
    """Say which windows were asked for and never opened, with the steps and phases that were seen."""
    if not assignment.selected or (assignment.mode == "off" and not assignment.schedules):
        return
    seen, first = layout.seen_text(steps_seen), min(steps_seen, default=None)
    earlier = [step for window in assignment.windows for step in window if first is not None and step < first]
    before = ""
    if earlier:
        one = len(earlier) == 1
        before = (
            f"{'step' if one else 'steps'} {_listed((step,) for step in earlier)} {'was' if one else 'were'} before the first "
            f"step that this process saw ({first}), as when a training goes on from a checkpoint"
        )
    if windows:
        if before:
            voice.say(f"no window for {before}", level=logging.INFO)
        recorded = {step for row in windows for step in row.steps}
        missed = [
            steps
            for steps in assignment.windows
            if recorded.isdisjoint(steps)
            and (first is None or steps[-1] >= first)
            # a step that came may have had none of the phases that make windows
            and not (assignment.discrete and any(step in steps_seen for step in steps))
        ]
        if missed:
            text = f"windows for steps {_listed(missed)} never opened; steps seen: {seen}"
            voice.say(text, level=logging.INFO, code=NEVER_OPENED)
        return
    phases = ", ".join(metrics.tags_seen()) or "none"
    text = f"armed, 0 windows opened; steps seen: {seen}; phases seen: {phases}; wanted: {wanted(assignment)}"
    voice.say(f"{text}; {before}" if before else text, code=NEVER_OPENED)


def _listed(windows: Iterable[Sequence[int]]) -> str:
    """Steps of windows, of very many not all."""
    return texts.listed([layout.steps_text(steps) for steps in windows], 20)
