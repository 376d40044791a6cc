"""A training loop on Ray whose four workers use the NPU of the stub; the test runs it and looks at what it left."""

from __future__ import annotations

import json
import os
import sys

import ray
import torch
import torch_npu  # noqa: F401 - registers the device

from accelprof import Worker
from accelprof.cluster import Controller

OUT, DISCRETE = sys.argv[1], "--discrete" in sys.argv


class Actor(Worker):
    """One rank."""

    def __init__(self) -> None:
        torch.npu.set_device(0)

    @Worker.timer("actor/update")
    def update(self) -> float:
        return float(torch.ones(4).sum())

    @Worker.timer("actor/infer")
    def infer(self) -> float:
        return float(torch.ones(2).sum())


def main() -> None:
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=128 * 1024 * 1024,
    )
    actors = [ray.remote(num_cpus=0)(Actor).remote() for _ in range(3)]
    controller = Controller(
        {
            "tool": "npu",
            "accelerator": "npu",
            "output_dir": OUT,
            "run": "job",
            "steps": [2, 4],
            "discrete": DISCRETE,
            "groups": {"ActorGroup": {"ranks": [0, 2]}},
            "tools": {"npu": {"level": "level1", "contents": ["npu", "cpu", "shapes"]}},
        }
    )
    controller.attach("ActorGroup", actors, role="actor")
    for step in range(6):
        with controller.step(step):
            ray.get([actor.update.remote() for actor in actors])
            ray.get([actor.infer.remote() for actor in actors])
    manifest = controller.close()
    print("MANIFEST", json.dumps({key: manifest[key] for key in ("status", "artifacts", "windows", "undelivered")}))
    ray.shutdown()
    os._exit(0)  # the stub's device was started in no driver; nothing is left to do


if __name__ == "__main__":
    main()
