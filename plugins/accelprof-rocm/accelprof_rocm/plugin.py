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
    from accelprof_rocm.backend import RocmBackend

    return [RocmBackend]


@hookimpl
def accelprof_tools() -> list[type[Tool]]:
    from accelprof_rocm.rocprof_attach import RocprofAttachTool, RocprofSysAttachTool
    from accelprof_rocm.rocprof_sys import RocprofSysTool
    from accelprof_rocm.rocprofv3 import Rocprofv3Tool

    return [RocprofSysTool, Rocprofv3Tool, RocprofAttachTool, RocprofSysAttachTool]


@hookimpl
def accelprof_doctor(node: Mapping[str, Any]) -> list[Check]:
    from accelprof_rocm.doctor import checks

    return checks(str(node.get("interpreter") or ""))
