"""A report: what everything is drawn from, and its JSON as ``accelprof report --json`` has it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from accelprof.analysis.attribution import DeviceFigures, PhaseFigures
from accelprof.analysis.phases import PhaseRow, WorkerTimeline
from accelprof.analysis.report_rows import (
    Cost,
    CriticalPath,
    Drift,
    Memory,
    OperatorRow,
    Outlier,
    Row,
    SlackRow,
    StepTime,
    Straggler,
    UnseenWait,
)
from accelprof.analysis.seconds import Second
from accelprof.analysis.toolfile import ToolFile

FORMAT = 1


@dataclass(frozen=True)
class Report:
    """Rows of one run, or of files; times in ns. ``dump``: of a recorder's dump, what is said of its last step."""

    run: object = None
    directory: str = ""
    created: object = None
    undelivered: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    dump: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    workers: list[WorkerTimeline] = field(default_factory=list)
    phases: list[PhaseRow] = field(default_factory=list)
    devices: list[ToolFile] = field(default_factory=list)
    seconds: list[Second] = field(default_factory=list)
    stragglers: list[Straggler] = field(default_factory=list)
    critical_path: list[CriticalPath] = field(default_factory=list)
    clocks_not_compared: list[str] = field(default_factory=list)
    without_ns: int = 0
    unseen: list[UnseenWait] = field(default_factory=list)
    slack: list[SlackRow] = field(default_factory=list)
    steps: list[StepTime] = field(default_factory=list)
    outliers: list[Outlier] = field(default_factory=list)
    drift: list[Drift] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)
    operators: list[OperatorRow] = field(default_factory=list)
    cost: list[Cost] = field(default_factory=list)
    metrics: Mapping[str, object] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data with stable names."""
        return {
            "format": FORMAT,
            "run": self.run,
            "directory": self.directory,
            "created": self.created,
            "delivered": not self.undelivered,
            "undelivered": self.undelivered,
            "notices": self.notices,
            **({"dump": self.dump} if self.dump else {}),
            "problems": self.problems,
            "workers": [_worker_json(timeline) for timeline in self.workers],
            "phases": [{**dataclasses.asdict(row), "spread": row.spread} for row in self.phases],
            "devices": [_file_json(file) for file in self.devices],
            "seconds": _json(self.seconds),
            "stragglers": _json(self.stragglers),
            "critical_path": _json(self.critical_path),
            "clocks_not_compared": self.clocks_not_compared,
            "without_ns": self.without_ns,
            "unseen": _json(self.unseen),
            "slack": _json(self.slack),
            "steps": _json(self.steps),
            "outliers": _json(self.outliers),
            "drift": _json(self.drift),
            "memory": _json(self.memory),
            "operators": _json(self.operators),
            "cost": _json(self.cost),
            "metrics": self.metrics,
        }


def _json(rows: Iterable[Row]) -> list[dict[str, Any]]:
    return [row.to_json() for row in rows]


def _worker_json(timeline: WorkerTimeline) -> dict[str, Any]:
    who = timeline.worker
    windows = [
        {"id": identity, "steps": list(steps), "start_ns": start, "end_ns": end}
        for identity, steps, start, end in timeline.windows
    ]
    return {
        "worker": who.label, "key": who.key, "group": who.group, "replica": who.replica,
        "window_ns": timeline.window_ns, "dropped": timeline.dropped, "windows": windows,
    }  # fmt: skip


def _file_json(file: ToolFile) -> dict[str, Any]:
    found = file.attribution
    return {
        "worker": file.worker.label,
        "tool": file.tool,
        "path": file.path,
        "windows": list(file.windows),
        "note": file.note,
        "facts": file.facts,
        "devices": [_device_json(row) for row in found.devices],
        "phases": [_device_phase_json(row) for row in found.phases],
        "unattributed_kernels": found.unattributed,
        "undecided": _undecided_json(found.undecided),
        "undecided_around": _undecided_json(found.undecided_around),
        "kernels_without_launch": found.unlaunched,
        "kernels_without_number": found.unnumbered,
        "attributed_by_time": found.by_time,
        "launches": found.launches,
        "launches_without_work": found.launches_without_work,
        "overhead": dict(found.overhead),
        "tables": [dataclasses.asdict(table) for table in file.tables],
    }


def _undecided_json(found: Counter[tuple[str, ...]]) -> list[dict[str, Any]]:
    return [{"ranges": list(names), "kernels": count} for names, count in found.most_common()]


def _device_json(row: DeviceFigures) -> dict[str, Any]:
    shares = {"window_share": row.window_share, "work_share": row.work_share}
    return {**dataclasses.asdict(row), "idle_ns": row.idle_ns, **shares}


def _device_phase_json(row: PhaseFigures) -> dict[str, Any]:
    data = dataclasses.asdict(row)
    for key in ("busy_ns", "own_busy_ns"):
        data[key] = {str(device): taken for device, taken in data[key].items()}
    data["top"] = [{"name": name, "count": count, "total_ns": total} for name, count, total in row.top]
    return data
