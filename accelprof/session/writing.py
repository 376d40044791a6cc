"""Files of closed windows are written behind the training: one after another, on a thread of their own."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from accelprof.threads import started

#: windows whose files wait for the one that is being written; a further one is waited for, so that memory has a bound
AHEAD = 2


class Writing:
    """Runs jobs in order; none of them raises. Who ends must :meth:`finish`, or what waits is lost with the process.

    Args:
        idle: seconds without a job after which the thread goes; a later job starts another.
    """

    def __init__(self, idle: float = 5.0) -> None:
        self._idle = idle
        self._changed = threading.Condition()
        self._jobs: deque[Callable[[], None]] = deque()
        self._busy = False
        self._thread: threading.Thread | None = None

    def add(self, job: Callable[[], None]) -> None:
        """Run ``job`` soon; waits while more than :data:`AHEAD` are waiting already."""
        with self._changed:
            while len(self._jobs) >= AHEAD:
                self._changed.wait()
            self._jobs.append(job)
            if self._thread is None:
                self._thread = started(self._run, "accelprof writing")
            if self._thread is not None:
                self._changed.notify_all()
                return
            self._jobs.pop()
        job()  # the process is about to end

    def finish(self, seconds: float | None = None) -> bool:
        """Wait until everything is written, ``seconds`` at most; whether it is. Harmless when there was nothing."""
        with self._changed:
            if self._thread is threading.current_thread():
                return True
            return self._changed.wait_for(lambda: not self._jobs and not self._busy, seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                if not self._jobs and not self._changed.wait_for(lambda: bool(self._jobs), timeout=self._idle):
                    self._thread = None
                    return
                job = self._jobs.popleft()
                self._busy = True
            job()
            del job  # with all that it holds of the window


def group_timeout() -> float | None:
    """Seconds after which torch's default process group gives up on a rank that does not answer; ``None`` where nothing is known."""
    distributed: Any = sys.modules.get("torch.distributed")
    try:
        if distributed is None or not distributed.is_initialized():
            return None
        group = distributed.distributed_c10d._get_default_group()
        found = [group._get_backend(device).options._timeout.total_seconds() for device in group._device_types]
    except Exception:  # noqa: BLE001 - private to torch and different in every release; unknown then
        return None
    return min(found, default=None)
