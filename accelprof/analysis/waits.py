"""Stragglers, critical paths and steps of a whole run: the leaves of all workers on the driver's clock, step by step."""

from __future__ import annotations

import heapq
import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from accelprof import texts
from accelprof.analysis.cautions import cautions
from accelprof.analysis.collectives import FileCollectives, device_stragglers
from accelprof.analysis.critical import Leaf, Step, steps_of
from accelprof.analysis.drift import drifts, outliers
from accelprof.analysis.gaps import overhead
from accelprof.analysis.handed import Handed, handed
from accelprof.analysis.joints import MAX_ARRIVALS, Joints, joints_of
from accelprof.analysis.late import stragglers
from accelprof.analysis.phases import MAX_STRETCHES, WorkerTimeline
from accelprof.analysis.recording import of_step
from accelprof.analysis.replay import Graph
from accelprof.analysis.report_rows import (
    CriticalPath,
    Drift,
    Outlier,
    PathSegment,
    SlackRow,
    StepTime,
    Straggler,
    UnseenWait,
)
from accelprof.analysis.run import Run, incomplete_groups
from accelprof.analysis.seconds import COLLECTIVE
from accelprof.analysis.units import duration
from accelprof.analysis.unseen import MEND, Unseen, mark, merged, unseen_waits
from accelprof.contracts.spans import merge_intervals

#: with more leaves than this in a run who waited for whom is not worked out: a leaf takes about 200 bytes
MAX_LEAVES = 2_000_000
#: arrows between workers in the merged timeline; of more, those of the longest waits
MAX_ARROWS = 10_000
#: ranks without a record that are named one by one
NAMED = 8
#: a step whose windows take another time by this share is said
NOTED = 0.05


@dataclass
class Waits:
    """Rows of the report; ``of``: the steps they were made of; ``notices``: what is not in them."""

    stragglers: list[Straggler] = field(default_factory=list)
    critical_path: list[CriticalPath] = field(default_factory=list)
    slack: list[SlackRow] = field(default_factory=list)
    unseen: list[UnseenWait] = field(default_factory=list)
    steps: list[StepTime] = field(default_factory=list)
    of: list[Step] = field(default_factory=list)
    outliers: list[Outlier] = field(default_factory=list)
    drift: list[Drift] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    #: the longest waits of workers for each other
    handed: list[Handed] = field(default_factory=list)
    handed_in_all: int = 0
    #: hosts of the run where there are several and the clock of one was never compared
    apart: list[str] = field(default_factory=list)
    #: how long ranks were in collectives of which others are missing, after the last that is known: waiting or transfer
    without_ns: int = 0


def waits_of(run: Run, timelines: Sequence[WorkerTimeline], files: Sequence[FileCollectives] = ()) -> Waits:
    """See the module; ``files``: the collectives on the device. Windows without a step (schedules, on demand) are left out."""
    joints = joints_of(files)
    found = Waits(of=run_steps(run, timelines), apart=_hosts_apart(run, timelines))
    for step in found.of:
        step.joints, step.loose_ns = joints.found.get(step.steps, []), joints.loose.get(step.steps, 0)
        step.left_out = joints.left_out.get(step.steps, [])
    found.notices.extend(_left_out(timelines))
    found.notices.extend(_apart(found.of))
    rows = run.steps()
    cut = _cut(rows)
    each: list[Unseen] = []
    for step in found.of:
        graph = Graph(step)
        each.extend(here := unseen_waits(graph))
        found.unseen.extend(row for one in here for row in one.rows(step.name))
        found.stragglers.extend(stragglers(graph))
        found.without_ns += step.without_ns
        path, slack = graph.path(), graph.slack_rows()
        mark(here, path, slack)
        segments = [PathSegment(**segment) for segment in path]
        found.critical_path.append(CriticalPath(step.name, step.wall_ns, segments, step.ended))
        found.slack.extend(SlackRow(**row) for row in slack)
        arrows = list(handed(graph))
        found.handed_in_all += len(arrows)
        found.handed = heapq.nlargest(MAX_ARROWS, [*found.handed, *arrows], key=lambda one: one.waited_ns)
    found.notices.extend(_not_known(run, found, timelines))
    found.notices.extend(_not_on_the_path(found.of))
    found.notices.extend(_alone(found.of))
    unseen = merged(each)
    found.notices.extend(map(_unseen, unseen))
    found.notices.extend(_too_many(joints))
    found.notices.extend(cautions(found.of))
    found.stragglers.extend(device_stragglers(files))
    walls = {number: step.wall_ns for step in found.of if len(step.steps) == 1 for number in step.steps}
    numbers = [row.get("step") for row in rows]
    inside = {
        number for step in found.of for number in step.steps
    }  # and those whose window cannot be read, as the manifest has it
    inside.update(row["step"] for row in rows if row.get("window") is True)
    stated = {row.get("step"): row.get("wall_ns") for row in rows}
    recorded = {row.get("step"): of_step(row).recording_ns for row in rows}
    for number in sorted({number for number in (*numbers, *inside) if isinstance(number, int)}):
        wall = stated.get(number)
        if not isinstance(wall, int):
            wall = None if number in cut else walls.get(number)
        found.steps.append(StepTime(number, wall, number in inside, recorded.get(number)))
    found.notices.extend(_not_in_windows(found.of, stated))
    found.notices.extend(_beside(found.steps))
    timed = [
        {**row, "window": row["step"] in inside or of_step(row).is_costly} for row in rows if row["step"] not in cut
    ]
    waiting = {head[0] for timeline in timelines for head in timeline.stretches.heads if head[1] == COLLECTIVE}
    waiting.update(phase for one in unseen for phase in one.phases)
    groups = {worker.label: worker.group for worker in run.workers.values()}
    begins = _begins(found.of)
    found.outliers, found.drift = outliers(timed, waiting, begins, groups), drifts(timed, waiting, begins, groups)
    found.notices.extend(_in_no_phase(found.outliers))
    return found


def _cut(rows: Sequence[Mapping[str, Any]]) -> set[object]:
    """The steps that did not end."""
    return {row["step"] for row in rows if row.get("ended") is False}


def _ranks(run: Run) -> dict[str, list[str]]:
    """The ranks of each group: workers by name, and those that never said that they are there, by number where they are few."""
    found: dict[str, list[str]] = defaultdict(list)
    for worker in sorted(run.workers.values(), key=lambda worker: worker.order):
        if worker.rank is not None and worker.replica is None and worker.engine_rank is None:
            found[worker.group].append(worker.label)
    for group, there, size, absent in incomplete_groups(run.manifest.targets.values()):
        few = size - there <= NAMED
        found[group] += [f"rank {rank}" for rank in absent] if few else [f"{size - there} of {size} ranks ({absent})"]
    return found


def transfers(found: Sequence[Step], shifts: Mapping[str, int]) -> dict[str, list[tuple[int, int]]]:
    """By worker the stretches, on its own clock, in which its calls of collectives no longer waited: all ranks had come. Of those with
    too few ranks that is not known.

    Args:
        shifts: each worker's clock minus the driver's.
    """
    over: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for step in found:
        for one in step.collectives:
            if len(one.calls) < 2 or step.absent[one]:
                continue
            for call, (_, came, _) in one.waits(step.overhead_ns):
                shift = shifts.get(call.worker, 0)
                over[call.worker] += [
                    (max(leaf.start_ns, came) + shift, leaf.end_ns + shift)
                    for leaf in call.leaves
                    if leaf.category == COLLECTIVE and leaf.end_ns > came
                ]
    return over


def not_matched(timelines: Sequence[WorkerTimeline]) -> Iterator[str]:
    """What is not known of collectives of workers that are divided by their phases, in windows of no step."""
    workers = [timeline.worker.label for timeline in timelines if _unmatched(timeline)]
    if workers:
        yield (
            f"collectives of {texts.listed(workers, 3)} lie in windows of no known step (of a schedule, on demand, or of a merged timeline "
            "that does not say it): the ranks' calls were not matched, and all of their time is idle_collective, the transfer too"
        )
    if any(timeline.transfers for timeline in timelines):
        yield "who waited for whom, and the critical path, stand in the report of the run: a merged timeline has no steps"


def _unmatched(timeline: WorkerTimeline) -> bool:
    """Whether a collective lies in a window of no step, of which nothing says when all of its ranks had come."""
    said = merge_intervals(timeline.matched)
    loose = merge_intervals(
        (start, end)
        for _, steps, start, end in timeline.windows
        if not steps and not any(low <= start and end <= high for low, high in _last(said, start + 1))
    )
    return bool(loose) and any(
        row.category == COLLECTIVE and any(end > row.start_ns for _, end in _last(loose, row.end_ns))
        for row in timeline.stretches
    )


def _last(intervals: list[tuple[int, int]], before: int) -> list[tuple[int, int]]:
    """The last of sorted disjoint intervals that begins before a moment, if one does."""
    at = bisect_left(intervals, (before,))
    return intervals[max(at - 1, 0) : at]


def _not_in_windows(found: Sequence[Step], stated: Mapping[object, object]) -> Iterator[str]:
    """The steps that took longer or shorter than their windows, on which the critical path stands."""
    apart = [
        (step, wall)
        for step in found
        if len(step.steps) == 1
        and isinstance(wall := stated.get(step.steps[0]), int)
        and abs(wall - step.wall_ns) > max(step.overhead_ns, NOTED * wall)
    ]
    if apart:
        step, wall = max(apart, key=lambda item: abs(item[1] - item[0].wall_ns))
        names = texts.listed([one.name for one, _ in apart], 5)
        yield (
            f"step {names} took another time than its windows, which the critical path and whatif are of: step {step.name} "
            f"{duration(wall)}, its windows {duration(step.wall_ns)}"
            + (
                " (the rest is before they open, after they close, or on workers without one)"
                if wall > step.wall_ns
                else f" (they opened up to {duration(max(step.late.values(), default=0))} apart, while some were in the step before)"
                if max(step.late.values(), default=0) > step.overhead_ns
                else ""
            )
        )


def _beside(steps: Sequence[StepTime]) -> Iterator[str]:
    """The steps without a window for much of which windows of other steps were being opened or closed."""
    mine = [row for row in steps if row.is_beside]
    if mine:
        row = max(mine, key=lambda row: row.recording_ns or 0)
        names = texts.listed([str(row.step) for row in mine], 5)
        yield (
            f"step {names} ran while windows were being opened or closed, for {duration(row.recording_ns)} of the "
            f"{duration(row.wall_ns)} of step {row.step}: what ranks wait meanwhile is the recording's cost, so such steps count as "
            "steps with a window"
        )


def _begins(found: Sequence[Step]) -> dict[str, int]:
    """How long after its step's beginning each phase began first, in ns, in the first step that has it."""
    begins: dict[str, int] = {}
    for step in found:
        here: dict[str, int] = {}
        for leaf in step.leaves:
            for phase in (leaf.phase, *leaf.around):
                here[phase] = min(here.get(phase, sys.maxsize), leaf.start_ns - step.start_ns)
        begins = {**here, **begins}
    return begins


def _in_no_phase(found: Sequence[Outlier]) -> Iterator[str]:
    """The slow steps of which nothing says why."""
    steps = [row.step for row in found if row.phase is None]
    if steps:
        yield (
            f"step {texts.listed(steps, 5)} took longer than the others in no timed phase: profiling_range records in windows alone; "
            "a timer around a phase (@accelprof.timer) says it of every step"
        )


def _alone(found: Sequence[Step]) -> Iterator[str]:
    """The longest calls of collectives in which no other rank was recorded, in runs that have other ranks."""
    calls = [
        (call.ns, call.phase, call.worker, step.name)
        for step in found
        if len({leaf.worker for leaf in step.leaves}) > 1
        for call in step.alone
    ]
    if calls:
        ns, phase, worker, name = max(calls, key=lambda call: call[0])
        more = f", and {len(calls) - 1} more such calls" if len(calls) > 1 else ""
        yield (
            f"{phase} on {worker} (step {name}, {duration(ns)}) is a collective in which no other rank was recorded{more}: whom it waited "
            "for is not known"
        )


def _unseen(one: Unseen) -> str:
    """The ranks of a group that may wait for each other where nothing says so."""
    return (
        f"{one.group}: no collective of its {one.workers} ranks was recorded, so they may wait for each other unseen inside phases, as "
        f"in DDP's backward{f' ({one.shown})' if one.phases else ''}: what a rank waits there counts as its own work; {MEND}; ranks that never do are replicas (replica=)"
    )


def _too_many(joints: Joints) -> Iterator[str]:
    """The collectives on the device that the critical paths do not follow because there are too many."""
    if waits := [ns for mine in joints.left_out.values() for ns in mine]:
        yield (
            f"of {joints.kernels:,} kernels of collectives only {MAX_ARRIVALS:,} are followed on the critical paths and by whatif: "
            f"{len(waits):,} collectives, in none of which a rank waited more than {duration(max(waits))}, keep their length"
        )


def _not_on_the_path(found: Sequence[Step]) -> Iterator[str]:
    """What a reader of the critical paths must know of collectives on the device."""
    steps = [step.name for step in found if step.loose_ns and step.leaves]
    if steps:
        yield (
            f"collectives on the device held ranks together in step {texts.listed(steps, 5)}, on clocks that were not compared: "
            "the critical path and whatif follow the host's phases alone there"
        )


def run_steps(run: Run, timelines: Sequence[WorkerTimeline]) -> list[Step]:
    """The steps that a run has windows of, with the leaves of all workers on the driver's clock."""
    shifts = [clock_shift(run, timeline) for timeline in timelines]
    windows: list[tuple[str, tuple[int, ...], int, int]] = []
    begins: dict[tuple[int, ...], dict[str, int]] = defaultdict(dict)
    errors: dict[str, int] = {}
    compared, whole = not _hosts_apart(run, timelines), _whole_windows(timelines)
    for timeline, shift in zip(timelines, shifts, strict=True):
        label, (_, error) = timeline.worker.label, run.offset_ns(timeline.worker)
        errors[label] = max(errors.get(label, 0), error or 0)
        for _, steps, start, end in timeline.windows:
            if steps:
                steps = whole[timeline.worker.group, steps[0]]
                windows.append((label, steps, start - shift, end - shift))
                begins[steps][label] = min(begins[steps].get(label, sys.maxsize), start - shift)
    few = _count(timelines) <= MAX_LEAVES
    found = steps_of(_leaves(timelines, shifts) if few else (), windows, errors)
    ranks, cut = _ranks(run), _cut(run.steps())
    hosts = {worker.label: str(worker.host) for worker in run.workers.values()}
    replicas = {worker.label: worker.replica for worker in run.workers.values() if worker.replica is not None}
    for step in found:
        step.ranks, step.replicas, step.ended = ranks, replicas, cut.isdisjoint(step.steps)
        step.hosts = hosts
        step.late = {worker: at - step.start_ns for worker, at in begins[step.steps].items()}
        if not compared:
            # nothing is known but that it was the same step
            step.errors = {worker: max(error, step.wall_ns) for worker, error in errors.items()}
    return found


def _whole_windows(timelines: Sequence[WorkerTimeline]) -> dict[tuple[str, int], tuple[int, ...]]:
    """By group and first step the steps of the windows that begin with it: the most that a worker came to, as one that is killed in a
    window of several comes to fewer."""
    found: dict[tuple[str, int], tuple[int, ...]] = {}
    for timeline in timelines:
        for _, steps, _, _ in timeline.windows:
            if steps:
                key = timeline.worker.group, steps[0]
                found[key] = max(found.get(key, ()), steps, key=len)
    return found


def clock_shift(run: Run, timeline: WorkerTimeline) -> int:
    """The clock of a timeline's worker minus the driver's, in ns."""
    return run.offset_ns(timeline.worker, timeline.windows[0][2] if timeline.windows else None)[0]


def _leaves(timelines: Sequence[WorkerTimeline], shifts: Sequence[int]) -> Iterator[Leaf]:
    """The stretches of all workers on the driver's clock. What begins where another ended has the same number object."""
    for timeline, shift in zip(timelines, shifts, strict=True):
        worker, end = timeline.worker, 0
        first = {at for at, (_, thread, task) in enumerate(timeline.rows) if thread == worker.pid and not task}
        closed = sorted((end, overhead(end - start)) for _, _, start, end in timeline.windows)
        for row in timeline.stretches:
            goes_on = row.cut and not row.collective and _until_closed(closed, row.end_ns)
            start = row.start_ns - shift
            start, end = end if start == end else start, row.end_ns - shift
            call = (row.collective, row.call_ns - shift) if row.collective else None
            yield Leaf(
                worker.label,
                worker.group,
                row.row,
                row.phase,
                row.category,
                start,
                end,
                worker.rank,
                row.around,
                call,
                goes_on,
                row.row in first,
            )


def _until_closed(closed: Sequence[tuple[int, int]], end_ns: int) -> bool:
    """Whether a window closed when a stretch ended. ``closed``: when each did, and the gap that is none there, sorted."""
    at = bisect_left(closed, (end_ns,))
    return at < len(closed) and closed[at][0] - end_ns <= closed[at][1]


def _hosts_apart(run: Run, timelines: Sequence[WorkerTimeline]) -> list[str]:
    """Hosts of workers, where there are several and the clock of one was never compared with the driver's."""
    hosts = {str(timeline.worker.host) for timeline in timelines if timeline.windows}
    unknown = any(run.offset_ns(timeline.worker)[1] is None for timeline in timelines if timeline.windows)
    return sorted(hosts) if len(hosts) > 1 and unknown else []


def _not_known(run: Run, found: Waits, timelines: Sequence[WorkerTimeline]) -> Iterator[str]:
    """What makes the rows of waiting and of the critical path less than certain."""
    hosts = found.apart
    if hosts:
        yield (
            f"the clocks of {', '.join(hosts[:5])}{' …' if len(hosts) > 5 else ''} were not compared, so who waited for whom, for how "
            "long, and the critical path over several hosts are not known"
        )
    groups = {group for step in found.of for one in step.collectives for group in one.groups}
    recorded = [run.manifest.targets[t.worker.key] for t in timelines if t.worker.key in run.manifest.targets]
    for group, there, size, absent in incomplete_groups(recorded):
        if group in groups:
            yield (
                f"{group}: 1 of {size} ranks is recorded (not {absent}), so whom it waited for in collectives, how long, and what of its "
                "time in them was transfer is not known"
                if there == 1
                else f"{group}: {there} of {size} ranks are recorded (not {absent}), so whom the others waited for in a collective may be "
                "one of those that are not, and what was transfer is not known"
            )


def _apart(steps: Sequence[Step]) -> Iterator[str]:
    """The steps whose workers had their windows at different times, as workers do that never wait for each other."""
    apart = [step for step in steps if step.apart_ns > step.overhead_ns]
    if apart:
        share = max(step.apart_ns / step.wall_ns for step in apart)
        yield (
            f"the workers' windows of step {texts.listed([step.name for step in apart], 5)} do not overlap: up to "
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
        yield (
            f"who waited for whom is worked out without {texts.listed(lost, 5)}: more than {MAX_STRETCHES:,} stretches of "
            "phases in the windows"
        )
