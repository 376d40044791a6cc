"""The example accelerator: its driver is a list in this process."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from accelprof.contracts.backend import Backend, BoundRange, DeviceTimer, Probe, RangeSpec

#: set to anything to make the example accelerator "present", as a driver's device file would
DEVICE_ENV = "EXAMPLE_ACCELERATOR"


class Driver:
    """What a vendor's library would be: it takes ranges and work, and records them between ``start`` and ``stop``."""

    def __init__(self) -> None:
        self.recording = False
        self.events: list[tuple[str, str, int, int]] = []  # (what, label, time in ns, thread)
        self.work: list[
            tuple[str, int, int, int, int]
        ] = []  # (kernel, launch, thread, begin and end on the device in ns)
        self._ids = itertools.count(1)

    def start(self) -> None:
        self.events, self.work, self.recording = [], [], True

    def stop(self) -> None:
        self.recording = False

    def note(self, what: str, label: str) -> int:
        if self.recording:
            self.events.append((what, label, time.time_ns(), threading.get_ident()))
        return next(self._ids)

    def launch(self, kernel: str, duration_ns: int = 1000) -> None:
        """What a program calls to have work done; the device begins a little later."""
        begun = time.time_ns()
        if self.recording:
            self.work.append((kernel, begun, threading.get_ident(), begun + 500, begun + 500 + duration_ns))


DRIVER = Driver()


class ExampleBackend(Backend):
    """Ranges and capture of the example accelerator."""

    name: ClassVar[str] = "example"
    aliases: ClassVar[tuple[str, ...]] = ("EXAMPLE_XPU",)

    def probe(self) -> Probe:
        if not os.environ.get(DEVICE_ENV):
            return Probe(None, f"no example device; set {DEVICE_ENV}=1 to pretend there is one")
        return Probe(100, f"{DEVICE_ENV} is set")

    def bind(self, spec: RangeSpec) -> BoundRange:
        """Everything that can be worked out beforehand is; what remains is one call of the driver."""
        note, label = DRIVER.note, spec.label
        return BoundRange(
            push=lambda: note("push", label),
            pop=lambda: note("pop", label),
            start=lambda: note("start", label),
            end=lambda handle: note("end", label),
        )

    def mark(self, spec: RangeSpec) -> None:
        DRIVER.note("mark", spec.label)

    def capture_start(self) -> None:
        DRIVER.start()

    def capture_stop(self) -> None:
        DRIVER.stop()

    def device_timer(self) -> DeviceTimer:
        return ExampleTimer()

    def devices(self) -> list[Mapping[str, Any]]:
        return [{"index": 0, "name": "Example 1000"}] if os.environ.get(DEVICE_ENV) else []

    def memory(self) -> Mapping[str, int]:
        return {"allocated": 0}


class ExampleTimer(DeviceTimer):
    """Device events of a device that is as fast as the host: their times are the host's."""

    def __init__(self) -> None:
        self._begun = 0
        self._ended: int | None = None

    def begin(self) -> None:
        self._begun = time.perf_counter_ns()

    def finish(self) -> None:
        self._ended = time.perf_counter_ns()

    def resolve(self) -> int | None:
        return None if self._ended is None else self._ended - self._begun
