"""The flight recorder's file: a ring of the last steps in shared memory of a file, which outlives the process.

Layout, little endian, all sizes fixed when the file is made::

    0     head     4 KiB: magic, sizes, the ring's two ends, the anchor between clocks, who it is (JSON)
    4096  names    each phase once, JSON lines, in the order of their numbers
          now      two slots for the running step, written by turns; the one with the higher turn and a right checksum counts
          ring     records of finished steps: u32 length, u32 Adler-32 from the record's place on, MessagePack; the oldest give way

A record counts when its checksum is right. That begins with the record's place, counted in bytes that were ever written before it, so
what stood there one round earlier has another. Steps are therefore found behind the last end that the head names, too, which moves
only now and then, and after the bytes it encloses are written; the first end moves before anything is overwritten: a process may be
killed at any instruction. The reader takes nothing on trust: sizes are compared with the file's own.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import struct
import sys
import time
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from accelprof import texts
from accelprof.contracts.spans import QUICK_ROW, Kind, TimelineRow
from accelprof.errors import ReadError
from accelprof.processes import Writer

MAGIC = b"ACCPRING"
VERSION = 3
HEAD = 4096
NAMES = 256 * 1024
NOW = 128 * 1024
#: bytes of records; a step of 20 phases takes about 500
RING = 4 * 1024 * 1024
#: in which the oldest records give way, so that making room costs the same however many there are
PIECES = 64
#: where a run's rings are, and how their names end
RINGS, SUFFIX = ".recorder", ".ring"
#: bytes of records that are made writable beforehand: of a second of steps of 10 ms, twice
AHEAD = 128 * 1024
#: Linux' MADV_POPULATE_WRITE, which the module mmap does not name
_POPULATE_WRITE = 23
#: time that passes at most between two looks whether the file is still there, where steps are written
LOOK_NS = 10_000_000
#: magic, version, names, now, ring, first, end, names used, epoch ns, monotonic ns, length of the JSON
_HEAD = struct.Struct("<8sIQQQQQQqqI")
_ENDS = struct.Struct("<QQQ")
_ENDS_AT = struct.calcsize("<8sIQQQ")
_ENDS_END = _ENDS_AT + _ENDS.size
#: checksum in the slot of a step that does not run; what is being written has another while its length is still 0
_IDLE = 0x49444C45
_FRAME = struct.Struct("<II")
#: of a record's place, what its checksum begins with
_SEED = 0xFFFFFFFF
#: records that are no steps, one after the other, behind the end that the head names: there is nothing more
_STRAY = 8
_SLOT = struct.Struct("<QII")
#: where a plain call's row in the file lacks its kind
_PHASE, _KIND_AT = Kind.PHASE.value, TimelineRow._fields.index("kind")
#: what tells one call from all others
_CALL = tuple(map(TimelineRow._fields.index, ("number", "start_ns", "thread")))
#: checksum of a record; without tables, which are in no cache when a step ends
_checksum = zlib.adler32
_encode, _frame = msgspec.msgpack.Encoder().encode, _FRAME.pack


@dataclass
class StepRecord:
    """One step: its rows are tuples with the fields of ``contracts.spans.TimelineRow``, times on the monotonic clock (ns). In the
    file a plain call of a phase is ``(number, start, end, thread)`` alone.

    ``end_ns`` is ``None`` for the step that was running when the file was last written; ``cut`` counts rows left out.
    """

    step: int | None
    begin_ns: int
    end_ns: int | None
    rows: Sequence[Sequence[Any]]
    cut: int = 0


@dataclass
class Contents:
    """What a ring holds.

    Attributes:
        who: the process: group, roles, rank, world_size, replica, host, pid, key, run.
        epoch_offset: to add to monotonic times for Unix-epoch nanoseconds.
        phases: of each phase number ``(tag, domain, color, category)``.
        steps: finished steps, oldest first.
        running: the step that was running, as far as it was written; ``None`` where none was.
        problems: what was left out and why.
        around: rows of phases around the running step as it was written down, where it has ended since and they have not.
        dumped: how many of the last steps a dump is to hold, where the process said so.
    """

    who: Mapping[str, Any]
    epoch_offset: int
    phases: list[tuple[str, str, str, str]] = field(default_factory=list)
    steps: list[StepRecord] = field(default_factory=list)
    running: StepRecord | None = None
    problems: list[str] = field(default_factory=list)
    dumped: int | None = None
    around: Sequence[Sequence[Any]] = ()


class Ring:
    """The writer. One process, any thread, one call at a time (the recorder's lock sees to it).

    Whoever writes to memory of a file that somebody else has cut is killed by SIGBUS. So the file can be read only, and is looked
    at again before a write, after 10 ms at the latest; what was not cut in that moment is safe.

    Attributes:
        lost: the file is no longer what was made; nothing is written any more.

    Raises:
        OSError: the file cannot be made, or the disk has no room for it: it is taken whole, so that a write never fails later. From
            a write, once: the file is lost.
    """

    def __init__(self, path: str, who: Mapping[str, object], size: int = RING) -> None:
        self.path, self._size = path, size
        os.makedirs(os.path.dirname(path), exist_ok=True)
        total = HEAD + NAMES + NOW + size
        descriptor = _fresh(path)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(descriptor, 0, total)
            else:
                os.ftruncate(descriptor, total)
            # without a number of its own, which training may close and give to another file; earlier Pythons keep one
            untracked: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}
            self._map = mmap.mmap(descriptor, total, **untracked)
            made = os.fstat(descriptor)
            self._made = made.st_dev, made.st_ino, made.st_size
        except BaseException:
            os.unlink(path)
            raise
        finally:
            os.close(descriptor)
        text = texts.dumps({**who, "writer": Writer.me().to_json()}).encode()[: HEAD - _HEAD.size]
        epoch, monotonic = time.time_ns(), time.perf_counter_ns()
        self._first = self._end = self._named = self._turn = 0
        #: where the ring's first end may move to: the begins of records a piece of the ring apart, oldest first
        self._marks: deque[int] = deque()
        self._next_mark, self._piece = size // PIECES, size // PIECES
        #: how far the end may move before there is something to do
        self._room = self._next_mark
        _HEAD.pack_into(self._map, 0, MAGIC, VERSION, NAMES, NOW, size, 0, 0, 0, epoch, monotonic, len(text))
        self._map[_HEAD.size : _HEAD.size + len(text)] = text
        self._base = HEAD + NAMES + NOW
        self._populate(0, total)
        self.lost, self._looked = False, 0

    def name(self, tag: str, domain: str, color: str, category: str) -> bool:
        """Write the next phase's name down; ``False`` when there is no more room for names."""
        if not self._is_there():
            return False
        line = texts.dumps([tag[:1000], domain[:200], color[:50], category[:200]]).encode() + b"\n"
        if self._named + len(line) > NAMES:
            return False
        self._map[HEAD + self._named : HEAD + self._named + len(line)] = line
        self._named += len(line)
        self._publish()
        return True

    def add(self, step: int | None, begin_ns: int, end_ns: int, rows: Sequence[Sequence[object]], cut: int = 0) -> None:
        """A finished step; the oldest give way to it. ``cut``: rows that it had beside."""
        if end_ns - self._looked > LOOK_NS:
            self._looked = end_ns
            if not self._is_whole():
                return
        payload, whole = _encode((step, begin_ns, end_ns, cut, rows)), len(rows)
        while len(payload) > self._size // 4:
            rows = rows[: len(rows) // 2]
            payload = _encode((step, begin_ns, end_ns, cut + whole - len(rows), rows))
        end = self._end
        frame = _frame(len(payload), _checksum(payload, end & _SEED)) + payload
        after = end + len(frame)
        if after > self._room:
            self._make_room(end, after)
        at = self._base + end % self._size
        to, far = at + len(frame), self._base + self._size
        if to <= far:
            self._map[at:to] = frame
        else:
            self._map[at:far] = frame[: far - at]
            self._map[self._base : self._base + to - far] = frame[far - at :]
        self._end = after

    def _make_room(self, end: int, after: int) -> None:
        """For a record from ``end`` to ``after``: what is about to be overwritten is given up first."""
        if after > self._next_mark:
            self._marks.append(end)
            self._next_mark = end + self._piece
        while after - self._first > self._size:
            self._first = self._marks.popleft()
        self._room = min(self._first + self._size, self._next_mark)
        self._publish()

    def now(self, step: int | None, begin_ns: int, rows: Sequence[Sequence[object]], cut: int = 0) -> None:
        """The running step so far, phases in progress included; in place of what was written of it before."""
        if not self._is_there():
            return
        payload = _encode((step, begin_ns, None, cut, rows))
        room = NOW // 2 - _SLOT.size
        while len(payload) > room:
            cut += len(rows) - len(rows) // 2
            rows = rows[len(rows) - len(rows) // 2 :]
            payload = _encode((step, begin_ns, None, cut, rows))
        self._turn += 1
        at = HEAD + NAMES + (self._turn % 2) * (NOW // 2)
        self._map[at + _SLOT.size : at + _SLOT.size + len(payload)] = payload
        self._map[at : at + _SLOT.size] = _SLOT.pack(self._turn, len(payload), zlib.crc32(payload))
        self._publish()

    def idle(self) -> None:
        """No step is running."""
        if not self._is_there():
            return
        self._turn += 1
        at = HEAD + NAMES + (self._turn % 2) * (NOW // 2)
        self._map[at : at + _SLOT.size] = _SLOT.pack(self._turn, 0, _IDLE)
        self._publish()

    def look_ahead(self) -> None:
        """Make room for the next steps writable now: a page that the system has written to the disk costs who writes to it next some
        microseconds."""
        if self._is_there():
            at = self._base + self._end % self._size
            self._populate(at - at % mmap.PAGESIZE, AHEAD)

    def _populate(self, at: int, count: int) -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError):  # Linux before 5.14, another system
            self._map.madvise(_POPULATE_WRITE, at, count)

    def close(self) -> None:
        """Let go of the mapping; the file stays."""
        self._map.close()

    def remove(self) -> None:
        """The file, where it is still this one's."""
        with contextlib.suppress(OSError):  # somebody has tidied up already
            if self._is_there():
                os.unlink(self.path)

    def _is_whole(self) -> bool:
        """The same as quickly as it can be told: a file that was removed or replaced is still there to write to."""
        try:
            if not self.lost and self._map.size() == self._made[2]:
                return True
        except (ValueError, OSError):
            pass  # without a descriptor (3.13), or training has closed it
        return self._is_there()

    def _is_there(self) -> bool:
        """Whether the file is as it was made.

        Raises:
            OSError: it is not any more; said once.
        """
        if self.lost:
            return False
        try:
            found = os.stat(self.path)
            change = "" if (found.st_dev, found.st_ino) == self._made[:2] else "another file has its name"
            if not change and found.st_size != self._made[2]:
                change = f"somebody changed its size from {self._made[2]} to {found.st_size}"
        except OSError as error:
            change = str(error)
        if change:
            self.lost, self._looked = True, -(1 << 62)
            raise OSError(f"{self.path} is no longer this process's ring: {change}; it is written no more")
        return True

    def _publish(self) -> None:
        # as one copy of bytes: what packs into a buffer fills it with zeros first, and the process may be killed in between
        self._map[_ENDS_AT:_ENDS_END] = _ENDS.pack(self._first, self._end, self._named)


def _fresh(path: str) -> int:
    """A descriptor of a new file. One that is there is of a process of this name that was killed, and had this one's number: it is
    put aside."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
    try:
        return os.open(path, flags, 0o444)
    except FileExistsError:
        os.replace(path, f"{path}.{time.time_ns()}")
        return os.open(path, flags, 0o444)


def read_ring(path: str | os.PathLike[str]) -> Contents:
    """What a ring holds, also while its process goes on writing or after it was killed.

    Raises:
        ReadError: not there, not a regular file, or no ring.
    """
    name = os.fspath(path)
    if not os.path.isfile(name):
        raise ReadError(name, "not there, or not a regular file")
    limit = HEAD + NAMES + NOW + 64 * RING
    try:
        with open(name, "rb") as file:
            data = file.read(limit + 1)
            front = os.pread(file.fileno(), HEAD + NAMES, 0)
    except OSError as error:
        raise ReadError(name, f"{error}") from None
    head = _head(name, data)
    names, now, size = head.names, head.now, head.size
    if len(data) > limit or HEAD + names + now + size != len(data) or not size:
        raise ReadError(name, f"the sizes in its head do not fit its {len(data)} bytes")
    found = Contents(head.who, head.epoch_offset, dumped=head.dumped)
    # its process may have gone on meanwhile: steps that gave way are not in ``data``, and phases have been named for what is
    later = _head(name, front)
    found.phases = _phases(front[HEAD : HEAD + min(later.named, names)], found.problems)
    _records(data, HEAD + names + now, size, later.first, max(head.end, later.first), found)
    _running(data, HEAD + names, now, found)
    last, running = found.steps[-1] if found.steps else None, found.running
    if last is not None and running is not None and running.begin_ns < (last.end_ns or 0):
        # it has ended since: the running step is written down about once a second
        ended = {_call(row) for step in found.steps if (step.end_ns or 0) >= running.begin_ns for row in step.rows}
        found.around = [
            row for row in running.rows if (call := _call(row)) and call[1] < running.begin_ns and call not in ended
        ]
        found.running = None
    return found


def rings_of(run_dir: str | os.PathLike[str], ends: str = SUFFIX) -> list[Path]:
    """The rings of a run."""
    found = Path(run_dir, RINGS).glob(f"*{ends}")
    return sorted(path for path in found if path.is_file() and not path.is_symlink())


def put_aside(run_dir: str | os.PathLike[str]) -> list[Path]:
    """Rings of killed processes of a run whose name, and number, another process has had since."""
    return rings_of(run_dir, f"{SUFFIX}.*")


def is_written(path: str | os.PathLike[str]) -> bool | None:
    """Whether the process that made a ring is there; ``None``: it ran on another host, or the ring does not tell."""
    try:
        with open(path, "rb") as file:
            writer = _head(os.fspath(path), file.read(HEAD)).writer
    except (OSError, ReadError):
        return None
    return None if writer is None else writer.is_there()


@dataclass(slots=True)
class _Head:
    """What stands in the first page, see ``_HEAD``."""

    names: int
    now: int
    size: int
    first: int
    end: int
    named: int
    epoch_offset: int
    who: Mapping[str, Any]
    writer: Writer | None
    dumped: int | None


def _head(name: str, data: bytes) -> _Head:
    if len(data) < HEAD or data[:8] != MAGIC:
        raise ReadError(name, f"no flight recorder's file (it begins with {data[:8]!r})")
    _, version, names, now, size, first, end, named, epoch, monotonic, length = _HEAD.unpack_from(data)
    if version != VERSION:
        raise ReadError(name, f"format {version} of the flight recorder; this accelprof reads {VERSION}")
    try:
        who = json.loads(data[_HEAD.size : min(_HEAD.size + length, HEAD)])
    except (ValueError, RecursionError):
        who = {}
    who = who if isinstance(who, dict) else {}
    writer = Writer.read(who.pop("writer", who))  # earlier versions had host and pid alone
    steps = who.pop("steps", None)
    dumped = steps if type(steps) is int and steps > 0 else None
    return _Head(names, now, size, first, end, named, epoch - monotonic, who, writer, dumped)


def _phases(data: bytes, problems: list[str]) -> list[tuple[str, str, str, str]]:
    phases: list[tuple[str, str, str, str]] = []
    for line in data.split(b"\n")[:-1]:
        try:
            row = json.loads(line)
            tag, domain, color, category = map(str, row)
        except (ValueError, TypeError):
            problems.append(f"the name of phase {len(phases)} is damaged")
            tag, domain, color, category = f"phase {len(phases)}", "", "", ""
        phases.append((tag, domain, color, category))
    return phases


def _records(data: bytes, base: int, size: int, first: int, end: int, found: Contents) -> None:
    if not 0 <= end - first <= size:
        found.problems.append("the ends of the ring contradict each other; no finished step can be read")
        return
    at, damaged = first, 0
    while at + _FRAME.size <= first + size and damaged <= _STRAY:
        known = at < end
        length, checksum = _FRAME.unpack(_around(data, base, size, at, _FRAME.size))
        if known and at + _FRAME.size + length > end:
            found.problems.append("the last record of the ring is cut")
            return
        if not known and (not length or at + _FRAME.size + length > first + size):
            return
        payload = _around(data, base, size, at + _FRAME.size, length)
        record = _record(payload) if _checksum(payload, at & _SEED) == checksum else None
        if record is None:
            damaged += 1
        if record is not None or known:  # behind the end, what is no step was there before if no step follows
            found.problems += ["a step's record is damaged, it is left out"] * damaged
            damaged = 0
        if record is not None:
            found.steps.append(record)
        at += _FRAME.size + length


def _running(data: bytes, base: int, now: int, found: Contents) -> None:
    best: tuple[int, StepRecord | None] = (0, None)
    for at in (base, base + now // 2):
        turn, length, checksum = _SLOT.unpack_from(data, at)
        if length == 0 and checksum == _IDLE and turn > best[0]:
            best = (turn, None)
        elif length <= now // 2 - _SLOT.size and turn > best[0]:
            payload = data[at + _SLOT.size : at + _SLOT.size + length]
            record = _record(payload) if zlib.crc32(payload) == checksum else None
            if record is not None:
                best = (turn, record)
    found.running = best[1]


def _record(payload: bytes) -> StepRecord | None:
    try:
        step, begin, end, cut, rows = msgspec.msgpack.decode(payload)
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError):
        return None
    whole = isinstance(begin, int) and (end is None or isinstance(end, int)) and isinstance(rows, list)
    if not whole or not isinstance(cut, int):
        return None
    return StepRecord(step if isinstance(step, int) else None, begin, end, [_with_kind(row) for row in rows], cut)


def _call(row: Any) -> tuple[int, ...]:
    """Phase, start and thread: the same in a row of a phase in progress and in that of its end; empty where they are no numbers."""
    found = tuple(row[at] for at in _CALL if at < len(row)) if isinstance(row, list) else ()
    return found if len(found) == len(_CALL) and all(isinstance(value, int) for value in found) else ()


def _with_kind(row: Any) -> Any:
    short = isinstance(row, list) and len(row) == len(QUICK_ROW)
    return [*row[:_KIND_AT], _PHASE, *row[_KIND_AT:]] if short else row


def _around(data: Any, base: int, size: int, at: int, count: int) -> bytes:
    place = at % size
    front = bytes(data[base + place : base + min(place + count, size)])
    return front + bytes(data[base : base + count - len(front)])
