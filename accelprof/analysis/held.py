"""In which calls the host waited for collectives on its device, and which of them ran one behind the other."""

from __future__ import annotations

import numpy as np

from accelprof.analysis.intervals import merged
from accelprof.contracts.spans import Kind
from accelprof.reading.columns import NONE, Array, Columns

#: a device that is free for less than this was not free; a shorter call of the host waits for nothing
CLOSE_NS = 20_000


def waited(columns: Columns, mine: Array, launched: Array) -> tuple[Array, Array, Array]:
    """For each collective the stretch in which the host waited until it ended (a call that was not over before), or until
    what ran behind it without a gap had ended too; and the collective that it ran behind itself."""
    none: Array = np.full(mine.size, NONE, dtype=np.int64)
    start, end = columns.start[mine], columns.end[mine]
    work = columns.work()
    busy_start, busy_end = merged(columns.start[work], columns.end[work] + CLOSE_NS)
    busy_from = np.searchsorted(busy_start, start, side="right")  # the same number: the device was not free between
    busy_until: Array = np.searchsorted(busy_start, end, side="right")
    by_end: Array = np.argsort(end, kind="stable")
    place: Array = np.searchsorted(end[by_end], start, side="right") - 1
    earlier: Array = by_end[np.maximum(place, 0)]
    follows = (place >= 0) & (busy_until[earlier] == busy_from) & (launched != NONE) & (launched + CLOSE_NS < start)
    behind = np.where(follows, earlier, NONE)
    calls = columns.rows(Kind.SYNC, Kind.RUNTIME)
    calls = calls[columns.end[calls] - columns.start[calls] > CLOSE_NS]
    if not calls.size:
        return none, none.copy(), behind
    calls = calls[np.argsort(columns.start[calls], kind="stable")]
    begins, ends = columns.start[calls], columns.end[calls]
    reach = np.maximum.accumulate(ends)
    longest = np.maximum.accumulate(np.where(ends == reach, np.arange(ends.size), 0))
    at = np.searchsorted(begins, end, side="right") - 1  # calls that had begun when it ended
    around = longest[np.maximum(at, 0)]
    covers = (at >= 0) & (ends[around] >= end)
    wait_start = np.where(covers, begins[around], NONE)
    wait_end = np.where(covers, end, NONE)
    later = np.minimum(at + 1, calls.size - 1)
    runs_on = ~covers & (at + 1 < calls.size) & (begins[later] < busy_end[busy_until - 1] - CLOSE_NS)
    # and no other collective ended in that call: it would be what the host waited for
    runs_on &= np.searchsorted(end[by_end], ends[later]) == np.searchsorted(end[by_end], end, side="right")
    wait_start = np.where(runs_on, begins[later], wait_start)
    wait_end = np.where(runs_on, np.minimum(ends[later], busy_end[busy_until - 1]), wait_end)
    return wait_start, wait_end, behind
