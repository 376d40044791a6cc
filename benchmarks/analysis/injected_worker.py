"""One of the processes of :mod:`benchmarks.analysis.injected`: it sleeps as the plan says, between all-reduces over gloo."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import time
from typing import Any

import torch
import torch.distributed as dist

import accelprof


def step(segments: list[dict[str, Any]], rank: int, tensor: torch.Tensor) -> list[int]:
    """Phases one behind the other, those of a segment inside the phase that it names; then its collective.

    Returns:
        When this rank came to each collective, by the one monotonic clock of the machine (ns).
    """
    arrived = []
    for segment in segments:
        around = segment.get("around")
        with accelprof.profiling_range(around) if around else contextlib.nullcontext():
            for phase, seconds in segment["phases"]:
                with accelprof.profiling_range(phase):
                    time.sleep(seconds[rank])
        arrived.append(time.monotonic_ns())
        with accelprof.profiling_range(segment["collective"], category="collective"):
            dist.all_reduce(tensor)
    return arrived


def main(plan: str, directory: str) -> None:
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    tensor = torch.zeros(16)
    dist.all_reduce(tensor)
    with open(plan, encoding="utf-8") as file:
        scenarios = json.load(file)
    for scenario in scenarios:
        for run in scenario["runs"]:
            steps = scenario["steps"]
            session = accelprof.configure(
                group="G",
                rank=rank,
                ranks="all",
                steps=list(range(1, steps + 1)),
                output_dir=directory,
                run=run["name"],
            )
            gc.collect()  # what the runs before left is no part of a step: such a collection takes a quarter of a second
            dist.barrier()
            arrivals = []
            for number in range(1, steps + 1):
                with session.step(number):
                    arrivals.append(step(run["segments"], rank, tensor))
            dist.barrier()
            with open(f"{directory}/{run['name']}-rank{rank}.json", "w", encoding="utf-8") as out:
                json.dump(arrivals, out)
            session.close()
            accelprof.reset()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
