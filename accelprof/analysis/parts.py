"""Figures that a comparison is made of: of one worker (:class:`Part`), and over workers (:class:`Figure`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

#: figures of which a call is the same one on all devices
SHARED_CALLS = frozenset({"phase on device"})


@dataclass
class Part:
    """One figure of one worker: ``total_ns`` over ``count`` of ``per`` (``step``, ``call``, ``window`` or ``file``); ``samples`` are
    the repetitions in it by what tells them apart (the step, the number of a call).

    Attributes:
        calls: how many calls there are in all, 0 where none are counted; of a device its kernels.
        all_ns: what all took where that is not ``total_ns``: of a figure of a step also outside of the steps, and of a call inside
            another of its phase its own time too.
        windows: how many windows that is, 0 where it is not known.
        device: whose figure it is, as text; empty where it is none of a device.
    """

    measure: str
    name: str
    worker: str
    total_ns: float
    count: int = 1
    samples: dict[str, float] = field(default_factory=dict)
    per: str = "window"
    calls: int = 0
    all_ns: float = 0.0
    windows: int = 0
    device: str = ""


@dataclass
class Figure:
    """A figure over workers: ``ns`` of one ``per``, and its repetitions. ``count``: of how many on a worker it is the mean;
    ``all_ns``, ``calls``, ``windows``: of all parts together."""

    ns: float
    samples: tuple[float, ...] = ()
    per: str = "window"
    count: int = 1
    calls: int = 0
    all_ns: float = 0.0
    windows: int = 0


def joined(parts: Sequence[Part]) -> Figure:
    """The mean over workers; of one worker the devices add up."""
    parts = _over_devices(parts)
    count = sum(part.count for part in parts)
    keys = dict.fromkeys(key for part in parts for key in part.samples)
    found = ([part.samples[key] for part in parts if key in part.samples] for key in keys)
    total = sum(part.total_ns for part in parts)
    pers = {part.per for part in parts}
    return Figure(
        total if count == 1 else total / max(count, 1), tuple(sum(mine) / len(mine) for mine in found),
        pers.pop() if len(pers) == 1 else "window", max(part.count for part in parts), sum(part.calls for part in parts),
        sum(part.all_ns or part.total_ns for part in parts), sum(part.windows for part in parts),
    )  # fmt: skip


def _over_devices(parts: Sequence[Part]) -> list[Part]:
    found: dict[tuple[str, int], list[Part]] = {}
    for at, part in enumerate(parts):
        found.setdefault((part.worker, -1 if part.device else at), []).append(part)
    return [mine[0] if len(mine) == 1 else _added(mine) for mine in found.values()]


def _added(parts: Sequence[Part]) -> Part:
    first, pers = parts[0], {part.per for part in parts}
    of_calls = max if first.measure in SHARED_CALLS else sum
    calls, total = of_calls(part.calls for part in parts), sum(part.all_ns for part in parts)
    if len(pers) > 1:
        return Part(first.measure, first.name, first.worker, total, calls or 1, {}, "call", calls, total)
    samples: dict[str, float] = {}
    for part in parts:
        for key, ns in part.samples.items():
            samples[key] = samples.get(key, 0.0) + ns
    count = calls if first.per == "call" else max(part.count for part in parts)
    return Part(
        first.measure, first.name, first.worker, sum(part.total_ns for part in parts), count, samples, first.per, calls,
        total, max(part.windows for part in parts),
    )  # fmt: skip
