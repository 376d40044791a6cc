"""Which file of these tools is of which process, and whether it is complete."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from accelprof.contracts.targets import ArtifactFile, WindowInfo
from accelprof.contracts.words import ArtifactState

SQLITE = b"SQLite format 3\x00"
#: the pid in a file's name, and the target in that of a window's stem
_OWNER = re.compile(r"-(\d+)(?:-(?:perfetto-trace|wall_clock|rocpd|metadata)|_[a-z_]+\.[a-z0-9]+$|-[^-]*\.[a-z]+$)")
_TARGET = re.compile(r"^.+?-r(?:\d+|X)-")
_PID = re.compile(r"-(\d+)$")
CSV_PARTS = (
    "kernel_trace", "marker_api_trace", "hip_api_trace", "hsa_api_trace", "rccl_api_trace", "memory_copy_trace",
    "memory_allocation_trace", "scratch_memory_trace", "agent_info", "counter_collection", "kernel_stats",
)  # fmt: skip
_CSV = re.compile(rf"_({'|'.join(CSV_PARTS)})\.csv$")
#: rocprofv3's CSV files stand for one recording; the reader of this one takes the others along
CSV_LEADS = ("_kernel_trace.csv", "_marker_api_trace.csv", "_hip_api_trace.csv")


def match(files: Sequence[str], windows: Sequence[WindowInfo], tool: str) -> list[ArtifactFile]:
    """One file per process holds all its windows; the process is the pid in the file's name."""
    by_pid: dict[str, list[str]] = {}
    for window in sorted(windows, key=lambda item: item.sequence):
        pid = _PID.search(window.stem)
        by_pid.setdefault(pid[1] if pid else "", []).append(window.id)
    prefixes = {hit[0] for window in windows if (hit := _TARGET.match(os.path.basename(window.stem)))}
    result = []
    for path in _leads(files):
        name = os.path.basename(path)
        pid = _OWNER.search(name)
        if pid is not None and pid[1] in by_pid:
            held = by_pid[pid[1]]
        elif pid is not None and any(name.startswith(prefix) for prefix in prefixes):
            continue  # of another process of the same target: a child, or a worker that Ray started and never used
        else:
            held = [window.id for window in windows] if len(by_pid) == 1 else []  # a name that the user chose
        state, reason = state_of(path)
        size = os.path.getsize(path) if os.path.isfile(path) else 0
        result.append(ArtifactFile(path, tool, tuple(held), size, state, reason))
    return result


def _leads(files: Sequence[str]) -> list[str]:
    present = set(files)
    kept = []
    for path in files:
        if path.endswith(".csv"):
            stem = csv_stem(path)
            lead = next((stem + suffix for suffix in CSV_LEADS if stem + suffix in present), path)
            if lead != path:
                continue
        kept.append(path)
    return kept


def csv_stem(path: str) -> str:
    """What the CSV files of one process have in common."""
    return _CSV.sub("", path)


def state_of(path: str) -> tuple[ArtifactState, str]:
    """``(state, reason)`` by a look at the file's ends; only reading it tells more."""
    try:
        size = os.path.getsize(path)
        if size == 0:
            return "truncated", "empty file"
        with open(path, "rb") as file:
            head = file.read(16)
            file.seek(max(0, size - 64))
            tail = file.read().rstrip()
    except OSError as error:
        return "missing", str(error)
    if path.endswith(".json") and not tail.endswith((b"}", b"]")):
        return "truncated", "the JSON text does not end"
    if path.endswith(".db") and head != SQLITE:
        return "truncated", "no SQLite header"
    if path.endswith((".proto", ".pftrace")) and head[:1] != b"\x0a":
        return "truncated", "does not begin with a trace packet"
    return "complete", ""
