"""Threads that may be missing: where the interpreter is about to end none starts any more, and their work is done in place.

Python refuses new threads in ``atexit`` functions from 3.12 on, and jobs for a ``ThreadPoolExecutor`` in every version. Most
runs that nobody closes are closed just there.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

Job = TypeVar("Job")


class Wake:
    """Wakes the one thread that waits, also from a signal's handler: an event's lock would there wait for the very frame that
    the signal interrupted in the middle of another call, for ever."""

    def __init__(self) -> None:
        # its put may come between any two lines of another
        self._calls: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        """Who waits goes on; where nobody does, the next to wait does not."""
        self._calls.put(None)

    def wait(self, seconds: float) -> bool:
        """Wait at most so long; whether somebody called. All calls until then are one."""
        called = False
        try:
            self._calls.get(timeout=seconds)
            called = True
            while True:
                self._calls.get_nowait()
        except queue.Empty:
            return called


def on_main() -> bool:
    """Whether this is the main thread: the one that hears signals, and that works where nobody says otherwise."""
    return threading.current_thread() is threading.main_thread()


def started(work: Callable[[], None], name: str) -> threading.Thread | None:
    """A daemon thread that runs ``work``; ``None`` where none can be started: the interpreter ends, or the system refuses."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


def each(work: Callable[[Job], None], jobs: Iterable[Job], at_once: int, name: str) -> None:
    """Run ``work``, which does not raise, for every job: in as many threads as start, this one among them; waits for all."""
    rest, lock = iter(jobs), threading.Lock()

    def worker() -> None:
        while True:
            with lock:
                try:
                    job = next(rest)
                except StopIteration:
                    return
            work(job)

    others = [started(worker, f"{name}-{number}") for number in range(1, at_once)]
    worker()
    for thread in others:
        if thread is not None:
            thread.join()
