"""The steps of a run as leaves, and who waited for whom in the collectives on the host.

A leaf is a stretch in which one phase is the innermost of its row (thread or task) of a worker, on the driver's clock. A call of
a collective is a phase of ``category="collective"`` in no other one, with all that is nested in it. Calls of one name are one
collective where they ran at the same time, as far as the clocks are known: see :meth:`Step.collectives`.

One module, because which calls are one collective and where in them the ranks met are asked of the same leaves.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from accelprof.analysis.gaps import overhead
from accelprof.analysis.report_rows import step_name
from accelprof.analysis.seconds import COLLECTIVE, waits_for_others
from accelprof.contracts.spans import merge_intervals

OUTSIDE = "(outside every phase)"
#: where a rank was late whose window of the step opened later than the others'
BEFORE = "(before its step)"


@dataclass(slots=True)
class Leaf:
    """A stretch of one row in which ``phase`` is the innermost. ``around``: the phases around it; ``call``: name and beginning of
    the outermost collective that it is a part of, ``None`` for what is in none. ``goes_on``: its call was cut where its worker's window
    closed, and as far as is known went on behind the step; ``first``: it is on the process's first thread."""

    worker: str
    group: str
    row: int
    phase: str
    category: str
    start_ns: int
    end_ns: int
    rank: int | None = None
    around: tuple[str, ...] = ()
    call: tuple[str, int] | None = None
    goes_on: bool = False
    first: bool = False

    def __post_init__(self) -> None:
        if self.call is None and self.category == COLLECTIVE:
            self.call = self.phase, self.start_ns

    @property
    def ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass(slots=True, eq=False)
class HostCall:
    """One rank's call of a collective in a step: its leaves, by start. ``piece``: from when to when of it the rank was in the collective
    itself, where work that is nested in its calls parts it, and ``meets`` the same where that is taken for so; see
    :meth:`Collective.find_meeting`."""

    worker: str
    group: str
    phase: str
    leaves: list[Leaf]
    #: how wrong its rank's clock may be
    error_ns: int = 0
    replica: int | None = None
    piece: tuple[int, int] | None = None
    meets: tuple[int, int] | None = None

    @property
    def part(self) -> tuple[str, int | None]:
        """Its group, of one with replicas the replica: what each of two does at one moment is not one thing."""
        return self.group, self.replica

    @property
    def start_ns(self) -> int:
        return self.leaves[0].start_ns

    @property
    def end_ns(self) -> int:
        return self.leaves[-1].end_ns

    @property
    def ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def came_ns(self) -> int:
        """When its rank came to the collective."""
        return self.leaves[0].start_ns if self.meets is None else self.meets[0]

    @property
    def left_ns(self) -> int:
        """When its rank left the collective."""
        return self.leaves[-1].end_ns if self.meets is None else self.meets[1]

    @property
    def may_start_ns(self) -> int:
        return self.came_ns - self.error_ns

    @property
    def until_ns(self) -> int:
        """When it may have ended at the latest."""
        return self.left_ns + self.error_ns

    @property
    def worked_until_ns(self) -> int | None:
        """When the last work that is nested in it ended, ``None`` without any."""
        return max((leaf.end_ns for leaf in self.leaves if leaf.ns and _works(leaf)), default=None)

    def pieces(self) -> Iterator[tuple[int, int]]:
        """The stretches in which nothing nested worked."""
        for works, leaves in itertools.groupby((leaf for leaf in self.leaves if leaf.ns), _works):
            if not works:
                piece = list(leaves)
                yield piece[0].start_ns, piece[-1].end_ns


def _works(leaf: Leaf) -> bool:
    """Whether a leaf of a collective's call is work of its own."""
    return leaf.category != COLLECTIVE and not waits_for_others(leaf.phase, leaf.category)


class Waited(NamedTuple):
    """A call waited for ``call``, until ``until_ns``. ``after``: where it left before that one came, the last that had come by then; that
    it was let go on by what ``call``'s rank had launched is a guess."""

    call: HostCall
    until_ns: int
    after: HostCall | None = None


@dataclass(slots=True, eq=False)
class Collective:
    """A collective on the host: the calls of its ranks, by when they came. ``number``: the how-manieth of its name in its group and step.
    ``may_start_ns``: when its last rank came at the earliest, ``until_ns``: when its first left at the latest. ``hidden``: work that is
    nested in its calls hides when ranks were in it together."""

    phase: str
    calls: list[HostCall] = field(default_factory=list)
    number: int = 0
    may_start_ns: int = -sys.maxsize
    until_ns: int = sys.maxsize
    hidden: bool = False

    def meets(self, other: HostCall | Collective) -> bool:
        """Whether all calls of both may have run at one moment, as far as the clocks are known."""
        return self.may_start_ns < other.until_ns and other.may_start_ns < self.until_ns

    def add(self, call: HostCall) -> None:
        """Take in a call."""
        self.calls.append(call)
        self.may_start_ns = max(self.may_start_ns, call.may_start_ns)
        self.until_ns = min(self.until_ns, call.until_ns)

    def waits(self, overhead_ns: int) -> Iterator[tuple[HostCall, Waited]]:
        """Each call and whom it waited for last: of those that came before it left the last. Where all the others left before the last of
        all came, that one for a call that was longer there since the others had come than the last one's own takes: what a rank
        launches (``async_op=True``) before it comes to its call lets the others go on."""
        last = self.calls[-1]
        unmet = all(call.until_ns <= last.may_start_ns for call in self.calls[:-1])
        for call in self.calls:
            if call is last or call.until_ns > last.may_start_ns:
                yield call, Waited(last, min(last.came_ns, call.left_ns))
                continue
            came = self.calls[bisect.bisect_left(self.calls, call.left_ns, key=lambda other: other.came_ns) - 1]
            if unmet and call.left_ns - came.came_ns > last.ns + overhead_ns:
                yield call, Waited(last, call.left_ns - last.ns, came)
            else:
                yield call, Waited(came, came.came_ns)

    def find_meeting(self, overhead_ns: int) -> None:
        """Where work is nested in calls: which piece of each call the ranks were in together. It counts where such work went on after the
        last call began; otherwise a rank came when its call began, and this is what else may be.

        It is the one after the work where they wait for what the last one does first in its call, and the one before it where what is nested
        follows: of those pieces in which all may have been at one moment the ones that show most of it, the time in which ranks waited for
        the last and all were there, less what they ended apart.
        """
        worked = max(filter(None, (call.worked_until_ns for call in self.calls)), default=None)
        if worked is None or len(self.calls) < 2:
            return
        of_calls = [list(call.pieces()) for call in self.calls]
        late = self.hidden = worked > self.calls[-1].start_ns
        if not all(of_calls):
            return
        ends = [[end for _, end in pieces] for pieces in of_calls]
        best: tuple[int, list[tuple[int, int]]] | None = None
        for target in sorted({*ends[0], *ends[-1]}):
            chosen = [pieces[_nearest(of_call, target)] for pieces, of_call in zip(of_calls, ends, strict=True)]
            errors = [call.error_ns for call in self.calls]
            if max(start - error for (start, _), error in zip(chosen, errors, strict=True)) > min(
                end + error for (_, end), error in zip(chosen, errors, strict=True)
            ):
                continue
            left = min(end for _, end in chosen)
            shown = 2 * left - min(start for start, _ in chosen) - max(end for _, end in chosen)
            if best is None or shown > best[0]:
                best = shown, chosen
        if best is None:
            return
        starts, lefts = [start for start, _ in best[1]], [end for _, end in best[1]]
        # ranks that came apart and left together waited there
        apart = max(lefts) - min(lefts)
        self.hidden = late and (max(starts) - min(starts) - apart <= overhead_ns or apart > min(lefts) - max(starts))
        for call, piece in zip(self.calls, best[1], strict=True):
            call.piece, call.meets = piece, piece if late else None
        self.calls.sort(key=lambda call: call.came_ns)
        self.may_start_ns = max(call.may_start_ns for call in self.calls)
        self.until_ns = min(call.until_ns for call in self.calls)

    @property
    def joins_all(self) -> bool:
        """Whether no call was over before the last rank came, so that all went on from one moment."""
        last = self.calls[-1]
        return all(call.until_ns > last.may_start_ns for call in self.calls)

    @property
    def seems_apart(self) -> bool:
        """Whether one left before the last came, by clocks that may be wrong by more."""
        last = self.calls[-1]
        return any(call.left_ns < last.came_ns and call.until_ns > last.may_start_ns for call in self.calls[:-1])

    @property
    def hidden_ns(self) -> int:
        """For how long after its last call began it is not known who was in it, where work that is nested in the calls hides it."""
        return max(call.end_ns for call in self.calls) - max(call.start_ns for call in self.calls) if self.hidden else 0

    @property
    def groups(self) -> set[str]:
        return {call.group for call in self.calls}

    @property
    def parts(self) -> set[tuple[str, int | None]]:
        return {call.part for call in self.calls}

    @property
    def workers(self) -> set[str]:
        return {call.worker for call in self.calls}

    @property
    def after_ns(self) -> int:
        """How long its ranks were in it in all after the last of them came."""
        came = self.calls[-1].came_ns
        return sum(max(call.left_ns - came, 0) for call in self.calls)


def _nearest(ends: Sequence[int], target: int) -> int:
    """The place of the one of ordered moments that is nearest."""
    at = bisect.bisect_left(ends, target)
    return min((place for place in (at - 1, at) if 0 <= place < len(ends)), key=lambda place: abs(ends[place] - target))


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
    #: worst error of a clock that the leaves stand on; and each worker's, where they are known apart
    error_ns: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    #: the host of workers, where it is known: those of one share a clock
    hosts: Mapping[str, str] = field(default_factory=dict)
    #: time between its first and last moment in which no worker had a window
    apart_ns: int = 0
    #: collectives on the device; and what ranks waited in those whose kernels cannot be put beside the leaves
    joints: list[Joint] = field(default_factory=list)
    loose_ns: int = 0
    #: collectives on the device that are too many to be followed: what was waited in each, the longest first
    left_out: list[int] = field(default_factory=list)
    #: how long after the step's first moment the window of each worker opened, in ns
    late: Mapping[str, int] = field(default_factory=dict)
    #: the replica of workers that are one's; ranks of several replicas do not wait for each other unseen
    replicas: Mapping[str, int] = field(default_factory=dict)
    #: the ranks of each group
    ranks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: whether it came to its end: of one in which the process failed, or was told to end, it is not known what it would have taken
    ended: bool = True

    @property
    def name(self) -> int | str:
        return step_name(self.steps)

    @property
    def wall_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def overhead_ns(self) -> int:
        """A gap up to this is the overhead of its own row."""
        return overhead(self.wall_ns)

    def error_between(self, one: str, other: str) -> int:
        """How wrong the time between moments of two workers may be."""
        return self.errors.get(one, self.error_ns) + self.errors.get(other, self.error_ns)

    @property
    def doubt_ns(self) -> int:
        """The same of the two workers whose clocks are known worst."""
        return sum(sorted((0, *self.errors.values()))[-2:]) if self.errors else 2 * self.error_ns

    @functools.cached_property
    def collectives(self) -> list[Collective]:
        """By start. In a group a call belongs to the first collective of its name that its rank has not come to yet and all of
        whose calls may have run when it began. Where all ranks have as many calls only n-th ones are one; of these, ranks that left before
        others came are in one collective with them where one of both sides is a single rank or was there when the others came.

        Collectives of several groups are one where they may have run at one moment, and one of them has a single call (nobody is
        in a collective alone) or all of them end together; on clocks that tell no moments of the step apart they stay what they are.
        """
        leaves: dict[tuple[str, int, tuple[str, int]], list[Leaf]] = defaultdict(list)
        for leaf in self.leaves:
            if leaf.call is not None:
                leaves[leaf.worker, leaf.row, leaf.call].append(leaf)
        of_name: dict[str, dict[tuple[str, int | None], list[HostCall]]] = defaultdict(lambda: defaultdict(list))
        for (worker, _, (phase, _)), mine in leaves.items():
            mine.sort(key=lambda leaf: leaf.start_ns)
            error = self.errors.get(worker, self.error_ns)
            call = HostCall(worker, mine[0].group, phase, mine, error, self.replicas.get(worker))
            of_name[phase][call.part].append(call)
        found = []
        for parts in of_name.values():
            apart = [one for mine in parts.values() for one in self._of_group(mine)]
            found += self._over_groups(apart) if len(parts) > 1 and self.doubt_ns < self.wall_ns else apart
        found.sort(key=lambda one: one.calls[0].start_ns)
        seen: dict[tuple[tuple[str, int | None], str], int] = defaultdict(int)
        for one in found:
            one.number = max(seen[part, one.phase] for part in one.parts)
            for part in one.parts:
                seen[part, one.phase] = one.number + 1
            one.find_meeting(self.overhead_ns)
        return found

    @functools.cached_property
    def absent(self) -> Mapping[Collective, list[str]]:
        """The ranks that are missing in each collective: those with fewer calls of its name than others of their group, and, where all
        others of the group are in it, those of which the step has nothing. Who has no such call at all is of another subgroup where
        several ranks had theirs and the step ended: none of them would have come back."""
        members: dict[str, set[str]] = defaultdict(set)
        for leaf in self.leaves:
            members[leaf.group].add(leaf.worker)
        unseen = {group: [rank for rank in mine if rank not in members[group]] for group, mine in self.ranks.items()}
        called: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for one in self.collectives:
            for call in one.calls:
                called[call.group, one.phase][call.worker] += 1
        found = {}
        for one in self.collectives:
            missing: set[str] = set()
            lost: list[str] = []
            subgroup = self.ended and len(one.calls) > 1
            for group in one.groups:
                calls = called[group, one.phase]
                most, least = max(calls.values()), 1 if subgroup else 0
                missing |= {rank for rank in members[group] - one.workers if least <= calls[rank] < most}
            for group in one.groups:
                if members[group] <= one.workers | missing:
                    lost += unseen.get(group, ())
            found[one] = [*sorted(missing), *lost]
        return found

    @functools.cached_property
    def unheld(self) -> Mapping[str, list[tuple[int, int]]]:
        """By worker the collectives on its device that were over before its host waited for them, the last first: when its kernel began, and
        how much later the last rank's did in this or any after it."""
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        calls = [
            (call.start_ns, joint.at_ns, call) for joint in self.joints for call in joint.calls if call.wait is None
        ]
        for start, at_ns, call in sorted(calls, key=lambda one: -one[0]):
            mine = found[call.worker]
            mine.append((start, min(at_ns - start, mine[-1][1] if mine else sys.maxsize)))
        return found

    @property
    def not_waited_for(self) -> list[str]:
        """Workers whose hosts did not wait for the last collective on their device, and were through before it was."""
        last: dict[str, Arrival] = {}
        for joint in self.joints:
            for call in joint.calls:
                if call.worker not in last or call.start_ns > last[call.worker].start_ns:
                    last[call.worker] = call
        through: dict[str, int] = defaultdict(int)
        for leaf in self.leaves:
            through[leaf.worker] = max(through[leaf.worker], leaf.end_ns)
        return sorted(worker for worker, call in last.items() if call.wait is None and call.end_ns > through[worker])

    @property
    def without_ns(self) -> int:
        """How long ranks were in collectives in all after the last that is known, where others are missing: waiting or transfer."""
        return sum(one.after_ns for one, missing in self.absent.items() if missing)

    @property
    def alone(self) -> list[HostCall]:
        """Calls of collectives that no other rank of the run took part in as recorded, where they are more than overhead."""
        return [one.calls[0] for one in self.collectives if len(one.calls) == 1 and one.calls[0].ns > self.overhead_ns]

    def _of_group(self, calls: Sequence[HostCall]) -> Iterator[Collective]:
        """Calls of one name and group, those of each collective together."""
        ranks: dict[str, list[HostCall]] = defaultdict(list)
        for call in sorted(calls, key=lambda call: call.start_ns):
            ranks[call.worker].append(call)
        if len(ranks) < 2 or len({len(mine) for mine in ranks.values()}) > 1:
            yield from self._met(calls)
            return
        for same in zip(*ranks.values(), strict=True):
            parts = sorted(self._met(same), key=lambda part: part.calls[0].start_ns)
            found = parts[:1]
            for part in parts[1:]:
                last, came = found[-1], part.calls[0].may_start_ns
                alone = len(last.calls) == 1 or len(part.calls) == 1
                if alone or any(call.until_ns > came for call in last.calls):
                    for call in part.calls:
                        last.add(call)
                else:
                    found.append(part)
            for one in found:
                one.calls.sort(key=lambda call: call.start_ns)
            yield from found

    def _met(self, calls: Iterable[HostCall]) -> Iterator[Collective]:
        """Calls of one name and group, those of each collective together."""
        found: list[Collective] = []
        come: dict[str, int] = defaultdict(int)  # the first collective that a rank may come to
        over = 0  # those before may have no more calls
        for call in sorted(calls, key=lambda call: call.start_ns):
            while over < len(found) and found[over].until_ns + self.doubt_ns <= call.start_ns:
                over += 1
            at = max(come[call.worker], over)
            while at < len(found) and not found[at].meets(call):
                at += 1
            if at == len(found):
                found.append(Collective(call.phase))
            found[at].add(call)
            come[call.worker] = at + 1
        yield from found

    def _over_groups(self, parts: Iterable[Collective]) -> list[Collective]:
        found: list[Collective] = []
        running: list[Collective] = []
        for part in sorted(parts, key=lambda part: part.calls[0].start_ns):
            running = [one for one in running if one.until_ns > part.calls[0].may_start_ns]
            partner = next((one for one in running if self._one_of(one, part)), None)
            if partner is None:
                found.append(part)
                running.append(part)
            else:
                for call in part.calls:
                    partner.add(call)
                partner.calls.sort(key=lambda call: call.start_ns)
        return found

    def _one_of(self, one: Collective, other: Collective) -> bool:
        """Whether what several groups or replicas did is one collective."""
        if one.parts & other.parts or not one.meets(other):
            return False
        ends = [call.end_ns for call in (*one.calls, *other.calls)]
        alone = len(one.calls) == 1 or len(other.calls) == 1
        return alone or max(ends) - min(ends) <= max(self.overhead_ns, self.doubt_ns)


def nested_most(step: Step) -> tuple[str, str, str, int] | None:
    """The longest work of a rank that is nested in a collective's call: the collective, the work, the worker and ns."""
    taken: Counter[tuple[str, str, str, int]] = Counter()
    for one in step.collectives:
        for call in one.calls if one.hidden or one.calls[0].piece else ():
            for leaf in call.leaves:
                taken[one.phase, leaf.phase, call.worker, call.start_ns] += leaf.ns if _works(leaf) else 0
    found = max(taken.items(), key=lambda item: item[1], default=None)
    return (*found[0][:3], found[1]) if found is not None else None


def scatter(walls: Sequence[int]) -> int:
    """How far 95 % of steps lie from their median, in ns, from the median of their distances; 0 with less than three."""
    if len(walls) < 3:
        return 0
    middle = statistics.median(walls)
    return round(2 * 1.4826 * statistics.median(abs(wall - middle) for wall in walls))


def steps_of(
    leaves: Iterable[Leaf],
    windows: Iterable[tuple[str, tuple[int, ...], int, int]],
    errors: Mapping[str, int] | None = None,
) -> list[Step]:
    """Steps of a run: windows of all workers with the same steps together, with the leaves that lie in their own worker's window: workers
    may be in different steps at one moment.

    Args:
        windows: worker, steps, start and end in ns on the clock of the leaves.
    """
    of_step: dict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
    of_worker: dict[str, list[tuple[int, int, tuple[int, ...]]]] = defaultdict(list)
    for worker, steps, start, end in windows:
        of_step[steps].append((start, end))
        of_worker[worker].append((start, end, steps))
    found = {}
    for steps, mine in of_step.items():
        low, high = min(start for start, _ in mine), max(end for _, end in mine)
        apart = high - low - sum(end - start for start, end in merge_intervals(mine))
        found[steps] = Step(steps, low, high, errors=errors or {}, apart_ns=apart)
    for rows in of_worker.values():
        rows.sort()
    starts = {worker: [start for start, _, _ in rows] for worker, rows in of_worker.items()}
    for leaf in leaves:
        place = bisect.bisect_right(starts.get(leaf.worker, ()), leaf.start_ns) - 1
        if place >= 0:
            _, end, steps = of_worker[leaf.worker][place]
            if leaf.start_ns < end:
                found[steps].leaves.append(leaf)
    return sorted(found.values(), key=lambda step: step.start_ns)
