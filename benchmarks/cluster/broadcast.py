"""Opening a window on 64 Ray actors against one empty broadcast to them: interleaved, medians of wall time."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.harness import Result, Table

ACTORS = 64
ROUNDS = 30


def run(actors: int = ACTORS, rounds: int = ROUNDS) -> list[Table]:
    """One table; skipped by name where Ray is not installed."""
    title = f"announcing a step to {actors} actors"
    try:
        import ray
    except ImportError as error:
        return [Table(title, "an empty broadcast", skipped={"Controller.step": str(error)})]
    from accelprof import Worker
    from accelprof.cluster import Controller

    class Actor(Worker):
        def nothing(self) -> None:
            return None

    ray.init(num_cpus=actors, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        with tempfile.TemporaryDirectory() as place:
            controller = Controller({"steps": f"0-{6 * rounds}/2", "ranks": "all", "output_dir": place})
            remote = ray.remote(Actor)
            handles: list[Any] = [
                remote.options(num_cpus=0, **controller.options("Group", rank=rank, world_size=actors)).remote()
                for rank in range(actors)
            ]
            ray.get([handle.nothing.remote() for handle in handles])
            controller.attach("Group", handles)
            empty, following, jumped = [], [], []
            for turn in range(rounds):
                step = 6 * turn  # even steps have a window; a training loop announces each step, so the odd ones too
                empty.append(seconds(lambda: ray.get([handle.nothing.remote() for handle in handles])))
                controller.begin_step(step + 1)
                controller.end_step(step + 1)
                following.append(seconds(partial(controller.begin_step, step + 2)))
                controller.end_step(step + 2)
                jumped.append(seconds(partial(controller.begin_step, step + 4)))
                controller.end_step(step + 4)
            controller.close()
    finally:
        ray.shutdown()
    base, next_step, jump = (statistics.median(times) * 1e9 for times in (empty, following, jumped))
    return [
        Table(
            title,
            "an empty broadcast",
            [
                Result("an empty broadcast", base, 1.0),
                Result("opening a window on all", next_step, next_step / base, 1.3),
                Result("the same after skipped steps", jump, jump / base),
            ],
        )
    ]


def seconds(call: Callable[[], Any]) -> float:
    """How long ``call`` takes."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
