"""``accelprof run`` around a driver that has a controller: one run directory, one manifest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="ray is not installed")
pytestmark = pytest.mark.ray

DRIVER = """
import logging, ray
from accelprof import Worker
from accelprof.cluster import Controller

class Trainer(Worker):
    @Worker.timer("actor/update")
    def update(self):
        return 1

ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
         object_store_memory=100 * 1024 * 1024)
ctl = Controller()
actor = ray.remote(num_cpus=0)(Trainer).remote()
ctl.attach("Actors", actor)
with ctl.step(1):
    ray.get(actor.update.remote())
ctl.close()
ray.shutdown()
"""


def test_a_controller_joins_the_run_that_started_its_driver(tmp_path: Path) -> None:
    """The script gives its controller no configuration; the worker's window is in the run that the command line made."""
    (tmp_path / "train.py").write_text(DRIVER)
    (tmp_path / "profile.yaml").write_text("steps: [1]\noutput_dir: out\nrun: run\n")
    words = [sys.executable, "-m", "accelprof.cli.main", "run", "-c", "profile.yaml", "--", sys.executable, "train.py"]
    env = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=200, env=env, check=False)
    assert done.returncode == 0, done.stderr
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == ["run"]
    manifest = json.loads((tmp_path / "out" / "run" / "manifest.json").read_text())
    assert manifest["status"] == "complete"
    assert [window["steps"] for window in manifest["windows"]] == [[1]]
    assert len(manifest["clock_offsets"]) == 1
