"""How each worker of a plan will start, before anything runs and whether or not the tools are installed here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accelprof.catalogue import Catalogue
from accelprof.contracts.targets import Assignment
from accelprof.errors import AccelprofError
from accelprof.launch.command import assemble, split_command, to_shell
from accelprof.launch.compose import compose
from accelprof.launch.devices import as_seen_here
from accelprof.output.layout import Layout
from accelprof.planning.plan import Plan, describe


def preview(registry: Catalogue, plan: Plan, worlds: Mapping[str, int] | None = None) -> list[dict[str, Any]]:
    """One row per imagined target: :func:`accelprof.planning.plan.describe` and ``command``, ``env``, ``gate``, ``available``."""
    layout = Layout(f"{plan.config.output_dir}/{plan.config.run if plan.config.run != 'auto' else '<run>'}")
    return [_row(registry, assignment, layout) for assignment in plan.preview(worlds)]


def _row(registry: Catalogue, assignment: Assignment, layout: Layout) -> dict[str, Any]:
    assignment = as_seen_here(registry, assignment)
    row = describe(assignment)
    row.update(
        command="",
        argv=[],
        env={},
        gate="none",
        available=True,
        windows_text=_windows_text(assignment),
        captures_text=_captures_text(assignment),
    )
    if not assignment.selected or assignment.tool is None:
        return row
    tool = registry.make_tool(assignment.tool, assignment.options)
    probe = tool.probe()
    row["available"] = probe.available
    if not probe.available:
        row["notes"].append(f"tool {assignment.tool} is not available here: {probe.reason}")
    try:
        launch = compose(registry, assignment, layout.target_dir(assignment.target))
    except AccelprofError as error:
        row["notes"].append(str(error))
        return row
    row["gate"] = tool.gate(assignment.target)
    row["env"] = dict(launch.env)
    row["notes"].extend(launch.notes)
    if launch.mode in ("prefix", "replace"):
        row["argv"] = assemble(launch, split_command(list(assignment.target.interpreter) or "python"))
        row["command"] = to_shell(row["argv"])
    return row


def _windows_text(assignment: Assignment) -> str:
    if assignment.schedules:
        text = "; ".join(
            f"{spec.phase}: calls {spec.skip_first + spec.wait + spec.warmup}-{spec.skip_first + spec.wait + spec.warmup + spec.active - 1}"
            for spec in assignment.schedules
        )
        return text + (f" in steps {assignment.steps}" if assignment.mode == "steps" else "")
    if assignment.mode != "steps":
        return {"all": "every step", "process": "the whole process", "off": "none"}[assignment.mode]
    shown = ["-".join(map(str, dict.fromkeys((window[0], window[-1])))) for window in assignment.windows[:20]]
    text = "{" + "} {".join(shown) + "}" + (" …" if len(assignment.windows) > 20 else "")
    return f"{text}, one per phase" if assignment.discrete else text


def _captures_text(assignment: Assignment) -> str:
    return "as many as phases" if assignment.count.exact is None else str(assignment.count.exact)
