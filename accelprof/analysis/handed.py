"""Which worker let which go on: the joins of a step's critical path between workers, for arrows in the merged timeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from accelprof.analysis.critical import Leaf
from accelprof.analysis.releases import NOWHERE
from accelprof.analysis.replay import Graph

#: an arrow stands this far inside the phase that it begins or ends in
EDGE_NS = 2_000


class Handed(NamedTuple):
    """One worker went on when another had done something: row and moment of both, on the driver's clock, each inside a phase;
    ``waited_ns`` for it, and whether that is a guess."""

    worker: str
    row: int
    at_ns: int
    to_worker: str
    to_row: int
    to_ns: int
    waited_ns: int
    guess: bool


def handed(graph: Graph) -> Iterator[Handed]:
    """What joins workers through the host: a collective's last rank lets the others go on, work ends what waited for it."""
    for place, mine in graph.held.items():
        for held in mine:
            join = graph.joins[held.join]
            node = join.points[join.last].node
            if 0 <= node < len(graph.leaves) and held.own.node >= 0 and not held.own.after_ns:
                begun = graph.starts[held.own.node] if held.own.node < len(graph.leaves) else join.at_ns
                yield from _arrow(graph, node, graph.starts[node], place, join.at_ns - begun, False)
    count = len(graph.leaves)
    for place, cause in graph.causes.items():
        at_ns = min(graph.ends[cause], graph.ends[place])
        yield from _arrow(graph, cause, at_ns, place, at_ns - graph.starts[place], count + place in graph.guessed)
    for place, (after, before) in enumerate(zip(graph.after, graph.before, strict=True)):
        if after not in (before, NOWHERE):
            at_ns = min(graph.ends[after], graph.starts[place])
            yield from _arrow(graph, after, at_ns, place, graph.gap(place), place in graph.guessed)


def _arrow(graph: Graph, place: int, at_ns: int, to: int, waited_ns: int, guess: bool) -> Iterator[Handed]:
    one, other = graph.leaves[place], graph.leaves[to]
    if one.worker != other.worker and waited_ns > 0:
        begin = _inside(one, at_ns)
        yield Handed(
            one.worker, one.row, begin, other.worker, other.row, _inside(other, max(at_ns, begin)), waited_ns, guess
        )


def _inside(leaf: Leaf, at_ns: int) -> int:
    """The moment, or one near it in which the phase certainly ran."""
    edge = min(EDGE_NS, leaf.ns // 2)
    return min(max(at_ns, leaf.start_ns + edge), leaf.end_ns - edge)
