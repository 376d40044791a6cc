"""Lightning: ``Trainer(callbacks=[AccelprofCallback(steps=[10])])``, of ``lightning`` or ``pytorch_lightning``."""

from __future__ import annotations

import functools
import sys
import weakref
from typing import Any

from accelprof.integrations.loop import Loop, Trainings


def _callback() -> object:
    """The base of the distribution that the program uses; both may be installed, and neither takes the other's."""
    if "lightning" not in sys.modules and "pytorch_lightning" in sys.modules:
        from pytorch_lightning import Callback
    else:
        from lightning.pytorch import Callback
    return Callback


class AccelprofCallback(_callback()):  # type: ignore[misc]  # the base is chosen when this is imported
    """Windows on steps of a Lightning trainer, with its parts as phases.

    Step ``n`` is the ``n``-th update, from 1, whether one optimizer or several step in it; it holds all micro-batches that are
    accumulated for it, the wait for their data, and the validation and saving that follow. A training that is resumed goes on
    after the checkpoint's ``global_step``. A session that the process has already is used.

    Args and errors as :class:`accelprof.integrations.transformers.AccelprofCallback`.
    """

    def __init__(self, config: object = None, group: str = "Trainer", **values: object) -> None:
        self._trainings = Trainings(config, group, values)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        runs = functools.partial(_runs, weakref.ref(trainer))
        loop = self._trainings.begin(trainer, runs, rank=trainer.global_rank, world_size=trainer.world_size)
        loop.wrap(trainer, {"save_checkpoint": "save"})
        # fetching begins where the loop over batches goes on: whatever other callbacks do between batches is none of it
        batches = trainer.fit_loop.epoch_loop
        loop.wrap(batches, {"on_run_start": "data"})
        loop.before(batches, "advance", lambda: self._fetch(trainer, loop))
        loop.wrap(pl_module, {"training_step": "train/forward", "optimizer_step": "train/optimizer_step"})

    @staticmethod
    def _fetch(trainer: Any, loop: Loop) -> None:
        loop.step_after(trainer.global_step)
        loop.enter("data")

    def on_train_epoch_start(self, trainer: Any, pl_module: object) -> None:
        self._trainings.of(trainer).step_after(trainer.global_step)

    def on_train_batch_start(self, trainer: Any, pl_module: object, batch: object, batch_idx: int) -> None:
        loop = self._trainings.of(trainer)
        loop.leave("data")
        loop.step_after(trainer.global_step)
        loop.enter("train/micro_batch")

    def on_before_backward(self, trainer: object, pl_module: object, loss: object) -> None:
        self._trainings.of(trainer).enter("train/backward")

    def on_after_backward(self, trainer: object, pl_module: object) -> None:
        self._trainings.of(trainer).leave("train/backward")

    def on_train_batch_end(
        self, trainer: object, pl_module: object, outputs: object, batch: object, batch_idx: int
    ) -> None:
        self._trainings.of(trainer).leave("train/micro_batch")

    def on_train_epoch_end(self, trainer: object, pl_module: object) -> None:
        self._trainings.of(trainer).leave("data")

    def on_validation_start(self, trainer: object, pl_module: object) -> None:
        self._trainings.of(trainer).enter("evaluate")

    def on_validation_end(self, trainer: object, pl_module: object) -> None:
        self._trainings.of(trainer).leave("evaluate")

    def on_fit_end(self, trainer: object, pl_module: object) -> None:
        self._trainings.of(trainer).end()

    def on_exception(self, trainer: object, pl_module: object, exception: BaseException) -> None:
        self._trainings.of(trainer).end(exception)


def _runs(trainer: weakref.ref[Any]) -> bool:
    """Whether a trainer still trains; where another callback raised, ours may not hear that it ended."""
    found = trainer()
    return found is not None and bool(found.state.status == "running")
