"""Workers join a run: which launch and rank each one gets, its session, what it says of itself, and its clock."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from accelprof.cluster import clock, fanout
from accelprof.cluster.fanout import Member
from accelprof.cluster.options import Promise
from accelprof.contracts.targets import Target
from accelprof.session.configure import plain_target

if TYPE_CHECKING:
    from accelprof.cluster.controller import Controller

log = logging.getLogger("accelprof")


class Attaching:
    """One use, with the controller's lock held: ``Attaching(controller).attach(...)``."""

    def __init__(self, controller: Controller) -> None:
        self.ctl = controller

    def attach(
        self,
        group: str,
        handles: Sequence[Any],
        roles: tuple[str, ...],
        ranks: Sequence[int | None] | None,
        replicas: Sequence[int | None] | None,
        world_size: int | None,
    ) -> None:
        """See :meth:`accelprof.cluster.Controller.attach`."""
        ctl = self.ctl
        ctl.attached.setdefault(group, 0)
        promises = self._take_promises(group, len(handles), ranks)
        before = len(ctl.members)
        members = [
            self._member(group, handle, index, roles, ranks, replicas, world_size, promises, len(handles))
            for index, handle in enumerate(handles)
        ]
        ctl.attached[group] += len(ctl.members) - before
        self.configure(members)

    def _take_promises(self, group: str, count: int, ranks: Sequence[int | None] | None) -> list[Promise | None]:
        waiting = self.ctl.promised.get(group, [])
        if ranks is None:
            if len(waiting) < count:
                return [None] * count
            taken, self.ctl.promised[group] = waiting[:count], waiting[count:]
            return [*taken]
        found: list[Promise | None] = []
        for rank in ranks:
            promise = next((item for item in waiting if item.target.rank == rank), None)
            if promise is not None:
                waiting.remove(promise)
            found.append(promise)
        return found

    def _member(
        self,
        group: str,
        handle: Any,
        index: int,
        roles: tuple[str, ...],
        ranks: Sequence[int | None] | None,
        replicas: Sequence[int | None] | None,
        world_size: int | None,
        promises: Sequence[Promise | None],
        count: int,
    ) -> Member:
        key, promise = fanout.identity(handle), promises[index]
        known = self.ctl.members.get(key)
        if known is not None and known.target.group == group:
            target = replace(known.target, roles=tuple(dict.fromkeys((*known.target.roles, *roles))))
            known.target, known.assignment = target, self.ctl.plan.assign(target)
            return known
        told = promise.target if promise is not None else Target(group)
        rank = ranks[index] if ranks is not None else told.rank
        if rank is None and ranks is None and (promise is None or promise.target.replica is None):
            rank = self.ctl.attached[group] + index
        target = replace(
            told,
            roles=roles or told.roles,
            rank=rank,
            replica=replicas[index] if replicas is not None else told.replica,
            world_size=world_size or told.world_size or (count if self.ctl.attached[group] == 0 else None),
        )
        member = fanout.member_of(target, self.ctl.plan.assign(target), handle, promise)
        self.ctl.members[key] = member
        return member

    def configure(self, members: Sequence[Member]) -> None:
        """Sessions for ``members``, all at once; then their clocks are read."""
        recorded = self.ctl.run_dir is not None
        config = self.ctl.config if recorded else self.ctl.config.model_copy(update={"enabled": False})
        data = config.model_dump(mode="json", exclude_unset=True)
        calls = []
        for member in members:
            target = member.target
            who = {**plain_target(target), "has_devices": target.has_devices}
            calls.append(
                (
                    member,
                    (
                        data,
                        self.ctl.run_dir,
                        who,
                        replace(member.assignment, selected=member.assignment.selected and recorded),
                    ),
                )
            )
        answered = []
        for answer in fanout.ask_each(calls, "configure", timeout=self.ctl.config.control_timeout):
            if not answer.ok:
                self.ctl.said(answer, "could not be given its session")
                continue
            member = answer.member
            member.facts = answer.value
            member.since = self.ctl.steps_begun
            target = replace(member.target, node=member.target.node or member.facts["host"])
            member.target, member.assignment = target, self.ctl.plan.assign(target)
            answered.append(member)
            self._compare(member)
        for answer in clock.measure(answered):
            self.ctl.said(answer, "its clock could not be read")

    def _compare(self, member: Member) -> None:
        """What the worker says of itself beside what it was taken for."""
        facts = member.facts
        if member.assignment.selected != facts["selected"]:
            member.assignment = replace(member.assignment, selected=facts["selected"])
        if member.assignment.selected and facts.get("started_as") not in (None, member.label):
            self.ctl.report(
                f"{member.label} was started as {facts['started_as']}; give ranks= to attach so that launch and session are of one worker"
            )
        by_env = facts.get("rank_by_environment")
        if by_env is not None and member.target.rank is not None and by_env != member.target.rank:
            self.ctl.report(
                f"{member.label}: its environment says rank {by_env}; attach(..., ranks=...) says which is meant"
            )
        for text in facts.get("problems", ()):
            self.ctl.report(f"{member.label}: {text}")
        for note in member.assignment.notes:
            log.info("accelprof %s: %s", member.label, note)


def roles_of(role: str | Sequence[str] | None) -> tuple[str, ...]:
    """A role, or several, as users give them."""
    return (role,) if isinstance(role, str) else tuple(role or ())
