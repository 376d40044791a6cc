"""NeMo-RL through accelprof, on a package of its shape: the real one is not in the registry, its source was read."""

from __future__ import annotations

import importlib
import sys

import pytest

import accelprof
from accelprof import compat
from accelprof.errors import ConfigError, UserError
from accelprof.testing import capture

TIMER = """
import time
from contextlib import contextmanager


class Timer:
    def __init__(self, context=None):
        self._timers, self._start_times = {}, {}

    def start(self, label, should_log=True):
        if label in self._start_times:
            raise ValueError(f"Timer '{label}' is already running")
        self._start_times[label] = time.perf_counter()

    def stop(self, label, should_log=True):
        if label not in self._start_times:
            raise ValueError(f"Timer '{label}' is not running")
        elapsed = time.perf_counter() - self._start_times.pop(label)
        self._timers.setdefault(label, []).append(elapsed)
        return elapsed

    @contextmanager
    def time(self, label, should_log=True):
        self.start(label, should_log)
        try:
            yield
        finally:
            self.stop(label, should_log)

    def reset(self, label=None):
        for known in (self._timers, self._start_times):
            known.pop(label, None) if label else known.clear()


class ThreadSafeTimer(Timer):
    def start(self, label, should_log=True):
        super().start(label, should_log)
"""
WORKER = """
class AbstractPolicyWorker:
    calls = []

    def start_gpu_profiling(self):
        self.calls.append("start")

    def stop_gpu_profiling(self):
        self.calls.append("stop")

    def train(self):
        return 7
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    root = tmp_path / "site"
    workers = root / "nemo_rl/models/policy/workers"
    for folder in (root / "nemo_rl/utils", workers, workers.parent, workers.parent.parent, root / "nemo_rl"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").write_text("")
    (root / "nemo_rl/utils/timer.py").write_text(TIMER)
    (workers / "base_policy_worker.py").write_text(WORKER)
    info = root / "nemo_rl-0.4.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nemo-rl\nVersion: 0.4.0\n")
    monkeypatch.syspath_prepend(str(root))
    monkeypatch.chdir(tmp_path)
    yield root
    compat.uninstall()
    accelprof.reset()
    for name in [name for name in sys.modules if name.partition(".")[0] == "nemo_rl"]:
        del sys.modules[name]


def worker():
    return importlib.import_module("nemo_rl.models.policy.workers.base_policy_worker").AbstractPolicyWorker()


@pytest.mark.parametrize("before", [True, False], ids=["worker first", "install first"])
def test_windows_and_phases(package, monkeypatch, before):
    """The worker's profiling calls are one window over the range's steps, and the labels of its timers phases in it."""
    monkeypatch.setenv("NRL_NSYS_WORKER_PATTERNS", "policy*")
    monkeypatch.setenv("NRL_NSYS_PROFILE_STEP_RANGE", "3:5")
    made = worker() if before else None
    compat.install("nemo_rl")
    made = made or worker()
    timer = importlib.import_module("nemo_rl.utils.timer").ThreadSafeTimer()
    with timer.time("outside"):
        pass
    made.start_gpu_profiling()
    made.start_gpu_profiling()
    session = accelprof.current_session()
    assert session.window is not None
    with timer.time("policy_training"):
        timer.start("inner")
        assert made.train() == 7
    timer.stop("inner")
    with pytest.raises(ValueError, match="already running"), timer.time("twice"):
        timer.start("twice")
    made.stop_gpu_profiling()
    made.stop_gpu_profiling()
    assert [row.steps for row in session.windows] == [[3]]
    assert made.calls == []
    assert set(timer._timers) == {"outside", "policy_training", "inner", "twice"}
    seen = session.metrics_of_step(3)
    assert {"policy_training", "inner", "twice"} <= set(seen)
    assert "outside" not in seen


@pytest.mark.parametrize("label", [None, "one"])
def test_reset_while_labels_run(package, label):
    """Phases of the labels that a timer forgets end there, those of others go on, and a label can begin again."""
    compat.install("nemo_rl")
    made = importlib.import_module("nemo_rl.utils.timer").Timer
    timer, other = made(), made()
    with capture(steps=[1], ranks="all", timeline=False) as captured, captured.session.step(1):
        for name in ("one", "two"):
            timer.start(name)
        other.start("three")
        timer.reset(label)
        timer.start("one")
        for name in ("one", "two") if label else ("one",):
            timer.stop(name)
        other.stop("three")
        assert sorted(captured.backend.labels()) == ["one", "one", "three", "two"]
        assert captured.backend.balanced()


def test_uninstall(package):
    """After uninstall the timer's and the workers' methods are their own, and a worker imported later is left alone."""
    timer = importlib.import_module("nemo_rl.utils.timer").Timer
    before = {name: vars(timer)[name] for name in ("start", "stop", "time")}
    compat.install("nemo_rl")
    assert vars(timer)["start"] is not before["start"]
    compat.uninstall("nemo_rl")
    assert {name: vars(timer)[name] for name in before} == before
    made = worker()
    made.start_gpu_profiling()
    assert made.calls == ["start"]
    type(made).calls.clear()


def test_contradicting_variables_are_refused(package, monkeypatch):
    """One variable without the other is refused when it is installed, and nothing is half installed."""
    monkeypatch.setenv("NRL_NSYS_WORKER_PATTERNS", "policy*")
    with pytest.raises(ConfigError, match="NRL_NSYS_PROFILE_STEP_RANGE: must be given too"):
        compat.install("nemo_rl")
    assert compat.installed() == ()


def test_other_releases_are_refused(package):
    """A release that this was not written for is refused by its number."""
    (package / "nemo_rl-0.4.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: nemo-rl\nVersion: 9.1\n")
    importlib.invalidate_caches()
    with pytest.raises(UserError, match=r"nemo_rl 9.1 is installed; this was written for 0\.3"):
        compat.install("nemo_rl")
