"""One family of exceptions. ``exit_code`` is what the command line ends with: 2 the user's mistake, 1 ours."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable

TYPE_CHECKING = False  # as typing has it, whose import would be a fifth of ours
if TYPE_CHECKING:
    from typing import ClassVar

#: characters of one message; a terminal shows about so many on a screen
MAX_MESSAGE = 2000
#: characters of a name that is compared with another; nobody types longer ones
LONGEST_NAME = 100
#: names that one is compared with
MOST_NAMES = 5000


class AccelprofError(Exception):
    """Root of everything accelprof raises on purpose."""

    exit_code: ClassVar[int] = 1


class UserError(AccelprofError):
    """The input is wrong; the message says what was given, where, what is allowed, and the mend."""

    exit_code: ClassVar[int] = 2


class ConfigError(UserError):
    """One or more configuration values were refused.

    Attributes:
        problems: one :class:`Problem` per refused value; the message shows them all.
    """

    def __init__(self, *problems: Problem) -> None:
        self.problems = problems
        super().__init__(_bounded([str(problem) for problem in problems]))

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), self.problems)


#: code of a problem: a key that nobody reads
UNKNOWN_KEY = "unknown_key"


class Problem:
    """One refused (or doubtful) value, in words a user can act on.

    Args:
        path: the key's whole path, ``groups.ActorGroup.ranks``.
        message: what is wrong.
        value: the value given; left out of the text when not passed.
        allowed: what is allowed, in words.
        mend: the change that makes it right.
        code: which kind it is, where a decision hangs on that.

    Attributes:
        place: file and line where the value stands, where that is known.
    """

    _NOTHING: ClassVar[object] = object()

    def __init__(
        self,
        path: str,
        message: str,
        *,
        value: object = _NOTHING,
        allowed: str = "",
        mend: str = "",
        code: str = "",
    ) -> None:
        self.path, self.message, self.allowed, self.mend, self.code = path, message, allowed, mend, code
        self.place = ""
        self.has_value = value is not Problem._NOTHING
        self.value = value if self.has_value else None

    @classmethod
    def unknown_key(cls, path: str, *, value: object = _NOTHING, allowed: str = "", mend: str = "") -> Problem:
        """Of a key that nobody reads."""
        return cls(path, "unknown key", value=value, allowed=allowed, mend=mend, code=UNKNOWN_KEY)

    def at(self, path: str, say: Callable[[str], str] = str) -> Problem:
        """The same of another ``path``, with ``say`` of its words."""
        from copy import copy  # here, because importing accelprof must stay cheap

        moved = copy(self)
        moved.path, moved.message, moved.mend = path, say(self.message), say(self.mend)
        return moved

    def __str__(self) -> str:
        given = f" (got {shown(self.value)})" if self.has_value else ""
        place = f"{_line(self.place, 300)}: " if self.place else ""
        text = f"{place}{_line(self.path, 200)}: {_line(self.message, 600)}{given}"
        if self.allowed:
            text += f"; allowed: {_line(self.allowed, 500)}"
        if self.mend:
            text += f". Mend: {_line(self.mend, 300)}"
        return text

    __repr__ = __str__


class NotAllowedError(ValueError):
    """A value that a schema refuses: ``message`` without, ``allowed`` with what it takes instead."""

    def __init__(self, message: str, allowed: str) -> None:
        super().__init__(f"{message}; allowed: {allowed}")
        self.message, self.allowed = message, allowed


class PluginError(UserError):
    """A plug-in was asked for that is broken or not there; the message carries the kept reason."""


class UnavailableError(UserError):
    """A backend or tool exists but cannot work on this machine; the message carries its probe's reason."""


class CaptureError(AccelprofError):
    """A tool or backend failed to start, stop or write a capture."""


class ReadError(UserError):
    """A file could not be read as what it claims to be.

    Args:
        path: the file.
        reason: why, with the position where there is one.
    """

    def __init__(self, path: object, reason: str) -> None:
        self.path, self.reason = str(path), reason
        super().__init__(f"{path}: {reason}")

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.path, self.reason))


class UnknownFormatError(ReadError):
    """No tool that is registered here reads the file, which may be whole all the same."""


class NotComparableError(UserError):
    """Two runs cannot be compared; the message says why. ``exit_code`` 1 so that a gate in CI fails."""

    exit_code: ClassVar[int] = 1


class IncompleteError(AccelprofError):
    """The run ended but something asked for was not delivered (armed and never opened, report missing)."""


def shown(value: object, limit: int = 120) -> str:
    """``repr`` of any value in at most some ``limit`` characters; of one that has none, its type."""
    import reprlib  # here, because importing accelprof must stay cheap

    class Short(reprlib.Repr):
        def repr_instance(self, x: object, level: int) -> str:
            try:
                text = repr(x)
            except Exception:  # noqa: BLE001 - a value of the user's that cannot show itself
                return f"a {type(x).__name__}"
            half = (limit - 3) // 2
            return text if len(text) <= limit else f"{text[:half]}...{text[-half:]}"

        def repr_int(self, x: int, level: int) -> str:
            if x.bit_length() > 4 * limit:
                return f"a number of about {x.bit_length() * 30103 // 100000:,} digits"
            return repr(x)

    short = Short()
    short.maxstring = limit
    short.maxdict = short.maxlist = short.maxtuple = short.maxset = 12
    short.maxlevel = 4
    try:
        text = short.repr(value)
    except Exception:  # noqa: BLE001 - as above, of a kind of its own
        return f"a {type(value).__name__}"
    return text if len(text) <= 2 * limit else f"{text[: 2 * limit]}…"


def _line(text: str, limit: int) -> str:
    """One line that a terminal shows as it is, of at most ``limit`` characters."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[: 2 * limit])
    return text if len(text) <= limit else f"{text[:limit]}…"


def _bounded(lines: list[str]) -> str:
    """The lines of a message, as many as fit :data:`MAX_MESSAGE`; the rest is counted."""
    text, more, kept = "\n".join(lines), "", len(lines)
    length = len(text)
    while kept > 1 and length + len(more) > MAX_MESSAGE:
        kept -= 1
        length -= len(lines[kept]) + 1
        more = f"\n… and {len(lines) - kept} more"
    return "\n".join(lines[:kept]) + more


def nearest(word: str, known: Iterable[str]) -> str:
    """``"did you mean 'actor'?"`` for a near miss, an empty string otherwise."""
    import re

    names = list(known)
    match = nearest_word(word, names, 0.6)
    if (
        not match and len(word) <= LONGEST_NAME
    ):  # a known name, or nearly one, is part of the word: profiler_level, profile_levl
        long = [name for name in names if isinstance(name, str) and len(name) > 3]
        parts = [part for part in re.split(r"[^0-9A-Za-z]+", word) if len(part) > 3]
        match = max((nearest_word(part, long, 0.85) for part in parts), key=len, default="")
    return f"did you mean {match!r}?" if match else ""


def nearest_word(word: str, known: Iterable[str], cutoff: float) -> str:
    """The known word that is most like ``word``, by a ratio of ``cutoff`` at least; empty where there is none.

    The time it takes is bounded, whatever the words are: longer ones than :data:`LONGEST_NAME`, and more than
    :data:`MOST_NAMES`, are not compared.
    """
    import difflib  # here, because importing accelprof must stay cheap

    if len(word) > LONGEST_NAME:
        return ""
    names = [
        name for name in itertools.islice(known, MOST_NAMES) if isinstance(name, str) and len(name) <= LONGEST_NAME
    ]
    return next(iter(difflib.get_close_matches(word, names, n=1, cutoff=cutoff)), "")


def text_of(error: BaseException) -> str:
    """An exception in one line, with its kind; also one that cannot say what it is."""
    try:
        text = " ".join(str(error).split())
    except Exception as again:  # noqa: BLE001 - whatever its own method raises
        text = f"(its text could not be had: {type(again).__name__})"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


#: packages whose exceptions end a task from outside, whatever code runs in it
_SCHEDULERS = frozenset({"greenlet", "gevent", "eventlet"})


def failures() -> tuple[type[BaseException], ...]:
    """For an ``except`` around code of a plug-in or vendor: the exception at hand is its failure, which stops nobody.

    Also one that is no ``Exception``: ``sys.exit`` in a tool, a panic of Rust. The user's are an interrupt, what a signal's
    handler raised, and what ends a green thread; those have only met the code, and pass.
    """
    error = sys.exc_info()[1]
    if isinstance(error, Exception):
        return (Exception,)
    if error is None or isinstance(error, KeyboardInterrupt) or _of_handler(error):
        return (Exception,)
    foreign = any(base.__module__.partition(".")[0] in _SCHEDULERS for base in type(error).__mro__)
    return (Exception,) if foreign else (BaseException,)


def _of_handler(error: BaseException) -> bool:
    """Whether a signal's handler, as they are installed now, was running when ``error`` was raised."""
    import signal  # here, because importing accelprof must stay cheap

    codes = set()
    for number in signal.valid_signals():
        handler: object = signal.getsignal(number)
        while hasattr(handler, "func"):  # functools.partial
            handler = handler.func
        if callable(handler) and not hasattr(handler, "__code__"):
            handler = getattr(handler, "__func__", None) or vars(type(handler)).get("__call__")
        codes.add(getattr(handler, "__code__", None))
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False
