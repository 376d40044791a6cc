"""Labels that the user makes while the program runs (``f"request {id}"``) are counted: without bound they would fill the memory."""

from __future__ import annotations

from accelprof.timing.gate import gate

#: different labels of a process that are kept apart; all others are one
KEPT = 10_000
OTHER = "other"

_labels: set[str] = set()
_overflowed = False


def bounded(label: str) -> str:
    """``label``, or ``other`` where there are too many; said once in a process."""
    if label in _labels:
        return label
    if len(_labels) < KEPT:
        _labels.add(label)
        return label
    global _overflowed
    if not _overflowed:
        _overflowed = True
        _say(
            f"more than {KEPT:,} different labels of timers and ranges (the latest: {label[:100]!r}); all further ones count as "
            f"{OTHER!r}. Labels name kinds of work; what differs from call to call belongs into its arguments"
        )
    return OTHER


def forget() -> None:
    """Count anew (``accelprof.reset``)."""
    global _overflowed
    _labels.clear()
    _overflowed = False


def _say(text: str) -> None:
    if gate.always is not None:
        gate.always.say(text)
        return
    import logging

    logging.getLogger("accelprof").warning("accelprof: %s", text)
