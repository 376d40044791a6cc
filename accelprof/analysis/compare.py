"""Two runs, files or stored baselines side by side: phases, devices, kernels. What cannot be compared is refused, with the reason.

A capture without device work looks like the largest improvement ever, and so does a file that was cut; so neither side may
be empty or lack anything, and the workers in both must have the same devices. Two runs that recorded no window at all are
compared by the timings of their steps, which every run has. Where windows, steps or calls repeat, a
change is shown with its noise: the interval in which 95 % of the differences lie when the repetitions are drawn again
(bootstrap, with seeds that depend on the figures alone).
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from accelprof import texts
from accelprof.analysis.many import Progress
from accelprof.analysis.parts import Figure
from accelprof.analysis.sides import STEPS, Name, Side, side
from accelprof.analysis.units import duration
from accelprof.analysis.unseen import MEND
from accelprof.errors import NotComparableError

if TYPE_CHECKING:
    from accelprof.analysis.summary import Summary

#: what is compared -> what one figure of it is
MEASURES = {
    "step": "wall time",
    "device": "busy time (union of kernels and copies)",
    "device kernels": "time in kernels (union)",
    "phase": "wall time",
    "own time": "of a phase on a worker, without what is nested in it and without waiting for others",
    "phase in steps": "wall time in every step, of the slowest rank",
    "phase on device": "device time of a phase (union)",
    "time of a window": "parts of a window by worker: compute, communication, idle by cause",
    "waiting": "what ranks waited for the last in a collective",
    "critical path": "time on it by phase",
    "memory": "of a process's device at the end of a step",
    "operator": "own time on the host",
    "kernel": "time on the device",
}
#: measures whose single figures come and go without that being slower or faster
UNJUDGED = frozenset({"kernel", "time of a window", "own time", "critical path", "memory", "operator"})
#: measures whose calls are kernels: other code has others, so their number does not say how much work there was
OF_DEVICES = frozenset({"device", "device kernels"})
#: measures that are of all workers together
WHOLE = frozenset({"waiting", "critical path", "operator"})
#: what figures of a measure are of; of all others they are ns
UNITS = {"memory": "bytes"}
#: how changes and noise are to be read, for people
READ = (
    "change: growth from before (10 ms → 11 ms is +10 %), which --fail-above judges too; noise: where 95 % of the changes lie when "
    "steps, windows or calls are drawn again, a change inside is none; median: of those; mean of: over how many each figure is the mean."
)
DRAWS = 2000
#: of more repetitions the mean is drawn as they scatter, not each of them
DRAWN = 500
#: part of the draws that lies outside the interval, half of it on each side
OUTSIDE = 0.05


@dataclass(frozen=True, slots=True)
class Change:
    """One figure on both sides, in ns (of memory in bytes) of one ``per``; ``None`` = not on that side.

    Attributes:
        low_ns, high_ns: the interval of the difference, where both sides repeat; ``None`` without.
        before_median_ns, after_median_ns: of the repetitions, ``repeats`` how many of them there are on each side.
        per: ``step``, ``call``, ``window`` or ``file``: what a figure is of; ``counts``: of how many it is the mean on each side.
        calls: how many of them the figure holds, 0 where none are counted.
        phase, worker: of an own time, whose it is; otherwise empty.
        alike: ``False`` where nothing that both sides mark says whether a ``per`` is as much work on both: nobody is slower by that.
    """

    measure: str
    name: str
    before_ns: float | None
    after_ns: float | None
    low_ns: float | None = None
    high_ns: float | None = None
    before_median_ns: float | None = None
    after_median_ns: float | None = None
    repeats: tuple[int, int] = (0, 0)
    per: str = "window"
    counts: tuple[int, int] = (0, 0)
    calls: tuple[int, int] = (0, 0)
    alike: bool = True
    phase: str = ""
    worker: str = ""

    @property
    def unit(self) -> str:
        """``ns`` or ``bytes``."""
        return UNITS.get(self.measure, "ns")

    @property
    def delta_ns(self) -> float | None:
        return None if self.before_ns is None or self.after_ns is None else self.after_ns - self.before_ns

    @property
    def change(self) -> float | None:
        """Growth from before: the difference as part of it; ``None`` where there is nothing to grow from (:attr:`word`)."""
        return self._part(self.delta_ns)

    @property
    def word(self) -> str:
        """What stands in the place of a change: ``new``, ``gone`` or ``from zero``; empty where there is one."""
        if self.before_ns is None:
            return "new"
        if self.after_ns is None:
            return "gone"
        return "" if self.before_ns or not self.after_ns else "from zero"

    @property
    def noise(self) -> tuple[float, float] | None:
        """The interval as part of before."""
        low, high = self._part(self.low_ns), self._part(self.high_ns)
        return None if low is None or high is None else (low, high)

    @property
    def clear(self) -> bool:
        """Whether the difference is larger than its noise, as far as that is known: nothing repeats = yes."""
        return self.low_ns is None or self.high_ns is None or self.low_ns > 0 or self.high_ns < 0

    @property
    def ratio(self) -> float | None:
        """After by before."""
        return self.after_ns / self.before_ns if self.before_ns and self.after_ns is not None else None

    def _part(self, ns: float | None) -> float | None:
        if ns is None or self.before_ns is None or self.word:
            return None
        return ns / self.before_ns if self.before_ns else 0.0

    def to_json(self) -> dict[str, Any]:
        unit = self.unit
        return {
            "measure": self.measure,
            "name": self.name,
            f"before_{unit}": self.before_ns,
            f"after_{unit}": self.after_ns,
            f"delta_{unit}": self.delta_ns,
            "change": self.change,
            "word": self.word,
            "ratio": self.ratio,
            "per": self.per,
            "counts": list(self.counts),
            "calls": list(self.calls),
            f"low_{unit}": self.low_ns,
            f"high_{unit}": self.high_ns,
            f"before_median_{unit}": self.before_median_ns,
            f"after_median_{unit}": self.after_median_ns,
            "repeats": list(self.repeats),
            "clear": self.clear,
            "alike": self.alike,
        }


@dataclass
class Comparison:
    """All changes, the largest differences of each measure first. ``notes``: what a reader must know; ``partial``: what is not
    in the figures (only with ``allow_partial``); ``workers``: those that were compared; ``unseen``: phases in which ranks
    may have waited for each other, of which nothing was recorded; ``summary``: what AFTER was read from, where it is a run."""

    before: str
    after: str
    changes: list[Change] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    partial: list[str] = field(default_factory=list)
    workers: frozenset[str] = frozenset()
    unseen: frozenset[str] = frozenset()
    summary: Summary | None = field(default=None, repr=False)

    @property
    def unchanged(self) -> bool:
        """Every figure is exactly the same on both sides."""
        return all(change.delta_ns == 0 for change in self.changes)

    def of(self, measure: str) -> list[Change]:
        return [change for change in self.changes if change.measure == measure]

    def slower(self, percent: float) -> list[tuple[Change, str]]:
        """What takes more than ``percent`` more time, in words: beyond its noise, or new, or grown from nothing.

        A kernel is not judged by itself, because another library has others; nor a part of a window, because more compute in
        place of idle time is no loss.
        """
        found = []
        for row in self.changes:
            if row.measure in UNJUDGED or not row.alike or not row.after_ns:
                continue
            if row.before_ns is None:
                if row.measure != "step":  # there were steps before too, which nothing marked
                    found.append((row, "is new"))
            elif row.change is None:
                found.append((row, "took no time before"))
            elif 100 * (row.after_ns - row.before_ns) > percent * row.before_ns and row.clear:
                found.append(
                    (row, f"{row.change:+.1%} ({duration(row.before_ns)} → {duration(row.after_ns)} a {row.per})")
                )
        return found

    def to_json(self) -> dict[str, Any]:
        """Plain data; times in ns, ``change`` as part of before."""
        return {
            "before": self.before,
            "after": self.after,
            "unchanged": self.unchanged,
            "notes": self.notes,
            "partial": self.partial,
            "changes": [change.to_json() for change in self.changes],
        }


def compare(
    before: str | os.PathLike[str],
    after: str | os.PathLike[str],
    devices: Sequence[str | int] = (),
    *,
    allow_partial: bool = False,
    processes: int = 1,
    progress: Progress | None = None,
) -> Comparison:
    """Compare two run directories, files or stored baselines.

    Args:
        devices: only these devices, by number; others are left out on both sides.
        allow_partial: compare although files are cut, damaged or missing, or events were left out; ``partial`` says which.
        processes: in how many the files of a run's workers are read, where there is enough of them.

    Raises:
        NotComparableError: a side that is empty or not whole, no worker in common, a device of a common worker on one
            side only, or a device asked for that neither has.
        ReadError: a side cannot be read.
    """
    wanted = [str(device) for device in devices]
    one, other = (side(os.fspath(path), wanted, processes=processes, progress=progress) for path in (before, after))
    result = Comparison(one.path, other.path, summary=other.summary)
    _pair_single_devices(one, other, result.notes)
    _steps_of_one_kind(one, other, result.notes)
    common = one.workers & other.workers
    lacks = [f"{name} is not complete: {line}" for name, of in (("before", one), ("after", other)) for line in of.lacks]
    refused = [of.refused for of in (one, other) if of.refused]
    reasons = [*refused, *([] if allow_partial else lacks), *_reasons(one, other, common, wanted)]
    if reasons:
        mend = "" if allow_partial or refused or not lacks else " (--allow-partial compares what is there)"
        line = "; ".join(dict.fromkeys(reasons))
        raise NotComparableError(f"not comparable: {one.path} and {other.path}: {line}{mend}")
    result.notes.extend(f"{name}: {line}" for name, of in (("before", one), ("after", other)) for line in of.notes)
    result.partial, result.workers = lacks, frozenset(common)
    if one.timings_alone and other.timings_alone:
        result.notes.append(
            "of both sides there are timings of steps alone: no window was recorded that would tell more"
        )
    result.unseen = frozenset([*one.unseen, *other.unseen])
    if result.unseen:
        result.notes.append(
            f"ranks ended {texts.listed(sorted(result.unseen), 5)} together although they began apart, and no collective was recorded: what a "
            f"rank waits there for a later one counts as its own time and compute, and on the critical path; {MEND}"
        )
    for name, of in (("before", one), ("after", other)):
        if alone := sorted(of.workers - common):
            shown = texts.listed(alone, 8)
            result.notes.append(f"{len(common)} workers are in both and compared; only in {name}: {shown}")
    same = one.workers == other.workers
    if not same:
        result.notes.append(
            f"{', '.join(sorted(WHOLE))}: of all workers, who are others on the two sides; not compared"
        )
    for measure in MEASURES:
        if measure in WHOLE and not same:
            continue
        rows = list(_changes(measure, one.figures(measure, common | {""}), other.figures(measure, common | {""})))
        rows.sort(key=lambda row: (row.delta_ns is None, -abs((row.after_ns or 0) - (row.before_ns or 0)), row.name))
        result.changes.extend(rows)
        result.notes.extend(_counts(measure, rows))
        lonely = Counter("before" if row.after_ns is None else "after" for row in rows if row.delta_ns is None)
        result.notes.extend(f"{count} {measure} figures are only in {where}" for where, count in sorted(lonely.items()))
    return result


def _steps_of_one_kind(one: Side, other: Side, notes: list[str]) -> None:
    """Steps with a window take longer, by what recording costs, and another share of all on each side: those without one are
    compared where both sides have some, otherwise those with one."""
    for measure in STEPS:
        kinds = [{part.with_window for part in of.parts if part.measure == measure} for of in (one, other)]
        both = kinds[0] & kinds[1]
        if all(kinds) and not both:
            which = [
                f"{name} has only steps {'with' if True in kind else 'without'} a window"
                for name, kind in zip(("before", "after"), kinds, strict=True)
            ]
            notes.append(f"{measure}: {' and '.join(which)}; not compared")
        if both == {True} and kinds[0] != kinds[1]:
            alone = "before" if kinds[0] == both else "after"
            notes.append(f"{measure}: of steps with a window, as {alone} has no others")
        if all(kinds):
            for of in (one, other):
                of.parts = [
                    part for part in of.parts if part.measure != measure or (both and part.with_window == min(both))
                ]


def _counts(measure: str, rows: Sequence[Change]) -> Iterator[str]:
    """A line where figures are of all that a file or a window holds, and those do not hold as much on both sides."""
    for row in rows if measure in ("device", "phase on device") else ():
        if row.delta_ns is None or row.calls[0] * row.counts[1] == row.calls[1] * row.counts[0]:
            continue
        if row.per == "file" or not row.alike:
            before, after = (
                f"{calls / max(count, 1):,.10g}" for calls, count in zip(row.calls, row.counts, strict=True)
            )
            yield (
                f"{measure} {row.name}: all of each {row.per}, {before} kernels before and {after} after; no steps are "
                f"marked on both sides that it could be divided by{'' if row.alike else ', so it is not judged'}"
            )


def _changes(measure: str, left: dict[Name, Figure], right: dict[Name, Figure]) -> Iterator[Change]:
    for key in dict.fromkeys([*left, *right]):
        one, other, apart, name = left.get(key), right.get(key), False, key.name
        if one is not None and other is not None and one.per != other.per:
            one, other = _of_one_kind(measure, one, other)
            apart = one.calls * other.count != other.calls * one.count
        facts: dict[str, Any] = {
            "phase": key.phase,
            "worker": key.worker,
            "alike": not apart or measure not in OF_DEVICES,
            "per": (one or other or Figure(0)).per,
            "counts": (one.count if one else 0, other.count if other else 0),
            "calls": (one.calls if one else 0, other.calls if other else 0),
        }
        if one is None or other is None or min(len(one.samples), len(other.samples)) < 2:
            yield Change(measure, name, one.ns if one else None, other.ns if other else None, **facts)
            continue
        low, high = interval(one, other)
        repeats = (len(one.samples), len(other.samples))
        medians = median(one.samples), median(other.samples)
        yield Change(measure, name, one.ns, other.ns, low, high, *medians, repeats, **facts)


def _of_one_kind(measure: str, one: Figure, other: Figure) -> tuple[Figure, Figure]:
    """Figures of a step and of something else: of one call where both count calls, of one window where both have windows, otherwise
    of all that each side has."""
    sides = (one, other)
    if measure not in OF_DEVICES and all(of.calls for of in sides):
        found = [Figure(of.all_ns / of.calls, (), "call", of.calls, of.calls) for of in sides]
    elif all(of.windows for of in sides):
        found = [Figure(of.all_ns / of.windows, (), "window", of.windows, of.calls) for of in sides]
    else:
        found = [Figure(of.all_ns, (), "file", 1, of.calls) for of in sides]
    return found[0], found[1]


def interval(before: Figure, after: Figure) -> tuple[float, float]:
    """In which 95 % of the differences (after minus before, ns) lie when each side's repetitions are drawn again.

    The draws depend on the figures alone: the same comparison gives the same interval, swapped sides the negative one, and
    a side against itself exactly none.
    """
    differences = np.sort(_drawn(after) - _drawn(before))
    edge = int(DRAWS * OUTSIDE / 2)
    return float(differences[edge]), float(differences[DRAWS - 1 - edge])


def _drawn(figure: Figure) -> Any:
    samples = np.array(figure.samples, dtype=np.float64)
    mean = samples.mean()
    if not mean:
        return np.full(DRAWS, figure.ns)
    seed = int.from_bytes(hashlib.sha256(samples.tobytes()).digest()[:8], "little")
    if len(samples) > DRAWN:
        scatter = np.random.default_rng(seed).standard_normal(DRAWS) * samples.std() / len(samples) ** 0.5
        return figure.ns * (1 + scatter / mean)
    draws = np.random.default_rng(seed).integers(0, len(samples), (DRAWS, len(samples)))
    return figure.ns * (samples[draws].mean(axis=1) / mean)


def _pair_single_devices(one: Side, other: Side, notes: list[str]) -> None:
    """Two files with one device each are about that device, whatever its number is."""
    left, right = one.devices(""), other.devices("")
    if len(left) != 1 or len(right) != 1 or left == right:
        return
    mine, theirs = next(iter(left)), next(iter(right))
    notes.append(f"device {mine} of before is compared with device {theirs} of after: the only one of each")
    for part in other.parts:
        if part.device == theirs and not part.worker:
            part.device = mine
            if part.measure in OF_DEVICES:
                part.name = f"device {mine}"


def _reasons(one: Side, other: Side, common: Collection[str], devices: Sequence[str]) -> Iterator[str]:
    alone = one.timings_alone and other.timings_alone
    for name, of in (("before", one), ("after", other)):
        if of.empty and not alone:
            yield f"{name} is empty: no phase and no device work"
    if not common and not (alone and not (one.workers and other.workers)):  # a run of timings may name nobody
        for name, of in (("before", one), ("after", other)):
            yield f"no worker is in both: {name} has {', '.join(sorted(of.workers)[:8]) or 'none'}"
    for device in devices:
        if not any(device in of.devices(worker) for of in (one, other) for worker in of.workers):
            yield f"device {device} is in neither"
    mine, theirs = one.kernels(common), other.kernels(common)
    if bool(mine) != bool(theirs):
        empty, full = ("before", "after") if not mine else ("after", "before")
        yield f"{empty} has no kernels, {full} has {mine or theirs:,}"
    for worker in sorted(common):
        yield from _device_reasons(worker, one.devices(worker), other.devices(worker))


def _device_reasons(worker: str, left: set[str], right: set[str]) -> Iterator[str]:
    of = f" of {worker}" if worker else ""
    for device in sorted(left ^ right):
        yield f"device {device}{of} is only in {'before' if device in left else 'after'}"
    if len(left) != len(right):
        yield f"{len(left)} device{'s' * (len(left) != 1)}{of} before, {len(right)} after"
