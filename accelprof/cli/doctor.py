"""``accelprof doctor``: is everything here that a profiled run needs, and if not, why."""

from __future__ import annotations

import bisect
import os
import platform
import shutil
import sys
from dataclasses import replace
from typing import Any

import click

from accelprof import texts
from accelprof.analysis.escape import terminal
from accelprof.contracts.doctor import Check
from accelprof.errors import failures
from accelprof.output.layout import impossible
from accelprof.session.identity import from_environment, host_name
from accelprof.versions import installed

LIBRARIES = ("pluggy", "pydantic", "torch", "ray", "omegaconf", "hydra-core")
LOW_SPACE = 10 << 30
#: the highest priority of a backend that can be used, and whose devices are not here
WITHOUT_DEVICE = 10


def checks(output_dir: str) -> list[Check]:
    """All rows of this machine: ours, backends, broken plug-ins, then what plug-ins add."""
    from accelprof.catalogue import get_catalogue

    catalogue = get_catalogue()
    rows = [
        Check("core", "python", "ok", f"{platform.python_version()} at {sys.executable}"),
        *_libraries(),
        _output(output_dir),
        _identity(),
    ]
    for name, probe in catalogue.probes():
        present = probe.priority is not None and probe.priority > WITHOUT_DEVICE
        facts = [f"{fact}: {value}" for fact, value in probe.facts.items() if value not in (None, "", [])]
        detail = "; ".join([probe.reason, *facts])
        rows.append(Check("backend", name, "ok" if present or name == "cpu" else "info", detail))
    try:
        detected = catalogue.detect()
        rows.append(Check("backend", "in use", "ok", f"{detected.backend.name} ({detected.reason})"))
    except failures() as error:  # the reason is what this command is for
        rows.append(Check("backend", "in use", "fail", str(error)))
    rows.extend(
        Check("plug-in", item.name, "fail", item.reason, f"mend or uninstall {item.distribution or item.name}")
        for item in catalogue.broken
    )
    node = {"hostname": host_name(), "output_dir": output_dir, "interpreter": sys.executable}
    for answer in catalogue.host.call("accelprof_doctor", node=node):
        rows.extend(row for row in answer if isinstance(row, Check))
    return rows


def _libraries() -> list[Check]:
    found = {name: installed(name) for name in LIBRARIES}
    return [Check("core", name, "ok" if found[name] else "info", found[name] or "not installed") for name in LIBRARIES]


def _output(output_dir: str) -> Check:
    reason = impossible(output_dir)
    if reason:
        return Check("core", "output directory", "fail", f"{output_dir}: {reason}", "choose another output_dir")
    place = os.path.abspath(os.path.expanduser(output_dir))
    while not os.path.exists(place):
        place = os.path.dirname(place)
    free = shutil.disk_usage(place).free
    status, mend = ("ok", "") if free > LOW_SPACE else ("warn", "free space, or set budget and another output_dir")
    return Check("core", "output directory", status, f"{output_dir}: {free / 2**30:.1f} GiB free", mend)


def _identity() -> Check:
    identity = from_environment(os.environ)
    text = f"rank {identity.rank} of {identity.world_size} from {identity.source}"
    if identity.rank is None:
        text = "rank unknown (no launcher's variable is set)"
    wrong = "; ".join(identity.problems)
    return Check("core", "identity", "warn" if wrong else "info", text, wrong)


@click.command()
@click.option("--output-dir", default="outputs/profile", show_default=True, help="Where a run would write.")
@click.option("--nodes", is_flag=True, help="On every node of the running Ray cluster.")
@click.option("--address", default="auto", show_default=True, help="Ray address for --nodes.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@click.option("--verbose", is_flag=True, help="Every check, also those with nothing to mend.")
def doctor(output_dir: str, nodes: bool, address: str, as_json: bool, verbose: bool) -> None:
    """Check this machine (or every node): backends, plug-ins, tools, disk. Status 1 when something fails."""
    if nodes:
        from accelprof.cluster.doctor import checks_on_nodes

        by_node = checks_on_nodes(checks, output_dir, address)
    else:
        by_node = {host_name(): checks(output_dir)}
    failed = any(row.status == "fail" for rows in by_node.values() for row in rows)
    if as_json:
        click.echo(texts.dumps({node: [_plain(row) for row in rows] for node, rows in by_node.items()}, indent=1))
    else:
        _print(by_node, verbose)
    if failed:
        raise SystemExit(1)


def _plain(row: Check) -> dict[str, object]:
    return {"area": row.area, "name": row.name, "status": row.status, "detail": row.detail, "mend": row.mend}


#: lines of a screen, and of one node's part of it at least; failures that the last line names
SCREEN, LEAST, NAMED = 24, 8, 5


def conclusion(rows: list[Check]) -> str:
    """What this machine is ready for, in one line."""
    backends = [row for row in rows if row.area == "backend" and row.name not in ("in use", "cpu")]
    ready = [row.name for row in backends if row.status == "ok"]
    absent = [row.name for row in backends if row.status != "ok"]
    failed = [row.name for row in rows if row.status == "fail"]
    parts = [f"{', '.join(ready)} {'is' if len(ready) == 1 else 'are'} ready" if ready else "the CPU is ready"]
    if absent:
        parts.append(f"{', '.join(absent)}: not on this machine")
    if failed:
        parts.append(f"to mend: {texts.listed(dict.fromkeys(failed), NAMED)}")
    return "; ".join(parts)


def to_show(rows: list[Check], verbose: bool) -> list[Check]:
    """What fits a screen: checks with something to mend; or all. A reason that several checks give stands once."""
    shown: list[Check] = []
    told: dict[str, str] = {}
    for row in rows:
        if not verbose and row.status in ("ok", "info"):
            continue
        first = told.setdefault(row.detail, row.name) if row.status != "ok" else row.name
        shown.append(row if first == row.name else replace(row, detail=f"as {first}"))
    return shown


def _print(by_node: dict[str, list[Check]], verbose: bool) -> None:
    from rich.console import Console

    console = Console()
    for node, rows in by_node.items():
        shown = to_show(rows, verbose)
        if not verbose:
            shown.sort(key=lambda row: row.status != "fail")
        if not verbose and shown:  # what does not fit is counted; failures stand first
            room = max(LEAST, SCREEN // len(by_node) - 1)
            heights = range(2, len(shown) + 1)
            fits = bisect.bisect_right(
                heights, room, key=lambda count: len(console.render_lines(_table(node, shown[:count])))
            )
            shown = shown[: fits + 1]
        if shown:
            console.print(_table(node, shown))
        more = 0 if verbose else len(rows) - len(shown)
        text = f"{node}: {conclusion(rows)}" + (f" ({more} checks more with --verbose)" if more else "")
        console.print(terminal(text), highlight=False, markup=False, soft_wrap=True)


def _table(node: str, rows: list[Check]) -> Any:
    from rich.table import Table
    from rich.text import Text

    styles = {"ok": "green", "info": "dim", "warn": "yellow", "fail": "bold red"}
    table = Table(title=Text(terminal(node)), title_justify="left")
    for column in ("area", "check", "", "detail", "mend"):
        table.add_column(column, overflow="fold")
    for row in rows:
        cells = [Text(terminal(text)) for text in (row.area, row.name, row.status, row.detail, row.mend)]
        cells[2].stylize(styles.get(row.status, ""))
        table.add_row(*cells)
    return table
