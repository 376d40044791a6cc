"""Sends NeMo-RL's timers and its workers' profiling calls through accelprof, in this process.

Its driver goes on as it is: whom its patterns name is wrapped in nsys by Ray, and told when to start and stop. What those
calls do in the workers is ours. No file of Ray is changed.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from accelprof.compat import nemo_rl as ours
from accelprof.compat.patching import Patches, check_version

VERSIONS = ("0.3", "0.4", "0.5", "0.6")
TIMER = "nemo_rl.utils.timer"
#: modules with classes that run in workers; a release has some of them, and imports them when it needs them
WORKERS = (
    "nemo_rl.models.policy.workers.base_policy_worker",
    "nemo_rl.models.policy.workers.dtensor_policy_worker",
    "nemo_rl.models.policy.workers.dtensor_policy_worker_v2",
    "nemo_rl.models.policy.workers.megatron_policy_worker",
    "nemo_rl.models.policy.dtensor_policy_worker",
    "nemo_rl.models.policy.dtensor_policy_worker_v2",
    "nemo_rl.models.policy.megatron_policy_worker",
    "nemo_rl.models.policy.fsdp1_policy_worker",
    "nemo_rl.models.generation.vllm_backend",
    "nemo_rl.models.generation.vllm.vllm_backend",
    "nemo_rl.models.generation.trtllm.trtllm_backend",
)
CALLS = {"start_gpu_profiling": ours.start_gpu_profiling, "stop_gpu_profiling": ours.stop_gpu_profiling}


def install(patches: Patches, any_version: bool) -> None:
    """See :func:`accelprof.compat.install`."""
    check_version("nemo_rl", VERSIONS, any_version)
    ours.check()
    _timer(patches, importlib.import_module(TIMER).Timer)
    patches.then(ours.process.release)
    for name in WORKERS:
        patches.once_imported(name, lambda module: _workers(patches, module))


def _workers(patches: Patches, module: Any) -> None:
    for cls in list(vars(module).values()):
        # Ray's actor classes keep theirs inside
        plain = getattr(getattr(cls, "__ray_metadata__", None), "modified_class", cls)
        if isinstance(plain, type) and plain.__module__ == module.__name__:
            for name, call in CALLS.items():
                if name in vars(plain):
                    patches.set(plain, name, call)


def _timer(patches: Patches, cls: Any) -> None:
    """``start``/``stop`` as phases; ``time`` goes through them in every release that was read."""
    labels = ours.Labels()
    starts, stops = cls.start, cls.stop

    @functools.wraps(starts)
    def start(self: object, label: str, *args: object, **kwargs: object) -> Any:
        result = starts(self, label, *args, **kwargs)  # raises where the label is running already
        labels.begin(self, label)
        return result

    @functools.wraps(stops)
    def stop(self: object, label: str, *args: object, **kwargs: object) -> Any:
        labels.end(self, label)
        return stops(self, label, *args, **kwargs)

    patches.set(cls, "start", start)
    patches.set(cls, "stop", stop)
    resets = vars(cls).get("reset")
    if resets is None:
        return

    @functools.wraps(resets)
    def reset(self: object, label: str | None = None) -> Any:
        labels.drop(self, label)
        return resets(self, label)

    patches.set(cls, "reset", reset)
