"""Memory of each process at the end of its steps, and what it comes to by worker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, cast

from accelprof.analysis.report_rows import Memory, WorkerMemory
from accelprof.output import fields
from accelprof.output.records import Manifest

#: what stands for a worker's memory where a backend knows several: the first of these that it has
FIRST = ("reserved", "allocated", "resident")
_KEYS = frozenset({"step", "worker", "workers"})


def memory_rows(manifest: Manifest) -> list[Memory]:
    """``{step, worker, allocated, reserved, peak, …}`` in bytes, as the manifest has them; rows of another shape are left out."""
    return [
        cast("Memory", {key: value for key, value in row.items() if key in _KEYS or fields.is_whole(value)})
        for row in manifest.memory
        if fields.is_whole(row.get("step")) and isinstance(row.get("worker"), str)
    ]


def by_worker(rows: Iterable[Memory]) -> list[WorkerMemory]:
    """``{worker, what, steps, first, last, largest, at_step, allocated, peak}`` in bytes, the largest first.

    ``what`` is the name of the figure that ``first``, ``last`` and ``largest`` are of; ``allocated`` is of the last step,
    ``peak`` the highest that the process ever had, where its backend knows.
    """
    of: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        of[row["worker"]].append(cast("Mapping[str, Any]", row))  # a backend may have figures of its own
    found: list[WorkerMemory] = []
    for worker, mine in of.items():
        what = next((name for name in FIRST if any(name in row for row in mine)), None)
        if what is None:
            continue
        known = sorted((row for row in mine if what in row), key=lambda row: int(row["step"]))
        most = max(known, key=lambda row: int(row[what]))
        found.append(
            {
                "worker": worker, "what": what, "steps": len(known), "first": known[0][what], "last": known[-1][what],
                "largest": most[what], "at_step": most["step"], "allocated": known[-1].get("allocated"),
                "peak": max((row["peak"] for row in known if "peak" in row), default=None),
            }
        )  # fmt: skip
    return sorted(found, key=lambda row: (-row["largest"], row["worker"]))
