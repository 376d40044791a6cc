"""Process, thread and flow numbers of one merged timeline: disjoint per worker and tool, near the originals."""

from __future__ import annotations

from typing import Any

LIMIT = 1 << 31


class Places:
    """Hands out numbers. An original pid or tid is kept where it is a number that nobody else has taken."""

    def __init__(self) -> None:
        self._pids: dict[tuple[str, str], int] = {}
        self._tids: dict[tuple[int, str], int] = {}
        self._ids: dict[tuple[int, str, str], int] = {}
        self._taken_pids: set[int] = set()
        self._taken_tids: set[int] = set()
        self._next = 1_000_000

    def pid(self, owner: str, original: object) -> int:
        """The process number for ``original`` (a number, or text such as ``Spans``) of ``owner``."""
        return self._number(self._pids, self._taken_pids, (owner, _key(original)), original)

    def tid(self, pid: int, original: object) -> int:
        """The thread number, unique in the whole timeline, for ``original`` in the new process ``pid``."""
        return self._number(self._tids, self._taken_tids, (pid, _key(original)), original)

    def flow(self, source: int, category: object, original: object) -> int:
        """The number of a flow or asynchronous event; a file's own numbers mean something in that file only."""
        key = (source, str(category), str(original))
        return self._ids.setdefault(key, len(self._ids) + 1)

    def known(self, owner: str, pid: object, tid: object) -> tuple[int, int] | None:
        """Process and thread number of what has them already."""
        process = self._pids.get((owner, _key(pid)))
        thread = self._tids.get((process, _key(tid))) if process is not None else None
        return None if process is None or thread is None else (process, thread)

    def _number(self, known: dict[Any, int], taken: set[int], key: tuple[object, str], original: object) -> int:
        number = known.get(key)
        if number is None:
            if isinstance(original, int) and not isinstance(original, bool) and 0 < original < LIMIT:
                number = original
            while number is None or number in taken:
                self._next += 1
                number = self._next
            taken.add(number)
            known[key] = number
        return number


def _key(original: object) -> str:
    return f"{type(original).__name__}:{original}"
