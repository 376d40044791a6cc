"""A plug-in of accelprof: an accelerator called ``example`` and a tool called ``example_log``.

Hooks stand here and import what they need when they are called, because
this module is loaded in every process that uses accelprof, whether or not it has this accelerator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import accelprof

if TYPE_CHECKING:
    from accelprof.contracts.backend import Backend
    from accelprof.contracts.doctor import Check
    from accelprof.contracts.tool import Tool


@accelprof.hookimpl
def accelprof_backends() -> Sequence[type[Backend]]:
    from accelprof_example.backend import ExampleBackend

    return [ExampleBackend]


@accelprof.hookimpl
def accelprof_tools() -> Sequence[type[Tool]]:
    from accelprof_example.tool import ExampleLogTool

    return [ExampleLogTool]


@accelprof.hookimpl
def accelprof_doctor(node: Mapping[str, Any]) -> Sequence[Check]:
    from accelprof.contracts.doctor import Check

    return [Check("example", "device", "info", "the example accelerator is made of software; its device is a variable")]
