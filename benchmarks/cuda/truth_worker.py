"""Programs of ``truth.py``: ordinary training loops that never synchronise inside a step, each run under ``accelprof run``.

python truth_worker.py kernels | backward | checkpoint | second | capture | costs [--step-kernels N]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

import accelprof
from accelprof import Worker, profiling_range

STEPS = 5
KERNELS = 100
SIZE = 4096


class Matrices(Worker):
    """A hundred products, asynchronous; a step ends on the host long before they have run."""

    def __init__(self) -> None:
        self.a = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
        self.out = torch.empty_like(self.a)

    @Worker.timer("a/mm")
    def mm(self) -> None:
        for _ in range(KERNELS):
            torch.mm(self.a, self.a, out=self.out)


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        wide, narrow = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        self.inner = torch.nn.Sequential(wide, torch.nn.GELU(), narrow)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with profiling_range("block"):
            return x + self.inner(x)


class Model(torch.nn.Module):
    def __init__(self, width: int, depth: int, checkpoint: bool) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(depth))
        self.checkpoint = checkpoint

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch.utils.checkpoint import checkpoint

        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpoint else block(x)
        return x


class Trainer(Worker):
    """Forward, backward and optimizer of a small model."""

    def __init__(self, checkpoint: bool, distributed: bool) -> None:
        model: Any = Model(1024, 6, checkpoint).cuda()
        if distributed:
            model = torch.nn.parallel.DistributedDataParallel(model)
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        self.x = torch.randn(256, 1024, device="cuda")

    @Worker.timer("train/forward")
    def forward(self) -> torch.Tensor:
        loss: torch.Tensor = self.model(self.x).square().mean()
        return loss

    @Worker.timer("train/backward")
    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    @Worker.timer("train/optimizer")
    def step(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def train(self) -> None:
        self.backward(self.forward())
        self.step()


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


def loop(work: Callable[[], None]) -> None:
    """Steps 1 to 5; the device is waited for before the first and after the last only."""
    session = accelprof.configure(group="ActorGroup", rank=rank(), world_size=int(os.environ.get("WORLD_SIZE", "1")))
    work()
    torch.cuda.synchronize()
    for number in range(1, STEPS + 1):
        with session.step(number):
            work()
    session.close()
    torch.cuda.synchronize()


def kernels() -> None:
    loop(Matrices().mm)


def backward(checkpoint: bool = False) -> None:
    world = int(os.environ.get("WORLD_SIZE", "1"))
    distributed, cards = world > 1, torch.cuda.device_count()
    torch.cuda.set_device(rank() if cards >= world else 0)
    if distributed:  # NCCL refuses two ranks on one card
        torch.distributed.init_process_group("nccl" if cards >= world else "gloo")
    loop(Trainer(checkpoint, distributed).train)
    if distributed:
        torch.distributed.destroy_process_group()


SLEEPS = {"s/env": 0.06, "s/recv": 0.04, "": 0.02}


def rest() -> None:
    time.sleep(SLEEPS[""])


class Second(Worker):
    """A step whose seconds are known: products, their result waited for, and three sleeps that mean three different things."""

    def __init__(self) -> None:
        self.a = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
        self.out = torch.empty_like(self.a)
        self.noted: list[list[int]] = []

    @Worker.timer("s/products")
    def products(self) -> None:
        for _ in range(3 * KERNELS):
            torch.mm(self.a, self.a, out=self.out)
        self.out[0, 0].item()

    @Worker.timer("s/env")
    def env(self) -> None:
        time.sleep(SLEEPS["s/env"])

    @Worker.timer("s/recv")
    def recv(self) -> None:
        time.sleep(SLEEPS["s/recv"])

    def step(self) -> None:
        self.noted.append([time.perf_counter_ns()])
        for part in (self.products, self.env, self.recv, rest):
            part()
            self.noted[-1].append(time.perf_counter_ns())


def second() -> None:
    """Leaves in ``second.json`` what the products of a step take by two events, in ns, when nothing is recorded, and what each
    part of steps 0 to 5 took by the program's own clock."""
    work = Second()
    took = []
    for _ in range(5):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        time.sleep(sum(SLEEPS.values()))
        begin.record()
        work.products()
        end.record()
        end.synchronize()
        took.append(begin.elapsed_time(end) * 1e6)
    loop(work.step)
    parts = [[end - begin for begin, end in itertools.pairwise(row)] for row in work.noted]
    with open("second.json", "w", encoding="utf-8") as file:
        json.dump({"products_ns": sorted(took)[2], "parts_ns": parts}, file)


class Device(Worker):
    @Worker.timer("d/phase", device=True)
    def phase(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @Worker.timer("d/empty", device=True)
    def empty(self) -> None:
        return None


def capture() -> None:
    """CUDA graphs captured while another thread reads timings, and a phase with device time inside a capture."""
    session = accelprof.configure(tool=None, output_dir=".", group="ActorGroup", rank=0)
    device = Device()
    x = torch.ones(1 << 16, device="cuda")
    stop, problems = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            try:
                device.timing_stats()
            except Exception as error:  # noqa: BLE001 - told by the result
                problems.append(repr(error))
                return
            time.sleep(0)

    reader = threading.Thread(target=read)
    reader.start()
    captured = 0
    for _ in range(50):
        for _ in range(20):
            device.phase(x)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                y = x + 1
                device.phase(y)
                y = y * 3
            graph.replay()
            captured += 1
        except RuntimeError as error:
            problems.append(str(error).splitlines()[0])
            break
    stop.set()
    reader.join()
    device.phase(x)
    torch.cuda.synchronize()
    found = device.timing_stats()["d/phase"]
    summary = session.close()
    problems += summary.get("problems", ())
    told = {"captured": captured, "problems": problems, "calls": found["count"], "on the device": found["device_count"]}
    print(json.dumps(told))


def best(function: Callable[[], Any], number: int, rounds: int = 15) -> float:
    """Nanoseconds a call, best of the rounds."""
    found = []
    for _ in range(rounds):
        began = time.perf_counter_ns()
        for _ in range(number):
            function()
        found.append((time.perf_counter_ns() - began) / number)
        torch.cuda.synchronize()
    return round(min(found), 1)


def costs() -> None:
    """``device=True`` beside two raw events, and an open ``profiling_range`` beside ``torch.cuda.nvtx.range``."""
    from overhead import Listener, Ranges

    from accelprof.testing import capture as window

    torch.ones(1, device="cuda")
    device = Device()
    rounds = {}

    def raw() -> None:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        end.record()

    def ours() -> None:
        with profiling_range("bench/range"):
            pass

    def theirs() -> None:
        with torch.cuda.nvtx.range("bench/range"):
            pass

    with window(backend=Ranges, tools=(Listener,), tool="listener", timeline=False, steps=[1]) as run:
        for name, function in (("two raw events", raw), ("device=True, closed", device.empty)):
            rounds[name] = best(function, 500)
        with run.session.step(1):
            for name, function in (("torch.cuda.nvtx.range", theirs), ("profiling_range, open", ours)):
                rounds[name] = best(function, 5000)
    print(json.dumps(rounds))


PROGRAMS = {
    "kernels": kernels,
    "backward": backward,
    "checkpoint": lambda: backward(checkpoint=True),
    "second": second,
    "capture": capture,
    "costs": costs,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", choices=PROGRAMS)
    PROGRAMS[parser.parse_args().program]()
