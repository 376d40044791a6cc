"""Windows on demand: a small directory in the run's, that only its owner can write, asks live workers to open and close one.

``accelprof window`` (or a signal, where the configuration asks for it) writes a request; each selected worker looks for it
about once a second and answers with a file of its own. Nothing listens on a network. Both sides are one module, because they are the
two ends of the same files.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelprof import atomic, texts
from accelprof.catalogue import get_catalogue
from accelprof.contracts import reasons
from accelprof.contracts.targets import Target
from accelprof.errors import CaptureError, ConfigError, Problem, UserError, failures, text_of
from accelprof.numberset import NumberSet
from accelprof.planning.sampling import facts_fit
from accelprof.processes import Writer
from accelprof.session.triggers.demand import ON_DEMAND, cannot
from accelprof.threads import Wake, each, on_main

if TYPE_CHECKING:
    from accelprof.config.model import OnDemand
    from accelprof.contracts.tool import Tool
    from accelprof.session.captures import Captures
    from accelprof.session.triggers.demand import Demand

log = logging.getLogger("accelprof")

DIRECTORY = ".control"
REQUEST = "request.json"
INTERVAL_S = 0.5
DEFAULT_SECONDS = 30.0
#: more than any request or answer has, and longer than any window is wanted
MAX_BYTES, MAX_SECONDS, MAX_WORD = 64 << 10, 7 * 24 * 3600.0, 200
SIGNAL = signal.SIGUSR2


# --- in the worker --------------------------------------------------------------------------------------------------------


class Requests:
    """Hears them for one session. Made for selected sessions by ``configure``.

    Args:
        captures, demand: what is asked for opens there.
        settings: what signals ask for; ``None``: none are listened for.
        interval: seconds between two looks at the directory.
    """

    def __init__(
        self, captures: Captures, demand: Demand, settings: OnDemand | None, interval: float = INTERVAL_S
    ) -> None:
        self._captures, self._voice, self._process = captures, captures.voice, captures.process
        self._demand, self._settings, self._interval = demand, settings, interval
        self._run_dir = self._process.layout.run_dir
        self.directory = os.path.join(self._run_dir, DIRECTORY)
        self._answer_path = os.path.join(self.directory, f"worker-{self._process.key}.json")
        self._handled: str | None = None
        self._last: Mapping[str, Any] | None = None
        self._signalled = Wake()
        self._previous: Any = None
        self._ended = False
        self._thread = threading.Thread(target=self._listen, name="accelprof requests", daemon=True)

    def start(self) -> None:
        """Say that this worker listens, and listen. A directory that cannot be trusted is reported, and nobody listens."""
        try:
            os.makedirs(self._run_dir, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.directory, 0o700)
            trusted(self.directory, directory=True)
            with contextlib.suppress(UserError):  # said when the next look finds it still there
                request = self._read()
                self._handled = None if request is None else request["id"]  # asked before this worker was there
            self._say("listening")
        except (OSError, UserError) as error:
            self._voice.say(f"windows on demand cannot be had: {error}", level=20)
            return
        if self._settings is not None and self._settings.signal:
            self._take_signal()
        self._thread.start()

    def end(self) -> None:
        """The session closes."""
        self._ended = True
        self._signalled.set()
        if on_main() and self._previous is not None:
            if self._captures.lock.handler(SIGNAL) == self._on_signal:  # nobody put another over it
                signal.signal(SIGNAL, self._previous)
            self._previous = None
        if os.path.exists(self._answer_path):
            with contextlib.suppress(OSError, UserError):
                self._say("ended", self._last, "its session is closed")

    def disown(self) -> None:
        """In a forked child: requests are for the parent."""
        self._ended = True

    def poll(self) -> None:
        """Look once; what the thread does again and again."""
        displaced = self._demand.look()
        if displaced:
            self._say("refused", self._last, displaced)
        try:
            request = self._read()
        except (OSError, UserError) as error:
            self._voice.say(f"a request for a window is not followed: {error}")
            return
        if request is None or request["id"] == self._handled:
            return
        self._handled, self._last = request["id"], request
        wrong = _wrong_with(request)
        if wrong:
            self._voice.say(f"a request for a window is not followed: {wrong}")
            self._say("refused", request, wrong)
        elif not self._meant(request):
            self._say("listening", request, "not asked for", meant=False)
        elif request["action"] == "open" and _is_gone(request.get("by")):
            text = f"who asked for a window (process {request['by']['pid']}) has ended meanwhile"
            self._voice.say(f"no window on demand: {text}")
            self._say("refused", request, text)
        elif request["action"] == "open":
            seconds = request.get("seconds")
            state, text = self._demand.open(DEFAULT_SECONDS if seconds is None else float(seconds))
            self._say(state, request, text)
        else:
            state, text = self._asked_to_close()
            self._say(state, request, text)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        while not self._ended:
            if self._signalled.wait(self._interval) and not self._ended:
                self._toggle()
            if not self._ended:
                with self._guard():
                    self.poll()

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except failures() as error:  # reported once; the worker goes on
            text = f"serving a request for a window failed: {text_of(error)}"
            self._voice.say(text)
            with contextlib.suppress(OSError, UserError):
                self._say("refused", self._last, text)

    def _read(self) -> dict[str, Any] | None:
        """The request that lies there, whoever it is for; its ``id`` is a text.

        Raises:
            UserError: it is not to be trusted, or is no request.
            OSError: it cannot be looked at.
        """
        try:
            trusted(self.directory, directory=True)  # its mode may have been changed since
        except FileNotFoundError:
            raise UserError(f"{self.directory} is gone, so nobody can ask for windows") from None
        path = os.path.join(self.directory, REQUEST)
        try:
            data = _load(path)
        except FileNotFoundError:
            return None
        if not isinstance(data, dict) or not _is_word(data.get("id")):
            raise UserError(f"{path} holds no request")
        return data

    def _meant(self, request: Mapping[str, object]) -> bool:
        wanted = {key: request[key] for key in ("group", "role", "rank") if request.get(key) is not None}
        return facts_fit(wanted, self._process.target, None)

    def _asked_to_close(self) -> tuple[str, str]:
        window = self._captures.window
        if window is None and not self._demand.going_on:
            return "listening", "no window was open"
        if window is not None and window.info.kind != ON_DEMAND:
            return "refused", f"window {window.info.sequence} was planned ({window.info.kind}); it closes as planned"
        self._demand.close(reasons.ON_DEMAND)
        return "listening", "closed" if self._captures.window is None else "closes where its thread comes by next"

    def _take_signal(self) -> None:
        if not on_main():
            self._voice.say("on_demand.signal: signals can only be taken on the main thread, and this is another")
            return
        self._previous = signal.signal(SIGNAL, self._on_signal)

    def _on_signal(self, number: int, frame: object) -> None:
        self._signalled.set()

    def _toggle(self) -> None:
        with self._guard():
            if self._demand.going_on:
                self._demand.close(reasons.BY_SIGNAL)
                return
            state, text = self._demand.open(DEFAULT_SECONDS if self._settings is None else self._settings.seconds)
            if state == "refused":
                self._voice.say(f"no window on a signal: {text}")

    def _say(self, state: str, request: Mapping[str, object] | None = None, text: str = "", meant: bool = True) -> None:
        """``meant``: whether ``request`` is for this process."""
        process, tools, window = self._process, self._captures.tools, self._captures.window
        if self._ended:
            state = "ended"  # an answer that comes after the end must not say that somebody listens
        answer = {
            "key": process.key,
            "label": process.target.label,
            "group": process.target.group,
            "roles": list(process.target.roles),
            "rank": process.target.rank,
            **Writer.me().to_json(),
            "host": process.host,
            "tools": [tool.name for tool in tools],
            "cannot": next((why for why in map(cannot, tools) if why), ""),
            "state": state,
            "window": None if window is None else window.info.id,
            "request": None if request is None else request.get("id"),
            "meant": meant,
            "text": text,
        }
        trusted(self.directory, directory=True)
        _write(self._answer_path, answer)


# --- what is read ---------------------------------------------------------------------------------------------------------


def _load(path: str) -> Any:
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


def _is_word(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_WORD


def _wrong_with(request: Mapping[str, Any]) -> str:
    """Why a request cannot be followed; empty when it can. Says nothing of the value, so that it is said once."""
    if request.get("action") not in ("open", "close"):
        return "action is neither open nor close"
    seconds = request.get("seconds")
    if seconds is not None:
        number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
        if not number or not 0 < seconds <= MAX_SECONDS:
            return f"seconds is no number above 0 and up to {MAX_SECONDS:.0f}"
    for key in ("group", "role"):
        values = request.get(key)
        if values is not None and not all(
            _is_word(value) for value in (values if isinstance(values, list) else [values])
        ):
            return f"{key} is no name"
    try:
        facts_fit({"rank": request["rank"]} if request.get("rank") is not None else {}, Target("", rank=0), None)
    except (ValueError, RecursionError):
        return "rank is no set of ranks"
    return ""


# --- whom to trust --------------------------------------------------------------------------------------------------------


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


# --- on the command line --------------------------------------------------------------------------------------------------


#: what every worker's file has
ANSWERED = frozenset({"key", "label", "host", "pid", "state", "text", "cannot", "window", "request"})


@dataclass(frozen=True, slots=True)
class Answer:
    """What one worker says. ``state``: listening | open | armed | refused | ended | silent; ``recorded``: it said nothing, but its
    tool recorded it from outside."""

    label: str
    host: str
    pid: int
    state: str
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
    action: str,
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
    host with a tool that records from outside are, which takes ``seconds`` more. By ``clock`` (seconds, monotonic) and
    ``sleep`` it waits; tests give their own.

    Raises:
        UserError: no run, nobody listens, or the directory is not ours to write.
        ConfigError: ``rank`` is no set of ranks.
    """
    if rank is not None and rank != "all":
        try:
            NumberSet.parse(rank)
        except ValueError as error:
            raise ConfigError(Problem("--rank", str(error), value=rank)) from None
    live = [row["key"] for row in _workers(run_dir) if row["state"] != "ended" and not _is_gone(row)]
    if not live:
        raise UserError(f"no live worker of {run_dir} listens")
    directory = os.path.join(run_dir, DIRECTORY)
    trusted(directory, directory=True)
    wanted = {"group": group, "role": role, "rank": rank, "seconds": seconds}
    request = {"id": secrets.token_hex(8), "action": action, **wanted, "by": Writer.me().to_json()}
    place = os.path.join(directory, REQUEST)
    _write(place, request)
    displaced = False
    end = clock() + timeout
    try:
        while True:
            rows = {row["key"]: row for row in _workers(run_dir)}
            answered = [key for key in live if rows.get(key, {}).get("request") == request["id"]]
            with contextlib.suppress(OSError, UserError):
                displaced = _load(place)["id"] != request["id"]
            if len(answered) == len(live) or displaced or clock() >= end:
                break
            sleep(0.05)
        silent = {} if displaced else {key: rows[key] for key in live if key not in answered}
        found = _from_outside(run_dir, silent, action, seconds, request)
    except BaseException:  # interrupted: nobody waits for what a worker would do with it
        with contextlib.suppress(OSError, UserError):
            if _load(place)["id"] == request["id"]:
                os.unlink(place)
        raise
    answers = []
    for key in live:
        row = rows[key]
        if key in answered:
            if row.get("meant") is not False:
                answers.append(_answer(row))
        elif displaced:
            text = "another request took this one's place before it was seen; ask again"
            answers.append(Answer(row["label"], row["host"], row["pid"], "refused", text))
        else:
            state, text = found.get(key, ("silent", ""))
            text = "; ".join(part for part in (f"no answer in {timeout:g} s", text) if part)
            answers.append(Answer(row["label"], row["host"], row["pid"], state, text))
    return answers


def _from_outside(
    run_dir: str,
    silent: Mapping[str, Mapping[str, Any]],
    action: str,
    seconds: float | None,
    request: Mapping[str, Any],
) -> dict[str, tuple[str, str]]:
    """State and text of workers whose interpreter is held, but one of whose tools records from outside; all at once."""
    found: dict[str, tuple[str, str]] = {}
    wanted = {name: request[name] for name in ("group", "role", "rank") if request.get(name) is not None}
    here: dict[str, type[Tool]] = {}
    for key, row in silent.items() if action == "open" else ():
        tool = _recording(row.get("tools"))
        target = Target(row.get("group") or "", tuple(row.get("roles") or ()), row.get("rank"))
        if tool is not None and (by := Writer.read(row)) is not None and by.is_here and facts_fit(wanted, target, None):
            here[key] = tool

    def one(key: str) -> None:
        name, long = f"{key}-{time.time_ns()}", seconds or DEFAULT_SECONDS
        try:
            said = here[key].record_from_outside(run_dir, silent[key]["pid"], name, long, log.warning)
            found[key] = "recorded", said
        except failures() as error:
            found[key] = "silent", str(error) if isinstance(error, (CaptureError, OSError)) else text_of(error)

    try:
        each(one, here, len(here), "accelprof window")
    except BaseException:  # interrupted
        for tool in {*here.values()}:
            tool.withdraw(run_dir, [silent[key]["pid"] for key, mine in here.items() if mine is tool])
        raise
    return found


def _recording(tools: object) -> type[Tool] | None:
    """The first of a worker's tools, as it wrote them down, that records from outside."""
    catalogue = get_catalogue()
    known = (
        (catalogue.tool_class(name) for name in tools if name in catalogue.tool_names())
        if isinstance(tools, list)
        else ()
    )
    return next((tool for tool in known if tool.records_from_outside), None)


def _workers(run_dir: str) -> list[dict[str, Any]]:
    directory = Path(run_dir, DIRECTORY)
    if not directory.is_dir():
        where = f"{run_dir} has no worker that listens for windows"
        raise UserError(
            f"{where}; is it the directory of a live run?" if os.path.isdir(run_dir) else f"{run_dir} is no directory"
        )
    rows, odd = [], ""
    for path in sorted(directory.glob("worker-*.json")):
        try:
            row = _load(str(path))
        except OSError:
            continue  # it was being replaced; the next look finds it
        except UserError as error:
            odd = odd or str(error)  # whatever else lies there under this name is no worker's word
            continue
        if isinstance(row, dict) and row.keys() >= ANSWERED and _is_answer(row):
            rows.append(row)
    if not rows:
        raise UserError(odd or f"nobody in {run_dir} listens for windows")
    return rows


def _is_answer(row: Mapping[str, object]) -> bool:
    """Whether the fields are what a worker writes: the directory is this user's, but anything may lie in it."""
    pid = row["pid"]
    texts = all(isinstance(row[key], str) for key in ("key", "label", "host", "state", "text", "cannot"))
    words = all(row[key] is None or isinstance(row[key], str) for key in ("window", "request"))
    return texts and words and isinstance(pid, int) and not isinstance(pid, bool) and 0 < pid < 1 << 31


def _is_gone(row: object) -> bool:
    """Whether the process that wrote an answer, or asked, has ended; what cannot be told is there."""
    writer = Writer.read(row)
    return writer is not None and writer.is_there() is False


def _answer(row: Mapping[str, Any]) -> Answer:
    gone = row["state"] != "ended" and _is_gone(row)
    state = "ended" if gone else row["state"]
    text = "its process is gone" if gone else row["text"] or row["cannot"]
    return Answer(row["label"], row["host"], row["pid"], state, text, row["window"])
