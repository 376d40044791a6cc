"""The controller over real Ray actors: who is told what, who is named, and what is left on disk."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from accelprof import Worker
from accelprof.analysis.run import open_run
from accelprof.errors import CaptureError, IncompleteError, UserError

ray = pytest.importorskip("ray", reason="ray is not installed")

pytestmark = [
    pytest.mark.ray,
    pytest.mark.second_try("a cluster of processes starts and ends on a machine that may be busy"),
]
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Trainer(Worker):
    """A worker with the mixin that also counts what the controller asks of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    @Worker.timer("actor/update")
    def update(self, seconds: float = 0.0) -> int:
        time.sleep(seconds)
        return os.getpid()

    def accelprof_call(self, command: str, *args: Any, **kwargs: Any) -> Any:
        self.asked.append(command)
        return super().accelprof_call(command, *args, **kwargs)

    def asked_so_far(self) -> list[str]:
        return self.asked

    def shift_clock(self, ns: int) -> None:
        real = time.time_ns
        time.time_ns = lambda: real() + ns

    def stop(self) -> None:
        os._exit(1)


class Plain:
    """A class that knows nothing of accelprof."""

    def work(self) -> int:
        return os.getpid()


def start(cls: type, count: int, **options: Any) -> list[Any]:
    return [ray.remote(num_cpus=0, **options)(cls).remote() for _ in range(count)]


@pytest.fixture(scope="module")
def pool(ray_cluster: Any) -> list[Any]:
    """Four workers that tests share; a session ends with its controller, so they come as new."""
    return start(Trainer, 4)


def controller(tmp_path: Path, **config: Any) -> Any:
    from accelprof.cluster import Controller  # needs ray

    return Controller({"output_dir": str(tmp_path), "report_timeout": 5, **config})


def windows(manifest: dict[str, Any]) -> list[tuple[str, tuple[int, ...]]]:
    rank = {target["key"]: f"{target['group']}/{target['rank']}" for target in manifest["targets"]}
    return sorted((rank[window["target"]], tuple(window["steps"])) for window in manifest["windows"])


def test_only_the_selected_workers_hear_of_steps_and_open_windows(pool: list[Any], tmp_path: Path) -> None:
    """Ranks 0 and 2 open one window on step 2 each; rank 1 is asked nothing between attach and close but its timings."""
    actors = pool[:3]
    ctl = controller(tmp_path, steps=[2], ranks=[0, 2])
    ctl.attach("Actors", actors)
    before = ray.get(actors[1].asked_so_far.remote())
    for step in (1, 2, 3):
        with ctl.step(step):
            ray.get([actor.update.remote() for actor in actors])
    assert ray.get(actors[1].asked_so_far.remote()) == before
    timings = ctl.metrics(per_rank=True)
    manifest = ctl.close()
    assert windows(manifest) == [("Actors/0", (2,)), ("Actors/2", (2,))]
    assert manifest["status"] == "complete"
    assert manifest["undelivered"] == []
    assert set(timings["actor/update"]) == {"Actors/rank0", "Actors/rank2"}
    assert "Actors/rank1" in timings.absent
    assert json.loads(Path(ctl.run_dir, "manifest.json").read_text())["windows"] == manifest["windows"]
    assert ctl.close() is manifest


def test_timings_are_reduced_over_the_union_with_the_lacking_ranks_named(pool: list[Any], tmp_path: Path) -> None:
    """The maximum comes from the slow rank, which is named; a rank that did not run the phase is named as missing."""
    actors = pool[:3]
    ctl = controller(tmp_path, steps=[9], ranks=[0])
    ctl.attach("Actors", actors)
    for step, slow in ((1, 0.0), (2, 0.05)):
        with ctl.step(step):
            ray.get([actors[0].update.remote(), actors[1].update.remote(slow)])
        timings = ctl.metrics()
    assert timings.at == {"actor/update": "Actors/rank1"}
    assert timings["actor/update"] == pytest.approx(0.05, abs=0.03)
    assert timings.missing == {"actor/update": ["Actors/rank2"]}
    assert timings.absent == {}
    assert timings.step == 2
    assert (
        ctl.metrics(reduce="min")["actor/update"] < ctl.metrics(reduce="mean")["actor/update"] < timings["actor/update"]
    )
    with pytest.raises(UserError, match="did you mean 'max'"):
        ctl.metrics(reduce="maxx")
    ctl.close()


def test_an_exception_of_the_body_reaches_the_caller_and_the_window_is_closed(pool: list[Any], tmp_path: Path) -> None:
    """The very exception object comes out of the step, and the window it happened in is complete on disk."""
    actor = pool[0]
    ctl = controller(tmp_path, steps=[1])
    ctl.attach("Actors", actor)
    wrong = KeyError("mine")
    with pytest.raises(KeyError) as caught, ctl.step(1):
        raise wrong
    manifest = ctl.close()
    assert caught.value is wrong
    assert [window["reason"] for window in manifest["windows"]] == ["step ended"]
    assert [artifact["state"] for artifact in manifest["artifacts"]] == ["complete"]


def test_classes_without_the_mixin_get_a_session_too(ray_cluster: Any, tmp_path: Path) -> None:
    """A plain class, and a concurrent one, open their windows through Ray's own call."""
    ctl = controller(tmp_path, steps=[1], ranks="all")
    ctl.attach("Plain", [*start(Plain, 1), *start(Plain, 1, max_concurrency=2)])
    with ctl.step(1):
        pass
    assert windows(ctl.close()) == [("Plain/0", (1,)), ("Plain/1", (1,))]


def test_dead_and_hung_actors_are_named_and_stop_nobody(ray_cluster: Any, tmp_path: Path) -> None:
    """Rank 1 dies, rank 2 hangs; ranks 0 and 3 deliver both windows, and what the others had finished is kept."""
    actors = start(Trainer, 4)
    ctl = controller(tmp_path, steps=[1, 2], ranks="all")
    ctl.attach("Actors", actors)
    with ctl.step(1):
        pass
    ray.kill(actors[1])
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(actors[1].update.remote())
    actors[2].update.remote(60.0)
    ctl.roster.config = ctl.config.model_copy(update={"control_timeout": 2.0})
    began = time.monotonic()
    with ctl.step(2):
        ray.get([actors[0].update.remote(), actors[3].update.remote()])
    assert time.monotonic() - began < 40
    manifest = ctl.close()
    ones = [(f"Actors/{rank}", (1,)) for rank in range(4)]
    assert windows(manifest) == sorted([*ones, ("Actors/0", (2,)), ("Actors/3", (2,))])
    said = "\n".join(manifest["problems"])
    assert "Actors/rank1: was not told that a step begins: the actor is dead" in said
    assert "Actors/rank2: was not told that a step begins: did not answer within 2 s" in said
    assert manifest["status"] == "incomplete"
    # one statement a lost window, with what the driver saw
    assert [(lack["code"], lack["target"][:9]) for lack in manifest["lacks"]] == [
        ("never_opened", "Actors-r1"),
        ("never_opened", "Actors-r2"),
    ]
    assert [text.partition(": ")[2] for text in manifest["undelivered"]] == [
        "windows for steps 2 never opened; its actor is dead",
        "windows for steps 2 never opened; its actor did not answer (busy or hung)",
    ]
    assert [lack.words for lack in open_run(ctl.run_dir or "").lacks] == manifest["undelivered"]
    ray.kill(actors[2])


def test_an_actor_that_ray_restarted_gets_a_new_session(ray_cluster: Any, tmp_path: Path) -> None:
    """After the restart the window of step 3 is opened in the new process; the old process's window is still there."""
    [actor] = start(Trainer, 1, max_restarts=1, max_task_retries=2)
    ctl = controller(tmp_path, steps=[1, 3])
    ctl.attach("Actors", actor)
    with ctl.step(1):
        first = ray.get(actor.update.remote())
    ray.kill(actor, no_restart=False)
    second, until = first, time.monotonic() + 60
    while second == first and time.monotonic() < until:  # the old process may still answer once
        second = ray.get(actor.update.remote())
    with ctl.step(3):
        pass
    manifest = ctl.close()
    assert first != second
    assert sorted((window["steps"], window["target"].rpartition("-")[2]) for window in manifest["windows"]) == [
        ([1], str(first)),
        ([3], str(second)),
    ]
    assert any("was it restarted?" in text for text in manifest["problems"])


def test_armed_but_never_opened_is_an_error_message(pool: list[Any], tmp_path: Path) -> None:
    """Steps 0 and 1 were announced and 2 was wanted: both ranks are named with the steps that were seen."""
    actors = pool[:2]
    ctl = controller(tmp_path, steps=[2], ranks="all")
    ctl.attach("Actors", actors)
    for step in (0, 1):
        with ctl.step(step):
            pass
    manifest = ctl.close()
    assert manifest["status"] == "incomplete"
    for rank in (0, 1):
        [text] = [text for text in manifest["undelivered"] if text.startswith(f"Actors-r{rank}-")]
        assert "armed, 0 windows opened; steps seen: 0, 1" in text


def test_a_misspelt_role_or_group_is_named_with_those_that_were_seen(pool: list[Any], tmp_path: Path) -> None:
    """``actr`` fits no role and ``ActorGruop`` no group; nothing was recorded and both are said, with the nearest match."""
    actor = pool[0]
    ctl = controller(tmp_path, steps=[1], groups={"ActorGroup": {"roles": ["actr"]}, "CriticGruop": {}})
    ctl.attach("ActorGroup", actor, role="actor")
    with ctl.step(1):
        pass
    manifest = ctl.close()
    assert manifest["status"] == "incomplete"
    assert manifest["windows"] == []
    said = "\n".join(manifest["undelivered"])
    assert "groups.ActorGroup.roles" in said
    assert "did you mean 'actor'?" in said
    assert "groups.CriticGruop: no worker of this group was attached" in said


def test_what_was_not_delivered_is_raised_where_on_error_asks(ray_cluster: Any, tmp_path: Path) -> None:
    """With ``on_error: raise`` close raises after the manifest is on disk."""
    [actor] = start(Trainer, 1)
    ctl = controller(tmp_path, steps=[5], on_error="raise")
    ctl.attach("Actors", actor)
    with pytest.raises(IncompleteError, match="armed, 0 windows opened"):
        ctl.close()
    assert json.loads(Path(ctl.run_dir, "manifest.json").read_text())["status"] == "incomplete"
    other = controller(tmp_path, steps=[5], on_error="raise", run="second")
    ray.kill(actor)
    with pytest.raises(CaptureError, match="Actors/rank0"):
        other.attach("Actors", actor)
    with pytest.raises(IncompleteError):
        other.close()


def test_steps_go_on_where_a_resumed_run_begins(pool: list[Any], tmp_path: Path) -> None:
    """The first announced step is 100; the window of 101 carries that number in its file's name."""
    actor = pool[0]
    ctl = controller(tmp_path, steps=[101])
    ctl.attach("Actors", actor)
    for step in (100, 101, 102):
        with ctl.step(step):
            pass
    manifest = ctl.close()
    [artifact] = manifest["artifacts"]
    assert "-s101-" in artifact["path"]
    assert windows(manifest) == [("Actors/0", (101,))]


def test_every_window_has_its_own_file_whatever_is_not_known(pool: list[Any], tmp_path: Path) -> None:
    """Two workers without rank, one phase called five times in each of two steps: twenty files, none of rank 0."""
    actors = pool[:2]
    ctl = controller(tmp_path, steps=[2, 3], discrete=True, ranks="all")
    ctl.attach("Actors", actors, ranks=[None, None])
    for step in (2, 3):
        with ctl.step(step):
            ray.get([actor.update.remote() for actor in actors for _ in range(5)])
    manifest = ctl.close()
    paths = {artifact["path"] for artifact in manifest["artifacts"]}
    assert len(paths) == 20
    assert all("-rX-" in path for path in paths)
    assert {target["rank"] for target in manifest["targets"]} == {None}
    assert all(Path(ctl.run_dir, path).exists() for path in paths)
    again = controller(tmp_path, steps=[1], run=os.path.basename(str(ctl.run_dir)))
    assert again.run_dir != ctl.run_dir
    again.close()


def test_a_clock_that_is_off_is_measured_and_written_down(pool: list[Any], tmp_path: Path) -> None:
    """A worker whose clock runs three seconds ahead is found out within the error that is given."""
    actors = pool[:2]
    ray.get(actors[1].shift_clock.remote(3_000_000_000))
    ctl = controller(tmp_path, steps=[1], ranks="all")
    ctl.attach("Actors", actors)
    with ctl.step(1):
        pass
    manifest = ctl.close()
    ray.get(actors[1].shift_clock.remote(-3_000_000_000))
    by_label = {row["label"]: row for row in manifest["clock_offsets"].values()}
    assert by_label["Actors/rank0"]["offset_ns"] == 0
    shifted = by_label["Actors/rank1"]
    assert abs(shifted["offset_ns"] - 3_000_000_000) <= shifted["error_ns"] < 50_000_000
    opened = [window["opened"]["driver_ns"] for window in manifest["windows"]]
    assert abs(opened[0] - opened[1]) < 1_000_000_000


def test_a_clock_that_drifts_is_followed(pool: list[Any], tmp_path: Path) -> None:
    """It is measured at the end too; the moments of a window lie between what both measurements make of them."""
    actors = pool[:2]
    ray.get(actors[1].shift_clock.remote(3_000_000_000))
    ctl = controller(tmp_path, steps=[1], ranks="all")
    ctl.attach("Actors", actors)
    with ctl.step(1):
        pass
    ray.get(actors[1].shift_clock.remote(1_000_000_000))
    manifest = ctl.close()
    ray.get(actors[1].shift_clock.remote(-4_000_000_000))
    by_label = {row["label"]: row for row in manifest["clock_offsets"].values()}
    assert "closing" not in by_label["Actors/rank0"]
    closing = by_label["Actors/rank1"]["closing"]
    assert abs(closing["offset_ns"] - 4_000_000_000) <= closing["error_ns"] < 50_000_000
    opened = next(row for row in manifest["windows"] if row["target"].startswith("Actors-r1-"))["opened"]
    used = opened["epoch_ns"] - opened["driver_ns"]
    assert by_label["Actors/rank1"]["offset_ns"] < used < closing["offset_ns"]


def test_the_driver_itself_can_be_a_worker(ray_cluster: Any, tmp_path: Path) -> None:
    """``controller: {}`` opens windows in the driver's process, under the group ``controller``."""
    import accelprof

    ctl = controller(tmp_path, steps=[1], controller={})
    try:
        with ctl.step(1), accelprof.profiling_range("driver/schedule"):
            pass
        manifest = ctl.close()
        assert windows(manifest) == [("controller/0", (1,))]
        [artifact] = manifest["artifacts"]
        text = gzip.decompress(Path(ctl.run_dir, artifact["path"]).read_bytes()).decode()
        assert "driver/schedule" in text
    finally:
        accelprof.reset()


def test_nothing_is_selected_nothing_is_made(pool: list[Any], tmp_path: Path) -> None:
    """Without steps there is no directory, the options are the user's own, and the calls do nothing."""
    actor = pool[0]
    ctl = controller(tmp_path)
    assert ctl.options("Actors", rank=0, num_cpus=0) == {"num_cpus": 0}
    ctl.attach("Actors", actor)
    with ctl.step(1):
        ray.get(actor.update.remote())
    manifest = ctl.close()
    assert ctl.run_dir is None
    assert manifest["status"] == "complete"
    assert list(tmp_path.iterdir()) == []


def test_colocated_roles_are_one_worker_with_both(pool: list[Any], tmp_path: Path) -> None:
    """Attached as actor and again as rollout, the process opens the windows of both."""
    actors = pool[:1]
    groups = {"Workers": [{"roles": ["actor"], "steps": [1]}, {"roles": ["rollout"], "steps": [2]}]}
    ctl = controller(tmp_path, groups=groups)
    ctl.attach("Workers", actors, role="actor")
    ctl.attach("Workers", actors, role="rollout")
    for step in (1, 2):
        with ctl.step(step):
            pass
    manifest = ctl.close()
    assert windows(manifest) == [("Workers/0", (1,)), ("Workers/0", (2,))]
    assert manifest["status"] == "complete"


DRIVER = """
import sys, logging, ray
from accelprof import Worker
from accelprof.cluster import Controller

class Trainer(Worker):
    @Worker.timer("actor/update")
    def update(self):
        return 1

ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
         object_store_memory=100 * 1024 * 1024)
ctl = Controller(steps=[1], output_dir=sys.argv[1], run="run", report_timeout=5)
actor = ray.remote(num_cpus=0)(Trainer).remote()
ctl.attach("Actors", actor)
ctl.begin_step(1)
ray.get(actor.update.remote())
how = sys.argv[2]
if how == "close":
    ctl.close()
    ray.shutdown()
elif how == "raise":
    raise RuntimeError("the driver's own")
elif how == "shutdown":
    ctl.end_step()
    ray.shutdown()
"""


@pytest.mark.parametrize("how", ["close", "raise", "shutdown"])
def test_however_the_driver_ends_what_was_recorded_is_in_the_manifest(how: str, tmp_path: Path) -> None:
    """Closed and shut down at once, ended by an exception without close, or shut down before it: the window is there."""
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    env = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), how],
        capture_output=True,
        text=True,
        timeout=120,
        env=env,
        check=False,
    )
    assert done.returncode == (1 if how == "raise" else 0), done.stderr
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert windows(manifest) == [("Actors/0", (1,))]
    assert [artifact["state"] for artifact in manifest["artifacts"]] == ["complete"]
    assert (manifest["problems"] == []) == (how == "close")
