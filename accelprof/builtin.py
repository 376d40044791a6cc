"""What comes with accelprof, through the same door as any plug-in."""

from __future__ import annotations

from typing import Any

from accelprof.config.dialect import Dialect
from accelprof.contracts.backend import Backend
from accelprof.contracts.exporter import Exporter
from accelprof.contracts.hookspecs import hookimpl
from accelprof.contracts.tool import Tool


@hookimpl
def accelprof_backends() -> list[type[Backend]]:
    from accelprof.backends.cpu import CpuBackend

    return [CpuBackend]


@hookimpl
def accelprof_tools() -> list[type[Tool]]:
    from accelprof.tools.torch import TorchTool
    from accelprof.tools.torch_daemon import TorchDaemonTool
    from accelprof.tools.torch_memory import TorchMemoryTool
    from accelprof.tools.trace import TraceTool

    return [TraceTool, TorchTool, TorchDaemonTool, TorchMemoryTool]


@hookimpl
def accelprof_exporters() -> list[type[Exporter]]:
    from accelprof.exporters.dashboards import Mlflow, TensorBoard, Wandb
    from accelprof.exporters.files import JsonLines, Parquet
    from accelprof.exporters.monitoring import OpenTelemetry, Prometheus, RayMetrics

    return [JsonLines, Parquet, TensorBoard, Wandb, Mlflow, Prometheus, RayMetrics, OpenTelemetry]


@hookimpl
def accelprof_dialects() -> list[Dialect]:
    from accelprof.config.dialects import BUILTIN

    return list(BUILTIN)


@hookimpl
def accelprof_presets() -> dict[str, Any]:
    from accelprof.planning.presets import BUILTIN

    return BUILTIN
