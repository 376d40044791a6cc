"""``accelprof plugins``: what is registered, what is broken, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from accelprof import texts
from accelprof.contracts.answers import probe_of
from accelprof.errors import failures, text_of


def rows() -> dict[str, Any]:
    """Everything the catalogue knows, as plain data."""
    from accelprof.catalogue import get_catalogue

    catalogue = get_catalogue()
    probes = dict(catalogue.probes())
    tools: dict[str, Any] = {}
    for name in catalogue.tool_names():
        cls = catalogue.tool_class(name)
        try:
            probe = probe_of(cls())
        except failures() as error:  # the reason is what this command is for
            tools[name] = {
                "available": False,
                "reason": text_of(error),
                "aliases": list(cls.aliases),
            }
            continue
        tools[name] = {"available": probe.available, "reason": probe.reason, "aliases": list(cls.aliases)}
    return {
        "plugins": [
            {
                "name": plugin.name,
                "distribution": plugin.distribution,
                **dict(zip(("backends", "tools"), catalogue.brought_by(plugin.name), strict=True)),
            }
            for plugin in catalogue.plugins.values()
        ],
        "backends": {
            name: {
                "available": probe.available,
                "priority": probe.priority,
                "reason": probe.reason,
                "aliases": list(catalogue.backend_class(name).aliases),
            }
            for name, probe in probes.items()
        },
        "tools": tools,
        "broken": [
            {"name": item.name, "distribution": item.distribution, "reason": item.reason} for item in catalogue.broken
        ],
    }


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@click.pass_context
def plugins(ctx: click.Context, as_json: bool) -> None:
    """List plug-ins, backends and tools, with the reason where one cannot be used."""
    if ctx.invoked_subcommand is None:
        _list(as_json)


@plugins.command()
@click.argument("name")
@click.option(
    "--directory",
    default=".",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the new directory goes.",
)
def new(name: str, directory: Path) -> None:
    """Write a plug-in called NAME: backend, tool, reader, and their tests, which pass as they are."""
    from accelprof.catalogue import get_catalogue
    from accelprof.cli.skeleton import write

    catalogue = get_catalogue()
    place = write(name, directory, (*catalogue.plugins, *catalogue.backend_names(), *catalogue.tool_names()))
    click.echo(f"{place}: pip install -e '{place}[test]' && pytest {place}")


def _list(as_json: bool) -> None:
    data = rows()
    if as_json:
        click.echo(texts.dumps(data, indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(title="plug-ins", title_justify="left")
    for column in ("name", "distribution", "backends", "tools"):
        table.add_column(column)
    for plugin in data["plugins"]:
        table.add_row(plugin["name"], plugin["distribution"], ", ".join(plugin["backends"]), ", ".join(plugin["tools"]))
    console.print(table)
    for kind in ("backends", "tools"):
        table = Table(title=kind, title_justify="left")
        for column in ("name", "aliases", "available", "reason"):
            table.add_column(column, overflow="fold")
        for name, row in data[kind].items():
            table.add_row(name, ", ".join(row["aliases"]), "yes" if row["available"] else "no", row["reason"])
        console.print(table)
    if data["broken"]:
        table = Table(title="broken", title_justify="left", style="red")
        for column in ("name", "distribution", "reason"):
            table.add_column(column, overflow="fold")
        for item in data["broken"]:
            table.add_row(item["name"], item["distribution"], item["reason"])
        console.print(table)
