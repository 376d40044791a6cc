"""Device events: begin and finish only record; reading waits for nobody unless asked to."""

from __future__ import annotations

import itertools

from accelprof.contracts.backend import EventTimer


class Event:
    passed = False
    clock = itertools.count(1.5, 2.25)  # milliseconds

    def __init__(self):
        self.at = None

    def record(self):
        self.at = next(self.clock)

    def query(self):
        return self.passed

    def synchronize(self):
        type(self).passed = True

    def elapsed_time(self, other):
        return other.at - self.at


def test_it_reads_nanoseconds_once_the_device_has_passed(monkeypatch):
    """Before the device passed the end there is no time; with ``wait`` it is waited for; milliseconds become ns."""
    monkeypatch.setattr(Event, "passed", False)
    timer = EventTimer(Event)
    timer.begin()
    timer.finish()
    assert timer.resolve() is None
    assert timer.resolve(wait=True) == 2_250_000
    assert timer.resolve() == 2_250_000
