"""Memory of each process at the end of its steps, and what it comes to by worker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from accelprof.analysis.report_rows import Memory, WorkerMemory
from accelprof.output import fields
from accelprof.output.records import Manifest

#: figures that backends have, in the order of their columns; one may have others
FIGURES = ("allocated", "reserved", "peak", "resident")
#: what stands for a worker's memory where a backend knows several: the first of these that it has
FIRST = ("reserved", "allocated", "resident")


def memory_rows(manifest: Manifest) -> list[Memory]:
    """Rows as the manifest has them; those of another shape are left out."""
    return [
        Memory(
            row["step"],
            row["worker"],
            {key: value for key, value in row.items() if key != "step" and fields.is_whole(value)},
        )
        for row in manifest.memory
        if fields.is_whole(row.get("step")) and isinstance(row.get("worker"), str)
    ]


def by_worker(rows: Iterable[Memory]) -> list[WorkerMemory]:
    """A row each, in bytes, the largest first.

    ``what`` is the name of the figure that ``first``, ``last`` and ``largest`` are of; ``allocated`` is of the last step,
    ``peak`` the highest that the process ever had, where its backend knows.
    """
    of: dict[str, list[Memory]] = defaultdict(list)
    for row in rows:
        of[row.worker].append(row)
    found = [_of_worker(worker, sorted(mine, key=lambda row: row.step)) for worker, mine in of.items()]
    return sorted(filter(None, found), key=lambda row: (-row.largest, row.worker))


def _of_worker(worker: str, rows: Sequence[Memory]) -> WorkerMemory | None:
    what = next((name for name in FIRST if any(name in row.figures for row in rows)), None)
    if what is None:
        return None
    known = [row for row in rows if what in row.figures]
    most = max(known, key=lambda row: row.figures[what])
    return WorkerMemory(
        worker, what, steps=len(known), first=known[0].figures[what], last=known[-1].figures[what],
        largest=most.figures[what], at_step=most.step, allocated=known[-1].figures.get("allocated"),
        peak=max((row.figures["peak"] for row in known if "peak" in row.figures), default=None),
    )  # fmt: skip
