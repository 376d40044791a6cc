"""The records that readers yield and reports eat. Bump ``FORMAT_VERSION`` when a field changes meaning.

All times are integers in nanoseconds: Unix-epoch times near 1.7e18 ns do not fit a float64 (steps of 256 ns there).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

FORMAT_VERSION = 1
#: times from here on either way stand in no table (the year 2116): sums and differences of two stay within 64 bits
FURTHEST_NS = 1 << 62
#: times from 2005 to 2100 are of the Unix epoch, in ns
EPOCH_NS = (1_104_537_600_000_000_000, 4_102_444_800_000_000_000)
#: stands for a device, stream, process, thread or correlation that the rows of a format have and this one has not
UNKNOWN = "unknown"
#: what a row may lack so -> what becomes of it
LACKING = {
    "device": f"stand on a device called {UNKNOWN}",
    "stream": f"stand on a stream called {UNKNOWN}",
    "correlation": "do not say which launch they belong to",
    "process": "do not say their process, and with that perhaps not which launch they belong to",
    "thread": "do not say their thread",
    "name": "do not say what they are",
    "category": "may be work of a device, or calls that launch it",
    "own time": "count with all of their time",
}


class Kind(str, enum.Enum):
    """What a span is. Busy time of a device counts ``DEVICE_WORK`` kinds only; annotations are never work."""

    PHASE = "phase"  # Worker.timer, accelprof.timer, worker_timer
    RANGE = "range"  # profiling_range and other annotations on the host
    STEP = "step"
    WINDOW = "window"
    OPERATOR = "operator"  # host side framework operators
    RUNTIME = "runtime"  # host side vendor API calls (cudaLaunchKernel, hipMemcpyAsync, aclrt*)
    SYNC = "sync"  # host waits for the device
    OVERHEAD = "overhead"  # what the tool itself did on the host, as its file says (buffers, loading)
    KERNEL = "kernel"
    COMMUNICATION = "communication"  # collective kernels: NCCL, RCCL, HCCL
    COPY = "copy"
    MEMSET = "memset"
    DEVICE_ANNOTATION = "device_annotation"  # ranges projected to the device side (gpu_user_annotation)


DEVICE_WORK = frozenset({Kind.KERNEL, Kind.COMMUNICATION, Kind.COPY, Kind.MEMSET})


class Clock(str, enum.Enum):
    """The base of a trace's times."""

    EPOCH = "epoch"  # nanoseconds since 1970-01-01 UTC on the writer's node
    MONOTONIC = "monotonic"
    BOOTTIME = "boottime"
    RELATIVE = "relative"  # the file's own zero


@dataclass(slots=True)
class Span:
    """One interval ``[start_ns, end_ns]``.

    ``tid`` is the OS thread (or the file's own thread number), ``task`` a label for the asyncio task or generator when
    the code could be suspended. ``device`` and ``stream`` are set for device work only.
    """

    name: str
    kind: Kind
    start_ns: int
    end_ns: int
    pid: int | str = 0
    tid: int | str = 0
    task: str = ""
    domain: str = ""
    category: str = ""
    color: str = ""
    device: int | str | None = None
    stream: int | str | None = None
    args: Mapping[str, Any] = field(default_factory=dict)

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


class TimelineRow(NamedTuple):
    """A span of our own timeline as it is kept while its window is open: the one definition of its fields.

    The text of the generated wrappers (``timing/timer.py``) is made from it, and the trace tool writes each field that differs
    from its default as an argument of that name.

    Attributes:
        number: which phase, in the window's own list.
        kind: value of a :class:`Kind`.
        start_ns, end_ns: on the timers' clock.
        thread: number that Python gives the thread; 0 where it is not known which.
        task: label of the task, where it is not plain code on a thread.
        own_ns: what counts of it, of a piece or of several pieces of a generator's call in one row.
        in_progress: it began before the window or went on after it.
        call: number that the pieces of one call have in common (a generator runs between two of its items, and each time is
            a piece); 0 for a call in one piece.
    """

    number: int
    kind: str
    start_ns: int
    end_ns: int
    thread: int
    task: str = ""
    own_ns: int | None = None
    in_progress: bool = False
    call: int = 0


#: fields of a plain call's row as the flight recorder keeps it: those without a default, but the kind, which is a phase's
QUICK_ROW = tuple(name for name in TimelineRow._fields if name not in TimelineRow._field_defaults and name != "kind")
#: fields of a row that are columns of a table, by column; :data:`CALL` is asked for where a row has time of its own
ROW_COLUMNS = {"task": "task", "own": "own_ns", "cut": "in_progress"}
#: how our own rows of steps are called; a number follows
STEP = "step "
CALL = "call"


@dataclass(slots=True)
class Mark:
    """One instant."""

    name: str
    at_ns: int
    pid: int | str = 0
    tid: int | str = 0
    domain: str = ""
    category: str = ""
    color: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Flow:
    """One end of an arrow between spans, as a file draws it: a merged timeline draws it again, figures take no notice.

    Attributes:
        step: ``s`` where the arrow begins, ``t`` where it passes, ``f`` where it ends.
        id: what the ends of one arrow have in common, within its category and the file.
        pid, tid: those of the span it stands at, of device work too.
        following: of an end, that it means the next span to begin, not the one around this moment.
    """

    name: str
    step: str
    id: object
    at_ns: int
    pid: int | str = 0
    tid: int | str = 0
    category: str = ""
    following: bool = False


@dataclass(slots=True)
class Origin:
    """Which worker a trace came from; unknown is ``None``, never 0."""

    group: str | None = None
    role: str | None = None
    rank: int | None = None
    replica: int | None = None
    host: str | None = None
    pid: int | None = None
    windows: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    #: of a child process of an engine its rank within that; ``rank`` is its parent's
    engine_rank: int | None = None


@dataclass(slots=True)
class Completeness:
    """What of a file is not in its trace. Readers set it; who compares or judges asks it, and no message.

    Attributes:
        cut: why the file ends before its time (cut off, its stream of bytes damaged); empty for one that is whole.
        repaired: what was mended -> how often. What was mended is in the trace, so it is complete all the same.
        left_out: why an event is not in the trace (NaN duration, end without begin) -> how many of them.
        dropped: spans that the writer of the file says it dropped (a full buffer).
        unread: parts of the file that should be there and could not be read: tables, columns.
    """

    cut: str = ""
    repaired: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    dropped: int = 0
    unread: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether all that the file should hold is in the trace."""
        return not (self.cut or self.left_out or self.dropped or self.unread)

    @property
    def events_left_out(self) -> int:
        return sum(self.left_out.values())

    def leave_out(self, reason: str, count: int = 1) -> None:
        """Count ``count`` events that are not in the trace because of ``reason``."""
        self.left_out[reason] = self.left_out.get(reason, 0) + count

    def mend(self, what: str, count: int = 1) -> None:
        """Count ``count`` places of the file that were mended."""
        self.repaired[what] = self.repaired.get(what, 0) + count

    def lacks(self) -> list[str]:
        """One line for each thing that is not there, for people; empty when the trace is complete."""
        full = [f"{self.dropped:,} spans were dropped when the file was written"] if self.dropped else []
        return [*self.losses(), *full]

    def losses(self) -> list[str]:
        """Those of :meth:`lacks` that no limit of the configuration explains."""
        lines = [self.cut] if self.cut else []
        lines += [f"left out: {n:,} event{'s' * (n != 1)}, {reason}" for reason, n in self.left_out.items()]
        return lines + [f"not read: {part}" for part in self.unread]


@dataclass(frozen=True, slots=True)
class HostCalls:
    """What a tool's files call the host's calls that put work on a device: regular expressions, searched for in a name.

    Attributes:
        launches: calls that put a kernel, or a graph of them, on a device.
        capture_begins, capture_ends: calls between which a stream's launches are only recorded into a graph.
        waits: of Chrome traces, calls that wait for the device; of other files the reader says it by their kind.
    """

    launches: str = ""
    capture_begins: str = ""
    capture_ends: str = ""
    waits: str = ""

    def fault(self) -> str:
        """Which of them is no regular expression, and why; empty when all are."""
        import re  # only who reads files asks

        for name in ("launches", "capture_begins", "capture_ends", "waits"):
            pattern = getattr(self, name)
            try:
                re.compile(pattern)
            except (re.error, TypeError) as error:
                return f"host_calls.{name} is {pattern!r}, which is no regular expression: {error}"
        return ""


@dataclass(frozen=True, slots=True)
class Table:
    """Figures of a file that have no place in time (sums by step, memory by operator); reports show them as they stand.

    Attributes:
        title: what the rows are.
        columns: ``(name, unit)``; the unit is ``ns``, ``bytes``, ``count`` or ``share`` for numbers, and empty for labels.
        rows: a value a column; ``None`` = the file does not say.
        note: what to know when reading it.
    """

    title: str
    columns: tuple[tuple[str, str], ...]
    rows: list[tuple[Any, ...]]
    note: str = ""


class SpanSource(Protocol):
    """A table of spans, as :class:`accelprof.reading.columns.Columns` is one."""

    def __len__(self) -> int: ...
    def spans(self) -> list[Span]: ...


class Trace:
    """All that one file holds.

    Spans are kept as a list of :class:`Span` or as a table of columns, whichever the reader made, and the other form is
    made when it is asked for: ``trace.spans`` gives the list, :func:`accelprof.reading.columns.columns_of` the table.

    Attributes:
        source: path of the file.
        tool: name of the tool whose reader made this.
        clock: base of the times; with ``Clock.EPOCH`` files of several workers can be put on one axis.
        problems: what a reader of the report should know of the file, one line each.
        metadata: facts of the file worth showing: versions, device names, dropped counts.
        completeness: what of the file is not in here.
        tables: figures of the file that have no place in time.
        flows: arrows between spans.
        columns: the table of spans, ``None`` while the spans are a list. Set it to replace the spans.
    """

    __slots__ = (
        "_columns",
        "_spans",
        "clock",
        "completeness",
        "flows",
        "marks",
        "metadata",
        "origin",
        "problems",
        "source",
        "tables",
        "tool",
    )

    def __init__(
        self,
        source: str,
        tool: str,
        clock: Clock = Clock.RELATIVE,
        spans: list[Span] | None = None,
        marks: list[Mark] | None = None,
        problems: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        origin: Origin | None = None,
        *,
        columns: SpanSource | None = None,
        completeness: Completeness | None = None,
        tables: list[Table] | None = None,
        flows: list[Flow] | None = None,
    ) -> None:
        self.source, self.tool, self.clock = source, tool, clock
        self._spans: list[Span] | None = spans if spans is not None or columns is not None else []
        self._columns = columns if spans is None else None
        self.marks = marks if marks is not None else []
        self.problems = problems if problems is not None else []
        self.metadata = metadata if metadata is not None else {}
        self.origin = origin if origin is not None else Origin()
        self.completeness = completeness if completeness is not None else Completeness()
        self.tables = tables if tables is not None else []
        self.flows = flows if flows is not None else []

    def unread(self, line: str) -> None:
        """Say what of the file is not in the trace and should be: a problem, and a lack of :attr:`completeness`."""
        self.problems.append(line)
        self.completeness.unread.append(line)

    @property
    def spans(self) -> list[Span]:
        """The spans as a list that may be changed. Large traces are dear in this form: a span takes about 400 bytes."""
        if self._spans is None:
            self._spans = self._columns.spans() if self._columns is not None else []
        self._columns = None  # the list may be changed from now on
        return self._spans

    @spans.setter
    def spans(self, spans: list[Span]) -> None:
        self._spans, self._columns = spans, None

    @property
    def columns(self) -> SpanSource | None:
        return self._columns

    @columns.setter
    def columns(self, columns: SpanSource) -> None:
        self._spans, self._columns = None, columns

    def __len__(self) -> int:
        """Number of spans, in either form."""
        return len(self._columns) if self._columns is not None else len(self._spans or ())

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"Trace({self.source!r}, {self.tool!r}, {self.clock}, {len(self)} spans, {len(self.marks)} marks)"

    def of_kind(self, *kinds: Kind) -> Iterator[Span]:
        return (span for span in self.spans if span.kind in kinds)


def settle_processes(rows: Sequence[Span | Mark]) -> None:
    """Rows that do not say their process are those of the only one of the file, where there is one."""
    unsaid = [row for row in rows if row.pid == UNKNOWN]
    known = {row.pid for row in rows} - {UNKNOWN, 0} if unsaid else set()
    if len(known) == 1:
        only = known.pop()
        for row in unsaid:
            row.pid = only


def end_open(opened: Sequence[Span], rows: Sequence[Span]) -> None:
    """Ranges without an end in the file were open when recording stopped: they go on until then, and are cut. It stopped with the last
    of the windows, where they are known, otherwise with the last moment of all ``rows``."""
    window = max((row.end_ns for row in rows if row.kind is Kind.WINDOW), default=0)
    last = max((row.end_ns for row in rows), default=0) if opened else 0
    for span in opened:
        span.end_ns = window if window >= span.start_ns else max(last, span.start_ns)
        span.args = {**span.args, ROW_COLUMNS["cut"]: True}


def merge_intervals(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted disjoint intervals that cover the same points."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
        elif end > start:
            merged.append((start, end))
    return merged
