"""Figures that a comparison is made of: of one worker (:class:`Part`), and over workers (:class:`Figure`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

#: figures of which a call is the same one on all devices
SHARED_CALLS = frozenset({"phase on device"})
#: what a phase takes on one worker without what others make it wait
OWN_TIME = "own time"


@dataclass
class Part:
    """One figure of one worker: ``total_ns`` over ``count`` of ``per`` (``step``, ``call``, ``window`` or ``file``); ``samples`` are
    the repetitions in it by what tells them apart (the step, the number of a call).

    Attributes:
        calls: how many calls there are, without those that a window cut where there are others; 0 where none are counted; of a
            device its kernels.
        all_ns: what these took where that is not ``total_ns``: of a figure of a step also outside of the steps, and of a call inside
            another of its phase its own time too.
        windows: how many windows that is, 0 where it is not known.
        device: whose figure it is, as text; empty where it is none of a device.
        phase: of an own time, which phase's; its name has the worker in it too. Empty in baselines of versions that did not say.
        with_window: of steps that had a window open, while those without one are a part of their own.
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
    with_window: bool = False
    phase: str = ""

    @property
    def whose(self) -> tuple[str, str]:
        """Of an own time the phase and the worker, otherwise nothing."""
        if self.measure != OWN_TIME:
            return "", ""
        behind = f" on {self.worker}" if self.worker else ""
        return self.phase or self.name.removesuffix(behind), self.worker


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
    """The mean over workers, each of which counts once however much of it was recorded; of one worker the devices add up."""
    parts = _over_devices(parts)
    if any(part.per == "call" for part in parts):
        parts = [part for part in parts if part.calls] or parts  # who never calls it has no mean call
    pers = {part.per for part in parts}
    means = [part.total_ns if part.count == 1 else part.total_ns / max(part.count, 1) for part in parts]
    return Figure(
        sum(means) / len(means) if len(means) > 1 else means[0], _over_workers(parts),
        pers.pop() if len(pers) == 1 else "window", max(part.count for part in parts), sum(part.calls for part in parts),
        sum(part.all_ns or part.total_ns for part in parts), sum(part.windows for part in parts),
    )  # fmt: skip


def _over_workers(parts: Sequence[Part]) -> tuple[float, ...]:
    """The mean over workers of each repetition. Of one that not all of them have, how far those who have it are from their own
    means: otherwise it would stand for who was recorded in it."""
    sampled = [part.samples for part in parts if part.samples]
    found: dict[str, list[float]] = {}
    for samples in sampled:
        for key, ns in samples.items():
            found.setdefault(key, []).append(ns)
    if all(len(mine) == len(sampled) for mine in found.values()):
        return tuple(sum(mine) / len(mine) for mine in found.values())
    means = [sum(samples.values()) / len(samples) for samples in sampled]
    middle = sum(means) / len(means)
    apart: dict[str, list[float]] = {}
    for samples, mean in zip(sampled, means, strict=True):
        for key, ns in samples.items():
            apart.setdefault(key, []).append(ns - mean)
    return tuple(middle + sum(mine) / len(mine) for mine in apart.values())


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
