"""The plug-in passes the conformance kit and comes in through its entry point like anybody else's."""

from __future__ import annotations

import json

import pytest

import accelprof
from accelprof.analysis.attribution import attribute
from accelprof.catalogue import make_catalogue
from accelprof.errors import ReadError
from accelprof.testing import BackendConformance, ToolConformance

pytest.importorskip("accelprof_example", reason="accelprof-example is not installed")

from accelprof_example.backend import DEVICE_ENV, DRIVER, ExampleBackend
from accelprof_example.tool import ExampleLogTool


@pytest.fixture(autouse=True)
def device(monkeypatch):
    monkeypatch.setenv(DEVICE_ENV, "1")


class TestBackend(BackendConformance):
    """The backend keeps the contract."""

    def make(self):
        return ExampleBackend()


class TestTool(ToolConformance):
    """The tool keeps the contract."""

    def make(self):
        return ExampleLogTool()

    def device_work(self):
        DRIVER.launch("gemm")


def test_it_comes_in_through_its_entry_point():
    """Installed, the plug-in is found without being named; its backend and tool are registered."""
    catalogue = make_catalogue()
    assert "example" in catalogue.plugins
    assert catalogue.backend_class("example_xpu") is ExampleBackend
    assert catalogue.tool_class("example_log") is ExampleLogTool


def test_without_a_device_it_says_why(monkeypatch):
    """Without its device the backend is unavailable, and says what would make it available."""
    monkeypatch.delenv(DEVICE_ENV)
    probe = ExampleBackend().probe()
    assert not probe.available
    assert DEVICE_ENV in probe.reason


class Actor(accelprof.Worker):
    @accelprof.Worker.timer("actor/update", device=True)
    def update(self):
        accelprof.mark("half way")
        DRIVER.launch("gemm", duration_ns=2000)


def test_windows_and_spans(tmp_path):
    """A window leaves a file whose ranges read back as spans, with the device time inside; device time is in the stats too."""
    accelprof.reset()
    try:
        session = accelprof.configure(
            accelerator="example", tool="example_log", steps=[1], output_dir=str(tmp_path), group="G", rank=0
        )
        actor = Actor()
        for step in range(3):
            with session.step(step):
                actor.update()
        report = session.close()
        files = [row["path"] for row in report["journal"] if row["kind"] == "artifact" and row["tool"] == "example_log"]
        assert report["problems"] == []
        assert len(files) == 1
        trace = ExampleLogTool().read(files[0])
        assert [mark.name for mark in trace.marks] == ["half way"]
        assert trace.problems == []
        (phase,) = attribute(trace).phases
        assert (phase.name, phase.busy_ns) == ("actor/update", {0: 2000})
        stats = actor.timing_stats()["actor/update"]
        assert stats["device_count"] == 3
        assert stats["device_total"] >= stats["total"] > 0  # the events lie around the clock reads
    finally:
        accelprof.reset()


def test_broken_files_are_named(tmp_path):
    """A file that is none of ours is a ReadError with its name; unbalanced ranges are problems, not losses."""
    bad = tmp_path / "x.example.json"
    for text in ("{", "[]", "3", '{"events": 3}', '{"events": [[1]]}'):
        bad.write_text(text)
        with pytest.raises(ReadError, match=r"x\.example\.json"):
            ExampleLogTool().read(str(bad))
    bad.write_text(json.dumps({"events": [["pop", "a", 1, 1], ["push", "b", 2, 1]]}))
    trace = ExampleLogTool().read(str(bad))
    assert len(trace.problems) == trace.completeness.events_left_out == 2
