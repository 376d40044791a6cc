"""What to look at first, in up to three sentences: the step, the rank others wait for, what profiling itself cost."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from accelprof.analysis.critical import BEFORE, OUTSIDE
from accelprof.analysis.division import TABLE, WORKING
from accelprof.analysis.report import Report
from accelprof.analysis.report_rows import CriticalPath, StepTime, Straggler
from accelprof.analysis.seconds import name_of_compute
from accelprof.analysis.units import duration, percent
from accelprof.output.fields import is_number

#: others' waiting below this share of the slowest step is not worth a sentence
NOTABLE = 0.01
#: of a ratio that is shown with one decimal: what rounds to 1.0 is none
SEEN = 0.05
#: a median absolute deviation times this is a standard deviation; and a difference of medians is sure from so many of its own on
SCATTER, SURE = 1.4826, 3 * 1.2533
#: of so few of its own it is sure from the 95 % quantile of Student's t on
FEW = {2: 12.71, 3: 4.30}
#: parts of a second in which a device does not compute, and what happened in them; of two that are as long the idle one is named
IDLE = {part.name: part.loss for part in sorted(TABLE, key=lambda part: part.name in WORKING) if part.loss}


def sentences(report: Report) -> list[str]:
    """At most three sentences on a report, the most telling first."""
    if report.dump:  # the critical path is that of all its steps, and not of the one it was made for
        return [f"{line[0].upper()}{line[1:]}." for line in report.dump[:3]]
    found = [
        _died(report)[1] or _step(report) or _phase(report) or _timed(report),
        _longer(report),
        _second(report),
        _cost(report),
    ]
    # what took most time is worth more than where the rest of it went
    return [sentence for sentence in found if sentence and not (sentence is found[2] and found[1] and found[3])]


def _longer(report: Report) -> str:
    """The step that was slow, or how steps became slower, where that took more than what the first sentence names was waited."""
    path = longest(report)
    late = _named(report, path) if path is not None else None
    named = late.ns if late is not None else 0
    slow: list[tuple[float, str]] = []
    grown: list[tuple[float, str]] = []
    for row in report.outliers:
        more = row.wall_ns - row.usual_ns
        where = f": {row.phase} on {row.worker or 'its slowest rank'}" if row.phase else ", in no timed phase"
        slow.append((more, f"step {row.step} took {duration(row.wall_ns)}, {duration(more)} more than usual{where}"))
    for drift in report.drift:
        more = drift.last_ns - drift.first_ns
        if drift.phase is None and more > 0:
            ends = f"{duration(drift.first_ns)} to {duration(drift.last_ns)}"
            text = f"steps grew from {ends} over {drift.steps} of them"
            where = f", most in {drift.cause}" + (f" on {drift.worker}" if drift.worker else "")
            grown.append((more * drift.steps / 2, text + (where if drift.cause else "")))
    largest = [max(mine, default=(0.0, "")) for mine in (slow, grown)]
    said = "; ".join(text for ns, text in sorted(largest, reverse=True) if ns > named)
    return f"{said[0].upper()}{said[1:]}." if said else ""


def step_of_first(report: Report) -> object:
    """The step that the first sentence is of; ``None`` where it is of no step with a window."""
    died, text = _died(report)
    if text:
        return died
    path = longest(report)
    return path.step if path is not None else _last_cut(report)


def _last_cut(report: Report) -> object:
    """The last step with a window that did not end."""
    return next((row.step for row in reversed(report.critical_path) if row.segments and not row.ended), None)


def _died(report: Report) -> tuple[object, str]:
    """The step that did not end because a rank that was recorded before never came to a collective, and that in words; empty
    where there is none."""
    over = {str(row.step) for row in report.critical_path if not row.ended}
    recorded = {timeline.worker.label for timeline in report.workers if timeline.windows}
    found: list[tuple[int, object, str]] = []
    for row in report.stragglers:
        names = [rank for rank in row.missing if rank in recorded]
        if names and str(row.step) in over and row.without_ns:
            who = f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''}"
            text = (
                f"Step {row.step} did not end: {who} is missing in {row.phase}, in which the other ranks were for "
                f"{duration(row.without_ns)} in all after the last of them came."
            )
            found.append((row.without_ns, row.step, text))
    return max(found, key=lambda one: one[0], default=(0, None, ""))[1:]


def longest(report: Report) -> CriticalPath | None:
    """The critical path of the step that took longest, of those that ended: the first sentence is of it."""
    ended = (row for row in report.critical_path if row.segments and row.ended)
    return max(ended, key=lambda row: row.wall_ns, default=None)


def _step(report: Report) -> str:
    path, cut = longest(report), _last_cut(report)
    died = "" if cut is None else f"Step {cut} did not end: the process failed in it, or was told to end"
    if path is None:
        return died and f"{died}."
    wall = path.wall_ns or sum(segment.ns for segment in path.segments)
    parts: Counter[tuple[str, str]] = Counter()
    for segment in path.segments:
        parts[segment.phase, segment.worker] += segment.ns
    (phase, worker), taken = parts.most_common(1)[0]
    text = f"{died and f'{died}; '}{'step' if died else 'Step'}{'s' * isinstance(path.step, str)} {path.step} took {duration(wall)}"
    if hosts := report.clocks_not_compared:
        text += f", as far as the clocks are known (those of {', '.join(hosts[:3])}{' …' if len(hosts) > 3 else ''} were not compared)"
    late = _named(report, path)
    here = late is not None and late.step == path.step
    if late is not None and here:
        text += f": {late.words}"
    if not wall:
        return ""
    nothing = not any(segment.worker for segment in path.segments)
    text += (
        "; no phase ran in its windows"
        if nothing
        else f"; {taken / wall:.0%} of its critical path is {phase} on {worker}{_unseen(report, path, phase, worker)}"
    )
    return f"{text}." if late is None or here else f"{text}; in step {late.step} {late.words}."


def _unseen(report: Report, path: CriticalPath, phase: str, worker: str) -> str:
    """That a phase on a worker may hold waiting of which nothing was recorded, in words that go on a sentence: as its ranks did in
    this step, or, where a rank was a little late to leave, in another."""
    peers = next((timeline.worker.peers for timeline in report.workers if timeline.worker.label == worker), None)
    rows = [row for row in report.unseen if row.phase == phase and row.group == peers]
    here = [row for row in rows if row.step == path.step]
    of = here or [row for row in rows if row.last != worker]
    row = max(of, key=lambda row: row.apart_ns, default=None)
    if row is None or row.last == worker:
        return ""
    where = "" if here else f"in step {row.step} "
    return (
        f", which may have waited in it unseen ({where}its ranks began it up to {duration(row.apart_ns)} apart, last {row.last}, "
        "and ended together)"
    )


@dataclass(frozen=True)
class _Late:
    """What was waited for longest in a step: a rank in collectives of one name, and of that what it was ``late_in`` in one phase,
    which is the most; ``shared`` of it was waited for ``others`` too, that came before it."""

    step: object
    worker: str
    ns: int
    late_in: str
    collective: str
    shared: int
    others: str

    @property
    def words(self) -> str:
        late = self.late_in.strip("()") if self.late_in in (OUTSIDE, BEFORE) else f"in {self.late_in}"
        where = f" (late {late})" if self.late_in else ""
        at = f" in {self.collective}" if self.collective else ""
        too = f", {duration(self.shared)} of it for {self.others} too" if 2 * self.shared > self.ns else ""
        return f"the other ranks waited {duration(self.ns)} for {self.worker}{at}{where}{too}"


def _named(report: Report, path: CriticalPath) -> _Late | None:
    """The waiting that is worth saying beside a step: its own, or, of a step without any (of several that gather gradients only the
    last reduces them), that of the step with the most."""
    rows: dict[object, list[Straggler]] = defaultdict(list)
    for row in report.stragglers:
        if row.step is not None:
            rows[row.step].append(row)
    least = NOTABLE * (path.wall_ns or sum(segment.ns for segment in path.segments))
    own = _latest(path.step, rows.pop(path.step, ()))
    if own is not None and own.ns > least:
        return own
    others = [late for step, mine in rows.items() if (late := _latest(step, mine)) is not None and late.ns > least]
    return max(others, key=lambda late: late.ns, default=None)


def _latest(step: object, rows: Sequence[Straggler]) -> _Late | None:
    """What was waited for longest in the rows of a step. Waits that may be nothing but the clocks' error do not count."""
    sides: Counter[str] = Counter()
    for row in rows:  # one wait may be seen on the host and on the device
        sides[row.on] += row.waited_ns
    rows = [row for row in rows if row.on == max(sides, key=lambda side: sides[side])]
    waited: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in rows:
        if row.low_ns:
            waited[row.worker, row.phase][row.late_in or ""] += row.waited_ns
    if not waited:
        return None
    (who, at), phases = max(waited.items(), key=lambda item: item[1].total())
    [(inside, taken)] = phases.most_common(1)
    shared: Counter[str] = Counter()
    for row in rows:
        if row.low_ns and (row.worker, row.phase, row.late_in or "") == (who, at, inside):
            shared[row.after] += row.waited_ns - row.alone_ns
    [(other, most)] = shared.most_common(1)
    return _Late(step, who, taken, inside, at, shared.total(), other if 2 * most > shared.total() else "others")


def _second(report: Report) -> str:
    # a worker that launches, and whose device work is in no file, has no device and says nothing of computing
    rows = [row for row in report.seconds if row.device is not None or not row.parts.get("unknown")]
    total = sum(row.window_ns for row in rows)
    parts: Counter[str] = Counter()
    for row in rows:
        parts.update(row.parts)
    reasons = {part: parts[part] for part in IDLE if parts[part]}
    if not total or not reasons:
        return ""
    largest = max(reasons, key=lambda part: reasons[part])
    what = name_of_compute(row.device for row in rows)
    why = IDLE[largest]
    without = min(report.without_ns, reasons[largest]) if largest == "idle_collective" else 0
    if without > NOTABLE * total:
        why += f", or was in one of which ranks are missing, so that it is not known whether it waited ({percent(without / total)})"
    computes, idle = percent(parts["compute"] / total), percent(reasons[largest] / total)
    return f"{computes} of the windows is {what}; in {idle} {why}."


def _phase(report: Report) -> str:
    row = max(report.phases, key=lambda row: row.share or 0.0, default=None)
    if row is None or not row.share:
        return ""
    text = f"{row.phase} ({row.group}) has the largest share of the windows' time, {percent(row.share)}"
    if row.slowest and (row.spread or 1) > 1 + NOTABLE:
        text += f", which takes {row.spread:.2f} times as long on {row.slowest} as on {row.fastest}"
    return text + "."


def _timed(report: Report) -> str:
    """Of a run with timings alone: the longest step, and its longest phase."""
    rows = [row for row in report.steps if row.wall_ns]
    mine = [row for row in rows if not row.is_costly] or rows
    steps = {row.step: row.wall_ns or 0 for row in mine}
    if not steps:
        return ""
    step = max(steps, key=lambda step: steps[step])
    text = f"Step {step} took {duration(steps[step])}"
    if len(steps) > 1:
        without = " without a window" if len(mine) < len(rows) else ""
        text += f", the longest of {len(steps)}{without} (their median is {duration(median(steps.values()))})"
    told = report.metrics.get("steps")
    phases = {
        phase: times["max"]
        for row in (told if isinstance(told, list) else ())
        if isinstance(row, dict) and row.get("step") == step and isinstance(row.get("seconds"), dict)
        for phase, times in row["seconds"].items()
        if isinstance(times, dict) and is_number(times.get("max"))
    }
    if phases:
        longest = max(phases, key=lambda phase: phases[phase])
        text += f"; its longest phase is {longest}, {duration(phases[longest] * 1e9)} on the slowest rank"
    return text + "."


def _cost(report: Report) -> str:
    steps = [row for row in report.steps if row.wall_ns]
    inside, outside = _by_the_usual(steps, _called(report))
    ran = ", ".join(_ran(report))
    if inside and _apart(inside, outside):
        times = median(inside)
        as_long = sum(one >= times * (1 - SEEN) for one in outside)
        also = f" ({as_long} without one took as long)" if as_long else ""
        return f"Steps with a window took {times:.1f} times the others{also}{'; ' + ran if ran else ''}."
    return f"{ran[0].upper()}{ran[1:]}." if ran else ""


def _by_the_usual(
    steps: Sequence[StepTime], called: Mapping[object, frozenset[str]]
) -> tuple[list[float], list[float]]:
    """How many times the median of the steps without a window, of those in which the same timed phases ran, each step with a window
    took, and each of those others: a step that saves a checkpoint is longer with a window or without."""
    apart: dict[frozenset[str] | None, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for row in steps:
        if not row.is_beside:
            apart[called.get(row.step)][0 if row.window else 1].append(row.wall_ns or 0)
    inside: list[float] = []
    outside: list[float] = []
    for mine, others in apart.values():
        if mine and len(others) > 1:
            usual = median(others)
            inside += [wall / usual for wall in mine]
            outside += [wall / usual for wall in others]
    return inside, outside


def _called(report: Report) -> dict[object, frozenset[str]]:
    """The timed phases of each step."""
    rows = report.metrics.get("steps")
    return {
        row.get("step"): frozenset(row["seconds"])
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, dict) and isinstance(row.get("seconds"), dict) and isinstance(row.get("step"), (int, str))
    }


def _apart(inside: Sequence[float], outside: Sequence[float]) -> bool:
    """Whether steps with a window took longer than the others, of which the usual takes 1, by more than both scatter and by enough to
    be seen in the figure. One step with a window scatters as the others do; what two or three say of their scatter is little."""
    usual = SURE * _scatter(outside)
    mine = max(FEW.get(len(inside), SURE) * _scatter(inside), usual)
    noise = math.hypot(mine / len(inside) ** 0.5, usual / len(outside) ** 0.5)
    return bool(median(inside) - 1 > max(noise, SEEN))


def _scatter(values: Sequence[float]) -> float:
    middle = median(values)
    return SCATTER * median(abs(one - middle) for one in values)


def _ran(report: Report) -> Iterator[str]:
    """``torch ran on rank 0``, a tool each."""
    workers: dict[str, dict[str, None]] = defaultdict(dict)
    for file in report.devices:
        workers[file.tool][file.worker.label] = None
    for tool, found in workers.items():
        names = list(found)
        yield f"{tool} ran on {names[0] if len(names) == 1 else f'{len(names)} workers'}"
