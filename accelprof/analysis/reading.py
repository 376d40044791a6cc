"""``read_any``: a file of whatever tool as spans. Registered tools are asked first, Chrome traces are read anyway."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from accelprof.catalogue import get_registry
from accelprof.contracts.spans import Trace
from accelprof.errors import AccelprofError, ReadError
from accelprof.reading.chrome import to_trace
from accelprof.reading.chrome_file import ChromeFile, load

GZIP = b"\x1f\x8b"
UTF8_MARK = b"\xef\xbb\xbf"


@dataclass
class Loaded:
    """A file in memory: its events as they are where it is a Chrome trace, its spans in any case."""

    path: str
    tool: str
    chrome: ChromeFile | None
    _trace: Trace | None = None
    problems: list[str] = field(default_factory=list)

    def trace(self) -> Trace:
        """The spans; made once. Ask before the events are changed."""
        if self._trace is None:
            if self.chrome is None:
                raise ReadError(self.path, "nothing was loaded")
            self._trace = to_trace(self.chrome, self.tool)
            self._trace.problems.extend(self.problems)
        return self._trace


def read_any(path: str | os.PathLike[str], tool: str | None = None) -> Trace:
    """Read one file; ``tool`` (from a manifest) is asked before the others.

    Raises:
        ReadError: the file is not there, empty, or no tool can read it; the message names the tools that were asked.
    """
    return load_any(path, tool).trace()


def load_any(path: str | os.PathLike[str], tool: str | None = None) -> Loaded:
    """:func:`read_any` for those who want the events of a Chrome trace too.

    Raises:
        ReadError: as :func:`read_any`.
    """
    path = os.fspath(path)
    if not os.path.exists(path):
        raise ReadError(path, "no such file")
    problems: list[str] = []
    name = reader_of(path, tool, problems)
    if (name is None or _reads_plainly(name)) and looks_like_chrome(path):
        return Loaded(path, name or tool or "chrome", load(path), problems=problems)
    if name is None:
        asked = ", ".join(get_registry().tool_names())
        raise ReadError(path, f"no registered tool reads this file (asked: {asked}), and it is no Chrome trace")
    try:
        trace = get_registry().make_tool(name).read(path)
    except AccelprofError:
        raise
    except NotImplementedError as error:
        raise ReadError(path, str(error)) from None
    except Exception as error:
        raise ReadError(path, f"the reader of tool {name!r} failed: {type(error).__name__}: {error}") from error
    trace.problems.extend(problems)
    return Loaded(path, name, None, trace)


def _reads_plainly(name: str) -> bool:
    """Whether the tool's files are Chrome traces without anything to add."""
    return get_registry().tool_class(name).writes_chrome_trace


def reader_of(path: str, tool: str | None, problems: list[str]) -> str | None:
    """Name of the registered tool that reads ``path``, if any; a ``can_read`` that raises is named in ``problems``."""
    registry = get_registry()
    names: Iterable[str] = registry.tool_names()
    if tool is not None and tool in names:
        names = [tool, *(name for name in names if name != tool)]
    for name in names:
        try:
            if registry.tool_class(name).can_read(path):
                return name
        except Exception as error:  # noqa: BLE001 - a plug-in's fault is named, and the other readers are asked
            problems.append(f"tool {name!r} could not say whether it reads {path}: {type(error).__name__}: {error}")
    return None


def looks_like_chrome(path: str) -> bool:
    """By content: gzip, or text that begins as JSON does. Empty files are left to the reader, which names them."""
    if os.path.isdir(path):
        return False
    with open(path, "rb") as file:
        head = file.read(256)
    return not head or head.startswith(GZIP) or head.removeprefix(UTF8_MARK).lstrip()[:1] in (b"{", b"[")
