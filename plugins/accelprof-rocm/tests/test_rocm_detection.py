"""Which accelerator a process has: torch's build, the driver's topology, Ray's variables; and what doctor says of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from accelprof_rocm import doctor, vendor
from accelprof_rocm.backend import RocmBackend

from accelprof.catalogue import Catalogue, make_catalogue
from accelprof.contracts.backend import Backend, Probe
from accelprof.contracts.hookspecs import hookimpl


@pytest.fixture
def topology(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``topology(2)``: the driver shows a CPU and that many GPUs."""

    def make(gpus: int) -> None:
        root = tmp_path / "nodes"
        for node in range(gpus + 1):
            place = root / str(node)
            place.mkdir(parents=True)
            facts = (
                {"cpu_cores_count": 64, "simd_count": 0}
                if node == 0
                else {"simd_count": 1024, "gfx_target_version": 90500, "unique_id": node}
            )
            (place / "properties").write_text("".join(f"{name} {value}\n" for name, value in facts.items()))
        kfd = tmp_path / "kfd"
        kfd.write_text("")
        monkeypatch.setattr(vendor, "TOPOLOGY", str(root))
        monkeypatch.setattr(vendor, "KFD", str(kfd))

    return make


@pytest.fixture
def library(compiled: Callable[..., Path], use: Any) -> Any:
    return use(compiled("librocprofiler-sdk-roctx.so.1", "-DSDK"))


@pytest.fixture
def hip_torch(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A loaded torch whose version says ROCm; its device is not initialised."""
    cuda = SimpleNamespace(is_initialized=lambda: False)
    torch = SimpleNamespace(version=SimpleNamespace(hip="7.0.51831", cuda=None), cuda=cuda)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch


class Cuda(Backend):
    """A backend that claims what the hardware of NVIDIA would give it."""

    name = "fake-cuda"

    def probe(self) -> Probe:
        return Probe(100, "a CUDA device")


@pytest.fixture
def catalogue() -> Catalogue:
    made = make_catalogue()
    made.register(SimpleNamespace(accelprof_backends=hookimpl(lambda: [Cuda], specname="accelprof_backends")), "fake")
    return made


def test_torchs_rocm_build_wins_over_cuda(topology: Any, library: Any, hip_torch: Any, catalogue: Catalogue) -> None:
    """torch.cuda answers on ROCm too; torch.version.hip says which it is."""
    topology(2)
    detected = catalogue.detect()
    assert detected.backend.name == "rocm"
    assert "torch for ROCm 7.0.51831" in detected.reason


def test_hardware_alone_does_not_win_over_a_cuda_device(
    topology: Any, library: Any, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With both vendors' devices and torch built for the other one, the build decides."""
    monkeypatch.setattr(vendor, "torch_hip", lambda: None)
    topology(1)
    assert RocmBackend().probe().priority == 90
    assert catalogue.detect().backend.name == "fake-cuda"


@pytest.mark.parametrize("alias", ["rocm", "AMD_GPU", "amd", "hip", "HIP"])
def test_every_spelling_names_the_backend(alias: str) -> None:
    """Frameworks' names for the type are aliases, without regard to case."""
    assert make_catalogue().backend_class(alias) is RocmBackend


def test_the_build_is_read_without_importing_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``torch/version.py`` of a ROCm build has the release, a CPU build has None."""
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    version = package / "version.py"
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    for line, expected in (
        ("hip: Optional[str] = '6.2.41133-dd7f95766'", "6.2.41133-dd7f95766"),
        ("hip: Optional[str] = None", None),
        ("", None),
    ):
        version.write_text(f"__version__ = '2.13.0'\ncuda: Optional[str] = None\n{line}\n")
        assert vendor.torch_hip() == expected


@pytest.mark.parametrize(
    ("env", "physical"),
    [
        ({}, [0, 1, 2, 3]),
        ({"HIP_VISIBLE_DEVICES": "2,0"}, [2, 0]),
        ({"HIP_VISIBLE_DEVICES": ""}, []),
        ({"HIP_VISIBLE_DEVICES": "NoDevFiles"}, []),
        ({"HIP_VISIBLE_DEVICES": "1,9,0"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "3"}, [3]),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "3"}, [1]),
        ({"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "1"}, [3]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-0000000000000003"}, [2]),
    ],
)  # fmt: skip
def test_visible_devices(
    topology: Any, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], physical: list[int]
) -> None:
    """Ray's variable counts within what ROCR leaves; the list ends at the first entry that is unknown."""
    topology(4)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    devices = RocmBackend().devices()
    assert [device["physical"] for device in devices] == physical
    assert [device["index"] for device in devices] == list(range(len(physical)))
    assert {device["name"] for device in devices} <= {"gfx950"}


def test_hidden_devices_are_named(topology: Any, library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU actor on a GPU node says which variable hides the devices."""
    topology(1)
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "")
    probe = RocmBackend().probe()
    assert not probe.available
    assert probe.reason == "unavailable: HIP_VISIBLE_DEVICES='' hides the machine's devices"


def test_a_process_that_a_tool_records_has_the_backend(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host-only worker under rocprofv3 emits ranges; without the tool the reason says that there is no device."""
    assert "no AMD device" in RocmBackend().probe().reason
    monkeypatch.setenv("ROCP_TOOL_LIBRARIES", "/opt/rocm/lib/librocprofiler-sdk-tool.so")
    probe = RocmBackend().probe()
    assert probe.priority == 10
    assert probe.facts["roctx_source"] == "sdk"
    assert "listen" in probe.facts["roctx_reason"]


def test_no_range_before_torch_has_initialised_the_device(topology: Any, library: Any, hip_torch: Any) -> None:
    """With devices and an unknown listener, ranges begin when the device is up."""
    from accelprof.contracts.backend import RangeSpec

    topology(1)
    backend = RocmBackend()
    bound = backend.bind(RangeSpec("a"))
    bound.push()
    hip_torch.cuda.is_initialized = lambda: True
    bound.pop()
    bound.push()
    bound.pop()
    assert [call.kind for call in library()] == ["push", "pop"]


# --- doctor -------------------------------------------------------------------------------------------------------------


def rows(found: Any) -> dict[str, tuple[str, str]]:
    return {row.name: (row.status, row.detail) for row in found}


def test_doctor_without_anything_of_amd() -> None:
    """Nothing fails on a machine that is not AMD's; each row says what was looked for. In a process of its own, because a library
    that another test loaded into this one would count."""
    program = (
        "import json, sys\n"
        "sys.modules['rocm.bindings.roctx'] = None\n"
        "from accelprof_rocm import doctor\n"
        "print(json.dumps([[row.name, row.status, row.detail] for row in doctor.checks()]))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    found = {name: (status, detail) for name, status, detail in json.loads(done.stdout)}
    assert {status for status, _ in found.values()} == {"info"}
    assert found["driver"][1].startswith("no AMD driver")
    assert "none of rocprofv3" in found["tools"][1]


def test_doctor_tries_what_is_installed(rocm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools below ROCM_PATH, their release, the library that won and why, and a launch with a window's own flags."""
    place = rocm(7, 0)
    monkeypatch.setenv("ROCM_PATH", str(place.root))
    found = rows(doctor.checks(sys.executable))
    assert found["roctx"][0] == "ok"
    assert "librocprofiler-sdk-roctx.so.1 (the SDK's library" in found["roctx"][1]
    for program, how in (
        ("rocprofv3", "windows pause and resume it"),
        ("rocprof-sys-python", "from start to exit"),
        ("rocprof-sys-run", "from start to exit"),
        ("rocprof-sys-sample", "from start to exit"),
    ):
        assert found[program] == (
            "ok",
            f"{place.program(program)}, ROCm 7.0: {'it records ' + how + '; windows are cut when read' if 'exit' in how else how}",
        )
        assert found[f"{program} trial"] == ("ok", f"starts {sys.executable} with the flags of a window"), found
    assert "omnitrace-python" not in found


def test_doctor_names_a_tool_that_does_not_start(rocm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bindings that are not of the interpreter's version fail the trial, with the launcher's own words."""
    root = tmp_path / "rocm"
    shutil.copytree(rocm(7, 0).root, root)
    (root / "lib/python/site-packages/rocprofsys/__main__.py").write_text(
        "raise ModuleNotFoundError('libpyrocprofsys')"
    )
    monkeypatch.setenv("ROCM_PATH", str(root))
    status, detail = rows(doctor.checks(sys.executable))["rocprof-sys-python trial"]
    assert status == "fail"
    assert "trial script was not run" in detail or "libpyrocprofsys" in detail


def test_doctor_says_what_ray_refuses(topology: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """ROCR_VISIBLE_DEVICES without HIP's makes Ray raise in every worker; without amdsmi it counts no GPU."""
    topology(2)
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "0")
    found = rows(doctor.checks())
    assert found["visible devices"][0] == "fail"
    assert "Ray raises RuntimeError" in found["visible devices"][1]
    assert found["amdsmi"] == ("warn", "not importable: Ray counts no AMD GPU")
    assert found["driver"] == ("ok", "2 GPU(s)")
    os.environ.pop("ROCR_VISIBLE_DEVICES")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0")
    assert rows(doctor.checks())["visible devices"] == ("ok", "HIP_VISIBLE_DEVICES='0'")


# --- waiting ------------------------------------------------------------------------------------------------------------


def test_the_end_of_a_window_waits_for_the_devices_in_use(hip_torch: Any) -> None:
    """HIP's devices that torch has used, through torch; none is started for it, and without a ROCm build nothing is asked."""
    waited: list[Any] = []
    hip_torch.cuda.synchronize = lambda device=None: waited.append(device)
    hip_torch.cuda.device_count, hip_torch.cuda.current_device = lambda: 3, lambda: 0
    hip_torch._C = SimpleNamespace(_cuda_hasPrimaryContext=lambda number: number == 2)
    RocmBackend().synchronize()
    assert waited == []
    hip_torch.cuda.is_initialized = lambda: True
    RocmBackend().synchronize()
    assert waited == [None, 2]
    hip_torch.version.hip = None
    RocmBackend().synchronize()
    assert waited == [None, 2]


@pytest.mark.parametrize("installed", [True, False])
def test_doctor_says_which_it_is_with_torch(monkeypatch: pytest.MonkeyPatch, installed: bool) -> None:
    """A torch that is another vendor's build is not called absent, nor one that is absent a wrong build."""
    monkeypatch.setattr(vendor, "torch_hip", lambda: None)
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: object() if installed else None)
    said = doctor._torch().detail
    assert said == ("torch is no ROCm build (torch.version.hip is not set)" if installed else "torch is not installed")
