"""Files that tools write from outside: waiting for them on the node that holds them, and which holds what."""

from __future__ import annotations

import functools
import glob
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from accelprof.catalogue import get_catalogue
from accelprof.contracts.sizes import size_of
from accelprof.contracts.targets import ArtifactFile, Assignment, Expectation, WindowInfo
from accelprof.contracts.tool import Tool
from accelprof.contracts.words import MISSING, WINDOW_KINDS, known
from accelprof.errors import failures, text_of
from accelprof.output.codes import REPORT_MISSING, UNMATCHED
from accelprof.output.layout import Layout
from accelprof.output.nodes import Node, Nodes
from accelprof.output.records import ArtifactRow, Lack, Manifest, WindowRow

POLL_S = 0.1
#: seconds for a file that should be there already when the session has closed
GRACE_S = 3.0
#: seconds that what stands in a report's place has not changed before it counts as all that comes
QUIET_S = 1.0


def find(pattern: str) -> dict[str, int]:
    """``{path: bytes}`` of what matches a glob now; a directory counts with all that is in it."""
    found = {}
    for path in sorted(glob.glob(pattern)):
        try:
            found[path] = size_of(path)
        except OSError:  # gone between the two calls
            continue
    return found


class Wanted(NamedTuple):
    """Files to wait for: ``number`` of those that match ``pattern``, at most ``seconds``; ``instead`` as :class:`Expectation` has it."""

    pattern: str
    number: int
    seconds: float
    instead: str = ""


def wait_for(wanted: Sequence[Wanted | tuple[str, int, float]]) -> list[list[str]]:
    """Files of each wanted pattern: waits until that many are there, not empty and no longer growing.

    Where something else stands in the place of those that lack, and nobody is at work on it, they are not waited for; it is
    among the files.
    """
    began = time.monotonic()
    before: list[dict[str, int]] = [{} for _ in wanted]
    quiet_since: list[float] = [began] * len(wanted)
    settled: list[list[str] | None] = [None] * len(wanted)
    while True:
        for index, (pattern, number, seconds, *more) in enumerate(wanted):
            if settled[index] is not None:
                continue
            now = find(pattern)
            raw = _instead(str(more[0]), now) if more and more[0] else {}
            seen = {**now, **raw}
            if seen != before[index]:
                quiet_since[index] = time.monotonic()
            still = [path for path, size in now.items() if size and before[index].get(path) == size]
            waited = time.monotonic() - quiet_since[index]
            if len(still) >= number and len(still) == len(now):
                settled[index] = still
            elif time.monotonic() - began >= seconds or (
                # who was at work on it may have ended just now: then the file is there
                raw and len(seen) >= number and waited >= QUIET_S and not _in_hands(raw) and find(pattern) == now
            ):
                settled[index] = list(seen)
            before[index] = seen
        if all(files is not None for files in settled):
            return [files or [] for files in settled]
        time.sleep(POLL_S)


def _instead(pattern: str, files: Collection[str]) -> dict[str, int]:
    """What stands in the place of files that are not there."""
    stems = {os.path.splitext(path)[0] for path in files}
    return {path: size for path, size in find(pattern).items() if os.path.splitext(path)[0] not in stems}


def _in_hands(paths: Collection[str]) -> bool:
    """Whether a program of this node was started on one of these files: it may be making the report just now."""
    for place in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            words = Path(place).read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended, or is another user's
        if any(os.fsencode(path) in word for path in paths for word in words):
            return True
    return False


def wait_and_match(
    wanted: Sequence[Wanted | tuple[str, int, float]], tools: Sequence[tuple[str, Mapping[str, Any], Sequence[Any]]]
) -> list[tuple[list[ArtifactFile], str]]:
    """:func:`wait_for`, then the tool's own word on which file holds which windows; for each wanted pattern with its tool, options
    and windows. Runs where the files are, so tools are made there, each (name, options) once.

    With each list of files: why its tool could not match them, empty when it could; the files then hold no known window.
    """
    found: list[tuple[list[ArtifactFile], str]] = []
    made: list[tuple[str, Mapping[str, object], Tool]] = []
    for files, (name, options, windows) in zip(wait_for(wanted), tools, strict=True):
        try:
            tool = next((one for known, same, one in made if (known, same) == (name, options)), None) if files else None
            if files and tool is None:
                tool = get_catalogue().make_tool(name, options)
                made.append((name, options, tool))
            found.append((list(tool.match(list(files), list(windows))) if tool is not None else [], ""))
        except failures() as error:  # a plug-in's own; said by whoever asked, with the tool's name
            found.append(([ArtifactFile(path, name, bytes=size_of(path)) for path in files], text_of(error)))
    return found


def needed(expectation: Expectation, windows: int, ended: bool, timeout: float) -> tuple[int, float]:
    """How many files must be there, and how long to wait for them."""
    number = 1 if expectation.count is None else min(expectation.count, windows)
    if ended:
        return number, timeout
    if expectation.when == "process_exit":
        return number, 0.0 if timeout == 0 else GRACE_S
    whole = expectation.when == "window_close" or expectation.count is None or windows >= expectation.count
    return number, timeout if whole else min(GRACE_S, timeout)


def windows_of(rows: Iterable[WindowRow], keys: Collection[str], tool: str, run_dir: str) -> list[WindowInfo]:
    """The windows that ``tool`` recorded in the processes ``keys``, as the tool knew them."""
    found = []
    for row in rows:
        if row.target in keys and tool in row.tools:
            kind, stem = known(row.kind, WINDOW_KINDS, "step"), os.path.join(run_dir, row.stem or row.id)
            found.append(WindowInfo(row.id, row.sequence, tuple(row.steps), row.phase, kind, stem))
    return found


# --- what each target's tools leave ---------------------------------------------------------------------------------------


@dataclass
class Expected:
    """A process, or a launcher around several, whose tools write files from outside.

    Attributes:
        who: group, rank and replica of the targets whose windows they hold; ``None`` = every target of the run.
        node: where the files are written.
        key: of the process in the manifest; empty of a launcher.
        ended: the process has ended, so what its tool writes at exit comes now.
        may_end: it could have been ended in order and was not.
    """

    assignment: Assignment
    who: tuple[str, int | None, int | None] | None
    node: Node = None
    host: str | None = None
    pid: int | None = None
    key: str = ""
    ended: bool = False
    may_end: bool = False

    @property
    def label(self) -> str:
        return self.assignment.target.label


@dataclass
class _Wait:
    expected: Expected
    tool: str
    options: Mapping[str, Any]
    what: Expectation
    number: int
    seconds: float
    windows: list[WindowInfo]


def await_files(
    tool_of: Callable[[str, Mapping[str, object]], Tool],
    expected: Sequence[Expected],
    run_dir: str,
    known: Manifest,
    nodes: Nodes,
    timeout: float,
) -> tuple[list[ArtifactRow], list[Lack]]:
    """Files that tools said they would leave, and who did not deliver.

    ``tool_of`` gives the tool of a name and its options. ``known``: the rows so far. Only files of tools that name them beforehand (``Tool.expects``) are waited for, at most
    ``timeout`` seconds; a file that its tool writes when the process exits is waited for when the process was ended.
    """
    waits: dict[Node, list[_Wait]] = {}
    lacks: list[Lack] = []
    for one in expected:
        for found in _waits(tool_of, one, run_dir, known, timeout, lacks):
            waits.setdefault(one.node, []).append(found)
    if not waits:
        return [], lacks
    calls: dict[Node, tuple[object, ...]] = {
        node: (
            [Wanted(wait.what.pattern, wait.number, wait.seconds, wait.what.instead) for wait in of_node],
            [(wait.tool, dict(wait.options), wait.windows) for wait in of_node],
        )
        for node, of_node in waits.items()
    }
    results, errors = nodes.on_each(calls, wait_and_match, timeout)
    rows: list[ArtifactRow] = []
    for node, of_node in waits.items():
        for index, wait in enumerate(of_node):
            head = wait.expected.label
            lack = functools.partial(
                Lack, target=wait.expected.key, label=head, tool=wait.tool, about=wait.what.pattern
            )
            if node in errors:
                text = f"{head}: reports of {wait.tool} on node {node} could not be looked for: {errors[node]}"
                lacks.append(lack(code=REPORT_MISSING, words=text))
                continue
            files, unmatched = results[node][index]
            if unmatched:
                text = f"{head}: {wait.tool} could not say which windows its reports hold: {unmatched}"
                lacks.append(lack(code=UNMATCHED, words=text))
            rows.extend(_row(wait.expected, file, known) for file in files)
            if len(files) < wait.number:
                lacking = f"{wait.number - len(files)} of {wait.number} reports of {wait.tool} did not come"
                text = f"{head}: {lacking} ({wait.what.pattern})"
                if wait.what.when == "process_exit" and wait.expected.may_end:
                    text += "; they are written when the process exits in order: close(end_workers=True) does that"
                lacks.append(lack(code=REPORT_MISSING, words=text))
                came = f"{len(files)} of {wait.number} came"
                missing = ArtifactFile(wait.what.pattern, wait.tool, state=MISSING, reason=came)
                rows.append(_row(wait.expected, missing, known))
    return rows, lacks


def _waits(
    tool_of: Callable[[str, Mapping[str, object]], Tool],
    one: Expected,
    run_dir: str,
    known: Manifest,
    timeout: float,
    lacks: list[Lack],
) -> Iterable[_Wait]:
    assignment = one.assignment
    if not assignment.selected or assignment.tool is None:
        return
    keys = {
        row.key for row in known.targets.values() if one.who is None or row.who[:3] == one.who
    }  # its engine's children are its own
    for name, options in ((assignment.tool, assignment.options), *assignment.also):
        windows = windows_of(known.windows.values(), keys, name, run_dir)
        if not windows:
            continue  # said of the target: it opened none
        try:
            directory = Layout(run_dir).target_dir(assignment.target)
            expectations = tool_of(name, options).expects(assignment, directory)
        except failures() as error:  # a plug-in's own; the others' files and the manifest go on
            text = f"{one.label}: what {name} leaves is not known: {text_of(error)}"
            lacks.append(Lack(code=REPORT_MISSING, target=one.key, label=one.label, tool=name, words=text))
            continue
        for what in expectations:
            number, seconds = needed(what, len(windows), one.ended, timeout)
            yield _Wait(one, name, options, what, number, seconds, windows)


def _row(one: Expected, file: ArtifactFile, known: Manifest) -> ArtifactRow:
    """Of the target whose windows are in it; of the launcher where it holds none."""
    row = ArtifactRow.of(file, one.key, one.assignment.target, one.host, one.pid)
    window = known.windows.get(file.windows[0]) if file.windows else None
    owner = known.targets.get(window.target) if window is not None else None
    if owner is None:
        return row
    row.target = owner.key
    if one.who is None:
        row.group, row.role, row.rank = owner.group, "+".join(owner.roles) or row.role, owner.rank
        row.host, row.pid = owner.host or row.host, owner.pid
    return row
