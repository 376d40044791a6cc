"""One window for the whole process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accelprof.session.captures import Ask
from accelprof.session.triggers import Trigger

if TYPE_CHECKING:
    from accelprof.session.captures import Captures
    from accelprof.session.pending import Pending


class Whole(Trigger):
    """It opens when the session is taken into use, or with the first phase where a tool must start on the thread that works."""

    def __init__(self, captures: Captures, pending: Pending) -> None:
        self._captures, self._pending = captures, pending

    def starts(self, away: bool) -> None:
        ask = Ask("process")
        if away and self._captures.bound:
            self._pending.put(ask)
        else:
            self._captures.open(ask)
