"""Who of several processes of a run is still at work, and whose turn it is to write: locks on bytes of one file, no waiting on the dead.

Two things tell that a process is at work, and neither is enough alone (:func:`at_work` asks both). Its lock is seen from every
host that shares the directory, but only processes that end their run themselves hold one, and not every file system has locks.
Its row, with a session that did not end, names a process of any kind of run, but only its own host can see whether that is there.

POSIX record locks go when their process ends, however it ends; a forked child does not inherit them; shared file systems carry
them between hosts. Where a file system has none, nobody is seen to be there, and everyone finishes the run as the last one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from accelprof.output.descriptor import Descriptor
from accelprof.output.layout import MARKER
from accelprof.output.records import TargetRow

#: bytes that are locked for a turn; those of processes lie behind them
TURN, PAGE = 0, 1
POLL_S = 0.02
#: who asks whether a process is there holds its byte for a moment, maybe while that process begins: s that it tries for
PROBED_S = 0.2


class Presence:
    """One process in one run directory. Nothing here raises an ``OSError``: without locks a run ends all the same.

    The file is the run's own marker, which nobody else keeps open: closing any other handle of it in this process would
    give up its locks.
    """

    def __init__(self, run_dir: str, key: str) -> None:
        self._key, self._pid = key, os.getpid()
        self._mutex = threading.RLock()
        self._handle: Descriptor | None = None
        try:
            self._handle = Descriptor(os.path.join(run_dir, MARKER), os.O_RDWR | os.O_CREAT)
        except OSError:
            self._give_up()
        self._wait(_place(key), PROBED_S, lambda: False)

    def leave(self) -> None:
        """This process has nothing more to add."""
        with self._mutex:
            self._unlock(_place(self._key))

    def close(self) -> None:
        """Left, and no turn is taken any more."""
        with self._mutex:
            self._give_up()

    def there(self, keys: Iterable[str]) -> set[str]:
        """Those of ``keys``, other than this process, that hold their lock: the process is alive and has not left."""
        with self._mutex:
            return {key for key in keys if key != self._key and self._taken(_place(key))}

    def at_work(self, targets: Mapping[str, TargetRow]) -> set[str]:
        """As :func:`at_work`, for a process that holds a lock itself."""
        seen = _seen(targets)
        return seen | self.there(targets.keys() - seen)

    @contextlib.contextmanager
    def turn(self, which: int, seconds: float, hurry: Callable[[], bool] = lambda: False) -> Iterator[bool]:
        """Alone among the processes of the run; ``False`` where it was not one's turn within ``seconds``, or once ``hurry``."""
        with self._mutex:
            mine = self._wait(which, seconds, hurry)
            try:
                yield mine
            finally:
                if mine:
                    self._unlock(which)

    def _wait(self, which: int, seconds: float, hurry: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + seconds
        while self._held() is not None:
            try:
                self._lock(which)
            except BlockingIOError:
                pass
            except OSError:
                self._give_up()
                return True
            else:
                return True
            if time.monotonic() >= deadline or hurry():
                return False
            time.sleep(POLL_S)
        return True

    def _taken(self, place: int) -> bool:
        if self._held() is None:
            return False
        try:
            self._lock(place)
        except (BlockingIOError, PermissionError):
            return True
        except OSError:
            return False
        self._unlock(place)
        return False

    def _lock(self, place: int) -> None:
        if (handle := self._held()) is not None:
            fcntl.lockf(handle.number, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)

    def _unlock(self, place: int) -> None:
        if (handle := self._held()) is not None and self._pid == os.getpid():
            with contextlib.suppress(OSError):
                fcntl.lockf(handle.number, fcntl.LOCK_UN, 1, place)

    def _give_up(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.close()

    def _held(self) -> Descriptor | None:
        """The marker's descriptor. One that training closed took the locks with it: from there on it is as without locks."""
        if self._handle is not None and not self._handle.ours():
            self._handle = None
        return self._handle


def at_work(run_dir: str, targets: Mapping[str, TargetRow]) -> set[str]:
    """Keys of targets that are at work for the run, as far as a process that has no part in it can see: by row or by lock."""
    seen = _seen(targets)
    if seen == targets.keys() or not os.path.exists(os.path.join(run_dir, MARKER)):
        return seen
    watcher = Presence(run_dir, f"reader {os.getpid()}")
    try:
        return seen | watcher.there(targets.keys() - seen)
    finally:
        watcher.close()


def _seen(targets: Mapping[str, TargetRow]) -> set[str]:
    """Those whose row's session is open and whose process is there, on this host."""
    return {key for key, row in targets.items() if row.ended is False and row.writer and row.writer.is_there()}


def _place(key: str) -> int:
    """The byte that stands for a process."""
    return 2 + int.from_bytes(hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()[:7], "big")
