"""How runs on Ray end: one test a row of docs/reliability.md, all on one cluster."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import accelprof
from accelprof import Worker
from accelprof.analysis.run import open_run
from accelprof.contracts.targets import ArtifactFile
from accelprof.contracts.tool import Tool

ray = pytest.importorskip("ray", reason="ray is not installed")
pytestmark = pytest.mark.ray
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

ALL = {(rank, step) for rank in (0, 1) for step in (1, 2, 3)}
#: how rank 0 ends -> what it says, windows that are kept, codes of what is named
ACTOR_ROWS: dict[str, tuple[str, set[tuple[int, int]], list[str]]] = {
    "ray.kill": ("ActorDiedError", ALL - {(0, 2), (0, 3)}, ["never_opened", "window_open"]),
    "os._exit": ("ActorDiedError", ALL - {(0, 2), (0, 3)}, ["never_opened", "window_open"]),
    "SIGKILL": ("ActorDiedError", ALL - {(0, 2), (0, 3)}, ["never_opened", "window_open"]),
    "SIGTERM": ("ActorDiedError", ALL - {(0, 3)}, ["never_opened"]),
    "exit_actor": ("ActorDiedError", ALL - {(0, 3)}, ["never_opened"]),
    "exception": ("ValueError", ALL, []),
    "out of scope": ("", ALL, []),
    "hung in C": ("GetTimeoutError", ALL - {(0, 2), (0, 3)}, ["never_opened", "window_open"]),
}
#: how the driver ends -> its exit status, windows that are kept, codes of what is named
DRIVER_ROWS: dict[str, tuple[int, set[tuple[int, int]] | None, list[str] | None]] = {
    "driver closes late": (0, ALL, []),
    "driver exits": (5, {(rank, step) for rank in (0, 1) for step in (1, 2)}, ["never_opened"] * 2),
    "driver is killed": (-signal.SIGKILL, None, None),
    "ray.shutdown first": (0, ALL, []),
}
#: what needs more than one call to come about -> windows that are kept, codes of what is named
LONGER_ROWS: dict[str, tuple[set[tuple[int, int]], list[str]]] = {
    "restarted": (ALL - {(0, 2)}, ["window_open"]),
    "killed while writing": (ALL - {(0, 2), (0, 3)}, ["never_opened", "window_open"]),
    "disk full": ({(0, 1), (1, 1)}, ["unwritten", *["window_failed"] * 4]),
    "disk full, freed": (ALL - {(0, 2), (1, 2)}, ["window_failed"] * 2),
}


class Slow(Tool):
    """Its files take a while to write."""

    name = "slow"

    def trigger(self, target: Any) -> str:
        return "in_process"

    def open(self, window: Any) -> None:
        pass

    def close(self, window: Any) -> list[ArtifactFile]:
        path = window.stem + ".slow"
        with open(path, "w", encoding="utf-8") as file:
            file.write("first half, ")
            file.flush()
            time.sleep(1.0)
            file.write("second half" * 4000)
        return [ArtifactFile(path, "slow", (window.id,), os.path.getsize(path))]


def register() -> None:
    accelprof.register(
        SimpleNamespace(accelprof_tools=accelprof.hookimpl(lambda: [Slow], specname="accelprof_tools")), "ray-deaths"
    )


class Trainer(Worker):
    def __init__(self, slow: bool = False) -> None:
        if slow:
            register()

    @Worker.timer("actor/update")
    def update(self, how: str = "") -> int:
        if how == "os._exit":
            os._exit(1)
        if how in ("SIGKILL", "SIGTERM"):
            os.kill(os.getpid(), getattr(signal, how))
            time.sleep(20)
        if how == "exit_actor":
            ray.actor.exit_actor()
        if how == "exception":
            raise ValueError("the user's own")
        if how == "hung in C":
            ctypes.PyDLL(None).sleep(60)  # holds the interpreter's lock
        return os.getpid()


def kept(run_dir: str) -> set[tuple[int, int]]:
    """``(rank, step)`` of windows that are closed and whose files are all there."""
    run = open_run(run_dir)
    whole = {window for file in run.files() if not file.skip for window in file.windows}
    return {
        (int(run.workers[row.target].rank or 0), step)
        for row in run.manifest.windows.values()
        if row.closed is not None and row.id in whole
        for step in row.steps
    }


def left_behind(run_dir: str) -> list[str]:
    """What nobody should find: pipes, sockets, and halves of files that the report does not name.

    Ray kills a worker a moment after it asked it to end, whatever is being written then; until it is gone it may write on.
    """
    until = time.monotonic() + 60
    while True:
        found = list(Path(run_dir).rglob("*"))
        said = " ".join(open_run(run_dir).problems)
        halves = [str(path.relative_to(run_dir)) for path in found if path.name.endswith(".part")]
        odd = [path.name for path in found if path.is_fifo() or path.is_socket()]
        odd += [half for half in halves if half not in said]
        if not odd or time.monotonic() > until:
            return odd
        time.sleep(0.05)


@pytest.mark.parametrize("how", ACTOR_ROWS)
def test_how_an_actor_ends(how: str, ray_cluster: Any, tmp_path: Path) -> None:
    """Training sees what it would have seen, the other rank records everything, and what is lost is named once."""
    from accelprof.cluster import Controller

    seen, windows, codes = ACTOR_ROWS[how]
    ctl = Controller(
        steps=[1, 2, 3], ranks="all", merge_steps=False, output_dir=str(tmp_path), report_timeout=2, control_timeout=90
    )
    actors = [ray.remote(num_cpus=0)(Trainer).remote() for _ in range(2)]
    ctl.attach("G", actors)
    pid = ray.get(actors[0].update.remote())
    if how == "hung in C":  # only once all are there: a busy machine takes its time to start them
        ctl.config = ctl.roster.config = ctl.config.model_copy(update={"control_timeout": 4.0})
    raised = ""
    for number in (1, 2, 3, 4):
        with ctl.step(number):
            ray.get(actors[1].update.remote())
            if number == 2 and how == "ray.kill":
                ray.kill(actors[0])
                _until_it_is_gone(pid)
            if number == 2 and how != "out of scope":
                try:
                    ray.get(actors[0].update.remote(how), timeout=4 if how == "hung in C" else 30)
                except Exception as error:
                    raised = type(error).__name__.removeprefix("RayTaskError(").rstrip(")")
    if how == "out of scope":
        actors.clear()
    began = time.monotonic()
    manifest = ctl.close()
    if how == "hung in C":
        os.kill(pid, signal.SIGKILL)
    assert time.monotonic() - began < 20
    assert raised == seen
    found = kept(str(ctl.run_dir))
    if how == "exit_actor" and (0, 2) not in found:  # Ray gave its process no time to end in order: it was as if killed
        windows, codes = ACTOR_ROWS["os._exit"][1:]
    assert sorted(row["code"] for row in manifest["lacks"]) == codes
    assert found == windows
    words = "\n".join(manifest["undelivered"])
    assert ("its actor did not answer" in words) == (how == "hung in C")
    assert sorted(lack.words for lack in open_run(str(ctl.run_dir)).lacks) == sorted(manifest["undelivered"])
    assert manifest["status"] == ("incomplete" if codes else "complete")
    assert left_behind(str(ctl.run_dir)) == []
    for actor in actors:
        ray.kill(actor)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Output directory of a run: a file system of 1 MiB for rows about full disks."""
    if not request.node.callspec.params["how"].startswith("disk full"):
        yield tmp_path
        return
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs is not allowed here")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], capture_output=True, check=False)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096) == 4096:
                pass
        except OSError:
            pass


def kill_in_the_middle(pid: int, place: Path) -> None:
    """SIGKILL as soon as the second window of rank 0 is half written."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if any(path.stat().st_size for path in place.rglob("*-r0-s2-*.slow")):
            os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.02)


@pytest.mark.parametrize("how", LONGER_ROWS)
def test_how_a_run_goes_on(how: str, ray_cluster: Any, place: Path) -> None:
    """A restarted worker records again, a window that was being written is named, a full disk costs its windows and nothing more."""
    from accelprof.cluster import Controller

    windows, codes = LONGER_ROWS[how]
    accelprof.reset()
    register()
    try:
        ctl = Controller(
            steps=[1, 2, 3], ranks="all", merge_steps=False, output_dir=str(place), report_timeout=2, control_timeout=90,
            tool=None if how == "restarted" else "slow", timeline=how == "restarted", budget={"free_space": None},
        )  # fmt: skip
        more = {"max_restarts": 1} if how == "restarted" else {}
        actors = [ray.remote(num_cpus=0, **more)(Trainer).remote(True) for _ in range(2)]
        ctl.attach("G", actors)
        pid = ray.get(actors[0].update.remote())
        killer = threading.Thread(target=kill_in_the_middle, args=(pid, place))
        for number in (1, 2, 3, 4):
            with ctl.step(number):
                if number == 2 and how.startswith("disk full"):
                    fill(place / "fill")
                if number == 2 and how == "restarted":
                    with pytest.raises(ray.exceptions.RayActorError):
                        ray.get(actors[0].update.remote("SIGKILL"), timeout=60)
                    _until_it_answers(actors[0])
                ray.get(actors[1].update.remote())
                if number == 1 or how != "killed while writing" or number == 2:
                    ray.get(actors[0].update.remote())
                if number == 2 and how == "killed while writing":
                    killer.start()
            if number == 2 and how == "disk full, freed":
                (place / "fill").unlink()
        manifest = ctl.close()
    finally:
        accelprof.unregister("ray-deaths")
    if killer.ident is not None:
        killer.join()
    assert sorted(row["code"] for row in manifest["lacks"]) == codes
    if how == "disk full":
        (place / "fill").unlink()
    assert kept(str(ctl.run_dir)) == windows
    assert manifest["status"] == "incomplete"
    assert Path(str(ctl.run_dir), "manifest.json").exists() == (how != "disk full")
    assert left_behind(str(ctl.run_dir)) == []
    for actor in actors:
        ray.kill(actor)


def _until_it_is_gone(pid: int) -> None:
    """``ray.kill`` returns before the process has ended; a call that arrives in between is answered."""
    until = time.monotonic() + 60
    while time.monotonic() < until and os.path.exists(f"/proc/{pid}"):
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{pid}")


def _until_it_answers(actor: Any) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            ray.get(actor.update.remote(), timeout=30)
        except ray.exceptions.RayError:
            time.sleep(0.1)
        else:
            return


DRIVER = """
    import os, signal, sys, time
    import ray, accelprof
    from accelprof.cluster import Controller
    how = sys.argv[1]
    ray.init(address=sys.argv[2], log_to_driver=False, logging_level="ERROR")

    @ray.remote(num_cpus=0)
    class Trainer(accelprof.Worker):
        @accelprof.Worker.timer("actor/update")
        def update(self):
            return 1

    ctl = Controller(steps=[1, 2, 3], ranks="all", merge_steps=False, output_dir="o", run="r", report_timeout=2, control_timeout=90)
    actors = [Trainer.remote() for _ in range(2)]
    ctl.attach("G", actors)
    for number in (1, 2, 3, 4):
        with ctl.step(number):
            ray.get([actor.update.remote() for actor in actors])
            if number == 2 and how == "driver exits":
                sys.exit(5)
            if number == 2 and how == "driver is killed":
                os.kill(os.getpid(), signal.SIGKILL)
    if how == "ray.shutdown first":
        ray.shutdown()
        ctl.close()
"""


@pytest.fixture(scope="module")
def drivers(ray_cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, Path]]:
    """All drivers at once: exit status, what was said, directory."""
    address = ray_cluster.get_runtime_context().gcs_address
    started = {}
    for index, how in enumerate(DRIVER_ROWS):
        directory = tmp_path_factory.mktemp(f"driver{index}")
        command = [sys.executable, "-c", textwrap.dedent(DRIVER), how, address]
        started[how] = (
            directory,
            subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True),
        )
    ended = {}
    for how, (directory, process) in started.items():
        said = process.communicate(timeout=150)[0]
        ended[how] = process.returncode, said, directory
    return ended


@pytest.mark.parametrize("how", DRIVER_ROWS)
def test_how_a_driver_ends(how: str, drivers: dict[str, tuple[int, str, Path]]) -> None:
    """Its exit status is its own; what the workers had finished is there, with a manifest or without."""
    status, windows, codes = DRIVER_ROWS[how]
    returned, said, directory = drivers[how]
    assert returned == status, said
    run_dir = str(directory / "o" / "r")
    found = kept(run_dir)
    if windows is None:
        assert {(0, 1), (1, 1)} <= found
        assert not Path(run_dir, "manifest.json").exists()
        # step 3 is named by workers that Ray ends in order, as where the driver exits
        assert {lack.code for lack in open_run(run_dir).lacks} <= {"window_open", "never_opened"}
    else:
        assert found == windows, said
        assert [lack.code for lack in open_run(run_dir).lacks] == codes
    assert left_behind(run_dir) == []


def test_every_row_is_promised_in_the_documentation() -> None:
    """docs/reliability.md names each row, and no row that is not tried."""
    page = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text(encoding="utf-8")
    table = page.partition("## Ray")[2].partition("\n## ")[0]
    named = [line.split("|")[1].strip().strip("`") for line in table.splitlines() if line.startswith("| ")][2:]
    assert named == [*ACTOR_ROWS, *LONGER_ROWS, *DRIVER_ROWS]
