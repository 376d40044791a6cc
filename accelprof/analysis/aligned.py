"""What the collectives of a step say of its workers' clocks, where these are known worse than a transfer takes.

No rank leaves a collective before the last one came, and ranks that came to one leave it together as a rule: by how much they seem to
leave apart is then the clocks' error. A clock is moved by no more than it may be wrong.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from accelprof.analysis.critical import Collective, Step

#: ns below which nothing is moved
LEAST_NS = 1_000


def corrections(step: Step) -> dict[str, int]:
    """By worker how far its clock is ahead of what the driver's would say, in ns; empty where nothing says so."""
    loose = [worker for worker, error in step.errors.items() if error]
    met = [one for one in step.collectives if len(one.calls) > 1 and one.joins_all and not one.hidden]
    if not loose or not met or not any(_doubtful(step, one) for one in met):
        return {}
    left: dict[str, list[tuple[int, Mapping[str, int]]]] = defaultdict(list)
    for one in met:
        ends = {call.worker: call.left_ns for call in one.calls}
        for worker, end in ends.items():
            left[worker].append((end, ends))
    ahead = {worker: 0.0 for worker in step.errors if worker not in loose}
    # those that are known best first, each beside those before it; then beside all, of which one may have needed more than it may be wrong
    for worker in [*sorted(loose, key=lambda worker: step.errors[worker]), *loose]:
        apart = [
            end - statistics.median(others)
            for end, ends in left[worker]
            if (others := [other - ahead[name] for name, other in ends.items() if name != worker and name in ahead])
        ]
        error = step.errors[worker]
        ahead[worker] = min(max(statistics.median(apart or [0]), -error), error)
    return {worker: round(ns) for worker, ns in ahead.items() if abs(ns) > LEAST_NS}


def aligned(step: Step, windows: Mapping[str, list[tuple[int, int]]]) -> Step:
    """The step with its workers' clocks as its collectives say, where they say anything; its leaves are moved.

    Args:
        windows: by worker its windows of the step, start and end on the clock of the leaves.
    """
    ahead = corrections(step)
    if not ahead:
        return step
    moved = [
        (start - ahead.get(worker, 0), end - ahead.get(worker, 0))
        for worker, mine in windows.items()
        for start, end in mine
    ]
    for leaf in step.leaves:
        by = ahead.get(leaf.worker, 0)
        leaf.start_ns, leaf.end_ns = leaf.start_ns - by, leaf.end_ns - by
    errors = {worker: error + abs(ahead.get(worker, 0)) for worker, error in step.errors.items()}
    low, high = min(start for start, _ in moved), max(end for _, end in moved)
    return replace(step, start_ns=low, end_ns=high, errors=errors, ahead=ahead)


def _doubtful(step: Step, one: Collective) -> bool:
    """Whether ranks seem to leave further apart than the last one was in it, or before it came, on clocks that may be as wrong."""
    last = one.calls[-1]
    ends = [call.left_ns for call in one.calls]
    return max(ends) - min(ends) > (last.left_ns - last.came_ns) and any(
        step.error_between(call.worker, last.worker) > last.left_ns - last.came_ns for call in one.calls[:-1]
    )
