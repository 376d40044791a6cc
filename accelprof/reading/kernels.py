"""Which kernels talk to other devices, by the names that libraries give them: one rule for the files of all tools.

Ascend's files say the unit that a task ran on, and have a rule of their own.
"""

from __future__ import annotations

import re

from accelprof.contracts.spans import Kind

#: what collectives' kernels begin with, behind ``void`` and namespaces
COLLECTIVE = re.compile(
    r"^(?:void )?(?:(?:\w+|<unnamed>|\(anonymous namespace\))::)*"
    r"(?:msccl|nccl|rccl|hccl|hcom_|nvshmem|rocshmem|oneccl|cross_device_reduce|multimem_|"
    r"(?:one|two)_?shot_?(?:all_?reduce|all_?gather|reduce_?scatter)|allreduce_fusion)",
    re.IGNORECASE,
)


def kernel_kind(name: str) -> Kind:
    """``COMMUNICATION`` for a kernel that moves data between devices, ``KERNEL`` for the others."""
    return Kind.COMMUNICATION if COLLECTIVE.match(name) else Kind.KERNEL
