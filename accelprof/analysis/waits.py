"""Stragglers, critical paths and steps of a whole run: the leaves of all workers on the driver's clock, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from accelprof.analysis.critical import Leaf, Step, critical_path, steps_of, stragglers
from accelprof.analysis.drift import drifts, outliers
from accelprof.analysis.phases import MAX_STRETCHES, WorkerTimeline
from accelprof.analysis.run import Run, absent_ranks
from accelprof.analysis.seconds import COLLECTIVE

#: with more leaves than this in a run who waited for whom is not worked out: a leaf takes about 200 bytes
MAX_LEAVES = 2_000_000


@dataclass
class Waits:
    """Rows as ``accelprof report --json`` has them; ``of``: the steps they were made of; ``notices``: what is not in them."""

    stragglers: list[dict[str, Any]] = field(default_factory=list)
    critical_path: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    of: list[Step] = field(default_factory=list)
    outliers: list[dict[str, Any]] = field(default_factory=list)
    drift: list[dict[str, Any]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


def waits_of(run: Run, timelines: Sequence[WorkerTimeline]) -> Waits:
    """See the module. Windows without a step (schedules, on demand) are left out."""
    found = Waits(of=run_steps(run, timelines))
    found.notices.extend(_left_out(timelines))
    found.notices.extend(_apart(found.of))
    for step in found.of:
        path = critical_path(step)
        found.stragglers.extend(stragglers(step))
        found.critical_path.append({"step": step.name, "wall_ns": step.wall_ns, "segments": path})
    found.notices.extend(_not_known(run, found, timelines))
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
    waiting = {kind[0] for timeline in timelines for kind in timeline.stretches.kinds if kind[1] == COLLECTIVE}
    found.outliers, found.drift = outliers(timed, waiting), drifts(timed)
    return found


def not_on_the_path(rows: Sequence[Mapping[str, Any]], paths: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What a reader of the critical paths must know of collectives on the device, ``rows`` of stragglers there."""
    held = {row["step"] for row in rows if row["waited_ns"] > 0}
    steps = [str(path["step"]) for path in paths if path["step"] in held and path["segments"]]
    if steps:
        more = f" and {len(steps) - 5} more" if len(steps) > 5 else ""
        yield (
            f"collectives on the device held ranks together in step {', '.join(steps[:5])}{more}: the critical path and whatif "
            "follow the host's phases alone"
        )


def run_steps(run: Run, timelines: Sequence[WorkerTimeline]) -> list[Step]:
    """The steps that a run has windows of, with the leaves of all workers on the driver's clock."""
    leaves: list[Leaf] = []
    few = _count(timelines) <= MAX_LEAVES
    windows: list[tuple[tuple[int, ...], int, int]] = []
    worst, compared = 0, not _hosts_apart(run, timelines)
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
            for row in (timeline.stretches if few else ())
        ]  # fmt: skip
    found = steps_of(leaves, windows, worst)
    if not compared:
        for step in found:
            step.error_ns = max(step.error_ns, step.wall_ns)  # nothing is known but that it was the same step
    return found


def _hosts_apart(run: Run, timelines: Sequence[WorkerTimeline]) -> list[str]:
    """Hosts of workers, where there are several and the clock of one was never compared with the driver's."""
    hosts = {str(timeline.worker.host) for timeline in timelines if timeline.windows}
    unknown = any(run.offset_ns(timeline.worker)[1] is None for timeline in timelines if timeline.windows)
    return sorted(hosts) if len(hosts) > 1 and unknown else []


def _not_known(run: Run, found: Waits, timelines: Sequence[WorkerTimeline]) -> Iterator[str]:
    """What makes the rows of waiting and of the critical path less than certain."""
    hosts = _hosts_apart(run, timelines)
    if hosts:
        yield (
            f"the clocks of {', '.join(hosts[:5])}{' …' if len(hosts) > 5 else ''} were not compared, so who waited for whom, for how "
            "long, and the critical path over several hosts are not known"
        )
    groups = {str(row["group"]) for row in found.stragglers if row.get("on") == "host"}
    recorded = [run.records.targets[t.worker.key] for t in timelines if t.worker.key in run.records.targets]
    for group, there, size, absent in absent_ranks(recorded):
        if group in groups:
            yield (
                f"{group}: {there} of {size} ranks are recorded (not {absent}), so whom the others waited for in a collective may be "
                "one of those that are not"
            )


def _apart(steps: Sequence[Step]) -> Iterator[str]:
    """The steps whose workers had their windows at different times, as workers do that never wait for each other."""
    apart = [step for step in steps if step.apart_ns > step.overhead_ns]
    if apart:
        more = f" and {len(apart) - 5} more" if len(apart) > 5 else ""
        share = max(step.apart_ns / step.wall_ns for step in apart)
        yield (
            f"the workers' windows of step {', '.join(str(step.name) for step in apart[:5])}{more} do not overlap: up to "
            f"{share:.0%} of its length lies between them and is outside every phase on its critical path, though nothing that "
            "was recorded joins the workers"
        )


def _count(timelines: Sequence[WorkerTimeline]) -> int:
    return sum(len(timeline.stretches) for timeline in timelines)


def _left_out(timelines: Sequence[WorkerTimeline]) -> Iterator[str]:
    """What is not known of who waited for whom because there is too much of it."""
    count = _count(timelines)
    if count > MAX_LEAVES:
        yield (
            f"who waited for whom is not worked out: the windows have {count:,} stretches of phases, more than "
            f"{MAX_LEAVES:,}; record fewer steps or fewer phases"
        )
    lost = [timeline.worker.label for timeline in timelines if timeline.stretches_left_out]
    if lost:
        more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
        yield (
            f"who waited for whom is worked out without {', '.join(lost[:5])}{more}: more than {MAX_STRETCHES:,} stretches of "
            "phases in the windows"
        )
