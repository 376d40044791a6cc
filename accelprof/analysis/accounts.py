"""What a file's figures stand for: whose they are, which windows they hold, what of those is not in it, what it cost."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

import numpy as np

from accelprof import texts
from accelprof.analysis.attribution import Attribution, DeviceFigures, label
from accelprof.analysis.division import WORKING
from accelprof.analysis.holders import launches_of
from accelprof.analysis.phases import WorkerTimeline
from accelprof.analysis.report_rows import Cost
from accelprof.analysis.run import Run, RunFile, WorkerId
from accelprof.analysis.seconds import Second, lost_second
from accelprof.analysis.toolfile import ToolFile
from accelprof.contracts.spans import DEVICE_WORK, Kind, Trace
from accelprof.output.records import WindowRow
from accelprof.reading.columns import NONE, Array, Columns, columns_of

#: steps and phases that are named one by one before the rest is counted
NAMED = 5
#: share of a file's kernels, or launches, that may be missing from the phases, or the file, before that is a fault of it
NOTICED = 0.01
#: ns that a tool's own work in a file may take without a word
OVERHEAD_NS = 1_000_000
#: share of a file's stretch that its window must cover by the worker's clock; with less the file has another clock
SAME_CLOCK = 0.9


def shared_out(run: Run, file: RunFile, trace: Trace, notices: list[str]) -> Iterator[tuple[RunFile, Trace]]:
    """A file of one tool around several workers, by their process ids; one of a single worker as it is.

    What belongs to none of them, and a file that cannot be split, is said in ``notices``.
    """
    workers: dict[str, WorkerId] = {}
    of_worker: dict[str, list[str]] = defaultdict(list)
    for identity in file.windows:
        window = run.manifest.windows.get(identity)
        worker = run.workers.get(window.target) if window is not None else None
        if worker is not None:
            workers[worker.key] = worker
            of_worker[worker.key].append(identity)
    if len(workers) < 2:
        yield file, trace
        return
    columns = columns_of(trace)
    there = [worker for worker in workers.values() if worker.pid in columns.processes]
    names = ", ".join(worker.label for worker in workers.values())
    lost = [worker for worker in workers.values() if worker not in there]
    if len({worker.pid for worker in there}) < len(there) or not there:
        notices.append(
            f"{file.artifact.path} holds windows of {names}, but no process of {_pids(lost) or 'one of its own for each'}; it "
            "cannot be split and is shown for all of them together"
        )
        together = dataclasses.replace(file.worker, label=" + ".join(worker.label for worker in workers.values()))
        yield dataclasses.replace(file, worker=together), trace
        return
    for worker in lost:
        notices.append(
            f"{file.artifact.path} holds nothing of {_pids([worker])}: its window {', '.join(of_worker[worker.key])} is missing"
        )
    for worker in there:
        code = columns.processes.index(worker.pid or 0)
        part = Trace(
            trace.source, trace.tool, trace.clock, problems=[], metadata=trace.metadata, origin=trace.origin,
            columns=columns.take(columns.process == code), completeness=trace.completeness,
        )  # fmt: skip
        artifact = dataclasses.replace(file.artifact, windows=of_worker[worker.key])
        yield dataclasses.replace(file, worker=worker, artifact=artifact), part
    others = columns.mask(*DEVICE_WORK)
    for worker in there:
        others = others & (columns.process != columns.processes.index(worker.pid or 0))
    if others.any():
        pids = sorted({str(columns.processes[code]) for code in set(columns.process[others].tolist())})
        notices.append(
            f"{file.artifact.path}: {int(others.sum()):,} pieces of device work are of processes {', '.join(pids)}, "
            f"which are none of {names}; they are not shown"
        )


def _pids(workers: Iterable[WorkerId]) -> str:
    return ", ".join(f"{worker.label} (pid {worker.pid})" for worker in workers)


def by_process(columns: Columns) -> list[Columns]:
    """The rows of a file around several processes, those of each together, so that its windows and phases count for the devices
    that it launches work on; the file as it is with one process that launches work or has phases of ours.

    Work belongs to the process of its launch, otherwise to its own. What stands on none of these processes (Kineto's devices
    and windows do) belongs to each. Windows that one process alone marks are those of the file.
    """
    work = columns.work()
    if not len(columns) or columns.scope.min() != columns.scope.max():
        return [columns]  # the files of one worker, brought together
    launch, _ = launches_of(columns, work)
    launched = launch != NONE
    owners = np.union1d(columns.process[launch[launched]], columns.process[columns.rows(Kind.PHASE)])
    if owners.size < 2:
        return [columns]
    process: Array = columns.process.copy()
    process[work[launched]] = columns.process[launch[launched]]
    nobody, windows = ~np.isin(process, owners), columns.mask(Kind.WINDOW)
    one = np.unique(process[windows]).size < 2
    found = []
    for owner in owners.tolist():
        mine = process == owner
        others = nobody & ~windows if (mine & windows).any() else nobody
        found.append(columns.take(mine | others | windows if one else mine | others))
    return found


def windows_in(
    columns: Columns, windows: Sequence[str], known: Mapping[str, WindowRow]
) -> tuple[list[tuple[str, int, int]], bool]:
    """``(id, start, end)`` of a file's windows on its own clock, and whether that is where they began and ended.

    Its window spans in order, when there are as many. A file of one window without such a span goes from its first event
    to its last, and what lies idle before and behind them is the window's too: ``known`` are the run's windows by id, for
    files whose times are their worker's epoch clock.
    """
    rows = columns.rows(Kind.WINDOW)
    if not rows.size:
        if len(windows) != 1 or not len(columns):
            return [], False
        first, last = int(columns.start.min()), int(columns.end.max())
        recorded = _as_recorded(known.get(windows[0]))
        if recorded is None or min(last, recorded[1]) - max(first, recorded[0]) < SAME_CLOCK * (last - first):
            return [(windows[0], first, last)], False
        return [(windows[0], min(first, recorded[0]), max(last, recorded[1]))], True
    order = rows[columns.start[rows].argsort(kind="stable")].tolist()
    names = windows if len(windows) == len(order) else [columns.names[columns.name[row]] for row in order]
    found = zip(names, columns.start[order].tolist(), columns.end[order].tolist(), strict=True)
    return [(str(name), start, end) for name, start, end in found], True


def _as_recorded(row: WindowRow | None) -> tuple[int, int] | None:
    """When a window was open, in ns since the epoch: until its tools began to stop."""
    if row is None or row.opened is None or row.closed is None or row.close_ns is None:
        return None
    return row.opened.epoch_ns, row.closed.epoch_ns - row.close_ns


def lost_launches(found: Attribution) -> tuple[str, bool]:
    """A line where a file lacks the device work of some launches, and whether so many that its figures are not whole: what a
    window lost looks like an improvement. Empty where none is lost."""
    if not found.launches_without_work:
        return "", False
    line = f"{found.launches_without_work:,} of {found.launches:,} launches have no kernel in this file"
    return line, found.launches_without_work > NOTICED * found.launches


def not_in_files(
    run: Run, files: Iterable[ToolFile], timelines: Sequence[WorkerTimeline]
) -> Iterator[tuple[str, bool]]:
    """What files should hold and do not, and whether so much that they are not whole: work of their launches, steps and calls of
    their windows."""
    calls = {timeline.worker.key: timeline for timeline in timelines}
    for file in files:
        where, found = file.where, file.attribution
        line, much = lost_launches(found)
        if line:
            yield f"{where}: {line}", much
        wanted = {
            step
            for window in file.windows
            if window in run.manifest.windows
            for step in run.manifest.windows[window].steps
        }
        if found.steps and len(wanted) > 1 and len(found.steps) < len(wanted):
            yield f"{where}: {len(found.steps)} of {len(wanted)} steps of its windows are in the file", True
        timeline = calls.get(file.worker.key)
        called = timeline.called_in(file.windows) if timeline is not None else {}
        for row in found.phases:
            whole = row.calls - row.cut
            if whole < called.get(row.name, 0):
                yield f"{where}: {row.name}: {whole} of {called[row.name]} calls are in the file", True
        if timeline is not None:
            for name, seen in _never_seen(timeline, called, {row.name for row in found.phases}):
                yield f"{where}: {name}: 0 of {called[name]} calls are in the file", seen


def _never_seen(timeline: WorkerTimeline, called: Mapping[str, int], there: Set[str]) -> Iterator[tuple[str, bool]]:
    """The phases of which a file that has others has no call, and whether it has others of all their threads and tasks: a tool
    may record neither those of other threads nor of suspended code."""
    if there.isdisjoint(called):
        return
    missing = [name for name, count in called.items() if count and label(name) not in there]
    rows: dict[str, set[int]] = defaultdict(set)
    for stretch in timeline.stretches if missing else ():
        for name in (stretch.phase, *stretch.around):
            rows[name].add(stretch.row)
    known = set().union(*(rows[name] for name in there))
    for name in missing:
        yield name, bool(rows[name]) and rows[name] <= known


def measured(devices: list[DeviceFigures], seconds: list[Second]) -> None:
    """Give each device the length of its windows, and how much of them it works."""
    for device in devices:
        for second in seconds:
            if second.device == device.device and not second.lost:
                parts = second.parts
                device.window_ns += second.window_ns
                device.busy_in_window_ns += sum(parts[part] for part in WORKING)


def idle_windows(run: Run, files: Iterable[ToolFile]) -> Iterator[tuple[list[Second], str]]:
    """The windows in which a device did nothing that the same tool saw at work in another of its worker's windows, by worker and
    tool, and a line about those without any device work. Their files get the device, idle: a file of its own for each window
    would otherwise be no window at all. Where a file lost work it is unknown whose."""
    of_tool: dict[tuple[str, str], list[ToolFile]] = defaultdict(list)
    for file in files:
        if file.idle:
            of_tool[file.worker.key, file.tool].append(file)
    for (_, tool), mine in of_tool.items():
        there: dict[str, set[int | str]] = defaultdict(set)
        unsure = set()
        for file in mine:
            for row in file.idle:
                there[row.window].update(device.device for device in file.attribution.devices)
                if file.attribution.launches_without_work or not file.whole:
                    unsure.add(row.window)
        devices = sorted(set().union(*there.values()), key=str)
        found, empty = [], []
        for file in mine:
            added = {device: DeviceFigures(device) for device in devices}
            for row in file.idle:
                known = there[row.window]
                # a file around several processes names its devices otherwise
                missing = [
                    one for one in devices if one not in known and (not known or {type(one)} == set(map(type, known)))
                ]
                if missing and not known and row.window not in unsure:
                    empty.append(row.window)
                known.update(missing)
                for device in missing:
                    if row.window in unsure:
                        found.append(lost_second(row.worker, row.window, 0, row.window_ns, device))
                        continue
                    found.append(dataclasses.replace(row, device=device))
                    if added[device] not in file.attribution.devices:
                        file.attribution.devices.append(added[device])
                    added[device].window_ns += row.window_ns if file.marked else 0
        line = ""
        if empty:
            names = [
                f"{name} (step {texts.listed([str(step) for step in run.manifest.windows[name].steps], NAMED)})"
                for name in empty
                if name in run.manifest.windows
            ]
            line = (
                f"{mine[0].worker.label}: {tool}: {len(empty)} of {len(there)} windows hold no device work, and the device counts as "
                f"idle in them: {texts.listed(names, NAMED)}"
            )
        yield found, line


def doubts(files: Sequence[ToolFile]) -> Iterator[str]:
    """What a reader of a file's figures should know first: calls without device work, work that outlasts the call that launched it,
    a worker without any."""
    yield from _without_devices(files)
    for file in files:
        where, found = file.where, file.attribution
        if found.overhead.total() >= OVERHEAD_NS:
            yield (
                f"{where}: the profiler's own work took {found.overhead.total() / 1e6:.3f} ms of this file: "
                f"{texts.listed([name for name, _ in found.overhead.most_common()], NAMED)}"
            )
        empty = [name for name, kernels in found.steps.items() if not kernels]
        if empty and len(empty) < len(found.steps):
            yield f"{where}: {texts.listed(empty, NAMED)} of {len(found.steps)} steps launched no device work"
        for row in found.phases:
            if row.kernels and row.calls_without_work and row.calls > 1:
                yield f"{where}: {row.name}: {row.calls_without_work} of {row.calls} calls launched no device work"
            if row.outlasting is not None and row.outlasting[1] > 2 * row.outlasting[2]:
                kernel, took, lasted = row.outlasting
                yield (
                    f"{where}: {kernel[:60]} took {took / 1e6:.3f} ms, longer than the call of {row.name} that launched it "
                    f"({lasted / 1e6:.3f} ms)"
                )


def _without_devices(files: Iterable[ToolFile]) -> Iterator[str]:
    """A line for each worker in none of whose files of a tool there is device work, where the same tool has that of others of its
    group: a vendor's library that did not take hold in one process leaves its ranges without their kernels."""
    worked: dict[tuple[str, str], dict[str, bool]] = defaultdict(dict)
    for file in files:
        mine = worked[file.tool, file.worker.group]
        mine[file.worker.label] = mine.get(file.worker.label, False) or bool(file.attribution.devices)
    for (tool, _), found in worked.items():
        without = [worker for worker, there in found.items() if not there]
        if 0 < len(without) < len(found):
            yield (
                f"{texts.listed(without, NAMED)}: no device work in any file of {tool}, which has that of {len(found) - len(without)} "
                f"of {len(found)} workers of the group; figures of devices are without it, unless it launched none"
            )


def undrained(run: Run) -> Iterator[str]:
    """A line for each worker that did not wait for its device before some of its windows ended."""
    for row in cost_rows(run):
        if row.undrained:
            yield (
                f"{row.worker}: {row.undrained} of {row.windows} windows ended without waiting for the device (drain: false, or "
                "the wait failed): work that still ran may be missing from their files"
            )


def cost_rows(run: Run) -> list[Cost]:
    """What recording itself took of each worker's time, in ns: opening, waiting for the device, closing of its windows, and
    the ranges in them. ``undrained`` windows did not wait, though their tools see the device.

    ``ranges`` is how many of them there were, ``None`` where no timeline counted; ``ranges_ns`` what those of the
    windows took in which a range's cost was measured, ``None`` without any, and ``ranges_unmeasured`` how many there
    were in the others; ``range_ns`` what one takes in the last of these windows, as measured over ``range_calls`` calls.
    """
    of_worker: dict[str, list[WindowRow]] = defaultdict(list)
    for window in run.manifest.windows.values():
        if window.target in run.workers:
            of_worker[window.target].append(window)
    return [_cost(run.workers[key].label, windows) for key, windows in of_worker.items()]


def _cost(worker: str, windows: Sequence[WindowRow]) -> Cost:
    counted = [(row.spans + (row.dropped or 0), row) for row in windows if row.spans is not None]
    measured = [(ranges, row.range_ns, row) for ranges, row in counted if row.range_ns is not None]
    return Cost(
        worker, windows=len(windows), undrained=sum(row.drained is False for row in windows),
        open_ns=sum(row.open_ns or 0 for row in windows), drain_ns=sum(row.drain_ns or 0 for row in windows),
        close_ns=sum(row.close_ns or 0 for row in windows), spans=sum(row.spans or 0 for row in windows),
        ranges=sum(ranges for ranges, _ in counted) if counted else None,
        ranges_ns=sum(ranges * ns for ranges, ns, _ in measured) if measured else None,
        ranges_unmeasured=sum(ranges for ranges, row in counted if row.range_ns is None),
        range_ns=measured[-1][1] if measured else None, range_calls=measured[-1][2].range_calls if measured else None,
    )  # fmt: skip
