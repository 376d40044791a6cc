"""The loop that sampling.yaml samples, one group to a process: 200 decode steps, 8 micro-batches, 4 mini-batches a step.

python docs/examples/sampling_loop.py RolloutGroup tool=torch
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import accelprof
from accelprof import Worker, profiling_range
from accelprof.catalogue import get_catalogue

STEPS = 3


class Rollout(Worker):
    @Worker.timer("rollout/generate")
    def step(self) -> None:
        for number in range(200):
            self.decode_step(number)

    @Worker.timer("rollout/decode_step")
    def decode_step(self, number: int) -> None:
        with profiling_range(f"call {number}"):
            torch.ones(8).softmax(dim=0)


class Reference(Worker):
    @Worker.timer("ref/compute_log_prob")
    def step(self) -> None:
        for number in range(8):
            self.micro_batch(number)

    @Worker.timer("ref/micro_batch")
    def micro_batch(self, number: int) -> None:
        with profiling_range(f"call {number}"):
            torch.ones(8).log_softmax(dim=0)


class Actor(Worker):
    def __init__(self) -> None:
        self.model = torch.nn.Linear(8, 8)

    @Worker.timer("actor/update_policy")
    def step(self) -> None:
        for number in range(4):
            self.mini_batch(number)

    @Worker.timer("actor/mini_batch")
    def mini_batch(self, number: int) -> None:
        with profiling_range(f"call {number}"):
            for _ in range(8):
                self.micro_batch()

    @Worker.timer("actor/micro_batch")
    def micro_batch(self) -> None:
        self.model(torch.ones(4, 8)).sum().backward()


def main(group: str, *overrides: str) -> None:
    if "tool=npu" in overrides:
        import torch_npu  # noqa: F401

        torch.npu.set_device(0)
    loaded = get_catalogue().load(Path(__file__).with_name("sampling.yaml"), overrides)
    session = accelprof.configure(loaded.config, group=group, rank=0)
    worker = {"RolloutGroup": Rollout, "RefGroup": Reference, "ActorGroup": Actor}[group]()
    for step in range(STEPS):
        with session.step(step):
            worker.step()
    for problem in session.close()["problems"]:
        sys.exit(problem)


if __name__ == "__main__":
    if sys.argv[1:2] not in (["RolloutGroup"], ["RefGroup"], ["ActorGroup"]):
        sys.exit(f"usage: python {sys.argv[0]} RolloutGroup|RefGroup|ActorGroup [key=value ...]")
    main(*sys.argv[1:])
