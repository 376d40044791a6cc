"""A run directory as reports see it: the manifest, tolerant of keys that are not there, and who is who."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accelprof import atomic, texts
from accelprof.analysis.recording import Recording
from accelprof.analysis.report_rows import COSTLY
from accelprof.contracts.names import MANIFEST, TIMELINE_TOOL, WORKERS
from accelprof.contracts.targets import Target, ranks_by_group
from accelprof.contracts.words import MISSING
from accelprof.errors import ReadError
from accelprof.numberset import NumberSet
from accelprof.output import manifest as manifests
from accelprof.output.dumps import is_dump
from accelprof.output.metrics import metrics_of
from accelprof.output.presence import at_work
from accelprof.output.records import ArtifactRow, Lack, Manifest, TargetRow
from accelprof.output.verdict import judge, outside


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
    engine_rank: int | None = None

    @property
    def order(self) -> tuple[Any, ...]:
        """Sorts workers by group, replica and rank, unknown ranks last, an engine's child processes behind their parent."""
        within = -1 if self.engine_rank is None else self.engine_rank
        return (self.group, self.replica or 0, self.rank is None, self.rank or 0, within, self.label, self.key)

    @property
    def peers(self) -> str:
        """Whose ranks wait for each other: :attr:`Target.peers`."""
        return Target(self.group, rank=self.rank, replica=self.replica, engine_rank=self.engine_rank).peers


@dataclass
class RunFile:
    """One artifact of a run and whose it is."""

    artifact: ArtifactRow
    worker: WorkerId
    path: str
    skip: str = ""

    @property
    def tool(self) -> str:
        return self.artifact.tool

    @property
    def bytes(self) -> int:
        """Size as it is on disk; of a directory as the manifest says."""
        if os.path.isfile(self.path):
            return os.path.getsize(self.path)
        return self.artifact.bytes

    @property
    def where(self) -> str:
        """``ActorGroup/rank0: ActorGroup/…pt.trace.json.gz`` for messages; a file that stands for its worker once."""
        label, path = self.worker.label, self.artifact.path
        return path if label == os.path.basename(path) else f"{label}: {path}"

    @property
    def windows(self) -> tuple[str, ...]:
        return tuple(self.artifact.windows)


@dataclass
class Run:
    """See the module.

    Attributes:
        manifest: as it stands in the file, with what workers that are still at work wrote down since.
        running: keys of workers that are still at work.
        problems: the manifest's, and what was wrong with the manifest itself.
    """

    directory: str
    manifest: Manifest
    running: Collection[str] = ()
    problems: list[str] = field(default_factory=list)
    workers: dict[str, WorkerId] = field(default_factory=dict)
    _by_process: dict[tuple[object, ...], WorkerId] = field(default_factory=dict)

    def __post_init__(self) -> None:
        times = Counter(row.label for row in self.manifest.targets.values())
        for row in self.manifest.targets.values():
            label = row.label if times[row.label] == 1 else f"{row.label} (pid {row.pid} on {row.host})"
            worker = WorkerId(row.key, label, row.group, row.rank, row.replica, row.host, row.pid, row.engine_rank)
            self.workers[row.key] = worker
            self._by_process.setdefault((row.group, row.rank, row.host, row.pid), worker)

    def path(self, artifact: ArtifactRow) -> str:
        return os.path.join(self.directory, artifact.path)

    def worker(self, artifact: ArtifactRow) -> WorkerId:
        """The worker that left a file: :meth:`Manifest.owner`, otherwise by group, rank, host and pid."""
        owner = self.manifest.owner(artifact)
        if owner is not None and owner.key in self.workers:
            return self.workers[owner.key]
        mine = (artifact.group, artifact.rank, artifact.host, artifact.pid)
        if mine in self._by_process:
            return self._by_process[mine]
        group = artifact.group or "unknown"
        return WorkerId(
            "-".join(map(str, mine)), artifact.label, group, artifact.rank, None, artifact.host, artifact.pid
        )

    def is_void(self, file: RunFile) -> bool:
        """Whether all windows that a file is of were opened for steps that never came."""
        rows = [self.manifest.windows.get(identity) for identity in file.windows]
        return bool(rows) and all(row is not None and row.void for row in rows)

    def offset_ns(self, worker: WorkerId, epoch_ns: int | None = None) -> tuple[int, int | None]:
        """``(clock of the worker minus the driver's, its error)`` in ns when the worker's shows ``epoch_ns``; ``(0, None)``
        when it was not measured."""
        clock = self.manifest.clock_offsets.get(worker.key)
        return (0, None) if clock is None else (clock.offset_at(epoch_ns), clock.error_ns)

    def steps(self) -> list[Mapping[str, Any]]:
        """:meth:`Manifest.steps`, with how long windows of the groups in each were being opened or closed in it, ``recording_ns``,
        where its time is known and the clocks of its hosts are one as far as that matters."""
        apart = self._clocks_apart_ns
        return [
            {**row, "recording_ns": self._recording(row).within(row["began_ns"], row["wall_ns"])}
            if apart is not None and "began_ns" in row and "wall_ns" in row and apart <= COSTLY * row["wall_ns"]
            else row
            for row in self.manifest.steps()
        ]

    def _recording(self, row: Mapping[str, Any]) -> Recording:
        """When windows of the groups that a step's phases are of were being opened or closed; of all, where it has none."""
        slowest = {figures.get("slowest") for figures in row["seconds"].values() if isinstance(figures, Mapping)}
        groups = frozenset(worker.group for worker in self.workers.values() if worker.label in slowest)
        if groups not in self._recordings:
            self._recordings[groups] = Recording(
                window
                for window in self.manifest.windows.values()
                if not groups or (worker := self.workers.get(window.target)) is None or worker.group in groups
            )
        return self._recordings[groups]

    @functools.cached_property
    def _recordings(self) -> dict[frozenset[str], Recording]:
        return {}

    @functools.cached_property
    def _clocks_apart_ns(self) -> int | None:
        """How far the hosts' clocks are from the driver's at most; ``None`` where there are several hosts and that is not known."""
        if len({worker.host for worker in self.workers.values()}) < 2:
            return 0
        clocks = [self.manifest.clock_offsets.get(key) for key in self.workers]
        known = [abs(clock.offset_ns) + (clock.error_ns or 0) for clock in clocks if clock is not None]
        return max(known) if len(known) == len(clocks) else None

    def files(self, max_bytes: int | None = None) -> Iterator[RunFile]:
        """Every artifact that should lie somewhere, those of one worker together; ``skip`` says why one cannot be read."""
        found = []
        for artifact in self.manifest.artifacts.values():
            if artifact.state != MISSING:
                found.append(RunFile(artifact, self.worker(artifact), self.path(artifact)))
        for file in sorted(found, key=lambda file: (file.worker.order, file.tool != TIMELINE_TOOL, file.path)):
            if not os.path.exists(file.path):
                file.skip = f"it is on {file.artifact.host}" if file.artifact.remote else "it is not there"
            elif elsewhere := outside(self.directory, file.path):
                file.skip = (
                    f"it lies outside of the run directory, at {elsewhere}; name it to read it: accelprof report FILE"
                )
            elif max_bytes is not None and file.bytes > max_bytes:
                file.skip = f"its {file.bytes:,} bytes are left to `accelprof report` and `accelprof timeline`"
            yield file

    @functools.cached_property
    def lacks(self) -> list[Lack]:
        """What was asked for and is not there now."""
        return judge(self.manifest, self.directory, self.running)


def is_run(directory: str | os.PathLike[str]) -> bool:
    """Whether there is a manifest, or journals to make one of."""
    path = Path(directory)
    return (path / MANIFEST).exists() or (path / WORKERS).is_dir()


def open_run(directory: str | os.PathLike[str]) -> Run:
    """The run in ``directory``; without a manifest it is made of the workers' journals, and said so.

    Raises:
        ReadError: neither manifest nor journals, or the manifest is damaged.
    """
    directory = os.path.abspath(os.fspath(directory))
    problems: list[str] = []
    unended = False
    try:
        manifest = manifests.load(directory)
    except ReadError:
        if os.path.exists(os.path.join(directory, MANIFEST)) or not any(Path(directory, WORKERS).glob("*")):
            raise
        from accelprof.release import VERSION

        unended = True
        journals = manifests.read_journals(directory)
        manifest = manifests.of_journals(directory, journals)
        manifests.complete(manifest, directory, version=VERSION, config={}, plan={})
        if not is_dump(directory):  # those of the flight recorder have none
            problems.append(
                "the run left no manifest (did the driver end before close()?); read from the workers' journals"
            )
    problems.extend(manifest.problems)
    if manifest.running:  # written while others were at work: what they wrote down since is in their journals
        later = manifests.of_journals(directory, manifests.read_journals(directory))
        manifests.mark_open(later)
        manifest.targets |= later.targets
        manifest.windows |= later.windows
        manifest.artifacts |= later.artifacts
        if later.timings:
            manifest.metrics = metrics_of(later)
        unended = True
    running = at_work(directory, manifest.targets) if unended else set()
    problems.extend(f"manifest: {line}" for line in manifest.odd)
    left = atomic.halves(directory, unknown=not running)  # a worker of another host may be writing
    if left:
        problems.append(
            f"half-written files of processes that were killed: {texts.listed(left, 5)}; nothing is read from them, "
            "they can be deleted"
        )
    return Run(directory, manifest, running, problems)


def incomplete_groups(targets: Iterable[TargetRow]) -> Iterator[tuple[str, int, int, NumberSet]]:
    """``(group, ranks that are there, its size, those that are not)`` of groups that say their size and lack some. Workers of replicas
    do not count: a rank is one of each there, and waits for none of another."""
    facts = ((target.group, target.rank, target.world_size) for target in targets if target.replica is None)
    for group, (there, size) in ranks_by_group(facts).items():
        absent = NumberSet.parse(sorted(set(range(min(size, 100_000))) - there))
        if absent:
            yield group, len(there), size, absent
