"""``jsonl`` and ``parquet``: step figures as files, for whatever reads tables."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any, ClassVar

from accelprof import atomic, texts
from accelprof.contracts.exporter import Exporter, ExporterOptions, PhaseFigures, RunFacts, StepFigures


class FileOptions(ExporterOptions):
    """``path``: the file; relative to the run's directory; ``None`` = ``steps.<suffix>`` there."""

    path: str | None = None


def rows_of(figures: StepFigures) -> list[dict[str, Any]]:
    """One row a phase: step, ended_ns, wall_ns, window, phase, max_s, mean_s, min_s, ranks, slowest.

    A step without phases has one row with phase ``None``.
    """
    none = dict.fromkeys(("phase", "max_s", "mean_s", "min_s", "ranks", "slowest"))
    phases = [{"phase": name, **_of_phase(row)} for name, row in figures.phases.items()]
    return [{**_of_step(figures), **phase} for phase in phases or [none]]


def _of_step(figures: StepFigures) -> dict[str, Any]:
    return {name: getattr(figures, name) for name in ("step", "ended_ns", "wall_ns", "window")}


def _of_phase(row: PhaseFigures) -> dict[str, Any]:
    return {"max_s": row.max, "mean_s": row.mean, "min_s": row.min, "ranks": row.ranks, "slowest": row.slowest}


def _finite(value: object) -> object:
    """JSON has no other numbers; what is none is missing."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


class JsonLines(Exporter):
    """One JSON object a step, written as the step ends: a run that is killed keeps what it had."""

    name = "jsonl"
    Options: ClassVar[type[ExporterOptions]] = FileOptions

    def start(self, run: RunFacts) -> None:
        self._path = os.path.join(run.directory, self.options.path or "steps.jsonl")
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        with open(self._path, "ab"):
            pass  # it can be written

    def step(self, figures: StepFigures) -> None:
        phases = {
            name: {key: _finite(value) for key, value in _of_phase(row).items()} for name, row in figures.phases.items()
        }
        line = (texts.dumps({**_of_step(figures), "phases": phases}) + "\n").encode()
        # opened each time: training may close any descriptor that is held, and give its number to a file of its own
        with open(self._path, "ab", buffering=0) as file:
            before = file.tell()
            try:
                while line:
                    line = line[file.write(line) :]
            except OSError:
                file.truncate(before)  # half a line, of a disk that is full, would be read by nobody
                raise


class Parquet(Exporter):
    """One row a step and phase (:func:`rows_of`), written when the run ends; needs ``pyarrow``."""

    name = "parquet"
    Options: ClassVar[type[ExporterOptions]] = FileOptions

    def start(self, run: RunFacts) -> None:
        import pyarrow as arrow

        self._rows: list[dict[str, Any]] = []
        self._schema = arrow.schema(
            [
                ("step", arrow.int64()), ("ended_ns", arrow.int64()), ("wall_ns", arrow.int64()), ("window", arrow.bool_()),
                ("phase", arrow.string()), ("max_s", arrow.float64()), ("mean_s", arrow.float64()), ("min_s", arrow.float64()),
                ("ranks", arrow.int32()), ("slowest", arrow.string()),
            ]
        )  # fmt: skip

    def step(self, figures: StepFigures) -> None:
        self._rows.extend(rows_of(figures))

    def finish(self, manifest: Mapping[str, object], directory: str) -> None:
        import pyarrow as arrow
        import pyarrow.parquet as parquet

        path = os.path.join(directory, self.options.path or "steps.parquet")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with atomic.whole(path) as temporary:
            parquet.write_table(arrow.Table.from_pylist(self._rows, schema=self._schema), temporary)
