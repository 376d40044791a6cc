"""Backend ``cuda``: the contract, the probe's reasons, devices, colours."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
from accelprof_cuda import colors, domains, vendor
from accelprof_cuda.backend import CudaBackend

from accelprof.contracts.backend import RangeSpec
from accelprof.errors import CaptureError
from accelprof.testing import BackendConformance

TWO = [
    {"index": 0, "name": "NVIDIA H100", "uuid": "GPU-aaaa1111", "memory": 1},
    {"index": 1, "name": "NVIDIA H100", "uuid": "GPU-bbbb2222", "memory": 1},
]


class TestCudaBackendConforms(BackendConformance):
    """The conformance kit; NVTX ranges need nvtx and no device."""

    def make(self) -> CudaBackend:
        return CudaBackend()

    def usable(self, backend: Any) -> bool:
        return domains.reason_not_importable() is None


def test_names() -> None:
    """RLinf's NV_GPU and the vendor's name are the same accelerator type."""
    from accelprof.catalogue import get_catalogue

    for word in ("cuda", "NV_GPU", "nv_gpu", "nvidia", "NVIDIA"):
        assert get_catalogue().backend_class(word) is CudaBackend


def test_probe_without_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a driver the backend is unavailable and says so."""
    monkeypatch.setattr(vendor, "_nvml", lambda: None)
    monkeypatch.setattr(domains, "injected", lambda: False)
    probe = CudaBackend().probe()
    assert not probe.available
    assert "no NVIDIA driver" in probe.reason


def test_probe_with_hidden_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that CUDA_VISIBLE_DEVICES leaves without devices says which value did that."""
    monkeypatch.setattr(vendor, "all_devices", lambda: TWO)
    monkeypatch.setattr(vendor, "driver_version", lambda: "580.1")
    monkeypatch.setattr(domains, "injected", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert (
        CudaBackend().probe().reason
        == "unavailable: driver 580.1, but no device; CUDA_VISIBLE_DEVICES='' hides the machine's"
    )
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert CudaBackend().probe().priority == 100


def test_probe_of_a_host_process_under_a_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without a device that runs under an NVTX tool has the backend: its window is an NVTX range."""
    monkeypatch.setattr(vendor, "_nvml", lambda: None)
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "/somewhere/lib.so")
    probe = CudaBackend().probe()
    assert probe.priority is not None
    assert 0 < probe.priority < 100


def test_probe_without_nvtx(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without nvtx the reason names the package to install."""
    monkeypatch.setitem(sys.modules, "nvtx", None)
    probe = CudaBackend().probe()
    assert not probe.available
    assert "pip install 'nvtx>=0.2.12'" in probe.reason


@pytest.mark.parametrize(
    ("value", "physical"),
    [
        (None, [0, 1]),
        ("1", [1]),
        ("1,0", [1, 0]),
        ("", []),
        ("-1", []),
        ("0,7,1", [0]),
        ("GPU-bbbb", [1]),
        ("MIG-1-2", [None]),
    ],
)
def test_visible_devices(monkeypatch: pytest.MonkeyPatch, value: str | None, physical: list[int | None]) -> None:
    """CUDA_VISIBLE_DEVICES by number and by uuid: order kept, the list ends at the first unknown entry, as CUDA does it."""
    monkeypatch.setattr(vendor, "all_devices", lambda: TWO)
    if value is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    found = vendor.visible_devices()
    assert [device["physical"] for device in found] == physical
    assert [device["index"] for device in found] == list(range(len(physical)))


def test_devices_without_nvml(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A container that has no libnvidia-ml still has its devices: the kernel driver lists them, and the variable chooses."""
    for number, uuid in enumerate(("GPU-aaaa1111", "GPU-bbbb2222")):
        place = tmp_path / "gpus" / f"0000:{number}7:00.0"
        place.mkdir(parents=True)
        (place / "information").write_text(f"Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 19\nGPU UUID: \t {uuid}\n")
    (tmp_path / "gpus" / "0000:a7:00.0").mkdir()  # one that this container has no device file of
    (tmp_path / "gpus" / "0000:a7:00.0" / "information").write_text("Model: \t other\nDevice Minor: \t 250\n")
    (tmp_path / "version").write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Fri\nGCC version: 12\n"
    )
    monkeypatch.setattr(vendor, "_nvml", lambda: None)
    monkeypatch.setattr(vendor, "PROC", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [(d["index"], d["name"], d["uuid"]) for d in CudaBackend().devices()] == [
        (0, "NVIDIA H100 80GB HBM3", "GPU-aaaa1111"),
        (1, "NVIDIA H100 80GB HBM3", "GPU-bbbb2222"),
    ]
    assert vendor.driver_version() == "580.159.04"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-bbbb")
    assert [d["physical"] for d in CudaBackend().devices()] == [1]


@pytest.mark.parametrize(
    ("color", "argb"),
    [
        ("green", 0xFF008000),
        ("Rapids", 0xFF7400FF),
        ("#ff8800", 0xFFFF8800),
        ("#f80", 0xFFFF8800),
        ("nonsense", None),
        ("#12345", None),
        ("#zzzzzz", None),
    ],
)
def test_colors(color: str, argb: int | None) -> None:
    """CSS names and hex numbers become opaque ARGB; what is no colour is left to the tool."""
    assert colors.to_argb(color) == argb


def test_capture_without_cuda_is_a_capture_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """No capture starts on a machine without CUDA, and it is said what was looked for; stopping stays harmless."""
    monkeypatch.setattr(vendor, "torch_cuda", lambda: None)
    monkeypatch.setattr(vendor, "loaded_cudart", lambda: None)
    monkeypatch.setattr(vendor, "_cudart_candidates", lambda: iter(["/nonexistent/libcudart.so"]))
    vendor.cudart.cache_clear()
    backend = CudaBackend()
    with pytest.raises(CaptureError, match="libcudart"):
        backend.capture_start()
    backend.capture_stop()


def test_a_failed_profiler_call_is_a_capture_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error code of cudaProfilerStart is raised and nothing counts as started."""

    class Runtime:
        calls: ClassVar[list[str]] = []

        def cudaProfilerStart(self) -> int:
            self.calls.append("start")
            return 35

        def cudaProfilerStop(self) -> int:
            self.calls.append("stop")
            return 0

    monkeypatch.setattr(vendor, "torch_cuda", lambda: None)
    monkeypatch.setattr(vendor, "loaded_cudart", Runtime)
    backend = CudaBackend()
    with pytest.raises(CaptureError, match="error 35"):
        backend.capture_start()
    backend.capture_stop()
    assert Runtime.calls == ["start"]


def test_no_device_timer_before_cuda_is_in_use() -> None:
    """Device events are not offered by a process that has not initialised CUDA, so none is initialised for them."""
    assert CudaBackend().device_timer() is None


def test_current_streams_are_torchs_own_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream that torch names, one object for each as torch's ``current_stream`` makes it; where torch no longer tells, or
    its answer is of another shape, there is none, and the event looks it up itself."""
    import inspect
    import sys
    import types

    torch = pytest.importorskip("torch", reason="torch is not installed")
    source = inspect.getsource(torch.cuda.current_stream)
    assert "torch._C._cuda_getCurrentStream(" in source
    assert "stream_id=streamdata[0], device_index=streamdata[1], device_type=streamdata[2]" in source
    current = [(7, 0, 1)]
    fake = types.SimpleNamespace(_C=types.SimpleNamespace(_cuda_getCurrentStream=lambda device: current[0]))
    monkeypatch.setitem(sys.modules, "torch", fake)
    made: list[dict[str, int]] = []

    class Cuda:
        @staticmethod
        def Stream(**where: int) -> object:
            made.append(where)
            return object()

    streams = vendor.CurrentStreams(Cuda)
    first = streams(0)
    assert streams(0) is first
    current[0] = (8, 0, 1)
    assert streams(0) is not first
    assert made == [
        {"stream_id": 7, "device_index": 0, "device_type": 1},
        {"stream_id": 8, "device_index": 0, "device_type": 1},
    ]
    current[0] = (8, 0)  # type: ignore[assignment]
    assert streams(0) is None
    fake._C = types.SimpleNamespace()
    assert vendor.CurrentStreams(Cuda)(0) is None


def test_labels_are_resolved_once() -> None:
    """The same range gets the same callables; a new colour or category gets its own."""
    backend = CudaBackend()
    spec = RangeSpec("actor/update", "", "green", "train")
    assert backend.bind(spec) is backend.bind(RangeSpec("actor/update", "", "green", "train"))
    assert backend.bind(spec) is not backend.bind(spec._replace(color="red"))


def test_a_stub_with_push_and_pop_alone_keeps_those(monkeypatch: pytest.MonkeyPatch) -> None:
    """An nvtx that cannot start and end ranges still nests them; what would have been suspended is simply left out."""
    calls: list[str] = []

    class Domain:
        def get_event_attributes(self, **attributes: Any) -> str:
            return str(attributes["message"])

        def push_range(self, made: str) -> None:
            calls.append(f"push {made}")

        def pop_range(self) -> None:
            calls.append("pop")

    monkeypatch.setattr(domains, "domain", lambda name: Domain())
    bound = CudaBackend().bind(RangeSpec("actor/update"))
    bound.push()
    bound.pop()
    bound.end(bound.start())
    assert calls == ["push actor/update", "pop"]


def test_a_step_while_another_thread_binds() -> None:
    """A range bound by another thread while a step is announced does not end the announcement."""
    backend = CudaBackend()

    class Attributes:
        """Binds one more range when its payload is set, as another thread would between two of them."""

        @property
        def payload(self) -> int:
            return 0

        @payload.setter
        def payload(self, step: int) -> None:
            backend._attributes[RangeSpec(f"late {len(backend._attributes)}")] = (None, None)

    for label in ("one", "two"):
        backend._attributes[RangeSpec(label)] = (None, Attributes())
    backend.step_begin(3)
    assert len(backend._attributes) == 4


def test_a_stop_that_failed_can_be_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture counts as running until the driver has stopped it, so a second stop reaches the driver."""
    calls: list[str] = []

    def call(name: str) -> None:
        calls.append(name)
        if calls == ["cudaProfilerStart", "cudaProfilerStop"]:
            raise CaptureError("busy")

    monkeypatch.setattr(vendor, "profiler_call", call)
    backend = CudaBackend()
    backend.capture_start()
    with pytest.raises(CaptureError):
        backend.capture_stop()
    backend.capture_stop()
    backend.capture_stop()
    assert calls == ["cudaProfilerStart", "cudaProfilerStop", "cudaProfilerStop"]


def test_memory_is_what_torch_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """One question for all three figures gives what torch's three functions give each; nothing before CUDA is in use."""
    torch = pytest.importorskip("torch")
    asked = []

    def stats(device: Any = None) -> dict[str, int]:
        asked.append(device)
        return {"allocated_bytes.all.current": 7, "allocated_bytes.all.peak": 11, "reserved_bytes.all.current": 20}

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(vendor, "torch_cuda", lambda: torch.cuda)
    assert CudaBackend().memory() == {}
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_stats", stats)
    monkeypatch.setattr(torch.cuda.memory, "memory_stats", stats)
    found = CudaBackend().memory()
    assert len(asked) == 1
    assert found == {
        "allocated": torch.cuda.memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "max_allocated": torch.cuda.max_memory_allocated(),
    }
