"""Tool ``torch_daemon``: Kineto's own windows on demand, in a worker that was started with ``KINETO_USE_DAEMON=1``.

Such a process asks the endpoint ``dynolog`` of its host about every five seconds whether a trace is wanted, over datagrams of a Unix
socket. Where no dynolog daemon is there to answer, one of the host's workers does while windows wait for their traces; for a worker
whose interpreter is held, ``accelprof window open`` does (``record_from_outside``). Nobody answers another user's processes. Kineto records for a time that it is told beforehand and cannot be stopped earlier, on a thread of its own.

The messages are those of ``dynolog/src/ipcfabric`` and ``libkineto/src/IpcFabricConfigClient.cpp``: the size of what follows
(8 bytes), its type (32), and what follows; ``req``: type, number of processes and job (4, 4, 8), then the process and its ancestors.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import glob
import json
import os
import socket
import stat
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from accelprof import atomic, texts
from accelprof.contracts.backend import Probe
from accelprof.contracts.options import unique
from accelprof.contracts.spans import HostCalls, Trace
from accelprof.contracts.targets import ArtifactFile, Assignment, Launch, Target, WindowInfo
from accelprof.contracts.tool import Tool, ToolContext, ToolOptions
from accelprof.contracts.words import TriggerCall
from accelprof.errors import CaptureError
from accelprof.threads import started
from accelprof.tools.torch import TRACED_CALLS, RecordFunctionEmitter, TorchTool

DAEMON_ENV, SOCKETS_ENV = "KINETO_USE_DAEMON", "KINETO_IPC_SOCKET_DIR"
#: without an answer, which is how it is between windows, Kineto writes an error to the terminal every few seconds
LOG_ENV, QUIET = "KINETO_LOG_LEVEL", "5"
ENDPOINT, SUFFIX = "dynolog", ".kineto.trace.json"
#: in the run's directory: what is wanted, by host and process
PLACE = ".kineto"
#: traces of workers that could not open a window themselves
OUTSIDE = "kineto"
HEAD, REQUEST = struct.Struct("=Q32s"), struct.Struct("=iiq")
#: of a sender: process, user, group
CREDENTIALS = struct.Struct("=iII")
#: Kineto copies directory, slash and the name of its own socket (52 characters) and a zero into 108 bytes without looking
LONGEST_DIRECTORY = 54
#: seconds between two questions of a process, and between two tries for the endpoint
ASKS_S, TRY_S = 5.0, 0.05
#: seconds that Kineto may take beyond its own time until the file is written
WRITES_S = 60.0
#: Kineto's word for what ``contents`` adds
KEYS = {
    "shapes": "PROFILE_REPORT_INPUT_SHAPES",
    "memory": "PROFILE_PROFILE_MEMORY",
    "stack": "PROFILE_WITH_STACK",
    "flops": "PROFILE_WITH_FLOPS",
    "modules": "PROFILE_WITH_MODULES",
}


class TorchDaemonOptions(ToolOptions):
    """Options of the tool.

    Attributes:
        contents: what is recorded beside host and device activity: ``shapes``, ``memory``, ``stack``, ``flops``, ``modules``.
        seconds: how long a window records that was not asked for with a time of its own.
    """

    contents: Annotated[
        tuple[Literal["shapes", "memory", "stack", "flops", "modules"], ...], BeforeValidator(unique)
    ] = Field(())
    seconds: float = Field(10.0, gt=0, le=3600)


class Asked:
    """A trace that one process of this host is to write: a small file in the run's directory, which whoever answers for the host
    reads, and removes when it has told that process's Kineto.

    Attributes:
        until: when Kineto shall end, as ``time.monotonic`` of the host counts.
        why: why nobody has asked, as far as it is known.
        over: the window has closed.
        say: says something once.
    """

    def __init__(
        self, run_dir: str, pid: int, stem: str, seconds: float, contents: Sequence[str], say: Callable[[str], object]
    ) -> None:
        words = [f"ACTIVITIES_LOG_FILE={stem}.json", "PROFILE_START_TIME=0", "ACTIVITIES_WARMUP_PERIOD_SECS=0"]
        words.extend(f"{KEYS[content]}=true" for content in contents)
        self.place, self.say, self.over = os.path.join(run_dir, PLACE), say, threading.Event()
        self.until = time.monotonic() + seconds
        self.why = (
            f"Kineto asks every {ASKS_S:g} s, and did not while the window was open; open it for longer (--seconds)"
        )
        self._pid, self._stem = pid, stem
        os.makedirs(self.place, exist_ok=True)
        self._path = _path(self.place, pid)
        atomic.write(self._path, lambda file: file.write(texts.dumps({"until": self.until, "words": words})))

    @property
    def told(self) -> bool:
        """Whether Kineto has taken it over."""
        return not os.path.exists(self._path)

    def take_back(self) -> None:
        """It is no longer wanted.

        Raises:
            CaptureError: Kineto had not taken it over before.
        """
        self.over.set()
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            return
        raise CaptureError(self.why)

    def written(self) -> str:
        """The file, once Kineto has written it: it puts the process's number in the name, and renames what is complete.

        Raises:
            CaptureError: it does not come.
        """
        path = f"{self._stem}_{self._pid}.json"
        until = self.until + WRITES_S
        while not os.path.isfile(path) and time.monotonic() < until:
            time.sleep(TRY_S)
        if not os.path.isfile(path):
            raise CaptureError(
                f"Kineto took the window over and left no {path}; another profiler may have been recording"
            )
        kept = self._stem + SUFFIX
        os.replace(path, kept)
        return kept


class TorchDaemonTool(Tool):
    """See the module."""

    name: ClassVar[str] = "torch_daemon"
    aliases: ClassVar[tuple[str, ...]] = ("kineto_daemon",)
    Options: ClassVar[type[ToolOptions]] = TorchDaemonOptions
    writes_chrome_trace: ClassVar[bool] = True
    records_from_outside: ClassVar[bool] = True
    host_calls: ClassVar[HostCalls] = TRACED_CALLS
    exclusive: ClassVar[frozenset[str]] = frozenset({"torch_profiler", "cupti"})

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._asked: Asked | None = None
        self._directory = ""

    @classmethod
    def record_from_outside(
        cls, run_dir: str, pid: int, name: str, seconds: float, say: Callable[[str], object]
    ) -> str:
        """Its Kineto asks by itself, on a thread of its own."""
        with open(f"/proc/{pid}/environ", "rb") as file:
            given = dict(line.partition(b"=")[::2] for line in file.read().split(b"\0"))
        if os.fsencode(DAEMON_ENV) not in given:
            raise CaptureError(f"process {pid} was started without {DAEMON_ENV}=1, so its Kineto asks nobody")
        directory = directory_of(os.fsdecode(given.get(os.fsencode(SOCKETS_ENV), b"")))
        place = os.path.join(os.path.abspath(run_dir), OUTSIDE)
        os.makedirs(place, exist_ok=True)
        asked = Asked(run_dir, pid, os.path.join(place, name), seconds, (), say)
        try:
            _serve(asked, directory)
        except BaseException:  # interrupted: nobody waits for the trace
            cls.withdraw(run_dir, [pid])
            raise
        asked.take_back()
        return f"Kineto wrote {asked.written()} by itself"

    @classmethod
    def withdraw(cls, run_dir: str, pids: Sequence[int]) -> None:
        """As far as their Kineto has not taken it over."""
        for pid in pids:
            with contextlib.suppress(OSError):
                os.unlink(_path(os.path.join(run_dir, PLACE), pid))

    def probe(self) -> Probe:
        return TorchTool().probe()

    def trigger(self, target: Target) -> TriggerCall:
        return "in_process"

    def launch(self, assignment: Assignment, directory: str) -> Launch:
        try:
            directory_of(os.environ.get(SOCKETS_ENV, ""))
        except CaptureError as error:  # a Kineto that does not ask does no harm
            return Launch(notes=(f"torch_daemon: {error}",))
        return Launch(
            mode="env", env={DAEMON_ENV: "1", LOG_ENV: QUIET}, make_dirs=(directory,),
            notes=(f"torch_daemon: Kineto looks for a window every {ASKS_S:g} s, so one of a few seconds may have no trace",),
        )  # fmt: skip

    def attach(self, context: ToolContext) -> None:
        super().attach(context)
        if os.environ.get(DAEMON_ENV) is None:
            directory_of(os.environ.get(SOCKETS_ENV, ""))
            raise CaptureError(
                f"this process was started without {DAEMON_ENV}=1, so its Kineto asks nobody; start it through accelprof "
                f"(accelprof run, or the controller's options), or with that variable"
            )
        self._directory = directory_of(os.environ.get(SOCKETS_ENV, ""))
        import torch  # noqa: F401 - its Kineto begins to ask

        self._emitter = RecordFunctionEmitter()

    def open(self, window: WindowInfo) -> None:
        if self.context is None:
            raise CaptureError(f"tool {self.name} was not attached to this session")
        seconds, context = window.seconds or self.options.seconds, self.context
        self._asked = asked = Asked(
            context.run_dir, os.getpid(), window.stem, seconds, self.options.contents, context.say
        )
        started(functools.partial(_serve, asked, self._directory), "accelprof torch_daemon")

    def stop(self, window: WindowInfo) -> Callable[[], Sequence[ArtifactFile]] | None:
        asked, self._asked = self._asked, None
        if asked is None:
            return None
        asked.take_back()
        return functools.partial(self._written, asked, window)

    def close(self, window: WindowInfo) -> list[ArtifactFile]:
        write = self.stop(window)
        return [] if write is None else list(write())

    def _written(self, asked: Asked, window: WindowInfo) -> list[ArtifactFile]:
        path = asked.written()
        return [ArtifactFile(path, self.name, (window.id,), os.path.getsize(path))]

    @classmethod
    def can_read(cls, path: str) -> bool:
        return path.endswith(SUFFIX)

    def read(self, path: str) -> Trace:
        from accelprof.reading.chrome import read_chrome

        return read_chrome(path, self.name)


def directory_of(directory: str) -> str:
    """``directory``, where Kineto's sockets are (empty: they have no files), if it can be used.

    Raises:
        CaptureError: Kineto would write over its own memory, or others could answer in its place.
    """
    if not directory:
        return ""
    wrong, length = "", len(os.fsencode(directory))
    try:
        facts = os.stat(directory)
    except OSError as error:
        wrong = error.strerror or str(error)
    else:
        if not stat.S_ISDIR(facts.st_mode):
            wrong = "is no directory"
        elif facts.st_uid not in (0, os.geteuid()):
            wrong = f"belongs to user {facts.st_uid}, who could answer in our place"
        elif facts.st_mode & 0o022 and not facts.st_mode & stat.S_ISVTX:
            wrong = f"can be written by others (mode {stat.S_IMODE(facts.st_mode):o}), who could answer in our place"
    if not os.path.isabs(directory):
        wrong = "is no absolute path"
    if length > LONGEST_DIRECTORY:
        wrong = f"has {length} bytes, and Kineto writes over its own memory from {LONGEST_DIRECTORY + 1} on"
    if wrong:
        raise CaptureError(
            f"{SOCKETS_ENV}={directory}: {wrong}; allowed: an absolute path of up to {LONGEST_DIRECTORY} bytes to a directory that "
            "only its owner can write. Mend: one that mktemp -d makes, or none"
        )
    return directory


def _serve(asked: Asked, directory: str) -> None:
    """Answer as the daemon does until every trace that is wanted on this host is under way."""
    address = os.path.join(directory, ENDPOINT) if directory else f"\0{ENDPOINT}\0"
    bound, ignored = False, set[int]()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as endpoint:
        endpoint.settimeout(TRY_S)
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        try:
            while not asked.over.is_set() and time.monotonic() < asked.until and glob.glob(_path(asked.place, "*")):
                if bound:
                    _answer(endpoint, asked, ignored)
                elif not asked.told:
                    bound = _bind(endpoint, address, asked)
                else:
                    break  # another worker answers
        except OSError as error:
            asked.why = f"the endpoint that Kineto asks cannot be served: {error}"
        finally:
            if bound and directory:
                with contextlib.suppress(OSError):  # somebody has tidied up
                    os.unlink(address)


def _bind(endpoint: socket.socket, address: str, asked: Asked) -> bool:
    try:
        endpoint.bind(address)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        if _cleared(address):
            return False
        asked.over.wait(TRY_S)
        asked.why = f"{asked.why.partition(';')[0]}; another process of this host answers as {ENDPOINT}: where that is its daemon, ask it (dyno gputrace)"
        return False
    return True


def _cleared(address: str) -> bool:
    """Whether a socket's file was removed that a process that is gone had left. One process looks and removes at a time: the file
    that another one finds there may be that of somebody who has begun to answer meanwhile."""
    if address.startswith("\0"):
        return False
    handle = os.open(f"{address}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if not _deserted(address):
            return False
        with contextlib.suppress(FileNotFoundError):
            os.unlink(address)
        return True
    finally:
        os.close(handle)


def _deserted(address: str) -> bool:
    """Whether the socket's file was left by a process that is gone."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(address)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def _answer(endpoint: socket.socket, asked: Asked, ignored: set[int]) -> None:
    """One question, if there is one: what its process wants, or that nothing is wanted; none of another user's, which is said once."""
    try:
        message, more, _, sender = endpoint.recvmsg(1 << 16, socket.CMSG_SPACE(CREDENTIALS.size))
    except TimeoutError:
        return
    user = next((int(CREDENTIALS.unpack(data)[1]) for _, what, data in more if what == socket.SCM_CREDENTIALS), -1)
    if user != os.geteuid():
        if user not in ignored:
            ignored.add(user)
            asked.say(
                f"a process of user {user} asks for Kineto's windows here; this is user {os.geteuid()}, it gets no answer"
            )
        return
    if len(message) < HEAD.size + REQUEST.size or not sender:
        return
    kind, text, path = HEAD.unpack_from(message)[1], b"", ""
    pid = message[HEAD.size + REQUEST.size :][:4]  # before those of its ancestors
    if kind.rstrip(b"\0") == b"req" and len(pid) == 4:
        path = _path(asked.place, int.from_bytes(pid, sys.byteorder))
        text = _words(path)
    with contextlib.suppress(OSError):  # who asked is gone, or has just taken it back
        endpoint.sendto(HEAD.pack(len(text), kind) + text, sender)
        if text:
            os.unlink(path)


def _words(path: str) -> bytes:
    """What ``libkineto/src/Config.cpp`` is to read; empty where nothing is wanted."""
    try:
        with open(path, encoding="utf-8") as file:
            wanted = json.load(file)
        left = max(1.0, wanted["until"] - time.monotonic())
        return "\n".join([*wanted["words"], f"ACTIVITIES_DURATION_MSECS={left * 1e3:.0f}"]).encode()
    except (OSError, ValueError, KeyError, TypeError):
        return b""


def _path(place: str, pid: int | str) -> str:
    return os.path.join(place, f"{os.uname().nodename}-{pid}.json")
