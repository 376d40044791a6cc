"""The CUDA runtime and NVML through ctypes, for processes without torch. Nothing here makes a CUDA context by itself."""

from __future__ import annotations

import ctypes
import functools
import glob
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from accelprof.errors import CaptureError
from accelprof.timing.loops import loaded

VISIBLE_ENV = "CUDA_VISIBLE_DEVICES"
NOT_INITIALIZED = 3  # CUDA_ERROR_NOT_INITIALIZED
#: CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: asked of the legacy stream while one that blocks it is captured
CAPTURE_IMPLICIT = 906
RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
CAPTURE_ACTIVE = 1  # CU_STREAM_CAPTURE_STATUS_ACTIVE
LEGACY_STREAM = 1  # CU_STREAM_LEGACY
#: where the kernel driver says which devices there are; containers without NVML (libnvidia-ml) have it too
PROC = "/proc/driver/nvidia"
CUDART_NAMES = ("libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so")
#: where wheels (nvidia-cuda-runtime) and toolkits keep the runtime when the loader does not know it
CUDART_GLOBS = (
    "{site}/nvidia/cu*/lib/libcudart.so.*",
    "{site}/nvidia/cuda_runtime/lib/libcudart.so.*",
    "/usr/local/cuda*/lib64/libcudart.so.*",
)


def torch_cuda() -> Any | None:
    """``torch.cuda`` when torch is imported already and was built for CUDA; never imports it."""
    torch = loaded("torch")
    if torch is None or getattr(getattr(torch, "version", None), "cuda", None) is None:
        return None
    return torch.cuda


def loaded_cudart() -> ctypes.CDLL | None:
    """The runtime library that this process uses already; another copy would start another capture."""
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


def loaded_driver() -> Any | None:
    """The CUDA driver library, where this process has loaded it; loads none."""
    try:
        return ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None


def cuda_in_use() -> bool:
    """Whether CUDA was initialised in this process; asks the driver that is loaded and loads none."""
    driver = loaded_driver()
    return driver is not None and bool(driver.cuCtxGetCurrent(ctypes.byref(ctypes.c_void_p())) != NOT_INITIALIZED)


def wait_for_devices() -> None:
    """Wait for all work of this process on every device that it uses, whichever library submitted it (torch, CuPy, JAX …).

    Makes no context: where CUDA is not initialised, or a device is not in use, there is nothing to wait for. Other Python
    threads go on meanwhile.

    Raises:
        CaptureError: a stream is being captured as a CUDA graph, and waiting would end that capture; or a device has failed.
    """
    driver = loaded_driver()
    if driver is None:
        return
    current, count = ctypes.c_void_p(), ctypes.c_int(0)
    if driver.cuCtxGetCurrent(ctypes.byref(current)) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return  # not initialised here (or in the parent of a fork only)
    if graph_being_captured(driver):
        raise CaptureError("a CUDA graph is being captured here, and waiting for the device would break it")
    failed: dict[int, int] = {}
    if current.value is not None:
        failed[-1] = driver.cuCtxSynchronize()
    for number in range(count.value):
        failed[number] = _wait_for(driver, number, current.value)
    errors = sorted({code for code in failed.values() if code != 0})
    if errors:
        raise CaptureError(f"the device answered CUDA error {', '.join(map(str, errors))} while it was waited for")


def _wait_for(driver: Any, number: int, current: int | None) -> int:
    """Wait for the primary context of a device (the runtime's, which torch uses), if there is one; a CUDA error code."""
    device, flags, active = ctypes.c_int(0), ctypes.c_uint(0), ctypes.c_int(0)
    if driver.cuDeviceGet(ctypes.byref(device), number) != 0:
        return 0
    state = driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
    if state != 0 or not active.value:
        return 0
    context = ctypes.c_void_p()
    code = int(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))  # it is there: none is made
    if code != 0:
        return code
    try:
        if context.value == current:
            return 0  # waited for already
        code = int(driver.cuCtxPushCurrent_v2(context))
        if code != 0:
            return code
        try:
            return int(driver.cuCtxSynchronize())
        finally:
            driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
    finally:
        driver.cuDevicePrimaryCtxRelease_v2(device)


class CurrentStreams:
    """``streams(device)``: torch's current stream there.

    ``torch.cuda.current_stream`` makes a new object each time, which takes 6 µs on an H100's host, and ``Event.record`` calls it:
    twice as long as the rest of recording. Torch's own word on which stream that is costs a tenth; its objects are kept.
    """

    KEPT = 256

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self._known: dict[Any, object] = {}
        private = getattr(sys.modules.get("torch"), "_C", None)
        self._which = getattr(private, "_cuda_getCurrentStream", None)

    def __call__(self, device: int) -> Any:
        """The stream; ``None`` where torch does not tell which (the event looks it up itself then)."""
        if self._which is None:
            return None
        try:
            which = self._which(device)
            stream = self._known.get(which)
            if stream is None:
                number, index, kind = which
                stream = self._cuda.Stream(stream_id=number, device_index=index, device_type=kind)
                if len(self._known) >= self.KEPT:
                    self._known.clear()
                self._known[which] = stream
        except Exception:  # noqa: BLE001 - private to torch: where it is another, the event looks the stream up itself
            self._which = None
            return None
        return stream


class outside_captures:  # noqa: N801 - used as a function is
    """A context in which this thread may read events while another captures a CUDA graph.

    A capture in CUDA's default mode forbids that to every thread, and ends with ``cudaErrorStreamCaptureInvalidated``; torch's
    allocator and NCCL's watchdog go out of its way by the same call.
    """

    __slots__ = ("_driver", "_mode")

    def __enter__(self) -> None:
        self._driver = loaded_driver()
        self._mode = ctypes.c_int(RELAXED)
        self._exchange()

    def __exit__(self, *_: object) -> None:
        self._exchange()

    def _exchange(self) -> None:
        """Take the mode that is kept here for the thread's, and keep that one."""
        if self._driver is not None:
            self._driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(self._mode))


def graph_being_captured(driver: Any | None = None) -> bool:
    """Whether a stream is being captured as a CUDA graph: the one torch uses on this thread, or the one that ``torch.cuda.graph``
    captures on by itself on whichever thread, or any that blocks the legacy default stream. Disturbs no capture."""
    cuda = torch_cuda()
    if cuda is not None and cuda.is_initialized():
        if cuda.is_current_stream_capturing():
            return True
        default = getattr(getattr(cuda, "graph", None), "default_capture_stream", None)
        if default is not None and _is_captured(driver or loaded_driver(), default.cuda_stream):
            return True
    return _is_captured(driver or loaded_driver(), LEGACY_STREAM)


def _is_captured(driver: Any | None, stream: int) -> bool:
    """``cuStreamIsCapturing`` of one stream of the current context."""
    if driver is None:
        return False
    status = ctypes.c_int(0)
    code = driver.cuStreamIsCapturing(ctypes.c_void_p(stream), ctypes.byref(status))
    return bool(code == CAPTURE_IMPLICIT or (code == 0 and status.value == CAPTURE_ACTIVE))


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
        match = re.search(r"\b\d+\.\d+(?:\.\d+)*\b", _text_of(f"{PROC}/version"))
        return match[0] if match else ""
    buffer = ctypes.create_string_buffer(96)
    return buffer.value.decode() if library.nvmlSystemGetDriverVersion(buffer, len(buffer)) == 0 else ""


def all_devices() -> list[Mapping[str, Any]]:
    """Every NVIDIA device of the machine: index, name, uuid, memory in bytes; independent of ``CUDA_VISIBLE_DEVICES``.

    Without NVML the kernel driver's own list, which does not know the memory.
    """
    library = _nvml()
    if library is None:
        return _devices_of_proc()
    count = ctypes.c_uint(0)
    if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
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
        facts = {"name": name.value.decode(), "uuid": uuid.value.decode(), "memory": int(memory[0])}
        found.append({"index": index, **facts})
    return found


def _devices_of_proc() -> list[Mapping[str, Any]]:
    """Devices that the kernel driver lists and this process (or container) has a device file of, in PCI order."""
    found: list[Mapping[str, Any]] = []
    for place in sorted(glob.glob(f"{PROC}/gpus/*/information")):
        facts = dict(re.findall(r"^([^:\n]+):[ \t]*(.*)$", _text_of(place), re.MULTILINE))
        minor = facts.get("Device Minor", "").strip()
        if minor and not os.path.exists(f"/dev/nvidia{minor}"):
            continue
        name, uuid = facts.get("Model", "NVIDIA device").strip(), facts.get("GPU UUID", "").strip()
        found.append({"index": len(found), "name": name, "uuid": uuid})
    return found


def _text_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""


def visible_devices() -> list[Mapping[str, Any]]:
    """The devices this process sees, in its own numbering (``index``); ``physical`` is the machine's."""
    chosen = devices = all_devices()
    value = os.environ.get(VISIBLE_ENV)
    if value is not None:
        chosen = []
        for word in (part.strip() for part in value.split(",")):
            match = [d for d in devices if word == str(d["index"]) or (len(word) > 4 and d["uuid"].startswith(word))]
            if word.startswith("MIG-"):
                match = [{"index": None, "name": "MIG instance", "uuid": word}]
            if not match:
                break  # CUDA ends the list at the first entry it does not know
            chosen.extend(match)
    return [{**device, "index": index, "physical": device["index"]} for index, device in enumerate(chosen)]
