"""Device events: begin and finish only record; reading waits for nobody unless asked to."""

from __future__ import annotations

import itertools
import threading
from contextlib import contextmanager

import pytest

from accelprof import Worker
from accelprof.contracts.backend import EventPool, EventTimer
from accelprof.testing import RecordingBackend, capture


class Event:
    passed = False
    clock = itertools.count(1.5, 2.25)  # milliseconds

    def __init__(self):
        self.at = None

    def record(self):
        self.at = next(self.clock)

    def query(self):
        return self.passed

    def elapsed_time(self, other):
        return other.at - self.at


def test_it_reads_nanoseconds_once_the_device_has_passed(monkeypatch):
    """Before the device passed the end there is no time; then milliseconds become ns, and stay."""
    monkeypatch.setattr(Event, "passed", False)
    timer = EventTimer(Event)
    timer.begin()
    timer.finish()
    assert timer.resolve() is None
    monkeypatch.setattr(Event, "passed", True)
    assert timer.resolve() == 2_250_000
    monkeypatch.setattr(Event, "passed", False)
    assert timer.resolve() == 2_250_000


class Stream:
    """A device's stream as far as events and captures go: what is recorded in a capture, or read while one goes on, breaks it."""

    def __init__(self):
        self.captured_by = None
        self.broken = []
        self.made = 0
        self.allowed = threading.local()

    def event(self):
        self.made += 1
        return StreamEvent(self)

    def capturing(self):
        return self.captured_by == threading.get_ident()

    @contextmanager
    def reading(self):
        self.allowed.now = True
        try:
            yield
        finally:
            self.allowed.now = False


class StreamEvent(Event):
    passed = True

    def __init__(self, stream):
        super().__init__()
        self.stream, self.in_graph = stream, False

    def record(self):
        self.in_graph = self.stream.capturing()
        super().record()

    def query(self):
        if self.in_graph or (self.stream.captured_by is not None and not getattr(self.stream.allowed, "now", False)):
            self.stream.broken.append("query")
        return True

    def elapsed_time(self, other):
        assert not self.in_graph
        assert not other.in_graph
        return super().elapsed_time(other)


@pytest.fixture
def stream():
    return Stream()


@pytest.fixture
def run(stream):
    pool = EventPool(stream.event, stream.capturing, stream.reading)

    class Device(RecordingBackend):
        name = "device"

        def device_timer(self):
            return pool.timer()

    with capture(backend=Device, steps=[1]) as captured:
        yield captured


class Actor(Worker):
    @Worker.timer("forward", device=True)
    def forward(self, inside=None):
        if inside is not None:
            inside()


@pytest.mark.parametrize("where", ["all of it", "its beginning", "its end", "in its middle"])
def test_a_phase_in_a_graph_capture_has_no_device_time_and_ends_none(run, stream, where):
    """Skipped where an event would belong to the graph; the capture goes on, and later calls are timed on the device again."""
    actor = Actor()

    def begin():
        stream.captured_by = threading.get_ident()

    def end():
        stream.captured_by = None

    actor.forward()
    moves = {
        "all of it": (begin, None, end),
        "its beginning": (begin, end, end),
        "its end": (end, begin, end),
        "in its middle": (end, lambda: (begin(), end()), end),
    }
    before, inside, after = moves[where]
    before()
    actor.forward(inside)
    after()
    actor.forward()
    found = actor.timing_stats()["forward"]
    assert found["count"] == 3
    assert found["device_count"] == (3 if where == "in its middle" else 2)
    assert (stream.broken, run.session.problems) == ([], [])


def test_reading_timings_while_another_thread_captures(run, stream):
    """``timing_stats`` reads events in a way that breaks no capture of another thread."""
    actor = Actor()
    actor.forward()
    stream.captured_by = -1
    assert actor.timing_stats()["forward"]["device_count"] == 1
    assert stream.broken == []


def test_events_are_used_again(run, stream):
    """A long loop makes as many events as wait to be read at once, and no more."""
    from accelprof.timing.running import RESOLVED_AT

    actor = Actor()
    for _ in range(10 * RESOLVED_AT):
        actor.forward()
    found = actor.timing_stats()["forward"]
    assert found["device_count"] == found["count"] == 10 * RESOLVED_AT
    assert stream.made <= 2 * (RESOLVED_AT + 1)


def test_events_are_recorded_on_the_stream_of_their_place():
    """A backend that knows the current stream of a device hands it over; one that does not leaves it to the event."""
    recorded = []

    class Told(Event):
        def record(self, stream=None):
            recorded.append(stream)

    for stream, expected in ((lambda place: f"stream of {place}", "stream of 3"), (lambda place: None, None)):
        timer = EventPool(Told, place=lambda: 3, stream=stream).timer()
        timer.begin()
        timer.finish()
        assert recorded == [expected] * 2
        recorded.clear()


def test_a_place_to_read_that_fails_costs_times_and_nothing_else():
    """What is entered around reading raises: said once, the times are lost, and training goes on."""

    def fails():
        raise RuntimeError("no driver")

    pool = EventPool(Event, reading=fails)

    class Device(RecordingBackend):
        name = "device"

        def device_timer(self):
            return pool.timer()

    with capture(backend=Device, steps=[1]) as run:
        actor = Actor()
        for _ in range(3):
            actor.forward()
        assert actor.timing_stats()["forward"]["count"] == 3
        assert len([text for text in run.session.problems if "no driver" in text]) == 1


def test_events_stay_with_their_device(monkeypatch):
    """An event that was recorded on one device is never recorded on another."""
    monkeypatch.setattr(Event, "passed", True)
    current = [0]
    pool = EventPool(Event, place=lambda: current[0])
    used = {}
    for device in (0, 1, 0, 1, 0):
        current[0] = device
        timer = pool.timer()
        timer.begin()
        timer.finish()
        used.setdefault(device, set()).update(map(id, (timer._begin, timer._end)))
        timer.resolve()
    assert not used[0] & used[1]
    assert [len(ids) for ids in used.values()] == [2, 2]
