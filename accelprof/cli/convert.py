"""``accelprof config convert FILE -o OUT``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from accelprof.cli.lines import say
from accelprof.errors import UserError


def for_release(catalogue: Any, file: str, overrides: tuple[str, ...], release: str | None) -> tuple[str, ...]:
    """``overrides`` with the release of verl that was asked for.

    Raises:
        UserError: FILE is not one of verl's, or of a generation that has no such key.
    """
    if release is None:
        return overrides
    loaded = catalogue.load(file, overrides)
    if loaded.dialect != "verl" or loaded.generation in ("a", "b"):
        what = f"generation {loaded.generation} of verl" if loaded.dialect == "verl" else f"{loaded.dialect} dialect"
        raise UserError(f"--verl {release}: {file} is {what}; releases are told apart from verl 0.6 on")
    from accelprof.config.dialects.verl_releases import SETTING

    return (*overrides, f"++{SETTING}='{release}'")


@click.command()
@click.argument("file", type=click.Path())
@click.argument("overrides", nargs=-1)
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Where to write; standard output without it.")
@click.option("--force", is_flag=True, help="Overwrite OUTPUT.")
@click.option(
    "--rollout-ranks",
    type=click.Choice(["auto", "global", "replica"]),
    default="auto",
    show_default=True,
    help="verl: how the ranks of an agent-loop rollout are meant.",
)
@click.option("--verl", "release", metavar="RELEASE", help="verl: the release whose meaning is wanted (0.9.0).")
def convert(
    file: str, overrides: tuple[str, ...], output: str | None, force: bool, rollout_ranks: str, release: str | None
) -> None:
    """Write FILE (any dialect, with Hydra-style overrides) in accelprof's own, naming each source key; say what changed."""
    from accelprof.catalogue import get_catalogue
    from accelprof.config.convert import to_yaml
    from accelprof.config.dialects import VerlDialect
    from accelprof.config.load import load_config

    dialects = [
        VerlDialect(rollout_ranks) if isinstance(dialect, VerlDialect) else dialect
        for dialect in get_catalogue().dialects()
    ]
    loaded = load_config(file, for_release(get_catalogue(), file, overrides, release), dialects=dialects)
    text = to_yaml(loaded)
    if output is None:
        click.echo(text, nl=False)
    else:
        path = Path(output)
        if path.exists() and not force:
            raise UserError(f"{output} is there already; --force overwrites it")
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UserError(f"{output} cannot be written: {error}") from None
        click.echo(f"{output}: written ({loaded.dialect} dialect of {file})", err=True)
    for note in loaded.notes:
        say(f"{note.kind}: {note.path}: {note.text}", err=True)
