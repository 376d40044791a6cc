"""How things are timed here: interleaved rounds, the processor time of the thread, the best round of many.

Processor time, because other work on the machine would otherwise be counted; interleaved, because a machine that slows
down must slow down everybody; the best, because noise only ever adds. What one thing adds to another is no difference of two
such bests, which stand for different moments: it is the median of differences between neighbours (:func:`paired`).
"""

from __future__ import annotations

import gc
import os
import platform
import statistics
import sys
import time
import timeit
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Result:
    """One measured thing: nanoseconds per call, and its ratio to the floor of its table."""

    name: str
    ns: float
    ratio: float
    limit: float | None = None
    note: str = ""

    @property
    def reached(self) -> bool | None:
        return None if self.limit is None else self.ratio <= self.limit


@dataclass
class Table:
    """Results of one benchmark. ``skipped``: what could not be measured here, and why."""

    title: str
    floor: str
    rows: list[Result] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


def measure(
    calls: Mapping[str, Callable[[], Any]],
    *,
    number: int = 2000,
    rounds: int = 40,
    after: Callable[[], Any] | None = None,
) -> dict[str, float]:
    """Nanoseconds per call of each, best of ``rounds`` interleaved rounds of ``number`` calls; ``after`` cleans up between rounds."""
    timers = {
        name: timeit.Timer("call()", globals={"call": call}, timer=time.thread_time) for name, call in calls.items()
    }
    best = dict.fromkeys(calls, float("inf"))
    enabled = gc.isenabled()
    gc.disable()
    try:
        for timer in timers.values():
            timer.timeit(number // 10 or 1)
        for _ in range(rounds):
            for name, timer in timers.items():
                best[name] = min(best[name], timer.timeit(number) / number * 1e9)
                if after is not None:
                    after()
            gc.collect()
    finally:
        if enabled:
            gc.enable()
    return best


@dataclass
class Pairs:
    """What one call took, and what another one next to it took more: nanoseconds per call, a value a pair."""

    floor: list[float]
    more: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.more)

    @property
    def spread(self) -> str:
        low, _, high = statistics.quantiles(self.more, n=4)
        return f"half of {len(self.more)} pairs between {low:.0f} and {high:.0f} ns"


def paired(
    floor: Callable[[], Any],
    other: Callable[[], Any],
    switch: Callable[[bool], Any],
    *,
    number: int = 20,
    pairs: int = 400,
) -> Pairs:
    """``number`` calls of each, one right after the other, which of them first by turns; ``switch`` is told before each, and not
    timed, whether ``other`` follows."""
    enabled = gc.isenabled()
    gc.disable()

    def timed(which: bool) -> float:
        call = other if which else floor
        switch(which)
        call()
        return timeit.Timer("call()", globals={"call": call}, timer=time.thread_time).timeit(number) / number * 1e9

    found = Pairs([], [])
    try:
        for turn in range(pairs):
            times = {which: timed(which) for which in ((False, True) if turn % 2 else (True, False))}
            found.floor.append(times[False])
            found.more.append(times[True] - times[False])
            if not turn % 20:
                gc.collect()
    finally:
        if enabled:
            gc.enable()
    return found


def table(
    title: str,
    floor: str,
    times: Mapping[str, float],
    limits: Mapping[str, float] | None = None,
    skipped: Mapping[str, str] | None = None,
) -> Table:
    """Times as ratios to ``floor``."""
    base = times[floor]
    rows = [Result(name, ns, ns / base, (limits or {}).get(name)) for name, ns in times.items()]
    return Table(title, floor, rows, dict(skipped or {}))


def machine() -> dict[str, Any]:
    """What these numbers were made on."""
    model = ""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")
    except OSError:
        pass
    return {
        "python": sys.version.split()[0],
        "system": platform.platform(),
        "processor": model,
        "cores": os.cpu_count(),
    }


def show(tables: list[Table]) -> bool:
    """Print the tables; whether every limit was reached."""
    print(", ".join(f"{key} {value}" for key, value in machine().items()))
    good = True
    for item in tables:
        print(f"\n{item.title} (floor: {item.floor})")
        for row in sorted(item.rows, key=lambda row: row.ns):
            verdict = "" if row.reached is None else f"  limit {row.limit:g}: {'reached' if row.reached else 'MISSED'}"
            good &= row.reached is not False
            amount = f"{row.ns / 1e6:>10.0f} MB" if row.note == "bytes" else f"{row.ns:>10.0f} ns"
            note = "" if row.note in ("", "bytes") else f"  ({row.note})"
            print(f"  {row.name:<46} {amount} {row.ratio:>8.4g} x{verdict}{note}")
        for name, reason in item.skipped.items():
            print(f"  {name:<46}    skipped: {reason}")
    return good
