"""What was asked for and is not there: decided here, from the rows of a run and from the disk, for everybody who asks.

Controller, ``accelprof run``, frameworks, plain sessions, ``report`` and ``compare`` ask the same question. What only who ended the
run could know (a worker that never answered, names that nobody had) they write into the manifest as lacks, and it stays.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence

from accelprof.contracts.names import TIMELINE_TOOL
from accelprof.contracts.sizes import size_of
from accelprof.contracts.words import COMPLETE, MISSING, PARTIAL, TRUNCATED
from accelprof.errors import IncompleteError
from accelprof.output.asked import ByStep, came_of, first_of, none_opened, unreached
from accelprof.output.codes import (
    CAUSED,
    DERIVED,
    FILE,
    FILE_ODD,
    FILE_UNREAD,
    NEVER_OPENED,
    NOTHING,
    TOOL_ABSENT,
    WINDOW_FAILED,
    WINDOW_OPEN,
)  # fmt: skip
from accelprof.output.records import (
    OPEN,
    STEPS_SEEN,
    ArtifactRow,
    Lack,
    Manifest,
    TargetRow,
    Who,
    WindowRow,
)

UNENDED = "its journal does not say that it ended (it was killed or hangs, or its disk is full)"

#: of a process that opened no window at all
EVERY = range(-(1 << 63), 1 << 63)

#: ``(bytes, state, reason)`` of a file as it is now
Look = Callable[[ArtifactRow], tuple[int, str, str]]


def outside(run_dir: str, path: str) -> str:
    """Where ``path`` leads, if that is out of the run's directory; empty otherwise. What a manifest names there is not looked at."""
    real = os.path.realpath(os.path.join(run_dir, path))
    return "" if real.startswith(os.path.join(os.path.realpath(run_dir), "")) else real


def on_disk(run_dir: str) -> Look:
    """Files as they lie on this host; those of other nodes, and outside of the run's directory, are as they were said to be."""

    def look(row: ArtifactRow) -> tuple[int, str, str]:
        path = os.path.join(run_dir, row.path)
        if outside(run_dir, path):
            return row.bytes, row.state, row.reason or ""
        try:
            size = size_of(path)
        except OSError:
            if row.remote:
                return row.bytes, row.state, row.reason or ""
            return 0, MISSING, row.reason or ""
        if not size:
            state, why = (PARTIAL, "the directory is empty") if os.path.isdir(path) else (TRUNCATED, "it is empty")
            return 0, state, row.reason or why
        if size < row.bytes:
            return size, TRUNCATED, f"{size:,} of {row.bytes:,} bytes are there"
        return size, row.state if row.state != MISSING else COMPLETE, row.reason or ""

    return look


def look_at(found: Manifest, look: Look) -> None:
    """Size and state of every file as it is now."""
    for row in found.artifacts.values():
        row.bytes, row.state, reason = _looked_at(row, look)
        row.reason = reason or None


def verdict(
    found: Manifest,
    stated: Iterable[Lack] = (),
    causes: Mapping[str, str] | None = None,
    running: Collection[str] = (),
) -> list[Lack]:
    """What is lacking, each once, with its code; files as their rows say (:func:`look_at` asks the disk).

    Args:
        stated: what whoever ended the run says; of those, only what cannot be derived counts, of what can be the cause alone, and
            of a step that was lost only what no window holds and no other lack names.
        causes: key of a target -> why its windows may be open, or never opened, where somebody knows.
        running: keys of targets that are still at work: their windows may yet come, or close.
    """
    lacks: list[Lack] = []
    windows = found.of_target()
    instead = _instead(found, windows, running)
    # of each target: steps whose window is there, or named as one that never opened
    told: dict[str, list[Container[int]]] = {
        key: [{step for window in own for step in window.steps}] for key, own in windows.items()
    }
    for target in found.targets.values():
        own, at_work, cause = windows[target.key], target.key in running, (causes or {}).get(target.key, "")
        after = instead.get(target.key)
        if target.armed and not own and not at_work and after is None:
            lacks.append(_never_opened(target, found, cause))
            told[target.key].append(EVERY)
        lacks.extend(_missed(target, text, text) for text in (target.missed if own and not at_work else ()))
        if target.missed and len(target.steps_seen) < STEPS_SEEN:
            told[target.key].append(ByStep.of_row(target).missed(own, target.steps_seen))
        if target.ended is False and (own or after is not None) and not at_work:
            asked, came = ByStep.of_row(target), came_of(target)
            if after is not None:  # who goes on in its place answers for the rest
                begun = None if not own and not came else first_of(*after)
                missed = asked.until(begun).missed(own, target.steps_seen, ended=False, known=came)
                counted = []
            else:
                missed = asked.missed(own, target.steps_seen, ended=False, known=came)
                counted = [unreached(stretches, own) for stretches in target.stretches_planned]
            told[target.key].append(missed)
            for text in (missed.words, *counted):
                if text:
                    lacks.append(_missed(target, f"{text}; {cause or UNENDED}", text))
        for window in own:
            if at_work and window.closed is None:
                continue
            lacks.extend(_of_window(target, window, cause))
    for key, rows in windows.items():
        if key not in found.targets:
            lacks.extend(lack for window in rows for lack in _of_window(TargetRow(key=key), window, ""))
    for key, (later, _) in instead.items():
        told[key].extend(told[later.key])
    lacks.extend(_of_file(row, found.owner(row)) for row in found.artifacts.values() if row.state != COMPLETE)
    # with the cause that an earlier end knew, which rows do not have
    stated = list(stated)
    caused = {lack.identity: lack for lack in stated if lack.about and lack.code in CAUSED}
    stated = [lack for lack in stated if lack.code not in DERIVED and not _is_told(lack, told.get(lack.target, ()))]
    every = Lack.once([*stated, *lacks])
    return [lack if (causes or {}).get(lack.target) else caused.get(lack.identity, lack) for lack in every]


def _is_told(lack: Lack, told: Iterable[Container[int]]) -> bool:
    """Whether a lack is of a step of which something else tells: a call that was not answered in time may have come through."""
    return lack.step is not None and any(lack.step in steps for steps in told)


def judge(manifest: Manifest, run_dir: str, running: Collection[str] = ()) -> list[Lack]:
    """The verdict on a manifest that was written earlier: its own word, its rows, and the disk as it is now."""
    look_at(manifest, on_disk(run_dir))
    lacks = verdict(manifest, manifest.lacks, running=running)
    if not lacks and manifest.status == "incomplete" and not manifest.lacks:
        lacks.append(Lack(words="the manifest says that the run is incomplete, and not why"))
    return lacks


def unread(row: ArtifactRow, key: str, label: str, words: str) -> list[Lack]:
    """A file of the worker ``key`` that is as large as it was and that its reader refuses, or not all of it, with ``words`` on that;
    none where its row says why already. There may be several of one file, each of something else."""
    if row.state != COMPLETE:
        return []
    return [Lack(code=FILE_UNREAD, target=key, label=label, tool=row.tool, words=words)]


def nothing_measured() -> Lack:
    """A run in which no window was opened and of which no file was read, though nobody says that anything is missing."""
    return Lack(code=NOTHING, words="no window was opened in this run; nothing was measured")


def exit_status(lacks: Sequence[Lack]) -> int:
    """0: everything that was asked for is there; 1: something is not. (2, what cannot be read, is an error's.)"""
    return 1 if lacks else 0


def require_complete(manifest: Manifest) -> None:
    """For those who end with an exception.

    Raises:
        IncompleteError: the manifest says that something is not there; the command line ends with :func:`exit_status`.
    """
    if exit_status(manifest.lacks):
        raise IncompleteError("\n".join(manifest.undelivered))


def _looked_at(row: ArtifactRow, look: Look) -> tuple[int, str, str]:
    try:
        return look(row)
    except (OSError, ValueError) as error:  # a name that no file can have, say
        return row.bytes, MISSING, str(error)


def _never_opened(target: TargetRow, found: Manifest, cause: str) -> Lack:
    said = target.missed or [row.message for row in found.said if row.target == target.key and row.code == NEVER_OPENED]
    if said:
        return _missed(target, said[0], said[0])
    more = " and maybe later ones" if len(target.steps_seen) == STEPS_SEEN else ""  # a row has no more of them
    text = none_opened(target.steps_seen, target.phases_seen, target.wanted, target.tool, more)
    return _missed(target, f"{text}; {cause}" if cause else text, target.wanted or "")


def _missed(target: TargetRow, text: str, about: str) -> Lack:
    return _of_target(target, NEVER_OPENED, f"{target.key}: {text}", about, target.tool or "")


def _of_target(target: TargetRow, code: str, words: str, about: str, tool: str = "") -> Lack:
    return Lack(code=code, target=target.key, label=target.label, tool=tool, about=about, words=words)


def _instead(
    found: Manifest, windows: Mapping[str, Sequence[WindowRow]], running: Collection[str]
) -> dict[str, tuple[TargetRow, Sequence[WindowRow]]]:
    """Key of a worker that was killed -> who was started in its place, with its windows: of the same group, rank and replica, at work
    or with windows that were opened later."""
    same: dict[Who, list[tuple[float, TargetRow]]] = {}
    for target in found.targets.values():
        when = float("inf") if target.key in running else _last(windows[target.key])
        same.setdefault(target.who, []).append((when, target))
    instead = {}
    for ordered in same.values():
        ordered.sort(key=lambda row: row[0])
        for when, target in ordered:
            later = next((other for at, other in ordered if at > when), None)
            if target.ended is False and target.rank is not None and later is not None:
                instead[target.key] = later, windows[later.key]
    return instead


def _last(windows: Iterable[WindowRow]) -> int:
    return max((window.opened.epoch_ns for window in windows if window.opened is not None), default=0)


def _of_window(target: TargetRow, window: WindowRow, cause: str) -> Iterable[Lack]:
    head = f"{target.key}: window {window.id}"
    if window.state == OPEN:
        why = f"; {cause}" if cause else ""
        yield _of_target(target, WINDOW_OPEN, f"{head} was opened and never closed{why}", window.id)
    for failure in window.failures:
        about = f"{window.id}: {failure.message}"
        yield _of_target(target, WINDOW_FAILED, f"{head}: {failure.words}", about, failure.tool)
    for tool in target.tools or ([target.tool] if target.tool not in (None, TIMELINE_TOOL) else []):
        if tool not in window.tools and window.tools:
            yield _of_target(target, TOOL_ABSENT, f"{head} was recorded without {tool}", window.id, tool or "")


def _of_file(row: ArtifactRow, owner: TargetRow | None) -> Lack:
    why = f": {row.reason}" if row.reason else ""
    label = row.label if owner is None else owner.label
    words = f"{label}: {row.path} ({row.tool}) is {row.state}{why}"
    key = row.target if owner is None else owner.key
    code = FILE.get(row.state, FILE_ODD)
    return Lack(code=code, target=key, label=label, tool=row.tool, about=row.path, words=words)
