"""What a timed call costs: ours closed and open, and peers, as ratios to two clock reads and two dict updates by hand."""

from __future__ import annotations

import contextlib
import functools
import importlib
import tempfile
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from accelprof import Worker, profiling_range
from accelprof.testing import capture
from benchmarks.harness import Result, Table, measure, table


class Hand:
    """The floor: what one would write by hand, without any guarantee."""

    def __init__(self) -> None:
        self.total: dict[str, int] = {}
        self.count: dict[str, int] = {}

    def work(self, batch: Any) -> None:
        return None

    def timed(self, batch: Any) -> None:
        start = perf_counter_ns()
        result: None = self.work(batch)  # type: ignore[func-returns-value]  # as a timer written by hand passes it on
        taken = perf_counter_ns() - start
        self.total["actor/update"] = self.total.get("actor/update", 0) + taken
        self.count["actor/update"] = self.count.get("actor/update", 0) + 1
        return result


class Ours(Worker):
    @Worker.timer("actor/update")
    def timed(self, batch: Any) -> None:
        return None


def wraps(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class Wrapped:
    @wraps
    def timed(self, batch: Any) -> None:
        return None


def range_block(make: Callable[..., Any]) -> Callable[[], None]:
    def block() -> None:
        with make("actor/forward"):
            pass

    return block


def null_block() -> None:
    with contextlib.nullcontext():
        pass


def peers() -> tuple[dict[str, Callable[[], Any]], dict[str, str]]:
    """``(what can be measured here, why the rest cannot)``."""
    found: dict[str, Callable[[], Any]] = {}
    missing: dict[str, str] = {}
    for name, make in (
        ("RLinf Worker.timer", _rlinf),
        ("verl marked_timer", _verl_marked_timer),
        ("verl annotate (no profiler)", _verl_annotate),
        ("nvtx.annotate", _nvtx),
        ("torch record_function", _record_function),
        ("OpenTelemetry span", _opentelemetry),
    ):
        try:
            found[name] = make()
        except Exception as error:  # noqa: BLE001 - a peer that cannot be measured is named with its reason
            missing[name] = f"{type(error).__name__}: {error}"
    return found, missing


def _rlinf() -> Callable[[], Any]:
    worker = importlib.import_module("rlinf.scheduler").Worker

    class Theirs:
        # what their __init__ sets and the timer reads; the whole worker would need their cluster
        _accelerator_type = worker.accelerator_type
        worker_timer = worker.worker_timer

        def __init__(self) -> None:
            self._timer_metrics: dict[str, float] = {}

        @worker.timer("actor/update")
        def timed(self, batch: Any) -> None:
            return None

    theirs = Theirs()
    theirs.timed(1)
    return lambda: theirs.timed(1)


def _verl_marked_timer() -> Callable[[], Any]:
    marked_timer = importlib.import_module("verl.utils.debug").marked_timer
    timings: dict[str, float] = {}

    def block() -> None:
        with marked_timer("update", timings):
            pass

    block()
    return block


def _verl_annotate() -> Callable[[], Any]:
    profiler = importlib.import_module("verl.utils.profiler").DistProfiler

    class Theirs:
        @profiler.annotate(color="red")
        def timed(self, batch: Any) -> None:
            return None

    theirs = Theirs()
    theirs.timed(1)
    return lambda: theirs.timed(1)


def _nvtx() -> Callable[[], Any]:
    nvtx = importlib.import_module("nvtx")
    return range_block(lambda label: nvtx.annotate(label, domain="bench"))


def _record_function() -> Callable[[], Any]:
    return range_block(importlib.import_module("torch").profiler.record_function)


def _opentelemetry() -> Callable[[], Any]:
    sdk = importlib.import_module("opentelemetry.sdk.trace")
    tracer = sdk.TracerProvider().get_tracer("bench")
    return range_block(tracer.start_as_current_span)


def run() -> list[Table]:
    """All tables of this file."""
    hand, ours, wrapped = Hand(), Ours(), Wrapped()
    others, missing = peers()
    calls: dict[str, Callable[[], Any]] = {
        "by hand": lambda: hand.timed(1),
        "functools.wraps wrapper, no timing": lambda: wrapped.timed(1),
        "Worker.timer, closed": lambda: ours.timed(1),
        **others,
    }
    times = measure(calls)
    limits = {"Worker.timer, closed": 1.5}
    closed = table("a timed call, nothing open", "by hand", times, limits, missing)
    if "RLinf Worker.timer" in times:
        mine, theirs = times["Worker.timer, closed"], times["RLinf Worker.timer"]
        closed.rows.append(Result("Worker.timer against RLinf's", mine, mine / theirs, 0.2))
    ranges = table(
        "an ad-hoc range, nothing open",
        "contextlib.nullcontext()",
        measure({"contextlib.nullcontext()": null_block, "profiling_range, closed": range_block(profiling_range)}),
        {"profiling_range, closed": 1.0},
    )
    return [closed, ranges, *opened()]


def opened() -> list[Table]:
    """In an open window: over the recording backend, with and without the timeline beside it."""
    hand, times = Hand(), {}
    for name, timeline in (("open, recording backend", False), ("open, recording backend and timeline", True)):
        with (
            tempfile.TemporaryDirectory() as place,
            capture(steps=[1], timeline=timeline, directory=place, options={"trace": {"max_spans": 10**7}}) as run,
        ):
            worker = Ours()
            with run.session.step(1):
                times.update(
                    measure(
                        {"by hand": lambda: hand.timed(1), f"Worker.timer, {name}": functools.partial(worker.timed, 1)},
                        after=run.backend.clear,
                    )
                )
    return [table("a timed call in an open window", "by hand", times, {"Worker.timer, open, recording backend": 3.0})]
