"""Bringing files to the host that ends a run: copied in pieces, compared, and only then in their place."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from accelprof import atomic
from accelprof.contracts.targets import Target
from accelprof.contracts.words import COMPLETE, MISSING
from accelprof.errors import text_of
from accelprof.output.layout import Layout
from accelprof.output.manifest import relative
from accelprof.output.nodes import Nodes
from accelprof.output.records import ArtifactRow, Manifest
from accelprof.threads import each

AT_ONCE = 4
CHUNK = 16 << 20


def relocate(
    how: str,
    run_dir: str,
    found: Manifest,
    nodes: Nodes,
    say: Callable[[str], object],
) -> None:
    """Copy or move the files of ``found`` that lie elsewhere into the run directory; their rows say where they are now."""
    taken: set[str] = set()
    jobs = []
    for row in found.artifacts.values():
        source, node = _place(row, run_dir, nodes)
        if source is not None:
            jobs.append((row, source, node, _target(run_dir, row, source, taken)))

    def one(job: tuple[ArtifactRow, str, str | None, str]) -> None:
        row, source, node, target = job
        try:
            fetch(nodes, node, source, target, remove=how == "move")
        except Exception as error:  # noqa: BLE001 - a disk, a node or Ray; the source stays, and it is said
            say(
                f"{row.path} of {row.group} rank {row.rank} was not collected: {text_of(error)}; the file stays on {row.host}"
            )
        else:
            row.came_from, row.path = row.path, relative(target, run_dir)
            row.collected, row.remote, row.node_id = True, False, None
            if row.state == MISSING:
                row.state = COMPLETE  # it was missing here

    if jobs:
        each(one, jobs, AT_ONCE, "accelprof-collect")
    rows = list(found.artifacts.values())
    found.artifacts = {row.place: row for row in rows}


def _place(row: ArtifactRow, run_dir: str, nodes: Nodes) -> tuple[str | None, str | None]:
    """``(source path, node)`` of a file to bring here; ``(None, None)`` for one that is here, or nowhere."""
    node = nodes.node_of(row.host)
    if row.state == MISSING and not row.remote and (node is None or not row.bytes):
        return None, None
    path = os.path.join(run_dir, row.path)
    if os.path.exists(path):
        inside = os.path.realpath(path).startswith(os.path.realpath(run_dir) + os.sep)
        return (None, None) if inside else (path, None)
    return (None, None) if node is None else (path, node)


def _target(run_dir: str, row: ArtifactRow, source: str, taken: set[str]) -> str:
    """A free name for the copy, which is then taken."""
    inside = relative(source, run_dir)
    if os.path.isabs(inside):
        inside = os.path.join(Layout(run_dir).target_dir(Target(row.group or "unknown")), os.path.basename(source))
    target = os.path.join(run_dir, inside)
    stem, suffix = os.path.splitext(target)
    number = 1
    while target in taken or os.path.exists(target):
        number += 1
        target = f"{stem}-{number}{suffix}"
    taken.add(target)
    return target


def fetch(nodes: Nodes, node: str | None, source: str, target: str, *, remove: bool = False) -> None:
    """Bring ``source`` (file or directory, on ``node``; ``None`` = here) to ``target``; ``remove`` it once the copy is whole.

    Raises:
        OSError: the copy cannot be written, or is not what the source is.
    """
    names = nodes.call(node, listing, source)
    with atomic.whole(target) as part:
        if [name for name, _ in names] != [""]:  # a directory, which may be empty
            os.makedirs(part, exist_ok=True)
        for name, size in names:
            place = os.path.join(part, name) if name else part
            os.makedirs(os.path.dirname(place), exist_ok=True)
            ours = hashlib.sha256()
            with open(place, "wb") as file:
                for start in range(0, size, CHUNK):
                    data = nodes.call(node, read, os.path.join(source, name) if name else source, start, CHUNK)
                    file.write(data)
                    ours.update(data)
                file.flush()
                os.fsync(file.fileno())
            theirs = nodes.call(node, digest, os.path.join(source, name) if name else source)
            if ours.hexdigest() != theirs or os.path.getsize(place) != size:
                raise OSError(
                    f"the copy of {source} is not what the source is (it changed meanwhile, or the disk is full)"
                )
    if remove:
        nodes.call(node, discard, source)


def listing(path: str) -> list[tuple[str, int]]:
    """``(name below path, bytes)`` of all files; one with an empty name for a file."""
    if not os.path.isdir(path):
        return [("", os.path.getsize(path))]
    files = sorted(entry for entry in Path(path).rglob("*") if entry.is_file())
    return [(str(entry.relative_to(path)), entry.stat().st_size) for entry in files]


def read(path: str, start: int, length: int) -> bytes:
    """A piece of a file."""
    with open(path, "rb") as file:
        file.seek(start)
        return file.read(length)


def digest(path: str) -> str:
    """SHA-256 of a file."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while data := file.read(CHUNK):
            found.update(data)
    return found.hexdigest()


def discard(path: str) -> None:
    """Remove a file or directory that was copied."""
    if os.path.isdir(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)
