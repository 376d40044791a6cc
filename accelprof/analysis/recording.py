"""How long windows were being opened or closed while a step ran: on its own rank, or on another that it may have waited for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from accelprof.analysis.report_rows import StepTime
from accelprof.contracts.spans import merge_intervals
from accelprof.output.records import WindowRow


class Recording:
    """When windows were being opened or closed, by the clocks of their hosts.

    Args:
        windows: of those who may have waited for each other; what waiting for the device took at their end is the training's.
    """

    def __init__(self, windows: Iterable[WindowRow]) -> None:
        spans = merge_intervals(span for window in windows for span in _spans(window))
        self._starts, self._ends = [start for start, _ in spans], [end for _, end in spans]
        self._before = [0, *accumulate(end - start for start, end in spans)]

    def within(self, began_ns: int, wall_ns: int) -> int:
        """Nanoseconds of it in a stretch of time."""
        return self._until(began_ns + wall_ns) - self._until(began_ns)

    def _until(self, moment_ns: int) -> int:
        at = bisect_right(self._starts, moment_ns)
        over = max(self._ends[at - 1] - moment_ns, 0) if at else 0
        return self._before[at] - over


def of_step(row: Mapping[str, Any]) -> StepTime:
    """A step as the manifest has it."""
    found = row.get("recording_ns")
    return StepTime(row["step"], row.get("wall_ns"), bool(row.get("window")), found if isinstance(found, int) else None)


def _spans(window: WindowRow) -> Iterator[tuple[int, int]]:
    if window.opened is not None:
        at = window.opened.epoch_ns
        yield at - _took(window.open_ns, window.open_ms), at
    if window.closed is not None:
        at = window.closed.epoch_ns
        yield at - _took(window.close_ns, window.close_ms), at


def _took(ns: int | None, ms: float | None) -> int:
    return ns if ns is not None else round((ms or 0.0) * 1e6)
