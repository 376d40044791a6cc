"""Who was last in a collective on the host, what the others waited for that, and in which phase it was late."""

from __future__ import annotations

import bisect
import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from accelprof.analysis.critical import BEFORE, OUTSIDE, Collective, HostCall, Leaf, Step
from accelprof.analysis.gaps import OVERHEAD_SHARE
from accelprof.analysis.replay import Graph
from accelprof.analysis.report_rows import Straggler
from accelprof.contracts.spans import merge_intervals


def stragglers(graph: Graph) -> list[Straggler]:
    """A row for each collective of the step in which others waited: for whom, how long in all, and in which of its phases
    the last one was late. Times in ns; ``low_ns`` and ``high_ns`` take the clocks' error in. When ranks that are missing came nobody
    knows: any part of ``without_ns``, which the others were in it for in all after the last of them, may be waiting for those, and
    the transfer is not known.
    """
    step = graph.step
    rows: list[Straggler] = []
    before: dict[str, int] = {}
    earlier = _Before(graph)
    for one in sorted(step.collectives, key=lambda one: one.calls[-1].came_ns):
        waits: dict[HostCall, dict[str, int]] = defaultdict(dict)
        launched: set[HostCall] = set()
        until: dict[HostCall, int] = {}
        for call, waited in one.waits(step.overhead_ns):
            until[call] = waited.until_ns
            if waited.until_ns > call.came_ns:
                waits[waited.call][call.worker] = waited.until_ns - call.came_ns
                launched.update(() if waited.after is None else [waited.call])
        begin = {call.worker: before.get(call.worker, step.start_ns) for call in one.calls}
        for last, mine in sorted(waits.items(), key=lambda item: item[0].came_ns):
            absent = step.absent[one]
            after = one.after_ns if last is one.calls[-1] else 0
            came = [call for call in one.calls if call.came_ns <= last.came_ns]
            transfer = last.left_ns - until[last]
            # where its rank worked in its call before it came the transfer may have run meanwhile
            sure = last.came_ns - last.start_ns <= OVERHEAD_SHARE * transfer and last not in launched and not one.hidden
            low, high = _readings(one, mine, last, step)
            rows.append(
                Straggler(
                    step=step.name, phase=one.phase, number=one.number, group=last.group, worker=last.worker,
                    waited_ns=sum(mine.values()), low_ns=low, high_ns=high, waited_by=sorted(mine),
                    late_in=earlier.late_in(came, last, begin), missing=absent, without_ns=after if absent else 0,
                    transfer_ns=None if absent or not sure else transfer, on="host", process_group=None,
                    after=min(mine, key=mine.__getitem__), alone_ns=len(mine) * min(mine.values()),
                )
            )  # fmt: skip
        if one.joins_all:
            before.update((call.worker, call.left_ns) for call in one.calls)
    return rows


def _readings(one: Collective, mine: Mapping[str, int], last: HostCall, step: Step) -> tuple[int, int]:
    """The least and the most that ranks waited for the last one, with the clocks' error; where work is nested in the calls also if ranks came
    when their calls began, or when they had done it."""
    ways = [mine]
    if last is one.calls[-1] and last.meets is not None:
        began = max(call.start_ns for call in one.calls)
        ways.append({call.worker: max(min(began, call.end_ns) - call.start_ns, 0) for call in one.calls})
    elif last is one.calls[-1]:  # one that worked in its call came when it had
        packed = {call.worker: max(last.came_ns - call.piece[0], 0) for call in one.calls if call.piece}
        if one.hidden and not packed:  # in which pieces they met nothing shows: surely not while they worked
            packed = {
                call.worker: sum(max(min(end, last.came_ns) - start, 0) for start, end in call.pieces())
                for call in one.calls
            }
        ways.append({worker: min(ns, packed.get(worker, ns)) for worker, ns in mine.items()})
    errors = {call.worker: step.error_between(call.worker, last.worker) for call in one.calls}
    low = min(sum(max(ns - errors[worker], 0) for worker, ns in way.items()) for way in ways)
    if one.hidden:  # which pieces they met in is taken to be so
        low = max(low - one.hidden_ns, 0)
    high = max(sum(ns + errors[worker] for worker, ns in way.items() if ns) for way in ways)
    if last is one.calls[-1]:  # they may have waited for one that came later than it seems
        own = step.error_between(last.worker, last.worker)
        more = ((len(mine) - 1) * (errors[worker] - own - ns) - 2 * ns for worker, ns in mine.items())
        high += max(0, *more)
    return low, high


class _Before:
    """What each worker did between two moments, by row."""

    def __init__(self, graph: Graph) -> None:
        self._graph, step = graph, graph.step
        leaves = step.leaves if step.collectives else []
        self._opened = {worker: step.start_ns + ns for worker, ns in step.late.items()}
        self._rows: dict[str, dict[int, list[Leaf]]] = defaultdict(lambda: defaultdict(list))
        for leaf in sorted(leaves, key=lambda leaf: leaf.start_ns):
            self._rows[leaf.worker][leaf.row].append(leaf)
        self._ends = {
            (w, row): [leaf.end_ns for leaf in mine] for w, rows in self._rows.items() for row, mine in rows.items()
        }

    def spent(self, worker: str, begin: int, until: int, rows: Collection[int]) -> dict[tuple[str, ...], int]:
        """ns by the phases that it was in on any of these rows, outermost first, and outside them all."""
        inside: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
        if (opened := min(self._opened.get(worker, begin), until)) > begin:
            inside[(BEFORE,)].append((begin, opened))
        for row, mine in self._rows[worker].items():
            if row not in rows:
                continue
            ends = self._ends[worker, row]
            for at in range(bisect.bisect_right(ends, begin), len(mine)):
                leaf = mine[at]
                if leaf.start_ns >= until:
                    break
                path = (*leaf.around[::-1], leaf.phase)
                inside[path].append((max(leaf.start_ns, begin), min(leaf.end_ns, until)))
        found = {path: _covered(stretches) for path, stretches in inside.items()}
        found[(OUTSIDE,)] = max(until - begin - _covered(itertools.chain.from_iterable(inside.values())), 0)
        return found

    def late_in(self, calls: Sequence[HostCall], last: HostCall, begin: Mapping[str, int]) -> str | None:
        """The phase that took the last one longer than the median of the others since their collective before, with all that is
        nested in it; a nested one where that is most of it. What it did meanwhile on rows that the call did not come after made nobody
        late."""
        spent = {}
        for call in calls:
            rows = self._graph.rows_before(call.leaves[0], begin[call.worker])
            spent[call.worker] = self.spent(call.worker, begin[call.worker], call.came_ns, rows)
        whole = {worker: _with_nested(mine) for worker, mine in spent.items()}
        others = [mine for worker, mine in whole.items() if worker != last.worker]
        inside: dict[tuple[str, ...], dict[tuple[str, ...], float]] = defaultdict(dict)
        for path, ns in whole[last.worker].items():
            inside[path[:-1]][path] = ns - statistics.median(mine.get(path, 0) for mine in others)
        at: tuple[str, ...] = ()
        least = -math.inf
        while more := inside.get(at):
            worst = max(more, key=lambda path: more[path])
            if more[worst] <= least:
                break
            at, least = worst, more[worst] / 2
        return at[-1] if at else None


def _covered(stretches: Iterable[tuple[int, int]]) -> int:
    return sum(end - start for start, end in merge_intervals(stretches))


def _with_nested(spent: Mapping[tuple[str, ...], int]) -> dict[tuple[str, ...], int]:
    found: dict[tuple[str, ...], int] = defaultdict(int)
    for path, ns in spent.items():
        for depth in range(1, len(path) + 1):
            found[path[:depth]] += ns
    return found
