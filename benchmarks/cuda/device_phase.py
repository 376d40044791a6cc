"""Cost of one closed ``device=True`` phase beside two raw CUDA events around the same empty call, in ns. Needs a GPU.

    python benchmarks/cuda/device_phase.py

Rounds of each are interleaved and the best counts; events that were recorded are waited for between rounds, outside the time.
Prints one JSON object; status 1 where the phase costs more than :data:`LIMIT` times the events, 2 without a device.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable

LIMIT = 1.3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2000, help="calls of a round")
    parser.add_argument("--rounds", type=int, default=15)
    asked = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("device_phase: no CUDA device here", file=sys.stderr)
        return 2
    import accelprof
    from accelprof import Worker

    class Work(Worker):
        @Worker.timer("bench/device", device=True)
        def timed(self) -> None:
            return None

        @Worker.timer("bench/host")
        def host(self) -> None:
            return None

        def plain(self) -> None:
            return None

    with tempfile.TemporaryDirectory() as place:
        session = accelprof.configure(output_dir=place, group="Bench", rank=0, steps=[1_000_000], tool="torch")
        work = Work()
        event = torch.cuda.Event

        def raw() -> object:
            begin, end = event(enable_timing=True), event(enable_timing=True)
            begin.record()
            work.plain()
            end.record()
            return begin, end

        calls: dict[str, Callable[[], object]] = {"two events": raw, "device=True": work.timed, "host timer": work.host}
        best = dict.fromkeys(calls, float("inf"))
        for _ in range(asked.rounds):
            for name, call in calls.items():
                kept = [call() for _ in range(50)]
                torch.cuda.synchronize()
                began = time.perf_counter_ns()
                for _ in range(asked.calls):
                    kept.append(call())
                best[name] = min(best[name], (time.perf_counter_ns() - began) / asked.calls)
                torch.cuda.synchronize()
                work.timing_stats()  # what was recorded is read here, not in the next round
        measured = work.timing_stats().get("bench/device", {})
        session.close()
    ratio = best["device=True"] / best["two events"]
    timed = measured.get("device_count") or measured.get("device_total") is not None
    print(
        json.dumps(
            {"device": torch.cuda.get_device_name(), "ns": best, "ratio": ratio, "limit": LIMIT, "timed": bool(timed)}
        )
    )
    return 0 if ratio <= LIMIT and timed else 1


if __name__ == "__main__":
    sys.exit(main())
