"""Traces as large as wanted, of a shape like real ones: a torch training step after another, as Kineto writes it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

KERNELS = [
    f"void at::native::vectorized_elementwise_kernel<4, at::native::Functor{n}<float>, std::array<char*, 3ul> >(int, at::native::Functor{n}<float>, std::array<char*, 3ul>)"
    for n in range(40)
] + [f"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize{n}x128x64_warpgroupsize1x1x1" for n in range(20)]
OPERATORS = [
    f"aten::{name}" for name in ("linear", "matmul", "mm", "add_", "mul", "native_layer_norm", "gelu", "copy_", "to")
]
BASE_US = 1_795_852_566_000_000


def events(rng: random.Random) -> Iterator[str]:
    """Events of endless training steps: 40 layers forward on the main thread, backward on autograd's."""
    at, correlation, step, free = 0.0, 1, 0, 0.0
    while True:
        begin = at
        lines = []
        for phase, thread in (("forward", 100), ("backward", 101), ("optimizer", 100)):
            started = at
            for layer in range(40):
                name = rng.choice(OPERATORS)
                lines.append(
                    f'{{\n    "ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 100, "tid": {thread},\n'
                    f'    "ts": {BASE_US + at:.3f}, "dur": 14.250,\n    "args": {{\n'
                    f'      "External id": {correlation},"Record function id": {correlation + 7}, "Sequence number": {layer}, "Fwd thread id": 0, "Ev Idx": {correlation * 3}\n    }}\n  }}'
                )
                for _ in range(2):
                    lines.append(
                        f'{{\n    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 100, "tid": {thread},\n'
                        f'    "ts": {BASE_US + at + 2:.3f}, "dur": 3.125,\n    "args": {{\n'
                        f'      "External id": {correlation}, "cbid": 211, "correlation": {correlation}\n    }}\n  }}'
                    )
                    free = max(free, at + 8)
                    took = rng.randrange(2000, 9000) / 1000
                    collective = phase == "backward" and layer % 10 == 9
                    stream = 20 if collective else 7
                    kernel = (
                        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
                        if collective
                        else rng.choice(KERNELS)
                    )
                    lines.append(
                        f'{{\n    "ph": "X", "cat": "kernel", "name": "{kernel}", "pid": 0, "tid": {stream},\n'
                        f'    "ts": {BASE_US + free:.3f}, "dur": {took:.3f},\n    "args": {{\n'
                        f'      "External id": {correlation}, "queued": 0, "device": 0, "context": 1, "stream": {stream}, "correlation": {correlation},\n'
                        f'      "registers per thread": 32, "shared memory": 0, "blocks per SM": 12.121212, "warps per SM": 48.484848,\n'
                        f'      "grid": [1600, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 75\n    }}\n  }}'
                    )
                    if not collective:
                        free += took
                    correlation += 1
                    at += 7
                at += 2
            lines.append(
                f'{{\n    "ph": "X", "cat": "user_annotation", "name": "{phase}", "pid": 100, "tid": 100,\n'
                f'    "ts": {BASE_US + started:.3f}, "dur": {at - started:.3f},\n    "args": {{\n      "External id": {correlation}, "Ev Idx": 1\n    }}\n  }}'
            )
        lines.append(
            f'{{\n    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{step}", "pid": 100, "tid": 100,\n'
            f'    "ts": {BASE_US + begin:.3f}, "dur": {at - begin:.3f},\n    "args": {{\n      "External id": {correlation}, "Ev Idx": 2\n    }}\n  }}'
        )
        at += 10
        step += 1
        yield from lines


def write_torch(path: Path, size: int, rank: int = 0, seed: int = 0) -> int:
    """A torch trace of about ``size`` bytes; returns the number of its events."""
    rng = random.Random(seed * 1000 + rank)
    written, count = 0, 0
    with path.open("w") as file:
        file.write(
            '{\n  "schemaVersion": 1,\n  "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85029158912}],\n'
            f'  "distributedInfo": {{"backend": "nccl", "rank": {rank}, "world_size": 100}},\n'
            '  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": 0,\n  "traceEvents": [\n  '
        )
        for event in events(rng):
            file.write((",\n  " if count else "") + event)
            written += len(event) + 4
            count += 1
            if written >= size:
                break
        file.write('\n  ],\n  "traceName": "x.pt.trace.json"\n}\n')
    return count
