"""``accelprof analyse`` and ``accelprof npu-compare``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

import click

from accelprof.errors import IncompleteError, ReadError, UnavailableError, UserError
from accelprof.output.manifest import resized
from accelprof_ascend import directory, vendor
from accelprof_ascend.analysing import MOST_PROCESSES, Analysis, Outcome, at_once


@click.command()
@click.argument("directories", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False))
@click.option(
    "--export", type=click.Choice(["db", "text", "both"]), help="What to write; default: what each profile asked for."
)
@click.option(
    "--processes",
    type=click.IntRange(1),
    help=f"Analyses at the same time; default: half the cores, at most {MOST_PROCESSES}.",
)
@click.option(
    "--timeout", type=click.FloatRange(1), default=3600.0, show_default=True, help="Seconds for one directory."
)
@click.option("--force", is_flag=True, help="Analyse again what is done already.")
def analyse(directories: Sequence[str], export: str | None, processes: int | None, timeout: float, force: bool) -> None:
    """Analyse the *_ascend_pt directories at or below DIRECTORIES, as torch_npu's own analyse() does, one process each.

    Needs torch_npu, and CANN's msprof for the device's data; no NPU. What is done already is skipped; what failed is named,
    with its reason, and makes the status 1.
    """
    reason = vendor.reason_not_loadable()
    if reason is not None:
        raise UnavailableError(f"analyse needs torch_npu: {reason}")
    found = list(dict.fromkeys(path for root in directories for path in directory.find(root)))
    if not found:
        raise UserError(f"no *{directory.SUFFIX} directory at or below {', '.join(directories)}")
    wanted = {
        path: ("db", "text") if export == "both" else (export,) if export else directory.recorded_exports(path)
        for path in found
    }
    stopped = {path for path in found if directory.info_path(path) is not None}
    broken = [
        Outcome(path, "profiler_info.json is missing: the process ended before its profile was stopped")
        for path in found
        if path not in stopped
    ]
    todo = [path for path in found if path in stopped and (force or not directory.analysed(path, wanted[path]))]
    limit = processes or at_once()
    outcomes = [*broken, *run_all([(path, wanted[path]) for path in todo], limit, timeout)]
    failed = [outcome for outcome in outcomes if not outcome.done]
    for outcome in outcomes:
        if outcome.done:
            try:
                resized(outcome.path)  # data_simplification takes data away that the results stand for
            except (OSError, ReadError) as error:
                click.echo(f"{outcome.path}: its new size is not in the run's manifest: {error}")
    done, skipped = len(outcomes) - len(failed), len(stopped) - len(todo)
    click.echo(f"{len(found)} directories: {done} analysed, {skipped} were done already, {len(failed)} failed")
    for outcome in failed:
        click.echo(f"failed: {outcome.path}: {outcome.reason}")
    if failed:
        raise IncompleteError(f"{len(failed)} of {len(found)} analyses failed")


def run_all(todo: Sequence[tuple[str, Sequence[str]]], limit: int, timeout: float) -> list[Outcome]:
    """Analyse ``(directory, export types)``, never more than ``limit`` at a time, with a progress bar on stderr."""
    if not todo:
        return []
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    outcomes: list[Outcome] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress, ThreadPoolExecutor(limit) as pool:
        bar = progress.add_task("analysing", total=len(todo))
        waiting: set[Future[Outcome]] = {pool.submit(_one, path, exports, timeout, limit) for path, exports in todo}
        while waiting:
            ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in ended:
                outcomes.append(future.result())
                progress.advance(bar)
    return sorted(outcomes, key=lambda outcome: outcome.path)


def _one(path: str, exports: Sequence[str], timeout: float, limit: int) -> Outcome:
    try:
        return Analysis(path, exports, most=limit).wait(timeout)
    except OSError as error:
        return Outcome(path, f"could not be started: {error}")


@click.command("npu-compare")
@click.argument("base", type=click.Path(exists=True))
@click.argument("new", type=click.Path(exists=True))
@click.option(
    "-o", "--output", type=click.Path(file_okay=False), help="Directory for the workbook; default: the current one."
)
@click.argument("more", nargs=-1, type=click.UNPROCESSED)
def npu_compare(base: str, new: str, output: str | None, more: Sequence[str]) -> None:
    """Compare NEW with BASE through msprof-analyze: *_ascend_pt directories, or a GPU's Chrome trace as BASE.

    A directory that holds one *_ascend_pt directory (a window's) stands for that one. MORE goes to `msprof-analyze compare` as it is (after --).
    """
    program = _msprof_analyze()
    base, new = _the_one(base), _the_one(new)
    target = os.path.abspath(output or ".")
    os.makedirs(target, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="accelprof-compare-", dir=target) as scratch:
        argv = [program, "compare", "-d", new, "-bp", base, "-o", scratch, *more]
        status = subprocess.run(argv, check=False).returncode
        sheets = [name for name in sorted(os.listdir(scratch)) if name.endswith(".xlsx")]
        for name in sheets:
            shutil.move(os.path.join(scratch, name), os.path.join(target, name))
    if status != 0 or not sheets:
        raise IncompleteError(
            f"msprof-analyze compare ended with status {status} and left {len(sheets)} workbooks; its own lines are above"
        )
    for name in sheets:
        click.echo(os.path.join(target, name))


def _the_one(path: str) -> str:
    """The ``*_ascend_pt`` directory that ``path`` is or holds; a file, or a directory without any, is left as it is.

    Raises:
        UserError: it holds several.
    """
    found = directory.find(path) if os.path.isdir(path) else []
    if len(found) > 1:
        names = ", ".join(os.path.relpath(one, path) for one in found[:5])
        raise UserError(
            f"npu-compare: {path} holds {len(found)} *{directory.SUFFIX} directories ({names}); name the one that is meant"
        )
    return found[0] if found else path


def _msprof_analyze() -> str:
    beside = os.path.join(os.path.dirname(sys.executable), "msprof-analyze")
    program = beside if os.path.exists(beside) else shutil.which("msprof-analyze")
    if program is None:
        raise UnavailableError("npu-compare needs msprof-analyze: pip install 'accelprof-ascend[compare]'")
    return program
