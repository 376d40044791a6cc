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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import IO, Any, cast

import msgspec

from accelprof.analysis.places import Places
from accelprof.analysis.reading import Loaded, load_any
from accelprof.analysis.run import Run, RunFile, open_run
from accelprof.contracts.spans import Mark, Span, Trace
from accelprof.errors import AccelprofError, ReadError
from accelprof.reading.chrome_file import ABSENT, BadTimeError, ChromeFile, Event, exact_ns, load

FORMAT = 1
SECOND = 1_000_000_000
#: room below the first known moment, so that events before it need no second run over the file; a day in µs leaves
#: float64 viewers steps of 0.02 ns
MARGIN_NS = 86_400 * SECOND
EPOCH_BEGINS_NS = 1_104_537_600 * SECOND
BATCH = 2000
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


def write_timeline(run_dir: str | os.PathLike[str], out: str, *, max_bytes: int | None = None) -> Merged:
    """Merge every readable file of a run into ``out`` (gzip when it ends in ``.gz``).

    Raises:
        ReadError: there is no run in the directory.
        OSError: ``out`` cannot be written.
    """
    run = open_run(run_dir)
    with TimelineWriter(out, first_moment(run)) as writer:
        for file in run.files(max_bytes):
            if file.path.endswith(".pickle"):
                continue  # an allocator snapshot has no place on a time axis
            source = source_of(run, file)
            if file.skip:
                writer.problem(source, f"not in the timeline: {file.skip}")
            else:
                writer.read(source)
    return writer.merged


def merge_files(paths: Sequence[str], out: str) -> Merged:
    """Merge files, each as a worker of its own, without any clock correction.

    Raises:
        ReadError: none of the files could be read; nothing was written.
        OSError: ``out`` cannot be written.
    """
    with TimelineWriter(out, None) as writer:
        for number, path in enumerate(paths):
            writer.read(Source(path, f"{os.path.basename(path)} ({number + 1})", str(number)))
        if not any(source.clock for source in writer.merged.sources):
            raise ReadError(paths[0] if len(paths) == 1 else out, "; ".join(writer.merged.problems))
    return writer.merged


def first_moment(run: Run) -> int | None:
    """When the first window of a run opened, on the driver's clock."""
    moments = [(row.get("opened"), str(row.get("target"))) for row in run.rows("windows")]
    offsets = {key: run.offset_ns(worker)[0] for key, worker in run.workers.items()}
    starts = [_driver_ns(moment, offsets.get(target, 0)) for moment, target in moments]
    return min((start for start in starts if start is not None), default=None)


def source_of(run: Run, file: RunFile) -> Source:
    """What the merge must know of a run's file."""
    opened = {row.get("id"): row.get("opened") for row in run.rows("windows")}
    shown = [moment.get("epoch_ns") for moment in map(opened.get, file.windows) if isinstance(moment, dict)]
    offset, error = run.offset_ns(file.worker, min((at for at in shown if isinstance(at, int)), default=None))
    starts = [_driver_ns(opened.get(window), offset) for window in file.windows]
    first = min((start for start in starts if start is not None), default=None)
    worker = file.worker
    return Source(file.path, worker.label, worker.key, file.tool or None, worker.host, offset, error, first)


def _driver_ns(moment: Any, offset: int) -> int | None:
    if not isinstance(moment, dict):
        return None
    if isinstance(moment.get("driver_ns"), int):
        return int(moment["driver_ns"])
    return int(moment["epoch_ns"]) - offset if isinstance(moment.get("epoch_ns"), int) else None


class TimelineWriter:
    """Writes a merged timeline file by file; the file appears under its name when all went well.

    Args:
        first_ns: a moment near the beginning where one is known, otherwise the first file's tells.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, out: str, first_ns: int | None) -> None:
        self.merged = Merged(out)
        self.base = None if first_ns is None else _floor(first_ns - MARGIN_NS)
        self.places = Places()
        self._named: dict[int, str] = {}
        self._seen: dict[int, str] = {}
        self._lines: list[bytes] = []
        self._empty = True
        self._earliest = 0
        self._temporary = f"{out}.{os.getpid()}.part"
        self._file = _opened(self._temporary)
        self._file.write(b'{"displayTimeUnit":"ns","traceEvents":[')

    def __enter__(self) -> TimelineWriter:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        try:
            if error is None:
                self._finish()
        finally:
            self._file.close()
            if os.path.exists(self._temporary):
                os.unlink(self._temporary)

    def read(self, source: Source) -> None:
        """Read and add one file; one that cannot be read is named in the problems."""
        try:
            loaded = load_any(source.path, source.tool)
            self.add(source, loaded)
        except AccelprofError as error:
            self.merged.sources.append(source)
            self.problem(source, f"not in the timeline: {error.reason if isinstance(error, ReadError) else error}")

    def add(self, source: Source, loaded: Loaded) -> None:
        """Add a loaded file; its events are changed by this."""
        number = len(self.merged.sources)
        source.tool = source.tool or loaded.tool
        before = self.merged.written
        if loaded.chrome is not None:
            self._chrome(number, source, loaded.chrome)
        else:
            self._spans(source, loaded.trace())
        source.clock = source.clock or "none"
        source.events = self.merged.written - before
        self.merged.sources.append(source)

    def problem(self, source: Source, text: str) -> None:
        """Name what is wrong with a file, once."""
        line = f"{source.worker}: {os.path.basename(source.path)}: {text}"
        if line not in self.merged.problems:
            self.merged.problems.append(line)

    def _finish(self) -> None:
        for pid, name in self._seen.items():
            if pid not in self._named:
                event = Event(ph="M", name="process_name", pid=pid, tid=0)
                event.args = msgspec.Raw(_encoder.encode({"name": name}))
                self._write(event)
                self.merged.added += 1
        merged, base = self.merged, self.base or 0
        self._flush()
        merged.base_ns = base + min(self._earliest, 0)
        facts = {
            "format": FORMAT,
            "clock": "driver",
            "events": {"read": merged.read, "written": merged.written, "added_names": merged.added},
            "sources": [asdict(source) for source in merged.sources],
            "problems": merged.problems,
        }
        rest = json.dumps({"accelprof": facts}, allow_nan=False)
        self._file.write(f'\n],"baseTimeNanoseconds":{merged.base_ns},"otherData":{rest}}}\n'.encode())
        self._file.close()
        if self._earliest < 0:
            _rebase(self._temporary, -self._earliest)
        os.replace(self._temporary, merged.path)

    def _shift(self, source: Source, first: int | None, own_base: int) -> int:
        """What to add to the file's times to get ns after ``self.base``; kept in the source."""
        if first is None:
            return 0
        epoch = first + own_base >= EPOCH_BEGINS_NS
        source.clock = "epoch" if epoch else "relative"
        move = own_base - source.offset_ns
        if self.base is None:
            self.base = _floor(first + move - MARGIN_NS) if epoch else 0
        far = epoch and source.opened_ns is not None and abs(first + move - source.opened_ns) > MARGIN_NS
        if far or (not epoch and self.base > 0):
            at = source.opened_ns if source.opened_ns is not None else self.base + MARGIN_NS
            move = at - first
            where = "the opening of its window" if source.opened_ns is not None else "the beginning of the timeline"
            what = "has times more than a day from its window" if far else "has a clock of its own"
            self.problem(source, f"{what}; its first event was put at {where}")
        source.shift_ns = move - own_base
        self._earliest = min(self._earliest, first + move - self.base)
        return move - self.base

    # --- files that are Chrome traces: their events pass through --------------------------------------------------

    def _chrome(self, number: int, source: Source, file: ChromeFile) -> None:
        for problem in file.problems:
            self.problem(source, problem)
        self.merged.read += len(file.events)
        timed: list[tuple[Event, int]] = []
        bad: Counter[str] = Counter()
        for event in file.events:
            try:
                timed.append((event, 0 if event.ph == "M" else exact_ns(bytes(event.ts))))
                if event.ph == "X":
                    _check_duration(event)
            except BadTimeError as error:
                what = "time" if len(timed) == 0 or timed[-1][0] is not event else "duration"
                bad[f"{what} {error}"] += 1
                if what == "duration":
                    timed.pop()
        shift = self._shift(source, min((at for event, at in timed if event.ph != "M"), default=None), file.base_ns)
        rows: dict[tuple[Any, Any], tuple[int, int]] = {}
        for event, at in timed:
            place = rows.get((event.pid, event.tid))
            if place is None:
                place = rows[event.pid, event.tid] = self._row(source, event.pid, event.tid)
            if event.ph == "M":
                event.ts = ABSENT
                self._rename(source, event, place[0])
            else:
                event.ts = msgspec.Raw(_us(at + shift))
                if event.id is not None or event.id2 is not None or event.bind_id is not None:
                    self._renumber(number, event)
            event.pid, event.tid = place
            self._write(event)
        for what, count in bad.items():
            self.problem(source, f"{count} event{'s' * (count != 1)} left out: {what}")

    def _row(self, source: Source, pid: Any, tid: Any) -> tuple[int, int]:
        number = self.places.pid(f"{source.key}|{source.tool}", pid)
        self._seen.setdefault(number, self._name(source, str(pid)))
        return number, 0 if tid is None else self.places.tid(number, tid)

    def _renumber(self, number: int, event: Event) -> None:
        if event.id is not None:
            event.id = self.places.flow(number, event.cat, event.id)
        if isinstance(event.id2, dict) and "global" in event.id2:
            event.id2 = {"global": hex(self.places.flow(number, event.cat, event.id2["global"]))}
        if event.bind_id is not None:
            event.bind_id = hex(self.places.flow(number, "bind_id", event.bind_id))

    def _rename(self, source: Source, event: Event, pid: int) -> None:
        raw = bytes(event.args)
        args = msgspec.json.decode(raw) if raw else None
        if not isinstance(args, dict):
            return
        if event.name == "process_name":
            args["name"] = self._named[pid] = self._name(source, f"{args.get('name', '')} {event.pid}".strip())
        elif event.name == "thread_name":
            args["name"] = f"{args.get('name', '')} [{source.worker}]"
        elif event.name == "process_sort_index":
            args["sort_index"] = len(self._seen)
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
            self.problem(source, problem)
        self.merged.read += len(trace.spans) + len(trace.marks)
        moments = [span.start_ns for span in trace.spans] + [mark.at_ns for mark in trace.marks]
        shift = self._shift(source, min(moments, default=None), 0)
        for span in trace.spans:
            event = self._event(source, span, shift, span.start_ns)
            event.ph, event.cat, event.dur = "X", span.kind.value, msgspec.Raw(_us(span.duration_ns))
            self._write(event)
        for mark in trace.marks:
            event = self._event(source, mark, shift, mark.at_ns)
            event.ph, event.cat, event.s = "i", "mark", "t"
            self._write(event)

    def _event(self, source: Source, item: Span | Mark, shift: int, at: int) -> Event:
        if isinstance(item, Span) and item.device is not None:
            pid, tid = self._row(source, f"device {item.device}", f"stream {item.stream}")
        else:
            pid, tid = self._row(source, item.pid, item.tid)
        extra = (("domain", item.domain), ("category", item.category), ("color", item.color))
        args = {**_plain(item.args), **{key: value for key, value in extra if value}}
        return Event(
            name=item.name, pid=pid, tid=tid, ts=msgspec.Raw(_us(at + shift)), args=msgspec.Raw(_encoder.encode(args))
        )

    def _write(self, event: Event) -> None:
        self._lines.append(_encoder.encode(event))
        self.merged.written += 1
        if len(self._lines) >= BATCH:
            self._flush()

    def _flush(self) -> None:
        if self._lines:
            self._file.write((b"\n" if self._empty else b",\n") + b",\n".join(self._lines))
            self._empty = False
            self._lines.clear()


def _check_duration(event: Event) -> None:
    duration = exact_ns(bytes(event.dur))
    if duration < 0:
        raise BadTimeError("negative")
    event.dur = msgspec.Raw(_us(duration))


def _rebase(path: str, by_ns: int) -> None:
    """Move every event of a finished file later; for the rare file with events long before the first window."""
    written = load(path)
    moved = path + ".moved"
    with _opened(moved) as new:
        separator = b'{"displayTimeUnit":"ns","traceEvents":[\n'
        for event in written.events:
            if event.ph != "M":
                event.ts = msgspec.Raw(_us(exact_ns(bytes(event.ts)) + by_ns))
            new.write(separator + _encoder.encode(event))
            separator = b",\n"
        base, rest = written.top["baseTimeNanoseconds"], _encoder.encode(written.top["otherData"])
        new.write(b'\n],"baseTimeNanoseconds":%d,"otherData":%s}\n' % (base, rest))
    os.replace(moved, path)


def _opened(path: str) -> IO[bytes]:
    if ".gz." not in os.path.basename(path):
        return open(path, "wb")
    # small writes are slow on a GzipFile
    return io.BufferedWriter(cast(io.RawIOBase, gzip.GzipFile(path, "wb", compresslevel=3, mtime=0)), 1 << 16)


def _floor(at_ns: int) -> int:
    return max(at_ns, 0) // SECOND * SECOND


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
