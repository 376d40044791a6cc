"""Rows of ``accelprof doctor`` for Intel's accelerators."""

from __future__ import annotations

import os
import shutil

from accelprof.contracts.doctor import Check
from accelprof.contracts.machine import torch_build
from accelprof_xpu.backend import COLLECTOR_ENV, GROUPS_ENV, XpuBackend, cards


def checks() -> list[Check]:
    probe, found, build = XpuBackend().probe(), cards(), torch_build("xpu")
    shown = f"built for XPU {build}" if build else "no build for XPU (torch.version.xpu is not set)"
    mend = "" if build or not found else "install torch from its xpu index"
    rows = [
        Check("xpu", "backend", "ok" if probe.available else "info", probe.reason),
        Check("xpu", "torch", "ok" if build else "warn" if found else "info", shown, mend),
        *_collector(os.environ.get(COLLECTOR_ENV)),
    ]
    for name in ("vtune", "unitrace"):
        path = shutil.which(name)
        mend = "" if path or not found else f"source oneAPI's setvars.sh, or put {name} on PATH"
        rows.append(Check("xpu", name, "ok" if path else "info", path or "not on PATH", mend))
    return rows


def _collector(path: str | None) -> list[Check]:
    if not path:
        return []
    if not os.path.isfile(path):
        said = f"{COLLECTOR_ENV}={path}: no such file"
        return [Check("xpu", "collector", "fail", said, "ranges reach nobody; give an absolute path")]
    groups = os.environ.get(GROUPS_ENV)
    mend = "" if groups else f"a collector of your own hears pause and resume only without {GROUPS_ENV}=all"
    return [Check("xpu", "collector", "ok" if groups else "warn", f"{path}, groups {groups or 'not set'}", mend)]
