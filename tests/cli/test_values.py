"""Values on the command line, and lines on the terminal."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from accelprof.cli.lines import plain, say
from accelprof.cli.values import Number, Source


@click.command()
@click.option("--number", type=Number(min=0))
@click.argument("path", type=Source(), required=False)
def command(number: float | None, path: str | None) -> None:
    say(f"{number} {path}")


@pytest.mark.parametrize(("text", "status"), [("0", 0), ("2.5", 0), ("-1", 2), ("nan", 2), ("-nan", 2), ("NaN", 2), ("x", 2)])  # fmt: skip
def test_a_number_is_one_within_its_range(text: str, status: int) -> None:
    """What is no number passes no bound."""
    found = CliRunner().invoke(command, [f"--number={text}"])
    assert found.exit_code == status, found.output
    assert found.output == f"{float(text)} None\n" if status == 0 else "--number" in found.output


def test_a_link_that_leads_nowhere_is_a_source(tmp_path: Path) -> None:
    """Reading names it beside the others; a path where nothing is is refused."""
    os.symlink(tmp_path / "nowhere", tmp_path / "link")
    assert CliRunner().invoke(command, [str(tmp_path / "link")]).exit_code == 0
    assert CliRunner().invoke(command, [str(tmp_path)]).exit_code == 0
    assert CliRunner().invoke(command, [str(tmp_path / "nowhere")]).exit_code == 2


def test_nothing_in_a_line_acts_on_the_terminal() -> None:
    """Its own ends of lines stay; what would move, colour or ring is shown."""
    text = plain("one\x1b[31m\x07\rtwo\nthree\u202e")
    assert text.count("\n") == 1
    assert not any(letter in text for letter in "\x1b\x07\r\u202e")
    assert text.startswith("one")
    assert plain("plain é 漢\nlines") == "plain é 漢\nlines"
