"""A tool's own trial, on the node that will start processes under it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

#: of a trial that failed, that many lines are shown, of so many characters at most
LINES, LINE = 6, 300


def trial(argv: Sequence[str], env: Mapping[str, str], timeout: float) -> tuple[bool, str]:
    """Run a short command; ``(True, "")``, or ``(False, what it said)``.

    One that fails is tried a second time: profilers that start at the same moment on a node may get into each other's way.
    """
    try:
        works, said = _once(argv, env, timeout)
        return (works, said) if works else _once(argv, env, timeout)
    except subprocess.TimeoutExpired:
        return False, f"no end after {timeout:g} s"


def _once(argv: Sequence[str], env: Mapping[str, str], timeout: float) -> tuple[bool, str]:
    """Raises ``subprocess.TimeoutExpired`` where it was killed for that."""
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
        raise
    if process.returncode == 0:
        return True, ""
    return False, f"status {process.returncode}: {told(output)}"


def told(output: str) -> str:
    """What a program said, on one line: whole where it is short, else how it began and how it ended.

    Its reason is the first line of some (``unrecognised option``, then the usage) and the last of others (a traceback).
    """
    lines = list(dict.fromkeys(line.strip()[:LINE] for line in output.splitlines() if line.strip()))
    if len(lines) > LINES:
        lines = [*lines[: LINES // 2], "…", *lines[-(LINES // 2) :]]
    return " | ".join(lines) or "no output"
