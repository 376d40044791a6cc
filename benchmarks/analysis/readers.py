"""Reading and attributing traces beside HolisticTraceAnalysis, in one run: processor time and peak memory of each.

Every program is a process of its own; its time is that of the processor, with imports, and its memory the most that it had by its
own account: what the system says of a child begins with what its parent had. Traces are written here, of the shape of real ones.
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
from accelprof.environment import numpy_on_one_thread
numpy_on_one_thread()  # as accelprof report does
from accelprof.analysis.attribution import attribute
from accelprof.analysis.reading import read_any
from accelprof.analysis.seconds import divisions
from accelprof.reading.columns import columns_of
trace = read_any(sys.argv[1], sys.argv[2])
found = attribute(trace)
divisions(columns_of(trace), "w")
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
#: the last line that a program prints: the most memory that it had, in KiB
PEAK = """
with open("/proc/self/status") as status:
    print(next(line.split()[1] for line in status if line.startswith("VmHWM")))
"""
#: another interpreter that has HolisticTraceAnalysis, where this one has not
HTA_PYTHON = "ACCELPROF_BENCH_HTA_PYTHON"


@dataclass
class Cost:
    """``ns`` of processor time, ``peak`` bytes of memory."""

    ns: float
    peak: int


def cost(program: str, *arguments: str, bytecode: Path, python: str = sys.executable) -> Cost:
    """What a program takes once the modules that it imports are compiled, as those of an installed package are.

    ``bytecode``: directory for that; a program's first run fills it.

    Raises:
        RuntimeError: it failed; the message has its last line.
    """
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(bytecode)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryFile() as said:
        command = [python, "-c", program + PEAK, *arguments]
        started = subprocess.Popen(command, stdout=said, stderr=said, env=environment)
        _, status, used = os.wait4(started.pid, 0)
        started.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        lines = said.read().decode(errors="replace").strip().splitlines()
        if started.returncode:
            raise RuntimeError(lines[-1] if lines else f"ended with {started.returncode}")
    return Cost((used.ru_utime + used.ru_stime) * 1e9, int(lines[-1]) * 1024)


def run() -> list[Table]:
    """The tables of this benchmark."""
    with tempfile.TemporaryDirectory(prefix="accelprof-bench-") as scratch:
        return [*_torch(Path(scratch)), *_nsys(Path(scratch))]


def _torch(scratch: Path) -> list[Table]:
    least, small, large = (scratch / f"{size}.json" for size in (1, 64, 256))
    for path in (least, small, large):
        write_torch(path, int(path.stem) * MB)
    bytecode = scratch / "bytecode"
    cost(OURS, str(least), "torch", bytecode=bytecode)
    ours, four = (cost(OURS, str(path), "torch", bytecode=bytecode) for path in (small, large))
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
        python = os.environ.get(HTA_PYTHON, sys.executable)
        cost(HTA, str(least), bytecode=bytecode, python=python)
        theirs = cost(HTA, str(small), bytecode=bytecode, python=python)
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
        ours = cost(OURS, str(path), "nsys", bytecode=scratch / "bytecode")
    except RuntimeError as error:
        table.skipped["accelprof"] = str(error)
        return [table]
    table.rows = [
        Result("processor time", ours.ns, ours.ns / 60e9, 1.0),
        Result("peak memory", float(ours.peak), ours.peak / 1.5e9, 1.0, note="bytes"),
    ]
    return [table]
