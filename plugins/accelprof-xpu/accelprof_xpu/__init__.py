"""Intel GPUs: the accelerator ``xpu``, the tools ``vtune`` and ``unitrace``. Hooks import what they need when they are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from accelprof.contracts.hookspecs import hookimpl


@hookimpl
def accelprof_backends() -> Sequence[type[object]]:
    from accelprof_xpu.backend import XpuBackend

    return [XpuBackend]


@hookimpl
def accelprof_tools() -> Sequence[type[object]]:
    from accelprof_xpu.tools import UnitraceTool, VtuneTool

    return [VtuneTool, UnitraceTool]


@hookimpl
def accelprof_doctor(node: Mapping[str, Any]) -> Sequence[Any]:
    from accelprof_xpu.doctor import checks

    return checks()
