"""What verl's own code starts, and what it calls the vendors' profilers with, from each composed file that it ships, as JSON.

Only hardware is stood in for: a ``torch_npu`` that notes what it is made with, ``torch.profiler.profile`` and the calls on
torch's allocator history likewise. Profilers are made as verl's workers make them, for each role from its own section.

usage: verl_calls.py FILE, with verl on the path"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import torch
import verl
import yaml
from omegaconf import OmegaConf
from verl.single_controller.ray import RayWorkerGroup
from verl.utils import omega_conf_to_dataclass
from verl.utils.profiler import DistProfiler, ProfilerConfig, profile
from verl_starts import alone, every_start

ALL_NPU, ALL_TORCH = "[npu,cpu,memory,shapes,module,stack]", "[cuda,cpu,memory,shapes,stack]"
CONTENTS = {
    "npu": ("[]", "[npu]", "[cpu]", "[shapes]", ALL_NPU),
    "torch": ("[]", "[cuda]", "[cpu]", "[stack]", ALL_TORCH),
}
SCHEDULES = ("", "active=1", "active=2 wait=1 skip_first=1", "active=2 repeat=2")
noted: list[dict[str, object]] = []


def names(activities: object) -> list[str]:
    """``cpu`` and the device's; an empty list is what torch and torch_npu take for all."""
    found = sorted({str(item).rpartition(".")[2].lower() for item in activities or ()})  # type: ignore[attr-defined]
    return found or ["all"]


class Noted:
    """Stands for a profiler of torch or torch_npu."""

    def __init__(self, tool: str, **given: object) -> None:
        experimental = given.pop("experimental_config", None) or {}
        handler = given.pop("on_trace_ready", None)
        row = {key: value for key, value in given.items() if key != "activities"}
        if isinstance(handler, dict):
            row |= handler
        noted.append({"tool": tool, "activities": names(given.get("activities")), **row, **experimental})

    def __getattr__(self, _: str) -> object:
        return lambda *args, **more: None


def stand_in() -> types.ModuleType:
    """A ``torch_npu`` of which verl's profiler needs nothing more."""
    module, npu = types.ModuleType("torch_npu"), types.ModuleType("torch_npu.npu")
    module.__version__ = "2.7.1"  # type: ignore[attr-defined]
    npu.mstx = mock.MagicMock()  # type: ignore[attr-defined]
    module.npu = npu  # type: ignore[attr-defined]

    class Words:
        def __getattr__(self, name: str) -> str:
            return name

    module.profiler = types.SimpleNamespace(  # type: ignore[attr-defined]
        ProfilerLevel=Words(), ExportType=Words(), AiCMetrics=Words(), ProfilerActivity=Words(),
        _ExperimentalConfig=lambda **given: {
            key: value if isinstance(value, (bool, list, str)) else str(value) for key, value in given.items()
        },
        tensorboard_trace_handler=lambda path, analyse_flag: {"analysis": analyse_flag},
        profile=lambda **given: Noted("npu", **given),
    )  # fmt: skip
    sys.modules |= {"torch_npu": module, "torch_npu.npu": npu}
    return module


class Worker:
    """What verl's workers have of a profiler."""

    @DistProfiler.annotate(role="update", scheduled=True)
    def update(self) -> None:
        pass


def calls(section: object, tool: str) -> dict[str, object]:
    """What one profiled step of a worker with this ``profiler`` section calls, or what it raises."""
    del noted[:]
    memory = sys.modules.get("verl.utils.profiler.torch_memory_profile", profile)
    for name in ("torch_profile", "mstx_profile", "profile"):
        module = sys.modules.get(f"verl.utils.profiler.{name}")
        for kind in ("NPUProfiler", "Profiler"):
            if hasattr(getattr(module, kind, None), "_define_count"):
                getattr(module, kind)._define_count = 0
    if hasattr(memory, "TorchMemoryProfiler"):
        memory.TorchMemoryProfiler._memory_history_enabled = False
    worker = Worker()
    try:
        worker.profiler = DistProfiler(  # type: ignore[attr-defined]
            0,
            config=omega_conf_to_dataclass(section, dataclass_type=ProfilerConfig),
            tool_config=omega_conf_to_dataclass(section.tool_config[tool]),  # type: ignore[attr-defined]
        )
        worker.profiler.start(profile_step=2)  # type: ignore[attr-defined]
        worker.update()
        worker.profiler.stop()  # type: ignore[attr-defined]
    except Exception as error:  # what a release raises is what is asked for
        return {"raised": type(error).__name__, "calls": list(noted)}
    return {"raised": "", "calls": list(noted)}


def variants(section: object) -> Iterator[tuple[str, list[str]]]:
    """Tools, and changes of a role's section that this release's file has keys for; first each as it is shipped."""
    tools = section.tool_config  # type: ignore[attr-defined]
    yield from (("npu", []), ("torch", []), ("torch_memory", []))
    for contents, discrete in itertools.product(CONTENTS["npu"], ("false", "true")):
        yield "npu", [f"npu.contents={contents}", f"npu.discrete={discrete}"]
    yield from (("npu", [f"npu.level={level}"]) for level in ("level_none", "level0", "level1", "level2"))
    yield from (("npu", [f"npu.analysis={analysis}"]) for analysis in ("false", "true"))
    if "contents" in tools.torch:
        schedules = SCHEDULES if "schedule" in tools.torch else ("",)
        for contents, discrete in itertools.product(CONTENTS["torch"], ("false", "true")):
            yield "torch", [f"torch.contents={contents}", f"torch.discrete={discrete}"]
        for schedule in filter(None, schedules):
            yield "torch", [f"torch.schedule.{word}" for word in schedule.split()]
    else:
        yield from (
            ("torch", changes) for changes in (["torch.step_end=3"], ["torch.step_start=1", "torch.step_end=3"])
        )
    yield "torch_memory", ["torch_memory.trace_alloc_max_entries=7"]


def every_start_of_nsys() -> dict[str, object]:
    """Per file the options with which verl's worker group has Ray wrap its workers, for the steps 2 and 5."""
    found: dict[str, object] = {}
    inside = ("_init_with_resource_pool", "_init_with_detached_workers", "_bind_worker_method")
    with contextlib.ExitStack() as stack:
        for name in inside:  # the actors themselves
            stack.enter_context(mock.patch.object(RayWorkerGroup, name))
        for path in sorted(Path(verl.__file__).parent.glob("trainer/config/_generated_*.yaml")):
            text = yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
            if "actor_rollout_ref" in text:
                options = dict(text["global_profiler"]["global_tool_config"]["nsys"]["worker_nsight_options"])
                group = RayWorkerGroup(
                    mock.MagicMock(), mock.MagicMock(fused_worker_used=False), profile_steps=[2, 5],
                    worker_nsight_options=options,
                )  # fmt: skip
                found[path.name] = group.worker_nsight_options
    return found


def every_call() -> dict[str, object]:
    """Per case of file, role, tool and change: the changes, what was called, and what was raised."""
    found: dict[str, object] = {}
    with contextlib.ExitStack() as stack:
        stand_in()
        stack.enter_context(mock.patch("torch.profiler.profile", lambda **given: Noted("torch", **given)))
        stack.enter_context(mock.patch("torch.profiler.schedule", lambda **given: given))
        with contextlib.suppress(ImportError):
            importlib.import_module("verl.utils.profiler.torch_memory_profile")  # from 0.9.0 on
        memory = sys.modules.get("verl.utils.profiler.torch_memory_profile", profile)

        def history(**given: object) -> None:
            noted.append({"tool": "torch_memory", **given})

        def dumped(self: object, out_dir: str, tag: str, sub_dir: str) -> None:
            noted.append({"tool": "torch_memory", "snapshot": sub_dir})

        stack.enter_context(mock.patch.object(memory, "enable_memory_visualize", history))
        stack.enter_context(mock.patch.object(memory.MemorySnapshotSampler, "dump_memory_snapshot", dumped))
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
        for path in sorted(Path(verl.__file__).parent.glob("trainer/config/_generated_*.yaml")):
            text = yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
            if "actor_rollout_ref" not in text:
                continue
            places = {"actor": "actor_rollout_ref.actor", "ref": "actor_rollout_ref.ref", "critic": "critic"}
            if "profiler" in text.get("reward_model", {}):
                places["reward_model"] = "reward_model"
            for role, place in places.items():
                small = alone(text, "actor_rollout_ref.actor", place)  # others point at the actor's
                every = list(variants(OmegaConf.select(OmegaConf.create(small), place).profiler))
                # a section that points at the actor's is not changed: what points would be replaced
                main = path.name == "_generated_ppo_trainer.yaml"
                if not main or role != "actor":
                    every = [(tool, changes) for tool, changes in every if not changes]
                cases = [(tool, changes, "true") for tool, changes in every]
                cases += [(tool, changes, "false") for tool, changes in every if main and not changes]
                if main and role == "actor":  # the role's own word, and none for all of them
                    cases += [(tool, ["tool"], "true") for tool, changes in every if not changes]
                for tool, changes, enable in cases:
                    composed = OmegaConf.create(small)
                    own = [f"{place}.profiler.enable={enable}", f"{place}.profiler.ranks=[0]"]
                    if changes == ["tool"]:
                        own += [f"{place}.profiler.tool={tool}", "global_profiler.tool=null"]
                    else:
                        own += [f"{place}.profiler.tool_config.{change}" for change in changes]
                        own.append(f"global_profiler.tool={tool}")
                    own.append("global_profiler.steps=[2]")
                    composed.merge_with_dotlist(own)
                    OmegaConf.resolve(composed)  # verl's driver does
                    row = calls(OmegaConf.select(composed, place).profiler, tool)
                    found[f"{path.name} {role} {tool} {' '.join(changes)} enable={enable}"] = {
                        **row, "changes": own, "tool": tool, "role": role,
                    }  # fmt: skip
    return found


if __name__ == "__main__":
    made = {"starts": every_start(), "calls": every_call(), "nsys": every_start_of_nsys()}
    Path(sys.argv[1]).write_text(json.dumps(made))
