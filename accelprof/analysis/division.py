"""The parts of a second, each once: what the page, the table and the first sentences call it is taken from here."""

from __future__ import annotations

from typing import NamedTuple


class Division(NamedTuple):
    """One part of a window's time; :mod:`accelprof.analysis.seconds` says what belongs to it.

    Attributes:
        place: where it is drawn among the others.
        drawn: its name on the page.
        column: of the terminal's table, which parts may share.
        loss: what happened in it, where it is time that a device did not compute; empty for work.
    """

    name: str
    place: int
    drawn: str
    column: str
    loss: str = ""


#: in the order of ``report --json`` and of the tables' columns
TABLE = (
    Division("compute", 0, "compute", "compute"),
    Division(
        "communication_exposed", 2, "communication exposed", "exposed",
        "communication ran with nothing to compute beside it",
    ),
    Division("communication_overlapped", 1, "communication under compute", "overlapped"),
    Division("copy", 3, "copy", "copy"),
    Division("idle_launching", 4, "idle: host launching", "idle", "the host was busy launching and nothing was queued"),
    Division("idle_queued", 5, "idle: queued", "idle", "work was queued and had not started"),
    Division("idle_sync", 6, "idle: host waits", "idle", "the host waited for the device"),
    Division("idle_collective", 7, "idle: waits for a rank", "idle", "a rank waited for another in a collective"),
    Division("idle_waiting", 8, "idle: waits for a role or data", "idle", "a worker waited for another role or for data"),
    Division("outside", 9, "outside any phase", "outside", "no phase was running"),
    Division("unknown", 10, "unknown", "unknown", "the device was idle and the files do not say why"),
)  # fmt: skip
PARTS = tuple(part.name for part in TABLE)
#: parts in which the device works
WORKING = PARTS[:4]
