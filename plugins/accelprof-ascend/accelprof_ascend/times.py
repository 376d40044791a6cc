"""Times as CANN and torch_npu write them, as whole nanoseconds.

µs come as text with three decimals, epoch times of 1.7e15 among them (a float64 keeps a quarter of a µs there), with a
TAB at the end so that spreadsheets leave them alone, or as ``N/A``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from accelprof.contracts.spans import EPOCH_NS, Clock, Trace

_LIMIT_NS = 1 << 63
#: more digits before the point than any time has; beyond some a decimal cannot even be multiplied
DIGITS = 20


def ns_of_us(value: object) -> int:
    """A time or duration in µs (text or number) as ns, rounded half to even.

    Raises:
        ValueError: missing, ``N/A``, NaN or beyond 64 bits; the message says which.
    """
    return whole(value, 1000)


def ns_of_ns(value: object) -> int:
    """A time in ns as a database holds it (text or number): a whole one, and of a date or of a clock that runs since the start.

    Raises:
        ValueError: as :func:`ns_of_us`, or it is no such time.
    """
    found = value if type(value) is int else whole(value, 1)
    if found <= 0 or (type(value) is not int and Decimal(str(value)) != found):
        raise ValueError("no time")
    return found


def whole(value: object, factor: int) -> int:
    """A number that is text, times ``factor``, rounded half to even; the errors of :func:`ns_of_us`."""
    text = "" if value is None else str(value).strip()
    if not text.isascii():
        raise ValueError("not a number")
    if not text or text.casefold() in ("n/a", "null", "none"):
        raise ValueError("missing")
    try:
        exact = Decimal(text)
    except InvalidOperation:
        raise ValueError("not a number") from None
    if exact.is_nan():
        raise ValueError("NaN")
    if exact.is_infinite() or exact.adjusted() > DIGITS or abs(exact) * factor >= _LIMIT_NS:
        raise ValueError("endless")
    return int((exact * factor).to_integral_value())


def add_us(into: dict[str, Any], row: Mapping[str, object], columns: Mapping[str, str], bad: Counter[str]) -> None:
    """Those of ``columns`` (our name -> theirs) that a row has: times in µs, added in ns; what is no time is counted in ``bad``."""
    for ours, theirs in columns.items():
        if theirs in row:
            try:
                into[ours] = into.get(ours, 0) + ns_of_us(row[theirs])
            except ValueError as error:
                bad[f"{theirs} {error}"] += 1


def clock_of(starts: Iterable[int]) -> Clock:
    """``EPOCH`` when the earliest start is a date, else ``RELATIVE``."""
    first = min(starts, default=0)
    return Clock.EPOCH if EPOCH_NS[0] <= first <= EPOCH_NS[1] else Clock.RELATIVE


def leave_out(trace: Trace, what: dict[str, int], noun: str) -> None:
    """Rows or events that are not in the trace: said, and counted as what it lacks."""
    trace.problems.extend(counted(what, noun))
    for reason, count in what.items():
        trace.completeness.leave_out(reason, count)


def counted(what: dict[str, int], noun: str) -> Sequence[str]:
    """Lines for ``Trace.problems``: how many were left out, and why."""
    return [f"left out: {count} {noun}{'s' * (count != 1)}, {reason}" for reason, count in what.items()]
