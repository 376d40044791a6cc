"""What the journals of a run have got since the last look, while the processes that write them are still at work."""

from __future__ import annotations

import os
from bisect import bisect
from collections.abc import Collection

from accelprof.contracts.names import JOURNAL, WORKERS
from accelprof.output.manifest import decoded, of_journals, regular
from accelprof.output.records import Manifest

#: bytes of one journal, and of all together, that are read in one look: about 0.1 s of a training process's interpreter
CHUNK = LOOK = 1 << 20


class Tail:
    """Of all journals below ``run_dir`` but that of the process ``key``. What cannot be read is left out; the end of the run says so.

    Attributes:
        behind: whether the last look left something for the next one.
    """

    def __init__(self, run_dir: str, key: str) -> None:
        self._run_dir, self._place, self._own = run_dir, os.path.join(run_dir, WORKERS), key + JOURNAL
        self._read: dict[str, int] = {}
        self._last = ""
        self.behind = False

    def keys(self) -> list[str]:
        """The processes that have a journal so far."""
        return [name.removesuffix(JOURNAL) for name in self._names()]

    def pass_over(self, keys: Collection[str]) -> None:
        """What these processes have written so far is not read."""
        for key in keys:
            try:
                self._read[key + JOURNAL] = os.stat(os.path.join(self._place, key + JOURNAL)).st_size
            except OSError:
                continue

    def look(self) -> Manifest:
        """The rows that are whole by now and were not read before, of :data:`LOOK` bytes or little more; the next look goes on
        with the journal after the last one."""
        names = sorted(self._names())
        begin, spent, rows = bisect(names, self._last), 0, []
        self.behind = False
        for name in names[begin:] + names[:begin]:
            if spent >= LOOK:
                self.behind = True
                break
            read, found = self._lines(name)
            spent += read
            if read:
                self._last = name
                self.behind |= read == CHUNK
                rows.append(found)
        return of_journals(self._run_dir, rows)

    def _names(self) -> list[str]:
        try:
            return [name for name in os.listdir(self._place) if name.endswith(JOURNAL) and name != self._own]
        except OSError:
            return []

    def _lines(self, name: str) -> tuple[int, list[object]]:
        """How many bytes were read, and the rows in them."""
        path, begin = os.path.join(self._place, name), self._read.get(name, 0)
        try:
            if os.stat(path).st_size <= begin:
                return 0, []
            with regular(path, os.O_NOFOLLOW) as file:
                file.seek(begin)
                data = file.read(CHUNK)
        except OSError:
            return 0, []
        whole = data.rfind(b"\n") + 1
        self._read[name] = begin + (whole or (len(data) if len(data) == CHUNK else 0))
        found = [decoded(line) for line in data[:whole].splitlines()]
        return len(data), [row for row in found if isinstance(row, dict)]
