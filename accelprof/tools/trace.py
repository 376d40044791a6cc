"""Our own timeline: spans of timers and ranges as Chrome trace JSON, gzip, that Perfetto and chrome://tracing open.

Bounded memory: at most ``max_spans`` a window; what comes after is counted and shown as "dropped N". Times are written
as microseconds with three decimals, so that every nanosecond of the epoch clock stays (a float64 would lose them).
"""

from __future__ import annotations

import gzip
import itertools
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from pydantic import Field

from accelprof import atomic, texts
from accelprof.contracts.backend import Backend, Emitter
from accelprof.contracts.names import TIMELINE_TOOL
from accelprof.contracts.spans import CALL, FORMAT_VERSION, ROW_COLUMNS, Kind, TimelineRow, Trace
from accelprof.contracts.targets import ArtifactFile, Target, WindowInfo
from accelprof.contracts.tool import Tool, ToolOptions
from accelprof.contracts.words import TriggerCall
from accelprof.timing.gate import now_ns
from accelprof.timing.phase import PhaseSpec
from accelprof.timing.running import Running

SUFFIX = ".trace.json.gz"
LINES_AT_ONCE = 2000
#: fields of a row whose numbers differ from row to row, and what stands behind the arguments in an event's head
ROW_NUMBERS = (ROW_COLUMNS["own"], CALL)
ARGS_END = '},"ts":'


class TraceOptions(ToolOptions):
    """``max_spans``: spans kept per window (a span takes about 200 bytes of memory until the window closes)."""

    max_spans: int = Field(200_000, ge=1)


class TraceTool(Tool):
    """A companion that runs beside any tool in every window, or alone."""

    name: ClassVar[str] = TIMELINE_TOOL
    aliases: ClassVar[tuple[str, ...]] = ("timeline",)
    Options: ClassVar[type[ToolOptions]] = TraceOptions
    writes_chrome_trace: ClassVar[bool] = True

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        #: of the open window, each with the fields of a ``TimelineRow``
        self.rows: list[tuple[Any, ...]] = []
        self._marks: list[tuple[object, ...]] = []
        self.specs: list[PhaseSpec] = []
        self._numbers: dict[PhaseSpec, int] = {}
        self._opened = 0
        self._of_steps, self._steps = False, tuple[int, ...]()
        self.span_count = 0
        self._epoch_offset = 0
        self.dropped = 0

    def trigger(self, target: Target) -> TriggerCall:
        return "in_process"

    def emitter(self, backend: Backend) -> Emitter:
        return _NOWHERE

    def open(self, window: WindowInfo) -> None:
        self.rows, self._marks, self.specs, self._numbers = [], [], [], {}
        self._of_steps, self._steps, self.dropped = window.kind == "step", window.steps, 0
        self._epoch_offset = epoch_offset()
        self._opened = now_ns()

    def step(self, step: int) -> None:
        if self._of_steps:
            self._steps = tuple(dict.fromkeys((*self._steps, step)))

    def number(self, spec: PhaseSpec) -> int:
        """The number under which ``rows`` name a phase."""
        number = self._numbers.get(spec)
        if number is None:
            number = self._numbers.setdefault(spec, len(self.specs))
            self.specs.append(spec)
        return number

    def add(
        self,
        spec: PhaseSpec,
        kind: Kind,
        start: int,
        end: int,
        thread: int,
        task: str,
        own: int | None,
        in_progress: bool,
        call: int = 0,
    ) -> None:
        """One span; times on the timers' clock."""
        if len(self.rows) >= self.options.max_spans:
            self.dropped += 1
            return
        self.rows.append(TimelineRow(self.number(spec), kind.value, start, end, thread, task, own, in_progress, call))

    def add_mark(self, spec: PhaseSpec, at: int, thread: int) -> None:
        """One instant."""
        if len(self._marks) >= self.options.max_spans:
            self.dropped += 1
            return
        self._marks.append((spec, at, thread))

    def in_progress(self, running: Iterable[Running], now: int) -> None:
        """Phases that are still running when the window closes: cut there, and marked so."""
        for run in running:
            self.add(run.spec, Kind.PHASE, run.start, now, run.thread, run.task, None, True, run.call)

    def close(self, window: WindowInfo) -> list[ArtifactFile]:
        path = window.stem + SUFFIX
        self.span_count = len(self.rows)
        target = self.context.target if self.context is not None else Target("unknown")
        file = TimelineFile(
            replace(window, steps=self._steps), target, os.uname().nodename, os.getpid(), self.specs, [*self.rows], [*self._marks],
            self._opened, now_ns(), self._epoch_offset, self.dropped,
        )  # fmt: skip
        try:
            file.write(path)
        finally:
            self.rows, self._marks = [], []
        return [ArtifactFile(path, self.name, (window.id,), os.path.getsize(path))]

    @classmethod
    def can_read(cls, path: str) -> bool:
        return path.endswith(SUFFIX)

    def read(self, path: str) -> Trace:
        from accelprof.reading.chrome import read_chrome

        return read_chrome(path, self.name)


@dataclass
class TimelineFile:
    """The timeline of one window of one process, as it is written.

    Attributes:
        phases: what the numbers of ``rows`` mean.
        rows: each with the fields of a ``TimelineRow``, times on the timers' clock; ``marks``: ``(phase, at, thread)``.
        opened, closed: the window's, on the same clock; ``epoch_offset``: to be added for the epoch's.
        dropped: rows that there was no room for.
    """

    window: WindowInfo
    target: Target
    host: str
    pid: int
    phases: Sequence[PhaseSpec]
    rows: Sequence[Sequence[Any]]
    marks: Sequence[tuple[Any, ...]]
    opened: int
    closed: int
    epoch_offset: int
    dropped: int = 0

    def write(self, path: str) -> None:
        """Write it whole, or leave nothing.

        Raises:
            OSError: the file cannot be written.
        """
        with atomic.whole(path) as temporary, gzip.open(temporary, "wb", compresslevel=1) as file:
            lines = self._lines()
            while chunk := "".join(itertools.islice(lines, LINES_AT_ONCE)):
                file.write(chunk.encode("ascii"))

    def _lines(self) -> Iterator[str]:
        window, target, pid = self.window, self.target, self.pid
        spans = [TimelineRow._make(row) for row in self.rows]
        marks = self.marks
        rows = _Rows(spans, marks, pid == os.getpid())
        facts = {
            "format": FORMAT_VERSION,
            "group": target.group,
            "roles": list(target.roles),
            "rank": target.rank,
            "replica": target.replica,
            "host": self.host,
            "pid": pid,
            "window": window.id,
            "steps": list(window.steps),
            "phase": window.phase,
            "clock": "epoch",
            "dropped": self.dropped,
            **({} if target.engine_rank is None else {"engine_rank": target.engine_rank}),
        }
        yield '{"displayTimeUnit":"ns","otherData":' + _json({"accelprof": facts}) + ',"traceEvents":[\n'
        yield _json({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": target.label}})
        for tid, name in rows.names():
            yield ",\n" + _json({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}})
        note = {"steps": list(window.steps), "phase": window.phase, "dropped": self.dropped}
        label = f"window {window.sequence}" + (f" (dropped {self.dropped})" if self.dropped else "")
        yield ",\n" + self._event(label, "window", self.opened, self.closed, pid, rows.window, note)
        heads: dict[tuple[Any, ...], str] = {}  # all of an event but its numbers; the same for each call of a phase
        offset, opened = self.epoch_offset, self.opened
        for row in spans:
            start, end = row.start_ns, row.end_ns
            key = (row.number, row.kind, row.thread, row.task, row.in_progress)
            head = heads.get(key)
            if head is None:
                head = heads[key] = self._head(self.phases[row.number], row, pid, rows.tid(row.thread, row.task))
            if row.own_ns is not None or row.call:
                plain = TimelineRow._field_defaults
                more = [f'"{name}":{getattr(row, name)}' for name in ROW_NUMBERS if getattr(row, name) != plain[name]]
                head = (
                    f"{head[: -len(ARGS_END)]}{'' if head.endswith('{' + ARGS_END) else ','}{','.join(more)}{ARGS_END}"
                )
            if row.in_progress and start < opened:
                start = opened
            duration = end - start if end > start else 0
            start += offset
            yield f'{head}{start // 1000}.{start % 1000:03d},"dur":{duration // 1000}.{duration % 1000:03d}}}'
        for spec, at, thread in marks:
            args = {
                key: value
                for key, value in (("domain", spec.domain), ("color", spec.color), ("category", spec.category))
                if value
            }
            event = {
                "ph": "i",
                "s": "t",
                "cat": "mark",
                "name": spec.tag,
                "pid": pid,
                "tid": rows.tid(thread, ""),
                "args": args,
            }
            yield ",\n" + _json(event)[:-1] + f',"ts":{self._us(at)}}}'
        yield "\n]}\n"

    @staticmethod
    def _head(spec: PhaseSpec, row: TimelineRow, pid: int, tid: int) -> str:
        """A complete event up to the number of its ``ts``; fields of the row that say something are its arguments, but the
        numbers that differ from row to row."""
        args: dict[str, Any] = {"domain": spec.domain, "color": spec.color, "category": spec.category}
        args = {key: value for key, value in args.items() if value}
        for name, plain in TimelineRow._field_defaults.items():
            value = getattr(row, name)
            if value != plain and name not in ROW_NUMBERS:
                args[name] = value
        event = {"ph": "X", "cat": row.kind, "name": spec.tag, "pid": pid, "tid": tid, "args": args}
        return ",\n" + _json(event)[:-2] + ARGS_END

    def _event(self, name: str, cat: str, start: int, end: int, pid: int, tid: int, args: dict[str, Any]) -> str:
        duration = max(end - start, 0)
        head = _json({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "args": args})
        return f'{head[:-1]},"ts":{self._us(start)},"dur":{duration // 1000}.{duration % 1000:03d}}}'

    def _us(self, at: int) -> str:
        epoch = at + self.epoch_offset
        return f"{epoch // 1000}.{epoch % 1000:03d}"


class _Rows:
    """Row numbers of the timeline: threads keep their id, tasks that may overlap on a thread get rows of their own."""

    def __init__(self, spans: Sequence[TimelineRow], marks: Sequence[tuple[Any, ...]], own: bool) -> None:
        alive = {thread.ident: thread for thread in threading.enumerate()} if own else {}
        self._native: dict[int, int] = {}
        self._names: dict[int, str] = {}
        used: set[int] = set()
        for thread in dict.fromkeys([*(span.thread for span in spans), *(mark[2] for mark in marks)]):
            known = alive.get(thread)
            number = (known.native_id if known is not None else None) or (thread & 0x3FFFFFFF) or 1
            while number in used:
                number += 1
            used.add(number)
            self._native[thread] = number
            self._names[number] = (
                known.name
                if known is not None
                else f"thread {number} (ended)"
                if thread
                else "other threads (phases that began before the window and went on after it)"
            )
        self._tasks: dict[tuple[int, str], int] = {}
        following = 2**31 - 1
        for span in spans:
            key = (span.thread, span.task)
            if span.task and key not in self._tasks:
                following -= 1
                self._tasks[key] = following
                self._names[following] = f"{span.task} (on {self._names[self._native[span.thread]]})"
        self.window = 2**31 - 1
        self._names[self.window] = "accelprof windows"

    def tid(self, thread: int, task: str) -> int:
        return self._tasks[(thread, task)] if task else self._native[thread]

    def names(self) -> Iterator[tuple[int, str]]:
        return iter(self._names.items())


_NOWHERE = Emitter()


def epoch_offset() -> int:
    """Nanoseconds to add to the timers' clock to get Unix-epoch time: the tightest of several readings."""
    best: tuple[int, int] | None = None
    for _ in range(3):
        before = now_ns()
        epoch = time.time_ns()
        after = now_ns()
        if best is None or after - before < best[0]:
            best = (after - before, epoch - (before + after) // 2)
    return best[1] if best is not None else 0


def _json(value: object) -> str:
    return texts.dumps(value, separators=(",", ":"))
