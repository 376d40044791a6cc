"""Dumps of the flight recorder over hosts with disks of their own: what one host's workers began, the others' are asked for too."""

from __future__ import annotations

import threading
from collections.abc import Callable

from accelprof.cluster.nodes import RayNodes, own_node
from accelprof.cluster.roster import Roster
from accelprof.errors import failures, text_of
from accelprof.output import dumps
from accelprof.threads import started

#: seconds between two looks; a ring holds steps for longer
LOOK_S = 2.0


class DumpWatch:
    """A thread of the controller. It asks nobody while all workers are on the driver's own node."""

    def __init__(self, roster: Roster, run_dir: str, say: Callable[[str], object], interval: float = LOOK_S) -> None:
        self._roster, self._run_dir, self._say, self._interval = roster, run_dir, say, interval
        self._told: set[str] = set()
        self._end = threading.Event()
        self._thread = started(self._watch, "accelprof dumps")

    def end(self) -> None:
        """Nobody is asked any more."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(self._interval + self._roster.config.control_timeout)

    def _watch(self) -> None:
        while not self._end.wait(self._interval):
            try:
                self._look()
            except failures() as error:  # Ray may be gone; said once
                self._say(f"dumps of the flight recorder are not asked for on other nodes: {text_of(error)}")
                return

    def _look(self) -> None:
        members = list(self._roster.members)
        hosts = {member.facts.get("node_id") for member in members if member.facts}
        hosts = {None, *(hosts - {own_node()})}
        if len(hosts) < 2:
            return
        errors = dumps.spread(self._run_dir, RayNodes(members), hosts, self._told, self._roster.config.control_timeout)
        for node, error in errors.items():
            self._say(f"dumps of the flight recorder are not asked for on node {node}: {error}")
