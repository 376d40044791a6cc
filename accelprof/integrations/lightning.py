"""Lightning: ``Trainer(callbacks=[AccelprofCallback(steps=[10])])``, of ``lightning`` or ``pytorch_lightning``."""

from __future__ import annotations

import sys
from typing import Any

from accelprof.integrations.loop import Loop


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
        self._loop = Loop(config, group, values)
        self._number = 0
        self._updates: int | None = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self._updates = None
        self._loop.begin(training=trainer, rank=trainer.global_rank, world_size=trainer.world_size)
        self._loop.wrap(trainer, {"save_checkpoint": "save"})
        # fetching begins where the loop over batches goes on: whatever other callbacks do between batches is none of it
        batches = trainer.fit_loop.epoch_loop
        self._loop.wrap(batches, {"on_run_start": "data"})
        self._loop.before(batches, "advance", lambda: self._fetch(trainer))
        self._loop.wrap(pl_module, {"training_step": "train/forward", "optimizer_step": "train/optimizer_step"})

    def _fetch(self, trainer: Any) -> None:
        self._step(trainer)
        self._loop.enter("data")

    def _step(self, trainer: Any) -> None:
        """``global_step`` counts every optimizer's updates: where it has moved, by however much, the next step begins."""
        done = trainer.global_step
        if done != self._updates:
            self._number = done + 1 if self._updates is None else self._number + 1
            self._updates = done
        self._loop.step(self._number)

    def on_train_epoch_start(self, trainer: object, pl_module: object) -> None:
        self._step(trainer)

    def on_train_batch_start(self, trainer: object, pl_module: object, batch: object, batch_idx: int) -> None:
        self._loop.leave("data")
        self._step(trainer)
        self._loop.enter("train/micro_batch")

    def on_before_backward(self, trainer: object, pl_module: object, loss: object) -> None:
        self._loop.enter("train/backward")

    def on_after_backward(self, trainer: object, pl_module: object) -> None:
        self._loop.leave("train/backward")

    def on_train_batch_end(
        self, trainer: object, pl_module: object, outputs: object, batch: object, batch_idx: int
    ) -> None:
        self._loop.leave("train/micro_batch")

    def on_train_epoch_end(self, trainer: object, pl_module: object) -> None:
        self._loop.leave("data")

    def on_validation_start(self, trainer: object, pl_module: object) -> None:
        self._loop.enter("evaluate")

    def on_validation_end(self, trainer: object, pl_module: object) -> None:
        self._loop.leave("evaluate")

    def on_fit_end(self, trainer: object, pl_module: object) -> None:
        self._loop.end()

    def on_exception(self, trainer: object, pl_module: object, exception: BaseException) -> None:
        self._loop.end(exception)
