"""A step as it was if its ranks left its collectives together, where clocks are known worse than a transfer takes.

No rank leaves a collective before the last one came, and ranks that came to one leave it together as a rule: by how much they seem to
leave apart may be the clocks' error. It may be jitter, or a broadcast, too: no figure stands on this picture, intervals take it in.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import replace

from accelprof.analysis.critical import Collective, Step

#: ns below which nothing is moved
LEAST_NS = 1_000


def corrections(step: Step) -> dict[str, int]:
    """By worker how far its clock would be ahead of the driver's, in ns; empty where nothing says so. Workers of one host share a clock."""
    errors: dict[str, int] = {}
    for worker, error in step.errors.items():
        errors[_clock(step, worker)] = max(errors.get(_clock(step, worker), 0), error)
    loose = [clock for clock, error in errors.items() if error]
    if len(errors) < 2 or not loose or step.joints or step.doubt_ns >= step.wall_ns:
        return {}
    met = [one for one in step.collectives if len(one.calls) > 1 and one.joins_all and not one.hidden]
    if not any(_doubtful(step, one) for one in met):
        return {}
    left: dict[str, list[tuple[int, dict[str, list[int]]]]] = defaultdict(list)
    for one in met:
        ends: dict[str, list[int]] = defaultdict(list)
        for call in one.calls:
            ends[_clock(step, call.worker)].append(call.left_ns)
        for clock, mine in ends.items():
            left[clock] += [(end, ends) for end in mine]
    ahead = {clock: 0.0 for clock in errors if clock not in loose}
    # those that are known best first, each beside those before it; then beside all, of which one may have needed more than it may be wrong
    for clock in [*sorted(loose, key=lambda clock: errors[clock]), *loose]:
        apart = []
        for end, ends in left[clock]:
            others = [at - ahead[name] for name, mine in ends.items() if name != clock and name in ahead for at in mine]
            apart += [end - statistics.median(others)] if others else []
        ahead[clock] = min(max(statistics.median(apart or [0]), -errors[clock]), errors[clock])
    moved = {worker: round(ahead[_clock(step, worker)]) for worker in step.errors}
    return {worker: ns for worker, ns in moved.items() if abs(ns) > LEAST_NS}


def aligned(step: Step) -> Step | None:
    """The step with its workers' clocks as its collectives say, ``None`` where they say nothing."""
    ahead = corrections(step)
    if not ahead:
        return None
    leaves = []
    for leaf in step.leaves:
        by = ahead.get(leaf.worker, 0)
        leaves.append(replace(leaf, start_ns=leaf.start_ns - by, end_ns=leaf.end_ns - by))
    errors = {worker: error + abs(ahead.get(worker, 0)) for worker, error in step.errors.items()}
    opened = {
        worker: step.start_ns + step.late.get(worker, 0) - ahead.get(worker, 0)
        for worker in {leaf.worker for leaf in leaves}.union(step.late)
    }
    low = min(opened.values())
    rest = step.end_ns - max(leaf.end_ns for leaf in step.leaves)
    high = max(leaf.end_ns for leaf in leaves) + rest
    late = {worker: at - low for worker, at in opened.items() if worker in step.late}
    return replace(step, start_ns=low, end_ns=high, leaves=leaves, errors=errors, late=late)


def _clock(step: Step, worker: str) -> str:
    return step.hosts.get(worker, worker)


def _doubtful(step: Step, one: Collective) -> bool:
    """Whether ranks seem to leave further apart than the last one was in it, or before it came, on clocks that may be as wrong."""
    last = one.calls[-1]
    ends = [call.left_ns for call in one.calls]
    return max(ends) - min(ends) > (last.left_ns - last.came_ns) and any(
        step.error_between(call.worker, last.worker) > last.left_ns - last.came_ns for call in one.calls[:-1]
    )
