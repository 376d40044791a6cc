"""Ray Train: one line in the loop of each worker, ``for batch in ray_train.steps(loader, steps=[10]):``."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TypeVar

import ray.train

from accelprof.integrations.loop import Loop
from accelprof.session.loop import known_count

T = TypeVar("T")


def steps(batches: Iterable[T], config: object = None, group: str = "Trainer", **values: object) -> Iterator[T]:
    """The batches, each one a step, numbered from 1, that begins with fetching it, the phase ``data``; what the loop does with it is
    phase ``train/step``. Lengths of batches count as in ``Session.steps``.

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
    loop.begin(training=loop, rank=context.get_world_rank(), world_size=context.get_world_size())
    try:
        count, source = known_count(batches), iter(batches)
        for number in itertools.count(1):
            if number <= count:
                loop.step(number)
            loop.enter("data")
            try:
                batch = next(source)
            except StopIteration:
                if number <= count:
                    loop.void_step()
                return
            finally:
                loop.leave("data")
            loop.step(number)
            loop.enter("train/step")
            yield batch
            loop.leave("train/step")
    finally:
        loop.end()
