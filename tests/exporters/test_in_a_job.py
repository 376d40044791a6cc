"""Exporters in the jobs that have them: each step once, with the slowest rank, and the run's end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

import accelprof
from accelprof.catalogue import make_catalogue
from accelprof.contracts.exporter import Exporter
from accelprof.errors import ConfigError
from accelprof.launch.run import run
from accelprof.output.records import MetricsRow


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


def test_the_manifest_has_the_later_attempts_step(tmp_path):
    """Of a step that two processes of one rank did, whatever their journals' names: the one that began last."""
    session = accelprof.configure(steps=[2], output_dir=str(tmp_path), run="r", group="G", rank=0, export={"jsonl": {}})
    earlier = MetricsRow("G/rank0", 1, {"work": {"seconds": 9.0, "count": 1}}, 1_000_000_000, 9_000_000_000)
    for name in ("A", "zz"):
        (tmp_path / f"r/.workers/{name}.jsonl").write_text(json.dumps(earlier.to_journal()) + "\n")
    work = accelprof.timer("work")(lambda: None)
    with session.step(1):
        work()
    (step,) = session.close()["metrics"]["steps"]
    accelprof.reset()
    assert step["seconds"]["work"]["max"] < 1.0
    assert step["began_ns"] > 1.7e18
    assert step["wall_ns"] < 9_000_000_000


RANK = """
import os, sys, time
import accelprof
from accelprof.session import overranks
rank, directory, ranks, ends_at = int(os.environ["RANK"]), sys.argv[1], sys.argv[2], int(sys.argv[3])
overranks.PATIENCE_S = float(sys.argv[4])
session = accelprof.configure(
    steps=[3], ranks=[0] if ranks == "0" else "all", output_dir=directory, run="r", group="G", export={"jsonl": {}}
)
work = accelprof.timer("work")(time.sleep)
side = accelprof.timer("side")(time.sleep)
open(f"{directory}/began-{rank}", "w").close()
while not all(os.path.exists(f"{directory}/began-{other}") for other in range(int(sys.argv[5]))):
    time.sleep(0.01)
for step in range(1, 9):
    with session.step(step):
        work(0.02 * (1 + rank))
        if rank:
            side(0.01)
    if rank and step == ends_at:
        os._exit(1)
if rank == 0:
    until = time.monotonic() + 10
    while not os.path.exists(f"{directory}/r/steps.jsonl") or open(f"{directory}/r/steps.jsonl").read().count("\\n") < 8:
        assert time.monotonic() < until, "not live"
        time.sleep(0.05)
session.close()
"""


def of_two_ranks(tmp_path, ranks="all", ends_at=0, patience=10.0, started=2):
    """The lines that two processes of torchrun leave, and their manifest; rank 1 ends at step ``ends_at``, if at any."""
    script = tmp_path / "train.py"
    script.write_text(RANK)
    arguments = [sys.executable, str(script), str(tmp_path), ranks, str(ends_at), str(patience), str(started)]
    job = {"WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": str(time.time_ns()), "MASTER_ADDR": "x", "MASTER_PORT": "1"}
    processes = [
        subprocess.Popen(arguments, env={**os.environ, **job, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(started)
    ]
    assert [process.wait(60) for process in processes] == [0, 1 if ends_at else 0][:started]
    rows = [json.loads(line) for line in (tmp_path / "r/steps.jsonl").read_text().splitlines()]
    return rows, json.loads((tmp_path / "r/manifest.json").read_text())


@pytest.mark.parametrize("ranks", ["all", "0"])
def test_a_job_without_a_controller_exports_each_step_over_all_ranks(tmp_path, ranks):
    """While it runs: each step once, the same figures as in the manifest, whoever opens windows; phases that rank 0 lacks are there."""
    rows, manifest = of_two_ranks(tmp_path, ranks)
    kept = manifest["metrics"]["steps"]
    assert [row["step"] for row in rows] == [row["step"] for row in kept] == list(range(1, 9))
    for row, same in zip(rows, kept, strict=True):
        figures = {
            name: {key.removesuffix("_s"): value for key, value in phase.items()}
            for name, phase in row["phases"].items()
        }
        assert figures == same["seconds"]
        assert (row["wall_ns"], row["window"]) == (same["wall_ns"], same["window"])
        assert row["ended_ns"] == same["began_ns"] + same["wall_ns"]
        assert (row["phases"]["work"]["ranks"], row["phases"]["work"]["slowest"]) == (2, "G/rank1")
        assert (row["phases"]["side"]["ranks"], row["phases"]["side"]["slowest"]) == (1, "G/rank1")
    assert [row["step"] for row in rows if row["window"]] == [3]
    assert manifest["problems"] == []


def test_a_rank_that_ended_is_not_waited_for_again(tmp_path):
    """What it has written counts; the steps after it are of the ranks that are left, and come while the job runs."""
    rows, _ = of_two_ranks(tmp_path, ends_at=4, patience=0.5)
    assert [(row["step"], row["phases"]["work"]["ranks"]) for row in rows] == [
        *((step, 2) for step in range(1, 5)),
        *((step, 1) for step in range(5, 9)),
    ]


def test_ranks_that_write_elsewhere_are_missing_and_said(tmp_path):
    """Figures of fewer ranks than the job has say so, in each row and once in words."""
    rows, manifest = of_two_ranks(tmp_path, patience=0.5, started=1)
    assert [(row["step"], row["phases"]["work"]["ranks"]) for row in rows] == [(step, 1) for step in range(1, 9)]
    (said,) = manifest["problems"]
    assert "figures are over 1 of 2 ranks" in said
    assert "no common launcher" in said
    assert "output_dir is on a disk that all share" in said


class FailsAtTheEnd(Exporter):
    """Cannot finish, or cannot close."""

    name = "fails"
    at = "finish"

    def _called(self, call):
        if call == self.at:
            raise OSError(28, "no space")

    def finish(self, manifest, directory):
        self._called("finish")

    def close(self):
        self._called("close")


class Failing:
    """Brings it."""

    @accelprof.hookimpl
    def accelprof_exporters(self):
        return [FailsAtTheEnd]


@pytest.mark.parametrize("at", ["finish", "close"])
@pytest.mark.parametrize("way", ["plain", "launcher"])
def test_what_fails_when_the_run_ends_stands_in_the_manifest(tmp_path, monkeypatch, at, way):
    """Exporters are told of the end when the manifest is written: what fails then is in it all the same, once."""
    monkeypatch.setattr(FailsAtTheEnd, "at", at)
    values = {"steps": [1], "output_dir": str(tmp_path), "run": "r", "export": {"fails": {}}}
    if way == "plain":
        accelprof.register(Failing())
        session = accelprof.configure(**values, group="G", rank=0)
        with session.step(1):
            pass
        told = session.close()
        accelprof.reset()
    else:
        registry = make_catalogue()
        registry.register(Failing(), "failing")
        config = registry.load(values).config
        script = "import accelprof as a; s = a.configure(group='G', rank=0); s.begin_step(1); s.close()"
        told = run(registry, config, registry.plan(config), [sys.executable, "-c", script]).manifest.to_json()
    written = json.loads((tmp_path / "r/manifest.json").read_text())
    (said,) = [text for text in written["problems"] if "export:" in text]
    assert said.endswith(f"export: fails is left out from here on: {at}: OSError: [Errno 28] no space")
    assert told["problems"] == written["problems"]


class NoPage:
    """Cannot make the run's page."""

    @accelprof.hookimpl
    def accelprof_run_pages(self, run_dir):
        return "no page: disk full"


@pytest.mark.parametrize("exporter", [True, False])
@pytest.mark.parametrize("way", ["plain", "launcher"])
def test_what_fails_while_the_page_is_made_stands_in_the_one_manifest(tmp_path, way, exporter):
    """On disk, returned and returned again: the same, whether an exporter failed after it or not."""
    values = {"steps": [1], "output_dir": str(tmp_path), "run": "r", "export": {"fails": {}} if exporter else {}}
    if way == "plain":
        accelprof.register(Failing())
        accelprof.register(NoPage())
        session = accelprof.configure(**values, group="G", rank=0)
        with session.step(1):
            pass
        told = session.close()
        assert session.close() == told
        accelprof.reset()
    else:
        registry = make_catalogue()
        registry.register(Failing(), "failing")
        registry.register(NoPage(), "no page")
        config = registry.load(values).config
        script = "import accelprof as a; s = a.configure(group='G', rank=0); s.begin_step(1); s.close()"
        told = run(registry, config, registry.plan(config), [sys.executable, "-c", script]).manifest.to_json()
    written = json.loads((tmp_path / "r/manifest.json").read_text())
    assert told["problems"] == written["problems"]
    assert written["problems"].count("no page: disk full") == 1
    assert any("export: fails" in text for text in written["problems"]) == exporter


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
    registry = make_catalogue()
    for name, export in (("with", {"jsonl": {}}), ("without", {})):
        values = {"steps": [2], "ranks": [0], "output_dir": str(tmp_path), "run": name, "export": export}
        config = registry.load(values).config
        outcome = run(registry, config, registry.plan(config), [sys.executable, str(train)])
        assert outcome.status == 0
        written = tmp_path / name / "steps.jsonl"
        assert written.exists() == bool(export)
        assert all(row["wall_ns"] > 0 for row in outcome.manifest.steps())
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
        registry = make_catalogue()
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
