"""``accelprof whatif DIR``: a step's time if some phases took another time."""

from __future__ import annotations

import click

from accelprof import texts
from accelprof.environment import numpy_on_one_thread
from accelprof.errors import UserError


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@click.option("--scale", "scales", multiple=True, metavar="PHASE=FACTOR", help="This phase takes FACTOR times as long.")
@click.option("--rank", type=click.IntRange(min=0), help="Only on this rank.")
@click.option(
    "--step", help="The step, or those of a window (4-9).  [default: of those that ended the one that took longest]"
)
@click.option("--remove-wait", is_flag=True, help="Ranks do not wait for each other in collectives.")
@click.option("--json", "as_json", is_flag=True, help="For machines; times in ns.")
def whatif(
    directory: str, scales: tuple[str, ...], rank: int | None, step: str | None, remove_wait: bool, as_json: bool
) -> None:
    """Replay a recorded step of the run in DIR with other lengths of phases, and say what it would take.

    What waits for what is kept: a phase begins after the one before it on its thread and after the one of any worker that
    it waited for; collectives end after the last rank has arrived, and phases that wait for another role or for data after
    the work that they waited for.
    """
    numpy_on_one_thread()
    from accelprof.analysis.critical import scatter
    from accelprof.analysis.summary import summarise
    from accelprof.analysis.units import duration
    from accelprof.analysis.whatif import what_if

    factors = dict(map(_factor, scales))
    waits = summarise(directory).waits
    steps = waits.of
    if not steps:
        raise UserError(f"whatif: {directory} has no window of a step; record steps with a timeline (timeline: true)")
    chosen = [one for one in steps if step is None or step in map(str, (one.name, *one.steps))]
    if not chosen:
        there = ", ".join(str(one.name) for one in steps)
        raise UserError(f"whatif: step {step} has no window in {directory}; there are {there}")
    found = max(chosen, key=lambda one: (one.ended, one.wall_ns))
    known = {phase for leaf in found.leaves for phase in (leaf.phase, *leaf.around)}
    known.update(joint.name for joint in found.joints)
    lost = sorted(set(factors) - known)
    if lost:
        raise UserError(f"whatif: no phase {lost[0]!r} in step {found.name}; there are {', '.join(sorted(known))}")
    ranks = sorted({leaf.rank for leaf in found.leaves if leaf.rank is not None})
    if rank is not None and rank not in ranks:
        there = ", ".join(map(str, ranks)) or "none with a rank"
        raise UserError(f"whatif: --rank {rank} has no phase in step {found.name}; there are {there}")
    if not factors and not remove_wait:
        there = ", ".join(sorted(known)) or "no phase"
        raise UserError(
            f"whatif: nothing to change; give --scale PHASE=FACTOR (step {found.name} has {there}) or --remove-wait"
        )
    alike = [one.wall_ns for one in steps if one.ended and len(one.steps) == len(found.steps)]
    answer = what_if(found, factors, rank, remove_wait, scatter(alike))
    if as_json:
        click.echo(texts.dumps(answer, indent=1))
        return
    change = answer["predicted_ns"] / answer["wall_ns"] - 1 if answer["wall_ns"] else 0.0
    low, high = answer["low_ns"], answer["high_ns"]
    within = "interval not known" if low is None else f"between {duration(low)} and {duration(high)}"
    click.echo(
        f"step {answer['step']}: {duration(answer['wall_ns'])} -> {duration(answer['predicted_ns'])} ({change:+.1%}; {within})"
    )
    for note in answer["notes"]:
        click.echo(f"note: {note}")


def _factor(text: str) -> tuple[str, float]:
    phase, separator, number = text.rpartition("=")
    try:
        factor = float(number)
    except ValueError:
        factor = -1.0
    if not separator or not phase or not 0 <= factor < float("inf"):
        raise UserError(f"whatif: --scale {text!r} is no PHASE=FACTOR with a factor from 0 on, as actor/update=0.5")
    return phase, factor
