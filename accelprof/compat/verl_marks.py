"""verl's timers, marks and reductions of timings, over our ranges and metrics."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from accelprof.compat.forms import within
from accelprof.contracts.backend import Backend
from accelprof.timing.gate import gate, now_ns
from accelprof.timing.phase import PhaseSpec
from accelprof.timing.running import WorkerTimer, can_be_suspended
from accelprof.timing.timer import timer

F = TypeVar("F", bound=Callable[..., Any])

__all__ = [
    "GPUMemoryLogger",
    "gather_timing",
    "log_gpu_memory_usage",
    "mark_annotate",
    "mark_end_range",
    "mark_start_range",
    "marked_timer",
    "reduce_timing",
    "simple_timer",
    "topk_reduce_ratio_min_max",
]


class Mark:
    """A range between ``mark_start_range`` and ``mark_end_range``, whatever task or thread ends it."""

    __slots__ = ("entry", "start")

    def __init__(self, entry: Any, start: int) -> None:
        self.entry, self.start = entry, start


def mark_start_range(
    message: str | None = None, color: str | None = None, domain: str | None = None, category: str | None = None
) -> Mark:
    """Begin a range; it is in the tool's data when a window is open."""
    entrance = gate.entrance
    spec = PhaseSpec(message or "range", domain or "", color or "", category or "")
    return Mark(entrance.enter_range(spec, True) if entrance is not None else None, now_ns())


def mark_end_range(range_id: Any) -> None:
    """End it. A second time, without a range, or with something that is none (another library's number), does nothing."""
    if isinstance(range_id, Mark) and range_id.entry is not None:
        entry, range_id.entry = range_id.entry, None
        entry.leave(range_id.start, now_ns())


def mark_annotate(
    message: str | None = None, color: str | None = None, domain: str | None = None, category: str | None = None
) -> Callable[[F], F]:
    """Decorate a function with a range for the length of each call, exceptions included."""

    def decorator(function: Any) -> Any:
        if not callable(function):
            return function  # decorated without parentheses, the function is taken for the message
        label = str(message or getattr(function, "__name__", type(function).__name__))
        return timer(label, color=color or "", domain=domain or "", category=category or "")(function)

    return decorator


class _Timed:
    """Adds the seconds of its block to ``timing_raw[name]``; of one that raises, for phases only. Async blocks and decorating work too."""

    def __init__(self, name: str, timing_raw: dict[str, float], inner: Callable[[], WorkerTimer] | None) -> None:
        self._name, self._raw, self._make = name, timing_raw, inner
        self._open: list[tuple[int, WorkerTimer | None]] = []

    def __enter__(self) -> None:
        inner = self._make() if self._make is not None else None
        if inner is not None:
            inner._begin(can_be_suspended(sys._getframe(1)))
        self._open.append((now_ns(), inner))

    def __exit__(self, *error: object) -> None:
        start, inner = self._open.pop()
        seconds = (now_ns() - start) / 1e9
        if inner is not None:
            inner.__exit__()
        elif any(error):
            return
        self._raw[self._name] = self._raw.get(self._name, 0) + seconds

    async def __aenter__(self) -> None:
        inner = self._make() if self._make is not None else None
        if inner is not None:
            await inner.__aenter__()
        self._open.append((now_ns(), inner))

    async def __aexit__(self, *error: object) -> None:
        self.__exit__(*error)

    def __call__(self, function: F) -> F:
        return within(function, functools.partial(type(self), self._name, self._raw, self._make))


def simple_timer(name: str, timing_raw: dict[str, float]) -> _Timed:
    """``with simple_timer("gen", timing_raw):`` adds the block's seconds, unless it raises; no range."""
    return _Timed(name, timing_raw, None)


def marked_timer(
    name: str,
    timing_raw: dict[str, float],
    color: str | None = None,
    domain: str | None = None,
    category: str | None = None,
) -> _Timed:
    """As :func:`simple_timer`, and a phase of ours: a range while a window is open, and this process's metrics."""
    return _Timed(name, timing_raw, lambda: WorkerTimer(None, name, color or "", domain or "", category or ""))


# --- over ranks -------------------------------------------------------------------------------------------------------

_REDUCTIONS: dict[str, Callable[[list[float]], float]] = {
    "AVG": lambda values: math.fsum(values) / len(values),
    "SUM": math.fsum,
    "MAX": max,
    "MIN": min,
    "PRODUCT": math.prod,
}


def _gathered(timing_raw: dict[str, float]) -> list[dict[str, float]] | None:
    """Every rank's timings in order of rank, or ``None`` where torch.distributed is not initialised."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    everybody: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(everybody, dict(timing_raw))
    return everybody


def reduce_timing(timing_raw: dict[str, float], reduce_op: object = None) -> dict[str, float]:
    """Timings reduced over ranks, by name over the union of names; over the ranks that have one.

    Args:
        reduce_op: a ``torch.distributed.ReduceOp`` (AVG by default, SUM, MAX, MIN, PRODUCT).

    Raises:
        ValueError: another operation.
    """
    everybody = _gathered(timing_raw)
    if everybody is None:
        return timing_raw
    word = "AVG" if reduce_op is None else str(getattr(reduce_op, "name", reduce_op)).rpartition(".")[2]
    if word not in _REDUCTIONS:
        raise ValueError(f"reduce_timing: {reduce_op!r} is not supported; allowed: {', '.join(_REDUCTIONS)}")
    names = sorted({name for timings in everybody for name in timings})
    return {name: _REDUCTIONS[word]([timings[name] for timings in everybody if name in timings]) for name in names}


def gather_timing(timing_raw: dict[str, float]) -> dict[str, list[float]]:
    """Per name the value of every rank in order; ``nan`` stands for a rank that has none."""
    everybody = _gathered(timing_raw)
    if everybody is None:
        return {name: [value] for name, value in timing_raw.items()}
    names = sorted({name for timings in everybody for name in timings})
    return {name: [timings.get(name, math.nan) for timings in everybody] for name in names}


def topk_reduce_ratio_min_max(timing: float, k: int = 10) -> tuple[float, float, float]:
    """``(share of all time spent by the slowest k per cent of ranks, least, most)``; at least one rank is counted.

    ``(-1, -1, -1)`` where torch.distributed is not initialised.
    """
    everybody = _gathered({"timing": float(timing)})
    if everybody is None:
        return -1.0, -1.0, -1.0
    values = sorted(timings["timing"] for timings in everybody)
    slowest = values[-max(1, round(len(values) * k / 100)) :]
    total = math.fsum(values)
    return (math.fsum(slowest) / total if total else 0.0), values[0], values[-1]


# --- memory -----------------------------------------------------------------------------------------------------------


def _memory_text() -> str:
    from accelprof.catalogue import get_catalogue

    backend: Backend = get_catalogue().detect().backend
    memory = backend.memory()
    shown = ", ".join(f"{name} {value / 1024**3:.2f}" for name, value in memory.items())
    return f"device memory (GB): {shown or f'none, {backend.name} has no device'}"


def _rank() -> int:
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    return 0


def _say(text: str, logger: logging.Logger | None, level: int) -> None:
    if logger is None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    else:
        logger.log(level, text)


def log_gpu_memory_usage(
    head: str, logger: logging.Logger | None = None, level: int = logging.DEBUG, rank: int | None = 0
) -> None:
    """Say how much device memory is in use, on ``rank`` (all where ``None``); to stdout without a logger."""
    if rank is None or _rank() == rank:
        _say(f"{head}, {_memory_text()}", logger, level)


class GPUMemoryLogger:
    """Decorator: says how much device memory is in use before and after each call, also when it raises.

    The function keeps its name, signature and form; of a generator the lines stand before its first item and after its end.
    """

    def __init__(
        self, role: str, logger: logging.Logger | None = None, level: int = logging.DEBUG, log_only_rank_0: bool = True
    ) -> None:
        self.role, self.logger, self.level, self.log_only_rank_0 = role, logger, level, log_only_rank_0

    def __call__(self, decorated_function: F) -> F:
        name = getattr(decorated_function, "__name__", repr(decorated_function))
        return within(decorated_function, lambda: self._lines(name))

    @contextlib.contextmanager
    def _lines(self, name: str) -> Iterator[None]:
        self._say(f"Before {name}")
        try:
            yield
        finally:
            self._say(f"After {name}")

    def log(self, func: Callable[..., Any], *args: object, **kwargs: object) -> Any:
        """Call ``func`` once, with both lines."""
        return self(func)(*args, **kwargs)

    def _say(self, head: str) -> None:
        if not self.log_only_rank_0 or _rank() == 0:
            _say(f"{self.role} {head}, {_memory_text()}", self.logger, self.level)
