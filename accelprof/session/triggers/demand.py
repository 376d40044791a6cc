"""Windows that somebody asks for on the live process. Who asks, and how, is :mod:`accelprof.session.requests`'s matter."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from accelprof.contracts import reasons
from accelprof.session.captures import Ask
from accelprof.session.triggers import Trigger

if TYPE_CHECKING:
    from accelprof.contracts.tool import Tool
    from accelprof.output.requests import State
    from accelprof.session.captures import Captures
    from accelprof.session.course import Course
    from accelprof.session.pending import Pending

ON_DEMAND: Final = "on_demand"
DISPLACED = "a planned window opens where this one would have"


class Demand(Trigger):
    """At most one such window at a time, for a number of seconds; planned windows are never disturbed.

    Args:
        clock: seconds, monotonic; tests give their own.
    """

    def __init__(
        self, captures: Captures, pending: Pending, course: Course, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._captures, self._pending, self._course, self._clock = captures, pending, course, clock
        self._until: float | None = None
        self._displaced = False

    @property
    def going_on(self) -> bool:
        """Whether a window was asked for that is open, or waits for the working thread."""
        return self._until is not None

    def open(self, seconds: float) -> tuple[State, str]:
        """Open a window for ``seconds`` at most, or let it wait for the thread that works: ``(state, what to say)``.

        ``state`` is ``open``, ``armed`` or ``refused``.
        """
        captures = self._captures
        for tool in captures.tools:
            why = cannot(tool)
            if why:
                return "refused", why
        with captures.lock:
            step = self._course.running
            ask = Ask(ON_DEMAND, () if step is None else (step,), seconds=seconds)
            if captures.bound and not captures.ended and captures.window is None:
                if self._pending.ask is not None:
                    waits = "one that was asked for before" if self._pending.waits(ON_DEMAND) else "a planned window"
                    return "refused", f"{waits} opens where the next phase begins"
                self._pending.put(ask, displaced=self._give_way)
                self._until, self._displaced = self._clock() + seconds, False
                return "armed", "opens where the next phase begins, on the thread that works"
            window = captures.open_or_why(ask)
            if isinstance(window, str):
                return "refused", window
            self._until = self._clock() + seconds
            return "open", f"window {window.info.sequence}, for {seconds:g} s at most"

    def close(self, reason: str) -> None:
        """Close the window that was asked for, or take the ask back; no other window is touched."""
        captures = self._captures
        with captures.lock:
            self._until = None
            self._pending.take_back(ON_DEMAND)
            window = captures.window
            if window is not None and window.info.kind == ON_DEMAND:
                captures.request_close(reason, only=window)

    def look(self) -> str:
        """What time brings: closes a window that is over. What to tell who asked, or nothing."""
        with self._captures.lock:
            if self._until is not None and self._clock() >= self._until:
                self.close(reasons.TIME_OVER)
            displaced, self._displaced = self._displaced, False
        return DISPLACED if displaced else ""

    def _give_way(self) -> None:
        self._until, self._displaced = None, True


def cannot(tool: Tool) -> str:
    """Why a tool takes no window that was not planned; empty when it does."""
    if tool.count == "exact":
        return f"tool {tool.name} was told its number of windows at launch; plan the window with steps or a schedule"
    if tool.count == "whole_process":
        return f"tool {tool.name} records the whole process; there is nothing to open"
    return "" if tool.on_demand else f"tool {tool.name} takes no window that was not planned"
