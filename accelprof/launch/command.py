"""Command lines as lists: options made canonical, merged, rendered; quoting happens once, in :func:`to_shell`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from accelprof.errors import Problem
from accelprof.targets import TARGET_ENV, WRAPPED_ENV, Launch

__all__ = [
    "TARGET_ENV",
    "WRAPPED_ENV",
    "assemble",
    "canonical",
    "check_known",
    "merge",
    "program",
    "render",
    "render_value",
    "split_command",
    "to_shell",
    "wrapped_by",
]

_MKDIR_THEN_EXEC = (
    'n=$1; shift; while [ "$n" -gt 0 ]; do mkdir -p -- "$1" || exit 73; shift; n=$((n-1)); done; exec "$@"'
)


def canonical(options: Mapping[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    """Options under one spelling: leading dashes dropped, ``_`` turned to ``-``, ``aliases`` (``t`` -> ``trace``) applied.

    Raises:
        ValueError: the same option is given twice with different values (``o`` and ``output``).
    """
    result: dict[str, Any] = {}
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


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Later layers win; a ``None`` takes an option away that an earlier layer set."""
    merged: dict[str, Any] = {}
    for layer in layers:
        merged.update(layer)
    return {key: value for key, value in merged.items() if value is not None}


def render_value(value: Any) -> str:
    """``true``/``false`` for booleans, a comma list for sequences, text otherwise."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple, set, frozenset)):
        return ",".join(render_value(item) for item in value)
    return str(value)


def render(options: Mapping[str, Any], flags: Iterable[str] = ()) -> list[str]:
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
    """Base name of the first program that is not ``env``, its assignments, or our own directory-making shell."""
    rest = list(argv)
    while rest:
        head = os.path.basename(rest[0])
        if head == "env":
            rest = rest[1:]
            while rest and ("=" in rest[0] or rest[0].startswith("-")):
                rest = rest[1:]
        elif head == "sh" and len(rest) > 4 and rest[2] == _MKDIR_THEN_EXEC:
            rest = rest[5 + int(rest[4]) :]
        else:
            return head
    return ""


def wrapped_by(argv: Sequence[str], programs: Iterable[str]) -> str | None:
    """Name of the profiler launcher that ``argv`` starts with already, or ``None``."""
    name = program(argv)
    return name if name in set(programs) else None


def assemble(launch: Launch, interpreter: Sequence[str]) -> list[str]:
    """The argv that stands in the interpreter's place: launcher, directories made on the node that runs it, interpreter.

    Idempotent: an ``interpreter`` that starts with this launcher's program is returned as it is (wrapping twice would
    run the tool under itself).
    """
    if launch.mode in ("none", "env"):
        argv = list(interpreter)
    elif wrapped_by(interpreter, [program(launch.argv)]):
        return list(interpreter)
    elif launch.mode == "prefix":
        argv = [*launch.argv, *interpreter]
    elif launch.mode == "replace":
        argv = list(launch.argv)
    else:
        raise ValueError(f"launch mode {launch.mode!r} is unknown; allowed: none, env, prefix, replace")
    if launch.make_dirs:
        argv = ["/bin/sh", "-c", _MKDIR_THEN_EXEC, "sh", str(len(launch.make_dirs)), *launch.make_dirs, *argv]
    return argv


def check_known(path: str, given: Iterable[str], known: Iterable[str], tool: str) -> list[Problem]:
    """One problem per option that ``tool`` does not have, with the nearest that it has."""
    from accelprof.errors import nearest

    known = sorted(set(known))
    return [
        Problem(f"{path}.{name}", f"{tool} has no option {name!r}", mend=nearest(name, known) or f"see {tool} --help")
        for name in given
        if name not in known
    ]
