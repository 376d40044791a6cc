"""This process as its run knows it: who it is, what the plan gives it, and what is written of it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from accelprof import texts
from accelprof.contracts.targets import Assignment, Target
from accelprof.output.asked import ByStep, none_opened, stretches
from accelprof.output.codes import NEVER_OPENED
from accelprof.output.layout import Layout, seen_text
from accelprof.output.manifest import Journal
from accelprof.output.records import STEPS_SEEN, ProblemRow, TargetRow, WindowRow
from accelprof.processes import Writer
from accelprof.timing import metrics
from accelprof.voice import Voice


class Process:
    """Of one session.

    Args:
        raising: failures are raised where the session is called by name (``on_error: raise``).
        keeps: its journal is a file; else its records stay in memory.

    Attributes:
        assignment: what the plan gives it; wider when further roles join.
        key: the process in journals and manifests: group, rank, host and pid.
        voice: what it says, each word of it a problem in ``journal``.
        ended: its session ended in order.
    """

    def __init__(self, assignment: Assignment, layout: Layout, host: str, raising: bool, keeps: bool) -> None:
        self.assignment, self.layout, self.host, self.pid = assignment, layout, host, os.getpid()
        self.key = layout.key(assignment.target, host, self.pid)
        self.voice = Voice(assignment.target.label, raising, self._write_problem)
        self.journal = Journal(layout.journal(self.key) if keeps else None, self.voice.say)
        self.ended = False
        self._missed: list[str] = []

    @property
    def target(self) -> Target:
        return self.assignment.target

    def widen(self, assignment: Assignment) -> bool:
        """Further roles join; ``False`` when they want something else."""
        one, other = self.assignment, assignment
        if any(
            getattr(one, name) != getattr(other, name) for name in ("tool", "options", "mode", "discrete", "schedules")
        ):
            return False
        self.assignment, self.voice.label = assignment, assignment.target.label
        return True

    def row(self, accelerator: str, steps_seen: Collection[int], windows: int) -> TargetRow:
        """The manifest's ``targets`` row of a process that has opened so many ``windows``."""
        assignment, me, asked = self.assignment, Writer.me(), ByStep.of(self.assignment)
        return replace(
            TargetRow.of(self.key, self.target, self.host, self.pid),
            accelerator=accelerator,
            tool=assignment.tool,
            armed=assignment.armed,
            wanted=_wanted(assignment),
            asked_by=dict(assignment.asked_by),
            steps_seen=list(steps_seen)[:STEPS_SEEN],
            phases_seen=metrics.tags_seen(),
            windows_opened=windows,
            python=sys.version.split()[0],
            tools=list(assignment.tools),
            missed=list(self._missed),
            windows_planned=[(steps[0], steps[-1]) for steps in assignment.windows],
            steps_planned=asked.to_config(),
            merged=asked.merged,
            discrete=not asked.sure,
            stretches_planned=stretches(assignment.schedules),
            ended=self.ended,
            started=me.started,
            space=me.space,
        )

    def handed_over(self, row: TargetRow) -> dict[str, Any]:
        """What a controller takes over, and the row of this process, as plain data."""
        return {
            "key": self.key,
            "journal": self.journal.records,
            "problems": list(self.voice.problems),
            "selected": self.assignment.selected,
            "target": row.to_json(),
        }

    def end(self, steps_seen: Collection[int], windows: Sequence[WindowRow]) -> None:
        """It ends in order: say which windows were asked for and never opened, with the steps and phases that were seen."""
        self.ended = True
        assignment, say = self.assignment, self.voice.say
        if not assignment.armed:
            return
        seen, first = seen_text(steps_seen), min(steps_seen, default=None)
        asked = ByStep.of(assignment)
        earlier = asked.before(first or 0)
        before = ""
        if earlier:
            one = len(earlier) == 1
            before = (
                f"{'step' if one else 'steps'} {texts.listed(earlier, 20)} {'was' if one else 'were'} before the first "
                f"step that this process saw ({first}), as when a training goes on from a checkpoint"
            )
        if windows:
            if before:
                say(f"no window for {before}", level=logging.INFO)
            if text := asked.missed(windows, steps_seen).words:
                say(f"{text}; steps seen: {seen}", level=logging.INFO, code=NEVER_OPENED)
            return
        text = none_opened(list(steps_seen), metrics.tags_seen(), _wanted(assignment), assignment.tool)
        say(f"{text}; {before}" if before else text, code=NEVER_OPENED)

    def _write_problem(self, message: str, code: str) -> None:
        self.journal.add(ProblemRow(target=self.key, message=message, code=code))
        if code == NEVER_OPENED:
            self._missed.append(message)


def _wanted(assignment: Assignment) -> str:
    """What the plan asks of a process, in words."""
    text = f"steps {assignment.steps}" if assignment.mode == "steps" else f"steps: {assignment.mode}"
    if assignment.phases:
        text += f", phases {', '.join(assignment.phases)}"
    if assignment.schedules:
        text += f", schedule on {', '.join(spec.phase for spec in assignment.schedules)}"
    return text
