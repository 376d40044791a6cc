"""``accelprof plugins``: what is registered, what is broken, and why."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from accelprof import texts
from accelprof.contracts.answers import probe_of
from accelprof.contracts.backend import Probe
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
            probe = Probe(None, text_of(error))
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

    def show(title: str, columns: tuple[str, ...], lines: Iterable[tuple[str, ...]], **options: Any) -> None:
        table = Table(title=title, title_justify="left", **options)
        for column in columns:
            table.add_column(column, overflow="ellipsis" if title == "plug-ins" else "fold")
        for cells in lines:
            table.add_row(*cells)
        console.print(table)

    brought = ((p["name"], p["distribution"], ", ".join(p["backends"]), ", ".join(p["tools"])) for p in data["plugins"])
    show("plug-ins", ("name", "distribution", "backends", "tools"), brought)
    for kind in ("backends", "tools"):
        there = data[kind].items()
        lines = ((n, ", ".join(r["aliases"]), "yes" if r["available"] else "no", r["reason"]) for n, r in there)
        show(kind, ("name", "aliases", "available", "reason"), lines)
    if data["broken"]:
        columns = ("name", "distribution", "reason")
        show("broken", columns, (tuple(item[column] for column in columns) for item in data["broken"]), style="red")
