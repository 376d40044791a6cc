"""Facts about this machine's ROCm, taken from files and from modules that are loaded already; no device is initialised."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from accelprof.contracts.machine import torch_build, torch_module

#: driver node and topology of the kernel fusion driver (amdkfd)
KFD = "/dev/kfd"
TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"
DEFAULT_ROOT = "/opt/rocm"
ROOT_ENV = ("ROCM_PATH", "ROCM_HOME")
#: HIP numbers the devices that ROCR leaves; the CUDA name is honoured by HIP where its own is not set
ROCR_ENV, HIP_ENV = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"
HIP_ENVS = (HIP_ENV, "CUDA_VISIBLE_DEVICES")
#: seconds between two looks at open files while no device is initialised
LOOK_EVERY = 0.1


def roots() -> list[str]:
    """Directories of ROCm installations, in the order in which they are looked at."""
    named = [os.environ[name] for name in ROOT_ENV if os.environ.get(name)]
    return [path for path in dict.fromkeys([*named, DEFAULT_ROOT]) if os.path.isdir(path)]


def torch_hip() -> str | None:
    """``torch.version.hip`` of the installed torch, read without importing it; ``None`` for other builds or none."""
    return torch_build("hip")


def torch_cuda() -> Any:
    """``torch.cuda`` (HIP's face in torch) when a ROCm build of torch is loaded, else ``None``."""
    return torch_module("cuda", "hip")


def has_context() -> Callable[[int], bool] | None:
    """Whether torch has used the device with a number, as a function that starts none; ``None`` where torch does not say."""
    return getattr(getattr(sys.modules.get("torch"), "_C", None), "_cuda_hasPrimaryContext", None)


def all_devices() -> list[Mapping[str, Any]]:
    """The machine's GPUs by the driver's topology: ``{"index", "name", "gfx", "node", "uuid"}``."""
    found: list[Mapping[str, Any]] = []
    try:
        nodes = sorted((entry for entry in os.listdir(TOPOLOGY) if entry.isdigit()), key=int)
    except OSError:
        return found
    for node in nodes:
        facts = _properties(os.path.join(TOPOLOGY, node, "properties"))
        if not facts.get("simd_count"):
            continue  # a CPU
        gfx, unique = facts.get("gfx_target_version", 0), facts.get("unique_id", 0)
        name = f"gfx{gfx // 10000}{gfx // 100 % 100:x}{gfx % 100:x}" if gfx else "AMD GPU"
        found.append({"index": len(found), "name": name, "gfx": gfx, "node": int(node), "uuid": f"GPU-{unique:016x}"})
    return found


def _properties(path: str) -> dict[str, int]:
    facts: dict[str, int] = {}
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            for line in file:
                name, _, value = line.strip().partition(" ")
                if value.isdigit():
                    facts[name] = int(value)
    except OSError:
        pass  # not readable in this container: the node counts as a CPU
    return facts


def visible_devices() -> list[Mapping[str, Any]]:
    """The devices this process sees, in its own numbering (``index``); ``physical`` is the machine's."""
    chosen = all_devices()
    hip = next((name for name in HIP_ENVS if name in os.environ), None)
    for name in (ROCR_ENV, hip):
        if name is not None and name in os.environ:
            chosen = list(_named(os.environ[name], chosen))
    return [{**device, "index": index, "physical": device["index"]} for index, device in enumerate(chosen)]


def _named(value: str, devices: list[Mapping[str, Any]]) -> Iterator[Mapping[str, object]]:
    for word in (part.strip() for part in value.split(",")):
        if word.isdigit() and int(word) < len(devices):
            yield devices[int(word)]
        elif word.startswith("GPU-") and any(device["uuid"] == word for device in devices):
            yield next(device for device in devices if device["uuid"] == word)
        else:
            return  # the list ends at the first entry that is not known


class DeviceReady:
    """Whether a device has been initialised in this process. Once it has, the answer costs one attribute test."""

    __slots__ = ("_looked", "_ready")

    def __init__(self) -> None:
        self._ready = False
        self._looked = 0.0

    def __call__(self) -> bool:
        if self._ready:
            return True
        cuda = torch_cuda()
        if cuda is not None:
            self._ready = bool(cuda.is_initialized())
            if self._ready:
                return True
        now = time.monotonic()
        if now - self._looked >= LOOK_EVERY or not self._looked:
            self._looked = now
            self._ready = _holds(KFD)
        return self._ready


def _holds(path: str) -> bool:
    """Whether this process has ``path`` open: HIP opens the driver when it is initialised, whoever asked for it."""
    try:
        with os.scandir("/proc/self/fd") as entries:
            return any(os.path.realpath(entry.path) == path for entry in entries)
    except OSError:
        return False
