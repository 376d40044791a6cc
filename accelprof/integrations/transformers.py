"""Transformers' ``Trainer``, and TRL's trainers over it: ``callbacks=[AccelprofCallback(steps=[10])]``."""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from types import FrameType
from typing import Any

from transformers import Trainer, TrainerCallback

from accelprof.integrations.loop import Trainings

#: what a trainer may have, and the phase it is; TRL's are those of its GRPO, RLOO, DPO and SFT trainers
PHASES = {
    "get_batch_samples": "data",
    "training_step": "train/micro_batch",
    "evaluate": "evaluate",
    "prediction_step": "evaluate/micro_batch",
    "_save_checkpoint": "save",
    "_generate_and_score_completions": "rollout",
    "_generate": "rollout/generate",
    "_calculate_rewards": "rollout/reward",
    "_get_per_token_logps_and_entropies": "log_probs",
}
#: evaluation computes losses too, which are none of training's
LOSS = {"compute_loss": "train/loss"}
TRAINS = {"training_step": True, "prediction_step": False, "evaluate": False}
#: what the training's own method calls, from the first of its steps to its end; early releases of 5 have no `_run_epoch`
CALLED = (
    "_run_epoch",
    "_evaluate",
    "get_batch_samples",
    "training_step",
    "_maybe_log_save_evaluate",
    "_finalize_training",
)
OPTIMIZER = "train/optimizer"


class AccelprofCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not typed for mypy here
    """Windows on steps of a ``Trainer``, with its parts as phases.

    Step ``n`` is the ``n``-th update, from 1 (``global_step`` once it is done); it begins with the fetching of its data and
    lasts until that of the next, so evaluation and saving lie in the step they follow. The last one ends with the training,
    which an exception ends too. Rank and number of processes are the trainer's, which has them from ``accelerate``. A session
    that the process has already is used, and left open.

    Args:
        config: as for :func:`accelprof.configure`.
        group: the worker group.
        **values: configuration keys (``steps=[10], tool="torch"``), and ``role``, ``rank``, ``world_size`` or ``replica`` instead of
            the trainer's own.

    Raises:
        ConfigError, PluginError: the configuration is wrong.
    """

    def __init__(self, config: object = None, group: str = "Trainer", **values: object) -> None:
        self._trainings = Trainings(config, group, values)
        self._training = False

    def on_train_begin(self, args: Any, state: Any, control: object, **_: object) -> None:
        runs = functools.partial(_runs, state, weakref.ref(threading.current_thread()))
        loop = self._trainings.begin(state, runs, rank=args.process_index, world_size=args.world_size)
        trainer = _trainer(state, sys._getframe())
        if trainer is None:
            loop.voice.say("the trainer was not found from its callback; only steps and the optimizer are seen")
            return
        loop.wrap(trainer, PHASES)
        loop.wrap(trainer, LOSS, when=lambda: self._training)
        for name, training in TRAINS.items():
            loop.before(trainer, name, functools.partial(setattr, self, "_training", training))
        loop.before(trainer, "get_batch_samples", lambda: loop.step(state.global_step + 1))
        # no event says that a training raised, and its own method runs already, as does the event that brought us here
        handler = trainer.callback_handler
        others = [(other, "on_train_begin") for other in handler.callbacks if other is not self]
        loop.ends([*((trainer, name) for name in CALLED), (handler, "call_event"), *others])

    def on_step_begin(self, args: object, state: Any, control: object, **_: object) -> None:
        self._trainings.of(state).step(state.global_step + 1)

    def on_pre_optimizer_step(self, args: object, state: object, control: object, **_: object) -> None:
        self._trainings.of(state).enter(OPTIMIZER)

    def on_optimizer_step(self, args: object, state: object, control: object, **_: object) -> None:
        self._trainings.of(state).leave(OPTIMIZER)

    def on_train_end(self, args: object, state: object, control: object, **_: object) -> None:
        self._trainings.of(state).end()


def _trainer(state: object, frame: FrameType | None) -> Any:
    """The trainer whose callbacks are being called: no argument names it, but it stands on the stack."""
    while frame is not None:
        found = frame.f_locals.get("self")
        if isinstance(found, Trainer) and found.state is state:
            return found
        frame = frame.f_back
    return None


def _runs(state: object, begun_on: weakref.ref[threading.Thread]) -> bool:
    """Whether a training that nobody said to be over still runs: each has a state of its own. On the thread that it began on its
    trainer stands on the stack; frames of other threads may be freed while one looks, so there it runs while its thread does."""
    thread = begun_on()
    if thread is threading.current_thread():
        return _trainer(state, sys._getframe()) is not None
    return thread is not None and thread.is_alive()
