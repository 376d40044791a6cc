"""The end of a run that nobody else ends: a plain process, or the processes that one launcher started.

Each process that closes writes the manifest of all journals so far. Rank 0 and the last one make timeline and page too. Nobody
waits for a process that is dead or still at work: who closes later adds itself.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from accelprof import texts
from accelprof.analysis import draw
from accelprof.contracts import reasons
from accelprof.exporters.host import Exporters, start_exporters
from accelprof.output import codes
from accelprof.output.delivery import EndedRun, deliver, finish
from accelprof.output.nodes import ThisHost
from accelprof.output.presence import PAGE, TURN, Presence
from accelprof.output.records import Lack, Manifest, MetricsRow
from accelprof.session.overranks import OverRanks
from accelprof.timing.gate import now_ns

if TYPE_CHECKING:
    from accelprof.catalogue import Catalogue
    from accelprof.config.model import Config
    from accelprof.contracts.targets import Target
    from accelprof.contracts.timings import Timings
    from accelprof.planning.plan import Plan
    from accelprof.session.captures import Captures
    from accelprof.voice import Voice

log = logging.getLogger("accelprof")
#: seconds to wait while another process of the run writes; with a signal that ends the process, hardly any
TURN_S, PAGE_S, EXPORT_S, HURRIED_S = 60.0, 120.0, 30.0, 1.0
#: a process that is killed loses the timings of steps that ended within so many ns
WRITTEN_NS = 100_000_000


def metrics_row(target: Target, number: int, timings: Timings, began: int, wall: int | None) -> MetricsRow:
    return MetricsRow(target.label, number, dict(timings), began, wall, target.peers)


class StepsOfLaunched:
    """Timings of the steps of a process under ``accelprof run``, whose launcher ends the run: into the journal, nothing else. Short
    steps are written together."""

    def __init__(self, captures: Captures) -> None:
        self._target, self._journal = captures.process.target, captures.journal
        self._waiting: list[MetricsRow] = []
        self._written = 0

    def step_ended(self, number: int, timings: Timings, began: int, wall: int | None) -> None:
        """As :meth:`OwnRun.step_ended`."""
        self._waiting.append(metrics_row(self._target, number, timings, began, wall))
        if (now := now_ns()) - self._written > WRITTEN_NS:
            self._written = now
            self.flush()

    def flush(self) -> None:
        """What waits is written."""
        rows, self._waiting = self._waiting, []
        self._journal.add(*rows)


class OwnRun:
    """Of one session. ``plan``: what the process decided with; ``None`` where it was given its assignment. ``run_dir`` is ``None``
    where no directory could be made, and ``problem`` says why."""

    def __init__(
        self,
        captures: Captures,
        config: Config,
        catalogue: Catalogue,
        plan: Plan | None,
        run_dir: str | None,
        problem: str = "",
    ) -> None:
        self._captures, self._process, self._journal = captures, captures.process, captures.journal
        self._config, self._catalogue, self._plan = config, catalogue, plan
        self.run_dir, self._problem = run_dir, problem
        self._presence = None if run_dir is None else Presence(run_dir, self._process.key)
        self._written: tuple[EndedRun, Manifest] | None = None
        self._finished = False
        self._lock = threading.RLock()
        self._exporters: Exporters | None = None
        self._exported: OverRanks | None = None
        self._said = 0
        if self._process.target.rank in (0, None) and config.export:
            made = catalogue.make_exporters(config)
            self._exporters = start_exporters(made, config, run_dir, captures.voice.say)
        if self._exporters is not None:
            process = self._process
            self._exported = OverRanks(
                self._exporters, process.target, process.key, run_dir, self._presence, captures.voice
            )

    def step_ended(self, number: int, timings: Timings, began: int, wall: int | None) -> None:
        """Timings of a step go into the journal, window or not; ``began`` is of the Unix epoch, ``wall`` its length (ns),
        ``None`` of one that did not come to its end."""
        row = metrics_row(self._process.target, number, timings, began, wall)
        self._journal.add(row)
        if self._exported is not None:
            self._exported.step(row, any(number in window.steps for window in self._captures.rows[-2:]))

    def flush(self) -> None:
        """Nothing waits."""

    def so_far(self) -> Manifest:
        """The manifest as far as the run has come; more follows."""
        return self._write(HURRIED_S, {self._process.key})[1]

    def write(self, reason: str) -> tuple[EndedRun, Manifest]:
        """The manifest of the run as it is now, with what it was made of; this process has nothing more to add."""
        with self._lock:
            if self._written is None:
                if self._presence is not None:
                    self._presence.leave()
                patience = HURRIED_S if reasons.among(reason, *reasons.HURRIED) else TURN_S
                self._written = self._write(patience, set())
            return self._written

    def end(self, reason: str) -> dict[str, Any]:
        """The manifest, written, and ``run_dir``; with timeline and page where this is rank 0 or the last process. Nothing where
        the process goes on in another session of the same run."""
        with self._lock:
            if reasons.among(reason, reasons.JOINED):
                if self._presence is not None:
                    self._presence.close()
                return {}
            facts, manifest = self.write(reason)
            if self._finished:
                return {**manifest.to_json(), "run_dir": self.run_dir}
            self._finished = True
            target, hurried = self._process.target, reasons.among(reason, *reasons.HURRIED)
            patience = HURRIED_S if hurried else EXPORT_S
            if self._exported is not None:
                self._exported.finish(patience)
            leads = not manifest.running or target.rank in (0, None)
            failed = False
            if self._presence is not None and not hurried and leads:
                with self._presence.turn(PAGE, PAGE_S):
                    failed = finish(facts, manifest)
            if self._exporters is not None:
                self._exporters.finish(manifest.to_json(), self.run_dir or "", patience)
            if failed or len(self._captures.voice.problems) > self._said:  # what failed at the end stands in it too
                self._written = self._write(HURRIED_S if hurried else TURN_S, set(), facts.voice)
                manifest = self._written[1]
                self._journal.close()
            if self._presence is not None:
                self._presence.close()
            lies = "nothing was written" if self.run_dir is None else f"it lies in {texts.from_here(self.run_dir)}"
            log.info("accelprof %s: the run is %s; %s", target.label, manifest.status, lies)
            return {**manifest.to_json(), "run_dir": self.run_dir}

    def _write(self, patience: float, running: set[str], said: Voice | None = None) -> tuple[EndedRun, Manifest]:
        """``said``: by whom the run's manifest was written before: what that one said stands in this one, and is not said again."""
        catalogue, config = self._catalogue, self._config
        self._plan = self._plan or catalogue.plan(config, decided=True)
        self._said = len(self._captures.voice.problems)
        facts = EndedRun(
            self.run_dir, catalogue, config, self._plan, draw, told=[self._journal.records], says=said is None
        )
        facts.voice = said or facts.voice
        if self._problem:
            facts.lacks.append(Lack(code=codes.NO_DIRECTORY, words=self._problem))
        if self._presence is None:
            return facts, deliver(facts, ThisHost(), last=False)
        began = now_ns()
        with self._presence.turn(TURN, patience, self._captures.lock.signalled) as mine:
            if not mine:
                waited = (now_ns() - began) / 1e9
                facts.voice.say(f"another process of the run was writing its manifest for {waited:.1f} s")
            at_work = self._presence.at_work
            facts.running = lambda found: at_work(found.targets) | running
            return facts, deliver(facts, ThisHost(), last=False)
