"""Self time and shares of nested phases: every instant of a row belongs to its innermost span, and to that one only."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable, Iterable, Sequence

Segment = tuple[int, int, int]  # start_ns, end_ns, index of the span that is innermost there


def segments(spans: Sequence[tuple[int, int]]) -> list[Segment]:
    """Cut one row (a thread or a task) into stretches by the innermost ``(start, end)`` span.

    The innermost is the one that began last (of those, the one that ends first, then the later in the sequence); spans
    that overlap without nesting are cut by the same rule.
    """
    order = sorted(range(len(spans)), key=lambda index: spans[index][0])
    bounds = sorted({bound for start, end in spans if end > start for bound in (start, end)})
    heap: list[tuple[int, int, int]] = []
    result: list[Segment] = []
    following = 0
    for begin, until in itertools.pairwise(bounds):
        while following < len(order) and spans[order[following]][0] <= begin:
            index = order[following]
            heapq.heappush(heap, (-spans[index][0], spans[index][1], -index))
            following += 1
        while heap and heap[0][1] <= begin:
            heapq.heappop(heap)
        if not heap:
            continue
        index = -heap[0][2]
        if result and result[-1][2] == index and result[-1][1] == begin:
            result[-1] = (result[-1][0], until, index)
        else:
            result.append((begin, until, index))
    return result


def parents(spans: Sequence[tuple[int, int]]) -> list[int | None]:
    """For each span of one row the innermost other span that holds it whole; the first of equal ones is the parent."""
    order = sorted(range(len(spans)), key=lambda index: (spans[index][0], -spans[index][1], index))
    found: list[int | None] = [None] * len(spans)
    stack: list[int] = []
    for index in order:
        start, end = spans[index]
        while stack and spans[stack[-1]][1] <= start and not (start == end == spans[stack[-1]][1]):
            stack.pop()
        holder = next((other for other in reversed(stack) if spans[other][1] >= end), None)
        found[index] = holder
        stack.append(index)
    return found


def shares(stretches: Iterable[tuple[int, int, Hashable]]) -> dict[Hashable, float]:
    """Time in ns by label where stretches of several rows overlap: ``k`` at once get a ``k``-th each.

    The sum over labels is the length of the union, so shares of a step cannot add up past the step.
    """
    changes: list[tuple[int, int, Hashable]] = []
    for start, end, label in stretches:
        if end > start:
            changes.append((start, 1, label))
            changes.append((end, -1, label))
    changes.sort(key=lambda change: change[0])
    active: dict[Hashable, int] = {}
    total: dict[Hashable, float] = {}
    running, before = 0, 0
    for at, change, label in changes:
        if running and at > before:
            for name, count in active.items():
                total[name] = total.get(name, 0.0) + (at - before) * count / running
        before = at
        running += change
        count = active.get(label, 0) + change
        if count:
            active[label] = count
        else:
            del active[label]
    return total


def clip(start: int, end: int, inside: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The parts of ``[start, end]`` that lie in sorted disjoint intervals."""
    return [(max(start, low), min(end, high)) for low, high in inside if low < end and high > start]
