"""Runs the configured exporters on threads of their own, off the step's path; one that fails is said once and left out."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from accelprof import texts
from accelprof.contracts.exporter import Exporter, PhaseFigures, RunFacts, StepFigures
from accelprof.errors import failures, text_of
from accelprof.threads import on_main, started

if TYPE_CHECKING:
    from accelprof.config.model import Config

log = logging.getLogger("accelprof")

#: steps that may wait for a slow exporter; more are left out, and said
WAITING_AT_MOST = 1000


class Exporters:
    """Each exporter on a thread of its own, so that one that is slow or hangs holds up no other.

    ``say`` takes one line for the log and the manifest; it is called from the exporters' threads, one at a time.
    """

    def __init__(self, exporters: Sequence[Exporter], run: RunFacts, say: Callable[[str], object]) -> None:
        self._say, self._saying = say, threading.RLock()
        self._pid = os.getpid()
        self._finished = False
        self._runners = [_Runner(exporter, run, self._said) for exporter in exporters]

    def step(self, figures: StepFigures, patience: float = 0.0) -> None:
        """Hand a step over; returns at once, or after ``patience`` seconds while too many others wait."""
        if self._pid != os.getpid():
            return
        until = time.monotonic() + patience
        for runner in self._runners:
            runner.step(figures, until)

    def finish(self, manifest: Mapping[str, object], directory: str, timeout: float = 30.0) -> None:
        """The run is over: exporters get the manifest and are closed. Waits for them, ``timeout`` seconds at most."""
        if self._pid != os.getpid() or self._finished:
            return
        self._finished = True
        until = time.monotonic() + timeout
        for runner in self._runners:
            runner.finish(manifest, directory)
        late = [runner.doing for runner in self._runners if not runner.ended(until)]
        for runner in self._runners:
            if runner.left_out:
                self._said(
                    f"export: {runner.name}: {runner.left_out} steps were left out, it was slower than the steps"
                )
        if late:
            self._said(
                f"export: {', '.join(late)} did not end within {timeout:g} s; what they have not written is missing"
            )

    def _said(self, text: str) -> None:
        with self._saying:
            self._say(text)


class _Runner:
    """One exporter, what waits for it, and its thread.

    Attributes:
        doing: its name, with the call that it is in.
        left_out: steps that there was no room for.
    """

    def __init__(self, exporter: Exporter, run: RunFacts, say: Callable[[str], object]) -> None:
        self._exporter, self._run, self._say = exporter, run, say
        self.name = self.doing = exporter.name
        self.left_out = 0
        self._works = True
        self._queue: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self._thread = started(self._work, f"accelprof exporter {exporter.name}")

    def step(self, figures: StepFigures, until: float) -> None:
        while self._queue.qsize() >= WAITING_AT_MOST:
            if time.monotonic() >= until:
                self.left_out += 1
                return
            time.sleep(0.01)
        self._queue.put(("step", figures))

    def finish(self, manifest: Mapping[str, object], directory: str) -> None:
        self._queue.put(("finish", manifest, directory))
        self._queue.put(None)
        if self._thread is None:
            self._work()  # the interpreter started no thread any more

    def ended(self, until: float) -> bool:
        """Whether it has done everything; waits until then."""
        if self._thread is None:
            return True
        self._thread.join(max(0.1, until - time.monotonic()))
        return not self._thread.is_alive()

    def _work(self) -> None:
        self._call("start", self._run)
        while (item := self._queue.get()) is not None:
            self._call(*item)
        self._call("close")

    def _call(self, call: str, *arguments: object) -> None:
        if not self._works:
            return
        self.doing = f"{self.name} (in {call})"
        try:
            getattr(self._exporter, call)(*arguments)
        except _failures() as error:  # said once, with the exporter's name; the others go on
            self._works = False
            self._say(f"export: {self.name} is left out from here on: {call}: {text_of(error)[:300]}")
            if call != "close":
                try:
                    self._exporter.close()
                except _failures() as again:  # it has failed already; said in the log only
                    log.info("accelprof: export: %s could not be closed: %s", self.name, text_of(again))


def _failures() -> tuple[type[BaseException], ...]:
    """As of :func:`accelprof.errors.failures`; on a thread of ours an interrupt is none of the user's either."""
    return failures() if on_main() else (BaseException,)


def start_exporters(
    made: Sequence[Exporter], config: Config, run_dir: str | None, say: Callable[[str], object]
) -> Exporters | None:
    """The exporters of a run, begun; ``None`` where there are none. ``run_dir`` is ``None`` where none could be made: files of
    exporters then go to the output directory."""
    if not made or not config.enabled:
        return None
    directory = os.path.abspath(run_dir or config.output_dir)
    name = os.path.basename(directory) if run_dir else config.run
    facts = RunFacts(name, directory, config.model_dump(mode="json"), {"accelprof": version("accelprof")})
    return Exporters(made, facts, say)


def afterwards(
    exporters: Exporters,
    steps: Iterable[Mapping[str, Any]],
    manifest: Mapping[str, object],
    directory: str,
    patience: float = 60.0,
) -> None:
    """Hand over a run that has ended: its steps as the manifest has them, then the manifest; ``patience`` seconds for the steps."""
    until = time.monotonic() + patience
    for row in steps:
        exporters.step(figures_of(row), max(0.0, until - time.monotonic()))
    exporters.finish(manifest, directory)


def figures_of(row: Mapping[str, Any]) -> StepFigures:
    """A step's figures from its row as the manifest has it (:func:`accelprof.output.metrics.step_row`)."""
    wall = row.get("wall_ns")
    ended = None if wall is None else row["began_ns"] + wall
    # as any format can have it
    phases = {texts.bounded(phase): PhaseFigures(**figures) for phase, figures in row["seconds"].items()}
    return StepFigures(row["step"], ended, wall, row["window"], phases)
