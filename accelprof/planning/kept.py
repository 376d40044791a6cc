"""What a configuration leaves on the disk, by process and in all."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accelprof.config.model import Config
    from accelprof.contracts.targets import Assignment
    from accelprof.planning.plan import Plan


def keeps(config: Config, assignment: Assignment, exports: bool = False) -> bool:
    """Whether a process keeps rows of its own in the run's directory: it is selected, or its flight recorder runs.

    Args:
        exports: nobody hears of its steps but by its rows, so it keeps them too where they are to be exported.
    """
    return assignment.selected or config.records_always or (exports and config.exports)


def keeps_anything(plan: Plan) -> bool:
    """Whether a run under a controller has a directory: some process may keep something in it, or files of exporters go there."""
    config = plan.config
    return plan.opens() or config.records_always or config.exports or (config.enabled and config.on_demand is not None)
