"""Hydra: presets are found by name in the defaults of any application, and its overrides mean the same to us."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from accelprof.config.load import load_config
from accelprof.contracts.targets import Target
from tests.planning.plans import make_plan

pytest.importorskip("hydra", reason="hydra-core is not installed")
PRESETS = Path(__file__).parents[2] / "accelprof/config/presets/profile"
MAIN = """
import sys
import hydra
from omegaconf import OmegaConf

@hydra.main(config_path=".", config_name="main", version_base=None)
def main(config):
    from accelprof.config.load import load_config
    loaded = load_config(config)
    sys.stdout.write(loaded.config.model_dump_json(exclude_unset=True))

main()
"""


def compose(tmp_path, defaults, *overrides):
    (tmp_path / "main.yaml").write_text(yaml.safe_dump({"defaults": defaults, "trainer": {"lr": 1}}))
    (tmp_path / "main.py").write_text(MAIN)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "main.py", f"hydra.run.dir={tmp_path}/run", *overrides],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return yaml.safe_load(done.stdout)


def test_preset_named_in_defaults(tmp_path):
    """A preset is named in the defaults under the key accelprof; +, ++ and ~ override it."""
    config = compose(
        tmp_path,
        ["_self_", "profile/torch@accelprof"],
        "accelprof.steps=[2,5]",
        "+accelprof.merge_steps=true",
        "++accelprof.tools.torch.contents=[cpu]",
        "~accelprof.ranks",
    )
    assert config == {
        "tool": "torch",
        "steps": [2, 5],
        "merge_steps": True,
        "tools": {"torch": {"contents": ["cpu"]}},
    }


@pytest.mark.parametrize("name", sorted(path.stem for path in PRESETS.glob("*.yaml")))
def test_presets_are_configurations(name):
    """Each preset is a valid configuration that does nothing until steps are given, and then selects rank 0."""
    preset = yaml.safe_load((PRESETS / f"{name}.yaml").read_text())
    target = Target("ActorGroup", (), 0, 4)
    assert not make_plan(load_config({"accelprof": preset}).config).assign(target).selected
    assert make_plan(load_config({"accelprof": {**preset, "steps": [1]}}).config).assign(target).selected


def test_overrides_on_a_plain_file(tmp_path):
    """The same overrides without Hydra: +, ++ set and ~ removes."""
    file = tmp_path / "a.yaml"
    file.write_text("accelprof: {tool: torch, ranks: [0], steps: [1]}")
    config = load_config(file, ["+accelprof.merge_steps=true", "++accelprof.steps=[3]", "~accelprof.ranks"]).config
    assert config.model_dump(mode="json", exclude_unset=True) == {"tool": "torch", "steps": [3], "merge_steps": True}
