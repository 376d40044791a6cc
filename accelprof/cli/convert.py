"""``accelprof config convert FILE -o OUT``."""

from __future__ import annotations

from pathlib import Path

import click

from accelprof.errors import UserError


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
def convert(file: str, overrides: tuple[str, ...], output: str | None, force: bool, rollout_ranks: str) -> None:
    """Write FILE (any dialect, with Hydra-style overrides) in accelprof's own, naming each source key; say what changed."""
    from accelprof.catalogue import get_registry
    from accelprof.config.convert import to_yaml
    from accelprof.config.dialects import VerlDialect
    from accelprof.config.load import load_config

    dialects = [
        VerlDialect(rollout_ranks) if isinstance(dialect, VerlDialect) else dialect
        for dialect in get_registry().dialects()
    ]
    loaded = load_config(file, overrides, dialects=dialects)
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
        click.echo(f"{note.kind}: {note.path}: {note.text}", err=True)
