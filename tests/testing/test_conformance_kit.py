"""The conformance kit: passes for backends that keep the contract, and fails for ones that break it."""

from __future__ import annotations

import pytest

from accelprof.backends.cpu import CpuBackend
from accelprof.contracts.backend import Backend, Probe
from accelprof.testing import BackendConformance, FakeClock, RecordingBackend, RecordingTool, ToolConformance, capture


class TestCpu(BackendConformance):
    """The embedded default keeps the contract."""

    def make(self):
        return CpuBackend()


class TestRecording(BackendConformance):
    """The recording backend keeps the contract."""

    def make(self):
        return RecordingBackend()


class TestStrictlyNested(BackendConformance):
    """A backend that declares no overlapping ranges is never asked for one."""

    def make(self):
        class Strict(RecordingBackend):
            name = "strict"
            aliases = ()
            overlapping_ranges = False

            def start(self, spec):
                raise AssertionError("asked for an overlapping range")

        return Strict()


class TestRecordingTool(ToolConformance):
    """The recording tool keeps the contract."""

    def make(self):
        return RecordingTool()

    def can_capture(self):
        return True


@pytest.mark.parametrize(
    ("method", "check"),
    [
        ("pop", "test_the_users_exception_passes_once"),
        ("push", "test_push_and_pop_nest"),
        ("end", "test_start_and_end_overlap"),
        ("capture_stop", "test_capture_stop_is_harmless_when_nothing_runs"),
        ("mark", "test_mark"),
    ],
)
def test_the_kit_fails_a_broken_backend(method, check):
    """Each check really fails when the method it is about raises."""

    class Broken(RecordingBackend):
        name = "broken"
        aliases = ()

        def __init__(self):
            super().__init__()
            self.failing.add(method)

    kit = BackendConformance()
    with pytest.raises((AssertionError, RuntimeError)):
        getattr(kit, check)(Broken())


def test_the_kit_fails_a_probe_without_a_reason():
    """A probe must say something."""

    class Silent(Backend):
        name = "silent"

        def probe(self):
            return Probe(1, "")

    with pytest.raises(AssertionError):
        BackendConformance().test_the_constructor_takes_nothing_and_the_probe_never_raises(Silent())


def test_capture_undoes_itself():
    """After ``capture`` the process has no session and no recording backend."""
    import accelprof
    from accelprof.catalogue import get_registry

    with capture(steps=[1]) as run:
        assert accelprof.current_session() is run.session
    assert accelprof.current_session() is None
    assert "recording" not in get_registry().backend_names()


def test_fake_clock_moves_by_hand_only():
    """The fake clock is what timers read; it goes forward only, and the real one is back afterwards."""
    from accelprof.timing.gate import now_ns

    with FakeClock(5) as clock:
        clock.advance(1e-9)
        assert now_ns() == 6
        with pytest.raises(ValueError, match="back"):
            clock.advance(-1)
    assert now_ns() > 10**6
