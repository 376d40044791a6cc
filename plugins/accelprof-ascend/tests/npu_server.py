"""Imports torch and torch_npu once, then forks a process for each scenario: a line of JSON each on standard input and output.

A request has ``code``, ``env``, ``cwd``, ``out``, ``err`` (files) and ``limit`` (seconds); the answer is ``{"status": …}`` as
:class:`subprocess.Popen` has it, or ``null`` where the limit was reached. Neither accelprof nor CANN has been touched before the fork.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

import torch  # noqa: F401
import torch_npu  # type: ignore[import-not-found]  # noqa: F401


def become(request: dict[str, Any]) -> str:
    """In the forked process: what ``python -c`` would have found."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.argv = ["-c"]
    sys.path[0] = ""
    return str(request["code"])


def ended(child: int, limit: float) -> int | None:
    until = time.monotonic() + limit
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def serve() -> str:
    """Answers requests; returns in each forked process, with its code."""
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            return become(request)
        print(json.dumps({"status": ended(child, request["limit"])}), flush=True)
    raise SystemExit


if __name__ == "__main__":
    scenario = compile(serve(), "<string>", "exec")
    del __file__  # as under -c: a process that multiprocessing spawns must not run this again
    exec(scenario, globals())
