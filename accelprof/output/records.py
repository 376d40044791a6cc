"""What a run writes down: one typed record for each kind of row in journals and manifests, and the manifest that has them all.

A record knows its plain JSON both ways. Reading is tolerant: a field of an odd kind gets its default and is said, a row that is
no object or has no identity is refused and said, and fields that this version does not know are kept. So whatever stands in
a file that somebody else wrote, the rows that are whole count. One module, because the format is one fact.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar, cast

from accelprof.contracts.reasons import STEP_VOID
from accelprof.contracts.targets import ArtifactFile, Target, peers_in
from accelprof.contracts.timings import Timing
from accelprof.contracts.words import ARTIFACT_STATES, COMPLETE, PARTIAL, known
from accelprof.numberset import LARGEST, NumberSet
from accelprof.output import fields
from accelprof.output.codes import STATED
from accelprof.output.fields import Read
from accelprof.processes import Writer

R = TypeVar("R", bound="Record")
#: :attr:`TargetRow.who`
Who = tuple[str, int | None, int | None, int | None]
#: takes one line about something odd in what is read
Say = Callable[[str], None]

#: of manifests
FORMAT = 1
#: announced steps that a worker's row has: the first
STEPS_SEEN = 200
#: state of a window that was never closed
OPEN = "open"


# --- fields: how each is read -------------------------------------------------------------------------------------------


def _identity(read: Read = fields.name) -> Any:
    """A field without which the row means nothing."""
    return field(metadata={"read": read, "identity": True})


def _always(read: Read, default: object = None) -> Any:
    """A field that is written whatever it holds."""
    if isinstance(default, type):
        return field(default_factory=default, metadata={"read": read})
    return field(default=default, metadata={"read": read})


def _if_set(read: Read, default: object = None, key: str | None = None) -> Any:
    """A field that is written when it holds something; ``key``: its name in JSON where that is none of Python's."""
    told = {"read": read, "omit": True, "key": key}
    if isinstance(default, type):
        return field(default_factory=default, metadata=told)
    return field(default=default, metadata=told)


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    key: str
    read: Read
    identity: bool
    omit: bool
    default: Any


_known: dict[type[Record], tuple[_Field, ...]] = {}


def _fields(of: type[Record]) -> tuple[_Field, ...]:
    found = _known.get(of)
    if found is None:
        found = _known[of] = tuple(_described(of))
    return found


def _described(of: type[Record]) -> Iterator[_Field]:
    return (
        _Field(
            one.name,
            told.get("key") or one.name,
            told["read"],
            bool(told.get("identity")),
            bool(told.get("omit")),
            one.default,
        )
        for one in dataclasses.fields(of)
        if "read" in (told := one.metadata)
    )


# --- the base -----------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Record:
    """One row. Fields are attributes; ``row["name"]`` and ``row.get("name")`` read them as plain JSON does.

    Attributes:
        extra: fields that this version does not know, kept as they were.
    """

    #: what a journal calls the row
    KIND: ClassVar[str] = ""
    #: names in a journal that are not the attribute's: there ``kind`` says which row it is
    IN_JOURNAL: ClassVar[Mapping[str, str]] = {}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, as a manifest has it."""
        row: dict[str, Any] = {}
        for one in _fields(type(self)):
            value = getattr(self, one.name)
            if one.omit and (value is one.default or value in ([], "")):
                continue
            if isinstance(value, Record):
                value = value.to_json()
            elif type(value) is list:
                value = [item.to_json() if isinstance(item, Record) else item for item in value]
            row[one.key] = value
        return {**row, **self.extra}

    def to_journal(self) -> dict[str, Any]:
        """Plain JSON, as a journal has it: ``kind`` first."""
        row = self.to_json()
        for name, other in self.IN_JOURNAL.items():
            row[other] = row.pop(name)
        return {"kind": self.KIND, **row}

    @classmethod
    def read(cls: type[R], row: object, say: Say, where: str) -> R | None:
        """The record in ``row``; ``None`` for one that is no object or has no identity, which is said with ``where``."""
        if not isinstance(row, Mapping):
            say(f"{where} is {fields.shown(row)}, not an object; left out")
            return None
        values: dict[str, Any] = {}
        known = _fields(cls)
        for one in known:
            try:
                if one.key in row:
                    values[one.name] = one.read(row[one.key])
                elif one.identity:
                    raise fields.OddError("given")
            except fields.OddError as odd:
                given = f"{where}: {one.key} is {fields.shown(row.get(one.key))}, not {odd}"
                say(f"{given}; the row is left out" if one.identity else f"{given}; left out")
                if one.identity:
                    return None
        record = cls(**values)
        names = {one.key for one in known}
        record.extra = {str(key): value for key, value in row.items() if key not in names}
        return record

    # a row reads like the mapping that it is on disk
    def __getitem__(self, name: str) -> Any:
        value = self.get(name, self)
        if value is self:
            raise KeyError(name)
        return value

    def get(self, name: str, default: object = None) -> Any:
        """A field by its name on disk."""
        for ours, theirs in self.IN_JOURNAL.items():
            name = ours if name == theirs else name
        for one in _fields(type(self)):
            if one.key == name:
                value = getattr(self, one.name)
                return default if one.omit and value is None else value
        return self.extra.get(name, default)

    def __contains__(self, name: object) -> bool:
        return name in self.to_json()

    def keys(self) -> Iterable[str]:
        """Names of the fields that are written."""
        return self.to_json().keys()

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_json())

    extra: dict[str, Any] = field(default_factory=dict, kw_only=True)


# --- the rows -----------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Moment(Record):
    """One moment on the node's epoch clock and on its monotonic one, in ns; ``driver_ns``: the epoch clock as the driver's shows it."""

    epoch_ns: int = _identity(fields.whole)
    monotonic_ns: int | None = _if_set(fields.whole)
    driver_ns: int | None = _if_set(fields.whole)

    @classmethod
    def now(cls) -> Moment:
        return cls(time.time_ns(), time.perf_counter_ns())


def _moment(value: object) -> Moment | None:
    if value is None:
        return None
    moment = Moment.read(value, lambda text: None, "")
    if moment is None:
        raise fields.OddError("a moment (epoch_ns, monotonic_ns)")
    return moment


def _closing(value: object) -> ClockRow | None:
    return ClockRow.read(value, lambda text: None, "")


@dataclass(eq=False, kw_only=True)
class FailureRow(Record):
    """What ``tool`` said when it failed in a window."""

    tool: str = _always(fields.text, "")
    message: str = _identity(fields.text)

    @property
    def words(self) -> str:
        return f"{self.tool}: {self.message}"


def _failure(value: object) -> FailureRow:
    if isinstance(value, str):  # all that older versions wrote
        tool, _, message = value.partition(": ")
        return FailureRow(tool=tool, message=message)
    row = FailureRow.read(value, lambda text: None, "")
    if row is None:
        raise fields.OddError("a failure (tool, message)")
    return row


@dataclass(eq=False, kw_only=True)
class StretchesRow(Record):
    """Stretches of calls of ``phase`` that a schedule is to record which counts over the process: the first begins with call
    ``first`` (counted from 0), each next one ``every`` calls later; ``count`` of them, 0: without an end."""

    phase: str = _identity(fields.text)
    first: int = _identity(fields.whole)
    every: int = _identity(fields.whole)
    count: int = _identity(fields.whole)

    def has(self, first: int) -> bool:
        """Whether the stretch that begins with this call is one of them."""
        turn, within = divmod(first - self.first, max(1, self.every))
        return within == 0 <= turn and (turn < self.count or not self.count)


def _stretches(value: object) -> StretchesRow:
    row = StretchesRow.read(value, lambda text: None, "")
    if row is None:
        raise fields.OddError("stretches (phase, first, every, count)")
    return row


def _stretch(value: object) -> tuple[str, int]:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise fields.OddError("[phase, first call]")
    return fields.text(value[0]), fields.whole(value[1])


def _numbers(value: object) -> list[int | str]:
    try:
        return NumberSet.parse(value if isinstance(value, list) else None).to_config()
    except ValueError:
        raise fields.OddError("a list of numbers and ranges") from None


@dataclass(eq=False)
class WindowRow(Record):
    """One window of one process.

    Attributes:
        kind: as :attr:`WindowInfo.kind` (``window_kind`` in a journal).
        stem: path without suffix of its files, relative to the run directory.
        tools: those that recorded it.
        closed: ``None`` while it is open, and for ever where its process was killed.
        open_ms, close_ms, open_ns, close_ns, drain_ns: what opening, closing and waiting for the device took.
        spans, dropped: rows of our own timeline, and those that there was no room for; both were ranges.
        range_ns: what one of its ranges costs: push and pop of its tools and the timeline's row, the median of
            ``range_calls`` calls in this window and earlier ones; ``None`` where none was timed.
        write_ns: what writing its files took behind the training, where a tool leaves them for later.
        drained: whether the device was waited for; ``None`` where only our own timeline ran.
        reason: why it closed.
        failures: what tools said when they failed in it; on disk in words too, as ``errors``.
        stretches: of schedules that count over the process, those of which it holds calls: phase, and number of the first call.
        holds: phases of schedules whose calls it holds, though it is another's window.
        state: ``open`` where it was never closed; only in manifests.

    There are at most 29 fields: an object of more takes a dictionary of its own, over a kilobyte for every window of a process. What
    few windows have stands in :attr:`extra`.
    """

    KIND: ClassVar[str] = "window"
    IN_JOURNAL: ClassVar[Mapping[str, str]] = {"kind": "window_kind"}

    id: str = _identity()
    target: str = _always(fields.text, "")
    steps: list[int] = _always(fields.wholes, list)
    phase: str | None = _always(fields.maybe(fields.text))
    kind: str | None = _always(fields.maybe(fields.text))
    sequence: int = _always(fields.whole, 0)
    stem: str = _always(fields.text, "")
    tools: list[str] = _always(fields.texts, list)
    opened: Moment | None = _always(_moment)
    open_ms: float | None = _if_set(fields.number)
    closed: Moment | None = _always(_moment)
    close_ms: float | None = _if_set(fields.number)
    open_ns: int | None = _if_set(fields.whole)
    drained: bool | None = _if_set(fields.flag)
    drain_ns: int | None = _if_set(fields.whole)
    close_ns: int | None = _if_set(fields.whole)
    write_ns: int | None = _if_set(fields.whole)
    reason: str | None = _if_set(fields.text)
    failures: list[FailureRow] = _if_set(fields.many(_failure, "failures (tool, message)"), list)
    spans: int | None = _if_set(fields.whole)
    dropped: int | None = _if_set(fields.whole)
    range_ns: int | None = _if_set(fields.whole)
    range_calls: int | None = _if_set(fields.whole)
    holds: list[str] = _if_set(fields.texts, list)
    stretches: list[tuple[str, int]] = _if_set(fields.many(_stretch, "[phase, first call]"), list)
    schedule: dict[str, Any] | None = _if_set(fields.an_object)
    closed_early: str | None = _if_set(fields.text)
    state: str | None = _if_set(fields.text)

    @property
    def seen_from(self) -> int | None:
        """Of a process's first window: the first step that it saw, as far as it had seen one."""
        step = self.extra.get("seen_from")
        return step if fields.is_whole(step) else None

    @seen_from.setter
    def seen_from(self, step: int | None) -> None:
        if step is not None:
            self.extra["seen_from"] = step

    @property
    def void(self) -> bool:
        """It was opened for a step that never came: what it holds is of none. Rows that do not say it so (``void``) are of versions
        that said it in words alone."""
        said = self.extra.get("void")
        return said if isinstance(said, bool) else not self.steps and self.reason == STEP_VOID

    @void.setter
    def void(self, value: bool) -> None:
        if value or self.void:
            self.extra["void"] = value

    @property
    def errors(self) -> list[str]:
        """The failures in words."""
        return [failure.words for failure in self.failures]

    def to_json(self) -> dict[str, Any]:
        row = super().to_json()
        return {**row, "errors": self.errors} if self.failures else row

    @classmethod
    def read(cls, row: object, say: Say, where: str) -> WindowRow | None:
        if isinstance(row, Mapping) and "errors" in row:
            row = {"failures": row["errors"], **{name: value for name, value in row.items() if name != "errors"}}
        return super().read(row, say, where)


@dataclass(eq=False, kw_only=True)
class ClockRow(Record):
    """How far a worker's epoch clock is from the driver's, once measured.

    Attributes:
        offset_ns: the worker's minus the driver's; the true value lies within ``error_ns`` of it, which older files may lack.
        at_ns: what the worker's showed.
        measured_ns, round_trip_ns, rounds, basis: what that was taken from: the least round trip of so many.
        closing: the same at the end of the run, where the worker runs on another kernel.
        label: the worker's.
    """

    offset_ns: int = _identity(fields.whole)
    error_ns: int | None = _if_set(fields.whole)
    at_ns: int | None = _if_set(fields.whole)
    measured_ns: int | None = _if_set(fields.whole)
    round_trip_ns: int | None = _if_set(fields.whole)
    rounds: int | None = _if_set(fields.whole)
    basis: str | None = _if_set(fields.text)
    closing: ClockRow | None = _if_set(_closing)
    label: str | None = _if_set(fields.text)

    def offset_at(self, epoch_ns: int | None = None) -> int:
        """The worker's clock minus the driver's (ns) when the worker's shows ``epoch_ns``.

        Where the measurement at the end differs by more than both can be wrong, the clocks drifted: then it lies on the line
        between the two.
        """
        last = self.closing
        if epoch_ns is None or last is None or self.at_ns is None or last.at_ns is None or last.at_ns <= self.at_ns:
            return self.offset_ns
        moved, long = last.offset_ns - self.offset_ns, last.at_ns - self.at_ns
        if abs(moved) <= (self.error_ns or 0) + (last.error_ns or 0):
            return self.offset_ns
        return self.offset_ns + moved * min(max(epoch_ns - self.at_ns, 0), long) // long

    @classmethod
    def many(cls, rows: object, say: Say) -> dict[str, ClockRow]:
        """Of a manifest's ``clock_offsets``, by the key of the worker."""
        if not isinstance(rows, Mapping):
            say(f"clock_offsets is {fields.shown(rows)}, not an object; left out")
            return {}
        found = {
            str(key): row if isinstance(row, cls) else cls.read(row, say, f"clock_offsets[{fields.shown(key)}]")
            for key, row in rows.items()
        }
        return {key: row for key, row in found.items() if row is not None}


def _first_and_last(value: object) -> tuple[int, int]:
    first, last = map(fields.whole, value if isinstance(value, (list, tuple)) and len(value) == 2 else (1, 0))
    if first > last:
        raise fields.OddError("[first, last] step")
    return first, last


@dataclass(eq=False)
class TargetRow(Record):
    """One process of the run.

    Attributes:
        armed: it was to open windows; ``wanted`` says which, in words.
        tool: the tool of its rule; ``tools``: all that were to record in each of its windows.
        missed: windows, or calls of them, that were asked for and did not come, in words.
        windows_planned: first and last step of each window that the plan lists (it lists the first 1000), in order.
        steps_planned: the steps that are to have windows, all of them, as a configuration has them; ``merged``: adjacent ones share
            a window; ``discrete``: a step opens one only where the phase for it comes.
        stretches_planned: what schedules that count over the process are to record.
        ended: the session was closed, so that ``missed`` is the whole of it; ``None`` in rows of versions that did not say.
        steps_came: of one whose session was not closed, the steps of which its journal has timings, as a configuration has them.
        engine_rank: of a child process of an engine, as :attr:`Target.engine_rank`; ``rank`` is its parent's. In rows of versions that
            did not say, an engine's child looks like its parent.
        started, space: with ``host`` and ``pid`` the process as :class:`accelprof.processes.Writer` knows it again.
    """

    KIND: ClassVar[str] = "target"

    key: str = _identity()
    group: str = _always(fields.text, "unknown")
    roles: list[str] = _always(fields.texts, list)
    rank: int | None = _always(fields.maybe(fields.whole))
    world_size: int | None = _always(fields.maybe(fields.whole))
    replica: int | None = _always(fields.maybe(fields.whole))
    node: str | None = _always(fields.maybe(fields.text))
    host: str | None = _always(fields.maybe(fields.text))
    pid: int | None = _always(fields.maybe(fields.whole))
    accelerator: str | None = _always(fields.maybe(fields.text))
    tool: str | None = _always(fields.maybe(fields.text))
    armed: bool = _always(fields.flag, False)
    wanted: str | None = _always(fields.maybe(fields.text))
    asked_by: dict[str, str] = _always(fields.texts_by_name, dict)
    steps_seen: list[int] = _always(fields.wholes, list)
    phases_seen: list[str] = _always(fields.texts, list)
    windows_opened: int = _always(fields.whole, 0)
    python: str | None = _always(fields.maybe(fields.text))
    tools: list[str] = _if_set(fields.texts, list)
    missed: list[str] = _if_set(fields.texts, list)
    windows_planned: list[tuple[int, int]] = _if_set(fields.many(_first_and_last, "[first, last] step"), list)
    steps_planned: list[int | str] = _if_set(_numbers, list)
    merged: bool = _if_set(fields.flag, False)
    discrete: bool = _if_set(fields.flag, False)
    stretches_planned: list[StretchesRow] = _if_set(fields.many(_stretches, "stretches"), list)
    ended: bool | None = _if_set(fields.flag)
    steps_came: list[int | str] = _if_set(_numbers, list)
    started: str = _if_set(fields.text, "")
    space: str = _if_set(fields.text, "")
    engine_rank: int | None = _if_set(fields.whole)

    @classmethod
    def of(cls, key: str, target: Target, host: str, pid: int) -> TargetRow:
        """What is known of a process before it has done anything."""
        numbers = (target.rank, target.world_size, target.replica)
        where = (target.node, host, pid)
        return cls(key, target.group, list(target.roles), *numbers, *where, engine_rank=target.engine_rank)

    @property
    def target(self) -> Target:
        """The process as the plan sees it, as far as the row has it."""
        numbers = (self.rank, self.world_size, self.replica)
        return Target(self.group, tuple(self.roles), *numbers, self.node, engine_rank=self.engine_rank)

    @property
    def label(self) -> str:
        """``ActorGroup/rank0`` for messages."""
        return self.target.label

    @property
    def writer(self) -> Writer | None:
        """The process, where the row names it."""
        return Writer.read({"host": self.host, "pid": self.pid, "started": self.started, "space": self.space})

    @property
    def who(self) -> Who:
        """Group, rank and replica, and the rank within an engine: the same for a worker and the one that was started in its place."""
        return self.group, self.rank, self.replica, self.engine_rank


@dataclass(eq=False)
class ArtifactRow(Record):
    """One file, or directory, that a tool left.

    Attributes:
        path: relative to the run directory where it lies inside.
        target: key of the process that left it; empty in rows of versions that did not say, and where it is a launcher's.
        windows: ids of the windows it holds.
        state: ``complete`` | ``missing`` | ``truncated`` (there, but empty or cut) | ``partial`` (readable, less than asked for).
        remote, node_id: it lies on another node, and Ray's id of that.
        collected: it was brought here, from where it lay: ``came_from``, in JSON ``from``.
    """

    KIND: ClassVar[str] = "artifact"

    path: str = _identity()
    tool: str = _always(fields.text, "")
    group: str | None = _always(fields.maybe(fields.text))
    role: str | None = _always(fields.maybe(fields.text))
    rank: int | None = _always(fields.maybe(fields.whole))
    host: str | None = _always(fields.maybe(fields.text))
    pid: int | None = _always(fields.maybe(fields.whole))
    windows: list[str] = _always(fields.texts, list)
    bytes: int = _always(fields.whole, 0)
    state: str = _always(fields.text, COMPLETE)
    reason: str | None = _if_set(fields.text)
    remote: bool = _if_set(fields.flag, False)
    node_id: str | None = _if_set(fields.text)
    collected: bool = _if_set(fields.flag, False)
    came_from: str | None = _if_set(fields.text, key="from")
    target: str = _if_set(fields.text, "")

    @property
    def place(self) -> tuple[str, str]:
        """Host and path: what tells one file from another."""
        return self.host or "", self.path

    @property
    def label(self) -> str:
        """``ActorGroup/rank0`` of whoever left it, as far as this row tells: :meth:`Manifest.owner` knows more."""
        return Target(self.group or "unknown", rank=self.rank).label

    def as_file(self) -> ArtifactFile:
        """As the hook ``accelprof_artifact`` gets it."""
        state = known(self.state, ARTIFACT_STATES, PARTIAL)
        return ArtifactFile(self.path, self.tool, tuple(self.windows), self.bytes, state, self.reason or "")

    @classmethod
    def of(cls, file: ArtifactFile, key: str, target: Target, host: str | None, pid: int | None) -> ArtifactRow:
        """What the process ``key`` left, or a launcher of ``target`` (no key)."""
        owner = (target.group, "+".join(target.roles) or None, target.rank, host, pid)
        held = (list(file.windows), file.bytes, file.state, file.reason or None)
        return cls(file.path, file.tool, *owner, *held, target=key)


@dataclass(eq=False, kw_only=True)
class ProblemRow(Record):
    """Something that went wrong or may have, once. ``code`` says what kind where a decision hangs on it."""

    KIND: ClassVar[str] = "problem"

    target: str = _always(fields.text, "")
    message: str = _identity()
    code: str = _if_set(fields.text, "")

    @property
    def words(self) -> str:
        return f"{self.target}: {self.message}".removeprefix(": ")


@dataclass(eq=False)
class MetricsRow(Record):
    """Timings of one step in one process: ``rows`` is ``{tag: {"seconds", "count"}}``, ``began_ns`` (Unix epoch) and ``wall_ns``
    the step itself; of one that began and did not come to its end the latter is ``None``. ``peers``: as :attr:`Target.peers`; empty
    in rows of versions that did not say."""

    KIND: ClassVar[str] = "metrics"

    label: str = _identity()
    step: int = _identity(fields.whole)
    rows: dict[str, Any] = _always(fields.an_object, dict)
    began_ns: int | None = _if_set(fields.whole)
    wall_ns: int | None = _if_set(fields.whole)
    peers: str = _if_set(fields.text, "")

    def to_journal(self) -> dict[str, Any]:
        """Like that of every record, said out: there is one for every step, and going over the fields takes longer than a write."""
        if self.extra or self.began_ns is None or self.wall_ns is None or not self.peers:
            return super().to_journal()
        return {
            "kind": "metrics",
            "label": self.label,
            "step": self.step,
            "rows": self.rows,
            "began_ns": self.began_ns,
            "wall_ns": self.wall_ns,
            "peers": self.peers,
        }

    @property
    def whose(self) -> str:
        """:attr:`Target.peers` of the process."""
        return self.peers or peers_in(self.label)

    def timings(self) -> dict[str, Timing]:
        """The rows that are whole."""
        return {
            tag: cast(Timing, row)
            for tag, row in self.rows.items()
            if isinstance(row, dict) and all(fields.is_number(row.get(name)) for name in ("seconds", "count"))
        }


@dataclass(eq=False)
class MemoryRow(Record):
    """Memory of one process's device at the end of a step: ``bytes`` by name, as its backend has them (``allocated``, ``reserved``,
    ``peak``, or ``resident`` of a process without a device)."""

    KIND: ClassVar[str] = "memory"

    target: str = _identity()
    step: int = _identity(fields.whole)
    bytes: dict[str, Any] = _always(fields.an_object, dict)

    def figures(self) -> dict[str, int]:
        """Those that are whole numbers."""
        return {name: value for name, value in self.bytes.items() if fields.is_whole(value)}


@dataclass(kw_only=True)
class DumpRow(Record):
    """Why the flight recorders of a run are written out, in a file of its own: one of ``output/dumps.py``'s reasons, the running step,
    words, who asked, and when (Unix epoch, s)."""

    reason: str = _identity()
    step: int | None = _always(fields.maybe(fields.whole))
    why: str = _always(fields.text, "")
    by: str = _always(fields.text, "")
    at: float = _always(fields.number, 0.0)


@dataclass(eq=False, kw_only=True)
class Lack(Record):
    """Something that was asked for and is not there.

    Attributes:
        code: the kind, one of :mod:`accelprof.output.codes`.
        target: key of the worker; its label where it never had a session, which makes the key; empty where it is nobody's.
        label: what people call that worker.
        tool: whose data is missing; empty where it is not one tool's.
        about: the window or file, or the steps, that it is of.
        step: the step that it is of, where it is of one.
        words: for people, one line. Nobody decides by them where anything else tells what is lacking.
    """

    KIND: ClassVar[str] = "lack"

    code: str = _always(fields.text, STATED)
    target: str = _always(fields.text, "")
    tool: str = _always(fields.text, "")
    about: str = _if_set(fields.text, "")
    step: int | None = _if_set(fields.whole)
    label: str = _if_set(fields.text, "")
    words: str = _identity()

    @property
    def identity(self) -> tuple[str, str, str, str, int | None]:
        """What makes two lacks one. Of those that say neither what nor which step they are of, as older files' and those of names
        that nobody had, the words tell it."""
        what = self.about if self.about or self.step is not None else self.words
        return self.code, self.target, self.tool, what, self.step

    @staticmethod
    def once(lacks: Iterable[Lack]) -> list[Lack]:
        """Each lack once, where the first of its like stood and as the last of them says it; an older file's words that a lack
        says which tells more are that one."""
        found = {lack.identity: lack for lack in lacks}.values()
        said = {lack.words for lack in found if lack.code != STATED}
        return [lack for lack in found if lack.code != STATED or lack.words not in said]


JOURNALLED: dict[str, type[Record]] = {
    record.KIND: record for record in (TargetRow, WindowRow, ArtifactRow, ProblemRow, MetricsRow, MemoryRow, Lack)
}


# --- the manifest -------------------------------------------------------------------------------------------------------

_some_texts, _some_objects = fields.some(fields.name, "texts"), fields.some(fields.an_object, "objects")
#: fields of a manifest that are no rows
_TOLD: Mapping[str, Read] = {
    **dict.fromkeys(("accelprof", "run", "created", "status"), fields.text),
    **dict.fromkeys(("config", "plan", "metrics"), fields.an_object),
    **dict.fromkeys(("problems", "running", "notes"), _some_texts),
    "format": fields.whole, "memory": _some_objects, "versions": fields.texts_by_name,
}  # fmt: skip
_ROWS: Mapping[str, type[Record]] = {
    "targets": TargetRow, "windows": WindowRow, "artifacts": ArtifactRow, "lacks": Lack,
}  # fmt: skip
#: of a step's row: whole nanoseconds
_WHOLE = frozenset({"wall_ns", "began_ns"})


@dataclass(eq=False)
class Manifest:
    """All rows of a run, each once, and what was made of them when it ended: as ``manifest.json`` has it, or as far as journals say.

    Whoever is handed the manifest of a run (``close()``, hooks, exporters) gets :meth:`to_json`, a plain ``dict``: that is what they
    were always given, and what can be dumped, copied and taken apart without us. This record stays inside.

    Attributes:
        format, accelprof, run, created: versions, the run's name, and UTC time; ``None`` where nothing says so.
        config, plan: the resolved configuration, and what it says for each named group.
        clock_offsets: how far the workers' clocks are off, by the key of the worker.
        targets, windows, artifacts: by key, by id, by host and path.
        metrics: ``{"steps": [row, …]}``, see :meth:`steps`; ``memory``: at the end of steps, of each worker.
        problems, notes: what went wrong or may have, and what is to be known with nothing wrong, a line each.
        running: keys of targets that were at work when it was written.
        lacks: what was asked for and is not there; of older manifests their words.
        status: ``complete`` | ``incomplete``; empty where nobody has judged yet.
        said, timings, memories: of journals alone: the rows of which ``problems``, ``metrics`` and ``memory`` are made.
        extra: fields that this version does not know, kept as they were.
        odd: what could not be read, one line each.
    """

    format: int = FORMAT
    accelprof: str | None = None
    run: str | None = None
    created: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    plan: dict[str, Any] = field(default_factory=dict)
    clock_offsets: dict[str, ClockRow] = field(default_factory=dict)
    targets: dict[str, TargetRow] = field(default_factory=dict)
    windows: dict[str, WindowRow] = field(default_factory=dict)
    artifacts: dict[tuple[str, str], ArtifactRow] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    memory: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    running: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lacks: list[Lack] = field(default_factory=list)
    status: str = ""
    said: list[ProblemRow] = field(default_factory=list)
    timings: list[MetricsRow] = field(default_factory=list)
    memories: list[MemoryRow] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    odd: list[str] = field(default_factory=list)

    @classmethod
    def of_journals(
        cls, journals: Iterable[Sequence[object]], place: Callable[[str], str] = lambda path: path
    ) -> Manifest:
        """One row of each target, window and file: later records complete earlier ones. ``place`` gives a file's path in the run."""
        found = cls()
        rows: dict[tuple[str, Any], dict[str, Any]] = {}
        came: dict[object, set[int]] = {}
        for journal in journals:
            whose: object = None
            for record in journal:
                name, values = _unpacked(record)
                if name not in JOURNALLED:
                    if not isinstance(record, Mapping) or "kind" not in record:
                        found.say(f"a journal has {fields.shown(record)} in place of a record; left out")
                    continue
                if name == ArtifactRow.KIND and isinstance(values.get("path"), str):
                    values["path"] = place(values["path"])
                key = _key_of(name, values)
                if key is None:
                    found._add(name, values)
                else:
                    rows.setdefault((name, key), {}).update(values)
                if name == TargetRow.KIND:
                    whose = key
                elif name == MetricsRow.KIND and _is_step(values.get("step")):
                    came.setdefault(whose, set()).add(values["step"])
        for (name, _), values in rows.items():
            found._add(name, values)
        for target in found.targets.values():
            if target.ended is False and target.key in came:
                target.steps_came = NumberSet.parse(sorted(came[target.key])).to_config()
        return found

    @classmethod
    def of_json(cls, document: Mapping[str, object]) -> Manifest:
        """What stands in a manifest, whatever else may stand in it."""
        found = cls()
        for name, read in _TOLD.items():
            try:
                if document.get(name) is not None:
                    setattr(found, name, read(document[name]))
            except fields.OddError as odd:
                found.say(f"{name} is {fields.shown(document[name])}, not {odd}; left out")
        for name, record in _ROWS.items():
            rows = document.get(name)
            if rows is not None and not isinstance(rows, list):
                found.say(f"{name} is {fields.shown(rows)}, not a list; left out")
            for index, row in enumerate(rows if isinstance(rows, list) else ()):
                found._add(record.KIND, row, f"{name}[{index}]")
        if document.get("clock_offsets") is not None:
            found.clock_offsets = ClockRow.many(document["clock_offsets"], found.say)
        # all that older versions say of what is not there
        known, stated = set(found.undelivered), document.get("undelivered")
        words = [text for text in stated if isinstance(text, str) and text] if isinstance(stated, list) else []
        found.lacks += [Lack(words=text) for text in words if text not in known]
        found.extra = {str(key): value for key, value in document.items() if key not in _KEYS}
        return found

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, as it stands on disk."""
        judged = {
            "notes": self.notes,
            "lacks": [row.to_json() for row in self.lacks],
            "undelivered": self.undelivered,
            "status": self.status,
        }
        return {
            "format": self.format,
            "accelprof": self.accelprof,
            "run": self.run,
            "created": self.created,
            "config": self.config,
            "plan": self.plan,
            "clock_offsets": {key: row.to_json() for key, row in self.clock_offsets.items()},
            "targets": [row.to_json() for row in self.targets.values()],
            "windows": [row.to_json() for row in self.windows.values()],
            "artifacts": [row.to_json() for row in self.artifacts.values()],
            "metrics": self.metrics,
            **({"memory": self.memory} if self.memory else {}),
            "problems": list(self.problems),
            **({"versions": self.versions} if self.versions else {}),
            **({"running": self.running} if self.running else {}),
            **(judged if self.status else {}),
            **self.extra,
        }

    @property
    def undelivered(self) -> list[str]:
        """The lacks in words."""
        return [lack.words for lack in self.lacks]

    def judged(self, lacks: Iterable[Lack]) -> None:
        """The verdict on it."""
        self.lacks = Lack.once(lacks)
        self.status = "incomplete" if self.lacks else "complete"

    def steps(self) -> list[Mapping[str, Any]]:
        """Timings of each announced step: ``{"step", "seconds": {tag: {"max", …}}}``; rows of another shape are left out,
        and times that are no whole numbers."""
        rows = self.metrics.get("steps")
        return [
            {key: value for key, value in row.items() if key not in _WHOLE or fields.is_whole(value)}
            for row in (rows if isinstance(rows, list) else ())
            if isinstance(row, dict)
            and fields.is_whole(row.get("step"))
            and isinstance(row.get("seconds"), dict)
            and _figures(row["seconds"])
        ]

    def say(self, text: str) -> None:
        """Something odd, once."""
        if text not in self.odd:
            self.odd.append(text)

    def _add(self, name: str, values: object, where: str = "") -> None:
        record = JOURNALLED[name].read(values, self.say, where or f"a {name} in a journal")
        if isinstance(record, TargetRow):
            self.targets[record.key] = record
        elif isinstance(record, WindowRow):
            self.windows[record.id] = record
        elif isinstance(record, ArtifactRow):
            self.artifacts[record.place] = record
        elif isinstance(record, ProblemRow):
            self.said.append(record)
        elif isinstance(record, MetricsRow):
            self.timings.append(record)
        elif isinstance(record, MemoryRow):
            self.memories.append(record)
        elif isinstance(record, Lack):
            self.lacks.append(record)

    def of_target(self) -> dict[str, list[WindowRow]]:
        """Windows by their target's key."""
        found: dict[str, list[WindowRow]] = {key: [] for key in self.targets}
        for window in self.windows.values():
            found.setdefault(window.target, []).append(window)
        return found

    def owner(self, file: ArtifactRow) -> TargetRow | None:
        """The process that left a file: as its row says, or, of older versions, the windows in it."""
        windows = (self.windows.get(identity) for identity in file.windows)
        keys = (file.target, *(window.target for window in windows if window is not None))
        return next((self.targets[key] for key in keys if key in self.targets), None)


_KEYS = frozenset({*_TOLD, *_ROWS, "clock_offsets", "undelivered"})


def _is_step(value: object) -> bool:
    return isinstance(value, int) and fields.is_whole(value) and 0 <= value <= LARGEST


def _figures(seconds: Mapping[str, object]) -> bool:
    return all(
        isinstance(row, dict)
        and all(fields.is_number(row.get(name, row.get("max"))) for name in ("max", "min", "mean"))
        for row in seconds.values()
    )


def _unpacked(record: object) -> tuple[str, dict[str, Any]]:
    """The kind of a journal's record, and its values by their own names."""
    if isinstance(record, Record):
        record = record.to_journal()
    if not isinstance(record, Mapping) or not isinstance(record.get("kind"), str):
        return "", {}
    values = {str(key): value for key, value in record.items() if key != "kind"}
    name = str(record["kind"])
    for ours, theirs in JOURNALLED[name].IN_JOURNAL.items() if name in JOURNALLED else ():
        if theirs in values:
            values[ours] = values.pop(theirs)
    return name, values


def _key_of(name: str, values: Mapping[str, object]) -> Any:
    """What makes two records one row; ``None`` where each is its own."""
    if name == ArtifactRow.KIND:
        key: Any = (values.get("host") or "", values.get("path"))
        return key if all(isinstance(part, str) for part in key) else None
    key = values.get({TargetRow.KIND: "key", WindowRow.KIND: "id"}.get(name, ""))
    return key if isinstance(key, str) else None
