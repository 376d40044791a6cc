"""A framework's process whose files take long to write."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import accelprof
from accelprof.compat import process as process_module
from accelprof.compat.process import ProcessSession

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(("patience", "there"), [(30.0, True), (0.1, False)])
def test_a_frameworks_stop_waits_for_its_files_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: float, there: bool
) -> None:
    """After a stop the trace is there, as with the framework's own profiler; one that takes longer is written behind training, and
    the manifest names it when it is there."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    export = torch.profiler.profile.export_chrome_trace

    def slow(self: Any, path: str) -> Any:
        time.sleep(1.0)
        return export(self, path)

    monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", slow)
    monkeypatch.setattr(process_module, "PATIENCE_S", patience)
    shared = ProcessSession()
    settings = {"config": {"tool": "torch", "steps": [1], "output_dir": str(tmp_path), "run": "run"}, "group": "Actor"}
    try:
        assert shared.start("actor", 1, lambda: settings)
        torch.ones(4).sum()
        shared.stop("actor")
        assert bool(list(tmp_path.rglob("*.pt.trace.json*"))) == there
        session = accelprof.current_session()
        assert session is not None
        session.wait_for_files()
        manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
        assert [row["state"] for row in manifest["artifacts"] if row["tool"] == "torch"] == ["complete"]
    finally:
        shared.release()
        accelprof.reset()
