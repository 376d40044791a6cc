"""The steps of a run as leaves, and who waited for whom in the collectives on the host.

A leaf is a stretch in which one phase is the innermost of its row (thread or task) of a worker, on the driver's clock. The
n-th collective of a step is the n-th phase of ``category="collective"`` of its name on each rank of a group.
"""

from __future__ import annotations

import bisect
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from accelprof.analysis.seconds import COLLECTIVE
from accelprof.contracts.spans import merge_intervals

#: a gap is the overhead of its own row up to this, or up to this share of the step where that is more
OVERHEAD_NS, OVERHEAD_SHARE = 1_000_000, 0.02
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


@dataclass(slots=True)
class Arrival:
    """One rank's kernel of a collective on the device, on the driver's clock.

    ``wait``: the stretch in which the host waited for it, ``None`` where it did not. ``behind``: the collective before it, where
    the rank's device was never free between both.
    """

    worker: str
    start_ns: int
    end_ns: int
    wait: tuple[int, int] | None = None
    behind: Joint | None = None


@dataclass(eq=False)
class Joint:
    """A collective on the device: the kernels of the ranks that have it."""

    name: str
    calls: list[Arrival] = field(default_factory=list)

    @property
    def at_ns(self) -> int:
        """When its last rank arrived."""
        return max(call.start_ns for call in self.calls)


@dataclass
class Step:
    """The leaves of one step (or of steps that share a window) of all workers, between its first and last moment."""

    steps: tuple[int, ...]
    start_ns: int
    end_ns: int
    leaves: list[Leaf] = field(default_factory=list)
    #: worst error of a clock that the leaves stand on
    error_ns: int = 0
    #: time between its first and last moment in which no worker had a window
    apart_ns: int = 0
    #: collectives on the device; and what ranks waited in those whose kernels cannot be put beside the leaves
    joints: list[Joint] = field(default_factory=list)
    loose_ns: int = 0

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

    @property
    def overhead_ns(self) -> int:
        """A gap up to this is the overhead of its own row."""
        return max(OVERHEAD_NS, round(OVERHEAD_SHARE * self.wall_ns))

    def number_collectives(self) -> dict[tuple[str, str, int], list[Leaf]]:
        """``(group, phase, n)`` -> the leaves of the n-th collective of that name, one a worker."""
        seen: dict[tuple[str, str], int] = defaultdict(int)
        found: dict[tuple[str, str, int], list[Leaf]] = defaultdict(list)
        talks = [leaf for leaf in self.leaves if leaf.category == COLLECTIVE]
        for leaf in sorted(talks, key=lambda leaf: leaf.start_ns):
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
    earlier = _Before(step.leaves if collectives else ())
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
                    "waited_by": sorted(waits), "late_in": earlier.late_in(leaves, last, begin),
                    "missing": sorted(members[group] - {leaf.worker for leaf in leaves}),
                    "transfer_ns": last.ns, "on": "host", "process_group": None,
                }
            )  # fmt: skip
        for leaf in leaves:
            before[leaf.worker] = leaf.end_ns
    return rows


class _Before:
    """What each worker did between two moments, of its leaves that are no collectives, by row."""

    def __init__(self, leaves: Iterable[Leaf]) -> None:
        self._rows: dict[str, dict[int, list[Leaf]]] = defaultdict(lambda: defaultdict(list))
        for leaf in sorted((leaf for leaf in leaves if leaf.number is None), key=lambda leaf: leaf.start_ns):
            self._rows[leaf.worker][leaf.row].append(leaf)
        self._ends = {
            (w, row): [leaf.end_ns for leaf in mine] for w, rows in self._rows.items() for row, mine in rows.items()
        }

    def spent(self, worker: str, begin: int, until: int) -> dict[str, int]:
        """ns by phase."""
        found: dict[str, int] = defaultdict(int)
        for row, mine in self._rows[worker].items():
            ends = self._ends[worker, row]
            for at in range(bisect.bisect_right(ends, begin), len(mine)):
                leaf = mine[at]
                if leaf.start_ns >= until:
                    break
                inside = min(leaf.end_ns, until) - max(leaf.start_ns, begin)
                if inside > 0:
                    found[leaf.phase] += inside
        found[OUTSIDE] += max(until - begin - sum(found.values()), 0)
        return found

    def late_in(self, leaves: Sequence[Leaf], last: Leaf, begin: Mapping[str, int]) -> str | None:
        """The phase that took the last one longer than the median of the others since their collective before."""
        spent = {leaf.worker: self.spent(leaf.worker, begin[leaf.worker], leaf.start_ns) for leaf in leaves}
        others = [worker for worker in spent if worker != last.worker]
        more = {
            phase: ns - statistics.median(spent[worker].get(phase, 0) for worker in others)
            for phase, ns in spent[last.worker].items()
        }
        return max(more, key=lambda phase: more[phase], default=None)


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
    of_step: dict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
    for steps, start, end in windows:
        of_step[steps].append((start, end))
    found = []
    for steps, mine in of_step.items():
        low, high = min(start for start, _ in mine), max(end for _, end in mine)
        apart = high - low - sum(end - start for start, end in merge_intervals(mine))
        found.append(Step(steps, low, high, error_ns=error_ns, apart_ns=apart))
    found.sort(key=lambda step: step.start_ns)
    starts = [step.start_ns for step in found]
    for leaf in leaves:
        place = bisect.bisect_right(starts, leaf.start_ns) - 1
        if place >= 0 and leaf.start_ns < found[place].end_ns:
            found[place].leaves.append(leaf)
    return found
