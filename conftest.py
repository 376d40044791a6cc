"""Fixtures and rules shared by the tests of the core and of every plug-in."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parent
#: markers of tests that need something heavy (where CI installs it, a skip is a failure), and what a reason says of it
TIERS = {
    "torch": r"\btorch\b",
    "ray": r"(?i)\bray\b",
    "nsys": r"\bnsys\b",
    "npu": r"torch_npu|(?i:\bcann\b)",
    "roctx": r"roctx",
    "chromium": r"\bchromium\b",
    "frameworks": r"\b(verl|rlinf)\b",
    "exporters": r"(?i)tensorboard|exporters",
    "itt": r"ittapi",
    "jax": r"\bjax\b",
}
NO_SKIP = "ACCELPROF_CI_NO_SKIP"


#: how long one example takes is no finding: another test may have the core meanwhile
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "roctx: needs AMD's roctx library")
    config.addinivalue_line("markers", "chromium: looks at a page in a headless browser")
    config.addinivalue_line("markers", "itt: needs Intel's ittapi")
    config.addinivalue_line("markers", "jax: needs JAX on the CPU")
    config.addinivalue_line("markers", "second_try(reason): in CI this test may fail once, for the reason given")
    config.addinivalue_line("markers", "xdist_group(name): tests that one process of pytest-xdist runs")


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in this hook too
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Under pytest-xdist one process has all tests with Ray, one cluster at a time, and those with nsys, two of which that start
    at the same moment fail each other; other files stay whole, for their fixtures.

    In CI a test that is marked ``second_try`` and fails gets one, which the summary counts with the reason that the mark gives.
    """
    for item in items:
        heavy = item.get_closest_marker("ray") or item.get_closest_marker("nsys")
        together = "ray" if heavy else item.path.name
        item.add_marker(pytest.mark.xdist_group(together))
        mark = item.get_closest_marker("second_try")
        if mark is None:
            continue
        reason = mark.args[0] if mark.args else mark.kwargs.get("reason")
        if not isinstance(reason, str) or not reason.strip():
            raise pytest.UsageError(f"{item.nodeid}: second_try says why, in words: second_try('the daemon …')")
        item.user_properties.append(("second try", reason))
        if os.environ.get("CI"):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=1))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many tests needed their second try, and why each may have one."""
    again = {
        report.nodeid: dict(report.user_properties).get("second try", "")
        for report in terminalreporter.stats.get("rerun", ())
    }
    if again:
        terminalreporter.section(f"{len(again)} of the tests needed a second try")
        for name, reason in sorted(again.items()):
            terminalreporter.write_line(f"{name}: {reason}")


def _must_run() -> frozenset[str]:
    """The tiers named by ``ACCELPROF_CI_NO_SKIP``: ``1`` is all of them, otherwise a list with commas."""
    value = os.environ.get(NO_SKIP, "")
    return frozenset(TIERS) if value == "1" else frozenset(value.split(",")) & TIERS.keys()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    tiers = sorted(_must_run() & {mark.name for mark in item.iter_markers()})
    if report.skipped and tiers and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped although {NO_SKIP} says {', '.join(tiers)} is installed: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module that skips itself while it is imported has no markers yet; what it says it lacks tells the tier."""
    report = yield
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        tiers = sorted(tier for tier in _must_run() if re.search(TIERS[tier], reason))
        if tiers:
            report.outcome = "failed"
            report.longrepr = f"{collector.nodeid} skipped itself although {NO_SKIP} has {', '.join(tiers)}: {reason}"
    return report


@pytest.fixture(scope="session")
def shared() -> Path:
    """Directory of the sample files: ``ACCELPROF_SHARED``, else ``shared`` beside the checkout; skips where absent."""
    path = Path(os.environ.get("ACCELPROF_SHARED") or ROOT.parent / "shared")
    if not path.is_dir():
        pytest.skip(f"no sample files at {path}; ACCELPROF_SHARED names another directory")
    return path


@pytest.fixture(autouse=True)
def slow_machines_are_no_problem(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A close over 1 s is said as a problem; on a busy machine any may be. The tests of that say it themselves."""
    closetimes = sys.modules.get("accelprof.session.closetimes")
    if closetimes is not None and request.path.name != "test_slow_writing.py":
        monkeypatch.setattr(closetimes, "SLOW_NS", 60_000_000_000)


@pytest.fixture(autouse=True)
def no_leak() -> Iterator[None]:
    """Nothing of accelprof's global state outlives a test: session, gate, clock, signal handler, environment."""
    before = _global_state()
    yield
    after = _global_state()
    changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    if changed:
        accelprof = sys.modules.get("accelprof")
        if accelprof is not None:
            accelprof.reset()
        lines = [f"{key}: {before.get(key)!r} -> {after.get(key)!r}" for key in changed]
        pytest.fail("the test left global state behind:\n" + "\n".join(lines), pytrace=False)


def _global_state() -> dict[str, Any]:
    state: dict[str, Any] = {key: value for key, value in os.environ.items() if key.startswith("ACCELPROF_")}
    state["SIGTERM handler"] = signal.getsignal(signal.SIGTERM)
    gate = sys.modules.get("accelprof.timing.gate")
    if gate is not None:
        state["open or armed"] = gate.gate.entrance
        state["session"] = gate.gate.session
    return state


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Any]:
    """A Ray cluster of this machine with four logical CPUs; skips where Ray is not installed."""
    ray = pytest.importorskip("ray", reason="ray is not installed")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(
        address="local",
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=128 * 1024 * 1024,
    )
    yield ray
    ray.shutdown()
