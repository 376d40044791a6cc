"""Small tasks on the nodes that hold the files; on the driver's own node the same functions are called directly."""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

POLL_S = 0.1
TASK_START_S = 60.0


def own_node() -> str | None:
    """Ray's id of the node this driver runs on; ``None`` without Ray, or for a driver outside the cluster (``ray://``)."""
    if not ray.is_initialized() or ray.util.client.ray.is_connected():
        return None
    found: str = ray.get_runtime_context().get_node_id()
    return found


def alive() -> dict[str, str]:
    """``{node id: host name}`` of the nodes that are up."""
    return {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]}


def start_on(node_id: str, function: Callable[..., Any], *args: Any) -> Any:
    """Start ``function(*args)`` as a task on that node; the reference of its result.

    Raises:
        ConnectionError: Ray was shut down; a call would start a new cluster.
    """
    if not ray.is_initialized():
        raise ConnectionError("Ray was shut down")
    strategy = NodeAffinitySchedulingStrategy(node_id=node_id, soft=False)
    return ray.remote(num_cpus=0, max_retries=0)(function).options(scheduling_strategy=strategy).remote(*args)


def on_each(
    calls: Mapping[str | None, tuple[Any, ...]], function: Callable[..., Any], timeout: float
) -> tuple[dict[str | None, Any], dict[str | None, str]]:
    """Call ``function`` on every node at once, here for the driver's own (or ``None``): ``(results, errors)`` by node."""
    results: dict[str | None, Any] = {}
    errors: dict[str | None, str] = {}
    here = own_node()
    refs: dict[str | None, Any] = {}
    for node, args in calls.items():
        if node is not None and node != here:
            try:
                refs[node] = start_on(node, function, *args)
            except Exception as error:  # noqa: BLE001 - the node may be gone; said by whoever asked
                errors[node] = f"{type(error).__name__}: {error}"
    for node, args in calls.items():
        if node is None or node == here:
            try:
                results[node] = function(*args)
            except Exception as error:  # noqa: BLE001 - said by whoever asked
                errors[node] = f"{type(error).__name__}: {error}"
    deadline = time.monotonic() + timeout + TASK_START_S
    for node, ref in refs.items():
        try:
            results[node] = ray.get(ref, timeout=max(deadline - time.monotonic(), 0.1))
        except Exception as error:  # noqa: BLE001 - said by whoever asked
            errors[node] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return results, errors


# --- what runs on the node ----------------------------------------------------------------------------------------------


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


def wait_for(wanted: Sequence[tuple[str, int, float]]) -> list[list[str]]:
    """Files of each ``(pattern, number, seconds)``: waits until that many are there, not empty and no longer growing."""
    began = time.monotonic()
    before: list[dict[str, int]] = [{} for _ in wanted]
    settled: list[list[str] | None] = [None] * len(wanted)
    while True:
        for index, (pattern, number, seconds) in enumerate(wanted):
            if settled[index] is not None:
                continue
            now = find(pattern)
            still = [path for path, size in now.items() if size and before[index].get(path) == size]
            if len(still) >= number and len(still) == len(now):
                settled[index] = still
            elif time.monotonic() - began >= seconds:
                settled[index] = list(now)
            before[index] = now
        if all(files is not None for files in settled):
            return [files or [] for files in settled]
        time.sleep(POLL_S)


def match(files: Sequence[str], tool: str, options: Mapping[str, Any], windows: Sequence[Any]) -> list[dict[str, Any]]:
    """The tool's own word on which file holds which windows."""
    from dataclasses import asdict

    from accelprof.registry import get_registry

    return [asdict(found) for found in get_registry().make_tool(tool, options).match(list(files), list(windows))]


def wait_and_match(
    wanted: Sequence[tuple[str, int, float]], tools: Sequence[tuple[str, Mapping[str, Any], Sequence[Any]]]
) -> list[list[dict[str, Any]]]:
    """:func:`wait_for`, then :func:`match`, for each wanted pattern with its tool, options and windows."""
    return [match(files, *tool) if files else [] for files, tool in zip(wait_for(wanted), tools, strict=True)]


def journals(run_dir: str) -> list[list[dict[str, Any]]]:
    """Journals on this node, for workers that can no longer be asked."""
    from accelprof.output.manifest import read_journals

    return read_journals(run_dir)


def trial(argv: Sequence[str], env: Mapping[str, str], timeout: float) -> tuple[bool, str]:
    """Run a short command; ``(True, "")``, or ``(False, what it said)``."""
    import signal
    import subprocess

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
