"""The contract of a backend: one accelerator type's ranges, capture switch, step hooks and device facts.

Subclass :class:`Backend`, override what your hardware has, and check it with
``accelprof.testing.BackendConformance``. Nothing here is called while no profiling window is open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from accelprof.errors import CaptureError


@dataclass(frozen=True, slots=True)
class Probe:
    """Whether a backend or tool can work here.

    Attributes:
        priority: higher wins when the accelerator type is detected; ``None`` = unavailable. ``cpu`` has 0; hardware
            that is present should answer 100 or more.
        reason: one line for people, never empty: what was found, or why not.
        facts: details for ``accelprof doctor``.
    """

    priority: int | None
    reason: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def available(self) -> bool:
        return self.priority is not None


class RangeSpec(NamedTuple):
    """What a range looks like in the tool's data. ``color`` is a CSS name or ``#rrggbb``; empty = the tool's own."""

    label: str
    domain: str = ""
    color: str = ""
    category: str = ""


class BoundRange(NamedTuple):
    """Four callables resolved once per label, then called directly.

    ``push``/``pop`` serve code that cannot be suspended (the vendors attribute device work by thread stack);
    ``start``/``end`` serve coroutines and generators: ``end`` gets what ``start`` returned. What ``push`` returns is
    ignored: some tools answer -1 although the range was taken.
    """

    push: Callable[[], object]
    pop: Callable[[], object]
    start: Callable[[], object]
    end: Callable[[Any], object]


def _nothing(*_: object) -> None:
    return None


#: what ``bind`` returns when nothing is to be emitted; the session then calls nothing at all
NO_RANGE = BoundRange(_nothing, _nothing, _nothing, _nothing)


class Emitter:
    """Where ranges go. A backend is one; a tool may bring another (``torch`` emits ``record_function``)."""

    #: start/end pairs may overlap on one thread without disturbing the tool
    overlapping_ranges: ClassVar[bool] = True

    def push(self, spec: RangeSpec) -> object:
        """Open a range on this thread's stack."""

    def pop(self, spec: RangeSpec) -> object:
        """Close the range this thread opened last."""

    def start(self, spec: RangeSpec) -> object:
        """Open a range that may overlap others; returns the handle for :meth:`end`."""

    def end(self, spec: RangeSpec, handle: Any) -> object:
        """Close the range that ``handle`` names."""

    def mark(self, spec: RangeSpec) -> object:
        """Leave an instant."""

    def bind(self, spec: RangeSpec) -> BoundRange:
        """Resolve ``spec`` to direct callables. Called once per label and window; override to cache vendor attributes."""
        return BoundRange(
            lambda: self.push(spec),
            lambda: self.pop(spec),
            lambda: self.start(spec),
            lambda handle: self.end(spec, handle),
        )


class BoundEmitter(Emitter):
    """An emitter whose :meth:`bind` is its own: the four calls of the contract go through what it gives."""

    def bind(self, spec: RangeSpec) -> BoundRange:
        raise NotImplementedError

    def push(self, spec: RangeSpec) -> object:
        return self.bind(spec).push()

    def pop(self, spec: RangeSpec) -> object:
        return self.bind(spec).pop()

    def start(self, spec: RangeSpec) -> object:
        return self.bind(spec).start()

    def end(self, spec: RangeSpec, handle: Any) -> object:
        return self.bind(spec).end(handle)


class DeviceTimer:
    """Times a phase on the device without synchronising: ``begin`` and ``finish`` record events, ``resolve`` reads them.

    One object per phase call. ``resolve`` returns nanoseconds, or ``None`` while the device has not passed the end. ``finish``
    may answer ``False``: this call has no device time (a graph is being captured), and nothing is to be resolved.
    """

    def begin(self) -> None:
        raise NotImplementedError

    def finish(self) -> bool | None:
        raise NotImplementedError

    def resolve(self) -> int | None:
        raise NotImplementedError

    def reading(self) -> AbstractContextManager[object]:
        """What is to be entered around :meth:`resolve`, once for many timers of one backend."""
        return nullcontext()


class EventTimer(DeviceTimer):
    """Two events on the current stream; the host waits for neither.

    ``make`` gives a fresh event as torch's device modules have them: ``record``, ``query`` and ``elapsed_time`` (milliseconds).
    With a ``pool`` the events come from it and go back to it.
    """

    __slots__ = ("_begin", "_end", "_make", "_place", "_pool", "_taken")

    def __init__(self, make: Callable[[], Any], pool: EventPool | None = None, place: object = None) -> None:
        self._make, self._pool, self._place = make, pool, place
        self._begin: Any = None
        self._end: Any = None
        self._taken: int | None = None

    def begin(self) -> None:
        self._begin, self._end = self._pool.pair(self._place) if self._pool is not None else (self._make(), None)
        self._record(self._begin)

    def finish(self) -> bool | None:
        if self._pool is not None and self._pool.capturing():
            return False  # what is recorded now would be part of the graph, and can never be read
        if self._end is None:
            self._end = self._make()
        self._record(self._end)
        return None

    def _record(self, event: Any) -> None:
        stream = None if self._pool is None else self._pool.stream(self._place)
        if stream is None:
            event.record()
        else:
            event.record(stream)

    def reading(self) -> AbstractContextManager[object]:
        return nullcontext() if self._pool is None else self._pool.reading()

    def resolve(self) -> int | None:
        if self._taken is None:
            if not self._end.query():
                return None
            milliseconds: float = self._begin.elapsed_time(self._end)
            self._taken = round(milliseconds * 1e6)
            if self._pool is not None:
                self._pool.give_back(self._place, self._begin, self._end)
            self._begin = self._end = None
        return self._taken


def _never() -> bool:
    return False


def _no_stream(place: object) -> None:
    return None


class EventPool:
    """Events of one process for :class:`EventTimer`, used again once they were read.

    Args:
        make: a fresh event.
        capturing: whether this thread's current stream is being captured as a graph. Events recorded then belong to the
            graph, so a phase that begins or ends there gets no device time.
        reading: a context in which events may be read while another stream is being captured.
        place: the device that is current; an event stays with the device it was first recorded on.
        stream: the current stream of a place, for ``record``; ``None`` leaves it to the event to look it up.
    """

    #: pairs kept for each device
    KEPT = 1024

    def __init__(
        self,
        make: Callable[[], Any],
        capturing: Callable[[], bool] = _never,
        reading: Callable[[], AbstractContextManager[object]] = nullcontext,
        place: Callable[[], object] = _nothing,
        stream: Callable[[Any], object] = _no_stream,
    ) -> None:
        self._make, self.capturing, self.reading, self._place, self.stream = make, capturing, reading, place, stream
        self._free: dict[object, list[tuple[Any, Any]]] = {}

    def timer(self) -> EventTimer | None:
        """A timer for one call; ``None`` while this thread's stream is being captured."""
        return None if self.capturing() else EventTimer(self._make, self, self._place())

    def pair(self, place: object) -> tuple[Any, Any]:
        """Two events for ``place``."""
        try:
            return self._free[place].pop()
        except (KeyError, IndexError):
            return self._make(), self._make()

    def give_back(self, place: object, begin: object, end: object) -> None:
        """Both were read."""
        free = self._free.setdefault(place, [])
        if len(free) < self.KEPT:
            free.append((begin, end))


def wait_for_devices(module: Any, in_use: Callable[[int], bool] | None = None) -> None:
    """Wait for all work of this process, where torch's module for the device (``torch.cuda``, ``torch.npu``, …) is in use.

    Starts no device: nothing is waited for that was not initialised. ``in_use`` says whether this process uses the device with
    that number; without it only the current one is waited for.

    Raises:
        CaptureError: a graph is being captured on this thread's stream, and waiting would end that capture.
    """
    if module is None or not module.is_initialized():
        return
    capturing = getattr(module, "is_current_stream_capturing", None)
    if capturing is not None and capturing():
        raise CaptureError("a graph is being captured here, and waiting for the device would break it")
    module.synchronize()
    if in_use is not None and module.device_count() > 1:
        current = module.current_device()
        for number in range(module.device_count()):
            if number != current and in_use(number):
                module.synchronize(number)


class Backend(Emitter):
    """One accelerator type.

    Declare ``name`` (the accelerator type) and ``aliases`` (other spellings that users and frameworks use, matched
    without regard to case). The constructor takes no argument, imports nothing heavy and touches no device.
    """

    name: ClassVar[str] = ""
    aliases: ClassVar[tuple[str, ...]] = ()

    def probe(self) -> Probe:
        """Say whether this accelerator can be used in this process; must not raise and not initialise the device."""
        return Probe(None, "probe not implemented")

    def capture_start(self) -> None:
        """Make the vendor's call that starts capturing (``cudaProfilerStart`` and the like), for a tool that records from outside.

        Raises:
            CaptureError: nothing is captured; the session then stays closed.
        """

    def capture_stop(self) -> None:
        """Make the vendor's call that ends it. Must be harmless when nothing is captured."""

    def step_begin(self, step: int) -> None:
        """A training step begins (only in workers that have a session)."""

    def step_end(self, step: int) -> None:
        """A training step ended."""

    def synchronize(self) -> None:
        """Wait until the device has done all that was submitted. Asked once when a window closes, before its tools stop.

        May raise where waiting would do harm (a stream is being captured as a graph): that is said once, and nothing waits.
        """

    def device_timer(self) -> DeviceTimer | None:
        """A fresh device timer, or ``None`` where the device has no events."""
        return None

    def devices(self) -> list[Mapping[str, Any]]:
        """Devices this process sees: ``{"index": int, "name": str, ...}``; empty for a process without any."""
        return []

    def memory(self) -> Mapping[str, int]:
        """Bytes on the current device by name, for instance ``allocated`` and ``reserved``."""
        return {}
