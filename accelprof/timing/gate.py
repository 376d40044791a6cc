"""The one global switch on the path of a timed call, and the clock it reads.

``gate.entrance`` is ``None`` while nothing has to happen besides timing. While a window is open, an ask for one waits, or a
phase may open one, it is where timers report phases and ranges. Nobody writes the gate but the gate itself, which asks the
session when the session's lock is left.
"""

from __future__ import annotations

import time
import warnings

from accelprof.timing.phase import PhaseSpec

TYPE_CHECKING = False  # as typing has it, whose import would be a fifth of ours
if TYPE_CHECKING:
    from typing import Any, Protocol

    class Entrance(Protocol):
        """What timers see of a session."""

        def enter(self, spec: PhaseSpec, suspends: int) -> Any:
            """A phase begins, in one of the ways of ``timing.phase``; may open a window. What is returned is an
            :class:`accelprof.timing.entry.Entry`, or ``None`` where nothing is to be done at its end."""

        def enter_range(self, spec: PhaseSpec, suspends: int) -> object:
            """The same of a ``profiling_range``; it never opens a window."""

        def goes_on(self, spec: PhaseSpec) -> object:
            """A generator's call goes on that began while nothing was to be done: its ``Entry``; it never opens a window."""

        def ended_inside(self, spec: PhaseSpec, start: int, end: int, kind: str = "phase") -> None:
            """A phase (or range, by ``kind``) ended that began while nothing was to be done, or in another window."""

        def mark(self, spec: PhaseSpec) -> None:
            """An instant."""

        def device_timer(self) -> Any:
            """Device events for one call, or ``None``."""

        def device_timer_failed(self, error: BaseException) -> None:
            """What ``device_timer`` gave raised ``error``."""

        def opens_by_phase(self) -> bool:
            """Whether the plan has windows that a phase makes, not a step."""

        def say(self, text: str) -> object:
            """Tell the user once."""

    class Owner(Protocol):
        """What the gate sees of a session."""

        @property
        def entrance(self) -> Entrance: ...

        def attention(self) -> tuple[bool, Any]:
            """Whether anything is to be done besides timing, and what plain calls need where they need nothing else."""


class Gate:
    """See the module.

    Attributes:
        entrance: where timers report, or ``None``.
        direct: set while a window is open and nothing else has to hear of plain calls: they then emit and record by
            themselves, with what it has resolved.
        always: the current session's entrance whether or not anything is open: device timers come from it.
        session: the current session; for the room of that name alone.
    """

    __slots__ = ("always", "direct", "entrance", "session")

    def __init__(self) -> None:
        self.entrance: Entrance | None = None
        self.direct: Any = None
        self.always: Entrance | None = None
        self.session: Any = None

    def take(self, session: Owner) -> None:
        """``session`` is this process's from now on."""
        self.session, self.always = session, session.entrance
        self.refresh(session)

    def release(self, session: object = None) -> None:
        """This process has no session any more; with ``session`` only if it is that one."""
        if session is None or self.session is session:
            self._turn(None)
            self.entrance = self.always = self.session = None

    def refresh(self, session: Owner) -> None:
        """Ask ``session`` again whether anything is to be done. Called when its lock is left."""
        busy, direct = session.attention()
        if busy:
            self.entrance = session.entrance
            if direct is not self.direct:
                self._turn(direct)
        elif self.entrance is session.entrance:
            self._turn(None)
            self.entrance = None

    def _turn(self, direct: Any) -> None:
        """Plain calls write into ``direct`` from now on, and no more into what was there."""
        if self.direct is not None:
            self.direct.room = 0
        if direct is not None:
            direct.room = direct.most
        self.direct = direct

    # no __getattr__: a class that has one is read the slow way, also where the attribute is there
    @property
    def hot(self) -> object:
        return self._under_its_old_name("hot", "entrance", self.entrance)

    @property
    def lane(self) -> Any:
        return self._under_its_old_name("lane", "direct", self.direct)

    @staticmethod
    def _under_its_old_name(old: str, new: str, value: object) -> object:
        warnings.warn(
            f"gate.{old} is gate.{new} now; the old name goes with the next release", DeprecationWarning, stacklevel=3
        )
        return value

    def __reduce__(self) -> str:
        return "gate"  # a class of a script travels by value to other processes; its timers find their gate there


gate = Gate()

#: globals of every generated wrapper; a fake clock replaces ``clock`` here and nowhere else
wrapper_globals: dict[str, Any] = {
    "__name__": "accelprof.timer",
    "_accelprof_gate": gate,
    "_accelprof_clock": time.perf_counter_ns,
}


def now_ns() -> int:
    """The timers' clock: nanoseconds, monotonic (``time.perf_counter_ns`` unless a test replaced it)."""
    clock: Any = wrapper_globals["_accelprof_clock"]
    return int(clock())
