"""The files in which somebody asks a live process for a window, and in which it answers; and who asks: ``accelprof window``.

A small directory in the run's, that only its owner can write, holds one request and an answer of each worker. Nothing listens on a
network. Who answers is :mod:`accelprof.session.requests`. Fields that another version left out, or has besides, are no trouble.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from accelprof import atomic, texts
from accelprof.catalogue import get_catalogue
from accelprof.config.model import OnDemand
from accelprof.contracts.targets import Target
from accelprof.contracts.words import known
from accelprof.errors import CaptureError, ConfigError, Problem, UserError, failures, text_of
from accelprof.numberset import NumberSet
from accelprof.output import fields
from accelprof.planning.sampling import facts_fit
from accelprof.processes import Writer
from accelprof.threads import each

if TYPE_CHECKING:
    from accelprof.contracts.tool import Tool

log = logging.getLogger("accelprof")

Action = Literal["open", "close"]
#: what a worker says of itself; who asked adds ``silent`` (it said nothing) and ``recorded`` (nor then, but its tool recorded it
#: from outside)
State = Literal["listening", "open", "armed", "refused", "ended", "silent", "recorded"]
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
STATES: Final[tuple[State, ...]] = get_args(State)

DIRECTORY = ".control"
REQUEST = "request.json"
#: more than any request or answer has, and longer than any window is wanted
MAX_BYTES, MAX_SECONDS, MAX_WORD = 64 << 10, 7 * 24 * 3600.0, 200


# --- what is asked --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RequestRow:
    """What somebody asks of those workers that ``group``, ``role`` and ``rank`` fit.

    Attributes:
        seconds: the longest that a window stays open; ``None``: as each worker's configuration says.
        by: who asks, where that is known.
    """

    id: str
    action: Action
    group: str | Sequence[str] | None = None
    role: str | Sequence[str] | None = None
    rank: Any = None
    seconds: float | None = None
    by: Writer | None = None

    def fits(self, target: Target) -> bool:
        """Whether ``target`` is one of those."""
        wanted = {"group": self.group, "role": self.role, "rank": self.rank}
        return facts_fit({fact: value for fact, value in wanted.items() if value is not None}, target, None)

    def to_json(self) -> dict[str, object]:
        """Plain JSON, as :func:`read_request` reads it."""
        wanted = {"group": self.group, "role": self.role, "rank": self.rank, "seconds": self.seconds}
        by = None if self.by is None else self.by.to_json()
        return {"id": self.id, "action": self.action, **wanted, "by": by}


@dataclass(frozen=True, slots=True)
class OddRequest:
    """One that cannot be followed; ``why`` says nothing of its values, so that it is said once."""

    id: str
    why: str


def read_request(run_dir: str) -> RequestRow | OddRequest | None:
    """The request that lies there, whoever it is for.

    Raises:
        UserError: it is not to be trusted, or is no request.
        OSError: it cannot be looked at.
    """
    directory = os.path.join(run_dir, DIRECTORY)
    try:
        trusted(directory, directory=True)  # its mode may have been changed since
    except FileNotFoundError:
        raise UserError(f"{directory} is gone, so nobody can ask for windows") from None
    path = os.path.join(directory, REQUEST)
    try:
        data = load(path)
    except FileNotFoundError:
        return None
    if not isinstance(data, dict) or not _is_word(data.get("id")):
        raise UserError(f"{path} holds no request")
    return _request(data)


def _request(data: Mapping[str, Any]) -> RequestRow | OddRequest:
    """Stricter than other rows are read: an odd chooser that counted as none would ask everybody."""
    action = next((one for one in ACTIONS if one == data.get("action")), None)
    seconds = data.get("seconds")
    if action is None:
        return OddRequest(data["id"], "action is neither open nor close")
    if seconds is not None and not (fields.is_number(seconds) and 0 < seconds <= MAX_SECONDS):
        return OddRequest(data["id"], f"seconds is no number above 0 and up to {MAX_SECONDS:.0f}")
    for key in ("group", "role"):
        if not _are_words(data.get(key)):
            return OddRequest(data["id"], f"{key} is no name")
    row = RequestRow(
        data["id"],
        action,
        data.get("group"),
        data.get("role"),
        data.get("rank"),
        None if seconds is None else float(seconds),
        Writer.read(data.get("by")),
    )
    try:
        facts_fit({} if row.rank is None else {"rank": row.rank}, Target("", rank=0), None)
    except (ValueError, RecursionError):
        return OddRequest(row.id, "rank is no set of ranks")
    return row


def _is_word(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_WORD


def _are_words(value: object) -> bool:
    return value is None or all(map(_is_word, value if isinstance(value, list) else [value]))


# --- what is answered -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """What one worker said last.

    Attributes:
        key, label: which worker, for machines and for people; ``target`` has what it knows of its place.
        by: its process.
        tools: names of those that it records with; ``cannot``: why they open no window on demand, or nothing.
        window: id of the one that is open.
        request, meant: id of the request that it answers, and whether that was for it.
        seconds: how long its window stays open at most where who asks does not say.
    """

    key: str
    label: str
    by: Writer
    state: State
    target: Target
    text: str = ""
    cannot: str = ""
    window: str | None = None
    request: str | None = None
    meant: bool = True
    tools: Sequence[str] = ()
    seconds: float = field(default_factory=lambda: OnDemand().seconds)

    def to_json(self) -> dict[str, object]:
        """Plain JSON, as :meth:`read` reads it."""
        return {
            "key": self.key,
            "label": self.label,
            "group": self.target.group,
            "roles": list(self.target.roles),
            "rank": self.target.rank,
            **self.by.to_json(),
            "tools": list(self.tools),
            "cannot": self.cannot,
            "state": self.state,
            "window": self.window,
            "request": self.request,
            "meant": self.meant,
            "text": self.text,
            "seconds": self.seconds,
        }

    @classmethod
    def read(cls, data: object) -> AnswerRow | None:
        """``None`` for what no worker writes: the directory is this user's, but anything may lie in it. What this version does not
        know, or an older one did not write, has its default."""
        by = Writer.read(data)
        if by is None or not isinstance(data, Mapping):
            return None
        try:
            key, label, text, cannot, said = (
                fields.text(data.get(name)) for name in ("key", "label", "text", "cannot", "state")
            )
            window, request = (_maybe_text(data[name]) for name in ("window", "request"))
        except (fields.OddError, KeyError):
            return None
        state = known(said, STATES, "silent")  # of a later version: nothing that this one waits for
        if state != said:
            text = f"it says {fields.shown(said)}" + (f": {text}" if text else "")
        roles, tools = (_texts(data.get(name)) for name in ("roles", "tools"))
        group, rank, seconds = data.get("group"), data.get("rank"), data.get("seconds")
        target = Target(group if isinstance(group, str) else "", roles, rank if fields.is_whole(rank) else None)
        rest = {"seconds": float(seconds)} if seconds is not None and fields.is_number(seconds) else {}
        return cls(
            key, label, by, state, target, text, cannot, window, request, data.get("meant") is not False, tools, **rest
        )


def _maybe_text(value: object) -> str | None:
    return None if value is None else fields.text(value)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def write_answer(run_dir: str, row: AnswerRow) -> None:
    """What ``row``'s worker said last, in place of what it said before.

    Raises:
        UserError: the directory is not to be trusted.
        OSError: it cannot be written.
    """
    trusted(os.path.join(run_dir, DIRECTORY), directory=True)
    _write(answer_path(run_dir, row.key), row.to_json())


def answer_path(run_dir: str, key: str) -> str:
    """Where the worker that is called ``key`` answers."""
    return os.path.join(run_dir, DIRECTORY, f"worker-{key}.json")


# --- whom to trust --------------------------------------------------------------------------------------------------------


def load(path: str) -> Any:
    """JSON of a small plain file of this user's; nothing else is opened, and never more is read than such a file has.

    Raises:
        UserError: it is something else; the message does not depend on what is in it.
        OSError: it cannot be opened or read.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would be waited for
    try:  # fdopen refuses a directory, and would leave the handle open
        _trusted(path, os.fstat(handle), directory=False)
    except BaseException:
        os.close(handle)
        raise
    with os.fdopen(handle, "rb") as file:
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise UserError(f"{path} has more than {MAX_BYTES} bytes")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UserError(f"{path} is no JSON") from None


def trusted(path: str, *, directory: bool) -> None:
    """Refuse what somebody else owns or could have written.

    Raises:
        UserError: not this user's, or writable by others; says what it is and the mend.
        OSError: it cannot be looked at.
    """
    _trusted(path, os.lstat(path), directory=directory)


def _trusted(path: str, facts: os.stat_result, *, directory: bool) -> None:
    fits = stat.S_ISDIR(facts.st_mode) if directory else stat.S_ISREG(facts.st_mode)
    if not fits:
        raise UserError(f"{path} is not a {'directory' if directory else 'plain file'}")
    if facts.st_uid != os.geteuid():
        raise UserError(f"{path} belongs to user {facts.st_uid}, not to {os.geteuid()} who runs this")
    if facts.st_mode & 0o022:
        raise UserError(
            f"{path} can be written by others (mode {stat.S_IMODE(facts.st_mode):o}). Mend: chmod go-w {path}"
        )


def _write(path: str, data: Mapping[str, object]) -> None:
    atomic.write(path, lambda file: file.write(texts.dumps(data)), 0o600)


# --- who asks -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one worker's window, for who asked."""

    label: str
    host: str
    pid: int
    state: State
    text: str
    window: str | None = None


def status(run_dir: str) -> list[Answer]:
    """Every worker of a run that listened once, by label.

    Raises:
        UserError: no run, or nobody in it ever listened.
    """
    return [_answer(row) for row in _workers(run_dir)]


def ask(
    run_dir: str,
    action: Action,
    *,
    group: str | None = None,
    role: str | None = None,
    rank: str | None = None,
    seconds: float | None = None,
    timeout: float = 10.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> list[Answer]:
    """Write a request and wait until every live worker has answered; those that have not are ``silent``. Of those, processes of this
    host with a tool that records from outside are, which takes ``seconds`` more. Without ``seconds`` each worker's configuration says
    how long. By ``clock`` (seconds, monotonic) and ``sleep`` it waits; tests give their own.

    Raises:
        UserError: no run, nobody listens, or the directory is not ours to write.
        ConfigError: ``rank`` is no set of ranks.
    """
    if rank is not None and rank != "all":
        try:
            NumberSet.parse(rank)
        except ValueError as error:
            raise ConfigError(Problem("--rank", str(error), value=rank)) from None
    live = {row.key: row for row in _workers(run_dir) if row.state != "ended" and not is_gone(row.by)}
    if not live:
        raise UserError(f"no live worker of {run_dir} listens")
    trusted(os.path.join(run_dir, DIRECTORY), directory=True)
    request = RequestRow(secrets.token_hex(8), action, group, role, rank, seconds, Writer.me())
    place = os.path.join(run_dir, DIRECTORY, REQUEST)
    _write(place, request.to_json())
    end = clock() + timeout
    try:
        while True:
            live.update((row.key, row) for row in _workers(run_dir) if row.key in live)
            silent = {key: row for key, row in live.items() if row.request != request.id}
            displaced = _displaced(run_dir, request)
            if not silent or displaced or clock() >= end:
                break
            sleep(0.05)
        found = {} if displaced else _from_outside(run_dir, silent, request)
    except BaseException:  # interrupted: nobody waits for what a worker would do with it
        with contextlib.suppress(OSError):
            if not _displaced(run_dir, request):
                os.unlink(place)
        raise
    answers = []
    for key, row in live.items():
        if key not in silent:
            if row.meant:
                answers.append(_answer(row))
        elif displaced:
            text = "another request took this one's place before it was seen; ask again"
            answers.append(Answer(row.label, row.by.host, row.by.pid, "refused", text))
        else:
            state, text = found.get(key, ("silent", ""))
            text = "; ".join(part for part in (f"no answer in {timeout:g} s", text) if part)
            answers.append(Answer(row.label, row.by.host, row.by.pid, state, text))
    return answers


def _displaced(run_dir: str, request: RequestRow) -> bool:
    """Whether another request lies in the place of ``request``; what cannot be read is none."""
    try:
        there = read_request(run_dir)
    except (OSError, UserError):
        return False
    return there is not None and there.id != request.id


def _from_outside(run_dir: str, silent: Mapping[str, AnswerRow], request: RequestRow) -> dict[str, tuple[State, str]]:
    """State and text of workers whose interpreter is held, but one of whose tools records from outside; all at once."""
    found: dict[str, tuple[State, str]] = {}
    here: dict[str, type[Tool]] = {}
    for key, row in silent.items() if request.action == "open" else ():
        tool = _recording(row.tools)
        if tool is not None and row.by.is_here and request.fits(row.target):
            here[key] = tool

    def one(key: str) -> None:
        row = silent[key]
        name, long = f"{key}-{time.time_ns()}", row.seconds if request.seconds is None else request.seconds
        try:
            found[key] = "recorded", here[key].record_from_outside(run_dir, row.by.pid, name, long, log.warning)
        except failures() as error:
            found[key] = "silent", str(error) if isinstance(error, (CaptureError, OSError)) else text_of(error)

    try:
        each(one, here, len(here), "accelprof window")
    except BaseException:  # interrupted
        for tool in {*here.values()}:
            try:
                tool.withdraw(run_dir, [silent[key].by.pid for key, mine in here.items() if mine is tool])
            except failures() as error:  # the interrupt is what the user gets, and the other tools are asked too
                log.warning("tool %s: what was asked of it was not taken back: %s", tool.name, text_of(error))
        raise
    return found


def _recording(tools: Sequence[str]) -> type[Tool] | None:
    """The first of a worker's tools, as it wrote them down, that records from outside."""
    catalogue = get_catalogue()
    known = (catalogue.tool_class(name) for name in tools if name in catalogue.tool_names())
    return next((tool for tool in known if tool.records_from_outside), None)


def _workers(run_dir: str) -> list[AnswerRow]:
    directory = Path(run_dir, DIRECTORY)
    if not directory.is_dir():
        where = f"{run_dir} has no worker that listens for windows"
        raise UserError(
            f"{where}; is it the directory of a live run?" if os.path.isdir(run_dir) else f"{run_dir} is no directory"
        )
    rows, odd = [], ""
    for path in sorted(directory.glob("worker-*.json")):
        try:
            row = AnswerRow.read(load(str(path)))
        except OSError:
            continue  # it was being replaced; the next look finds it
        except UserError as error:
            odd = odd or str(error)  # whatever else lies there under this name is no worker's word
            continue
        if row is not None:
            rows.append(row)
    if not rows:
        raise UserError(odd or f"nobody in {run_dir} listens for windows")
    return rows


def is_gone(writer: Writer | None) -> bool:
    """Whether the process that wrote an answer, or asked, has ended; what cannot be told is there."""
    return writer is not None and writer.is_there() is False


def _answer(row: AnswerRow) -> Answer:
    if row.state != "ended" and is_gone(row.by):
        return Answer(row.label, row.by.host, row.by.pid, "ended", "its process is gone", row.window)
    return Answer(row.label, row.by.host, row.by.pid, row.state, row.text or row.cannot, row.window)
