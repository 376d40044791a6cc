"""Runs the configured exporters on one thread, off the step's path; one that fails is said once and left out."""

from __future__ import annotations

import logging
import os
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from accelprof.contracts.exporter import Exporter, PhaseFigures, RunFacts, StepFigures, over_ranks
from accelprof.errors import failures
from accelprof.threads import started

if TYPE_CHECKING:
    from accelprof.config.model import Config

log = logging.getLogger("accelprof")

#: steps that may wait for slow exporters; more are left out, and said
WAITING_AT_MOST = 1000


class Exporters:
    """See the module. ``say`` takes one line for the log and the manifest; it may be called from the exporters' thread."""

    def __init__(self, exporters: Sequence[Exporter], run: RunFacts, say: Callable[[str], object]) -> None:
        self._say = say
        self._live = list(exporters)
        self._pid = os.getpid()
        self._left_out = 0
        self._run, self._finished = run, False
        self._queue: queue.Queue[tuple[str, Any] | None] = queue.Queue(WAITING_AT_MOST)
        self._thread = started(lambda: self._work(run), "accelprof-exporters")

    def step(self, figures: StepFigures, patience: float = 0.0) -> None:
        """Hand a step over; returns at once, or after ``patience`` seconds while too many others wait."""
        if self._pid != os.getpid():
            return
        try:
            self._queue.put(("step", figures), block=patience > 0, timeout=patience or None)
        except queue.Full:
            self._left_out += 1

    def finish(self, manifest: Mapping[str, object], directory: str, timeout: float = 30.0) -> None:
        """The run is over: exporters get the manifest and are closed. Waits for them, ``timeout`` seconds at most."""
        if self._pid != os.getpid() or self._finished:
            return
        self._finished = True
        until = time.monotonic() + timeout
        try:
            self._queue.put(("finish", (manifest, directory)), timeout=timeout)
            self._queue.put(None, timeout=max(0.1, until - time.monotonic()))
        except queue.Full:
            pass  # said below: the thread is still at work
        if self._thread is None:
            self._work(self._run)  # the interpreter started no thread any more
        else:
            self._thread.join(max(0.1, until - time.monotonic()))
        if self._left_out:
            self._say(f"export: {self._left_out} steps were left out, the exporters were slower than the steps")
        if self._thread is not None and self._thread.is_alive():
            names = ", ".join(exporter.name for exporter in self._live)
            self._say(f"export: {names} did not end within {timeout:g} s; what they have not written is missing")

    def _work(self, run: RunFacts) -> None:
        self._each("start", run)
        while (item := self._queue.get()) is not None:
            call, argument = item
            self._each(call, *(argument if call == "finish" else (argument,)))
        self._each("close")

    def _each(self, call: str, *arguments: object) -> None:
        for exporter in list(self._live):
            try:
                getattr(exporter, call)(*arguments)
            except failures() as error:  # said once, with the exporter's name; the others go on
                self._live.remove(exporter)
                text = " ".join(str(error).split())[:300]
                self._say(f"export: {exporter.name} is left out from here on: {call}: {type(error).__name__}: {text}")
                if call != "close":
                    try:
                        exporter.close()
                    except failures() as again:  # it has failed already; said in the log only
                        log.info("accelprof: export: %s could not be closed: %s", exporter.name, again)


def start_exporters(
    made: Sequence[Exporter], config: Config, run_dir: str | None, say: Callable[[str], object]
) -> Exporters | None:
    """The exporters of a run, begun; ``None`` where there are none. ``run_dir`` is ``None`` where nothing is recorded: files of
    exporters then go to the output directory."""
    if not made or not config.enabled:
        return None
    directory = os.path.abspath(run_dir or config.output_dir)
    name = os.path.basename(directory) if run_dir else config.run
    facts = RunFacts(name, directory, config.model_dump(mode="json"), {"accelprof": version("accelprof")})
    return Exporters(made, facts, say)


def afterwards(exporters: Exporters, manifest: Mapping[str, Any], directory: str, patience: float = 60.0) -> None:
    """Hand over a run that has ended: its steps as the manifest has them, then the manifest; ``patience`` seconds for the steps."""
    until = time.monotonic() + patience
    for row in manifest.get("metrics", {}).get("steps", ()):
        wall = row.get("wall_ns")
        phases = {tag: PhaseFigures(**figures) for tag, figures in row["seconds"].items()}
        ended = row["began_ns"] + wall if wall is not None else 0
        exporters.step(StepFigures(row["step"], ended, wall, row["window"], phases), max(0.0, until - time.monotonic()))
    exporters.finish(manifest, directory)


def figures_of(
    step: int, rows: Mapping[str, Mapping[str, Mapping[str, float]]], wall_ns: int | None, window: bool
) -> StepFigures:
    """A step's figures from ``rows``: rank label -> phase -> ``{"seconds", "count"}``."""
    return StepFigures(step, time.time_ns(), wall_ns, window, over_ranks(rows))
