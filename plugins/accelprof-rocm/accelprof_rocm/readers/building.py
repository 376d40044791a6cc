"""What all formats share: names to kinds, checked times, and the windows by which a recording is cut."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from accelprof.contracts.spans import DEVICE_WORK, UNKNOWN, Clock, Kind, Mark, Span, Trace, end_open, settle_processes
from accelprof.reading.numbers import identity
from accelprof.texts import unquoted
from accelprof_rocm.releases import REGION

#: host calls that wait for the device
WAITING = re.compile(r"^(hip(Device|Stream|Event|Ctx)Synchronize|hsa_signal_wait|hsa_amd_signal_wait)")
COPIES = {"HOST_TO_DEVICE": "HtoD", "DEVICE_TO_HOST": "DtoH", "DEVICE_TO_DEVICE": "DtoD", "HOST_TO_HOST": "HtoH"}
MARK_NAMES = ("roctxMark", "roctxMarkA")
RANGE_NAMES = (
    "roctxThreadRangeA", "roctxProcessRangeA", "roctxRangePushA", "roctxRangePush", "roctxRangeStartA", "roctxRangeStart",
    "roctxRange",
)  # fmt: skip
CONTROL_NAMES = ("roctxProfilerPause", "roctxProfilerResume")
_WHOLE = re.compile(r"\s*-?[0-9]{1,20}\s*")
_WINDOW = re.compile(r"^accelprof window (begin|end) (.+)$", re.DOTALL)
#: stands for the end of what was open when recording stopped
OPEN = object()
#: bits of a launch's number; those above are its process's, where there are several
PROCESS_BITS = 40
#: problems of one sort are counted, and this many are shown with their place
SHOWN = 3


def call_kind(name: str) -> Kind:
    return Kind.SYNC if WAITING.match(name) else Kind.RUNTIME


def copy_name(operation: str) -> str:
    """``Memcpy HtoD`` of ``MEMORY_COPY_HOST_TO_DEVICE``; other names stay as they are."""
    short = next((short for long, short in COPIES.items() if operation.upper().endswith(long)), None)
    return f"Memcpy {short}" if short else operation


class Builder:
    """Collects spans and marks of one file; :meth:`finish` gives the trace."""

    def __init__(self, path: str, tool: str, clock: Clock = Clock.BOOTTIME) -> None:
        self.trace = Trace(path, tool, clock)
        self._bad: Counter[str] = Counter()
        self._lacking: Counter[str] = Counter()
        self._places: dict[str, list[str]] = {}
        self.skipped: Counter[str] = Counter()
        self._opened: list[Span] = []

    def bad(self, reason: str, where: str) -> None:
        """One record that is left out."""
        self._bad[reason] += 1
        places = self._places.setdefault(reason, [])
        if len(places) < SHOWN:
            places.append(where)

    def times(self, start: Any, end: Any, where: str) -> tuple[int, int] | None:
        """Both times as whole ns, or ``None`` when the record cannot be counted."""
        try:
            begin, finish = whole(start), whole(end)
        except ValueError:
            self.bad("time is not a number", where)
            return None
        if begin <= 0 or finish <= 0:
            self.bad("no start or no end", where)
            return None
        if finish < begin:
            self.bad("ends before it starts", where)
            return None
        return begin, finish

    def span(self, name: str, kind: Kind, start: Any, end: Any, where: str, **fields: Any) -> Span | None:
        """One interval; what ends :data:`OPEN` and is no range has no end."""
        opened = end is OPEN and kind in (Kind.RANGE, Kind.OPERATOR)
        both = self.times(start, start if opened else end, where)
        if both is None:
            return None
        span = Span(name, kind, *both, **fields)
        self.trace.spans.append(span)
        self._opened += [span] if opened else []
        return span

    def marker(self, operation: str, message: str, start: Any, end: Any, where: str, **fields: Any) -> None:
        """One ROCTX record, by the name of its operation."""
        message = unquoted(message)
        window = _WINDOW.match(message) is not None  # formats without operations cannot tell a mark from a range
        if message == REGION and operation not in MARK_NAMES:
            return  # rocprof-sys records while this range is open; the marks inside it are the window
        if operation in RANGE_NAMES and not window:
            self.span(message, Kind.RANGE, start, end, where, **fields)
        elif window or operation in MARK_NAMES or operation in CONTROL_NAMES:
            control = operation in CONTROL_NAMES
            both = self.times(start, start, where)
            if both is not None:
                name = operation if control else message
                mark = Mark(name, both[0], category="control" if control else "", **fields)
                self.trace.marks.append(mark)
        else:
            self.skipped[operation] += 1

    def lack(self, what: str, where: str) -> None:
        """One record that is in the trace and does not say all of itself."""
        self._lacking[what] += 1
        self._places.setdefault(what, []).append(where)

    def finish(self, metadata: Mapping[str, Any]) -> Trace:
        trace = self.trace
        settle_processes([*trace.spans, *trace.marks])
        _launches_apart(trace.spans)
        cut_by_windows(trace, self._opened)
        for what, count in self._lacking.items():
            trace.unread(f"{count} record(s) {what} ({', '.join(self._places[what][:SHOWN])}, …)")
        for reason, count in self._bad.items():
            trace.completeness.leave_out(reason, count)
            trace.problems.append(f"{count} record(s) left out: {reason} ({', '.join(self._places[reason])}, …)")
        trace.metadata.update(metadata)
        if self.skipped:
            trace.metadata["left_out"] = dict(self.skipped)
        if not trace.spans and not trace.marks:
            trace.problems.append("no spans at all: nothing was recorded, or no window was ever open")
        return trace


def whole(value: Any) -> int:
    """A whole number of ns out of what a format has; floats are refused, since they have lost some.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, (int, str)) or not _WHOLE.fullmatch(str(value)):
        raise ValueError(f"{value!r} is no whole number")
    return int(value)


def launch_number(value: object) -> int | str:
    """What a call and the work it launched share; 0, which the SDK gives what nothing launched, is none."""
    return identity(value) or UNKNOWN


def _launches_apart(spans: Sequence[Span]) -> None:
    """Each process numbers its launches from 1: with several of them in a file a number becomes one that is its process's alone, so that
    work whose launch is not in the file is nobody else's. Numbers of work that does not say its process stay as they are."""
    numbered = [span for span in spans if type(span.args.get("correlation")) is int]
    known = list(dict.fromkeys(span.pid for span in numbered if span.pid != UNKNOWN))
    if len(known) < 2:
        return
    place = {pid: at << PROCESS_BITS for at, pid in enumerate(known)}
    unsaid = {span.args["correlation"] for span in numbered if span.pid == UNKNOWN}
    for span in numbered:
        number = span.args["correlation"]
        if number not in unsaid and place[span.pid]:
            own = place[span.pid] | number if 0 <= number >> PROCESS_BITS < 1 else f"{number} of process {span.pid}"
            span.args = {**span.args, "correlation": own}


def cut_by_windows(trace: Trace, opened: Sequence[Span] = ()) -> None:
    """Where accelprof left marks around its windows, they become spans and what lies outside all of them is left out. Ranges that are
    ``opened`` go on until recording stopped.

    Device work counts by the host call that launched it. Ranges inside windows are phases: what else is annotated in a
    recording made by accelprof does not reach these tools, bar ranges of libraries that use the SDK's ROCTX.
    """
    begun: dict[tuple[Any, str], Mark] = {}
    windows: list[Span] = []
    rest: list[Mark] = []
    for mark in sorted(trace.marks, key=lambda item: item.at_ns):
        match = _WINDOW.match(mark.name)
        if match is None:
            rest.append(mark)
        elif match[1] == "begin":
            begun[mark.pid, match[2]] = mark
        else:
            begin = begun.pop((mark.pid, match[2]), None)
            if begin is None:
                trace.unread(f"window {match[2]} ends and has no beginning in this file")
                continue
            windows.append(_window(match[2], begin, mark.at_ns))
    last = max((span.end_ns for span in trace.spans), default=0)
    for (_, wid), mark in begun.items():
        trace.unread(f"window {wid} has no end in this file; it is taken to last until the last record")
        windows.append(_window(wid, mark, max(last, mark.at_ns)))
    trace.marks = rest
    end_open(opened, [*windows, *trace.spans])
    if not windows:
        return
    launches = {
        (span.pid, span.args.get("correlation")): span.start_ns
        for span in trace.spans
        if span.kind in (Kind.RUNTIME, Kind.SYNC) and span.args.get("correlation") is not None
    }
    kept: list[Span] = []
    for span in trace.spans:
        if _inside(span, windows, launches):
            if span.kind is Kind.RANGE:
                span.kind = Kind.PHASE
            kept.append(span)
    if len(kept) < len(trace.spans):
        trace.metadata["outside_windows"] = len(trace.spans) - len(kept)
    trace.spans = [*windows, *kept]
    trace.marks = [mark for mark in rest if any(w.start_ns <= mark.at_ns <= w.end_ns and _of(w, mark) for w in windows)]


def _window(wid: str, begin: Mark, end_ns: int) -> Span:
    return Span("window", Kind.WINDOW, begin.at_ns, end_ns, begin.pid, begin.tid, args={"window": wid})


def _inside(span: Span, windows: list[Span], launches: Mapping[tuple[Any, Any], int]) -> bool:
    start, end = span.start_ns, span.end_ns
    if span.kind in DEVICE_WORK:
        start = end = launches.get((span.pid, span.args.get("correlation")), start)
    return any(start <= window.end_ns and end >= window.start_ns for window in windows if _of(window, span))


def _of(window: Span, one: Span | Mark) -> bool:
    """Whether a record may be of the process whose window it is."""
    return window.pid == one.pid or UNKNOWN in (window.pid, one.pid)
