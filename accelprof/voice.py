"""What is said once, and what is raised later: the voice of a session, a controller, a framework's process, the end of a run."""

from __future__ import annotations

import logging
from collections.abc import Callable

from accelprof.errors import CaptureError, failures, text_of
from accelprof.texts import encodable

log = logging.getLogger("accelprof")


class Voice:
    """Says a thing once, in the log and wherever ``write`` keeps it; remembers the first failure for who asked to have it raised.

    Args:
        label: whose voice it is: ``ActorGroup/rank0``; empty: the run's. May be changed later.
        raising: failures are kept for :meth:`raise_deferred` (``on_error: raise``).
        write: keeps what was said, message and code; asked once a message.

    Attributes:
        problems: everything that was said, in order.
    """

    def __init__(
        self, label: str = "", raising: bool = False, write: Callable[[str, str], None] = lambda message, code: None
    ) -> None:
        self.label, self.raising, self._write = label, raising, write
        self.problems: list[str] = []
        self._subjects: set[object] = set()
        self._deferred: CaptureError | None = None

    def say(self, message: str, level: int = logging.WARNING, about: object = None, code: str = "") -> bool:
        """Say ``message`` unless it was said before; whether it was said now.

        ``about`` is what may be said once only; the message itself by default. ``code`` names its kind, where a decision
        hangs on it.
        """
        message = encodable(message)  # logs, pages and manifests are files too
        subject = message if about is None else about
        if subject in self._subjects:
            return False
        self._subjects.add(subject)
        self.problems.append(message)
        log.log(level, "%s: %s", encodable(f"accelprof {self.label}").rstrip(), message)
        self._write(message, code)
        return True

    def trouble(self, doing: str, error: BaseException) -> None:
        """A failure of ours or of a vendor: said once, and deferred."""
        text = f"{doing} failed: {text_of(error)}"
        self.say(text, about=(doing, nature(error)))
        self.defer(text, error)

    def guarded(self, doing: str, call: Callable[..., object], *args: object) -> None:
        """Call; a failure is :meth:`trouble`."""
        try:
            call(*args)
        except failures() as error:  # said once
            self.trouble(doing, error)

    def defer(self, text: str, error: BaseException | None = None) -> None:
        """Keep the first failure for :meth:`raise_deferred`. Nothing is raised where it happens: there the user's own code runs."""
        if self.raising and self._deferred is None:
            self._deferred = CaptureError(f"{self.label}: {text}" if self.label else text)
            self._deferred.__cause__ = error

    @property
    def deferred(self) -> bool:
        """Whether something waits to be raised."""
        return self._deferred is not None

    def raise_deferred(self) -> None:
        """Raise what was deferred, where the owner was called by name: at a step's ends, at configure and close.

        Raises:
            CaptureError: something failed since the last call.
        """
        deferred, self._deferred = self._deferred, None
        if deferred is not None:
            raise deferred

    def forget(self) -> None:
        """Everything may be said again."""
        self._subjects.clear()


def nature(error: BaseException) -> object:
    """What makes two failures the same one: a disk that is full stays full, whichever file it was about."""
    return (type(error), error.errno) if isinstance(error, OSError) else (type(error), text_of(error))
