"""What the page draws, as plain data that stays small: the worst ranks by name, the rest in sum, a matrix as bytes."""

from __future__ import annotations

import base64
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from accelprof.analysis.division import TABLE
from accelprof.analysis.first import step_of_first
from accelprof.analysis.intervals import lengths_by
from accelprof.analysis.phases import Call, WorkerTimeline
from accelprof.analysis.report import Report
from accelprof.analysis.report_rows import CriticalPath, step_name
from accelprof.analysis.seconds import COLLECTIVE, Second, name_of_compute, waits_for_data, waits_for_others
from accelprof.analysis.summary import Summary

#: parts of a second in the order in which they are drawn, and what they are called
PARTS = {part.name: part.drawn for part in sorted(TABLE, key=lambda part: part.place)}
COLORS = 9
MAX_BARS = 32
#: bars times steps, and rows of waits times steps, of which the page has the figures of each
MAX_SHARES = 8_000
MAX_ROWS = 200
MAX_STEPS = 2000
MAX_LANES, MAX_PANELS, MAX_CALLS, MAX_DEPTH = 24, 12, 6000, 5
#: cells of all heat maps together, two bytes each
MAX_CELLS = 1_300_000
#: a worker, its clock minus the driver's, and its windows of some steps on the driver's clock
Worked = tuple[WorkerTimeline, int, list[tuple[int, int]]]
FULL = 65_535


def page_data(summary: Summary, report: Report) -> dict[str, Any]:
    """Data of the drawn parts; ``report`` is the summary's. Times in ns."""
    colors = _colors(summary)
    order = list(dict.fromkeys([*colors, *(row.phase for row in summary.phases)]))
    return {
        "colors": colors,
        "steps": _steps(summary, report),
        "seconds": _seconds(summary, report.seconds),
        "heat": _heat(summary, order),
        "lanes": (lanes := _lanes(summary, report)),
        "open": next((at for at, panel in enumerate(lanes) if panel["steps"] == str(step_of_first(report))), 0),
    }


def _colors(summary: Summary) -> dict[str, int]:
    """The phases with the most self time get a colour each, by first appearance; the rest are grey."""
    own: Counter[str] = Counter()
    for row in summary.phases:
        own[row.phase] += row.self_ns if row.depth else max(row.self_ns, row.total_ns // 3)
    chosen = {phase for phase, taken in own.most_common(COLORS) if taken}
    return {phase: number for number, phase in enumerate(phase for phase in own if phase in chosen)}


def _steps(summary: Summary, report: Report) -> dict[str, Any]:
    """Wall time of each step and time in its longest phases, the newest steps."""
    rows = report.steps[-MAX_STEPS:]
    timed = {row["step"]: row["seconds"] for row in summary.run.steps()}
    largest: Counter[str] = Counter()
    for row in rows:
        for phase, figures in timed.get(row.step, {}).items():
            largest[phase] = max(largest[phase], figures.get("max") or 0)
    phases = [phase for phase, _ in largest.most_common(12)]
    return {
        "step": [row.step for row in rows],
        "wall": [row.wall_ns for row in rows],
        "window": [1 if row.window else 2 if row.is_beside else 0 for row in rows],
        "phases": {phase: [_ns(timed.get(row.step, {}).get(phase, {}).get("max")) for row in rows] for phase in phases},
    }


def _ns(seconds: object) -> int | None:
    return round(seconds * 1e9) if isinstance(seconds, (int, float)) else None


def _seconds(summary: Summary, seconds: Sequence[Second]) -> dict[str, Any]:
    """Parts by worker and device over windows, the least computing first; beyond ``MAX_BARS`` in one bar.

    ``steps`` are those that windows hold, and ``by`` of a bar has its parts in each of them, where there is room for these and
    each window's steps are known."""
    found: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    windows: Counter[tuple[str, str]] = Counter()
    steps_in = {identity: _steps_text(row.steps) for identity, row in summary.run.manifest.windows.items() if row.steps}
    seen: dict[str, int] = {}
    for row in seconds:
        key = _bar_of(row)
        found[key].update(row.parts)
        windows[key] += row.window_ns
        seen.setdefault(steps_in.get(row.window, ""), len(seen))
    keys = sorted(found, key=lambda key: (found[key]["compute"] / windows[key] if windows[key] else 1.0, key))
    own = len(keys) if len(keys) <= MAX_BARS else MAX_BARS - 1
    bars: list[dict[str, Any]] = [
        {
            "name": f"{worker} device {device}".removesuffix(" device "),
            "window": windows[worker, device],
            "ns": [found[worker, device].get(part, 0) for part in PARTS],
            "by": [],
        }
        for worker, device in keys[:own]
    ]
    if rest := keys[own:]:
        sums = [sum(found[key].get(part, 0) for key in rest) for part in PARTS]
        window = sum(windows[key] for key in rest)
        bars.append({"name": f"{len(rest)} others", "window": window, "ns": sums, "by": []})
    fits = "" not in seen and len(bars) * len(seen) <= MAX_SHARES
    if fits:
        for bar in bars:
            bar["by"] = [[0] * len(PARTS) for _ in seen]
        place = {key: min(at, own) for at, key in enumerate(keys)}
        for row in seconds:
            mine = bars[place[_bar_of(row)]]["by"][seen[steps_in[row.window]]]
            for at, part in enumerate(PARTS):
                mine[at] += row.parts.get(part, 0)
    what = name_of_compute(row.device for row in seconds)
    return {"parts": list({**PARTS, "compute": what}.values()), "rows": bars, "steps": list(seen) if fits else []}


def _bar_of(row: Second) -> tuple[str, str]:
    return row.worker, "" if row.device is None else str(row.device)


# --- heat map ------------------------------------------------------------------------------------------------------------


def _heat(summary: Summary, phases: Sequence[str]) -> dict[str, Any]:
    """Time per worker and window of steps: all phases together but those in which a rank waits for others, and each phase while there
    is room; the slowest rank first."""
    columns = sorted({window[1] for timeline in summary.timelines for window in timeline.windows})
    if not columns or not summary.timelines:
        return {"ranks": [], "steps": [], "maps": []}
    column = {steps: number for number, steps in enumerate(columns)}
    size = (len(summary.timelines), len(columns))
    room = max(MAX_CELLS // (size[0] * size[1]), 1)
    kept = phases[: max(min(room - 1, 12), 0)]
    total = np.zeros(size)
    maps = {phase: np.zeros(size) for phase in kept}
    for row, timeline in enumerate(summary.timelines):
        _fill(timeline, column, total[row], {phase: values[row] for phase, values in maps.items()})
        if len(timeline.stretches):
            total[row] = _at_work(timeline, column, size[1])
    means = total.sum(axis=1) / np.maximum((total > 0).sum(axis=1), 1)
    order = np.argsort(-means, kind="stable")
    layers = [("all phases", total), *maps.items()]
    return {
        "ranks": [summary.timelines[index].worker.label for index in order.tolist()],
        "steps": [_steps_text(steps) for steps in columns],
        "maps": [{"phase": phase, **_packed(values[order])} for phase, values in layers],
    }


def _fill(
    timeline: WorkerTimeline, column: Mapping[tuple[int, ...], int], total: Any, phases: Mapping[str, Any]
) -> None:
    windows = sorted((start, end, column[steps]) for _, steps, start, end in timeline.windows)
    starts = np.array([row[0] for row in windows], dtype=np.int64)
    calls = sorted(timeline.calls, key=lambda call: (call.start_ns, -call.end_ns))
    at = np.searchsorted(starts, np.array([call.start_ns for call in calls], dtype=np.int64), side="right") - 1
    ends = 0
    for call, index in zip(calls, np.maximum(at, 0).tolist(), strict=True):
        start, end, where = windows[index]
        own = phases.get(call.phase)
        if own is not None:
            own[where] += call.taken_ns
        if call.end_ns > ends:  # time in any phase: what lies under an earlier call counts once
            total[where] += max(min(call.end_ns, end) - max(call.start_ns, ends, start), 0)
            ends = call.end_ns
    if not calls:
        for start, end, where in windows:
            total[where] += end - start


def _at_work(timeline: WorkerTimeline, column: Mapping[tuple[int, ...], int], count: int) -> Any:
    """ns by window of steps in which any thread is in a phase that waits neither for another rank nor for another role; what waits
    for data counts, because slow data make a rank slow."""
    own = np.array([_own(phase, category) and not joint for phase, category, _, joint, _ in timeline.stretches.heads])
    heads, (_, starts, ends, _) = timeline.stretches.columns()
    mine = own[np.array(heads)]
    start, end = np.array(starts)[mine], np.array(ends)[mine]
    windows = sorted((begin, column[steps]) for _, steps, begin, _ in timeline.windows)
    at = np.searchsorted(np.array([begin for begin, _ in windows]), start, side="right") - 1
    return lengths_by(np.array([where for _, where in windows])[np.maximum(at, 0)], start, end, count)


def _own(phase: str, category: str) -> bool:
    return category != COLLECTIVE and (waits_for_data(phase, category) or not waits_for_others(phase, category))


def _packed(values: Any) -> dict[str, Any]:
    largest = float(values.max()) or 1.0
    cells = np.ceil(values / largest * FULL).astype("<u2")
    return {"max": largest, "cells": base64.b64encode(cells.tobytes()).decode("ascii")}


def _steps_text(steps: Sequence[int]) -> str:
    return str(step_name(steps)) or "-"


# --- lanes ---------------------------------------------------------------------------------------------------------------


def _lanes(summary: Summary, report: Report) -> list[dict[str, Any]]:
    """Calls of each window of steps on the driver's clock, and the critical path through them; of many the slowest are kept."""
    paths = {row.step: row for row in report.critical_path}
    lengths: dict[tuple[int, ...], int] = {}
    for timeline in summary.timelines:
        for _, steps, start, end in timeline.windows:
            lengths[steps] = max(lengths.get(steps, 0), end - start)
    walls = {steps: max((paths[step].wall_ns for step in steps if step in paths), default=0) for steps in lengths}
    kept = sorted(sorted(lengths, key=lambda steps: (-walls[steps], -lengths[steps]))[:MAX_PANELS])
    found: dict[tuple[int, ...], list[Worked]] = {steps: [] for steps in kept}
    for timeline in summary.timelines:
        mine: dict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
        for _, steps, start, end in timeline.windows:
            if steps in found:
                mine[steps].append((start, end))
        for steps, windows in mine.items():
            shift = summary.run.offset_ns(timeline.worker, min(windows)[0])[0]
            found[steps].append((timeline, shift, sorted((start - shift, end - shift) for start, end in windows)))
    return [_panel(steps, found[steps], paths) for steps in kept]


def _panel(steps: tuple[int, ...], found: list[Worked], paths: Mapping[int | str, CriticalPath]) -> dict[str, object]:
    segments = next((paths[step].segments for step in steps if step in paths), [])
    on_path: Counter[str] = Counter()
    for row in segments:
        on_path[row.worker] += row.ns
    # those on the critical path, then those that take longest
    found.sort(key=lambda item: (-on_path[item[0].worker.label], -sum(end - start for start, end in item[2])))
    shown = sorted(found[:MAX_LANES], key=lambda item: item[0].worker.order)
    begin = min(windows[0][0] for _, _, windows in shown)
    room = max(MAX_CALLS // len(shown), 20)
    lanes, cut = [], 0
    for timeline, shift, windows in shown:
        calls, left = _drawn(timeline, shift, windows, begin, room)
        cut += left
        moved = [[start - begin, end - begin] for start, end in windows]
        lanes.append({"name": timeline.worker.label, "windows": moved, "calls": calls})
    at, drawn, unseen = 0, [], False
    for row in segments:
        drawn.append([row.worker, row.phase, at, at + row.ns])
        unseen |= row.unseen
        at += row.ns
    hidden = len(found) - len(shown)
    return {"steps": _steps_text(steps), "lanes": lanes, "path": drawn, "hidden": hidden, "cut": cut, "unseen": unseen}


def _drawn(
    timeline: WorkerTimeline, shift: int, windows: Sequence[tuple[int, int]], begin: int, room: int
) -> tuple[list[list[Any]], int]:
    """``[phase, start, end, depth, cut]`` of the longest calls in the windows, and how many were left out."""
    low, high = windows[0][0], max(end for _, end in windows)
    calls: list[Call] = [call for call in timeline.calls if call.end_ns - shift > low and call.start_ns - shift < high]
    kept = sorted(calls, key=lambda call: call.start_ns - call.end_ns)[:room]
    kept.sort(key=lambda call: (call.start_ns, -call.end_ns))
    free: list[int] = []  # when each depth has room again: nested and concurrent calls stand below each other
    rows = []
    for call in kept:
        depth = next((number for number, end in enumerate(free) if end <= call.start_ns), len(free))
        if depth < MAX_DEPTH:
            free[depth : depth + 1] = [call.end_ns]
            rows.append([call.phase, call.start_ns - shift - begin, call.end_ns - shift - begin, depth, int(call.cut)])
    return rows, len(calls) - len(rows)
