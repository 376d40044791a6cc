"""Exporters in the jobs that have them: each step once, with the slowest rank, and the run's end."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import accelprof
from accelprof.catalogue import Registry
from accelprof.errors import ConfigError
from accelprof.launch.run import run


@pytest.mark.ray
def test_a_controller_exports_each_step_over_all_ranks(ray_cluster, tmp_path):
    """``export`` of a Ray job: a line a step with figures over the ranks, and window steps marked."""
    from accelprof.cluster import Controller

    @ray_cluster.remote(num_cpus=0)
    class Actor(accelprof.Worker):
        @accelprof.Worker.timer("actor/update")
        def update(self, seconds):
            import time

            time.sleep(seconds)

    controller = Controller(steps=[2], ranks="all", output_dir=str(tmp_path), export={"jsonl": {}})
    actors = [Actor.options(**controller.options("G", rank=rank)).remote() for rank in range(2)]
    controller.attach("G", actors)
    for step in (1, 2, 3):
        with controller.step(step):
            ray_cluster.get([actor.update.remote(0.05 * (rank + 1)) for rank, actor in enumerate(actors)])
    manifest = controller.close(end_workers=True)
    with open(f"{controller.run_dir}/steps.jsonl", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    assert [(row["step"], row["window"]) for row in rows] == [(1, False), (2, True), (3, False)]
    for row in rows:
        update = row["phases"]["actor/update"]
        assert update["slowest"] == "G/rank1"
        assert update["ranks"] == 2
        assert 0.05 <= update["min_s"] <= update["mean_s"] <= update["max_s"]
        assert row["wall_ns"] >= update["max_s"] * 1e9
    assert manifest["problems"] == []


def test_a_plain_process_exports_its_steps(tmp_path):
    """Without a controller rank 0 does it: a line a step, there while the run goes on."""
    session = accelprof.configure(steps=[2], output_dir=str(tmp_path), run="r", group="G", rank=0, export={"jsonl": {}})
    work = accelprof.timer("work")(lambda: None)
    for step in (1, 2, 3):
        with session.step(step):
            work()
    manifest = session.close()
    accelprof.reset()
    with open(tmp_path / "r" / "steps.jsonl", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    assert [(row["step"], row["window"], row["phases"]["work"]["ranks"]) for row in rows] == [
        (1, False, 1),
        (2, True, 1),
        (3, False, 1),
    ]
    kept = manifest["metrics"]["steps"]
    assert [(row["step"], row["window"]) for row in kept] == [(1, False), (2, True), (3, False)]
    assert [row["wall_ns"] for row in kept] == [row["wall_ns"] for row in rows]
    assert all(row["began_ns"] > 1.7e18 for row in kept)


def test_the_launcher_exports_the_steps_of_its_processes(tmp_path):
    """Under ``accelprof run`` each step of all ranks goes to the exporters once the command has ended, over more than may wait at
    once, and the run's end; without ``export`` the manifest alone has them."""
    train = tmp_path / "train.py"
    train.write_text(
        "import os, accelprof\n"
        "work = accelprof.timer('work')(lambda: None)\n"
        "for rank in range(2):\n"
        "    if os.fork() == 0:\n"
        "        s = accelprof.configure(group='G', rank=rank, world_size=2)\n"
        "        for step in range(1, 1201):\n"
        "            with s.step(step):\n"
        "                work()\n"
        "        s.close()\n"
        "        os._exit(0)\n"
        "os.wait(), os.wait()\n"
    )
    registry = Registry()
    for name, export in (("with", {"jsonl": {}}), ("without", {})):
        values = {"steps": [2], "ranks": [0], "output_dir": str(tmp_path), "run": name, "export": export}
        config = registry.load(values).config
        outcome = run(registry, config, registry.plan(config), [sys.executable, str(train)])
        assert outcome.status == 0
        written = tmp_path / name / "steps.jsonl"
        assert written.exists() == bool(export)
        assert all(row["wall_ns"] > 0 for row in outcome.manifest["metrics"]["steps"])
    rows = [json.loads(line) for line in (tmp_path / "with/steps.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 1201))
    assert all(row["phases"]["work"]["ranks"] == 2 for row in rows)
    assert [row["step"] for row in rows if row["window"]] == [2]
    assert all(row["wall_ns"] > 0 and row["ended_ns"] > 1.7e18 for row in rows)


JOB = """
import accelprof
{begin}
p = accelprof.timer("p")(lambda: None)
try:
    for number in (1, 2, 3):
        with run.step(number):
            p()
            if number == 2:
                raise ValueError("the job's own")
except ValueError:
    pass
run.close()
"""
PLAIN = "run = accelprof.configure(group='G', rank=0{values})"


@pytest.mark.parametrize("how", ["plain", "launched", "controlled"])
def test_a_step_that_raised_has_no_end_for_anybody(tmp_path, how):
    """Whoever made the page: the step's figures are there, and neither a length nor a time at which it ended."""
    values = {"steps": [2], "output_dir": str(tmp_path), "run": "r", "export": {"jsonl": {}}}
    begin = PLAIN.format(values="" if how == "launched" else f", **{values}")
    if how == "controlled":
        pytest.importorskip("ray")
        begin = f"from accelprof.cluster import Controller\nrun = Controller(controller={{'tool': None}}, **{values})"
    job = tmp_path / "job.py"
    job.write_text(JOB.format(begin=begin))
    words = [sys.executable, str(job)]
    if how == "launched":
        registry = Registry()
        config = registry.load(values).config
        run(registry, config, registry.plan(config), words)
    else:
        subprocess.run(words, check=True, timeout=120)
    rows = [json.loads(line) for line in (tmp_path / "r/steps.jsonl").read_text().splitlines()]
    kept = json.loads((tmp_path / "r/manifest.json").read_text())["metrics"]["steps"]
    assert [(row["step"], row["wall_ns"] is None, row["ended_ns"] is None) for row in rows] == [
        (1, False, False),
        (2, True, True),
    ]
    assert [row.get("ended", True) for row in kept] == [True, False]
    assert rows[0]["ended_ns"] == kept[0]["began_ns"] + kept[0]["wall_ns"]


def test_a_wrong_exporter_is_refused_where_the_plan_is_made(tmp_path):
    """Before anything starts, and with no directory left."""
    with pytest.raises(ConfigError, match=r"export\.jsonls"):
        accelprof.configure(steps=[1], output_dir=str(tmp_path / "o"), export={"jsonls": {}})
    assert not (tmp_path / "o").exists()
