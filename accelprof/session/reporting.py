"""What a session says: once, with group and rank, in the log and in the manifest; and what it tells a controller."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from accelprof.contracts.targets import Assignment
from accelprof.errors import CaptureError
from accelprof.output.layout import Layout
from accelprof.output.manifest import Journal
from accelprof.output.records import NEVER_OPENED, ProblemRow, TargetRow, WindowRow
from accelprof.timing import metrics

if TYPE_CHECKING:
    from accelprof.config.model import Config
    from accelprof.contracts.backend import Backend

log = logging.getLogger("accelprof")


class Reporting:
    """Identity, journal and voice of a session."""

    def __init__(
        self, config: Config, assignment: Assignment, backend: Backend, layout: Layout, host: str, pid: int
    ) -> None:
        self.config, self.assignment, self.backend, self.layout = config, assignment, backend, layout
        self.host, self.pid = host, pid
        self.target = assignment.target
        self.key = layout.key(self.target, host, pid)
        self.windows: list[WindowRow] = []
        self.steps_seen: dict[int, None] = {}
        self.problems: list[str] = []
        self._said: set[Any] = set()
        self.owed: CaptureError | None = None
        path = f"{layout.workers_dir}/{self.key}.jsonl" if assignment.selected else None
        self.journal = Journal(path, self.report)

    def say_what_never_opened(self) -> None:
        if not self.assignment.selected or (self.assignment.mode == "off" and not self.assignment.schedules):
            return
        if self.windows:
            missed = [
                list(steps)
                for steps in self.assignment.windows
                if not any(set(steps) & set(row.steps) for row in self.windows)
            ]
            if missed and not self.assignment.discrete:
                self.report(
                    f"windows for steps {missed[:20]} never opened; steps seen: {self._steps_text()}",
                    level=logging.INFO,
                )
            return
        phases = metrics.tags_seen()
        text = f"armed, 0 windows opened; steps seen: {self._steps_text()}; phases seen: {', '.join(phases) or 'none'}"
        self.report(text + f"; wanted: {self._wanted()}", code=NEVER_OPENED)

    def _wanted(self) -> str:
        assignment = self.assignment
        text = f"steps {assignment.steps}" if assignment.mode == "steps" else f"steps: {assignment.mode}"
        if assignment.phases:
            text += f", phases {', '.join(assignment.phases)}"
        if assignment.schedules:
            text += f", schedule on {', '.join(spec.phase for spec in assignment.schedules)}"
        return text

    def _steps_text(self) -> str:
        seen = list(self.steps_seen)
        if not seen:
            return "none"
        return f"{min(seen)}..{max(seen)}" if len(seen) > 8 else ", ".join(map(str, seen))

    def describe(self) -> TargetRow:
        """The manifest's ``targets`` row of this process."""
        assignment = self.assignment
        return TargetRow(
            key=self.key,
            group=self.target.group,
            roles=list(self.target.roles),
            rank=self.target.rank,
            world_size=self.target.world_size,
            replica=self.target.replica,
            node=self.target.node,
            host=self.host,
            pid=self.pid,
            accelerator=self.backend.name,
            tool=assignment.tool,
            armed=assignment.selected and (assignment.mode != "off" or bool(assignment.schedules)),
            wanted=self._wanted(),
            asked_by=dict(assignment.asked_by),
            steps_seen=list(self.steps_seen)[:200],
            phases_seen=metrics.tags_seen(),
            windows_opened=len(self.windows),
            python=sys.version.split()[0],
        )

    def summary(self) -> dict[str, Any]:
        """What a controller takes over: the journal and the problems, as plain data."""
        return {
            "key": self.key,
            "journal": list(self.journal.records),
            "problems": list(self.problems),
            "selected": self.assignment.selected,
            "target": self.describe().to_json(),
        }

    def report(self, message: str, level: int = logging.WARNING, about: Any = None, code: str = "") -> None:
        """Say something once, with group and rank, in the log and in the manifest.

        ``about`` is what may be said once only; the message itself by default. ``code``: its kind, where a decision hangs on it.
        """
        about = message if about is None else about
        if about in self._said:
            return
        self._said.add(about)
        self.problems.append(message)
        log.log(level, "accelprof %s: %s", self.target.label, message)
        self.journal.add(ProblemRow(target=self.key, message=message, code=code))

    def trouble(self, doing: str, error: Exception) -> None:
        """A failure of ours or of a backend: reported once; with ``on_error: raise`` it is owed (see :meth:`owe`)."""
        text = f"{doing} failed: {text_of(error)}"
        self.report(text, about=(doing, nature(error)))
        self.owe(text, error)

    def owe(self, text: str, error: Exception) -> None:
        """Remember the first failure for :meth:`pay`. Nothing is raised where it happens: there the user's own code runs."""
        if self.config.on_error == "raise" and self.owed is None:
            self.owed = CaptureError(f"{self.target.label}: {text}")
            self.owed.__cause__ = error

    def pay(self) -> None:
        """Raise what is owed, where the session was called by name: at a step's ends, at configure and close.

        Raises:
            CaptureError: something failed since the last call and ``on_error`` is ``raise``.
        """
        owed, self.owed = self.owed, None
        if owed is not None:
            raise owed

    def guarded(self, doing: str, call: Any, *args: Any) -> None:
        """Call; a failure is reported once (:meth:`trouble`)."""
        try:
            call(*args)
        except Exception as error:  # noqa: BLE001 - reported once
            self.trouble(doing, error)


def nature(error: BaseException) -> Any:
    """What makes two failures the same one: a disk that is full stays full, whichever file it was about."""
    return (type(error), error.errno) if isinstance(error, OSError) else (type(error), str(error))


def text_of(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
