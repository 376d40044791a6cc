"""The manifest: what was planned, which windows were opened, which files they left.

Each worker keeps a journal (JSON lines, flushed at every window) under ``.workers/`` in the run directory, so that a
worker that is killed loses nothing it had finished. The controller merges journals (and what it was told directly)
into ``manifest.json``. Fields are documented in docs/output.md.
"""

from __future__ import annotations

import datetime
import errno
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from accelprof import atomic, texts
from accelprof.contracts.names import JOURNAL, MANIFEST, WORKERS
from accelprof.contracts.sizes import size_of
from accelprof.errors import ReadError
from accelprof.output.descriptor import Descriptor
from accelprof.output.metrics import memory_rows, metrics_of
from accelprof.output.records import (
    FORMAT,
    OPEN,
    ArtifactRow,
    ClockRow,
    Manifest,
    MemoryRow,
    MetricsRow,
    ProblemRow,
    Record,
    TargetRow,
    WindowRow,
)
from accelprof.output.verdict import look_at, on_disk

#: more than any run writes, and little enough to be read: bytes of a journal, of one line of it, of a manifest
MAX_JOURNAL, MAX_LINE, MAX_MANIFEST = 1 << 30, 16 << 20, 1 << 30
#: rows of memory by step that a journal holds for a driver that cannot read its file
MEMORY_HELD = 2_000
#: code of a problem: a journal that was not read whole
JOURNAL_UNREAD = "journal_unread"
_IRREGULAR = "it is no regular file"
_encode_quickly = msgspec.json.Encoder(enc_hook=str).encode


class Journal:
    """One worker's records, appended as they happen. A disk that cannot be written is said once; records stay in memory.

    On disk, paths inside the run directory are relative to it, so that it can be moved.

    In memory the records themselves are kept, which those who write them hold too, and no second copy as JSON.
    """

    def __init__(self, path: str | None, say: Callable[[str], object]) -> None:
        self.path, self._say = path, say
        self._kept: list[Record] = []
        self._at: dict[tuple[str, str], int] = {}
        self._failed = False
        self._memory_rows = 0
        self._handle: Descriptor | None = None
        # files are written on another thread too, and what fails here is said, which is a record again
        self._lock = threading.RLock()

    @property
    def records(self) -> list[dict[str, Any]]:
        """All so far, as plain JSON, with paths as tools gave them; each as it is by now, a window and a target once."""
        with self._lock:
            return [record.to_journal() for record in self._kept]

    def add(self, *records: Record) -> None:
        """Append ``records`` as they are now. Timings of steps are not held in memory too, of their memory only so many."""
        with self._lock:
            self._add(records)

    def _add(self, records: Sequence[Record]) -> None:
        for record in records:
            if self._failed or self.path is None or self._held(record):
                self._keep(record)
        if self.path is None or self._failed or not records:
            return
        try:
            again: list[Record] = []
            if self._handle is not None and not self._handle.ours():
                self._handle = None  # training closed it; the file is there
            if self._handle is not None and not os.fstat(self._handle.number).st_nlink:  # removed, with its directory
                self.close()
                again = [kept for kept in self._kept if all(kept is not record for record in records)]
            if self._handle is None:
                os.makedirs(os.path.dirname(self.path), exist_ok=True)
                self._handle = Descriptor(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            lines = b"".join(_line(self._placed(each.to_journal())) for each in (*again, *records))
            if os.write(self._handle.number, lines) != len(lines):
                raise OSError("only a part was written; is the disk full?")
        except OSError as error:
            self._failed = True
            for record in records:
                if record.KIND == MetricsRow.KIND:
                    self._keep(record)
            self._say(f"the journal {self.path} cannot be written: {error}; records are kept in memory until the end")

    def _placed(self, entry: dict[str, Any]) -> dict[str, object]:
        """An entry as it stands in the file, where paths are those below the run's directory."""
        if entry["kind"] != ArtifactRow.KIND or self.path is None:
            return entry
        return {**entry, "path": relative(entry["path"], os.path.dirname(os.path.dirname(self.path)))}

    def _held(self, record: Record) -> bool:
        if isinstance(record, MemoryRow):
            self._memory_rows += 1
            return self._memory_rows <= MEMORY_HELD
        return record.KIND != MetricsRow.KIND

    def _keep(self, record: Record) -> None:
        """In memory a row is there once, as it is by now; the file has every state of it."""
        name = record.get("id") if record.KIND == WindowRow.KIND else record.get("key")
        at = self._at.setdefault((record.KIND, name), len(self._kept)) if name is not None else len(self._kept)
        if at < len(self._kept):
            self._kept[at] = record
        else:
            self._kept.append(record)

    def disown(self) -> None:
        """In a forked child, where a thread of the parent may hold the lock: file and records are the parent's."""
        self.path = self._handle = None
        self._kept, self._at, self._lock = [], {}, threading.RLock()

    def close(self) -> None:
        """Nothing more comes soon; a later record opens the file again."""
        with self._lock:
            if self._handle is not None:
                self._handle.close()
                self._handle = None


def _line(entry: dict[str, object]) -> bytes:
    """A row as it stands in a journal. There is one of timings for every step, so those take the quick way (2 µs in place of 17)."""
    if entry["kind"] == MetricsRow.KIND:
        try:
            return _encode_quickly(entry) + b"\n"
        except (TypeError, ValueError, OverflowError):
            pass  # a label with half a surrogate pair, say
    return (texts.dumps(entry, default=str, allow_nan=True) + "\n").encode()


def read_journals(run_dir: str) -> list[list[dict[str, object]]]:
    """All journals of a run, as plain JSON; a line that a killed worker left half-written is skipped.

    An entry that is no file of its own (a link, a directory, a pipe), that cannot be read or that is too large is left out; a
    record of the kind ``problem`` in its place says so.
    """
    place = Path(run_dir, WORKERS)
    try:
        names = sorted(name for name in os.listdir(place) if name.endswith(JOURNAL))
    except OSError:
        return []
    journals = []
    for name in names:
        records: list[dict[str, object]] = []
        try:
            for line in _lines(str(place / name)):
                record = decoded(line)
                if isinstance(record, dict):
                    records.append(record)
        except OSError as error:
            why = f"the journal {WORKERS}/{name} was not read whole: {error.strerror or error}"
            records.append(ProblemRow(message=why, code=JOURNAL_UNREAD).to_journal())
        journals.append(records)
    return journals


def regular(path: str | os.PathLike[str], flags: int = 0) -> IO[bytes]:
    """A regular file, open for reading. Nothing else is waited for or read: no pipe, directory, socket or device.

    Raises:
        OSError: it is none, or cannot be opened.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise OSError(_IRREGULAR) from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)  # fdopen refuses a directory, and would leave it open
        raise OSError(_IRREGULAR)
    return os.fdopen(handle, "rb")


def _lines(path: str) -> Iterator[bytes]:
    """Lines of a regular file; nothing else is opened, and nothing is held that is longer than a record can be.

    Raises:
        OSError: it is none, cannot be read, or is beyond what a journal can be.
    """
    with regular(path, os.O_NOFOLLOW) as file:
        found = os.fstat(file.fileno())
        if found.st_size > MAX_JOURNAL:
            raise OSError(f"it has {found.st_size:,} bytes, and no journal has more than {MAX_JOURNAL:,}")
        skipping = False
        while line := file.readline(MAX_LINE):
            whole = line.endswith(b"\n") or len(line) < MAX_LINE
            if whole and not skipping:
                yield line
            skipping = not whole


def decoded(text: bytes | str) -> object:
    """JSON, or ``None`` for what is none; numbers that no JSON has are refused."""
    try:
        return json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError):
        return None


def _refused(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def build(
    run_dir: str,
    *,
    version: str,
    config: Mapping[str, object],
    plan: Mapping[str, object],
    journals: Iterable[Sequence[object]],
    **more: Any,
) -> dict[str, Any]:
    """One manifest of journals (records, or plain JSON of them), as plain JSON; later records about a target, window or file complete
    earlier ones. ``more`` is for :func:`complete`."""
    found = of_journals(run_dir, journals)
    complete(found, run_dir, version=version, config=config, plan=plan, **more)
    return found.to_json()


def of_journals(run_dir: str, journals: Iterable[Sequence[object]]) -> Manifest:
    """The rows of a run's journals, with paths relative to its directory."""
    return Manifest.of_journals(journals, lambda path: _found_inside(path, run_dir))


def complete(
    found: Manifest,
    run_dir: str,
    *,
    version: str,
    config: Mapping[str, object],
    plan: Mapping[str, object],
    clock_offsets: Mapping[str, object] | None = None,
    metrics: Mapping[str, object] | None = None,
    problems: Sequence[str] = (),
    created: float | None = None,
) -> None:
    """What journals have becomes the manifest of the run, but for the verdict. ``clock_offsets``: rows, or plain JSON of them, by
    target; ``metrics``: of whoever announced the steps."""
    found.clock_offsets = ClockRow.many(clock_offsets or {}, found.say)
    found.accelprof, found.run = version, os.path.basename(run_dir)
    made = datetime.datetime.fromtimestamp(created or time.time(), datetime.timezone.utc)
    found.created = made.isoformat(timespec="seconds")
    found.config, found.plan = dict(config), dict(plan)
    found.metrics = dict(metrics_of(found) if metrics is None else metrics)
    found.memory = memory_rows(found)
    found.problems = list(dict.fromkeys([*problems, *(row.words for row in found.said), *found.odd]))
    found.odd = []
    settle(found, run_dir)


def settle(found: Manifest, run_dir: str) -> None:
    """Rows get the driver's time, the state that their files have on disk, and their order."""
    for window in found.windows.values():
        clock = found.clock_offsets.get(window.target)
        for moment in (window.opened, window.closed):
            if moment is not None and clock is not None:
                moment.driver_ns = moment.epoch_ns - clock.offset_at(moment.epoch_ns)
    mark_open(found)
    look_at(found, on_disk(run_dir))
    found.targets = {row.key: row for row in sorted(found.targets.values(), key=_order_of_target)}
    found.windows = {row.id: row for row in sorted(found.windows.values(), key=_order_of_window)}
    found.artifacts = {row.place: row for row in sorted(found.artifacts.values(), key=lambda row: row.path)}


def mark_open(found: Manifest) -> None:
    """Windows that journals do not close are open."""
    for window in found.windows.values():
        if window.closed is None:
            window.state = OPEN


def _order_of_target(row: TargetRow) -> tuple[object, ...]:
    return row.group, row.rank is None, row.rank or 0


def _order_of_window(row: WindowRow) -> tuple[object, ...]:
    return row.opened.epoch_ns if row.opened is not None else 0, row.id


def relative(path: str, run_dir: str) -> str:
    """``path`` relative to the run directory when it lies inside, absolute otherwise."""
    if path.startswith(run_dir + os.sep) and os.pardir not in path:
        return path[len(run_dir) + 1 :]
    inside = os.path.relpath(path, run_dir) if os.path.isabs(path) else path
    if inside.startswith("..") and os.path.isabs(path):  # a tool may have resolved links on the way
        inside = os.path.relpath(os.path.realpath(path), os.path.realpath(run_dir))
    return path if inside.startswith("..") else inside


def _found_inside(path: str, run_dir: str) -> str:
    """:func:`relative`, also for journals that held whole paths and whose directory was moved since."""
    inside = relative(path, run_dir)
    if os.path.isabs(inside) and not os.path.exists(inside):
        moved = os.path.join(*Path(inside).parts[-2:])
        if os.path.exists(os.path.join(run_dir, moved)):
            return moved
    return inside


def write(run_dir: str, manifest: Manifest | Mapping[str, object]) -> str:
    """Write ``manifest.json`` in one step (a reader never sees half of it); returns its path.

    Raises:
        OSError: the directory cannot be written.
    """
    document = manifest.to_json() if isinstance(manifest, Manifest) else manifest
    path = os.path.join(run_dir, MANIFEST)

    def fill(file: IO[str]) -> None:
        file.write(texts.dumps(document, indent=1, default=str))
        file.write("\n")

    atomic.write(path, fill)
    return path


def resized(path: str) -> None:
    """An artifact became smaller by its tool's own hand after its run had ended: its size goes into the run's manifest,
    so that it counts as whole; all else in it stays as it is. Nothing happens where no manifest above names it.

    Raises:
        OSError: the manifest cannot be written.
        ReadError: it cannot be read.
    """
    path = os.path.realpath(path)
    run_dir = next((str(place) for place in Path(path).parents if (place / MANIFEST).is_file()), None)
    if run_dir is None:
        return
    document, changed = read(run_dir), False
    artifacts = document.get("artifacts")
    rows = artifacts if isinstance(artifacts, list) else []
    for index, given in enumerate(rows):
        row = ArtifactRow.read(given, lambda text: None, "")
        if row is None or os.path.realpath(os.path.join(run_dir, row.path)) != path or size_of(path) >= row.bytes:
            continue
        row.bytes, changed = size_of(path), True
        rows[index] = row.to_json()
    if changed:
        write(run_dir, document)


def load(run_dir: str | os.PathLike[str]) -> Manifest:
    """The manifest of a run directory, its rows as records.

    Raises:
        ReadError: as :func:`read`.
    """
    return Manifest.of_json(read(run_dir))


def read(run_dir: str | os.PathLike[str]) -> dict[str, Any]:
    """The manifest of a run directory, as it stands there.

    Raises:
        ReadError: not there, no regular file, too large, not JSON, or of a newer format.
    """
    path = Path(run_dir, MANIFEST)
    try:
        with regular(path) as file:
            found = os.fstat(file.fileno())
            if found.st_size > MAX_MANIFEST:
                raise ReadError(path, f"it has {found.st_size:,} bytes; no manifest has more than {MAX_MANIFEST:,}")
            document = json.loads(file.read(), parse_constant=_refused)
    except FileNotFoundError:
        raise ReadError(path, "no manifest; is this a run directory, and did the run end with close()?") from None
    except RecursionError:
        raise ReadError(path, "it is nested too deeply") from None
    except (OSError, ValueError) as error:
        raise ReadError(path, getattr(error, "strerror", None) or str(error)) from None
    if not isinstance(document, dict):
        raise ReadError(path, "it is no JSON object")
    version = document.get("format", 0)
    if isinstance(version, bool) or not isinstance(version, int) or version > FORMAT:
        raise ReadError(path, f"format {str(version)[:40]} is not known to this version (it reads up to {FORMAT})")
    return document
