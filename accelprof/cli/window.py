"""``accelprof window open | close | status | dump``: a window on a live job that was not planned, or its last steps."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import click

from accelprof import texts
from accelprof.cli.lines import say
from accelprof.cli.values import Number
from accelprof.errors import IncompleteError
from accelprof.output.requests import Answer, State, ask, status
from accelprof.threads import on_main

_run = click.option("--run", "run_dir", required=True, type=click.Path(), help="Directory of the live run.")
_json = click.option("--json", "as_json", is_flag=True, help="For machines.")


def _choosers(command: Any) -> Any:
    for option in (
        click.option("--group", help="Only workers of this group (patterns work)."),
        click.option("--role", help="Only workers with this role."),
        click.option("--rank", help="Only these ranks: 0, 0-3, or all."),
        click.option(
            "--timeout",
            type=Number(min=0),
            default=10.0,
            show_default=True,
            help="Seconds to wait for answers.",
        ),
    ):
        command = option(command)
    return command


@click.group()
def window() -> None:
    """Open, close and look at windows on a live job.

    Only workers that the run's configuration selects take part, and only with tools that take windows which were not
    planned: one whose number was fixed at launch says no, by name.
    """


@window.command("open")
@_run
@_choosers
@click.option(
    "--seconds",
    type=Number(min=0, min_open=True),
    default=None,
    help="Close after this time if nobody closed it before, instead of on_demand.seconds of the run's configuration.",
)
@_json
def open_window(
    run_dir: str,
    group: str | None,
    role: str | None,
    rank: str | None,
    timeout: float,
    seconds: float | None,
    as_json: bool,
) -> None:
    """Open a window now. Status 1 when a worker that was asked did not open one.

    A worker of this host that does not answer, as its interpreter is held, is recorded all the same where its tool can
    do that from outside (torch_daemon); the command waits for the files then and names them.
    """
    with _ended_in_order():
        answers = ask(run_dir, "open", group=group, role=role, rank=rank, seconds=seconds, timeout=timeout)
    _show(answers, as_json)
    _complete(answers, {"open", "armed", "recorded"})


@window.command("close")
@_run
@_choosers
@_json
def close_window(
    run_dir: str, group: str | None, role: str | None, rank: str | None, timeout: float, as_json: bool
) -> None:
    """Close windows that were opened on demand; planned ones close as planned."""
    answers = ask(run_dir, "close", group=group, role=role, rank=rank, timeout=timeout)
    _show(answers, as_json)
    _complete(answers, {"listening", "ended"})


@window.command("status")
@_run
@_json
def show_status(run_dir: str, as_json: bool) -> None:
    """Who listens, and what each said last."""
    _show(status(run_dir), as_json)


@contextlib.contextmanager
def _ended_in_order() -> Iterator[None]:
    """SIGTERM ends what is inside as Ctrl-C does: what lies in the run's directory for others is taken back."""
    if not on_main():
        yield
        return
    previous = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _show(answers: Sequence[Answer], as_json: bool) -> None:
    if as_json:
        click.echo(texts.dumps([asdict(answer) for answer in answers], indent=1))
        return
    for answer in answers:
        text = f": {answer.text}" if answer.text else ""
        say(f"{answer.label} ({answer.host}, pid {answer.pid}) {answer.state}{text}")


def _complete(answers: Sequence[Answer], wanted: set[State]) -> None:
    if not answers:
        raise IncompleteError("no selected worker fits --group, --role and --rank")
    wrong = [answer for answer in answers if answer.state not in wanted]
    if wrong:
        raise IncompleteError("; ".join(f"{a.label} {a.state}: {a.text}" for a in wrong))


@window.command("dump")
@_run
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=None,
    help="Last steps of workers that are gone, instead of recorder.steps of their configuration.",
)
@click.option("--timeout", type=Number(min=0), default=5.0, show_default=True, help="Seconds to wait for live workers.")
def dump(run_dir: str, steps: int | None, timeout: float) -> None:
    """Write out the flight recorder of every worker, also of those that are gone.

    Prints the dump's directory, which report and timeline read. Status 1 when no worker of the run left anything.
    """
    from accelprof.output import dumps

    name = dumps.ask(run_dir, timeout, steps, functools.partial(say, err=True))
    directory = os.path.join(run_dir, dumps.PLACE, name)
    workers = dumps.parts(run_dir, name)
    click.echo(f"{directory}: {len(workers)} worker{'s' if len(workers) != 1 else ''}")
    if not workers:
        raise IncompleteError(
            f"no worker of {run_dir} left a flight recorder's file (is recorder: {{}} in its configuration?)"
        )
