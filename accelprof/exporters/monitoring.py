"""``prometheus``, ``ray`` and ``opentelemetry``: what operations people already scrape and trace."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from accelprof.contracts.exporter import Exporter, ExporterOptions, RunFacts, StepFigures
from accelprof.contracts.names import TIMELINE_TOOL
from accelprof.contracts.words import COMPLETE
from accelprof.errors import ReadError, failures, text_of

#: metric -> (help, labels); seconds, as Prometheus wants base units in names
GAUGES = {
    "accelprof_step_seconds": ("Wall time of the last step, seconds", ("run",)),
    "accelprof_step": ("Number of the last step", ("run",)),
    "accelprof_ranks": ("Number of ranks that the times of phases in the last step are from", ("run",)),
    "accelprof_phase_seconds": ("Time in a phase in the last step over ranks, seconds", ("run", "phase", "stat")),
    "accelprof_window_step": ("1 where the last step was in a planned window, else 0", ("run",)),
}
#: of a phase's times over ranks
STATS = ("max", "mean", "min")
#: spans that wait for the collector at most; OpenTelemetry drops what is over 2048 without a word
SPANS_AT_ONCE = 1000
#: times that a collector may take nothing, one after the other, before it counts as gone
TRIES = 3


def samples(run: str, figures: StepFigures, seen: set[str]) -> list[tuple[str, dict[str, str], float]]:
    """``(metric, labels, value)`` of one step. A gauge keeps its value until it gets another: phases in ``seen``, those of earlier
    steps, took no time in one that lacks them. They are all in ``seen`` afterwards."""
    rows: list[tuple[str, dict[str, str], float]] = [
        ("accelprof_step", {"run": run}, float(figures.step)),
        ("accelprof_ranks", {"run": run}, float(figures.ranks)),
        ("accelprof_window_step", {"run": run}, float(figures.window)),
    ]
    if figures.wall_ns is not None:
        rows.append(("accelprof_step_seconds", {"run": run}, figures.wall_ns / 1e9))
    for phase, row in figures.phases.items():
        for stat, value in zip(STATS, (row.max, row.mean, row.min), strict=True):
            rows.append(("accelprof_phase_seconds", {"run": run, "phase": phase, "stat": stat}, value))
    for phase in seen - figures.phases.keys():
        rows.extend(("accelprof_phase_seconds", {"run": run, "phase": phase, "stat": stat}, 0.0) for stat in STATS)
    seen.update(figures.phases)
    return rows


class PrometheusOptions(ExporterOptions):
    """``port``: serve metrics there (0 = one that is free; ``None`` = do not; register only, for a server of your own); ``address``: interface."""

    port: int | None = Field(None, ge=0, le=65535)
    address: str = "127.0.0.1"


class Prometheus(Exporter):
    """Gauges in ``prometheus_client``'s registry, served on ``port`` if one is given. Needs ``prometheus_client``."""

    name = "prometheus"
    Options: ClassVar[type[ExporterOptions]] = PrometheusOptions
    _server: Any = None

    def start(self, run: RunFacts) -> None:
        import prometheus_client as client

        self._run, self._seen = run.name, set[str]()
        registry = client.REGISTRY
        if self.options.port is not None:
            registry = client.CollectorRegistry()  # a page of ours alone
            self._server, self._thread = client.start_http_server(self.options.port, self.options.address, registry)
        self._registry = registry
        self._gauges = {
            name: client.Gauge(name, text, labels, registry=registry) for name, (text, labels) in GAUGES.items()
        }

    def step(self, figures: StepFigures) -> None:
        for name, labels, value in samples(self._run, figures, self._seen):
            self._gauges[name].labels(**labels).set(value)

    def close(self) -> None:
        for gauge in getattr(self, "_gauges", {}).values():
            self._registry.unregister(gauge)
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join(5)


class RayMetrics(Exporter):
    """The same gauges through ``ray.util.metrics``: they appear on the nodes' metrics endpoints and in Ray's dashboard."""

    name = "ray"

    def start(self, run: RunFacts) -> None:
        from ray.util.metrics import Gauge

        self._run, self._seen = run.name, set[str]()
        self._gauges = {name: Gauge(name, description=text, tag_keys=labels) for name, (text, labels) in GAUGES.items()}

    def step(self, figures: StepFigures) -> None:
        for name, labels, value in samples(self._run, figures, self._seen):
            self._gauges[name].set(value, tags=labels)


class OpenTelemetryOptions(ExporterOptions):
    """``endpoint``: OTLP over HTTP, traces (``http://collector:4318/v1/traces``); ``None`` = as ``OTEL_EXPORTER_OTLP_*`` says.

    ``service``: ``service.name``. ``spans``: phases of windows as spans, read from the timelines when the run ends.
    """

    endpoint: str | None = None
    service: str = "accelprof"
    spans: bool = True


class OpenTelemetry(Exporter):
    """A span a step as it ends, and a span a phase of every window when the run ends. Needs ``opentelemetry-sdk`` and the OTLP exporter.

    The semantic conventions for generative systems cover calls of models, not training; attributes are therefore our own
    (``accelprof.run``, ``.step``, ``.group``, ``.role``, ``.rank``, ``.window``), beside the conventional ``host.name`` and ``process.pid``.
    """

    name = "opentelemetry"
    Options: ClassVar[type[ExporterOptions]] = OpenTelemetryOptions
    _provider: Any = None
    #: batches that the collector has not taken since it took one, and spans that it has not taken at all
    _failing = _lost = 0
    #: what its sender raised last
    _reason = ""

    def start(self, run: RunFacts) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

        exporter = OTLPSpanExporter(endpoint=self.options.endpoint)
        send = exporter.export

        def counted(spans: Sequence[Any]) -> Any:
            taken = False
            try:
                result = send(spans)
                taken = result is SpanExportResult.SUCCESS
            except (
                failures()
            ) as error:  # OpenTelemetry would write it to the log, each time; said once, with all that was lost
                result, self._reason = SpanExportResult.FAILURE, text_of(error)[:200]
            self._failing = 0 if taken else self._failing + 1
            self._lost += 0 if taken else len(spans)
            return result

        exporter.export = counted

        resource = Resource.create({"service.name": self.options.service, "accelprof.run": run.name})
        self._provider = TracerProvider(resource=resource)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("accelprof")

    def step(self, figures: StepFigures) -> None:
        self._check()
        if figures.wall_ns is None or figures.ended_ns is None:
            return
        attributes: dict[str, object] = {
            "accelprof.step": figures.step, "accelprof.window": figures.window, "accelprof.ranks": figures.ranks,
        }  # fmt: skip
        for phase, row in figures.phases.items():
            attributes[f"accelprof.phase.{phase}.max_seconds"] = row.max
            attributes[f"accelprof.phase.{phase}.slowest"] = row.slowest
        span = self._tracer.start_span("step", start_time=figures.ended_ns - figures.wall_ns, attributes=attributes)
        span.end(end_time=figures.ended_ns)

    def finish(self, manifest: Mapping[str, Any], directory: str) -> None:
        if self.options.spans:
            for row in manifest.get("artifacts") or ():
                if row.get("tool") == TIMELINE_TOOL and row.get("state") == COMPLETE:
                    self._phases(row, directory)

    def _phases(self, row: Mapping[str, object], directory: str) -> None:
        from accelprof.contracts.spans import Kind
        from accelprof.reading.chrome import read_chrome

        try:
            trace = read_chrome(os.path.join(directory, str(row["path"])), TIMELINE_TOOL)
        except ReadError:
            return  # the report names files that cannot be read
        origin = trace.origin
        common = {
            "accelprof.group": origin.group, "accelprof.rank": origin.rank, "accelprof.role": origin.role,
            "accelprof.window": origin.windows[0] if origin.windows else None,
            "accelprof.step": origin.steps[0] if len(origin.steps) == 1 else None,
            "host.name": origin.host, "process.pid": origin.pid,
        }  # fmt: skip
        attributes = {key: value for key, value in common.items() if value is not None}
        for number, span in enumerate(trace.of_kind(Kind.PHASE, Kind.RANGE), 1):
            made = self._tracer.start_span(
                span.name, start_time=span.start_ns, attributes={**attributes, "accelprof.kind": span.kind.value}
            )
            made.end(end_time=span.end_ns)
            if number % SPANS_AT_ONCE == 0:
                self._flush()
        self._flush()

    def _flush(self) -> None:
        self._provider.force_flush()
        self._check()

    def _check(self) -> None:
        if self._failing >= TRIES:
            raise ConnectionError(self._why)

    @property
    def _why(self) -> str:
        why = f"; {self._reason}" if self._reason else ""
        return f"the collector has not taken {self._lost} spans (at {self.options.endpoint or 'OTEL_EXPORTER_OTLP_ENDPOINT'}{why})"

    def close(self) -> None:
        provider, self._provider = self._provider, None
        if provider is not None:
            provider.shutdown()
            if self._lost:
                raise ConnectionError(self._why)
