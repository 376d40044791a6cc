"""One Chrome trace of all workers and tools: clocks brought together, numbers kept apart, every nanosecond kept.

The file has ``baseTimeNanoseconds`` (Kineto's key: to be added to every ``ts``), because viewers keep ``ts`` as float64,
which near 1.7e15 µs cannot tell quarters of a µs apart. What was shifted by how much stands in ``otherData.accelprof``.
One module, because reading, shifting, numbering and writing share one pass over the events.
"""

from __future__ import annotations

import copy
import gzip
import os
import queue
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from typing import IO, TYPE_CHECKING, Any, cast

import msgspec
import numpy as np

from accelprof import atomic, texts
from accelprof.analysis.drawing import COMPLETE, ELSEWHERE, META, NEVER, Drawing, drawing_of, drawing_of_spans, plain
from accelprof.analysis.many import Progress
from accelprof.analysis.nesting import clip
from accelprof.analysis.places import Places
from accelprof.analysis.reading import Loaded, has_spans, load_any
from accelprof.analysis.run import Run, RunFile, open_run
from accelprof.analysis.tracks import Tracks, arguments, of_mark
from accelprof.contracts.names import TIMELINE_TOOL
from accelprof.contracts.spans import FURTHEST_NS, ROW_COLUMNS, Completeness, Flow, Kind, Mark, Trace, merge_intervals
from accelprof.errors import AccelprofError, ReadError, UserError
from accelprof.output.records import Moment
from accelprof.reading.chrome import facts_of, kind_of, lanes_of, said_before, sources_of
from accelprof.reading.chrome_file import ABSENT, Event, Stream, exact_ns
from accelprof.reading.columns import KINDS, Array, Columns, columns_of, whole
from accelprof.threads import started

if TYPE_CHECKING:
    from typing_extensions import Self

    from accelprof.analysis.summary import Summary

FORMAT = 1
SECOND = 1_000_000_000
OWN_CLOCK = "has a clock of its own; its first event was put at the beginning of the timeline"
#: room below the first known moment, so that events before it need no second run over the file; a day in µs leaves
#: float64 viewers steps of 0.02 ns
MARGIN_NS = 86_400 * SECOND
EPOCH_BEGINS_NS = 1_104_537_600 * SECOND
BATCH = 20_000
#: more lanes than any row has
LANES = 1 << 20
#: arrows between workers: their names, and a number of their own among the files'
WAITED, GUESS, JOINED = "waited for", "waited for (a guess)", -1
#: below this a time in ns has at most 15 digits, which a float64 in µs keeps
EXACT_NS = 10**15
_encoder = msgspec.json.Encoder()
_NAME = attrgetter("name")


@dataclass
class Source:
    """One file to merge.

    Attributes:
        offset_ns: the worker's clock minus the driver's; taken off every time. ``error_ns`` ``None`` = not measured.
        opened_ns: when its first window opened, on the driver's clock; places files that have a clock of their own.
        shift_ns: what was added to the file's times in the end (filled in by the merge).
        begin_ns, end_ns: its first and last moment in the merged file, on the driver's clock; ``None`` without events (filled in
            by the merge). A tool may count launches anew in each file of a process, so numbers mean one launch between these.
        pids: numbers of its processes in the merged file; files of other workers and tools have none of them (filled in by the merge).
        transfers: of a worker's own timeline the stretches in which its collectives no longer waited, as all ranks had come, in the
            merged file's times; ``None`` where the run does not say it, as of windows without a step (filled in by the merge).
        completeness: what of the file is not in the merged one (filled in by the merge).
        holds: of a merged timeline what it says of the files that it was made of, with their processes' numbers in this one (filled
            in by the merge).
    """

    path: str
    worker: str
    key: str
    tool: str | None = None
    host: str | None = None
    group: str = ""
    offset_ns: int = 0
    error_ns: int | None = None
    opened_ns: int | None = None
    shift_ns: int = 0
    begin_ns: int | None = None
    end_ns: int | None = None
    events: int = 0
    clock: str = ""
    pids: list[int] = field(default_factory=list)
    transfers: list[tuple[int, int]] | None = None
    completeness: Completeness = field(default_factory=Completeness)
    holds: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> list[dict[str, Any]]:
        """What a merged file says of this one, and of those that it holds."""
        own = asdict(self)
        found = [own]
        for said in own.pop("holds"):
            of, moved = f"{said.get('worker')} of {self.worker}", {}
            for name in ("begin_ns", "end_ns"):
                moved[name] = said[name] + self.shift_ns if whole(said.get(name)) else None
            if isinstance(pairs := said.get("transfers"), list):
                whole_pairs = [pair for pair in pairs if isinstance(pair, list) and all(map(whole, pair))]
                moved["transfers"] = [[at + self.shift_ns for at in pair] for pair in whole_pairs]
            found.append({**said, "worker": of, "key": f"{self.key} {said.get('key')}", **moved})
        return found

    def __post_init__(self) -> None:
        # a manifest may hold halves of surrogate pairs, which no file can have
        for name in ("worker", "key", "tool", "host", "group"):
            value = getattr(self, name)
            if isinstance(value, str):
                setattr(self, name, texts.encodable(value))


@dataclass
class Merged:
    """What was written.

    Attributes:
        read, written: events; ``read + added + 2 * arrows - left_out`` is ``written``.
        added: names of processes and rows that had none; ``arrows``: from a phase to what waited for it on another worker.
        left_out: events without a usable time, ends without a begin, begins of work without an end; the problems say which.
        moved: of the written, those that overlapped another on their row without nesting and got a row beside it.
        notes: what was done and is no fault.
    """

    path: str
    read: int = 0
    written: int = 0
    added: int = 0
    arrows: int = 0
    left_out: int = 0
    moved: int = 0
    base_ns: int = 0
    sources: list[Source] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def write_timeline(
    run_dir: str | os.PathLike[str],
    out: str,
    *,
    max_bytes: int | None = None,
    writer: type[TimelineWriter] | None = None,
    progress: Progress | None = None,
) -> Merged:
    """Merge every readable file of a run into ``out`` (gzip when it ends in ``.gz``).

    Raises:
        ReadError: there is no run in the directory, or none of its files could be read; nothing was written.
        OSError: ``out`` cannot be written.
    """
    from accelprof.analysis.summary import of_timelines

    run = open_run(run_dir)
    files = list(run.files(max_bytes))
    total, done = sum(0 if file.skip else file.bytes for file in files), 0
    with (writer or TimelineWriter)(out, first_moment(run)) as made:
        for file in files:
            if progress is not None:
                progress(done, total)
                done += 0 if file.skip else file.bytes
            if not has_spans(file.tool):
                continue
            source = source_of(run, file)
            if file.skip:
                made.merged.sources.append(source)
                made.skip(source, file.skip)
            else:
                made.read(source)
        if made.merged.problems and not any(source.clock for source in made.merged.sources):
            raise ReadError(run_dir, f"none of its files is in the timeline: {'; '.join(made.merged.problems)}")
        made.join(of_timelines(run, files))
    return made.merged


def merge_files(
    paths: Sequence[str],
    out: str,
    writer: type[TimelineWriter] | None = None,
    progress: Progress | None = None,
) -> Merged:
    """Merge files, each as a worker of its own, without any clock correction.

    Raises:
        ReadError: none of the files could be read; nothing was written.
        OSError: ``out`` cannot be written.
    """
    with (writer or TimelineWriter)(out, None) as made:
        for number, path in enumerate(paths):
            if progress is not None:
                progress(number, len(paths))
            made.read(Source(path, f"{os.path.basename(path)} ({number + 1})", str(number)))
        if not any(source.clock for source in made.merged.sources):
            raise ReadError(paths[0] if len(paths) == 1 else out, "; ".join(made.merged.problems))
    return made.merged


def first_moment(run: Run) -> int | None:
    """When the first window of a run opened, on the driver's clock."""
    offsets = {key: run.offset_ns(worker)[0] for key, worker in run.workers.items()}
    starts = [_driver_ns(row.opened, offsets.get(row.target, 0)) for row in run.manifest.windows.values()]
    return min((start for start in starts if start is not None), default=None)


def source_of(run: Run, file: RunFile) -> Source:
    """What the merge must know of a run's file."""
    rows = [run.manifest.windows[identity] for identity in file.windows if identity in run.manifest.windows]
    opened = [row.opened for row in rows if row.opened is not None]
    offset, error = run.offset_ns(file.worker, min((moment.epoch_ns for moment in opened), default=None))
    starts = [_driver_ns(moment, offset) for moment in opened]
    first = min((start for start in starts if start is not None), default=None)
    worker = file.worker
    return Source(
        file.path, worker.label, worker.key, file.tool or None, worker.host, worker.group, offset, error, first
    )


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
        self._begins = MARGIN_NS if first_ns is None else _floor(first_ns - MARGIN_NS) + MARGIN_NS
        self.places = Places()
        self._named: dict[int, str] = {}
        self._seen: dict[int, str] = {}
        self._said: set[tuple[int, int]] = set()
        self._threads: dict[tuple[Any, Any], str] = {}
        self._sorted: dict[tuple[Any, Any], Any] = {}
        self._lanes: dict[int, int] = {}
        self._late: list[Event] = []
        self._empty = True
        self._earliest = 0
        self._temporary, self._zipped = atomic.half(out), out.endswith(".gz")
        self._file = self._opened(self._temporary)
        self._head()

    def _head(self) -> None:
        self._file.write(b'{"displayTimeUnit":"ns","traceEvents":[')

    def _opened(self, path: str) -> IO[bytes]:
        return cast("IO[bytes]", Zipped(path)) if self._zipped else open(path, "wb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: object, error: BaseException | None, traceback: object) -> None:
        try:
            if error is None:
                self._finish()
        finally:
            self._file.close()
            atomic.discard(self._temporary)

    def read(self, source: Source) -> None:
        """Read and add one file; one that cannot be read is named in the problems.

        Raises:
            UserError: it is where the timeline goes, and would be replaced.
        """
        if os.path.realpath(source.path) == os.path.realpath(self.merged.path):
            line = "is one of the files that are merged, and would be replaced; name a new one with -o FILE"
            raise UserError(f"timeline: {self.merged.path} {line}")
        try:
            loaded = load_any(source.path, source.tool)
            self.add(source, loaded)
        except AccelprofError as error:
            self.merged.sources.append(source)
            self.skip(source, error.reason if isinstance(error, ReadError) else str(error))

    def add(self, source: Source, loaded: Loaded) -> None:
        """Add a file; a Chrome trace is read twice, a block at a time, others are made of their spans."""
        number = len(self.merged.sources)
        source.tool = source.tool or loaded.tool
        before = self.merged.written
        if loaded.is_chrome:
            self._chrome(number, source)
        else:
            self._spans(source, loaded.trace())
        source.clock = source.clock or "none"
        source.events = self.merged.written - before
        self.merged.sources.append(source)

    def join(self, summary: Summary | None) -> None:
        """Draw an arrow for each wait of one worker for another, between the rows of their own timelines; ``None``: there is too
        much of it. Rows that were parted into lanes get none: which lane is meant is not known any more."""
        if summary is None:
            self.merged.notes.append("no arrows between workers: the run's own timelines are too large")
            return
        self._add_transfers(summary)
        waits, timelines = summary.waits, summary.timelines
        # files that were put elsewhere than their clock says are not where the waits are
        far = {one.key for one in self.merged.sources if one.tool == TIMELINE_TOOL and one.shift_ns != -one.offset_ns}
        rows = {one.worker.label: (one.worker.key, one.rows) for one in timelines if one.worker.key not in far}
        parted = set(self._lanes.values())
        for wait in waits.handed:
            ends = []
            for worker, row, at_ns in (wait[:3], wait[3:6]):
                if worker not in rows:
                    break
                key, places = rows[worker]
                process, thread, _ = places[row]
                place = self.places.known(f"{key}|{TIMELINE_TOOL}", process, thread)
                if place is not None and place[1] not in parted:
                    ends.append((place, at_ns - (self.base or 0)))
            if len(ends) == 2:
                self.merged.arrows += 1
                self._arrow(self.places.flow(JOINED, "", str(wait)), GUESS if wait.guess else WAITED, *ends)
        if left := waits.handed_in_all - self.merged.arrows:
            line = f"{left:,} of {waits.handed_in_all:,} waits of workers for others have no arrow"
            self.merged.notes.append(f"{line}: shorter ones, or rows whose phases overlap")

    def _add_transfers(self, summary: Summary) -> None:
        """A report of the merged file, which has no steps, cannot tell what ranks wait in a collective from its transfer."""
        from accelprof.analysis.waits import clock_shift, transfers

        if summary.waits.apart or not any(step.leaves for step in summary.waits.of):
            return
        timelines = {one.worker.key: one for one in summary.timelines}
        shifts = {one.worker.label: clock_shift(summary.run, one) for one in summary.timelines}
        over = {worker: merge_intervals(found) for worker, found in transfers(summary.waits.of, shifts).items()}
        for source in self.merged.sources:
            mine, begin, end = timelines.get(source.key), source.begin_ns, source.end_ns
            if source.tool != TIMELINE_TOOL or mine is None or begin is None or end is None:
                continue
            move = source.shift_ns
            reach = begin - move, end - move
            if all(steps for _, steps, start, until in mine.windows if reach[0] <= start and until <= reach[1]):
                found = over.get(mine.worker.label, [])
                first = bisect_left(found, reach[0], key=lambda pair: pair[1])
                found = clip(*reach, found[first : bisect_left(found, (reach[1],))])
                source.transfers = [(low + move, high + move) for low, high in found]

    def _arrow(
        self, identity: int, name: str, begin: tuple[tuple[int, int], int], end: tuple[tuple[int, int], int]
    ) -> None:
        events: list[Event | None] = [
            Event(ph, "accelprof", name, *place, msgspec.Raw(_us(at_ns)), id=identity, bp=bind)
            for ph, (place, at_ns), bind in (("s", begin, None), ("f", end, "e"))
        ]
        self._write(events)

    def skip(self, source: Source, reason: str) -> None:
        """Name a file that is not in the timeline."""
        source.completeness.unread.append(f"not in the timeline: {reason}")
        self.problem(source, source.completeness.unread[-1])

    def problem(self, source: Source, text: str) -> None:
        """Name what is wrong with a file, once."""
        line = f"{source.worker}: {os.path.basename(source.path)}: {text}"
        if line not in self.merged.problems:
            self.merged.problems.append(line)

    def _finish(self) -> None:
        for pid, name in self._seen.items():
            if pid not in self._named:
                self._add_name("process_name", pid, 0, name)
        self._write(self._late)
        self.merged.added = len(self._late)
        merged, base = self.merged, self.base or 0
        merged.base_ns = base + min(self._earliest, 0)
        facts = {
            "format": FORMAT,
            "clock": "driver",
            "events": {
                "read": merged.read,
                "written": merged.written,
                "added_names": merged.added,
                "added_arrows": merged.arrows,
                "left_out": merged.left_out,
                "moved": merged.moved,
            },
            # threads that are another's, whose events overlapped
            "lanes": self._lanes,
            "sources": [said for source in merged.sources for said in source.to_json()],
            "problems": merged.problems,
            "notes": merged.notes,
        }
        rest = texts.dumps({"accelprof": facts})
        self._file.write(f'\n],"baseTimeNanoseconds":{merged.base_ns},"otherData":{rest}}}\n'.encode())
        self._close()

    def _close(self) -> None:
        """What is there appears under its name."""
        self._file.close()
        if self._earliest < 0:
            self._rebase(-self._earliest)
        os.replace(self._temporary, self.merged.path)

    def _rebase(self, by_ns: int) -> None:
        """Move every event later; for the rare file with events long before the first window."""
        stream, separator = Stream(self._temporary, Event), b'{"displayTimeUnit":"ns","traceEvents":[\n'
        with atomic.whole(self._temporary) as moved, self._opened(moved) as new:
            for block in stream.blocks():
                for event in block:
                    if event.ph != "M":
                        event.ts = msgspec.Raw(_us(exact_ns(bytes(event.ts)) + by_ns))
                new.write(separator + _encoder.encode(block)[1:-1])
                separator = b",\n"
            base, rest = stream.file.top["baseTimeNanoseconds"], _encoder.encode(stream.file.top["otherData"])
            new.write(b'\n],"baseTimeNanoseconds":%d,"otherData":%s}\n' % (base, rest))

    def _shift(self, source: Source, drawing: Drawing, own_base: int) -> int:
        """What to add to the file's times to get ns after ``self.base``; kept in the source."""
        used = drawing.kept & (drawing.code != META)
        if not used.any():
            return 0
        first = int(drawing.at[used].min())
        epoch = first + own_base >= EPOCH_BEGINS_NS
        source.clock = "epoch" if epoch else "relative"
        move = own_base - source.offset_ns
        if self.base is None:
            self.base = _floor(first + move - MARGIN_NS) if epoch else 0
            self._begins = self.base + MARGIN_NS
        elif epoch and not self.base:
            self._date(first + move)
        far = epoch and source.opened_ns is not None and abs(first + move - source.opened_ns) > MARGIN_NS
        if far or (not epoch and self.base > 0):
            at = source.opened_ns if source.opened_ns is not None else self._begins
            move = at - first
            what = "has times more than a day from its window" if far else "has a clock of its own"
            at_window = f"{what}; its first event was put at the opening of its window"
            self.problem(source, OWN_CLOCK if source.opened_ns is None else at_window)
        source.shift_ns = move - own_base
        ends = np.where(drawing.end[used] == NEVER, drawing.at[used], drawing.end[used])
        source.begin_ns, source.end_ns = first + move, int(ends.max()) + move
        self._earliest = min(self._earliest, first + move - self.base)
        return move - self.base

    def _date(self, epoch_ns: int) -> None:
        """The files until now have a clock of their own, and this is the first date: they begin there, without being written again."""
        there = [source for source in self.merged.sources if source.begin_ns is not None and source.end_ns is not None]
        self.base = epoch_ns - min((source.begin_ns or 0 for source in there), default=MARGIN_NS)
        self._begins = epoch_ns
        for source in there:
            source.begin_ns, source.end_ns = (source.begin_ns or 0) + self.base, (source.end_ns or 0) + self.base
            source.shift_ns += self.base
            self.problem(source, OWN_CLOCK)

    # --- files that are Chrome traces: their events pass through --------------------------------------------------

    def _chrome(self, number: int, source: Source) -> None:
        drawing, file = drawing_of(source.path)
        ours = facts_of(file.top)
        # what the files lack that a merged one was made of, those say themselves
        said_before(file.top, Completeness() if sources_of(ours) else file.completeness, file.problems)
        source.completeness = file.completeness
        for problem in file.problems:
            self.problem(source, problem)
        self.merged.read += len(drawing.code)
        shift = self._shift(source, drawing, file.base_ns)
        places = self._places(source, drawing)
        lanes, names = lanes_of(ours), list(drawing.rows)
        for (row, _), (pid, tid) in places.items():
            if (thread := lanes.get(str(names[row][1]))) is not None:
                self._lanes[tid] = self.places.tid(pid, thread)
        pids, tids = _numbers(drawing, places)
        waiting = dict.fromkeys(drawing.deferred)
        ordinary = drawing.kept & (drawing.code == COMPLETE)
        ordinary[[*drawing.deferred, *drawing.cut]] = False
        first, plain_names = 0, ours is not None
        for block in Stream(source.path, Event).blocks():
            if not plain_names:
                _unquote(block)
            now = slice(first, first + len(block))
            lengths = np.where(drawing.end[now] == NEVER, 0, drawing.end[now] - drawing.at[now])
            rows = zip(block, pids[now].tolist(), tids[now].tolist(), _times(drawing.at[now] + shift), _times(lengths), strict=True)  # fmt: skip
            written: list[Event | None] = block
            if ordinary[now].all():
                for event, pid, tid, at, length in rows:
                    event.pid, event.tid, event.ts, event.dur = pid, tid, at, length
                    if event.id is not None or event.bind_id is not None or event.id2 is not None:
                        self._renumber(number, event)
            else:
                codes = zip(drawing.code[now].tolist(), drawing.kept[now].tolist(), strict=True)
                for index, ((event, pid, tid, at, length), (code, kept)) in enumerate(zip(rows, codes, strict=True)):
                    if not kept:
                        written[index] = None
                        continue
                    if code == META:
                        self._meta(source, event)
                        continue
                    event.pid, event.tid, event.ts = pid, tid, at
                    if code == COMPLETE:
                        event.dur = length
                    if first + index in drawing.cut:
                        _cut(event)
                    if event.id is not None or event.bind_id is not None or event.id2 is not None:
                        self._renumber(number, event)
                    if first + index in waiting:
                        waiting[first + index], written[index] = event, None
                written = [event for event in written if event is not None]
            self._write(written)
            first += len(block)
        self._write([event for event in waiting.values() if event is not None])
        self._name_rows(source, drawing, places)
        for _, said, held in sources_of(ours):
            mine = [self.places.pid(f"{source.key}|{source.tool}", pid) for pid in held if isinstance(pid, int)]
            source.holds.append({**said, "pids": mine})
            source.pids = [pid for pid in source.pids if pid not in mine]

    def _places(self, source: Source, drawing: Drawing) -> dict[tuple[int, int], tuple[int, int]]:
        """The numbers in the merged file of each row and lane, of rows with events alone."""
        used = drawing.kept & (drawing.code != META)
        # rows and lanes in the order in which they come first
        keys = drawing.row[used].astype(np.int64) * LANES + drawing.lane[used]
        found, first = np.unique(keys, return_index=True)
        names = list(drawing.rows)
        return {
            (key // LANES, key % LANES): self._row(source, names[key // LANES][0], names[key // LANES][1], key % LANES)
            for key in found[np.argsort(first)].tolist()
        }

    def _meta(self, source: Source, event: Event) -> None:
        """Names of processes and threads are made to say whose they are; other metadata passes through."""
        args = decoded(event.args)
        event.pid, event.tid = plain(event.pid), plain(event.tid)
        if event.name == "thread_name" and args.get("name") is not None:
            self._threads.setdefault((event.pid, event.tid), str(args["name"]))
        elif event.name == "thread_sort_index" and "sort_index" in args:
            self._sorted[event.pid, event.tid] = args["sort_index"]
        pid, tid = self._row(source, event.pid, event.tid)
        event.ts = ABSENT
        self._rename(source, event, args, pid)
        if event.name == "thread_name":
            self._said.add((pid, tid))
        event.pid, event.tid = pid, tid

    def _row(self, source: Source, pid: object, tid: object, lane: int = 0) -> tuple[int, int]:
        number = self.places.pid(f"{source.key}|{source.tool}", pid)
        if number not in self._seen:
            self._seen[number] = self._name(source, str(pid))
        if number not in source.pids:
            source.pids.append(number)
        row = 0 if tid is None else self.places.tid(number, tid)
        if lane:
            beside = self.places.tid(number, f"{tid!r} lane {lane}")
            self._lanes[beside] = row
            return number, beside
        return number, row

    def _renumber(self, number: int, event: Event) -> None:
        if event.id is not None:
            event.id = self.places.flow(number, event.cat, event.id)
        if isinstance(event.id2, dict) and "global" in event.id2:
            event.id2 = {"global": hex(self.places.flow(number, event.cat, event.id2["global"]))}
        if event.bind_id is not None:
            event.bind_id = hex(self.places.flow(number, "bind_id", event.bind_id))

    def _rename(self, source: Source, event: Event, args: dict[str, Any], pid: int) -> None:
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
        number = len(self.merged.sources)
        columns, marks, flows, drawing, shift, places = self._laid_out(source, trace)
        pids, tids = _numbers(drawing, places)
        names = texts.all_encodable(columns.names)
        kinds = [kind.value for kind in KINDS]
        kept, count = np.flatnonzero(drawing.kept), len(columns)
        kept = kept[~np.isin(kept, drawing.deferred)]

        def write(rows: Array) -> None:
            for first in range(0, len(rows), BATCH):
                part = rows[first : first + BATCH]
                fields = zip(
                    columns.kind[part].tolist(), columns.name[part].tolist(), pids[part].tolist(), tids[part].tolist(),
                    _times(drawing.at[part] + shift), _times(drawing.end[part] - drawing.at[part]),
                    arguments(columns, part), strict=True,
                )  # fmt: skip
                self._write([
                    Event("X", kinds[kind], names[name], pid, tid, at, length, args=args)
                    for kind, name, pid, tid, at, length, args in fields
                ])  # fmt: skip

        write(kept[kept < count])
        behind = count + len(marks)
        of_marks = kept[(kept >= count) & (kept < behind)]
        for first in range(0, len(of_marks), BATCH):
            part = of_marks[first : first + BATCH]
            times = zip(part.tolist(), _times(drawing.at[part] + shift), strict=True)
            self._write([
                Event("i", "mark", texts.encodable(mark.name), int(pids[row]), int(tids[row]), at, s="t", args=of_mark(mark))
                for row, at in times for mark in (marks[row - count],)
            ])  # fmt: skip
        write(np.array(drawing.deferred, np.int64))
        of_flows = kept[kept >= behind]
        for first in range(0, len(of_flows), BATCH):
            part = of_flows[first : first + BATCH]
            times = zip(part.tolist(), _times(drawing.at[part] + shift), strict=True)
            self._write([
                Event(
                    flow.step, texts.encodable(flow.category), texts.encodable(flow.name), int(pids[row]), int(tids[row]), at,
                    id=self.places.flow(number, flow.category, flow.id), bp="e" if flow.step == "f" and not flow.following else None,
                )
                for row, at in times for flow in (flows[row - behind],)
            ])  # fmt: skip
        self._name_rows(source, drawing, places)

    def _laid_out(
        self, source: Source, trace: Trace
    ) -> tuple[Columns, list[Mark], list[Flow], Drawing, int, Mapping[tuple[int, int], tuple[int, int]]]:
        """Spans, marks, ends of arrows: where each is drawn, by how much the file is shifted, and its rows; processes are named."""
        for problem in trace.problems:
            self.problem(source, problem)
        source.completeness = copy.deepcopy(trace.completeness)
        before = dict(trace.completeness.left_out)
        others = trace.metadata.get("other_events", {})
        lost = sum(before.values())  # its reader has said so
        self.merged.left_out += lost
        self.merged.read += len(trace) + len(trace.marks) + len(trace.flows) + lost + sum(others.values())
        columns = columns_of(trace)
        marks = [mark for mark in trace.marks if whole(mark.at_ns) and abs(mark.at_ns) < FURTHEST_NS]
        flows = [flow for flow in trace.flows if whole(flow.at_ns) and abs(flow.at_ns) < FURTHEST_NS]
        tracks = Tracks(trace)
        rows, of_rows = tracks.rows(columns)
        moments: Any = np.array([mark.at_ns for mark in marks] + [flow.at_ns for flow in flows], np.int64)
        starts = np.concatenate([columns.start, moments])
        ends = np.concatenate([columns.end, np.full(len(moments), NEVER, np.int64)])
        of_points = [*map(tracks.of_mark, marks), *tracks.of_flows(flows, rows, columns.start, of_rows)]
        drawing = drawing_of_spans(rows, of_rows, of_points, starts, ends, flows)
        for reason, count in trace.completeness.left_out.items():
            drawing.bad[reason] += count - before.get(reason, 0)
        drawing.bad["marks whose times are no whole numbers of 64 bits"] += len(trace.marks) - len(marks)
        drawing.bad["ends of arrows whose times are no whole numbers of 64 bits"] += len(trace.flows) - len(flows)
        for letter, count in others.items():
            drawing.no_spans[letter] += count
        shift = self._shift(source, drawing, 0)
        places = self._places(source, drawing)
        self._threads.update(tracks.threads)
        for pid, name in tracks.processes.items():
            number = self._row(source, pid, None)[0]
            self._named[number] = self._name(source, name)
            self._add_name("process_name", number, 0, self._named[number])
        return columns, marks, flows, drawing, shift, places

    # --- both: what is left out and moved is counted, rows get names ---------------------------------------------------

    def _name_rows(self, source: Source, drawing: Drawing, places: Mapping[tuple[int, int], tuple[int, int]]) -> None:
        """Name each row that has events: by the file's name of it, otherwise by its number; a second lane by ``(2)`` too."""
        used = drawing.kept & (drawing.code != META) & (drawing.code != ELSEWHERE)
        names = list(drawing.rows)
        for key in np.unique(drawing.row[used].astype(np.int64) * LANES + drawing.lane[used]).tolist():
            row, lane = divmod(key, LANES)
            place, tid = places[row, lane], names[row][1]
            if place in self._said:
                continue
            name = self._threads.get(names[row]) or (f"thread {tid}" if isinstance(tid, int) else str(tid or "process"))
            self._add_name("thread_name", *place, f"{name}{f' ({lane + 1})' if lane else ''} [{source.worker}]")
            if lane and names[row] in self._sorted:
                self._add(Event(ph="M", name="thread_sort_index"), place, {"sort_index": self._sorted[names[row]]})
            self._said.add(place)
        moved, rows = drawing.moved.total(), len(drawing.moved)
        if moved:
            self.merged.moved += moved
            line = f"{moved} event{'s' * (moved != 1)} on {rows} row{'s' * (rows != 1)} overlapped without nesting; put on rows beside"
            self.merged.notes.append(f"{source.worker}: {os.path.basename(source.path)}: {line}")
        for what, count in (+drawing.bad).items():
            source.completeness.leave_out(what, count)
        left = +drawing.bad + Counter(
            {
                f"of the phase letter {letter}, which its reader takes for no span": n
                for letter, n in drawing.no_spans.items()
            }
        )
        for what, count in left.items():
            self.merged.left_out += count
            self.problem(source, f"{count} event{'s' * (count != 1)} left out: {what}")
        self._threads.clear()
        self._sorted.clear()

    def _add_name(self, what: str, pid: int, tid: int, name: str) -> None:
        self._add(Event(ph="M", name=what), (pid, tid), {"name": texts.encodable(name)})

    def _add(self, event: Event, place: tuple[int, int], args: Mapping[str, object]) -> None:
        event.pid, event.tid = place
        event.args = msgspec.Raw(_encoder.encode(args))
        self._late.append(event)

    def _write(self, events: Sequence[Event | None]) -> None:
        if events:
            self._file.write(b"\n" if self._empty else b",\n")
            self._file.write(_encoder.encode(events)[1:-1])
            self._empty = False
            self.merged.written += len(events)


def _cut(event: Event) -> None:
    """What began and was open when recording stopped is whole here, and says that it was cut."""
    event.ph, args = "X", decoded(event.args)
    if kind_of(event.cat) is Kind.RANGE:  # under our own name it is read back as cut
        args.setdefault("category", event.cat if isinstance(event.cat, str) else "")
        event.cat = Kind.RANGE.value
    event.args = msgspec.Raw(_encoder.encode({**args, ROW_COLUMNS["cut"]: True}))


def decoded(raw: msgspec.Raw) -> dict[str, Any]:
    data = bytes(raw)
    args = msgspec.json.decode(data) if data else None
    return args if isinstance(args, dict) else {}


def _unquote(block: Sequence[Event]) -> None:
    """Names of a file that is not ours as they were given; most are as they are."""
    try:
        some = texts.QUOTED in "".join(map(_NAME, block))
    except TypeError:  # something else in place of a name
        some = True
    if some:
        for event in block:
            if isinstance(event.name, str):
                event.name = texts.unquoted(event.name)


def _numbers(drawing: Drawing, places: Mapping[tuple[int, int], tuple[int, int]]) -> tuple[Array, Array]:
    """Process and thread in the merged file of each event, as columns."""
    keys = drawing.row.astype(np.int64) * LANES + drawing.lane
    known = np.array(sorted(row * LANES + lane for row, lane in places), np.int64)
    if not len(known):
        return np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
    table = np.array([places[divmod(key, LANES)] for key in known.tolist()], np.int64)
    at = np.minimum(np.searchsorted(known, keys), len(known) - 1)  # metadata stand on rows without a place too
    return table[at, 0], table[at, 1]


def _times(ns: Array) -> list[Any]:
    """Times in µs: exact as shortest decimals of floats up to eleven days, as text beyond."""
    if len(ns) and max(abs(int(ns.min())), abs(int(ns.max()))) >= EXACT_NS:
        return [msgspec.Raw(_us(value)) for value in ns.tolist()]
    found: list[Any] = (ns / 1000.0).tolist()
    return found


class Behind:
    """A file that is written on a thread of its own, while what comes next is made; ``made`` works on the data there.

    Raises:
        OSError: of the thread, at the next write or at the end.
    """

    def __init__(self, file: Any, made: Callable[[bytes], bytes] = lambda data: data) -> None:
        self._file, self._made = file, made
        self._waiting: queue.Queue[bytes | None] = queue.Queue(8)
        self._error: BaseException | None = None
        self._thread = started(self._work, "accelprof-gzip")

    def write(self, data: bytes) -> int:
        if self._error is not None:
            raise self._error
        if self._thread is None:
            self._file.write(self._made(data))
        else:
            self._waiting.put(data)
        return len(data)

    def close(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            self._waiting.put(None)
            self._thread.join()
        self._file.close()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def __enter__(self) -> Behind:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _work(self) -> None:
        while (data := self._waiting.get()) is not None:
            if self._error is None:
                try:
                    self._file.write(self._made(data))
                except OSError as error:
                    self._error = error


class Zipped(Behind):
    """A gzip file that is compressed there."""

    def __init__(self, path: str) -> None:
        super().__init__(gzip.GzipFile(path, "wb", compresslevel=2, mtime=0))


def _floor(at_ns: int) -> int:
    return max(at_ns, 0) // SECOND * SECOND


def _us(ns: int) -> bytes:
    sign, size = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{size // 1000}.{size % 1000:03d}".encode()
