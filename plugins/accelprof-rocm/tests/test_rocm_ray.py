"""Real Ray actors under the stand-ins: the worker starts, every way of ending that can give a file gives it, and it is read."""

from __future__ import annotations

import glob
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from accelprof_rocm.rocprof_sys import RocprofSysTool
from accelprof_rocm.rocprofv3 import Rocprofv3Tool

from accelprof.contracts.spans import Kind, Trace
from accelprof.contracts.targets import Assignment
from accelprof.errors import ConfigError, UnavailableError
from accelprof.launch.command import assemble, to_shell
from accelprof.timing.worker import Worker

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
Make = Callable[..., Assignment]


def actor_class(ray: Any) -> Any:
    """Defined here so that cloudpickle sends it by value: this module is not importable in a worker."""

    class Actor(Worker):
        @Worker.timer("actor/update")
        def update(self) -> dict[str, Any]:
            time.sleep(0.01)
            return {"pid": os.getpid(), "executable": sys.executable, "preload": os.environ.get("LD_PRELOAD", "")}

        @Worker.timer("actor/chat")
        async def chat(self) -> None:
            return None

        def mark(self) -> int:
            from accelprof_rocm import roctx

            library = roctx.find()
            if library.resume is not None:
                library.resume(0)
            library.push(library.message("work"))
            library.pop()
            return os.getpid()

        def leave(self) -> None:
            ray.actor.exit_actor()

    Actor.__module__ = "__main__"
    return ray.remote(Actor)


def wait_for(pattern: str, seconds: float = 20.0) -> list[str]:
    deadline = time.monotonic() + seconds
    while True:
        found = [path for path in glob.glob(pattern) if os.path.getsize(path)]
        if found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def made(place: Any, kind: str) -> Any:
    if kind == "rocprofv3":
        return Rocprofv3Tool({"program": place.program("rocprofv3"), "format": ["json"]})
    prefix = "omnitrace" if place.release < (6, 3) else "rocprof-sys"
    return RocprofSysTool({"variant": kind, "program": place.program(f"{prefix}-{kind}")})


ENDINGS = {
    "terminate": lambda actor, pid: actor.__ray_terminate__.remote(),
    "exit_actor": lambda actor, pid: actor.leave.remote(),
    "dropped": lambda actor, pid: None,
    # what `ray.kill` comes to; on a busy machine Ray's own kill now and then lets a worker end in order
    "killed": lambda actor, pid: os.kill(pid, signal.SIGKILL),
}


@pytest.mark.parametrize(
    ("kind", "ending"),
    [
        ("python", "terminate"), ("python", "exit_actor"), ("python", "dropped"), ("python", "killed"),
        ("run", "terminate"), ("sample", "dropped"), ("rocprofv3", "exit_actor"), ("rocprofv3", "killed"),
    ],
)  # fmt: skip
def test_files_come_when_the_actor_ends_in_order(
    ray_cluster: Any, rocm: Any, assignment: Make, tmp_path: Path, kind: str, ending: str
) -> None:
    """Each launcher starts Ray's own worker; its file is there after every end but a kill."""
    place = rocm(7, 0)
    tool = made(place, kind)
    row = assignment(tool.name)
    directory = str(tmp_path / "run" / "ActorGroup")
    launch = tool.launch(row, directory)
    env = {
        "py_executable": to_shell(assemble(launch, [sys.executable])),
        "env_vars": {**launch.env, "ROCM_PATH": str(place.root)},
    }
    actor = actor_class(ray_cluster).options(runtime_env=env).remote()
    pid = ray_cluster.get(actor.mark.remote(), timeout=120)
    [expected] = tool.expects(row, directory)
    assert wait_for(expected.pattern, 0.0) == []
    ENDINGS[ending](actor, pid)
    del actor
    files = wait_for(expected.pattern, 3.0 if ending == "killed" else 30.0)
    if ending == "killed":
        assert files == []
        return
    [path] = files
    assert str(pid) in os.path.basename(path)
    assert [span.name for span in tool.read(path).of_kind(Kind.RANGE)] == ["work"]


def test_an_interpreter_behind_the_python_launchers_dashes_never_starts(
    ray_cluster: Any, rocm: Any, tmp_path: Path
) -> None:
    """What the guides show: the interpreter is compiled as source, the process ends with 0 and no worker comes."""
    place = rocm(7, 0)
    env = {
        "py_executable": to_shell([place.program("rocprof-sys-python"), "-b", "--", sys.executable]),
        "env_vars": {"PYTHON_EXECUTABLE": sys.executable, "ROCPROFSYS_OUTPUT_PATH": str(tmp_path)},
    }
    actor = actor_class(ray_cluster).options(runtime_env=env).remote()
    with pytest.raises(ray_cluster.exceptions.GetTimeoutError):
        ray_cluster.get(actor.mark.remote(), timeout=8)
    ray_cluster.kill(actor)


def run(ray: Any, config: dict[str, Any], end_workers: bool = True) -> tuple[dict[str, Any], list[dict[str, Any]], str]:
    """Three steps of two actors under a controller; ``(manifest, what each actor saw, run directory)``."""
    from accelprof.cluster.controller import Controller

    ctl = Controller(config)
    cls = actor_class(ray)
    actors = [
        cls.options(**ctl.options("ActorGroup", rank=rank, world_size=2, num_cpus=0.5)).remote() for rank in (0, 1)
    ]
    ctl.attach("ActorGroup", actors)
    seen: list[dict[str, Any]] = []
    for step in range(4):
        with ctl.step(step):
            seen = ray.get([actor.update.remote() for actor in actors], timeout=120)
    manifest = ctl.close(end_workers=end_workers)
    for actor in actors:
        ray.kill(actor)
    return manifest, seen, str(ctl.run_dir)


def config(place: Any, kind: str, output: Path, **options: Any) -> dict[str, Any]:
    tool = made(place, kind)
    given = {"program": tool.options.program, "env": {"ROCM_PATH": str(place.root)}, **options}
    given.update({"format": ["json"]} if kind == "rocprofv3" else {"variant": kind})
    return {
        "tool": tool.name,
        "steps": [1, 3],
        "groups": {"ActorGroup": {"ranks": [0]}},
        "output_dir": str(output),
        "report_timeout": 30,
        "tools": {tool.name: given},
    }


def read(path: str) -> Trace:
    from accelprof.analysis.reading import read_any

    return read_any(path)


@pytest.mark.parametrize(
    ("release", "kind"),
    [((6, 2), "python"), ((6, 3), "run"), ((7, 0), "python"), ((7, 0), "rocprofv3"), ((7, 13), "sample")],
)
def test_the_controllers_run(ray_cluster: Any, rocm: Any, tmp_path: Path, release: tuple[int, int], kind: str) -> None:
    """The same kind of config that drives other accelerators: two windows, one file of the selected rank, phases and kernels in it."""
    place = rocm(*release)
    manifest, seen, run_dir = run(ray_cluster, config(place, kind, tmp_path / "out put"))
    assert manifest["status"] == "complete", json.dumps(manifest["undelivered"])
    assert {one["executable"] for one in seen} == {sys.executable}
    assert seen[0]["preload"] == seen[1]["preload"]
    files = [row for row in manifest["artifacts"] if row["tool"] in ("rocprof_sys", "rocprofv3")]
    assert len(files) == 1, files
    assert len(files[0]["windows"]) == 2
    path = files[0]["path"] if os.path.isabs(files[0]["path"]) else os.path.join(run_dir, files[0]["path"])
    assert str(seen[0]["pid"]) in os.path.basename(path)
    trace = read(path)
    assert [span.name for span in trace.of_kind(Kind.PHASE)] == ["actor/update"] * 2
    assert len(list(trace.of_kind(Kind.WINDOW))) == 2
    assert [span.args["window"] for span in trace.of_kind(Kind.WINDOW)] == list(files[0]["windows"])
    assert len(list(trace.of_kind(Kind.KERNEL))) == 2


def test_workers_that_do_not_end_are_named(ray_cluster: Any, rocm: Any, tmp_path: Path) -> None:
    """Without an end in order there is no file; the manifest says whose, and what brings it."""
    settings = {**config(rocm(7, 0), "run", tmp_path), "report_timeout": 1}
    manifest, _, _ = run(ray_cluster, settings, end_workers=False)
    assert manifest["status"] == "incomplete"
    said = " ".join(manifest["undelivered"])
    assert "ActorGroup/rank0" in said
    assert "close(end_workers=True)" in said


def test_a_bad_option_is_refused_before_anything_starts(ray_cluster: Any, rocm: Any, tmp_path: Path) -> None:
    """By the installed tool's own help, with the nearest match, on the driver."""
    from accelprof.cluster.controller import Controller

    settings = config(rocm(7, 0), "rocprofv3", tmp_path, flags=["kernal-trace"])
    with pytest.raises(ConfigError, match="did you mean 'kernel-trace'"):
        Controller(settings)


def test_a_tool_that_does_not_start_is_an_error_and_no_hanging_actor(
    ray_cluster: Any, rocm: Any, tmp_path: Path
) -> None:
    """The trial on the node says so before an actor waits for ever."""
    from accelprof.cluster.controller import Controller

    settings = config(rocm(7, 0), "python", tmp_path, program="/nowhere/rocprof-sys-python", rocm="7.0")
    with Controller(settings) as ctl, pytest.raises(UnavailableError, match="does not start"):
        ctl.options("ActorGroup", rank=0)
