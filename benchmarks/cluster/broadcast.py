"""Opening a window on 64 Ray actors against one empty broadcast to them: interleaved, medians of wall time."""

from __future__ import annotations

import statistics
import tempfile
import time
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
            controller = Controller({"steps": f"0-{4 * rounds}/2", "ranks": "all", "output_dir": place})
            remote = ray.remote(Actor)
            handles: list[Any] = [
                remote.options(num_cpus=0, **controller.options("Group", rank=rank, world_size=actors)).remote()
                for rank in range(actors)
            ]
            ray.get([handle.nothing.remote() for handle in handles])
            controller.attach("Group", handles)
            empty, opening = [], []
            for turn in range(rounds):
                begin = time.perf_counter()
                ray.get([handle.nothing.remote() for handle in handles])
                empty.append(time.perf_counter() - begin)
                begin = time.perf_counter()
                controller.begin_step(2 * turn)
                opening.append(time.perf_counter() - begin)
                controller.end_step(2 * turn)
            controller.close()
    finally:
        ray.shutdown()
    base, ours = statistics.median(empty) * 1e9, statistics.median(opening) * 1e9
    return [
        Table(
            title,
            "an empty broadcast",
            [Result("an empty broadcast", base, 1.0), Result("opening a window on all", ours, ours / base, 1.3)],
        )
    ]
