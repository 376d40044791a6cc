"""One side of a comparison: figures per worker with what repeats in them, and what of the side is not there.

A side is a run directory, one file, or a baseline that was stored of either.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from accelprof import texts
from accelprof.analysis.accounts import lost_launches
from accelprof.analysis.attribution import Attribution, attribute
from accelprof.analysis.fileparts import parts_of, steps_of
from accelprof.analysis.holders import launches_of
from accelprof.analysis.holders import lost_launches as lost_among
from accelprof.analysis.many import Progress
from accelprof.analysis.operators import PER_FILE, OperatorTable, operators
from accelprof.analysis.parts import Figure, Part, joined
from accelprof.analysis.phases import WorkerTimeline
from accelprof.analysis.reading import read_any
from accelprof.analysis.run import is_run
from accelprof.analysis.seconds import waits_for_others
from accelprof.analysis.summary import Summary, summarise
from accelprof.contracts.spans import Trace
from accelprof.errors import ReadError
from accelprof.output.records import WindowRow
from accelprof.reading.columns import Columns, columns_of

BASELINE = 2
#: kinds of windows that hold whole steps, or all that was selected of one; the others hold some calls of one
_OF_STEPS = frozenset({"step", "phase", "process", None})
_MARK = b'{"accelprof_baseline":'


@dataclass
class Side:
    """See the module.

    Attributes:
        devices: worker -> its devices, as text; ``""`` is the worker of a single file.
        lacks: what should be in the figures and is not, one line each; empty for a complete side.
        notes: what lacks too little to stand in the way.
        added: parts that files still add to, while a run is read.
        summary: what a run's figures were made of.
    """

    path: str
    parts: list[Part] = field(default_factory=list)
    devices: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    workers: set[str] = field(default_factory=set)
    kernels: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    lacks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    added: dict[tuple[str, str, str], Part] = field(default_factory=dict, repr=False)
    summary: Summary | None = field(default=None, repr=False)

    def figures(self, measure: str, workers: Collection[str]) -> dict[str, Figure]:
        """By name: the mean over the windows of these workers, and the mean over workers of each repetition."""
        parts: dict[str, list[Part]] = defaultdict(list)
        for part in self.parts:
            if part.measure == measure and part.worker in workers:
                parts[part.name].append(part)
        return {
            name: joined(mine) for name, mine in parts.items() if any(part.total_ns for part in mine) or _single(mine)
        }

    def to_json(self) -> dict[str, Any]:
        """Plain data for :func:`store`."""
        return {
            "accelprof_baseline": BASELINE,
            "path": self.path,
            "workers": sorted(self.workers),
            "devices": {worker: sorted(found) for worker, found in self.devices.items()},
            "kernels": dict(self.kernels),
            "lacks": self.lacks,
            "notes": self.notes,
            "parts": [asdict(part) for part in self.parts],
        }


def _single(parts: Sequence[Part]) -> bool:
    return len(parts) == 1 and not parts[0].worker


def side(path: str, devices: Sequence[str] = (), *, processes: int = 1, progress: Progress | None = None) -> Side:
    """Figures of a run directory, a file or a stored baseline; ``devices``: only these, as text.

    Raises:
        ReadError: it cannot be read.
    """
    if os.path.isdir(path) and is_run(path):
        return _run_side(summarise(path, processes=processes, progress=progress), path, devices)
    stored = _stored(path)
    return stored if stored is not None else _file_side(path, devices)


def store(found: Side, path: str) -> None:
    """Write a side as a baseline, to compare later runs with when its own files are gone.

    Raises:
        OSError: the file cannot be written.
    """
    temporary = f"{path}.{os.getpid()}.part"
    try:
        Path(temporary).write_text(texts.dumps(found.to_json(), separators=(",", ":")), encoding="utf-8")
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _stored(path: str) -> Side | None:
    try:
        with open(path, "rb") as file:
            if file.read(len(_MARK)) != _MARK:
                return None
            file.seek(0)
            value = json.load(file)
        if value["accelprof_baseline"] != BASELINE:
            version = value["accelprof_baseline"]
            raise ReadError(
                path, f"a baseline of format {version}; this version knows {BASELINE}: store it anew with --save"
            )
        found = Side(
            path, [Part(**part) for part in value["parts"]], workers=set(value["workers"]), lacks=value["lacks"],
            notes=value["notes"],
        )  # fmt: skip
        found.devices.update({worker: set(mine) for worker, mine in value["devices"].items()})
        found.kernels.update(value["kernels"])
        return found
    except OSError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReadError(path, f"a stored baseline that is damaged: {error}") from None


# --- one file ------------------------------------------------------------------------------------------------------------


def _file_side(path: str, devices: Sequence[str]) -> Side:
    found = Side(path, workers={""})
    trace = read_any(path)
    columns = columns_of(trace)
    work = columns.work()
    launches = lost_among(columns, work, *launches_of(columns, work))  # of all devices, before some are left out
    columns = _only(trace, devices)
    steps = steps_of(columns)
    attribution = attribute(trace, by_range=True)
    attribution.launches, attribution.launches_without_work = launches
    found.lacks = [f"{path}: {line}" for line in trace.completeness.lacks()]
    line, much = lost_launches(attribution)
    if line:
        (found.lacks if much else found.notes).append(f"{path}: {line}")
    for device in attribution.devices:
        found.devices[""].add(str(device.device))
        found.kernels[""] += device.kernels
    found.parts.extend(parts_of(columns, attribution, steps))
    table = OperatorTable()
    table.add(trace.tool, "", operators(columns))
    for part in _operator_parts(table):
        part.count, part.per = max(len(steps.bounds), 1) if steps.several else 1, steps.per
        found.parts.append(part)
    return found


def _only(trace: Trace, devices: Sequence[str]) -> Columns:
    columns = columns_of(trace)
    if devices:
        wanted = [code for code, device in enumerate(columns.devices) if str(device) in devices]
        keep = [row for row, device in enumerate(columns.device.tolist()) if device < 0 or device in wanted]
        trace.columns = columns = columns.take(keep)
    return columns


# --- a run ---------------------------------------------------------------------------------------------------------------


def _run_side(summary: Summary, path: str, devices: Sequence[str]) -> Side:
    found = Side(path, workers={timeline.worker.label for timeline in summary.timelines}, summary=summary)
    found.lacks = list(dict.fromkeys([*summary.undelivered, *summary.absent]))
    known = summary.run.records.windows
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
    for file in summary.files:
        attribution, worker = file.attribution, file.worker.label
        attribution.devices = [row for row in attribution.devices if not devices or str(row.device) in devices]
        found.workers.add(worker)
        counts = [_counted(windows, known) for windows in of_tool[worker].values()]
        per = "step" if counts and all(mine[1] == "step" for mine in counts) else "window"
        part = max(_counted(file.windows, known)[0], 1)
        _add_attribution(found, worker, attribution, (sum(count for count, _ in counts) or 1, per), file.path, part)
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
    report = summary.to_json()
    walls = {str(row["step"]): float(row["wall_ns"]) for row in report.get("steps") or () if row.get("wall_ns")}
    if walls:
        yield Part("step", "wall time of a step", "", sum(walls.values()), len(walls), walls, "step")
    seconds: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    for row in report.get("seconds") or ():
        device = "" if row.get("device") is None else f" device {row['device']}"
        for part, ns in row["parts"].items():
            seconds[row["worker"], f"{row['worker']}{device}", part][str(row["window"])] = float(ns)
    for (worker, where, part), samples in seconds.items():
        if any(samples.values()):
            count, per = _counted(list(samples), known)
            name = f"{where}: {part.replace('_', ' ')}"
            yield Part("time of a window", name, worker, sum(samples.values()), count, samples, per)
    paths = [row for row in report.get("critical_path") or () if row.get("segments") and row.get("ended") is not False]
    over = {str(row["step"]) for row in report.get("critical_path") or () if row.get("ended") is False}
    steps = {str(step.name): len(step.steps) for step in summary.waits.of if step.steps and str(step.name) not in over}
    count = sum(steps.values())
    waited: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(steps, 0.0))
    for row in report.get("stragglers") or ():
        if str(row["step"]) in steps:
            waited[str(row["phase"])][str(row["step"])] += row["waited_ns"] / steps[str(row["step"])]
    on_path: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(steps, 0.0))
    for row in paths:
        for segment in row["segments"] if str(row["step"]) in steps else ():
            on_path[str(segment["phase"])][str(row["step"])] += segment["ns"] / steps[str(row["step"])]
    for measure, of_phase in (("waiting", waited), ("critical path", on_path)):
        for phase, samples in of_phase.items():
            total = sum(ns * steps[step] for step, ns in samples.items())
            yield Part(measure, phase, "", total, count, samples, "step")
    held: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for row in report.get("memory") or ():
        for name in ("allocated", "reserved", "peak", "resident"):
            if name in row:
                held[str(row["worker"]), name][str(row["step"])] = float(row[name])
    for (worker, name), samples in held.items():
        yield Part("memory", f"{worker}: {name}", worker, sum(samples.values()), len(samples), samples, "step")


def _operator_parts(table: OperatorTable, summary: Summary | None = None) -> Iterator[Part]:
    """Own time of operators, a window of one worker; it repeats over the steps of a run's windows, of whose workers the mean is
    taken."""
    sums: Counter[str] = Counter()
    for row in table.to_json():
        sums[_operator_name(row["phase"], row["operator"])] += row["self_ns"]
    steps: dict[str, list[Counter[str]]] = defaultdict(list)
    whole = True
    for file in summary.files if summary is not None else ():
        known = summary.run.records.windows if summary is not None else {}
        mine: Counter[str] = Counter()
        for operator in file.operators:
            mine[_operator_name(operator.phase, operator.name)] += operator.self_ns
        whole = whole and len(file.operators) < PER_FILE
        if mine:
            steps[str([list(known[name].steps) for name in file.windows if name in known] or file.path)].append(mine)
    for name, ns in sums.items():
        # of a file with more than are kept an operator that is not there may be one of the others
        told = whole or all(name in mine for files in steps.values() for mine in files)
        samples = (
            {step: sum(mine[name] for mine in files) / len(files) for step, files in steps.items()} if told else {}
        )
        yield Part("operator", name, "", ns, max(table.files, 1), samples if any(samples.values()) else {})


def _operator_name(phase: str | None, operator: str) -> str:
    return operator if phase is None else f"{phase}: {operator}"


def _phase_part(timeline: WorkerTimeline, group: str, phase: str, known: Mapping[str, WindowRow]) -> Part:
    """Of one step; of one call where windows hold some calls of a step and no more."""
    times = timeline.phases.get(phase)
    total, calls = (times.total_ns, len(times.whole) + times.cut) if times else (0, 0)
    count, per = _counted([row[0] for row in timeline.windows], known)
    if per == "window" and calls:
        count, per = calls, "call"
    part = Part("phase", f"{group}: {phase}", timeline.worker.label, total, count, {}, per, calls)
    if not timeline.calls_left_out and len(timeline.windows) > 1:
        windows = sorted((start, str(steps), end, len(steps)) for _, steps, start, end in timeline.windows)
        starts = [row[0] for row in windows]
        taken = dict.fromkeys((row[1] for row in windows), 0.0)
        times_called: Counter[str] = Counter()
        for call in timeline.calls:
            if call.phase == phase and (index := max(bisect_right(starts, call.start_ns) - 1, 0)) < len(windows):
                taken[windows[index][1]] += call.taken_ns
                times_called[windows[index][1]] += 1
        divisor = times_called if per == "call" else Counter({row[1]: max(row[3], 1) for row in windows})
        part.samples = {name: ns / max(divisor[name], 1) for name, ns in taken.items() if divisor[name]}
    return part


def _own_parts(timeline: WorkerTimeline, known: Mapping[str, WindowRow]) -> Iterator[Part]:
    """Self time of each phase that waits for nobody, a step: what a worker does, whoever else it holds up by that."""
    if timeline.stretches_left_out:
        return
    count, per = _counted([row[0] for row in timeline.windows], known)
    windows = sorted((start, str(steps), len(steps)) for _, steps, start, _ in timeline.windows)
    starts = [row[0] for row in windows]
    found: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys((row[1] for row in windows), 0.0))
    totals: Counter[str] = Counter()
    for row in timeline.stretches:
        if row.collective or waits_for_others(row.phase, row.category):
            continue
        ns = row.end_ns - row.start_ns
        totals[row.phase] += ns
        if windows:
            _, steps, size = windows[max(bisect_right(starts, row.start_ns) - 1, 0)]
            found[row.phase][steps] += ns / max(size, 1)
    worker = timeline.worker.label
    for phase, total in totals.items():
        samples = found[phase] if len(windows) > 1 else {}
        yield Part("own time", f"{phase} on {worker}" if worker else phase, worker, total, count, samples, per)


def _step_parts(summary: Summary) -> Iterator[Part]:
    """Phase times of every announced step, profiled or not, as the controller collected them: the slowest rank's."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for number, row in enumerate(summary.run.steps()):
        for tag, figures in row["seconds"].items():
            found[str(tag)][str(number)] = figures["max"] * 1e9
    for tag, samples in found.items():
        yield Part("phase in steps", tag, "", sum(samples.values()), len(samples), samples, "step")


def _add_attribution(
    found: Side, worker: str, attribution: Attribution, counted: tuple[int, str], key: str, part: int
) -> None:
    """Files of one worker are added up and divided by its steps or windows, so that runs with more of them are not slower;
    ``part``: how many of those the file ``key`` holds."""
    for device in attribution.devices:
        found.devices[worker].add(str(device.device))
        found.kernels[worker] += device.kernels
        for measure, ns in (("device", device.busy_ns), ("device kernels", device.kernel_ns)):
            _add(found, measure, f"{worker} device {device.device}", worker, ns, counted, key, part)
    for phase in attribution.phases:
        if phase.busy_ns:
            ns = sum(phase.busy_ns.values())
            _add(found, "phase on device", f"{worker} {phase.name}", worker, ns, counted, key, part)


def _add(
    found: Side, measure: str, name: str, worker: str, ns: float, counted: tuple[int, str], key: str, windows: int
) -> None:
    count, per = counted
    part = found.added.get((measure, name, worker))
    if part is None:
        part = found.added[measure, name, worker] = Part(measure, name, worker, 0, count, {}, per)
        found.parts.append(part)
    part.total_ns += ns
    part.samples[key] = part.samples.get(key, 0.0) + ns / windows
