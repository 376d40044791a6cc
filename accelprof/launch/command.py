"""Command lines as lists: options made canonical, merged, rendered; quoting happens once, in :func:`to_shell`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from accelprof.contracts.targets import TARGET_ENV, UNSET_ENV, WRAPPED_ENV, Launch
from accelprof.contracts.words import LAUNCH_MODES

_MKDIR_THEN_EXEC = 'n=$1; shift; while [ "$n" -gt 0 ]; do mkdir -p -- "$1"; shift; n=$((n-1)); done; exec "$@"'
# Ray hands an actor's runtime_env down to the actors it creates, py_executable included. The first process that takes the
# claim (a file with its pid; exec keeps the pid) is started under the tool; whoever finds the holder alive starts plainly,
# and so does a worker whose directories cannot be made: it trains, and its session says that the tool is not there.
# Arguments: directories to make, claim, variables to unset, r(eplace) or p(refix), launcher, interpreter, the rest.
_GUARDED_EXEC = (
    'n=$1; shift; while [ "$n" -gt 0 ]; do mkdir -p -- "$1" || exit 73; shift; n=$((n-1)); done; '
    "c=$1.$(uname -n); u=$2; shift 2; plain=; "
    'if read -r p 2>/dev/null <"$c" && kill -0 "$p" 2>/dev/null; then plain=1; else echo $$ 2>/dev/null >"$c"; fi; '
    'while [ "$u" -gt 0 ]; do if [ "$plain" ]; then unset "$1"; fi; shift; u=$((u-1)); done; '
    "mode=$1; l=$2; i=$3; shift 3; "
    'if [ "$plain" ]; then while [ "$l" -gt 0 ]; do shift; l=$((l-1)); done; '
    'elif [ "$mode" = r ]; then t=$(($#-l-i)); '
    'while [ "$l" -gt 0 ]; do set -- "$@" "$1"; shift; l=$((l-1)); done; '
    'while [ "$i" -gt 0 ]; do shift; i=$((i-1)); done; '
    'while [ "$t" -gt 0 ]; do set -- "$@" "$1"; shift; t=$((t-1)); done; fi; '
    'exec "$@"'
)


def canonical(options: Mapping[str, object], aliases: Mapping[str, str]) -> dict[str, Any]:
    """Options under one spelling: leading dashes dropped, ``_`` turned to ``-``, ``aliases`` (``t`` -> ``trace``) applied.

    Raises:
        ValueError: the same option is given twice with different values (``o`` and ``output``).
    """
    result: dict[str, object] = {}
    first: dict[str, str] = {}
    for key, value in options.items():
        name = str(key).lstrip("-").replace("_", "-")
        name = aliases.get(name, name)
        if name in result and result[name] != value:
            raise ValueError(
                f"option {name!r} is given twice: {first[name]}={result[name]!r} and {key}={value!r}; keep one"
            )
        result[name], first[name] = value, str(key)
    return result


def merge(*layers: Mapping[str, object]) -> dict[str, object]:
    """Later layers win; a ``None`` takes an option away that an earlier layer set."""
    merged: dict[str, object] = {}
    for layer in layers:
        merged.update(layer)
    return {key: value for key, value in merged.items() if value is not None}


def render_value(value: object) -> str:
    """``true``/``false`` for booleans, a comma list for sequences, text otherwise."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple, set, frozenset)):
        return ",".join(render_value(item) for item in value)
    return str(value)


def render(options: Mapping[str, object], flags: Iterable[str] = ()) -> list[str]:
    """``{"t": "cuda"}`` -> ``-t cuda``; ``{"trace": "cuda"}`` -> ``--trace=cuda``; flags stand bare (``--python-backtrace``)."""
    argv: list[str] = []
    for key, value in options.items():
        if value is None:
            continue
        text = render_value(value)
        argv.extend([f"-{key}", text] if len(key) == 1 else [f"--{key}={text}"])
    for flag in flags:
        bare = flag.lstrip("-")
        argv.append(f"-{bare}" if len(bare) == 1 else f"--{bare}")
    return argv


def to_shell(argv: Sequence[str]) -> str:
    """One POSIX shell string that yields exactly ``argv`` again; ``$HOME``, ``%p``, quotes and spaces stay as they are."""
    return shlex.join(argv)


def split_command(command: str | Sequence[str] | None) -> list[str]:
    """A worker's interpreter as argv: ``"python3 -u"``, ``"uv run --with x python"``, a list, or the running Python."""
    if command is None or command == "" or command == ():
        return [sys.executable]
    if isinstance(command, str):
        return shlex.split(command)
    return list(command)


def program(argv: Sequence[str]) -> str:
    """Base name of the first program that is not ``env``, its assignments, or our own shell around a launcher."""
    rest = list(argv)
    while rest:
        head = os.path.basename(rest[0])
        if head == "env":
            rest = rest[1:]
            while rest and ("=" in rest[0] or rest[0].startswith("-")):
                rest = rest[1:]
        elif head == "sh" and len(rest) > 4 and rest[2] == _MKDIR_THEN_EXEC:
            rest = rest[5 + int(rest[4]) :]
        elif head == "sh" and len(rest) > 4 and rest[2] == _GUARDED_EXEC:
            rest = rest[5 + int(rest[4]) + 1 :]
            rest = rest[1 + int(rest[0]) + 3 :]
        else:
            return head
    return ""


def wrapped_by(argv: Sequence[str], programs: Iterable[str]) -> str | None:
    """Name of the profiler launcher that ``argv`` starts with already, or ``None``."""
    name = program(argv)
    return name if name in set(programs) else None


def assemble(launch: Launch, interpreter: Sequence[str], claim: str | None = None) -> list[str]:
    """The argv that stands in the interpreter's place: launcher, directories made on the node that runs it, interpreter.

    Idempotent: an ``interpreter`` that starts with this launcher's program is returned as it is (wrapping twice would
    run the tool under itself). With ``claim``, a path on that node, only one living process at a time is started
    under the tool; others that are started by the same command (children that inherit it) run the interpreter alone.
    """
    if launch.mode not in LAUNCH_MODES:
        raise ValueError(f"launch mode {launch.mode!r} is unknown; allowed: {', '.join(LAUNCH_MODES)}")
    bare = launch.mode in ("none", "env")
    if not bare and wrapped_by(interpreter, [program(launch.argv)]):
        return list(interpreter)
    launcher = [] if bare else list(launch.argv)
    if claim is not None and (not bare or launch.unset_in_children):
        unset = [*launch.unset_in_children, WRAPPED_ENV, TARGET_ENV, UNSET_ENV]
        head = ["/bin/sh", "-c", _GUARDED_EXEC, "sh", str(len(launch.make_dirs)), *launch.make_dirs, claim]
        sizes = ["r" if launch.mode == "replace" else "p", str(len(launcher)), str(len(interpreter))]
        return [*head, str(len(unset)), *unset, *sizes, *launcher, *interpreter]
    argv = launcher if launch.mode == "replace" else [*launcher, *interpreter]
    if launch.make_dirs:
        argv = ["/bin/sh", "-c", _MKDIR_THEN_EXEC, "sh", str(len(launch.make_dirs)), *launch.make_dirs, *argv]
    return argv
