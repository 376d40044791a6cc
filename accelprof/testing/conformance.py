"""The conformance kit: subclass it in your plug-in's tests, fill in one method, and pytest runs what the contract demands.

::

    class TestMyBackend(BackendConformance):
        def make(self):
            return MyBackend()

Checks that ask for a capability the class does not declare skip by that declaration, never by a name.
One module, because both kits time the same probe in the same sessions.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import itertools
import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import pytest

from accelprof.analysis.attribution import attribute
from accelprof.contracts import words
from accelprof.contracts.backend import Backend, BoundRange, DeviceTimer, Probe, RangeSpec
from accelprof.contracts.names import MANIFEST, TIMELINE
from accelprof.contracts.sizes import size_of
from accelprof.contracts.spans import DEVICE_WORK, HostCalls, Kind, Trace
from accelprof.contracts.tool import Tool
from accelprof.errors import CaptureError
from accelprof.testing.files import from_the_file, launched, nowhere_else, read_apart, sound
from accelprof.testing.recording import RecordingBackend
from accelprof.testing.sessions import Captured, capture
from accelprof.timing.ranges import profiling_range
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

    def labels(self, backend: Backend) -> Sequence[str] | None:
        """The labels that the vendor's library got so far, in order; override it where a stand-in of the library tells.
        Default: those of a recording backend, ``None`` (not known) of others."""
        if not isinstance(backend, RecordingBackend):
            return None
        return [call.what for call in backend.calls if call.name in ("push", "start")] or None

    @pytest.fixture
    def backend(self) -> Backend:
        return self.make()

    @pytest.fixture
    def live(self, backend: Backend) -> Backend:
        if not self.usable(backend):
            pytest.skip(
                f"backend {backend.name} cannot emit here: {backend.probe().reason}; override usable() where ranges can be had without"
            )
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
            pytest.skip("overlapping_ranges is False; set it where ranges by start and end may overlap")
        first, second = (live.bind(RangeSpec(f"kit/{name}")) for name in ("first", "second"))
        one, two = first.start(), second.start()
        assert one != two or not one, (
            f"start() gave two open ranges one handle, {one!r}: which of them end() ends is chance"
        )
        with ThreadPoolExecutor(1) as pool:
            pool.submit(first.end, one).result()
        second.end(two)
        if isinstance(live, RecordingBackend):
            ended = [call.handle for call in live.calls if call.name == "end"]
            assert ended[-2:] in ([], [one, two]), f"end() got the handles {[one, two]}; it ended {ended[-2:]}"

    def test_odd_labels(self, live: Backend) -> None:
        """Labels with any character and any length are taken."""
        for label in ("päth/ü", "x" * 5000, "a b:c {'k': 1}", "new\nline"):
            bound = live.bind(RangeSpec(label))
            bound.push()
            bound.pop()

    def test_labels_arrive_whole(self, live: Backend) -> None:
        """What the vendor's library gets is the label, and labels that differ in their last letter stay apart."""
        wanted = ["kit/a label of usual length/1", "kit/a label of usual length/2"]
        for label in wanted:
            bound = live.bind(RangeSpec(label))
            bound.push()
            bound.pop()
        got = self.labels(live)
        if got is None:
            pytest.skip("what the vendor's library gets is not known; override labels() where a stand-in tells")
        assert list(got[-2:]) == wanted, f"push got the labels {wanted}; the library got {list(got[-2:])}"

    def test_threads_have_ranges_of_their_own(self, live: Backend) -> None:
        """Two threads whose ranges overlap crosswise each end their own: a stack is a thread's, not the process's."""
        one, two = (live.bind(RangeSpec(f"kit/{name}")) for name in ("here", "there"))
        with ThreadPoolExecutor(1) as pool:
            one.push()
            pool.submit(two.push).result()
            for whose, pop in (("this", one.pop), ("the other", lambda: pool.submit(two.pop).result())):
                try:
                    pop()
                except Exception as error:  # noqa: BLE001 - named
                    pytest.fail(
                        f"pop() of {whose} thread's range, with a range of each of two threads open, raised "
                        f"{type(error).__name__}: {error}; each thread has ranges of its own"
                    )

    def test_device_timer(self, live: Backend) -> None:
        """``device_timer`` answers a DeviceTimer whose three calls raise nothing, or ``None``, and raises nothing."""
        try:
            timer: object = live.device_timer()
        except Exception as error:  # noqa: BLE001 - named
            pytest.fail(
                f"device_timer() raised {type(error).__name__}: {error}; where the device has no events it answers None"
            )
        assert timer is None or isinstance(timer, DeviceTimer), (
            f"device_timer() answered {timer!r}; a DeviceTimer or None is expected"
        )
        if timer is None:
            return
        timer.begin()
        finished = timer.finish()
        live.synchronize()
        if finished is not False:
            with timer.reading():
                took: object = timer.resolve()
            assert took is None or (isinstance(took, int) and took >= 0), (
                f"resolve() of a device timer answered {took!r}; whole ns or None are expected"
            )

    def test_capture_start_and_stop(self, live: Backend) -> None:
        """The vendor's capture starts and stops; the call raises CaptureError alone where it does not start."""
        try:
            live.capture_start()
        except CaptureError:
            pytest.skip("no capture starts here (CaptureError); the checks of tools that need it are skipped too")
        except Exception as error:  # noqa: BLE001 - named
            pytest.fail(
                f"capture_start() raised {type(error).__name__}: {error}; a capture that does not start raises CaptureError, "
                "and a backend without one does nothing"
            )
        live.capture_stop()

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

    def test_synchronize(self, live: Backend) -> None:
        """Waiting for the device raises nothing, also twice and where nothing was submitted: every window ends with it."""
        for _ in range(2):
            try:
                live.synchronize()
            except Exception as error:  # noqa: BLE001 - named
                pytest.fail(
                    f"synchronize() raised {type(error).__name__}: {error}; where there is no device yet it does nothing"
                )

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
    """Checks of one :class:`~accelprof.contracts.tool.Tool`. Override :meth:`make`; a check that is skipped says what else to override.

    Attributes:
        backend: whose ranges the tool records, where it brings no emitter of its own; ``None`` takes the first available one
            that the tool's ``accelerators`` name, else the recording backend.
        phases_in_files: whether a file of a window holds the phases that ran in it; ``False`` for files without ranges.
        device_work_in_files: whether files hold work of a device; ``False`` for those of the host alone.
        read_seconds: what ``read`` may take of a file of three calls before it counts as hanging.
    """

    backend: type[Backend] | None = None
    phases_in_files: bool = True
    device_work_in_files: bool = True
    read_seconds: float = 60.0

    def make(self) -> Tool:
        """A fresh tool with default options."""
        raise NotImplementedError

    def can_capture(self) -> bool:
        """Whether windows can really be recorded in this process; default: the probe says available and the trigger call is in-process."""
        tool = self.make()
        from accelprof.contracts.targets import Target

        return tool.probe().available and tool.trigger(Target("Group", rank=0)) == "in_process"

    def stand_in(self) -> AbstractContextManager[Any]:
        """Entered around the check of the trigger call: override it with what makes the tool take this process although its
        launcher did not start it (variables, a library that notes its calls). Default: nothing."""
        return contextlib.nullcontext()

    def trigger_calls(self, run: Captured) -> list[str]:
        """``start`` and ``stop`` in the order in which the tool made them; default: those that the stand-in device got, by
        ``capture_start`` and ``capture_stop`` or as a range. Override it where the tool calls a library of its own."""
        return [_TRIGGER[call.name] for call in run.backend.calls if call.name in _TRIGGER]

    def device_work(self) -> None:
        """Have the device do a piece of work and wait for it: called in two phases of a window, on the thread that works.
        Override it where the tool records work of a device that the tests have. Default: nothing."""

    def device_file(self, directory: str) -> str | None:
        """A file of this tool, made or copied below ``directory``, with device work that phases launched: override it where
        no device work can be recorded in the tests' process. Default: none, one is recorded around :meth:`device_work`."""
        return None

    def _backend(self, tool: Tool) -> type[Backend]:
        from accelprof.catalogue import get_catalogue

        if self.backend is not None:
            return self.backend
        catalogue = get_catalogue()
        for name in sorted(_accelerators(tool) & set(catalogue.backend_names())):
            if catalogue.probe(name).available:
                return catalogue.backend_class(name)
        return RecordingBackend

    def _need_capture(self) -> Tool:
        tool = self.make()
        if not self.can_capture():
            pytest.skip(
                f"tool {tool.name} cannot record in this process ({tool.probe().reason}); override can_capture() where it can"
            )
        return tool

    def _files(self, run: Any, ended: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Rows of the files, each with its whole path, checked against the disk and against the tool's own reading."""
        assert not ended["problems"], f"the session has problems: {ended['problems']}"
        rows = [dict(row) for row in ended["journal"] if row["kind"] == "artifact"]
        windows = {row["id"]: row for row in ended["journal"] if row["kind"] == "window"}
        name = self.make().name
        for row in rows:
            row["path"] = path = os.path.join(run.run_dir, row["path"])
            assert row["windows"], f"{path}: close() returned a file of no window; ArtifactFile.windows names it"
            unknown = [window for window in row["windows"] if window not in windows]
            assert not unknown, (
                f"{path}: close() returned a file of the windows {unknown}, which there are not (there are {sorted(windows)}); "
                "ArtifactFile.windows has WindowInfo.id"
            )
            assert row["tool"] == name, f"{path}: ArtifactFile.tool is {row['tool']!r}; the tool is {name!r}"
            assert os.path.exists(path), f"{path}: close() promised it, and it is not there"
            size = size_of(path)
            assert size > 0, f"{path}: the file of a window is empty"
            assert row["bytes"] == size, f"{path}: ArtifactFile.bytes is {row['bytes']}; the file has {size}"
            window = windows[row["windows"][0]]
            stem = os.path.join(run.run_dir, window["stem"])
            assert path.startswith(stem), f"{path}: the name does not begin with the window's stem {stem}"
            real = os.path.realpath(path)
            assert real.startswith(os.path.join(os.path.realpath(run.run_dir), "")), (
                f"{path}: a link to {real}, outside the run's directory, which nobody follows; the file itself is expected"
            )
            self._reads(path, window)
        return rows

    def _reads(self, path: str, window: Mapping[str, Any]) -> None:
        """The tool says that it reads its own file, does, and finds what ran in the window, and nothing else."""
        tool = self.make()
        if not tool.can_read(path):
            assert type(tool).read is Tool.read, (
                f"{path}: the tool has read(), but can_read() does not know its own file"
            )
            return
        trace = read_apart(tool, path, self.read_seconds)
        assert isinstance(trace, Trace), f"read({path!r}) returned a {type(trace).__name__}; a Trace is expected"
        assert trace.tool == tool.name, f"read({path!r}) says it is of tool {trace.tool!r}; this is {tool.name!r}"
        assert not trace.problems, f"read({path!r}) has problems: {trace.problems}"
        spans = trace.spans
        assert spans or trace.marks or trace.tables, f"read({path!r}) has no span, mark or table at all"
        sound(path, trace, window)
        launched(path, trace)
        on_device = sorted({span.name for span in trace.of_kind(*DEVICE_WORK)})
        assert self.device_work_in_files or not on_device, (
            f"read({path!r}) has device work, {on_device[:5]}, and device_work_in_files is False; where files hold some it is True"
        )
        from_the_file(tool, path, trace, self.read_seconds)
        if self.phases_in_files:
            own, names = _window_label(*window["steps"]), {span.name for span in spans}
            lost = {"kit/outer", "kit/inner", own} - names
            assert not lost, (
                f"read({path!r}) has no span named {sorted(lost)}; it has {sorted(names)[:20]}. "
                "Where files of this tool hold no ranges, set phases_in_files = False"
            )
            others = sorted(name for name in names if name.startswith(_WINDOW) and name != own)
            assert not others, f"read({path!r}) is the file of {own!r} and has spans of another window: {others}"
            ranges = [span for span in spans if span.kind in _HOST and span.name in ("kit/outer", own)]
            for one, other in itertools.combinations(sorted(ranges, key=lambda span: span.start_ns), 2):
                assert one.end_ns <= other.start_ns, (
                    f"read({path!r}): the range {one.name!r} is still open {one.end_ns - other.start_ns} ns after {other.name!r} "
                    "began, which came after it: the emitter leaves ranges open, or the reader pairs their ends wrongly"
                )

    def test_it_is_declared(self) -> None:
        """Name, options and every declaration have allowed values."""
        tool = self.make()
        assert tool.name, f"{type(tool).__name__} has no name"
        assert tool.count in words.COUNTS, f"count is {tool.count!r}"
        assert tool.thread in words.THREADS, f"thread is {tool.thread!r}"
        assert tool.schedule in words.COUNTINGS, f"schedule is {tool.schedule!r}"
        assert isinstance(tool.exclusive, frozenset), f"exclusive is {tool.exclusive!r}; a frozenset is expected"
        _accelerators(tool)
        assert isinstance(tool.host_calls, HostCalls), f"host_calls is {tool.host_calls!r}; a HostCalls is expected"
        assert not tool.host_calls.fault(), tool.host_calls.fault()
        for flag in ("on_demand", "writes_chrome_trace"):
            assert isinstance(getattr(tool, flag), bool), (
                f"{flag} is {getattr(tool, flag)!r}; True or False is expected"
            )

    def test_unknown_options_are_refused(self) -> None:
        """A misspelt option is an error, not ignored."""
        from pydantic import ValidationError

        with pytest.raises((ValidationError, ValueError)):
            type(self.make())({"no_such_option_at_all": 1})

    def test_driver_side_is_pure(self, tmp_path: Any) -> None:
        """``probe``, ``trigger``, ``launch``, ``expects`` and ``claims`` work on a driver without the tool and touch no disk."""
        from accelprof.contracts.targets import Assignment, CaptureCount, Expectation, Launch, Target
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
        probe, word = tool.probe(), tool.trigger(target)
        assert isinstance(probe, Probe), f"probe() returned {probe!r}"
        assert word in words.TRIGGER_CALLS, f"trigger() returned {word!r}; allowed: {', '.join(words.TRIGGER_CALLS)}"
        launch = tool.launch(assignment, str(tmp_path / "out"))
        assert isinstance(launch, Launch), f"launch() returned {launch!r}; a Launch is expected"
        assert launch.mode in words.LAUNCH_MODES, f"launch() has mode {launch.mode!r}"
        assert all(isinstance(part, str) for part in launch.argv), (
            f"launch() has argv {launch.argv!r}; texts are expected"
        )
        expected, claims = tool.expects(assignment, str(tmp_path / "out")), tool.claims(target)
        assert isinstance(expected, list), f"expects() returned {expected!r}; a list is expected"
        assert all(isinstance(one, Expectation) for one in expected), (
            f"expects() returned {expected!r}; a list of Expectation is expected"
        )
        assert isinstance(claims, frozenset), f"claims() returned {claims!r}; a frozenset is expected"
        assert not (tmp_path / "out").exists(), (
            "launch() or expects() made the directory; it exists on the node that runs the worker"
        )

    def test_the_trigger_call_is_made_once_a_window(self) -> None:
        """A tool that records from outside is started and stopped once for each window, on a stand-in device."""
        from accelprof.contracts.targets import Target

        word = self.make().trigger(Target("Group", rank=0, has_devices=True))
        if word not in ("api", "range", "pause"):
            pytest.skip(
                f"the trigger call of {self.make().name} is {word!r}: "
                + ("it records from start to exit" if word == "none" else "its windows are tried by the other checks")
                + "; override make() where options give it another"
            )
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.stand_in())
            tool = self.make()
            run = stack.enter_context(
                capture(
                    tool=tool.name,
                    tools=(type(tool),),
                    options={tool.name: tool.options.model_dump(exclude_unset=True)},
                    backend=_WithDevice,
                    steps=[1, 3],
                    timeline=False,
                )
            )
            if not run.session.tools:
                pytest.skip(
                    f"tool {tool.name} does not take this process ({'; '.join(run.session.problems)}); "
                    "override stand_in() with what its launcher would set"
                )
            for step in range(5):
                with run.session.step(step):
                    pass
            calls, problems = self.trigger_calls(run), list(run.session.problems)
        assert not problems, f"the session has problems: {problems}"
        assert calls == ["start", "stop"] * 2, (
            f"trigger call {word!r}: two windows made the calls {calls}; start and stop once each are expected. "
            "Where the tool calls a library of its own, override trigger_calls() with what that got"
        )

    def test_it_claims_its_own_files_only(self) -> None:
        """``can_read`` answers ``False`` of a text, an empty file, a directory, JSON that is no trace, and what accelprof writes
        itself, and raises nothing."""
        tool = self.make()
        with tempfile.TemporaryDirectory(prefix="accelprof-kit-") as place:
            others = {
                "notes.txt": b"no trace\n",
                "empty.bin": b"",
                "notes.json": b'{"no": "trace"}',
                MANIFEST: b'{"format": 1}',
                TIMELINE: gzip.compress(b'{"traceEvents": []}'),
            }
            for name, data in others.items():
                with open(os.path.join(place, name), "wb") as file:
                    file.write(data)
            for path in (place, *(os.path.join(place, name) for name in others)):
                answer = tool.can_read(path)
                assert answer is False, (
                    f"can_read({path!r}) answered {answer!r}; it is no file of this tool: False is expected"
                )

    def test_every_window_delivers(self) -> None:
        """Three windows in one process leave three files, one each: there, not empty, named as promised, read back with what
        ran in each; nothing is written anywhere else."""
        tool = self._need_capture()
        with (
            nowhere_else() as output,
            capture(
                tool=tool.name, tools=(type(tool),), backend=self._backend(tool), steps=[1, 3, 5], timeline=False,
                directory=output,
            ) as run,
        ):  # fmt: skip
            worker = _Probe()
            for step in range(7):
                with run.session.step(step):
                    worker.outer()
                    with profiling_range(_window_label(step)):
                        pass
            files = self._files(run, run.session.close())
            states = [row["state"] for row in files]
            assert states == ["complete"] * 3, f"three windows left files in states {states}"
            paths = sorted({row["path"] for row in files})
            assert len(paths) == 3, f"three windows share files: {paths}"
            held = [tuple(row["windows"]) for row in files]
            assert len(set(held)) == 3, f"files hold the windows {held}; one each is expected"

    def test_device_work_belongs_to_the_phase_that_launched_it(self, tmp_path: Any) -> None:
        """Each piece of device work that is read carries the correlation of its launch, and counts in the phase around that."""
        tool = self.make()
        if type(tool).read is Tool.read:
            pytest.skip(
                f"tool {tool.name} has no read(); override read() of the tool where its files are to be reported"
            )
        if not self.device_work_in_files:
            pytest.skip("device_work_in_files is False; set it to True where files hold work of a device")
        path, wanted = self.device_file(str(tmp_path)), set[str]()
        if path is None:
            if type(self).device_work is ToolConformance.device_work:
                pytest.skip(
                    f"whether device work in files of {tool.name} has its launch is not known: override device_work() with work for "
                    "the device, or device_file() with a file that holds some; set device_work_in_files = False where none do"
                )
            path, wanted = self._recorded(self._need_capture(), str(tmp_path)), set(_LAUNCHING)
        assert tool.can_read(path), f"{path}: can_read() does not know the file with device work"
        trace = read_apart(tool, path, self.read_seconds)
        work = list(trace.of_kind(*DEVICE_WORK))
        assert work, (
            f"read({path!r}) has no device work, and some was done: spans of {', '.join(_WORK_KINDS)} are expected"
        )
        launched(path, trace)
        busy = {phase.name: sum(phase.busy_ns.values()) for phase in attribute(trace).phases}
        idle = sorted(name for name in wanted if not busy.get(name))
        assert any(busy.values()), (
            f"read({path!r}): no phase launched any of the device work; phases and launches (time, tid, pid) do not meet: {busy}"
        )
        assert not idle, (
            f"read({path!r}): device work was launched in each of {sorted(wanted)}, and none counts in {idle}: {busy} ns; "
            "a correlation is one launch's alone, and a launch has the times and the thread of its call"
        )

    def _recorded(self, tool: Tool, directory: str) -> str:
        """The file of a window with device work in two phases."""
        with capture(
            tool=tool.name,
            tools=(type(tool),),
            backend=self._backend(tool),
            steps=[1],
            timeline=False,
            directory=directory,
        ) as run:
            with run.session.step(1):
                for label in _LAUNCHING:
                    with profiling_range(label):
                        self.device_work()
            ended = run.session.close()
            assert not ended["problems"], f"the session has problems: {ended['problems']}"
            paths = [os.path.join(run.run_dir, row["path"]) for row in ended["journal"] if row["kind"] == "artifact"]
        assert len(paths) == 1, f"a window with device work left the files {paths}; one is expected"
        return paths[0]

    def test_an_exception_in_a_window_spoils_nothing(self) -> None:
        """The window of a step that raises is delivered, and so is the next one."""
        tool = self._need_capture()
        with capture(
            tool=tool.name, tools=(type(tool),), backend=self._backend(tool), steps=[1, 2], timeline=False
        ) as run:
            worker = _Probe()
            with pytest.raises(KeyError):
                _step_that_fails(run, worker)
            with run.session.step(2):
                worker.outer()
                with profiling_range(_window_label(2)):
                    pass
            files = self._files(run, run.session.close())
            assert len(files) == 2, f"two windows, one of them with an exception, left {[row['path'] for row in files]}"


def _accelerators(tool: Tool) -> frozenset[str]:
    """Those that the tool declares."""
    found: object = tool.accelerators
    assert isinstance(found, frozenset) and all(isinstance(name, str) for name in found), (  # noqa: PT018 - one declaration
        f"accelerators is {found!r}; a frozenset of names is expected"
    )
    return found


_WINDOW = "kit/window of step "
_HOST = frozenset({Kind.PHASE, Kind.RANGE})
_LAUNCHING = ("kit/launches", "kit/launches too")
_WORK_KINDS = sorted(f"Kind.{kind.name}" for kind in DEVICE_WORK)


def _window_label(*steps: int) -> str:
    return _WINDOW + "-".join(map(str, steps))


def _step_that_fails(run: Captured, worker: _Probe) -> None:
    with run.session.step(1):
        with profiling_range(_window_label(1)):
            pass
        worker.outer(fail=True)


#: what of a backend begins and ends what a tool records
_TRIGGER = {
    "capture_start": "start",
    "capture_stop": "stop",
    "start": "start",
    "end": "stop",
    "push": "start",
    "pop": "stop",
}


class _WithDevice(RecordingBackend):
    """A stand-in device: it is there, and what is called of it is written down."""

    name = "kit-device"
    aliases = ()

    def __init__(self) -> None:
        super().__init__()
        self.device_list = [{"index": 0, "name": "stand-in"}]
