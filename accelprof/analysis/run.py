"""A run directory as reports see it: the manifest, tolerant of keys that are not there, and who is who."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accelprof.contracts.targets import Target
from accelprof.errors import ReadError
from accelprof.output import manifest as manifests


@dataclass(frozen=True, slots=True)
class WorkerId:
    """One worker process of a run. ``label`` is unique in the run."""

    key: str
    label: str
    group: str
    rank: int | None = None
    replica: int | None = None
    host: str | None = None
    pid: int | None = None

    @property
    def order(self) -> tuple[Any, ...]:
        """Sorts workers by group, replica and rank, unknown ranks last."""
        return (self.group, self.replica or 0, self.rank is None, self.rank or 0, self.label, self.key)


@dataclass
class RunFile:
    """One artifact of a run and whose it is."""

    artifact: Mapping[str, Any]
    worker: WorkerId
    path: str
    skip: str = ""

    @property
    def tool(self) -> str:
        return str(self.artifact.get("tool") or "")

    @property
    def bytes(self) -> int:
        """Size as it is on disk; of a directory as the manifest says."""
        if os.path.isfile(self.path):
            return os.path.getsize(self.path)
        stated = self.artifact.get("bytes")
        return stated if isinstance(stated, int) else 0

    @property
    def where(self) -> str:
        """``ActorGroup/rank0: ActorGroup/…pt.trace.json.gz`` for messages."""
        return f"{self.worker.label}: {self.artifact.get('path')}"

    @property
    def windows(self) -> tuple[str, ...]:
        return tuple(str(window) for window in self.artifact.get("windows") or ())


@dataclass
class Run:
    """See the module.

    Attributes:
        problems: the manifest's, and what was wrong with the manifest itself.
    """

    directory: str
    manifest: Mapping[str, Any]
    problems: list[str] = field(default_factory=list)
    workers: dict[str, WorkerId] = field(default_factory=dict)

    def rows(self, key: str) -> list[Mapping[str, Any]]:
        """A list of the manifest; rows that are no objects are skipped."""
        value = self.manifest.get(key)
        return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []

    def path(self, artifact: Mapping[str, Any]) -> str:
        return os.path.join(self.directory, str(artifact.get("path", "")))

    def worker(self, artifact: Mapping[str, Any]) -> WorkerId:
        """The worker that left a file, by the windows in it, otherwise by group, rank, host and pid."""
        windows = {row.get("id"): row.get("target") for row in self.rows("windows")}
        for window in artifact.get("windows") or ():
            found = self.workers.get(str(windows.get(window)))
            if found is not None:
                return found
        for worker in self.workers.values():
            mine = (worker.group, worker.rank, worker.host, worker.pid)
            if mine == tuple(artifact.get(name) for name in ("group", "rank", "host", "pid")):
                return worker
        key = "-".join(str(artifact.get(name)) for name in ("group", "rank", "host", "pid"))
        return WorkerId(key, *_identity(artifact))

    def offset_ns(self, worker: WorkerId, epoch_ns: int | None = None) -> tuple[int, int | None]:
        """``(clock of the worker minus the driver's, its error)`` in ns when the worker's shows ``epoch_ns``; ``(0, None)``
        when it was not measured."""
        offsets = self.manifest.get("clock_offsets")
        row = offsets.get(worker.key) if isinstance(offsets, dict) else None
        offset = manifests.offset_at(row, epoch_ns) if isinstance(row, dict) else None
        if not isinstance(row, dict) or offset is None:
            return 0, None
        error = row.get("error_ns")
        return offset, error if isinstance(error, int) else None

    def files(self, max_bytes: int | None = None) -> Iterator[RunFile]:
        """Every artifact that should lie somewhere, those of one worker together; ``skip`` says why one cannot be read."""
        found = []
        for artifact in self.rows("artifacts"):
            if artifact.get("state") != "missing":
                found.append(RunFile(artifact, self.worker(artifact), self.path(artifact)))
        for file in sorted(found, key=lambda file: (file.worker.order, file.path)):
            if not os.path.exists(file.path):
                artifact = file.artifact
                file.skip = f"it is on {artifact.get('host')}" if artifact.get("remote") else "it is not there"
            elif max_bytes is not None and file.bytes > max_bytes:
                file.skip = f"its {file.bytes:,} bytes are left to `accelprof report` and `accelprof timeline`"
            yield file

    def undelivered(self) -> Iterator[str]:
        """What was asked for and did not come: windows never opened, files missing or cut."""
        for row in self.rows("targets"):
            worker = self.workers.get(str(row.get("key")))
            if row.get("armed") and not self._opened(row):
                label = worker.label if worker is not None else str(row.get("group"))
                tool = f" with {row['tool']}" if row.get("tool") else ""
                seen = "; ".join(
                    f"{name} seen: {_listed(row.get(key))}"
                    for name, key in (("steps", "steps_seen"), ("roles", "roles_seen"), ("phases", "phases_seen"))
                    if key == "steps_seen" or row.get(key) is not None
                )
                yield f"{label}: armed{tool}, but no window was opened; {seen}"
        for row in self.rows("artifacts"):
            if row.get("state") in ("missing", "truncated"):
                reason = f": {row['reason']}" if row.get("reason") else ""
                yield f"{self.worker(row).label}: {row.get('path')} ({row.get('tool')}) is {row['state']}{reason}"

    def _opened(self, target: Mapping[str, Any]) -> int:
        stated = target.get("windows_opened")
        if isinstance(stated, int) and not isinstance(stated, bool):
            return stated
        return sum(row.get("target") == target.get("key") for row in self.rows("windows"))


def is_run(directory: str | os.PathLike[str]) -> bool:
    """Whether there is a manifest, or journals to make one of."""
    path = Path(directory)
    return (path / manifests.NAME).exists() or (path / ".workers").is_dir()


def open_run(directory: str | os.PathLike[str]) -> Run:
    """The run in ``directory``; without a manifest it is made of the workers' journals, and said so.

    Raises:
        ReadError: neither manifest nor journals, or the manifest is damaged.
    """
    directory = os.path.abspath(os.fspath(directory))
    problems: list[str] = []
    try:
        manifest = manifests.read(directory)
    except ReadError:
        if os.path.exists(os.path.join(directory, manifests.NAME)) or not any(Path(directory, ".workers").glob("*")):
            raise
        from accelprof import __version__

        journals = manifests.read_journals(directory)
        manifest = manifests.build(directory, version=__version__, config={}, plan={}, journals=journals)
        problems.append(
            "the run left no manifest (did the driver end before close()?); read from the workers' journals"
        )
    stated = manifest.get("problems")
    problems.extend(str(line) for line in stated if line) if isinstance(stated, list) else None
    run = Run(directory, manifest, problems)
    rows = run.rows("targets")
    times = Counter(_identity(row)[0] for row in rows)
    for row in rows:
        label, *rest = _identity(row)
        if times[label] > 1:
            label = f"{label} (pid {row.get('pid')} on {row.get('host')})"
        run.workers[str(row.get("key"))] = WorkerId(str(row.get("key")), label, *rest)
    return run


def _identity(row: Mapping[str, Any]) -> tuple[Any, ...]:
    group, rank, replica = str(row.get("group") or "unknown"), row.get("rank"), row.get("replica")
    label = Target(group, rank=rank, replica=replica).label
    return label, group, rank, replica, row.get("host"), row.get("pid")


def _listed(values: Any) -> str:
    if not values:
        return "none"
    if isinstance(values, (list, tuple)):
        return ", ".join(map(str, values[:12])) + (f" and {len(values) - 12} more" if len(values) > 12 else "")
    return str(values)
