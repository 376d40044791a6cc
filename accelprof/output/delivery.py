"""The end of a run, the same for every way to run: wait for files, match, collect, write the manifest, make timeline and page.

Who ends a run (a controller, ``accelprof run``, a framework's process, a plain session) gathers what only it knows into
:class:`EndedRun`; everything else is read off the journals and the disk.
"""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from accelprof.catalogue import Catalogue
from accelprof.config.model import Config
from accelprof.contracts.tool import Tool
from accelprof.contracts.words import MISSING
from accelprof.errors import ReadError, text_of
from accelprof.output import dumps
from accelprof.output import manifest as manifests
from accelprof.output import verdict as verdicts
from accelprof.output.collecting import relocate
from accelprof.output.expected import Expected, await_files
from accelprof.output.metrics import metrics_of
from accelprof.output.nodes import Node, Nodes
from accelprof.output.records import ClockRow, Lack, Records
from accelprof.planning import names
from accelprof.planning.plan import Plan
from accelprof.voice import Voice

log = logging.getLogger("accelprof")
PACKAGES = ("ray", "torch")


@dataclass
class EndedRun:
    """What whoever ends a run knows of it beside its journals.

    Attributes:
        run_dir: ``None`` where none could be made, or nothing was to be recorded.
        draw: makes the run's own timeline and page, as plug-ins make theirs by ``accelprof_run_pages``.
        told: journals that were handed over, not read.
        away: nodes whose journals are not on this host's disk.
        hosts: all other nodes that took part.
        expected: whose tools write files from outside.
        lacks: what is known to be missing.
        causes: key of a target -> why a window of it may be open still.
        clocks: how far those of the targets are off, by key.
        steps: step -> label -> tag -> ``{"seconds", "count"}``; empty = as the journals have it.
        spans: step -> who announced it -> when it began (Unix epoch, ns) and how long it took (ns); with ``steps``.
        cut: steps that did not come to their end; with ``steps``.
        groups: groups that took part; ``None`` where nobody can know of others, so that names are not checked.
        roles: roles of each group.
        nobody: why nothing came, in words, where no process took part and something was to be recorded.
        missing: what is missing beside, once all rows are known.
        running: keys of targets whose process is still at work: what lacks of them may yet come.
        voice: says what goes wrong on the way, and has said what did before; ``notes``: what is to be known with nothing wrong.
        says: whether what was not delivered goes to the log; otherwise who asked for the delivery says it.
        earlier: take the manifest that stands in the directory and add to it; ``again``: of this tool all was looked for anew.
    """

    run_dir: str | None
    catalogue: Catalogue
    config: Config
    plan: Plan
    draw: Callable[[str], str | None]
    told: Sequence[Sequence[Any]] = ()
    away: Collection[Node] = ()
    hosts: Collection[Node] = ()
    expected: Sequence[Expected] = ()
    lacks: list[Lack] = field(default_factory=list)
    causes: Mapping[str, str] = field(default_factory=dict)
    clocks: Mapping[str, ClockRow] = field(default_factory=dict)
    steps: Mapping[int, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    spans: Mapping[int, Mapping[str, tuple[int, int]]] = field(default_factory=dict)
    cut: Collection[int] = ()
    groups: Collection[str] | None = None
    roles: Mapping[str, Collection[str]] = field(default_factory=dict)
    nobody: str = ""
    missing: Callable[[Records], list[Lack]] = lambda found: []
    running: Callable[[Records], set[str]] = lambda found: set()
    voice: Voice = field(default_factory=Voice)
    notes: list[str] = field(default_factory=list)
    says: bool = True
    earlier: bool = False
    again: str | None = None

    def tool_of(self, name: str, options: Mapping[str, object]) -> Tool:
        """The plan's own; of a run whose plan has none such (it was recorded under another), one that is made now."""
        use = self.plan.use_of(name, options)
        return use.tool if use is not None and use.tool is not None else self.catalogue.make_tool(name, options)

    @property
    def problems(self) -> list[str]:
        """What was said so far."""
        return self.voice.problems


def deliver(run: EndedRun, nodes: Nodes, *, last: bool = True) -> dict[str, Any]:
    """Everything a run leaves is in its place when this returns; the manifest says what is not. Never raises for a disk.

    Args:
        last: nothing more comes: timeline and page are made, and the hooks are told.
    """
    if run.run_dir is None:
        manifest = _told(run, _document(run, "", Records()), Records())
        if last:
            finish(run, manifest)
        return manifest
    earlier = _earlier(run) if run.earlier else None
    found = _gathered(run, nodes) if earlier is None else Records.of_manifest(earlier)
    if earlier is not None:
        _look_anew(run, earlier, found)
    rows, lacks = await_files(run.tool_of, run.expected, run.run_dir, found, nodes, run.config.report_timeout)
    run.lacks.extend(lacks)
    for row in rows:
        row.path = manifests.relative(row.path, run.run_dir)
        found.artifacts[row.place] = row
    for row in found.artifacts.values():
        node = nodes.node_of(row.host)
        if node is not None and not row.collected and not Path(run.run_dir, row.path).exists():
            row.remote, row.node_id = True, node
    if run.config.collect != "none":
        verdicts.look_at(found, verdicts.on_disk(run.run_dir))
        relocate(run.config.collect, run.run_dir, found, nodes, run.voice.say)
    if run.config.recorder is not None:
        _bring_dumps(run, nodes)
    manifest = _document(run, run.run_dir, found)
    if earlier is not None:
        manifest = {**earlier, **{name: manifest[name] for name in ("targets", "windows", "artifacts")}}
    _told(run, manifest, found)
    _write(run, manifest)
    if last and finish(run, manifest):
        _write(run, manifest)
    return manifest


def _bring_dumps(run: EndedRun, nodes: Nodes) -> None:
    """Parts of the flight recorder's dumps that lie on other hosts come here as windows do, or are said to lie there."""
    run_dir = str(run.run_dir)
    for host in run.hosts:
        try:
            if run.config.collect != "none":
                dumps.bring(run.config.collect, run_dir, nodes, host)
                continue
            there = nodes.call(host, dumps.known, run_dir) or {}
            apart = [
                name for name in there if nodes.call(host, dumps.parts, run_dir, name) - dumps.parts(run_dir, name)
            ]
            if apart:
                where = f"lie on node {host}, in {run_dir}/{dumps.PLACE}; collect: copy brings them here"
                run.notes.append(f"parts of the flight recorder's dumps {', '.join(apart)} {where}")
        except Exception as error:  # noqa: BLE001 - a disk, a node or Ray; what lies there stays, and it is said
            run.voice.say(f"the flight recorder's dumps on node {host} were not collected: {text_of(error)}")


def finish(run: EndedRun, manifest: dict[str, Any]) -> bool:
    """Timeline and page of what was delivered, and the hooks are told. Whether something was added to the manifest's problems,
    which the caller writes: it knows who else writes."""
    said = len(manifest["problems"])
    if run.run_dir is not None and not any(row.get("code") == verdicts.UNWRITTEN for row in manifest["lacks"]):
        for text in map(str, run.catalogue.host.call_with(run.draw, "accelprof_run_pages", run_dir=run.run_dir)):
            run.voice.say(text)
            manifest["problems"].append(text)
    for row in Records.of_manifest(manifest).artifacts.values():
        run.catalogue.event("accelprof_artifact", artifact=row.as_file())
    run.catalogue.event("accelprof_run_end", manifest=manifest)
    return len(manifest["problems"]) > said


def add_said(run: EndedRun, manifest: dict[str, Any]) -> None:
    """What was said since the manifest was written, by exporters at their end, stands in it too."""
    later = [text for text in run.problems if text not in manifest["problems"]]
    manifest["problems"] += later
    if later and run.run_dir is not None:
        _write(run, manifest)


def _gathered(run: EndedRun, nodes: Nodes) -> Records:
    """All rows: from the journals on this disk, on other nodes', and those that were handed over."""
    run_dir = str(run.run_dir)
    journals: list[Sequence[Any]] = [*manifests.read_journals(run_dir)]
    if run.away:
        results, errors = nodes.on_each(
            dict.fromkeys(run.away, (run_dir,)), manifests.read_journals, run.config.control_timeout
        )
        for result in results.values():
            journals.extend(result)
        for node, error in errors.items():
            run.voice.say(f"journals on node {node} could not be read: {error}")
    return manifests.records_of(run_dir, [*journals, *run.told])


def _earlier(run: EndedRun) -> dict[str, Any] | None:
    try:
        return manifests.read(str(run.run_dir))
    except ReadError:
        return None


def _look_anew(run: EndedRun, earlier: Mapping[str, object], found: Records) -> None:
    """What an earlier end said stays, but of the tool whose files are looked for again."""
    dropped = {lack.words for lack in found.lacks if lack.code == verdicts.REPORT_MISSING and lack.tool == run.again}
    for place, row in list(found.artifacts.items()):
        if row.tool == run.again and row.state == MISSING:
            del found.artifacts[place]
    run.lacks.extend(lack for lack in verdicts.said_in(earlier) if lack.words not in dropped)
    for name, mine in (("problems", run.problems), ("notes", run.notes)):
        said = earlier.get(name)
        mine[:0] = [text for text in said if isinstance(text, str)] if isinstance(said, list) else []


def _document(run: EndedRun, run_dir: str, found: Records) -> dict[str, Any]:
    from accelprof import __version__

    manifest = manifests.document(
        run_dir,
        found,
        version=__version__,
        config=run.config.model_dump(mode="json"),
        plan=run.plan.to_dict(),
        clock_offsets=run.clocks,
        metrics=metrics_of(found, run.steps, run.spans, run.cut),
    )
    manifest["versions"] = versions(run.catalogue)
    return manifest


def _told(run: EndedRun, manifest: dict[str, Any], found: Records) -> dict[str, Any]:
    """The verdict, and what was said on the way, into the manifest."""
    stated = [*run.lacks, *run.missing(found), *_of_names(run, found)]
    running = run.running(found)
    lacks = verdicts.verdict(found, stated, run.causes, running)
    if running:
        manifest["running"] = sorted(running)
    manifest["problems"] = list(dict.fromkeys([*run.problems, *manifest["problems"]]))
    manifest["notes"] = list(dict.fromkeys(run.notes))
    verdicts.write_into(manifest, lacks)
    for text in manifest["undelivered"] if run.says else ():
        log.warning("accelprof: not delivered: %s", text)
    return manifest


def _of_names(run: EndedRun, found: Records) -> list[Lack]:
    """Names and ranks in the configuration that no process had: nothing came of them."""
    if not names.records_anything(run.config):
        return []
    took_part = [(row.group, row.rank, row.world_size) for row in found.targets.values()]
    problems = names.absent_ranks(run.config, took_part, run.groups is not None)
    if run.groups is None:
        return [Lack(code=verdicts.UNKNOWN_NAME, words=str(problem)) for problem in problems]
    groups = {*run.groups, *(row.group for row in found.targets.values())}
    if not groups:
        said = any(lack.code == verdicts.NOBODY for lack in run.lacks)
        return [Lack(code=verdicts.NOBODY, words=run.nobody)] if run.nobody and not said else []
    roles: dict[str, set[str]] = {group: set(known) for group, known in run.roles.items()}
    for row in found.targets.values():
        roles.setdefault(row.group, set()).update(row.roles)
    phases = sorted({phase for row in found.targets.values() for phase in row.phases_seen})
    problems += [*run.plan.check_names(groups, phases), *names.unmatched_roles(run.config, roles)]
    return [Lack(code=verdicts.UNKNOWN_NAME, words=str(problem)) for problem in problems]


def _write(run: EndedRun, manifest: dict[str, Any]) -> None:
    run_dir = str(run.run_dir)
    try:
        os.makedirs(run_dir, exist_ok=True)  # somebody may have tidied up meanwhile; what is missing is said in it
        manifests.write(run_dir, manifest)
    except OSError as error:
        text = f"the manifest cannot be written: {error}"
        run.voice.say(text)
        if text not in manifest["problems"]:
            manifest["problems"].append(text)
        lacks = [*Records.of_manifest(manifest).lacks, Lack(code=verdicts.UNWRITTEN, words=text)]
        verdicts.write_into(manifest, lacks)


def versions(catalogue: Catalogue) -> dict[str, str]:
    """Versions of accelprof, Python, Ray, torch and the plug-ins in use, as installed here."""
    from accelprof import __version__

    found = {"accelprof": __version__, "python": platform.python_version()}
    plugins = {plugin.distribution for plugin in catalogue.plugins.values()} - {"", "accelprof"}
    for package in (*PACKAGES, *sorted(plugins)):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
