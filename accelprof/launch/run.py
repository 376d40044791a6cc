"""The engine of ``accelprof run``: one command under the plan, then one manifest of what its processes left."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

from accelprof.analysis import draw
from accelprof.catalogue import Catalogue
from accelprof.config.model import Config
from accelprof.contracts.names import MANIFEST
from accelprof.contracts.targets import CONFIG_NAME, DRIVER_GROUP, RUN_ENV, Assignment, CaptureCount, Launch, Target
from accelprof.environment import join_env
from accelprof.errors import ConfigError, Problem, UnavailableError, UserError, shown
from accelprof.exporters.host import afterwards, start_exporters
from accelprof.launch.command import assemble, program, to_shell, wrapped_by
from accelprof.launch.compose import compose
from accelprof.launch.devices import as_seen_here
from accelprof.launch.trial import trial
from accelprof.output.delivery import EndedRun, add_said, deliver
from accelprof.output.expected import Expected
from accelprof.output.layout import Layout, claim_run, impossible
from accelprof.output.nodes import ThisHost
from accelprof.output.presence import at_work
from accelprof.output.records import Manifest
from accelprof.output.verdict import exit_status
from accelprof.planning.plan import Plan
from accelprof.session.identity import host_name
from accelprof.threads import on_main

NO_SESSION = (
    "no selected process of the command made a session (accelprof.configure, or a Controller), so nothing was recorded"
)
FORWARDED = ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2")
PREFLIGHT_TIMEOUT_S = 90.0
_PYTHON = re.compile(r"^(python|pypy)[\d.]*$")
#: Python's own options that take a value in the next word
_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})


@dataclass
class Outcome:
    """How a command went.

    Attributes:
        status: the command's own exit status (128 + n for signal n).
        run_dir: ``None`` when the configuration records nothing.
        manifest: as written; empty when there is no ``run_dir``.
        exit_code: what ``accelprof run`` ends with: ``status``, or 1 when the command succeeded and something is missing.
    """

    status: int
    run_dir: str | None = None
    manifest: Manifest = field(default_factory=Manifest)

    @property
    def undelivered(self) -> list[str]:
        return self.manifest.undelivered

    @property
    def exit_code(self) -> int:
        return self.status or exit_status(self.manifest.lacks)


def run(
    catalogue: Catalogue,
    config: Config,
    plan: Plan,
    command: Sequence[str],
    say: Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Run ``command`` (``python train.py``, ``torchrun …``) under the plan and write the manifest when it has ended.

    ``say`` gets what the user should know before the start, one line each.

    Raises:
        UserError: there is no command, or it is not there.
        ConfigError: the plan wants more than one launcher around the command, or one that cannot take it.
            Or the run directory cannot be made.
        UnavailableError: the launcher does not start here.
    """
    if not config.enabled or not command:
        return Outcome(start(command, os.environ))
    found = launcher_of(catalogue, plan)  # refused before anything is made
    catalogue.event("accelprof_plan_ready", plan=plan)
    try:
        run_dir = claim_run(config.output_dir, config.run, secrets.token_hex(8), os.uname().nodename)
    except (OSError, ConfigError) as error:
        reason = impossible(config.output_dir) or str(error)
        raise ConfigError(
            Problem(
                "output_dir", f"it cannot be made: {reason}", value=config.output_dir, mend="name another directory"
            )
        ) from None
    with open(os.path.join(run_dir, CONFIG_NAME), "w", encoding="utf-8") as file:
        json.dump(config.model_dump(mode="json", exclude_unset=True), file, indent=1)
    argv, env = list(command), dict(os.environ)
    assignment, launch = None, Launch()
    if found is not None:
        assignment, launch, argv = _wrap(catalogue, plan, *found, command, run_dir, say)
        env = join_env(env, launch.env)
    env[RUN_ENV] = run_dir
    status = _call(argv, env)
    return Outcome(status, run_dir, _finish(catalogue, config, plan, run_dir, assignment, launch.notes))


def launcher_of(catalogue: Catalogue, plan: Plan) -> tuple[Assignment, bool] | None:
    """The assignment whose tool must start the command, and whether several selected processes share it; or ``None``.

    All processes of a command share one launcher. With ranks chosen among several the launcher surrounds all of them, and
    only the chosen ones open windows. How many captures a shared launcher will see nobody knows beforehand.
    Where ``controller`` names a tool for the driver, the command is that driver, and its workers are started by its controller.
    Where rules choose by node, this host is the node of all of them; for nodes that are numbers, which a process is told when it
    starts, the command is wrapped.

    Raises:
        ConfigError: the rules want different ones.
    """
    own = plan.config.controller
    driver = plan.driver() if own is not None and own.tool else None
    rows = [
        as_seen_here(catalogue, row, plan.uses_of(row))
        for row in ([driver] if driver is not None else plan.preview(node=host_name()))
        if row.selected
    ]
    wanted = [row for row in rows if compose(catalogue, plan.uses_of(row), row, ".").mode != "none"]
    uses = {(row.tool, json.dumps(dict(row.options), sort_keys=True, default=str)) for row in wanted}
    if len(uses) > 1:
        raise ConfigError(
            Problem(
                "groups",
                "one command has one launcher, and the rules want several",
                value=[f"{row.target.label}: {row.tool}" for row in wanted],
                mend="start the groups with commands of their own, or through the controller of accelprof.cluster",
            )
        )
    if not wanted:
        return None
    first = wanted[0]
    if len(wanted) == 1 and not _selects_more(plan, first.target):
        return first, False
    return replace(first, target=replace(first.target, rank=None), count=CaptureCount(None)), True


def _selects_more(plan: Plan, target: Target) -> bool:
    """Whether the rules also take a rank that they do not name (``ranks: all``)."""
    return target.group != DRIVER_GROUP and plan.assign(replace(target, rank=(target.rank or 0) + 1)).selected


def _wrap(
    catalogue: Catalogue,
    plan: Plan,
    assignment: Assignment,
    shared: bool,
    command: Sequence[str],
    run_dir: str,
    say: Callable[[str], None],
) -> tuple[Assignment, Launch, list[str]]:
    """The launch and the whole command line."""
    python, rest = split_python(command)
    assignment = replace(assignment, target=replace(assignment.target, interpreter=tuple(python)))
    launch = compose(
        catalogue, plan.uses_of(assignment), assignment, Layout(run_dir).target_dir(assignment.target), shared
    )
    for note in launch.notes:
        say(note)
    if launch.mode in ("prefix", "replace") and wrapped_by(command, [program(launch.argv)]):
        say(f"the command starts with {program(launch.argv)} already and is left as it is; its options are yours")
        return assignment, Launch(), list(command)
    if launch.mode == "replace" and (not python or not rest or rest[0].startswith("-")):
        raise ConfigError(
            Problem(
                "tool",
                f"{assignment.tool} starts a Python script itself, and this command is not one",
                value=to_shell(command),
                allowed="python [options] script.py …",
                mend="give the script's path",
            )
        )
    if launch.preflight:
        works, why = trial(launch.preflight, launch.env, PREFLIGHT_TIMEOUT_S)
        if not works:
            raise UnavailableError(f"{assignment.tool} does not start ({to_shell(launch.preflight)}): {why}")
    for directory in launch.make_dirs:
        os.makedirs(directory, exist_ok=True)
    bare = replace(launch, make_dirs=())
    argv = [*assemble(bare, python), *rest] if launch.mode == "replace" else assemble(bare, command)
    return assignment, launch, argv


def split_python(command: Sequence[str]) -> tuple[list[str], list[str]]:
    """``python -u train.py x`` -> (``python -u``, ``train.py x``); no interpreter where the command is something else.

    What follows the interpreter begins with ``-m`` or ``-c`` where no script is named.
    """
    if not _PYTHON.match(os.path.basename(command[0])):
        return [], list(command)
    at = 1
    while at < len(command) and command[at].startswith("-") and command[at] not in ("-m", "-c", "-"):
        at += 2 if command[at] in _WITH_VALUE else 1
    return list(command[:at]), list(command[at:])


# --- the process ----------------------------------------------------------------------------------------------------------


def start(command: Sequence[str], env: Mapping[str, str]) -> int:
    """Run a command as it is, without a plan of ours; its exit status.

    Raises:
        UserError: there is no command, or it is not there.
    """
    if not command:
        raise UserError(
            "run: no command; it stands after --, for instance: accelprof run -c profile.yaml -- python train.py"
        )
    return _call(command, env)


def _call(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Run to the end, with our signals handed on; the exit status as a shell would say it."""
    try:
        process = subprocess.Popen(list(argv), env=dict(env))
    except FileNotFoundError:
        raise UserError(f"run: {argv[0]}: no such program") from None
    except (OSError, ValueError) as error:  # a ValueError: a null byte in an argument or variable
        raise UserError(f"run: {shown(argv[0])}: {getattr(error, 'strerror', None) or error}") from None

    def hand_on(signum: int, frame: FrameType | None) -> None:
        # a terminal sends its interrupts to the whole foreground group, the command included
        if not (signum in (signal.SIGINT, signal.SIGQUIT) and sys.stdin is not None and sys.stdin.isatty()):
            process.send_signal(signum)

    before: dict[int, Any] = {}
    if on_main():
        for name in FORWARDED:
            number = getattr(signal, name)
            before[number] = signal.signal(number, hand_on)
    try:
        status = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 - status if status < 0 else status


# --- afterwards -----------------------------------------------------------------------------------------------------------


def _finish(
    catalogue: Catalogue,
    config: Config,
    plan: Plan,
    run_dir: str,
    assignment: Assignment | None,
    notes: Sequence[str],
) -> Manifest:
    """The manifest: the controller's where the command had one, with the launcher's reports added; else of all journals."""
    facts = EndedRun(run_dir, catalogue, config, plan, draw, notes=list(notes), groups=(), says=False, earlier=True)
    controlled = os.path.exists(
        os.path.join(run_dir, MANIFEST)
    )  # a controller of the command has exported its steps itself
    exporters = (
        None if controlled else start_exporters(catalogue.make_exporters(config), config, run_dir, facts.voice.say)
    )
    if not controlled:  # what goes on behind the command
        facts.running = lambda found: at_work(run_dir, found.targets)
    if any(row.selected for row in plan.preview(node=host_name())):
        facts.nobody = NO_SESSION
    if assignment is not None:
        facts.expected = [Expected(assignment, None, host=os.uname().nodename, ended=True)]
        facts.again = assignment.tool
    manifest = deliver(facts, ThisHost())
    if exporters is not None:
        afterwards(exporters, manifest.steps(), manifest.to_json(), run_dir)
        add_said(facts, manifest)
    return manifest
