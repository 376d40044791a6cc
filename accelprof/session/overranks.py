"""Steps of a job without a controller, on their way from its first process to the exporters: over all ranks, as their journals have them."""

from __future__ import annotations

import queue
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from accelprof.exporters.host import Exporters, figures_of
from accelprof.output.metrics import step_row
from accelprof.output.presence import Presence
from accelprof.output.records import MetricsRow
from accelprof.output.tail import Tail
from accelprof.threads import started

if TYPE_CHECKING:
    from accelprof.contracts.targets import Target
    from accelprof.voice import Voice

#: seconds between two looks at the journals while a step waits, that a step waits for ranks that lag or whose journals are elsewhere
POLL_S, PATIENCE_S = 0.2, 10.0
#: numbers of steps that are kept of a rank that is ahead of this one, or behind it, and of this one: the latest; rows of one number
STEPS_KEPT, ROWS_KEPT = 1000, 8


@dataclass(slots=True)
class _Waiting:
    """A step of this process: its row, when it ended (monotonic, s), whether a window of this process holds it."""

    row: MetricsRow
    ended_s: float
    held: bool

    @property
    def began_ns(self) -> int:
        """Of the Unix epoch."""
        return self.row.began_ns or 0


@dataclass(slots=True)
class _Sent:
    """The last step of its number that went to the exporters: when it began here (Unix epoch, ns), and the ranks that it is of."""

    began_ns: int
    labels: frozenset[str]


class OverRanks:
    """Each step of this process waits for the same step of the other ranks of its group, :data:`PATIENCE_S` at most, off the step's
    path. Ranks that did not come within it are not waited for until they write again; the figures say of how many ranks they are.

    Numbers may begin anew, in another loop or where a job was started again in the same directory. What processes that were gone
    before this one began have written is another attempt's. A row of a rank that lags belongs to the step of its number that
    began nearest in time, so one that comes after its step went out counts for none.
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
        self._peers = target.peers
        self._world = (target.world_size or 1) if run_dir is not None else 1
        self._tail = Tail(run_dir or "", key)
        self._given: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._steps: deque[_Waiting] = deque()
        self._begins: dict[int, deque[int]] = {}  # step -> when those of `_steps` began
        self._found: dict[str, dict[int, deque[MetricsRow]]] = {}  # label -> step -> timings that wait for this process
        self._latest: dict[str, MetricsRow] = {}  # label -> what it has written down last
        self._profiled: dict[int, tuple[int, int]] = {}  # step -> when a window with it opened and closed
        self._sent: dict[int, _Sent] = {}
        self._labels: frozenset[str] = frozenset()
        self._forgotten = 0  # when the latest step began that is not in `_sent` any more
        self._lost: set[str] = set()
        self._unseen_lost = self._last = self._over = False
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
        self._over = True
        left = len(self._steps) + self._given.qsize() - (not self._last)
        if left > 0:
            self._voice.say(
                f"export: steps left out at the end: {left}; the journals of the other ranks were not read within {seconds:g} s. "
                "The manifest has what they hold"
            )

    def _work(self) -> None:
        look_at = 0.0
        if self._world > 1:
            keys = self._tail.keys()
            self._tail.pass_over(set(keys) - self._there(keys))
        while not self._over and (not self._last or self._steps):
            if self._world == 1:
                self._take(None)
            else:
                self._take(look_at)
                # asked before looking: who leaves has written everything
                nobody = self._last and not self._there(self._tail.keys())
                began = time.monotonic()
                self._look()
                if nobody and not self._tail.behind:
                    self._until = 0.0
                took = time.monotonic() - began
                look_at = time.monotonic() + (took if self._tail.behind else max(POLL_S, took))
            while self._steps and not self._over and self._ready(self._steps[0]):
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
                self._begins.setdefault(given.row.step, deque()).append(given.began_ns)
        if until is not None:
            time.sleep(max(0.0, min(until, self._until) - time.monotonic()))

    def _look(self) -> None:
        found = self._tail.look()
        for row in found.timings:
            if row.label == self._label or row.whose != self._peers:
                continue
            steps = self._found.setdefault(row.label, {})
            steps.setdefault(row.step, deque(maxlen=ROWS_KEPT)).append(row)
            while len(steps) > STEPS_KEPT:
                del steps[next(iter(steps))]
            self._latest[row.label] = row
            self._lost.discard(row.label)
        for window in found.windows.values():
            if window.opened is not None:
                closed = window.closed or window.opened
                self._profiled.update(dict.fromkeys(window.steps, (window.opened.epoch_ns, closed.epoch_ns)))

    def _ready(self, waiting: _Waiting) -> bool:
        number = waiting.row.step
        came = {label for label in self._found if self._row_of(label, waiting) is not None}
        past = {
            label
            for label, row in self._latest.items()
            if row.step > number and (row.began_ns or 0) >= waiting.began_ns  # numbers may begin anew
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
        rows = [waiting.row]
        for label, steps in self._found.items():
            row = self._row_of(label, waiting)
            if row is not None:
                rows.append(row)
                steps[number].popleft()
            if not steps.get(number, True):
                del steps[number]
        spans = {
            row.label: (row.began_ns, row.wall_ns)
            for row in rows
            if row.began_ns is not None and row.wall_ns is not None
        }
        timings = {row.label: row.timings() for row in rows}
        held, whole = waiting.held or self._in_window(waiting), len(spans) == len(rows)
        self._note_sent(waiting, rows)
        self._exporters.step(figures_of(step_row(number, timings, spans, held, whole)))

    def _note_sent(self, waiting: _Waiting, rows: list[MetricsRow]) -> None:
        number, labels = waiting.row.step, frozenset(row.label for row in rows)
        if labels != self._labels:
            self._labels = labels  # as a rule one set for all steps, however many ranks there are
        self._sent.pop(number, None)
        self._sent[number] = _Sent(waiting.began_ns, self._labels)
        if len(self._sent) > STEPS_KEPT:
            self._forgotten = self._sent.pop(next(iter(self._sent))).began_ns
        self._begins[number].popleft()
        if not self._begins[number]:
            del self._begins[number]

    def _row_of(self, label: str, waiting: _Waiting) -> MetricsRow | None:
        """The row of another rank that belongs to this step, if it has come; those that came too late for theirs are dropped."""
        rows = self._found[label].get(waiting.row.step)
        while rows and self._late(rows[0], waiting):
            rows.popleft()
        if not rows:
            return None
        at, begins = rows[0].began_ns, self._begins[waiting.row.step]
        ahead = at is not None and len(begins) > 1 and abs(at - begins[1]) < abs(at - waiting.began_ns)
        return None if ahead else rows[0]

    def _late(self, row: MetricsRow, waiting: _Waiting) -> bool:
        """Whether a row is an earlier step's of its number, which went out without it."""
        if row.began_ns is None:
            return False
        sent = self._sent.get(row.step)
        if sent is None:
            return row.began_ns <= self._forgotten
        nearer = abs(row.began_ns - sent.began_ns) < abs(row.began_ns - waiting.began_ns)
        return nearer and row.label not in sent.labels

    def _in_window(self, waiting: _Waiting) -> bool:
        """Whether a window of another process holds this step, and not an earlier one of its number."""
        window, sent = self._profiled.get(waiting.row.step), self._sent.get(waiting.row.step)
        if window is None or sent is None:
            return window is not None
        return _apart(window, waiting.began_ns) <= _apart(window, sent.began_ns)

    def _there(self, keys: list[str]) -> set[str]:
        return set() if self._presence is None else self._presence.there(keys)


def _apart(span: tuple[int, int], moment: int) -> int:
    """How far a moment lies outside a span of time."""
    return max(span[0] - moment, moment - span[1], 0)
