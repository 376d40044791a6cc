"""The embedded default: a machine without an accelerator. Ranges go nowhere; our own timeline still has them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import ClassVar

from accelprof.contracts.backend import NO_RANGE, Backend, BoundRange, Probe, RangeSpec


class CpuBackend(Backend):
    """Always available, lowest priority."""

    name: ClassVar[str] = "cpu"
    aliases: ClassVar[tuple[str, ...]] = ("host", "none")

    def probe(self) -> Probe:
        return Probe(0, "no accelerator is needed", {"cores": os.cpu_count() or 0})

    def bind(self, spec: RangeSpec) -> BoundRange:
        return NO_RANGE

    def memory(self) -> Mapping[str, int]:
        try:
            with open("/proc/self/statm", encoding="ascii") as file:
                return {"resident": int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")}
        except (OSError, ValueError, IndexError):
            return {}
