"""A dump of the flight recorder: what its last step did that the steps before did not, by which rank, and who waited for it.

Times are self times: of nested phases each instant counts for the innermost, and what is in none for :data:`OUTSIDE`. A phase waits when it is a collective
(``category="collective"``) or waits for others or for data as :mod:`accelprof.analysis.seconds` has it: more time there is somebody else's fault.
"""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from accelprof import texts
from accelprof.analysis.critical import OUTSIDE
from accelprof.analysis.nesting import segments
from accelprof.analysis.run import WorkerId, incomplete_groups
from accelprof.analysis.seconds import COLLECTIVE, waits_for_others
from accelprof.contracts.names import TIMELINE_TOOL
from accelprof.contracts.spans import ROW_COLUMNS, STEP, Kind, Span, merge_intervals
from accelprof.contracts.words import DUMP_REASONS, DumpReason, known
from accelprof.errors import ReadError
from accelprof.output.dumps import PLACE, aside, names, request_of, unread
from accelprof.output.records import TargetRow
from accelprof.reading.chrome import read_chrome

#: less than this share of the step is not worth a sentence
WORTH_SAYING = 0.05
#: dumps of a run that are named one by one
DUMPS_SHOWN = 25


@dataclass
class WorkerSteps:
    """One worker's steps: step -> phase -> self time in ns; ``walls``: step -> ns; ``running``: phases that had not ended;
    ``unfinished``: the step that had not."""

    worker: WorkerId
    times: dict[int, dict[str, int]] = field(default_factory=dict)
    walls: dict[int, int] = field(default_factory=dict)
    running: list[str] = field(default_factory=list)
    unfinished: int | None = None
    waits: set[str] = field(default_factory=set)

    @property
    def label(self) -> str:
        return self.worker.label


def steps_of(worker: WorkerId, spans: Sequence[Span]) -> WorkerSteps:
    """Self times by step of one worker's spans (steps, phases and ranges)."""
    found = WorkerSteps(worker)
    steps = sorted((s for s in spans if s.kind is Kind.STEP and s.name.startswith(STEP)), key=lambda s: s.start_ns)
    rows: dict[object, list[Span]] = defaultdict(list)
    for span in spans:
        if span.kind in (Kind.PHASE, Kind.RANGE):
            rows[(span.tid, span.task)].append(span)
            if span.category == COLLECTIVE or waits_for_others(span.name, span.category):
                found.waits.add(span.name)
    pieces: list[tuple[int, int, str]] = []
    for row in rows.values():
        pieces.extend((a, b, row[index].name) for a, b, index in segments([(s.start_ns, s.end_ns) for s in row]))
    for step in steps:
        number = int(step.name.removeprefix(STEP))
        times: dict[str, int] = defaultdict(int)
        for begin, end, name in pieces:
            inside = min(end, step.end_ns) - max(begin, step.start_ns)
            if inside > 0:
                times[name] += inside
        wall = step.end_ns - step.start_ns
        within = [(max(a, step.start_ns), min(b, step.end_ns)) for a, b, _ in pieces if a < step.end_ns]
        times[OUTSIDE] = wall - sum(b - a for a, b in merge_intervals([(a, b) for a, b in within if a < b]))
        found.times[number], found.walls[number] = dict(times), wall
        if step.args.get(ROW_COLUMNS["cut"]):
            found.unfinished = number
    last = max((s.end_ns for row in rows.values() for s in row), default=0)
    open_now = [
        s for row in rows.values() for s in row if s.args.get(ROW_COLUMNS["cut"]) and s.end_ns >= last - 1_000_000
    ]
    found.running = list(dict.fromkeys(s.name for s in sorted(open_now, key=lambda s: s.start_ns)))
    return found


def differences(
    workers: Sequence[WorkerSteps], step: int | None, reason: DumpReason, stacks: Mapping[str, str] | None = None
) -> list[str]:
    """Sentences, the most telling first; none where there is nothing to say. ``stacks``: label -> file of its stacks."""
    numbers = sorted({number for worker in workers for number in worker.walls})
    if not numbers and reason != "hang":
        return []
    if step is None or step not in numbers:
        step = numbers[-1] if numbers else 0
    said: list[str] = []
    walls = {worker.label: worker.walls[step] for worker in workers if step in worker.walls}
    before = {w.label: [ns for n, ns in w.walls.items() if n < step] for w in workers}
    usual = [ns for rows in before.values() for ns in rows]
    running = [worker for worker in workers if worker.unfinished == step]
    wall = max(walls.values(), default=0)
    if usual and wall:
        typical = statistics.median(usual)
        verb = "had taken" if running else "took"
        earlier_ones = sum(number < step for number in numbers)
        than = f", {wall / typical:.1f} times the median of the {earlier_ones} steps before" if typical else ""
        said.append(f"step {step} {verb} {_seconds(wall)}{than}{' and was still running' if running else ''}")
    guilty: list[tuple[float, str, str]] = []
    waiting: list[tuple[float, str, str]] = []
    for worker in workers:
        for phase, ns in worker.times.get(step, {}).items():
            earlier = [worker.times[n].get(phase, 0) for n in worker.times if n < step]
            if not earlier:
                continue  # nothing to be longer than
            more = ns - statistics.median(earlier)
            if wall and more > WORTH_SAYING * wall:
                (waiting if phase in worker.waits else guilty).append((more, worker.label, phase))
    guilty.sort(reverse=True)
    waiting.sort(reverse=True)
    # by phase: where ranks wait unseen in one, they would hide who was longer in another
    of_phase: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for more, label, phase in guilty:
        of_phase[phase].append((more, label))
    for phase, rows in list(of_phase.items())[:3]:
        were = "was" if len(rows) == 1 else "were up to"
        who = texts.listed([label for _, label in rows], 3)
        said.append(f"{who} {were} {_seconds(rows[0][0])} longer {_where(phase)} than in the steps before")
    waiters = {label for _, label, _ in waiting}
    awaited = [label for _, label, _ in guilty]
    if reason == "hang":  # whoever does not wait has not come yet, least of all who has not begun the step
        late = [worker for worker in workers if not set(worker.running) & worker.waits]
        longer = {label for _, label, _ in (*guilty, *waiting)}
        peers = {one.worker.peers for one in workers if one.label in longer}
        late.sort(key=lambda worker: step in worker.walls)
        behind = [w.label for w in late if step not in w.walls and w.worker.peers in peers]
        awaited = [*behind, *awaited, *(worker.label for worker in late)]
    if waiting:
        phases = ", ".join(dict.fromkeys(phase for _, _, phase in waiting))
        whom = f" for {awaited[0]}" if awaited and {awaited[0]} != waiters else ""
        longest = _seconds(waiting[0][0])
        said.append(f"{', '.join(sorted(waiters))} waited{whom} in {phases}, up to {longest} longer than usual")
    for worker in workers if reason == "hang" else running:
        first = "" if worker.walls else ", and had not begun a step"
        said.append(f"{worker.label} was {_where(worker.running[-1] if worker.running else OUTSIDE)}{first}")
    if awaited and stacks and awaited[0] in stacks:
        said.append(f"what {awaited[0]} was doing there is in {stacks[awaited[0]]}")
    return said


def _where(phase: str) -> str:
    return "outside every phase" if phase == OUTSIDE else f"in {phase}"


def of_recorder(
    directory: str, traces: Mapping[WorkerId, str], targets: Iterable[TargetRow] = ()
) -> tuple[list[str], list[str]]:
    """What the flight recorder has to say of a directory, a dump's or a run's, and of a dump :func:`differences`; ``traces``: a
    worker -> path of its timeline; ``targets``: whose part is there."""
    parent, name = os.path.split(os.path.normpath(directory))
    run_dir = os.path.dirname(parent)
    asked = request_of(run_dir, name) if os.path.basename(parent) == PLACE else None
    if asked is None:
        return _of_run(directory), []
    workers = []
    for worker, path in traces.items():
        try:
            spans = read_chrome(path, TIMELINE_TOOL).spans
        except (ReadError, OSError):
            continue  # the report names files that cannot be read
        workers.append(steps_of(worker, list(spans)))
    files = {worker.label: f"stacks-{worker.key}.txt" for worker in traces}
    stacks = {label: file for label, file in files.items() if os.path.isfile(os.path.join(directory, file))}
    head = f"flight recorder: {asked.why or asked.reason}, asked by {asked.by}"
    said = differences(workers, asked.step, known(asked.reason, DUMP_REASONS, "request"), stacks)
    return [head, *_without_part(targets), *_of_killed(run_dir)], said


def _of_run(run_dir: str) -> list[str]:
    """What the flight recorder left in a run's directory, and how each is read; empty where there was none."""
    said = []
    found = names(run_dir)
    for name in found[:DUMPS_SHOWN]:
        asked = request_of(run_dir, name)
        why = "" if asked is None else f": {asked.why or asked.reason}"
        said.append(f"the flight recorder wrote {PLACE}/{name}{why} (accelprof report reads that directory)")
    if len(found) > DUMPS_SHOWN:
        said.append(f"the flight recorder wrote {len(found) - DUMPS_SHOWN} more dumps, which lie in {PLACE}/ too")
    return said + _of_killed(run_dir) + aside(run_dir)


def _of_killed(run_dir: str) -> list[str]:
    killed = sorted(unread(run_dir))
    if not killed:
        return []
    return [
        f"the flight recorder has the last steps of workers that are gone: {texts.listed(killed, 5)}; "
        "accelprof window dump --run RUN writes them out"
    ]


def _without_part(targets: Iterable[TargetRow]) -> list[str]:
    """Ranks of the groups that have a part here, which have none themselves."""
    return [
        f"{there} of {size} ranks of {group} are in this dump; of the others (rank {absent}) there is no part: "
        "they write where they can see it, so look for a directory of this name on their own disks, or they were gone"
        for group, there, size, absent in incomplete_groups(targets)
    ]


def _seconds(ns: float) -> str:
    return f"{ns / 1e9:.2f} s" if ns >= 1e8 else f"{ns / 1e6:.1f} ms"
