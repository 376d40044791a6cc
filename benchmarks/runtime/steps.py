"""What the flight recorder and an exporter add to a step of 20 phases: one session that writes its own run, with them and without, in turns."""

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
    with tempfile.TemporaryDirectory() as place:
        session = accelprof.configure(
            output_dir=place, run="steps", group="G", rank=0, recorder={"slow": 2.0, "hang": 3600}, export={"jsonl": {}}
        )
        try:
            recorder, exporter = _measured(session)
        finally:
            accelprof.reset()
    without = statistics.median([*recorder.floor, *exporter.floor])
    more, exported = recorder.median, exporter.median
    return [
        Table(
            f"a step of {PHASES} phases",
            "without the flight recorder",
            [
                Result("without the flight recorder", without, 1.0),
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


def _measured(session: Any) -> tuple[Pairs, Pairs]:
    body, step = _worker(), [0]
    recorder, background, exporters = session.course.recorder, session.entrance.background, session.own_run._exporters

    def one() -> None:
        step[0] += 1
        session.begin_step(step[0])
        body()
        session.end_step(step[0])

    def record(on: bool) -> None:
        with session.lock:  # the gate is asked again when it is left
            session.course.recorder = recorder if on else None
            session.entrance.background = background if on else None

    def export(on: bool) -> None:
        session.own_run._exporters = exporters if on else None

    export(False)
    recorded = paired(one, one, record)
    record(False)
    exported = paired(one, one, export)
    export(True)
    record(True)
    return recorded, exported
