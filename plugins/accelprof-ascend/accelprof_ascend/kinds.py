"""What the rows of torch_npu's and CANN's files are, as tables.

Names of processes in ``trace_view.json`` and of task types are those that msprof writes (CANN's "msprof" data
documentation and the files themselves); ``Communication`` was ``HCCL`` before CANN 8.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from accelprof.contracts.spans import Kind

#: process in trace_view.json, case-folded -> what its rows are; device work is looked at more closely
PROCESSES: Mapping[str, Kind] = {
    "python": Kind.OPERATOR,
    "cann": Kind.RUNTIME,
    "ascend hardware": Kind.KERNEL,
    "hccl": Kind.COMMUNICATION,
    "communication": Kind.COMMUNICATION,
    "overlap analysis": Kind.DEVICE_ANNOTATION,
    "mstx": Kind.RANGE,
    "msproftx": Kind.RANGE,
    "msprof_tx": Kind.RANGE,
}
#: categories of the process Python
CATEGORIES: Mapping[str, Kind] = {
    "cpu_op": Kind.OPERATOR,
    "python_function": Kind.OPERATOR,
    "enqueue": Kind.RUNTIME,
    "dequeue": Kind.RUNTIME,
    "user_annotation": Kind.RANGE,
    "mstx": Kind.RANGE,
}
#: tasks on the device that only wait, signal or mark: no work
CONTROL = re.compile(
    r"^(?:EVENT_|NOTIFY_|Notify|MODEL_|STREAM_|PLACE_?HOLDER|PROFILER_|FFTS_PLUS_LABEL|LABEL_|WRITE_VALUE|WAIT_VALUE|"
    r"CAPTURE_|MEM_WAIT|MEM_WRITE|NOP|Rdma(?:Send|Recv)?_?Notify|BARRIER|MAINTENANCE|DATADUMP|TASK_TIMEOUT)",
    re.IGNORECASE,
)
COPY = re.compile(r"^(?:MEMCPY|SDMA|PCIE_DMA|aclrtMemcpy)", re.IGNORECASE)
#: task types of a unit that computes, whatever the operator is called (``BroadcastTo`` on a vector core moves nothing between
#: devices, ``DSA_SQE`` draws random numbers)
COMPUTING = re.compile(r"^(?:KERNEL_)?(?:AI_?(?:CORE|VEC|CPU)|AI[CV]\b|MIX_|DSA|DVPP)", re.IGNORECASE)
#: collectives by the names that HCCL gives its own kernels on any unit
COLLECTIVE = re.compile(r"^(?:hcom_|hccl|HcclAi|aiv_(?:all|reduce_?scatter|broadcast))", re.IGNORECASE)
#: collectives where the unit is not known: the word is the whole name, up to a number or a size
COLLECTIVE_WORD = re.compile(
    r"^(?:all_?reduce|all_?gather(?:_?v)?|reduce_?scatter(?:_?v)?|all_?to_?all(?:_?vc?)?|broadcast)(?![a-z])",
    re.IGNORECASE,
)
#: units, case-folded, whose tasks are collectives
COLLECTIVE_UNITS = frozenset({"hccl", "communication", "ai_core_hccl"})
#: host calls that wait for the device, with or without the layer in front
WAITING = re.compile(r"^(?:\w+@)?aclrtSynchronize")
STEP = re.compile(r"^ProfilerStep\*?#(\d+)$")


def device_kind(name: str, task_type: str = "") -> Kind:
    """Kind of one task on the device, by its unit where that is known, else by its name."""
    if COLLECTIVE.match(name) or task_type.casefold() in COLLECTIVE_UNITS:
        return Kind.COMMUNICATION
    if COMPUTING.match(task_type):
        return Kind.KERNEL
    if CONTROL.match(name) or CONTROL.match(task_type):
        return Kind.DEVICE_ANNOTATION
    if COPY.match(name) or COPY.match(task_type):
        return Kind.COPY
    return Kind.COMMUNICATION if COLLECTIVE_WORD.match(name) else Kind.KERNEL


def host_kind(name: str, kind: Kind) -> Kind:
    """``kind``, unless the name says that the host waits, or that a step is meant.

    Newer wheels mark each step as a range of mstx too; only torch's own row of it is the step.
    """
    if kind is Kind.RUNTIME and WAITING.match(name):
        return Kind.SYNC
    if STEP.match(name):
        return Kind.STEP if kind is Kind.OPERATOR else Kind.DEVICE_ANNOTATION
    return kind
