"""Ranks of one group of which no collective was recorded: they may wait for each other inside phases, as in DDP's backward."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from accelprof.analysis.critical import Leaf, Step
from accelprof.analysis.replay import Graph
from accelprof.analysis.report_rows import Segment, Slack, UnseenWait
from accelprof.analysis.seconds import waits_for_others
from accelprof.analysis.units import duration
from accelprof.contracts.targets import peers_of

#: a phase began apart from so many times on what still counts as ending together
APART = 4
MEND = 'a range with category="collective" around what waits, or tool torch where that runs on a device, records it'


@dataclass(frozen=True, order=True)
class Apart:
    """By how much the ranks began a call apart, in ns, and who began it last."""

    ns: int
    last: str


@dataclass
class Unseen:
    """A group in a step. ``phases``: those whose ranks ended together although they began apart, the largest first; ``ranks``: its workers."""

    group: str
    workers: int
    phases: dict[str, Apart] = field(default_factory=dict)
    ranks: frozenset[str] = frozenset()

    @property
    def shown(self) -> str:
        """The phases in words that go on a sentence; empty without any."""
        names = [
            f"{phase} began up to {duration(most.ns)} apart, last on {most.last}"
            for phase, most in list(self.phases.items())[:3]
        ]
        return f"{', '.join(names)}, and ended together" if names else ""

    def rows(self, step: int | str) -> Iterator[UnseenWait]:
        """Of a step."""
        for phase, most in self.phases.items():
            yield UnseenWait(step, self.group, phase, most.ns, most.last)


def unseen_waits(graph: Graph) -> list[Unseen]:
    """The groups (of replicas: each of them) of several ranks of which the step has no collective, neither on the host nor on the device, and no phase of one that
    waited for work of another."""
    step = graph.step
    if step.loose_ns or step.left_out:
        return []
    of_group: dict[str, dict[str, list[Leaf]]] = defaultdict(lambda: defaultdict(list))
    group_of: dict[str, str] = {}
    recorded: set[str] = set()
    for leaf in step.leaves:
        if leaf.rank is not None:
            group = peers_of(leaf.group, step.replicas.get(leaf.worker))
            of_group[group][leaf.worker].append(leaf)
            group_of[leaf.worker] = group
        if leaf.call is not None:
            recorded.add(group_of.get(leaf.worker, leaf.group))
    recorded |= {group_of.get(call.worker, "") for joint in step.joints for call in joint.calls}
    for place, cause in graph.causes.items():
        waits, other = graph.leaves[place], graph.leaves[cause]
        if waits.group == other.group and waits.worker != other.worker:
            recorded.update(group_of.get(worker, waits.group) for worker in (waits.worker, other.worker))
    return [
        Unseen(group, len(ranks), _together(step, ranks), frozenset(ranks))
        for group, ranks in of_group.items()
        if len(ranks) > 1
        and group not in recorded
        and set.intersection(*({leaf.phase for leaf in mine} for mine in ranks.values()))  # they run the same program
    ]


def mark(found: Iterable[Unseen], path: Iterable[Segment], slack: Iterable[Slack]) -> None:
    """Say of the rows of a step what is not known of them where ranks seem to have waited unseen: of a phase of the path in which another
    came last, whether it is work; of what is not on the path, whether others waited for it, so that it could end no later."""
    for one in found:
        if not one.phases:
            continue
        for part in path:
            most = one.phases.get(part["phase"])
            if most is not None and part["worker"] in one.ranks and part["worker"] != most.last:
                part["unseen"] = True
        apart = max(most.ns for most in one.phases.values())
        for row in slack:
            if row["worker"] in one.ranks:
                row["unseen"], row["low_ns"], row["high_ns"] = True, 0, row["high_ns"] + apart


def merged(found: Iterable[Unseen]) -> list[Unseen]:
    """Those of several steps, a row for each group."""
    groups: dict[str, Unseen] = {}
    for one in found:
        mine = groups.setdefault(one.group, Unseen(one.group, 0))
        mine.workers = max(mine.workers, one.workers)
        for phase, most in one.phases.items():
            mine.phases[phase] = max(most, mine.phases.get(phase, most))
    for mine in groups.values():
        mine.phases = _largest_first(mine.phases)
    return list(groups.values())


def _together(step: Step, ranks: Mapping[str, list[Leaf]]) -> dict[str, Apart]:
    """By phase how far apart the ranks began a call, the most of its calls, of those that they ended together. The n-th calls are one."""
    together = max(step.overhead_ns, step.doubt_ns)
    calls: dict[str, list[list[tuple[int, int, str]]]] = defaultdict(list)
    for worker, leaves in ranks.items():
        mine: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
        for phase, start, end in _calls(leaves):
            mine[phase].append((start, end, worker))
        for phase, times in mine.items():
            calls[phase].append(sorted(times))
    found: dict[str, Apart] = {}
    for phase, of_rank in calls.items():
        if len(of_rank) < len(ranks) or len({len(times) for times in of_rank}) > 1:
            continue
        for one in zip(*of_rank, strict=True):
            ends = [end for _, end, _ in one]
            (first, *_), (last, _, worker) = min(one), max(one)
            apart = last - first
            if apart >= APART * (max(ends) - min(ends)) and apart > 2 * together and max(ends) - min(ends) <= together:
                found[phase] = max(most := Apart(apart, worker), found.get(phase, most))
    return _largest_first(found)


def _calls(leaves: Sequence[Leaf]) -> Iterator[tuple[str, int, int]]:
    """The calls of a worker's phases that do not wait for others as recorded, with what is nested in them: ``(phase, start, end)``."""
    rows: dict[int, list[Leaf]] = defaultdict(list)
    waiting = {
        phase: waits_for_others(phase, category) for phase, category in {(leaf.phase, leaf.category) for leaf in leaves}
    }
    for leaf in leaves:
        rows[leaf.row].append(leaf)
    for row in rows.values():
        stack: list[tuple[str, int]] = []
        over = 0
        for leaf in sorted(row, key=attrgetter("start_ns", "end_ns")):
            path = (*leaf.around[::-1], leaf.phase)
            kept = 0
            if leaf.start_ns <= over:
                while kept < min(len(stack), len(path)) and stack[kept][0] == path[kept]:
                    kept += 1
            yield from ((phase, start, over) for phase, start in stack[kept:] if not waiting.get(phase))
            stack[kept:] = [(phase, leaf.start_ns) for phase in path[kept:]]
            over = leaf.end_ns
        if not leaf.goes_on:  # a window that closes ends what nobody waited for
            yield from ((phase, start, over) for phase, start in stack if not waiting.get(phase))


def _largest_first(phases: dict[str, Apart]) -> dict[str, Apart]:
    return dict(sorted(phases.items(), key=lambda item: -item[1].ns))
