"""Collectives on the devices as the replay follows them: when each rank's kernel began, and who waited for its end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from accelprof.analysis.collectives import DeviceCall, FileCollectives, comparable, each_collective
from accelprof.analysis.critical import Arrival, Joint
from accelprof.reading.columns import NONE

#: kernels that are followed; of more, the collectives with the longest waits
MAX_ARRIVALS = 100_000


@dataclass
class Joints:
    """By step the collectives that ranks were joined in, as :mod:`accelprof.analysis.replay` follows them; ``loose``: ns waited in
    those whose clocks are not known well enough to put them beside the host's phases; ``left_out``: those that are too many, by
    how long the first of each waited for the last, the longest first. ``kernels``: of all of them."""

    found: dict[object, list[Joint]]
    loose: dict[object, int]
    left_out: dict[object, list[int]]
    kernels: int


def joints_of(files: Sequence[FileCollectives]) -> Joints:
    """The collectives of a run's files."""
    found: dict[object, list[Joint]] = defaultdict(list)
    loose: dict[object, int] = defaultdict(int)
    of_call: dict[tuple[int, int], Joint] = {}
    made: list[tuple[Arrival, DeviceCall]] = []
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
    return _longest(found, loose)


def _longest(found: dict[object, list[Joint]], loose: dict[object, int]) -> Joints:
    """Of too many collectives those in which a rank waited longest."""
    kernels = sum(len(joint.calls) for mine in found.values() for joint in mine)
    if kernels <= MAX_ARRIVALS:
        return Joints(found, loose, {}, kernels)
    kept: dict[object, list[Joint]] = defaultdict(list)
    left_out: dict[object, list[int]] = defaultdict(list)
    room = MAX_ARRIVALS
    waits = (
        (joint.at_ns - min(call.start_ns for call in joint.calls), steps, joint)
        for steps, mine in found.items()
        for joint in mine
    )
    for waited, steps, joint in sorted(waits, key=lambda row: -row[0]):
        room -= len(joint.calls)
        if room < 0:
            left_out[steps].append(waited)
        else:
            kept[steps].append(joint)
    return Joints(kept, loose, left_out, kernels)
