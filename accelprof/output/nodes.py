"""Where the files of a run lie: this host alone, or several; what the end of a run needs of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from accelprof.errors import text_of

#: a node's name for :class:`Nodes`; ``None`` is this host
Node = str | None


class Nodes(Protocol):
    """Hosts of a run. Functions that are called on them are importable there and take plain data."""

    def node_of(self, host: str | None) -> Node:
        """The node with this host name; ``None`` for this host and for one that is not known."""
        ...

    def call(self, node: Node, function: Callable[..., object], *args: object) -> Any:
        """``function(*args)`` there. Raises what it raises, and when the node is gone."""
        ...

    def on_each(
        self, calls: Mapping[Node, tuple[object, ...]], function: Callable[..., object], timeout: float
    ) -> tuple[dict[Node, Any], dict[Node, str]]:
        """``function`` on every node at once: ``(results, errors)`` by node. Never raises."""
        ...


class ThisHost:
    """A run that no other host has a part in, or none that can be asked."""

    def node_of(self, host: str | None) -> Node:
        return None

    def call(self, node: Node, function: Callable[..., object], *args: object) -> Any:
        return function(*args)

    def on_each(
        self, calls: Mapping[Node, tuple[object, ...]], function: Callable[..., object], timeout: float
    ) -> tuple[dict[Node, Any], dict[Node, str]]:
        results: dict[Node, object] = {}
        errors: dict[Node, str] = {}
        for node, args in calls.items():
            try:
                results[node] = function(*args)
            except Exception as error:  # noqa: BLE001 - said by whoever asked
                errors[node] = text_of(error)
        return results, errors
