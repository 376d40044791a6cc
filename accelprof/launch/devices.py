"""Whether the processes of a command that is started here will see a device, as far as this machine can tell before the start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from accelprof.contracts.backend import Backend
from accelprof.contracts.targets import Assignment
from accelprof.contracts.tool import ToolUse
from accelprof.errors import AccelprofError, failures


class Names(Protocol):
    """What is asked of the catalogue here."""

    def backend(self, name: str) -> Backend: ...


def as_seen_here(catalogue: Names, assignment: Assignment, uses: Sequence[ToolUse]) -> Assignment:
    """``assignment`` with ``target.has_devices`` filled in, where nobody said it and one of its tools
    (``uses``) serves one accelerator type.

    A command inherits this machine and this environment, so what its backend lists here is what its processes will see,
    unless the command itself changes the variables that choose devices.
    """
    if assignment.target.has_devices is not None or not assignment.selected or not uses:
        return assignment
    found: bool | None = None
    for use in uses:
        for accelerator in sorted(use.tool.accelerators if use.tool is not None else ()):
            try:
                found = found or bool(catalogue.backend(accelerator).devices())
            except AccelprofError:
                continue  # its plug-in is not here, or broken; then nobody knows
            except failures():  # a vendor's enumeration may raise anything; unknown then, and doctor says why
                continue
    return assignment if found is None else replace(assignment, target=replace(assignment.target, has_devices=found))
