"""Names of nsys's files: placeholders of ``-o``, and which file holds which window."""

from __future__ import annotations

import glob
import os
import re
import socket
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from accelprof.contracts.targets import ArtifactFile, WindowInfo
from accelprof.processes import ancestry
from accelprof_cuda.nsys_turns import PREFIX, captures_in

REPORT, RAW = ".nsys-rep", ".qdstrm"
_PLACEHOLDER = re.compile(r"%(q\{(?P<name>[^}]*)\}|[hp%])")
_FILE = re.compile(r"^(?P<base>.*?)(?:\.(?P<number>\d+))?\.(?:nsys-rep|qdstrm)$", re.DOTALL)
_PID = re.compile(r"-(\d+)$")


def expand(template: str, pid: int, env: Mapping[str, str]) -> str:
    """``-o`` as nsys expands it in the process ``pid``; an unset ``%q{NAME}`` stays literally, as with nsys."""

    def value(hit: re.Match[str]) -> str:
        if hit["name"] is not None:
            return env.get(hit["name"], hit[0])
        return {"h": socket.gethostname(), "p": str(pid), "%": "%"}[hit[1]]

    return _PLACEHOLDER.sub(value, template)


def pattern(template: str, suffix: str = REPORT) -> str:
    """A glob that fits every file of ``suffix`` that nsys may make of ``-o template``."""
    parts: list[str] = []
    at = 0
    for hit in _PLACEHOLDER.finditer(template):
        parts += [glob.escape(template[at : hit.start()]), "%" if hit[0] == "%%" else "*"]
        at = hit.end()
    parts += [glob.escape(template[at:]), "*"]
    return re.sub(r"\*\*+", "*", "".join(parts)) + suffix


def varies(template: str) -> bool:
    """Whether two processes get two names out of ``-o template``."""
    return any(hit[0] != "%%" for hit in _PLACEHOLDER.finditer(template))


def files_of(template: str, env: Mapping[str, str]) -> list[str]:
    """Files on disk that nsys made for this process. ``%p`` is the root of the process tree: ``uv run`` has a pid of its own."""
    found: list[str] = []
    for pid in ancestry():
        stem = expand(template, pid, env)
        found += [path for suffix in (REPORT, RAW) for path in glob.glob(glob.escape(stem) + suffix)]
        found += [path for suffix in (REPORT, RAW) for path in glob.glob(glob.escape(stem) + ".*" + suffix)]
    return sorted(set(found))


def match_files(files: Sequence[str], windows: Sequence[WindowInfo], tool: str) -> list[ArtifactFile]:
    """``name.N.nsys-rep`` is the Nth window of the process whose pid the name ends with; a lone capture has no number.

    Where that pid is a launcher's with several ranks below it, one capture records all of them: the Nth file holds the
    windows that the ranks noted down for it, or, where nobody did, those that they opened for the Nth stretch of the run.
    """
    by_pid: dict[str, list[WindowInfo]] = {}
    for window in sorted(windows, key=lambda item: item.sequence):
        by_pid.setdefault(_pid_of(window.stem), []).append(window)
    captures = {pid: [[window] for window in own] for pid, own in by_pid.items()}
    noted = _noted(files, windows)
    together = noted
    if not together:
        together = next(iter(captures.values())) if len(captures) == 1 else _together(by_pid.values())
    reports = {path for path in files if path.endswith(REPORT)}
    result = []
    for path in files:
        if path.endswith(RAW) and path[: -len(RAW)] + REPORT in reports:
            continue
        name = _FILE.match(os.path.basename(path))
        own = captures.get(_pid_of(name["base"]), together) if name else []
        index = int(name["number"]) - 1 if name and name["number"] else 0
        held = tuple(window.id for window in own[index]) if index < len(own) else ()
        result.append(_artifact(path, tool, held))
    return result + _never_written(files, noted, tool)


def _pid_of(stem: str) -> str:
    pid = _PID.search(stem)
    return pid[1] if pid else ""


def stretch_of(window: WindowInfo) -> tuple[tuple[int, ...], str, str]:
    """What a window is for: windows of several ranks with the same answer belong together."""
    return window.steps, window.kind, window.phase or ""


def _noted(files: Sequence[str], windows: Sequence[WindowInfo]) -> list[list[WindowInfo]]:
    """Windows by capture as the processes of one shared nsys noted them; empty without notes, or with those of several nsys."""
    notes = {path for file in files for path in glob.glob(f"{glob.escape(os.path.dirname(file))}/{PREFIX}*.txt")}
    if len(notes) != 1:
        return []
    numbers = captures_in(notes.pop())
    found: list[list[WindowInfo]] = [[] for _ in range(max(numbers.values(), default=0))]
    for window in sorted(windows, key=lambda item: item.sequence):
        if window.id in numbers:
            found[numbers[window.id] - 1].append(window)
    return found


def _never_written(files: Sequence[str], noted: Sequence[Sequence[WindowInfo]], tool: str) -> list[ArtifactFile]:
    """Captures that windows went into and of which nsys left nothing, under the names they would have."""
    names = [name for path in files if (name := _FILE.match(path))]
    if not names or not noted:
        return []
    there = {int(name["number"] or 1) for name in names}
    missing = [(number, held) for number, held in enumerate(noted, 1) if held and number not in there]
    return [
        _artifact(f"{names[0]['base']}.{number}{REPORT}", tool, tuple(window.id for window in held))
        for number, held in missing
    ]


def _together(processes: Iterable[Sequence[WindowInfo]]) -> list[list[WindowInfo]]:
    """Windows of several processes by the stretch of the run that they are for, in its order."""
    stretches: dict[tuple[object, ...], list[WindowInfo]] = {}
    for windows in processes:
        seen: Counter[tuple[Any, ...]] = Counter()
        for window in windows:
            what = stretch_of(window)
            seen[what] += 1
            stretches.setdefault((*what, seen[what]), []).append(window)
    order = sorted(stretches.items(), key=lambda item: (item[0][0], min(window.sequence for window in item[1])))
    return [windows for _, windows in order]


def _artifact(path: str, tool: str, windows: tuple[str, ...]) -> ArtifactFile:
    size = os.path.getsize(path) if os.path.isfile(path) else 0
    if path.endswith(RAW):
        reason = (
            "raw data: nsys found no importer to make the report; accelprof reads it where QdstrmImporter is installed"
        )
        return ArtifactFile(path, tool, windows, size, "partial", reason)
    if not os.path.exists(path):
        return ArtifactFile(path, tool, windows, 0, "missing", "the file is not there")
    return ArtifactFile(
        path, tool, windows, size, "complete" if size else "truncated", "" if size else "the file is empty"
    )
