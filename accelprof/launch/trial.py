"""A tool's own trial, on the node that will start processes under it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence


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
