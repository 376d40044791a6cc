"""Who waited for whom in a step, which chain of phases decided its end, and what another speed would change.

All of it stands on leaves: stretches in which one phase is the innermost of its row (thread or task) of a worker, on the
driver's clock. A leaf depends on the one before it on its row and, where it began after a gap, on the last of any other
row to finish before it began. The n-th collective of a step (a phase of ``category="collective"``) joins the ranks of a
group: it ends a transfer after the last of them arrived.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from accelprof.analysis.seconds import COLLECTIVE

#: gaps below this are no waiting: the time between two clock reads of one row
GAP_NS = 20_000
OUTSIDE = "(outside every phase)"


@dataclass(slots=True)
class Leaf:
    """A stretch of one row in which ``phase`` is the innermost. ``around``: the phases around it; ``number``: the how-manieth collective of its name in the
    step it is, ``None`` for what is none."""

    worker: str
    group: str
    row: int
    phase: str
    category: str
    start_ns: int
    end_ns: int
    rank: int | None = None
    around: tuple[str, ...] = ()
    number: int | None = None

    @property
    def ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass
class Step:
    """The leaves of one step (or of steps that share a window) of all workers, between its first and last moment."""

    steps: tuple[int, ...]
    start_ns: int
    end_ns: int
    leaves: list[Leaf] = field(default_factory=list)
    #: worst error of a clock that the leaves stand on
    error_ns: int = 0

    @property
    def name(self) -> int | str:
        return (
            self.steps[0]
            if len(self.steps) == 1
            else "-".join(map(str, (self.steps[0], self.steps[-1])))
            if self.steps
            else ""
        )

    @property
    def wall_ns(self) -> int:
        return self.end_ns - self.start_ns

    def number_collectives(self) -> dict[tuple[str, str, int], list[Leaf]]:
        """``(group, phase, n)`` -> the leaves of the n-th collective of that name, one a worker."""
        seen: dict[tuple[str, str], int] = defaultdict(int)
        found: dict[tuple[str, str, int], list[Leaf]] = defaultdict(list)
        for leaf in sorted(self.leaves, key=lambda leaf: leaf.start_ns):
            if leaf.category == COLLECTIVE:
                leaf.number = seen[leaf.worker, leaf.phase]
                seen[leaf.worker, leaf.phase] += 1
                found[leaf.group, leaf.phase, leaf.number].append(leaf)
        return found


def stragglers(step: Step) -> list[dict[str, Any]]:
    """A row for each collective of the step in which others waited: for whom, how long in all, and in which of its phases
    the last one was late. Times in ns; ``low_ns`` and ``high_ns`` take the clocks' error in."""
    rows = []
    before: dict[str, int] = {}
    collectives = step.number_collectives()
    members: dict[str, set[str]] = defaultdict(set)
    for leaf in step.leaves:
        members[leaf.group].add(leaf.worker)
    for (group, phase, number), leaves in sorted(
        collectives.items(), key=lambda item: max(x.start_ns for x in item[1])
    ):
        last = max(leaves, key=lambda leaf: leaf.start_ns)
        waits = {leaf.worker: min(last.start_ns, leaf.end_ns) - leaf.start_ns for leaf in leaves if leaf is not last}
        waits = {worker: ns for worker, ns in waits.items() if ns > 0}
        if waits:
            begin = {leaf.worker: before.get(leaf.worker, step.start_ns) for leaf in leaves}
            total, error = sum(waits.values()), 2 * step.error_ns * len(waits)
            rows.append(
                {
                    "step": step.name, "phase": phase, "number": number, "group": group, "worker": last.worker,
                    "waited_ns": total, "low_ns": max(total - error, 0), "high_ns": total + error,
                    "waited_by": sorted(waits), "late_in": _late_in(step, leaves, last, begin),
                    "missing": sorted(members[group] - {leaf.worker for leaf in leaves}),
                    "transfer_ns": last.ns, "on": "host", "process_group": None,
                }
            )  # fmt: skip
        for leaf in leaves:
            before[leaf.worker] = leaf.end_ns
    return rows


def _late_in(step: Step, leaves: Sequence[Leaf], last: Leaf, begin: Mapping[str, int]) -> str | None:
    """The phase that took the last one longer than the median of the others since their collective before."""
    until = {leaf.worker: leaf.start_ns for leaf in leaves}
    spent: dict[str, dict[str, int]] = {worker: defaultdict(int) for worker in until}
    for leaf in step.leaves:
        if leaf.worker in until and leaf.number is None:
            inside = min(leaf.end_ns, until[leaf.worker]) - max(leaf.start_ns, begin[leaf.worker])
            if inside > 0:
                spent[leaf.worker][leaf.phase] += inside
    for worker, mine in spent.items():
        mine[OUTSIDE] += max(until[worker] - begin[worker] - sum(mine.values()), 0)
    others = [worker for worker in until if worker != last.worker]
    more = {
        phase: ns - statistics.median(spent[worker].get(phase, 0) for worker in others)
        for phase, ns in spent[last.worker].items()
    }
    return max(more, key=lambda phase: more[phase], default=None)


def critical_path(step: Step) -> list[dict[str, Any]]:
    """The chain of leaves that decided the step's end, first to last, as ``{"worker", "phase", "ns"}``; gaps stand under
    :data:`OUTSIDE`. Their sum is the step's wall time."""
    collectives = step.number_collectives()
    leaves = sorted((leaf for leaf in step.leaves if leaf.ns > 0), key=lambda leaf: leaf.end_ns)
    ends = [leaf.end_ns for leaf in leaves]
    chain: list[dict[str, Any]] = []
    at, worker = step.end_ns, ""

    def add(who: str, phase: str, ns: int) -> None:
        if ns <= 0:
            return
        if chain and (chain[-1]["worker"], chain[-1]["phase"]) == (who, phase):
            chain[-1]["ns"] += ns
        else:
            chain.append({"worker": who, "phase": phase, "ns": ns})

    while at > step.start_ns:
        place = bisect.bisect_right(ends, at) - 1
        if place < 0:
            break
        leaf = leaves[place]
        while place >= 0 and ends[place] >= at - GAP_NS:  # of those that end together the one of the row that goes on
            if leaves[place].worker == worker:
                leaf = leaves[place]
                break
            place -= 1
        add(worker or leaf.worker, OUTSIDE, at - leaf.end_ns)
        begin, who = leaf.start_ns, leaf.worker
        if leaf.number is not None:
            last = max(collectives[leaf.group, leaf.phase, leaf.number], key=lambda other: other.start_ns)
            begin, who = min(max(last.start_ns, leaf.start_ns), leaf.end_ns), last.worker
            if begin == leaf.end_ns:
                begin, who = leaf.start_ns, leaf.worker
        begin = max(begin, step.start_ns)
        add(who, leaf.phase, min(leaf.end_ns, at) - begin)
        at, worker = begin, who
    add(worker or "", OUTSIDE, at - step.start_ns)
    return chain[::-1]


def replayed(step: Step, scale: Callable[[Leaf], float], remove_wait: bool = False) -> int:
    """The step's wall time in ns with each leaf ``scale(leaf)`` times as long; with factors of 1 it is what it was.

    Args:
        remove_wait: ranks do not wait for each other in collectives; only the transfer is left.
    """
    collectives = step.number_collectives()
    order = sorted((leaf for leaf in step.leaves if leaf.ns > 0), key=lambda leaf: (leaf.start_ns, leaf.end_ns))
    finished = sorted(order, key=lambda leaf: leaf.end_ns)
    ends = [leaf.end_ns for leaf in finished]
    known: dict[int, int] = {}
    arrived: dict[int, int] = {}
    on_row: dict[tuple[str, int], Leaf] = {}

    def moved(leaf: Leaf | None) -> int:
        return known.get(id(leaf), leaf.end_ns) if leaf is not None else step.start_ns

    for leaf in order:
        before = on_row.get((leaf.worker, leaf.row))
        own_end = before.end_ns if before is not None else step.start_ns
        place = bisect.bisect_right(ends, leaf.start_ns) - 1
        cause = before
        if leaf.start_ns - own_end > GAP_NS and place >= 0 and ends[place] > own_end:
            cause = finished[place]
        lag = leaf.start_ns - (cause.end_ns if cause is not None else step.start_ns)
        begin = max(moved(cause) + lag, moved(before))
        on_row[leaf.worker, leaf.row] = leaf
        arrived[id(leaf)] = begin
        if leaf.number is None:
            known[id(leaf)] = begin + round(leaf.ns * scale(leaf))
            continue
        joined = collectives[leaf.group, leaf.phase, leaf.number]
        last = max(other.start_ns for other in joined)
        transfer = round(max(leaf.end_ns - max(last, leaf.start_ns), 0) * scale(leaf))
        if remove_wait:
            known[id(leaf)] = begin + transfer
            continue
        # those that arrive later are not known yet: their end is set again when they are
        for other in joined:
            if id(other) in arrived:
                latest = max(arrived[id(member)] for member in joined if id(member) in arrived)
                took = round(max(other.end_ns - max(last, other.start_ns), 0) * scale(other))
                known[id(other)] = max(latest, arrived[id(other)]) + took
    tail = step.end_ns - max((leaf.end_ns for leaf in order), default=step.end_ns)
    return max((known[id(leaf)] for leaf in order), default=step.end_ns) + tail - step.start_ns


def what_if(
    step: Step, factors: Mapping[str, float], rank: int | None = None, remove_wait: bool = False, scatter_ns: int = 0
) -> dict[str, Any]:
    """``{step, wall_ns, predicted_ns, low_ns, high_ns}`` when these phases took ``factors`` times as long.

    The interval holds the error of the clocks, ``scatter_ns`` (how far steps of the run lie apart with nothing changed: see
    :func:`scatter`), and 2 % of the change for what is scaled.
    """

    def scale(leaf: Leaf) -> float:
        if rank is not None and leaf.rank != rank:
            return 1.0
        return math.prod(factors.get(phase, 1.0) for phase in {leaf.phase, *leaf.around})

    predicted = replayed(step, scale, remove_wait)
    same = replayed(step, lambda leaf: 1.0)
    doubt = abs(step.wall_ns - same) + 2 * step.error_ns + scatter_ns + round(0.02 * abs(step.wall_ns - predicted))
    return {
        "step": step.name, "wall_ns": step.wall_ns, "predicted_ns": predicted,
        "low_ns": max(predicted - doubt, 0), "high_ns": predicted + doubt,
    }  # fmt: skip


def scatter(walls: Sequence[int]) -> int:
    """How far 95 % of steps lie from their median, in ns, from the median of their distances; 0 with less than three."""
    if len(walls) < 3:
        return 0
    middle = statistics.median(walls)
    return round(2 * 1.4826 * statistics.median(abs(wall - middle) for wall in walls))


def steps_of(
    leaves: Iterable[Leaf], windows: Iterable[tuple[tuple[int, ...], int, int]], error_ns: int = 0
) -> list[Step]:
    """Steps of a run: windows of all workers with the same steps together, with the leaves that lie in them."""
    bounds: dict[tuple[int, ...], tuple[int, int]] = {}
    for steps, start, end in windows:
        low, high = bounds.get(steps, (start, end))
        bounds[steps] = (min(low, start), max(high, end))
    found = [Step(steps, low, high, error_ns=error_ns) for steps, (low, high) in bounds.items()]
    found.sort(key=lambda step: step.start_ns)
    starts = [step.start_ns for step in found]
    for leaf in leaves:
        place = bisect.bisect_right(starts, leaf.start_ns) - 1
        if place >= 0 and leaf.start_ns < found[place].end_ns:
            found[place].leaves.append(leaf)
    return found
