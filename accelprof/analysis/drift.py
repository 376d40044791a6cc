"""Steps that took longer than the others, which phase made them, on which rank; and what grew or shrank over the steps.

Both stand on the timings of every announced step, profiled or not. Steps with a window are left out of what is usual: recording
costs. Times are compared with a line through the others, so that a slow drift makes no outlier of the last steps.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from accelprof.analysis.report_rows import Drift, Outlier
from accelprof.analysis.seconds import waits_for_others
from accelprof.reading.columns import Array

#: steps without a window that something can be said from
MIN_STEPS, MIN_DRIFT_STEPS = 6, 12
#: an outlier is this many times the usual scatter (as of a normal distribution) and this part of the usual time above it
TIMES, PART = 4.0, 0.05
#: a drift is shown from this part of the time on, and only where it is surer than this
NOTABLE, SURE = 0.01, 0.99
MAX_OUTLIERS, MAX_DRIFTS = 100, 20


def outliers(
    steps: Sequence[Mapping[str, object]],
    waiting: Iterable[str] = (),
    begins: Mapping[str, int] | None = None,
    groups: Mapping[str, str] | None = None,
) -> list[Outlier]:
    """A row for each step without a window that took longer than usual, the longest excess first.

    Args:
        steps: ``{step, wall_ns, window, seconds: {phase: {max, slowest}}}``, as the manifest has them.
        waiting: phases in which ranks wait for each other: more time there is somebody else's fault.
        begins: when phases begin in a step: of two that grew alike on different ranks the earlier made the later one wait.
        groups: the group of each rank, by its label; without it all are of one.

    Returns:
        Phase and worker are of the phase whose time on its slowest rank grew most, ``None`` where no phase did.
    """
    rows = [row for row in steps if row.get("wall_ns") and not row.get("window")]
    if len(rows) < MIN_STEPS:
        return []
    walls: Array = np.array([row["wall_ns"] for row in rows], dtype=np.float64)
    usual = _line(walls)
    more = walls - usual
    scatter = 1.4826 * float(np.median(np.abs(more - np.median(more))))
    slow = np.flatnonzero((more > TIMES * scatter) & (more > PART * usual))
    slow = slow[np.argsort(-more[slow], kind="stable")][:MAX_OUTLIERS]
    if not slow.size:
        return []
    phases, means = _phases(rows), _phases(rows, _Over(rows, groups or {}))
    known = set(waiting)
    usually = {phase: _typical(values) for phase, values in phases.items()}
    usual_means = {phase: _typical(values) for phase, values in means.items()}
    found: list[Outlier] = []
    for at in slow.tolist():
        here = {
            phase: float(values[at]) - usually[phase] for phase, values in phases.items() if not np.isnan(values[at])
        }
        grown = _grown(here, float(more[at]), lambda name: name in known or waits_for_others(name, ""))
        grew_on_all = {phase: float(means[phase][at]) - usual_means[phase] for phase in grown}
        slowest = {phase: rows[at]["seconds"][phase].get("slowest") for phase in grown}
        phase = _cause(grown, grew_on_all, slowest, usually, begins or {})
        found.append(
            Outlier(
                step=rows[at]["step"], wall_ns=int(walls[at]), usual_ns=round(float(usual[at])), phase=phase,
                phase_ns=None if phase is None else round(float(phases[phase][at])),
                phase_usual_ns=None if phase is None else round(usually[phase]),
                worker=None if phase is None else slowest[phase],
            )
        )  # fmt: skip
    return found


def _typical(values: Array) -> float:
    """What a phase takes in the usual step: nothing, where most steps are without it."""
    return float(np.median(np.nan_to_num(values)))


def _grown(grown: Mapping[str, float], more: float, waits: Callable[[str], bool]) -> dict[str, float]:
    """The phases that grew most, by how much; those in which ranks wait only where no other has grown by much of what the step did."""
    for wanted in (False, True):
        mine = {phase: ns for phase, ns in grown.items() if waits(phase) is wanted and ns > 0.25 * more}
        if mine:
            return {phase: ns for phase, ns in mine.items() if ns > 0.9 * max(mine.values())}
    return {}


def _cause(
    grown: Mapping[str, float],
    on_all: Mapping[str, float],
    slowest: Mapping[str, Any],
    usually: Mapping[str, float],
    begins: Mapping[str, int],
) -> str | None:
    """Of phases that grew alike the one that made the others: what grew on the fewest ranks (a phase in which ranks wait for a
    late one has grown on all the others), of different ranks' what begins first, and of those around each other, which have all
    grown by the same, the shortest."""
    if not grown:
        return None
    share = {phase: round(on_all[phase] / ns, 1) for phase, ns in grown.items()}
    few = [phase for phase in grown if share[phase] <= min(share.values()) + 0.15]
    first = min(few, key=lambda phase: begins.get(phase, 0))
    mine = [phase for phase in few if slowest[phase] == slowest[first]]
    return min(mine, key=lambda phase: (usually[phase], grown[phase]))


class _Over:
    """The mean of a phase over all ranks of its group in s, those that did not call it included."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], groups: Mapping[str, str]) -> None:
        self._groups = groups
        self._ranks: dict[str, int] = defaultdict(lambda: 1)
        for row in rows:
            for figures in row["seconds"].values():
                group = self._group(figures)
                self._ranks[group] = max(self._ranks[group], figures.get("ranks") or 1)

    def __call__(self, figures: Mapping[str, Any]) -> float:
        mean: float = figures.get("mean", figures["max"])
        ranks = self._ranks[self._group(figures)]
        return mean * (figures.get("ranks") or ranks) / ranks

    def _group(self, figures: Mapping[str, Any]) -> str:
        return self._groups.get(str(figures.get("slowest")), "")


def _slowest(figures: Mapping[str, Any]) -> float:
    return float(figures["max"])


def _phases(
    rows: Sequence[Mapping[str, Any]], figure: Callable[[Mapping[str, Any]], float] = _slowest
) -> dict[str, Array]:
    """By phase its ns in each step, NaN where it was not called; ``figure`` says which of it."""
    found: dict[str, Array] = {}
    for at, row in enumerate(rows):
        for phase, figures in row["seconds"].items():
            if phase not in found:
                found[phase] = np.full(len(rows), np.nan)
            found[phase][at] = figure(figures) * 1e9
    return found


def drifts(
    steps: Sequence[Mapping[str, Any]],
    waiting: Iterable[str] = (),
    begins: Mapping[str, int] | None = None,
    groups: Mapping[str, str] | None = None,
) -> list[Drift]:
    """What grew or shrank from the first to the last step: the steps themselves (``phase`` is ``None``) and phases.

    Args:
        steps, waiting, begins, groups: as for :func:`outliers`.

    Returns:
        The line through the times at both ends, its change as part of the first, and where that lies for sure; only rows in
        which that does not hold 0. The largest change first, steps before phases. ``cause``: the phase that made the steps grow,
        as of an outlier; ``worker``: the rank that it took longest on in most steps of the later half, ``None`` where there is no
        such one.
    """
    rows = [row for row in steps if not row.get("window")]
    walls: Array = np.array([float(row.get("wall_ns") or np.nan) for row in rows])
    phases = _phases(rows)
    series: list[tuple[str | None, Array]] = [(None, walls), *phases.items()]
    found = [row for phase, values in series if (row := _drift(phase, values)) is not None]
    found.sort(key=lambda row: (row.phase is not None, -abs(row.last_ns - row.first_ns)))
    slowest = {row.phase: _slowest_late(rows, row.phase) for row in found if row.phase is not None}
    found = [row if row.phase is None else dataclasses.replace(row, worker=slowest[row.phase]) for row in found]
    if found and found[0].phase is None and (more := found[0].last_ns - found[0].first_ns) > 0:
        known, means = set(waiting), _phases(rows, _Over(rows, groups or {}))
        here = {row.phase: float(row.last_ns - row.first_ns) for row in found if row.phase is not None}
        grown = _grown(here, more, lambda name: name in known or waits_for_others(name, ""))
        grew_on_all = {phase: _growth(means[phase]) for phase in grown}
        usually = {phase: _typical(phases[phase]) for phase in grown}
        cause = _cause(grown, grew_on_all, slowest, usually, begins or {})
        found[0] = dataclasses.replace(found[0], cause=cause, worker=None if cause is None else slowest[cause])
    return found[:MAX_DRIFTS]


def _growth(values: Array) -> float:
    """From the first to the last of them, NaN apart."""
    at = np.flatnonzero(~np.isnan(values))
    return float(np.median(_slopes(at.astype(np.float64), values[at]))) * float(at[-1] - at[0])


def _slowest_late(rows: Sequence[Mapping[str, Any]], phase: str) -> str | None:
    """The rank that a phase took longest on in most of the later half of its steps."""
    mine = [figures.get("slowest") for row in rows if (figures := row["seconds"].get(phase)) is not None]
    late = Counter(mine[len(mine) // 2 :])
    [(worker, times)] = late.most_common(1)
    return worker if 2 * times > late.total() else None


def _drift(phase: str | None, values: Array) -> Drift | None:
    at = np.flatnonzero(~np.isnan(values))
    if at.size < MIN_DRIFT_STEPS:
        return None
    times = values[at]
    slopes = _slopes(at.astype(np.float64), times)
    slope = float(np.median(slopes))
    half = NormalDist().inv_cdf((1 + SURE) / 2) * np.sqrt(slopes.size) / 2
    low = float(slopes[max(int(np.floor(slopes.size / 2 - half)), 0)])
    high = float(slopes[min(int(np.ceil(slopes.size / 2 + half)), slopes.size - 1)])
    first = float(np.median(times - slope * (at - at[0])))
    width = float(at[-1] - at[0])
    if first <= 0 or low <= 0 <= high or abs(slope * width) < NOTABLE * first:
        return None
    return Drift(
        phase, steps=int(at.size), first_ns=round(first), last_ns=round(first + slope * width),
        change=slope * width / first, low=low * width / first, high=high * width / first,
    )  # fmt: skip


def _slopes(at: Array, values: Array) -> Array:
    """Slopes between each value and the one half the series later, sorted: none of them shares a value with another, so their
    order says how sure their median is."""
    half = (at.size + 1) // 2
    low = at.size - half
    found: Array = np.sort((values[half:] - values[:low]) / (at[half:] - at[:low]))
    return found


def _line(values: Array) -> Array:
    """A line through the values that outliers do not move; level where there are too few of them for a slope."""
    at = np.arange(values.size, dtype=np.float64)
    slope = float(np.median(_slopes(at, values))) if values.size >= MIN_DRIFT_STEPS else 0.0
    return slope * at + float(np.median(values - slope * at))
