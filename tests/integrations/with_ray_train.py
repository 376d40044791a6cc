"""Ray Train with two workers and gloo, really trained; one line in the loop. Run under the interpreter that has torch and Ray."""

from __future__ import annotations

import glob
import gzip
import json
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

import accelprof


@pytest.fixture(autouse=True)
def clean():
    yield
    accelprof.reset()


@pytest.mark.parametrize("count", [0, 1, 3])
def test_as_many_steps_as_batches(monkeypatch, tmp_path, count):
    """As many steps are announced as the loop runs, whether the batches end or the loop is left."""
    from accelprof.integrations import ray_train
    from accelprof.session.session import Session

    begun = []
    begin = Session.begin_step
    monkeypatch.setattr(
        Session, "begin_step", lambda self, number, **more: (begun.append(number), begin(self, number, **more))[1]
    )
    context = SimpleNamespace(get_world_rank=lambda: 0, get_world_size=lambda: 1)
    monkeypatch.setattr(ray.train, "get_context", lambda: context)
    seen = list(ray_train.steps(range(count), steps=[1], output_dir=str(tmp_path / "p")))
    assert (seen, begun) == (list(range(count)), list(range(1, count + 1)))
    if count:
        (path,) = glob.glob(f"{tmp_path}/p/*/manifest.json")
        with open(path) as file:
            assert [row["steps"] for row in json.load(file)["windows"]] == [[1]]
    del begun[:]
    steps = ray_train.steps(iter(range(count)), steps=[1, count + 1], output_dir=str(tmp_path / "r"))
    # nothing says how many, and the window of the step that never came holds none
    assert list(steps) == list(range(count))
    (path,) = glob.glob(f"{tmp_path}/r/*/manifest.json")
    with open(path) as file:
        manifest = json.load(file)
    assert [row["steps"] for row in manifest["windows"]] == [[1]] * (count > 0) + [[]]
    assert manifest["targets"][0]["steps_seen"] == list(range(1, count + 1))
    del begun[:]
    for batch in ray_train.steps(range(9), steps=[1], output_dir=str(tmp_path / "q")):
        if batch == count:
            break
    assert begun == list(range(1, count + 2))


@pytest.fixture(scope="module")
def cluster():
    handler = signal.getsignal(signal.SIGTERM)
    ray.init(address="local", num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()
    signal.signal(signal.SIGTERM, handler)


def test_two_workers(cluster, tmp_path):
    """Both ranks have a window on step 2, in one run with one manifest, and the report names the phases of both."""
    directory = str(tmp_path / "p")

    def loop(settings):
        import torch

        from accelprof.integrations import ray_train

        torch.manual_seed(ray.train.get_context().get_world_rank())
        model = ray.train.torch.prepare_model(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        batches = torch.utils.data.DataLoader(torch.ones(12, 4), batch_size=4)
        for batch in ray_train.steps(batches, steps=[2], ranks="all", output_dir=settings["directory"]):
            optimizer.zero_grad()
            model(batch).pow(2).mean().backward()
            optimizer.step()
        ray.train.report({"loss": float(model(batch).pow(2).mean())})

    result = TorchTrainer(
        loop,
        train_loop_config={"directory": directory},
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False, resources_per_worker={"CPU": 1}),
        run_config=RunConfig(storage_path=str(tmp_path / "ray")),
    ).fit()
    assert result.error is None
    (path,) = glob.glob(f"{directory}/*/manifest.json")
    with open(path) as file:
        manifest = json.load(file)
    assert sorted((row["rank"], row["world_size"], row["group"]) for row in manifest["targets"]) == [
        (0, 2, "Trainer"),
        (1, 2, "Trainer"),
    ]
    assert [row["steps"] for row in manifest["windows"]] == [[2], [2]]
    assert (manifest["status"], manifest["problems"]) == ("complete", [])
    for trace in glob.glob(f"{directory}/*/Trainer/*.trace.json.gz"):
        with gzip.open(trace) as file:
            names = [event["name"] for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
        assert {"data", "train/step"} <= set(names)
    done = subprocess.run(
        [sys.executable, "-m", "accelprof", "report", path.removesuffix("/manifest.json"), "--json"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert '"train/step"' in done.stdout


def test_one_of_two_workers_fails(cluster, tmp_path):
    """The user's own error ends the training; both ranks' windows up to it are written, and that of the step that raised is closed."""
    directory = str(tmp_path / "p")

    def loop(settings):
        import torch

        from accelprof.integrations import ray_train

        rank = ray.train.get_context().get_world_rank()
        batches = torch.utils.data.DataLoader(torch.ones(12, 4), batch_size=4)
        for number, _ in enumerate(
            ray_train.steps(batches, steps=[1, 2], ranks="all", output_dir=settings["directory"]), 1
        ):
            if number == 2 and rank == 1:
                raise ArithmeticError("the user's own")

    trainer = TorchTrainer(
        loop,
        train_loop_config={"directory": directory},
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False, resources_per_worker={"CPU": 1}),
        run_config=RunConfig(storage_path=str(tmp_path / "ray")),
    )
    with pytest.raises(Exception, match="the user's own"):
        trainer.fit()
    (run,) = glob.glob(f"{directory}/*")
    done = subprocess.run(
        [sys.executable, "-m", "accelprof", "report", run, "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    with open(f"{run}/manifest.json") as file:
        rows = {(row["target"].split("-")[1], *row["steps"]): row for row in json.load(file)["windows"]}
    assert {("r0", 1), ("r1", 1), ("r1", 2)} <= rows.keys()
    assert all(row["closed"] and not row.get("errors") for key, row in rows.items() if key != ("r0", 2)), rows
