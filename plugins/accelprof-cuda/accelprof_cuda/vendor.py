"""The CUDA runtime and NVML through ctypes, for processes without torch. Nothing here makes a CUDA context by itself."""

from __future__ import annotations

import ctypes
import functools
import glob
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from accelprof.errors import CaptureError

VISIBLE_ENV = "CUDA_VISIBLE_DEVICES"
NOT_INITIALIZED = 3  # CUDA_ERROR_NOT_INITIALIZED
CUDART_NAMES = ("libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so")
#: where wheels (nvidia-cuda-runtime) and toolkits keep the runtime when the loader does not know it
CUDART_GLOBS = (
    "{site}/nvidia/cu*/lib/libcudart.so.*",
    "{site}/nvidia/cuda_runtime/lib/libcudart.so.*",
    "/usr/local/cuda*/lib64/libcudart.so.*",
)


def torch_cuda() -> Any | None:
    """``torch.cuda`` when torch is imported already and was built for CUDA; never imports it."""
    torch = sys.modules.get("torch")
    if torch is None or getattr(getattr(torch, "version", None), "cuda", None) is None:
        return None
    return torch.cuda


def loaded_cudart() -> ctypes.CDLL | None:
    """The runtime library that this process uses already; another copy would be another gate."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            paths = sorted({line.split(maxsplit=5)[-1].strip() for line in file if "libcudart" in line})
    except OSError:
        return None
    return ctypes.CDLL(paths[0]) if paths else None


@functools.cache
def cudart() -> ctypes.CDLL:
    """The CUDA runtime library, loaded now.

    Raises:
        CaptureError: it is not on this machine.
    """
    for path in _cudart_candidates():
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    raise CaptureError(
        f"the CUDA runtime library is not here (looked for {', '.join(CUDART_NAMES)} and below "
        f"{', '.join(CUDART_GLOBS)}); import torch before the window, or install nvidia-cuda-runtime"
    )


def _cudart_candidates() -> Iterator[str]:
    yield from CUDART_NAMES
    for site in sys.path:
        for pattern in CUDART_GLOBS:
            yield from sorted(glob.glob(pattern.format(site=site or ".")), reverse=True)


def profiler_call(name: str) -> None:
    """``cudaProfilerStart`` or ``cudaProfilerStop`` of the runtime library in use, of torch's binding, or loaded for it.

    Through ctypes where possible: nsys writes its report inside the call, and ctypes lets other Python threads go on.

    Raises:
        CaptureError: the call failed, or there is no CUDA here.
    """
    cuda = torch_cuda()
    try:
        library = loaded_cudart()
        if library is None and cuda is not None:
            library = cuda.cudart()
        code = getattr(cudart() if library is None else library, name)()
    except (RuntimeError, AttributeError, AssertionError) as error:
        raise CaptureError(f"{name} cannot be called: {error}") from error
    if int(code) != 0:
        raise CaptureError(f"{name} answered CUDA error {int(code)}")


def cuda_in_use() -> bool:
    """Whether CUDA was initialised in this process; asks the driver that is loaded and loads none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return False
    return bool(driver.cuCtxGetCurrent(ctypes.byref(ctypes.c_void_p())) != NOT_INITIALIZED)


@functools.cache
def _nvml() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return library if library.nvmlInit_v2() == 0 else None


def driver_version() -> str:
    """Version of the NVIDIA driver; empty without one."""
    library = _nvml()
    if library is None:
        return ""
    buffer = ctypes.create_string_buffer(96)
    return buffer.value.decode() if library.nvmlSystemGetDriverVersion(buffer, len(buffer)) == 0 else ""


def all_devices() -> list[Mapping[str, Any]]:
    """Every NVIDIA device of the machine: index, name, uuid, memory in bytes; independent of ``CUDA_VISIBLE_DEVICES``."""
    library = _nvml()
    count = ctypes.c_uint(0)
    if library is None or library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return []
    found: list[Mapping[str, Any]] = []
    for index in range(count.value):
        handle = ctypes.c_void_p()
        if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != 0:
            continue
        name, uuid = ctypes.create_string_buffer(96), ctypes.create_string_buffer(96)
        memory = (ctypes.c_ulonglong * 3)()  # nvmlMemory_t: total, free, used
        library.nvmlDeviceGetName(handle, name, len(name))
        library.nvmlDeviceGetUUID(handle, uuid, len(uuid))
        library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
        found.append(
            {"index": index, "name": name.value.decode(), "uuid": uuid.value.decode(), "memory": int(memory[0])}
        )
    return found


def visible_devices() -> list[Mapping[str, Any]]:
    """The devices this process sees, in its own numbering (``index``); ``physical`` is the machine's."""
    devices = all_devices()
    value = os.environ.get(VISIBLE_ENV)
    if value is None:
        chosen = devices
    else:
        chosen = []
        for word in (part.strip() for part in value.split(",")):
            match = [
                d for d in devices if word == str(d["index"]) or (len(word) > 4 and str(d["uuid"]).startswith(word))
            ]
            if word.startswith("MIG-"):
                match = [{"index": None, "name": "MIG instance", "uuid": word}]
            if not match:
                break  # CUDA ends the list at the first entry it does not know
            chosen.extend(match)
    return [{**device, "index": index, "physical": device["index"]} for index, device in enumerate(chosen)]
