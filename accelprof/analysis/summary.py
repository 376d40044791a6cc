"""A run in figures: phases over ranks, device time per tool and phase, and what was asked for but not delivered."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from accelprof.analysis.attribution import Attribution, DeviceFigures, PhaseFigures, attribute
from accelprof.analysis.phases import PhaseRow, WorkerTimeline, phase_rows
from accelprof.analysis.reading import read_any
from accelprof.analysis.run import Run, WorkerId, open_run
from accelprof.analysis.snapshot import read_snapshot
from accelprof.errors import AccelprofError, ReadError
from accelprof.spans import Clock, Trace

TIMELINE_TOOL = "trace"
SNAPSHOT_SUFFIX = ".memory.pickle"
#: larger files are left to an explicit ``accelprof report`` when a run ends, so that training's end is not held up
MAX_AT_END_BYTES = 64 << 20
FORMAT = 1


@dataclass
class ToolFile:
    """Device figures of one vendor file. ``note`` says why there are none."""

    worker: WorkerId
    tool: str
    path: str
    windows: tuple[str, ...] = ()
    attribution: Attribution = field(default_factory=Attribution)
    facts: dict[str, Any] = field(default_factory=dict)
    note: str = ""


@dataclass
class Summary:
    """Everything a report shows.

    Attributes:
        undelivered: what was asked for and did not come; not empty = the command line ends with status 1.
        problems: what went wrong without that: files that could not be read, events left out, the manifest's own.
    """

    run: Run
    timelines: list[WorkerTimeline] = field(default_factory=list)
    phases: list[PhaseRow] = field(default_factory=list)
    files: list[ToolFile] = field(default_factory=list)
    undelivered: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Nothing was measured: no window was opened and no file read."""
        return not any(timeline.windows or timeline.calls for timeline in self.timelines) and not self.files

    def to_json(self) -> dict[str, Any]:
        """Plain data with stable names; times in ns."""
        manifest = self.run.manifest
        return {
            "format": FORMAT,
            "run": manifest.get("run"),
            "directory": self.run.directory,
            "created": manifest.get("created"),
            "delivered": not self.undelivered and not self.empty,
            "undelivered": self.undelivered,
            "problems": self.problems,
            "workers": [_worker_json(timeline) for timeline in self.timelines],
            "phases": [_phase_json(row) for row in self.phases],
            "devices": [_file_json(file) for file in self.files],
            "metrics": manifest.get("metrics") or {},
        }


def summarise(
    run_dir: str | os.PathLike[str],
    *,
    max_bytes: int | None = None,
    on_trace: Callable[[Mapping[str, Any], WorkerId, Trace], None] | None = None,
) -> Summary:
    """Read a run directory. A file that cannot be read is named and the others count.

    Args:
        max_bytes: files larger than this are left out, and named.
        on_trace: gets ``(artifact, worker, trace)`` of every file read.

    Raises:
        ReadError: there is no run in the directory.
    """
    run = open_run(run_dir)
    summary = Summary(run, undelivered=list(run.undelivered()), problems=list(run.problems))
    timelines: dict[str, WorkerTimeline] = {}
    for artifact in run.rows("artifacts"):
        if artifact.get("state") == "missing":
            continue
        worker, path, tool = run.worker(artifact), run.path(artifact), str(artifact.get("tool") or "")
        where = f"{worker.label}: {artifact.get('path')}"
        if not os.path.exists(path):
            at = f"on {artifact['host']}" if artifact.get("remote") else "not there"
            summary.problems.append(f"{where} was not read: it is {at}")
            continue
        if max_bytes is not None and os.path.isfile(path) and os.path.getsize(path) > max_bytes:
            summary.problems.append(f"{where} was not read: {os.path.getsize(path)} bytes; `accelprof report` reads it")
            continue
        if path.endswith(SNAPSHOT_SUFFIX):
            _add_snapshot(summary, worker, tool, path, artifact, where)
            continue
        try:
            trace = read_any(path, tool or None)
        except AccelprofError as error:
            reason = error.reason if isinstance(error, ReadError) else str(error)
            summary.problems.append(f"{where} was not read: {reason}")
            continue
        summary.problems.extend(f"{where}: {problem}" for problem in trace.problems)
        if on_trace is not None:
            on_trace(artifact, worker, trace)
        if tool == TIMELINE_TOOL:
            timelines.setdefault(worker.key, WorkerTimeline(worker)).add(trace)
        else:
            summary.files.append(_tool_file(worker, tool, artifact, trace))
    for timeline in timelines.values():
        timeline.finish()
        if timeline.dropped:
            summary.problems.append(f"{timeline.worker.label}: {timeline.dropped} spans were dropped (trace.max_spans)")
    summary.timelines = sorted(timelines.values(), key=lambda item: _order(item.worker))
    summary.files.sort(key=lambda file: (file.tool, _order(file.worker), file.path))
    summary.phases = phase_rows(summary.timelines)
    if summary.empty and not summary.undelivered:
        summary.undelivered.append("no window was opened in this run; nothing was measured")
    return summary


def _add_snapshot(
    summary: Summary, worker: WorkerId, tool: str, path: str, artifact: Mapping[str, Any], where: str
) -> None:
    try:
        facts = read_snapshot(path)
    except ReadError as error:
        summary.problems.append(f"{where} was not read: {error.reason}")
        return
    windows = tuple(str(window) for window in artifact.get("windows") or ())
    note = "" if facts.events or facts.segments else "the snapshot is empty"
    summary.files.append(ToolFile(worker, tool, path, windows, facts=dataclasses.asdict(facts), note=note))


def _tool_file(worker: WorkerId, tool: str, artifact: Mapping[str, Any], trace: Trace) -> ToolFile:
    windows = tuple(str(window) for window in artifact.get("windows") or ())
    found = attribute(trace)
    note = "" if found.devices else "no device work in this file" if trace.spans else "no events in this file"
    facts = {"spans": len(trace.spans), "marks": len(trace.marks), "clock": trace.clock.value}
    if trace.clock is not Clock.EPOCH:
        facts["aligned"] = False
    return ToolFile(worker, tool, str(artifact.get("path")), windows, found, facts, note)


def _order(worker: WorkerId) -> tuple[Any, ...]:
    return (worker.group, worker.replica or 0, worker.rank is None, worker.rank or 0, worker.label)


def _worker_json(timeline: WorkerTimeline) -> dict[str, Any]:
    return {
        "worker": timeline.worker.label,
        "key": timeline.worker.key,
        "window_ns": timeline.window_ns,
        "dropped": timeline.dropped,
        "windows": [
            {"id": identity, "steps": list(steps), "start_ns": start, "end_ns": end}
            for identity, steps, start, end in timeline.windows
        ],
    }


def _phase_json(row: PhaseRow) -> dict[str, Any]:
    return {**dataclasses.asdict(row), "spread": row.spread}


def _file_json(file: ToolFile) -> dict[str, Any]:
    return {
        "worker": file.worker.label,
        "tool": file.tool,
        "path": file.path,
        "windows": list(file.windows),
        "note": file.note,
        "facts": file.facts,
        "devices": [_device_json(row) for row in file.attribution.devices],
        "phases": [_gpu_phase_json(row) for row in file.attribution.phases],
        "unattributed_kernels": file.attribution.unattributed,
        "kernels_without_launch": file.attribution.unlaunched,
        "attributed_by_time": file.attribution.by_time,
    }


def _device_json(row: DeviceFigures) -> dict[str, Any]:
    return {**dataclasses.asdict(row), "idle_ns": row.idle_ns}


def _gpu_phase_json(row: PhaseFigures) -> dict[str, Any]:
    data = dataclasses.asdict(row)
    for key in ("busy_ns", "own_busy_ns"):
        data[key] = {str(device): taken for device, taken in data[key].items()}
    data["top"] = [{"name": name, "count": count, "total_ns": total} for name, count, total in row.top]
    return data
