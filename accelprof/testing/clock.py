"""A clock that tests move by hand, in the place of the timers' clock."""

from __future__ import annotations

from types import TracebackType

from accelprof.timing.gate import wrapper_globals


class FakeClock:
    """``with FakeClock() as clock: ...; clock.advance(0.3)``: every timer of the process reads this clock.

    Attributes:
        now_ns: current reading in nanoseconds.
    """

    def __init__(self, start_ns: int = 1_000_000_000) -> None:
        self.now_ns = start_ns
        self._previous: object = None

    def __call__(self) -> int:
        return self.now_ns

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass.

        Raises:
            ValueError: the clock is monotonic; it never runs backwards.
        """
        if seconds < 0:
            raise ValueError(f"a monotonic clock cannot go back by {-seconds} s")
        self.now_ns += round(seconds * 1e9)

    def __enter__(self) -> FakeClock:
        self._previous = wrapper_globals["_accelprof_clock"]
        wrapper_globals["_accelprof_clock"] = self
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        wrapper_globals["_accelprof_clock"] = self._previous
