"""What exporters wrote, read back by the packages' own readers; run by ``test_with_packages.py``."""

from __future__ import annotations

import contextlib
import glob
import gzip
import http.server
import json
import os
import struct
import threading
import time
import urllib.request
from pathlib import Path

import pytest

import accelprof
from accelprof.contracts.exporter import ExporterOptions, RunFacts
from accelprof.exporters import dashboards, files, monitoring
from accelprof.exporters.host import Exporters
from accelprof.exporters.host import figures_of as figures_of_row
from accelprof.output.metrics import step_row


def figures_of(step, rows, wall_ns, window):
    spans = None if wall_ns is None else {"A/rank0": (1_790_000_000_000_000_000, wall_ns)}
    return figures_of_row(step_row(step, rows, spans, window, wall_ns is not None))


SECONDS = {1: (0.25, 0.75), 2: (0.5, 0.125), 3: (1.0, 2.0)}


def rows(step):
    return {
        f"Actor/rank{rank}": {"actor/update": {"seconds": value, "count": 1}}
        for rank, value in enumerate(SECONDS[step])
    }


@pytest.fixture
def run(tmp_path):
    """A finished plain run with its timeline and torch's file, and its manifest."""

    @accelprof.timer("actor/update")
    def update():
        return sum(range(1000))

    session = accelprof.configure(steps=[2], output_dir=str(tmp_path), run="r", group="Actor", rank=0, tool="torch")
    for step in (1, 2):
        with session.step(step):
            update()
    session.close()
    directory = session.layout.run_dir
    accelprof.reset()
    with open(os.path.join(directory, "manifest.json"), encoding="utf-8") as file:
        return directory, json.load(file)


def export(exporter, directory, manifest):
    said = []
    exporters = Exporters([exporter], RunFacts("r", directory, {"steps": [2]}), said.append)
    for step in SECONDS:
        exporters.step(figures_of(step, rows(step), step * 10**9, step == 2))
    yield
    exporters.finish(manifest, directory, timeout=120)
    assert said == []


def whole(exporter, directory, manifest):
    for _ in export(exporter, directory, manifest):
        pass


def test_tensorboard(run):
    """Scalars with their steps, the run's summary as a text, and torch's trace in the profile layout."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    directory, manifest = run
    whole(dashboards.TensorBoard(dashboards.TensorBoardOptions()), directory, manifest)
    events = EventAccumulator(os.path.join(directory, "tensorboard"))
    events.Reload()
    found = {event.step: event.tensor_proto.float_val[0] for event in events.Tensors("accelprof/actor/update/max")}
    assert found == {step: max(values) for step, values in SECONDS.items()}
    assert [event.step for event in events.Tensors("accelprof/step_seconds")] == [1, 2, 3]
    [text] = events.Tensors("accelprof/summary")
    assert events.SummaryMetadata("accelprof/summary").plugin_data.plugin_name == "text"
    lines = text.tensor_proto.string_val[0].decode().splitlines()
    assert lines[2:7] == [
        "| status | complete |",
        "| workers | 1 |",
        "| windows | 1 |",
        f"| files | {len(manifest['artifacts'])} |",
        "| undelivered | 0 |",
    ]
    ran = [row["seconds"]["actor/update"]["max"] for row in manifest["metrics"]["steps"]]
    assert lines[-1] == f"| actor/update | 2 | {sum(ran) / 2:.6g} | {sum(ran) / 2:.6g} |"
    placed = sorted(glob.glob(os.path.join(directory, "tensorboard", "plugins", "profile", "*", "*")))
    assert [os.path.basename(path) for path in placed] == [
        os.path.basename(row["path"]) for row in manifest["artifacts"] if row["tool"] == "torch"
    ]


def records(data):
    """Records of a W&B file: a header of 7 bytes, then LevelDB's log format, blocks of 32 KiB with (crc, length, type) fragments."""
    whole, at = b"", 7
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # full, last
            yield whole
            whole = b""


def items(found):
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in found}


def test_wandb_offline(run, tmp_path):
    """An offline run holds our scalars under our own step axis, and the summary."""
    from wandb.proto import wandb_internal_pb2

    directory, manifest = run
    whole(dashboards.Wandb(dashboards.WandbOptions(mode="offline", dir=str(tmp_path))), directory, manifest)
    (stored,) = glob.glob(str(tmp_path / "wandb/offline-run-*/*.wandb"))
    until = time.monotonic() + 20
    history, summary = [], {}
    while len(history) < len(SECONDS) and time.monotonic() < until:  # W&B's own process may still be writing
        time.sleep(0.1)
        history, summary = [], {}
        for data in records(Path(stored).read_bytes()):
            record = wandb_internal_pb2.Record.FromString(data)
            if record.WhichOneof("record_type") == "history":
                history.append(items(record.history.item))
            if record.WhichOneof("record_type") == "summary":
                summary.update(items(record.summary.update))
    assert [(row["accelprof/step"], row["accelprof/actor/update/max"]) for row in history] == [
        (step, max(values)) for step, values in SECONDS.items()
    ]
    assert summary["accelprof/status"] == manifest["status"] == "complete"


def test_mlflow(run, tmp_path):
    """A run of its own with metrics by step, the status as a tag, and the pages as artifacts."""
    from mlflow.tracking import MlflowClient

    directory, manifest = run
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    os.chdir(tmp_path)
    whole(dashboards.Mlflow(dashboards.MlflowOptions(uri=uri)), directory, manifest)
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("accelprof")
    (found,) = client.search_runs([experiment.experiment_id])
    history = client.get_metric_history(found.info.run_id, "accelprof/actor/update/max")
    assert [(metric.step, metric.value) for metric in history] == [
        (step, max(values)) for step, values in SECONDS.items()
    ]
    assert found.info.status == "FINISHED"
    assert found.data.tags["accelprof.status"] == "complete"
    kept = {os.path.basename(item.path) for item in client.list_artifacts(found.info.run_id, "accelprof")}
    assert kept == {"report.html", "timeline.json.gz", "manifest.json"}


def test_prometheus(run):
    """A scrape gives the last step's figures, parsed by Prometheus's own parser; the port is free afterwards."""
    from prometheus_client.parser import text_string_to_metric_families

    directory, manifest = run
    exporter = monitoring.Prometheus(monitoring.PrometheusOptions(port=0))
    running = export(exporter, directory, manifest)
    next(running)
    until = threading.Event()
    for _ in range(100):
        port = exporter._server.server_port if exporter._server else None
        page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode() if port else ""
        if "accelprof_step{" in page and 'accelprof_step{run="r"} 3.0' in page and "accelprof_phase" in page:
            break
        until.wait(0.05)
    found = {(s.name, s.labels.get("stat")): s.value for f in text_string_to_metric_families(page) for s in f.samples}
    assert found[("accelprof_phase_seconds", "max")] == 2.0
    assert found[("accelprof_phase_seconds", "min")] == 1.0
    assert found[("accelprof_step_seconds", None)] == 3.0
    assert found[("accelprof_window_step", None)] == 0.0
    assert list(running) == []
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2)


@contextlib.contextmanager
def collector():
    """An OTLP collector over HTTP: its endpoint, and the spans that it gets."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    received = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            request = ExportTraceServiceRequest()
            request.ParseFromString(body)
            received.extend(s for r in request.resource_spans for scope in r.scope_spans for s in scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1/traces", received
    server.shutdown()
    server.server_close()


def test_opentelemetry(run):
    """A collector gets a span a step, and a span a phase of the window with its rank and the timeline's own times."""
    from accelprof.contracts.spans import Kind
    from accelprof.reading.chrome import read_chrome

    directory, manifest = run
    with collector() as (endpoint, received):
        whole(monitoring.OpenTelemetry(monitoring.OpenTelemetryOptions(endpoint=endpoint)), directory, manifest)
    steps = [s.end_time_unix_nano - s.start_time_unix_nano for s in received if s.name == "step"]
    assert steps == [10**9, 2 * 10**9, 3 * 10**9]
    (row,) = [row for row in manifest["artifacts"] if row["tool"] == "trace"]
    (phase,) = read_chrome(os.path.join(directory, row["path"]), "trace").of_kind(Kind.PHASE)
    (span,) = [s for s in received if s.name == "actor/update"]
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (phase.start_ns, phase.end_ns)
    attributes = {item.key: item.value for item in span.attributes}
    assert attributes["accelprof.rank"].int_value == 0
    assert attributes["accelprof.step"].int_value == 2
    assert attributes["accelprof.group"].string_value == "Actor"


def test_every_phase_of_a_window_becomes_a_span(tmp_path):
    """Also more of them than OpenTelemetry keeps for a batch."""
    work = accelprof.timer("many")(lambda: None)
    session = accelprof.configure(steps=[1], output_dir=str(tmp_path), run="r", group="Actor", rank=0, tool="trace")
    with session.step(1):
        for _ in range(7000):
            work()
    session.close()
    directory = session.layout.run_dir
    accelprof.reset()
    manifest = json.loads(Path(directory, "manifest.json").read_text())
    with collector() as (endpoint, received):
        whole(monitoring.OpenTelemetry(monitoring.OpenTelemetryOptions(endpoint=endpoint)), directory, manifest)
    assert sum(span.name == "many" for span in received) == 7000


def test_a_collector_that_is_gone_is_said(run, monkeypatch):
    """Spans that nobody took are named with their number and the endpoint, in bounded time."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with collector() as (endpoint, _):
        pass
    directory, manifest = run
    said = []
    exporter = monitoring.OpenTelemetry(monitoring.OpenTelemetryOptions(endpoint=endpoint))
    exporters = Exporters([exporter], RunFacts("r", directory), said.append)
    for step in SECONDS:
        exporters.step(figures_of(step, rows(step), step * 10**9, step == 2))
    begun = time.monotonic()
    exporters.finish(manifest, directory, timeout=60)
    assert time.monotonic() - begun < 30
    (line,) = said
    assert "opentelemetry is left out from here on: close: ConnectionError: the collector has not taken 4 spans" in line
    assert endpoint in line


@pytest.mark.parametrize("how", ["answers failure", "raises"])
def test_spans_that_were_not_sent_are_counted(run, monkeypatch, how):
    """Whether the package's sender answers that it failed or raises: said once, with the number of spans and the reason."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import SpanExportResult

    def export(self, spans):
        if how == "raises":
            raise ValueError("no such encoding")
        return SpanExportResult.FAILURE

    monkeypatch.setattr(OTLPSpanExporter, "export", export)
    directory, manifest = run
    said = []
    exporters = Exporters(
        [monitoring.OpenTelemetry(monitoring.OpenTelemetryOptions())], RunFacts("r", directory), said.append
    )
    for step in SECONDS:
        exporters.step(figures_of(step, rows(step), step * 10**9, step == 2))
    exporters.finish(manifest, directory, timeout=60)
    (line,) = said
    assert "the collector has not taken 4 spans" in line
    assert ("ValueError: no such encoding" in line) == (how == "raises")


ODD = [
    "",
    ".",
    "..",
    "a//b",
    "/a",
    "a/",
    "../x",
    "actor[0]",
    "actor(0)",
    "a\nb",
    'q"\\',
    "naïve",
    "x" * 400,
    "\ud800",
    "nan",
]


def test_odd_labels_reach_mlflow_and_prometheus(run, tmp_path):
    """Whatever a phase is called, and however many there are: each has a metric of its own with its value."""
    from mlflow.tracking import MlflowClient
    from prometheus_client.parser import text_string_to_metric_families

    directory, manifest = run
    labels = [*ODD, *(f"phase {number}" for number in range(400))]
    phases = {label: {"seconds": number + 0.5, "count": 1} for number, label in enumerate(labels)}
    phases["nan"]["seconds"] = float("nan")
    uri, said = f"sqlite:///{tmp_path}/mlflow.db", []
    os.chdir(tmp_path)
    page = monitoring.Prometheus(monitoring.PrometheusOptions(port=0))
    made = [dashboards.Mlflow(dashboards.MlflowOptions(uri=uri)), page, files.JsonLines(files.FileOptions())]
    exporters = Exporters(made, RunFacts("r", directory), said.append)
    exporters.step(figures_of(1, {"A/rank0": phases}, 10**9, False))
    text, until = "", time.monotonic() + 30
    while text.count('stat="min"') < len(labels) and time.monotonic() < until:
        time.sleep(0.1)
        if page._server is not None:
            text = urllib.request.urlopen(f"http://127.0.0.1:{page._server.server_port}/metrics").read().decode()
    exporters.finish(manifest, directory, timeout=120)
    assert said == []
    found = [s.value for f in text_string_to_metric_families(text) for s in f.samples if s.labels.get("stat") == "max"]
    wanted = sorted(row["seconds"] for label, row in phases.items() if label != "nan")
    assert sorted(value for value in found if value == value) == wanted
    client = MlflowClient(tracking_uri=uri)
    (kept,) = client.search_runs([client.get_experiment_by_name("accelprof").experiment_id])
    maxima = [value for name, value in kept.data.metrics.items() if "/max" in name]
    assert sorted(value for value in maxima if value == value) == wanted
    assert len(maxima) == len(labels)


def test_parquet(run):
    """One row a step and phase, with its types."""
    import pyarrow.parquet

    directory, manifest = run
    whole(files.Parquet(files.FileOptions()), directory, manifest)
    table = pyarrow.parquet.read_table(os.path.join(directory, "steps.parquet"))
    got = [(r["step"], r["phase"], r["max_s"], r["slowest"], r["window"]) for r in table.to_pylist()]
    assert got == [
        (1, "actor/update", 0.75, "Actor/rank1", False),
        (2, "actor/update", 0.5, "Actor/rank0", True),
        (3, "actor/update", 2.0, "Actor/rank1", False),
    ]


def test_what_is_not_installed_is_said(tmp_path, monkeypatch):
    """An exporter whose package is missing is left out with that reason."""
    monkeypatch.setitem(__import__("sys").modules, "tensorboard.summary", None)
    said = []
    exporters = Exporters(
        [dashboards.TensorBoard(dashboards.TensorBoardOptions())], RunFacts("r", str(tmp_path)), said.append
    )
    exporters.finish({}, str(tmp_path))
    [text] = said
    assert "tensorboard" in text
    assert "ImportError" in text or "ModuleNotFoundError" in text
    assert ExporterOptions().model_dump() == {}


def test_ray(tmp_path):
    """The gauges appear on the metrics endpoint of a real local Ray, with their labels."""
    import signal
    import time

    import ray

    before = signal.getsignal(signal.SIGTERM)
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    exporters = Exporters([monitoring.RayMetrics(ExporterOptions())], RunFacts("r", str(tmp_path)), print)
    node = ray.nodes()[0]
    found, until = "", time.monotonic() + 60
    while not found and time.monotonic() < until:
        exporters.step(figures_of(3, rows(3), 10**9, True))
        try:
            page = urllib.request.urlopen(
                f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics", timeout=5
            )
            lines = page.read().decode().splitlines()
        except OSError:  # the agent is not up yet
            lines = []
        found = next((line for line in lines if "accelprof_phase_seconds{" in line and 'stat="max"' in line), "")
        time.sleep(0.5)
    ray.shutdown()
    signal.signal(signal.SIGTERM, before)  # Ray puts its own there
    exporters.finish({}, str(tmp_path))
    assert 'phase="actor/update"' in found
    assert 'run="r"' in found
    assert found.endswith(" 2.0")
