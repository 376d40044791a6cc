"""Lines for people: names in them come from configurations, programs and files, and nothing of them acts on a terminal."""

from __future__ import annotations

import click

from accelprof.analysis.escape import terminal


def plain(text: str) -> str:
    """``text`` with its own ends of lines, and everything else that would act shown."""
    return "\n".join(terminal(line) for line in text.split("\n"))


def say(text: str, err: bool = False) -> None:
    """One or more lines to the terminal."""
    click.echo(plain(text), err=err)
