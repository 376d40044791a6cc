"""One Chrome trace of all workers and tools: clocks brought together, numbers kept apart, every nanosecond kept.

The file has ``baseTimeNanoseconds`` (Kineto's key: to be added to every ``ts``), because viewers keep ``ts`` as float64,
which near 1.7e15 µs cannot tell quarters of a µs apart. What was shifted by how much stands in ``otherData.accelprof``.
One module, because reading, shifting, numbering and writing share one pass over the events.
"""

from __future__ import annotations

import gzip
import io
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from typing import IO, Any, cast

import msgspec
import numpy as np

from accelprof.analysis.places import Places
from accelprof.analysis.reading import Loaded, load_any
from accelprof.analysis.rows import Drawn, Ints, lanes
from accelprof.analysis.run import Run, RunFile, open_run
from accelprof.analysis.tracks import Tracks, arguments
from accelprof.contracts.spans import Trace
from accelprof.errors import AccelprofError, ReadError
from accelprof.output.records import Moment
from accelprof.reading.chrome_file import ABSENT, ENDLESS_NS, GZIP, BadTimeError, ChromeFile, Event, exact_ns

FORMAT = 1
SECOND = 1_000_000_000
#: room below the first known moment, so that events before it need no second run over the file; a day in µs leaves
#: float64 viewers steps of 0.02 ns
MARGIN_NS = 86_400 * SECOND
EPOCH_BEGINS_NS = 1_104_537_600 * SECOND
BATCH = 2000
#: letters of events that stand on a row of a thread
ON_THREADS = frozenset("XBEiIPstf")
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)


@dataclass
class Source:
    """One file to merge.

    Attributes:
        offset_ns: the worker's clock minus the driver's; taken off every time. ``error_ns`` ``None`` = not measured.
        opened_ns: when its first window opened, on the driver's clock; places files that have a clock of their own.
        shift_ns: what was added to the file's times in the end (filled in by the merge).
        pids: numbers of its processes in the merged file; no other source has them (filled in by the merge).
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
    pids: list[int] = field(default_factory=list)


@dataclass
class Merged:
    """What was written.

    Attributes:
        read, written: events; ``read + added - left_out`` is ``written``.
        added: names of processes and rows that had none.
        left_out: events without a usable time, ends without a begin, begins without an end; the problems say which.
        moved: of the written, those that overlapped another on their row without nesting and got a row beside it.
        notes: what was done and is no fault.
    """

    path: str
    read: int = 0
    written: int = 0
    added: int = 0
    left_out: int = 0
    moved: int = 0
    base_ns: int = 0
    sources: list[Source] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Item:
    """An event on its way: ``row`` is the file's process and thread, ``end`` is set for what lasts, ``begin`` for what ends it."""

    event: Event
    at: int
    row: tuple[Any, Any]
    end: int | None = None
    begin: Item | None = None
    flow: Any = None
    lane: int = 0
    number: int = 0


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
    offsets = {key: run.offset_ns(worker)[0] for key, worker in run.workers.items()}
    starts = [_driver_ns(row.opened, offsets.get(row.target, 0)) for row in run.records.windows.values()]
    return min((start for start in starts if start is not None), default=None)


def source_of(run: Run, file: RunFile) -> Source:
    """What the merge must know of a run's file."""
    rows = [run.records.windows[identity] for identity in file.windows if identity in run.records.windows]
    opened = [row.opened for row in rows if row.opened is not None]
    offset, error = run.offset_ns(file.worker, min((moment.epoch_ns for moment in opened), default=None))
    starts = [_driver_ns(moment, offset) for moment in opened]
    first = min((start for start in starts if start is not None), default=None)
    worker = file.worker
    return Source(file.path, worker.label, worker.key, file.tool or None, worker.host, offset, error, first)


def _driver_ns(moment: Moment | None, offset: int) -> int | None:
    if moment is None:
        return None
    return moment.driver_ns if moment.driver_ns is not None else moment.epoch_ns - offset


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
        self._said: set[tuple[int, int]] = set()
        self._threads: dict[tuple[Any, Any], str] = {}
        self._sorted: dict[tuple[Any, Any], Any] = {}
        self._late: list[Event] = []
        self._bad: Counter[str] = Counter()
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
                self._add_name("process_name", pid, 0, name)
        for event in self._late:
            self._write(event)
        self.merged.added = len(self._late)
        merged, base = self.merged, self.base or 0
        self._flush()
        merged.base_ns = base + min(self._earliest, 0)
        facts = {
            "format": FORMAT,
            "clock": "driver",
            "events": {
                "read": merged.read,
                "written": merged.written,
                "added_names": merged.added,
                "left_out": merged.left_out,
                "moved": merged.moved,
            },
            "sources": [asdict(source) for source in merged.sources],
            "problems": merged.problems,
            "notes": merged.notes,
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
        items: list[Item] = []
        begun: dict[tuple[Any, Any], list[Item]] = {}
        names: list[Event] = []
        for event in file.events:
            if event.ph == "M":
                names.append(event)
                continue
            try:
                item = Item(event, exact_ns(bytes(event.ts)), (event.pid, event.tid))
            except BadTimeError as error:
                self._leave_out(f"time {error}")
                continue
            if event.ph == "X":
                try:
                    item.end = item.at + _duration(event)
                except BadTimeError as error:
                    self._leave_out(f"duration {error}")
                    continue
            elif event.ph == "B":
                begun.setdefault(item.row, []).append(item)
            elif event.ph == "E":
                stack = begun.get(item.row)
                if not stack or stack[-1].at > item.at:
                    self._leave_out("ends without a begin")
                    continue
                item.begin = stack.pop()
                item.begin.end = item.at
            items.append(item)
        endless = {id(item) for stack in begun.values() for item in stack}
        if endless:
            self._leave_out("begins without an end", len(endless))
            items = [item for item in items if id(item) not in endless]
        shift = self._shift(source, min((item.at for item in items), default=None), file.base_ns)
        self._names(source, names)
        for item in items:
            event = item.event
            if event.id is not None or event.id2 is not None or event.bind_id is not None:
                item.flow = event.id
                self._renumber(number, event)
        self._draw(source, items, shift)

    def _leave_out(self, what: str, count: int = 1) -> None:
        self._bad[what] += count
        self.merged.left_out += count

    def _names(self, source: Source, events: Sequence[Event]) -> None:
        """Pass the metadata of a file on, with the names of processes and threads made to say whose they are."""
        for event in events:
            args = _decoded(event.args)
            name = args.get("name")
            if event.name == "thread_name" and name is not None:
                self._threads.setdefault((event.pid, event.tid), str(name))
            elif event.name == "thread_sort_index" and "sort_index" in args:
                self._sorted[event.pid, event.tid] = args["sort_index"]
        for event in events:
            pid, tid = self._row(source, event.pid, event.tid)
            event.ts = ABSENT
            self._rename(source, event, pid)
            if event.name == "thread_name":
                self._said.add((pid, tid))
            event.pid, event.tid = pid, tid
            self._write(event)

    def _row(self, source: Source, pid: Any, tid: Any, lane: int = 0) -> tuple[int, int]:
        number = self.places.pid(f"{source.key}|{source.tool}", pid)
        if number not in self._seen:
            self._seen[number] = self._name(source, str(pid))
            source.pids.append(number)
        if lane:
            return number, self.places.tid(number, f"{tid!r} lane {lane}")
        return number, 0 if tid is None else self.places.tid(number, tid)

    def _renumber(self, number: int, event: Event) -> None:
        if event.id is not None:
            event.id = self.places.flow(number, event.cat, event.id)
        if isinstance(event.id2, dict) and "global" in event.id2:
            event.id2 = {"global": hex(self.places.flow(number, event.cat, event.id2["global"]))}
        if event.bind_id is not None:
            event.bind_id = hex(self.places.flow(number, "bind_id", event.bind_id))

    def _rename(self, source: Source, event: Event, pid: int) -> None:
        args = _decoded(event.args)
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
        tracks = Tracks(trace)
        items: list[Item] = []
        for span in trace.spans:
            if span.end_ns < span.start_ns:
                self._leave_out("duration negative")
                continue
            event = Event(ph="X", name=span.name, cat=span.kind.value, args=arguments(span))
            event.dur = msgspec.Raw(_us(span.duration_ns))
            items.append(Item(event, span.start_ns, tracks.row(span), span.end_ns))
        for mark in trace.marks:
            event = Event(ph="i", name=mark.name, cat="mark", s="t", args=arguments(mark))
            items.append(Item(event, mark.at_ns, tracks.row(mark)))
        self._threads.update(tracks.threads)
        for pid, name in tracks.processes.items():
            self._named[self._row(source, pid, None)[0]] = self._name(source, name)
        for pid in tracks.processes:
            number = self._row(source, pid, None)[0]
            self._add_name("process_name", number, 0, self._named[number])
        self._draw(source, items, shift)

    # --- both: rows, lanes, arrows ----------------------------------------------------------------------------------

    def _draw(self, source: Source, items: list[Item], shift: int) -> None:
        """Write events in the order of their times, each on a lane of its row where it nests; rows without a name get one."""
        numbers: dict[Any, int] = {}
        for item in items:
            item.number = numbers.setdefault(item.row, len(numbers))
        slices = [item for item in items if item.end is not None]
        rows, starts, ends = (
            np.array(values, np.int64)
            for values in ([i.number for i in slices], [i.at for i in slices], [i.end for i in slices])
        )
        found, order = lanes(rows, starts, ends)
        moved = np.flatnonzero(found)
        for index, lane in zip(moved.tolist(), found[moved].tolist(), strict=True):
            slices[index].lane = lane
        several = {slices[index].number for index in moved.tolist()}
        drawn = _drawn(several, slices, order) if several else {}
        for item in items:
            ph = item.event.ph
            if item.begin is not None:
                item.lane = item.begin.lane
            elif item.number in drawn and ph in ("s", "t", "f"):
                following = ph == "f" and item.event.bp != "e"
                item.lane = drawn[item.number].lane(item.at, item.flow, following)
        # what ends comes before what begins at the same moment, what is longer before what it holds, the rest behind
        items.sort(key=_drawing)
        places: dict[tuple[int, int], tuple[int, int]] = {}
        for item in items:
            event = item.event
            place = places.get((item.number, item.lane))
            if place is None:
                place = places[item.number, item.lane] = self._row(source, *item.row, item.lane)
            event.pid, event.tid = place
            event.ts = msgspec.Raw(_us(item.at + shift))
            if event.ph in ON_THREADS and place not in self._said:
                self._name_row(source, item, place)
            self._write(event)
        if len(moved):
            self.merged.moved += len(moved)
            many = len({(slices[index].number) for index in moved.tolist()})
            line = f"{len(moved)} event{'s' * (len(moved) != 1)} on {many} row{'s' * (many != 1)} overlapped without nesting; put on rows beside"
            self.merged.notes.append(f"{source.worker}: {os.path.basename(source.path)}: {line}")
        for what, count in self._bad.items():
            self.problem(source, f"{count} event{'s' * (count != 1)} left out: {what}")
        self._bad.clear()
        self._threads.clear()
        self._sorted.clear()

    def _name_row(self, source: Source, item: Item, place: tuple[int, int]) -> None:
        """Name a row by the file's name of it, otherwise by its number; a second lane by its row's and ``(2)``."""
        tid = item.row[1]
        name = self._threads.get(item.row) or (f"thread {tid}" if isinstance(tid, int) else str(tid or "process"))
        lane = f" ({item.lane + 1})" if item.lane else ""
        self._add_name("thread_name", *place, f"{name}{lane} [{source.worker}]")
        if item.lane and item.row in self._sorted:
            self._add(Event(ph="M", name="thread_sort_index"), place, {"sort_index": self._sorted[item.row]})
        self._said.add(place)

    def _add_name(self, what: str, pid: int, tid: int, name: str) -> None:
        self._add(Event(ph="M", name=what), (pid, tid), {"name": name})

    def _add(self, event: Event, place: tuple[int, int], args: Mapping[str, Any]) -> None:
        event.pid, event.tid = place
        event.args = msgspec.Raw(_encoder.encode(args))
        self._late.append(event)

    def _write(self, event: Event) -> None:
        line = _encoder.encode(event)
        # an event each line; in a string a line's end would be escaped, so these stand between values
        self._lines.append(line.replace(b"\n", b" ") if b"\n" in line else line)
        self.merged.written += 1
        if len(self._lines) >= BATCH:
            self._flush()

    def _flush(self) -> None:
        if self._lines:
            self._file.write((b"\n" if self._empty else b",\n") + b",\n".join(self._lines))
            self._empty = False
            self._lines.clear()


def _duration(event: Event) -> int:
    duration = exact_ns(bytes(event.dur))
    if duration < 0:
        raise BadTimeError("negative")
    event.dur = msgspec.Raw(_us(duration))
    return duration


def _drawing(item: Item) -> tuple[int, int]:
    if item.end is not None:
        return item.at, item.at - item.end
    return item.at, -ENDLESS_NS if item.begin is not None and item.begin.at < item.at else 1


def _drawn(rows: Set[int], slices: Sequence[Item], order: Ints) -> dict[int, Drawn]:
    found: dict[int, list[tuple[int, int, int, Any]]] = {row: [] for row in rows}
    for index in order.tolist():
        item = slices[index]
        if item.number in found and item.end is not None:
            key = _decoded(item.event.args).get("correlation")
            found[item.number].append((item.at, item.end, item.lane, key))
    return {row: Drawn(mine) for row, mine in found.items()}


def _decoded(raw: msgspec.Raw) -> dict[str, Any]:
    data = bytes(raw)
    args = msgspec.json.decode(data) if data else None
    return args if isinstance(args, dict) else {}


def _rebase(path: str, by_ns: int) -> None:
    """Move every event of a finished file later; for the rare file with events long before the first window."""
    moved = path + ".moved"
    with _opened(moved) as new, _reading(path) as old:
        for line in old:  # an event each, but for the head and the end
            if line.startswith(b'{"ph"'):
                event = _decoder.decode(line.rstrip(b",\n"))
                if event.ph != "M":
                    event.ts = msgspec.Raw(_us(exact_ns(bytes(event.ts)) + by_ns))
                line = _encoder.encode(event) + line[len(line.rstrip(b",\n")) :]
            new.write(line)
    os.replace(moved, path)


def _reading(path: str) -> IO[bytes]:
    with open(path, "rb") as file:
        zipped = file.read(2) == GZIP
    return cast("IO[bytes]", gzip.open(path, "rb")) if zipped else open(path, "rb")


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
