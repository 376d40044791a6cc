"""One Chrome trace of all workers and tools: clocks brought together, numbers kept apart, every nanosecond kept.

The file has ``baseTimeNanoseconds`` (Kineto's key: to be added to every ``ts``), because viewers keep ``ts`` as float64,
which near 1.7e15 µs cannot tell quarters of a µs apart. What was shifted by how much stands in ``otherData.accelprof``.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import IO, Any, cast

import msgspec

from accelprof.analysis.chrome_file import BadTimeError, ChromeFile, Event, exact_ns, load
from accelprof.analysis.places import Places
from accelprof.analysis.reading import looks_like_chrome, read_any
from accelprof.analysis.run import Run, open_run
from accelprof.errors import AccelprofError, ReadError
from accelprof.spans import Clock, Mark, Span, Trace

FORMAT = 1
SECOND = 1_000_000_000
#: room below the first known moment, so that events before it need no second run over the files
MARGIN_NS = 60 * SECOND
EPOCH_BEGINS_NS = 1_104_537_600 * SECOND
FLOWS = frozenset("stfbneSTFpNOD")
_encoder = msgspec.json.Encoder()


@dataclass
class Source:
    """One file to merge.

    Attributes:
        offset_ns: the worker's clock minus the driver's; taken off every time. ``error_ns`` ``None`` = not measured.
        opened_ns: when its first window opened, on the driver's clock; places files that have a clock of their own.
        shift_ns: what was added to the file's times in the end (filled in by the merge).
    """

    path: str
    worker: str
    key: str
    tool: str | None = None
    host: str | None = None
    offset_ns: int = 0
    error_ns: int | None = None
    opened_ns: int | None = None
    shift_ns: int = 0
    events: int = 0
    clock: str = ""


@dataclass
class Merged:
    """What was written. ``read`` and ``written`` count events; ``added`` are names of processes that had none."""

    path: str
    read: int = 0
    written: int = 0
    added: int = 0
    base_ns: int = 0
    sources: list[Source] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class _TooEarlyError(Exception):
    def __init__(self, at_ns: int) -> None:
        self.at_ns = at_ns


def write_timeline(run_dir: str | os.PathLike[str], out: str, *, max_bytes: int | None = None) -> Merged:
    """Merge every readable file of a run into ``out`` (gzip when it ends in ``.gz``).

    Raises:
        ReadError: there is no run in the directory.
        OSError: ``out`` cannot be written.
    """
    run = open_run(run_dir)
    problems: list[str] = []
    sources = list(_sources(run, problems, max_bytes))
    opened = [source.opened_ns for source in sources if source.opened_ns is not None]
    return merge(sources, out, problems, min(opened, default=None))


def merge_files(paths: Sequence[str], out: str) -> Merged:
    """Merge files, each as a worker of its own, without any clock correction.

    Raises:
        ReadError: none of the files could be read.
        OSError: ``out`` cannot be written.
    """
    sources = []
    for number, path in enumerate(paths):
        sources.append(Source(path, f"{os.path.basename(path)} ({number + 1})", f"{number}"))
    merged = merge(sources, out, [], None)
    if sources and not any(source.clock for source in sources):
        raise ReadError(paths[0] if len(paths) == 1 else out, "; ".join(merged.problems))
    return merged


def merge(sources: Sequence[Source], out: str, problems: Sequence[str], first_ns: int | None) -> Merged:
    """Merge ``sources``; ``first_ns`` is a moment near the beginning, where one is known."""
    base = None if first_ns is None else _floor(first_ns - MARGIN_NS)
    while True:
        merged = Merged(out, base_ns=base or 0, sources=list(sources), problems=list(problems))
        temporary = f"{out}.{os.getpid()}.part"
        try:
            with _opened(temporary) as file:
                _Writer(file, merged, base).all()
            os.replace(temporary, out)
            return merged
        except _TooEarlyError as early:
            base = _floor(early.at_ns - MARGIN_NS)
        finally:
            if os.path.exists(temporary):
                os.unlink(temporary)


def _opened(path: str) -> IO[bytes]:
    if path.rsplit(".", 2)[0].endswith(".gz"):
        # small writes are slow on a GzipFile
        return io.BufferedWriter(cast(io.RawIOBase, gzip.GzipFile(path, "wb", compresslevel=5, mtime=0)), 1 << 16)
    return open(path, "wb")


def _floor(at_ns: int) -> int:
    return max(at_ns, 0) // SECOND * SECOND


def _sources(run: Run, problems: list[str], max_bytes: int | None) -> Iterator[Source]:
    opened = {row.get("id"): row.get("opened") for row in run.rows("windows")}
    for artifact in run.rows("artifacts"):
        path, worker = run.path(artifact), run.worker(artifact)
        where = f"{worker.label}: {artifact.get('path')}"
        if not os.path.exists(path):
            at = f"on {artifact['host']}" if artifact.get("remote") else "not there"
            problems.append(f"{where} is not in the timeline: it is {at}")
            continue
        if max_bytes is not None and os.path.isfile(path) and os.path.getsize(path) > max_bytes:
            size = os.path.getsize(path)
            problems.append(f"{where} is not in the timeline: {size} bytes; `accelprof timeline` takes it in")
            continue
        if path.endswith(".pickle"):
            continue  # an allocator snapshot has no place on a time axis
        offset, error = run.offset_ns(worker)
        moments = [opened.get(window) for window in artifact.get("windows") or ()]
        starts = [_driver_ns(moment, offset) for moment in moments if isinstance(moment, dict)]
        first = min((start for start in starts if start is not None), default=None)
        tool = str(artifact.get("tool") or "") or None
        yield Source(path, worker.label, worker.key, tool, worker.host, offset, error, first)


def _driver_ns(moment: Mapping[str, Any], offset: int) -> int | None:
    if isinstance(moment.get("driver_ns"), int):
        return int(moment["driver_ns"])
    return int(moment["epoch_ns"]) - offset if isinstance(moment.get("epoch_ns"), int) else None


class _Writer:
    def __init__(self, file: IO[bytes], merged: Merged, base: int | None) -> None:
        self.file, self.merged, self.base = file, merged, base
        self.places = Places()
        self.named: dict[int, str] = {}
        self.seen: dict[int, str] = {}
        self.separator = b""

    def all(self) -> None:
        self.file.write(b'{"displayTimeUnit":"ns","traceEvents":[\n')
        for number, source in enumerate(self.merged.sources):
            try:
                self._source(number, source)
            except AccelprofError as error:
                reason = error.reason if isinstance(error, ReadError) else str(error)
                self._problem(source, f"is not in the timeline: {reason}")
        for pid, name in self.seen.items():
            if pid not in self.named:
                self._write({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}})
                self.merged.added += 1
        self.merged.base_ns = self.base or 0
        facts = {
            "format": FORMAT,
            "clock": "driver",
            "events": {"read": self.merged.read, "written": self.merged.written, "added_names": self.merged.added},
            "sources": [asdict(source) for source in self.merged.sources],
            "problems": self.merged.problems,
        }
        rest = json.dumps({"accelprof": facts}, allow_nan=False)
        self.file.write(f'\n],"baseTimeNanoseconds":{self.base or 0},"otherData":{rest}}}\n'.encode())

    def _source(self, number: int, source: Source) -> None:
        if os.path.isfile(source.path) and looks_like_chrome(source.path):
            try:
                self._chrome(number, source, load(source.path))
                return
            except ReadError as error:
                if "no traceEvents" not in error.reason and "no trace" not in error.reason:
                    raise
        self._spans(source, read_any(source.path, source.tool))

    def _shift(self, source: Source, first: int | None, own_base: int) -> int:
        """What to add to the file's times to get ns after ``self.base``; kept in the source."""
        if first is None:
            return 0
        epoch = first + own_base >= EPOCH_BEGINS_NS
        source.clock = "epoch" if epoch else "relative"
        move = own_base - source.offset_ns
        if self.base is None:
            self.base = _floor(first + move - MARGIN_NS) if epoch else 0
        if not epoch and self.base > 0:
            at = source.opened_ns if source.opened_ns is not None else self.base + MARGIN_NS
            move = at - first
            where = "the opening of its window" if source.opened_ns is not None else "the beginning of the timeline"
            self._problem(source, f"has a clock of its own; its first event was put at {where}")
        source.shift_ns = move - own_base
        return move - self.base

    # --- files that are Chrome traces: their events pass through --------------------------------------------------

    def _chrome(self, number: int, source: Source, file: ChromeFile) -> None:
        for problem in file.problems:
            self._problem(source, problem)
        self.merged.read += len(file.events)
        times: list[int | None] = []
        bad: Counter[str] = Counter()
        for event in file.events:
            try:
                times.append(None if event.ph == "M" else exact_ns(bytes(event.ts)))
            except BadTimeError as error:
                times.append(None)
                bad[f"{'start' if event.ph == 'X' else 'time'} {error}"] += 1
                event.ph = None
        first = min((at for at in times if at is not None), default=None)
        shift = self._shift(source, first, file.base_ns)
        source.clock = source.clock or "none"
        for event, at in zip(file.events, times, strict=True):
            if event.ph is None:
                continue
            if at is not None:
                if event.ph == "X" and not self._duration(event, bad):
                    continue
                self._place_time(event, at + shift)
            self._chrome_event(number, source, event)
        for what, count in bad.items():
            self._problem(source, f"{count} event{'s' * (count != 1)} left out: {what}")

    def _duration(self, event: Event, bad: Counter[str]) -> bool:
        try:
            duration = exact_ns(bytes(event.dur))
        except BadTimeError as error:
            bad[f"duration {error}"] += 1
            return False
        if duration < 0:
            bad["negative duration"] += 1
            return False
        event.dur = msgspec.Raw(_us(duration))
        return True

    def _place_time(self, event: Event, at: int) -> None:
        if at < 0 and self.base:
            raise _TooEarlyError(at + self.base)
        event.ts = msgspec.Raw(_us(at))

    def _chrome_event(self, number: int, source: Source, event: Event) -> None:
        owner = f"{source.key}|{source.tool}"
        original_pid, original_tid = event.pid, event.tid
        pid = event.pid = self.places.pid(owner, original_pid)
        event.tid = 0 if event.ph == "M" and original_tid in (0, None) else self.places.tid(pid, original_tid)
        self.seen.setdefault(pid, self._name(source, str(original_pid)))
        if event.ph in FLOWS:
            if event.id is not None:
                event.id = self.places.flow(number, event.cat, event.id)
            if isinstance(event.id2, dict) and "global" in event.id2:
                event.id2 = {"global": hex(self.places.flow(number, event.cat, event.id2["global"]))}
        if event.bind_id is not None:
            event.bind_id = hex(self.places.flow(number, "bind_id", event.bind_id))
        if event.ph == "M":
            event.ts = msgspec.Raw()
            self._rename(source, event, pid, original_pid)
        self._write(event)

    def _rename(self, source: Source, event: Event, pid: int, original: Any) -> None:
        raw = bytes(event.args)
        args = msgspec.json.decode(raw) if raw else None
        if not isinstance(args, dict):
            return
        if event.name == "process_name":
            args["name"] = self.named[pid] = self._name(source, f"{args.get('name', '')} {original}".strip())
        elif event.name == "thread_name":
            args["name"] = f"{args.get('name', '')} [{source.worker}]"
        elif event.name == "process_sort_index":
            args["sort_index"] = len(self.seen)
        else:
            return
        event.args = msgspec.Raw(_encoder.encode(args))

    @staticmethod
    def _name(source: Source, inner: str) -> str:
        """``ActorGroup/rank0 on node3: torch, python 4242``."""
        host = f" on {source.host}" if source.host else ""
        tool = f"{source.tool}, " if source.tool else ""
        return f"{source.worker}{host}: {tool}{inner.removeprefix(source.worker).strip() or 'process'}"

    # --- files of other formats: events are made of their spans ----------------------------------------------------

    def _spans(self, source: Source, trace: Trace) -> None:
        for problem in trace.problems:
            self._problem(source, problem)
        self.merged.read += len(trace.spans) + len(trace.marks)
        moments = [span.start_ns for span in trace.spans] + [mark.at_ns for mark in trace.marks]
        shift = self._shift(source, min(moments, default=None), 0)
        if trace.clock is not Clock.EPOCH and source.clock == "epoch":
            self._problem(source, f"its clock is said to be {trace.clock.value}; its times look like epoch times")
        source.clock = source.clock or "none"
        items: list[Span | Mark] = [*trace.spans, *trace.marks]
        for item in items:
            self._item(source, item, shift)

    def _item(self, source: Source, item: Span | Mark, shift: int) -> None:
        owner = f"{source.key}|{source.tool}"
        device = item.device if isinstance(item, Span) else None
        row: Any = item.tid
        if device is not None and isinstance(item, Span):
            pid = self.places.pid(owner, f"device {device}")
            row = f"stream {item.stream}"
            self.seen.setdefault(pid, self._name(source, f"device {device}"))
        else:
            pid = self.places.pid(owner, item.pid)
            self.seen.setdefault(pid, self._name(source, str(item.pid)))
        extra = (("domain", item.domain), ("category", item.category), ("color", item.color))
        args = {**_plain(item.args), **{key: value for key, value in extra if value}}
        event = Event(name=item.name, pid=pid, tid=self.places.tid(pid, row), args=msgspec.Raw(_encoder.encode(args)))
        if isinstance(item, Span):
            event.ph, event.cat, at = "X", item.kind.value, item.start_ns
            event.dur = msgspec.Raw(_us(item.duration_ns))
        else:
            event.ph, event.cat, event.s, at = "i", "mark", "t", item.at_ns
        self._place_time(event, at + shift)
        self._write(event)

    def _write(self, event: Event | Mapping[str, Any]) -> None:
        self.file.write(self.separator + _encoder.encode(event))
        self.separator = b",\n"
        self.merged.written += 1

    def _problem(self, source: Source, text: str) -> None:
        line = f"{source.worker}: {os.path.basename(source.path)}: {text}"
        if line not in self.merged.problems:
            self.merged.problems.append(line)


def _us(ns: int) -> bytes:
    sign, size = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{size // 1000}.{size % 1000:03d}".encode()


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that strict JSON can hold; others as text."""
    return {str(key): _plain_value(value) for key, value in values.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain_value(item) for item in value]
    return _plain(value) if isinstance(value, Mapping) else str(value)
