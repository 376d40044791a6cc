"""JAX on TPU, GPU and CPU: the accelerator ``xla`` and the tool ``jax``. Hooks import what they need when they are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from accelprof.contracts.hookspecs import hookimpl


@hookimpl
def accelprof_backends() -> Sequence[type[object]]:
    from accelprof_xla.backend import XlaBackend

    return [XlaBackend]


@hookimpl
def accelprof_tools() -> Sequence[type[object]]:
    from accelprof_xla.tool import JaxTool

    return [JaxTool]


@hookimpl
def accelprof_doctor(node: Mapping[str, Any]) -> Sequence[Any]:
    from accelprof_xla.doctor import checks

    return checks()
