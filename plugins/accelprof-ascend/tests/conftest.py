"""What the tests of accelprof-ascend share: the real torch_npu over a compiled stub of CANN, one process for each scenario.

Everything below the calls of CANN is invented, so nothing is asserted on what a device would do.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PYTHON = ROOT / ".venv-npu" / "bin" / "python"

#: what every scenario begins with
PRELUDE = """
import glob, json, logging, os, sys, threading
import torch
import torch_npu
import accelprof
from accelprof import Worker
from accelprof.session.configure import reset

OUT = os.environ["OUT"]
logging.basicConfig(level=logging.INFO, format="LOG %(levelname)s %(message)s", stream=sys.stderr)


class Actor(Worker):
    @Worker.timer("actor/update")
    def update(self):
        return torch.ones(3) + 1

    @Worker.timer("actor/infer")
    def infer(self):
        return torch.ones(2) + 1


def configure(rank=0, device=True, **more):
    if device:
        torch.npu.set_device(0)
    config = {"tool": "npu", "accelerator": "npu", "output_dir": OUT, "run": "r", "steps": [2, 4], **more}
    return accelprof.configure(config, group="ActorGroup", role="actor", rank=rank)


def show(report, name=""):
    artifacts = [row for row in report["journal"] if row["kind"] == "artifact" and row["tool"] != "trace"]
    print("SHOWN", json.dumps({"name": name, "artifacts": artifacts, "problems": report["problems"]}))
"""


@dataclass
class Ran:
    """How a scenario ended: what it printed, the calls CANN got, the directory it wrote into."""

    status: int
    out: str
    err: str
    calls: list[str] = field(default_factory=list)
    place: Path = Path()

    def named(self, *names: str) -> list[str]:
        """Calls by the beginning of their names, in order."""
        return [call for call in self.calls if call.startswith(names)]

    def shown(self, name: str = "") -> dict[str, Any]:
        """What the scenario said with ``show``: artifacts of its tool, and problems, but that a close was slow: here any may be."""
        rows = [json.loads(line[6:]) for line in self.out.splitlines() if line.startswith("SHOWN ")]
        found = [row for row in rows if row["name"] == name]
        assert found, f"{self.out}\n{self.err}"
        said = [line for line in found[-1].get("problems", ()) if "closing window" not in line]
        return {**found[-1], "problems": said}

    def section(self, name: str) -> list[str]:
        """Calls after the line ``# name``, up to the next such line."""
        begin = self.calls.index(f"# {name}") + 1
        end = next((at for at, call in enumerate(self.calls) if at >= begin and call.startswith("# ")), len(self.calls))
        return self.calls[begin:end]

    @property
    def directories(self) -> list[Path]:
        return sorted(self.place.glob("**/*_ascend_pt"))

    @property
    def warnings(self) -> list[str]:
        lines = [line for line in self.err.splitlines() if line.startswith("LOG WARNING")]
        return [line for line in lines if "closing window" not in line]


@pytest.fixture(scope="session")
def cann(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment in which torch_npu of ``.venv-npu`` finds CANN; skips where that environment or a compiler is absent."""
    if not PYTHON.exists():
        pytest.skip("torch_npu is not installed in .venv-npu (.ci/install-npu)")
    missing = [tool for tool in ("gcc", "nm", "readelf") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"the stub of CANN cannot be compiled: no {', '.join(missing)}")
    find = "import importlib.util as u; print(u.find_spec('torch_npu').submodule_search_locations[0])"
    package = subprocess.run(
        [str(PYTHON), "-c", find], capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()
    spec = importlib.util.spec_from_file_location("cann_stub_build", HERE / "cann" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    home = tmp_path_factory.mktemp("cann")
    module.build(package, str(home))
    return {
        "ASCEND_HOME_PATH": str(home),
        "ASCEND_OPP_PATH": str(home / "opp"),
        "LD_LIBRARY_PATH": str(home / "lib64"),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    }


class Server:
    """``npu_server.py``, which has imported torch and torch_npu, as most of a scenario's time would go into that."""

    def __init__(self, environment: dict[str, str], place: Path) -> None:
        self.said = place / "stderr"
        with self.said.open("w") as file:
            self.process = subprocess.Popen(
                [str(PYTHON), str(HERE / "npu_server.py")],
                env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True,
            )  # fmt: skip

    def run(self, code: str, env: dict[str, str], cwd: Path, limit: float) -> tuple[int, str, str]:
        """Status, output and errors of ``code`` in a process of its own."""
        out, err = cwd / "stdout.txt", cwd / "stderr.txt"
        request = {"code": code, "env": env, "cwd": str(cwd), "out": str(out), "err": str(err), "limit": limit}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, self.said.read_text()
        status = json.loads(answer)["status"]
        assert status is not None, f"not over after {limit:g} s: {out.read_text()}\n{err.read_text()}"
        return status, out.read_text(), err.read_text()

    def end(self) -> None:
        self.process.communicate(timeout=60)


@pytest.fixture(scope="session")
def server(cann: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server({**os.environ, **cann}, tmp_path_factory.mktemp("server"))
    yield made
    made.end()


@pytest.fixture
def npu(cann: dict[str, str], server: Server, tmp_path: Path) -> Callable[..., Ran]:
    """``npu(code, **env)`` runs a scenario in a process of its own, forked where torch_npu is imported already unless it is started
    in another way or with variables that an import may read.

    ``argv`` runs that in place of the code, ``wrap`` gets the interpreter and answers what stands in its place, ``msprof``
    puts the stand-in on PATH, ``env`` with the value ``unset`` takes a variable away.
    """
    return runner(cann, server, tmp_path)


@pytest.fixture(scope="session")
def run_npu(cann: dict[str, str], server: Server) -> Callable[[Path], Callable[..., Ran]]:
    """``run_npu(directory)`` is :func:`npu` for fixtures that several tests share."""
    return lambda place: runner(cann, server, place)


def runner(cann: dict[str, str], server: Server, place: Path) -> Callable[..., Ran]:
    """See :func:`npu`; for fixtures of a module too."""

    def run(
        code: str,
        *,
        argv: list[str] | None = None,
        wrap: Callable[[str], list[str]] | None = None,
        msprof: bool = False,
        prelude: bool = True,
        limit: float = 200,
        **env: str,
    ) -> Ran:
        log, out = place / "cann.log", place / "out"
        log.write_text("")
        out.mkdir(exist_ok=True)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("ACCELPROF_", "RANK"))}
        environment = {**inherited, **cann, "CANN_STUB_LOG": str(log), "OUT": str(out), **env}
        if msprof:
            tools = Path(cann["ASCEND_HOME_PATH"], "tools", "profiler", "bin")
            environment["PATH"] = f"{tools}{os.pathsep}{environment['PATH']}"
        environment = {name: value for name, value in environment.items() if value != "unset"}
        text = (PRELUDE if prelude else "") + textwrap.dedent(code)
        if argv is wrap is None and prelude and all(name.startswith("CANN_STUB_") for name in env):
            return Ran(*server.run(text, environment, place, limit), calls_in(log), out)
        done = subprocess.run(
            [*(wrap(str(PYTHON)) if wrap else [str(PYTHON)]), *(argv or ["-c", text])],
            env=environment,
            cwd=place,
            capture_output=True,
            text=True,
            timeout=limit,
        )
        return Ran(done.returncode, done.stdout, done.stderr, calls_in(log), out)

    return run


def calls_in(log: Path) -> list[str]:
    return [line.split(" ", 3)[3] for line in log.read_text().splitlines() if line.count(" ") >= 3]
