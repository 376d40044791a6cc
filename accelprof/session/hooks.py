"""What plug-ins hear of a worker's session: steps and windows, with plain facts of the moment."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accelprof.catalogue import Catalogue
    from accelprof.contracts.targets import Target, WindowInfo
    from accelprof.contracts.timings import Timings
    from accelprof.session.captures import Captures
    from accelprof.session.course import Course

HOOKS = ("accelprof_step_begin", "accelprof_step_end", "accelprof_window_opened", "accelprof_window_closed")


@dataclass(frozen=True)
class SessionFacts:
    """What hooks get as ``session``: plain facts, as they were when the event came.

    Attributes:
        target: the process as the plan sees it: group, roles, rank, replica, node.
        key: the process in journals and manifests.
        run_dir: directory of the run.
        accelerator: type of the backend in use.
        step: the running step, or ``None``.
        window: id of the open window, or ``None``.
        timings: ``{tag: {"seconds", "count"}}`` of the step that ended last.
    """

    target: Target
    key: str
    host: str
    pid: int
    run_dir: str
    accelerator: str
    selected: bool
    step: int | None
    window: str | None
    timings: Timings = field(repr=False)
    _session: Any = field(repr=False, compare=False, default=None)

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._session, name)
        warnings.warn(
            f"hooks get facts of the session ({', '.join(f for f in self.__dataclass_fields__ if f != '_session')}), not the session; {name} goes with the next release",
            DeprecationWarning,
            stacklevel=2,
        )
        return found


class Hooks:
    """Of one session. Which hooks anybody has is asked once: an event that nobody hears costs one look into a set.

    Args:
        session: what hooks got before they got facts; for one more release, with a warning, they reach it still.
    """

    def __init__(self, catalogue: Catalogue, captures: Captures, course: Course, session: object) -> None:
        self._catalogue, self._captures, self._course, self._session = catalogue, captures, course, session
        self.heard = {name for name in HOOKS if catalogue.host.listens(name)}

    def step_began(self, number: int) -> None:
        self._tell("accelprof_step_begin", step=number)

    def step_ended(self, number: int) -> None:
        self._tell("accelprof_step_end", step=number)

    def window(self, what: str, info: WindowInfo) -> None:
        """A window was ``opened``, or is ``closed`` and its files are written."""
        self._tell(f"accelprof_window_{what}", window=info)

    def _tell(self, hook: str, **facts: object) -> None:
        if hook in self.heard:
            self._catalogue.event(hook, session=self._facts(), **facts)

    def _facts(self) -> SessionFacts:
        captures, process, window = self._captures, self._captures.process, self._captures.window
        return SessionFacts(
            process.target,
            process.key,
            process.host,
            process.pid,
            process.layout.run_dir,
            captures.backend.name,
            process.assignment.selected,
            self._course.running,
            None if window is None else window.info.id,
            self._course.times.of(),
            self._session,
        )
