"""Whose turn it is where several processes share one nsys, and which capture each window went into.

One nsys has one capture at a time, of all its processes. Tried with nsys 2025.3 and two processes on a GPU:

- the first process that asks for the end ends it, however many asked for the beginning;
- a process that asks for the end a second time, or without having asked for the beginning, costs every later capture;
- a process that asks for the beginning of one that runs already may lose what it does in the next;
- with one process that begins and ends every capture all of them are whole, the other processes' work included.

So one process, the first that opens a window, asks nsys, and the others take part: they wait until it has begun a capture for the
same stretch of the run, and it waits for them before it ends one. Each window is noted down with the number of its capture, which
is the number in the report's name.

Locks on bytes of one file: they go with their process, however it ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Collection, Iterator

from accelprof.output.descriptor import Descriptor

#: bytes: held while anything is decided; by the process that asks nsys; while a capture runs. Stretches of the run lie behind
DECIDING, KEEPER, RUNNING = 0, 1, 2
FIRST, END = 3, 3 + (1 << 24)
PREFIX = "nsys-captures-"
POLL_S = 0.005


class Turns:
    """Of one process under a shared nsys.

    Args:
        directory: where the reports go; processes that share an nsys share it.
        session: nsys's session.
        say: says something once.
        patience: seconds to wait for the others each time; whom that was once too short for does not wait again.
    """

    def __init__(self, directory: str, session: str, say: Callable[[str], object], patience: float = 20.0) -> None:
        self._path, self._say, self._patience = os.path.join(directory, f"{PREFIX}{session}.txt"), say, patience
        self._handle: Descriptor | None = None
        self._mine: int | None = None
        self._started = self._keeper = False
        try:
            os.makedirs(directory, exist_ok=True)
            self._handle = Descriptor(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        except OSError as error:
            self._give_up(error)

    def open(self, stretch: str, window: str, start: Callable[[], None]) -> None:
        """Take part in the capture of ``stretch``; the one that begins it calls ``start``, and raises what it raises."""
        place = _place(stretch)
        with self._deciding(lambda: self._can_open(place)) as in_time:
            if not in_time:
                self._waited(f"window {window} was to begin")
            running = not self._free(RUNNING, RUNNING + 1)
            if not running:
                start()
                self._started = self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB, RUNNING)
            self._note(place, window, new=not running)

    def close(self, stop: Callable[[], None]) -> None:
        """Leave the capture; the one that began it calls ``stop`` once the others have left, and raises what it raises."""
        with self._deciding(self._can_close) as in_time:
            try:
                if self._handle is None or self._started:
                    if not in_time:
                        self._waited("its window was to end")
                    stop()
                elif self._free(RUNNING, RUNNING + 1):
                    self._say("nsys: the process that began this window's capture ended it before the window was over")
            finally:
                self._started = False
                for place in (RUNNING, self._mine):
                    if place is not None:
                        self._lock(fcntl.LOCK_UN, place)
                self._mine = None

    def leave(self) -> None:
        """This process opens no window any more."""
        if self._handle is not None:
            self._handle.close()
            self._handle = None

    def _can_open(self, place: int) -> bool:
        """Whether no window of another stretch is open, and a capture of this one runs or is this process's to begin."""
        if not (self._free(FIRST, place) and self._free(place + 1, END)):
            return False
        if not self._free(RUNNING, RUNNING + 1):
            return True
        self._keeper = self._keeper or self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB, KEEPER)
        return self._keeper or any(done == place for done, _ in self._noted())  # its capture is over already

    def _can_close(self) -> bool:
        return not self._started or self._free(FIRST, END)

    @contextlib.contextmanager
    def _deciding(self, ready: Callable[[], bool]) -> Iterator[bool]:
        """Nobody else decides anything meanwhile; ``False`` where it was not ``ready`` in time."""
        deadline = time.monotonic() + self._patience
        held, in_time = False, True
        while self._handle is not None:
            held = self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB, DECIDING)
            if held and ready():
                break
            if time.monotonic() >= deadline:
                in_time = False
                break
            if held:
                self._lock(fcntl.LOCK_UN, DECIDING)
            time.sleep(POLL_S)
        try:
            yield in_time
        finally:
            if held:
                self._lock(fcntl.LOCK_UN, DECIDING)

    def _free(self, start: int, end: int) -> bool:
        """Whether no other process holds a byte from ``start`` on and before ``end``."""
        mine = self._mine
        if start < end:
            if not self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB, start, end - start):
                return False
            self._lock(fcntl.LOCK_UN, start, end - start)
            if mine is not None and start <= mine < end:
                self._lock(fcntl.LOCK_SH | fcntl.LOCK_NB, mine)  # a process has one lock on a byte, and it was let go
        return True

    def _waited(self, what: str) -> None:
        if self._patience:
            self._say(
                f"nsys: {what}, and other processes of this nsys were not ready for it within {self._patience:g} s; from here on "
                "nobody is waited for, and windows of different steps may share a capture. Give each process an nsys of its own "
                "(accelprof run under torchrun)"
            )
            self._patience = 0.0

    def _note(self, place: int, window: str, new: bool) -> None:
        """Write down which capture the window went into."""
        if self._handle is None:
            return
        last = max((number for _, number in self._noted()), default=0)
        try:
            os.write(self._handle.number, f"{max(last + new, 1)} {place} {window}\n".encode())
        except OSError as error:
            self._give_up(error)
            return
        self._lock(fcntl.LOCK_SH | fcntl.LOCK_NB, place)
        self._mine = place

    def _noted(self) -> Collection[tuple[int, int]]:
        """Read by the handle that is open: closing another one of the same file would let all locks go."""
        if self._handle is None:
            return ()
        try:
            text = os.pread(self._handle.number, os.fstat(self._handle.number).st_size, 0).decode(errors="replace")
        except OSError as error:
            self._give_up(error)
            return ()
        return _rows(text).values()

    def _lock(self, how: int, start: int, length: int = 1) -> bool:
        """Whether it is had."""
        if self._handle is None:
            return True
        if not self._handle.ours():  # training closed it, and its locks went with it
            self._give_up(OSError(errno.EBADF, os.strerror(errno.EBADF), self._path))
            return True
        try:
            fcntl.lockf(self._handle.number, how, length, start)
        except BlockingIOError:
            return False
        except OSError as error:
            self._give_up(error)
        return True

    def _give_up(self, error: OSError) -> None:
        self._say(f"nsys: processes that share it cannot take turns ({error}); windows may be missing from its reports")
        self.leave()


def captures_in(path: str) -> dict[str, int]:
    """``window id -> number of its capture``, 1-based, as :class:`Turns` noted them; empty where there is no such file."""
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return {window: number for window, (_, number) in _rows(file.read()).items()}
    return {}


def _rows(text: str) -> dict[str, tuple[int, int]]:
    """``window id -> (place of its stretch, capture)``."""
    found: dict[str, tuple[int, int]] = {}
    for line in text.splitlines():
        number, place, window = (*line.split(" ", 2), "", "")[:3]
        if number.isdecimal() and place.isdecimal() and window:
            found[window] = (int(place), int(number))
    return found


def _place(stretch: str) -> int:
    return FIRST + int.from_bytes(hashlib.blake2s(stretch.encode(), digest_size=3).digest(), "big")
