"""What ``accelprof doctor`` says about ROCm and its tools on this node. Nothing here initialises a device."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace

from accelprof.contracts.doctor import Check
from accelprof.contracts.targets import Assignment, CaptureCount, Launch, Target
from accelprof.numberset import NumberSet
from accelprof_rocm import installation, releases, roctx, vendor
from accelprof_rocm.rocprof import RocprofTool
from accelprof_rocm.rocprof_sys import RocprofSysTool
from accelprof_rocm.rocprofv3 import Rocprofv3Tool

AREA = "rocm"
TRIAL_TIMEOUT = 60.0


def checks(interpreter: str = "") -> list[Check]:
    """One row per fact. ``interpreter``: the workers' Python, default the running one."""
    devices = vendor.all_devices()
    rows = [_driver(devices), _torch(), _library(), *_visible(), _amdsmi(bool(devices))]
    found = [tool for tool in _tools() if installation.find(tool.program) is not None]
    if not found:
        names = "rocprofv3, rocprof-sys-*, omnitrace-*"
        mend = "install rocprofiler-sdk and rocprofiler-systems, or put the ROCm installation's bin on PATH (ROCM_PATH)"
        return [*rows, Check(AREA, "tools", "info", f"none of {names} on PATH or in {_roots()}", mend)]
    for tool in found:
        rows += [_tool(tool), _trial(tool, interpreter or sys.executable)]
    return rows


def _roots() -> str:
    return ", ".join(vendor.roots()) or vendor.DEFAULT_ROOT


def _tools() -> Iterator[RocprofTool]:
    yield Rocprofv3Tool()
    for variant in ("python", "run", "sample"):
        tool = RocprofSysTool({"variant": variant})
        for program in tool.programs():
            yield RocprofSysTool({"variant": variant, "program": program})


def _driver(devices: Sequence[object]) -> Check:
    if not os.path.exists(vendor.KFD):
        return Check(AREA, "driver", "info", f"no AMD driver on this node ({vendor.KFD} is not there)")
    if not os.access(vendor.KFD, os.R_OK | os.W_OK):
        return Check(AREA, "driver", "warn", f"{vendor.KFD} may not be opened", "join the groups render and video")
    if not devices:
        return Check(AREA, "driver", "warn", "the driver is there and shows no GPU", "look at rocminfo and dmesg")
    return Check(AREA, "driver", "ok", f"{len(devices)} GPU(s)")


def _torch() -> Check:
    hip = vendor.torch_hip()
    if hip is None:
        there = importlib.util.find_spec("torch") is not None
        text = "torch is no ROCm build (torch.version.hip is not set)" if there else "torch is not installed"
        return Check(AREA, "torch", "info", text)
    text = f"built for ROCm {hip}; torch.cuda.profiler.start does nothing there, accelprof does not use it"
    return Check(AREA, "torch", "ok", text)


def _library() -> Check:
    try:
        library = roctx.find(roctx.legacy_tool())
    except roctx.NotFoundError as error:
        mend = "install rocprofiler-sdk-roctx (or roctracer up to ROCm 6.3), or set ROCM_PATH"
        return Check(AREA, "roctx", "info", str(error), mend)
    pause = "it can pause" if library.sdk else "it cannot pause"
    status = "ok" if library.sdk else "warn"
    mend = "" if library.sdk else "tools from ROCm 6.4 hear only the SDK's library: install rocprofiler-sdk-roctx"
    return Check(AREA, "roctx", status, f"{library.reason}; {pause}", mend)


def _visible() -> list[Check]:
    """Ray refuses to start workers where the one variable is set and the other is not."""
    rocr, hip = os.environ.get(vendor.ROCR_ENV), os.environ.get(vendor.HIP_ENV)
    if rocr is not None and hip is None:
        text = f"{vendor.ROCR_ENV}={rocr!r} without {vendor.HIP_ENV}: Ray raises RuntimeError in every worker"
        return [Check(AREA, "visible devices", "fail", text, f"set {vendor.HIP_ENV} in its place")]
    shown = f"{vendor.HIP_ENV}={hip!r}" if hip is not None else f"{vendor.HIP_ENV} is not set: all devices"
    return [Check(AREA, "visible devices", "ok" if hip is not None else "info", shown)]


def _amdsmi(devices: bool) -> Check:
    if importlib.util.find_spec("amdsmi") is not None:
        return Check(AREA, "amdsmi", "ok", "importable; Ray counts AMD GPUs with it")
    mend = "pip install the amdsmi that comes with ROCm (<rocm>/share/amd_smi), or give num_gpus to ray start"
    return Check(
        AREA, "amdsmi", "warn" if devices else "info", "not importable: Ray counts no AMD GPU", mend if devices else ""
    )


def _tool(tool: RocprofTool) -> Check:
    path = str(installation.find(tool.program))
    release = installation.release_of(path)
    if release is None:
        text = f"{path}; of which ROCm release is not known"
        return Check(AREA, tool.program, "warn", text, f'state it: tools.{tool.name}.rocm: "7.0"')
    how = "windows pause and resume it" if tool.pausable else "it records from start to exit; windows are cut when read"
    return Check(AREA, tool.program, "ok", f"{path}, ROCm {releases.show(release)}: {how}")


def _trial(tool: RocprofTool, interpreter: str) -> Check:
    """The flags of a window around the workers' interpreter; what it leaves goes to a scratch directory."""
    name = f"{tool.program} trial"
    target = Target("doctor", rank=0, interpreter=(interpreter,))
    assignment = Assignment(target, True, tool.name, mode="steps", steps=NumberSet.parse([1]), count=CaptureCount(1))
    with tempfile.TemporaryDirectory(prefix="accelprof-doctor-") as scratch:
        launch: Launch = replace(tool.launch(assignment, scratch), make_dirs=())
        try:
            done = subprocess.run(
                launch.preflight,
                env={**os.environ, **launch.env},
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=TRIAL_TIMEOUT,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return Check(AREA, name, "fail", f"did not end: {error}", "run it by hand to see why")
    if done.returncode == 0:
        return Check(AREA, name, "ok", f"starts {interpreter} with the flags of a window")
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    said = lines[-1] if lines else "no output"
    bindings = "its Python bindings are built for one version: use variant: run"
    mend = bindings if "python" in tool.program else "see its message"
    return Check(AREA, name, "fail", f"status {done.returncode}: {said}", mend)
