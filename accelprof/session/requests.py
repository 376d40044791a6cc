"""Windows on demand, on the side of the worker: it looks about once a second for what somebody asks, or a signal, and answers.

What lies in the run's directory for that, and who asks, is :mod:`accelprof.output.requests`'s matter.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from accelprof.config.model import OnDemand
from accelprof.contracts import reasons
from accelprof.errors import UserError, failures, text_of
from accelprof.output.requests import (
    DIRECTORY,
    AnswerRow,
    OddRequest,
    State,
    answer_path,
    is_gone,
    read_request,
    trusted,
    write_answer,
)
from accelprof.processes import Writer
from accelprof.session.triggers.demand import ON_DEMAND, cannot
from accelprof.threads import Wake, on_main

if TYPE_CHECKING:
    from accelprof.session.captures import Captures
    from accelprof.session.triggers.demand import Demand

INTERVAL_S = 0.5
SIGNAL = signal.SIGUSR2


class Requests:
    """Hears them for one session. Made for selected sessions by ``configure``.

    Args:
        captures, demand: what is asked for opens there.
        settings: whether signals ask too, and how long a window stays open where who asks does not say; ``None``: no signals, and
            as the schema has it.
        interval: seconds between two looks at the directory.
    """

    def __init__(
        self, captures: Captures, demand: Demand, settings: OnDemand | None, interval: float = INTERVAL_S
    ) -> None:
        self._captures, self._voice, self._process = captures, captures.voice, captures.process
        self._demand, self._settings, self._interval = demand, settings or OnDemand(), interval
        self._run_dir = self._process.layout.run_dir
        self.directory = os.path.join(self._run_dir, DIRECTORY)
        self._answer_path = answer_path(self._run_dir, self._process.key)
        self._handled: str | None = None
        self._answered: str | None = None  # not what lay there before this worker came
        self._signalled = Wake()
        self._previous: Any = None
        self._ended = False
        self._thread = threading.Thread(target=self._listen, name="accelprof requests", daemon=True)

    def start(self) -> None:
        """Say that this worker listens, and listen. A directory that cannot be trusted is said, and nobody listens."""
        try:
            os.makedirs(self._run_dir, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.directory, 0o700)
            trusted(self.directory, directory=True)
            with contextlib.suppress(UserError):  # said when the next look finds it still there
                request = read_request(self._run_dir)
                self._handled = None if request is None else request.id  # asked before this worker was there
            self._say("listening")
        except (OSError, UserError) as error:
            self._voice.say(f"windows on demand cannot be had: {error}", level=20)
            return
        if self._settings.signal:
            self._take_signal()
        self._thread.start()

    def end(self) -> None:
        """The session closes."""
        self._ended = True
        self._signalled.set()
        if on_main() and self._previous is not None:
            if self._captures.lock.handler(SIGNAL) == self._on_signal:  # nobody put another over it
                signal.signal(SIGNAL, self._previous)
            self._previous = None
        if os.path.exists(self._answer_path):
            with contextlib.suppress(OSError, UserError):
                self._say("ended", "its session is closed")

    def disown(self) -> None:
        """In a forked child: requests are for the parent."""
        self._ended = True

    def poll(self) -> None:
        """Look once; what the thread does again and again."""
        displaced = self._demand.look()
        if displaced:
            self._say("refused", displaced)
        try:
            request = read_request(self._run_dir)
        except (OSError, UserError) as error:
            self._voice.say(f"a request for a window is not followed: {error}")
            return
        if request is None or request.id == self._handled:
            return
        self._handled = self._answered = request.id
        if isinstance(request, OddRequest):
            self._voice.say(f"a request for a window is not followed: {request.why}")
            self._say("refused", request.why)
        elif not request.fits(self._process.target):
            self._say("listening", "not asked for", meant=False)
        elif request.action == "close":
            self._say(*self._asked_to_close())
        elif request.by is not None and is_gone(request.by):
            text = f"who asked for a window (process {request.by.pid}) has ended meanwhile"
            self._voice.say(f"no window on demand: {text}")
            self._say("refused", text)
        else:
            seconds = self._settings.seconds if request.seconds is None else request.seconds
            self._say(*self._demand.open(seconds))

    # --- inside -----------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        while not self._ended:
            if self._signalled.wait(self._interval) and not self._ended:
                self._toggle()
            if not self._ended:
                with self._guard():
                    self.poll()

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except failures() as error:  # said once; the worker goes on
            text = f"serving a request for a window failed: {text_of(error)}"
            self._voice.say(text)
            with contextlib.suppress(OSError, UserError):
                self._say("refused", text)

    def _asked_to_close(self) -> tuple[State, str]:
        window = self._captures.window
        if window is None and not self._demand.going_on:
            return "listening", "no window was open"
        if window is not None and window.info.kind != ON_DEMAND:
            return "refused", f"window {window.info.sequence} was planned ({window.info.kind}); it closes as planned"
        self._demand.close(reasons.ON_DEMAND)
        return "listening", "closed" if self._captures.window is None else "closes where its thread comes by next"

    def _take_signal(self) -> None:
        if not on_main():
            self._voice.say("on_demand.signal: signals can only be taken on the main thread, and this is another")
            return
        self._previous = signal.signal(SIGNAL, self._on_signal)

    def _on_signal(self, number: int, frame: object) -> None:
        self._signalled.set()

    def _toggle(self) -> None:
        with self._guard():
            if self._demand.going_on:
                self._demand.close(reasons.BY_SIGNAL)
                return
            state, text = self._demand.open(self._settings.seconds)
            if state == "refused":
                self._voice.say(f"no window on a signal: {text}")

    def _say(self, state: State, text: str = "", meant: bool = True) -> None:
        """Answer the request that was handled last; ``meant``: whether that is for this process."""
        process, tools, window = self._process, self._captures.tools, self._captures.window
        answer = AnswerRow(
            process.key,
            process.target.label,
            replace(Writer.me(), host=process.host),
            "ended" if self._ended else state,  # one that comes after the end must not say that somebody listens
            process.target,
            text,
            next((why for why in map(cannot, tools) if why), ""),
            None if window is None else window.info.id,
            self._answered,
            meant,
            [tool.name for tool in tools],
            self._settings.seconds,
        )
        write_answer(self._run_dir, answer)
