"""Whether the process that wrote a file is gone (a half, a ring, a request, an answer), and who started this one.

Its number alone does not tell: systems give numbers out again (in a container a worker that is started again has the same), each
container counts for itself, and each host.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Writer:
    """A process, as what it writes names it.

    Attributes:
        host: its node's name.
        pid: its number there.
        started: when it began, as its system counts; empty where that is not known.
        space: among whose numbers ``pid`` is one: containers have their own; empty where that is not known.
    """

    host: str
    pid: int
    started: str = ""
    space: str = ""

    @classmethod
    def me(cls) -> Writer:
        """This process."""
        return _me(os.getpid())

    @classmethod
    def read(cls, row: object) -> Writer | None:
        """The process that a file names, in fields called as these are; ``None`` where it names none."""
        if not isinstance(row, Mapping):
            return None
        host, pid = row.get("host"), row.get("pid")
        if not isinstance(host, str) or not isinstance(pid, int) or isinstance(pid, bool) or not _fits(pid):
            return None
        started, space = (value if isinstance(value, str) else "" for value in map(row.get, ("started", "space")))
        return cls(host, pid, started, space)

    def to_json(self) -> dict[str, str | int]:
        """The fields that :meth:`read` reads."""
        return {"host": self.host, "pid": self.pid, "started": self.started, "space": self.space}

    @property
    def is_here(self) -> bool:
        """Whether this process can see it by its number."""
        return self.host == os.uname().nodename and (not self.space or self.space == _space())

    def is_there(self) -> bool | None:
        """Whether it runs; ``None``: that cannot be told from here. One that is only waited for has ended."""
        if not self.is_here:
            return None
        if not _fits(self.pid):
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # another user's
        now = _started(self.pid)
        return now != ENDED and (not self.started or not now or self.started == now)


@functools.lru_cache(1)  # a forked child has another number
def _me(pid: int) -> Writer:
    return Writer(os.uname().nodename, pid, _started(pid), _space())


def _fits(pid: int) -> bool:
    """Whether a process can have this number; the system takes 0 and less for groups."""
    return 0 < pid < 1 << 31


#: of a process that is only waited for
ENDED = "ended"


def ancestry() -> Iterator[int]:
    """This process's number and those of its ancestors, as far as its system tells."""
    pid = os.getpid()
    while pid > 1:
        yield pid
        pid = int(next(iter(_stat(pid)[1:2]), 0))


def _started(pid: int) -> str:
    state, *fields = _stat(pid) or [b""]
    return ENDED if state in (b"Z", b"X") else b"".join(fields[18:19]).decode()


def _stat(pid: int) -> list[bytes]:
    """State, parent and what follows of ``/proc/PID/stat``; empty where nobody tells, as on other systems than Linux."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def _space() -> str:
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return ""
