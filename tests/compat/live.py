"""A real worker group of verl's or RLinf's on Ray: three steps, a window on the second. What comes back is printed as JSON.

Nothing here knows accelprof; whether it takes part is a matter of the environment. usage: live.py verl|rlinf DIRECTORY
"""

from __future__ import annotations

import inspect
import json
import logging
import os
import sys
import types


def shape(error):
    """What a caller can see of an exception: the types it can be caught by, and its first and last words."""
    text = str(error).strip().splitlines()
    return [sorted({kind.__name__ for kind in type(error).__mro__}), text[-1]]


def called(call, *arguments):
    try:
        return ["returned", call(*arguments)]
    except Exception as error:
        return ["raised", *shape(error)]


def plain(value):
    """Attributes of a method as data: functions by name, enums by value."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "func"):  # a partial one
        return [plain(value.func), plain(value.keywords)]
    if callable(value):
        return f"{value.__module__}.{value.__qualname__}"
    return str(value)


def vars_of(cls, name):
    """The attribute as it stands in the class that has it."""
    return next(vars(base)[name] for base in cls.__mro__ if name in vars(base))


def seen(attribute, method):
    """What RLinf's groups and whoever dispatches to a method by its looks can tell of it."""
    kinds = ("iscoroutinefunction", "isasyncgenfunction", "isgeneratorfunction")
    if not inspect.isroutine(method) or inspect.isbuiltin(method) or not inspect.isfunction(inspect.unwrap(method)):
        return type(attribute).__name__
    return [
        type(attribute).__name__,
        str(inspect.signature(method)),
        [kind for kind in kinds if getattr(inspect, kind)(method)],
        [method.__name__, method.__qualname__, method.__doc__],
        sorted(key for key in vars(method) if key != "__wrapped__"),
    ]


def verl(directory):
    import ray
    import verl as package
    from omegaconf import OmegaConf
    from verl.single_controller.base.decorator import MAGIC_ATTR, Dispatch, register
    from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
    from verl.utils.profiler import DistProfiler, marked_timer
    from verl.workers.engine_workers import ActorRolloutRefWorker

    class Inner:
        def train_mini_batch(self, data):
            return None

    class Worker(ActorRolloutRefWorker):
        @register(dispatch_mode=Dispatch.ONE_TO_ALL)
        def run(self, step):
            self.actor = Inner()
            self.update_actor(None)
            return [self.rank, step, self.annotated(step)]

        @DistProfiler.annotate(color="red", role="mine")
        def annotated(self, step):
            return step * 10

        @register(dispatch_mode=Dispatch.ONE_TO_ALL)
        @DistProfiler.annotate(role="fails")
        def fails(self, step):
            raise KeyError(f"step {step}")  # every rank fails; whose failure comes first is chance

    names = ("ACCELPROF_INSTALL", "PYTHONPATH")
    env = {name: os.environ[name] for name in names if name in os.environ}
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
             runtime_env={"env_vars": env})  # fmt: skip
    config = OmegaConf.load(
        os.path.join(os.path.dirname(package.__file__), "trainer/config/_generated_ppo_trainer.yaml")
    )
    for key, value in (
        ("global_profiler.tool", "torch"),
        ("global_profiler.steps", [2]),
        ("global_profiler.save_path", directory),
        ("actor_rollout_ref.actor.profiler.enable", True),
        ("actor_rollout_ref.actor.profiler.all_ranks", True),
    ):
        OmegaConf.update(config, key, value)
    OmegaConf.resolve(config)
    group = RayWorkerGroup(
        resource_pool=RayResourcePool(process_on_nodes=[2], use_gpu=False, max_colocate_count=1),
        ray_cls_with_init=RayClassWithInitArgs(
            ray.remote(Worker), config=config.actor_rollout_ref, role="actor_rollout_ref"
        ),
        device_name="cpu",
    )
    found = {"steps": []}
    raw = {}
    for step in (1, 2, 3):
        with marked_timer("step", raw):
            started = called(group.start_profile) if step == 2 else None
            found["steps"].append([started, called(group.run, step), called(group.fails, step)])
            if step == 2:
                found["steps"].append(called(group.stop_profile))
    found["timed"] = sorted(raw)
    found["dispatch"] = {
        name: [plain(getattr(method, MAGIC_ATTR)), str(inspect.signature(method)), inspect.iscoroutinefunction(method)]
        for name, method in inspect.getmembers(Worker, callable)
        if hasattr(method, MAGIC_ATTR)
    }
    found["methods"] = sorted(name for name in dir(group) if not name.startswith("__"))
    ray.shutdown()
    return found


def rlinf(directory):
    import ray
    from omegaconf import OmegaConf
    from ray.cluster_utils import Cluster as RayCluster
    from rlinf.runners.embodied_runner import EmbodiedRunner
    from rlinf.scheduler import Cluster, NodePlacementStrategy, Worker

    class Trainer(Worker):
        def __init__(self):
            super().__init__()

        @Worker.timer("run_training")
        def run_training(self, value):
            with self.worker_timer("inner"):
                return value + self._rank

        @Worker.timer("fails")
        def fails(self, value):
            raise KeyError(f"value {value}")

        @Worker.timer("waits")
        async def waits(self, value):
            return value * 2

    class Runner:
        def __init__(self, group):
            self.logger = logging.getLogger("runner")
            self.actor = self.rollout = self.env = group
            for name in ("_open_profiling_window", "_close_profiling_window"):
                setattr(self, name, types.MethodType(getattr(EmbodiedRunner, name), self))

    head = RayCluster(initialize_head=True, head_node_args={"num_cpus": 8, "include_dashboard": False})
    os.environ["RAY_ADDRESS"] = head.address
    profiling = {"backend": "nsight", "worker_groups": ["ActorGroup"], "steps": [2], "output_dir": directory,
                 "options": {"t": "nvtx"}}  # fmt: skip
    cluster = Cluster(cluster_cfg=OmegaConf.create({"num_nodes": 1, "component_placement": {}, "profiling": profiling}))
    group = Trainer.create_group().launch(cluster, NodePlacementStrategy([0, 0]), name="ActorGroup")
    runner, found = Runner(group), {"steps": []}
    # asked of one worker: a group whose method fails ends its driver
    failing = group.worker_info_list[0].worker.fails
    for step in (1, 2, 3):
        if step == 2:
            runner._open_profiling_window(step)
        found["steps"].append(
            [
                called(lambda n: group.run_training(n).wait(), step),
                called(lambda n: group.waits(n).wait(), step),
                called(lambda n: ray.get(failing.remote(n)), step),
            ]
        )
        if step == 2:
            runner._close_profiling_window(step)
    found["durations"] = sorted(group.run_training(1).consume_durations())
    found["dispatch"] = {name: seen(vars_of(Trainer, name), getattr(Trainer, name)) for name in dir(Trainer)}
    # a group has a function for each method of its workers, private ones and those with two underscores too
    found["methods"] = {name: type(getattr(group, name)).__name__ for name in dir(group)}
    ray.shutdown()
    head.shutdown()
    return found


if __name__ == "__main__":
    result = {"verl": verl, "rlinf": rlinf}[sys.argv[1]](sys.argv[2])
    sys.stdout.write("\nRESULT " + json.dumps(result) + "\n")
    sys.stdout.flush()
