"""What ``accelprof doctor`` says about CUDA and Nsight Systems on this node."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time

from accelprof.contracts.doctor import Check
from accelprof_cuda import domains, installation, vendor

#: the newest version seen with dummy NVTX domains; ours work all the same, those of other libraries do not
SILENT_UP_TO = (2023, 4)
PARANOID = "/proc/sys/kernel/perf_event_paranoid"
TRIAL_TIMEOUT = 60
FREE_BYTES = 1 << 30


def checks(output_dir: str) -> list[Check]:
    """One row per fact; nothing here initialises a device."""
    rows = [_driver(), _nvtx()]
    nsys = installation.find()
    if nsys is None:
        mend = "install Nsight Systems and put nsys on PATH (CUDA toolkits bring it); Debian: component non-free, package nsight-systems"
        return [*rows, Check("cuda", "nsys", "warn", "not on PATH and in no CUDA or Nsight installation", mend)]
    rows += [_version(nsys), _importer(nsys), _paranoid(), _trial(nsys), _space(output_dir)]
    return rows


def _driver() -> Check:
    driver, devices = vendor.driver_version(), vendor.visible_devices()
    if not driver:
        detail = "no NVIDIA driver on this node; its processes can still be recorded by nsys (NVTX)"
        return Check("cuda", "driver", "info", detail)
    if not devices:
        mend = f"look at {vendor.VISIBLE_ENV} and nvidia-smi"
        return Check("cuda", "driver", "warn", f"driver {driver}, no device visible", mend)
    names = ", ".join(sorted({str(device["name"]) for device in devices}))
    return Check("cuda", "driver", "ok", f"driver {driver}, {len(devices)} device(s): {names}")


def _nvtx() -> Check:
    reason = domains.reason_not_importable()
    if reason is not None:
        return Check("cuda", "nvtx", "fail", reason, f"pip install 'nvtx>={domains.OLDEST}'")
    return Check("cuda", "nvtx", "ok", f"nvtx {domains.version()}")


def _version(nsys: str) -> Check:
    version = installation.version(nsys)
    if not version:
        return Check("cuda", "nsys", "fail", f"{nsys} does not answer --version", "reinstall Nsight Systems")
    numbers = tuple(int(part) for part in version.split(".")[:2])
    if numbers <= SILENT_UP_TO:
        detail = f"{version} at {nsys}; with nvtx >= {domains.OLDEST} it records no ranges but accelprof's own"
        return Check("cuda", "nsys", "info", detail, "Nsight Systems 2025.3 records ranges of nvtx.annotate too")
    return Check("cuda", "nsys", "ok", f"{version} at {nsys}")


def _importer(nsys: str) -> Check:
    importer = installation.importer(nsys)
    if importer is None:
        detail = f"no QdstrmImporter for {nsys}: windows leave .qdstrm files in place of reports"
        mend = "install Nsight Systems in full, or read the .qdstrm files where it is"
        return Check("cuda", "nsys importer", "warn", detail, mend)
    try:
        done = installation.run([importer, "--version"], 30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("cuda", "nsys importer", "warn", f"{importer}: {error}", "reinstall Nsight Systems")
    if done.returncode != 0:
        detail = f"{importer} does not start: {installation.last_line(done)}"
        mend = "install the library it names (libdw1 on Debian and Ubuntu, for instance)"
        return Check("cuda", "nsys importer", "warn", detail, mend)
    return Check("cuda", "nsys importer", "ok", importer)


def _paranoid() -> Check:
    try:
        with open(PARANOID, encoding="ascii") as file:
            level = int(file.read())
    except (OSError, ValueError):
        return Check("cuda", "perf_event_paranoid", "info", "not readable; CPU sampling by nsys may not work")
    if level > 2:
        detail = f"{level}: nsys cannot sample the CPU (preset full); preset light does not need it"
        return Check("cuda", "perf_event_paranoid", "info", detail, "sysctl kernel.perf_event_paranoid=2")
    return Check("cuda", "perf_event_paranoid", "ok", str(level))


def _trial(nsys: str) -> Check:
    """The flags that windows are taken with, around this interpreter: one range, one report."""
    code = (
        "from accelprof_cuda.backend import CudaBackend as B; from accelprof.contracts.backend import RangeSpec as R;"
        "b = B(); r = R('window', 'accelprof-doctor'); b.push(r); b.pop(r)"
    )
    with tempfile.TemporaryDirectory(prefix="accelprof-doctor-") as scratch:
        argv = [nsys, "profile", "-t", "cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--capture-range=nvtx"]
        argv += ["--nvtx-capture=window@accelprof-doctor", "--capture-range-end=repeat:1", "--kill=none"]
        argv += ["-o", os.path.join(scratch, "trial"), sys.executable, "-c", code]
        began = time.monotonic()
        try:
            done = installation.run(argv, TRIAL_TIMEOUT)
        except (OSError, subprocess.TimeoutExpired) as error:
            mend = "run the command by hand to see why"
            return Check("cuda", "nsys window", "fail", f"a trial window did not end: {error}", mend)
        took = time.monotonic() - began
        left = sorted(os.listdir(scratch))
    if "trial.nsys-rep" in left:
        return Check("cuda", "nsys window", "ok", f"a trial window left its report in {took:.1f} s")
    what, said = ", ".join(left) or "nothing", installation.last_line(done)
    mend = "see the importer's row; docs/cuda.md lists the causes of silence"
    return Check("cuda", "nsys window", "fail", f"a trial window left {what} (status {done.returncode}): {said}", mend)


def _space(output_dir: str) -> Check:
    place = os.path.abspath(output_dir)
    while not os.path.exists(place):
        place = os.path.dirname(place)
    free = shutil.disk_usage(place).free
    text = f"{free / 1e9:.1f} GB free for reports in {place}"
    if free < FREE_BYTES:
        mend = "reports of a training step take tens to hundreds of MB; choose another output_dir"
        return Check("cuda", "space for reports", "warn", text, mend)
    return Check("cuda", "space for reports", "ok", text)
