"""A report of any files that a reader knows, without a manifest: single files, directories of them, the newest run."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from accelprof import texts
from accelprof.analysis.attribution import label
from accelprof.analysis.many import Failed, Progress, each, weight
from accelprof.analysis.phases import TIMED
from accelprof.analysis.reading import Loaded, load_any, reader_of
from accelprof.analysis.run import Run, RunFile, WorkerId, is_run
from accelprof.analysis.summary import Part, Summary, SummaryBuilder, reason_of
from accelprof.contracts.names import MANIFEST, REPORT, TIMELINE, TIMELINE_TOOL, WORKERS
from accelprof.contracts.spans import FURTHEST_NS, Kind, Span, Trace
from accelprof.contracts.targets import Target
from accelprof.errors import AccelprofError, ReadError, UserError, failures, text_of
from accelprof.output.layout import MARKER
from accelprof.output.records import ArtifactRow, Lack, Manifest
from accelprof.reading.chrome import sources_of
from accelprof.reading.columns import NONE, Array, columns_of, whole
from accelprof.release import VERSION

#: ends of names that are worth opening in a directory; a tool that knows a file by its name is asked in any case
ENDS = (".json", ".json.gz")
#: what stands in place of a tool for a merged timeline with device work
MERGED = "timeline"
#: made by ourselves of the others
OWN = frozenset({MANIFEST, REPORT, TIMELINE})
MAX_LISTED = 20_000
_BARREN = f"is no run (no manifest, no {WORKERS}) and has no file that a reader knows"
RUNS_DIRECTORY = os.path.join("outputs", "profile")


def summarise_files(paths: Sequence[str], *, processes: int = 1, progress: Progress | None = None) -> Summary:
    """Figures of single files, each once however often it is named; a directory stands for the files in it that a reader knows.

    What of them cannot be read is named and the others count.

    Args:
        processes: in how many they are read, where there is enough of them.

    Raises:
        ReadError: none could be read.
    """
    of_path = {path: list(_files(path)) for path in dict.fromkeys(paths)}
    once: dict[str, str] = {}
    for path in itertools.chain.from_iterable(of_path.values()):
        once.setdefault(os.path.realpath(path), path)
    found = list(once.values())
    barren = [path for path, files in of_path.items() if not files]
    if not found:
        raise UserError(f"report: {barren[0]} {_BARREN}")
    names = _distinct(found)
    directory = os.path.abspath(paths[0] if os.path.isdir(paths[0]) else os.path.dirname(paths[0]) or ".")
    run = Run(directory, Manifest(run=texts.listed(names, 3), accelprof=VERSION, created=""))
    named = {
        os.path.realpath(path) for path in paths if not os.path.isdir(path) or reader_of(path, None, []) is not None
    }
    jobs = [[_Job(path, name, real in named)] for (real, path), name in zip(once.items(), names, strict=True)]
    sizes = [weight(path, os.path.getsize(path)) if os.path.isfile(path) else 0 for path in found]
    answers = list(each(_read_part, run, jobs, sizes, processes=processes, progress=progress))
    builder = SummaryBuilder(run)
    for path in barren:
        builder.not_read(_unread(path, WorkerId(path, path, "files"), True), f"it {_BARREN}")
    groups: dict[object, list[int]] = {}
    for at, first in enumerate(answers):
        groups.setdefault(_key(first, at), []).append(at)
    of_group = [answers[places[0]] for places in groups.values()]
    together = [[jobs[at][0] for at in places] for places in groups.values()]
    _told_apart(together, of_group)
    again = [at for at, mine in enumerate(together) if len(mine) > 1 or mine[0].apart]
    weights = [sum(sizes[place] for place in places) for places in groups.values()]
    read_again = each(
        _read_part, run, [together[at] for at in again], [weights[at] for at in again], processes=processes
    )
    for at, answer in zip(again, read_again, strict=True):
        of_group[at] = answer
    reasons: list[str] = []
    for mine, answer in zip(together, of_group, strict=True):
        if isinstance(answer, Failed):
            for path, name, asked, _ in mine:
                reasons.append(answer.why)
                builder.not_read(_unread(path, WorkerId(path, name, "files"), asked), answer.why)
        else:
            reasons.extend(answer.reasons)
            builder.take(answer.part)
    if len(reasons) == len(found):
        raise ReadError(
            paths[0],
            reasons[0] if len(found) == 1 else f"none of {len(found)} files could be read: {'; '.join(reasons[:3])}",
        )
    summary = builder.finish()
    summary.problems = list(dict.fromkeys(summary.problems))
    summary.absent = list(dict.fromkeys(summary.absent))
    summary.lacks = Lack.once(summary.lacks)
    return summary


class _Job(NamedTuple):
    """A file to read: its path and name, whether it was asked for (not found in a directory), and what is put behind the names of its
    workers where others are called the same."""

    path: str
    name: str
    asked: bool
    apart: str = ""


@dataclass
class _Answer:
    """What files of one process come to; ``reasons``: of those that could not be read."""

    part: Part
    reasons: list[str]


def _key(answer: _Answer | Failed, at: int) -> object:
    """The process whose phases a file has; something of its own for any other file."""
    timelines = [] if isinstance(answer, Failed) else answer.part.timelines
    return timelines[0].worker.key if len(timelines) == 1 else at


def _told_apart(together: Sequence[list[_Job]], answers: Sequence[_Answer | Failed]) -> None:
    """Give processes that are called the same, as those without a rank are and those of two runs, names of their own."""
    workers = [
        [] if isinstance(one, Failed) else [timeline.worker for timeline in one.part.timelines] for one in answers
    ]
    times = Counter(worker.label for mine in workers for worker in mine)
    for jobs, mine in zip(together, workers, strict=True):
        if any(times[worker.label] > 1 for worker in mine):
            one = mine[0]
            where = f"in {jobs[0].name}" if one.pid is None and one.host is None else f"pid {one.pid} on {one.host}"
            jobs[:] = [job._replace(apart=f" ({where})") for job in jobs]


def _read_part(run: Run, files: Sequence[_Job]) -> _Answer:
    builder = SummaryBuilder(run, whole=False)
    reasons = []
    for path, name, asked, apart in files:
        worker = WorkerId(path, name, "files")
        try:
            loaded = load_any(path)
            if loaded.figures is not None:
                builder.add(_file(path, worker, loaded.tool), loaded)
                continue
            trace = loaded.trace()
            worker = _worker(path, name, trace, apart)
            if not _is_ours(trace):
                builder.add(_file(path, worker, loaded.tool), loaded)
                builder.add_phases(worker, _phases(trace))
            elif sources := _sources(trace):
                builder.add_problems(_file(path, worker, MERGED), trace)
                for mine, phases, devices in _workers(path, worker, trace, sources, apart):
                    timeline = builder.add_phases(mine, _phases(phases))
                    for own in (source for source in sources if source.own and mine.key == f"{path} {source.key}"):
                        timeline.transfers, timeline.matched = own.transfers, own.matched
                    for part, unsure in devices:
                        builder.add(_file(path, mine, MERGED), Loaded(path, MERGED, trace=part), unsure)
            else:
                builder.add(_file(path, worker, TIMELINE_TOOL), loaded)
        except AccelprofError as error:
            reasons.append(reason_of(error))
            builder.not_read(_unread(path, worker, asked), reasons[-1])
        except failures() as error:  # whatever one file holds, the others count
            reasons.append(f"its figures could not be made: {text_of(error)}")
            builder.not_read(_unread(path, worker, asked), reasons[-1])
    return _Answer(builder.part(), reasons)


def _file(path: str, worker: WorkerId, tool: str) -> RunFile:
    return RunFile(ArtifactRow(path=path, tool=tool), worker, path)


def _unread(path: str, worker: WorkerId, asked: bool) -> RunFile:
    """What lies in a directory beside the files of a tool may be anything; nobody asked for it."""
    file = _file(path, worker, "")
    file.skip = "" if asked else "no reader of its own was asked for"
    return file


def _is_ours(trace: Trace) -> bool:
    return "accelprof" in trace.metadata


def _worker(path: str, name: str, trace: Trace, apart: str) -> WorkerId:
    """The process that left a file where the file says it, otherwise the file by its name. Processes of two hosts may have one
    number, as those in containers do."""
    origin = trace.origin
    if origin.group is None:
        return WorkerId(path, name, "files", origin.rank, None, origin.host, origin.pid)
    shown = Target(origin.group, rank=origin.rank, replica=origin.replica, engine_rank=origin.engine_rank).label
    key, shown = f"{shown} {origin.pid} {origin.host}", shown + apart
    numbers = (origin.rank, origin.replica)
    return WorkerId(key, shown, origin.group, *numbers, origin.host, origin.pid, origin.engine_rank)


@dataclass
class _Source:
    """The files of one tool and worker in a merged timeline, the codes of their processes, what they say of collectives, and from
    when to when those go that are not whole."""

    worker: str
    group: str
    key: str
    own: bool
    processes: set[int]
    transfers: list[tuple[int, int]] = field(default_factory=list)
    matched: list[tuple[int, int]] = field(default_factory=list)
    unsure: list[tuple[int, int]] = field(default_factory=list)


def _sources(trace: Trace) -> list[_Source]:
    """Those of a merged timeline that have processes in it; empty for any other file."""
    processes = columns_of(trace).processes
    codes = {process: code for code, process in enumerate(processes)}
    found: dict[tuple[str, str], _Source] = {}
    for number, source, pids in sources_of(trace.metadata["accelprof"]):
        key, tool = str(source.get("key")), str(source.get("tool"))
        label_of, group = str(source.get("worker") or number), str(source.get("group") or "files")
        one = found.setdefault((key, tool), _Source(label_of, group, key, tool == TIMELINE_TOOL, set()))
        one.processes.update(codes[pid] for pid in pids if isinstance(pid, int) and pid in codes)
        bounds = list(_pairs([[source.get("begin_ns"), source.get("end_ns")]]))
        if isinstance(transfers := source.get("transfers"), list):
            one.transfers.extend(_pairs(transfers))
            one.matched.extend(bounds)
        said = source.get("completeness")
        if isinstance(said, dict) and any(map(said.get, ("cut", "left_out", "dropped", "unread"))):
            one.unsure.extend(bounds)
    return [source for source in found.values() if source.processes]


def _pairs(said: list[object]) -> Iterator[tuple[int, int]]:
    for pair in said:
        if isinstance(pair, list) and len(pair) == 2 and all(whole(at) and abs(at) < FURTHEST_NS for at in pair):
            yield pair[0], pair[1]


def _workers(
    path: str, file: WorkerId, trace: Trace, sources: Sequence[_Source], apart: str
) -> Iterator[tuple[WorkerId, Trace, list[tuple[Trace, list[tuple[int, int]]]]]]:
    """Each worker of a merged timeline, the part that has its phases, and those that other tools left of it, with when they lack some.

    A worker's phases are those of its own timeline where it is there, so that none counts twice, and so are the windows of
    a part that marks none. What belongs to no source is shown as the file's own.
    """
    columns = columns_of(trace)

    def part(rows: Array, *, own: bool = False) -> Trace:
        said = trace.metadata if own else {}
        return Trace(trace.source, trace.tool, trace.clock, metadata=said, columns=columns.take(rows))

    of_process: Array = np.full(max(len(columns.processes), 1), NONE, dtype=np.int32)
    of_worker: dict[str, list[int]] = {}
    for number, source in enumerate(sources):
        of_process[list(source.processes)] = number
        of_worker.setdefault(source.key, []).append(number)
    source_of, windows, phase = of_process[columns.process], columns.mask(Kind.WINDOW), columns.mask(*TIMED)
    for key, numbers in of_worker.items():
        mine, rows = [sources[number] for number in numbers], [source_of == number for number in numbers]
        own = next((held for source, held in zip(mine, rows, strict=True) if source.own), None)
        others = [(held, source.unsure) for source, held in zip(mine, rows, strict=True) if not source.own]
        if own is not None:
            others = [(held if (held & windows).any() else held | own & windows, unsure) for held, unsure in others]
        timed = [held for held, _ in others if (held & phase).any()] or rows
        worker = WorkerId(f"{path} {key}", mine[0].worker + apart, mine[0].group)
        phases = part(timed[0]) if own is None else part(own, own=True)
        yield worker, phases, [(part(held), unsure) for held, unsure in others]
    if (source_of == NONE).any():
        rest = part(source_of == NONE)
        yield file, rest, [(rest, [])] if columns_of(rest).work().size else []


def _phases(trace: Trace) -> Trace:
    """The ranges of a file by their names without numbers, in its windows or else in one as long as the file."""
    columns = columns_of(trace)
    windows = columns.rows(Kind.WINDOW).tolist() if _is_ours(trace) else []
    spans = [columns.span(row) for row in (*columns.rows(*TIMED).tolist(), *windows)]
    for span in spans:
        span.name = label(span.name)
    if len(columns) and not windows:
        first, last = int(columns.start.min()), int(columns.end.max())
        spans.append(Span("the file", Kind.WINDOW, first, last))
    return Trace(trace.source, trace.tool, spans=spans)


def _distinct(paths: Sequence[str]) -> list[str]:
    """The shortest end of each path that no other has."""
    parts = [Path(os.path.abspath(path)).parts for path in paths]
    depth = 1
    while depth < max(map(len, parts), default=1):
        times = Counter(part[-depth:] for part in parts)
        if all(count == 1 for count in times.values()):
            break
        depth += 1
    return [os.path.join(*part[-depth:]) for part in parts]


def _files(path: str) -> Iterator[str]:
    if not os.path.isdir(path) or reader_of(path, None, []) is not None:
        yield path
        return
    yield from _walk(path)


def _walk(path: str) -> Iterator[str]:
    """Regular files only: links to directories are not followed, and a FIFO would never end."""
    for folder, directories, names in os.walk(path):
        directories.sort()
        for name in list(directories):
            inside = os.path.join(folder, name)
            if name.startswith(".") or reader_of(inside, None, []) is not None:
                directories.remove(name)
                if not name.startswith("."):
                    yield inside
        for name in sorted(names):
            inside = os.path.join(folder, name)
            if name.startswith(".") or name in OWN or not os.path.isfile(inside):
                continue
            if name.endswith(ENDS) or reader_of(inside, None, []) is not None:
                yield inside


def newest_run(start: str = ".") -> str:
    """The run directory that was finished last: in ``outputs/profile``, otherwise below ``start``.

    Raises:
        UserError: there is none.
    """
    for base, depth in ((os.path.join(start, RUNS_DIRECTORY), 1), (start, 4)):
        runs = list(_runs(base, depth))
        if runs:
            return os.path.normpath(max(runs, key=_when))
    raise UserError(f"report: no run in {os.path.abspath(start)} or its directories; name a run directory or files")


def _runs(base: str, depth: int) -> Iterator[str]:
    waiting, listed = [(base, 0)], 0
    while waiting and listed < MAX_LISTED:
        directory, level = waiting.pop()
        if is_run(directory) or os.path.exists(os.path.join(directory, MARKER)):
            yield directory
            continue
        if level == depth:
            continue
        try:
            entries = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir(follow_symlinks=False))
        except OSError:
            continue
        listed += len(entries)
        waiting.extend((os.path.join(directory, name), level + 1) for name in entries if not name.startswith("."))


def _when(directory: str) -> float:
    times = []
    for name in (MANIFEST, WORKERS, MARKER):
        try:
            times.append(os.stat(os.path.join(directory, name)).st_mtime)
        except OSError:
            continue
    return max(times, default=0.0)
