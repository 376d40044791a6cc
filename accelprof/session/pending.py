"""An ask that waits: the window it wants opens where the next phase begins, on the thread that works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from accelprof.session.captures import Ask

if TYPE_CHECKING:
    from accelprof.session.captures import Captures
    from accelprof.timing.entry import Entry


def _nothing() -> None:
    return None


@dataclass(eq=False)
class _Waiting:
    ask: Ask
    each_phase: bool
    opened: Callable[[], None]
    displaced: Callable[[], None]


class Pending:
    """At most one ask that waits for the working thread. Everything here happens under the session's lock."""

    def __init__(self, captures: Captures) -> None:
        self._captures = captures
        self._waiting: _Waiting | None = None

    @property
    def ask(self) -> Ask | None:
        """What waits, or ``None``."""
        return None if self._waiting is None else self._waiting.ask

    def waits(self, kind: str) -> bool:
        """Whether an ask for a window of this kind waits."""
        return self._waiting is not None and self._waiting.ask.kind == kind

    def put(
        self,
        ask: Ask,
        *,
        each_phase: bool = False,
        opened: Callable[[], None] = _nothing,
        displaced: Callable[[], None] = _nothing,
    ) -> None:
        """Let ``ask`` wait, in the place of any other.

        Args:
            each_phase: every phase that begins from now on gets a window of its own, which ends with it (a tool that must
                stop on the thread it started on, where no later call on that thread is certain).
            opened: called when a window opened for it.
            displaced: called when another ask takes its place.
        """
        before, self._waiting = self._waiting, _Waiting(ask, each_phase, opened, displaced)
        if before is not None:
            before.displaced()

    def take_back(self, kind: str) -> None:
        """The ask of this kind no longer waits; harmless when none does."""
        if self.waits(kind):
            self._waiting = None

    def phase_begins(self, entry: Entry) -> None:
        """A phase begins on a working thread and no window is open."""
        with self._captures.lock:
            waiting = self._waiting
            if waiting is None or self._captures.window is not None or not self._captures.suits(entry):
                return
            ask = waiting.ask
            if waiting.each_phase:
                ask = Ask(ask.kind, ask.steps, entry.spec.tag)
            window = self._captures.open(ask)
            if window is None:
                return
            if waiting.each_phase:
                entry.owned = window
            elif self._waiting is waiting:
                self._waiting = None
            waiting.opened()
