"""Collectives on the devices as the replay follows them: when each rank's kernel began, and who waited for its end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from accelprof.analysis.collectives import Call, FileCollectives, comparable, each_collective
from accelprof.analysis.critical import Arrival, Joint
from accelprof.reading.columns import NONE

#: kernels that are followed; of more, the collectives with the longest waits
MAX_ARRIVALS = 100_000


def joints_of(files: Sequence[FileCollectives]) -> tuple[dict[object, list[Joint]], dict[object, int]]:
    """By step the collectives that ranks were joined in, as :mod:`accelprof.analysis.replay` follows them; and ns waited in those
    whose clocks are not known well enough to put them beside the host's phases."""
    found: dict[object, list[Joint]] = defaultdict(list)
    loose: dict[object, int] = defaultdict(int)
    of_call: dict[tuple[int, int], Joint] = {}
    made: list[tuple[Arrival, Call]] = []
    for _, steps, key, _, calls, _ in each_collective(files):
        if len(calls) < 2:
            continue
        if not comparable(calls) or any(call.file.worker.host is None for call in calls):
            least = min(call.ns for call in calls)
            loose[steps] += sum(call.ns - least for call in calls)
            continue
        joint = Joint(f"{key.name} (device)")
        last = max(call.start for call in calls)
        for call in calls:
            start, end = int(call.file.wait_start[call.at]), int(call.file.wait_end[call.at])
            shift = call.file.shift
            held = None if start == NONE or call.end <= last else (start - shift, end - shift)
            arrival = Arrival(call.file.worker.label, call.start, call.end, held)
            joint.calls.append(arrival)
            of_call[id(call.file), call.at] = joint
            made.append((arrival, call))
        found[steps].append(joint)
    for arrival, call in made:
        behind = int(call.file.behind[call.at])
        before = None if behind == NONE else of_call.get((id(call.file), behind))
        # one that left early (the sender of a broadcast) is not joined by it
        if before is not None and before.at_ns < call.file.ends[behind]:
            arrival.behind = before
    return _longest(found), loose


def _longest(found: dict[object, list[Joint]]) -> dict[object, list[Joint]]:
    """Of too many collectives those in which a rank waited longest."""
    if sum(len(joint.calls) for mine in found.values() for joint in mine) <= MAX_ARRIVALS:
        return found
    kept: dict[object, list[Joint]] = defaultdict(list)
    room = MAX_ARRIVALS
    pairs = ((steps, joint) for steps, mine in found.items() for joint in mine)
    for steps, joint in sorted(pairs, key=lambda pair: min(call.start_ns for call in pair[1].calls) - pair[1].at_ns):
        room -= len(joint.calls)
        if room < 0:
            break
        kept[steps].append(joint)
    return kept
