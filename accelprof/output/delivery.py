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
from accelprof.output import codes, dumps
from accelprof.output import manifest as manifests
from accelprof.output import verdict as verdicts
from accelprof.output.collecting import relocate
from accelprof.output.expected import Expected, await_files
from accelprof.output.metrics import metrics_of
from accelprof.output.nodes import Node, Nodes
from accelprof.output.records import ClockRow, Lack, Manifest
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
    missing: Callable[[Manifest], list[Lack]] = lambda found: []
    running: Callable[[Manifest], set[str]] = lambda found: set()
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


def deliver(run: EndedRun, nodes: Nodes, *, last: bool = True) -> Manifest:
    """Everything a run leaves is in its place when this returns; the manifest says what is not. Never raises for a disk.

    Args:
        last: nothing more comes: timeline and page are made, and the hooks are told.
    """
    earlier = _earlier(run)
    manifest = earlier or _gathered(run, nodes)
    if run.run_dir is not None:
        _bring_files(run, run.run_dir, nodes, manifest)
    if earlier is None:
        _complete(run, manifest)
    else:
        manifests.settle(manifest, str(run.run_dir))
    _judge(run, manifest)
    _write(run, manifest)
    if last and finish(run, manifest):
        _write(run, manifest)
    return manifest


def _bring_files(run: EndedRun, run_dir: str, nodes: Nodes, manifest: Manifest) -> None:
    """What tools write from outside is waited for, and all files come here where they are to."""
    rows, lacks = await_files(run.tool_of, run.expected, run_dir, manifest, nodes, run.config.report_timeout)
    run.lacks.extend(lacks)
    for row in rows:
        row.path = manifests.relative(row.path, run_dir)
        manifest.artifacts[row.place] = row
    for row in manifest.artifacts.values():
        node = nodes.node_of(row.host)
        if node is not None and not row.collected and not Path(run_dir, row.path).exists():
            row.remote, row.node_id = True, node
    if run.config.collect != "none":
        verdicts.look_at(manifest, verdicts.on_disk(run_dir))
        relocate(run.config.collect, run_dir, manifest, nodes, run.voice.say)
    if run.config.records_always:
        _bring_dumps(run, run_dir, nodes)


def _bring_dumps(run: EndedRun, run_dir: str, nodes: Nodes) -> None:
    """Parts of the flight recorder's dumps that lie on other hosts come here as windows do, or are said to lie there."""
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


def finish(run: EndedRun, manifest: Manifest) -> bool:
    """Timeline and page of what was delivered, and the hooks are told. Whether something was added to the manifest's problems,
    which the caller writes: it knows who else writes."""
    said = len(manifest.problems)
    if run.run_dir is not None and not any(row.code == codes.UNWRITTEN for row in manifest.lacks):
        for text in map(str, run.catalogue.host.call_with(run.draw, "accelprof_run_pages", run_dir=run.run_dir)):
            run.voice.say(text)
            manifest.problems.append(text)
    for row in manifest.artifacts.values():
        run.catalogue.event("accelprof_artifact", artifact=row.as_file())
    run.catalogue.event("accelprof_run_end", manifest=manifest.to_json())
    return len(manifest.problems) > said


def add_said(run: EndedRun, manifest: Manifest) -> None:
    """What was said since the manifest was written, by exporters at their end, stands in it too."""
    later = [text for text in run.problems if text not in manifest.problems]
    manifest.problems += later
    if later:
        _write(run, manifest)


def _gathered(run: EndedRun, nodes: Nodes) -> Manifest:
    """All rows: from the journals on this disk, on other nodes', and those that were handed over."""
    if run.run_dir is None:
        return Manifest()
    run_dir = run.run_dir
    journals: list[Sequence[Any]] = [*manifests.read_journals(run_dir)]
    if run.away:
        results, errors = nodes.on_each(
            dict.fromkeys(run.away, (run_dir,)), manifests.read_journals, run.config.control_timeout
        )
        for result in results.values():
            journals.extend(result)
        for node, error in errors.items():
            run.voice.say(f"journals on node {node} could not be read: {error}")
    return manifests.of_journals(run_dir, [*journals, *run.told])


def _earlier(run: EndedRun) -> Manifest | None:
    """The manifest that stands there. What that end said stays, but of the tool whose files are looked for again."""
    try:
        earlier = manifests.load(run.run_dir) if run.earlier and run.run_dir is not None else None
    except ReadError:
        return None
    if earlier is not None:
        for place, row in list(earlier.artifacts.items()):
            if row.tool == run.again and row.state == MISSING:
                del earlier.artifacts[place]
        again = (codes.REPORT_MISSING, run.again)
        run.lacks.extend(lack for lack in earlier.lacks if (lack.code, lack.tool) != again)
        run.problems[:0] = earlier.problems
        run.notes[:0] = earlier.notes
    return earlier


def _complete(run: EndedRun, manifest: Manifest) -> None:
    from accelprof.release import VERSION

    manifests.complete(
        manifest,
        run.run_dir or "",
        version=VERSION,
        config=run.config.model_dump(mode="json"),
        plan=run.plan.to_dict(),
        clock_offsets=run.clocks,
        metrics=metrics_of(manifest, run.steps, run.spans, run.cut),
    )
    manifest.versions = versions(run.catalogue)


def _judge(run: EndedRun, manifest: Manifest) -> None:
    """The verdict, and what was said on the way, into the manifest."""
    stated = [*run.lacks, *run.missing(manifest), *_of_names(run, manifest)]
    running = run.running(manifest)
    manifest.judged(verdicts.verdict(manifest, stated, run.causes, running))
    manifest.running = sorted(running) or manifest.running
    manifest.problems = list(dict.fromkeys([*run.problems, *manifest.problems]))
    manifest.notes = list(dict.fromkeys(run.notes))
    for text in manifest.undelivered if run.says else ():
        log.warning("accelprof: not delivered: %s", text)


def _of_names(run: EndedRun, found: Manifest) -> list[Lack]:
    """Names and ranks in the configuration that no process had: nothing came of them."""
    if not run.plan.opens():
        return []
    took_part = [(row.group, row.rank, row.world_size) for row in found.targets.values()]
    problems = names.absent_ranks(run.config, took_part, run.groups is not None)
    if run.groups is None:
        return [Lack(code=codes.UNKNOWN_NAME, words=str(problem)) for problem in problems]
    groups = {*run.groups, *(row.group for row in found.targets.values())}
    if not groups:
        said = any(lack.code == codes.NOBODY for lack in run.lacks)
        return [Lack(code=codes.NOBODY, words=run.nobody)] if run.nobody and not said else []
    roles: dict[str, set[str]] = {group: set(known) for group, known in run.roles.items()}
    for row in found.targets.values():
        roles.setdefault(row.group, set()).update(row.roles)
    phases = sorted({phase for row in found.targets.values() for phase in row.phases_seen})
    problems += [*run.plan.check_names(groups, phases), *names.unmatched_roles(run.config, roles)]
    return [Lack(code=codes.UNKNOWN_NAME, words=str(problem)) for problem in problems]


def _write(run: EndedRun, manifest: Manifest) -> None:
    if run.run_dir is None:
        return
    try:
        os.makedirs(run.run_dir, exist_ok=True)  # somebody may have tidied up meanwhile; what is missing is said in it
        manifests.write(run.run_dir, manifest)
    except OSError as error:
        text = f"the manifest cannot be written: {error}"
        run.voice.say(text)
        if text not in manifest.problems:
            manifest.problems.append(text)
        manifest.judged([*manifest.lacks, Lack(code=codes.UNWRITTEN, words=text)])


def versions(catalogue: Catalogue) -> dict[str, str]:
    """Versions of accelprof, Python, Ray, torch and the plug-ins in use, as installed here."""
    from accelprof.release import VERSION

    found = {"accelprof": VERSION, "python": platform.python_version()}
    plugins = {plugin.distribution for plugin in catalogue.plugins.values()} - {"", "accelprof"}
    for package in (*PACKAGES, *sorted(plugins)):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
