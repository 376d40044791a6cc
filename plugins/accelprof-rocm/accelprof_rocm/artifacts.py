"""Which file of these tools is of which process, and whether it is complete."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from accelprof.targets import ArtifactFile, WindowInfo

SQLITE = b"SQLite format 3\x00"
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
    result = []
    for path in _leads(files):
        numbers = set(re.findall(r"\d+", os.path.basename(path)))
        owners = [pid for pid in by_pid if pid and pid in numbers]
        # a name that the user chose may hold no pid; then it is this worker's all the same, since it was asked for its files
        held = [wid for pid in owners for wid in by_pid[pid]] or ([w.id for w in windows] if len(by_pid) == 1 else [])
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


def state_of(path: str) -> tuple[str, str]:
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
