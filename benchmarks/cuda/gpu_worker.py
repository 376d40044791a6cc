"""One worker of ``h100.py``: a loop whose step number can be read off its kernels, profiled as its configuration says.

Step ``n`` launches ``n + 1`` sine kernels in ``actor/update`` and ``n + 1`` cosine kernels in ``actor/rollout``, so a
report shows by its counts which steps it holds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import accelprof
from accelprof import Worker

SIZE = 2048
CHILD = """
import torch
x = torch.ones(1 << 20, device="cuda")
for _ in range(50):
    x.tan_()
torch.cuda.synchronize()
"""


class TorchWork:
    """Sines, cosines and a matrix product with torch; a sum over ranks where there are several."""

    def __init__(self, one_gpu: bool) -> None:
        import torch

        self.torch = torch
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.one_gpu = one_gpu
        torch.cuda.set_device(0)
        if self.world > 1 and one_gpu:  # NCCL refuses two ranks on one GPU
            torch.distributed.init_process_group("gloo")
        elif self.world > 1:
            torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", 0))
        self.x = torch.rand(1 << 20, device="cuda")
        self.m = torch.rand(SIZE, SIZE, device="cuda")

    def sines(self, count: int) -> None:
        for _ in range(count):
            self.x.sin_()
        self.m @ self.m
        if self.world > 1 and self.one_gpu:
            self.torch.distributed.barrier()
        elif self.world > 1:
            self.torch.distributed.all_reduce(self.x)

    def cosines(self, count: int) -> None:
        for _ in range(count):
            self.x.cos_()

    def wait(self) -> None:
        self.torch.cuda.synchronize()

    def end(self) -> None:
        if self.world > 1:
            self.torch.distributed.destroy_process_group()


class CupyWork:
    """The same without torch in the process, so that the gate goes through the runtime library itself."""

    def __init__(self) -> None:
        import cupy

        self.cupy = cupy
        self.x = cupy.random.rand(1 << 20, dtype=cupy.float32)

    def sines(self, count: int) -> None:
        for _ in range(count):
            self.cupy.sin(self.x, out=self.x)

    def cosines(self, count: int) -> None:
        for _ in range(count):
            self.cupy.cos(self.x, out=self.x)

    def wait(self) -> None:
        self.cupy.cuda.get_current_stream().synchronize()

    def end(self) -> None: ...


class Actor(Worker):
    def __init__(self, work: Any) -> None:
        self.work = work

    @Worker.timer("actor/update", color="green", device=True)
    def update(self, step: int) -> None:
        self.inner(step)
        self.work.wait()

    @Worker.timer("actor/inner")
    def inner(self, step: int) -> None:
        self.work.sines(step + 1)

    @Worker.timer("actor/rollout", color="#ff8800", domain="rollout")
    def rollout(self, step: int) -> None:
        self.work.cosines(step + 1)
        self.work.wait()


class Ticker(threading.Thread):
    """Another Python thread of the worker; remembers its longest pause, in seconds."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.longest = 0.0
        self.running = True

    def run(self) -> None:
        last = time.perf_counter()
        while self.running:
            time.sleep(0.001)
            now = time.perf_counter()
            self.longest, last = max(self.longest, now - last), now


def main() -> None:
    config, run_dir, options = json.loads(sys.argv[1]), sys.argv[2] or None, json.loads(sys.argv[3])
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    injected = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("NSYS_", "QUADD_", "NVTX_", "CUDA_INJ", "LD_PRE"))
    }
    # before CUDA is in use, as a worker of a training framework would be configured
    session = accelprof.configure(config, group="ActorGroup", rank=rank, world_size=world, run_dir=run_dir)
    work = CupyWork() if options.get("without_torch") else TorchWork(options.get("one_gpu", False))
    actor = Actor(work)
    step_seconds = {}
    if options.get("warm_up", True):  # CUDA's own start is not what the ticker is about
        actor.update(1)
    ticker = Ticker()
    ticker.start()
    for step in range(options.get("steps", 8)):
        began = time.perf_counter()
        with session.step(step):
            actor.update(step)
            actor.rollout(step)
            if options.get("child_at") == step:
                subprocess.run([sys.executable, "-c", CHILD], check=True, timeout=120)
        step_seconds[step] = time.perf_counter() - began
    ticker.running = False
    stats = actor.timing_stats()
    summary = session.close()
    names = (
        sorted(path.name for path in Path(session.layout.target_dir(session.target)).glob("*"))
        if session.assignment.selected
        else []
    )
    work.end()
    left = {
        "summary": summary,
        "seen": names,
        "step_seconds": step_seconds,
        "injected": injected,
        "stats": stats,
        "longest_pause_s": round(ticker.longest, 4),
        "torch_imported": "torch" in sys.modules,
        "backend": session.backend.name,
    }
    Path(session.layout.run_dir, f"left-{rank}.json").write_text(json.dumps(left))


if __name__ == "__main__":
    main()
