"""Where AMD's tools are on this machine, which release they are of, and which options their help shows."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping

from accelprof_rocm import releases, vendor
from accelprof_rocm.children import leave_alone
from accelprof_rocm.releases import Release

HELP_TIMEOUT = 30.0
#: fewer options than this in a help text: it was not one
FEWEST = 5
#: settings of AMD's tools
SETTINGS = ("ROCPROFSYS_", "OMNITRACE_", "ROCPROF_")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_WORD = re.compile(r"(?<![\w-])(-{1,2}[A-Za-z][\w-]*)")
_VERSION_DIRECTORY = re.compile(r"rocm-(\d+\.\d+)")


def find(program: str) -> str | None:
    """Path of ``program``: from PATH, else below the ROCm installations, else beside this interpreter (AMD's wheels)."""
    found = shutil.which(program)
    if found or os.sep in program:
        return found
    for directory in [*(os.path.join(root, "bin") for root in vendor.roots()), os.path.dirname(sys.executable)]:
        path = shutil.which(program, path=directory)
        if path:
            return path
    return None


def command(program: str) -> str:
    """How to start ``program`` on a worker: its bare name where PATH has it, its own path where a bare name would fail.

    The Python launcher finds its package beside itself, so a symbolic link to it is followed here.
    """
    path = find(program)
    if path is None:
        return program
    if os.path.islink(path):
        return os.path.realpath(path)
    return program if shutil.which(program) else path


def release_of(path: str) -> Release | None:
    """The ROCm release that a tool belongs to, by the installation's own files; ``None`` when they do not say."""
    real = os.path.realpath(path)
    root = os.path.dirname(os.path.dirname(real))
    for name in (".info/version", ".info/version-rocm"):
        try:
            with open(os.path.join(root, name), encoding="ascii", errors="replace") as file:
                return releases.parse(file.readline())
        except (OSError, ValueError):
            continue
    match = _VERSION_DIRECTORY.search(real)
    return releases.parse(match[1]) if match else None


def options_of(path: str, env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Options in the tool's help: name without dashes -> its other spelling (or itself); empty when it gave no help.

    Cached by path, size and time of change.
    """
    try:
        facts = os.stat(path)
    except OSError:
        return {}
    return dict(_options(path, facts.st_mtime_ns, facts.st_size, tuple(sorted((env or {}).items()))))


def quiet() -> dict[str, str]:
    """This process's environment without AMD's tools: a help text must not be recorded, nor leave a file."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)}
    leave_alone(env)
    return env


@functools.lru_cache(maxsize=32)
def _options(path: str, changed: int, size: int, env: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    try:
        done = subprocess.run(
            [path, "--help"],
            env={**quiet(), **dict(env)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=HELP_TIMEOUT,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(parse_help(done.stdout).items()) if done.returncode == 0 else ()


def parse_help(text: str) -> dict[str, str]:
    """``{"output-format": "f", "f": "output-format", …}`` from rows that begin with an option."""
    found: dict[str, str] = {}
    for names in _rows(_ANSI.sub("", text)):
        bare = [name.lstrip("-") for name in names]
        longest = max(bare, key=len)
        for name in bare:
            found[name] = next((other for other in bare if other != name), name) if name == longest else longest
    return found if len(found) >= FEWEST else {}


def _rows(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        row = line.strip()
        if row.startswith("[") and row[1:2] == "-":
            row = row[1:]
        if row.startswith("-"):
            column = re.split(r"\s{2,}", row, maxsplit=1)[0]
            names = _WORD.findall(column)
            if names:
                yield names
