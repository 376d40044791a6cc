"""What our plan of each release's own files selects is what that release's own code starts."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from pathlib import Path

import pytest
import yaml

from accelprof.catalogue import Registry
from accelprof.config.dialects import BUILTIN
from accelprof.config.dialects.verl_releases import KNOWN, name
from accelprof.config.load import load_config
from accelprof.contracts.targets import Target

pytestmark = pytest.mark.frameworks
ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-frameworks/bin/python"
HYBRID = ("actor_rollout_ref", ("actor", "ref"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("release", [name(version) for version in KNOWN])
def test_ranks_and_steps_are_those_that_the_release_starts(release, tmp_path):
    """Each composed file of each release, with one role switched on and ranks listed, empty or all: verl's own `DistProfiler`, from
    that release's wheel, calls the vendor's profiler on the ranks that the plan selects, and nowhere else."""
    place = Path(os.environ.get("ACCELPROF_VERL_WHEELS") or ROOT / ".venv-frameworks/releases")
    wheels = sorted(place.glob(f"verl-{release}-*.whl"))
    if not wheels or not PYTHON.exists():
        pytest.skip(
            f"the wheel of verl {release} is not in {place}, or {PYTHON} is not there; .ci/install-frameworks does both"
        )
    pytest.importorskip("accelprof_cuda", reason="the plug-in is not installed")
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extractall(tmp_path / "verl")
    done = subprocess.run(
        [PYTHON, ROOT / "tests/compat/verl_starts.py", tmp_path / "found.json"],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "verl")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((tmp_path / "found.json").read_text())
    assert len(found) >= 18
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    texts = {}
    for case, theirs in found.items():
        file = case.split()[0]
        if file not in texts:
            texts[file] = yaml.load((tmp_path / "verl/verl/trainer/config" / file).read_text(), loader)
        plan = Registry().plan(load_config(texts[file], theirs["changes"], dialects=BUILTIN).config)
        taken = theirs["taken"]
        for rank in range(5):
            hybrid = plan.assign(Target(*HYBRID, rank, 8))
            critic = plan.assign(Target("critic", ("critic",), rank, 8))
            assert hybrid.selected == (rank in {*taken["actor"], *taken["ref"]}), case
            assert critic.selected == (rank in taken["critic"]), case
            for row in (hybrid, critic):
                assert list(row.steps) == ([2, 5] if row.selected else []), case
                assert not row.selected or row.tool == "nsys", case
