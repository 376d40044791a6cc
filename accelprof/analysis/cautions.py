"""What of the steps' waiting and critical paths is taken to be so, and may be otherwise: notices of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from accelprof import texts
from accelprof.analysis.critical import Step, nested_most
from accelprof.analysis.units import duration


def cautions(found: Sequence[Step]) -> Iterator[str]:
    """A line for each thing that a reader must know."""
    yield from _ambiguous(found)
    yield from _nested(found)
    yield from _not_waited_for(found)


def _ambiguous(found: Sequence[Step]) -> Iterator[str]:
    """Collectives on the host that may be several: twice and more the same ranks left together well before the same others, which
    what ends on all ranks together does not do, and phases do not say which ranks belong together."""
    parted: Counter[tuple[str, frozenset[str], frozenset[str]]] = Counter()
    for step in found:
        apart = max(step.overhead_ns, step.doubt_ns)
        for one in step.collectives:
            if not one.joins_all:  # as in a broadcast
                continue
            calls = sorted(one.calls, key=lambda call: call.end_ns)
            gaps = [at for at in range(2, len(calls) - 1) if calls[at].end_ns - calls[at - 1].end_ns > apart]
            if len(gaps) == 1:
                first, then = (frozenset(call.worker for call in part) for part in (calls[: gaps[0]], calls[gaps[0] :]))
                here, there = sorted((first, then), key=min)
                parted[one.phase, here, there] += 1
    counts: Counter[str] = Counter()
    for (phase, _, _), count in parted.items():
        counts[phase] += count if count > 1 else 0
    for phase, count in (+counts).items():
        ranks, rest = next((first, then) for (name, first, then), n in parted.items() if name == phase and n > 1)
        yield (
            f"ambiguous: {count} calls of {phase} are taken for one collective each, but {_some(ranks)} left together at another time "
            f"than {_some(rest)}: if they reduce apart give them names of their own, otherwise who waited for whom there is not known"
        )


def _nested(found: Sequence[Step]) -> Iterator[str]:
    """Work in collectives that goes on when the last rank has called: whether ranks are in the collective before, after or beside it."""
    late = [
        (most, step.name)
        for step in found
        if any(one.hidden or one.calls[0].meets for one in step.collectives) and (most := nested_most(step)) is not None
    ]
    if late:
        (phase, name, worker, ns), step_of = max(late, key=lambda one: one[0][3])
        yield (
            f"work is nested in collectives (up to {duration(ns)} of {name} in {phase} on {worker}, step {step_of}): ranks are taken to be in the "
            "collective itself in the part of the call in which they left together, and to work in the rest of it; a range of category "
            "collective around the collective alone makes it sure"
        )


def _not_waited_for(found: Sequence[Step]) -> Iterator[str]:
    """The steps whose devices may decide their ends: hosts did not wait for their last collectives."""
    steps = [step for step in found if step.not_waited_for]
    if steps:
        yield (
            f"hosts did not wait for the last collective on their device in step {texts.listed([step.name for step in steps], 5)} "
            f"({texts.listed(steps[0].not_waited_for, 3)}): the critical path, slack and whatif follow the hosts there, and the devices may decide its end"
        )


def _some(workers: Collection[str]) -> str:
    names = sorted(workers)
    return f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''}"
