"""One process of a framework as a worker of ours: its session, its steps, and the manifest of the run it belongs to.

A framework starts and stops profiling by calls to objects in its workers; several of them may live in one process. They
share one session: the first start begins the step, the last stop ends it.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from accelprof.contracts import reasons
from accelprof.contracts.targets import RUN_ENV
from accelprof.errors import AccelprofError, failures, text_of
from accelprof.session.configure import configure, current_session
from accelprof.session.session import Session
from accelprof.session.writing import group_timeout
from accelprof.timing.gate import gate
from accelprof.voice import Voice

#: seconds that a framework's stop waits for the files of its windows
PATIENCE_S = 10.0


class ProcessSession:
    """The session that all profilers of a framework share in this process; made at the first start."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.active: dict[Hashable, None] = {}
        self.step: int | None = None
        self._numbers = itertools.count()
        self._owned: Session | None = None
        self.voice = Voice()

    def start(self, key: Hashable, step: int | None, settings: Callable[[], Mapping[str, object]]) -> bool:
        """``key`` begins to profile ``step`` (numbered from 0 where nobody counts); ``True`` when a session takes part.

        ``settings`` gives keyword arguments of :func:`accelprof.configure` and is asked when there is no session yet.
        """
        with self.lock:
            if key in self.active:
                return True
            session = self.session(settings)
            if session is None:
                return False
            first = not self.active
            self.active[key] = None
            if first:
                number = self.step = step if step is not None else next(self._numbers)
                self.voice.guarded("beginning a step", lambda: session.begin_step(number, outside=True))
            return True

    def stop(self, key: Hashable) -> None:
        """``key`` has ended; the step ends with the last one."""
        with self.lock:
            if key not in self.active:
                return
            del self.active[key]
            session = current_session()
            if self.active or session is None:
                return
            number, self.step = self.step, None
            self.voice.guarded("ending a step", session.end_step, number)
            if session is self._owned:
                run = session.own_run
                if run is None:
                    return

                def tell() -> None:
                    self.voice.guarded("writing the manifest", run.so_far)

                # frameworks' own profilers have written their file when their stop returns; an export that takes longer
                # goes on behind training, because the other ranks wait
                if session.captures.wait_for_files(min(PATIENCE_S, (group_timeout() or 3600) / 4)):
                    tell()
                else:
                    session.captures.once_written(tell)

    def session(self, settings: Callable[[], Mapping[str, Any]]) -> Session | None:
        """The session of this process, made when there is none; ``None`` when it cannot be had (said once)."""
        session = current_session()
        if session is not None:
            return session
        try:
            arguments = dict(settings())
            if os.environ.get(RUN_ENV):
                arguments = {key: arguments[key] for key in ("group", "role", "rank", "world_size") if key in arguments}
            self._owned = configure(**arguments)
            return self._owned
        except failures() as error:  # whatever it is, training goes on without a session
            why = error if isinstance(error, AccelprofError) else text_of(error)
            self.voice.say(f"nothing is profiled in process {os.getpid()}: {why}")
            return None

    def release(self) -> None:
        """Close what is open and the session this made."""
        with self.lock:
            self.active.clear()
            self.step = None
            session, self._owned = self._owned, None
            if session is not None and not session.closed:
                session.close(reasons.UNINSTALLED)
            if session is not None:
                gate.release(session)
