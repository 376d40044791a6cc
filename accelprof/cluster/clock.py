"""How far each worker's clock is from the driver's: least round trip of several, with its error."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from accelprof.runtime.remote import boot_id

ROUNDS = 5


def estimate(ask: Callable[[], dict[str, Any] | None], rounds: int = ROUNDS) -> dict[str, Any]:
    """``{"offset_ns", "error_ns", "round_trip_ns", "rounds", "basis"}``; empty when nobody answered.

    ``offset_ns`` is the worker's epoch clock minus the driver's. The true value lies within ``error_ns`` (half of the
    least round trip) of it. Where the worker runs on the driver's own kernel and the measurement allows zero, it is zero.
    """
    best: tuple[int, int, dict[str, Any]] | None = None
    done = 0
    for _ in range(rounds):
        sent = time.time_ns()
        began = time.perf_counter_ns()
        told = ask()
        trip = time.perf_counter_ns() - began
        if not told:
            break
        done += 1
        offset = int(told["epoch_ns"]) - (sent + trip // 2)
        if best is None or trip < best[0]:
            best = trip, offset, told
    if best is None:
        return {}
    trip, offset, told = best
    error = (trip + 1) // 2
    same = bool(told.get("boot_id")) and told["boot_id"] == boot_id() and abs(offset) <= error
    return {
        "offset_ns": 0 if same else offset,
        "error_ns": 0 if same else error,
        "measured_ns": offset,
        "round_trip_ns": trip,
        "rounds": done,
        "basis": "same kernel" if same else "least round trip",
    }
