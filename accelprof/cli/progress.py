"""A bar on the terminal while files are read, where that takes long enough to be waited for."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

#: reading that is done before shows nothing
AFTER_S = 2.0


class Bar:
    """A context whose value is called with ``(done, total)``, in whatever unit. Only on a terminal, on standard error."""

    def __init__(self, what: str, after_s: float = AFTER_S) -> None:
        self._what, self._after_s = what, after_s
        self._began = time.monotonic()
        self._shown: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        return self

    def __call__(self, done: int, total: int) -> None:
        if self._shown is None:
            if time.monotonic() - self._began < self._after_s or done >= total or not sys.stderr.isatty():
                return
            self._show()
        self._shown.update(self._task, completed=done, total=total)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        self._shown = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._shown.add_task(self._what)
        self._shown.start()

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._shown is not None:
            self._shown.stop()
