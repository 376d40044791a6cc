"""Steps of a job without a controller, on their way from its first process to the exporters: over all ranks, as their journals have them."""

from __future__ import annotations

import queue
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from accelprof.exporters.host import Exporters, figures_of
from accelprof.output.manifest import step_row
from accelprof.output.presence import Presence
from accelprof.output.records import MetricsRow
from accelprof.output.tail import Tail
from accelprof.threads import started

if TYPE_CHECKING:
    from accelprof.contracts.targets import Target
    from accelprof.voice import Voice

#: seconds between two looks at the journals while a step waits, that a step waits for ranks that lag or whose journals are elsewhere
POLL_S, PATIENCE_S = 0.2, 10.0
#: steps of a rank that is ahead of this one, or behind it, that are kept: the latest
STEPS_KEPT = 1000


@dataclass(slots=True)
class _Waiting:
    """A step of this process: its row, when it ended (monotonic, s), whether a window of this process holds it."""

    row: MetricsRow
    ended_s: float
    held: bool


class OverRanks:
    """Each step of this process waits for the same step of the other ranks of its group, :data:`PATIENCE_S` at most, off the step's
    path. Ranks that did not come within it are not waited for until they write again; the figures say of how many ranks they are.
    """

    def __init__(
        self,
        exporters: Exporters,
        target: Target,
        key: str,
        run_dir: str | None,
        presence: Presence | None,
        voice: Voice,
    ) -> None:
        self._exporters, self._label, self._presence, self._voice = exporters, target.label, presence, voice
        self._group = target.label.rpartition("/")[0]
        self._world = (target.world_size or 1) if run_dir is not None else 1
        self._tail = Tail(run_dir or "", key)
        self._given: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._steps: deque[_Waiting] = deque()
        self._found: dict[str, dict[int, MetricsRow]] = {}  # label -> step -> timings that wait for this process
        self._latest: dict[str, MetricsRow] = {}  # label -> what it has written down last
        self._profiled: set[int] = set()
        self._lost: set[str] = set()
        self._unseen_lost = self._last = False
        self._until = float("inf")
        self._thread = started(self._work, "accelprof steps over ranks")

    def step(self, row: MetricsRow, held: bool) -> None:
        """A step of this process ended; returns at once."""
        self._given.put(_Waiting(row, time.monotonic(), held))

    def finish(self, seconds: float) -> None:
        """No step follows: what waits goes to the exporters, when the ranks that are still there have come or after ``seconds``."""
        self._until = time.monotonic() + seconds
        self._given.put(None)
        if self._thread is None:
            self._work()  # the interpreter started no thread any more
        else:
            self._thread.join(seconds + 1.0)

    def _work(self) -> None:
        look_at = 0.0
        while not self._last or self._steps:
            if self._world == 1:
                self._take(None)
            else:
                self._take(look_at)
                if self._last and self._nobody_there():  # asked before looking: who leaves has written everything
                    self._until = 0.0
                began = time.monotonic()
                self._look()
                look_at = time.monotonic() + max(POLL_S, time.monotonic() - began)
            while self._steps and self._ready(self._steps[0]):
                self._hand_on(self._steps.popleft())

    def _take(self, until: float | None) -> None:
        """Steps that ended by ``until``; where none waits at all, whenever one comes."""
        while not self._last:
            wait = None if not self._steps else 0.0 if until is None else max(0.0, until - time.monotonic())
            try:
                given = self._given.get(timeout=wait)
            except queue.Empty:
                return
            if given is None:
                self._last = True
            else:
                self._steps.append(given)
        if until is not None:
            time.sleep(max(0.0, min(until, self._until) - time.monotonic()))

    def _look(self) -> None:
        found = self._tail.look()
        for row in found.metrics:
            if row.label == self._label or row.label.rpartition("/")[0] != self._group:
                continue
            steps = self._found.setdefault(row.label, {})
            steps[row.step] = row
            while len(steps) > STEPS_KEPT:
                del steps[next(iter(steps))]
            self._latest[row.label] = row
            self._lost.discard(row.label)
        self._profiled.update(step for window in found.windows.values() for step in window.steps)

    def _ready(self, waiting: _Waiting) -> bool:
        number = waiting.row.step
        came = {label for label, steps in self._found.items() if number in steps}
        past = {
            label
            for label, row in self._latest.items()
            if row.step > number and (row.began_ns or 0) >= (waiting.row.began_ns or 0)  # numbers may begin anew
        }
        missing = self._latest.keys() - came - past - self._lost
        unseen = 0 if self._unseen_lost else self._world - 1 - len(self._latest)
        if not missing and unseen <= 0:
            return True
        if time.monotonic() < min(waiting.ended_s + PATIENCE_S, self._until):
            return False
        self._lost |= missing
        self._unseen_lost = self._unseen_lost or unseen > 0
        if unseen > 0:
            self._voice.say(
                f"export: figures are over {len(self._latest) + 1} of {self._world} ranks: the others have written no step into this "
                "run's directory. Processes that no common launcher (torchrun, SLURM, MPI) started have a directory each; ranks on "
                "other hosts are in this one where output_dir is on a disk that all share",
                about="export over ranks",
            )
        return True

    def _hand_on(self, waiting: _Waiting) -> None:
        number = waiting.row.step
        of_others = [(label, steps.pop(number, None)) for label, steps in self._found.items()]
        rows = [waiting.row, *(row for _, row in of_others if row is not None)]
        spans = {
            row.label: (row.began_ns, row.wall_ns)
            for row in rows
            if row.began_ns is not None and row.wall_ns is not None
        }
        timings = {row.label: row.timings() for row in rows}
        held, whole = waiting.held or number in self._profiled, len(spans) == len(rows)
        self._exporters.step(figures_of(step_row(number, timings, spans, held, whole)))

    def _nobody_there(self) -> bool:
        return self._presence is None or not self._presence.there(self._tail.keys())
