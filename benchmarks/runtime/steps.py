"""What the flight recorder and an exporter add to a step of 20 phases: sessions that write their own run, with it and without, in turns."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from typing import Any

import accelprof
from accelprof import Worker
from benchmarks.harness import Pairs, Result, Table, paired

PHASES = 20
STEP_NS = 10_000_000
#: of a step: what an always-on recorder may cost
LIMIT = 0.001


def run() -> list[Table]:
    """One table: a step without the recorder, and what recorder and exporter add to it; of the recorder as a share of a step of 10 ms."""
    recorder = _measured(_recorder, recorder={"slow": 2.0, "hang": 3600})
    exporter = _measured(_exporter, export={"jsonl": {}})
    more, exported, without = recorder.median, exporter.median, statistics.median(exporter.floor)
    return [
        Table(
            f"a step of {PHASES} phases",
            "without the flight recorder",
            [
                Result("without the flight recorder", statistics.median(recorder.floor), 1.0),
                Result("more for the recorder, of a step of 10 ms", more, more / STEP_NS, LIMIT, recorder.spread),
                Result("more for an exporter", exported, exported / without, note=exporter.spread),
            ],
        )
    ]


def _worker() -> Callable[[], None]:
    class Phases(Worker):
        pass

    for number in range(PHASES):
        setattr(Phases, f"phase{number}", Worker.timer(f"phase/{number}")(lambda self, batch: None))
    worker = Phases()
    calls = "\n".join(f"    worker.phase{number}(1)" for number in range(PHASES))
    names: dict[str, Any] = {"worker": worker}
    exec(f"def body():\n{calls}\n", names)  # 20 calls one after the other, as a training loop has them
    body: Callable[[], None] = names["body"]
    return body


def _measured(switches: Callable[[Any], Callable[[bool], None]], **asked: Any) -> Pairs:
    """In a session of its own, which has nothing but what is ``asked``: threads of the others would be measured along."""
    body, step = _worker(), [0]
    with tempfile.TemporaryDirectory() as place:
        session = accelprof.configure(output_dir=place, run="steps", group="G", rank=0, **asked)

        def one() -> None:
            step[0] += 1
            session.begin_step(step[0])
            body()
            session.end_step(step[0])

        switch = switches(session)
        try:
            return paired(one, one, switch)
        finally:
            switch(True)
            accelprof.reset()


def _recorder(session: Any) -> Callable[[bool], None]:
    recorder, background = session.course.recorder, session.entrance.background

    def switch(on: bool) -> None:
        with session.lock:  # the gate is asked again when it is left
            session.course.recorder = recorder if on else None
            session.entrance.background = background if on else None

    return switch


def _exporter(session: Any) -> Callable[[bool], None]:
    exporters = session.own_run._exporters

    def switch(on: bool) -> None:
        session.own_run._exporters = exporters if on else None

    return switch
