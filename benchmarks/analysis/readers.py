"""Reading and attributing traces beside HolisticTraceAnalysis, in one run: processor time and peak memory of each.

Every program is a process of its own; its time is that of the processor, with imports, and its memory what the system
counted at most. Traces are written here, of the shape of real ones.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.analysis.traces import write_nsys, write_torch
from benchmarks.harness import Result, Table

MB = 1 << 20
OURS = """
import sys
from accelprof.analysis.attribution import attribute
from accelprof.analysis.reading import read_any
from accelprof.analysis.seconds import device_seconds
from accelprof.reading.columns import columns_of
trace = read_any(sys.argv[1], sys.argv[2])
found = attribute(trace)
device_seconds(columns_of(trace), "w")
assert sum(row.own_kernels for row in found.phases) + found.unattributed + found.unlaunched == found.kernels > 0
"""
HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, include_last_profiler_step=True)
analysis.get_temporal_breakdown(visualize=False)
analysis.get_gpu_kernel_breakdown(visualize=False)
analysis.get_comm_comp_overlap(visualize=False)
"""
#: another interpreter that has HolisticTraceAnalysis, where this one has not
HTA_PYTHON = "ACCELPROF_BENCH_HTA_PYTHON"


@dataclass
class Cost:
    """``ns`` of processor time, ``peak`` bytes of memory."""

    ns: float
    peak: int


def cost(program: str, *arguments: str, python: str = sys.executable) -> Cost:
    """What a program takes.

    Raises:
        RuntimeError: it failed; the message has its last line.
    """
    with tempfile.TemporaryFile() as said:
        started = subprocess.Popen([python, "-c", program, *arguments], stdout=said, stderr=said)
        _, status, used = os.wait4(started.pid, 0)
        started.returncode = os.waitstatus_to_exitcode(status)
        if started.returncode:
            said.seek(0)
            lines = said.read().decode(errors="replace").strip().splitlines()
            raise RuntimeError(lines[-1] if lines else f"ended with {started.returncode}")
    return Cost((used.ru_utime + used.ru_stime) * 1e9, used.ru_maxrss * 1024)


def run() -> list[Table]:
    """The tables of this benchmark."""
    with tempfile.TemporaryDirectory(prefix="accelprof-bench-") as scratch:
        return [*_torch(Path(scratch)), *_nsys(Path(scratch))]


def _torch(scratch: Path) -> list[Table]:
    small, large = scratch / "64.json", scratch / "256.json"
    write_torch(small, 64 * MB)
    write_torch(large, 256 * MB)
    ours, four = cost(OURS, str(small), "torch"), cost(OURS, str(large), "torch")
    floor = "accelprof, 64 MB"
    grown = Table("a torch trace four times as large", floor)
    grown.rows = [
        Result(floor, ours.ns, 1.0),
        Result("accelprof, 256 MB: processor time", four.ns, four.ns / ours.ns, 4.4),
        Result("accelprof, 256 MB: peak memory", float(four.peak), four.peak / ours.peak, 4.4, note="bytes"),
    ]
    title, peer = "a torch trace of 64 MB: read and attributed", "HolisticTraceAnalysis 0.5.0"
    table = Table(title, peer)
    try:
        theirs = cost(HTA, str(small), python=os.environ.get(HTA_PYTHON, sys.executable))
    except RuntimeError as error:
        table.skipped[peer] = str(error)
        table.rows = [Result("accelprof", ours.ns, 1.0)]
        return [table, grown]
    table.rows = [
        Result(f"{peer}: processor time", theirs.ns, 1.0),
        Result("accelprof: processor time", ours.ns, ours.ns / theirs.ns, 0.10),
        Result(f"{peer}: peak memory", float(theirs.peak), 1.0, note="bytes"),
        Result("accelprof: peak memory", float(ours.peak), ours.peak / theirs.peak, 0.5, note="bytes"),
    ]
    return [table, grown]


def _nsys(scratch: Path) -> list[Table]:
    path = scratch / "500.sqlite"
    write_nsys(path, 500 * MB)
    title, limits = "an nsys export of 500 MB: read and attributed", "60 s and 1.5 GB"
    table = Table(title, limits)
    try:
        ours = cost(OURS, str(path), "nsys")
    except RuntimeError as error:
        table.skipped["accelprof"] = str(error)
        return [table]
    table.rows = [
        Result("processor time", ours.ns, ours.ns / 60e9, 1.0),
        Result("peak memory", float(ours.peak), ours.peak / 1.5e9, 1.0, note="bytes"),
    ]
    return [table]
