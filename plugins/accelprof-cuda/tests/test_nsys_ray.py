"""Ray actors under the real nsys on a machine without a GPU: who is wrapped, what each window leaves, how workers may end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from accelprof_cuda import reader

from accelprof import Worker
from accelprof.contracts.spans import Kind

ray = pytest.importorskip("ray", reason="ray is not installed")
pytestmark = [pytest.mark.ray, pytest.mark.nsys, pytest.mark.timeout(480)]
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Actor(Worker):
    """Two nested phases; says what nsys put into its environment."""

    @Worker.timer("actor/update")
    def update(self, pause: float = 0.002) -> int:
        self.inner(pause)
        return os.getpid()

    @Worker.timer("actor/inner")
    def inner(self, pause: float) -> None:
        time.sleep(pause)

    def under_nsys(self) -> bool:
        return "NSYS_PROFILING_SESSION_ID" in os.environ

    def child_is_injected(self) -> bool:
        code = "import os; print(any(name in os.environ for name in ('NVTX_INJECTION64_PATH', 'CUDA_INJECTION64_PATH')) or 'nsight' in os.environ.get('LD_PRELOAD', ''))"
        return (
            subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
            == "True"
        )


def make(place: Path, nsys: str, **config: Any) -> Any:
    from accelprof.cluster import Controller

    return Controller(
        {
            "tool": "nsys",
            "steps": [2, 4, 6],
            "ranks": [1],
            "output_dir": str(place / "a dir"),
            "report_timeout": 30,
            "tools": {"nsys": {"nsys": nsys}},
            **config,
        }
    )


def start(ctl: Any, ranks: int = 2) -> list[Any]:
    made = ray.remote(num_cpus=0)(Actor)
    actors = [made.options(**ctl.options("ActorGroup", rank=rank, world_size=ranks)).remote() for rank in range(ranks)]
    ctl.attach("ActorGroup", actors)
    return actors


def reports(ctl: Any, manifest: dict[str, Any]) -> list[tuple[list[int], list[tuple[str, int]]]]:
    """Steps of the window as the manifest has them, and the phases of its report with their step, per report."""
    steps = {window["id"]: window["steps"] for window in manifest["windows"]}
    found = []
    for artifact in manifest["artifacts"]:
        if artifact["tool"] == "nsys" and artifact["path"].endswith(".nsys-rep"):
            trace = reader.read(os.path.join(ctl.run_dir, artifact["path"]))
            phases = [(span.name, span.args["payload"]) for span in trace.of_kind(Kind.PHASE)]
            assert len(artifact["windows"]) == 1, artifact
            assert artifact["state"] == "complete", artifact
            found.append((steps[artifact["windows"][0]], phases))
    return sorted(found)


def expected(*steps: int) -> list[tuple[list[int], list[tuple[str, int]]]]:
    return [([step], [("actor/update", step), ("actor/inner", step)]) for step in steps]


def test_three_windows_of_the_selected_rank(ray_cluster: Any, nsys: str, tmp_path: Path) -> None:
    """Rank 1 of two leaves three reports, each with its step's ranges only; rank 0 is not wrapped; children are left alone."""
    ctl = make(tmp_path, nsys)
    actors = start(ctl)
    assert ray.get([actor.under_nsys.remote() for actor in actors]) == [False, True]
    for step in range(8):
        with ctl.step(step):
            ray.get([actor.update.remote() for actor in actors])
    assert not ray.get(actors[1].child_is_injected.remote())
    manifest = ctl.close()
    assert (manifest["status"], manifest["undelivered"]) == ("complete", [])
    assert reports(ctl, manifest) == expected(2, 4, 6)
    assert all(window["close_ms"] > 1 for window in manifest["windows"])
    assert ray.get(actors[1].update.remote()) > 0  # it lives on


def test_fewer_windows_than_planned(ray_cluster: Any, nsys: str, tmp_path: Path) -> None:
    """The loop ends after step 4 of 2, 4 and 60: closing the run delivers both reports while the workers live."""
    ctl = make(tmp_path, nsys, steps=[2, 4, 60])
    actors = start(ctl)
    for step in range(6):
        with ctl.step(step):
            ray.get([actor.update.remote() for actor in actors])
    manifest = ctl.close()
    assert reports(ctl, manifest) == expected(2, 4)


def test_a_window_for_each_phase(ray_cluster: Any, nsys: str, tmp_path: Path) -> None:
    """Discrete windows, whose number nsys is not told: two calls a step are two reports a step."""
    ctl = make(tmp_path, nsys, steps=[1, 3], discrete=True)
    actors = start(ctl)
    for step in range(4):
        with ctl.step(step):
            ray.get([actor.update.remote() for actor in actors for _ in range(2)])
    manifest = ctl.close()
    assert manifest["undelivered"] == []
    assert reports(ctl, manifest) == [row for row in expected(1, 3) for _ in range(2)]


def test_killed_inside_a_window(ray_cluster: Any, nsys: str, tmp_path: Path) -> None:
    """``ray.kill`` in the window of step 4: the report of step 2 is there, and what was lost is named with the worker."""
    ctl = make(tmp_path, nsys, report_timeout=10)
    actors = start(ctl)
    for step in range(4):
        with ctl.step(step):
            ray.get([actor.update.remote() for actor in actors])
    ctl.begin_step(4)
    ray.get(actors[1].update.remote())
    ray.kill(actors[1])
    ctl.end_step(4)
    manifest = ctl.close()
    assert manifest["status"] == "incomplete"
    lost = "\n".join(manifest["undelivered"])
    assert "ActorGroup-r1" in lost or "ActorGroup/rank1" in lost
    assert "window" in lost
    kept = {artifact["path"] for artifact in manifest["artifacts"] if artifact["path"].endswith(".nsys-rep")}
    read = [reader.read(os.path.join(ctl.run_dir, path)) for path in kept]
    assert ("actor/update", 2) in [
        (span.name, span.args["payload"]) for trace in read for span in trace.of_kind(Kind.PHASE)
    ]


def test_an_nsys_that_does_not_start_is_an_error_and_no_hanging_actor(ray_cluster: Any, tmp_path: Path) -> None:
    """A path that is wrong on the node is refused before an actor is made, with the command that was tried."""
    from accelprof.errors import UnavailableError

    ctl = make(tmp_path, "/nowhere/nsys")
    with pytest.raises(UnavailableError, match="/nowhere/nsys"):
        ctl.options("ActorGroup", rank=1, world_size=2)
    ctl.close()


DRIVER = """
import json, os, sys, time
import ray
from accelprof import Worker
from accelprof.cluster import Controller

class Actor(Worker):
    @Worker.timer("actor/update")
    def update(self):
        time.sleep(0.002)

ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 * 2**20)
ctl = Controller({"tool": "nsys", "steps": [2, 4, 6], "output_dir": sys.argv[1], "tools": {"nsys": {"nsys": sys.argv[2]}}})
actor = ray.remote(num_cpus=0)(Actor).options(**ctl.options("ActorGroup", rank=0, world_size=1)).remote()
ctl.attach("ActorGroup", actor)
for step in range(8):
    with ctl.step(step):
        ray.get(actor.update.remote())
ray.shutdown()
there = sorted(name for _, _, files in os.walk(ctl.run_dir) for name in files if name.endswith(".nsys-rep"))
print("LEFT", json.dumps([ctl.run_dir, there]))
"""


def test_shutdown_straight_after_the_last_window(nsys: str, tmp_path: Path) -> None:
    """``ray.shutdown()`` with no word to accelprof: the three reports were on disk already, and each is whole."""
    script = tmp_path / "driver.py"
    script.write_text(textwrap.dedent(DRIVER))
    argv = [sys.executable, str(script), str(tmp_path / "out"), nsys]
    env = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=150, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("LEFT "))
    run_dir, there = json.loads(line.removeprefix("LEFT "))
    assert len(there) == 3
    found = sorted(Path(run_dir).rglob("*.nsys-rep"))
    steps = [[span.args["payload"] for span in reader.read(str(path)).of_kind(Kind.PHASE)] for path in found]
    assert steps == [[2], [4], [6]]
