"""Device time of a phase by two events of ``torch.npu``."""

from __future__ import annotations

from typing import Any

from accelprof.backend import DeviceTimer


class NpuEventTimer(DeviceTimer):
    """Two events on the current stream; the host waits for neither."""

    __slots__ = ("_begin", "_end", "_npu")

    def __init__(self, npu: Any) -> None:
        self._npu = npu
        self._begin: Any = None
        self._end: Any = None

    def begin(self) -> None:
        self._begin = self._npu.Event(enable_timing=True)
        self._begin.record()

    def finish(self) -> None:
        self._end = self._npu.Event(enable_timing=True)
        self._end.record()

    def resolve(self, wait: bool = False) -> int | None:
        if wait:
            self._end.synchronize()
        elif not self._end.query():
            return None
        milliseconds: float = self._begin.elapsed_time(self._end)
        return round(milliseconds * 1e6)
