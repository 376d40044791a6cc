"""``accelprof run -c FILE [key=value …] -- CMD …``: start any command under the plan, and show what it left."""

from __future__ import annotations

import os
from typing import Any

import click

from accelprof import texts
from accelprof.cli.lines import say
from accelprof.errors import text_of


class _Command(click.Command):
    """Everything after ``--`` is the command, whatever it looks like."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta["command"] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "--", "CMD", "..."]


@click.command(cls=_Command)
@click.option("-c", "--config", "file", type=click.Path(), help="The configuration, in any dialect.")
@click.option("--no-table", is_flag=True, help="Do not print the table at the end.")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.pass_context
def run(ctx: click.Context, file: str | None, no_table: bool, overrides: tuple[str, ...]) -> Any:
    """Run CMD (python train.py, torchrun …) under the plan of FILE (or of the overrides alone).

    With ACCELPROF_INSTALL and nothing else the framework's own configuration is the plan.

    Tools that start processes are put before the command; its processes find the configuration by themselves. The exit
    status is the command's own, or 1 when it succeeded and something that was asked for did not come.
    """
    from accelprof.catalogue import get_catalogue
    from accelprof.launch.run import run as run_command
    from accelprof.planning.names import nothing_profiled
    from accelprof.session.identity import host_name

    if file is None and not overrides:
        if os.environ.get("ACCELPROF_INSTALL"):  # the framework's own configuration is the plan
            ctx.exit(_bare(ctx.meta.get("command", [])))
        raise click.MissingParameter(ctx=ctx, param=next(p for p in ctx.command.params if p.name == "file"))
    catalogue = get_catalogue()
    loaded = catalogue.load(file, overrides)
    plan = catalogue.plan(loaded.config)
    for note in loaded.notes:
        if note.kind not in ("info", "off"):
            say(f"accelprof: {note}", err=True)
    if silent := nothing_profiled(plan, loaded.notes, host_name()):
        say(f"accelprof: nothing to profile{' in this file' if file else ''}: {silent}", err=True)
    command = ctx.meta.get("command", [])
    if os.environ.get("ACCELPROF_INSTALL"):
        from accelprof.compat.startup import environment

        os.environ.update(environment(os.environ))  # the command's Python processes start with our start-up module
    outcome = run_command(catalogue, loaded.config, plan, command, lambda text: say(f"accelprof: {text}", err=True))
    if outcome.run_dir is not None:
        if not no_table:
            _show(outcome.run_dir)
        for text in outcome.undelivered:
            say(f"accelprof: not delivered: {text}", err=True)
        say(f"accelprof: {outcome.manifest.status}, {texts.from_here(outcome.run_dir)}", err=True)
    ctx.exit(outcome.exit_code)


def _bare(command: list[str]) -> int:
    """Start a command whose framework is caught by ``ACCELPROF_INSTALL``; its exit status."""
    from accelprof.compat.startup import environment
    from accelprof.launch.run import start

    return start(command, {**os.environ, **environment(os.environ)})


def _show(run_dir: str) -> None:
    """The table; what cannot be made of a run does not change how the command ended."""
    from rich.console import Console

    from accelprof import analysis

    try:
        analysis.render_table(run_dir, Console())
    except Exception as error:  # noqa: BLE001 - said here; the files of the run are there all the same
        click.echo(f"accelprof: the table could not be made: {text_of(error)}", err=True)
