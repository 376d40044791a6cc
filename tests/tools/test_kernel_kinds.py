"""What a kernel is does not hang on the tool that recorded it: names from a slow table through every reader of GPU files."""

from __future__ import annotations

import csv
import json
import random
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from accelprof.analysis.reading import read_any
from accelprof.contracts.spans import Kind

#: a name as a library gives it -> whether it talks to other devices
STEMS = {
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": True,
    "ncclKernel_AllGather_RING_LL_Sum_int8_t": True, "rcclDirectAllGather": True, "mscclKernel_Sum_half": True,
    "mscclpp_allreduce": True, "nvshmemi_transfer_rma": True, "rocshmem_putmem": True, "oneccl_allreduce": True,
    "cross_device_reduce_1stage<float, 8>": True, "multimem_all_reduce_kernel<c10::BFloat16, 16>": True,
    "one_shot_all_reduce_kernel<float>": True, "twoShotAllReduceKernel<half>": True, "oneShotAllGather": True,
    "two_shot_reduce_scatter": True, "allreduce_fusion_kernel_oneshot_lamport": True, "hcclAllReduce": True,
    "BroadcastTo": False, "reduce_kernel<512, 1, at::native::ReduceOp<float> >": False, "shot_noise": False,
    "gemm_bf16_nccl": False, "elementwise_kernel<ncclOp>": False, "all_gather_index": False, "one_hot": False,
    "DSA_SQE": False, "sm90_xmma_gemm_bf16bf16": False, "cross_entropy": False, "multi_tensor_apply": False,
}  # fmt: skip
#: what compilers put in front; none of it makes another kernel
FRONTS = (
    "",
    "void ",
    "vllm::",
    "void vllm::",
    "void c10d::symmetric_memory::",
    "void <unnamed>::",
    "(anonymous namespace)::",
)
CASES: Sequence[Callable[[str], str]] = (str, str, str.lower, str.upper)
BACKS = ("", "_v2", "<int>(float*)")


def torch(path: Path, names: Sequence[str]) -> str:
    events = [
        {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": at * 10, "dur": 5, "args": {"device": 0}}
        for at, name in enumerate(names)
    ]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return str(path)


def nsys(path: Path, names: Sequence[str]) -> str:
    from benchmarks.analysis.traces import write_nsys

    write_nsys(path, 1 << 18)
    with closing(sqlite3.connect(path)) as database:
        for table in ("StringIds", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"):
            database.execute(f"DELETE FROM {table}")
        row = database.execute("SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL LIMIT 1")
        keys, values = [one[0] for one in row.description], row.fetchone()
        database.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(names, 1))
        for at, _ in enumerate(names, 1):
            told = {"start": at * 10, "end": at * 10 + 5, "correlationId": at, "demangledName": at, "shortName": at}
            mine = [told.get(key, value) for key, value in zip(keys, values, strict=True)]
            database.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * len(mine))})", mine)
        database.commit()
    return str(path)


def rocprof(path: Path, names: Sequence[str]) -> str:
    header = ("Kind", "Agent_Id", "Queue_Id", "Thread_Id", "Dispatch_Id", "Kernel_Id", "Kernel_Name", "Correlation_Id",
              "Start_Timestamp", "End_Timestamp")  # fmt: skip
    with path.open("w", newline="") as file:
        rows = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
        rows.writerow(header)
        for at, name in enumerate(names, 1):
            rows.writerow(("KERNEL_DISPATCH", 4, 1, 11, at, at, name, at, at * 10, at * 10 + 5))
    return str(path)


@pytest.mark.parametrize(
    ("write", "file", "tool", "plugin"),
    [
        (torch, "x.pt.trace.json", "torch", None),
        (nsys, "x.sqlite", "nsys", "accelprof_cuda"),
        (rocprof, "a-r0-h-41_kernel_trace.csv", "rocprof", "accelprof_rocm"),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_a_kernel_is_the_same_whoever_recorded_it(
    write: Callable[[Path, Sequence[str]], str], file: str, tool: str, plugin: str | None, seed: int, tmp_path: Path
) -> None:
    """Namespaces, casing and suffixes make no compute of a collective, and no collective of what has one in its name."""
    if plugin is not None:
        pytest.importorskip(plugin, reason=f"{plugin} is not installed")
    rng = random.Random(seed)
    talks = {}
    for stem, talking in STEMS.items():
        for _ in range(6):
            talks[rng.choice(FRONTS) + rng.choice(CASES)(stem) + rng.choice(BACKS)] = talking
    trace = read_any(write(tmp_path / file, list(talks)), tool)
    found = {span.name: span.kind for span in trace.of_kind(Kind.KERNEL, Kind.COMMUNICATION)}
    assert found == {name: Kind.COMMUNICATION if talking else Kind.KERNEL for name, talking in talks.items()}
