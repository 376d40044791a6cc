"""What the driver can say about tool ``npu`` before anything starts."""

from __future__ import annotations

from collections.abc import Sequence

from accelprof.contracts.targets import Assignment
from accelprof.errors import Problem
from accelprof_ascend import vendor
from accelprof_ascend.options import NpuOptions, lacking


def check(options: NpuOptions, assignments: Sequence[Assignment]) -> list[Problem]:
    """Options that the wheel on this machine lacks, captures without an end."""
    parameters = vendor.config_parameters()
    problems = [] if parameters is None else lacking(options, parameters, vendor.installed())[0]
    endless = next((row.target.label for row in assignments if row.whole_process), None)
    if endless is not None:
        said = (
            f"{endless} would be recorded from start to exit; torch_npu keeps that in memory and on disk without bound"
        )
        mend = "name the steps to record, or choose tool msprof for a whole process"
        problems.append(Problem("steps", said, value="process", allowed="steps, or a schedule", mend=mend))
    return problems


def notes(options: NpuOptions, assignments: Sequence[Assignment]) -> list[str]:
    """What this wheel does in place of what was asked, and where a schedule differs from MindStudio's guide."""
    parameters = vendor.config_parameters()
    found = [] if parameters is None else lacking(options, parameters, vendor.installed())[1]
    for spec in {spec: None for row in assignments for spec in row.schedules}:
        where = f"npu: the schedule on {spec.phase}"
        if spec.repeat != 1:
            found.append(f"{where} repeats; MindStudio advises repeat 1 (here every round leaves its own directory)")
        if spec.warmup < 1:
            found.append(
                f"{where} has no warmup; MindStudio advises 1 or more, or the first recorded call pays for starting"
            )
        if not spec.skip_first + spec.wait:
            found.append(
                f"{where} begins with the first call; with dynamic shapes skip_first leaves the compiling calls out"
            )
    return found
