"""``report.html``: one file that loads nothing from elsewhere, for light and dark screens, paper and the keyboard.

Its drawings are made by ``report.js`` on canvas: a plotting library that draws lanes with nested calls weighs 1 MB and more
(ECharts, Plotly), the small ones (uPlot) draw lines only, and all of them would still need the lanes, the heat map and the
keyboard written by hand. Tables stand in the page as HTML, so that it can be read without scripts.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from accelprof import atomic, texts
from accelprof.analysis import escape, frames
from accelprof.analysis.changes import CHANGE_COLUMNS, change_cells, headline
from accelprof.analysis.compare import MEASURES, READ
from accelprof.analysis.figures import cell, figures_of, shown
from accelprof.analysis.first import sentences
from accelprof.analysis.html.data import COLORS, MAX_ROWS, MAX_SHARES, page_data
from accelprof.analysis.memory import by_worker
from accelprof.analysis.report import Report
from accelprof.analysis.summary import Summary
from accelprof.analysis.table import COST_SOURCE, ranges_cost, slowest_text
from accelprof.analysis.units import NONE, duration, percent
from accelprof.analysis.waited import Waited, waited

if TYPE_CHECKING:
    from accelprof.analysis.compare import Comparison

HERE = Path(__file__).parent
#: of the table of every step: the newest steps, the longest phases
MAX_STEPS, MAX_TAGS = 12, 20
#: operators with the most self time; the others are summed
MAX_OPERATORS = 40
#: the longest waits; the others are summed
MAX_WAITS = 24
#: the longest phases that are not on a critical path
MAX_SLACK = 12
#: lines of problems and rows of tables that the page shows; ``accelprof report --json`` has all
MAX_LINES = 100


@functools.cache
def _template() -> jinja2.Template:
    """The page's template, compiled once in a process: that takes longer than all the rest of a small run's end."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: escape.terminal(value) if type(value) is str else value,
    )
    environment.filters.update(duration=duration, percent=percent, bytes=functools.partial(cell, unit="bytes"))
    environment.globals.update(
        slowest=slowest_text,
        ranges_cost=ranges_cost,
        cost_source=COST_SOURCE,
        changes=change_cells,
        change_columns=CHANGE_COLUMNS,
        how_changes_read=READ,
        headline=headline,
        shown=shown,
        figures_of=figures_of,
        NONE=NONE,
    )
    return environment.get_template("report.html.j2")


def render_html(summary: Summary, comparison: Comparison | None = None) -> str:
    """The report of a run as one HTML page, with a comparison to an earlier one where there is one."""
    report = summary.report()
    tables = _tables(summary, report)
    data = _as_shown({**page_data(summary, report), "waits": _waits_by_step(tables["stragglers"])})
    return _template().render(
        css=Markup((HERE / "report.css").read_text(encoding="utf-8")),
        js=Markup((HERE / "report.js").read_text(encoding="utf-8")),
        data=Markup(_script_json(data)),
        summary=summary,
        report=report,
        manifest=summary.run.manifest,
        first=sentences(report),
        color=lambda phase: (
            f"c{data['colors'][shown]}" if (shown := escape.terminal(phase)) in data["colors"] else "other"
        ),
        facts=_facts(summary),
        tables=tables,
        steps=_steps(summary, report),
        comparison=comparison,
        measures=MEASURES,
        limit=MAX_ROWS,
        lines=MAX_LINES,
    )


def write_report(summary: Summary, path: str, comparison: Comparison | None = None) -> None:
    """Write the page to ``path`` in one step.

    Raises:
        OSError: the file cannot be written.
    """
    with atomic.whole(path) as temporary:
        Path(temporary).write_text(render_html(summary, comparison), encoding="utf-8", errors="replace")


def _as_shown(value: Any) -> Any:
    """Data for the script with labels as the page's text has them, so that both name a phase alike."""
    if type(value) is str:
        return escape.terminal(value)
    if isinstance(value, dict):
        return {escape.terminal(key): _as_shown(found) for key, found in value.items()}
    return [_as_shown(found) for found in value] if isinstance(value, list) else value


def _script_json(data: Mapping[str, object]) -> str:
    """JSON that can stand in a script element: nothing in it ends the element or begins a comment."""
    text = texts.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _facts(summary: Summary) -> list[tuple[str, str]]:
    """``(name, value)`` tiles at the head of the page."""
    windows = sum(len(timeline.windows) for timeline in summary.timelines)
    steps = sorted({step for timeline in summary.timelines for window in timeline.windows for step in window[1]})
    measured = sum(timeline.window_ns for timeline in summary.timelines)
    known = f" of {len(summary.run.workers)}" if summary.run.workers else ""
    many = f"{steps[0]} … {steps[-1]} ({len(steps):,})" if len(steps) > 8 else ""
    facts = [
        ("workers", f"{len(summary.timelines)}{known}"),
        ("windows", f"{windows:,}"),
        ("steps in windows", many or ", ".join(map(str, steps)) or NONE),
        ("time measured", duration(measured) if measured else NONE),
    ]
    busy = [row for file in summary.files for row in file.attribution.devices]
    if busy:
        facts.append(("device busy", duration(sum(row.busy_ns for row in busy))))
    return facts


def _steps(summary: Summary, report: Report) -> dict[str, Any]:
    """Phase times of every announced step, profiled or not, as the controller collected them: the slowest rank's."""
    steps = summary.run.steps()
    shown = steps[-MAX_STEPS:]
    largest: dict[str, float] = {}
    for row in shown:
        for tag, figures in row["seconds"].items():
            largest[tag] = max(largest.get(tag, 0.0), figures.get("max") or 0.0)
    tags = sorted(largest, key=lambda tag: -largest[tag])[:MAX_TAGS]
    profiled = {row.step for row in report.steps if row.window}
    rows = []
    for tag in tags:
        values = [row["seconds"].get(tag, {}).get("max") for row in shown]
        cells = [
            {"text": duration(None if value is None else value * 1e9), "share": (value or 0.0) / (largest[tag] or 1.0)}
            for value in values
        ]
        rows.append({"phase": tag, "cells": cells})
    heads = [{"step": row["step"], "profiled": row["step"] in profiled} for row in shown]
    return {"heads": heads, "rows": rows, "left_out": (len(steps) - len(shown), len(largest) - len(tags))}


def _tables(summary: Summary, report: Report) -> dict[str, Any]:
    """Rows of the tables: over all windows and ranks, the longest first; ``…_rest`` sums what is not shown."""
    waits = waited(report.stragglers)
    devices = sorted(frames.devices(summary), key=lambda row: (row.busy_share is None, row.busy_share or 0.0))
    return {
        "stragglers": waits[:MAX_WAITS],
        "stragglers_rest": (
            sum(row.times for row in waits[MAX_WAITS:]),
            sum(row.waited_ns for row in waits[MAX_WAITS:]),
        ),
        "slack": heapq.nlargest(MAX_SLACK, report.slack, key=lambda row: row.ns),
        "devices": devices[:MAX_ROWS],
        "devices_rest": (len(devices[MAX_ROWS:]), sum(row.busy_ns for row in devices[MAX_ROWS:])),
        "device_phases": list(frames.device_phases(summary))[:MAX_ROWS],
        "left_over": list(frames.left_over(summary))[:MAX_ROWS],
        "kernels": list(frames.kernels(summary))[:60],
        "operators": (operators := report.operators)[:MAX_OPERATORS],
        "operators_rest": operators[MAX_OPERATORS:],
        "cost": report.cost[:MAX_ROWS],
        "memory": by_worker(report.memory)[:MAX_ROWS],
        "files": list(summary.run.manifest.artifacts.values()),
    }


def _waits_by_step(rows: Sequence[Waited]) -> list[list[list[Any]]]:
    """Of each row ``[step, times, waited, low, high, longest, transfer, alone]`` of each step; empty where there are too many."""
    if sum(len(row.steps) for row in rows) > MAX_SHARES:
        return []
    return [
        [
            [
                str(step), one.times, one.waited_ns, one.low_ns, one.high_ns, one.longest.waited_ns,
                one.transfer_ns, one.alone_ns,
            ]
            for step, one in row.steps.items()
        ]
        for row in rows
    ]  # fmt: skip


__all__ = ["COLORS", "render_html", "write_report"]
