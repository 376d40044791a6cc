"""What a step would take with phases of another speed, and how sure that is."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from accelprof.analysis.aligned import aligned
from accelprof.analysis.critical import HostCall, Leaf, Step, nested_most
from accelprof.analysis.releases import NOWHERE
from accelprof.analysis.replay import Graph, milliseconds
from accelprof.analysis.unseen import MEND, unseen_waits

#: an interval that reaches further than this share of the answer says why
NOTABLE = 0.05
_HELD_BOTH = ", and the interval holds the answer with and without that time"


def what_if(
    step: Step,
    factors: Mapping[str, float],
    rank: int | None = None,
    remove_wait: bool = False,
    scatter_ns: int = 0,
) -> dict[str, Any]:
    """``{step, wall_ns, predicted_ns, low_ns, high_ns, notes}`` when these phases took ``factors`` times as long.

    The interval holds the error of the clocks, ``scatter_ns`` (how far steps of the run lie apart with nothing changed: see
    :func:`accelprof.analysis.critical.scatter`), 2 % of the change for what is scaled, what the answer is if ranks left collectives
    together that seem not to (see :mod:`accelprof.analysis.aligned`), and what it is
    whatever let go on what it is only a guess of. Where collectives on the device held ranks together that cannot be replayed it reaches as far as the
    change of the worker with the largest one. Of a step that did not end ``low_ns`` and ``high_ns`` are ``None``: what was recorded of it
    is replayed, what it would have taken nobody knows.
    """
    found = _answer(step, factors, rank, remove_wait, scatter_ns)
    other = aligned(step)
    if other is None or not step.ended:
        return found
    there = _answer(other, factors, rank, remove_wait, scatter_ns)
    if there["low_ns"] < found["low_ns"] or there["high_ns"] > found["high_ns"]:
        found["low_ns"] = min(there["low_ns"], found["low_ns"])
        found["high_ns"] = max(there["high_ns"], found["high_ns"])
        found["notes"].append(
            "ranks seem to leave collectives before others come to them, or further apart than those are in them, by clocks that may be wrong "
            f"by more than that: had they left together the step would take {milliseconds(there['predicted_ns'])}, and the interval holds that too"
        )
    return found


def _answer(
    step: Step, factors: Mapping[str, float], rank: int | None, remove_wait: bool, scatter_ns: int
) -> dict[str, Any]:
    """The same on the step's clocks as they are."""
    graph = Graph(step)

    def scale(leaf: Leaf) -> float:
        if rank is not None and leaf.rank != rank:
            return 1.0
        phases = {leaf.phase, *leaf.around, *graph.within.get(id(leaf), ())}
        return math.prod(factors.get(phase, 1.0) for phase in phases)

    predicted = graph.replayed(scale, remove_wait)
    readings = list(graph.readings())
    answers = [predicted, *(other.replayed(scale, remove_wait) for other in readings)]
    nested = max(answers) > min(answers)
    if graph.guessed or graph.loose:
        answers += [one.replayed(scale, remove_wait, bound) for one in (graph, *readings) for bound in (-1, 1)]
    least, most = min(answers), max(answers)
    changed = round(0.02 * abs(step.wall_ns - predicted))
    doubt = step.doubt_ns + scatter_ns + changed
    low, high = min(predicted, least) - doubt, max(predicted, most) + doubt
    notes = list(_doubts(graph))
    if least < predicted or predicted < most:
        notes.append(
            f"{_unsure(graph, nested)}: with whatever else it may have followed the step takes "
            f"{milliseconds(min(predicted, least))} to {milliseconds(max(predicted, most))}; a phase of category wait around what a "
            "worker waits in, and one that ends where it lets another go on, make it sure"
        )
    if doubt > NOTABLE * predicted:
        reasons = ((scatter_ns, "how far the run's steps lie apart"), (step.doubt_ns, "the clocks' error"),
                   (changed, "2 % of the change"))  # fmt: skip
        said = ", ".join(f"{milliseconds(ns)} for {why}" for ns, why in reasons if ns)
        notes.append(f"the interval reaches {milliseconds(doubt)} to both sides: {said}")
    hidden = sum(one.hidden_ns for one in step.collectives)
    if hidden and (remove_wait or any(scale(leaf) != 1.0 for leaf in step.leaves)):
        low, high = low - hidden, high + hidden
        notes.append(
            f"work that ranks do inside collectives hides when these were over: the interval reaches {milliseconds(hidden)} further to both sides"
        )
    unknown, lines = _unknown_waits(step, remove_wait)
    notes += lines
    if unknown and predicted != step.wall_ns:
        high = max(high, step.wall_ns + doubt)
    if unknown and (remove_wait or any(scale(leaf) != 1.0 for leaf in step.leaves)):
        low = min(low, predicted - max(unknown.values()) - doubt)
    late = _began_late(graph)
    less, more = _changes(step, scale)
    changed_late = [worker for worker in late if less[worker] or more[worker]]
    if changed_late:
        worker = max(changed_late, key=lambda worker: late[worker])
        notes.append(
            f"the window of {worker} opened {milliseconds(late[worker])} after the first one: what it did until then is of the step before "
            "and keeps its length here; the interval holds the answer where the same change in every step takes all of that away"
        )
        if any(less[worker] for worker in changed_late):
            low = min(low, predicted - late[worker] - doubt)
        high = max(high, predicted + sum(more[worker] for worker in changed_late) + doubt)
    for group in unseen_waits(graph):
        shorter, longer = _joint_changes(step, group.group, scale)
        waited = max((most.ns for most in group.phases.values()), default=0)
        if not shorter and not longer and not (remove_wait and waited):
            continue
        low = min(low, step.wall_ns - shorter - doubt, predicted - (waited if remove_wait else 0) - doubt)
        high = max(high, step.wall_ns + longer + doubt)
        notes.append(
            f"no collective of {group.group}'s {group.workers} ranks was recorded, so they may wait for each other unseen inside phases"
            f"{f' ({group.shown})' if group.phases else ''}: the interval reaches as far as the change itself; {MEND}"
        )
    unheld = sum(map(len, step.unheld.values()))
    if unheld and (any(less.values()) or any(more.values())):
        if any(more.values()) or step.not_waited_for:
            high = max(high, step.wall_ns + max(more.values(), default=0) + doubt)
        if step.not_waited_for:
            low = min(low, step.wall_ns - max(less.values(), default=0) - doubt)
        notes.append(
            f"{unheld:,} times a collective on the device was over before its host waited for it: the answer takes it that it is so after the "
            "change too"
            + (
                ", and the interval reaches as far as the change itself"
                if any(more.values()) or step.not_waited_for
                else ""
            )
        )
    if step.left_out:
        notes.append(
            f"{len(step.left_out):,} collectives on the device, in none of which a rank waited more than "
            f"{milliseconds(step.left_out[0])}, are too many to be followed and keep their length"
        )
    if step.loose_ns:
        low = min(low, step.wall_ns - max(less.values(), default=0) - (step.loose_ns if remove_wait else 0))
        if any(more.values()):
            high = max(high, step.wall_ns + max(more.values()) + doubt)
        notes.append(
            f"collectives on the device held ranks together in this step ({milliseconds(step.loose_ns)} waited) and are not replayed, "
            "because their files' clocks were not compared with the others': the interval reaches as far as the change itself"
        )
    if not step.ended:
        notes.insert(
            0,
            f"step {step.name} did not end, so what it takes is not known: the answer replays what was recorded of it",
        )
    return {
        "step": step.name, "wall_ns": step.wall_ns, "predicted_ns": predicted,
        "low_ns": max(low, 0) if step.ended else None, "high_ns": high if step.ended else None, "notes": notes,
    }  # fmt: skip


def _unknown_waits(step: Step, remove_wait: bool) -> tuple[dict[str, int], list[str]]:
    """How long each worker is in collectives, in ns, for ranks of which it is not known when they came; and a note for each collective's name."""
    unknown: dict[str, int] = defaultdict(int)
    alone: dict[str, list[HostCall]] = defaultdict(list)
    for call in step.alone:
        unknown[call.worker] += call.ns
        alone[call.phase].append(call)
    notes = []
    for phase, mine in alone.items():
        longest = max(mine, key=lambda call: call.ns)
        others = f" ({len(mine) - 1} more such calls)" if len(mine) > 1 else ""
        notes.append(
            f"{longest.worker} is {milliseconds(longest.ns)} in {phase}, a collective in which no other rank was recorded{others}: whom it "
            f"waited for there, and how long, is not known{_HELD_BOTH if step.ended else ''}; what the change makes of others is in no figure"
        )
    let_go: dict[str, tuple[int, str]] = {}
    for one in step.collectives:
        for call, waited in one.waits(step.overhead_ns):
            if waited.after is None:
                came = waited.call.start_ns
                if call is not waited.call and call.end_ns <= came and call.until_ns > one.may_start_ns:
                    unknown[call.worker] += call.ns
                    text = (
                        f"{call.worker} left {one.phase} {milliseconds(came - call.end_ns)} before {waited.call.worker} came to it, by clocks that are "
                        "wrong by more than that: how much of it was waiting is not known"
                    )
                    let_go[one.phase] = max(let_go.get(one.phase, (0, "")), (call.ns, text))
                continue
            ns = waited.until_ns - waited.after.start_ns
            if remove_wait:
                unknown[call.worker] += ns
            text = (
                f"{call.worker} left {one.phase} before {waited.call.worker} came to it, {milliseconds(ns)} after the others had: taken to "
                f"have waited for what {waited.call.worker} launched before; how long the transfer took is not known"
            )
            let_go[one.phase] = max(let_go.get(one.phase, (0, "")), (ns, text))
    notes += [text for _, text in let_go.values()]
    lacking: dict[str, list[tuple[int, str, list[str]]]] = defaultdict(list)
    for one, missing in step.absent.items():
        if not missing or len(one.calls) < 2:
            continue
        came = one.calls[-1].start_ns
        for call in one.calls:
            ns = max(call.end_ns - came, 0)
            if ns:
                unknown[call.worker] += ns
            lacking[one.phase].append((ns, call.worker, missing))
    for phase, rows in lacking.items():
        ns, worker, missing = max(rows, key=lambda row: row[0])
        if ns <= step.overhead_ns:
            continue
        who = f"{', '.join(missing[:3])}{' …' if len(missing) > 3 else ''}"
        notes.append(
            f"{who} is missing in {phase}, in which {worker} is {milliseconds(ns)} after the last of the others came: what of that is "
            f"waiting and what transfer is not known{_HELD_BOTH if step.ended else ''}; what the change makes of the missing is in no figure"
        )
    return unknown, notes


def _changes(step: Step, scale: Callable[[Leaf], float]) -> tuple[dict[str, int], dict[str, int]]:
    """By how much each worker's leaves get shorter in all, and by how much longer, in ns."""
    less: dict[str, int] = defaultdict(int)
    more: dict[str, int] = defaultdict(int)
    for leaf in step.leaves:
        change = round(leaf.ns * (scale(leaf) - 1))
        less[leaf.worker] += max(-change, 0)
        more[leaf.worker] += max(change, 0)
    return less, more


def _joint_changes(step: Step, group: str, scale: Callable[[Leaf], float]) -> tuple[int, int]:
    """By how much ranks that wait for each other after any phase could be through earlier, and later, in ns: of the n-th stretches of a
    phase the one that changes most counts."""
    less: dict[tuple[str, int], int] = defaultdict(int)
    more: dict[tuple[str, int], int] = defaultdict(int)
    seen: dict[tuple[str, str], int] = defaultdict(int)
    for leaf in sorted((leaf for leaf in step.leaves if leaf.group == group), key=lambda leaf: leaf.start_ns):
        change = round(leaf.ns * (scale(leaf) - 1))
        place = leaf.phase, seen[leaf.worker, leaf.phase]
        seen[leaf.worker, leaf.phase] += 1
        less[place] = max(less[place], -change)
        more[place] = max(more[place], change)
    return sum(less.values()), sum(more.values())


def _began_late(graph: Graph) -> dict[str, int]:
    """The workers on the critical path whose windows opened later than the first, and how much, in ns: they were in another step."""
    step = graph.step
    late = {worker: ns for worker, ns in step.late.items() if ns > step.overhead_ns}
    on_path = {part["worker"] for part in graph.path()} if late else set()
    return {worker: ns for worker, ns in late.items() if worker in on_path}


def _unsure(graph: Graph, nested: bool) -> str:
    """What the answer's interval is for, in words: waits that are guessed, work that perhaps nothing waits for."""
    reasons = [f"who waited for whom is a guess{_largest_guess(graph)}"] if graph.guessed else []
    loose = [leaf for leaf in graph.leaves if (leaf.worker, leaf.row) in graph.loose]
    if loose:
        last = max(loose, key=lambda leaf: leaf.end_ns)
        reasons.append(
            f"whether the step's end waits for {last.phase} on {last.worker}, on a thread that nothing came after, is not known"
        )
    if nested and (most := nested_most(graph.step)) is not None:
        phase, name, worker, ns = most
        reasons.append(
            f"whether {worker} is in {phase} with the others before, after or beside the {milliseconds(ns)} of {name} in it is not known"
        )
    return ", and ".join(reasons)


def _largest_guess(graph: Graph) -> str:
    """The guess over the longest time in which nothing was recorded, in words that go on a sentence; empty without one."""
    count = len(graph.leaves)
    found = []
    for node in graph.guessed:
        place, waits = (node - count, True) if node >= count else (node, False)
        gather = graph.gathers.get(place) if waits else None
        # what is not taken to wait comes last: something was recorded all the time
        taken = gather is None or gather.waits
        found.append((taken, graph.leaves[place].ns if waits else graph.gap(place), waits, place))
    if not found:
        return ""
    taken, gap, waits, place = max(found)
    leaf = graph.leaves[place]
    gather = graph.gathers.get(place) if waits else None
    if gather is not None:
        inner = graph.leaves[gather.ends[-1]].phase
        does = f"wait for {inner}" if taken else f"work on its own, not to wait for {inner}"
        return f" ({leaf.phase} on {leaf.worker}, {milliseconds(gap)}, is taken to {does} on another thread or task of its process)"
    if waits:
        what, cause = f"ends a wait of {milliseconds(gap)}", graph.causes.get(place, NOWHERE)
    else:
        after = graph.after[place]
        what, cause = f"began after a gap of {milliseconds(gap)}", NOWHERE if after == graph.before[place] else after
    if cause == NOWHERE:
        return f" ({leaf.phase} on {leaf.worker} {what} and is taken to follow nothing that was recorded)"
    other = graph.leaves[cause]
    runs_on = graph.ends[cause] > (graph.ends if waits else graph.starts)[place]
    follow = f"be let go on from inside {other.phase}" if runs_on else f"follow {other.phase}"
    return f" ({leaf.phase} on {leaf.worker} {what} and is taken to {follow} on {other.worker})"


def _doubts(graph: Graph) -> Iterable[str]:
    """Windows that nothing joins, and long waits for what was not recorded, a line for each phase."""
    step = graph.step
    if step.apart_ns > step.overhead_ns:
        yield (
            f"the workers' windows of this step do not overlap: {milliseconds(step.apart_ns)} lie between them and count as the step's, "
            "though nothing that was recorded joins the workers"
        )
    lost: dict[tuple[str, str], int] = defaultdict(int)
    for place in graph.waits:
        leaf = graph.leaves[place]
        if leaf.ns > step.overhead_ns and graph.early(place):
            lost[leaf.worker, leaf.phase] += leaf.ns
    for phase in sorted({phase for _, phase in lost}):
        mine = {worker: ns for (worker, name), ns in lost.items() if name == phase}
        most = max(mine, key=lambda worker: mine[worker])
        others = f" ({len(mine) - 1} other workers at most as long)" if len(mine) > 1 else ""
        yield (
            f"{most} waits {milliseconds(mine[most])} in {phase}{others} and no phase of another ended in it: replayed as work of a fixed "
            "length"
        )
