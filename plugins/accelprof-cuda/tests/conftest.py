"""What several tests of accelprof-cuda use: the recording NVTX tool, a stand-in and the real nsys."""

from __future__ import annotations

import importlib.util
import os
import shutil
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from accelprof.contracts.targets import Assignment, CaptureCount, Target
from accelprof.numberset import NumberSet

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Event:
    """One line of the recording NVTX tool."""

    pid: int
    tid: int
    kind: str
    domain: str
    message: str
    id: int
    argb: int
    category: int
    payload: int | None


def _headers() -> Path | None:
    """Include directory with NVTX's headers: of the wheel nvidia-nvtx, of Nsight Systems, of a CUDA toolkit."""
    from accelprof_cuda import installation

    places = []
    spec = importlib.util.find_spec("nvidia")
    for root in spec.submodule_search_locations or () if spec else ():
        places += sorted(Path(root).glob("*/include"))
    nsys = installation.find()
    if nsys is not None:
        places.append(Path(installation.real_directory(nsys)) / "nvtx" / "include")
    places.append(Path("/usr/local/cuda/include"))
    return next((place for place in places if (place / "nvtx3" / "nvToolsExt.h").is_file()), None)


@pytest.fixture(scope="session")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The injection library, compiled."""
    headers, compiler = _headers(), shutil.which("gcc") or shutil.which("cc")
    if headers is None or compiler is None:
        pytest.skip(f"no NVTX headers (pip install nvidia-nvtx; found: {headers}) or no C compiler (found: {compiler})")
    library = tmp_path_factory.mktemp("nvtx") / "recorder.so"
    argv = [compiler, "-O1", "-shared", "-fPIC", f"-I{headers}", str(HERE / "nvtx_recorder.c"), "-o", str(library)]
    subprocess.run(argv, check=True, timeout=60)
    return library


@pytest.fixture
def recorded(recorder: Path, tmp_path: Path) -> Callable[..., list[Event]]:
    """``recorded(code)`` runs Python under the recording tool (NVTX asks for it once a process) and returns its events."""

    def run(code: str, **env: str) -> list[Event]:
        log = tmp_path / "nvtx.log"
        log.write_text("")
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env={**os.environ, "NVTX_INJECTION64_PATH": str(recorder), "NVTX_RECORDER_LOG": str(log), **env},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return [_event(line.split("\t")) for line in log.read_text().splitlines()]

    return run


def _event(fields: list[str]) -> Event:
    pid, tid, kind, domain, message, number, argb, category, payload = fields
    return Event(
        int(pid),
        int(tid),
        kind,
        domain,
        message,
        int(number),
        int(argb, 16),
        int(category),
        int(payload) if payload else None,
    )


@pytest.fixture
def assignment() -> Callable[..., Assignment]:
    """``assignment(steps=[2, 4], has_devices=True, …)``: what a plan would give one process."""

    def make(
        steps: Any = (2, 4),
        *,
        has_devices: bool | None = True,
        mode: str = "steps",
        count: int | None = -1,
        rank: int = 0,
        options: dict[str, Any] | None = None,
        interpreter: tuple[str, ...] = (),
        **more: Any,
    ) -> Assignment:
        chosen = NumberSet.parse(list(steps)) if mode == "steps" else NumberSet()
        exact = (len(chosen) if mode == "steps" else 1 if mode == "process" else None) if count == -1 else count
        target = Target("ActorGroup", ("actor",), rank, 2, has_devices=has_devices, interpreter=interpreter)
        windows = tuple((step,) for step in chosen)
        return Assignment(
            target,
            True,
            "nsys",
            options or {},
            mode=mode,
            steps=chosen,
            windows=windows,
            count=CaptureCount(exact),
            **more,
        )

    return make


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str, str], Path]:
    """``program(name, body)`` puts a Python program into an own directory and returns its path."""

    def make(name: str, body: str) -> Path:
        place = tmp_path / "bin"
        place.mkdir(exist_ok=True)
        path = place / name
        path.write_text(f"#!{sys.executable}\n{textwrap.dedent(body)}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return make


@pytest.fixture(scope="session")
def nsys() -> str:
    """The real nsys; skips where it is not installed."""
    from accelprof_cuda import installation

    found = installation.find()
    if found is None:
        pytest.skip("nsys is not installed (.ci/install-nsys)")
    return found
