"""What was waited in all, from the rows of stragglers: for whom, in which collective, and where that one was late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from accelprof.analysis.report_rows import Straggler


@dataclass(slots=True)
class Sum:
    """What was waited in several rows, in ns as of one; ``longest`` is one of them. The transfer of all is known where that of each is."""

    longest: Straggler
    times: int = 0
    waited_ns: int = 0
    alone_ns: int = 0
    low_ns: int = 0
    high_ns: int = 0
    without_ns: int = 0
    transfer_ns: int | None = 0

    def add(self, row: Straggler) -> None:
        """One more."""
        self.times += 1
        self.waited_ns += row.waited_ns
        self.alone_ns += row.alone_ns
        self.low_ns += row.low_ns
        self.high_ns += row.high_ns
        self.without_ns += row.without_ns
        one, other = self.transfer_ns, row.transfer_ns
        self.transfer_ns = None if one is None or other is None else one + other
        if row.waited_ns > self.longest.waited_ns:
            self.longest = row


@dataclass(slots=True)
class Waited(Sum):
    """The same over all steps and in each."""

    missing: list[str] = field(default_factory=list)
    steps: dict[int | str | None, Sum] = field(default_factory=dict)


def waited(rows: Iterable[Straggler]) -> list[Waited]:
    """Waits by whom they were for, in which collective, on which side that was seen and where that one was late, the longest in all
    first. What hosts and devices saw of the same collective stands apart: it is one wait, and not the sum."""
    found: dict[tuple[str, ...], Waited] = {}
    for row in rows:
        key = tuple(str(one) for one in (row.worker, row.phase, row.on, row.process_group, row.late_in))
        mine = found.setdefault(key, Waited(row))
        mine.add(row)
        mine.steps.setdefault(row.step, Sum(row)).add(row)
        mine.missing = list(dict.fromkeys([*mine.missing, *row.missing]))
    return sorted(found.values(), key=lambda row: -row.waited_ns)


def by_phase(rows: Iterable[Straggler]) -> Counter[tuple[str, str]]:
    """ns by phase and step: of what hosts and devices saw, the longer."""
    sides: dict[str, Counter[tuple[str, str]]] = {}
    for row in rows:
        sides.setdefault(row.on, Counter())[row.phase, str(row.step)] += row.waited_ns
    longest: Counter[tuple[str, str]] = Counter()
    for side in sides.values():
        longest |= side
    return longest
