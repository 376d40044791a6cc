"""Whose turn it is where several processes share one nsys, and which capture each window went into.

One nsys has one capture at a time. It begins with the first process that asks for it and ends when the last of those has asked for the
end; a process that asks while nsys is still writing the capture before is not recorded at all (seen with nsys 2025.3 on two
cards: the faster rank's next window was in no report). So a window of another stretch of the run waits until the capture before it
is written, and each window is noted down with the number of its capture, which is the number in the report's name.

Locks on bytes of one file: they go with their process, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator

#: the byte that is held while nsys is told anything; stretches of the run have those behind it
CALL = 0
FIRST, END = 1, 1 + (1 << 24)
PREFIX = "nsys-captures-"
POLL_S = 0.005


class Turns:
    """Of one process under a shared nsys.

    Args:
        directory: where the reports go; processes that share an nsys share it.
        session: nsys's session.
        report: says something once.
        patience: seconds to wait for another process's window of another stretch; after that nothing is waited for but calls.
    """

    def __init__(self, directory: str, session: str, report: Callable[[str], None], patience: float = 20.0) -> None:
        self._path, self._report, self._patience = os.path.join(directory, f"{PREFIX}{session}.txt"), report, patience
        self._handle: int | None = None
        self._mine: int | None = None
        try:
            os.makedirs(directory, exist_ok=True)
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            self._give_up(error)

    def open(self, stretch: str, window: str, start: Callable[[], None]) -> None:
        """Call ``start`` when no capture is being written and none of another stretch is open; raises what it raises."""
        place = _place(stretch)
        with self._calling(place):
            start()
            self._note(place, window)

    def close(self, stop: Callable[[], None]) -> None:
        """Call ``stop`` with every other call kept waiting; raises what it raises."""
        with self._calling():
            try:
                stop()
            finally:
                if self._mine is not None:
                    self._lock(fcntl.LOCK_UN, self._mine)
                    self._mine = None

    def leave(self) -> None:
        """This process opens no window any more."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    @contextlib.contextmanager
    def _calling(self, place: int | None = None) -> Iterator[None]:
        deadline = time.monotonic() + self._patience
        held = False
        while self._handle is not None:
            held = self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB, CALL)
            if held and (place is None or self._others(place)):
                break
            if time.monotonic() >= deadline:
                self._waited(place)
                break
            if held:
                self._lock(fcntl.LOCK_UN, CALL)
            time.sleep(POLL_S)
        try:
            yield
        finally:
            if held:
                self._lock(fcntl.LOCK_UN, CALL)

    def _others(self, place: int) -> bool:
        """Whether no process has a window of another stretch open."""
        return self._free(FIRST, place) and self._free(place + 1, END)

    def _free(self, start: int, end: int) -> bool:
        """Whether no other process holds a byte from ``start`` on and before ``end``."""
        if start < end:
            if not self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB, start, end - start):
                return False
            self._lock(fcntl.LOCK_UN, start, end - start)
        return True

    def _waited(self, place: int | None) -> None:
        if place is not None and self._patience:
            self._report(
                f"nsys: another process of this nsys had a window of other steps open for {self._patience:g} s; from here on "
                "windows of different steps may share a capture. Give each process an nsys of its own (accelprof run under torchrun)"
            )
            self._patience = 0.0

    def _note(self, place: int, window: str) -> None:
        """The window's capture: a new one where nobody has a window open, otherwise the last one."""
        if self._handle is None:
            return
        last = max(captures_in(self._path).values(), default=0)
        number = last + 1 if self._free(FIRST, END) or not last else last
        try:
            os.write(self._handle, f"{number} {window}\n".encode())
        except OSError as error:
            self._give_up(error)
            return
        self._lock(fcntl.LOCK_SH | fcntl.LOCK_NB, place)
        self._mine = place

    def _lock(self, how: int, start: int, length: int = 1) -> bool:
        """Whether it is had."""
        if self._handle is None:
            return True
        try:
            fcntl.lockf(self._handle, how, length, start)
        except BlockingIOError:
            return False
        except OSError as error:
            self._give_up(error)
        return True

    def _give_up(self, error: OSError) -> None:
        self._report(
            f"nsys: processes that share it cannot take turns ({error}); windows may be missing from its reports"
        )
        self.leave()


def captures_in(path: str) -> dict[str, int]:
    """``window id -> number of its capture``, 1-based, as :class:`Turns` noted them; empty where there is no such file."""
    found: dict[str, int] = {}
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            number, _, window = line.rstrip("\n").partition(" ")
            if number.isdecimal() and window:
                found[window] = int(number)
    return found


def _place(stretch: str) -> int:
    return FIRST + int.from_bytes(hashlib.blake2s(stretch.encode(), digest_size=3).digest(), "big")
