"""What a run on Ray has to say at its end: sessions are closed, clocks read again, workers ended in order, and the facts gathered."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import ray

from accelprof.cluster import clock, fanout, nodes
from accelprof.cluster.fanout import DEAD, Member
from accelprof.cluster.roster import Roster
from accelprof.contracts import reasons
from accelprof.errors import text_of
from accelprof.output import codes
from accelprof.output.delivery import EndedRun
from accelprof.output.expected import Expected
from accelprof.output.records import Lack, Manifest
from accelprof.planning import names

log = logging.getLogger("accelprof")
NONE_ATTACHED = "no worker was attached to the controller, so nothing was recorded"


def gather(roster: Roster, run: EndedRun, end_workers: bool, close_own: Callable[[], Mapping[str, Any] | None]) -> None:
    """Close every session, the driver's last, and put into ``run`` what they told."""
    config, members = roster.config, roster.members
    _close_sessions(roster, run)
    for answer in clock.measure_again([member for member in members if member.handed_over is not None]):
        run.voice.say(f"{answer.member.label}: its clock could not be read again: {answer.error}")
    ended = _end_workers(members, run, config.control_timeout) if end_workers else set()
    own = close_own()
    run.causes = roster.why_open()
    run.clocks = {member.key: member.clock for member in members if member.clock is not None}
    run.told = [member.handed_over["journal"] for member in members if member.handed_over]
    if own is not None:
        run.told = [*run.told, own["journal"]]
    here = nodes.own_node()
    run.hosts = {member.facts.get("node_id") for member in members} - {None, here}
    run.away = {
        member.facts.get("node_id")
        for member in members
        if member.handed_over is None and member.assignment.selected and member.facts.get("node_id") not in (None, here)
    }
    run.expected = [
        Expected(
            member.assignment,
            (member.target.group, member.target.rank, member.target.replica),
            member.facts.get("node_id"),
            member.facts.get("host"),
            member.facts.get("pid"),
            key=member.key,
            ended=member.key in ended,
            may_end=member.key not in ended,
        )
        for member in members
    ]
    run.groups = {member.target.group for member in members}
    run.roles = roster.roles()
    run.nobody = NONE_ATTACHED if own is None else ""
    run.missing = lambda found: _missing(roster, found)
    for text in names.unmatched_ranks([member.assignment for member in members]):
        log.info("accelprof: %s", text)


def _close_sessions(roster: Roster, run: EndedRun) -> None:
    config = roster.config
    configured = [member for member in roster.members if member.facts]
    timeout = max(config.control_timeout, config.report_timeout)
    for answer in fanout.ask(configured, "close", reasons.CONTROLLER_CLOSED, timeout=timeout):
        if answer.ok:
            answer.member.handed_over = answer.value
        else:
            run.voice.say(f"{answer.member.label}: its session could not be closed: {answer.error}")
            fanout.withdraw(answer.member)


def _end_workers(members: list[Member], run: EndedRun, timeout: float) -> set[str]:
    """End the actors in order and wait until they are gone; keys of those that are."""
    waiting: dict[object, Member] = {}
    ended = {member.key for member in members if member.state == DEAD}
    for member in members:
        if member.key in ended or not ray.is_initialized():
            continue
        try:
            waiting[member.actor.__ray_terminate__.remote()] = member
        except Exception as error:  # noqa: BLE001 - Ray may be gone; said with the worker's name
            run.voice.say(f"{member.label}: could not be ended: {text_of(error)}")
    if waiting:
        done, late = ray.wait(list(waiting), num_returns=len(waiting), timeout=timeout)
        for ref in done:
            waiting[ref].state = DEAD
            ended.add(waiting[ref].key)
        for ref in late:
            run.voice.say(f"{waiting[ref].label}: did not end within {timeout:g} s")
    return ended


def _missing(roster: Roster, found: Manifest) -> list[Lack]:
    """Workers that should have recorded and did not, as far as the rows of the run do not show that they have."""
    lacks = []
    known = {*found.targets, *(window.target for window in found.windows.values())}
    for member in roster.members:
        assignment = member.assignment
        if not assignment.selected:
            continue
        if not member.facts:
            words = f"{member.label}: was selected and never got a session"
            lacks.append(Lack(code=codes.NO_SESSION, target=member.key, label=member.label, words=words))
        elif assignment.armed and member.handed_over is None and member.key not in known:
            words = (
                f"{member.label}: its session could not be closed and no window stands in a journal of it; "
                f"what it may have recorded is on {member.facts.get('host')}"
            )
            lacks.append(Lack(code=codes.WORKER_UNREAD, target=member.key, label=member.label, words=words))
    for lost in roster.lost:
        key, label = lost.member.key, lost.member.label
        words = f"{label}: step {lost.step} was to be recorded: {lost.error}"
        lacks.append(Lack(code=codes.STEP_LOST, target=key, label=label, step=lost.step, words=words))
    return lacks
