"""The ways in which a process can end while its session is open: by itself, or told by a signal. Each closes the session first."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

from accelprof.contracts import reasons
from accelprof.errors import AccelprofError
from accelprof.threads import on_main
from accelprof.timing.gate import gate

log = logging.getLogger("accelprof")

ENDING = {signal.Signals[reason]: reason for reason in reasons.TOLD_TO_END}
#: signal -> what was there before our handler; in a forked child too, which inherited both
_before: dict[signal.Signals, Any] = {}
_at_exit_too = False
#: thread that forks -> the signals that it blocked before
_masks: dict[int, set[signal.Signals]] = {}


def install() -> None:
    """From now on the process's session is closed at its end. Signals are handlers of the main thread's."""
    global _at_exit_too
    if not _at_exit_too:
        atexit.register(_at_exit)
        _at_exit_too = True
    if not on_main():
        return
    for number in ENDING:
        previous = signal.getsignal(number)
        # None: a handler that was not installed from Python cannot be put back. What is ignored (nohup) ends nothing
        if number not in _before and previous not in (None, signal.SIG_IGN):
            signal.signal(number, _on_signal)
            _before[number] = previous


def uninstall() -> None:
    """What :func:`install` did is undone, where nobody put a handler over ours."""
    global _at_exit_too
    atexit.unregister(_at_exit)
    _at_exit_too = False
    for number, previous in _before.items():
        if on_main() and signal.getsignal(number) is _on_signal:
            signal.signal(number, previous)
    _before.clear()


def before_fork() -> None:
    """What a child is told before Python has forgotten there what its parent was told would be forgotten too, while without a
    handler of ours it would have ended the child: it waits until then."""
    if _before:
        _masks[threading.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, _before)  # type: ignore[assignment]


def after_fork() -> None:
    """In both processes."""
    mask = _masks.pop(threading.get_ident(), None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _close_current(reason: str) -> None:
    session = gate.session
    if session is not None and session.process.pid == os.getpid() and not session.closed:
        try:
            session.close(reason)
        except AccelprofError as error:  # on_error: raise has nobody to catch it here
            log.warning("accelprof: %s", error)


def _at_exit() -> None:
    # only a script: at a prompt an interrupt does not end the process
    interrupted = getattr(sys, "last_type", None) is KeyboardInterrupt and not hasattr(sys, "ps1")
    # an exception that nobody caught is kept there when it is printed
    _close_current(
        reasons.PROCESS_FAILED if hasattr(sys, "last_type") and not hasattr(sys, "ps1") else reasons.PROCESS_EXIT
    )
    if interrupted:
        _stay_interrupted()


def _stay_interrupted() -> None:
    """An interrupt nobody caught ends Python by that signal, unless code that came as text has run since: modules that are
    imported at the end make classes of text. So the last such code ends by the interrupt too."""
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        pass


def _on_signal(signum: int, frame: FrameType | None) -> None:
    number = signal.Signals(signum)
    previous = _before.get(number, signal.SIG_DFL)
    _close_current(ENDING[number])
    if callable(previous):
        previous(signum, frame)
    else:
        signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)
