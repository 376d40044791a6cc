"""The contract of a backend: one accelerator type's ranges, capture gate, step hooks and device facts.

Subclass :class:`Backend`, override what your hardware has, and check it with
``accelprof.testing.BackendConformance``. Nothing here is called while no profiling window is open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

    push: Callable[[], Any]
    pop: Callable[[], Any]
    start: Callable[[], Any]
    end: Callable[[Any], Any]


def _nothing(*_: Any) -> None:
    return None


#: what ``bind`` returns when nothing is to be emitted; the session then calls nothing at all
NO_RANGE = BoundRange(_nothing, _nothing, _nothing, _nothing)


class Emitter:
    """Where ranges go. A backend is one; a tool may bring another (``torch`` emits ``record_function``)."""

    #: start/end pairs may overlap on one thread without disturbing the tool
    overlapping_ranges: ClassVar[bool] = True

    def push(self, spec: RangeSpec) -> Any:
        """Open a range on this thread's stack."""

    def pop(self, spec: RangeSpec) -> Any:
        """Close the range this thread opened last."""

    def start(self, spec: RangeSpec) -> Any:
        """Open a range that may overlap others; returns the handle for :meth:`end`."""

    def end(self, spec: RangeSpec, handle: Any) -> Any:
        """Close the range that ``handle`` names."""

    def mark(self, spec: RangeSpec) -> Any:
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

    def push(self, spec: RangeSpec) -> Any:
        return self.bind(spec).push()

    def pop(self, spec: RangeSpec) -> Any:
        return self.bind(spec).pop()

    def start(self, spec: RangeSpec) -> Any:
        return self.bind(spec).start()

    def end(self, spec: RangeSpec, handle: Any) -> Any:
        return self.bind(spec).end(handle)


class DeviceTimer:
    """Times a phase on the device without synchronising: ``begin`` and ``finish`` record events, ``resolve`` reads them.

    One object per phase call. ``resolve`` returns nanoseconds, or ``None`` while the device has not passed the end.
    """

    def begin(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        raise NotImplementedError

    def resolve(self, wait: bool = False) -> int | None:
        raise NotImplementedError


class EventTimer(DeviceTimer):
    """Two events on the current stream; the host waits for neither.

    ``make`` gives a fresh event as torch's device modules have them: ``record``, ``query``, ``synchronize`` and
    ``elapsed_time`` (milliseconds).
    """

    __slots__ = ("_begin", "_end", "_make")

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._begin: Any = None
        self._end: Any = None

    def begin(self) -> None:
        self._begin = self._make()
        self._begin.record()

    def finish(self) -> None:
        self._end = self._make()
        self._end.record()

    def resolve(self, wait: bool = False) -> int | None:
        if wait:
            self._end.synchronize()
        elif not self._end.query():
            return None
        milliseconds: float = self._begin.elapsed_time(self._end)
        return round(milliseconds * 1e6)


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
        """Open the vendor's gate (``cudaProfilerStart`` and the like) for a tool that records from outside.

        Raises:
            CaptureError: the gate did not open; the session then stays closed.
        """

    def capture_stop(self) -> None:
        """Close the vendor's gate. Must be harmless when it is closed already."""

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
