"""Figures that a comparison is made of: of one worker (:class:`Part`), and over workers (:class:`Figure`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Part:
    """One figure of one worker: ``total_ns`` over ``count`` of ``per`` (``step``, ``call``, ``window`` or ``file``); ``samples`` are
    the repetitions in it by what tells them apart (the step, the number of a call).

    ``calls``: how many calls there are in all, 0 where none are counted, and ``calls_ns`` what those took: of a figure of a step
    also the calls outside of the steps, and of a call inside another of its phase each has its own time.
    """

    measure: str
    name: str
    worker: str
    total_ns: float
    count: int = 1
    samples: dict[str, float] = field(default_factory=dict)
    per: str = "window"
    calls: int = 0
    calls_ns: float = 0.0


@dataclass
class Figure:
    """A figure over workers: ``ns`` of one ``per``, and its repetitions. ``count``: of how many on a worker it is the mean;
    ``call_ns``: the same of one call, ``None`` where calls are not counted."""

    ns: float
    samples: tuple[float, ...] = ()
    per: str = "window"
    count: int = 1
    calls: int = 0
    call_ns: float | None = None


def joined(parts: Sequence[Part]) -> Figure:
    count = sum(part.count for part in parts)
    keys = dict.fromkeys(key for part in parts for key in part.samples)
    found = ([part.samples[key] for part in parts if key in part.samples] for key in keys)
    total, calls = sum(part.total_ns for part in parts), sum(part.calls for part in parts)
    calls_ns = sum(part.calls_ns for part in parts)
    pers = {part.per for part in parts}
    return Figure(
        total if count == 1 else total / max(count, 1), tuple(sum(mine) / len(mine) for mine in found),
        pers.pop() if len(pers) == 1 else "window", max(part.count for part in parts), calls,
        calls_ns / calls if calls else None,
    )  # fmt: skip
