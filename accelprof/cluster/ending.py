"""The end of a run: sessions close, reports are awaited, files collected, and the manifest says what is there and what is not."""

from __future__ import annotations

import importlib
import logging
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray

import accelprof
from accelprof.cluster import clock, collect, fanout, names, nodes
from accelprof.cluster.fanout import DEAD, Member
from accelprof.cluster.timings import history_row
from accelprof.output import manifest as manifests
from accelprof.output.records import Records
from accelprof.output.verdict import verdict

if TYPE_CHECKING:
    from accelprof.catalogue import Catalogue
    from accelprof.cluster.controller import Controller

log = logging.getLogger("accelprof")
Journal = Sequence[Mapping[str, Any]]
PACKAGES = ("ray", "torch")


class Ending:
    """One use: ``Ending(controller).run(end_workers)``."""

    def __init__(self, controller: Controller) -> None:
        self.ctl = controller
        self.config, self.plan, self.registry = controller.config, controller.plan, controller.registry
        self.members = list(controller.members.values())
        self.undelivered: list[str] = []

    def run(self, end_workers: bool) -> dict[str, Any]:
        """Everything; returns the manifest, written when there is a run directory."""
        self._close_sessions()
        self._read_clocks_again()
        ended = self._end_workers() if end_workers else set()
        own = self.ctl.session.close("controller closed") if self.ctl.session is not None else None
        run_dir = self.ctl.run_dir
        if run_dir is None:
            self._names({})
            return self._finish(self._build("", Records(), {}), write=False)
        found = manifests.records_of(run_dir, self._journals(run_dir, own))
        reports = collect.await_reports(
            self.registry, self.members, run_dir, found, ended, self.config.report_timeout, self._lacks
        )
        for row in reports:
            row.path = manifests.relative(row.path, run_dir)
            found.artifacts[row.place] = row
        self._mark_remote(run_dir, found)
        offsets = {member.key: {**member.clock, "label": member.label} for member in self.members if member.clock}
        if self.config.collect != "none":
            manifests.look_at_files(run_dir, found)
            collect.relocate(self.config.collect, run_dir, found, self._node_of(), self.ctl.report)
        return self._finish(self._build(run_dir, found, offsets), write=True)

    # --- workers ----------------------------------------------------------------------------------------------------

    def _close_sessions(self) -> None:
        timeout = max(self.config.control_timeout, self.config.report_timeout)
        configured = [member for member in self.members if member.facts]
        for answer in fanout.ask(configured, "close", "controller closed", timeout=timeout):
            if answer.ok:
                answer.member.summary = answer.value
            else:
                self.ctl.report(f"{answer.member.label}: its session could not be closed: {answer.error}")
                fanout.withdraw(answer.member)
        for member in self.members:
            if not member.facts and member.assignment.selected:
                self._lacks(f"{member.label}: was selected and never got a session")

    def _read_clocks_again(self) -> None:
        answered = [member for member in self.members if member.summary is not None]
        for answer in clock.measure_again(answered):
            self.ctl.report(f"{answer.member.label}: its clock could not be read again: {answer.error}")

    def _end_workers(self) -> set[str]:
        """End the actors in order and wait until they are gone; keys of those that are."""
        waiting: dict[Any, Member] = {}
        ended = {member.key for member in self.members if member.state == DEAD}
        for member in self.members:
            if member.key in ended or not ray.is_initialized():
                continue
            try:
                waiting[member.actor.__ray_terminate__.remote()] = member
            except Exception as error:  # noqa: BLE001 - Ray may be gone; said with the worker's name
                self.ctl.report(f"{member.label}: could not be ended: {type(error).__name__}: {error}")
        if waiting:
            done, late = ray.wait(list(waiting), num_returns=len(waiting), timeout=self.config.control_timeout)
            for ref in done:
                waiting[ref].state = DEAD
                ended.add(waiting[ref].key)
            for ref in late:
                self.ctl.report(f"{waiting[ref].label}: did not end within {self.config.control_timeout:g} s")
        return ended

    def _journals(self, run_dir: str, own: Mapping[str, Any] | None) -> list[Journal]:
        journals: list[Journal] = [*manifests.read_journals(run_dir)]
        here = nodes.own_node()
        away = {
            member.facts.get("node_id"): (run_dir,)
            for member in self.members
            if member.summary is None and member.assignment.selected and member.facts.get("node_id") not in (None, here)
        }
        if away and ray.is_initialized():
            results, errors = nodes.on_each(away, nodes.journals, self.config.control_timeout)
            for result in results.values():
                journals.extend(result)
            for node, error in errors.items():
                self.ctl.report(f"journals on node {node} could not be read: {error}")
        self._name_the_lost(journals)
        journals.extend(member.summary["journal"] for member in self.members if member.summary)
        if own is not None:
            journals.append(own["journal"])
        return journals

    def _name_the_lost(self, journals: Sequence[Journal]) -> None:
        """Workers that should have recorded and can neither be asked nor be read of: their host is gone, say."""
        rows = Records.of_journals(journals)
        known = {*rows.targets, *(window.target for window in rows.windows.values())}
        for member in self.members:
            assignment = member.assignment
            armed = assignment.selected and (assignment.mode != "off" or assignment.schedules)
            if armed and member.facts and member.summary is None and member.key not in known:
                self._lacks(
                    f"{member.label}: its session could not be closed and no window stands in a journal of it; "
                    f"what it may have recorded is on {member.facts.get('host')}"
                )

    # --- the manifest -----------------------------------------------------------------------------------------------

    def _build(self, run_dir: str, found: Records, offsets: Mapping[str, Any]) -> dict[str, Any]:
        manifest = manifests.document(
            run_dir,
            found,
            version=accelprof.__version__,
            config=self.config.model_dump(mode="json"),
            plan=self.plan.to_dict(),
            clock_offsets=offsets,
            metrics={"steps": [history_row(step, rows) for step, rows in self.ctl.history.items()]},
            problems=self.ctl.problems,
        )
        manifest["versions"] = versions(self.registry)
        return manifest

    def _node_of(self) -> dict[str | None, str | None]:
        """Ray's id of each worker's node by its host."""
        return {member.facts.get("host"): member.facts.get("node_id") for member in self.members}

    def _mark_remote(self, run_dir: str, found: Records) -> None:
        """Files that lie on other nodes only are marked ``remote``, with Ray's id of the node."""
        here, node_of = nodes.own_node(), self._node_of()
        for row in found.artifacts.values():
            node = node_of.get(row.host)
            if node not in (None, here) and not row.collected and not Path(run_dir, row.path).exists():
                row.remote, row.node_id = True, node

    def _finish(self, manifest: dict[str, Any], write: bool) -> dict[str, Any]:
        if write:
            self._judge(manifest)
        manifest["problems"] = list(dict.fromkeys([*manifest["problems"], *self.ctl.problems]))
        manifest["notes"] = list(self.ctl.notes)
        manifest["undelivered"] = list(dict.fromkeys(self.undelivered))
        manifest["status"] = "incomplete" if manifest["undelivered"] else "complete"
        for text in manifest["undelivered"]:
            log.warning("accelprof: not delivered: %s", text)
        if write:
            self._write(manifest)
        for artifact in Records.of_manifest(manifest).artifacts.values():
            self.registry.event("accelprof_artifact", artifact=artifact.as_file())
        self.registry.event("accelprof_run_end", manifest=manifest)
        return manifest

    def _write(self, manifest: dict[str, Any]) -> None:
        run_dir = str(self.ctl.run_dir)
        try:
            manifests.write(run_dir, manifest)
        except OSError as error:
            text = f"the manifest cannot be written: {error}"
            self.ctl.report(text)
            manifest["problems"].append(text)
            manifest["undelivered"].append(text)
            manifest["status"] = "incomplete"
            return
        finish = getattr(importlib.import_module("accelprof.analysis"), "finish_run", None)
        if finish is None:
            return
        try:
            finish(run_dir)
        except Exception as error:  # noqa: BLE001 - timeline and report can be made again from the files; said here
            text = f"timeline and report could not be made: {type(error).__name__}: {error}"
            self.ctl.report(text)
            manifest["problems"].append(text)

    def _lacks(self, text: str) -> None:
        """Something that was asked for is not there."""
        if text not in self.undelivered:
            self.undelivered.append(text)

    def _judge(self, manifest: Mapping[str, Any]) -> None:
        """What was asked for and is not there, from the manifest itself."""
        for text in verdict(manifest):
            self._lacks(text)
        recorded = {(window["target"], step) for window in manifest["windows"] for step in window["steps"]}
        for member, step, error in self.ctl.lost:
            if (member.key, step) not in recorded:  # a call that was not answered in time may have come through
                self._lacks(f"{member.label}: step {step} was to be recorded: {error}")
        seen = {target["key"]: list(target.get("phases_seen", ())) for target in manifest["targets"]}
        self._names(seen)

    def _names(self, seen: Mapping[str, Sequence[str]]) -> None:
        """Names in the configuration that no worker had: nothing came of them."""
        if not names.records_anything(self.config):
            return
        phases = sorted({phase for phases in seen.values() for phase in phases})
        groups = {member.target.group for member in self.members}
        roles: dict[str, set[str]] = {}
        for member in self.members:
            roles.setdefault(member.target.group, set()).update(member.target.roles)
        for problem in [
            *self.plan.check_names(groups, phases),
            *names.unmatched_roles(self.config, roles),
        ]:
            self._lacks(str(problem))
        for text in names.unmatched_ranks([member.assignment for member in self.members]):
            log.info("accelprof: %s", text)
        if not self.members and self.ctl.session is None and groups == set():
            self._lacks("no worker was attached to the controller, so nothing was recorded")


def versions(registry: Catalogue) -> dict[str, str]:
    """Versions of accelprof, Python, Ray, torch and the plug-ins in use, as installed on the driver."""
    found = {"accelprof": accelprof.__version__, "python": platform.python_version()}
    plugins = {plugin.distribution for plugin in registry.plugins.values()} - {"", "accelprof"}
    for package in (*PACKAGES, *sorted(plugins)):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
