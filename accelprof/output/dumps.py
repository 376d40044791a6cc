"""Dumps of the flight recorder: run directories below a run's, that ``report`` and ``timeline`` read as any other.

Whoever sees something wrong makes ``RUN/recorder/<reason>-<n>/`` with ``request.json`` in it; every other process of the run sees it
within about a second, on the same file system, and puts its part there: its last steps as a timeline, and its journal. Parts of
processes that are gone are made from the rings they left, by whoever asks for a dump. Where hosts have disks of their own, the
controller asks for it on each, and brings the parts together when the run ends.
"""

from __future__ import annotations

import faulthandler
import itertools
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from accelprof import atomic, texts
from accelprof.contracts.names import JOURNAL, WORKERS
from accelprof.contracts.spans import STEP, Kind, TimelineRow
from accelprof.contracts.targets import ArtifactFile, WindowInfo
from accelprof.contracts.words import DUMP_REASONS, DumpReason
from accelprof.errors import ReadError, UserError
from accelprof.output import collecting
from accelprof.output.layout import Layout
from accelprof.output.manifest import Journal
from accelprof.output.nodes import Node, Nodes
from accelprof.output.records import ArtifactRow, DumpRow, Moment, ProblemRow, TargetRow, WindowRow
from accelprof.output.ring import (
    NOW,
    RING,
    RINGS,
    SUFFIX,
    Contents,
    StepRecord,
    is_written,
    put_aside,
    read_ring,
    rings_of,
)
from accelprof.timing.phase import PhaseSpec
from accelprof.tools.trace import SUFFIX as TIMELINE
from accelprof.tools.trace import TimelineFile, TraceTool

PLACE = "recorder"
REQUEST = "request.json"
_NAME = re.compile(rf"({'|'.join(DUMP_REASONS)})-(\d{{1,6}})")
#: steps of a part whose process did not say how many
STEPS = 20
#: rings that were put aside and are named one by one
ASIDE_SHOWN = 5
#: a dump that another process began this long ago for the same reason is joined, not doubled
JOIN_WITHIN_S = 10.0


class DumpName(NamedTuple):
    """What a dump's directory is called by. Names sort by reason, then number."""

    reason: DumpReason
    number: int

    @classmethod
    def parse(cls, name: str) -> DumpName | None:
        """``None`` for what is no dump's name."""
        match = _NAME.fullmatch(name)
        reason = None if match is None else next((one for one in DUMP_REASONS if one == match[1]), None)
        return None if match is None or reason is None else cls(reason, int(match[2]))

    def __str__(self) -> str:
        return f"{self.reason}-{self.number}"


@dataclass(frozen=True)
class Cause:
    """Why a dump is made; when the step that it is of ``began``, and ``at`` when it was seen (Unix epoch, s)."""

    reason: DumpReason
    step: int | None
    why: str
    began: float = 0.0
    at: float = field(default_factory=lambda: time.time())


def names(run_dir: str) -> list[str]:
    """The dumps of a run, by reason and number."""
    try:
        found = os.listdir(os.path.join(run_dir, PLACE))
    except OSError:
        return []
    known = [(called, name) for name in found if (called := DumpName.parse(name)) is not None]
    return [name for _, name in sorted(known)]


def _of(reason: DumpReason, among: Iterable[str]) -> dict[str, DumpName]:
    """Those dumps that were made for ``reason``, in their order."""
    parsed = {name: DumpName.parse(name) for name in among}
    return {name: called for name, called in parsed.items() if called is not None and called.reason == reason}


def begin(run_dir: str, cause: Cause, by: str, at_most: int, apart: Collection[str] = ()) -> str | None:
    """The name of the dump for ``cause``: a fresh one, or one that was just begun for the same reason, since its step began, and is
    none of ``apart``; ``None``: there are ``at_most`` for that reason.

    Raises:
        OSError: the directory cannot be made.
    """
    reason = cause.reason
    known = _of(reason, names(run_dir))
    for name in known:
        asked = request_of(run_dir, name) if name not in apart else None
        if asked is not None and asked.reason == reason and cause.began <= asked.at > cause.at - JOIN_WITHIN_S:
            return name
    if len(known) >= at_most:
        return None
    row = DumpRow(reason=reason, step=cause.step, why=cause.why, by=by, at=cause.at)
    name = str(DumpName(reason, max((called.number for called in known.values()), default=0) + 1))
    if not _made(run_dir, name, row):
        return begin(run_dir, cause, by, at_most, apart)  # another process was quicker, maybe for the same
    return name


def _made(run_dir: str, name: str, row: DumpRow) -> bool:
    """Make a dump's directory, with what was asked for in it from the first moment on; ``False``: there is one.

    Raises:
        OSError: it cannot be made.
    """
    place = os.path.join(run_dir, PLACE, name)
    new = os.path.join(run_dir, PLACE, f".{name}.{os.getpid()}.{threading.get_ident()}")
    os.makedirs(new, exist_ok=True)
    try:
        atomic.write(os.path.join(new, REQUEST), lambda file: file.write(texts.dumps(row.to_json())))
        os.rename(new, place)
    except OSError:
        shutil.rmtree(new, ignore_errors=True)
        if os.path.isdir(place):
            return False
        raise
    return True


def is_dump(directory: str) -> bool:
    """Whether a directory is that of a dump."""
    parent, name = os.path.split(os.path.normpath(directory))
    return (
        os.path.basename(parent) == PLACE
        and os.path.isfile(os.path.join(directory, REQUEST))
        and DumpName.parse(name) is not None
    )


def why_dropped(directory: str) -> str:
    """Why timelines of a run's directory, or a dump's, lack spans."""
    if not is_dump(directory):
        return "option max_spans of the timeline"
    return f"the flight recorder keeps {RING // 4 // 1024} KiB of a step, and {NOW // 2 // 1024} KiB of one that still runs"


def request_of(run_dir: str, name: str) -> DumpRow | None:
    """What was asked for; ``None`` where that cannot be read."""
    try:
        with open(os.path.join(run_dir, PLACE, name, REQUEST), encoding="utf-8") as file:
            return DumpRow.read(json.load(file), lambda text: None, REQUEST)
    except (OSError, ValueError, RecursionError):
        return None


# --- over several hosts, each with a disk of its own ------------------------------------------------------------------------


def known(run_dir: str) -> dict[str, DumpRow | None] | None:
    """What was asked for in each dump of a run; ``None`` where no worker records on this host's disk."""
    if not os.path.isdir(os.path.join(run_dir, RINGS)):
        return None
    return {name: request_of(run_dir, name) for name in names(run_dir)}


def adopt(run_dir: str, asked: Mapping[str, DumpRow]) -> None:
    """Ask this host's workers for dumps that were begun on another, under their names there; they join them as their own."""
    for name, request in asked.items():
        _made(run_dir, name, request)  # unless it is one of this host's own


def spread(run_dir: str, nodes: Nodes, hosts: Collection[Node], told: set[str], timeout: float) -> dict[Node, str]:
    """Dumps of any host of a run that are not in ``told`` are asked for on all others, and are in it then; errors by node."""
    found, errors = nodes.on_each(dict.fromkeys(hosts, (run_dir,)), known, timeout)
    fresh = {
        name: request
        for rows in found.values()
        for name, request in (rows or {}).items()
        if name not in told and request is not None
    }
    if fresh:
        lacking = {
            node: {name: fresh[name] for name in fresh if name not in rows}
            for node, rows in found.items()
            if rows is not None
        }
        calls = {node: (run_dir, asked) for node, asked in lacking.items() if asked}
        errors.update(nodes.on_each(calls, adopt, timeout)[1])
        told.update(fresh)
    return errors


def bring(how: str, run_dir: str, nodes: Nodes, host: Node) -> list[str]:
    """Copy (``how`` is ``move``: move) the parts of dumps and the rings of killed workers from ``host`` to their places here; names
    of dumps that have another meaning here are changed. What was brought, as paths below the run's directory.

    Raises:
        OSError: a copy cannot be written, or the host does not answer.
    """
    there, here = nodes.call(host, known, run_dir), known(run_dir) or {}
    if there is None:
        return []
    brought = []
    for place in [*(os.path.join(PLACE, name) for name in there), RINGS]:
        name = os.path.basename(place)
        target = place if place == RINGS else os.path.join(PLACE, _name_here(name, there[name], here))
        for file, _ in nodes.call(host, collecting.listing, os.path.join(run_dir, place)):
            if not file or (place == RINGS and SUFFIX not in file):
                continue
            to = os.path.join(run_dir, target, file)
            if os.path.exists(to):
                continue  # a disk that all share, or what was asked for, which is everywhere
            os.makedirs(os.path.dirname(to), exist_ok=True)
            collecting.fetch(nodes, host, os.path.join(run_dir, place, file), to, remove=how == "move")
            brought.append(os.path.join(target, file))
    return brought


def _name_here(name: str, asked: DumpRow | None, here: dict[str, DumpRow | None]) -> str:
    """The name under which a dump of another host stands here: that of the one that was begun for the same reason at that moment,
    or its own, or, where that is taken, a free one."""
    called, at = DumpName.parse(name), 0.0 if asked is None else asked.at
    if called is None:
        return name
    asked_at = {mine: 0.0 if (row := here[mine]) is None else row.at for mine in _of(called.reason, here)}
    apart = {mine: abs(then - at) for mine, then in asked_at.items()}
    same = min(apart, key=lambda mine: apart[mine], default="")
    if same and apart[same] <= JOIN_WITHIN_S:
        return same
    if name in here:
        numbered = (str(called._replace(number=number)) for number in itertools.count(1))
        name = next(free for free in numbered if free not in here)
    here[name] = asked
    return name


def write_part(run_dir: str, name: str, ring: str, steps: int | None = None) -> tuple[int, ...] | None:
    """One process's part of a dump, from its ring: timeline and journal; the numbers of its steps, or ``None``: the ring is empty.

    It has the last ``steps`` (``None``: as many as its process was to write) that had begun when the dump was asked for: who hears of
    it later, and has gone on meanwhile, shows the same moment. Of a process that began later, or whose clock is behind, the last there
    are.

    Raises:
        OSError: the part cannot be written.
        ReadError: there is no ring.
    """
    found = read_ring(ring)
    steps = steps or found.dumped or STEPS
    records = [*found.steps, *([found.running] if found.running is not None else [])]
    asked = request_of(run_dir, name)
    until = None if asked is None else round(asked.at * 1e9) - found.epoch_offset
    count = sum(until is None or record.begin_ns <= until for record in records) or len(records)
    if not records:
        return None
    running = records[count - 1].step is None  # what runs between two steps is none of them
    after = [*records[count:], StepRecord(None, 0, 0, found.around)]
    records = records[max(count - steps - running, 0) : count]
    # its own key is that in the run's directory; a ring whose head was mangled has a part all the same
    row = TargetRow.read({**found.who, "key": "unknown"}, found.problems.append, "the ring") or TargetRow("unknown")
    layout, target, host, pid = Layout(os.path.join(run_dir, PLACE, name)), row.target, row.host or "", row.pid or 0
    row.key = key = layout.key(target, host, pid)
    phases = [PhaseSpec(*phase) for phase in found.phases]
    rows, phases = _rows(records, after, phases, until if is_written(ring) else None)
    opened = min(record.begin_ns for record in records)
    closed = max(row.end_ns for row in rows)
    numbers = tuple(record.step for record in records if record.step is not None)
    directory = layout.target_dir(target)
    os.makedirs(directory, exist_ok=True)
    window = WindowInfo(f"{key}-recorder", 1, numbers, None, "recorder", os.path.join(directory, f"{key}-recorder"))
    path = window.stem + TIMELINE
    cut = sum(record.cut for record in records)
    TimelineFile(window, target, host, pid, phases, rows, (), opened, closed, found.epoch_offset, cut).write(path)
    _journal(layout, row, window, path, opened, closed, found)
    return numbers


def parts(run_dir: str, name: str) -> set[str]:
    """Keys of the workers whose part is in a dump."""
    return {path.stem for path in Path(run_dir, PLACE, name, WORKERS).glob(f"*{JOURNAL}")}


def ask(run_dir: str, timeout: float, steps: int | None, say: Callable[[str], object]) -> str:
    """A dump on request: live workers put their parts there within ``timeout`` seconds, those of others are made here,
    with their last ``steps`` (``None``: as many as each was to write); ``say`` hears of rings that cannot be read. Its name.

    Raises:
        UserError: there is no run directory, or nothing can be written in it.
    """
    if not os.path.isdir(run_dir):
        raise UserError(f"{run_dir}: no such directory; name the directory of a run")
    request = Cause("request", None, "asked for by accelprof window dump")
    try:
        name = begin(run_dir, request, "the command line", 1_000_000, apart=names(run_dir))
    except OSError as error:
        raise UserError(f"{run_dir}: a dump cannot be made in it: {error}") from None
    wanted = {ring.stem for ring in rings_of(run_dir)}
    until = time.monotonic() + timeout
    while not wanted <= parts(run_dir, str(name)) and time.monotonic() < until:
        time.sleep(0.1)
    write_lost(run_dir, str(name), steps, say)
    for line in aside(run_dir):
        say(line)
    return str(name)


def aside(run_dir: str) -> list[str]:
    """Of the :data:`ASIDE_SHOWN` rings that were put aside last, what each holds and how to read it."""
    found = sorted(put_aside(run_dir), key=lambda path: path.suffix)  # which is when it was put there
    said = [
        f"{path} holds the last steps of a killed process whose name another has taken, and is in no dump. To read it, move it "
        f"to OTHER/{RINGS}/{path.stem} and run accelprof window dump --run OTHER"
        for path in found[-ASIDE_SHOWN:]
    ]
    more = len(found) - len(said)
    return [*said, f"{more} more such rings lie beside, of processes that were killed earlier"] if more else said


def unread(run_dir: str) -> set[str]:
    """Keys of the workers whose process is gone, with a ring left and no part in a dump that was made on request."""
    read = {key for name in _of("request", names(run_dir)) for key in parts(run_dir, name)}
    return {ring.stem for ring in rings_of(run_dir) if is_written(ring) is False} - read


def write_lost(run_dir: str, name: str, steps: int | None, say: Callable[[str], object]) -> None:
    """Parts of processes that have not put theirs there: they are dead, or on a file system of their own."""
    for ring in rings_of(run_dir):
        if ring.stem not in parts(run_dir, name):
            try:
                if write_part(run_dir, name, str(ring), steps) is None:
                    say(f"{ring.stem} has no part in {name}: its ring holds no step")
            except (ReadError, OSError) as error:
                say(f"{ring.stem} has no part in {name}: {error}")


def _rows(
    records: list[StepRecord], after: list[StepRecord], phases: list[PhaseSpec], until: int | None
) -> tuple[list[TimelineRow], list[PhaseSpec]]:
    """Rows of the steps ``records``, and a row a step; phases that the ring could not name have their number. A phase that began
    before the first, or goes on behind the last, is cut there; those that are known ``after`` them are asked for it too.
    ``until``: to when a step that runs did so at least."""
    rows: list[TimelineRow] = []
    phases, first = list(phases), min(record.begin_ns for record in records)
    last = records[-1].end_ns
    for record in (*records, *after):
        for row in record.rows:
            try:
                made = TimelineRow(*row)
            except TypeError:
                continue
            whole = all(isinstance(value, int) for value in (made.number, made.start_ns, made.end_ns, made.thread))
            if not whole or not 0 <= made.number < 100_000 or not isinstance(made.kind, str):
                continue
            if record is after[-1] and last is not None:
                made = made._replace(end_ns=last)  # it goes on
            if made.end_ns < first or (last is not None and made.start_ns >= last):
                continue
            if made.start_ns < first or (last is not None and made.end_ns > last):
                made = made._replace(end_ns=min(made.end_ns, last or made.end_ns), in_progress=True)
            while made.number >= len(phases):
                phases.append(PhaseSpec(f"phase {len(phases)}"))
            rows.append(made)
    for record in records:
        phases.append(PhaseSpec(f"{STEP}{record.step}" if record.step is not None else "outside steps"))
        end, runs = record.end_ns, record.end_ns is None
        if end is None:
            end = max([row.end_ns for row in rows] + [record.begin_ns, until or 0])
        rows.append(TimelineRow(len(phases) - 1, Kind.STEP.value, record.begin_ns, end, 0, "steps", in_progress=runs))
    return rows, phases


def _journal(
    layout: Layout,
    target: TargetRow,
    window: WindowInfo,
    path: str,
    opened: int,
    closed: int,
    found: Contents,
) -> None:
    """The part's journal, as a session writes one; whole or not at all, since who has one has a part.

    Raises:
        OSError: it cannot be written.
    """
    os.makedirs(layout.workers_dir, exist_ok=True)
    target.tool, target.armed, target.windows_opened = TraceTool.name, True, 1
    target.steps_seen, target.phases_seen = list(window.steps), sorted({phase[0] for phase in found.phases})
    offset = found.epoch_offset
    row = WindowRow(id=window.id, target=target.key, steps=list(window.steps), kind="recorder", tools=[TraceTool.name])
    row.opened, row.closed = Moment(opened + offset, opened), Moment(closed + offset, closed)
    file = ArtifactFile(os.path.relpath(path, layout.run_dir), TraceTool.name, (window.id,), os.path.getsize(path))
    problems = [ProblemRow(target=target.key, message=f"flight recorder: {problem}") for problem in found.problems]
    failed: list[str] = []
    with atomic.whole(layout.journal(target.key)) as place:
        journal = Journal(place, failed.append)
        journal.add(target, row, ArtifactRow.of(file, target.key, target.target, target.host, target.pid), *problems)
        journal.close()
        if failed:
            raise OSError(failed[0])


def write_stacks(run_dir: str, name: str, by: str) -> None:
    """Of a hang, the stacks of all threads of this process; written without running any of their code.

    Raises:
        OSError: they cannot be written.
    """
    if _of("hang", [name]):
        with open(os.path.join(run_dir, PLACE, name, f"stacks-{by}.txt"), "w", encoding="utf-8") as file:
            faulthandler.dump_traceback(file, all_threads=True)
