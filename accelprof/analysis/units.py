"""Times and shares as text."""

from __future__ import annotations

NONE = "-"


def duration(ns: float | None) -> str:
    """``1.23 s``, ``45.6 ms``, ``7.8 µs``, ``90 ns``; a dash for none."""
    if ns is None:
        return NONE
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(ns) >= size:
            return f"{ns / size:.3g} {unit}" if abs(ns) < 1000 * size else f"{ns / size:,.0f} {unit}"
    return f"{ns:.0f} ns"


def percent(share: float | None) -> str:
    return NONE if share is None else f"{share:.1%}"
