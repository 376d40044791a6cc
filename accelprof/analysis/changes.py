"""A comparison in words: the cells of a change, and what to look at first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accelprof.analysis import figures
from accelprof.analysis.units import NONE, duration

if TYPE_CHECKING:
    from accelprof.analysis.compare import Change, Comparison

#: part of the largest change from which another one may be what made it
MUCH = 0.25
#: columns of a comparison
CHANGE_COLUMNS = ("before", "after", "difference", "change", "noise (95 %)", "median", "mean of")


def change_cells(row: Change) -> tuple[str, ...]:
    """The cells of a row by :data:`CHANGE_COLUMNS`, as text."""
    noise = row.noise
    shown = duration if row.unit == "ns" else lambda value: figures.cell(value, row.unit)
    counts = [f"{count:,}" for count in row.counts if count]
    of = f"{row.per}{'s' * (counts != ['1', '1'])}"
    return (
        shown(row.before_ns),
        shown(row.after_ns),
        NONE if row.delta_ns is None else f"{'+' if row.delta_ns > 0 else ''}{shown(row.delta_ns)}",
        row.word or (f"{row.change:+.1%}" if row.change else "0 %"),
        "" if noise is None else f"{noise[0]:+.1%} … {noise[1]:+.1%}",
        "" if row.before_median_ns is None else f"{shown(row.before_median_ns)} → {shown(row.after_median_ns)}",
        f"{' → '.join(dict.fromkeys(counts))} {of}",
    )


def headline(found: Comparison) -> str:
    """What to look at first in a comparison, in words: the phase whose own time changed most, beyond its noise, and on which worker;
    what others wait for it; the step."""
    said = []
    own = _own(found)
    if own is not None:
        where = " (in which ranks may wait for each other)" if own.phase in found.unseen else ""
        said.append(_changed(own, f"{own.name}{_elsewhere(found, own)}{where}"))
        waits = _largest(found, "waiting")
        if waits is not None and _difference(waits) * _difference(own) > 0:
            how = "more" if _difference(waits) > 0 else "less"
            said.append(f"Because of that others wait {duration(abs(_difference(waits)))} {how} in {waits.name}.")
    else:
        measures = ("device", "waiting") if found.of("own time") else ("phase", "phase in steps", "device")
        row = next(filter(None, (_largest(found, measure) for measure in measures)), None)
        if row is not None:
            said.append(_changed(row, f"waiting in {row.name}" if row.measure == "waiting" else row.name))
    for row in found.of("step")[:1]:
        if row.change is not None:
            sure = "without" if row.low_ns is None else "clearer than" if row.clear else "no more than"
            said.append(
                f"A step takes {duration(row.after_ns)} in place of {duration(row.before_ns)} ({row.change:+.1%}, {sure} its noise)."
            )
    return " ".join(said)


def _difference(row: Change) -> float:
    return (row.after_ns or 0) - (row.before_ns or 0)


def _own(found: Comparison) -> Change | None:
    """The largest clear change of an own time; of a phase in which ranks may wait for each other only where no other changed by much of that."""
    rows = _clear(found, "own time")
    largest = max((abs(_difference(row)) for row in rows), default=0.0)
    sure = [row for row in rows if row.phase not in found.unseen and abs(_difference(row)) > MUCH * largest]
    return max(sure or rows, key=lambda row: abs(_difference(row)), default=None)


def _clear(found: Comparison, measure: str) -> list[Change]:
    """The changes of a measure that are clearer than their noise."""
    return [row for row in found.of(measure) if row.clear and _difference(row)]


def _largest(found: Comparison, measure: str) -> Change | None:
    """The largest change of a measure that is clearer than its noise."""
    return max(_clear(found, measure), key=lambda row: abs(_difference(row)), default=None)


def _changed(row: Change, name: str) -> str:
    ns = _difference(row)
    how = row.word or f"{row.change:+.1%}"
    per = "" if row.per == "file" else f" a {row.per}"
    return f"{name} takes {duration(abs(ns))} {'more' if ns > 0 else 'less'}{per} ({how})."


def _elsewhere(found: Comparison, own: Change) -> str:
    """On how many other workers the phase of a row changed about as much."""
    alike = [
        row
        for row in found.of("own time")
        if row is not own
        and row.phase == own.phase
        and row.clear
        and _difference(row) * _difference(own) > 0
        and abs(_difference(row)) > abs(_difference(own)) / 2
    ]
    return f" (and on {len(alike)} other worker{'s' * (len(alike) != 1)})" if alike else ""
