"""``accelprof.compat.rlinf`` without rlinf: its names, arguments and results, and where ours are right."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time

import pytest

from accelprof.compat import rlinf
from accelprof.compat.rlinf import AcceleratorType, AcceleratorUtil
from accelprof.errors import ConfigError
from accelprof.testing import capture


class Trainer(rlinf.Worker):
    @rlinf.Worker.timer("actor/update")
    def update(self, depth=0):
        return depth if depth == 3 else self.update(depth + 1)

    @rlinf.Worker.timer()
    async def generate(self):
        await asyncio.sleep(0.02)

    @rlinf.Worker.timer("quiet", trace=False)
    async def quiet(self):
        return 3

    def block(self):
        with self.worker_timer():
            return 4


def labels(captured):
    return [str(call) for call in captured.backend.calls if call[0] in ("push", "start")]


def test_timers():
    """Seconds under the tag or the method's name; recursion counts once; the kind of each method stays."""
    worker = Trainer()
    assert (worker.update(), asyncio.run(worker.quiet()), worker.block()) == (3, 3, 4)
    asyncio.run(worker.generate())
    assert inspect.iscoroutinefunction(Trainer.quiet)
    times = worker.pop_execution_times()
    assert set(times) == {"actor/update", "quiet", "block", "generate"}
    assert times["generate"] == pytest.approx(0.02, abs=0.05)
    assert worker.pop_execution_times() == {}
    for kind in (ValueError, KeyError):
        with pytest.raises(kind, match="generate"):
            worker.pop_execution_time("generate")


def test_ranges_and_windows():
    """A step that the plan names is a window with ranges; ``trace=False`` leaves none; start and stop are idempotent."""
    worker = Trainer()
    with capture(steps=[4], ranks="all", timeline=False) as captured:
        for step in (3, 4):
            worker.start_profile(step)
            worker.start_profile(step)
            assert AcceleratorUtil.is_profiling_active(AcceleratorType.NV_GPU) == (step == 4)
            worker.update()
            asyncio.run(worker.quiet())
            with AcceleratorUtil.profiling_range(AcceleratorType.NPU, "mine", color="green", domain="d"):
                pass
            worker.stop_profile()
            worker.stop_profile()
        assert [row["steps"] for row in captured.session.windows] == [[4]]
        text = labels(captured)
    assert len([label for label in text if "actor/update" in label]) == 1
    assert any("mine" in label for label in text)
    assert not any("quiet" in label for label in text)


def test_profile_config():
    """Group names are compared without case, ``all`` names all; absent steps are every step and empty ones none."""
    config = rlinf.ProfileConfig("nsight", worker_groups=["ActorGroup"], steps=[3, 1])
    assert config.profiles_worker_group("actorgroup")
    assert not config.profiles_worker_group("Actor")
    assert (config.should_profile_step(1), config.should_profile_step(2)) == (True, False)
    assert rlinf.ProfileConfig(worker_groups="all").profiles_worker_group("anything")
    assert not rlinf.ProfileConfig().profiles_worker_group("ActorGroup")
    assert rlinf.ProfileConfig(steps=None).should_profile_step(7)
    assert not rlinf.ProfileConfig(steps=[]).should_profile_step(7)
    assert not rlinf.ProfileConfig(enabled=False).should_profile_step(7)
    assert rlinf.ProfileConfig().check()


@pytest.mark.parametrize(
    "bad", [{"steps": "3"}, {"steps": [-1]}, {"steps": [True]}, {"worker_groups": 3}, {"backend": "x"}]
)
def test_bad_values(bad):
    """What RLinf asserts is refused with the key and its value."""
    with pytest.raises(ConfigError, match=next(iter(bad))):
        rlinf.ProfileConfig(**bad).check()


def test_untraced_blocks():
    """``worker_timer(tag, trace=False)`` is seconds and no range, as RLinf 0.4 has it."""
    worker = Trainer()
    with capture(steps=[1], ranks="all", timeline=False) as captured, captured.session.step(1):
        with worker.worker_timer("seen"):
            pass
        with worker.worker_timer("unseen", trace=False):
            pass
        assert captured.backend.labels() == ["seen"]
    assert set(worker.pop_execution_times()) == {"seen", "unseen"}


def test_tracer():
    """Spans of RLinf 0.4's tracer are ranges while a window is open: begin and end, blocks, functions of each kind."""

    @rlinf.Tracer.trace_func
    def plain():
        return 1

    @rlinf.Tracer.trace_func(cat="mine")
    async def waits():
        await asyncio.sleep(0)
        return 2

    @rlinf.Tracer.trace_func("words")
    def fails():
        raise KeyError("x")

    async def both():
        async def one(name):
            rlinf.Tracer.trace_begin(name)
            await asyncio.sleep(0)
            rlinf.Tracer.trace_end(name)

        await asyncio.gather(one("a"), one("a"))
        return await waits()

    rlinf.Tracer.trace_end("never begun")
    with capture(steps=[1], ranks="all", timeline=False) as captured, captured.session.step(1):
        rlinf.Tracer.trace_begin("outer", cat="c", args={"n": 1})
        with rlinf.Tracer.trace_span("block"):
            assert (plain(), asyncio.run(both())) == (1, 2)
        with pytest.raises(KeyError):
            fails()
        rlinf.Tracer.trace_end("outer")
        assert captured.backend.labels() == ["outer", "block", "plain", "a", "a", "waits", "fails"]
        assert captured.backend.balanced()
    assert rlinf._spans == {}
    assert inspect.iscoroutinefunction(waits)


def test_spans_end_wherever_they_are_ended():
    """A span that one thread began is ended by another; of two of one name each thread ends its own; a class that is not ours will do."""

    class Theirs:
        trace_begin = vars(rlinf.Tracer)["trace_begin"]
        trace_end = vars(rlinf.Tracer)["trace_end"]

    def elsewhere(call, *arguments):
        thread = threading.Thread(target=call, args=arguments)
        thread.start()
        thread.join()

    with capture(steps=[1], ranks="all", timeline=False) as captured, captured.session.step(1):
        Theirs.trace_begin("cross")
        elsewhere(Theirs.trace_end, "cross")
        assert captured.backend.balanced()
        Theirs.trace_begin("same")
        mine = rlinf._spans["same"][0]
        elsewhere(Theirs.trace_begin, "same")
        Theirs.trace_end("same")
        assert mine not in rlinf._spans["same"]
        Theirs.trace_end("same")
        Theirs.trace_end("same")
        Theirs.trace_begin(7)
        Theirs.trace_end(7)
        assert captured.backend.labels() == ["cross", "same", "same", "7"]
        assert captured.backend.balanced()
    assert rlinf._spans == {}


def test_seconds_that_methods_take_off_themselves():
    """What a method of RLinf's writes in its own table counts with the tag's seconds, once, and is gone with them."""

    class Trainer(rlinf.Worker):
        def __init__(self):
            self._timer_metrics = {}

        @rlinf.Worker.timer("train")
        def train(self):
            time.sleep(0.02)
            self._timer_metrics["train"] = self._timer_metrics.get("train", 0.0) - 100.0
            self._timer_metrics["other"] = 3.0

    worker = Trainer()
    worker.train()
    times = worker.pop_execution_times()
    assert times["train"] == pytest.approx(-99.98, abs=0.015)
    assert times["other"] == 3.0
    assert (worker._timer_metrics, worker.pop_execution_times()) == ({}, {})
    worker.train()
    assert worker.pop_execution_time("train") == pytest.approx(-99.98, abs=0.015)
    assert worker.pop_execution_time("other") == 3.0
    with pytest.raises(rlinf.TimerNotRecordedError, match="train"):
        worker.pop_execution_time("other")
    assert worker._timer_metrics == {}


def test_accelerator_types():
    """Types of RLinf 0.4 are there, by name and value."""
    assert AcceleratorType.KUNLUN_XPU == "KUNLUN_XPU"
