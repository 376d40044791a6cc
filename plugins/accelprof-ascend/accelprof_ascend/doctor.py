"""What ``accelprof doctor`` says about torch_npu and CANN on this node. Nothing here starts a device."""

from __future__ import annotations

import os
import shutil

from accelprof.contracts.doctor import Check
from accelprof.versions import installed
from accelprof_ascend import vendor
from accelprof_ascend.backend import NpuBackend
from accelprof_ascend.msprof import wheel_passes_ranges
from accelprof_ascend.options import ABILITIES

AREA = "ascend"


def checks(output_dir: str) -> list[Check]:
    """One row per fact."""
    if not vendor.installed():
        return [Check(AREA, "torch_npu", "info", "torch_npu is not installed; NPUs cannot be used here"), *_readers()]
    reason = vendor.reason_not_loadable()
    if reason is not None:
        return [Check(AREA, "torch_npu", "fail", reason, "source CANN's set_env.sh"), *_environment(), *_readers()]
    return [_torch_npu(), _abilities(), _mstx(), *_environment(), _msprof(), *_readers()]


def _torch_npu() -> Check:
    probe = NpuBackend().probe()
    if probe.available:
        return Check(AREA, "torch_npu", "ok", probe.reason)
    return Check(AREA, "torch_npu", "warn", probe.reason, f"look at npu-smi info and {vendor.VISIBLE_ENV}")


def _abilities() -> Check:
    parameters = vendor.config_parameters()
    if parameters is None:
        return Check(AREA, "profiler options", "warn", "this torch_npu has no profiler._ExperimentalConfig")
    missing = sorted({ability.option for ability in ABILITIES if ability.argument not in parameters})
    if missing:
        detail = f"torch_npu {vendor.installed()} does not have: {', '.join(missing)}"
        return Check(AREA, "profiler options", "info", detail, "a newer .postN of the same torch_npu may have them")
    return Check(AREA, "profiler options", "ok", "every option of tool npu is there")


def _mstx() -> Check:
    can = NpuBackend().abilities()
    if not can.ranges:
        return Check(AREA, "mstx", "warn", "this torch_npu has no mstx ranges; phases will not be in its data")
    lacks = [word for word, there in (("domains", can.domain), ("push/pop", can.push_pop)) if not there]
    passes = "reach msprof too" if wheel_passes_ranges() else "do not reach msprof"
    without = f", without {' and '.join(lacks)}" if lacks else ""
    return Check(AREA, "mstx", "ok", f"ranges are there{without}; they {passes}")


def _environment() -> list[Check]:
    home = os.environ.get(vendor.HOME_ENV)
    without = Check(AREA, vendor.HOME_ENV, "warn", vendor.NO_HOME, "source CANN's set_env.sh")
    rows = [Check(AREA, vendor.HOME_ENV, "ok", home) if home else without]
    for text in vendor.set_in_environment(vendor.SILENCING):
        rows.append(Check(AREA, "environment", "fail", text, "unset it for tool npu"))
    for text in vendor.set_in_environment(vendor.INTERFERING):
        rows.append(Check(AREA, "environment", "warn", text, "unset it while tool npu is used"))
    return rows


def _msprof() -> Check:
    path = shutil.which("msprof")
    if path is None:
        detail = "not on PATH: analyses hold the host side only, and tool msprof cannot be used"
        return Check(AREA, "msprof", "warn", detail, "source CANN's set_env.sh")
    return Check(AREA, "msprof", "ok", path)


def _readers() -> list[Check]:
    version = installed("msprof-analyze")
    if version is None:
        mend = "pip install 'accelprof-ascend[compare]'"
        return [Check(AREA, "msprof-analyze", "info", "not installed; accelprof npu-compare needs it", mend)]
    return [Check(AREA, "msprof-analyze", "ok", f"{version}, for accelprof npu-compare")]
