"""Lines for people: names in them come from configurations, programs and files, and nothing of them acts on a terminal."""

from __future__ import annotations

import os
from typing import Any

import click

from accelprof.analysis.escape import terminal


def plain(text: str) -> str:
    """``text`` with its own ends of lines, and everything else that would act shown."""
    return "\n".join(terminal(line) for line in text.split("\n"))


def say(text: str, err: bool = False) -> None:
    """One or more lines to the terminal."""
    click.echo(plain(text), err=err)


class Source(click.Path):
    """A file or directory to read. A link that leads nowhere is one of the files too, which reading names beside the others."""

    def __init__(self) -> None:
        super().__init__(exists=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if os.path.islink(value) else super().convert(value, param, ctx)
