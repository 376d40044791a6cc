"""Cost of one timed phase in ns: closed, open, and what others offer beside it. Prints one JSON object.

Run it plainly for "no tool", and as the program of ``nsys profile -t nvtx`` for "under nsys":

    python benchmarks/cuda/overhead.py
    nsys profile -t nvtx --sample=none --cpuctxsw=none -o /tmp/overhead python benchmarks/cuda/overhead.py --calls 5000
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from accelprof_cuda import domains
from accelprof_cuda.backend import DOMAIN, CudaBackend

from accelprof import Worker
from accelprof.contracts.backend import Backend, BoundRange, Probe, RangeSpec
from accelprof.contracts.tool import Tool
from accelprof.testing import capture

STEP_NS = 10_000_000
FLOOR_FACTOR = 1.5


def _nothing(*_: Any) -> None:
    return None


class NoRanges(Backend):
    """The floor: an open window whose ranges go nowhere, by the same path."""

    name = "no-ranges"

    def probe(self) -> Probe:
        return Probe(1, "for the benchmark")

    def bind(self, spec: RangeSpec) -> BoundRange:
        return BoundRange(_nothing, _nothing, _nothing, _nothing)


class Ranges(CudaBackend):
    """The CUDA backend on any machine: NVTX itself needs no device."""

    name = "cuda-ranges"
    aliases = ()

    def probe(self) -> Probe:
        return Probe(1, "for the benchmark")


class Listener(Tool):
    """Stands for whatever records already: no gate, no file."""

    name = "listener"

    def open(self, window: Any) -> None: ...

    def close(self, window: Any) -> list[Any]:
        return []


class Actor(Worker):
    @Worker.timer("bench/phase")
    def timed(self) -> None:
        return None

    def plain(self) -> None:
        return None


def _loop(function: Callable[[], Any], calls: int) -> int:
    began = time.perf_counter_ns()
    for _ in range(calls):
        function()
    return time.perf_counter_ns() - began


def _empty(calls: int) -> int:
    began = time.perf_counter_ns()
    for _ in range(calls):
        pass
    return time.perf_counter_ns() - began


def per_call(function: Callable[[], Any], calls: int, rounds: int) -> float:
    """Best of ``rounds``, in ns a call, the empty loop taken off."""
    best = min(_loop(function, calls) for _ in range(rounds))
    return round((best - min(_empty(calls) for _ in range(rounds))) / calls, 1)


#: name -> backend, tool, timeline
WINDOWS: dict[str, tuple[type[Backend], str, bool]] = {
    "accelprof closed": (Ranges, "listener", False),
    "accelprof open, ranges nowhere (floor)": (NoRanges, "listener", False),
    "accelprof open, cuda ranges": (Ranges, "listener", False),
    "accelprof open, cuda ranges and timeline": (Ranges, "listener", True),
}


def ours(calls: int, rounds: int) -> dict[str, float]:
    """Rounds go over all cases in turn, so that a slow stretch of the machine hits all of them alike."""
    actor = Actor()
    found = {"empty method": per_call(actor.plain, calls, rounds)}
    best = dict.fromkeys(WINDOWS, sys.maxsize)
    for _ in range(rounds):
        for name, (backend, tool, timeline) in WINDOWS.items():
            with (
                tempfile.TemporaryDirectory() as place,
                capture(
                    backend=backend, tools=(Listener,), directory=place, tool=tool, timeline=timeline, steps=[1]
                ) as run,
            ):
                if "open" in name:
                    run.session.begin_step(1)
                actor.timed()
                best[name] = min(best[name], _loop(actor.timed, calls))
    empty = min(_empty(calls) for _ in range(rounds))
    return {**found, **{name: round((value - empty) / calls, 1) for name, value in best.items()}}


def raw(calls: int, rounds: int) -> dict[str, float]:
    where, attributes = CudaBackend().attributes(RangeSpec("bench/raw"))

    def pair() -> None:
        where.push_range(attributes)
        where.pop_range()

    return {"nvtx domain push/pop, cached": per_call(pair, calls, rounds)}


def others(calls: int, rounds: int) -> dict[str, float]:
    import nvtx

    found = {}

    @nvtx.annotate("bench/annotate", domain=DOMAIN)
    def annotated() -> None:
        return None

    def block() -> None:
        with nvtx.annotate("bench/block", domain=DOMAIN):
            pass

    found["nvtx.annotate, decorator"] = per_call(annotated, calls, rounds)
    found["nvtx.annotate, with block"] = per_call(block, calls, rounds)
    torch = torch_with_nvtx()
    if torch is None:
        return found

    def torch_pair() -> None:
        torch.cuda.nvtx.range_push("bench/torch")
        torch.cuda.nvtx.range_pop()

    def record() -> None:
        with torch.profiler.record_function("bench/record"):
            pass

    found["torch.cuda.nvtx push/pop"] = per_call(torch_pair, calls, rounds)
    found["torch.profiler.record_function"] = per_call(record, max(calls // 10, 100), rounds)
    return found


def torch_with_nvtx() -> Any | None:
    """torch, where it is there and was built for CUDA."""
    try:
        torch = importlib.import_module("torch")
        torch.cuda.nvtx.range_push("try")
        torch.cuda.nvtx.range_pop()
    except (ImportError, RuntimeError):
        return None
    return torch


def rlinf(calls: int, rounds: int) -> dict[str, float]:
    """RLinf's own ``Worker.timer``, where it is installed; its unrelated imports may be stand-ins (see standins.py)."""
    import standins

    if not standins.importable("rlinf"):
        return {}
    with standins.for_missing("ray", "omegaconf"):
        worker = importlib.import_module("rlinf.scheduler.worker.worker")
        hardware = importlib.import_module("rlinf.scheduler.hardware")

    class Timed(worker.Worker):  # type: ignore[name-defined,misc]
        @worker.Worker.timer("bench/rlinf")
        def timed(self) -> None:
            return None

    one = object.__new__(Timed)
    one._timer_metrics, one._accelerator_type = {}, hardware.AcceleratorType.NV_GPU
    found = {"RLinf 0.3.0 timer, closed": per_call(one.timed, calls, rounds)}
    if torch_with_nvtx() is None:
        return found  # its ranges are torch.cuda.nvtx
    module: Any = importlib.import_module("rlinf.scheduler.hardware.accelerators.nvidia_gpu")
    module._nv_profiling_active = True  # what start_profiling sets, without its cudaProfilerStart
    try:
        found["RLinf 0.3.0 timer, open"] = per_call(one.timed, calls, rounds)
    finally:
        module._nv_profiling_active = False
    return found


def measure(calls: int, rounds: int) -> dict[str, Any]:
    rows = {**raw(calls, rounds), **ours(calls, rounds), **others(calls, rounds), **rlinf(calls, rounds)}
    floor, pair = rows["accelprof open, ranges nowhere (floor)"], rows["nvtx domain push/pop, cached"]
    return {
        "recorded": bool(os.environ.get(domains.INJECTION_ENV)) and domains.recorded(DOMAIN),
        "ns_per_call": rows,
        "percent_of_10ms_step": {name: round(100 * value / STEP_NS, 5) for name, value in rows.items()},
        "limit_ns": round(floor + FLOOR_FACTOR * pair, 1),
        "within_limit": rows["accelprof open, cuda ranges"] <= floor + FLOOR_FACTOR * pair,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", help="also write the JSON here")
    arguments = parser.parse_args()
    text = json.dumps(measure(arguments.calls, arguments.rounds), indent=1)
    print(text)
    if arguments.output:
        Path(arguments.output).write_text(text)


if __name__ == "__main__":
    main()
