"""What let a phase go on that waited, or that began after a long gap: the last work to finish by then, or work still running.

A thread can let another go on in the middle of a phase, so work that runs on is a cause as work that finished is; at which
point inside it that was no file says. In this order:

- of a phase that waits: work of another worker that finished in it shortly before its end, or else of another row of its own;
  work still running then of another worker (what waits for data waits for its own process), or else of its own; work of another
  worker, or else of its own, that finished in it long before. One that hardly waited, or in which nothing finished, may have
  waited for what had finished before it began: it would wait for that if it finished later;
- of a leaf after a gap: work of its own process that finished right before; work of any worker that finished shortly before; work
  of its own process still running then; work of any worker that finished long before.

Of several that run the one that began last is meant. All but work that finished shortly before is a guess, and so is that where
other work runs on: see :class:`Moved` for what the others would make of it.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import sys
from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from accelprof.analysis.critical import Leaf
from accelprof.analysis.gaps import OVERHEAD_NS
from accelprof.analysis.seconds import waits_for_data

#: gaps below this are no gaps: the time between two clock reads of one row
GAP_NS = 20_000
NOWHERE = -1


class Asked(NamedTuple):
    """What went on at ``at_ns`` after it had waited since ``since_ns``: the end of the leaf ``place``, or its beginning after a gap."""

    at_ns: int
    since_ns: int
    place: int
    waits: bool


class Releases:
    """The leaves of a step, by start, as what can let others go on.

    Args:
        waits: places of phases that wait: they let nobody go on.
        held: ``id`` of leaves that wait for a device; like collectives they let nobody go on while they run.
        aside: places of leaves that go on behind the step: they may let others go on while they run, but are not taken to.
        overhead_ns: what finished no longer before than this finished shortly before.
    """

    def __init__(
        self,
        leaves: Sequence[Leaf],
        waits: Collection[int],
        held: Collection[int],
        aside: Collection[int],
        overhead_ns: int,
    ) -> None:
        self.leaves, self._aside, self._overhead_ns = leaves, aside, overhead_ns
        self._phases: dict[str, set[str]] = defaultdict(set)
        for leaf in leaves:
            self._phases[leaf.worker].add(leaf.phase)
        self.work = array(
            "q", sorted((p for p in range(len(leaves)) if p not in waits), key=lambda p: leaves[p].end_ns)
        )
        self.ends = [leaves[place].end_ns for place in self.work]
        #: whether others may be let go on from inside a leaf
        self.open = bytearray(
            place not in waits and leaf.call is None and id(leaf) not in held for place, leaf in enumerate(leaves)
        )

    def of(self, asked: Iterable[Asked]) -> Iterator[tuple[Asked, int, bool]]:
        """What let each go on (:data:`NOWHERE`: nothing that was recorded on another row), and whether that is a guess."""
        leaves, following, finished, beside = self.leaves, 0, 0, False
        running: dict[int, None] = {}
        of_worker: dict[str, dict[int, None]] = defaultdict(dict)
        #: the work that finished last, of each worker and of each of its rows; who finished last stands last
        done: dict[str, int] = {}
        done_of: dict[str, dict[int, int]] = defaultdict(dict)
        for one in sorted(asked):
            while following < len(leaves) and leaves[following].start_ns < one.at_ns:
                if following in self._aside:
                    beside = True
                elif self.open[following]:
                    running[following] = of_worker[leaves[following].worker][following] = None
                following += 1
            while finished < len(self.work) and self.ends[finished] <= one.at_ns:
                place = self.work[finished]
                finished += 1
                worker, row = leaves[place].worker, leaves[place].row
                rows = done_of[worker]
                done.pop(worker, None)
                rows.pop(row, None)
                done[worker] = rows[row] = place
            leaf = leaves[one.place]
            data = one.waits and waits_for_data(leaf.phase, leaf.category)
            own = self._latest(of_worker[leaf.worker], one.at_ns)
            other = self._latest(running, one.at_ns, leaf, data)
            runs_on = beside or own != NOWHERE or other != NOWHERE
            if one.waits:
                cause, guess = self._wait(one, own if data or other == NOWHERE else other, runs_on, data)
                if cause == NOWHERE:
                    mine = (place for row, place in reversed(done_of[leaf.worker].items()) if row != leaf.row)
                    others = (place for worker, place in reversed(done.items()) if worker != leaf.worker)
                    cause = next(mine if data else itertools.chain(others, mine), NOWHERE)
                    guess |= cause != NOWHERE
                yield one, cause, guess
            else:
                yield one, *self._gap(one, own, runs_on)

    def _latest(self, running: dict[int, None], at_ns: int, waits: Leaf | None = None, data: bool = False) -> int:
        """The leaf that began last of those that still run, of all or of those that may let another worker's go on; those that do not
        run are let go."""
        found, over = NOWHERE, []
        for place in reversed(running):
            if self.leaves[place].end_ns <= at_ns:
                over.append(place)
            elif waits is None or self._may_release(self.leaves[place], waits, data):
                found = place
                break
        for place in over:
            del running[place]
        return found

    def _may_release(self, work: Leaf, waits: Leaf, data: bool) -> bool:
        """Whether work of another worker may let this go on: what waits for data does not have it from a rank of its group that does
        what it does itself."""
        return work.worker != waits.worker and not (
            data and work.group == waits.group and work.phase in self._phases[waits.worker]
        )

    def _wait(self, asked: Asked, inside: int, runs_on: bool, data: bool) -> tuple[int, bool]:
        wait, own = self.leaves[asked.place], NOWHERE
        other = NOWHERE
        at = bisect.bisect_right(self.ends, asked.at_ns) - 1
        while at >= 0 and self.ends[at] > asked.since_ns:
            found = self.leaves[self.work[at]]
            if self._may_release(found, wait, data):
                other = self.work[at]
                break
            if own == NOWHERE and found.worker == wait.worker and found.row != wait.row:
                own = self.work[at]
            at -= 1
        for shortly in (OVERHEAD_NS, self._overhead_ns):
            for place in (other, own):
                lag = asked.at_ns - self.leaves[place].end_ns
                if place != NOWHERE and lag <= shortly:
                    return place, lag > OVERHEAD_NS and (runs_on or own not in (place, NOWHERE))
        for place in (inside, other, own) if wait.ns > OVERHEAD_NS else ():
            if place != NOWHERE:
                return place, True
        return NOWHERE, runs_on

    def _gap(self, asked: Asked, inside: int, runs_on: bool) -> tuple[int, bool]:
        at = bisect.bisect_right(self.ends, asked.at_ns) - 1
        last = self.work[at] if at >= 0 and self.ends[at] > asked.since_ns else NOWHERE
        worker = self.leaves[asked.place].worker
        while at >= 0 and self.ends[at] >= asked.at_ns - GAP_NS:
            if self.leaves[self.work[at]].worker == worker:  # another thread of its process handed over
                return self.work[at], False
            at -= 1
        if last != NOWHERE and asked.at_ns - self.leaves[last].end_ns <= OVERHEAD_NS:
            return last, True
        for place in (inside, last):
            if place != NOWHERE:
                return place, True
        return NOWHERE, runs_on


class Moved:
    """How much later (earlier, below 0) what went on would go on, whichever work it was that let it: the least (``bound`` -1) or
    the most (1) of all that finished while it waited, all that still ran then, and of its own row.

    What is still running may have become shorter or longer before the point in it that counts or after it, so it may move that by
    anything from nothing to its whole change. Asked in the order of time.

    Args:
        when: moments of the replay: of the beginnings of all leaves, then of their ends.
        scale: the factor of a leaf, by place.
    """

    def __init__(self, releases: Releases, when: Sequence[int], bound: int, scale: Callable[[int], float]) -> None:
        self._releases, self._when, self._bound, self._scale = releases, when, bound, scale
        self._begun = self._finished = 0
        self._latest = -sys.maxsize
        self._running: list[tuple[int, int]] = []  # a heap: (change times -bound, end)
        # ends of work, and changes of which each is less far than the one before: what comes later and moves further hides it
        self._ends: list[int] = []
        self._by: list[int] = []

    def by(self, since_ns: int, at_ns: int, own: int, early: bool = False) -> int:
        """Of what went on at ``at_ns`` after it had waited since ``since_ns``; ``own``: by how much its row moved; ``early``: it may
        have waited for what had finished before."""
        leaves, when, bound = self._releases.leaves, self._when, self._bound
        while self._begun < len(leaves) and leaves[self._begun].start_ns < at_ns:
            place, leaf = self._begun, leaves[self._begun]
            self._begun += 1
            if self._releases.open[place] and leaf.end_ns > at_ns:
                change = round(leaf.ns * (self._scale(place) - 1))
                most = when[place] - leaf.start_ns + (max(change, 0) if bound > 0 else min(change, 0))
                heapq.heappush(self._running, (-bound * most, leaf.end_ns))
        while self._running and self._running[0][1] <= at_ns:
            heapq.heappop(self._running)
        work, ends = self._releases.work, self._releases.ends
        while self._finished < len(work) and ends[self._finished] <= at_ns:
            end, moment = ends[self._finished], when[len(leaves) + work[self._finished]]
            change = moment - end
            self._latest = max(self._latest, moment)
            self._finished += 1
            while self._by and bound * self._by[-1] <= bound * change:
                self._by.pop()
                self._ends.pop()
            self._by.append(change)
            self._ends.append(end)
        found = [own]
        if early and bound > 0:
            found.append(self._latest - since_ns)  # what it took then may not have been waiting
        if self._running:
            found.append(-bound * self._running[0][0])
        at = bisect.bisect_right(self._ends, since_ns)
        if at < len(self._by):
            found.append(self._by[at])
        return max(found) if bound > 0 else min(found)
