"""JAX on the CPU, really run: annotations, steps, windows, device time against JAX's own trace, and what stays untouched."""

from __future__ import annotations

import glob
import gzip
import json
import os
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from accelprof.contracts.backend import Backend, Probe
from accelprof.contracts.spans import Clock, Kind, Trace
from accelprof.errors import ReadError
from accelprof.testing import BackendConformance, ToolConformance, capture
from accelprof.testing.files import union_ns

pytest.importorskip("accelprof_xla", reason="accelprof-xla is not installed")
jax = pytest.importorskip("jax", reason="jax is not installed (.ci/install-wings)")

from accelprof_xla import backend, doctor  # noqa: E402
from accelprof_xla.backend import XlaBackend  # noqa: E402
from accelprof_xla.reader import _once  # noqa: E402
from accelprof_xla.tool import JaxTool  # noqa: E402

pytestmark = pytest.mark.jax


class Available(XlaBackend):
    """The backend, whatever this machine has."""

    name = "xla-under-test"
    aliases = ()

    def probe(self) -> Probe:
        return Probe(1, "under test")


class TestBackend(BackendConformance):
    """The kit; JAX's own annotations, which note what they were made with when they begin."""

    heard: list[str]

    @pytest.fixture(autouse=True)
    def annotations(self, monkeypatch: pytest.MonkeyPatch) -> None:
        heard = self.heard = []

        class Noting(jax.profiler.TraceAnnotation):  # type: ignore[name-defined,misc]
            def __init__(self, label: str, **arguments: str) -> None:
                super().__init__(label, **arguments)
                self.label = label

            def __enter__(self) -> object:
                heard.append(self.label)
                return super().__enter__()

        monkeypatch.setattr(jax.profiler, "TraceAnnotation", Noting)

    def labels(self, backend: Backend) -> list[str]:
        return self.heard

    def make(self) -> XlaBackend:
        return Available()


class TestTool(ToolConformance):
    """The kit, through the real profiler. It is in the process: the check of the backend's trigger calls is not for it."""

    test_the_trigger_call_is_made_once_a_window = None  # type: ignore[assignment]

    def make(self) -> JaxTool:
        return JaxTool()

    def device_work(self) -> None:
        doubled(jax.numpy.ones((256, 256))).block_until_ready()


@jax.jit
def doubled(x: Any) -> Any:
    return jax.numpy.tanh(x @ x)


LOOP = """
import json, os, sys, threading, time
import accelprof
import jax, jax.numpy as jnp

@jax.jit
def forward(weights, x):
    for w in weights:
        x = jnp.tanh(x @ w)
    return x

@jax.jit
def train(weights, x):
    grads = jax.grad(lambda w: (forward(w, x) ** 2).mean())(weights)
    return [w - 0.01 * g for w, g in zip(weights, grads)]

class Actor(accelprof.Worker):
    def __init__(self):
        self.weights = [jnp.eye(256) for _ in range(4)]
        self.x = jnp.ones((512, 256))
    @accelprof.Worker.timer("rollout/generate")
    def generate(self):
        self.out = forward(self.weights, self.x)          # not waited for: it runs into the next phase
    @accelprof.Worker.timer("actor/update")
    def update(self):
        for _ in range(3):
            self.weights = train(self.weights, self.x)
        self.weights[0].block_until_ready()
    @accelprof.Worker.timer("actor/sync")
    def sync(self):
        accelprof.mark("half way")
        return float(sum(w.sum() for w in self.weights))

actor = Actor()
actor.generate(); actor.update(); actor.sync()            # compiled before the first window
session = accelprof.configure(tool="jax", accelerator="xla", steps=[2, 4], output_dir=sys.argv[1], run="r", group="G", rank=0)
for step in range(6):
    with session.step(step):
        actor.generate(); actor.update(); actor.sync()
report = session.close()
print(json.dumps({"problems": report["problems"], "windows": [w["steps"] for w in session.windows]}))
"""
PHASES = ("rollout/generate", "actor/update", "actor/sync")


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the loop above in a process of its own: a jitted training loop of three phases, windows on steps 2 and 4."""
    place = tmp_path_factory.mktemp("jax")
    (place / "loop.py").write_text(LOOP)
    done = subprocess.run(
        [sys.executable, str(place / "loop.py"), str(place)], capture_output=True, text=True, timeout=300,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"problems": [], "windows": [[2], [4]]}
    return place / "r"


def traces(run_dir: Path) -> list[tuple[Path, Trace]]:
    return [(Path(path), JaxTool().read(path)) for path in sorted(glob.glob(f"{run_dir}/**/*.jax", recursive=True))]


def test_windows_hold_their_step_and_phases(run_dir: Path) -> None:
    """One directory a window; each phase once, in order, inside the step that JAX's own tools show, on the epoch's clock."""
    found = traces(run_dir)
    assert len(found) == 2
    for number, (_, trace) in zip((2, 4), found, strict=True):
        assert [span.name for span in trace.of_kind(Kind.STEP)] == [f"train#{number}"]
        [step] = trace.of_kind(Kind.STEP)
        phases = sorted(trace.of_kind(Kind.RANGE), key=lambda span: span.start_ns)
        assert [span.name for span in phases] == list(PHASES)
        assert all(step.start_ns <= span.start_ns <= span.end_ns <= step.end_ns for span in phases)
        calls = Counter(span.name for span in trace.of_kind(Kind.OPERATOR))
        assert (calls["PjitFunction(forward)"], calls["PjitFunction(train)"]) == (1, 3)  # JAX notes each call twice
        assert [mark.name for mark in trace.marks] == ["half way"]
        assert trace.clock is Clock.EPOCH
        assert 1.6e18 < step.start_ns < 4e18
        assert list(trace.of_kind(Kind.KERNEL))
        assert trace.problems == []


def _device_time(path: Path, trace: Trace) -> tuple[int, int]:
    """Nanoseconds in which any device was busy, of our reading and of the Chrome trace that JAX writes beside; as many operations."""
    [chrome] = path.glob("plugins/profile/*/*.trace.json.gz")
    with gzip.open(chrome) as file:
        events = json.load(file)["traceEvents"]
    theirs = [event for event in events if event.get("ph") == "X" and "hlo_op" in event.get("args", {})]
    ours = [span for span in trace.spans if span.device is not None]
    assert len(ours) == len(theirs)
    intervals = [(round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)) for event in theirs]
    return union_ns((span.start_ns, span.end_ns) for span in ours), union_ns(intervals)


def test_device_time_is_jaxs_own(run_dir: Path) -> None:
    """Busy time of each window within 2 % of what the Chrome trace that JAX writes beside says; the number of operations is equal."""
    for path, trace in traces(run_dir):
        ours, theirs = _device_time(path, trace)
        assert theirs > 100_000
        assert abs(ours - theirs) <= 0.02 * theirs, (ours, theirs)


def test_the_report_has_phases_and_their_device_time(run_dir: Path) -> None:
    """Work that runs on while the next phase is on belongs to the phase that launched it; nothing of it is lost."""
    from accelprof.analysis.attribution import attribute
    from accelprof.analysis.summary import summarise

    summary = summarise(run_dir)
    assert {row.phase for row in summary.phases} == set(PHASES)
    files = [file for file in summary.files if file.tool == "jax"]
    assert len(files) == 2
    for _, trace in traces(run_dir):
        found = attribute(trace)
        kernels = sum(1 for span in trace.spans if span.device is not None)
        assert found.kernels == kernels
        assert found.unattributed == 0, found.left_over()
        by_phase = {row.name: row for row in found.phases}
        counts = dict.fromkeys(PHASES, 0)
        programs = {"jit_forward": "rollout/generate", "jit_train": "actor/update"}
        for span in trace.spans:
            if span.device is not None:
                counts[programs.get(span.args["hlo_module"], "actor/sync")] += 1
        assert {name: by_phase[name].kernels for name in PHASES} == counts


def test_a_call_that_is_noted_twice_counts_once() -> None:
    """The second note lies directly inside the first; a function that calls itself has two calls, each noted twice."""
    f, g = "PjitFunction(f)", "PjitFunction(g)"
    notes = [
        (f, 0, 100),
        (f, 1, 99),
        (f, 10, 50),
        (f, 10, 50),
        (g, 60, 70),
        (g, 61, 69),
        (f, 100, 120),
        (f, 100, 120),
        (g, 130, 131),
    ]
    found = list(_once([(name, start, end, {}) for name, start, end in reversed(notes)]))
    assert [event[:3] for event in found] == [(f, 0, 100), (f, 10, 50), (g, 60, 70), (f, 100, 120), (g, 130, 131)]


PROGRAMS = """
import functools, json, sys, threading
with open("/proc/self/comm", "w") as name:
    name.write("ray::Actor")  # threads have the name of the process, which need not be python
import accelprof
import jax, jax.numpy as jnp

def scan(carry, xs):
    return jax.lax.scan(lambda c, x: (jnp.tanh(c @ x), c.sum()), carry, xs)[0]
def several(x):
    return jax.lax.psum(jnp.tanh(x @ x), "i")
def donated(x):
    return jnp.tanh(x @ x)
def loop(x):
    return jax.lax.while_loop(lambda s: s[0] < 20, lambda s: (s[0] + 1, jnp.tanh(s[1] @ s[1])), (0, x))[1]
def branch(x):
    return jax.lax.cond(x.sum() > 0, lambda x: jnp.tanh(x @ x), lambda x: x * 2, x)
def threads(x):
    return jnp.tanh(x @ x) * 2

xs, x, spread = jnp.ones((20, 256, 256)), jnp.eye(256), jnp.ones((4, 256, 256))
once = {name: jax.jit(function) for name, function in (("scan", scan), ("loop", loop), ("branch", branch), ("threads", threads))}
once["donated"] = jax.jit(donated, donate_argnums=0)
once["several"] = jax.pmap(several, axis_name="i")
many = [once["donated"](jnp.eye(256)) for _ in range(4)]

def run_donated():
    for x in many:
        once["donated"](x.copy()).block_until_ready()
def run_threads():
    both = [threading.Thread(target=lambda: once["threads"](x).block_until_ready()) for _ in range(2)]
    [t.start() for t in both]
    [t.join() for t in both]
calls = {
    "scan": lambda: once["scan"](x, xs).block_until_ready(),
    "several": lambda: once["several"](spread).block_until_ready(),
    "donated": run_donated, "loop": lambda: once["loop"](x).block_until_ready(),
    "branch": lambda: once["branch"](x).block_until_ready(), "threads": run_threads,
}
phases = {name: accelprof.timer(name)(call) for name, call in calls.items()}
for phase in phases.values():
    phase()
session = accelprof.configure(tool="jax", accelerator="xla", steps=[1], output_dir=sys.argv[1], run="r", group="G", rank=0)
for step in range(3):
    with session.step(step):
        for phase in phases.values():
            phase()
assert session.close()["problems"] == []
"""


def test_other_programs_keep_their_device_time_and_their_phase(tmp_path: Path) -> None:
    """Scans, loops, branches, donated buffers, programs on four devices and launches of other threads: the device time is
    JAX's own, and each operation belongs to the phase that launched its program."""
    from accelprof.analysis.attribution import attribute

    done = subprocess.run(
        [sys.executable, "-c", PROGRAMS, str(tmp_path)], capture_output=True, text=True, timeout=300,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [(path, trace)] = traces(tmp_path / "r")
    ours, theirs = _device_time(path, trace)
    assert abs(ours - theirs) <= 0.02 * theirs, (ours, theirs)
    found = attribute(trace)
    work = [span for span in trace.spans if span.device is not None]
    assert (found.kernels, found.unattributed, found.unlaunched) == (len(work), 0, 0)
    assert {span.device for span in work} == {0, 1, 2, 3}
    reduced = [span for span in work if span.name.startswith("psum")]
    assert [span.kind for span in reduced] == [Kind.COMMUNICATION] * 4
    of_phase = {row.name: row.kernels for row in found.phases}
    assert set(of_phase) == {"scan", "several", "donated", "loop", "branch", "threads"}
    for name in ("scan", "donated", "loop", "branch", "threads"):
        least = sum(span.args["hlo_module"] == f"jit_{name}" for span in work)
        assert 0 < least <= of_phase[name]
    assert of_phase["several"] >= 4 * 3


def test_work_of_gpus_belongs_to_the_phase_that_launched_it(tmp_path: Path) -> None:
    """A window of ``PROGRAMS`` that two H200 recorded (JAX 0.11.2): kernels of graphs, of threads and of a collective on both."""
    from accelprof.analysis.attribution import attribute

    path = tmp_path / "two_gpus.xplane.pb"
    path.write_bytes(gzip.decompress((Path(__file__).parent / "two_gpus.xplane.pb.gz").read_bytes()))
    trace = JaxTool().read(str(path))
    work = [span for span in trace.spans if span.device is not None]
    kernels = [span for span in work if span.kind in (Kind.KERNEL, Kind.COMMUNICATION)]
    found = attribute(trace)
    assert (found.kernels, found.unattributed, found.unlaunched) == (len(kernels), 0, 0) == (159, 0, 0)
    programs = Counter(span.args["hlo_module"] for span in kernels)
    of_phase = {row.name: row.kernels for row in found.phases}
    assert set(of_phase) == {"scan", "several", "donated", "loop", "branch", "threads"}
    for name in ("donated", "loop", "branch", "threads"):  # these launch no program of another name that has kernels
        assert of_phase[name] == programs[f"jit_{name}"] + (name == "donated") * programs.get("jit_copy", 0), programs
    assert sum(of_phase.values()) == len(kernels)
    talking = [span for span in work if span.kind is Kind.COMMUNICATION]
    assert sorted(span.device for span in talking) == [0, 1]
    busy = {row.name: row.communication_ns for row in found.phases}
    assert busy == {**dict.fromkeys(busy, 0), "several": sum(span.duration_ns for span in talking)}
    planes = {plane.name: plane for plane in jax.profiler.ProfileData.from_file(str(path)).planes}
    for device in (0, 1):
        events = [event for line in planes[f"/device:GPU:{device}"].lines for event in line.events]
        theirs = union_ns((round(event.start_ns), round(event.start_ns + event.duration_ns)) for event in events)
        ours = union_ns((span.start_ns, span.end_ns) for span in work if span.device == device)
        assert abs(ours - theirs) <= len(events)  # each is rounded to whole nanoseconds
    assert len({span.tid for span in trace.spans if span.name == "threads"}) == 1
    assert len({span.tid for span in trace.spans if span.name == "PjitFunction(threads)"}) == 2


def test_a_file_alone_and_a_broken_one(run_dir: Path, tmp_path: Path) -> None:
    """``accelprof report x.xplane.pb`` works; what is none is said by name."""
    [file, *_] = glob.glob(f"{run_dir}/**/*.xplane.pb", recursive=True)
    assert JaxTool.can_read(file)
    assert [span.name for span in JaxTool().read(file).of_kind(Kind.STEP)] in (["train#2"], ["train#4"])
    bad = tmp_path / "x.xplane.pb"
    bad.write_bytes(b"\x0a\xff\xff\xff\xff\x0fnot a plane")
    with pytest.raises(ReadError, match=r"x\.xplane\.pb"):
        JaxTool().read(str(bad))
    assert not JaxTool.can_read(str(tmp_path))


def test_merged_steps_are_steps_of_one_window(tmp_path: Path) -> None:
    """Adjacent steps in one trace: each is a step annotation with its number."""
    with capture(
        backend=Available, tools=(), tool="jax", steps=[1, 2], merge_steps=True, directory=str(tmp_path)
    ) as run:
        for step in range(4):
            with run.session.step(step):
                jax.numpy.ones(8).sum().block_until_ready()
        assert run.session.close()["problems"] == []
    [path] = glob.glob(f"{tmp_path}/**/*.jax", recursive=True)
    assert sorted(span.name for span in JaxTool().read(path).of_kind(Kind.STEP)) == ["train#1", "train#2"]


def test_another_trace_of_the_user_is_left_alone(tmp_path: Path) -> None:
    """JAX takes one trace at a time: the window is refused with that reason, and the user's goes on."""
    jax.profiler.start_trace(str(tmp_path / "mine"))
    with capture(backend=Available, tools=(), tool="jax", steps=[1]) as run:
        with run.session.step(1):
            pass
        report = run.session.close()
    jax.profiler.stop_trace()
    assert any("jax.profiler did not start" in line for line in report["problems"])
    assert glob.glob(f"{tmp_path}/mine/**/*.xplane.pb", recursive=True)


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_no_device_is_started() -> None:
    """Probing, asking for devices and memory, and waiting import no jax, and start none that is imported."""
    code = """
    import sys
    from accelprof_xla.backend import XlaBackend, in_use
    made = XlaBackend()
    print(made.probe().priority, made.devices(), made.memory(), made.synchronize(), "jax" in sys.modules)
    import jax
    made.probe(); made.devices(); made.memory(); made.synchronize()
    print(in_use())
    jax.numpy.ones(3).block_until_ready()
    print(made.probe().priority, len(made.devices()), made.synchronize())
    """
    assert python(code).splitlines() == ["-1 [] {} None False", "None", "1 1 None"]


def test_waiting_for_the_device() -> None:
    """Every array that is being computed is waited for; one that was deleted meanwhile is no error."""
    x = jax.numpy.ones((600, 600))
    out = [x @ x for _ in range(5)]
    gone = x + 1
    gone.delete()
    XlaBackend().synchronize()
    assert all(array.is_ready() for array in out)


def test_a_tpu_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Chips count by the kernel's files, with libtpu they are the accelerator; doctor says what is missing."""
    for number in range(4):
        (tmp_path / f"accel{number}").write_text("")
    monkeypatch.setattr(backend, "TPU_FILES", str(tmp_path / "accel[0-9]*"))
    rows = {row.name: row for row in doctor.checks()}
    assert (rows["TPU"].status, rows["TPU"].mend) == ("warn", "pip install 'jax[tpu]'")
    monkeypatch.setitem(sys.modules, "libtpu", type(sys)("libtpu"))
    sys.modules["libtpu"].__spec__ = type("Spec", (), {"name": "libtpu"})()  # type: ignore[assignment]
    assert (XlaBackend().probe().priority, XlaBackend().probe().reason[:14]) == (100, "4 TPU chip(s),")
