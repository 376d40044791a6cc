"""What the conformance kit looks for in the files of a tool: who reads them, what is in them, and that there are no others."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from unittest import mock

from accelprof.analysis.holders import launches_of
from accelprof.contracts.spans import DEVICE_WORK, Clock, Kind, Trace, merge_intervals
from accelprof.contracts.tool import Tool
from accelprof.reading.columns import NONE, columns_of

#: how far a file's times may lie outside its window by clocks that are read apart
_SLACK_NS = 5_000_000_000


def union_ns(intervals: Iterable[tuple[int, int]]) -> int:
    """Length in ns of the union of ``(start, end)`` intervals; overlaps count once."""
    return sum(end - start for start, end in merge_intervals(intervals))


def read_apart(tool: Tool, path: str, seconds: float) -> Any:
    """What ``read`` returns, on a thread of its own: one that hangs is named, and so is one that asks the network."""
    asked: list[str] = []

    def refuse(*address: object, **_: object) -> object:
        asked.append(repr(address[-1] if isinstance(address[0], socket.socket) else address[:2]))
        raise OSError("a reader reads files")

    answer: list[Any] = []

    def work() -> None:
        try:
            answer.extend((tool.read(path), None))
        except BaseException as error:  # noqa: BLE001 - raised below, on the test's own thread
            answer.extend((None, error))

    with contextlib.ExitStack() as patched:
        for place, name in ((socket.socket, "connect"), (socket.socket, "connect_ex"), (socket, "getaddrinfo")):
            patched.enter_context(mock.patch.object(place, name, refuse))
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(seconds)
    assert not asked, f"read({path!r}) asked the network for {asked[0]}; a reader has the file alone"
    assert answer, f"read({path!r}) did not come back within {seconds:g} s; where it may take longer, set read_seconds"
    if answer[1] is not None:
        raise answer[1]
    return answer[0]


def sound(path: str, trace: Trace, window: Mapping[str, Any]) -> None:
    """Kinds and times of the spans are such as there are; where times are the epoch's, they lie in the window."""
    opened, closed = (window[edge]["epoch_ns"] for edge in ("opened", "closed"))
    for span in trace.spans:
        assert isinstance(span.kind, Kind), (
            f"read({path!r}): span {span.name!r} has kind {span.kind!r}; one of accelprof.contracts.spans.Kind is expected: "
            f"{', '.join(kind.name for kind in Kind)}"
        )
        assert isinstance(span.name, str), f"read({path!r}): a span is called {span.name!r}; a text is expected"
        times = (span.start_ns, span.end_ns)
        assert all(isinstance(at, int) for at in times), (
            f"read({path!r}): span {span.name!r} has times {times}; whole ns are expected"
        )
        assert span.end_ns >= span.start_ns, (
            f"read({path!r}): span {span.name!r} ends {span.start_ns - span.end_ns} ns before it begins"
        )
        if trace.clock is Clock.EPOCH:
            outside = max(opened - _SLACK_NS - span.end_ns, span.start_ns - closed - _SLACK_NS)
            assert outside <= 0, (
                f"read({path!r}): span {span.name!r} lies {outside / 1e9 + 5:.1f} s outside its window; "
                "times of Clock.EPOCH are ns since 1970, and files hold their own window alone"
            )
    assert not trace.spans or any(span.end_ns > span.start_ns for span in trace.spans), (
        f"read({path!r}): each of the {len(trace.spans)} spans ends where it begins; the lengths are lost"
    )


def launched(path: str, trace: Trace) -> None:
    """Each piece of device work has a device, and in the file a launch on the host that it may come from."""
    homeless = [span.name for span in trace.of_kind(*DEVICE_WORK) if span.device is None]
    assert not homeless, (
        f"read({path!r}): {len(homeless)} pieces of device work have no device (the first is {homeless[0]!r}); "
        "without Span.device they make none busy"
    )
    columns = columns_of(trace)
    work = columns.work()
    launches, _ = launches_of(columns, work)
    for row, launch in zip(work.tolist(), launches.tolist(), strict=True):
        name = columns.names[columns.name[row]]
        number = columns.args(row).get("correlation", int(columns.correlation[row]))
        assert launch != NONE, (
            f"read({path!r}): {int((launches == NONE).sum())} of {work.size} pieces of device work have no launch, and belong to no "
            f"phase: {name!r} has {'no correlation' if number == NONE else f'correlation {number!r}, which no call of the host has'}; "
            'the launch (Kind.RUNTIME) and its work carry the same args["correlation"]'
        )
        apart = int(columns.start[row] - columns.start[launch])
        assert abs(apart) <= _SLACK_NS, (
            f"read({path!r}): {name!r} begins {abs(apart) / 1e9:.1f} s {'after' if apart > 0 else 'before'} its launch: "
            "the times of host and device are of two clocks"
        )


def from_the_file(tool: Tool, path: str, trace: Trace, seconds: float) -> None:
    """``read`` has what it says from the file: it says the same of a copy elsewhere, and not of a copy full of zeros."""
    kept = _figures(trace)
    with tempfile.TemporaryDirectory(prefix="accelprof-kit-") as place:
        beside = os.path.join(place, "copy")
        shutil.copytree(os.path.dirname(path.rstrip(os.sep)), beside)
        copy = os.path.join(beside, os.path.basename(path.rstrip(os.sep)))
        try:
            again = _figures(read_apart(type(tool)(), copy, seconds))
        except Exception as error:
            raise AssertionError(
                f"read() of a copy of {path} under another directory raised {type(error).__name__}: {error}; a reader has "
                "the file alone, in whatever process and wherever it lies"
            ) from error
        assert again == kept, (
            f"read() of a copy of {path} under another directory has other spans than that of the file"
        )
        if not kept:
            return
        for where, _, names in os.walk(beside):
            for name in names:
                with open(os.path.join(where, name), "r+b") as file:
                    file.write(bytes(os.fstat(file.fileno()).st_size))
        with contextlib.suppress(Exception):  # that it is no file of this tool is the right answer
            found = _figures(read_apart(type(tool)(), copy, seconds))
            if found == kept:
                copy = ""
    assert copy, (
        f"read() of {path} says the same when the file is full of zeros: it answers from memory, not from the file"
    )


def _figures(trace: Any) -> list[tuple[object, ...]]:
    return sorted((span.name, span.kind.value, span.end_ns - span.start_ns) for span in trace.spans)


@contextlib.contextmanager
def nowhere_else() -> Iterator[str]:
    """An output directory; whoever leaves something beside the run in it, or in the working directory, is named."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="accelprof-kit-", ignore_cleanup_errors=True) as place:
        work, output = os.path.join(place, "work"), os.path.join(place, "output")
        os.makedirs(work)
        os.makedirs(output)
        os.chdir(work)
        try:
            yield output
            strange = [
                os.path.join(where, name)
                for where, _, names in os.walk(place)
                for name in names
                if where == output or not where.startswith(output)
            ]
            assert not strange, (
                f"the tool wrote outside its run's directory: {strange[:5]}; WindowInfo.stem says where files go"
            )
        finally:
            os.chdir(before)
