"""Traces as large as wanted, of a shape like real ones: a torch training step after another, as Kineto writes it."""

from __future__ import annotations

import random
import sqlite3
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


def write_nsys(path: Path, size: int, seed: int = 0) -> int:
    """An nsys export (SQLite) of about ``size`` bytes: ranges of distinct names, calls, kernels; returns its rows."""
    rng = random.Random(seed)
    database = sqlite3.connect(path)
    database.executescript(
        """
        PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
        CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
        CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
            category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,
            domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER,
            int32Value INTEGER, floatValue REAL, jsonTextId INTEGER, jsonText TEXT, binaryData TEXT);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
            globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL,
            callchainId INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
            contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
            globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,
            launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL,
            gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL,
            blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL,
            localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL,
            sharedMemoryExecuted INTEGER, graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER);
        """
    )
    names = ["cudaLaunchKernel_v7000", *KERNELS]
    database.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(names))
    process = 4242 << 24
    main, autograd = process | 4242, process | 4300
    at, correlation, rows = 86_400_000_000_000, 1, 0
    while path.stat().st_size < size:
        ranges, calls, kernels = [], [], []
        for _ in range(5_000):
            begin = at
            thread = autograd if rng.random() < 0.5 else main
            for _ in range(3):
                calls.append((at, at + 3_000, 0, thread, correlation, 0, 0, None))
                name = rng.randrange(1, len(names))
                sizes = (160, 1, 1, 128, 1, 1, 49_152, 16_384, 0, 140_000_000, correlation, 102_400, None, 0)
                head = (at + 5_000, at + 5_000 + rng.randrange(1_000, 3_500), 0, 1, None, 7, correlation, process)
                kernels.append((*head, name, name, None, 0, 0, 32, *sizes))
                correlation += 1
                at += 4_000
            texts = (
                f"aten::mm, seq = {correlation}, op_id = {correlation}",
                f"model.layers.{correlation // 3 % 48}.mlp",
            )
            for text, start, end, where in zip(
                texts, (begin, begin - 500), (at, at + 500), (thread, main), strict=True
            ):
                ranges.append((start, end, 59, None, None, None, text, where, None, None, 0, *[None] * 9))
            at += 2_000
        database.executemany(f"INSERT INTO NVTX_EVENTS VALUES ({', '.join('?' * 20)})", ranges)
        database.executemany(f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({', '.join('?' * 8)})", calls)
        database.executemany(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * 28)})", kernels)
        database.commit()
        rows += len(ranges) + len(calls) + len(kernels)
    database.close()
    return rows
