"""``accelprof doctor --nodes``: the same checks on every node of a running cluster, all at once."""

from __future__ import annotations

from collections.abc import Callable

import ray

from accelprof.cluster import nodes
from accelprof.contracts.doctor import Check
from accelprof.errors import UserError

TIMEOUT_S = 120.0


def checks_on_nodes(
    checks: Callable[[str], list[Check]], output_dir: str, address: str = "auto"
) -> dict[str, list[Check]]:
    """``checks(output_dir)`` on each node that is up; a node that does not answer gets a row that says so.

    Joins the cluster at ``address`` when this process is in none, and leaves it again.

    Raises:
        UserError: there is no cluster at ``address``.
    """
    joined = not ray.is_initialized()
    if joined:
        try:
            ray.init(address=address, log_to_driver=False, configure_logging=False)
        except (ConnectionError, ValueError) as error:
            raise UserError(f"doctor --nodes: no Ray cluster at {address!r}: {' '.join(str(error).split())}") from None
    try:
        up = nodes.alive()
        # accelprof is asked for by name on the node: what is not installed there is what this is to find out
        results, errors = nodes.on_each(dict.fromkeys(up, (output_dir,)), checks, TIMEOUT_S)
    finally:
        if joined:
            ray.shutdown()
    hosts = list(up.values())
    found: dict[str, list[Check]] = {}
    for node, host in sorted(up.items(), key=lambda item: item[1]):
        label = host if hosts.count(host) == 1 else f"{host} ({node[:8]})"
        mend = "install accelprof on the node, in the interpreter that Ray's workers use"
        found[label] = (
            results[node] if node in results else [Check("core", "node", "fail", errors.get(node, "no answer"), mend)]
        )
    return found
