"""How far each worker's clock is from the driver's: least round trip of several, with its error; and again at the end."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from accelprof.cluster import fanout
from accelprof.cluster.fanout import Answer, Member
from accelprof.output.records import ClockRow
from accelprof.session.remote import boot_id

ROUNDS = 5
TIMEOUT_S = 10.0
SAME = "same kernel"


def measure(members: Sequence[Member], timeout: float = TIMEOUT_S, rounds: int = ROUNDS) -> list[Answer]:
    """Set ``clock`` of each member: all are asked at once, ``rounds`` times over; returns the answers that failed.

    A member that fails is not asked again and keeps what its earlier rounds gave.
    """
    told: dict[Member, list[Answer]] = {member: [] for member in members}
    asked: list[Member] = list(members)
    failed: list[Answer] = []
    for _ in range(rounds):
        answers = fanout.ask_timed(asked, "clock", timeout=timeout)
        failed += [answer for answer in answers if not answer.ok]
        asked = [answer.member for answer in answers if answer.ok]
        for answer in answers:
            if answer.trip_ns:
                told[answer.member].append(answer)
    for member, answers in told.items():
        member.clock = estimate(answers, member.label)
    return failed


def measure_again(members: Sequence[Member]) -> list[Answer]:
    """Add ``closing`` to the ``clock`` of each member on another kernel: how far it has drifted; returns the answers that failed."""
    first = {member: member.clock for member in members if member.clock is not None and member.clock.basis != SAME}
    failed = measure(list(first))
    for member, clock in first.items():
        if member.clock is not None:
            clock.closing = dataclasses.replace(member.clock, label=None)
        member.clock = clock
    return failed


def estimate(answers: Sequence[Answer], label: str) -> ClockRow | None:
    """Of one member; ``None`` without answers. The error is half of the least round trip. Where the worker runs on the driver's own
    kernel and the measurement allows zero, the offset is zero.
    """
    if not answers:
        return None
    best = min(answers, key=lambda answer: answer.trip_ns)
    trip, told = best.trip_ns, best.value
    offset = int(told["epoch_ns"]) - (best.sent_ns + trip // 2)
    error = (trip + 1) // 2
    same = bool(told.get("boot_id")) and told["boot_id"] == boot_id() and abs(offset) <= error
    return ClockRow(
        offset_ns=0 if same else offset,
        error_ns=0 if same else error,
        at_ns=int(told["epoch_ns"]),
        measured_ns=offset,
        round_trip_ns=trip,
        rounds=len(answers),
        basis=SAME if same else "least round trip",
        label=label,
    )
