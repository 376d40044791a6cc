"""Waiting for devices, over a driver library that is a stand-in: what is waited for, and when nothing is."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
Tried = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in, compiled under the driver's own name."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("driver") / "libcuda.so.1"
    argv = [
        compiler,
        "-shared",
        "-fPIC",
        "-Wl,-soname,libcuda.so.1",
        str(HERE / "driver_standin.c"),
        "-o",
        str(library),
    ]
    subprocess.run(argv, check=True, timeout=60)
    return library


@pytest.fixture
def tried(driver: Path) -> Tried:
    """``tried(setup)``: a process that has loaded the stand-in, sets it up and calls ``Backend.synchronize``."""

    def run(setup: str = "", load: bool = True) -> dict[str, Any]:
        code = f"""
            import ctypes, json, sys
            from types import SimpleNamespace
            from accelprof.errors import CaptureError
            from accelprof_cuda.backend import CudaBackend
            library = ctypes.CDLL({str(driver)!r}) if {load} else None
            def put(**values):
                for name, value in values.items():
                    kind = ctypes.c_void_p if name in ("current", "captured_stream") else ctypes.c_int
                    kind.in_dll(library, name).value = value
            {setup}
            said = ""
            try:
                CudaBackend().synchronize()
            except CaptureError as error:
                said = str(error)
            calls = (ctypes.c_char * 4096).in_dll(library, "calls").value.decode().splitlines() if library else []
            loaded = "libcuda" in open("/proc/self/maps").read()
            print(json.dumps({{"said": said, "calls": calls, "loaded": loaded, "torch": "torch" in sys.modules}}))
        """
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return run


def test_a_process_without_cuda_loads_no_driver(tried: Tried) -> None:
    """Nothing is loaded, imported or said where CUDA is not in use."""
    assert tried(load=False) == {"said": "", "calls": [], "loaded": False, "torch": False}


@pytest.mark.parametrize("setup", ["put(initialized=0, active=3)", "put(active=0)"])
def test_no_context_is_made(tried: Tried, setup: str) -> None:
    """Neither before CUDA is initialised (in a forked child it never is) nor on a device that is not in use."""
    found = tried(setup)
    assert (found["said"], found["calls"]) == ("", [])


def test_every_device_in_use_is_waited_for_and_given_back(tried: Tried) -> None:
    """A process that works on two devices ends its window with the work of both, whichever of them is current; once each."""
    assert tried("put(active=3, current=0x1001)")["calls"] == [
        "wait 1", "retain 0", "wait 0", "release 0", "retain 1", "release 1",
    ]  # fmt: skip


def test_a_context_of_the_driver_interface_is_waited_for(tried: Tried) -> None:
    """A context that no runtime made is the thread's current one."""
    assert tried("put(active=0, current=0x1007)")["calls"] == ["wait 7"]


def test_events_are_read_outside_of_captures(tried: Tried) -> None:
    """Reading them exchanges the thread's mode for the relaxed one, and puts the thread's own back, also after an error."""
    found = tried("""
            from accelprof_cuda import vendor
            with vendor.outside_captures(): pass
            try:
                with vendor.outside_captures(): raise KeyError
            except KeyError: pass
            put(initialized=0)""")
    assert found["calls"] == ["mode 2", "mode 0", "mode 2", "mode 0"]


CAPTURES = {
    "a stream that blocks the default one": "put(active=1, current=0x1000, capturing=1)",
    "torch's current stream": """
            put(active=1, current=0x1000)
            cuda = SimpleNamespace(is_initialized=lambda: True, is_current_stream_capturing=lambda: True)
            sys.modules["torch"] = SimpleNamespace(version=SimpleNamespace(cuda="13.0"), cuda=cuda)""",
    "torch.cuda.graph's own stream, on another thread": """
            put(active=1, current=0x1000, captured_stream=0xabc)
            graph = SimpleNamespace(default_capture_stream=SimpleNamespace(cuda_stream=0xabc))
            cuda = SimpleNamespace(is_initialized=lambda: True, is_current_stream_capturing=lambda: False, graph=graph)
            sys.modules["torch"] = SimpleNamespace(version=SimpleNamespace(cuda="13.0"), cuda=cuda)""",
}


@pytest.mark.parametrize("who", CAPTURES)
def test_a_graph_that_is_being_captured_is_not_broken(tried: Tried, who: str) -> None:
    """Waiting for a device while a stream is captured ends the capture, so nothing waits, and it is said."""
    found = tried(CAPTURES[who])
    assert "CUDA graph is being captured" in found["said"]
    assert not [call for call in found["calls"] if call.startswith("wait")]


def test_a_device_that_failed_is_said_after_the_others_were_waited_for(tried: Tried) -> None:
    """A sticky error of CUDA is named by its number, and what was taken is given back."""
    found = tried("put(active=3, code=700)")
    assert "CUDA error 700" in found["said"]
    assert found["calls"] == ["retain 0", "wait 0", "release 0", "retain 1", "wait 1", "release 1"]
