"""What several tests of accelprof-rocm use: recording ROCTX libraries, Debian's real one, installations of stand-ins."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from accelprof_rocm import backend, roctx, vendor

from accelprof.contracts.targets import Assignment, CaptureCount, Target
from accelprof.numberset import NumberSet

HERE = Path(__file__).parent
VENV_LIBRARY = "share/accelprof-roctx/usr/lib/*/libroctx64.so.4"


def _load(name: str) -> ModuleType:
    """A module beside this one; tests are no package."""
    known = sys.modules.get(f"accelprof_rocm_tests_{name}")
    if known is not None:
        return known
    spec = importlib.util.spec_from_file_location(f"accelprof_rocm_tests_{name}", HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Call:
    """One line of a recording library, or one call of the real library's tracer."""

    pid: int
    tid: int
    kind: str
    message: str
    number: int


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``compiled("libroctx64.so.4", "-DSDK")``: a directory laid out as ROCm, with the recording library in its lib."""
    if shutil.which("gcc") is None and shutil.which("cc") is None:
        pytest.skip("no C compiler")
    made: dict[tuple[str, ...], Path] = {}

    def make(name: str, *flags: str) -> Path:
        key = (name, *flags)
        if key not in made:
            root = tmp_path_factory.mktemp("rocm")
            _load("standins").compile_library("roctx_recorder.c", root / "lib" / name, *flags)
            made[key] = root
        return made[key]

    return make


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No ROCm of this machine takes part, and no library that another test found."""
    for name in list(os.environ):
        if (
            name.startswith(("ROCM_", "ROCP", "OMNITRACE_", "HIP_", "ROCR_", "CUDA_VISIBLE", *backend.TOOL_ENV))
            or name == roctx.SELECT_ENV
        ):
            monkeypatch.delenv(name)
    monkeypatch.setattr(vendor, "DEFAULT_ROOT", "/nonexistent/rocm")
    roctx.find.cache_clear()
    yield
    roctx.find.cache_clear()


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Path], Callable[[], list[Call]]]:
    """``calls = use(root)``: ROCTX is taken from ``root``; ``calls()`` gives what its recording library heard so far."""

    def take(root: Path) -> Callable[[], list[Call]]:
        log = tmp_path / "roctx.log"
        log.write_text("")
        monkeypatch.setenv("ROCM_PATH", str(root))
        monkeypatch.setenv("ROCTX_RECORDER_LOG", str(log))
        roctx.find.cache_clear()
        return lambda: parse(log.read_text())

    return take


def parse(text: str) -> list[Call]:
    rows = [line.split("\t") for line in text.splitlines()]
    return [Call(int(pid), int(tid), kind, message, int(number)) for pid, tid, kind, message, number in rows]


@pytest.fixture
def call_type() -> type[Call]:
    return Call


@pytest.fixture(scope="session")
def debian_roctx() -> Path:
    """Debian's real libroctx64; skips where ``.ci/install-roctx`` was not run."""
    found = sorted(Path(sys.prefix).glob(VENV_LIBRARY)) or sorted(Path("/usr/lib").glob("*/libroctx64.so.4"))
    if not found:
        pytest.skip("no real libroctx64 here: .ci/install-roctx installs it (roctx)")
    return found[0]


class _Data(ctypes.Structure):
    """Beginning of roctracer's ``roctx_api_data_t``."""

    _fields_ = (("message", ctypes.c_char_p), ("id", ctypes.c_uint64))


OPERATIONS = ("mark", "push", "pop", "start", "stop")
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint32, ctypes.c_uint32, ctypes.POINTER(_Data))


@pytest.fixture
def real_roctx(debian_roctx: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Call]]:
    """ROCTX is Debian's real library; the list is filled with every call by its own tracer callback."""
    import threading

    root = tmp_path / "debian"
    root.mkdir()
    (root / "lib").symlink_to(debian_roctx.parent)
    monkeypatch.setenv("ROCM_PATH", str(root))
    roctx.find.cache_clear()
    calls: list[Call] = []

    def heard(domain: int, operation: int, data: Any) -> int:
        assert domain == 6
        kind = OPERATIONS[operation]
        message = data.contents.message if kind in ("mark", "push", "start") else None
        calls.append(Call(os.getpid(), threading.get_ident(), kind, (message or b"").decode(), int(data.contents.id)))
        return 0

    callback = _CALLBACK(heard)
    library = ctypes.CDLL(str(debian_roctx))
    library.roctxRegisterTracerCallback(callback)
    yield calls
    library.roctxRegisterTracerCallback(None)


@pytest.fixture(scope="session")
def rocm(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, int], Any]:
    """``rocm(7, 0)``: an installation of stand-ins of that release."""
    if shutil.which("gcc") is None and shutil.which("cc") is None:
        pytest.skip("no C compiler")
    made: dict[tuple[int, int], Any] = {}

    def make(*release: int) -> Any:
        if release not in made:
            made[release] = _load("standins").install(tmp_path_factory.mktemp("rocm") / "rocm", release)
        return made[release]

    return make


@pytest.fixture
def assignment() -> Callable[..., Assignment]:
    """``assignment(steps=[2, 4], tool="rocprofv3", …)``: what a plan would give one process."""

    def make(
        tool: str,
        steps: Any = (2, 4),
        *,
        mode: str = "steps",
        rank: int | None = 0,
        interpreter: tuple[str, ...] = (),
        node: str | None = None,
    ) -> Assignment:
        chosen = NumberSet.parse(list(steps))
        target = Target("ActorGroup", ("actor",), rank, 2, node=node, has_devices=True, interpreter=interpreter)
        windows = tuple((step,) for step in chosen)
        count = CaptureCount(len(windows))
        return Assignment(target, True, tool, {}, mode=mode, steps=chosen, windows=windows, count=count)

    return make
