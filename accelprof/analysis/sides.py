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
from accelprof.analysis.attribution import KERNELS, RANGES, Attribution, attribute, label
from accelprof.analysis.many import Progress
from accelprof.analysis.operators import PER_FILE, OperatorTable, operators
from accelprof.analysis.phases import WorkerTimeline
from accelprof.analysis.reading import read_any
from accelprof.analysis.run import is_run
from accelprof.analysis.summary import Summary, summarise
from accelprof.contracts.spans import DEVICE_WORK, Kind, Trace, merge_intervals
from accelprof.errors import ReadError
from accelprof.reading.columns import Columns, columns_of

BASELINE = 1
_MARK = b'{"accelprof_baseline":'


@dataclass
class Part:
    """One figure of one worker: ``total_ns`` over ``count`` windows or files; ``samples`` are the repetitions in it by what
    tells them apart (the steps of a window, the number of a call)."""

    measure: str
    name: str
    worker: str
    total_ns: float
    count: int = 1
    samples: dict[str, float] = field(default_factory=dict)


@dataclass
class Figure:
    """A figure over workers, in ns, and its repetitions."""

    ns: float
    samples: tuple[float, ...] = ()


@dataclass
class Side:
    """See the module.

    Attributes:
        devices: worker -> its devices, as text; ``""`` is the worker of a single file.
        lacks: what should be in the figures and is not, one line each; empty for a complete side.
        added: parts that files still add to, while a run is read.
        summary: what a run's figures were made of.
    """

    path: str
    parts: list[Part] = field(default_factory=list)
    devices: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    workers: set[str] = field(default_factory=set)
    kernels: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    lacks: list[str] = field(default_factory=list)
    added: dict[tuple[str, str, str], Part] = field(default_factory=dict, repr=False)
    summary: Summary | None = field(default=None, repr=False)

    def figures(self, measure: str, workers: Collection[str]) -> dict[str, Figure]:
        """By name: the mean over the windows of these workers, and the mean over workers of each repetition."""
        parts: dict[str, list[Part]] = defaultdict(list)
        for part in self.parts:
            if part.measure == measure and part.worker in workers:
                parts[part.name].append(part)
        return {
            name: _joined(mine) for name, mine in parts.items() if any(part.total_ns for part in mine) or _single(mine)
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
            "parts": [asdict(part) for part in self.parts],
        }


def _single(parts: Sequence[Part]) -> bool:
    return len(parts) == 1 and not parts[0].worker


def _joined(parts: Sequence[Part]) -> Figure:
    count = sum(part.count for part in parts)
    keys = dict.fromkeys(key for part in parts for key in part.samples)
    found = ([part.samples[key] for part in parts if key in part.samples] for key in keys)
    total = sum(part.total_ns for part in parts)
    return Figure(total if count == 1 else total / max(count, 1), tuple(sum(mine) / len(mine) for mine in found))


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
            raise ReadError(path, f"a baseline of format {value['accelprof_baseline']}; this version knows {BASELINE}")
        found = Side(
            path, [Part(**part) for part in value["parts"]], workers=set(value["workers"]), lacks=value["lacks"]
        )
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
    found.lacks = [f"{path}: {line}" for line in trace.completeness.lacks()]
    columns = _only(trace, devices)
    steps = _steps(columns)
    attribution = attribute(trace)
    _add_attribution(found, "", "", attribution, 1, "0", columns if len(steps) > 1 else None, steps)
    calls = _calls(columns, steps)
    for row in attribution.phases:
        found.parts.append(Part("phase", row.name, "", row.wall_ns, 1, calls.get(row.name, {})))
    rows = columns.rows(*KERNELS)
    totals: Counter[str] = Counter()
    for name, start, end in zip(
        columns.name[rows].tolist(), columns.start[rows].tolist(), columns.end[rows].tolist(), strict=True
    ):
        totals[columns.names[name]] += end - start
    found.parts.extend(Part("kernel", name, "", total) for name, total in totals.items())
    table = OperatorTable()
    table.add(trace.tool, "", operators(columns))
    found.parts.extend(_operator_parts(table))
    return found


def _only(trace: Trace, devices: Sequence[str]) -> Columns:
    columns = columns_of(trace)
    if devices:
        wanted = [code for code, device in enumerate(columns.devices) if str(device) in devices]
        keep = [row for row, device in enumerate(columns.device.tolist()) if device < 0 or device in wanted]
        trace.columns = columns = columns.take(keep)
    return columns


def _steps(columns: Columns) -> list[tuple[int, int]]:
    """The steps that the file marks, each once, by start."""
    found: dict[str, tuple[int, int]] = {}
    for row in columns.rows(Kind.STEP).tolist():
        found.setdefault(columns.names[columns.name[row]], (int(columns.start[row]), int(columns.end[row])))
    return sorted(found.values())


def _calls(columns: Columns, steps: Sequence[tuple[int, int]]) -> dict[str, dict[str, float]]:
    """By phase: the time of each call, or of all calls in each step where the file marks several."""
    names = [label(text) for text in columns.names]
    calls: dict[str, list[tuple[int, int]]] = defaultdict(list)
    rows = columns.rows(*RANGES)
    for name, start, end in zip(
        columns.name[rows].tolist(), columns.start[rows].tolist(), columns.end[rows].tolist(), strict=True
    ):
        calls[names[name]].append((start, end))
    if len(steps) > 1:
        return {name: _by_step(merge_intervals(mine), steps) for name, mine in calls.items()}
    return {
        name: {str(number): float(end - start) for number, (start, end) in enumerate(mine)}
        for name, mine in calls.items()
        if len(mine) > 1
    }


def _by_step(intervals: Sequence[tuple[int, int]], steps: Sequence[tuple[int, int]]) -> dict[str, float]:
    starts = [start for start, _ in steps]
    totals = [0] * len(steps)
    for start, end in intervals:
        index = bisect_right(starts, start) - 1
        if index >= 0:
            totals[index] += end - start
    return {str(number): float(total) for number, total in enumerate(totals)}


# --- a run ---------------------------------------------------------------------------------------------------------------


def _run_side(summary: Summary, path: str, devices: Sequence[str]) -> Side:
    found = Side(path, workers={timeline.worker.label for timeline in summary.timelines}, summary=summary)
    found.lacks = [*summary.undelivered, *summary.lacks]
    for row in summary.phases:
        for timeline in summary.timelines:
            if timeline.worker.group == row.group:
                found.parts.append(_phase_part(timeline, row.group, row.phase))
    files = Counter(file.worker.label for file in summary.files if file.attribution.devices)
    for file in summary.files:
        attribution, worker = file.attribution, file.worker.label
        attribution.devices = [row for row in attribution.devices if not devices or str(row.device) in devices]
        found.workers.add(worker)
        _add_attribution(found, f"{worker} ", worker, attribution, files[worker] or 1, file.path)
    found.parts.extend(_step_parts(summary))
    found.parts.extend(_whole_parts(summary.to_json()))
    found.parts.extend(_operator_parts(summary.operators, summary))
    return found


def _whole_parts(report: Mapping[str, Any]) -> Iterator[Part]:
    """Steps, the parts of the windows, and what each collective's last rank was waited for: each repeats over steps or windows."""
    walls = {str(row["step"]): float(row["wall_ns"]) for row in report.get("steps") or () if row.get("wall_ns")}
    if walls:
        yield Part("step", "wall time of a step", "", sum(walls.values()), len(walls), walls)
    seconds: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    for row in report.get("seconds") or ():
        device = "" if row.get("device") is None else f" device {row['device']}"
        for part, ns in row["parts"].items():
            seconds[row["worker"], f"{row['worker']}{device}", part][str(row["window"])] = float(ns)
    for (worker, where, part), samples in seconds.items():
        if any(samples.values()):
            name = f"{where}: {part.replace('_', ' ')}"
            yield Part("time of a window", name, worker, sum(samples.values()), len(samples), samples)
    waited: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in report.get("stragglers") or ():
        waited[str(row["phase"])][str(row["step"])] += row["waited_ns"]
    for phase, samples in waited.items():
        yield Part("waiting", phase, "", sum(samples.values()), len(samples), dict(samples))
    paths = [row for row in report.get("critical_path") or () if row.get("segments")]
    on_path: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys((str(row["step"]) for row in paths), 0.0))
    for row in paths:
        for segment in row["segments"]:
            on_path[str(segment["phase"])][str(row["step"])] += segment["ns"]
    for phase, samples in on_path.items():
        yield Part("critical path", phase, "", sum(samples.values()), len(samples), samples)
    held: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for row in report.get("memory") or ():
        for name in ("allocated", "reserved", "peak", "resident"):
            if name in row:
                held[str(row["worker"]), name][str(row["step"])] = float(row[name])
    for (worker, name), samples in held.items():
        yield Part("memory", f"{worker}: {name}", worker, sum(samples.values()), len(samples), samples)


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


def _phase_part(timeline: WorkerTimeline, group: str, phase: str) -> Part:
    times = timeline.phases.get(phase)
    part = Part(
        "phase", f"{group}: {phase}", timeline.worker.label, times.total_ns if times else 0, len(timeline.windows)
    )
    if not timeline.calls_left_out and len(timeline.windows) > 1:
        windows = sorted((start, str(steps), end) for _, steps, start, end in timeline.windows)
        starts = [row[0] for row in windows]
        part.samples = {row[1]: 0.0 for row in windows}
        for call in timeline.calls:
            if call.phase == phase and (index := max(bisect_right(starts, call.start_ns) - 1, 0)) < len(windows):
                part.samples[windows[index][1]] += call.taken_ns
    return part


def _step_parts(summary: Summary) -> Iterator[Part]:
    """Phase times of every announced step, profiled or not, as the controller collected them: the slowest rank's."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for number, row in enumerate(summary.run.steps()):
        for tag, figures in row["seconds"].items():
            found[str(tag)][str(number)] = figures["max"] * 1e9
    for tag, samples in found.items():
        yield Part("phase in steps", tag, "", sum(samples.values()), len(samples), samples)


# --- both ----------------------------------------------------------------------------------------------------------------


def _add_attribution(
    found: Side,
    prefix: str,
    worker: str,
    attribution: Attribution,
    files: int,
    key: str,
    columns: Columns | None = None,
    steps: Sequence[tuple[int, int]] = (),
) -> None:
    """``files`` of one worker are added up and divided, so that runs with more windows are not slower."""
    for device in attribution.devices:
        found.devices[worker].add(str(device.device))
        found.kernels[worker] += device.kernels
        name = f"{prefix}device {device.device}"
        samples = _device_steps(columns, device.device, steps) if columns is not None else {}
        _add(found, "device", name, worker, device.busy_ns, files, key, samples)
        _add(found, "device kernels", name, worker, device.kernel_ns, files, key, {})
    for phase in attribution.phases:
        if phase.busy_ns:
            _add(found, "phase on device", f"{prefix}{phase.name}", worker, sum(phase.busy_ns.values()), files, key, {})


def _device_steps(columns: Columns, device: object, steps: Sequence[tuple[int, int]]) -> dict[str, float]:
    rows = [row for row in columns.rows(*DEVICE_WORK).tolist() if columns.devices[columns.device[row]] == device]
    work = merge_intervals((int(columns.start[row]), int(columns.end[row])) for row in rows)
    return _by_step(work, steps)


def _add(
    found: Side, measure: str, name: str, worker: str, ns: float, files: int, key: str, samples: dict[str, float]
) -> None:
    mine = samples or ({key: ns} if files > 1 else {})
    part = found.added.get((measure, name, worker))
    if part is None:
        part = found.added[measure, name, worker] = Part(measure, name, worker, ns, files, mine)
        found.parts.append(part)
        return
    part.total_ns += ns
    part.samples[key] = part.samples.get(key, 0.0) + ns
