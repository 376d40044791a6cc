"""The embedded default: a machine without an accelerator. Ranges go nowhere; our own timeline still has them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from accelprof.backend import Backend, BoundRange, DeviceTimer, Probe, RangeSpec


def _nothing(*_: Any) -> None:
    return None


_NO_RANGE = BoundRange(_nothing, _nothing, _nothing, _nothing)


class CpuBackend(Backend):
    """Always available, lowest priority."""

    name: ClassVar[str] = "cpu"
    aliases: ClassVar[tuple[str, ...]] = ("host", "none")

    def probe(self) -> Probe:
        return Probe(0, "no accelerator is needed", {"cores": os.cpu_count() or 0})

    def bind(self, spec: RangeSpec) -> BoundRange:
        return _NO_RANGE

    def device_timer(self) -> DeviceTimer:
        return CpuTimer()

    def memory(self) -> Mapping[str, int]:
        try:
            with open("/proc/self/statm", encoding="ascii") as file:
                return {"resident": int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")}
        except (OSError, ValueError, IndexError):
            return {}


class CpuTimer(DeviceTimer):
    """CPU time of the calling thread in ns; on a machine without a device that is the device time."""

    def __init__(self, clock: Callable[[], int] = time.thread_time_ns) -> None:
        self._clock, self._begun, self._taken = clock, 0, 0

    def begin(self) -> None:
        self._begun = self._clock()

    def finish(self) -> None:
        self._taken = self._clock() - self._begun

    def resolve(self, wait: bool = False) -> int | None:
        return self._taken
