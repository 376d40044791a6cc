"""Who waited for whom on the devices: collective kernels of all ranks, matched by process group and sequence.

A collective kernel runs from when its rank is ready until the last one is and the data have moved, so it is waiting up to
the last rank's start, and transfer from there. torch writes the group, its ranks, the kind and (newer ones) the sequence
number into each NCCL or RCCL kernel; HCCL has group and number in the name. Without a number the n-th of a group and kind in
a step is meant; where ranks have different counts (a window opened late on one) those that ran at the same time belong
together. Kernels that say nothing of their group are left out: matching them would be a guess. Sends and receives are no
collectives.

Ranks are put on the driver's clock. Where the clocks of two hosts were never compared, the lengths are what is left: the last
to arrive has the shortest kernel, the others waited for what theirs are longer.

One module, because which kernels are one collective and who waited in it are asked of the same arrays.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from accelprof.analysis.critical import OUTSIDE
from accelprof.analysis.held import waited
from accelprof.analysis.holders import holders, label
from accelprof.analysis.nesting import segments
from accelprof.analysis.report_rows import Straggler, step_name
from accelprof.analysis.run import WorkerId
from accelprof.analysis.waited import Sum
from accelprof.contracts.spans import Kind
from accelprof.reading.columns import NONE, Array, Columns, groups_of, whole_number

#: rows that are kept; shorter waits are summed by the rank that was waited for
MAX_ROWS = 1000
OTHERS = "(shorter waits)"
#: of so many other ranks the median is taken that the last one is compared with, or some more
OTHERS_ASKED = 16
#: ranges that a framework puts around the call of a collective: waiting is no phase to be late in
_AROUND = re.compile(r"^(?:nccl|rccl|hccl|gloo|mpi|ucc|xccl|c10d)::?", re.IGNORECASE)
_POINT_TO_POINT = re.compile(r"^_?(?:i?send|i?recv|batch_isend_irecv|send_?recv)", re.IGNORECASE)
#: collectives that end on all ranks together: how far apart they seem to end says what the clocks are worth
_TOGETHER = re.compile(r"all_?(?:reduce|gather|to_?all)|barrier|reduce_?scatter", re.IGNORECASE)
_HCCL = re.compile(r"^hcom_([A-Za-z]+?)_*__(\d+)_(\d+)_\d+")


@dataclass(frozen=True, slots=True)
class Kinship:
    """What collectives of several ranks have in common. ``ranks``: members as the file writes them; ``size``: how many."""

    group: str
    ranks: str
    name: str
    size: int | None = None
    shown: str = ""

    @property
    def members(self) -> list[int] | None:
        """Global ranks, where the file lists all of them."""
        inner = self.ranks.strip("[] ")
        found = [whole_number(part.strip()) for part in inner.split(",")]
        return (
            [part for part in found if isinstance(part, int)] if all(isinstance(part, int) for part in found) else None
        )


@dataclass
class Runs:
    """Stretches in which one phase is worked for, sorted: what a rank did before it arrived."""

    start: Array
    end: Array
    phase: Array

    def spent(self, low: int, high: int, names: Sequence[str]) -> dict[str, int]:
        """ns by phase between two moments."""
        found: dict[str, int] = defaultdict(int)
        first, last = int(self.end.searchsorted(low, side="right")), int(self.start.searchsorted(high))
        for start, end, phase in zip(
            self.start[first:last].tolist(), self.end[first:last].tolist(), self.phase[first:last].tolist(), strict=True
        ):
            inside = min(end, high) - max(start, low)
            if inside > 0:
                found[names[phase]] += inside
        return found


@dataclass(eq=False)
class FileCollectives:
    """The collectives of one file, by start, on its own clock.

    Attributes:
        rank: in the framework's own numbering, which ``Kinship.ranks`` is in.
        shift, error: its clock minus the driver's, and how wrong that may be; ``error`` is ``None`` where nobody knows.
        key: codes into ``keys``; ``number``: sequence numbers, :data:`NONE` without; ``launch``: end of the call that
            launched it, :data:`NONE` where it is not in the file; ``step``: codes into ``steps``.
        wait_start, wait_end: the stretch of a call in which the host waited for it, :data:`NONE` where it did not; ``behind``:
            the place of the one before it, where the device was never free between both.
    """

    worker: WorkerId
    rank: int | None
    shift: int
    error: int | None
    keys: list[Kinship]
    key: Array
    number: Array
    start: Array
    end: Array
    launch: Array
    step: Array
    steps: list[Any]
    wait_start: Array
    wait_end: Array
    behind: Array
    began: int = 0
    names: list[str] = field(default_factory=list)
    host: list[Runs] = field(default_factory=list)
    device: list[Runs] = field(default_factory=list)

    # --- made when ranks are matched: one look at each of a hundred ranks' thousands must be a look into a list

    @functools.cached_property
    def starts(self) -> list[int]:
        """On the driver's clock."""
        found: list[int] = (self.start - self.shift).tolist()
        return found

    @functools.cached_property
    def ends(self) -> list[int]:
        """On the driver's clock."""
        found: list[int] = (self.end - self.shift).tolist()
        return found

    @functools.cached_property
    def ended(self) -> Array:
        """Ends in order, on its own clock."""
        return np.sort(self.end)

    @functools.cached_property
    def launched(self) -> Array:
        """Launches in order, on its own clock."""
        return np.sort(self.launch[self.launch != NONE])

    def since(self, moments: Array, until: int, side: str) -> int:
        """The last of ordered moments before ``until``, the file's beginning without one."""
        at = int(moments.searchsorted(until, side=side)) - 1
        return int(moments[at]) if at >= 0 else self.began


def kinship_of(name: str, args: Mapping[str, object]) -> tuple[Kinship, int] | None:
    """What a collective kernel says of itself, and its sequence number (:data:`NONE` without); ``None`` for other kernels."""
    operation, group = args.get("Collective name"), args.get("Process Group Name")
    if isinstance(operation, str) and isinstance(group, (str, int)) and not isinstance(group, bool):
        if _POINT_TO_POINT.match(operation):
            return None
        ranks, size, number = args.get("Process Group Ranks"), args.get("Group size"), args.get("Seq")
        shown = args.get("Process Group Description")
        named = shown if isinstance(shown, str) and shown not in ("", "undefined") else str(group)
        whole = size if type(size) is int and size > 0 else None
        kin = Kinship(str(group), ranks if isinstance(ranks, str) else "", operation.strip("_"), whole, named)
        return kin, number if type(number) is int and number >= 0 else NONE
    match = _HCCL.match(name)
    if match is None or _POINT_TO_POINT.match(match[1]):
        return None
    return Kinship(match[2], "", match[1], None, match[2]), int(match[3])


def collectives_of(
    columns: Columns,
    worker: WorkerId,
    windows: Sequence[tuple[object, int, int]],
    clock: tuple[int, int | None],
    rank: int | None = None,
) -> FileCollectives | None:
    """The collectives of one file that say whose they are, ``None`` without any.

    Args:
        windows: ``(steps, start, end)`` on the file's clock; without any the steps that the file marks.
        clock: its clock minus the driver's, and the error of that.
    """
    rows = columns.rows(Kind.COMMUNICATION)
    rows = rows[columns.device[rows] != NONE]
    found: list[tuple[int, Kinship, int]] = []
    for row in rows[np.argsort(columns.start[rows], kind="stable")].tolist():
        kin = kinship_of(columns.names[columns.name[row]], columns.known_args(row))
        if kin is not None:
            found.append((row, *kin))
    if not found:
        return None
    mine: Array = np.array([row for row, _, _ in found], dtype=np.int64)
    keys = list(dict.fromkeys(kin for _, kin, _ in found))
    codes = {kin: code for code, kin in enumerate(keys)}
    held = holders(columns)
    place: Array = np.searchsorted(held.work, mine)
    launch = held.launch[place]
    known = launch != NONE
    launched: Array = np.full(mine.size, NONE, dtype=np.int64)
    launched[known] = columns.end[launch[known]]
    steps = [(steps, start, end) for steps, start, end in windows] or _marked(columns)
    names, at = _step_of(steps, np.where(known, launched, columns.start[mine]))
    file = FileCollectives(
        worker, worker.rank if rank is None else rank, *clock, keys,
        np.array([codes[kin] for _, kin, _ in found], dtype=np.int64),
        np.array([number for _, _, number in found], dtype=np.int64),
        columns.start[mine], columns.end[mine], launched, at, names, *waited(columns, mine, launched),
        began=int(min((start for _, start, _ in steps), default=columns.start.min())),
    )  # fmt: skip
    file.names = [label(name) for name in columns.names]
    file.host = list(_host_runs(columns, held.ranges))
    file.device = list(_device_runs(columns, held))
    return file


def _marked(columns: Columns) -> list[tuple[Any, int, int]]:
    """The steps that the file itself marks, each once."""
    found: dict[str, tuple[Any, int, int]] = {}
    for row in columns.rows(Kind.STEP).tolist():
        name = columns.names[columns.name[row]]
        text = name.rpartition("#")[2]
        steps = (step,) if isinstance(step := whole_number(text), int) else name
        found.setdefault(name, (steps, int(columns.start[row]), int(columns.end[row])))
    return list(found.values())


def _step_of(steps: Sequence[tuple[object, int, int]], at: Array) -> tuple[list[Any], Array]:
    """For each moment a code into the list of steps: the last step to begin before it, the first for what comes earlier."""
    if not steps:
        return [None], np.zeros(at.size, dtype=np.int64)
    order = sorted(steps, key=lambda row: row[1])
    names = list(dict.fromkeys(row[0] for row in order))
    code: Array = np.array([names.index(row[0]) for row in order], dtype=np.int64)
    starts: Array = np.array([row[1] for row in order], dtype=np.int64)
    return names, code[np.maximum(np.searchsorted(starts, at, side="right") - 1, 0)]


def _host_runs(columns: Columns, ranges: Array) -> Iterable[Runs]:
    """What each thread did, by its innermost range."""
    kept = [row for row in ranges.tolist() if not _AROUND.match(columns.names[columns.name[row]])]
    rows: Array = np.array(kept, dtype=np.int64)
    for _, mine in groups_of(columns.thread[rows]):
        spans = rows[mine]
        pairs = list(zip(columns.start[spans].tolist(), columns.end[spans].tolist(), strict=True))
        table: Array = np.array(segments(pairs), dtype=np.int64).reshape(-1, 3)
        yield Runs(table[:, 0], table[:, 1], columns.name[spans[table[:, 2]]].astype(np.int64))


def _device_runs(columns: Columns, held: Any) -> Iterable[Runs]:
    """What each device worked for, by the innermost range around the launch; one stretch while that stays the same."""
    work = held.work
    own: Array = np.full(work.size, NONE, dtype=np.int64)
    some = held.innermost != NONE
    own[some] = columns.name[held.ranges[held.innermost[some]]]
    talks = columns.mask(Kind.COMMUNICATION)[work]
    for _, mine in groups_of(columns.device[work]):
        mine = mine[~talks[mine] & (own[mine] != NONE)]
        mine = mine[np.argsort(columns.start[work[mine]], kind="stable")]
        if not mine.size:
            continue
        phase = own[mine]
        first = np.flatnonzero(np.append(True, phase[1:] != phase[:-1]))
        start, end = columns.start[work[mine]], columns.end[work[mine]]
        yield Runs(start[first], np.maximum.reduceat(end, first), phase[first])


# --- over all ranks ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class DeviceCall:
    """One rank's part in a collective: which file, and its place there."""

    file: FileCollectives
    at: int

    @property
    def start(self) -> int:
        return self.file.starts[self.at]

    @property
    def end(self) -> int:
        return self.file.ends[self.at]

    @property
    def ns(self) -> int:
        return self.file.ends[self.at] - self.file.starts[self.at]


def device_stragglers(files: Sequence[FileCollectives]) -> list[Straggler]:
    """A row for each collective in which ranks waited, as :func:`accelprof.analysis.critical.stragglers` has them for the
    host, ``on`` the device; beyond :data:`MAX_ROWS` the shorter waits are summed by step and rank."""
    found: list[tuple[int, Straggler, list[DeviceCall], DeviceCall]] = []
    for group, _, key, number, calls, labels in each_collective(files):
        if (row := _row(key, number, group, calls, labels)) is not None:
            found.append((calls[0].start, *row))
    found.sort(key=lambda item: -item[1].waited_ns)
    shown = sorted(found[:MAX_ROWS], key=lambda item: item[0])
    rows = [dataclasses.replace(row, late_in=_late_in(calls, last)) for _, row, calls, last in shown]
    return [*rows, *_summed([row for _, row, _, _ in found[MAX_ROWS:]])]


def each_collective(
    files: Sequence[FileCollectives],
) -> Iterator[tuple[str, object, Kinship, int, list[DeviceCall], dict[int, str]]]:
    """Each collective of several ranks: ``(group, steps, what it is, its number, calls, names of ranks)``."""
    of_group: dict[tuple[str, str], list[FileCollectives]] = defaultdict(list)
    names: dict[str, object] = {}
    for file in files:
        for steps in file.steps:
            of_group[file.worker.group, repr(steps)].append(file)
            names[repr(steps)] = steps
    for (group, wanted), mine in of_group.items():
        if len({file.worker.label for file in mine}) < 2:
            continue
        labels = {file.rank: file.worker.label for file in mine if file.rank is not None}
        keys = dict.fromkeys(key for file in mine for key in file.keys)
        for key in keys:
            lists = [calls for file in mine if (calls := _calls(file, key, wanted))]
            for number, calls in enumerate(_matched(_by_worker(lists))):
                yield group, names[wanted], key, number, calls, labels


def comparable(calls: Sequence[DeviceCall]) -> bool:
    """Whether kernels can be put on one clock."""
    hosts = {call.file.worker.host for call in calls}
    return (len(hosts) == 1 and None not in hosts) or all(call.file.error is not None for call in calls)


def _calls(file: FileCollectives, key: Kinship, steps: str) -> list[DeviceCall]:
    if key not in file.keys:
        return []
    wanted = [code for code, name in enumerate(file.steps) if repr(name) == steps]
    places = np.flatnonzero((file.key == file.keys.index(key)) & np.isin(file.step, wanted))
    return [DeviceCall(file, at) for at in places.tolist()]


def _by_worker(lists: Iterable[list[DeviceCall]]) -> list[list[DeviceCall]]:
    """Files of one worker (several windows of a step) one behind the other."""
    found: dict[str, list[DeviceCall]] = defaultdict(list)
    for calls in lists:
        found[calls[0].file.worker.label].extend(calls)
    for mine in found.values():
        mine.sort(key=lambda call: call.start)
    return list(found.values())


def _matched(lists: Sequence[list[DeviceCall]]) -> list[list[DeviceCall]]:
    """The calls of each collective, one a rank; ranks that lack it are not among them."""
    if not lists:
        return []
    if all(call.file.number[call.at] != NONE for calls in lists for call in calls):
        found: dict[tuple[int, int], list[DeviceCall]] = defaultdict(list)
        for calls in lists:
            seen: dict[int, int] = defaultdict(int)
            for call in calls:
                number = int(call.file.number[call.at])
                found[number, seen[number]].append(call)
                seen[number] += 1
        return [found[key] for key in sorted(found)]
    longest = max(lists, key=len)
    joined: list[list[DeviceCall]] = [[] for _ in longest]
    for calls in lists:
        room = len(longest) - len(calls)
        shift = 0 if not room else max(range(room + 1), key=lambda by: (_together(longest[by:], calls), -by))
        for number, call in enumerate(calls):
            joined[number + shift].append(call)
    return joined


def _together(one: Sequence[DeviceCall], other: Sequence[DeviceCall]) -> int:
    """How many of two lists, taken in pairs, ran at the same time."""
    return sum(a.start < b.end and b.start < a.end for a, b in zip(one, other, strict=False))


def _row(
    key: Kinship, number: int, group: str, calls: list[DeviceCall], labels: Mapping[int, str]
) -> tuple[Straggler, list[DeviceCall], DeviceCall] | None:
    """The row of one collective without ``late_in``, its calls, and the last to arrive; ``None`` where nobody waited."""
    if len(calls) < 2:
        return None
    hosts = {call.file.worker.host for call in calls}
    same_host = len(hosts) == 1 and None not in hosts
    known = comparable(calls)
    ends_together = _TOGETHER.search(key.name) is not None
    starts, ends = [call.start for call in calls], [call.end for call in calls]
    places = range(len(calls))
    at = max(places, key=starts.__getitem__) if known else min(places, key=lambda place: ends[place] - starts[place])
    last, begun, ended = calls[at], starts[at], ends[at]
    waited = low = high = 0
    waiting: dict[str, int] = {}
    for call, start, end in zip(calls, starts, ends, strict=True):
        # a sender that is through before the last one begins (broadcast) did not wait for it
        if call is last or (known and not ends_together and end <= begun):
            continue
        taken = end - start
        ns = min(begun - start, taken) if known else taken - (ended - begun)
        if ns <= 0:
            continue
        error = 0 if same_host else (call.file.error or 0) + (last.file.error or 0)
        if ends_together:
            error = max(error, abs(end - ended))
        waited += ns
        low += max(ns - error, 0) if known else 0
        high += min(ns + error, taken) if known else taken
        waiting[call.file.worker.label] = ns
    if not waiting:
        return None
    seq, missing = int(last.file.number[last.at]), _missing(key, calls, labels)
    step = last.file.steps[int(last.file.step[last.at])]
    row = Straggler(
        step=None if step == () else step_name(step) if isinstance(step, tuple) else step, phase=key.name,
        number=number if seq == NONE else seq, group=group, worker=last.file.worker.label, waited_ns=waited, low_ns=low,
        high_ns=high, waited_by=sorted(waiting), late_in=None, missing=missing,
        without_ns=sum(min(call.ns, last.ns) for call in calls) if missing else 0, transfer_ns=None if missing else last.ns,
        on="device", process_group=key.shown or key.group, after=min(waiting, key=waiting.__getitem__),
        alone_ns=len(waiting) * min(waiting.values()),
    )  # fmt: skip
    return row, calls, last


def _missing(key: Kinship, calls: Sequence[DeviceCall], labels: Mapping[int, str]) -> list[str]:
    """Members of the group whose part is not there: workers by name, others by their rank, or by how many there are."""
    there = {call.file.rank for call in calls}
    members = key.members
    if members is not None:
        return [labels.get(rank, f"rank {rank}") for rank in members if rank not in there]
    lost = (key.size or len(calls)) - len(calls)
    return [f"{lost} of {key.size} ranks"] if lost > 0 else []


def _late_in(calls: Sequence[DeviceCall], last: DeviceCall) -> str | None:
    """The phase that took the last one longer than the median of the others since their collective before: of its host where
    it launched late, of its device where that was still at work."""
    others = [call for call in calls if call is not last]
    others = others[:: max(len(others) // OTHERS_ASKED, 1)]
    calls = [*others, last]
    behind = last.start - statistics.median(call.start for call in others)
    launches = [_launch(call) for call in others]
    mine = _launch(last)
    late = None
    if mine is not None and None not in launches:
        late = mine - statistics.median(moment for moment in launches if moment is not None)
    on_host = _excess({call: _spent(call, True) for call in calls}, last)
    on_device = _excess({call: _spent(call, False) for call in calls}, last)
    if late is not None and 2 * late >= behind:
        return on_host or on_device
    return on_device or on_host


def _launch(call: DeviceCall) -> int | None:
    moment = int(call.file.launch[call.at])
    return None if moment == NONE else moment - call.file.shift


def _spent(call: DeviceCall, host: bool) -> dict[str, int]:
    """By phase, on the host between the launches of two collectives, on the device between their runs."""
    file, at = call.file, call.at
    if host:
        until = int(file.launch[at])
        if until == NONE:
            return {}
        since, runs = file.since(file.launched, until, "left"), file.host
    else:
        until = int(file.start[at])
        since, runs = file.since(file.ended, until, "right"), file.device
    spent: dict[str, int] = defaultdict(int)
    for one in runs:
        for phase, ns in one.spent(since, until, file.names).items():
            spent[phase] += ns
    if host:
        spent[OUTSIDE] = max(until - since - sum(spent.values()), 0)
    return spent


def _excess(spent: Mapping[DeviceCall, Mapping[str, int]], last: DeviceCall) -> str | None:
    more = {
        phase: ns - statistics.median(mine.get(phase, 0) for call, mine in spent.items() if call is not last)
        for phase, ns in spent[last].items()
    }
    worst = max(more, key=lambda phase: more[phase], default=None)
    return worst if worst is not None and more[worst] > 0 else None


def _summed(rows: Iterable[Straggler]) -> list[Straggler]:
    found: dict[tuple[int | str | None, str], list[Straggler]] = defaultdict(list)
    for row in rows:
        found[row.step, row.worker].append(row)
    return [_sum_of(mine) for mine in found.values()]


def _sum_of(rows: Sequence[Straggler]) -> Straggler:
    """Several of one step and rank, the longest first, as one."""
    whole = Sum(rows[0])
    for row in rows:
        whole.add(row)
    return dataclasses.replace(
        rows[0], phase=OTHERS, number=None, waited_ns=whole.waited_ns, alone_ns=whole.alone_ns, low_ns=whole.low_ns,
        high_ns=whole.high_ns, waited_by=sorted({worker for row in rows for worker in row.waited_by}), missing=[],
        without_ns=whole.without_ns, transfer_ns=whole.transfer_ns, process_group=None,
    )  # fmt: skip
