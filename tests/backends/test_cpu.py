"""The backend of a machine without an accelerator."""

from __future__ import annotations

from accelprof.backends.cpu import CpuBackend
from accelprof.testing import BackendConformance


class TestCpu(BackendConformance):
    """The embedded default keeps the contract."""

    def make(self):
        return CpuBackend()
