"""rlinf 0.3.0 itself, its timers, ranges and windows going through accelprof. Run under the interpreter that has rlinf."""

from __future__ import annotations

import asyncio
import contextlib
import glob
import importlib
import importlib.util
import inspect
import json
import logging
import os
import signal

import pytest
from rlinf.scheduler import Worker
from rlinf.scheduler.hardware.accelerators.accelerator import AcceleratorManager, AcceleratorType, AcceleratorUtil

import accelprof
from accelprof import compat


class Plain:
    """What RLinf's methods need of a worker, without a cluster."""

    _accelerator_type = AcceleratorType.NO_ACCEL
    worker_timer = property(lambda self: Worker.worker_timer.__get__(self))
    pop_execution_time = property(lambda self: Worker.pop_execution_time.__get__(self))
    pop_execution_times = property(lambda self: Worker.pop_execution_times.__get__(self))

    def __init__(self):
        self._timer_metrics = {}


class Early(Plain):
    """Decorated before RLinf went through us."""

    @Worker.timer("early")
    def early(self):
        return 5

    @Worker.timer("early_async")
    async def early_async(self):
        await asyncio.sleep(0.01)
        return 6


@pytest.fixture
def rlinf(tmp_path):
    compat.install("rlinf")
    session = accelprof.configure(steps=[3], ranks="all", output_dir=str(tmp_path), group="ActorGroup", rank=0)
    yield session
    compat.uninstall()
    accelprof.reset()


def spans(tmp_path):
    names = []
    for path in sorted(glob.glob(f"{tmp_path}/*/*/*.trace.json.gz")):
        import gzip

        with gzip.open(path) as file:
            names += [event["name"] for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
    return [name for name in names if not name.startswith("window ")]


def window(step=3):
    AcceleratorUtil.start_profiling(AcceleratorType.NO_ACCEL, step)
    active = AcceleratorManager.is_profiling_active()
    return active


def late_class():
    class Late(Plain):
        @Worker.timer("actor/update")
        def update(self, depth=0):
            return depth if depth == 3 else self.update(depth + 1)

        @Worker.timer()
        async def generate(self):
            await asyncio.sleep(0.01)

        @Worker.timer("fails")
        def fails(self):
            raise KeyError("mine")

    return Late


def test_decorated_before_and_after(rlinf, tmp_path):
    """Methods that were decorated before and after installation are timed and leave one range each."""
    before, after = Early(), late_class()()
    assert window()
    assert (before.early(), asyncio.run(before.early_async()), after.update()) == (5, 6, 3)
    AcceleratorUtil.stop_profiling(AcceleratorType.NO_ACCEL)
    assert not AcceleratorManager.is_profiling_active()
    assert set(before.pop_execution_times()) == {"early", "early_async"}
    assert sorted(spans(tmp_path)) == ["actor/update", "early", "early_async"]


def test_recursion_is_counted_once(rlinf):
    """A timer inside itself counts once, not once a level."""
    worker = late_class()()
    worker.update()
    assert worker.pop_execution_time("actor/update") < 0.1
    with pytest.raises(ValueError, match="recorded tags: actor/update"):
        worker.pop_execution_time("actor/update")


def test_async_labels_do_not_swap(rlinf, tmp_path):
    """Coroutines that overlap on one thread each keep their own label and length."""

    class Two(Plain):
        @Worker.timer("long")
        async def long(self):
            await asyncio.sleep(0.2)

        @Worker.timer("short")
        async def short(self):
            await asyncio.sleep(0.05)

    async def both(worker):
        await asyncio.gather(worker.long(), worker.short())

    assert inspect.iscoroutinefunction(Two.long)
    worker = Two()
    window()
    asyncio.run(both(worker))
    AcceleratorUtil.stop_profiling(AcceleratorType.NO_ACCEL)
    times = worker.pop_execution_times()
    assert times["long"] == pytest.approx(0.2, abs=0.04)
    assert times["short"] == pytest.approx(0.05, abs=0.04)
    assert sorted(spans(tmp_path)) == ["long", "short"]


def test_exception_and_default_names(rlinf, tmp_path):
    """The method's own exception reaches the caller and its time is kept; without a tag the method's name is the label."""
    worker = late_class()()
    window()
    with pytest.raises(KeyError, match="mine"):
        worker.fails()
    asyncio.run(worker.generate())
    with worker.worker_timer():
        pass
    AcceleratorUtil.stop_profiling(AcceleratorType.NO_ACCEL)
    assert {"fails", "generate", "test_exception_and_default_names"} == set(worker.pop_execution_times())
    assert spans(tmp_path).count("fails") == 1


def test_windows_follow_the_plan(rlinf, tmp_path):
    """Start and stop are idempotent, and a step that the plan does not name opens nothing."""
    assert not window(2)
    AcceleratorUtil.stop_profiling(AcceleratorType.NO_ACCEL)
    assert window(3)
    assert window(3)
    AcceleratorUtil.stop_profiling(AcceleratorType.NO_ACCEL)
    AcceleratorUtil.stop_profiling(AcceleratorType.NO_ACCEL)
    assert [row["steps"] for row in rlinf.windows] == [[3]]


def test_uninstall_gives_everything_back():
    """After uninstall RLinf's functions are its own, also for methods that were decorated in between."""
    names = ("timer", "worker_timer", "pop_execution_time", "pop_execution_times", "start_profile", "stop_profile")
    before = {name: vars(Worker)[name] for name in names}
    ranges = vars(AcceleratorUtil)["profiling_range"]
    compat.install("rlinf")
    late = late_class()
    compat.uninstall("rlinf")
    assert {name: vars(Worker)[name] for name in names} == before
    assert vars(AcceleratorUtil)["profiling_range"] is ranges
    worker = late()
    worker.update()
    assert set(worker._timer_metrics) == {"actor/update"}


def looking():
    """A worker class as RLinf's users write them."""

    class Looking(Worker):
        @Worker.timer("run_training")
        def run_training(self, value):
            """Doc."""
            return value

        @Worker.timer()
        def bare(self, value, *rest, last=1, **more):
            return value

        @Worker.timer("waits")
        async def waits(self, value):
            return value

        @Worker.timer("gives")
        def gives(self):
            yield 1

    return Looking


def test_a_worker_looks_as_without_us():
    """Kind, signature, name, text and attributes of each member of a worker class, RLinf's own and decorated ones: as without
    accelprof, whether it was made before the install or after it."""
    spec = importlib.util.spec_from_file_location("live", os.path.join(os.path.dirname(__file__), "live.py"))
    live = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(live)

    def looks(cls):
        return {name: live.seen(live.vars_of(cls, name), getattr(cls, name)) for name in dir(cls)}

    before = looking()
    theirs = looks(before)
    compat.install("rlinf")
    try:
        assert looks(before) == theirs
        assert looks(looking()) == theirs
    finally:
        compat.uninstall("rlinf")
    assert len(theirs) > 60
    assert theirs["worker_timer"][1] == "(self, tag: Optional[str] = None)"


class ActorWorker(Worker):
    """A real RLinf worker, a Ray actor of a real worker group."""

    def __init__(self):
        super().__init__()

    @Worker.timer("run_training")
    def run_training(self, value):
        with self.worker_timer("inner"):
            return value + self._rank

    def is_installed(self):
        return compat.installed()


class BufferWorker(ActorWorker):
    """Stands for a channel's worker: nobody but the controller tells it steps."""


class Runner:
    """RLinf's embodied runner as far as profiling windows go: its own methods over given groups."""

    def __init__(self, group):
        import types

        from rlinf.runners.embodied_runner import EmbodiedRunner

        self.logger = logging.getLogger("runner")
        self.actor = self.rollout = self.env = group
        for name in ("_open_profiling_window", "_close_profiling_window"):
            setattr(self, name, types.MethodType(getattr(EmbodiedRunner, name), self))


@pytest.mark.skipif(
    "RLINF_CLUSTER_TEST" not in os.environ, reason="run in a process of its own: RLinf's cluster is one a process"
)
def test_worker_groups_on_a_cluster(tmp_path, monkeypatch):
    """Real worker groups on Ray: windows in both groups, the channel's too, ranges and metrics, in one manifest."""
    import ray
    from omegaconf import OmegaConf
    from ray.cluster_utils import Cluster as RayCluster
    from rlinf.scheduler import Cluster, NodePlacementStrategy

    handler = signal.getsignal(signal.SIGTERM)  # Ray's head node sets its own
    # RLinf takes the cluster that RAY_ADDRESS names, else any that it finds on the machine
    head = RayCluster(initialize_head=True, head_node_args={"num_cpus": 8, "include_dashboard": False})
    monkeypatch.setenv("RAY_ADDRESS", head.address)
    compat.install("rlinf")
    try:
        config = OmegaConf.create(
            {
                "num_nodes": 1,
                "component_placement": {},
                "profiling": {
                    "backend": "nsight",
                    "worker_groups": ["ActorGroup", "Actor"],
                    "steps": [1, 3],
                    "output_dir": str(tmp_path),
                    "options": {"t": "nvtx"},
                },
            }
        )
        cluster = Cluster(cluster_cfg=config)
        placement = NodePlacementStrategy([0, 0])
        actors = ActorWorker.create_group().launch(cluster, placement, name="ActorGroup")
        channel = BufferWorker.create_group().launch(cluster, NodePlacementStrategy([0]), name="Actor")
        other = ActorWorker.create_group().launch(cluster, NodePlacementStrategy([0]), name="EnvGroup")
        assert actors.is_installed().wait() == [("rlinf",)] * 2
        runner = Runner(actors)
        for step in range(4):
            if step in (1, 3):
                runner._open_profiling_window(step)
            assert actors.run_training(10).wait() == [10, 11]
            channel.run_training(0).wait()
            other.run_training(0).wait()
            if step in (1, 3):
                runner._close_profiling_window(step)
        assert set(actors.run_training(1).consume_durations()) == {"run_training", "inner"}
    finally:
        compat.uninstall()
        accelprof.reset()
        ray.shutdown()
        head.shutdown()
        signal.signal(signal.SIGTERM, handler)
    (path,) = glob.glob(f"{tmp_path}/*/manifest.json")
    with open(path) as file:
        manifest = json.load(file)
    print(json.dumps(manifest["problems"], indent=1))
    windows = sorted(
        (row["target"].split("-")[0], row["target"].split("-")[1], row["steps"]) for row in manifest["windows"]
    )
    assert windows == sorted(
        [("Actor", "r0", [step]) for step in (1, 3)]
        + [("ActorGroup", f"r{rank}", [step]) for rank in (0, 1) for step in (1, 3)]
    )
    rows = {row["step"]: row["seconds"] for row in manifest["metrics"]["steps"]}
    assert rows[3]["run_training"]["ranks"] == 3
    reports = [item for item in manifest["artifacts"] if item["tool"] == "nsys" and item["state"] == "complete"]
    assert len(reports) == 6


def test_managers_agree(rlinf):
    """Whoever starts, stops or asks, through the utility or any vendor's manager, means the one window of the process."""
    managers = {AcceleratorManager, *AcceleratorManager.manager_register.values()}
    assert len(managers) > 2
    for starter in managers:
        starter.start_profiling(3)
        for asked in managers:
            assert asked.is_profiling_active()
        with starter.profiling_range("mine"):
            pass
        for stopper in managers:
            stopper.stop_profiling()
        assert not any(asked.is_profiling_active() for asked in managers)
        break
    assert [window.steps for window in rlinf.windows] == [[3]]


def test_untraced_worker_timer(rlinf, tmp_path):
    """``trace=False``, which later releases have, is seconds without a range."""
    worker = Plain()
    window()
    with worker.worker_timer("seen"), worker.worker_timer("unseen", trace=False):
        pass
    AcceleratorUtil.stop_profiling(AcceleratorType.NO_ACCEL)
    assert set(worker.pop_execution_times()) == {"seen", "unseen"}
    assert spans(tmp_path) == ["seen"]


@pytest.mark.parametrize(("opened", "closed"), [(3, 3), (3, 12)])
def test_windows_of_the_runner(opened, closed, monkeypatch):
    """The step that the runner opened its window with is the one that ends, also where a later release closes it at another."""
    from accelprof.compat import rlinf_install
    from accelprof.compat.patching import Patches

    runners = pytest.importorskip("rlinf.runners.embodied_runner")
    told = []

    class Controller:
        begin_step = staticmethod(lambda step: told.append(("begin", step)))
        end_step = staticmethod(lambda step: told.append(("end", step)))

    for name in ("_open_profiling_window", "_close_profiling_window"):
        monkeypatch.setattr(
            runners.EmbodiedRunner, name, lambda self, step_idx, name=name: told.append((name, step_idx))
        )
    driver, patches = rlinf_install._Driver(), Patches()
    driver.controller = Controller
    rlinf_install._runner(patches, driver)
    runner = object.__new__(runners.EmbodiedRunner)
    runner._open_profiling_window(opened)
    runner._close_profiling_window(step_idx=closed)
    patches.undo()
    assert told == [
        ("begin", opened),
        ("_open_profiling_window", opened),
        ("_close_profiling_window", closed),
        ("end", opened),
    ]


class TracedTimer:
    """The runners' timer of RLinf 0.4 in shape: spans go to a tracer unless it is told not to."""

    def __init__(self, reduction="mean", trace=False):
        self.seconds, self.trace, self.sent = {}, trace, []

    @contextlib.contextmanager
    def __call__(self, name, trace_args=None):
        yield
        self.seconds[name] = 1.0
        if self.trace:
            self.sent.append((name, trace_args))


@pytest.mark.parametrize("traced", [None, False, True])
@pytest.mark.parametrize("release", ["0.3", "0.4"])
def test_scoped_timer(release, traced, tmp_path, monkeypatch):
    """The runners' timer keeps its seconds and its errors, takes the arguments of either release, and is a range as the release's
    own default says; nothing is sent to its tracer, and it is as before when all is taken back."""
    module = importlib.import_module("rlinf.utils.distributed")
    if release == "0.4":
        monkeypatch.setattr(module, "ScopedTimer", TracedTimer)
    cls, before = module.ScopedTimer, dict(vars(module.ScopedTimer))
    early = cls(reduction="max")
    compat.install("rlinf")
    accelprof.configure(steps=[3], ranks="all", output_dir=str(tmp_path), group="Driver", rank=0)
    timer = cls(reduction="max", **({} if traced is None else {"trace": traced}))
    window()
    with timer("step", trace_args={"step_idx": 3}), timer("sync_weights"):
        pass
    with early("early"):
        pass
    AcceleratorUtil.stop_profiling(AcceleratorType.NO_ACCEL)
    if release == "0.3":
        with pytest.raises(ValueError, match="consume"), timer("step"):
            pass
        assert set(timer.consume_durations()) == {"step", "sync_weights"}
    else:
        assert (set(timer.seconds), timer.sent) == ({"step", "sync_weights"}, [])
    seen = (release == "0.3") if traced is None else traced
    assert sorted(spans(tmp_path)) == ["early", *(["step", "sync_weights"] if seen else [])]
    compat.uninstall()
    accelprof.reset()
    assert dict(vars(cls)) == before
