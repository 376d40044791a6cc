"""``tensorboard``, ``wandb`` and ``mlflow``: scalars of every step, the run's summary and its files at the end.

Scalars have one name in all three: ``accelprof/step_seconds``, ``accelprof/ranks`` (whose times these are), and
``accelprof/<phase>/max``, ``…/mean``, ``…/min``.
"""

from __future__ import annotations

import os
import re
import shutil
import time
import zlib
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, ClassVar

from accelprof import texts
from accelprof.contracts.exporter import Exporter, ExporterOptions, RunFacts, StepFigures
from accelprof.contracts.names import MANIFEST, REPORT, TIMELINE

#: metrics that MLflow takes in one request, and characters of a metric's name (it takes 250)
BATCH, LONGEST_METRIC = 1000, 240


def scalars(figures: StepFigures) -> dict[str, float]:
    """Name -> seconds, and the number of ranks."""
    values = {"accelprof/ranks": float(figures.ranks)}
    if figures.wall_ns is not None:
        values["accelprof/step_seconds"] = figures.wall_ns / 1e9
    for phase, row in figures.phases.items():
        values.update(
            {f"accelprof/{phase}/max": row.max, f"accelprof/{phase}/mean": row.mean, f"accelprof/{phase}/min": row.min}
        )
    return values


def summary(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What is worth a line at the end: status, numbers of workers, windows and files, what was not delivered."""
    return {
        "accelprof/status": manifest.get("status", "unknown"),
        "accelprof/workers": len(manifest.get("targets") or ()),
        "accelprof/windows": len(manifest.get("windows") or ()),
        "accelprof/files": len(manifest.get("artifacts") or ()),
        "accelprof/undelivered": len(manifest.get("undelivered") or ()),
    }


def as_markdown(manifest: Mapping[str, Any]) -> str:
    """The summary, what was not delivered, and each phase's seconds a step, as means over the steps in which it ran."""
    lines = ["| run | |", "| --- | --- |"]
    lines += [f"| {name.removeprefix('accelprof/')} | {value} |" for name, value in summary(manifest).items()]
    phases: dict[str, list[Mapping[str, float]]] = defaultdict(list)
    for row in manifest.get("metrics", {}).get("steps", ()):
        for phase, figures in row["seconds"].items():
            phases[phase].append(figures)
    if phases:
        lines += ["", "| phase | steps | slowest rank, s | mean of ranks, s |", "| --- | --- | --- | --- |"]
    for phase, found in phases.items():
        means = " | ".join(f"{sum(row[of] for row in found) / len(found):.6g}" for of in ("max", "mean"))
        label = " ".join(texts.bounded(phase).replace("|", "\\|").split())
        lines.append(f"| {label} | {len(found)} | {means} |")
    return "\n".join(lines)


def pages(directory: str) -> list[str]:
    """The run's own pages that are there: report, merged timeline, manifest."""
    names = (REPORT, TIMELINE, MANIFEST)
    return [path for name in names if os.path.isfile(path := os.path.join(directory, name))]


#: names of the traces that TensorBoard's profiler plug-in reads
TRACES = (".pt.trace.json", ".pt.trace.json.gz")


class TensorBoardOptions(ExporterOptions):
    """``dir``: the log directory; ``None`` = ``tensorboard`` in the run's directory. ``profiles``: put torch traces in its profile layout."""

    dir: str | None = None
    profiles: bool = True


class TensorBoard(Exporter):
    """Scalars, the run's summary as text, and torch traces where the profiler plug-in of TensorBoard looks. Needs ``tensorboard``."""

    name = "tensorboard"
    Options: ClassVar[type[ExporterOptions]] = TensorBoardOptions
    _writer: Any = None

    def start(self, run: RunFacts) -> None:
        from tensorboard.summary import Writer

        base = self.options.dir or os.path.join(run.directory, "tensorboard")
        self._logs = os.path.join(base, run.name) if self.options.dir else base
        self._run = run.name
        os.makedirs(self._logs, exist_ok=True)
        self._writer = Writer(self._logs)

    def step(self, figures: StepFigures) -> None:
        at = None if figures.ended_ns is None else figures.ended_ns / 1e9  # else when it is written
        for name, value in scalars(figures).items():
            self._writer.add_scalar(name, value, figures.step, wall_time=at)
        self._writer.flush()

    def finish(self, manifest: Mapping[str, Any], directory: str) -> None:
        self._text("accelprof/summary", as_markdown(manifest))
        if not self.options.profiles:
            return
        place = os.path.join(self._logs, "plugins", "profile", self._run)
        for row in manifest.get("artifacts") or ():
            path = str(row.get("path", "")) if isinstance(row, Mapping) else ""
            if not path.endswith(TRACES):
                continue
            found = os.path.join(directory, path)
            if os.path.isfile(found):
                os.makedirs(place, exist_ok=True)
                shutil.copy(found, os.path.join(place, os.path.basename(path)))

    def _text(self, tag: str, text: str) -> None:
        """A text, which TensorBoard's own writer has no call for, in a file beside that one's."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.plugins.text.metadata import create_summary_metadata
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
        from tensorboard.util.tensor_util import make_tensor_proto

        event = Event(wall_time=time.time())
        about = create_summary_metadata(display_name=None, description=None)
        event.summary.value.add(tag=tag, tensor=make_tensor_proto([text.encode()]), metadata=about)
        writer = EventFileWriter(self._logs, filename_suffix=".summary")
        writer.add_event(event)
        writer.close()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class WandbOptions(ExporterOptions):
    """``project``, ``entity``, ``mode`` (online, offline, shared), ``dir`` and ``files`` (upload report, timeline, manifest)."""

    project: str = "accelprof"
    entity: str | None = None
    mode: str | None = None
    dir: str | None = None
    files: bool = True


class Wandb(Exporter):
    """Scalars to the W&B run that is active in this process, or to one of its own. Needs ``wandb``.

    A training script that logs by itself keeps its own step counter: ours travels as ``accelprof/step``, the axis of our scalars.
    """

    name = "wandb"
    Options: ClassVar[type[ExporterOptions]] = WandbOptions
    _own: Any = None

    def start(self, run: RunFacts) -> None:
        import wandb

        options = self.options
        self._run: Any = wandb.run
        if self._run is None:
            self._own = self._run = wandb.init(
                project=options.project, entity=options.entity, mode=options.mode,
                dir=options.dir or run.directory, name=run.name, config={"accelprof": dict(run.config)},
            )  # fmt: skip
        self._run.define_metric("accelprof/step", hidden=True)
        self._run.define_metric("accelprof/*", step_metric="accelprof/step")

    def step(self, figures: StepFigures) -> None:
        self._run.log({**scalars(figures), "accelprof/step": figures.step})

    def finish(self, manifest: Mapping[str, object], directory: str) -> None:
        self._run.summary.update(summary(manifest))
        if self.options.files:
            for path in pages(directory):
                self._run.save(path, base_path=directory, policy="now")

    def close(self) -> None:
        if self._own is not None:
            self._own.finish()


class MlflowOptions(ExporterOptions):
    """``uri``: tracking URI (``None`` = MLflow's own setting); ``experiment``; ``files``: log report, timeline, manifest."""

    uri: str | None = None
    experiment: str = "accelprof"
    files: bool = True


class Mlflow(Exporter):
    """Scalars, summary and pages to an MLflow run of its own. Needs ``mlflow`` or ``mlflow-skinny``."""

    name = "mlflow"
    Options: ClassVar[type[ExporterOptions]] = MlflowOptions
    _client: Any = None

    def start(self, run: RunFacts) -> None:
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=self.options.uri)
        found = client.get_experiment_by_name(self.options.experiment)
        experiment = found.experiment_id if found else client.create_experiment(self.options.experiment)
        self._id: str = client.create_run(experiment, run_name=run.name, tags={"accelprof.run": run.name}).info.run_id
        self._client = client

    def step(self, figures: StepFigures) -> None:
        from mlflow.entities import Metric

        at = (time.time_ns() if figures.ended_ns is None else figures.ended_ns) // 1_000_000
        metrics = [Metric(_mlflow_name(name), value, at, figures.step) for name, value in scalars(figures).items()]
        for first in range(0, len(metrics), BATCH):
            self._client.log_batch(self._id, metrics=metrics[first : first + BATCH])

    def finish(self, manifest: Mapping[str, object], directory: str) -> None:
        for name, value in summary(manifest).items():
            self._client.set_tag(self._id, name.replace("/", "."), str(value))
        if self.options.files:
            for path in pages(directory):
                self._client.log_artifact(self._id, path, "accelprof")

    def close(self) -> None:
        if self._client is not None:
            self._client.set_terminated(self._id)


def _mlflow_name(name: str) -> str:
    """MLflow takes letters, digits, ``_ - . / : space`` in names of metrics, as a path without detours, of 250 characters at most. What
    is changed ends with a checksum, so that two names stay two."""
    parts = re.sub(r"[^\w\-./: ]", "_", name).split("/")
    fitting = "/".join(part if part.strip(".") else "_" for part in parts)
    if len(fitting) > LONGEST_METRIC:
        fitting = f"{fitting[:150]}_{fitting[-50:]}".replace("//", "/")
    return name if fitting == name else f"{fitting}_{zlib.crc32(name.encode('utf-8', 'replace')):08x}"
