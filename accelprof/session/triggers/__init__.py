"""When a window is due: one class a reason, all on one base. The session only passes events on."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from accelprof.timing.entry import Entry


class Trigger:
    """Hears of steps and phases and asks the captures to open and close windows; what a reason needs is overridden.

    Attributes:
        counts_calls: every phase call must be heard of while it watches, also inside an open window.
    """

    counts_calls: ClassVar[bool] = False

    def starts(self, away: bool) -> None:
        """The session is taken into use; ``away``: not on the main thread. Under the lock."""

    def step_begins(self, number: int, away: bool) -> None:
        """Step ``number`` begins; ``away``: announced on a thread that may not be the one that works. Under the lock."""

    def step_ends(self, number: int, following: int | None) -> None:
        """Step ``number`` is over: it ended (``following`` is ``None``), or ``following`` was announced. Both may come, in
        this order. Under the lock."""

    def step_void(self, number: int) -> None:
        """Step ``number`` began and never came, and is over; it may be announced again. Under the lock."""

    def phase_begins(self, entry: Entry) -> None:
        """A phase begins on this thread; without the lock."""

    def phase_ends(self, entry: Entry) -> None:
        """A phase of which the trigger keeps something on its entry ended; without the lock."""

    def watching(self) -> bool:
        """Whether a phase that begins now could matter."""
        return False

    def finish(self) -> None:
        """The session closes; under the lock."""
