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
from accelprof.contracts.targets import Expectation, Target, WindowInfo
from accelprof.launch import reports
from accelprof.launch.reports import needed
from accelprof.output.layout import Layout
from accelprof.output.manifest import relative
from accelprof.session.reporting import text_of

AT_ONCE = 4
CHUNK = 16 << 20

Row = dict[str, Any]


def await_reports(
    registry: Catalogue,
    members: Sequence[Member],
    run_dir: str,
    known: Mapping[str, Any],
    ended: Collection[str],
    timeout: float,
    lacks: Callable[[str], None],
) -> list[Row]:
    """Journal records of the files that the tools of ``members`` said they would leave; who did not deliver goes to ``lacks``.

    ``known``: the manifest so far. Only files of tools that name them beforehand (``Tool.expects``) are waited for, at most
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
            windows = reports.windows_of(known, _keys(member, known), name, run_dir)
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
    rows: list[Row] = []
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
                missing = {"path": expectation.pattern, "tool": name, "windows": (), "bytes": 0, "state": "missing"}
                rows.append(_row(member, {**missing, "reason": f"{len(files)} of {number} came"}))
    return rows


def _keys(member: Member, known: Mapping[str, Any]) -> set[str]:
    target = member.target
    return {
        row["key"]
        for row in known["targets"]
        if (row.get("group"), row.get("rank"), row.get("replica")) == (target.group, target.rank, target.replica)
    }


def _row(member: Member, file: Mapping[str, Any]) -> Row:
    return {
        "kind": "artifact",
        **{key: file[key] for key in ("path", "tool", "bytes", "state")},
        "windows": list(file["windows"]),
        **({"reason": file["reason"]} if file.get("reason") else {}),
        "group": member.target.group,
        "role": "+".join(member.target.roles) or None,
        "rank": member.target.rank,
        "host": member.facts.get("host"),
        "pid": member.facts.get("pid"),
    }


# --- bringing files to the driver's node ----------------------------------------------------------------------------------


def relocate(
    how: str,
    run_dir: str,
    artifacts: Sequence[Mapping[str, Any]],
    journals: Sequence[Sequence[Mapping[str, Any]]],
    node_of: Mapping[str | None, str | None],
    report: Callable[[str], None],
) -> list[Sequence[Mapping[str, Any]]]:
    """Copy (or move) every artifact that does not lie in ``run_dir`` on this node into it, a few at a time.

    A source is removed only after its copy has the same content; a copy that fails leaves the source and is reported.
    Returns the journals with the paths as they are now.
    """
    moved: dict[tuple[str, str], str] = {}
    work = [(artifact, *_place(artifact, run_dir, node_of)) for artifact in artifacts]
    taken: set[str] = set()
    jobs = [
        (artifact, source, node, _target(run_dir, artifact, source, taken))
        for artifact, source, node in work
        if source is not None
    ]

    def one(job: tuple[Mapping[str, Any], str, str | None, str]) -> None:
        artifact, source, node, target = job
        try:
            fetch(node, source, target, remove=how == "move")
        except Exception as error:  # noqa: BLE001 - a disk, a node or Ray; the source stays, and it is said
            report(
                f"{artifact['path']} of {artifact.get('group')} rank {artifact.get('rank')} was not collected: {type(error).__name__}: {error}; the file stays on {artifact.get('host')}"
            )
        else:
            moved[str(artifact.get("host") or ""), str(artifact["path"])] = target

    if jobs:
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="accelprof-collect") as pool:
            list(pool.map(one, jobs))
    return [[_renamed(record, moved, run_dir) for record in journal] for journal in journals]


def _renamed(record: Mapping[str, Any], moved: Mapping[tuple[str, str], str], run_dir: str) -> Mapping[str, Any]:
    if record.get("kind") != "artifact":
        return record
    target = moved.get((str(record.get("host") or ""), relative(record["path"], run_dir)))
    return record if target is None else {**record, "path": target, "collected": True, "from": record["path"]}


def _place(
    artifact: Mapping[str, Any], run_dir: str, node_of: Mapping[str | None, str | None]
) -> tuple[str | None, str | None]:
    """``(source path, node)`` of an artifact to bring here; ``(None, None)`` for one that is here, or nowhere."""
    if artifact.get("state") == "missing" and not artifact.get("remote"):
        away = node_of.get(artifact.get("host"))
        if away in (None, nodes.own_node()) or not artifact.get("bytes"):
            return None, None
    path = os.path.join(run_dir, artifact["path"])
    if os.path.exists(path):
        inside = os.path.realpath(path).startswith(os.path.realpath(run_dir) + os.sep)
        return (None, None) if inside else (path, None)
    node = node_of.get(artifact.get("host"))
    return (None, None) if node is None else (path, node)


def _target(run_dir: str, artifact: Mapping[str, Any], source: str, taken: set[str]) -> str:
    """A free name for the copy, which is then taken."""
    inside = relative(source, run_dir)
    if os.path.isabs(inside):
        inside = os.path.join(
            Layout(run_dir).target_dir(Target(artifact.get("group") or "unknown")), os.path.basename(source)
        )
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
