"""The command line as a whole: which commands there are, what they end with, and what a mistake is answered with."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

import accelprof
from accelprof.cli import main as commands
from accelprof.contracts.hookspecs import hookimpl
from accelprof.errors import ConfigError, IncompleteError, Problem, UserError


def ended(monkeypatch, capsys, error=None, *args, value=None):
    """Status, stdout and stderr of a command that raises ``error``, or returns ``value``."""

    @click.command()
    def fails():
        if error is not None:
            raise error
        return value

    monkeypatch.setattr(commands.cli, "commands", {"fails": fails})
    with pytest.raises(SystemExit) as caught:
        commands.main([*args, "fails"])
    out = capsys.readouterr()
    return caught.value.code, out.out, out.err


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (UserError("no such run"), 2, "accelprof: no such run\n"),
        (ConfigError(Problem("steps", "not a number", value="x")), 2, "steps"),
        (IncompleteError("rank 3 left nothing"), 1, "accelprof: rank 3 left nothing\n"),
        (ValueError("ours"), 1, "accelprof: internal error: ValueError: ours (--debug shows where)\n"),
        (click.Abort(), 130, "aborted\n"),
        (click.UsageError("bad option"), 2, "bad option"),
    ],
)
def test_the_status_says_whose_mistake_it_is(monkeypatch, capsys, error, status, text):
    """2 is the user's mistake, 1 ours or something that was not delivered; the reason is on stderr, stdout stays clean."""
    code, out, err = ended(monkeypatch, capsys, error)
    assert (code, out) == (status, "")
    assert text in err
    assert "Traceback" not in err


@pytest.mark.parametrize(("value", "status"), [(None, 0), (3, 3), ("text", 0)])
def test_a_command_that_ends_in_order_says_its_own_status(monkeypatch, capsys, value, status):
    """What a command returns is the status where it is a number (``accelprof run`` hands on that of its program)."""
    assert ended(monkeypatch, capsys, None, value=value) == (status, "", "")


@pytest.mark.parametrize("error", [UserError("no such run"), ValueError("ours")])
def test_debug_shows_where(monkeypatch, error):
    """With --debug the exception itself comes out, for its traceback."""

    @click.command()
    def fails():
        raise error

    monkeypatch.setattr(commands.cli, "commands", {"fails": fails})
    with pytest.raises(type(error)):
        commands.main(["--debug", "fails"])


def test_every_command_is_there_and_says_what_it_is_for():
    """Every name that is listed has a command, and each is explained in its own help and in the list."""
    listed = CliRunner().invoke(commands.cli, ["--help"])
    assert listed.exit_code == 0
    for name in commands.COMMANDS:
        command = commands.command_of(name)
        assert command is not None
        assert command.help
        assert f"\n  {name} " in listed.output
        shown = CliRunner().invoke(commands.cli, [name, "--help"])
        assert shown.exit_code == 0
        assert shown.output.startswith(f"Usage: cli {name}")


def test_a_command_that_is_misspelt_is_answered_with_the_near_one():
    """An unknown command names the one that was meant, and ends with the user's status."""
    done = CliRunner().invoke(commands.cli, ["raport"])
    assert done.exit_code == 2
    assert "report" in done.output


def test_plug_ins_bring_commands():
    """``accelprof_cli`` may add commands; they are listed and run like those that are built in, and a built-in name stays ours."""

    class Brings:
        @hookimpl
        def accelprof_cli(self, group):
            group.add_command(click.Command("extra", callback=lambda: click.echo("extra ran"), help="More."))
            group.add_command(click.Command("report", callback=lambda: click.echo("taken over")))

    accelprof.register(Brings(), "brings commands")
    try:
        made = commands.Commands("cli")
        assert made.list_commands(click.Context(made)).count("report") == 1
        assert CliRunner().invoke(made, ["extra"]).output == "extra ran\n"
        assert "taken over" not in CliRunner().invoke(made, ["report", "--help"]).output
    finally:
        accelprof.reset()
