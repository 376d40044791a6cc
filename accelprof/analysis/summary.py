"""A run in figures: phases over ranks, device time per tool and phase, and what was asked for but not delivered."""

from __future__ import annotations

import dataclasses
import itertools
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from accelprof.analysis.accounts import (
    NOTICED,
    by_process,
    cost_rows,
    doubts,
    idle_windows,
    measured,
    not_in_files,
    shared_out,
    undrained,
    windows_in,
)
from accelprof.analysis.attribution import attribute
from accelprof.analysis.collectives import FileCollectives, collectives_of
from accelprof.analysis.differences import of_recorder
from accelprof.analysis.many import Failed, Progress, each, weight
from accelprof.analysis.memory import memory_rows
from accelprof.analysis.operators import PER_FILE, OperatorTable, operators
from accelprof.analysis.phases import PhaseRow, WorkerTimeline, phase_rows
from accelprof.analysis.reading import Loaded, load_any
from accelprof.analysis.report import Report
from accelprof.analysis.run import Run, RunFile, WorkerId, open_run
from accelprof.analysis.seconds import ALWAYS, Second, divisions, host_seconds, lost_second
from accelprof.analysis.toolfile import ToolFile
from accelprof.analysis.waits import Waits, clock_shift, not_matched, transfers, waits_of
from accelprof.contracts.names import TIMELINE_TOOL
from accelprof.contracts.spans import Clock, Kind, Trace
from accelprof.contracts.words import PARTIAL
from accelprof.errors import AccelprofError, ReadError, UnknownFormatError, failures, text_of
from accelprof.output.dumps import why_dropped
from accelprof.output.records import Lack
from accelprof.output.verdict import nothing_measured, unread
from accelprof.reading.columns import Columns, columns_of

#: larger files are left to an explicit ``accelprof report`` when a run ends, so that training's end is not held up
MAX_AT_END_BYTES = 64 << 20
#: and so are files of tools once reading has taken this long (exporting an nsys report takes seconds)
MAX_AT_END_S = 30.0


@dataclass
class Summary:
    """Everything a report shows.

    Attributes:
        lacks: what was asked for and did not come; not empty = the command line ends with status 1.
        notices: what to know before reading a figure, shown above all tables; ``dump``: those on the last step of a recorder's dump.
        problems: what went wrong without that: files that could not be read, events left out, the manifest's own.
        absent: what is not in the figures although a file should have it: files cut, damaged or not read, events left out, spans
            dropped, launches without their work, steps and calls of a window that are not there. A comparison asks this.
        seconds: the division of each window, by worker and device.
        waits: who waited for whom, and the critical path of each step.
        operators: what the framework's operators took on the host, over all files.
    """

    run: Run
    timelines: list[WorkerTimeline] = field(default_factory=list)
    phases: list[PhaseRow] = field(default_factory=list)
    files: list[ToolFile] = field(default_factory=list)
    lacks: list[Lack] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    dump: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    seconds: list[Second] = field(default_factory=list)
    waits: Waits = field(default_factory=Waits)
    operators: OperatorTable = field(default_factory=OperatorTable)

    @property
    def undelivered(self) -> list[str]:
        """The lacks in words."""
        return [lack.words for lack in self.lacks]

    @property
    def other_problems(self) -> list[str]:
        """The problems that are no lack, which are said already."""
        said = set(self.undelivered)
        return [problem for problem in self.problems if problem not in said]

    @property
    def empty(self) -> bool:
        """No window was opened and no file read."""
        return not any(timeline.windows or timeline.phases for timeline in self.timelines) and not self.files

    def report(self) -> Report:
        """What is drawn of it."""
        manifest, waits = self.run.manifest, self.waits
        return Report(
            manifest.run, self.run.directory, manifest.created, self.undelivered, self.notices, self.dump,
            self.problems, self.timelines, self.phases, self.files, self.seconds, waits.stragglers, waits.critical_path,
            waits.apart, waits.without_ns, waits.unseen, waits.slack, waits.steps, waits.outliers, waits.drift,
            memory_rows(manifest), self.operators.rows(), cost_rows(self.run), manifest.metrics,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Plain data with stable names; times in ns."""
        return self.report().to_json()


@dataclass
class Part:
    """What some files of a run come to, read by a process of their own."""

    timelines: list[WorkerTimeline]
    files: list[ToolFile]
    seconds: list[Second]
    notices: list[str]
    problems: list[str]
    absent: list[str]
    lacks: list[Lack]
    paths: dict[WorkerId, str]
    operators: OperatorTable
    collectives: list[FileCollectives]


class SummaryBuilder:
    """Takes in the files of a run one by one, those of one worker together, and keeps figures, not spans.

    ``whole``: all files of the run are added here; otherwise some, for :meth:`part`.
    """

    def __init__(self, run: Run, *, whole: bool = True) -> None:
        self.summary = Summary(run)
        if whole:
            self.summary.lacks.extend(run.lacks)
            self.summary.problems.extend(run.problems)
        self._timeline: WorkerTimeline | None = None
        self._paths: dict[WorkerId, str] = {}
        self._collectives: list[FileCollectives] = []
        self._said: dict[str, dict[str, set[str]]] = {}

    def add(self, file: RunFile, loaded: Loaded, unsure: Sequence[tuple[int, int]] = ()) -> None:
        """One file that could be read; one of void windows counts in no figure. ``unsure``: when parts of it are not there."""
        if self.summary.run.is_void(file):
            return
        if loaded.figures is not None:
            self._add_figures(file, loaded, *loaded.figures)
            return
        trace = loaded.trace()
        self.add_problems(file, trace)
        if file.tool != TIMELINE_TOOL:
            for mine, part in shared_out(self.summary.run, file, trace, self.summary.notices):
                row, columns = _tool_file(mine, part), columns_of(part)
                for process in (parts := by_process(columns)):
                    stretches, known = self._windows(mine, process, trace)
                    said, lacking = self._categories(mine.worker), unsure if row.whole else ALWAYS
                    seconds, idle = divisions(process, mine.worker.label, stretches, said, lacking)
                    if known:
                        measured(row.attribution.devices, seconds)
                    self.summary.seconds.extend(seconds)
                    if len(parts) == 1 and mine.windows and len(stretches) == len(mine.windows):
                        row.idle, row.marked = idle, known
                self.summary.files.append(row)
                found = operators(columns)
                row.operators = found[:PER_FILE]
                self.summary.operators.add(mine.tool, mine.worker.label, found)
                self._add_collectives(mine, part, trace)
            return
        self._paths.setdefault(file.worker, file.path)
        self.add_phases(file.worker, trace)

    def add_problems(self, file: RunFile, trace: Trace) -> None:
        """What is wrong with a file, and what of it is not there."""
        self.summary.problems.extend(f"{file.where}: {problem}" for problem in trace.problems)
        self.summary.absent.extend(f"{file.where}: {lack}" for lack in trace.completeness.lacks())
        for loss in trace.completeness.losses():
            self._unread(file, f"{file.where}: {loss}")

    def _windows(self, file: RunFile, columns: Columns, whole: Trace) -> tuple[list[tuple[str, int, int]], bool]:
        same_clock = whole.clock is Clock.EPOCH
        return windows_in(columns, file.windows, self.summary.run.manifest.windows if same_clock else {})

    def _add_collectives(self, file: RunFile, part: Trace, whole: Trace) -> None:
        """Keep the collective kernels of one rank's file; its clock is the worker's where its times are those of an epoch."""
        run, worker, columns = self.summary.run, file.worker, columns_of(part)
        windows, _ = self._windows(file, columns, whole)
        if whole.clock is Clock.EPOCH:
            clock = run.offset_ns(worker, windows[0][1] if windows else None)
        else:
            clock, worker = (0, None), dataclasses.replace(worker, host=None)
        rows = run.manifest.windows
        mine = [(tuple(rows[identity].steps), start, end) for identity, start, end in windows if identity in rows]
        found = collectives_of(columns, worker, mine, clock, whole.origin.rank)
        if found is not None:
            self._collectives.append(found)

    def _categories(self, worker: WorkerId) -> dict[str, str]:
        """Category of a worker's phases by name, of its own timelines, where all calls of a name have the same: files of other
        tools have the names alone."""
        return {name: next(iter(words)) for name, words in self._said.get(worker.key, {}).items() if len(words) == 1}

    def add_phases(self, worker: WorkerId, trace: Trace) -> WorkerTimeline:
        """The phases of one file; files of one worker come together, in what is returned."""
        if self._timeline is None or self._timeline.worker.key != worker.key:
            self._close()
            self._timeline = WorkerTimeline(worker)
        self._timeline.add(trace, self.summary.run.manifest.windows)
        columns = columns_of(trace)
        rows = columns.rows(Kind.PHASE, Kind.RANGE)
        said = self._said.setdefault(worker.key, {})
        for name, word in set(zip(columns.name[rows].tolist(), columns.category[rows].tolist(), strict=True)):
            said.setdefault(columns.names[name], set()).add(columns.words[word])
        return self._timeline

    def _add_figures(self, file: RunFile, loaded: Loaded, figures: Mapping[str, object], note: str) -> None:
        """A file that holds no spans: listed."""
        self.summary.problems.extend(f"{file.where}: {problem}" for problem in loaded.problems)
        row = ToolFile(
            file.worker, file.tool, file.artifact.path, file.windows, facts=dict(figures), note=note, has_spans=False
        )
        self.summary.files.append(row)

    def not_read(self, file: RunFile, reason: str, whole: bool = False) -> None:
        """A file that could not be read; the others count. ``whole``: it may be, but nobody here reads such files."""
        line = f"{file.where} was not read: {reason}"
        self.summary.problems.append(line)
        self.summary.absent.append(line)
        if not file.skip and not whole:
            self._unread(file, line)

    def _unread(self, file: RunFile, words: str) -> None:
        worker = file.worker
        self.summary.lacks.extend(unread(file.artifact, worker.key, worker.label, words))

    def part(self) -> Part:
        """What was added so far; nothing more is."""
        self._close()
        mine = self.summary
        return Part(
            mine.timelines, mine.files, mine.seconds, mine.notices, mine.problems, mine.absent, mine.lacks, self._paths,
            mine.operators, self._collectives,
        )  # fmt: skip

    def take(self, part: Part) -> None:
        """What another builder was given, behind what this one was."""
        self._close()
        for name in ("timelines", "files", "seconds", "notices", "problems", "absent", "lacks"):
            getattr(self.summary, name).extend(getattr(part, name))
        for worker, path in part.paths.items():
            self._paths.setdefault(worker, path)
        self.summary.operators.take(part.operators)
        self._collectives.extend(part.collectives)

    def finish(self) -> Summary:
        """The summary of all files that were added."""
        self._close()
        summary = self.summary
        summary.files.sort(key=lambda file: (file.tool, file.worker.order, file.path))
        summary.phases = phase_rows(summary.timelines)
        told, summary.dump = of_recorder(summary.run.directory, self._paths, summary.run.manifest.targets.values())
        summary.notices.extend([*told, *summary.dump])
        summary.notices.extend(line for file in summary.files if (line := _not_in_a_phase(file)))
        missing = list(not_in_files(summary.run, summary.files, summary.timelines))
        summary.absent.extend(line for line, much in missing if much)
        summary.notices.extend([*(line for line, _ in missing), *doubts(summary.files), *undrained(summary.run)])
        for seconds, line in idle_windows(summary.run, summary.files):
            summary.seconds.extend(seconds)
            summary.notices.extend([line] if line else [])
        with_device = {row.worker for row in summary.seconds}
        lost = {file.worker.label for file in summary.files if file.attribution.launches_without_work}
        summary.waits = waits_of(summary.run, summary.timelines, self._collectives)
        shifts = {timeline.worker.label: clock_shift(summary.run, timeline) for timeline in summary.timelines}
        over = transfers(summary.waits.of, shifts)
        for timeline in summary.timelines:
            label = timeline.worker.label
            if label in lost - with_device:
                rows = (lost_second(label, identity, start, end) for identity, _, start, end in timeline.windows)
                summary.seconds.extend(rows)
            elif label not in with_device:
                summary.seconds.extend(_host_seconds(timeline, [*over.get(label, []), *timeline.transfers]))
        divided = [one for one in summary.timelines if one.worker.label not in with_device | lost]
        summary.notices.extend([*not_matched(divided), *summary.waits.notices])
        if summary.empty and not summary.lacks and not summary.run.steps():
            summary.lacks.append(nothing_measured())
        return summary

    def _close(self) -> None:
        timeline, self._timeline = self._timeline, None
        if timeline is None:
            return
        timeline.finish()
        self.summary.timelines.append(timeline)
        if timeline.dropped:
            line = f"{timeline.worker.label}: {timeline.dropped} spans were dropped"
            self.summary.problems.append(f"{line} ({why_dropped(self.summary.run.directory)})")


def summarise(
    run_dir: str | os.PathLike[str],
    *,
    max_bytes: int | None = None,
    seconds: float | None = None,
    processes: int = 1,
    progress: Progress | None = None,
) -> Summary:
    """Read a run directory. A file that cannot be read is named and the others count.

    Args:
        max_bytes: files larger than this are left out, and named.
        seconds: after this time only timelines are still read; other files are named.
        processes: in how many the files of different workers are read, where there is enough of them; not with ``seconds``.

    Raises:
        ReadError: there is no run in the directory.
    """
    run = open_run(run_dir)
    builder = SummaryBuilder(run)
    if seconds is not None:
        deque(read_files(builder, run.files(max_bytes), seconds), maxlen=0)
        return builder.finish()
    of_worker = [list(files) for _, files in itertools.groupby(run.files(max_bytes), lambda file: file.worker.key)]
    sizes = [sum(0 if file.skip else weight(file.path, file.bytes) for file in files) for files in of_worker]
    parts = each(_read_part, run, of_worker, sizes, processes=processes, progress=progress)
    for files, part in zip(of_worker, parts, strict=True):
        if isinstance(part, Failed):
            for file in files:
                builder.not_read(file, part.why)
        else:
            builder.take(part)
    return builder.finish()


def of_timelines(run: Run, files: Sequence[RunFile]) -> Summary | None:
    """What a run's own timelines say without the files of tools; ``None`` where they have more than :data:`MAX_AT_END_BYTES`."""
    own = [file for file in files if file.tool == TIMELINE_TOOL]
    if sum(0 if file.skip else file.bytes for file in own) > MAX_AT_END_BYTES:
        return None
    builder = SummaryBuilder(run)
    deque(read_files(builder, own), maxlen=0)
    return builder.finish()


def _read_part(run: Run, files: list[RunFile]) -> Part:
    builder = SummaryBuilder(run, whole=False)
    deque(read_files(builder, files), maxlen=0)
    return builder.part()


def read_files(
    builder: SummaryBuilder, files: Iterable[RunFile], seconds: float | None = None
) -> Iterator[tuple[RunFile, Loaded]]:
    """Read files of a run, each once: ``builder`` gets it, then the caller, who may change its events, where it has any.

    ``seconds``: after this time only timelines are still read, and the files of other tools are named.
    """
    began = time.monotonic()
    for file in files:
        if file.artifact.state == PARTIAL:
            line = f"{file.where} is partial: {file.artifact.reason or 'no reason given'}"
            builder.summary.problems.append(line)
            builder.summary.absent.append(line)
        if seconds is not None and file.tool != TIMELINE_TOOL and time.monotonic() - began > seconds:
            file.skip = (
                f"reading took {seconds:.0f} s already; it is left to `accelprof report` and `accelprof timeline`"
            )
        if file.skip:
            builder.not_read(file, file.skip)
            continue
        try:
            loaded = load_any(file.path, file.tool or None)
            builder.add(file, loaded)
        except AccelprofError as error:
            builder.not_read(file, reason_of(error), isinstance(error, UnknownFormatError))
            continue
        except failures() as error:  # whatever one file holds, the others count
            builder.not_read(file, f"its figures could not be made: {text_of(error)}")
            continue
        if loaded.figures is None:
            yield file, loaded


def _tool_file(file: RunFile, trace: Trace) -> ToolFile:
    found = attribute(trace)
    empty = "no device work in this file" if len(trace) else "no events in this file"
    note = "" if found.devices or trace.tables else empty
    facts: dict[str, object] = {"spans": len(trace), "marks": len(trace.marks), "clock": trace.clock.value}
    path, whole = file.artifact.path, trace.completeness.complete
    return ToolFile(file.worker, file.tool, path, file.windows, found, facts, note, trace.tables, whole=whole)


def _not_in_a_phase(file: ToolFile) -> str:
    """A line for a file whose kernels stand in no phase in more than :data:`NOTICED` of the cases; empty otherwise."""
    where, found = file.where, file.attribution
    lost = found.unattributed + found.unlaunched
    if lost <= NOTICED * found.kernels or not found.kernels:
        return ""
    if not found.phases:
        return f"{where} holds no phase or range; its {found.kernels:,} kernels are shown by device only"
    rows = found.left_over()
    reasons = [f"{count:,} {reason}" for reason, count in rows[:4]]
    if len(rows) > 4:
        reasons.append(f"{sum(count for _, count in rows[4:]):,} for {len(rows) - 4} other reasons")
    share = lost / found.kernels
    line = f"{where}: {lost:,} of {found.kernels:,} kernels ({share:.1%}) stand in no phase: {'; '.join(reasons)}"
    if found.unlaunched > NOTICED * found.kernels:
        line += ". Without their launches it is unknown whether they were queued while the device idled before them"
    return line


def reason_of(error: AccelprofError) -> str:
    """The message without the path that the caller names anyway."""
    return error.reason if isinstance(error, ReadError) else str(error)


def _host_seconds(timeline: WorkerTimeline, transfers: list[tuple[int, int]]) -> Iterator[Second]:
    """The division of each window of a worker without device work, over its phases."""
    if timeline.stretches_left_out:
        return
    for identity, _, start, end in timeline.windows:
        mine = [(row.phase, row.category, row.start_ns, row.end_ns) for row in timeline.stretches]
        yield host_seconds(timeline.worker.label, identity, start, end, mine, transfers)
