"""On the node that starts processes and holds their files: a tool's trial, waiting for reports, and which holds what."""

from __future__ import annotations

import glob
import os
import signal
import subprocess
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from accelprof.catalogue import get_registry
from accelprof.contracts.targets import ArtifactFile, Expectation, WindowInfo
from accelprof.output.records import WindowRow
from accelprof.session.voice import text_of

POLL_S = 0.1
#: seconds for a file that should be there already when the session has closed
GRACE_S = 3.0
#: seconds that what stands in a report's place has not changed before it counts as all that comes
QUIET_S = 1.0


def find(pattern: str) -> dict[str, int]:
    """``{path: bytes}`` of what matches a glob now; a directory counts with all that is in it."""
    found = {}
    for path in sorted(glob.glob(pattern)):
        try:
            found[path] = size_of(path)
        except OSError:  # gone between the two calls
            continue
    return found


def size_of(path: str) -> int:
    """Bytes of a file, or of all files below a directory."""
    if os.path.isdir(path):
        return sum(entry.stat().st_size for entry in Path(path).rglob("*") if entry.is_file())
    return os.path.getsize(path)


class Wanted(NamedTuple):
    """Files to wait for: ``number`` of those that match ``pattern``, at most ``seconds``; ``instead`` as :class:`Expectation` has it."""

    pattern: str
    number: int
    seconds: float
    instead: str = ""


def wait_for(wanted: Sequence[Wanted | tuple[str, int, float]]) -> list[list[str]]:
    """Files of each wanted pattern: waits until that many are there, not empty and no longer growing.

    Where something else stands in the place of those that lack, and nobody is at work on it, they are not waited for; it is
    among the files.
    """
    began = time.monotonic()
    before: list[dict[str, int]] = [{} for _ in wanted]
    quiet_since: list[float] = [began] * len(wanted)
    settled: list[list[str] | None] = [None] * len(wanted)
    while True:
        for index, (pattern, number, seconds, *more) in enumerate(wanted):
            if settled[index] is not None:
                continue
            now = find(pattern)
            raw = _instead(str(more[0]), now) if more and more[0] else {}
            seen = {**now, **raw}
            if seen != before[index]:
                quiet_since[index] = time.monotonic()
            still = [path for path, size in now.items() if size and before[index].get(path) == size]
            waited = time.monotonic() - quiet_since[index]
            if len(still) >= number and len(still) == len(now):
                settled[index] = still
            elif time.monotonic() - began >= seconds or (
                raw and len(seen) >= number and waited >= QUIET_S and not _in_hands(raw)
            ):
                settled[index] = list(seen)
            before[index] = seen
        if all(files is not None for files in settled):
            return [files or [] for files in settled]
        time.sleep(POLL_S)


def _instead(pattern: str, reports: Collection[str]) -> dict[str, int]:
    """What stands in the place of reports that are not there."""
    stems = {os.path.splitext(path)[0] for path in reports}
    return {path: size for path, size in find(pattern).items() if os.path.splitext(path)[0] not in stems}


def _in_hands(paths: Collection[str]) -> bool:
    """Whether a program of this node was started on one of these files: it may be making the report just now."""
    for place in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            words = Path(place).read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended, or is another user's
        if any(os.fsencode(path) in word for path in paths for word in words):
            return True
    return False


def match(files: Sequence[str], tool: str, options: Mapping[str, Any], windows: Sequence[Any]) -> list[ArtifactFile]:
    """The tool's own word on which file holds which windows."""
    return list(get_registry().make_tool(tool, options).match(list(files), list(windows)))


def wait_and_match(
    wanted: Sequence[Wanted | tuple[str, int, float]], tools: Sequence[tuple[str, Mapping[str, Any], Sequence[Any]]]
) -> list[tuple[list[ArtifactFile], str]]:
    """:func:`wait_for`, then :func:`match`, for each wanted pattern with its tool, options and windows.

    With each list of files: why its tool could not match them, empty when it could; the files then hold no known window.
    """
    found: list[tuple[list[ArtifactFile], str]] = []
    for files, tool in zip(wait_for(wanted), tools, strict=True):
        try:
            found.append((match(files, *tool) if files else [], ""))
        except Exception as error:  # noqa: BLE001 - a plug-in's own; said by whoever asked, with the tool's name
            found.append(([ArtifactFile(path, tool[0], bytes=size_of(path)) for path in files], text_of(error)))
    return found


def trial(argv: Sequence[str], env: Mapping[str, str], timeout: float) -> tuple[bool, str]:
    """Run a short command; ``(True, "")``, or ``(False, what it said)``."""
    try:
        process = subprocess.Popen(
            list(argv),
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return False, f"{argv[0]}: {error.strerror or error}"
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return False, f"no end after {timeout:g} s"
    if process.returncode == 0:
        return True, ""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return False, f"status {process.returncode}: {lines[-1] if lines else 'no output'}"


def needed(expectation: Expectation, windows: int, ended: bool, timeout: float) -> tuple[int, float]:
    """How many files must be there, and how long to wait for them."""
    number = 1 if expectation.count is None else min(expectation.count, windows)
    if ended:
        return number, timeout
    if expectation.when == "process_exit":
        return number, 0.0 if timeout == 0 else GRACE_S
    whole = expectation.count is None or windows >= expectation.count
    return number, timeout if whole else min(GRACE_S, timeout)


def windows_of(rows: Iterable[WindowRow], keys: Collection[str], tool: str, run_dir: str) -> list[WindowInfo]:
    """The windows that ``tool`` recorded in the processes ``keys``, as the tool knew them."""
    return [
        WindowInfo(
            row.id,
            row.sequence,
            tuple(row.steps),
            row.phase,
            row.kind or "step",
            os.path.join(run_dir, row.stem or row.id),
        )
        for row in rows
        if row.target in keys and tool in row.tools
    ]
