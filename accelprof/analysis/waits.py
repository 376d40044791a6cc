"""Stragglers, critical paths and steps of a whole run: the leaves of all workers on the driver's clock, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from accelprof.analysis.critical import Leaf, Step, critical_path, steps_of, stragglers
from accelprof.analysis.drift import drifts, outliers
from accelprof.analysis.phases import WorkerTimeline
from accelprof.analysis.run import Run
from accelprof.analysis.seconds import COLLECTIVE


@dataclass
class Waits:
    """Rows as ``accelprof report --json`` has them; ``of``: the steps they were made of."""

    stragglers: list[dict[str, Any]] = field(default_factory=list)
    critical_path: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    of: list[Step] = field(default_factory=list)
    outliers: list[dict[str, Any]] = field(default_factory=list)
    drift: list[dict[str, Any]] = field(default_factory=list)


def waits_of(run: Run, timelines: Sequence[WorkerTimeline]) -> Waits:
    """See the module. Windows without a step (schedules, on demand) are left out."""
    found = Waits(of=run_steps(run, timelines))
    for step in found.of:
        path = critical_path(step)
        found.stragglers.extend(stragglers(step))
        found.critical_path.append({"step": step.name, "wall_ns": step.wall_ns, "segments": path})
    walls = {number: step.wall_ns for step in found.of if len(step.steps) == 1 for number in step.steps}
    rows = run.steps()
    numbers = [row.get("step") for row in rows]
    inside = {
        number for step in found.of for number in step.steps
    }  # and those whose window cannot be read, as the manifest has it
    inside.update(row["step"] for row in rows if row.get("window") is True)
    stated = {row.get("step"): row.get("wall_ns") for row in rows}
    for number in sorted({number for number in (*numbers, *inside) if isinstance(number, int)}):
        wall = stated.get(number)
        if not isinstance(wall, int):
            wall = walls.get(number)
        found.steps.append({"step": number, "wall_ns": wall, "window": number in inside})
    timed = [{**row, "window": row.get("step") in inside} for row in rows]
    waiting = {row.phase for timeline in timelines for row in timeline.stretches if row.category == COLLECTIVE}
    found.outliers, found.drift = outliers(timed, waiting), drifts(timed)
    return found


def run_steps(run: Run, timelines: Sequence[WorkerTimeline]) -> list[Step]:
    """The steps that a run has windows of, with the leaves of all workers on the driver's clock."""
    leaves: list[Leaf] = []
    windows: list[tuple[tuple[int, ...], int, int]] = []
    worst = 0
    for timeline in timelines:
        worker = timeline.worker
        shift, error = run.offset_ns(worker, timeline.windows[0][2] if timeline.windows else None)
        worst = max(worst, error or 0)
        windows += [(steps, start - shift, end - shift) for _, steps, start, end in timeline.windows if steps]
        leaves += [
            Leaf(
                worker.label, worker.group, row.row, row.phase, row.category, row.start_ns - shift, row.end_ns - shift,
                worker.rank, row.around,
            )
            for row in timeline.stretches
        ]  # fmt: skip
    return steps_of(leaves, windows, worst)
