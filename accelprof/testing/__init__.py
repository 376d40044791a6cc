"""For users' and plug-in authors' tests: a recording backend and tool, a fake clock, sessions that clean up, the conformance kit.

The kit needs pytest; the rest does not::

    from accelprof.testing import RecordingBackend, capture

    def test_update_is_one_range():
        with capture(steps=[1]) as run:
            with run.session.step(1):
                Actor().update(batch)
        assert run.backend.labels() == ["actor/update"]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accelprof.testing.clock import FakeClock
    from accelprof.testing.conformance import BackendConformance, ToolConformance
    from accelprof.testing.recording import Call, RecordingBackend, RecordingTool
    from accelprof.testing.sessions import Captured, capture

__all__ = [
    "BackendConformance",
    "Call",
    "Captured",
    "FakeClock",
    "RecordingBackend",
    "RecordingTool",
    "ToolConformance",
    "capture",
]


def __getattr__(name: str) -> object:
    if name == "FakeClock":
        from accelprof.testing import clock

        return clock.FakeClock
    if name in ("BackendConformance", "ToolConformance"):
        from accelprof.testing import conformance

        return getattr(conformance, name)
    if name in ("Call", "RecordingBackend", "RecordingTool"):
        from accelprof.testing import recording

        return getattr(recording, name)
    if name in ("Captured", "capture"):
        from accelprof.testing import sessions

        return getattr(sessions, name)
    raise AttributeError(f"module 'accelprof.testing' has no attribute {name!r}")
