"""What the flight recorder and an exporter add to a step of 20 phases: one session that writes its own run, with them and without, in turns."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import accelprof
from accelprof import Worker
from benchmarks.harness import Result, Table, measure

PHASES = 20
STEP_NS = 10_000_000
#: what is aimed at is 0.001; this one notices when it gets worse
LIMIT = 0.005


def run() -> list[Table]:
    """One table: a step without and with the recorder, and the difference as a share of a step of 10 ms."""
    with tempfile.TemporaryDirectory() as place:
        session = accelprof.configure(
            output_dir=place, run="steps", group="G", rank=0, recorder={"slow": 2.0, "hang": 3600}, export={"jsonl": {}}
        )
        try:
            times = _measured(session)
        finally:
            accelprof.reset()
    without, recorded = times["without"], times["with"]
    share = Result(
        "more for the recorder, of a step of 10 ms", recorded - without, (recorded - without) / STEP_NS, LIMIT
    )
    return [
        Table(
            f"a step of {PHASES} phases",
            "without the flight recorder",
            [
                Result("without the flight recorder", without, 1.0),
                Result("with the flight recorder", recorded, recorded / without),
                share,
                Result("with an exporter", times["export"], times["export"] / without),
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


def _measured(session: Any) -> dict[str, float]:
    body, step = _worker(), [0]
    recorder, background, exporters = session.course.recorder, session.entrance.background, session.own_run._exporters

    def one() -> None:
        step[0] += 1
        session.begin_step(step[0])
        body()
        session.end_step(step[0])

    def switched(name: str) -> None:
        on = name == "with"
        with session.lock:  # the gate is asked again when it is left
            session.course.recorder = recorder if on else None
            session.entrance.background = background if on else None
        session.own_run._exporters = exporters if name == "export" else None

    found = dict.fromkeys(("without", "with", "export"), float("inf"))
    for _ in range(20):
        for name in found:
            switched(name)
            found[name] = min(found[name], measure({name: one}, number=300, rounds=2)[name])
    switched("with")
    return found
