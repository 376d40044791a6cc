"""The conformance kit: subclass it in your plug-in's tests, fill in one method, and pytest runs what the contract demands.

::

    class TestMyBackend(BackendConformance):
        def make(self):
            return MyBackend()

Checks that ask for a capability the class does not declare skip by that declaration, never by a name.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from accelprof.contracts.backend import Backend, BoundRange, Probe, RangeSpec
from accelprof.contracts.tool import Tool
from accelprof.testing.sessions import capture
from accelprof.timing.worker import Worker


class _Probe(Worker):
    """What the kit times."""

    def __init__(self) -> None:
        self.ran = 0

    @Worker.timer("kit/outer")
    def outer(self, fail: bool = False) -> str:
        self.ran += 1
        self.inner()
        if fail:
            raise KeyError("the user's own")
        return "value"

    @Worker.timer("kit/inner")
    def inner(self) -> None:
        self.ran += 1

    @Worker.timer("kit/suspended")
    async def suspended(self, turns: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        return turns

    @Worker.timer("kit/generated")
    def generated(self, items: int) -> Any:
        yield from range(items)


class BackendConformance:
    """Checks of one :class:`~accelprof.contracts.backend.Backend`. Override :meth:`make`; :meth:`usable` when ranges need more than the probe."""

    def make(self) -> Backend:
        """A fresh backend."""
        raise NotImplementedError

    def usable(self, backend: Backend) -> bool:
        """Whether ranges can be emitted here; default: the probe says available."""
        return backend.probe().available

    @pytest.fixture
    def backend(self) -> Backend:
        return self.make()

    @pytest.fixture
    def live(self, backend: Backend) -> Backend:
        if not self.usable(backend):
            pytest.skip(f"backend {backend.name} cannot emit here: {backend.probe().reason}")
        return backend

    def test_it_is_declared(self, backend: Backend) -> None:
        """A backend is a Backend with a lower-case name, aliases as a tuple, and its capabilities as truth values."""
        assert isinstance(backend, Backend)
        assert backend.name
        assert backend.name == backend.name.lower()
        assert isinstance(backend.aliases, tuple)
        assert backend.name not in backend.aliases
        assert isinstance(backend.overlapping_ranges, bool)

    def test_the_constructor_takes_nothing_and_the_probe_never_raises(self, backend: Backend) -> None:
        """``type(backend)()`` works, and ``probe`` answers a priority or a reason twice alike."""
        probe = type(backend)().probe()
        assert isinstance(probe, Probe)
        assert probe.reason.strip()
        assert "\n" not in probe.reason
        assert backend.probe().available == probe.available

    def test_bind_gives_four_callables(self, live: Backend) -> None:
        """``bind`` resolves a label to push, pop, start and end."""
        bound = live.bind(RangeSpec("kit/bound"))
        assert isinstance(bound, BoundRange)
        assert all(callable(part) for part in bound)

    def test_push_and_pop_nest(self, live: Backend) -> None:
        """Nested push/pop with every attribute set raises nothing, whatever push returns."""
        outer = live.bind(RangeSpec("kit/a", "kit", "green", "test"))
        inner = live.bind(RangeSpec("kit/b", "kit", "#ff8800"))
        outer.push()
        inner.push()
        inner.pop()
        outer.pop()

    def test_start_and_end_overlap(self, live: Backend) -> None:
        """Two ranges may end in the order they began, on another thread too, where overlapping is declared."""
        if not live.overlapping_ranges:
            pytest.skip("declares overlapping_ranges = False")
        first, second = (live.bind(RangeSpec(f"kit/{name}")) for name in ("first", "second"))
        one, two = first.start(), second.start()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(first.end, one).result()
        second.end(two)

    def test_odd_labels(self, live: Backend) -> None:
        """Labels with any character and any length are taken."""
        for label in ("päth/ü", "x" * 5000, "a b:c {'k': 1}", "new\nline"):
            bound = live.bind(RangeSpec(label))
            bound.push()
            bound.pop()

    def test_mark(self, live: Backend) -> None:
        """A mark raises nothing."""
        live.mark(RangeSpec("kit/mark"))

    def test_step_hooks_and_facts(self, live: Backend) -> None:
        """Step hooks, devices and memory answer in the declared shapes."""
        live.step_begin(3)
        live.step_end(3)
        devices = live.devices()
        assert isinstance(devices, list)
        assert all("index" in device for device in devices)
        assert all(isinstance(value, int) for value in live.memory().values())

    def test_capture_stop_is_harmless_when_nothing_runs(self, live: Backend) -> None:
        """Stopping twice, or without a start, raises nothing."""
        live.capture_stop()
        live.capture_stop()

    def test_the_users_exception_passes_once(self, live: Backend) -> None:
        """Inside a window the user's exception reaches the caller unchanged, after one call of the function."""
        with self._session(live) as (session, worker):
            with session.step(1), pytest.raises(KeyError, match="the user's own"):
                worker.outer(fail=True)
            assert worker.ran == 2
            assert not session.problems, session.problems

    def test_ranges_of_coroutines_and_generators(self, live: Backend) -> None:
        """Interleaved coroutines and a generator that is closed early leave nothing open and no complaint."""

        async def together(worker: _Probe) -> list[int]:
            return list(await asyncio.gather(*(worker.suspended(turns) for turns in (3, 1, 2))))

        with self._session(live) as (session, worker):
            with session.step(1):
                assert asyncio.run(together(worker)) == [3, 1, 2]
                generator = worker.generated(3)
                assert next(generator) == 0
                generator.close()
            assert not session.problems, session.problems

    def test_threads(self, live: Backend) -> None:
        """Eight threads that time at once lose no call."""
        with self._session(live) as (session, worker):
            with session.step(1):
                threads = [threading.Thread(target=lambda: [worker.inner() for _ in range(50)]) for _ in range(8)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            assert worker.timing_stats()["kit/inner"]["count"] == 400
            assert not session.problems, session.problems

    def test_nothing_is_called_while_closed(self, live: Backend) -> None:
        """Outside windows a timed call does not reach the backend."""

        class Loud(type(live)):  # type: ignore[misc]
            def bind(self, spec: RangeSpec) -> BoundRange:
                raise AssertionError("bound while closed")

        with self._session(live, backend=Loud) as (session, worker):
            with session.step(0):
                assert worker.outer() == "value"
            assert not session.problems, session.problems

    def _session(self, live: Backend, backend: Any = None) -> Any:
        return _probe_session(backend or type(live), live)


class _probe_session:  # noqa: N801 - used as a function
    def __init__(self, backend: Any, live: Backend) -> None:
        # a session over this very class, with the timeline beside it
        self._context = capture(backend=_available(backend, live), tool=None, steps=[1])

    def __enter__(self) -> Any:
        return self._context.__enter__().session, _Probe()

    def __exit__(self, *error: Any) -> Any:
        return self._context.__exit__(*error)


def _available(backend: Any, live: Backend) -> Any:
    """The class under a name of its own, so that the plug-in's registered one is not asked in its place."""

    class Under(backend):  # type: ignore[misc]
        name = f"{live.name}-under-test"
        aliases = ()

        def probe(self) -> Probe:
            return Probe(1, "under test")

    return Under


class ToolConformance:
    """Checks of one :class:`~accelprof.contracts.tool.Tool`. Override :meth:`make`; :meth:`can_capture` says whether it can record here."""

    def make(self) -> Tool:
        """A fresh tool with default options."""
        raise NotImplementedError

    def can_capture(self) -> bool:
        """Whether windows can really be recorded in this process; default: the probe says available and the trigger call is in-process."""
        tool = self.make()
        from accelprof.contracts.targets import Target

        return tool.probe().available and tool.trigger(Target("Group", rank=0)) == "in_process"

    def test_it_is_declared(self) -> None:
        """Name, options and every declaration have allowed values."""
        tool = self.make()
        assert tool.name
        assert tool.count in ("exact", "open", "whole_process")
        assert tool.thread in ("any", "starter", "work")
        assert tool.schedule in ("ours", "native")
        assert isinstance(tool.exclusive, frozenset)

    def test_unknown_options_are_refused(self) -> None:
        """A misspelt option is an error, not ignored."""
        from pydantic import ValidationError

        with pytest.raises((ValidationError, ValueError)):
            type(self.make())({"no_such_option_at_all": 1})

    def test_driver_side_is_pure(self, tmp_path: Any) -> None:
        """``probe``, ``trigger``, ``launch``, ``expects`` and ``claims`` work on a driver without the tool and touch no disk."""
        from accelprof.contracts.targets import Assignment, CaptureCount, Target
        from accelprof.numberset import NumberSet

        tool = self.make()
        target = Target("Group", rank=0, world_size=2)
        assignment = Assignment(
            target,
            True,
            tool.name,
            mode="steps",
            steps=NumberSet.parse([2, 4]),
            windows=((2,), (4,)),
            count=CaptureCount(2),
        )
        assert isinstance(tool.probe(), Probe)
        assert tool.trigger(target) in ("none", "api", "range", "pause", "in_process")
        launch = tool.launch(assignment, str(tmp_path / "out"))
        assert launch.mode in ("none", "env", "prefix", "replace")
        assert all(isinstance(part, str) for part in launch.argv)
        assert isinstance(tool.expects(assignment, str(tmp_path / "out")), list)
        assert isinstance(tool.claims(target), frozenset)
        assert not (tmp_path / "out").exists()

    def test_every_window_delivers(self) -> None:
        """Three windows in one process leave three complete artifacts, one each."""
        if not self.can_capture():
            pytest.skip(f"tool {self.make().name} cannot record in this process")
        tool = self.make()
        with capture(tool=tool.name, tools=(type(tool),), steps=[1, 3, 5], timeline=False) as run:
            worker = _Probe()
            for step in range(7):
                with run.session.step(step):
                    worker.outer()
            report = run.session.close()
            files = [row for row in report["journal"] if row["kind"] == "artifact"]
            assert not report["problems"], report["problems"]
            assert [row["state"] for row in files] == ["complete"] * 3
            assert len({row["path"] for row in files}) == 3
            assert len({tuple(row["windows"]) for row in files}) == 3

    def test_an_exception_in_a_window_spoils_nothing(self) -> None:
        """The window of a step that raises is delivered, and so is the next one."""
        if not self.can_capture():
            pytest.skip(f"tool {self.make().name} cannot record in this process")
        tool = self.make()
        with capture(tool=tool.name, tools=(type(tool),), steps=[1, 2], timeline=False) as run:
            worker = _Probe()
            with pytest.raises(KeyError), run.session.step(1):
                worker.outer(fail=True)
            with run.session.step(2):
                worker.outer()
            report = run.session.close()
            assert len([row for row in report["journal"] if row["kind"] == "artifact"]) == 2
            assert not report["problems"], report["problems"]
