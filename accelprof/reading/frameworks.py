"""Which threads are a framework's own, by what a file calls them and what they are inside: one rule for the files of all tools.

Such a thread (autograd's, gloo's, NCCL's) works for the thread that is inside a phase meanwhile. One that is nothing a
file shows to be such is the user's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

#: names that PyTorch gives its threads: ``pt_autograd_0``, ``pt_gloo_runloop``, ``pt_nccl_watchdg``. Others of its
#: threads run what the user wrote (``pt_main_thread``, ``pt_data_worker``)
_THREAD = re.compile(r"\bpt_(?:autograd|gloo|nccl)")
#: names of ranges and operators in which a framework's thread works. Those of forward are of the thread that called it
_SPAN = re.compile(
    r"(?:autograd::|torch::autograd::|FSDP::|FullyShardedDataParallel\._|torch\.distributed\.ddp\.reducer|c10d::"
    r"|(?:gloo|nccl|rccl|ucc|mpi|hccl|xccl):|(?:nccl|rccl|hccl)[A-Z])"
)


def is_thread(name: object) -> bool:
    """Whether a thread of this name is a framework's."""
    return isinstance(name, str) and _THREAD.search(name) is not None


def is_span(name: str) -> bool:
    """Whether a range or operator of this name is a framework's, with all that is nested in it on its thread."""
    return _SPAN.match(name) is not None


def threads_of(metadata: Mapping[str, Any]) -> set[tuple[int | str, int | str]]:
    """``(process, thread)`` of the framework's threads by the names of threads that a reader left in ``metadata``."""
    named = metadata.get("thread_names")
    return {
        (process, thread)
        for process, threads in (named.items() if isinstance(named, Mapping) else ())
        for thread, name in (threads.items() if isinstance(threads, Mapping) else ())
        if is_thread(name)
    }
