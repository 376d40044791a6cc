"""How each worker of a plan will start, before anything runs and whether or not the tools are installed here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accelprof.catalogue import Catalogue
from accelprof.contracts.answers import probe_of
from accelprof.contracts.targets import Assignment
from accelprof.errors import AccelprofError
from accelprof.launch.command import assemble, split_command, to_shell
from accelprof.launch.compose import compose
from accelprof.launch.devices import as_seen_here
from accelprof.output.layout import Layout
from accelprof.planning.plan import Plan, describe


def preview(catalogue: Catalogue, plan: Plan, worlds: Mapping[str, int] | None = None) -> list[dict[str, Any]]:
    """One row per imagined target: :func:`accelprof.planning.plan.describe` and ``command``, ``env``, ``trigger``, ``available``, ``tools``
    (each with all its options and the directory it writes to); the driver first, where the configuration profiles it."""
    layout = Layout(f"{plan.config.output_dir}/{plan.config.run if plan.config.run != 'auto' else '<run>'}")
    rows = [_row(catalogue, plan, assignment, layout) for assignment in plan.preview(worlds)]
    said = start_of_driver(catalogue, plan)
    if said:
        rows[0]["notes"].append(said)
    return rows


def start_of_driver(catalogue: Catalogue, plan: Plan) -> str:
    """How the driver is started so that it is recorded; empty where it is not profiled, or needs no start of its own."""
    assignment = plan.driver()
    if assignment is None:
        return ""
    try:
        mode = compose(catalogue, plan.uses_of(assignment), assignment, plan.config.output_dir).mode
    except AccelprofError:
        return ""  # said where it is refused
    if mode == "none":
        return ""
    return (
        f"{assignment.tool} records the driver where accelprof starts it: accelprof run -c FILE -- python driver.py; "
        "a plain python driver.py is not recorded, its workers are"
    )


def _row(catalogue: Catalogue, plan: Plan, assignment: Assignment, layout: Layout) -> dict[str, Any]:
    assignment = as_seen_here(catalogue, assignment, plan.uses_of(assignment))
    row = describe(assignment)
    row.update(
        command="",
        argv=[],
        env={},
        trigger="none",
        available=True,
        tools=[],
        windows_text=_windows_text(assignment),
        captures_text=_captures_text(assignment),
    )
    if not assignment.selected or assignment.tool is None:
        return row
    uses = plan.uses_of(assignment)
    directory = layout.target_dir(assignment.target)
    for use in uses:
        if use.tool is not None:
            options = use.tool.options.model_dump(mode="json", exclude_none=True)
            if "contents" in options and not options["contents"]:
                options["contents"] = list(use.tool.meaning()["contents"])  # what an empty list stands for
            row["tools"].append({"tool": use.name, "options": options, "directory": directory})
            probe = probe_of(use.tool)
            row["available"] = row["available"] and probe.available
            if not probe.available:
                row["notes"].append(f"tool {use.name} is not available here: {probe.reason}")
    try:
        launch = compose(catalogue, uses, assignment, directory)
    except AccelprofError as error:
        row["notes"].append(str(error))
        return row
    if uses[0].tool is not None:
        row["trigger"] = uses[0].tool.trigger(assignment.target)
    row["env"] = dict(launch.env)
    row["notes"].extend(launch.notes)
    if launch.mode in ("prefix", "replace"):
        row["argv"] = assemble(launch, split_command(list(assignment.target.interpreter) or "python"))
        row["command"] = to_shell(row["argv"])
    return row


def _windows_text(assignment: Assignment) -> str:
    if assignment.schedules:
        text = "; ".join(
            f"{spec.phase}: calls {spec.first}-{spec.first + spec.active - 1}" for spec in assignment.schedules
        )
        return text + (f" in steps {assignment.steps}" if assignment.mode == "steps" else "")
    if assignment.mode != "steps":
        return {"all": "every step", "process": "the whole process", "off": "none"}[assignment.mode]
    shown = ["-".join(map(str, dict.fromkeys((window[0], window[-1])))) for window in assignment.windows[:20]]
    text = "{" + "} {".join(shown) + "}" + (" …" if len(assignment.windows) > 20 else "")
    return f"{text}, one per phase" if assignment.discrete else text


def _captures_text(assignment: Assignment) -> str:
    return "as many as phases" if assignment.count.exact is None else str(assignment.count.exact)
