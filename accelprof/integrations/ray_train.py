"""Ray Train: one line in the loop of each worker, ``for batch in ray_train.steps(loader, steps=[10]):``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import ray.train

from accelprof.integrations.loop import Loop

T = TypeVar("T")


def steps(batches: Iterable[T], config: object = None, group: str = "Trainer", **values: object) -> Iterator[T]:
    """The batches, each one a step, numbered from 1: what the loop does with it is phase ``train/step``, fetching the next one ``data``.

    The first batch is fetched before the first step, each other one at the end of the step before it, as in ``Session.steps``.
    All workers of a training share one run directory; no controller is needed. Where there is one, or a session, it is
    used. After the last batch, and when the loop is left in another way, the session is closed.

    Args:
        batches: what the loop goes over.
        config: as for :func:`accelprof.configure`.
        group: the worker group.
        **values: configuration keys, and ``role``, ``rank``, ``world_size`` or ``replica`` instead of Ray Train's own.

    Raises:
        ConfigError, PluginError: the configuration is wrong.
    """
    return _steps(Loop(config, group, values), batches)


def _steps(loop: Loop, batches: Iterable[T]) -> Iterator[T]:
    context = ray.train.get_context()
    loop.begin(rank=context.get_world_rank(), world_size=context.get_world_size())
    try:
        source = iter(batches)
        number = 0
        while True:
            loop.enter("data")
            try:
                batch = next(source)
            except StopIteration:
                return
            finally:
                loop.leave("data")
            number += 1  # only now is it known that there is such a step
            loop.step(number)
            loop.enter("train/step")
            yield batch
            loop.leave("train/step")
    finally:
        loop.end()
