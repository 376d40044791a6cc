"""Device work by the host phase that launched it.

A piece of work belongs to the ranges that hold its launch (the runtime call with the same correlation, unique in its
process): the innermost one exclusively, every enclosing one inclusively. :mod:`accelprof.analysis.holders` finds them.

The ranges are those on the launching thread. Where none there holds the launch (autograd's thread runs backward while
the thread that called it waits inside the phase), they are those of the one other thread of its process that is inside a
range at that moment. A framework's thread (:mod:`accelprof.reading.frameworks`: autograd's, gloo's, NCCL's) is no other
thread beside one that is inside a phase, and its own ranges count inside that phase. Where several threads could be meant
nothing is guessed: the work is given to none of them and counted by the names of the ranges it could belong to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from accelprof.analysis.holders import KERNELS as KERNELS
from accelprof.analysis.holders import RANGES as RANGES
from accelprof.analysis.holders import Holders, holders, lost_launches
from accelprof.analysis.holders import label as label
from accelprof.analysis.intervals import PART, distinct, lengths_by, merged, merged_by, overlap_length
from accelprof.contracts.spans import Kind, Span, Trace
from accelprof.reading.columns import CODES, NONE, Array, Columns, Names, columns_of

Device = int | str


@dataclass
class DeviceFigures:
    """One device in one file. Times in ns.

    Attributes:
        busy_ns, kernel_ns, communication_ns: unions of all work, of kernels, of collectives.
        span_ns: the stretch from the first to the last piece of work.
        window_ns: length of the file's windows, 0 where it says nothing of them; ``busy_in_window_ns``: busy in them.
    """

    device: Device
    kernels: int = 0
    copies: int = 0
    busy_ns: int = 0
    kernel_ns: int = 0
    communication_ns: int = 0
    span_ns: int = 0
    window_ns: int = 0
    busy_in_window_ns: int = 0

    @property
    def idle_ns(self) -> int:
        """Time of the windows without any work, at both ends too; without windows of the stretch between."""
        return self.window_ns - self.busy_in_window_ns if self.window_ns else self.span_ns - self.busy_ns

    @property
    def window_share(self) -> float | None:
        """Part of the windows in which the device works; ``None`` where the file says nothing of windows."""
        return self.busy_in_window_ns / self.window_ns if self.window_ns else None

    @property
    def work_share(self) -> float | None:
        """Part of the stretch from the first to the last piece of work in which it works."""
        return self.busy_ns / self.span_ns if self.span_ns else None


@dataclass
class PhaseFigures:
    """One phase (all calls of one name) in one file.

    Attributes:
        wall_ns: union of its calls on the host, added over processes; a call inside one of the same name counts once.
        busy_ns: device -> union of the work launched inside it, nested ranges included.
        own_busy_ns: device -> the same for work whose innermost range it is.
        idle_ns: time of its wall in which none of its devices did any work, whoever launched it; ``None`` without device work.
        communication_ns: union over its devices of collective kernels, also contained in ``busy_ns``.
        top: ``(kernel name, count, total ns)``, longest first.
        calls_without_work: whole calls in which nothing was launched that ran on a device.
        outlasting: ``(kernel, its ns, the call's ns)`` of the longest piece of work that took longer than the outermost
            call that launched it; ``None`` without one. A measurement that did not end, or work that others wait for;
            collectives, which wait for other ranks, are left out.
        cut: calls that recording cut; ``whole_busy_ns``: ``busy_ns`` of the others alone, ``None`` where that is the same.
    """

    name: str
    calls: int = 0
    wall_ns: int = 0
    kernels: int = 0
    own_kernels: int = 0
    busy_ns: dict[Device, int] = field(default_factory=dict)
    own_busy_ns: dict[Device, int] = field(default_factory=dict)
    communication_ns: int = 0
    idle_ns: int | None = None
    top: list[tuple[str, int, int]] = field(default_factory=list)
    calls_without_work: int = 0
    outlasting: tuple[str, int, int] | None = None
    cut: int = 0
    whole_busy_ns: dict[Device, int] | None = None

    @property
    def of_calls(self) -> tuple[Mapping[Device, int], int]:
        """``(device -> ns, calls)`` of whole calls; of cut ones where there is no other."""
        if self.cut in (0, self.calls):
            return self.busy_ns, self.calls
        return self.whole_busy_ns or {}, self.calls - self.cut


@dataclass
class Attribution:
    """What :func:`attribute` found.

    The kernels of the devices are exactly the ``own_kernels`` of all phases, the unattributed and the unlaunched.

    Attributes:
        unattributed: kernels whose launch lies in no range, or in ranges of several other threads (``undecided``).
        undecided: of the unattributed, by the innermost range of each thread that could have been meant.
        undecided_around: kernels in a range of a framework's thread that counts inside no phase, because several
            threads were inside one, by the innermost of each.
        unlaunched: kernels whose launch is not in the file: launched before the window, or by what was not recorded.
        unnumbered: of the unlaunched, those of which the file does not say the launch's number.
        by_time: pieces of work given to a range of another thread.
        launches: of kernels and graphs; ``launches_without_work``: those of them whose work is not in the file.
        steps: kernels that were launched between begin and end of each of the file's steps, by their names.
        overhead: ns that the tool itself took on the host, as its file says, by what it did.
        busy_of: row of a range -> device -> ns of the work launched in it, where that is asked for.
    """

    devices: list[DeviceFigures] = field(default_factory=list)
    phases: list[PhaseFigures] = field(default_factory=list)
    unattributed: int = 0
    undecided: Counter[tuple[str, ...]] = field(default_factory=Counter)
    undecided_around: Counter[tuple[str, ...]] = field(default_factory=Counter)
    unlaunched: int = 0
    unnumbered: int = 0
    by_time: int = 0
    steps: dict[str, int] = field(default_factory=dict)
    launches: int = 0
    launches_without_work: int = 0
    overhead: Counter[str] = field(default_factory=Counter)
    busy_of: dict[int, dict[Device, int]] = field(default_factory=dict)

    @property
    def kernels(self) -> int:
        """Kernels of all devices, collectives included."""
        return sum(row.kernels for row in self.devices)

    def left_over(self) -> list[tuple[str, int]]:
        """``(reason, kernels)`` for the kernels that stand in no phase; the longest list first, empty when all do."""
        outside = self.unattributed - self.undecided.total()
        rows = [(f"undecided: {' or '.join(names)}", count) for names, count in self.undecided.most_common()]
        if outside:
            rows.append(("launched outside every range", outside))
        if self.unlaunched > self.unnumbered:
            rows.append(("launch not in the file", self.unlaunched - self.unnumbered))
        if self.unnumbered:
            rows.append(("the file does not say which launch", self.unnumbered))
        return sorted(rows, key=lambda row: -row[1])

    def around(self) -> list[tuple[str, int]]:
        """The same for kernels that stand in a framework's range, and in no phase around it."""
        return [
            (f"around it undecided: {' or '.join(names)}", count)
            for names, count in self.undecided_around.most_common()
        ]


def attribute(trace: Trace, top: int = 5, kinds: Iterable[Kind] = RANGES, *, by_range: bool = False) -> Attribution:
    """Figures per device and per phase (by :func:`label`) of one trace; see the module for the rule. ``by_range``: of each range too."""
    columns = columns_of(trace)
    result = Attribution(devices=device_figures(columns))
    found = holders(columns, kinds)
    work, kernel = found.work, found.kernel
    result.unlaunched = int((kernel & (found.launch == NONE) & ~found.foreign).sum())
    result.unnumbered = int((kernel & (columns.correlation[work] == NONE)).sum())
    result.unattributed = int((kernel & (found.innermost == NONE)).sum()) - result.unlaunched
    result.undecided.update(found.undecided)
    result.undecided_around.update(found.undecided_around)
    result.by_time = found.by_time
    _phases(columns, found, work, top, result)
    if by_range:
        busy = _by_device(columns, found.pair_range, found.work[found.pair_work], len(columns.devices))
        for place, taken in busy.items():
            result.busy_of[int(found.ranges[place])] = {columns.devices[code]: ns for code, ns in taken}
    result.steps = _steps(columns, found)
    result.launches, result.launches_without_work, _ = lost_launches(columns, work, found.launch, found.foreign)
    for row in columns.rows(Kind.OVERHEAD).tolist():
        result.overhead[columns.names[columns.name[row]]] += int(columns.end[row] - columns.start[row])
    return result


def _steps(columns: Columns, found: Holders) -> dict[str, int]:
    """Kernels launched in each step, on whatever thread of its process."""
    counts: dict[str, int] = {}
    launched = found.launch[found.kernel & (found.launch != NONE)]
    of_process, at = columns.process[launched], columns.start[launched]
    steps = columns.rows(Kind.STEP)
    inside: Array = np.zeros(steps.size, dtype=np.int64)
    for process in np.unique(columns.process[steps]).tolist():
        mine = columns.process[steps] == process
        times, rows = np.sort(at[of_process == process]), steps[mine]
        inside[mine] = np.searchsorted(times, columns.end[rows], "right") - np.searchsorted(times, columns.start[rows])
    for row, kernels in zip(steps.tolist(), inside.tolist(), strict=True):
        name = columns.names[columns.name[row]]
        counts[name] = counts.get(name, 0) + kernels
    return counts


def device_figures(spans: Columns | Iterable[Span]) -> list[DeviceFigures]:
    """Busy time (union), communication and counts per device."""
    columns = spans if isinstance(spans, Columns) else Columns.from_spans(list(spans))
    work = columns.work()
    device, start, end = columns.device[work], columns.start[work], columns.end[work]
    kernel = columns.mask(*KERNELS)[work]
    talks = columns.mask(Kind.COMMUNICATION)[work]
    count = len(columns.devices)
    busy = lengths_by(device, start, end, count)
    computing = lengths_by(device[kernel], start[kernel], end[kernel], count)
    talking = lengths_by(device[talks], start[talks], end[talks], count)
    pieces = np.bincount(device, minlength=count)
    kernels = np.bincount(device[kernel], minlength=count)
    rows = []
    for code, name in sorted(enumerate(columns.devices), key=lambda item: str(item[1])):
        if pieces[code]:
            mine = device == code
            rows.append(
                DeviceFigures(
                    name, int(kernels[code]), int(pieces[code] - kernels[code]), int(busy[code]), int(computing[code]),
                    int(talking[code]), int(end[mine].max() - start[mine].min()),
                )
            )  # fmt: skip
    return rows


def _phases(columns: Columns, found: Holders, work: Array, top: int, result: Attribution) -> None:
    """A row for each name of a range. Groups are a name in a process: walls and idle times of processes add up."""
    ranges = found.ranges
    labels = Names()
    by_name: Array = np.array([labels.code(label(name)) for name in columns.names] or [0], dtype=np.int64)
    count, processes = len(labels.values), len(columns.processes)
    of_range = by_name[columns.name[ranges]]
    calls = np.bincount(of_range, minlength=count)
    group = of_range * processes + columns.process[ranges]
    wall_of, wall_start, wall_end = merged_by(group, columns.start[ranges], columns.end[ranges])
    wall: Array = np.zeros(count, dtype=np.int64)
    np.add.at(wall, wall_of // processes, wall_end - wall_start)

    # inclusive: each piece of work once for each name around its launch
    name_of_pair = by_name[columns.name[ranges[found.pair_range]]]
    whole = _of_whole_calls(columns, found, of_range, name_of_pair, count)
    piece, name = _unique_pairs(found.pair_work, name_of_pair)
    del name_of_pair
    rows = work[piece]
    kernel = found.kernel[piece]
    devices = len(columns.devices)
    kernels = np.bincount(name[kernel], minlength=count)
    busy = _by_device(columns, name, rows, devices)
    talks = columns.kind[rows] == CODES[Kind.COMMUNICATION]
    communication: Array = np.zeros(count, dtype=np.int64)
    for code, taken in _by_device(columns, name[talks], rows[talks], devices).items():
        communication[code] = sum(ns for _, ns in taken)
    idle = _idle(columns, found, (piece, name), (wall_of, wall_start, wall_end), count)

    # exclusive: by the innermost range
    held = np.flatnonzero(found.innermost != NONE)
    own_name = by_name[columns.name[ranges[found.innermost[held]]]]
    own_kernels = np.bincount(own_name[found.kernel[held]], minlength=count)
    own_busy = _by_device(columns, own_name, work[held], devices)

    longest = _longest_kernels(columns, name[kernel], rows[kernel], top)
    empty, outlasting = _doubts(columns, found, of_range, by_name, count)
    for code in np.flatnonzero(calls).tolist():
        result.phases.append(
            PhaseFigures(
                labels.values[code], int(calls[code]), int(wall[code]), int(kernels[code]), int(own_kernels[code]),
                {columns.devices[at]: taken for at, taken in busy.get(code, ())},
                {columns.devices[at]: taken for at, taken in own_busy.get(code, ())},
                int(communication[code]), int(idle[code]) if code in busy else None, longest.get(code, []),
                int(empty[code]), outlasting.get(code), *whole.get(code, (0, None)),
            )
        )  # fmt: skip
    result.phases.sort(key=lambda row: (-sum(row.busy_ns.values()), -row.wall_ns, row.name))


def _of_whole_calls(
    columns: Columns, found: Holders, of_range: Array, name_of_pair: Array, count: int
) -> dict[int, tuple[int, dict[Device, int] | None]]:
    """For each name with calls that recording cut how many, and where it has others the work of those by device."""
    cut = columns.cut[found.ranges]
    if not cut.any():
        return {}
    cuts, calls = np.bincount(of_range[cut], minlength=count), np.bincount(of_range, minlength=count)
    asked = np.flatnonzero(~cut[found.pair_range] & ((cuts > 0) & (cuts < calls))[name_of_pair])
    piece, name = _unique_pairs(found.pair_work[asked], name_of_pair[asked])
    busy = _by_device(columns, name, found.work[piece], len(columns.devices))
    return {
        code: (int(cuts[code]), {columns.devices[at]: taken for at, taken in busy.get(code, ())})
        for code in np.flatnonzero(cuts).tolist()
    }


def _small(codes: Array) -> Array:
    """The same numbers in half the memory, where they are small enough."""
    return codes.astype(np.int32) if codes.size and int(codes.max()) < 1 << 31 else codes


def _unique_pairs(one: Array, other: Array) -> tuple[Array, Array]:
    """Each combination once, sorted."""
    if not one.size:
        return one.astype(np.int64), other.astype(np.int64)
    width = int(other.max()) + 1
    both = distinct(one.astype(np.int64) * width + other)
    first, second = np.divmod(both, width)
    del both
    return first.astype(np.int32), second.astype(np.int32)


def _by_device(columns: Columns, name: Array, rows: Array, devices: int) -> dict[int, list[tuple[int, int]]]:
    """name -> ``(device, ns)`` of the union of its work on each of its devices."""
    found: dict[int, list[tuple[int, int]]] = {}
    width = max(devices, 1)
    both = _small(name.astype(np.int64) * width + columns.device[rows])
    if not both.size:
        return found
    group, keys = _dense(both)
    del both
    lengths = lengths_by(group, columns.start, columns.end, keys.size, rows)
    for key, taken in zip(keys.tolist(), lengths.tolist(), strict=True):
        found.setdefault(key // max(devices, 1), []).append((key % max(devices, 1), taken))
    return found


def _idle(
    columns: Columns, found: Holders, pairs: tuple[Array, Array], walls: tuple[Array, Array, Array], count: int
) -> Array:
    """For each name the time of its calls in which none of its devices in that process did any work. ``pairs``: pieces of
    work and names around their launch."""
    wall_of, wall_start, wall_end = walls
    idle: Array = np.zeros(count, dtype=np.int64)
    processes, devices, work = len(columns.processes), max(len(columns.devices), 1), found.work
    there: list[Array] = [np.zeros(0, dtype=np.int64)]
    for begin in range(0, pairs[0].size, PART):
        piece, name = (column[begin : begin + PART] for column in pairs)
        owner = columns.process[found.launch[piece]]
        there.append(distinct((name.astype(np.int64) * processes + owner) * devices + columns.device[work[piece]]))
    of, which = np.divmod(distinct(np.concatenate(there)), devices)
    cuts: Array = np.flatnonzero(np.diff(of)) + 1
    groups: dict[tuple[int, ...], list[int]] = {}
    for key, used in zip(of[np.append(0, cuts)].tolist() if of.size else [], np.split(which, cuts), strict=False):
        groups.setdefault(tuple(used.tolist()), []).append(key)
    of_wall: Array = wall_of
    for used, keys in groups.items():
        mine = work[np.isin(columns.device[work], used)]
        busy = merged(columns.start[mine], columns.end[mine])
        rows = np.flatnonzero(np.isin(of_wall, keys))
        covered = overlap_length(wall_start[rows], wall_end[rows], *busy)
        np.add.at(idle, of_wall[rows] // processes, wall_end[rows] - wall_start[rows] - covered)
    return idle


def _longest_kernels(columns: Columns, name: Array, rows: Array, top: int) -> dict[int, list[tuple[str, int, int]]]:
    """name -> ``(kernel, count, total ns)`` of its kernels with the largest totals."""
    if not rows.size:
        return {}
    kernel_of, kernels = _dense(columns.name[rows])
    phase_of, phases = _dense(name)
    key = _small(phase_of.astype(np.int64) * kernels.size + kernel_of)
    del phase_of, kernel_of
    counts = np.bincount(key, minlength=phases.size * kernels.size)
    total: Array = np.zeros(counts.size, dtype=np.int64)
    for begin in range(0, rows.size, PART):
        part = rows[begin : begin + PART]
        np.add.at(total, key[begin : begin + PART], columns.end[part] - columns.start[part])
    keys = np.flatnonzero(counts)
    found: dict[int, list[tuple[str, int, int]]] = {}
    for place in keys[np.lexsort((kernels[keys % kernels.size], -total[keys], keys // kernels.size))].tolist():
        phase, kernel = divmod(place, kernels.size)
        mine = found.setdefault(int(phases[phase]), [])
        if len(mine) < top:
            mine.append((columns.names[int(kernels[kernel])], int(counts[place]), int(total[place])))
    return found


def _dense(codes: Array) -> tuple[Array, Array]:
    """``(place, values)``: the codes that there are, in order, and the place among them of each."""
    there: Array = np.zeros(int(codes.max()) + 1, dtype=np.bool_)
    there[codes] = True
    values = np.flatnonzero(there)
    place: Array = np.zeros(there.size, dtype=np.int32)
    place[values] = np.arange(values.size)
    return place[codes], values


def _doubts(
    columns: Columns, found: Holders, of_range: Array, by_name: Array, count: int
) -> tuple[Array, dict[int, tuple[str, int, int]]]:
    """Whole calls without any work, by name; and name -> ``(kernel, its ns, the call's ns)`` of the longest piece of work that
    took longer than the outermost call that launched it."""
    ranges, work = found.ranges, found.work
    empty_handed = ~columns.cut[ranges]
    empty_handed[found.pair_range] = False
    empty = np.bincount(of_range[empty_handed], minlength=count)
    outlasting: dict[int, tuple[str, int, int]] = {}
    outer = found.outermost
    # a collective lasts until the last rank arrives: how long is said where its ranks are matched
    held = np.flatnonzero((outer != NONE) & (columns.kind[work] != CODES[Kind.COMMUNICATION]))
    took = columns.end[work[held]] - columns.start[work[held]]
    call = ranges[outer[held]]
    lasted = columns.end[call] - columns.start[call]
    late = np.flatnonzero(took > lasted)
    for at in late[np.argsort(took[late], kind="stable")].tolist():
        code = int(by_name[columns.name[call[at]]])
        outlasting[code] = (columns.names[columns.name[work[held[at]]]], int(took[at]), int(lasted[at]))
    return empty, outlasting
