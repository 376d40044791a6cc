"""Accelerator type ``rocm``: ROCTX ranges, the pause/resume trigger call of the SDK's library, HIP events through torch."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Any, ClassVar

from accelprof.contracts.backend import (
    Backend,
    BoundEmitter,
    BoundRange,
    DeviceTimer,
    EventTimer,
    Probe,
    RangeSpec,
    wait_for_devices,
)
from accelprof.errors import CaptureError
from accelprof_rocm import roctx, vendor
from accelprof_rocm.ranges import RoctxRanges

#: environment that AMD's tools set in the process they record
TOOL_ENV = ("ROCP_TOOL_LIBRARIES", "ROCPROFILER_LIBRARY_CTOR", "ROCPROFSYS_", "OMNITRACE_", "HSA_TOOLS_LIB")


def under_tool() -> str | None:
    """Name of the environment variable by which one of AMD's tools shows that it records this process."""
    return next((name for name in sorted(os.environ) if name.startswith(TOOL_ENV)), None)


class RocmBackend(BoundEmitter, Backend):
    """See the module. The library is looked for at first use; which one won, and why, is in ``probe().facts``.

    ``overlapping_ranges`` is False: a tool that can take them brings an emitter of its own.
    """

    name: ClassVar[str] = "rocm"
    aliases: ClassVar[tuple[str, ...]] = ("AMD_GPU", "amd", "hip")
    overlapping_ranges: ClassVar[bool] = False

    def __init__(self) -> None:
        self._ranges: RoctxRanges | None = None
        self._resumed = False

    def probe(self) -> Probe:
        try:
            library = roctx.find(roctx.legacy_tool())
        except roctx.NotFoundError as error:
            return Probe(None, f"unavailable: {error}")
        hip, devices, tool = vendor.torch_hip(), vendor.visible_devices(), under_tool()
        facts = {
            "roctx": library.path,
            "roctx_source": library.source,
            "roctx_reason": roctx.WHY[library.source],
            "torch_hip": hip,
            "devices": devices,
        }
        found = f"ROCTX from {library.source}: {library.path}"
        if devices:
            # above a CUDA backend where torch is a ROCm build, below it where only the hardware speaks for ROCm
            build = f", torch for ROCm {hip}" if hip else ""
            return Probe(110 if hip else 90, f"{len(devices)} AMD device(s){build}, {found}", facts)
        if tool is not None:
            return Probe(10, f"no AMD device in this process, but a tool records it ({tool} is set); {found}", facts)
        hidden = [f"{name}={os.environ[name]!r}" for name in (vendor.ROCR_ENV, *vendor.HIP_ENVS) if name in os.environ]
        if vendor.all_devices() and hidden:
            return Probe(None, f"unavailable: {', '.join(hidden)} hides the machine's devices", facts)
        build = f"torch is built for ROCm {hip}, but " if hip else ""
        return Probe(None, f"unavailable: {build}no AMD device ({vendor.KFD} and its topology show none)", facts)

    # --- ranges -----------------------------------------------------------------------------------------------------

    @property
    def ranges(self) -> RoctxRanges:
        """Ranges for whatever listens: guarded, since the listener is not known."""
        if self._ranges is None:
            try:
                library = roctx.find(roctx.legacy_tool())
            except roctx.NotFoundError as error:
                raise CaptureError(str(error)) from None
            self._ranges = RoctxRanges(library, vendor.DeviceReady() if vendor.visible_devices() else None)
        return self._ranges

    def bind(self, spec: RangeSpec) -> BoundRange:
        return self.ranges.bind(spec)

    def mark(self, spec: RangeSpec) -> None:
        self.ranges.mark(spec)

    # --- capturing --------------------------------------------------------------------------------------------------

    def capture_start(self) -> None:
        library = self.ranges.library
        if library.resume is None:
            raise CaptureError(
                f"{library.path} cannot pause and resume; only the SDK's ROCTX (ROCm 6.2 and later) can, "
                "and HIP's own profiler start does nothing"
            )
        status = library.resume(0)
        if status != 0:
            raise CaptureError(f"roctxProfilerResume(0) answered {status}")
        self._resumed = True

    def capture_stop(self) -> None:
        if self._resumed:
            pause = self.ranges.library.pause
            status = pause(0) if pause is not None else 0
            if status != 0:
                raise CaptureError(f"roctxProfilerPause(0) answered {status}")
            self._resumed = False

    # --- the device -------------------------------------------------------------------------------------------------

    def synchronize(self) -> None:
        wait_for_devices(vendor.torch_cuda(), vendor.has_context())

    def device_timer(self) -> DeviceTimer | None:
        cuda = vendor.torch_cuda()
        if cuda is None or not cuda.is_initialized():
            return None
        return EventTimer(functools.partial(cuda.Event, enable_timing=True))

    def devices(self) -> list[Mapping[str, Any]]:
        return vendor.visible_devices()

    def memory(self) -> Mapping[str, int]:
        cuda = vendor.torch_cuda()
        if cuda is None or not cuda.is_initialized():
            return {}
        return {"allocated": cuda.memory_allocated(), "reserved": cuda.memory_reserved()}
