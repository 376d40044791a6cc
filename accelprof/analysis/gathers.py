"""Phases around other threads or tasks of their own process, which may wait until those are done: a pool's ``map``, a thread that is
joined, ``asyncio.run``.

No file says who waits for them. A phase is taken to wait for the rows (threads, tasks) that began inside it, or inside the phases
around it, where the last of them was done shortly before its end. Where all of them were done earlier, or the one that was done
shortly before its end had begun before, it may as well have worked on its own meanwhile: that is left open. Rows that a phase is taken
to wait for are side by side: one of them may wait for another, but is not taken to.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from accelprof.analysis.critical import Leaf
from accelprof.analysis.gaps import OVERHEAD_NS, overhead

#: so many leaves inside a phase are looked at, those that ended last; of a worker's phases that wait so many in all
LOOKED_AT, LOOKED_AT_IN_ALL = 64, 200_000


@dataclass(slots=True)
class Gather:
    """A leaf around other rows of its process, all by their places among the step's leaves.

    Attributes:
        ends: the last leaf of each row inside it, by end; ``begins``: the first of each, in the same order.
        waits: whether the leaf is taken to wait for them; otherwise it may.
        inside: all leaves of rows that it is taken to wait for, with the phases that are around them for that.
    """

    place: int
    ends: list[int]
    begins: list[int]
    waits: bool
    inside: list[tuple[int, tuple[str, ...]]]


def gathers(leaves: Sequence[Leaf], waits: Collection[int], closed: Collection[int]) -> Iterator[Gather]:
    """The leaves, by start, that are around other rows of their worker.

    Args:
        waits: places of phases that wait: of these only those around several rows that they wait for.
        closed: ``id`` of leaves that wait for a device, or go on behind the step; like collectives they wait for nothing else.
    """
    of_worker: dict[str, list[int]] = defaultdict(list)
    for place, leaf in enumerate(leaves):
        of_worker[leaf.worker].append(place)
    for places in of_worker.values():
        if any(leaves[place].row != leaves[places[0]].row for place in places):
            yield from _Rows(leaves, places, waits).gathers(closed)


def _shortly(leaf: Leaf) -> int:
    return overhead(leaf.ns)


class _Rows:
    """The leaves of one worker: of each row by start, and all by end."""

    def __init__(self, leaves: Sequence[Leaf], places: Sequence[int], waits: Collection[int]) -> None:
        self.leaves, self._waits = leaves, waits
        self._rows: dict[int, list[int]] = defaultdict(list)
        self._at: dict[int, int] = {}
        #: when the outermost phase around each leaf began
        self._since: dict[int, int] = {}
        #: leaves of rows that a phase is taken to wait for -> when their row began inside it
        self._taken: dict[int, int] = {}
        for place in places:
            leaf, mine = leaves[place], self._rows[leaves[place].row]
            self._since[place] = leaf.start_ns
            if mine and _one_call(leaves[mine[-1]], leaf):
                self._since[place] = self._since[mine[-1]]
            self._at[place] = len(mine)
            mine.append(place)
        self._starts = {row: [leaves[place].start_ns for place in mine] for row, mine in self._rows.items()}
        self._by_end = sorted(places, key=lambda place: (leaves[place].end_ns, -place))
        self._ends = [leaves[place].end_ns for place in self._by_end]
        self._left = LOOKED_AT_IN_ALL

    def gathers(self, closed: Collection[int]) -> Iterator[Gather]:
        """Outer phases come before those on the rows inside them."""
        leaves = self.leaves
        order = [
            place
            for place, leaf in ((place, leaves[place]) for place in self._at)
            if leaf.ns > OVERHEAD_NS and leaf.call is None and id(leaf) not in closed
        ]
        order.sort(key=lambda place: (self._since[place], -leaves[place].end_ns, place))
        for place in order:
            waits = place not in self._taken and self._gathered(place)
            found = list(self._around(place) if waits else self._maybe(place) if place not in self._waits else ())
            if len(found) <= (place in self._waits):
                continue
            found.reverse()
            inside = list(self._take(place, found)) if waits else []
            yield Gather(place, [end for end, _ in found], [begin for _, begin in found], waits, inside)

    def _gathered(self, place: int) -> bool:
        """Whether a row that began inside was done shortly before the end."""
        leaf = self.leaves[place]
        shortly = leaf.end_ns - _shortly(leaf)
        return any(begun for _, _, begun in self._done(place, max(shortly, leaf.start_ns), LOOKED_AT))

    def _around(self, place: int) -> Iterator[tuple[int, int]]:
        found = self._done(place, self.leaves[place].start_ns, max(self._left, LOOKED_AT))
        return ((end, begin) for end, begin, begun in found if begun)

    def _maybe(self, place: int) -> Iterator[tuple[int, int]]:
        leaf, leaves = self.leaves[place], self.leaves
        shortly = _shortly(leaf)
        beside = self._taken.get(place)
        for end, begin, begun in self._done(place, leaf.start_ns, LOOKED_AT):
            if beside is not None and abs(leaves[begin].start_ns - beside) <= shortly:
                continue  # what is around both began both
            if begun or leaf.end_ns - leaves[end].end_ns <= shortly:
                yield end, begin

    def _done(self, place: int, since_ns: int, looked_at: int) -> Iterator[tuple[int, int, bool]]:
        """Of each other row that was in no phase at the end of a leaf and had been in one after ``since_ns``: its last leaf then, the first
        since the phase around the leaf began, and whether the row was in no phase when that began; who was done last comes first."""
        leaves, leaf = self.leaves, self.leaves[place]
        seen = {leaf.row}
        for at in range(bisect.bisect_right(self._ends, leaf.end_ns) - 1, -1, -1):
            end, looked_at, self._left = self._by_end[at], looked_at - 1, self._left - 1
            other = leaves[end]
            if other.end_ns <= since_ns or looked_at < 0:
                return
            if other.row in seen:
                continue
            seen.add(other.row)
            if other.end_ns == leaf.end_ns and (end < place or end in self._waits):
                continue  # of those that end together the inner one ends first
            mine, last = self._rows[other.row], self._at[end]
            if last + 1 < len(mine) and leaves[mine[last + 1]].start_ns < leaf.end_ns:
                continue
            first = bisect.bisect_left(self._starts[other.row], self._since[place])
            begun = first <= last and (not first or leaves[mine[first - 1]].end_ns <= self._since[place])
            yield end, mine[min(first, last)], begun

    def _take(self, place: int, found: Sequence[tuple[int, int]]) -> Iterator[tuple[int, tuple[str, ...]]]:
        leaf = self.leaves[place]
        for end, begin in found:
            mine = self._rows[self.leaves[end].row]
            for inner in mine[self._at[begin] : self._at[end] + 1]:
                self._taken.setdefault(inner, self.leaves[begin].start_ns)
                whole = self.leaves[inner].start_ns >= leaf.start_ns
                yield inner, (leaf.phase, *leaf.around) if whole else leaf.around[-1:]


def _one_call(before: Leaf, leaf: Leaf) -> bool:
    """Whether two leaves of a row, one after the other, lie in one call of the outermost phase around them."""
    if before.end_ns != leaf.start_ns or not (before.around or leaf.around):
        return False
    return (before.around or (before.phase,))[-1] == (leaf.around or (leaf.phase,))[-1]
