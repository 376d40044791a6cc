"""``report.html``: one file that loads nothing from elsewhere, for light and dark screens."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from accelprof.analysis.figures import shown
from accelprof.analysis.html.plot import Plot, plot
from accelprof.analysis.summary import Summary
from accelprof.analysis.table import NONE, duration, percent, slowest_text

HERE = Path(__file__).parent
MAX_RANKS = 16
MAX_STEPS = 12
MAX_TAGS = 20


def render_html(summary: Summary) -> str:
    """The report of a run as one HTML page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(duration=duration, percent=percent)
    environment.globals.update(slowest=slowest_text, shown=shown)
    drawn = plot(summary)
    return environment.get_template("report.html.j2").render(
        css=Markup((HERE / "report.css").read_text(encoding="utf-8")),
        summary=summary,
        manifest=summary.run.manifest,
        plot=drawn,
        color=drawn.color,
        matrices=[_matrix(summary, group) for group in dict.fromkeys(row.group for row in summary.phases)],
        facts=_facts(summary, drawn),
        steps=_steps(summary),
    )


def write_report(summary: Summary, path: str) -> None:
    """Write the page to ``path`` in one step.

    Raises:
        OSError: the file cannot be written.
    """
    temporary = f"{path}.{os.getpid()}.part"
    try:
        Path(temporary).write_text(render_html(summary), encoding="utf-8", errors="replace")
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def _facts(summary: Summary, drawn: Plot) -> list[tuple[str, str]]:
    """``(name, value)`` tiles at the head of the page."""
    windows = sum(len(timeline.windows) for timeline in summary.timelines)
    steps = sorted({step for timeline in summary.timelines for window in timeline.windows for step in window[1]})
    measured = sum(timeline.window_ns for timeline in summary.timelines)
    facts = [
        ("workers", f"{len(summary.timelines)} of {len(summary.run.workers)}"),
        ("windows", str(windows)),
        ("steps", ", ".join(map(str, steps[:8])) + (" …" if len(steps) > 8 else "") or NONE),
        ("time measured", duration(measured) if measured else NONE),
    ]
    busy = [row for file in summary.files for row in file.attribution.devices]
    if busy:
        facts.append(("device busy", duration(sum(row.busy_ns for row in busy))))
    return facts


def _steps(summary: Summary) -> dict[str, Any]:
    """Phase times of every announced step, profiled or not, as the controller collected them: the slowest rank's."""
    steps = summary.run.steps()
    shown = steps[-MAX_STEPS:]
    largest: dict[str, float] = {}
    for row in shown:
        for tag, figures in row["seconds"].items():
            largest[tag] = max(largest.get(tag, 0.0), figures.get("max") or 0.0)
    tags = sorted(largest, key=lambda tag: -largest[tag])[:MAX_TAGS]
    profiled = {step for timeline in summary.timelines for window in timeline.windows for step in window[1]}
    rows = []
    for tag in tags:
        values = [row["seconds"].get(tag, {}).get("max") for row in shown]
        cells = [
            {"text": duration(None if value is None else value * 1e9), "share": (value or 0.0) / (largest[tag] or 1.0)}
            for value in values
        ]
        rows.append({"phase": tag, "cells": cells})
    heads = [{"step": row.get("step"), "profiled": row.get("step") in profiled} for row in shown]
    return {"heads": heads, "rows": rows, "left_out": (len(steps) - len(shown), len(largest) - len(tags))}


def _matrix(summary: Summary, group: str) -> dict[str, Any]:
    """Time per window of each phase on each rank of a group, with the largest of each row."""
    rows = [row for row in summary.phases if row.group == group]
    labels = [timeline.worker.label for timeline in summary.timelines if timeline.worker.group == group]
    shown = labels[:MAX_RANKS]
    return {
        "group": group,
        "ranks": [label.removeprefix(f"{group}/") for label in shown],
        "left_out": len(labels) - len(shown),
        "rows": [
            {
                "phase": row.phase,
                "depth": row.depth,
                "cells": [
                    {
                        "text": duration(row.ranks[label].per_window_ns) if label in row.ranks else NONE,
                        "slowest": label == row.slowest,
                    }
                    for label in shown
                ],
                "spread": f"{row.spread:.2f}x" if row.spread is not None else NONE,
            }
            for row in rows
        ],
    }
