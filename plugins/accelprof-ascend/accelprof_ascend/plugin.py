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
    from accelprof_ascend.backend import NpuBackend

    return [NpuBackend]


@hookimpl
def accelprof_tools() -> list[type[Tool]]:
    from accelprof_ascend.msprof import MsprofTool
    from accelprof_ascend.npu import NpuTool

    return [NpuTool, MsprofTool]


@hookimpl
def accelprof_doctor(node: Mapping[str, Any]) -> list[Check]:
    from accelprof_ascend.doctor import checks

    return checks(str(node.get("output_dir") or "."))


@hookimpl
def accelprof_cli(group: Any) -> None:
    from accelprof_ascend.commands import analyse, npu_compare

    group.add_command(analyse)
    group.add_command(npu_compare)
