"""``accelprof demo``: the whole of accelprof on a real training run that needs nothing but this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from accelprof import texts
from accelprof.contracts.names import MANIFEST, REPORT, TIMELINE
from accelprof.errors import UserError

if TYPE_CHECKING:
    from accelprof.demo.run import DemoResult


@click.command("demo")
@click.option("--steps", type=click.IntRange(min=1), default=6, show_default=True, help="Reinforcement-learning steps.")
@click.option("--output", type=click.Path(file_okay=False), help="Directory that gets the run.  [default: outputs]")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of weights, prompts and sampling."
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False),
    help="Profiling configuration to use in place of the demo's own.",
)
@click.option(
    "--straggler",
    type=click.IntRange(min=0),
    metavar="RANK",
    help="Actor rank (0 or 1) that is slow on purpose; the report names it.",
)
@click.option("--json", "as_json", is_flag=True, help="The outcome as JSON on standard output.")
@click.argument("overrides", nargs=-1, metavar="[key=value]...")
def demo(
    steps: int,
    output: str | None,
    seed: int,
    config_file: str | None,
    straggler: int | None,
    as_json: bool,
    overrides: tuple[str, ...],
) -> None:
    """Train a small policy with GRPO on Ray, and profile steps 2 and 4 of it.

    Two actor ranks, two rollout ranks and a reference model learn one-digit sums on the CPU in less than a minute. The
    timeline covers every worker, torch.profiler runs on actor rank 0. What to profile can be changed as in any other
    run: by --config, or by overrides such as steps=[3] or groups.RolloutGroup.tool=torch.
    """
    try:
        from accelprof.demo.run import PROFILE, run_demo
        from accelprof.demo.settings import DemoSettings
    except ModuleNotFoundError as error:
        if error.name not in {"ray", "torch", "numpy"}:
            raise
        raise UserError(
            f"the demo trains with torch on Ray; {error.name} is not installed. Mend: pip install 'accelprof[demo]'"
        ) from None
    from accelprof.catalogue import get_catalogue
    from accelprof.output.verdict import require_complete

    settings = DemoSettings(steps=steps, seed=seed, straggler=straggler)
    if straggler is not None and straggler >= settings.actors:
        allowed = ", ".join(map(str, range(settings.actors)))
        raise UserError(f"--straggler {straggler}: there is no such actor rank; allowed: {allowed}")
    loaded = get_catalogue().load(config_file or PROFILE, [*overrides, *([f"output_dir={output}"] if output else [])])
    with _progress(steps + 3) as tell:
        result = run_demo(settings, loaded.config, tell)
    if as_json:
        click.echo(texts.dumps(_outcome(result), indent=2))
    else:
        _show(result)
    require_complete(result.manifest)


@contextmanager
def _progress(parts: int) -> Iterator[Any]:
    """A bar on standard error; a call finishes the part before and names the next."""
    columns = (TextColumn("{task.description:<32}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=parts)
        begun = False

        def tell(doing: str) -> None:
            nonlocal begun
            progress.update(task, description=doing, advance=1 if begun else 0)
            begun = True

        yield tell
        progress.update(task, description="done", completed=parts)


def _outcome(result: DemoResult) -> dict[str, Any]:
    before, after = result.accuracy
    return {
        "rewards": result.rewards,
        "accuracy": {"before": before, "after": after},
        "training": result.metrics,
        "phases": result.phases,
        "seconds": result.seconds,
        "run_dir": result.run_dir,
        "windows": len(result.manifest.windows),
        "artifacts": [row.path for row in result.manifest.artifacts.values()],
        "problems": result.manifest.problems,
    }


def _show(result: DemoResult) -> None:
    from accelprof.analysis import render_table

    console = Console()
    if result.run_dir is not None:
        render_table(result.run_dir, console)
    before, after = result.accuracy
    rewards = " ".join(f"{value:.2f}" for value in result.rewards)
    console.print(
        f"Reward by step: {rewards}; right answers {before:.0%} before, {after:.0%} after; {result.seconds:.0f} s."
    )
    for problem in result.manifest.problems:
        console.print(problem, style="yellow", markup=False)
    if result.run_dir is None:
        return
    for what, name in (("Timeline, for ui.perfetto.dev", TIMELINE), ("Report", REPORT), ("Manifest", MANIFEST)):
        console.print(f"{what}: {_short(os.path.join(result.run_dir, name))}", soft_wrap=True, markup=False)


def _short(path: str) -> str:
    """``path`` from here when it lies below, whole otherwise."""
    below = texts.from_here(path)
    return path if below.startswith(os.pardir) else below
