"""Limits of size: a window is watched while it is open and closes early rather than filling a disk.

What is on disk is measured. Tools that write late show nothing there until they close, so for them the size is estimated
from what their earlier windows left per second.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from accelprof.config.model import Budget
from accelprof.contracts.names import MANIFEST, TIMELINE_TOOL
from accelprof.contracts.sizes import size_of
from accelprof.contracts.targets import ArtifactFile, Assignment
from accelprof.output.manifest import load as load_manifest
from accelprof.output.records import ArtifactRow
from accelprof.threads import started
from accelprof.timing.gate import now_ns

if TYPE_CHECKING:
    from accelprof.contracts.tool import Tool
    from accelprof.session.captures import Captures
    from accelprof.session.window import Window

INTERVAL_S = 0.5


class BudgetWatch:
    """The limits of one process.

    Args:
        interval: seconds between two looks at an open window.
        free: bytes free at a path; tests give their own.
    """

    def __init__(
        self,
        budget: Budget,
        captures: Captures,
        interval: float = INTERVAL_S,
        free: Callable[[str], int] | None = None,
    ) -> None:
        self.budget, self._captures, self._interval = budget, captures, interval
        self._free = free or (lambda path: shutil.disk_usage(path).free)
        self.rates: dict[str, float] = {}  # bytes a second that a tool's windows left
        self._used = 0
        self._window: Window | None = None
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._ended = False

    def refuses(self, directory: str) -> str:
        """Why no further window may open; empty when one may."""
        budget = self.budget
        if budget.free_space is not None:
            free = self._free(directory)
            if free < budget.free_space:
                return f"budget.free_space is {size_text(budget.free_space)}, and {size_text(free)} are free at {directory}"
        if budget.per_run is not None:
            self._used = _left(self._captures.process.layout.run_dir)
            if self._used >= budget.per_run:
                return f"budget.per_run is {size_text(budget.per_run)}, and the run has {size_text(self._used)} already"
        return ""

    def opened(self, window: Window) -> None:
        """Watch ``window`` until it is closed."""
        with self._wake:
            self._window = window
            if self._thread is None:
                self._thread = started(self._watch, "accelprof budget")
            # not woken: waking a thread costs as much as all else that opens a window, and it looks every interval

    def closed(self) -> None:
        """No window is open."""
        with self._wake:
            self._window = None

    def learn(self, tools: Iterable[Tool], files: Sequence[ArtifactFile], seconds: float) -> None:
        """Learn from what ``tools`` left of a window that was open for ``seconds``."""
        seconds = max(seconds, 1e-3)
        for tool in tools:
            left = sum(_left(file.path) for file in files if file.tool == tool.name)
            if left:
                self.rates[tool.name] = left / seconds

    def end(self) -> None:
        """The session closes."""
        with self._wake:
            self._ended = True
            self._window = None
            self._wake.notify()

    def estimate(self, window: Window) -> int:
        """Bytes the window would leave if it closed now: what is on disk, or more where tools write late."""
        written = size_of_stem(window.info.stem)
        seconds = (now_ns() - window.opened_at) / 1e9
        late = sum(self.rates.get(tool.name, 0.0) for tool in window.tools) * seconds
        return max(written, int(late))

    def exceeded(self, window: Window) -> str:
        """Which limit the open window has reached; empty while it has none."""
        budget, size = self.budget, self.estimate(window)
        if budget.per_window is not None and size >= budget.per_window:
            return f"budget.per_window is {size_text(budget.per_window)}, and this window has about {size_text(size)}"
        if budget.per_run is not None and self._used + size >= budget.per_run:
            return f"budget.per_run is {size_text(budget.per_run)}, and with this window the run has about {size_text(self._used + size)}"
        if budget.free_space is not None:
            directory = os.path.dirname(window.info.stem)
            left = self._free(directory) - (size - size_of_stem(window.info.stem))
            if left < budget.free_space:
                return f"budget.free_space is {size_text(budget.free_space)}, and about {size_text(max(left, 0))} would be free at {directory}"
        return ""

    def _watch(self) -> None:
        while True:
            with self._wake:
                while self._window is None and not self._ended:
                    self._wake.wait(self._interval)
                if self._ended:
                    return
                window = self._window
                self._wake.wait(self._interval)
                if self._window is not window or window is None:
                    continue
            try:
                reason = self.exceeded(window)
            except OSError as error:  # said once; the next look may succeed, and later windows are watched too
                self._captures.voice.say(f"the size of a window cannot be watched: {error}")
                continue
            if reason:
                with self._wake:
                    self._window = None
                self._close(window, reason)

    def _close(self, window: Window, reason: str) -> None:
        captures = self._captures
        with captures.lock:
            if captures.window is not window:
                return
            captures.note(window, closed_early=reason)
            captures.voice.say(f"window {window.info.sequence} closed early: {reason}")
            captures.voice.guarded("closing a window that reached its budget", captures.request_close, "budget", window)


def _left(path: str) -> int:
    """:func:`size_of`; nothing where nothing is there."""
    try:
        return size_of(path)
    except OSError:
        return 0


def size_of_stem(stem: str) -> int:
    """Bytes of all files and directories whose name begins with a window's stem."""
    directory, prefix = os.path.split(stem)
    try:
        return sum(_left(entry.path) for entry in os.scandir(directory) if entry.name.startswith(prefix))
    except OSError:
        return 0


def size_text(size: float) -> str:
    """``1.5 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


# --- before a run ---------------------------------------------------------------------------------------------------------


def history(output_dir: str, runs: int = 20) -> dict[str, tuple[int, str]]:
    """``{tool: (bytes of its largest window, run)}`` from the newest earlier runs under ``output_dir``."""
    found: dict[str, tuple[int, str]] = {}
    try:
        manifests = sorted(Path(output_dir).glob(f"*/{MANIFEST}"), key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        return {}
    for path in manifests[:runs]:
        try:
            manifest = load_manifest(path.parent)
        except Exception:  # noqa: BLE001 - a run that cannot be read tells nothing about sizes, and `report` names it
            continue
        for tool, size in _largest(manifest.artifacts.values()):
            if tool not in found:
                found[tool] = size, path.parent.name
    return found


def _largest(artifacts: Iterable[ArtifactRow]) -> Iterable[tuple[str, int]]:
    largest: dict[str, int] = {}
    for artifact in artifacts:
        size = artifact.bytes // max(len(artifact.windows), 1)
        largest[artifact.tool] = max(largest.get(artifact.tool, 0), size)
    return [(tool, size) for tool, size in largest.items() if size]


def expected_size(assignment: Assignment, known: Mapping[str, tuple[int, str]], budget: Budget) -> str:
    """What ``config show`` says of a rank: windows times what a window of its tools left before, and the limit on it."""
    if not assignment.selected:
        return "0"
    tools = [name for name in (assignment.tool, *(name for name, _ in assignment.also)) if name]
    if assignment.timeline:
        tools.append(TIMELINE_TOOL)
    unknown = [tool for tool in tools if tool not in known]
    limit = "" if budget.per_window is None else f", at most {size_text(budget.per_window)} a window"
    if unknown:
        return f"unknown before a first window of {', '.join(unknown)}{limit}"
    each = sum(known[tool][0] for tool in tools)
    run = known[tools[0]][1]
    count = assignment.count.exact
    if budget.per_window is not None:
        each = min(each, budget.per_window)
    if count is None:
        return f"about {size_text(each)} a window, as in run {run}{limit}"
    return f"about {size_text(each * count)} ({count} x {size_text(each)}, as in run {run}{limit})"
