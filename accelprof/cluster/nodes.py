"""Small tasks on the nodes that hold the files; on the driver's own node the same functions are called directly."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from accelprof.cluster.fanout import Member
from accelprof.errors import text_of

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


def start_on(node_id: str, function: Callable[..., object], *args: object) -> object:
    """Start ``function(*args)`` as a task on that node; the reference of its result.

    Raises:
        ConnectionError: Ray was shut down; a call would start a new cluster.
    """
    if not ray.is_initialized():
        raise ConnectionError("Ray was shut down")
    strategy = NodeAffinitySchedulingStrategy(node_id=node_id, soft=False)
    return ray.remote(num_cpus=0, max_retries=0)(function).options(scheduling_strategy=strategy).remote(*args)


def on_each(
    calls: Mapping[str | None, tuple[object, ...]], function: Callable[..., object], timeout: float
) -> tuple[dict[str | None, Any], dict[str | None, str]]:
    """Call ``function`` on every node at once, here for the driver's own (or ``None``): ``(results, errors)`` by node."""
    results: dict[str | None, object] = {}
    errors: dict[str | None, str] = {}
    here = own_node()
    refs: dict[str | None, object] = {}
    for node, args in calls.items():
        if node is not None and node != here:
            try:
                refs[node] = start_on(node, function, *args)
            except Exception as error:  # noqa: BLE001 - the node may be gone; said by whoever asked
                errors[node] = text_of(error)
    for node, args in calls.items():
        if node is None or node == here:
            try:
                results[node] = function(*args)
            except Exception as error:  # noqa: BLE001 - said by whoever asked
                errors[node] = text_of(error)
    deadline = time.monotonic() + timeout + TASK_START_S
    for node, ref in refs.items():
        try:
            results[node] = ray.get(ref, timeout=max(deadline - time.monotonic(), 0.1))
        except Exception as error:  # noqa: BLE001 - said by whoever asked
            errors[node] = text_of(error)[:300]
    return results, errors


class RayNodes:
    """Ray's nodes, for the end of a run (see :class:`accelprof.output.nodes.Nodes`)."""

    def __init__(self, members: Iterable[Member]) -> None:
        self._node_of = {member.facts.get("host"): member.facts.get("node_id") for member in members}

    def node_of(self, host: str | None) -> str | None:
        node = self._node_of.get(host)
        return None if node == own_node() else node

    def call(self, node: str | None, function: Callable[..., object], *args: object) -> Any:
        return function(*args) if node is None else ray.get(start_on(node, function, *args))

    def on_each(
        self, calls: Mapping[str | None, tuple[object, ...]], function: Callable[..., object], timeout: float
    ) -> tuple[dict[str | None, Any], dict[str | None, str]]:
        return on_each(calls, function, timeout)
