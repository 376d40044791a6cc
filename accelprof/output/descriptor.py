"""A file descriptor that is held for long in somebody else's process.

Training may close any number (``os.closerange`` before a daemon, a launcher's cleaning up), and the next file that it opens
gets the number. Such a descriptor is neither written to nor closed: it is not ours any more.
"""

from __future__ import annotations

import contextlib
import os


class Descriptor:
    """An open file; ``number`` is what the system knows it by.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: str, flags: int) -> None:
        self.number = os.open(path, flags | os.O_CLOEXEC, 0o644)
        self._file = _file(self.number)

    def ours(self) -> bool:
        """Whether the number still stands for the file that was opened."""
        try:
            return _file(self.number) == self._file
        except OSError:
            return False

    def close(self) -> None:
        """Nothing is raised, and nothing of others is closed."""
        if self.ours():
            with contextlib.suppress(OSError):
                os.close(self.number)


def _file(number: int) -> tuple[int, int]:
    found = os.fstat(number)
    return found.st_dev, found.st_ino
