"""Transformers' Trainer, TRL's GRPO and Lightning, really trained on a tiny random model. Run under the interpreter that has them."""

from __future__ import annotations

import contextlib
import glob
import gzip
import json
import signal
import threading

import pytest
import torch
from tiny import model, tokenizer
from transformers import TrainerCallback

import accelprof
from accelprof.errors import ConfigError
from accelprof.integrations.transformers import AccelprofCallback


@pytest.fixture(autouse=True)
def clean():
    torch.manual_seed(0)
    yield
    accelprof.reset()


def run_of(directory):
    """Of the one run in ``directory``, or that is ``directory``."""
    (path,) = glob.glob(f"{directory}/*/manifest.json") or glob.glob(f"{directory}/manifest.json")
    with open(path) as file:
        return path.removesuffix("/manifest.json"), json.load(file)


def phases(run_dir, step):
    """Labels of the timeline of one step's window."""
    found = []
    for path in glob.glob(f"{run_dir}/*/*-s{step}-*.trace.json.gz"):
        if ".pt.trace." not in path:
            with gzip.open(path) as file:
                found += [event["name"] for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
    return [name for name in found if not name.startswith(("window ", "step "))]


def reported(run_dir):
    """Phases that ``accelprof report`` has of a run."""
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "accelprof", "report", run_dir, "--json"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    text = done.stdout
    return {
        word for word in ("train/micro_batch", "train/optimizer", "evaluate", "save", "data") if f'"{word}"' in text
    }


class Numbers(torch.utils.data.Dataset):
    def __init__(self, words):
        self.rows = [
            words(f"{a}+{b}={a + b}", return_tensors="pt")["input_ids"][0] for a in range(2, 5) for b in range(2, 10)
        ]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index][:5], "labels": self.rows[index][:5]}


def trainer(tmp_path, *callbacks, **more):
    from transformers import Trainer, TrainingArguments

    words = tokenizer()
    options = {"max_steps": 4, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 2, "use_cpu": True,
               "report_to": [], "save_strategy": "steps", "save_steps": 2, "eval_strategy": "steps", "eval_steps": 2,
               "disable_tqdm": True, **more}  # fmt: skip
    data = Numbers(words)
    return Trainer(
        model(words), TrainingArguments(str(tmp_path / "out"), **options), train_dataset=data,
        eval_dataset=torch.utils.data.Subset(data, range(4)), callbacks=list(callbacks),
    )  # fmt: skip


def weights(made):
    return [parameter.detach().clone() for parameter in made.model.parameters()]


def test_trainer(tmp_path):
    """A step holds its data, both micro-batches, the optimizer, and the evaluation and saving that follow; weights are what they are without us."""
    made = trainer(tmp_path, AccelprofCallback(steps=[1, 2], tool="torch", output_dir=str(tmp_path / "p")))
    made.train()
    run_dir, manifest = run_of(tmp_path / "p")
    assert [window["steps"] for window in manifest["windows"]] == [[1], [2]]
    assert (manifest["status"], manifest["problems"]) == ("complete", [])
    (target,) = manifest["targets"]
    assert (target["group"], target["rank"], target["world_size"]) == ("Trainer", 0, 1)
    first, second = phases(run_dir, 1), phases(run_dir, 2)
    assert first.count("train/micro_batch") == second.count("train/micro_batch") == 2
    assert {"data", "train/loss", "train/optimizer"} <= set(first)
    assert not {"evaluate", "save"} & set(first)
    assert {"evaluate", "evaluate/micro_batch", "save"} <= set(second)
    assert first.count("train/loss") == second.count("train/loss") == 2  # evaluation's own losses are not among them
    assert {item["tool"] for item in manifest["artifacts"]} == {"torch", "trace"}
    assert {"train/micro_batch", "train/optimizer", "evaluate"} <= reported(run_dir)
    assert "training_step" not in vars(made)
    assert accelprof.current_session() is None
    torch.manual_seed(0)
    plain = trainer(tmp_path / "again")
    plain.train()
    assert all(torch.equal(one, other) for one, other in zip(weights(made), weights(plain), strict=True))


def test_a_second_training_and_an_exception(tmp_path):
    """The same callback serves a second training; an exception of the training is the training's own."""
    callback = AccelprofCallback(steps=[1], output_dir=str(tmp_path / "p"), run="one")
    made = trainer(tmp_path, callback, max_steps=1, eval_strategy="no", save_strategy="no")
    made.train()
    made.train()
    assert len(glob.glob(f"{tmp_path}/p/*/manifest.json")) == 2

    def fails(*_, **__):
        raise ZeroDivisionError("mine")

    made.compute_loss = fails
    with pytest.raises(ZeroDivisionError, match="mine"):
        made.train()
    del made.compute_loss
    made.train()
    assert accelprof.current_session() is None


class Fails(TrainerCallback):
    def on_pre_optimizer_step(self, *_, **__):
        raise ZeroDivisionError("mine")


def test_a_training_after_one_that_raised(tmp_path):
    """The training tried again has its windows, each with all that its step holds; those of the failed one stay apart."""
    plain = {"eval_strategy": "no", "save_strategy": "no", "max_steps": 3}
    made = trainer(
        tmp_path, AccelprofCallback(steps=[1, 2, 3], output_dir=str(tmp_path / "p"), run="one"), Fails(), **plain
    )
    with pytest.raises(ZeroDivisionError, match="mine"):
        made.train()
    made.remove_callback(Fails)
    made.train()
    assert accelprof.current_session() is None
    assert not {"training_step", "get_batch_samples", "evaluate"} & set(vars(made))
    found = {}
    for path in glob.glob(f"{tmp_path}/p/*/manifest.json"):
        with open(path) as file:
            found[len(json.load(file)["windows"])] = path.removesuffix("/manifest.json")
    assert sorted(found) == [1, 3]
    for step in (1, 2, 3):
        labels = phases(found[3], step)
        assert (labels.count("train/micro_batch"), labels.count("train/optimizer")) == (2, 1)
        assert "data" in labels


def test_another_trainer_after_one_that_raised(tmp_path):
    """A training that raised does not keep the next trainer's callback from having its own plan, whichever callback it is."""
    plain = {"eval_strategy": "no", "save_strategy": "no", "max_steps": 2}
    failed = trainer(tmp_path, AccelprofCallback(steps=[1], output_dir=str(tmp_path / "p")), Fails(), **plain)
    with pytest.raises(ZeroDivisionError, match="mine"):
        failed.train()
    trainer(tmp_path, AccelprofCallback(steps=[2], output_dir=str(tmp_path / "q")), **plain).train()
    assert [window["steps"] for window in run_of(tmp_path / "p")[1]["windows"]] == [[1]]
    assert [window["steps"] for window in run_of(tmp_path / "q")[1]["windows"]] == [[2]]
    assert "training_step" not in vars(failed)
    assert accelprof.current_session() is None


class TrainsInside(TrainerCallback):
    """After update 2 of its trainer trains another, maybe with an exception that it catches."""

    def __init__(self, tmp_path, *callbacks):
        self.tmp_path, self.callbacks = tmp_path, callbacks

    def on_step_end(self, args, state, control, **_):
        if state.global_step == 2:
            plain = {"max_steps": 3, "eval_strategy": "no", "save_strategy": "no"}
            try:
                trainer(self.tmp_path / "inner", *self.callbacks, **plain).train()
            except ZeroDivisionError:
                pass


@pytest.mark.parametrize("shared", [False, True], ids=["two callbacks", "one callback"])
@pytest.mark.parametrize("raises", [None, "on_pre_optimizer_step", "on_train_begin"])
def test_a_training_inside_another(tmp_path, caplog, shared, raises):
    """The inner one is a phase of the outer one's step; steps, windows and counts are the outer one's, also where the inner raised."""
    first = AccelprofCallback(steps=[1, 2, 3, 4], output_dir=str(tmp_path / "p"))
    second = first if shared else AccelprofCallback(steps=[1], output_dir=str(tmp_path / "q"))
    fails = type("Raises", (TrainerCallback,), {raises: Fails.on_pre_optimizer_step} if raises else {})()
    made = trainer(tmp_path, first, TrainsInside(tmp_path, second, fails), eval_strategy="no", save_strategy="no")
    made.train()
    run_dir, manifest = run_of(tmp_path / "p")
    assert [window["steps"] for window in manifest["windows"]] == [[1], [2], [3], [4]]
    assert (manifest["status"], manifest["problems"]) == ("complete", [])
    assert manifest["targets"][0]["steps_seen"] == [1, 2, 3, 4]
    for step in (1, 2, 3, 4):
        labels = phases(run_dir, step)
        assert [labels.count(name) for name in ("train/micro_batch", "train/optimizer", "train/loss")] == [2, 1, 2]
        assert labels.count("train/inner") == (step == 2)
    assert not (tmp_path / "q").exists()
    assert accelprof.current_session() is None
    said = [record.getMessage() for record in caplog.records if "runs inside another's steps" in record.getMessage()]
    assert len(said) == 1
    assert not {"training_step", "get_batch_samples", "evaluate"} & set(vars(made))


def test_a_training_inside_a_step_of_the_programs_own(tmp_path):
    """Steps that the program announces are its own; each holds a training."""
    session = accelprof.configure(steps=[1, 2], output_dir=str(tmp_path / "p"), group="G", rank=0)
    for step in (1, 2):
        with session.step(step):
            trainer(tmp_path, AccelprofCallback(), max_steps=2, eval_strategy="no", save_strategy="no").train()
    assert list(session.steps_seen) == [1, 2]
    session.close()
    run_dir, manifest = run_of(tmp_path / "p")
    assert [window["steps"] for window in manifest["windows"]] == [[1], [2]]
    assert [phases(run_dir, step) for step in (1, 2)] == [["train/inner"]] * 2


@pytest.mark.parametrize("early", [False, True], ids=["in an epoch", "before the first"])
def test_a_training_that_raised_is_over(tmp_path, early):
    """Step and session end with the exception, wherever the training had come to: what runs afterwards is none of it."""
    import time

    class Interrupts(TrainerCallback):
        def on_epoch_begin(self, *_, **__):
            if early:
                raise KeyboardInterrupt

        def on_step_end(self, args, state, control, **_):
            if state.global_step == 2:
                raise KeyboardInterrupt

    made = trainer(
        tmp_path, AccelprofCallback(steps="all", output_dir=str(tmp_path / "p")), Interrupts(), save_strategy="no"
    )
    before = set(vars(made))
    with pytest.raises(KeyboardInterrupt):
        made.train()
    assert accelprof.current_session() is None
    assert not {"training_step", "evaluate", "_run_epoch"} & (set(vars(made)) - before)
    assert "call_event" not in vars(made.callback_handler)
    time.sleep(1)
    made.evaluate()
    run_dir, manifest = run_of(tmp_path / "p")
    assert [window["steps"] for window in manifest["windows"]] == ([] if early else [[1], [2]])
    if not early:
        assert manifest["windows"][-1]["reason"] == "exception"
        walls = {row["step"]: row.get("wall_ns") for row in manifest["metrics"]["steps"]}
        assert walls[1]
        assert not walls.get(2)  # it did not come to its end
        assert "evaluate" not in phases(run_dir, 2)
        (path,) = glob.glob(f"{run_dir}/*/*-s2-*.trace.json.gz")
        with gzip.open(path) as file:
            events = [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
        optimizer = max(event["ts"] + event["dur"] for event in events if event["name"] == "train/optimizer")
        assert max(event["ts"] + event["dur"] for event in events) - optimizer < 0.9e6


class Raises(TrainerCallback):
    """Hears of a training's beginning after others, and ends it."""

    def on_train_begin(self, *_, **__):
        raise ZeroDivisionError("mine")


def test_a_training_that_raised_as_it_began_is_over(tmp_path):
    """Another callback that raises as it hears of the beginning ends step and session at once; its methods are its own again."""
    fails = Raises()
    made = trainer(tmp_path, AccelprofCallback(steps=[1], output_dir=str(tmp_path / "p")), fails)
    with pytest.raises(ZeroDivisionError, match="mine"):
        made.train()
    assert accelprof.current_session() is None
    assert "on_train_begin" not in vars(fails)
    assert not {"training_step", "evaluate", "_run_epoch"} & set(vars(made))


def fails_in_the_handler(made):
    """The training raises where nothing that it calls is ours: its callbacks have all heard of the beginning."""
    begin = made.callback_handler.on_train_begin

    def begun(*args, **kwargs):
        begin(*args, **kwargs)
        raise ZeroDivisionError("mine")

    made.callback_handler.on_train_begin = begun


@pytest.mark.parametrize(
    ("where", "alive"), [("callback", True), ("handler", False)], ids=["its thread goes on", "its thread ended"]
)
def test_a_training_of_another_thread_that_raised(tmp_path, where, alive):
    """It keeps none on this thread from having its own plan; frames of other threads are not read."""
    plain = {"eval_strategy": "no", "save_strategy": "no", "max_steps": 2}
    raises = [Raises()] if where == "callback" else []
    failed = trainer(tmp_path, AccelprofCallback(steps=[1], output_dir=str(tmp_path / "p")), *raises, **plain)
    if where == "handler":
        fails_in_the_handler(failed)
    raised, go_on = threading.Event(), threading.Event()

    def train():
        with pytest.raises(ZeroDivisionError, match="mine"):
            failed.train()
        raised.set()
        go_on.wait(60)

    thread = threading.Thread(target=train)
    thread.start()
    assert raised.wait(120)
    if not alive:
        go_on.set()
        thread.join()
    trainer(tmp_path, AccelprofCallback(steps=[2], output_dir=str(tmp_path / "q")), **plain).train()
    go_on.set()
    thread.join()
    assert [window["steps"] for window in run_of(tmp_path / "q")[1]["windows"]] == [[2]]
    assert accelprof.current_session() is None


def test_a_training_beside_one_of_another_thread(tmp_path):
    """One that runs on another thread has the steps; that of this thread is a phase in them, and an end of it is none of the other's."""
    plain = {"eval_strategy": "no", "save_strategy": "no", "max_steps": 2}
    running, go_on = threading.Event(), threading.Event()

    class Waits(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step == 1:
                running.set()
                go_on.wait(120)

    first = trainer(tmp_path, AccelprofCallback(steps=[1, 2], output_dir=str(tmp_path / "p")), Waits(), **plain)
    thread = threading.Thread(target=first.train)
    thread.start()
    assert running.wait(120)
    with pytest.raises(ZeroDivisionError, match="mine"):
        trainer(tmp_path, AccelprofCallback(steps=[1], output_dir=str(tmp_path / "q")), Raises(), **plain).train()
    go_on.set()
    thread.join()
    run_dir, manifest = run_of(tmp_path / "p")
    assert [window["steps"] for window in manifest["windows"]] == [[1], [2]]
    assert phases(run_dir, 1).count("train/inner") == 1
    assert not (tmp_path / "q").exists()
    assert accelprof.current_session() is None


def test_resume_continues_the_steps_numbers(tmp_path):
    """A training that goes on from a checkpoint counts on: the window of a step before it does not open, one after it does, and
    the weights are those of an uninterrupted training without us."""
    trainer(tmp_path, max_steps=2).train()
    made = trainer(tmp_path, AccelprofCallback(steps=[1, 4], output_dir=str(tmp_path / "p")))
    made.train(resume_from_checkpoint=str(tmp_path / "out/checkpoint-2"))
    run_dir, manifest = run_of(tmp_path / "p")
    assert [window["steps"] for window in manifest["windows"]] == [[4]]
    assert manifest["targets"][0]["steps_seen"] == [3, 4]
    found = phases(run_dir, 4)
    assert (found.count("train/micro_batch"), found.count("evaluate"), found.count("save")) == (2, 1, 1)
    torch.manual_seed(0)
    plain = trainer(tmp_path / "again")
    plain.train(resume_from_checkpoint=str(tmp_path / "out/checkpoint-2"))
    assert all(torch.equal(one, other) for one, other in zip(weights(made), weights(plain), strict=True))


def test_wrong_configuration_is_refused_at_once():
    """A configuration that is wrong is refused where the callback is made, before anything is trained."""
    with pytest.raises(ConfigError, match="stepz"):
        AccelprofCallback(stepz=[1])


def test_a_session_that_is_there_is_used(tmp_path):
    """A session that the program made itself is used and stays open."""
    session = accelprof.configure(steps=[1], output_dir=str(tmp_path / "p"), group="Mine", rank=0)
    trainer(tmp_path, AccelprofCallback(), max_steps=1, eval_strategy="no", save_strategy="no").train()
    assert not session.closed
    assert [window.steps for window in session.windows] == [[1]]
    session.close()


def test_who_the_process_is_may_be_said(tmp_path):
    """Role, rank, number of processes and replica that are given stand before the trainer's own."""
    who = {"role": "actor", "rank": 3, "world_size": 5, "replica": 1}
    callback = AccelprofCallback(steps=[1], ranks="all", output_dir=str(tmp_path / "p"), **who)
    trainer(tmp_path, callback, max_steps=1, eval_strategy="no", save_strategy="no").train()
    (target,) = run_of(tmp_path / "p")[1]["targets"]
    assert {name: target[name] for name in ("rank", "world_size", "replica")} == {
        "rank": 3,
        "world_size": 5,
        "replica": 1,
    }
    assert "actor" in str(target)


def test_grpo(tmp_path):
    """A GRPO training with generation: rollout, generation, rewards and the update are phases of its step."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    words = tokenizer()
    options = GRPOConfig(
        str(tmp_path / "out"), use_cpu=True, num_generations=4, per_device_train_batch_size=4, max_completion_length=8,
        report_to=[], save_strategy="no", max_steps=3, disable_tqdm=True, bf16=False,
    )  # fmt: skip
    made = GRPOTrainer(
        model(words),
        lambda completions, **_: [float(text.count("1")) for text in completions],
        args=options,
        train_dataset=Dataset.from_dict({"prompt": [f"{n}+{n}=" for n in range(8)]}),
        processing_class=words,
        callbacks=[AccelprofCallback(steps=[2], output_dir=str(tmp_path / "p"))],
    )
    made.train()
    run_dir, manifest = run_of(tmp_path / "p")
    assert [window["steps"] for window in manifest["windows"]] == [[2]]
    assert [said for said in manifest["problems"] if "closing window" not in said] == []  # a busy machine may be slow
    found = set(phases(run_dir, 2))
    assert {
        "data",
        "train/micro_batch",
        "train/loss",
        "train/optimizer",
        "rollout",
        "rollout/generate",
        "rollout/reward",
    } <= found


def lightning_module():
    """A module of one layer, with validation."""
    from lightning.pytorch import LightningModule

    class Module(LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, index):
            return self.layer(batch).pow(2).mean()

        def validation_step(self, batch, index):
            self.log("loss", self.layer(batch).mean())

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    return Module()


def test_lightning(tmp_path):
    """Lightning's trainer: two accumulated micro-batches a step, their backward, data, validation and saving."""
    from lightning.pytorch import Trainer

    from accelprof.integrations.lightning import AccelprofCallback as Callback

    loader = torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=1)
    made = Trainer(
        max_epochs=1, accumulate_grad_batches=2, accelerator="cpu", logger=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=str(tmp_path), enable_checkpointing=False, val_check_interval=4,
        callbacks=[Callback(steps=[2, 3], output_dir=str(tmp_path / "p"))],
    )  # fmt: skip
    module = lightning_module()
    made.fit(module, loader, loader)
    run_dir, manifest = run_of(tmp_path / "p")
    assert [window["steps"] for window in manifest["windows"]] == [[2], [3]]
    assert [said for said in manifest["problems"] if "closing window" not in said] == []  # a busy machine may be slow
    second = phases(run_dir, 2)
    assert second.count("train/micro_batch") == second.count("train/backward") == second.count("train/forward") == 2
    assert {"data", "evaluate", "train/optimizer_step"} <= set(second)
    assert "training_step" not in vars(module)


def test_lightning_goes_on_after_an_end_it_was_not_told_of(tmp_path):
    """Another callback that raises as it hears of an exception keeps it from ours: the next training counts its steps all the same."""
    from lightning.pytorch import Callback as Base
    from lightning.pytorch import Trainer

    from accelprof.integrations.lightning import AccelprofCallback as Callback

    class Deaf(Base):
        def on_train_batch_end(self, *_):
            raise RuntimeError("in a batch")

        def on_exception(self, *_):
            raise RuntimeError("in hearing of it")

    def trainer(*callbacks):
        return Trainer(
            max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
            enable_checkpointing=False, limit_val_batches=0, callbacks=[*callbacks, ours],
        )  # fmt: skip

    loader = torch.utils.data.DataLoader(torch.ones(3, 4), batch_size=1)
    ours = Callback(steps=[2], output_dir=str(tmp_path / "p"))
    failed, before = trainer(Deaf()), signal.getsignal(signal.SIGTERM)
    with pytest.raises(RuntimeError, match="in hearing of it"):
        failed.fit(lightning_module(), loader)
    signal.signal(signal.SIGTERM, before)  # which Lightning, interrupted in its own end, did not give back
    trainer().fit(lightning_module(), loader)
    manifests = [json.loads(path.read_text()) for path in (tmp_path / "p").glob("*/manifest.json")]
    assert sorted(len(manifest["targets"][0]["steps_seen"]) for manifest in manifests) == [1, 3]
    assert [window["steps"] for manifest in manifests for window in manifest["windows"]] == [[2]]
    assert not [said for manifest in manifests for said in manifest["problems"] if "inside another's steps" in said]


def test_lightning_data_is_fetching_alone(tmp_path):
    """Other callbacks' work between batches, saving among it, is not the data's; fetching after a validation amid the epoch is."""
    import time

    from lightning.pytorch import Callback as Base
    from lightning.pytorch import Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint

    from accelprof.integrations.lightning import AccelprofCallback as Callback

    class Slow(Base):
        def on_train_batch_end(self, *_):
            time.sleep(0.5)

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 5

        def __getitem__(self, index):
            time.sleep(0.1)
            return torch.ones(4)

    made = Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        num_sanity_val_steps=0, val_check_interval=2, default_root_dir=str(tmp_path),
        callbacks=[
            Callback(steps=[1, 2, 3], output_dir=str(tmp_path / "p")),
            Slow(),
            ModelCheckpoint(dirpath=str(tmp_path / "saved"), every_n_train_steps=3, save_top_k=-1),
        ],
    )  # fmt: skip
    made.fit(lightning_module(), torch.utils.data.DataLoader(Rows()), torch.utils.data.DataLoader(torch.ones(1, 4)))
    run_dir, _ = run_of(tmp_path / "p")
    for step in (1, 2, 3):
        (path,) = glob.glob(f"{run_dir}/*/*-s{step}-*.trace.json.gz")
        with gzip.open(path) as file:
            events = [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
        data = [event for event in events if event["name"] == "data"]
        assert 0.09e6 < sum(event["dur"] for event in data) < 0.5e6
        for save in (event for event in events if event["name"] == "save"):
            assert all(one["ts"] >= save["ts"] + save["dur"] or one["ts"] + one["dur"] <= save["ts"] for one in data)
    assert "advance" not in vars(made.fit_loop.epoch_loop)


@pytest.mark.parametrize(("accumulated", "slow", "step"), [(1, 2, 3), (1, 5, 6), (2, 5, 3), (2, 4, 3)])
def test_lightning_data_lies_in_its_own_step(tmp_path, accumulated, slow, step):
    """The wait for a slow batch is the data of the step that the batch is for, and of no other."""
    import time

    from lightning.pytorch import Trainer

    from accelprof.integrations.lightning import AccelprofCallback as Callback

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, index):
            time.sleep(0.5 if index == slow else 0)
            return torch.ones(4)

    made = Trainer(
        max_epochs=1, accumulate_grad_batches=accumulated, accelerator="cpu", logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False, limit_val_batches=0,
        callbacks=[Callback(steps="all", output_dir=str(tmp_path / "p"))],
    )  # fmt: skip
    made.fit(lightning_module(), torch.utils.data.DataLoader(Rows()))
    run_dir, manifest = run_of(tmp_path / "p")
    waited = {}
    for number in manifest["targets"][0]["steps_seen"]:
        (path,) = glob.glob(f"{run_dir}/*/*-s{number}-*.trace.json.gz")
        with gzip.open(path) as file:
            events = json.load(file)["traceEvents"]
        waited[number] = sum(event["dur"] for event in events if event.get("ph") == "X" and event["name"] == "data")
    assert list(waited) == list(range(1, 6 // accumulated + 1))
    assert max(waited, key=waited.get) == step
    assert waited[step] > 0.45e6


@pytest.mark.parametrize("per_batch", [1, 2, 3])
def test_lightning_with_several_optimizers(tmp_path, per_batch):
    """Optimizers that step in one batch make one step, and steps follow one another: Lightning's counter goes up by each of them."""
    from lightning.pytorch import LightningModule, Trainer

    from accelprof.integrations.lightning import AccelprofCallback as Callback

    class Module(LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 1) for _ in range(per_batch))

        def training_step(self, batch, index):
            made = self.optimizers() if per_batch > 1 else [self.optimizers()]
            for optimizer, layer in zip(made, self.layers, strict=True):
                optimizer.zero_grad()
                self.manual_backward(layer(batch).pow(2).mean())
                optimizer.step()

        def configure_optimizers(self):
            return [torch.optim.SGD(layer.parameters(), 0.1) for layer in self.layers]

    made = Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        enable_checkpointing=False, callbacks=[Callback(steps=[2, 4], output_dir=str(tmp_path / "p"))],
    )  # fmt: skip
    made.fit(Module(), torch.utils.data.DataLoader(torch.ones(3, 4), batch_size=1))
    run_dir, manifest = run_of(tmp_path / "p")
    assert manifest["targets"][0]["steps_seen"] == [1, 2, 3, 4, 5, 6]
    assert [window["steps"] for window in manifest["windows"]] == [[2], [4]]
    for step in (2, 4):
        assert phases(run_dir, step).count("train/micro_batch") == 1


@pytest.mark.parametrize("shared", [False, True], ids=["two callbacks", "one callback"])
@pytest.mark.parametrize("raises", [False, True])
def test_a_lightning_training_inside_another(tmp_path, shared, raises):
    """As of Transformers: a phase of the outer one's step; steps and windows are the outer one's, also where the inner raised."""
    from lightning.pytorch import Callback as Base
    from lightning.pytorch import Trainer

    from accelprof.integrations.lightning import AccelprofCallback as Callback

    def fit(rows, *callbacks):
        made = Trainer(
            max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
            enable_checkpointing=False, limit_val_batches=0, default_root_dir=str(tmp_path), callbacks=list(callbacks),
        )  # fmt: skip
        made.fit(lightning_module(), torch.utils.data.DataLoader(torch.ones(rows, 4)))
        assert "advance" not in vars(made.fit_loop.epoch_loop)

    class Fails(Base):
        def on_train_batch_end(self, *_):
            if raises:
                raise ZeroDivisionError("mine")

    class TrainsInside(Base):
        def on_train_batch_end(self, trainer, module, outputs, batch, index):
            if index == 1:
                with contextlib.suppress(ZeroDivisionError):
                    fit(3, second, Fails())

    first = Callback(steps="all", output_dir=str(tmp_path / "p"))
    second = first if shared else Callback(steps=[1], output_dir=str(tmp_path / "q"))
    for run in (1, 2):
        fit(4, first, TrainsInside())
        assert accelprof.current_session() is None
        found = [run_of(directory) for directory in (tmp_path / "p").iterdir()]
        assert len(found) == run
        for run_dir, manifest in found:
            assert manifest["targets"][0]["steps_seen"] == [1, 2, 3, 4]
            assert [window["steps"] for window in manifest["windows"]] == [[1], [2], [3], [4]]
            for step in (1, 2, 3, 4):
                labels = phases(run_dir, step)
                assert [labels.count(name) for name in ("train/micro_batch", "train/forward", "train/backward")] == [
                    1,
                    1,
                    1,
                ]
                assert labels.count("train/inner") == (step == 2)
    assert not (tmp_path / "q").exists()
