"""The lock of a session: one thread at a time, and signals wait while files are written."""

from __future__ import annotations

# the signal module's own functions, without a search for an enumeration's member at every call
import _signal  # type: ignore[import-not-found]
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from accelprof.threads import on_main

#: signals that people, schedulers and watchdogs send to end or to interrupt a process
SIGNALS = tuple(
    int(getattr(signal, name))
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGXCPU")
    if hasattr(signal, name)
)


class SessionLock:
    """Re-entrant. When the outermost holder leaves, ``leaving`` is called, still under the lock.

    :meth:`hold_signals` puts off what signals do until then: whoever ends the process in the middle of a window gets its
    end once the window's files are whole, and only once.
    """

    def __init__(self, leaving: Callable[[], None]) -> None:
        self._leaving = leaving
        self.renew()

    def renew(self) -> None:
        """A lock that nobody holds: in a forked child, where another thread of the parent may have held the old one."""
        self._lock = threading.RLock()
        self._depth = 0
        self._held: dict[int, object] | None = None
        self._came: dict[int, None] = {}

    def __enter__(self) -> SessionLock:
        self._lock.acquire()
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        held: dict[int, Any] | None = None
        came: dict[int, None] = {}
        try:
            if self._depth == 1:
                self._leaving()
        finally:
            self._depth -= 1
            if not self._depth:
                held, self._held = self._held, None
                came, self._came = self._came, came
            self._lock.release()
        if held:
            self._give_back(held, came)

    def hold_signals(self) -> None:
        """From here until the outermost holder leaves, signals wait. Called with the lock held; nothing off the main thread,
        whose handlers wait for the lock instead."""
        if self._held is not None or not on_main():
            return
        self._held = {}
        for number in SIGNALS:
            handler = _signal.getsignal(number)
            # None: not installed from Python, it could not be put back
            if handler is not None and handler != _signal.SIG_IGN:
                self._held[number] = handler
                _signal.signal(number, self._note)

    def handler(self, number: int) -> object:
        """What a signal does, if need be when it no longer waits."""
        return (self._held or {}).get(number) or _signal.getsignal(number)

    def signalled(self) -> bool:
        """Whether a signal waits."""
        return bool(self._came)

    def _note(self, number: int, frame: object) -> None:
        self._came[number] = None

    def _give_back(self, held: dict[int, object], came: dict[int, None]) -> None:
        for number, handler in held.items():
            if _signal.getsignal(number) == self._note:
                _signal.signal(number, handler)
        waiting = list(came)
        try:
            while waiting:
                number = waiting.pop(0)
                handler = held[number]
                if callable(handler):
                    handler(number, sys._getframe(1))
                else:
                    signal.raise_signal(number)
        finally:
            for number in waiting:  # a handler raised; the others come right after it
                signal.raise_signal(number)
