"""A file of the example tool becomes a :class:`~accelprof.contracts.spans.Trace`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from accelprof.contracts.spans import Clock, Kind, Mark, Span, Trace
from accelprof.errors import ReadError

SUFFIX = ".example.json"


def read(path: str, tool: str) -> Trace:
    """Ranges and marks of the host, launches, and the device's work.

    Raises:
        ReadError: the file is none of this tool's, or not whole.
    """
    try:
        with open(path, encoding="utf-8") as file:
            data: Mapping[str, Any] = json.load(file)
        trace = Trace(path, tool, Clock.EPOCH)
        _ranges(trace, data["events"])
        _work(trace, data.get("work", ()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReadError(path, f"not a file of {tool}: {error!r}") from None
    return trace


def _ranges(trace: Trace, events: Iterable[tuple[str, str, int, int]]) -> None:
    begun: dict[tuple[bool, str, int], list[int]] = {}
    for what, label, at, thread in events:
        stacked = what in ("push", "pop")
        key = (stacked, label, thread if stacked else 0)
        if what == "mark":
            trace.marks.append(Mark(label, at, tid=thread))
        elif what in ("push", "start"):
            begun.setdefault(key, []).append(at)
        elif begun.get(key):
            trace.spans.append(Span(label, Kind.RANGE, begun[key].pop(), at, tid=thread))
        else:
            trace.problems.append(f"{what} of {label!r} without a beginning")
            trace.completeness.leave_out("an end without a beginning")
    for (_, label, _), left in begun.items():
        if left:
            trace.problems.append(f"range {label!r} never ended")
            trace.completeness.leave_out("a range that never ended", len(left))


def _work(trace: Trace, work: Iterable[tuple[str, int, int, int, int]]) -> None:
    """Device work belongs to the phase whose thread launched it: both spans carry the same ``correlation``."""
    for number, (kernel, launched, thread, begun, ended) in enumerate(work, start=1):
        same = {"correlation": number}
        trace.spans.append(Span("launch", Kind.RUNTIME, launched, launched + 100, tid=thread, args=same))
        trace.spans.append(Span(kernel, Kind.KERNEL, begun, ended, device=0, stream=0, args=same))
