"""Waiting for the reports of tools that write from outside, and bringing files to the driver's node."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ray

from accelprof.catalogue import Catalogue
from accelprof.cluster import nodes
from accelprof.cluster.fanout import Member
from accelprof.contracts.targets import ArtifactFile, Expectation, Target, WindowInfo
from accelprof.launch import reports
from accelprof.launch.reports import needed
from accelprof.output.layout import Layout
from accelprof.output.manifest import relative
from accelprof.output.records import COMPLETE, MISSING, ArtifactRow, Records
from accelprof.session.voice import text_of

AT_ONCE = 4
CHUNK = 16 << 20


def await_reports(
    registry: Catalogue,
    members: Sequence[Member],
    run_dir: str,
    known: Records,
    ended: Collection[str],
    timeout: float,
    lacks: Callable[[str], None],
) -> list[ArtifactRow]:
    """Records of the files that the tools of ``members`` said they would leave; who did not deliver goes to ``lacks``.

    ``known``: the rows so far. Only files of tools that name them beforehand (``Tool.expects``) are waited for, at most
    ``timeout`` seconds; a file that its tool writes when the process exits is waited for when the process was ended.
    """
    layout = Layout(run_dir)
    by_node: dict[
        str | None, list[tuple[Member, str, Expectation, int, float, Mapping[str, Any], list[WindowInfo]]]
    ] = {}
    for member in members:
        assignment = member.assignment
        if not assignment.selected or assignment.tool is None:
            continue
        for name, options in ((assignment.tool, assignment.options), *assignment.also):
            windows = reports.windows_of(known.windows.values(), _keys(member, known), name, run_dir)
            if not windows:
                continue  # said as "armed, 0 windows opened"
            try:
                expected = registry.make_tool(name, options).expects(assignment, layout.target_dir(member.target))
            except Exception as error:  # noqa: BLE001 - a plug-in's own; the others' reports and the manifest go on
                lacks(f"{member.label}: what {name} leaves is not known: {text_of(error)}")
                continue
            for expectation in expected:
                number, seconds = needed(expectation, len(windows), member.key in ended, timeout)
                entry = (member, name, expectation, number, seconds, options, windows)
                by_node.setdefault(member.facts.get("node_id"), []).append(entry)
    if not by_node:
        return []
    calls: dict[str | None, tuple[Any, ...]] = {
        node: (
            [reports.Wanted(entry[2].pattern, entry[3], entry[4], entry[2].instead) for entry in entries],
            [(entry[1], dict(entry[5]), entry[6]) for entry in entries],
        )
        for node, entries in by_node.items()
    }
    results, errors = nodes.on_each(calls, reports.wait_and_match, timeout)
    rows: list[ArtifactRow] = []
    for node, entries in by_node.items():
        for index, entry in enumerate(entries):
            member, name, expectation, number = entry[:4]
            if node in errors:
                lacks(f"{member.label}: reports of {name} on node {node} could not be looked for: {errors[node]}")
                continue
            files, unmatched = results[node][index]
            if unmatched:
                lacks(f"{member.label}: {name} could not say which windows its reports hold: {unmatched}")
            rows.extend(_row(member, file) for file in files)
            if len(files) < number:
                text = f"{member.label}: {number - len(files)} of {number} reports of {name} did not come ({expectation.pattern})"
                if expectation.when == "process_exit" and member.key not in ended:
                    text += "; they are written when the process exits in order: close(end_workers=True) does that"
                lacks(text)
                came = f"{len(files)} of {number} came"
                rows.append(_row(member, ArtifactFile(expectation.pattern, name, state=MISSING, reason=came)))
    return rows


def _keys(member: Member, known: Records) -> set[str]:
    target = member.target
    return {row.key for row in known.targets.values() if row.who == (target.group, target.rank, target.replica)}


def _row(member: Member, file: ArtifactFile) -> ArtifactRow:
    return ArtifactRow.of(file, member.target, member.facts.get("host"), member.facts.get("pid"))


# --- bringing files to the driver's node ----------------------------------------------------------------------------------


def relocate(
    how: str,
    run_dir: str,
    found: Records,
    node_of: Mapping[str | None, str | None],
    report: Callable[[str], None],
) -> None:
    """Copy or move the files of ``found`` that lie elsewhere into the run directory; their rows say where they are now."""
    taken: set[str] = set()
    jobs = []
    for row in found.artifacts.values():
        source, node = _place(row, run_dir, node_of)
        if source is not None:
            jobs.append((row, source, node, _target(run_dir, row, source, taken)))

    def one(job: tuple[ArtifactRow, str, str | None, str]) -> None:
        row, source, node, target = job
        try:
            fetch(node, source, target, remove=how == "move")
        except Exception as error:  # noqa: BLE001 - a disk, a node or Ray; the source stays, and it is said
            report(
                f"{row.path} of {row.group} rank {row.rank} was not collected: {type(error).__name__}: {error}; the file stays on {row.host}"
            )
        else:
            row.extra["from"], row.path = row.path, relative(target, run_dir)
            row.collected, row.remote, row.node_id = True, False, None
            if row.state == MISSING:
                row.state = COMPLETE  # it was missing here

    if jobs:
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="accelprof-collect") as pool:
            list(pool.map(one, jobs))
    rows = list(found.artifacts.values())
    found.artifacts = {row.place: row for row in rows}


def _place(row: ArtifactRow, run_dir: str, node_of: Mapping[str | None, str | None]) -> tuple[str | None, str | None]:
    """``(source path, node)`` of a file to bring here; ``(None, None)`` for one that is here, or nowhere."""
    node = node_of.get(row.host)
    if row.state == MISSING and not row.remote and (node in (None, nodes.own_node()) or not row.bytes):
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


def fetch(node: str | None, source: str, target: str, *, remove: bool = False) -> None:
    """Bring ``source`` (file or directory, on ``node``; ``None`` = here) to ``target``; ``remove`` it once the copy is whole.

    Raises:
        OSError: the copy cannot be written, or is not what the source is.
    """
    names = _on(node, listing, source)
    part = target + ".part"
    try:
        if [name for name, _ in names] != [""]:  # a directory, which may be empty
            os.makedirs(part, exist_ok=True)
        for name, size in names:
            place = os.path.join(part, name) if name else part
            os.makedirs(os.path.dirname(place), exist_ok=True)
            ours = hashlib.sha256()
            with open(place, "wb") as file:
                for start in range(0, size, CHUNK):
                    data = _on(node, read, os.path.join(source, name) if name else source, start, CHUNK)
                    file.write(data)
                    ours.update(data)
                file.flush()
                os.fsync(file.fileno())
            theirs = _on(node, digest, os.path.join(source, name) if name else source)
            if ours.hexdigest() != theirs or os.path.getsize(place) != size:
                raise OSError(
                    f"the copy of {source} is not what the source is (it changed meanwhile, or the disk is full)"
                )
        os.replace(part, target)
    except BaseException:
        if os.path.isdir(part):
            shutil.rmtree(part, ignore_errors=True)
        elif os.path.exists(part):
            os.unlink(part)
        raise
    if remove:
        _on(node, discard, source)


def _on(node: str | None, function: Callable[..., Any], *args: Any) -> Any:
    return function(*args) if node is None else ray.get(nodes.start_on(node, function, *args))


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
