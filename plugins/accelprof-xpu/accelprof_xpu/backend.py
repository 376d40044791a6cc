"""Accelerator type ``xpu``: ITT tasks as ranges, ITT's resume and pause as the trigger call, ``torch.xpu`` for device facts.

ITT tasks reach whatever collector ``INTEL_LIBITTNOTIFY64`` names (VTune and unitrace set it for their process). Without one a
task is a call into a static library that does nothing.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Mapping
from typing import Any, ClassVar

from accelprof.contracts import backend as api
from accelprof.contracts.backend import BoundRange, EventTimer, Probe, RangeSpec
from accelprof.contracts.machine import pci_devices, torch_build, torch_module
from accelprof.errors import CaptureError
from accelprof.texts import PLAIN_C_TEXT, quoted

COLLECTOR_ENV = "INTEL_LIBITTNOTIFY64"
#: without ``all`` a collector that brings its own functions hears pause and resume only
GROUPS_ENV = "INTEL_ITTNOTIFY_GROUPS"
DOMAIN = "accelprof"
INTEL = "0x8086"
CARDS = "/sys/class/drm/renderD*/device"


def torch_xpu() -> Any | None:
    """``torch.xpu`` when a torch with devices of this kind is loaded; never imports."""
    return torch_module("xpu", "xpu")


def cards() -> list[str]:
    """PCI addresses of Intel's render devices, as the kernel shows them."""
    return pci_devices(INTEL, CARDS)


class XpuBackend(api.BoundEmitter, api.Backend):
    """See the module. ITT has no instants and no colours: a mark is a task without length."""

    name: ClassVar[str] = "xpu"
    aliases: ClassVar[tuple[str, ...]] = ("INTEL_GPU", "intel")

    def __init__(self) -> None:
        self._itt: Any = None
        self._domains: dict[str, Any] = {}
        self._resumed = False

    @property
    def itt(self) -> Any:
        """The binding's native module.

        Raises:
            CaptureError: it is not installed, or does not load.
        """
        if self._itt is None:
            try:
                self._itt = importlib.import_module("ittapi.native")
            except ImportError as error:
                raise CaptureError(f"ittapi does not load: {error}; pip install ittapi") from None
        return self._itt

    def probe(self) -> Probe:
        if importlib.util.find_spec("ittapi") is None:
            return Probe(None, "unavailable: ittapi is not installed (pip install ittapi)")
        build, found, collector = torch_build("xpu"), cards(), os.environ.get(COLLECTOR_ENV)
        facts = {"torch_xpu": build, "cards": found, "collector": collector}
        if build and found:
            return Probe(100, f"{len(found)} Intel device(s), torch for XPU {build}", facts)
        if collector:
            return Probe(5, f"a collector hears ITT here ({COLLECTOR_ENV}={collector})", facts)
        if found:
            return Probe(None, f"unavailable: {len(found)} Intel device(s), but torch is no build for XPU", facts)
        return Probe(None, f"unavailable: no Intel device ({CARDS}), and no collector ({COLLECTOR_ENV})", facts)

    # --- ranges -----------------------------------------------------------------------------------------------------

    def bind(self, spec: RangeSpec) -> BoundRange:
        itt, name = self.itt, quoted(spec.domain or DOMAIN, PLAIN_C_TEXT)
        domain = self._domains.get(name) or self._domains.setdefault(name, itt.Domain(name))
        handle = itt.StringHandle(quoted(str(spec.label), PLAIN_C_TEXT))
        begin, make, finish = itt.task_begin_overlapped, itt.Id, itt.task_end_overlapped

        def start() -> Any:
            number = make(domain)
            begin(domain, handle, number)
            return number

        return BoundRange(
            functools.partial(itt.task_begin, domain, handle),
            functools.partial(itt.task_end, domain),
            start,
            lambda number: finish(domain, number),
        )

    def mark(self, spec: RangeSpec) -> Any:
        bound = self.bind(spec)
        bound.push()
        bound.pop()

    # --- capturing --------------------------------------------------------------------------------------------------

    def capture_start(self) -> None:
        self.itt.resume()
        self._resumed = True

    def capture_stop(self) -> None:
        if self._resumed:
            self._resumed = False
            self.itt.pause()

    # --- the device -------------------------------------------------------------------------------------------------

    def synchronize(self) -> None:
        api.wait_for_devices(torch_xpu())

    def device_timer(self) -> api.DeviceTimer | None:
        xpu: Any = torch_xpu()
        used = xpu is not None and xpu.is_initialized()
        return EventTimer(functools.partial(xpu.Event, enable_timing=True)) if used else None

    def devices(self) -> list[Mapping[str, Any]]:
        xpu = torch_xpu()
        if xpu is not None and xpu.is_initialized():
            return [{"index": number, "name": xpu.get_device_name(number)} for number in range(xpu.device_count())]
        return [{"index": number, "name": "Intel GPU", "pci": pci} for number, pci in enumerate(cards())]

    def memory(self) -> Mapping[str, int]:
        xpu: Any = torch_xpu()
        used = xpu is not None and xpu.is_initialized()
        return {"allocated": int(xpu.memory_allocated()), "reserved": int(xpu.memory_reserved())} if used else {}
