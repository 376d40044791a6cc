"""What the journals of a run have got since the last look, while the processes that write them are still at work."""

from __future__ import annotations

import os

from accelprof.contracts.names import JOURNAL, WORKERS
from accelprof.output.manifest import decoded, records_of, regular
from accelprof.output.records import Records

#: bytes of one journal that are read in one look
CHUNK = 4 << 20


class Tail:
    """Of all journals below ``run_dir`` but that of the process ``key``. What cannot be read is left out; the end of the run says so."""

    def __init__(self, run_dir: str, key: str) -> None:
        self._run_dir, self._place, self._own = run_dir, os.path.join(run_dir, WORKERS), key + JOURNAL
        self._read: dict[str, int] = {}

    def keys(self) -> list[str]:
        """The processes that have a journal so far."""
        return [name.removesuffix(JOURNAL) for name in self._names()]

    def look(self) -> Records:
        """The rows that are whole by now and were not read before."""
        return records_of(self._run_dir, [self._lines(name) for name in self._names()])

    def _names(self) -> list[str]:
        try:
            return [name for name in os.listdir(self._place) if name.endswith(JOURNAL) and name != self._own]
        except OSError:
            return []

    def _lines(self, name: str) -> list[object]:
        path, begin = os.path.join(self._place, name), self._read.get(name, 0)
        try:
            if os.stat(path).st_size <= begin:
                return []
            with regular(path, os.O_NOFOLLOW) as file:
                file.seek(begin)
                data = file.read(CHUNK)
        except OSError:
            return []
        whole = data.rfind(b"\n") + 1
        self._read[name] = begin + (whole or (len(data) if len(data) == CHUNK else 0))
        found = [decoded(line) for line in data[:whole].splitlines()]
        return [row for row in found if isinstance(row, dict)]
