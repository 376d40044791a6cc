"""What memory a process's device holds at the end of its steps, where the backend knows."""

from __future__ import annotations

from accelprof.contracts.backend import Backend
from accelprof.output.manifest import Journal
from accelprof.output.records import MemoryRow
from accelprof.timing.gate import now_ns

#: asking and writing take some 50 µs: of steps shorter than this not every one has a row
EVERY_NS = 20_000_000
#: names of backends -> what they are called in reports
_NAMES = {"max_allocated": "peak"}


class MemoryOfSteps:
    """Of one process: rows for its journal."""

    def __init__(self, key: str, journal: Journal) -> None:
        self._key, self._journal = key, journal
        self._last: int | None = None
        self._failed = False

    def step_ends(self, backend: Backend, step: int) -> None:
        """Ask the backend and write down what it says; nothing where it knows nothing. What it raises is raised, once: then it is
        not asked again."""
        now = now_ns()
        if self._failed or (self._last is not None and now - self._last < EVERY_NS):
            return
        self._last, self._failed = now, True
        found = backend.memory()
        self._failed = False
        if found:
            figures = {_NAMES.get(name, name): int(value) for name, value in found.items()}
            self._journal.add(MemoryRow(self._key, step, figures))
