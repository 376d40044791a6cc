"""Who takes part in a run: the workers that were planned, those that joined, and what each is known to have been told.

The roster owns these facts; the controller asks it, and the end of a run is given what it says.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from accelprof.cluster import clock, fanout
from accelprof.cluster.fanout import DEAD, SILENT, Answer, Member
from accelprof.cluster.options import PlannedLaunch
from accelprof.config.model import Config
from accelprof.contracts.targets import Assignment, Target
from accelprof.errors import UserError
from accelprof.planning.plan import Plan
from accelprof.session.configure import plain_target
from accelprof.session.identity import number_of

log = logging.getLogger("accelprof")


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker that could not be told of a step it was to record."""

    member: Member
    step: int
    error: str


class Roster:
    """Members and planned launches of one run.

    Args:
        say: takes a line about a worker that is not as it was taken for.
        failed: takes an answer that failed and what was asked.

    Attributes:
        planned: launches that were made and that no worker has taken yet, by group.
        joined: how many workers of each group were attached.
        lost: who could not be told of a step.
        steps_begun: how many steps were announced.
    """

    def __init__(
        self,
        config: Config,
        plan: Plan,
        run_dir: str | None,
        say: Callable[[str], object],
        failed: Callable[[Answer, str], None],
    ) -> None:
        self.config, self.plan, self.run_dir = config, plan, run_dir
        self._say, self._failed = say, failed
        self._members: dict[object, Member] = {}
        self.planned: dict[str, list[PlannedLaunch]] = {}
        self.joined: dict[str, int] = {}
        self.lost: list[Lost] = []
        self.steps_begun = 0

    # --- who there is -----------------------------------------------------------------------------------------------

    @property
    def members(self) -> list[Member]:
        """In order of attachment."""
        return list(self._members.values())

    def selected(self) -> list[Member]:
        """Those that hear steps: whoever may open a window, and everybody while a flight recorder runs."""
        everybody = self.config.records_always
        return [m for m in self._members.values() if (everybody or m.assignment.selected) and m.facts]

    def others(self) -> list[Member]:
        """Those with a session that hear no steps."""
        hearing = {member.key for member in self.selected()}
        return [member for member in self._members.values() if member.facts and member.key not in hearing]

    def roles(self) -> dict[str, set[str]]:
        """Roles of each group, as its workers were attached with."""
        found: dict[str, set[str]] = {group: set() for group in self.joined}
        for member in self._members.values():
            found.setdefault(member.target.group, set()).update(member.target.roles)
        return found

    # --- joining ----------------------------------------------------------------------------------------------------

    def plan_launch(self, launch: PlannedLaunch) -> None:
        """A worker will be started so."""
        self.planned.setdefault(launch.target.group, []).append(launch)

    def attach(
        self,
        group: str,
        handles: Sequence[object],
        roles: tuple[str, ...],
        ranks: Sequence[int | None] | None,
        replicas: Sequence[int | None] | None,
        world_size: int | None,
    ) -> None:
        """See :meth:`accelprof.cluster.Controller.attach`."""
        for name, given in (("ranks", ranks), ("replicas", replicas)):
            if given is not None and len(given) != len(handles):
                raise UserError(f"attach({group!r}): {len(handles)} actors and {len(given)} {name}; give one for each")
        ranks = None if ranks is None else [number_of("ranks", rank) for rank in ranks]
        replicas = None if replicas is None else [number_of("replicas", replica) for replica in replicas]
        world_size = number_of("world_size", world_size)
        first = self.joined.setdefault(group, 0)
        launches = self._take_planned(group, len(handles), ranks)
        before = len(self._members)
        members = []
        for index, handle in enumerate(handles):
            key, launch = fanout.identity(handle), launches[index]
            known = self._members.get(key)
            if known is not None and known.target.group == group:
                both = tuple(dict.fromkeys((*known.target.roles, *roles)))
                known.assignment = self.plan.assign(replace(known.target, roles=both))
                members.append(known)
                continue
            told = launch.target if launch is not None else Target(group)
            rank = ranks[index] if ranks is not None else told.rank
            if rank is None and ranks is None and told.replica is None:
                rank = first + index
            target = replace(
                told,
                roles=roles or told.roles,
                rank=rank,
                replica=replicas[index] if replicas is not None else told.replica,
                world_size=world_size or told.world_size or (len(handles) if first == 0 else None),
            )
            self._members[key] = fanout.member_of(self.plan.assign(target), handle)
            members.append(self._members[key])
        self.joined[group] += len(self._members) - before
        self.configure(members)

    def _take_planned(self, group: str, count: int, ranks: Sequence[int | None] | None) -> list[PlannedLaunch | None]:
        waiting = self.planned.get(group, [])
        if ranks is None:
            if len(waiting) < count:
                return [None] * count
            taken, self.planned[group] = waiting[:count], waiting[count:]
            return [*taken]
        found: list[PlannedLaunch | None] = []
        for rank in ranks:
            launch = next((item for item in waiting if item.target.rank == rank), None)
            if launch is not None:
                waiting.remove(launch)
            found.append(launch)
        return found

    def configure(self, members: Sequence[Member]) -> None:
        """Sessions for ``members``, all at once; then their clocks are read."""
        recorded = self.run_dir is not None
        config = self.config if recorded else self.config.model_copy(update={"enabled": False})
        data = config.model_dump(mode="json", exclude_unset=True)
        calls: list[tuple[Member, tuple[Any, ...]]] = []
        for member in members:
            who = {**plain_target(member.target), "has_devices": member.target.has_devices}
            given = replace(member.assignment, selected=member.assignment.selected and recorded)
            calls.append((member, (data, self.run_dir, who, given)))
        answered = []
        for answer in fanout.ask_each(calls, "configure", timeout=self.config.control_timeout):
            if not answer.ok:
                self._failed(answer, "could not be given its session")
                continue
            member = answer.member
            member.facts = answer.value
            member.since = self.steps_begun
            node = member.target.node or member.facts["host"]
            member.assignment = self.plan.assign(replace(member.target, node=node))
            answered.append(member)
            self._compare(member)
        for answer in clock.measure(answered):
            self._failed(answer, "its clock could not be read")

    def _compare(self, member: Member) -> None:
        """What the worker says of itself beside what it was taken for."""
        facts = member.facts
        if member.assignment.selected != facts["selected"]:
            member.assignment = replace(member.assignment, selected=facts["selected"])
        if member.assignment.selected and facts.get("started_as") not in (None, member.label):
            self._say(
                f"{member.label} was started as {facts['started_as']}; give ranks= to attach so that launch and session are of one worker"
            )
        by_env = facts.get("rank_by_environment")
        if by_env is not None and member.target.rank is not None and by_env != member.target.rank:
            self._say(f"{member.label}: its environment says rank {by_env}; attach(..., ranks=...) says which is meant")
        for text in facts.get("problems", ()):
            self._say(f"{member.label}: {text}")
        for note in member.assignment.notes:
            log.info("accelprof %s: %s", member.label, note)

    # --- steps ------------------------------------------------------------------------------------------------------

    def begin(self, number: int) -> None:
        """Announce a step to the selected workers; one without a session (restarted, or reset) gets a new one."""
        self.steps_begun += 1
        without = []
        for answer in fanout.begin(self.selected(), number, timeout=self.config.control_timeout):
            if not answer.ok:
                if records(answer.member.assignment, number):
                    self.lost.append(Lost(answer.member, number, answer.error))
                self._failed(answer, "was not told that a step begins")
            elif answer.value is False:
                without.append(answer.member)
        if not without:
            return
        for member in without:
            self._say(f"{member.label} has no session any more (was it restarted?); it gets a new one at step {number}")
        self.configure(without)
        for answer in fanout.begin(without, number, timeout=self.config.control_timeout):
            if not answer.ok:
                self._failed(answer, "was not told that a step begins")

    def end(self, number: int, rows: dict[str, dict[str, Any]]) -> None:
        """The step ended: ``rows`` gets each selected worker's timings of it."""
        for answer in fanout.end(self.selected(), number, timeout=self.config.control_timeout):
            if not answer.ok:
                self._failed(answer, "was not told that the step ended")
            elif answer.value is not None:
                rows[answer.member.label] = answer.value

    def records(self, step: int) -> bool:
        """Whether a planned window of any worker may hold the step."""
        return any(records(member.assignment, step) for member in self.selected())

    def why_open(self) -> dict[str, str]:
        """Key of a worker -> why a window of it may never have been closed."""
        words = {DEAD: "its actor is dead", SILENT: "its actor did not answer (busy or hung)"}
        return {member.key: words[member.state] for member in self._members.values() if member.state in words}


def records(assignment: Assignment, step: int) -> bool:
    """Whether a step that begins now opens a window, or may."""
    return assignment.window_of(step) is not None


def roles_of(role: str | Sequence[str] | None) -> tuple[str, ...]:
    """A role, or several, as users give them."""
    return (role,) if isinstance(role, str) else tuple(role or ())
