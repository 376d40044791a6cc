"""``accelprof config check | show | convert``: what a file means, before anything runs."""

from __future__ import annotations

from typing import Any

import click

from accelprof import texts
from accelprof.analysis.escape import terminal
from accelprof.cli.convert import convert, for_release
from accelprof.cli.lines import plain, say
from accelprof.errors import ConfigError, Problem, UserError
from accelprof.planning.names import nothing_profiled


@click.group()
def config() -> None:
    """Check, show and convert profiling configurations of any dialect."""


VERL = click.option(
    "--verl",
    "release",
    metavar="RELEASE",
    help="verl: the release whose meaning is wanted, where a file does not tell (0.9.0).",
)


def _load(file: str, overrides: tuple[str, ...], release: str | None = None) -> tuple[Any, Any, Any]:
    from accelprof.catalogue import get_catalogue

    catalogue = get_catalogue()
    loaded = catalogue.load(file, for_release(catalogue, file, overrides, release))
    return catalogue, loaded, catalogue.plan(loaded.config)


def _worlds(values: tuple[str, ...]) -> dict[str, int]:
    worlds = {}
    for value in values:
        group, equals, size = value.partition("=")
        if not equals or not size.isdecimal() or int(size) < 1:
            raise UserError(f"--world {value}: not of the form GROUP=SIZE, for instance --world ActorGroup=8")
        worlds[group] = int(size)
    return worlds


@config.command()
@click.argument("file", type=click.Path())
@click.argument("overrides", nargs=-1)
@VERL
def check(file: str, overrides: tuple[str, ...], release: str | None) -> None:
    """Validate FILE (any dialect) with Hydra-style overrides; status 2 and a list of what is wrong otherwise."""
    from accelprof.launch.preview import start_of_driver

    catalogue, loaded, plan = _load(file, overrides, release)
    _refuse_output(loaded.config)
    say(f"{file}: right ({_dialect(loaded)})")
    for note in loaded.notes:
        if note.kind != "off":
            say(f"  note: {note}")
    silent = nothing_profiled(plan, loaded.notes)
    for row in plan.preview():
        for text in row.notes if loaded.config.enabled else ():
            say(f"  note: {row.target.label}: {text}")
    driver = start_of_driver(catalogue, plan)
    if driver:
        say(f"  note: controller: {driver}")
    if silent:
        say(f"  note: nothing to profile in this file: {silent}")


def _dialect(loaded: Any) -> str:
    return f"{loaded.dialect} dialect{f', generation {loaded.generation}' if loaded.generation else ''}"


def _refuse_output(config: Any) -> None:
    from accelprof.output.layout import impossible

    reason = impossible(config.output_dir)
    if reason:
        said, mend = f"it cannot be made: {reason}", "name another directory"
        raise ConfigError(Problem("output_dir", said, value=config.output_dir, mend=mend))


@config.command()
@click.argument("file", type=click.Path())
@click.argument("overrides", nargs=-1)
@click.option(
    "--world", "worlds", multiple=True, metavar="GROUP=SIZE", help="Number of ranks of a group, to list them all."
)
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@VERL
def show(file: str, overrides: tuple[str, ...], worlds: tuple[str, ...], as_json: bool, release: str | None) -> None:
    """Show the plan: per group and rank the tool, its windows, the number of captures, and how the worker will start."""
    from accelprof.launch.preview import preview

    catalogue, loaded, plan = _load(file, overrides, release)
    rows = preview(catalogue, plan, _worlds(worlds))
    engines = _engines(loaded.config)
    sizes = _sizes(loaded.config, plan, _worlds(worlds))
    for row, size in zip(rows, sizes, strict=True):
        row["expected_size"] = size
    notes = [str(note) for note in loaded.notes if note.kind != "off"]
    silent = nothing_profiled(plan, loaded.notes)
    if as_json:
        data = {
            "dialect": loaded.dialect,
            "generation": loaded.generation,
            "notes": notes,
            "nothing_to_profile": silent,
        }
        click.echo(texts.dumps({**data, "targets": rows, "engines": engines}, indent=1, default=str))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()

    def row_of(*cells: str, style: str = "") -> None:
        table.add_row(*(Text(terminal(cell)) for cell in cells), style=style)

    def line(text: str, **options: Any) -> None:
        console.print(plain(text), highlight=False, markup=False, **options)

    console.print(f"{file}: {_dialect(loaded)}", highlight=False)
    if silent:
        line(f"nothing to profile in this file: {silent}")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    longest = max((len(name) for row in rows for name in (f"{row['tool']},", *row["also"], "timeline")), default=0)
    for column in ("group", "role", "rank", "tool", "windows (steps)", "captures", "starts as"):
        least = longest if column == "tool" else None  # a tool's name is not broken
        table.add_column(column, overflow="fold", no_wrap=column in ("group", "rank", "captures"), min_width=least)
    for row in rows:
        if not row["selected"]:
            row_of(row["group"], ", ".join(row["roles"]), _rank(row), "-", "not profiled", "0", "as ever", style="dim")
            continue
        tools = ", ".join([*filter(None, [row["tool"], *row["also"]]), *(["timeline"] if row["timeline"] else [])])
        what = (
            tools,
            row["windows_text"],
            row["captures_text"],
            f"under {row['tool']}" if row["command"] else "as ever",
        )
        row_of(row["group"], ", ".join(row["roles"]), _rank(row), *what)
    console.print(table)
    for row in rows:
        if row["command"]:
            line(f"{row['group']} rank {_rank(row)} starts as: {row['command']}", soft_wrap=True)
        else:
            for tool in row["tools"]:
                options = " ".join(f"{key}={_shown(value)}" for key, value in tool["options"].items())
                whose = f"{tool['tool']} of {row['group']} rank {_rank(row)}"
                line(f"{whose}: {options} directory={tool['directory']}", soft_wrap=True)
    for text in dict.fromkeys(f"expected size, {r['group']} rank {_rank(r)}: {r['expected_size']}" for r in rows):
        line(text)
    for row in rows:
        if row["env"]:
            env = " ".join(f"{key}={value}" for key, value in row["env"].items())
            line(f"env of {row['group']} rank {_rank(row)}: {env}", soft_wrap=True)
    if engines:
        from accelprof.engines.preview import text as lines_of

        for row in engines:
            for text in lines_of(row):
                line(text)
    said = [note for row in rows for note in row["notes"]] if loaded.config.enabled else []
    for text in dict.fromkeys([*notes, *said]):
        line(f"note: {text}")


def _shown(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _sizes(config: Any, plan: Any, worlds: dict[str, int]) -> list[str]:
    """Expected size of each row, from what earlier runs in the same directory left."""
    from accelprof.session.budget import expected_size, history

    known = history(config.output_dir)
    return [expected_size(assignment, known, config.budget) for assignment in plan.preview(worlds)]


def _engines(config: Any) -> list[dict[str, Any]]:
    if not config.engines:
        return []
    from accelprof.engines.preview import preview

    return preview(config)


def _rank(row: dict[str, Any]) -> str:
    rank = "?" if row["rank"] is None else str(row["rank"])
    where = [f"{key} {row[key]}" for key in ("replica", "node") if row[key] is not None]
    return f"{rank} ({', '.join(where)})" if where else rank


config.add_command(convert)
