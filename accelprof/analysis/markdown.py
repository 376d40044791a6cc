"""A comparison as Markdown, for the description of a pull request."""

from __future__ import annotations

import re

from accelprof.analysis.changes import CHANGE_COLUMNS, change_cells, headline
from accelprof.analysis.compare import MEASURES, READ, Comparison
from accelprof.analysis.escape import terminal

_ACTING = re.compile(r"([\\`*_{}\[\]<>|#!~&@])")


def cell(text: object) -> str:
    """A label as Markdown shows it: no markup of it acts, nobody is mentioned, and it stays in its cell."""
    return _ACTING.sub(r"\\\1", terminal(text)).replace("\\@", "@\u2060").replace("\\&", "&amp;").replace("\\<", "&lt;")


def comparison(found: Comparison, top: int = 12) -> str:
    """A table a measure, the largest differences first."""
    lines = [f"**{cell(found.before)} → {cell(found.after)}**"]
    first = headline(found)
    if first:
        lines += ["", cell(first)]
    lines += [f"> ⚠ {cell(line)}" for line in found.partial]
    for measure, meaning in MEASURES.items():
        rows = found.of(measure)
        if not rows:
            continue
        lines += [
            "",
            f"| {measure} ({meaning}) | {' | '.join(CHANGE_COLUMNS)} |",
            f"|---|{'--:|' * len(CHANGE_COLUMNS)}",
        ]
        for row in rows[:top]:
            lines.append(f"| {cell(row.name)} | {' | '.join(change_cells(row))} |")
        if len(rows) > top:
            lines.append(f"| … and {len(rows) - top} more |{' |' * len(CHANGE_COLUMNS)}")
    lines += ["", cell(READ)]
    if found.notes:
        lines += ["", *(f"- {cell(note)}" for note in found.notes)]
    if found.unchanged:
        lines += ["", "No change."]
    return "\n".join(lines)
