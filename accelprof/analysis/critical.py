"""Who waited for whom in a step, which chain of phases decided its end, and what another speed would change.

All of it stands on leaves: stretches in which one phase is the innermost of its row (thread or task) of a worker, on the
driver's clock. A leaf depends on the one before it on its row. What joins rows: the n-th collective of a step (a phase of
``category="collective"``) ends a transfer after the last rank of the group arrived; a phase that waits for another role or
for data (:func:`accelprof.analysis.seconds.waits_for_others`) ends after the work of another worker that was the last to
finish in it; and a leaf after a long gap follows the last work of any row that finished in the gap, which is a guess.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from accelprof.analysis.seconds import COLLECTIVE, waits_for_others
from accelprof.contracts.spans import merge_intervals

#: gaps below this are no gaps: the time between two clock reads of one row
GAP_NS = 20_000
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


class _Order:
    """What each leaf of a step came after."""

    def __init__(self, step: Step) -> None:
        self.start_ns = step.start_ns
        self.overhead_ns = step.overhead_ns
        self.collectives = step.number_collectives()
        self.leaves = sorted((leaf for leaf in step.leaves if leaf.ns > 0), key=lambda leaf: leaf.end_ns)
        waiting = {kind: waits_for_others(*kind) for kind in {(leaf.phase, leaf.category) for leaf in self.leaves}}
        self.waits = [leaf for leaf in self.leaves if waiting[leaf.phase, leaf.category]]
        self._waits = {id(leaf) for leaf in self.waits}
        # who waits lets nobody go on, so only the others are causes
        self._work = [leaf for leaf in self.leaves if id(leaf) not in self._waits]
        self._work_ends = [leaf.end_ns for leaf in self._work]
        self._rows: dict[tuple[str, int], list[Leaf]] = defaultdict(list)
        for leaf in self.leaves:
            self._rows[leaf.worker, leaf.row].append(leaf)
        self._row_ends = {row: [leaf.end_ns for leaf in leaves] for row, leaves in self._rows.items()}

    def on_row(self, worker: str, row: int, at: int) -> Leaf | None:
        """The last leaf of a row that ended by ``at``."""
        place = bisect.bisect_right(self._row_ends.get((worker, row), ()), at) - 1
        return self._rows[worker, row][place] if place >= 0 else None

    def before(self, worker: str, row: int, at: int) -> tuple[Leaf | None, Leaf | None, bool]:
        """For what began at ``at`` on a row: the leaf before it there, the one it came after, and whether that is a guess."""
        own = self.on_row(worker, row, at)
        own_end = own.end_ns if own is not None else self.start_ns
        if at - own_end <= self.overhead_ns:
            return own, own, False
        place = bisect.bisect_right(self._work_ends, at) - 1
        last = self._work[place] if place >= 0 and self._work_ends[place] > own_end else None
        while place >= 0 and self._work_ends[place] >= at - GAP_NS:
            if self._work[place].worker == worker:  # another thread of its process handed over
                return own, self._work[place], False
            place -= 1
        return (own, last, True) if last is not None else (own, own, False)

    def cause(self, wait: Leaf) -> tuple[Leaf | None, bool]:
        """The work that finished last in a phase that waits, of another worker or else of another row of its own, and
        whether that is a guess; ``None`` for a leaf that waits for nothing that was recorded."""
        if id(wait) not in self._waits:
            return None, False
        mine: Leaf | None = None
        place = bisect.bisect_right(self._work_ends, wait.end_ns) - 1
        while place >= 0 and self._work_ends[place] > wait.start_ns:
            found = self._work[place]
            if found.worker != wait.worker:
                return found, wait.end_ns - found.end_ns > self.overhead_ns
            if mine is None and found.row != wait.row:
                mine = found
            place -= 1
        return mine, mine is not None and wait.end_ns - mine.end_ns > self.overhead_ns


def critical_path(step: Step) -> list[dict[str, Any]]:
    """The chain of leaves that decided the step's end, first to last, as ``{"worker", "phase", "ns"}``; gaps stand under
    :data:`OUTSIDE`. Their sum is the step's wall time."""
    order = _Order(step)
    chain: list[dict[str, Any]] = []
    at, worker = step.end_ns, ""

    def add(who: str, phase: str, ns: int) -> None:
        if ns <= 0:
            return
        if chain and (chain[-1]["worker"], chain[-1]["phase"]) == (who, phase):
            chain[-1]["ns"] += ns
        else:
            chain.append({"worker": who, "phase": phase, "ns": ns})

    ended = [leaf.end_ns for leaf in order.leaves]
    place = bisect.bisect_right(ended, at) - 1
    leaf = order.leaves[place] if place >= 0 else None
    while leaf is not None and at > step.start_ns:
        add(worker or leaf.worker, OUTSIDE, at - leaf.end_ns)
        begin, goes_on = leaf.start_ns, leaf
        cause, _ = order.cause(leaf)
        if leaf.number is not None:
            last = max(order.collectives[leaf.group, leaf.phase, leaf.number], key=lambda other: other.start_ns)
            if max(last.start_ns, leaf.start_ns) < leaf.end_ns:
                begin, goes_on = max(last.start_ns, leaf.start_ns), last
        elif cause is not None:
            begin, goes_on = cause.end_ns, cause
        begin = max(begin, step.start_ns)
        # the transfer of a collective is its last rank's, what is left of a wait its own worker's
        add(goes_on.worker if leaf.number is not None else leaf.worker, leaf.phase, min(leaf.end_ns, at) - begin)
        at, worker = begin, goes_on.worker
        leaf = cause if goes_on is cause else order.before(worker, goes_on.row, at)[1]
    add(worker or "", OUTSIDE, at - step.start_ns)
    return chain[::-1]


def replayed(step: Step, scale: Callable[[Leaf], float], remove_wait: bool = False, guesses: bool = True) -> int:
    """The step's wall time in ns with each leaf ``scale(leaf)`` times as long; with factors of 1 it is what it was.

    Args:
        remove_wait: ranks do not wait for each other in collectives; only the transfer is left.
        guesses: what came after a long gap, or long after what it may have waited for, follows that.
    """
    order = _Order(step)
    known: dict[int, int] = {}
    arrived: dict[int, int] = {}

    def moved(leaf: Leaf | None) -> int:
        return known.get(id(leaf), leaf.end_ns) if leaf is not None else step.start_ns

    # a wait's end is known when it ends: by then all that it can have waited for has begun
    events = [(leaf.start_ns, 1, leaf.end_ns, place) for place, leaf in enumerate(order.leaves)]
    causes: dict[int, Leaf] = {}
    place_of = {id(leaf): place for place, leaf in enumerate(order.leaves)}
    for leaf in order.waits:
        cause, guessed = order.cause(leaf)
        if cause is not None and (guesses or not guessed):
            causes[id(leaf)] = cause
            events.append((leaf.end_ns, 0, leaf.end_ns, place_of[id(leaf)]))
    events.sort()
    for _, begins, _, place in events:
        leaf = order.leaves[place]
        if not begins:
            cause = causes[id(leaf)]
            rest = round((leaf.end_ns - cause.end_ns) * scale(leaf))
            known[id(leaf)] = max(arrived[id(leaf)], moved(cause)) + rest
            continue
        before, after, guessed = order.before(leaf.worker, leaf.row, leaf.start_ns)
        if guessed and not guesses:
            after = before
        lag = leaf.start_ns - (after.end_ns if after is not None else step.start_ns)
        begin = max(moved(after) + lag, moved(before))
        arrived[id(leaf)] = begin
        if id(leaf) in causes:
            continue
        if leaf.number is None:
            known[id(leaf)] = begin + round(leaf.ns * scale(leaf))
            continue
        joined = order.collectives[leaf.group, leaf.phase, leaf.number]
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
    tail = step.end_ns - max((leaf.end_ns for leaf in order.leaves), default=step.end_ns)
    return max((known[id(leaf)] for leaf in order.leaves), default=step.end_ns) + tail - step.start_ns


def what_if(
    step: Step,
    factors: Mapping[str, float],
    rank: int | None = None,
    remove_wait: bool = False,
    scatter_ns: int = 0,
    device_waits: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """``{step, wall_ns, predicted_ns, low_ns, high_ns, notes}`` when these phases took ``factors`` times as long.

    The interval holds the error of the clocks, ``scatter_ns`` (how far steps of the run lie apart with nothing changed: see
    :func:`scatter`), 2 % of the change for what is scaled, and the answer with and without guesses at who waited for whom.
    ``device_waits`` are the rows of stragglers on the device: collectives there are not replayed, so with them the interval
    reaches as far as the change of the worker with the largest one.
    """

    def scale(leaf: Leaf) -> float:
        if rank is not None and leaf.rank != rank:
            return 1.0
        return math.prod(factors.get(phase, 1.0) for phase in {leaf.phase, *leaf.around})

    predicted = replayed(step, scale, remove_wait)
    other = replayed(step, scale, remove_wait, guesses=False)
    same = replayed(step, lambda leaf: 1.0)
    doubt = abs(step.wall_ns - same) + 2 * step.error_ns + scatter_ns + round(0.02 * abs(step.wall_ns - predicted))
    low, high = min(predicted, other) - doubt, max(predicted, other) + doubt
    notes = list(_doubts(step))
    if predicted != other:
        notes.append(
            "who waited for whom is a guess where a phase began after a long gap: the interval holds the answer with "
            f"({_ms(predicted)}) and without ({_ms(other)})"
        )
    held = [row for row in device_waits if row.get("on") == "device" and row.get("step") == step.name]
    if held:
        less: dict[str, int] = defaultdict(int)
        more: dict[str, int] = defaultdict(int)
        for leaf in step.leaves:
            change = round(leaf.ns * (scale(leaf) - 1))
            less[leaf.worker] += max(-change, 0)
            more[leaf.worker] += max(change, 0)
        waited = sum(row["waited_ns"] for row in held)
        low = min(low, step.wall_ns - max(less.values(), default=0) - (waited if remove_wait else 0))
        if any(more.values()):
            high = max(high, step.wall_ns + max(more.values()) + doubt)
        notes.append(
            f"collectives on the device held ranks together in this step ({_ms(waited)} waited) and are not replayed: "
            "the interval reaches as far as the change itself"
        )
    return {
        "step": step.name, "wall_ns": step.wall_ns, "predicted_ns": predicted,
        "low_ns": max(low, 0), "high_ns": high, "notes": notes,
    }  # fmt: skip


def _doubts(step: Step) -> Iterable[str]:
    """Windows that nothing joins, and long waits for what was not recorded, a line for each worker and phase."""
    if step.apart_ns > step.overhead_ns:
        yield (
            f"the workers' windows of this step do not overlap: {_ms(step.apart_ns)} lie between them and count as the step's, "
            "though nothing that was recorded joins the workers"
        )
    order = _Order(step)
    lost: dict[tuple[str, str], int] = defaultdict(int)
    for leaf in order.waits:
        if leaf.ns > order.overhead_ns and order.cause(leaf)[0] is None:
            lost[leaf.worker, leaf.phase] += leaf.ns
    for (worker, phase), ns in sorted(lost.items()):
        yield f"{worker} waits {_ms(ns)} in {phase} and no phase of another ended in it: replayed as work of a fixed length"


def _ms(ns: int) -> str:
    return f"{ns / 1e6:.4g} ms"


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
