"""ITT through the real library: a collector of our own, loaded by it, hears every range, domain, pause and resume."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from accelprof.contracts.backend import Backend, Probe
from accelprof.testing import BackendConformance
from accelprof.texts import PLAIN_C_TEXT, unquoted

pytest.importorskip("ittapi", reason="ittapi is not installed (.ci/install-wings)")
pytest.importorskip("accelprof_xpu", reason="accelprof-xpu is not installed")

from accelprof_xpu import backend, doctor
from accelprof_xpu.backend import XpuBackend

pytestmark = pytest.mark.itt
HERE = Path(__file__).parent


class Call(NamedTuple):
    at: int
    thread: int
    kind: str
    domain: str
    name: str
    number: int


class Available(XpuBackend):
    """The backend on a machine without an Intel device."""

    name = "xpu-under-test"
    aliases = ()

    def probe(self) -> Probe:
        return Probe(1, "under test")


class Noting:
    """The binding's native module, which also notes the labels of tasks that begin."""

    def __init__(self, native: Any, heard: list[str]) -> None:
        self._native, self._heard, self._labels = native, heard, dict[Any, str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def StringHandle(self, label: str) -> Any:
        made = self._native.StringHandle(label)
        self._labels[made] = label
        return made

    def task_begin(self, domain: Any, handle: Any) -> None:
        self._heard.append(self._labels[handle])
        self._native.task_begin(domain, handle)


class TestConformance(BackendConformance):
    """The kit, through the real library without a collector; what its tasks are called is noted on the way to it."""

    heard: list[str]

    def make(self) -> XpuBackend:
        made, self.heard = Available(), []
        made._itt = Noting(made.itt, self.heard)
        return made

    def labels(self, backend: Backend) -> list[str]:
        return self.heard


@pytest.fixture(scope="session")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    made = tmp_path_factory.mktemp("itt") / "libcollector.so"
    subprocess.run(
        [compiler, "-O1", "-w", "-shared", "-fPIC", str(HERE / "collector.c"), "-o", str(made)], check=True, timeout=60
    )
    return made


@pytest.fixture
def run(collector: Path, tmp_path: Path) -> Callable[..., tuple[subprocess.CompletedProcess[str], list[Call]]]:
    """``run(code)``: a fresh process under the collector, and what that heard; the library looks for it once a process."""

    def start(code: str, **env: str) -> tuple[subprocess.CompletedProcess[str], list[Call]]:
        log = tmp_path / "itt.log"
        log.write_text("")
        given = {backend.COLLECTOR_ENV: str(collector), backend.GROUPS_ENV: "all", "ITT_LOG": str(log), **env}
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)], env={**os.environ, **given}, cwd=tmp_path,
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        rows = [line.split("\t") for line in log.read_text().splitlines()]
        return done, [Call(int(r[0]), int(r[1]), r[2], r[3], r[4], int(r[5])) for r in rows]

    return start


BASIC = """
    from accelprof_xpu.backend import XpuBackend
    from accelprof.contracts.backend import RangeSpec
    xpu = XpuBackend()
    xpu.capture_stop()
    xpu.capture_start()
    for label in ("actor/update", "päth/ü", "a\\0b", "new\\nline\\t", "\\udcff", ""):
        xpu.push(RangeSpec(label)); xpu.pop(RangeSpec(label))
    for domain in ("data", "da\\0ta"):
        xpu.push(RangeSpec("x", domain)); xpu.pop(RangeSpec("x", domain))
    one, two = RangeSpec("one"), RangeSpec("two")
    a = xpu.start(one); b = xpu.start(two); xpu.end(one, a); xpu.end(two, b)
    xpu.mark(RangeSpec("here"))
    xpu.capture_stop(); xpu.capture_stop()
"""


def test_every_call_arrives(run: Any) -> None:
    """Resume, tasks with their domain and whole label, overlapping ones by number, pause once."""
    done, calls = run(BASIC)
    assert done.returncode == 0, done.stderr
    assert not any(PLAIN_C_TEXT.search(call.name) for call in calls if call.name)
    assert [(call.kind, unquoted(call.domain), unquoted(call.name)) for call in calls] == [
        ("resume", "", ""),
        *(row for label in ("actor/update", "päth/ü", "a\0b", "new\nline\t", "\\udcff", "") for row in (("begin", "accelprof", label), ("end", "accelprof", ""))),
        ("begin", "data", "x"), ("end", "data", ""), ("begin", "da\0ta", "x"), ("end", "da\0ta", ""),
        ("start", "accelprof", "one"), ("start", "accelprof", "two"), ("stop", "accelprof", ""), ("stop", "accelprof", ""),
        ("begin", "accelprof", "here"), ("end", "accelprof", ""),
        ("pause", "", ""),
    ]  # fmt: skip
    one, two, first, second = (call.number for call in calls if call.kind in ("start", "stop"))
    assert (one, two) == (first, second)
    assert one != two


LOOP = """
    import asyncio, json, sys, threading
    import accelprof
    from accelprof_xpu.backend import XpuBackend
    from accelprof.testing import RecordingTool, capture

    class Actor(accelprof.Worker):
        @accelprof.Worker.timer("actor/update")
        def update(self):
            with accelprof.profiling_range("actor/forward"):
                self.inner()
        @accelprof.Worker.timer("actor/inner")
        def inner(self):
            pass
        @accelprof.Worker.timer("rollout/chat")
        async def chat(self, seconds):
            await asyncio.sleep(seconds)

    async def talk(actor):
        await asyncio.gather(actor.chat(0.02), actor.chat(0.01))

    with capture(backend=XpuBackend, steps=[2, 4]) as run:
        actor = Actor()
        for step in range(6):
            with run.session.step(step):
                actor.update()
                thread = threading.Thread(target=actor.update); thread.start(); thread.join()
                asyncio.run(talk(actor))
        report = run.session.close()
        assert report["problems"] == [], report["problems"]
        from accelprof.reading.chrome import read_chrome
        import glob
        spans = [(s.name, s.start_ns, s.duration_ns) for path in glob.glob(run.run_dir + "/**/*.trace.json.gz", recursive=True)
                 for s in read_chrome(path, "trace").spans if s.kind.value in ("phase", "range")]
        print(json.dumps(spans))
"""


def _tasks(calls: list[Call]) -> list[tuple[str, int, int]]:
    """Name, begin and length of each task that a collector heard, in order of their begins; none is left open."""
    stacks: dict[int, list[Call]] = {}
    started: dict[int, Call] = {}
    tasks = []
    for call in calls:
        if call.kind == "begin":
            stacks.setdefault(call.thread, []).append(call)
        elif call.kind == "start":
            started[call.number] = call
        elif call.kind in ("end", "stop"):
            begun = stacks[call.thread].pop() if call.kind == "end" else started.pop(call.number)
            tasks.append((begun.name, begun.at, call.at - begun.at))
    assert not started
    assert not any(stacks.values())
    return sorted(tasks, key=lambda task: task[1])


def test_the_collectors_log_equals_our_timeline(run: Any) -> None:
    """One to one: each phase and range of our timeline's two windows is one task of the collector's, in order and in length."""
    done, calls = run(LOOP)
    assert done.returncode == 0, done.stderr
    ours = sorted(json.loads(done.stdout.splitlines()[-1]), key=lambda span: span[1])
    theirs = _tasks(calls)
    assert len(ours) == 2 * (2 * 3 + 2)
    assert [span[0] for span in theirs] == [span[0] for span in ours]
    # the calls lie closely around the clock reads
    assert all(abs(a[2] - b[2]) < 5_000_000 for a, b in zip(ours, theirs, strict=True))
    assert [call.kind for call in calls if call.kind in ("resume", "pause")] == ["resume", "pause"] * 2
    assert {call.domain for call in calls if call.kind in ("begin", "start")} == {"accelprof"}


RELATIVES = """
    import asyncio, contextlib, os, threading
    import accelprof

    class Actor(accelprof.Worker):
        @accelprof.Worker.timer("raises")
        def raises(self):
            with accelprof.profiling_range("inside"):
                raise ValueError
        @accelprof.Worker.timer("again")
        def again(self, depth):
            if depth: self.again(depth - 1)
        @accelprof.Worker.timer("items")
        def items(self):
            for n in range(3):
                yield n
        @accelprof.Worker.timer("left")
        def left(self):
            yield 1
            yield 2
        @accelprof.Worker.timer("talks")
        async def talks(self, seconds):
            await asyncio.sleep(seconds)
            if seconds > 0.01: raise ValueError
        @accelprof.Worker.timer("streams")
        async def streams(self):
            for n in range(2):
                await asyncio.sleep(0)
                yield n
        @accelprof.Worker.timer("other")
        def other(self, barrier):
            barrier.wait()
            with self.worker_timer("block"):
                barrier.wait()

    async def several(actor):
        await asyncio.gather(actor.talks(0.02), actor.talks(0.01), return_exceptions=True)
        async for _ in actor.streams(): pass

    def work(actor):
        with contextlib.suppress(ValueError): actor.raises()
        actor.again(3)
        list(actor.items())
        for _ in actor.left(): break
        asyncio.run(several(actor))
        barrier = threading.Barrier(3)
        threads = [threading.Thread(target=actor.other, args=(barrier,)) for _ in range(3)]
        [t.start() for t in threads]; [t.join() for t in threads]
        child = os.fork()
        if not child:
            actor.again(1)
            os._exit(0)
        os.waitpid(child, 0)
        actor.again(0)
"""


def test_whatever_a_phase_does_the_log_equals_our_timeline(run: Any) -> None:
    """Phases that raise, recur, yield, are left half way, overlap on threads and in tasks, and a forked child: begin and end of each
    task are on one thread, and each is a phase of our timeline."""
    head, _, rest = LOOP.partition("    class Actor")
    _, _, tail = rest.partition("    with capture(")
    tail = "    with capture(" + tail.replace(
        tail[tail.index("actor.update()") : tail.index("report =")], "work(actor)\n        "
    )
    done, calls = run("    import json, glob\n" + RELATIVES + head + tail, PYTHONWARNINGS="ignore")
    assert done.returncode == 0, done.stderr
    ours = sorted(json.loads(done.stdout.splitlines()[-1]), key=lambda span: span[1])
    theirs = _tasks(calls)
    assert sorted(name for name, _, _ in theirs) == sorted(name for name, _, _ in ours)
    for name in {name for name, _, _ in ours}:
        pairs = zip(*([span for span in spans if span[0] == name] for spans in (ours, theirs)), strict=True)
        assert all(abs(a[2] - b[2]) < 5_000_000 for a, b in pairs), name


def test_nothing_is_heard_outside_windows(run: Any) -> None:
    """Closed, no task is made; a phase that runs when its window ends is no task of the next one."""
    done, calls = run(LOOP.replace("steps=[2, 4]", "steps=[]").replace("print(", "("))
    assert done.returncode == 0, done.stderr
    assert calls == []


# --- who is here ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``machine(cards=2, build="2025.1")``: what the kernel and torch show."""

    def make(cards: int = 0, build: str | None = None) -> None:
        for number in range(3):
            place = tmp_path / f"renderD{128 + number}" / "device"
            place.mkdir(parents=True, exist_ok=True)
            (place / "vendor").write_text("0x8086\n" if number < cards else "0x1002\n")
        monkeypatch.setattr(backend, "CARDS", str(tmp_path / "renderD*" / "device"))
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(version=SimpleNamespace(xpu=build), xpu=None))
        monkeypatch.delenv(backend.COLLECTOR_ENV, raising=False)

    return make


def test_what_the_probe_says(machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """A device with a torch for it counts as hardware; a collector alone ranks below the CPU's own tools; else the reason."""
    machine(2, "2025.1")
    assert (XpuBackend().probe().priority, XpuBackend().probe().reason) == (
        100,
        "2 Intel device(s), torch for XPU 2025.1",
    )
    machine(1)
    assert "torch is no build for XPU" in XpuBackend().probe().reason
    machine(0, "2025.1")
    assert "no Intel device" in XpuBackend().probe().reason
    monkeypatch.setenv(backend.COLLECTOR_ENV, "/x.so")
    assert XpuBackend().probe().priority == 5


def test_facts_come_from_torch_and_start_no_device(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names, memory, events and waiting go through ``torch.xpu``, once it is initialised and not before."""
    machine(2, "2025.1")
    waited: list[Any] = []
    xpu = SimpleNamespace(
        is_initialized=lambda: False, device_count=lambda: 1, current_device=lambda: 0, get_device_name=lambda n: "Max 1550",
        memory_allocated=lambda: 5, memory_reserved=lambda: 9, synchronize=lambda device=None: waited.append(device),
        Event=lambda enable_timing: SimpleNamespace(record=lambda: None),
    )  # fmt: skip
    monkeypatch.setattr(sys.modules["torch"], "xpu", xpu)
    made = XpuBackend()
    made.synchronize()
    assert (made.memory(), made.device_timer(), len(made.devices()), waited) == ({}, None, 2, [])
    xpu.is_initialized = lambda: True
    made.synchronize()
    assert (made.memory(), waited) == ({"allocated": 5, "reserved": 9}, [None])
    assert made.devices() == [{"index": 0, "name": "Max 1550"}]
    timer = made.device_timer()
    assert timer is not None
    timer.begin()


def test_doctor(machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch, collector: Path) -> None:
    """Devices, torch's build, the collector and the two programs, each with its mend."""
    machine(1)
    rows = {row.name: row for row in doctor.checks()}
    assert rows["torch"].status == "warn"
    assert "oneAPI" in rows["vtune"].mend
    assert "collector" not in rows
    monkeypatch.setenv(backend.COLLECTOR_ENV, "/nowhere.so")
    assert {row.name: row for row in doctor.checks()}["collector"].status == "fail"
    monkeypatch.setenv(backend.COLLECTOR_ENV, str(collector))
    monkeypatch.delenv(backend.GROUPS_ENV, raising=False)
    assert f"{backend.GROUPS_ENV}=all" in {row.name: row for row in doctor.checks()}["collector"].mend
