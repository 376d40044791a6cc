"""Exporters run off the step's path; one that fails is said once and disturbs nobody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time

import pytest

import accelprof
from accelprof.catalogue import make_catalogue
from accelprof.config.load import load_config
from accelprof.contracts.exporter import Exporter, ExporterOptions, RunFacts
from accelprof.errors import ConfigError
from accelprof.exporters.files import FileOptions, JsonLines
from accelprof.exporters.host import Exporters
from accelprof.exporters.host import figures_of as figures_of_row
from accelprof.exporters.monitoring import samples
from accelprof.output.metrics import step_row


def figures_of(step, rows, wall_ns, window):
    spans = None if wall_ns is None else {"A/rank0": (1_790_000_000_000_000_000, wall_ns)}
    return figures_of_row(step_row(step, rows, spans, window, wall_ns is not None))


ROWS = {
    "Actor/rank0": {"actor/update": {"seconds": 0.25, "count": 2}, "actor/recv": {"seconds": 0.5, "count": 1}},
    "Actor/rank1": {"actor/update": {"seconds": 0.75, "count": 2}},
}


def facts(tmp_path):
    return RunFacts("r", str(tmp_path))


class Logging(Exporter):
    name = "logging"

    def __init__(self, fails_at=""):
        super().__init__(ExporterOptions())
        self.calls, self.fails_at = [], fails_at

    def _called(self, call):
        self.calls.append(call)
        if call.split()[0] == self.fails_at:
            raise OSError(28, "no space")

    def start(self, run):
        self._called("start")

    def step(self, figures):
        self._called(f"step {figures.step}")

    def finish(self, manifest, directory):
        self._called("finish")

    def close(self):
        self._called("close")


def test_figures_name_the_slowest_rank():
    """A phase has its extremes and mean over the ranks that have it, their number, and the label of the slowest."""
    figures = figures_of(3, ROWS, 10**9, True)
    update, recv = figures.phases["actor/update"], figures.phases["actor/recv"]
    assert (update.max, update.mean, update.min, update.ranks, update.slowest) == (0.75, 0.5, 0.25, 2, "Actor/rank1")
    assert (recv.max, recv.ranks, recv.slowest) == (0.5, 1, "Actor/rank0")


@pytest.mark.parametrize("fails_at", ["start", "step", "finish", "close"])
def test_one_failing_exporter_is_said_once_and_the_others_get_everything(tmp_path, fails_at):
    """Whatever call fails, it is named once, that exporter is asked no more, and the one after it gets every call."""
    bad, good, said = Logging(fails_at), Logging(), []
    exporters = Exporters([bad, good], facts(tmp_path), said.append)
    for step in (1, 2):
        exporters.step(figures_of(step, ROWS, None, False))
    exporters.finish({}, str(tmp_path))
    assert good.calls == ["start", "step 1", "step 2", "finish", "close"]
    assert len(said) == 1
    assert "logging" in said[0]
    assert "no space" in said[0]
    assert fails_at in said[0]
    first = next(number for number, call in enumerate(bad.calls) if call.startswith(fails_at))
    assert bad.calls[first + 1 :] in ([], ["close"])


def test_a_slow_exporter_costs_the_step_nothing_and_what_is_lost_is_counted(tmp_path, monkeypatch):
    """Handing a step over returns at once; steps that do not fit any more are counted and said."""
    monkeypatch.setattr("accelprof.exporters.host.WAITING_AT_MOST", 4)
    go = threading.Event()

    class Slow(Logging):
        def step(self, figures):
            go.wait(10)
            super().step(figures)

    slow, said = Slow(), []
    exporters = Exporters([slow], facts(tmp_path), said.append)
    begun = time.monotonic()
    for step in range(50):
        exporters.step(figures_of(step, ROWS, None, False))
    assert time.monotonic() - begun < 1
    go.set()
    exporters.finish({}, str(tmp_path))
    written = sum(call.startswith("step") for call in slow.calls)
    assert slow.calls[-2:] == ["finish", "close"]
    assert said == [f"export: logging: {50 - written} steps were left out, it was slower than the steps"]


@pytest.mark.parametrize("hangs_in", ["start", "step", "finish", "close"])
def test_one_that_hangs_is_named_and_holds_nobody_up(tmp_path, hangs_in):
    """Whatever call never returns: the others get everything, the end waits ``timeout`` seconds at most and says who is in what."""
    never = threading.Event()

    class Hangs(Logging):
        name = "hanging"

        def _called(self, call):
            if call.split()[0] == hangs_in:
                never.wait(30)

    said, good = [], Logging()
    exporters = Exporters([Hangs(), good], facts(tmp_path), said.append)
    for step in (1, 2):
        exporters.step(figures_of(step, ROWS, None, False))
    begun = time.monotonic()
    exporters.finish({}, str(tmp_path), timeout=0.5)
    never.set()
    assert time.monotonic() - begun < 5
    assert good.calls == ["start", "step 1", "step 2", "finish", "close"]
    assert said == [f"export: hanging (in {hangs_in}) did not end within 0.5 s; what they have not written is missing"]


def test_one_that_hangs_takes_no_step_from_others(tmp_path, monkeypatch):
    """When its queue is full its own steps are left out and counted; the end waits no longer for it."""
    monkeypatch.setattr("accelprof.exporters.host.WAITING_AT_MOST", 3)
    never = threading.Event()

    class Hangs(Logging):
        name = "hanging"

        def start(self, run):
            never.wait(30)

    said, good = [], Logging()
    exporters = Exporters([Hangs(), good], facts(tmp_path), said.append)
    for step in range(10):
        while good.calls.count(f"step {step - 1}") < min(step, 1):
            time.sleep(0.01)
        exporters.step(figures_of(step, ROWS, None, False))
    begun = time.monotonic()
    exporters.finish({}, str(tmp_path), timeout=0.5)
    never.set()
    assert time.monotonic() - begun < 5
    assert good.calls == ["start", *(f"step {step}" for step in range(10)), "finish", "close"]
    assert said[0] == "export: hanging: 7 steps were left out, it was slower than the steps"


class SilentError(Exception):
    def __str__(self):
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("raised", "text"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (SilentError(), "SilentError: (its text could not be had: ValueError)"),
    ],
)
def test_what_ends_the_interpreter_ends_one_exporter_only(tmp_path, raised, text):
    """``sys.exit`` in a package, at its import or later, is a failure like any other; so is what cannot say what it is."""

    class Exits(Logging):
        def start(self, run):
            raise raised

    said, good = [], Logging()
    exporters = Exporters([Exits(), good], facts(tmp_path), said.append)
    exporters.step(figures_of(1, ROWS, None, False))
    exporters.finish({}, str(tmp_path))
    assert said == [f"export: logging is left out from here on: start: {text}"]
    assert good.calls == ["start", "step 1", "finish", "close"]


FULL = """
import json, resource, sys
from accelprof.contracts.exporter import RunFacts
from accelprof.exporters.files import FileOptions, JsonLines
from accelprof.exporters.host import Exporters, figures_of
from accelprof.output.metrics import step_row
from accelprof.exporters.monitoring import samples
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
said = []
exporters = Exporters([JsonLines(FileOptions())], RunFacts("r", sys.argv[1]), said.append)
for step in range(20):
    rows = {"A/rank0": {"phase": {"seconds": 1.0, "count": 1}}}
    exporters.step(figures_of(step_row(step, rows, {"A/rank0": (1, 1)})))
exporters.finish({}, sys.argv[1])
print(json.dumps(said))
"""


def test_a_full_disk_leaves_whole_lines(tmp_path):
    """Where no more fits the exporter is left out, said once, and what it has written can be read."""
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True)
    (said,) = json.loads(done.stdout)
    assert said.startswith("export: jsonl is left out from here on: step: OSError: [Errno 27] File too large")
    written = (tmp_path / "steps.jsonl").read_text()
    assert [json.loads(line)["step"] for line in written.splitlines()] == list(range(written.count("\n")))
    assert written.endswith("\n")
    assert written.count("\n") > 3


def test_a_number_that_training_closed_is_not_written_to(tmp_path):
    """Whatever descriptors training closes between steps and uses again: nothing is written there, and the lines go on."""
    writer = JsonLines(FileOptions())
    free = os.dup(0)
    os.close(free)
    writer.start(facts(tmp_path))
    writer.step(figures_of(1, ROWS, None, False))
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    assert other == free  # no number is held
    writer.step(figures_of(2, ROWS, None, False))
    writer.close()
    assert os.fstat(other).st_size == 0
    os.close(other)
    assert [json.loads(line)["step"] for line in (tmp_path / "steps.jsonl").read_text().splitlines()] == [1, 2]


def test_a_phase_that_did_not_run_took_no_time():
    """A gauge keeps its last value, so phases of earlier steps get 0 in a step that lacks them."""
    seen: set[str] = set()
    samples("r", figures_of(1, ROWS, None, False), seen)
    rows = {"Actor/rank0": {"actor/update": {"seconds": 0.25, "count": 1}}}
    second = {
        (labels.get("phase"), labels.get("stat")): value
        for _, labels, value in samples("r", figures_of(2, rows, None, False), seen)
    }
    assert second[("actor/recv", "max")] == second[("actor/recv", "min")] == 0.0
    assert second[("actor/update", "max")] == 0.25


def test_labels_become_what_every_format_has():
    """Half a surrogate pair is in no UTF-8: it is shown by its number before any exporter sees it."""
    rows = {"A/rank0": {"odd\ud800": {"seconds": 1.0, "count": 1}}}
    assert list(figures_of(1, rows, None, False).phases) == ["odd\\ud800"]


def test_json_lines_are_there_step_by_step(tmp_path):
    """Each step is one strict JSON object in the run's directory, readable while the run goes on."""
    writer = JsonLines(FileOptions())
    writer.start(facts(tmp_path))
    writer.step(figures_of(1, ROWS, 2_000_000_000, False))
    row = json.loads((tmp_path / "steps.jsonl").read_text())
    writer.close()
    assert (row["step"], row["wall_ns"], row["window"]) == (1, 2_000_000_000, False)
    update = {"max_s": 0.75, "mean_s": 0.5, "min_s": 0.25, "ranks": 2, "slowest": "Actor/rank1"}
    assert row["phases"]["actor/update"] == update


def test_names_and_options_are_checked_before_anything_starts():
    """An unknown exporter and an unknown option are refused with key, allowed values and the nearest."""
    config = load_config({"export": {"tensorbord": {}, "jsonl": {"pth": "x"}}}).config
    with pytest.raises(ConfigError) as refused:
        make_catalogue().make_exporters(config)
    text = str(refused.value)
    assert "export.tensorbord" in text
    assert "tensorboard" in text
    assert "export.jsonl.pth" in text
    assert "path" in text


def test_a_plug_in_brings_an_exporter():
    """The hook ``accelprof_exporters`` brings further ones by name."""

    class Plugin:
        @accelprof.hookimpl
        def accelprof_exporters(self):
            return [type("Mine", (Exporter,), {"name": "mine"})]

    catalogue = make_catalogue()
    catalogue.register(Plugin(), "plugin")
    made = catalogue.make_exporters(load_config({"export": {"mine": None}}).config)
    assert [exporter.name for exporter in made] == ["mine"]
