"""``read_any``: a file of whatever tool as spans. Registered tools are asked first, Chrome traces are read anyway."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from accelprof import texts
from accelprof.analysis.holders import calls_said, named
from accelprof.catalogue import get_catalogue
from accelprof.contracts.spans import HostCalls, Kind, Trace
from accelprof.errors import AccelprofError, ReadError, UnknownFormatError, failures, text_of
from accelprof.reading import sqlite
from accelprof.reading.chrome import read_chrome
from accelprof.reading.columns import CODES, Columns, columns_of
from accelprof.reading.gzipped import GZIP, opened

UTF8_MARK = b"\xef\xbb\xbf"


class Loaded:
    """One file of a known tool. Its spans and, where it is a Chrome trace, its events are read when first asked for.

    Attributes:
        figures: of a file that holds no spans, and what to note of it.
    """

    def __init__(
        self,
        path: str,
        tool: str,
        trace: Trace | None = None,
        problems: Sequence[str] = (),
        *,
        is_chrome: bool = False,
        figures: tuple[Mapping[str, object], str] | None = None,
    ) -> None:
        self.path, self.tool, self.problems, self.figures = path, tool, list(problems), figures
        self._trace = trace
        #: whether the file is a Chrome trace, whose events can be passed on as they are
        self.is_chrome = is_chrome

    def trace(self) -> Trace:
        """The spans; made once.

        Raises:
            ReadError: the file cannot be read.
        """
        if self._trace is None:
            if not self.is_chrome:
                raise ReadError(self.path, f"files of tool {self.tool!r} hold no spans")
            self._trace = _named(
                self.path, "spans", lambda: _with_waits(_through_the_door(read_chrome(self.path, self.tool)))
            )
            self._trace.problems.extend(self.problems)
        return self._trace


def read_any(path: str | os.PathLike[str], tool: str | None = None) -> Trace:
    """Read one file; ``tool`` (from a manifest) is asked before the others.

    Raises:
        ReadError: the file is not there, empty, or no tool can read it; the message names the tools that were asked.
    """
    return load_any(path, tool).trace()


def load_any(path: str | os.PathLike[str], tool: str | None = None) -> Loaded:
    """:func:`read_any` for those who want the events of a Chrome trace too. A Chrome trace is read when it is asked for.

    Raises:
        ReadError: as :func:`read_any`.
    """
    path = os.fspath(path)
    try:
        if not os.path.isdir(path):
            opened(path).close()  # a FIFO would keep whoever opens it waiting
    except ReadError as error:
        raise ReadError(path, "no such file") if not os.path.exists(path) else error from None
    problems: list[str] = []
    name = reader_of(path, tool, problems)
    if tool is not None and name is not None and name != tool and tool in get_catalogue().tool_names():
        problems.append(f"it is said to be of tool {tool!r}, but by its content {name!r} reads it; it was read as that")
    if (name is None or _reads_plainly(name)) and looks_like_chrome(path):
        return Loaded(path, name or tool or "chrome", problems=problems, is_chrome=True)
    if name is None and sqlite.is_one(path):
        raise _unknown_database(path)
    if name is None:
        asked = ", ".join(get_catalogue().tool_names())
        raise UnknownFormatError(
            path, f"no registered tool reads this file (asked: {asked}), and it is no Chrome trace"
        )
    tool_of, reader = get_catalogue().make_tool, f"reader of tool {name!r}"
    if not has_spans(name):
        return Loaded(path, name, problems=problems, figures=_named(path, reader, lambda: tool_of(name).figures(path)))
    trace = _named(path, reader, lambda: _through_the_door(tool_of(name).read(path)))
    trace.problems.extend(problems)
    return Loaded(path, name, trace)


def _unknown_database(path: str) -> ReadError:
    """What to say of a database that no tool reads."""
    try:
        tables = sorted(sqlite.tables_of(path))
    except ReadError as error:
        return ReadError(path, f"an SQLite database, but {error.reason}; of which tool it is cannot be seen any more")
    shown = texts.listed([texts.bounded(name) for name in tables], 6) or "none"
    said = f"an SQLite database that no registered tool reads (tables: {shown})"
    cut = sqlite.cut_off(path)
    return ReadError(path, f"{said}; {cut}") if cut else UnknownFormatError(path, said)


def _through_the_door(trace: Trace) -> Trace:
    """A third party's list of spans becomes columns here, where what is wrong with it still has the file's name; texts get bounds."""
    left_out = trace.completeness.events_left_out
    columns = columns_of(trace)
    _say_calls(trace, columns)
    cut = 0
    for table in (columns.names, columns.processes, columns.tasks, columns.devices, columns.streams, columns.words):
        cut += _bounded(table)
    columns.threads[:] = [(process, _bound(thread)) for process, thread in columns.threads]
    for mark in trace.marks:
        for name in ("name", "pid", "tid", "domain", "category", "color"):
            value = getattr(mark, name)
            if isinstance(value, str) and not (value.isascii() and len(value) <= texts.LONGEST):
                setattr(mark, name, texts.bounded(value))
                cut += len(value) > texts.LONGEST
    _bounded(trace.problems)
    if cut:
        trace.problems.append(
            f"{cut} name{'s' * (cut != 1)} of more than {texts.LONGEST:,} characters: shown by both ends"
        )
    lost = trace.completeness.events_left_out - left_out
    if lost:
        trace.problems.append(f"left out: {lost} span{'s' * (lost != 1)} whose times are none")
    return trace


def _say_calls(trace: Trace, columns: Columns) -> None:
    """What the tool whose file it is calls launches, where it says that."""
    catalogue = get_catalogue()
    said = catalogue.tool_class(trace.tool).host_calls if trace.tool in catalogue.tool_names() else HostCalls()
    wrong = said.fault() if isinstance(said, HostCalls) else f"host_calls is {said!r}; a HostCalls is expected"
    if wrong:
        trace.problems.append(f"tool {trace.tool!r}: {wrong}; launches are looked for by what other tools call them")
    columns.calls = said if not wrong and said.launches else None


def _with_waits(trace: Trace) -> Trace:
    """Calls that wait for the device become such: a Chrome trace has them among all calls, by the name that its tool calls them."""
    columns = columns_of(trace)
    runtime = columns.rows(Kind.RUNTIME)
    if runtime.size:
        waits = named(columns, (calls.waits for calls in calls_said(columns)))
        columns.kind[runtime[waits[columns.name[runtime]]]] = CODES[Kind.SYNC]
    return trace


def _bound(value: Any) -> Any:
    return texts.bounded(value) if isinstance(value, str) else value


def _bounded(table: list[Any]) -> int:
    """Give the texts of a table bounds, in place; how many were cut."""
    if set(map(type, table)) == {str} and max(map(len, table)) <= texts.LONGEST and texts.ascii_alone(table):
        return 0  # as nearly all are
    cut = sum(isinstance(value, str) and len(value) > texts.LONGEST for value in table)
    table[:] = map(_bound, table)
    return cut


_T = TypeVar("_T")


def _named(path: str, what: str, read: Callable[[], _T]) -> _T:
    """What ``read`` returns; whatever it raises becomes a :class:`ReadError` with the file's name.

    Raises:
        ReadError: as said.
    """
    try:
        return read()
    except AccelprofError:
        raise
    except NotImplementedError as error:
        raise ReadError(path, str(error)) from None
    except failures() as error:
        raise ReadError(path, f"the {what} failed: {text_of(error)}") from error


def has_spans(tool: str) -> bool:
    """Whether a tool's files do, as far as it is known."""
    catalogue = get_catalogue()
    return tool not in catalogue.tool_names() or catalogue.tool_class(tool).has_spans


def _reads_plainly(name: str) -> bool:
    """Whether the tool's files are Chrome traces without anything to add."""
    return get_catalogue().tool_class(name).writes_chrome_trace


def reader_of(path: str, tool: str | None, problems: list[str]) -> str | None:
    """Name of the registered tool that reads ``path``, if any; a ``can_read`` that raises is named in ``problems``."""
    catalogue = get_catalogue()
    names: Iterable[str] = catalogue.tool_names()
    if tool is not None and tool in names:
        names = [tool, *(name for name in names if name != tool)]
    by_name: str | None = None
    for name in names:
        try:
            if catalogue.tool_class(name).can_read(path):
                # tools whose files are plain Chrome traces go by the name; who knows the content is asked before them
                if not _reads_plainly(name):
                    return name
                by_name = by_name or name
        except failures() as error:  # a plug-in's fault is named, and the other readers are asked
            problems.append(f"tool {name!r} could not say whether it reads {path}: {text_of(error)}")
    return by_name if by_name is not None and not sqlite.is_one(path) else None


def looks_like_chrome(path: str) -> bool:
    """By content: gzip, or text that begins as JSON does. Empty files are left to the reader, which names them."""
    if os.path.isdir(path):
        return False
    try:
        with open(path, "rb") as file:
            head = file.read(256)
    except OSError as error:
        raise ReadError(path, f"it cannot be read: {error.strerror or error}") from error
    return not head or head.startswith(GZIP) or head.removeprefix(UTF8_MARK).lstrip()[:1] in (b"{", b"[")
