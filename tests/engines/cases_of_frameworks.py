"""Presets on the released frameworks themselves: their own loops run, over an engine that computes next to nothing.

Run by test_real_frameworks.py in the environment that has them.
"""

from __future__ import annotations

import contextlib
import inspect
import warnings
from types import SimpleNamespace

import pytest

from accelprof.testing import capture
from accelprof.timing import metrics

pytestmark = pytest.mark.filterwarnings("ignore")  # what the frameworks warn about while they are imported is theirs


@pytest.fixture
def verl():
    """``verl.workers.engine_workers`` of the release that is installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns about every engine that is not there
        from verl.workers import engine_workers
    return engine_workers


class Engine:
    """Stands where FSDP would; what is called on it is counted."""

    def __init__(self):
        self.batches = 0

    def train_mode(self, **kwargs):
        return contextlib.nullcontext()

    def get_data_parallel_size(self):
        return 1

    def get_data_parallel_rank(self):
        return 0

    def is_mp_src_rank_with_outputs(self):
        return False

    def train_batch(self, data, loss_function):
        self.batches += 1

    def lr_scheduler_step(self):
        return 0.1


def training_worker(module):
    """A ``TrainingWorker`` without its constructor, which joins a process group and loads a model."""
    from verl.utils.profiler import DistProfiler

    worker = object.__new__(module.TrainingWorker)
    worker.engine, worker.loss_fn = Engine(), lambda **kwargs: None
    worker.engine_config = SimpleNamespace(
        forward_only=False,
        use_dynamic_bsz=False,
        max_token_len_per_gpu=1,
        micro_batch_size_per_gpu=1,
        use_fused_kernels=False,
    )
    worker.model_config = {}
    worker.profiler = DistProfiler(rank=0, config=None, tool_config=None)
    return worker


def batch(size):
    import torch
    from tensordict import TensorDict

    return TensorDict({"x": torch.arange(size)}, batch_size=[size])


def test_first_mini_batch_of_verls_update(verl):
    """``verl.mini_batch`` with a schedule records mini-batch 0 of four in verl's own loop, and gives its method back."""
    original = inspect.getattr_static(verl.TrainingWorker, "train_batch")
    from verl.utils import tensordict_utils as tu

    with capture(tool=None, presets=["verl.mini_batch"], schedule={"phase": "mini_batch", "active": 1}) as run:
        assert vars(original), "verl hangs its dispatch data on the function"
        kept = vars(verl.TrainingWorker.train_batch)
        assert all(kept[key] == value for key, value in vars(original).items() if key != "__wrapped__")
        worker, data = training_worker(verl), batch(8)
        tu.assign_non_tensor(data, num_mini_batch=4, epochs=1)
        worker.train_mini_batch(data)
        assert worker.engine.batches == 4
        [window] = run.session.windows
        assert (window["phase"], window["schedule"]["first"], window["schedule"]["calls"]) == ("mini_batch", 0, 1)
        run.session.close()
        assert run.session.problems == []
    assert inspect.getattr_static(verl.TrainingWorker, "train_batch") is original


def test_stages_of_verl_are_phases(verl):
    """The role stages that ``per:`` can name are instrumented beside the micro-batch, and give back what they were."""
    names = ("update_actor", "compute_log_prob", "compute_ref_log_prob")
    before = [inspect.getattr_static(verl.ActorRolloutRefWorker, name) for name in names]
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

    with capture(tool=None, presets=["verl.micro_batch"], steps="process") as run:
        for name, original in zip(names, before, strict=True):
            now = inspect.getattr_static(verl.ActorRolloutRefWorker, name)
            assert now is not original
            assert inspect.signature(now) == inspect.signature(original)

        class Mine(FSDPEngineWithLMHead):
            def __init__(self):
                pass

            def forward_step(self, micro_batch, loss_function, forward_only):
                return micro_batch

        mine = Mine()
        assert mine.forward_step(3, None, True) == 3
        assert metrics.stats(metrics.all_states())["micro_batch"]["count"] == 1
        run.session.close()
        assert run.session.problems == []
    assert [inspect.getattr_static(verl.ActorRolloutRefWorker, name) for name in names] == before


def test_rlinf_micro_batches(monkeypatch):
    """``rlinf.micro_batch`` and ``rlinf.training_step`` on RLinf's own classes, which keep their signatures and come back."""
    import transformers

    # a name that RLinf 0.3.0 imports and newer transformers no longer have
    if not hasattr(transformers, "AutoModelForVision2Seq"):
        monkeypatch.setattr(transformers, "AutoModelForVision2Seq", transformers.AutoModel, raising=False)
    from rlinf.workers.actor import fsdp_actor_worker

    names = ("forward_batch", "training_step", "run_training", "run_inference")
    before = [inspect.getattr_static(fsdp_actor_worker.FSDPActor, name) for name in names]
    schedule = {"phase": "training_step", "wait": 1, "active": 1}
    with capture(tool=None, presets=["rlinf.micro_batch", "rlinf.training_step"], schedule=schedule) as run:
        for name, original in zip(names, before, strict=True):
            now = getattr(fsdp_actor_worker.FSDPActor, name)
            assert now.__wrapped__ is original
            assert inspect.signature(now) == inspect.signature(original)

        class Mine(fsdp_actor_worker.FSDPActor):
            def __new__(cls):
                return object.__new__(cls)

            def __init__(self):
                pass

            def training_step(self, batch):
                return batch

        mine = Mine()
        assert [mine.training_step(number) for number in range(3)] == [0, 1, 2]
        [window] = run.session.windows
        assert window["schedule"]["first"] == 1
        run.session.close()
        assert run.session.problems == []
    assert [inspect.getattr_static(fsdp_actor_worker.FSDPActor, name) for name in names] == before
