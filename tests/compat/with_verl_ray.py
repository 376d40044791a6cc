"""A worker group of verl's own on Ray, of verl's own worker class, in a job that only sets ACCELPROF_INSTALL."""

from __future__ import annotations

import glob
import json
import os
import signal
from pathlib import Path

import pytest
import ray
import verl
from omegaconf import OmegaConf
from verl.single_controller.base.decorator import Dispatch, register
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.utils.profiler import marked_timer
from verl.workers.engine_workers import ActorRolloutRefWorker


class Inner:
    """Stands where a model would be trained."""

    def train_mini_batch(self, data):
        return None


class SmallWorker(ActorRolloutRefWorker):
    """verl's hybrid worker without a model: its own constructor, profiler and decorated methods."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def run(self):
        from accelprof import compat

        self.actor = Inner()
        self.update_actor(None)
        return compat.installed()


@pytest.fixture
def cluster(tmp_path):
    handler = signal.getsignal(signal.SIGTERM)
    env = {"ACCELPROF_INSTALL": "verl", "PYTHONPATH": str(Path(__file__).parent)}
    ray.init(
        address="local",
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=True,
        logging_level="ERROR",
        runtime_env={"env_vars": env},
    )
    yield
    ray.shutdown()
    signal.signal(signal.SIGTERM, handler)


def test_worker_group(cluster, tmp_path):
    """The trainer's own calls open windows on the selected ranks; ranges and metrics of all of them are in one manifest."""
    config = OmegaConf.load(os.path.join(os.path.dirname(verl.__file__), "trainer/config/_generated_ppo_trainer.yaml"))
    OmegaConf.update(config, "global_profiler.tool", "torch")
    OmegaConf.update(config, "global_profiler.steps", [1, 3])
    OmegaConf.update(config, "global_profiler.save_path", str(tmp_path))
    OmegaConf.update(config, "actor_rollout_ref.actor.profiler.enable", True)
    OmegaConf.update(config, "actor_rollout_ref.actor.profiler.all_ranks", True)
    OmegaConf.resolve(config)  # as verl's own main does
    group = RayWorkerGroup(
        resource_pool=RayResourcePool(process_on_nodes=[2], use_gpu=False, max_colocate_count=1),
        ray_cls_with_init=RayClassWithInitArgs(
            ray.remote(SmallWorker), config=config.actor_rollout_ref, role="actor_rollout_ref"
        ),
        device_name="cpu",
    )
    raw = {}
    for step in range(1, 4):
        profiled = step in (1, 3)
        with marked_timer("step", raw):
            if profiled:
                group.start_profile(role="train", profile_step=step)
            assert group.run() == [("verl",)] * 2
            if profiled:
                group.stop_profile(run_command=step == 3)
    (path,) = glob.glob(f"{tmp_path}/*/manifest.json")
    with open(path) as file:
        manifest = json.load(file)
    assert sorted((row["target"].split("-")[1], row["steps"]) for row in manifest["windows"]) == [
        ("r0", [1]), ("r0", [3]), ("r1", [1]), ("r1", [3]),
    ]  # fmt: skip
    assert {row["group"] for row in manifest["targets"]} == {"actor_rollout_ref"}
    assert manifest["metrics"]["steps"][-1]["seconds"]["actor_update"]["ranks"] == 2
    assert len([item for item in manifest["artifacts"] if item["tool"] == "torch"]) == 4
    assert manifest["problems"] == []
    assert raw["step"] > 0
