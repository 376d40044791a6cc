"""The hooks by which accelprof finds this distribution (entry-point group ``accelprof``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accelprof.contracts.backend import Backend
from accelprof.contracts.doctor import Check
from accelprof.contracts.hookspecs import hookimpl
from accelprof.contracts.tool import Tool


@hookimpl
def accelprof_backends() -> list[type[Backend]]:
    from accelprof_cuda.backend import CudaBackend

    return [CudaBackend]


@hookimpl
def accelprof_tools() -> list[type[Tool]]:
    from accelprof_cuda.nsys import NsysTool
    from accelprof_cuda.nsys_sessions import NsysSessionTool

    return [NsysTool, NsysSessionTool]


@hookimpl
def accelprof_doctor(node: Mapping[str, Any]) -> list[Check]:
    from accelprof_cuda.doctor import checks

    return checks(str(node.get("output_dir") or "."))
