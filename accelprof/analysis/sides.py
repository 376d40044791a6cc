"""One side of a comparison: figures per worker with what repeats in them, and what of the side is not there.

A side is a run directory, one file, or a baseline that was stored of either. One module, because what a figure is of and how many
it is the mean of must be the same whichever of the three it comes from.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import msgspec

from accelprof import atomic, texts
from accelprof.analysis.accounts import lost_launches
from accelprof.analysis.attribution import RANGES, Attribution, attribute
from accelprof.analysis.fileparts import parts_of, steps_of
from accelprof.analysis.many import Progress
from accelprof.analysis.memory import FIGURES, memory_rows
from accelprof.analysis.operators import PER_FILE, OperatorTable, operators
from accelprof.analysis.parts import OWN_TIME, SHARED_CALLS, Figure, Part, joined
from accelprof.analysis.phases import MAX_CALLS, Call, WorkerTimeline
from accelprof.analysis.reading import read_any
from accelprof.analysis.recording import of_step
from accelprof.analysis.run import is_run
from accelprof.analysis.seconds import waits_for_others
from accelprof.analysis.summary import Summary, summarise
from accelprof.analysis.waited import by_phase
from accelprof.errors import ReadError, UserError
from accelprof.output.records import WindowRow
from accelprof.reading.chrome import sources_of
from accelprof.reading.columns import Columns, columns_of

BASELINE = 3
#: the name of the figure of whole steps
STEP = "wall time of a step"
#: measures of steps, with a window and without
STEPS = ("step", "phase in steps")
#: kinds of windows that hold whole steps, or all that was selected of one; the others hold some calls of one
_OF_STEPS = frozenset({"step", "phase", "process", None})
_MARK = b'{"accelprof_baseline":'
#: ns (or bytes) beyond everything that a run has
_LONGEST = 1e30


class Name(NamedTuple):
    """What tells figures of one measure apart: how they are called and, of an own time, the phase and the worker: two that are called
    the same may be those of others."""

    name: str
    phase: str = ""
    worker: str = ""


@dataclass
class Side:
    """See the module.

    Attributes:
        workers: ``""`` is the worker of a single file.
        lacks: what should be in the figures and is not, one line each; empty for a complete side.
        refused: why it is no side at all, whatever is lacking; empty for one that is.
        notes: what lacks too little to stand in the way.
        unseen: phases in which ranks may have waited for each other, of which nothing was recorded.
        summary: what a run's figures were made of.
    """

    path: str
    parts: list[Part] = field(default_factory=list)
    workers: set[str] = field(default_factory=set)
    lacks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    refused: str = ""
    summary: Summary | None = field(default=None, repr=False)

    def devices(self, worker: str) -> set[str]:
        """Of one worker, as text."""
        return {part.device for part in self.parts if part.measure == "device" and part.worker == worker}

    def kernels(self, workers: Collection[str]) -> int:
        """How many there are of these workers."""
        return sum(part.calls for part in self.parts if part.measure == "device" and part.worker in workers)

    @property
    def empty(self) -> bool:
        """No phase and no device work."""
        return not self.kernels(self.workers) and not self.figures("phase", self.workers)

    @property
    def timings_alone(self) -> bool:
        """Steps were timed, and nothing else was recorded."""
        return self.empty and any(part.measure in STEPS for part in self.parts)

    def figures(self, measure: str, workers: Collection[str]) -> dict[Name, Figure]:
        """By name, and of an own time by whose it is: the mean over the windows of these workers, and the mean over workers of each repetition."""
        parts: dict[Name, list[Part]] = defaultdict(list)
        for part in self.parts:
            if part.measure == measure and part.worker in workers:
                parts[Name(part.name, *part.whose)].append(part)
        return {
            name: joined(mine) for name, mine in parts.items() if any(part.total_ns for part in mine) or _single(mine)
        }

    def to_json(self) -> dict[str, Any]:
        """Plain data for :func:`store`."""
        return {
            "accelprof_baseline": BASELINE,
            "path": self.path,
            "workers": sorted(self.workers),
            "lacks": self.lacks,
            "notes": self.notes,
            "unseen": self.unseen,
            "parts": [asdict(part) for part in self.parts],
        }


def _single(parts: Sequence[Part]) -> bool:
    return len({part.worker for part in parts}) == 1 and not parts[0].worker


def side(path: str, devices: Sequence[str] = (), *, processes: int = 1, progress: Progress | None = None) -> Side:
    """Figures of a run directory, a file or a stored baseline; ``devices``: only these, as text.

    Raises:
        ReadError: it cannot be read.
    """
    if os.path.isdir(path) and is_run(path):
        found = _run_side(summarise(path, processes=processes, progress=progress), path)
    else:
        found = _stored(path) or _file_side(path)
    if devices:
        found.parts = [part for part in found.parts if not part.device or part.device in devices]
    return found


def store(found: Side, path: str) -> None:
    """Write a side as a baseline, to compare later runs with when its own files are gone.

    Raises:
        UserError: something else than a baseline stands there, such as a trace that is compared.
        OSError: the file cannot be written.
    """
    if os.path.isfile(path) and os.path.getsize(path) and not _is_baseline(path):
        raise UserError(f"compare: {path} is there and no stored baseline; name another file with --save FILE")
    atomic.write(path, lambda file: file.write(texts.dumps(found.to_json(), separators=(",", ":"))))


class _Format(msgspec.Struct):
    accelprof_baseline: int


class _Stored(_Format):
    """A baseline as :meth:`Side.to_json` has it."""

    workers: set[str]
    lacks: list[str]
    notes: list[str]
    parts: list[Part]
    unseen: list[str] = []


def _is_baseline(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(_MARK)) == _MARK
    except OSError:
        return False


def _stored(path: str) -> Side | None:
    if not _is_baseline(path):
        return None
    with open(path, "rb") as file:
        data = file.read()
    try:
        version = msgspec.json.decode(data, type=_Format).accelprof_baseline
        if version != BASELINE:
            line = f"a baseline of format {version}; this version knows {BASELINE}: store it anew with --save"
            raise ReadError(path, line)
        value = msgspec.json.decode(data, type=_Stored)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ReadError(path, f"a stored baseline that is damaged: {error}") from None
    for number, part in enumerate(value.parts):
        if not all(abs(ns) < _LONGEST for ns in (part.total_ns, part.all_ns, *part.samples.values())):
            raise ReadError(
                path, f"a stored baseline that is damaged: a figure of parts[{number}] is no time that there can be"
            )
        if part.count < 1 or part.calls < 0 or part.windows < 0:
            raise ReadError(
                path, f"a stored baseline that is damaged: a count of parts[{number}] is below what there can be"
            )
    return Side(path, value.parts, value.workers, value.lacks, value.notes, value.unseen)


# --- one file ------------------------------------------------------------------------------------------------------------


def _file_side(path: str) -> Side:
    found = Side(path, workers={""})
    trace = read_any(path)
    columns = columns_of(trace)
    steps = steps_of(columns)
    attribution = attribute(trace, by_range=True)
    found.lacks = [f"{path}: {line}" for line in trace.completeness.lacks()]
    sources = sources_of(trace.metadata.get("accelprof"))
    if len(sources) > 1:
        workers = {str(source.get("worker")) for _, source, _ in sources}
        found.refused = (
            f"{path} is a merged timeline ({len(sources)} files of {len(workers)} worker{'s' * (len(workers) != 1)}), which says of no "
            "figure whose it is or of how many steps; compare the run, or the files, that it was made of"
        )
    line, much = lost_launches(attribution)
    if line:
        (found.lacks if much else found.notes).append(f"{path}: {line}")
    found.parts.extend(parts_of(columns, attribution, steps))
    late = steps.hold(columns.start) if steps.several else None
    whole = _operators_of(trace.tool, columns)
    in_steps = whole
    if late is not None and not late.all():
        in_steps = _operators_of(trace.tool, columns.take(columns.mask(*RANGES) | late))
    totals = {part.name: part.total_ns for part in in_steps}
    for part in whole:
        part.total_ns, part.all_ns = totals.get(part.name, 0.0), part.total_ns
        part.count, part.per = len(steps.whole) if steps.several else 1, steps.per
    found.parts.extend(whole)
    return found


def _operators_of(tool: str, columns: Columns) -> list[Part]:
    table = OperatorTable()
    table.add(tool, "", operators(columns))
    return list(_operator_parts(table))


# --- a run ---------------------------------------------------------------------------------------------------------------


def _run_side(summary: Summary, path: str) -> Side:
    found = Side(path, workers={timeline.worker.label for timeline in summary.timelines}, summary=summary)
    found.lacks = list(dict.fromkeys([*summary.undelivered, *summary.absent]))
    found.unseen = list(dict.fromkeys(row.phase for row in summary.waits.unseen))
    known = summary.run.manifest.windows
    for row in summary.phases:
        for timeline in summary.timelines:
            if timeline.worker.group == row.group:
                found.parts.append(_phase_part(timeline, row.group, row.phase, known))
    for timeline in summary.timelines:
        found.parts.extend(_own_parts(timeline, known))
    of_tool: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for file in summary.files:
        if file.attribution.devices:
            of_tool[file.worker.label][file.tool].extend(file.windows or ("",))
    whole: dict[str, set[str]] = defaultdict(set)
    for file in summary.files:
        whole[file.worker.label].update(row.name for row in file.attribution.phases if row.cut < row.calls)
    added: dict[tuple[str, str, str, str], Part] = {}
    for file in summary.files:
        attribution, worker = file.attribution, file.worker.label
        found.workers.add(worker)
        counts = [_counted(windows, known) for windows in of_tool[worker].values()]
        per = "step" if counts and all(mine[1] == "step" for mine in counts) else "window"
        total = sum(count for count, _ in counts) or 1
        windows = sum(len(mine) for mine in of_tool[worker].values())
        part = max(_counted(file.windows, known)[0], 1)
        for of_file in _of_attribution(worker, attribution, whole[worker]):
            _add(added, of_file, (total, per, windows), file.path, part)
    found.parts.extend(added.values())
    if summary.empty:  # all of them were timed
        found.workers.update(worker.label for worker in summary.run.workers.values())
    found.parts.extend(_step_parts(summary))
    found.parts.extend(_whole_parts(summary, known))
    found.parts.extend(_operator_parts(summary.operators, summary))
    return found


def _counted(windows: Sequence[str], known: Mapping[str, WindowRow]) -> tuple[int, str]:
    """How many steps these windows hold, where each holds whole ones; otherwise how many windows there are."""
    rows = [known.get(name) for name in windows]
    steps = {step for row in rows if row is not None for step in row.steps}
    if steps and all(row is not None and row.steps and row.kind in _OF_STEPS for row in rows):
        return len(steps), "step"
    return max(len(windows), 1), "window"


def _whole_parts(summary: Summary, known: Mapping[str, WindowRow]) -> Iterator[Part]:
    """Steps, the parts of the windows, and what each collective's last rank was waited for: each repeats over steps or windows."""
    waits = summary.waits
    walls: dict[bool, dict[str, float]] = {False: {}, True: {}}
    for timed in waits.steps:
        if timed.wall_ns:
            walls[timed.is_costly][str(timed.step)] = float(timed.wall_ns)
    for with_window, mine in walls.items():
        if mine:
            total = sum(mine.values())
            yield Part("step", STEP, "", total, len(mine), mine, "step", with_window=with_window)
    seconds: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    for row in summary.seconds:
        device = "" if row.device is None else str(row.device)
        for part, ns in row.parts.items():
            seconds[row.worker, device, part][row.window] = float(ns)
    for (worker, device, part), samples in seconds.items():
        if total := sum(samples.values()):
            count, per = _counted(list(samples), known)
            name = f"{worker}{f' device {device}' if device else ''}: {part.replace('_', ' ')}"
            windows = len(samples)
            yield Part("time of a window", name, worker, total, count, samples, per, 0, total, windows, device)
    over = {str(row.step) for row in waits.critical_path if not row.ended}
    steps = {str(step.name): len(step.steps) for step in waits.of if step.steps and str(step.name) not in over}
    count = sum(steps.values())
    waited: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(steps, 0.0))
    for (phase, step), ns in by_phase(waits.stragglers).items():
        if step in steps:
            waited[phase][step] = ns / steps[step]
    on_path: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(steps, 0.0))
    for path in waits.critical_path:
        for segment in path.segments if (step := str(path.step)) in steps else ():
            on_path[segment.phase][step] += segment.ns / steps[step]
    for measure, of_phase in (("waiting", waited), ("critical path", on_path)):
        for phase, samples in of_phase.items():
            total = sum(ns * steps[step] for step, ns in samples.items())
            yield Part(measure, phase, "", total, count, samples, "step")
    held: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for memory in memory_rows(summary.run.manifest):
        for name, value in memory.figures.items():
            if name in FIGURES:
                held[memory.worker, name][str(memory.step)] = float(value)
    for (worker, name), samples in held.items():
        yield Part("memory", f"{worker}: {name}", worker, sum(samples.values()), len(samples), samples, "step")


def _operator_parts(table: OperatorTable, summary: Summary | None = None) -> Iterator[Part]:
    """Own time of operators, of a worker: in one step where all windows hold whole ones, otherwise in a file. It repeats over the
    windows of a run, of whose workers the mean is taken."""
    sums: Counter[str] = Counter()
    for row in table.rows():
        sums[_operator_name(row.phase, row.operator)] += row.self_ns
    known = summary.run.manifest.windows if summary is not None else {}
    with_any = [file for file in summary.files if file.operators] if summary is not None else []
    counted = {file.path: _counted(file.windows, known) for file in with_any}
    of_steps = bool(counted) and all(per == "step" for _, per in counted.values())
    steps: dict[str, list[dict[str, float]]] = defaultdict(list)
    for file in with_any:
        mine: Counter[str] = Counter()
        for operator in file.operators:
            mine[_operator_name(operator.phase, operator.name)] += operator.self_ns
        size = counted[file.path][0] if of_steps else 1
        steps[str([list(known[name].steps) for name in file.windows if name in known] or file.path)].append(
            {name: ns / size for name, ns in mine.items()}
        )
    whole = all(len(file.operators) < PER_FILE for file in with_any)
    count = sum(size for size, _ in counted.values()) if of_steps else max(table.files, 1)
    for name, ns in sums.items():
        # of a file with more than are kept an operator that is not there may be one of the others
        told = whole or all(name in mine for files in steps.values() for mine in files)
        samples = (
            {step: sum(mine.get(name, 0) for mine in files) / len(files) for step, files in steps.items()}
            if told
            else {}
        )
        yield Part(
            "operator", name, "", ns, count, samples if any(samples.values()) else {}, "step" if of_steps else "window"
        )


def _operator_name(phase: str | None, operator: str) -> str:
    return operator if phase is None else f"{phase}: {operator}"


def _windows_of(timeline: WorkerTimeline, per: str) -> list[tuple[int, str, int]]:
    """``(start, what tells its repetition apart, how many steps)`` by start: where figures are of a step its steps, otherwise each
    window by itself."""
    seen: Counter[str] = Counter()
    found = []
    for start, steps in sorted((start, steps) for _, steps, start, _ in timeline.windows):
        name = str(list(steps))
        seen[name] += 1
        again = seen[name] > 1 and per != "step"
        found.append((start, f"{name} {seen[name]}" if again else name, max(len(steps), 1)))
    return found


def _phase_part(timeline: WorkerTimeline, group: str, phase: str, known: Mapping[str, WindowRow]) -> Part:
    """Of one step; of one call where windows hold some calls of a step and no more."""
    times = timeline.phases.get(phase)
    total = times.total_ns if times else 0
    all_ns, calls = times.of_calls if times else (0, 0)
    count, per = _counted([row[0] for row in timeline.windows], known)
    if per == "window" and calls:
        total, count, per = all_ns, calls, "call"
    windows = _windows_of(timeline, per)
    name, worker = f"{group}: {phase}", timeline.worker.label
    part = Part("phase", name, worker, total, count, {}, per, calls, all_ns, len(windows))
    if len(windows) > 1 and (per != "call" or phase in timeline.in_one_piece()):
        part.samples = _by_window(timeline, phase, windows, per)
    elif per == "call" and times is not None and 1 < len(times.whole) <= MAX_CALLS:
        part.samples = {str(number): float(ns) for number, ns in enumerate(times.whole)}
    return part


def _by_window(
    timeline: WorkerTimeline, phase: str, windows: Sequence[tuple[int, str, int]], per: str
) -> dict[str, float]:
    """Time of a phase in each window, of one step or one call, by where its calls begin; empty where not all calls were kept."""
    if timeline.calls_left_out:
        return {}
    sizes = {key: size for _, key, size in windows}
    found: dict[str, list[float]] = {key: [] for key in sizes}
    whole = bool(timeline.phases[phase].whole) if phase in timeline.phases else False
    for key, call in _called(timeline, phase, windows):
        if not (whole and call.cut) if per == "call" else not call.nested:
            found[key].append(call.taken_ns)
    if per != "call":
        return {key: sum(mine) / sizes[key] for key, mine in found.items()}
    return {key: sum(mine) / len(mine) for key, mine in found.items() if mine}


def _called(
    timeline: WorkerTimeline, phase: str, windows: Sequence[tuple[int, str, int]]
) -> Iterator[tuple[str, Call]]:
    starts = [start for start, _, _ in windows]
    for call in timeline.calls:
        if call.phase == phase:
            yield windows[max(bisect_right(starts, call.start_ns) - 1, 0)][1], call


def _own_parts(timeline: WorkerTimeline, known: Mapping[str, WindowRow]) -> Iterator[Part]:
    """Self time of each phase that waits for nobody: what a worker does, whoever else it holds up by that. Of one step, or of one
    call, as the phase's: of those that a window cut only where there is no other."""
    if timeline.stretches_left_out:
        return
    count, per = _counted([row[0] for row in timeline.windows], known)
    windows = _windows_of(timeline, per)
    starts = [start for start, _, _ in windows]
    found: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys((key for _, key, _ in windows), 0.0))
    totals: Counter[str] = Counter()
    of_calls: Counter[str] = Counter()
    in_one_piece = timeline.in_one_piece()
    for row in timeline.stretches:
        if row.collective or waits_for_others(row.phase, row.category):
            continue
        ns = row.end_ns - row.start_ns
        totals[row.phase] += ns
        cut = row.cut and bool(timeline.phases[row.phase].whole)
        of_calls[row.phase] += 0 if cut else ns
        if windows and not (cut and per == "window"):
            found[row.phase][windows[max(bisect_right(starts, row.start_ns) - 1, 0)][1]] += ns
    worker = timeline.worker.label
    for phase, total in totals.items():
        times = timeline.phases[phase]
        name, calls = f"{phase} on {worker}" if worker else phase, times.of_calls[1]
        part = Part(OWN_TIME, name, worker, total, count, {}, per, calls, of_calls[phase], len(windows), phase=phase)
        divisor = {key: size for _, key, size in windows}
        if per == "window":
            part.total_ns, part.count, part.per = of_calls[phase], calls, "call"
            called = _called(timeline, phase, windows)
            divisor = dict(Counter(key for key, call in called if not (call.cut and times.whole)))
        if len(windows) > 1 and (per != "window" or phase in in_one_piece):
            part.samples = {key: ns / divisor[key] for key, ns in found[phase].items() if divisor.get(key)}
        yield part


def _step_parts(summary: Summary) -> Iterator[Part]:
    """Phase times of every announced step, profiled or not, as the controller collected them: the slowest rank's."""
    found: dict[tuple[str, bool], dict[str, float]] = defaultdict(dict)
    for number, row in enumerate(summary.run.steps()):
        for tag, figures in row["seconds"].items():
            found[str(tag), of_step(row).is_costly][str(number)] = figures["max"] * 1e9
    for (tag, with_window), samples in found.items():
        total = sum(samples.values())
        yield Part("phase in steps", tag, "", total, len(samples), samples, "step", with_window=with_window)


def _of_attribution(worker: str, attribution: Attribution, with_whole: set[str]) -> Iterator[Part]:
    for device in attribution.devices:
        for measure, ns in (("device", device.busy_ns), ("device kernels", device.kernel_ns)):
            name = f"{worker} device {device.device}"
            yield Part(measure, name, worker, ns, calls=device.kernels, all_ns=ns, device=str(device.device))
    for phase in attribution.phases:
        whole, calls = phase.of_calls
        if phase.cut == phase.calls and phase.name in with_whole:
            whole, calls = {}, 0
        for at, ns in phase.busy_ns.items():
            name = f"{worker} {phase.name}"
            yield Part("phase on device", name, worker, ns, calls=calls, all_ns=whole.get(at, 0), device=str(at))


def _add(
    added: dict[tuple[str, str, str, str], Part], row: Part, counted: tuple[int, str, int], key: str, windows: int
) -> None:
    """Files of one worker are added up and divided by its steps or windows, so that runs with more of them are not slower; a phase
    in windows that hold some calls and no more is of one call. ``windows``: how many of those the file ``key`` holds."""
    count, per, of_worker = counted
    by_call = row.measure in SHARED_CALLS and per == "window"
    if by_call and not row.calls:
        return
    part = added.get((row.measure, row.name, row.worker, row.device))
    if part is None:
        part = Part(row.measure, row.name, row.worker, 0, 0 if by_call else count, {}, per, 0, 0, of_worker, row.device)
        if by_call:
            part.per = "call"
        added[row.measure, row.name, row.worker, row.device] = part
    taken = row.all_ns if by_call else row.total_ns
    part.total_ns += taken
    part.all_ns += row.all_ns
    part.calls += row.calls
    part.count += row.calls if by_call else 0
    part.samples[key] = part.samples.get(key, 0.0) + taken / (row.calls if by_call else windows)
