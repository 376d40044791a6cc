"""The plot of phases per rank per step, as numbers for the template: one panel a step, one lane a rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from accelprof.analysis.nesting import parents
from accelprof.analysis.phases import Call, WorkerTimeline
from accelprof.analysis.summary import Summary
from accelprof.analysis.table import duration

WIDTH, LABELS, RIGHT = 1120.0, 168.0, 16.0
BAR, GAP, HEAD, AXIS = 15.0, 7.0, 30.0, 24.0
MAX_DEPTH, MAX_WORKERS, MAX_PANELS, MAX_BARS = 5, 24, 12, 1500
COLORS = 9
#: neighbours of one colour that are narrower than this are drawn as one bar
NARROW = 1.5


@dataclass
class Bar:
    x: float
    y: float
    width: float
    height: float
    color: str
    text: str
    title: str
    count: int = 1

    @property
    def end(self) -> float:
        return self.x + self.width


@dataclass
class Lane:
    label: str
    y: float
    height: float
    left: float
    width: float
    bars: list[Bar] = field(default_factory=list)


@dataclass
class Panel:
    title: str
    height: float
    ticks: list[tuple[float, str]]
    lanes: list[Lane]


@dataclass
class Plot:
    """``colors``: phase -> CSS class; ``note``: what was not drawn."""

    panels: list[Panel] = field(default_factory=list)
    colors: dict[str, str] = field(default_factory=dict)
    note: str = ""
    width: float = WIDTH

    def color(self, phase: str) -> str:
        return self.colors.get(phase, "other")


def plot(summary: Summary) -> Plot:
    """Lay out every step window of a run."""
    result = Plot(colors=_colors(summary))
    steps = sorted({window[1] for timeline in summary.timelines for window in timeline.windows})
    workers = summary.timelines[:MAX_WORKERS]
    left_out: Counter[str] = Counter()
    for wanted in steps[:MAX_PANELS]:
        panel = _panel(summary, workers, wanted, result, left_out)
        if panel is not None:
            result.panels.append(panel)
    left_out["steps"] += max(len(steps) - MAX_PANELS, 0)
    left_out["spans"] += sum(timeline.calls_left_out for timeline in workers)
    left_out["workers"] += max(len(summary.timelines) - MAX_WORKERS, 0)
    notes = [f"{count:,} {what}" for what, count in left_out.items() if count]
    result.note = f"Not drawn: {', '.join(notes)}; the timeline has them." if notes else ""
    return result


def _colors(summary: Summary) -> dict[str, str]:
    """The phases with the most self time get a colour each, by first appearance; the rest are grey."""
    own: Counter[str] = Counter()
    for row in summary.phases:
        own[row.phase] += row.self_ns if row.depth else max(row.self_ns, row.total_ns // 3)
    chosen = {phase for phase, taken in own.most_common(COLORS) if taken}
    return {phase: f"c{number}" for number, phase in enumerate(phase for phase in own if phase in chosen)}


def _panel(
    summary: Summary, workers: Sequence[WorkerTimeline], steps: tuple[int, ...], result: Plot, left_out: Counter[str]
) -> Panel | None:
    shifts = {
        timeline.worker.key: summary.run.offset_ns(
            timeline.worker, min((window[2] for window in timeline.windows if window[1] == steps), default=None)
        )[0]
        for timeline in workers
    }
    mine: list[tuple[WorkerTimeline, list[tuple[int, int]]]] = []
    for timeline in workers:
        windows = sorted((window[2], window[3]) for window in timeline.windows if window[1] == steps)
        if windows:
            mine.append((timeline, windows))
    if not mine:
        return None
    begin = min(windows[0][0] - shifts[timeline.worker.key] for timeline, windows in mine)
    end = max(window[1] - shifts[timeline.worker.key] for timeline, windows in mine for window in windows)
    scale = (WIDTH - LABELS - RIGHT) / max(end - begin, 1)
    lanes, y = [], HEAD
    for timeline, windows in mine:
        shift = shifts[timeline.worker.key] + begin
        low, high = windows[0][0], windows[-1][1]
        calls = [call for call in timeline.calls if call.end_ns > low and call.start_ns < high]
        lane = _lane(timeline, calls, y, scale, shift, result.colors, left_out)
        lane.left, lane.width = LABELS + (low - shift) * scale, (high - low) * scale
        lanes.append(lane)
        y += lane.height + GAP
    word = "steps" if len(steps) > 1 else "step"
    title = f"{word} {', '.join(map(str, steps))}" if steps else "outside steps"
    return Panel(f"{title} · {duration(end - begin)}", y + AXIS, _ticks(end - begin, scale), lanes)


def _lane(
    timeline: WorkerTimeline,
    calls: list[Call],
    y: float,
    scale: float,
    shift: int,
    colors: Mapping[str, str],
    left_out: Counter[str],
) -> Lane:
    bounds = [(call.start_ns, call.end_ns) for call in calls]
    above = parents(bounds)
    depths: dict[int, int] = {}

    def depth(index: int) -> int:
        chain = [index]
        while chain[-1] not in depths and above[chain[-1]] is not None:
            chain.append(above[chain[-1]])  # type: ignore[arg-type]
        level = depths.get(chain[-1], 0)
        for item in reversed(chain):
            depths.setdefault(item, level)
            level = depths[item] + 1
        return depths[index]

    lane = Lane(timeline.worker.label, y, BAR, 0.0, 0.0)
    taken: dict[int, list[int]] = {}
    last: dict[int, Bar] = {}
    for index in sorted(range(len(calls)), key=lambda item: (bounds[item][0], -bounds[item][1])):
        call, level = calls[index], depth(index)
        while level < MAX_DEPTH and any(end > call.start_ns for end in taken.get(level, [])[-1:]):
            level += 1  # concurrent tasks and threads go below each other
        if level >= MAX_DEPTH or len(lane.bars) >= MAX_BARS:
            left_out["spans"] += 1
            continue
        taken.setdefault(level, []).append(call.end_ns)
        lane.height = max(lane.height, (level + 1) * (BAR + 1))
        left = max(LABELS + (call.start_ns - shift) * scale, LABELS)
        right = LABELS + (call.end_ns - shift) * scale
        color = colors.get(call.phase, "other")
        before = last.get(level)
        if before is not None and before.color == color and right - left < NARROW and left - before.end < NARROW / 3:
            before.count += 1
            before.width = max(right - before.x, before.width)
            before.title = f"{before.count} x {call.phase} on {timeline.worker.label}"
            continue
        cut = " (cut by the window)" if call.cut else ""
        title = f"{call.phase}\n{duration(call.taken_ns)} on {timeline.worker.label}{cut}"
        text = call.phase if right - left > 7.2 * len(call.phase) + 8 else ""
        width = max(right - left - 0.6, 0.4)
        last[level] = Bar(left, y + level * (BAR + 1), width, BAR, color, text, title)
        lane.bars.append(last[level])
    return lane


def _ticks(length_ns: int, scale: float) -> list[tuple[float, str]]:
    """Five to ten round moments from 0 to the end."""
    unit = _round_unit(length_ns)
    return [(LABELS + at * scale, duration(at) if at else "0") for at in range(0, length_ns + 1, unit)]


def _round_unit(length_ns: int) -> int:
    unit = 1
    while True:
        for factor in (1, 2, 5):
            if length_ns / (unit * factor) <= 8:
                return unit * factor
        unit *= 10
