"""Which chain of phases decided a step's end, how much later the others could have ended, and what another speed would change.

All three stand on one graph of the step's leaves. A leaf begins after the one before it on its row, and after a long gap
after what let it go on. What joins rows: a collective on the host ends a transfer after its last rank arrived; a stretch in
which the host waits for a collective on the device ends as long after the last rank's kernel began; a phase that waits for
another role or for data (:func:`accelprof.analysis.seconds.waits_for_others`) ends after what let it go on: see
:mod:`accelprof.analysis.releases`. A phase around threads or tasks of its own process ends after the last of them: see
:mod:`accelprof.analysis.gathers`.

One module, because the three walks follow the same edges: what one of them learns the others must.
"""

from __future__ import annotations

import bisect
import copy
import itertools
import sys
from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from accelprof.analysis.critical import OUTSIDE, Leaf, Step, Waited
from accelprof.analysis.gathers import Gather, gathers
from accelprof.analysis.releases import NOWHERE, Asked, Moved, Releases
from accelprof.analysis.report_rows import Segment, Slack
from accelprof.analysis.seconds import COLLECTIVE, waits_for_others

#: how work that is nested in a collective's calls is read. Ranks come after it, or leave before it (where none goes on after the last call
#: began they came when theirs did); the same wherever it is; or they come when their call begins and work meanwhile; or leave in
#: the first piece that goes on after the last call began; or, where that work hides it all, do not wait, or leave after the transfer took
#: as long as it can have taken, as one was through with its call by then
AS_TAKEN, APART, MEANWHILE, AT_FIRST, HIDDEN, BEHIND = range(6)
#: of several events at one moment in this order
HELD, GATHERED, WAITED, JOIN, NOTHING = range(5)


class Point(NamedTuple):
    """A moment that follows a node of the graph by ``after_ns``; ``inside``: it lies in that leaf, so it moves with its length."""

    node: int
    after_ns: int
    inside: bool = False


@dataclass(slots=True)
class _Join:
    """Where ranks meet: the last of ``points`` decides. ``at_ns``: when that was, ``last``: whose it is (a place in ``points``)."""

    at_ns: int
    points: list[Point]
    last: int
    worker: str


@dataclass(slots=True)
class _Held:
    """A leaf ends ``rest_ns`` after ``join``; alone it would after ``own``. ``works``: it takes its own length besides."""

    join: int
    rest_ns: int
    own: Point
    works: bool = False


class _Came(NamedTuple):
    """A call of a collective by its leaves (their places, by start), whom it waited for, and which piece of it ranks met in."""

    places: list[int]
    waited: Waited
    meets: tuple[int, int] | None

    def met(self, starts: Sequence[int], ends: Sequence[int]) -> list[int]:
        """The leaves of the piece."""
        if self.meets is None:
            return self.places
        came, left = self.meets
        return [place for place in self.places if starts[place] >= came and ends[place] <= left] or self.places


@dataclass
class Graph:
    """The leaves of a step, by start, and what each came after.

    The beginning of leaf ``i`` is node ``i``, its end node ``n + i``, and join ``k`` node ``2 n + k``; :data:`NOWHERE` is the
    step's own beginning. All edges lead forward in time, so that nodes by time are in order.
    """

    step: Step
    leaves: list[Leaf] = field(default_factory=list)
    before: array[int] = field(default_factory=lambda: array("q"))
    #: what let each leaf begin; one that ends later was still running then
    after: array[int] = field(default_factory=lambda: array("q"))
    #: a phase that waits -> the leaf that let it end, as above
    causes: dict[int, int] = field(default_factory=dict)
    #: leaves around other rows of their process, by place; and the phases that are around a leaf (its ``id``) for that
    gathers: dict[int, Gather] = field(default_factory=dict)
    within: dict[int, tuple[str, ...]] = field(default_factory=dict)
    #: nodes of which it is a guess what let them go on: beginnings after a gap, ends of phases that wait
    guessed: set[int] = field(default_factory=set)
    joins: list[_Join] = field(default_factory=list)
    held: dict[int, list[_Held]] = field(default_factory=dict)
    #: pieces of calls before the last rank came: they wait, whatever the collective's speed
    waited: set[int] = field(default_factory=set)
    #: the main row of each worker, once it is asked for
    _rows: dict[str, tuple[list[int], list[int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        pieces, holds = _cut(self.step)
        self.leaves = sorted((leaf for leaf in pieces if leaf.ns > 0), key=lambda leaf: (leaf.start_ns, leaf.end_ns))
        self.starts, self.ends = [leaf.start_ns for leaf in self.leaves], [leaf.end_ns for leaf in self.leaves]
        waiting: dict[tuple[str, str], bool] = {}
        self.waits = []
        before: dict[tuple[str, int], int] = {}
        overhead, start = self.step.overhead_ns, self.step.start_ns
        gaps = []
        for place, leaf in enumerate(self.leaves):
            what = _what(leaf)
            if what not in waiting:
                waiting[what] = waits_for_others(*what)
            if waiting[what] and id(leaf) not in holds:
                self.waits.append(place)
            row = (leaf.worker, leaf.row)
            own = before.get(row, NOWHERE)
            while own != NOWHERE and self.ends[own] > leaf.start_ns:
                own = self.before[own]
            before[row] = place
            self.before.append(own)
            self.after.append(own)
            if leaf.start_ns - (self.ends[own] if own != NOWHERE else start) > overhead:
                gaps.append(place)
        self._waiting = set(self.waits)
        #: leaves that go on behind a step which others ended: they decide nothing in it
        self.aside = self._aside()
        self.last_ns = max((end for at, end in enumerate(self.ends) if at not in self.aside), default=start)
        if self.step.end_ns - self.last_ns > overhead or not self.aside:
            self.aside, self.last_ns = set(), max(self.ends, default=self.step.end_ns)
        self._releases = Releases(self.leaves, self._waiting, holds, self.aside, overhead)
        asked = [Asked(self.starts[place], self.starts[place] - self.gap(place), place, False) for place in gaps]
        asked += [Asked(self.ends[place], self.starts[place], place, True) for place in self.waits]
        for one, cause, guess in self._releases.of(asked):
            if guess:
                self.guessed.add(one.place + len(self.leaves) * one.waits)
            if cause == NOWHERE:
                continue
            if one.waits:
                self.causes[one.place] = cause
            else:
                self.after[one.place] = cause
        for gather in gathers(self.leaves, self._waiting, {*holds, *(id(self.leaves[place]) for place in self.aside)}):
            self._gather(gather)
        self._holds = holds
        self._find_calls()
        self._join(AS_TAKEN)

    def _find_calls(self) -> None:
        joined = {id(leaf) for one in self.step.collectives for call in one.calls for leaf in call.leaves}.union(
            self._holds
        )
        places = {id(leaf): place for place, leaf in enumerate(self.leaves) if id(leaf) in joined}
        #: of each collective its calls, by the places of their leaves, and whom they waited for
        self._calls = []
        for met in self.step.collectives:
            calls = [
                ([places[id(leaf)] for leaf in call.leaves if id(leaf) in places], waited)
                for call, waited in met.waits(self.step.overhead_ns)
            ]
            self._calls.append((met, [(mine, waited) for mine, waited in calls if mine]))
        self._on_devices = {places[piece]: mine for piece, mine in self._holds.items() if piece in places}

    def _join(self, nested: int) -> None:
        for met, calls in self._calls:
            if met.hidden and nested == HIDDEN:
                continue
            meets = {call.worker: call.meets if nested == AS_TAKEN else call.piece for call in met.calls}
            came = [_Came(mine, waited, meets[self.leaves[mine[0]].worker]) for mine, waited in calls]
            if met.hidden and nested == BEHIND:
                self._join_behind(came)
            else:
                self._join_host(came, nested, met.hidden)
        self._join_devices(self._on_devices)
        self.order = self._order()
        #: whether the step's end waited for what is on these rows is not known
        self.loose = self._loose()

    def readings(self) -> Iterator[Graph]:
        """The graphs of the same step as it is where work that is nested in collectives is read in the other ways."""
        calls = [call for one in self.step.collectives for call in one.calls if call.piece]
        ways = [APART] if any(call.meets is None for call in calls) else []
        ways += [MEANWHILE, AT_FIRST] if any(call.meets for call in calls) else []
        ways += [HIDDEN, BEHIND] if any(one.hidden for one in self.step.collectives) else []
        for nested in ways:
            other = copy.copy(self)
            other.joins, other.held, other.waited = [], {}, set()
            other.waits, other.causes, other.guessed = list(self.waits), dict(self.causes), set(self.guessed)
            other._join(nested)
            yield other

    def _aside(self) -> set[int]:
        """Leaves that go on: of a worker whose first thread did its work, on the others; else on rows that did nothing else."""
        whole = {(leaf.worker, leaf.row) for leaf in self.leaves if not leaf.goes_on}
        working = {worker for worker, _ in whole}
        led = {leaf.worker for leaf in self.leaves if leaf.first and (leaf.worker, leaf.row) in whole}
        return {
            at
            for at, leaf in enumerate(self.leaves)
            if leaf.goes_on
            and (
                not leaf.first
                if leaf.worker in led
                else leaf.worker in working and (leaf.worker, leaf.row) not in whole
            )
        }

    def _loose(self) -> set[tuple[str, int]]:
        """Rows of threads beside a process's first one that nothing came after."""
        leaves = self.leaves
        pairs = itertools.chain(
            enumerate(self.after),
            self.causes.items(),
            ((place, end) for place, gather in self.gathers.items() if gather.waits for end in gather.ends),
        )
        met = {(leaves[place].worker, leaves[place].row) for place in self.held}
        for place, other in pairs:
            if other != NOWHERE and (leaves[other].row, leaves[other].worker) != (
                leaves[place].row,
                leaves[place].worker,
            ):
                met.add((leaves[other].worker, leaves[other].row))
        led = {leaf.worker for leaf in leaves if leaf.first}
        return {(leaf.worker, leaf.row) for leaf in leaves if not leaf.first and leaf.worker in led} - met

    # --- where threads and ranks meet

    def _gather(self, gather: Gather) -> None:
        place, count = gather.place, len(self.leaves)
        if place in self.causes:
            other = self.causes[place]
            if self.leaves[other].worker != self.leaves[place].worker or count + place in self.guessed:
                return
            del self.causes[place]
        self.gathers[place] = gather
        self.guessed.add(count + place)
        if not gather.waits:
            return
        begins = set(gather.begins)
        for inner, names in gather.inside:
            mine, cause, before = id(self.leaves[inner]), self.after[inner], self.before[inner]
            self.within[mine] = (*names, *self.within.get(mine, ()))
            finished = cause not in (before, NOWHERE) and self.ends[cause] <= self.starts[inner]
            if inner in begins:
                if not finished or self.starts[cause] < self.starts[place]:
                    self.after[inner] = self._around(place, inner)
            elif not finished:  # rows side by side seldom let each other go on from inside
                self.after[inner] = before

    def _around(self, place: int, first: int) -> int:
        """What the first leaf of a row inside ``place`` begins after: the phase that it began in; what began with that is as it was."""
        while self.starts[place] > self.starts[first] and self.before[place] != NOWHERE:
            place = self.before[place]
        return place if self.starts[place] < self.starts[first] else self.after[first]

    def _join_host(self, calls: Sequence[_Came], nested: int, hidden: bool) -> None:
        """The ranks of a collective wait for those that came before they left; what is nested in a call is work, so the first leaf of the
        collective itself (of the piece in which they met, where that is known) that goes on after the last one came waits for it. One that
        was let go on before the last came follows what that one did then."""
        starts, ends = self.starts, self.ends
        pieces = [call.met(starts, ends) if nested != AT_FIRST else call.places for call in calls]
        came = [(call.places if nested == MEANWHILE else piece)[0] for call, piece in zip(calls, pieces, strict=True)]
        order = sorted(came, key=lambda place: starts[place])
        since = [starts[place] for place in order]
        known: dict[int, int] = {}
        for call, mine, own in zip(calls, pieces, came, strict=True):
            if call.waited.after is not None:
                self._let_go(call.places, call.waited.call.worker)
                continue
            if nested == MEANWHILE and hidden and mine[0] == call.places[0] and mine[-1] != call.places[-1]:
                continue  # it launched there
            there = bisect.bisect_left(since, ends[mine[-1]])
            if there not in known:
                known[there] = len(self.joins)
                points = [Point(other, 0) for other in order[:there]]
                self.joins.append(_Join(since[there - 1], points, there - 1, self.leaves[order[there - 1]].worker))
            join = known[there]
            at_ns = self.joins[join].at_ns
            waits = (p for p in mine if self.leaves[p].category == COLLECTIVE and ends[p] > at_ns)
            place = next(waits, mine[-1])
            self.waited.update(
                p for p in call.places if p != place and self.leaves[p].category == COLLECTIVE and ends[p] <= at_ns
            )
            self.held[place] = [_Held(join, ends[place] - at_ns, Point(own, 0))]

    def _join_behind(self, calls: Sequence[_Came]) -> None:
        order = sorted((call.places[0] for call in calls), key=lambda place: self.starts[place])
        last = order[-1]
        rest = min(self.ends[call.places[-1]] for call in calls) - self.starts[last]
        points = [Point(place, 0) for place in order]
        for call in calls if rest > 0 else ():
            own = Point(call.places[0], 0)
            for place in call.places:
                taken = min(rest, self.ends[place] - self.starts[last])
                if taken > 0:
                    self.held[place] = [_Held(len(self.joins), taken, own, works=True)]
        self.joins.append(_Join(self.starts[last], points, len(points) - 1, self.leaves[last].worker))

    def _let_go(self, call: Sequence[int], worker: str) -> None:
        """The end of a call follows, as a guess, the work that was on a worker's main row then, or ended right before."""
        if not self._rows:
            self._rows = {name: (starts, places) for name, starts, places in self._main_rows()}
        starts, places = self._rows.get(worker, ([], []))
        place = max((p for p in call if self.leaves[p].category == COLLECTIVE), default=call[-1])
        at = bisect.bisect_left(starts, self.ends[place]) - 1
        if at > 0 and self.ends[place] - self.ends[places[at - 1]] <= self.step.overhead_ns:
            at -= 1
        work = (
            at >= 0 and self.leaves[places[at]].call is None and not waits_for_others(*_what(self.leaves[places[at]]))
        )
        if work and place not in self.causes:
            self.waits.append(place)
            self.causes[place] = places[at]
            self.guessed.add(len(self.leaves) + place)

    def _join_devices(self, holds: Mapping[int, Sequence[tuple[int, int]]]) -> None:
        """The same for kernels: each begins at its place on the host's row, or behind a collective that kept its device busy."""
        if not self.step.joints:
            return
        rows = {worker: (starts, places) for worker, starts, places in self._main_rows()}
        joined = {*holds, *self.held, *self.causes}
        numbers: dict[int, int] = {}
        for joint in sorted(self.step.joints, key=lambda joint: joint.at_ns):
            points = []
            for call in joint.calls:
                earlier = numbers.get(id(call.behind)) if call.behind is not None else None
                if earlier is not None and self.joins[earlier].at_ns <= call.start_ns:
                    points.append(Point(2 * len(self.leaves) + earlier, call.start_ns - self.joins[earlier].at_ns))
                else:
                    starts, places = rows.get(call.worker, ([], []))
                    points.append(self._on_row(starts, places, call.start_ns, joined))
            last = max(range(len(points)), key=lambda place: joint.calls[place].start_ns)
            numbers[id(joint)] = len(self.joins)
            self.joins.append(_Join(joint.at_ns, points, last, joint.calls[last].worker))
        for place, mine in holds.items():
            leaf = self.leaves[place]
            for number, own in mine:
                at = numbers[id(self.step.joints[number])]
                join = self.joins[at]
                if leaf.end_ns > join.at_ns:
                    self.held.setdefault(place, []).append(_Held(at, leaf.end_ns - join.at_ns, join.points[own]))

    def _main_rows(self) -> Iterable[tuple[str, list[int], list[int]]]:
        main = _main_row(self.leaves)
        of_worker: dict[str, list[int]] = defaultdict(list)
        for place, leaf in enumerate(self.leaves):
            if main[leaf.worker] == leaf.row:
                of_worker[leaf.worker].append(place)
        for worker, places in of_worker.items():
            yield worker, [self.leaves[place].start_ns for place in places], places

    def _on_row(self, starts: Sequence[int], places: Sequence[int], moment: int, joined: Collection[int]) -> Point:
        at = bisect.bisect_right(starts, moment) - 1
        if at < 0:
            return Point(NOWHERE, moment - self.step.start_ns)
        place = places[at]
        leaf = self.leaves[place]
        if moment < leaf.end_ns:
            return Point(place, moment - leaf.start_ns, place not in joined)
        return Point(len(self.leaves) + place, moment - leaf.end_ns)

    def _order(self) -> list[tuple[int, int, int, int]]:
        """What happens, in order: ``(first, until, event, number)`` is the beginning (and the end, where nothing joins it) of the
        leaves ``first`` to ``until``, then a join (:data:`JOIN`), the end of what it held, or the end of a phase that waited."""
        found = [(self.ends[place], HELD, place) for place in self.held]
        found += [(self.ends[place], GATHERED, -place) for place in self.gathers]
        found += [
            (self.ends[place], WAITED, place)
            for place in self.waits
            if place not in self.held and place not in self.gathers
        ]
        found += [(join.at_ns, JOIN, number) for number, join in enumerate(self.joins)]
        # of what is at one moment ends come first (of phases around each other the inner one's), then beginnings, then joins
        found.sort()
        order, first = [], 0
        for at, event, number in found:
            until = (bisect.bisect_right if event == JOIN else bisect.bisect_left)(self.starts, at)
            order.append((first, until, event, abs(number)))
            first = until
        return [*order, (first, len(self.leaves), NOTHING, 0)]

    # --- what is asked of it

    def path(self) -> list[Segment]:
        """The chain of leaves that decided the step's end, first to last, as ``{"worker", "phase", "ns"}``; gaps stand under
        :data:`OUTSIDE`. Their sum is the step's wall time."""
        step = self.step
        chain: list[Segment] = []

        def add(who: str, phase: str, ns: int) -> None:
            if ns <= 0:
                return
            if chain and (chain[-1]["worker"], chain[-1]["phase"]) == (who, phase):
                chain[-1]["ns"] += ns
            else:
                chain.append({"worker": who, "phase": phase, "ns": ns})

        count = len(self.leaves)
        at, worker = step.end_ns, ""
        ending = (place for place in range(count) if place not in self.aside)
        place = max(ending, key=self.ends.__getitem__, default=NOWHERE)
        while place != NOWHERE and at > step.start_ns:
            leaf = self.leaves[place]
            add(worker or leaf.worker, OUTSIDE, at - leaf.end_ns)
            held = max(self.held.get(place, ()), key=lambda one: self.joins[one.join].at_ns, default=None)
            if held is not None and at >= leaf.end_ns:
                # the transfer of a collective is its last rank's
                join = self.joins[held.join]
                add(join.worker, leaf.phase, leaf.end_ns - join.at_ns)
                at, worker = join.at_ns, join.worker
                point = join.points[join.last]
                while point.node >= 2 * count:  # its device was busy with an earlier one
                    join = self.joins[point.node - 2 * count]
                    add(worker, leaf.phase, at - join.at_ns)
                    at, worker, point = join.at_ns, join.worker, join.points[join.last]
                if point.node == NOWHERE:
                    place = NOWHERE
                elif point.node >= count:
                    place = point.node - count
                elif point.after_ns:
                    place = point.node
                else:
                    place = self.after[point.node]
                continue
            gather = self.gathers.get(place)
            if gather is not None and gather.waits and at >= leaf.end_ns:
                last = gather.ends[-1]
                at = self.ends[last]
                add(leaf.worker, leaf.phase, leaf.end_ns - at)
                worker, place = leaf.worker, last
                continue
            if place in self.causes and at >= leaf.end_ns and not self.early(place):
                cause = self.causes[place]
                at = min(self.ends[cause], leaf.end_ns)
                add(leaf.worker, leaf.phase, leaf.end_ns - at)
                worker, place = self.leaves[cause].worker, cause
                continue
            begin = max(leaf.start_ns, step.start_ns)
            add(leaf.worker, leaf.phase, min(leaf.end_ns, at) - begin)
            at, worker, place = begin, leaf.worker, self.after[place]
        add(worker or "", OUTSIDE, at - step.start_ns)
        return chain[::-1]

    def replayed(self, scale: Callable[[Leaf], float], remove_wait: bool = False, bound: int = 0) -> int:
        """The step's wall time in ns with each leaf ``scale(leaf)`` times as long; with factors of 1 it is what it was.

        Args:
            remove_wait: ranks do not wait for each other in collectives; only the transfer is left.
            bound: -1 for the shortest and 1 for the longest that it can be, whatever let go on what it is only a guess of.
        """
        leaves, count, start = self.leaves, len(self.leaves), self.step.start_ns
        when = [start] * (2 * count + len(self.joins) + 1)  # the last is the step's beginning

        def moment(point: Point) -> int:
            after = point.after_ns
            if point.inside:
                after = round(after * scale(leaves[point.node]))
            return when[point.node] + after

        starts, ends = self.starts, self.ends
        unsure = self.guessed if bound else frozenset()
        moved = Moved(self._releases, when, bound, lambda place: scale(leaves[place])) if unsure else None

        def let_go(cause: int, at: int) -> int:
            """When a leaf lets go on what it let go on at a moment before; of one that was still running it moves with its length."""
            if ends[cause] <= at:
                return when[count + cause] + at - ends[cause]
            return when[cause] + round((at - starts[cause]) * scale(leaves[cause]))

        waiting, kept = self.waited, 0 if remove_wait else 1
        for first, until, event, place in self.order:
            for mine in range(first, until):
                before, after, at = self.before[mine], self.after[mine], starts[mine]
                own = when[count + before] if before != NOWHERE else start
                own_end = ends[before] if before != NOWHERE else start
                if moved is not None and mine in unsure:
                    begin = max(own, at + moved.by(own_end, at, own - own_end))
                elif after == before:
                    begin = own + at - own_end
                else:
                    begin = max(own, let_go(after, at))
                when[mine] = begin
                # set again where it is joined
                factor = kept if mine in waiting else scale(leaves[mine])
                when[count + mine] = begin + round((ends[mine] - at) * factor)
            if event == JOIN:
                when[2 * count + place] = max(moment(point) for point in self.joins[place].points)
            elif event == HELD:
                factor = scale(leaves[place])
                works = any(held.works for held in self.held[place])
                when[count + place] = max(
                    when[place] + (round((ends[place] - starts[place]) * factor) if works else 0),
                    *(
                        (moment(held.own) if remove_wait else when[2 * count + held.join])
                        + round(held.rest_ns * (1.0 if held.works else factor))
                        for held in self.held[place]
                    ),
                )
            elif event == GATHERED:
                when[count + place] = self._gathered(place, when, scale(leaves[place]), bound)
            elif event == WAITED and moved is not None and count + place in unsure:
                at, more = ends[place], round((ends[place] - starts[place]) * (scale(leaves[place]) - 1))
                early = self.early(place)
                by = moved.by(starts[place], at, when[place] - starts[place], early) + (
                    max(more, 0) if bound > 0 else min(more, 0)
                )
                when[count + place] = max(when[place], at + by)
            elif event == WAITED and place in self.causes:
                cause = self.causes[place]
                rest = max(ends[place] - ends[cause], 0)
                if self.early(place):
                    when[count + place] = max(when[count + place], when[count + cause])
                else:
                    gone = let_go(cause, ends[place] - rest)
                    when[count + place] = max(when[place], gone) + round(rest * scale(leaves[place]))
        for place, leaf in enumerate(leaves if bound < 0 and self.loose else ()):
            if (leaf.worker, leaf.row) in self.loose:
                when[count + place] = start
        for place in self.aside:
            when[count + place] = start
        return max(when[count : 2 * count], default=self.step.end_ns) + self.step.end_ns - self.last_ns - start

    def _gathered(self, place: int, when: Sequence[int], factor: float, bound: int) -> int:
        """When a leaf around other rows ends: after the last of them, or after work of its own, or (``bound``) the first or last of
        all that it may end with."""
        gather, count, end = self.gathers[place], len(self.leaves), self.ends[place]
        rest = end - self.ends[gather.ends[-1]]
        alone = when[place] + round((end - self.starts[place]) * factor)
        waits = place in self._waiting
        if not bound or waits:
            some = gather.ends[-1:] if bound < 0 else gather.ends
            last = max(when[count + inner] for inner in some)
            return max(when[place], last) + round(rest * factor) if gather.waits else alone
        more = round(rest * (factor - 1))
        more = max(more, 0) if bound > 0 else min(more, 0)
        moves = [alone - end, *(when[count + inner] - self.ends[inner] + more for inner in gather.ends)]
        return max(when[place], end + (max(moves) if bound > 0 else min(moves)))

    def slack(self, guesses: bool = True) -> list[int]:
        """For each leaf how much later it could end, in ns, without moving the step's end."""
        count, starts, ends = len(self.leaves), self.starts, self.ends
        latest = [self.last_ns] * (2 * count + len(self.joins) + 1)
        last = max(ends, default=0)
        for place in self.aside:
            latest[count + place] = last
        ignored = set() if guesses else self.guessed
        joined = {*self.held, *(place for place in self.causes if count + place not in ignored)}
        joined.update(place for place, gather in self.gathers.items() if guesses and gather.waits)

        def no_later(node: int, moment: int) -> None:
            if moment < latest[node]:
                latest[node] = moment

        def let_go(cause: int, at: int, moment: int) -> None:
            """What a leaf let go on at a moment may go on at another at the latest."""
            # what makes one longer that was still running may stand before what it did then
            no_later(count + cause, moment - at + ends[cause])
            if cause in joined and ends[cause] > at:
                no_later(cause, moment - at + starts[cause])

        for first, until, event, place in reversed(self.order):
            if event == JOIN:
                for point in self.joins[place].points:
                    no_later(point.node, latest[2 * count + place] - point.after_ns)
            elif event == HELD:
                works = any(held.works for held in self.held[place])
                no_later(place, latest[count + place] - (ends[place] - starts[place] if works else 0))
                for held in self.held[place]:
                    no_later(2 * count + held.join, latest[count + place] - held.rest_ns)
            elif event == GATHERED and self.gathers[place].waits == guesses:
                inner = self.gathers[place].ends
                rest = latest[count + place] - ends[place] + ends[inner[-1]]
                for node in (place, *(count + one for one in inner)):
                    no_later(node, rest)
            elif event == WAITED and place in joined:
                cause = self.causes[place]
                early = self.early(place)
                rest = ends[place] - (starts[place] if early else min(ends[cause], ends[place]))
                no_later(place, latest[count + place] - rest)
                let_go(cause, ends[cause] if early else ends[place], latest[count + place])
            for mine in range(until - 1, first - 1, -1):
                before, after = self.before[mine], self.after[mine]
                begin = latest[mine]
                if mine not in joined:
                    begin = min(begin, latest[count + mine] - ends[mine] + starts[mine])
                if mine in ignored:
                    after = before
                if after != NOWHERE:
                    let_go(after, starts[mine], begin)
                if before != after and before != NOWHERE:
                    no_later(count + before, begin)
        return [moment - end for moment, end in zip(latest[count:], ends, strict=False)]

    def slack_rows(self) -> list[Slack]:
        """``{step, worker, phase, spans, ns, slack_ns, low_ns, high_ns}`` of what is not on the critical path: the stretches of a
        phase on a worker, how long they are in all, and how much later each of them could end without moving the step's end."""
        error = self.step.doubt_ns + sum(one.hidden_ns for one in self.step.collectives)
        # what the last one did may have no time to spare where others seem to have left before it came
        most = 0 if any(one.seems_apart for one in self.step.collectives) else sys.maxsize
        sure = self.slack()
        others = [self.slack(guesses=False)] if self.guessed else []
        for other in self.readings():
            others += [other.slack(), other.slack(guesses=False)] if self.guessed else [other.slack()]
        found: dict[tuple[str, str], Slack] = {}
        for leaf, slack, *without in zip(self.leaves, sure, *others, strict=True):
            if slack <= 0:
                continue
            row = found.get((leaf.worker, leaf.phase))
            if row is None:
                row = found[leaf.worker, leaf.phase] = {
                    "step": self.step.name, "worker": leaf.worker, "phase": leaf.phase, "spans": 0, "ns": 0,
                    "slack_ns": slack, "low_ns": slack, "high_ns": slack,
                }  # fmt: skip
            row["spans"] += 1
            row["ns"] += leaf.ns
            row["slack_ns"] = min(row["slack_ns"], slack)
            row["low_ns"] = min(row["low_ns"], self._room(leaf), max(min(slack, *without, most) - error, 0))
            row["high_ns"] = max(row["high_ns"], max(slack, *without, slack) + error)
        return sorted(found.values(), key=lambda row: -row["ns"])

    def _room(self, leaf: Leaf) -> int:
        """How much later a leaf may end before a kernel behind it is the last of a collective that its host does not wait for, which others
        may; in ns."""
        mine = self.step.unheld.get(leaf.worker, ())
        at = bisect.bisect_left(mine, -leaf.start_ns, key=lambda one: -one[0]) - 1
        return mine[at][1] if at >= 0 else sys.maxsize

    def early(self, place: int) -> bool:
        """Whether nothing that was recorded let a phase that waits go on while it waited."""
        if place in self.gathers:
            return False
        cause = self.causes.get(place, NOWHERE)
        return cause == NOWHERE or self.ends[cause] <= self.starts[place]

    def rows_before(self, first: Leaf, since_ns: int) -> set[int]:
        """The rows of its worker on which a leaf came after something since a moment: its own, and those of what let it, or what it came
        after, go on."""
        place = bisect.bisect_left(self.starts, first.start_ns)
        row = (first.worker, first.row)
        same = range(place, bisect.bisect_right(self.starts, first.start_ns))
        place = next((at for at in same if (self.leaves[at].worker, self.leaves[at].row) == row), NOWHERE)
        rows, place = {first.row}, NOWHERE if place == NOWHERE else self._own_cause(place)
        while place != NOWHERE and self.ends[place] > since_ns:
            rows.add(self.leaves[place].row)
            gather = self.gathers.get(place)
            if gather is not None and gather.waits:
                rows.update(self.leaves[inner].row for inner, _ in gather.inside)
            cause = self.causes.get(place, NOWHERE)
            waited = cause != NOWHERE and self.leaves[cause].worker == first.worker and not self.early(place)
            place = cause if waited else self._own_cause(place)
        return rows

    def _own_cause(self, place: int) -> int:
        """What a leaf began after: on its row, where that was another worker's."""
        after = self.after[place]
        other = after != NOWHERE and self.leaves[after].worker != self.leaves[place].worker
        return self.before[place] if other else after

    def gap(self, place: int) -> int:
        """How long before a leaf nothing of its row was recorded, in ns."""
        own = self.before[place]
        return self.starts[place] - (self.ends[own] if own != NOWHERE else self.step.start_ns)


def _main_row(leaves: Iterable[Leaf]) -> dict[str, int]:
    """The row of each worker that has most of its time."""
    taken: dict[tuple[str, int], int] = defaultdict(int)
    for leaf in leaves:
        taken[leaf.worker, leaf.row] += leaf.ns
    return {worker: row for (worker, row), _ in sorted(taken.items(), key=lambda item: item[1])}


def _cut(step: Step) -> tuple[list[Leaf], dict[int, list[tuple[int, int]]]]:
    """The step's leaves with those parted in which the host waited for a collective on the device, and of each such part which
    joints (and which call of each) hold it."""
    waited: dict[str, list[tuple[int, int, int, int]]] = defaultdict(list)
    for number, joint in enumerate(step.joints):
        for at, call in enumerate(joint.calls):
            if call.wait is not None:
                waited[call.worker].append((call.wait[1], call.wait[0], number, at))
    if not waited:
        return step.leaves, {}
    main = _main_row(step.leaves)
    whole: list[Leaf] = []
    mine: dict[str, list[Leaf]] = defaultdict(list)
    for leaf in step.leaves:
        cut = leaf.worker in waited and main[leaf.worker] == leaf.row
        (mine[leaf.worker] if cut else whole).append(leaf)
    holds: dict[int, list[tuple[int, int]]] = {}
    for worker, leaves in mine.items():
        leaves.sort(key=lambda leaf: leaf.start_ns)
        starts = [leaf.start_ns for leaf in leaves]
        parts: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
        for end, begin, number, at in sorted(waited[worker]):
            place = bisect.bisect_left(starts, end) - 1
            if place >= 0 and leaves[place].call is None and not waits_for_others(*_what(leaves[place])):
                parts[place].append((begin, min(end, leaves[place].end_ns), number, at))
        for place, leaf in enumerate(leaves):
            at_ns, piece = leaf.start_ns, None
            for begin, end, number, at in parts.get(place, ()):
                begin = max(begin, step.joints[number].calls[at].start_ns, at_ns)
                if begin >= end:  # two that end together hold the same stretch
                    if piece is not None and piece.end_ns == end:
                        holds[id(piece)].append((number, at))
                    continue
                if begin > at_ns:
                    whole.append(replace(leaf, start_ns=at_ns, end_ns=begin))
                name = step.joints[number].name
                around = (leaf.phase, *leaf.around)
                piece = replace(leaf, phase=name, category="", around=around, start_ns=begin, end_ns=end)
                whole.append(piece)
                holds[id(piece)] = [(number, at)]
                at_ns = end
            if piece is None:
                whole.append(leaf)
            elif at_ns < leaf.end_ns:
                whole.append(replace(leaf, start_ns=at_ns))
    return whole, holds


def _what(leaf: Leaf) -> tuple[str, str]:
    return leaf.phase, leaf.category


def milliseconds(ns: int) -> str:
    return f"{ns / 1e6:.4g} ms"
