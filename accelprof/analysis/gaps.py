"""Which gap between two stretches of a row is none, but the overhead of the row itself."""

from __future__ import annotations

#: up to this, or up to this share of what the gap lies in where that is more
OVERHEAD_NS, OVERHEAD_SHARE = 1_000_000, 0.02


def overhead(ns: int) -> int:
    """The longest such gap in something of this length, in ns."""
    return max(OVERHEAD_NS, round(OVERHEAD_SHARE * ns))
