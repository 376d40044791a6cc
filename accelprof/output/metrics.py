"""What a manifest says of each step: its timings over the ranks, and the memory at its end."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

from accelprof.contracts.exporter import over_ranks
from accelprof.contracts.timings import Timings
from accelprof.output.records import Manifest

#: timings of steps that a manifest has at most, the latest; rows of memory that it has in all
STEPS_KEPT, MEMORY_ROWS = 10_000, 20_000


def metrics_of(
    found: Manifest,
    steps: Mapping[int, Mapping[str, Timings]] | None = None,
    spans: Mapping[int, Mapping[str, tuple[int, int]]] | None = None,
    cut: Collection[int] = (),
) -> dict[str, object]:
    """``{"steps": [step_row, …]}``, the last :data:`STEPS_KEPT`: of ``steps`` where there are any, else of what the journals have.

    Args:
        steps, spans: of whoever announced the steps, step -> label -> timings, and when it began and how long it took (ns).
        cut: steps that did not come to their end.
    """
    of = dict(steps or {})
    times = {step: dict(rows) for step, rows in (spans or {}).items()}
    if not of:
        # of a rank that was started again the later attempt counts, whichever journal is read first
        for row in sorted(found.timings, key=lambda row: row.began_ns or 0):
            of[row.step] = {**of.get(row.step, {}), row.label: row.timings()}
            if row.began_ns is not None and row.wall_ns is not None:
                times.setdefault(row.step, {})[row.label] = row.began_ns, row.wall_ns
    # one that failed and was then done again has its end
    done = {(row.label, row.step) for row in found.timings if row.wall_ns is not None}
    begun = {(row.label, row.step) for row in found.timings if row.began_ns is not None}
    cut = {step for _, step in begun - done} | set(cut)
    profiled = {step for window in found.windows.values() for step in window.steps}
    kept = sorted(of)[-STEPS_KEPT:]
    return {"steps": [step_row(step, of[step], times.get(step), step in profiled, step not in cut) for step in kept]}


def step_row(
    step: int,
    rows: Mapping[str, Timings],
    spans: Mapping[str, tuple[int, int]] | None = None,
    window: bool = False,
    ended: bool = True,
) -> dict[str, Any]:
    """One step for the manifest: per tag max, mean, min over the ranks that have it, their number, and the slowest.

    Args:
        spans: label of whoever announced the step -> when it began there (Unix epoch, ns) and how long it took (ns); the
            row has the earliest beginning and the longest time.
        window: whether a window holds the step, so that profiling's own cost is in it.
        ended: whether it came to its end on all who announced it; of another no length is told.
    """
    times: dict[str, object] = {}
    if not ended:
        times = {"ended": False}
    elif spans:
        times = {
            "began_ns": min(began for began, _ in spans.values()),
            "wall_ns": max(wall for _, wall in spans.values()),
        }
    return {
        "step": step,
        **times,
        "window": window,
        "seconds": {tag: asdict(figures) for tag, figures in over_ranks(rows).items()},
    }


def memory_rows(found: Manifest) -> list[dict[str, Any]]:
    """``{step, worker, allocated, …}`` of each step and worker, none where nobody has any. With more than :data:`MEMORY_ROWS` of them the
    workers of each step with the most are kept, and ``workers`` says of how many."""
    steps: dict[int, dict[str, dict[str, int]]] = {}
    for row in found.memories:
        target = found.targets.get(row.target)
        figures = row.figures()
        if figures:
            steps.setdefault(row.step, {})[target.label if target is not None else row.target] = figures
    kept = max(MEMORY_ROWS // max(len(steps), 1), 1)
    rows: list[dict[str, Any]] = []
    for step in sorted(steps)[-MEMORY_ROWS:]:
        mine = steps[step]
        order = (
            sorted(mine) if len(mine) <= kept else sorted(mine, key=lambda label: (-max(mine[label].values()), label))
        )
        more = {"workers": len(mine)} if len(mine) > kept else {}
        rows += [{"step": step, "worker": label, **mine[label], **more} for label in order[:kept]]
    return rows
