"""The driver of the demo: starts Ray and the workers, runs the steps, announces each to the controller."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import ray

from accelprof.cluster import Controller
from accelprof.demo.settings import DemoSettings
from accelprof.demo.workers import ActorWorker, ReferenceWorker, RolloutWorker, mean_of
from accelprof.output.records import Manifest

PROFILE = Path(__file__).with_name("profile.yaml")
START_TIMEOUT_S = 300.0
CALL_TIMEOUT_S = 300.0


@dataclass
class DemoResult:
    """What came out.

    Attributes:
        rewards: mean reward of the samples of each step, in order.
        accuracy: share of all prompts whose most likely answer is right, before the first and after the last step.
        metrics: loss, KL, gradient norm of each step, means over the actor ranks.
        phases: timings of each step over all ranks, as ``Controller.metrics`` gives them.
        seconds: of the whole run, with start and end.
        run_dir: where timeline, report and manifest lie; ``None`` when the configuration profiles nothing.
        manifest: what ``Controller.close`` returned.
    """

    rewards: list[float] = field(default_factory=list)
    accuracy: tuple[float, float] = (0.0, 0.0)
    metrics: list[dict[str, float]] = field(default_factory=list)
    phases: list[Any] = field(default_factory=list)
    seconds: float = 0.0
    run_dir: str | None = None
    manifest: Manifest = field(default_factory=Manifest)


class Training:
    """The groups of one run and the loop over them."""

    def __init__(self, settings: DemoSettings, controller: Controller) -> None:
        self.settings, self.controller = settings, controller
        self.actors = self._start("ActorGroup", "actor", ActorWorker, settings.actors, settings.actors)
        self.rollouts = self._start("RolloutGroup", "rollout", RolloutWorker, settings.rollouts, replicas=True)
        self.references = self._start("RefGroup", "ref", ReferenceWorker, 1)

    def _start(
        self, group: str, role: str, worker: type[Any], count: int, *args: Any, replicas: bool = False
    ) -> list[Any]:
        """``replicas``: each generates alone, as engines do; the ranks of other groups are of one program."""
        remote = ray.remote(worker)
        workers = []
        for rank in range(count):
            # No logical CPUs: the loop must start on one core as well as on two.
            options = self.controller.options(
                group, rank=rank, role=role, replica=rank if replicas else None, world_size=count, num_cpus=0
            )
            workers.append(remote.options(**options).remote(self.settings, rank, *args))
        return workers

    def prepare(self) -> float:
        """Attach, connect the actor ranks, warm up, and hand the weights to everyone; returns the accuracy then."""
        everyone = [*self.actors, *self.rollouts, *self.references]
        ray.get([worker.__ray_ready__.remote() for worker in everyone], timeout=START_TIMEOUT_S)
        with tempfile.TemporaryDirectory(prefix="accelprof-demo-") as meeting_place:
            store = os.path.join(meeting_place, "store")
            ray.get([actor.join.remote(store) for actor in self.actors], timeout=START_TIMEOUT_S)
        self.controller.attach("ActorGroup", self.actors)
        self.controller.attach("RolloutGroup", self.rollouts)
        self.controller.attach("RefGroup", self.references)
        _call(self.actors, "warm_up")
        weights = [self.actors[0].sync_model_to_rollout.remote()]
        _call(self.rollouts, "request_weight_sync", weights)
        _call(self.references, "load_reference", weights)
        return float(_call(self.actors[:1], "accuracy")[0])

    def step(self, step: int) -> tuple[float, dict[str, float]]:
        """Generate, score, train, hand on the weights; returns the mean reward and the training metrics.

        Everything is asked for at once: each worker waits for what it needs in a phase of its own, not at the driver.
        """
        trajectories = [rollout.generate.remote(step) for rollout in self.rollouts]
        log_probs = self.references[0].compute_log_prob.remote(trajectories)
        rewards = [
            actor.recv_traj.remote([part, log_probs]) for actor, part in zip(self.actors, trajectories, strict=True)
        ]
        advantages = [actor.compute_adv.remote() for actor in self.actors]
        metrics = [actor.run_training.remote(step) for actor in self.actors]
        weights = self.actors[0].sync_model_to_rollout.remote()
        synced = [rollout.request_weight_sync.remote([weights]) for rollout in self.rollouts]
        _get([*advantages, *synced])
        return mean(_get(rewards)), mean_of(_get(metrics))

    def finish(self) -> float:
        """Leave the process group; returns the accuracy now."""
        accuracy = float(_call(self.actors[:1], "accuracy")[0])
        _call(self.actors, "leave")
        return accuracy


def run_demo(
    settings: DemoSettings,
    config: Any = PROFILE,
    progress: Callable[[str], None] = lambda doing: None,
) -> DemoResult:
    """Train for ``settings.steps`` steps under the profiling configuration ``config`` (whatever ``Controller`` takes).

    ``progress`` is called with a few words before each of the ``settings.steps + 3`` parts of the run.

    Raises:
        UserError: the configuration is refused; nothing was started then.
        Exception: whatever fails in a worker, after the windows were closed and Ray was shut down.
    """
    began = time.perf_counter()
    result = DemoResult()
    controller = Controller(config)
    progress("starting Ray and five workers")
    with _local_ray():
        try:
            training = Training(settings, controller)
            progress("supervised warm-up")
            before = training.prepare()
            for step in range(1, settings.steps + 1):
                last = f", reward {result.rewards[-1]:.2f}" if result.rewards else ""
                progress(f"step {step}/{settings.steps}{last}")
                with controller.step(step):
                    reward, metrics = training.step(step)
                result.rewards.append(reward)
                result.metrics.append(metrics)
                result.phases.append(controller.metrics(reduce="max"))
            progress("collecting")
            result.accuracy = (before, training.finish())
        finally:
            result.manifest = Manifest.of_json(controller.close())
    result.run_dir = controller.run_dir
    result.seconds = time.perf_counter() - began
    return result


@contextmanager
def _local_ray() -> Iterator[None]:
    """A cluster of this machine alone, gone afterwards."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=128 * 1024 * 1024,
    )
    try:
        yield
    finally:
        ray.shutdown()


def _call(workers: Sequence[Any], method: str, *args: Any) -> list[Any]:
    return _get([getattr(worker, method).remote(*args) for worker in workers])


def _get(references: Sequence[Any]) -> list[Any]:
    results: list[Any] = ray.get(list(references), timeout=CALL_TIMEOUT_S)
    return results
