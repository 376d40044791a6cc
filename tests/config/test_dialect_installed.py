"""The configuration files that the released packages ship, read as they lie in their installations."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from accelprof.config.dialects import BUILTIN
from accelprof.config.load import load_config
from accelprof.contracts.targets import Target
from tests.planning.plans import make_plan

pytestmark = pytest.mark.frameworks
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site():
    python = ROOT / ".venv-frameworks/bin/python"
    code = "import importlib.util as u, os; print(os.path.dirname(u.find_spec('verl').submodule_search_locations[0]))"
    asked = (
        subprocess.run([python, "-c", code], capture_output=True, text=True, check=False) if python.exists() else None
    )
    if asked is None or asked.returncode:
        pytest.skip("verl and rlinf are not installed; .ci/install-frameworks does it")
    return Path(asked.stdout.strip())


@pytest.mark.parametrize("kind", ["", "_megatron", "_torchtitan", "_veomni"])
def test_generated_trainer_files(site, kind):
    """verl's composed trainer files load with their interpolations unresolved, as generation d, and profile nothing."""
    loaded = load_config(site / f"verl/trainer/config/_generated_ppo{kind}_trainer.yaml", dialects=BUILTIN)
    assert (loaded.dialect, loaded.generation) == ("verl", "d")
    assert not make_plan(loaded.config).assign(Target("actor_rollout_ref", ("actor",), 0)).selected


def test_generated_trainer_file_with_overrides(site):
    """Hydra overrides on verl's own file give the plan that verl's interpolations give: the rollout follows the actor."""
    loaded = load_config(
        site / "verl/trainer/config/_generated_ppo_trainer.yaml",
        [
            "global_profiler.tool=torch",
            "global_profiler.steps=[1,2,5]",
            "global_profiler.profile_continuous_steps=true",
            "actor_rollout_ref.actor.profiler.enable=true",
            "++actor_rollout_ref.actor.profiler.ranks=[0,3]",
            "trainer.nnodes=2",
        ],
        dialects=BUILTIN,
    )
    plan = make_plan(loaded.config)
    row = plan.assign(Target("actor_rollout_ref", ("actor", "rollout", "ref"), 3))
    assert (row.tool, list(row.windows)) == ("torch", [(1, 2), (5,)])
    assert not plan.assign(Target("actor_rollout_ref", ("actor",), 1)).selected
    assert any(
        "discrete: true" in note.text for note in loaded.notes if note.path.startswith("actor_rollout_ref.rollout")
    )


def test_uncomposed_trainer_files(site):
    """Files that Hydra has yet to compose load as far as they go, and a note says that more may be added."""
    for name in ("ppo_trainer.yaml", "sft_trainer_engine.yaml"):
        loaded = load_config(site / f"verl/trainer/config/{name}", dialects=BUILTIN)
        assert loaded.dialect == "verl"
        assert any(note.path == "defaults" for note in loaded.notes)
