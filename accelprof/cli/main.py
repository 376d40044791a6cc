"""The command line. Exit status: 0 right, 2 the user's mistake, 1 ours or something asked for was not delivered."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Sequence

import click

from accelprof.cli.lines import say
from accelprof.errors import AccelprofError, nearest, text_of
from accelprof.release import VERSION

COMMANDS = ("compare", "config", "demo", "doctor", "plugins", "report", "run", "timeline", "whatif", "window")


def command_of(name: str) -> click.Command | None:
    """One of :data:`COMMANDS`; its module is imported when it is used, so that a command starts quickly."""
    match name:
        case "compare":
            from accelprof.cli.compare import compare

            return compare
        case "config":
            from accelprof.cli.config import config

            return config
        case "demo":
            from accelprof.cli.demo import demo

            return demo
        case "doctor":
            from accelprof.cli.doctor import doctor

            return doctor
        case "plugins":
            from accelprof.cli.plugins import plugins

            return plugins
        case "report":
            from accelprof.cli.report import report

            return report
        case "run":
            from accelprof.cli.run import run

            return run
        case "timeline":
            from accelprof.cli.timeline import timeline

            return timeline
        case "whatif":
            from accelprof.cli.whatif import whatif

            return whatif
        case "window":
            from accelprof.cli.window import window

            return window
    return None


class Commands(click.Group):
    """Built-in commands by table, then those that plug-ins add through ``accelprof_cli(group)``."""

    _asked = False

    def list_commands(self, ctx: click.Context) -> list[str]:
        self._ask_plugins()
        return sorted({*COMMANDS, *self.commands})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = command_of(cmd_name)
        if own is not None:
            return own
        self._ask_plugins()
        return self.commands.get(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = nearest(args[0], self.list_commands(ctx)) if args else ""
            if near and "did you mean" not in error.message.casefold():
                raise click.UsageError(f"{error.message} {near[0].upper()}{near[1:]}", error.ctx) from None
            raise

    def _ask_plugins(self) -> None:
        if self._asked:
            return
        self._asked = True
        from accelprof.catalogue import get_catalogue

        get_catalogue().host.call("accelprof_cli", group=self)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="accelprof")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.option("-v", "--verbose", is_flag=True, help="Say more about what is done.")
@click.pass_context
def cli(ctx: click.Context, debug: bool, verbose: bool) -> None:
    """Profile distributed training: plans, windows, timelines and reports, whatever the accelerator."""
    ctx.obj = {"debug": debug}
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="%(message)s", stream=sys.stderr)


def main(args: Sequence[str] | None = None) -> object:
    """Entry point of ``accelprof``; ends the process with the status described in the module."""
    debug = "--debug" in (sys.argv[1:] if args is None else args)
    for stream in (sys.stdout, sys.stderr):  # what a terminal's encoding lacks is shown by its number
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = cli.main(args=list(args) if args is not None else None, prog_name="accelprof", standalone_mode=False)
    except click.exceptions.Exit as stop:
        status = stop.exit_code
    except click.Abort:
        click.echo("aborted", err=True)
        status = 130
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except AccelprofError as error:
        if debug:
            raise
        say(f"accelprof: {error}", err=True)
        status = error.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        status = 0
    except Exception as error:
        if debug:
            raise
        say(f"accelprof: internal error: {text_of(error)} (--debug shows where)", err=True)
        status = 1
    sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
