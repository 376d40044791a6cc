"""Spans of any tool as events of a timeline: which row they stand on, what it is called, what goes with them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from accelprof.contracts.spans import Mark, Span, Trace

_encoder = msgspec.json.Encoder()


class Tracks:
    """Rows of a file that is no Chrome trace: host work by process, thread and task; device work by device and by the
    process and track it stands on in the file, so that two tracks with one number are two rows.

    A reader that knows names leaves them in ``metadata``: ``process_names`` by pid and ``thread_names`` by pid and tid.
    """

    def __init__(self, trace: Trace) -> None:
        self.threads: dict[tuple[Any, Any], str] = {}
        self.processes: dict[Any, str] = {}
        self._names: Mapping[Any, str] = trace.metadata.get("process_names", {})
        self._tracks: Mapping[Any, Mapping[Any, str]] = trace.metadata.get("thread_names", {})
        self._rows: dict[Any, tuple[Any, Any]] = {}

    def row(self, item: Span | Mark) -> tuple[Any, Any]:
        """The process and the thread to draw it on; both as they are shown where they are text."""
        device, stream = (item.device, item.stream) if isinstance(item, Span) else (None, None)
        task = item.task if isinstance(item, Span) else ""
        key = (item.pid, item.tid, task, device, stream)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = self._made(item, device, stream, task)
        return row

    def _made(self, item: Span | Mark, device: object, stream: object, task: str) -> tuple[Any, Any]:
        known = self._tracks.get(item.pid, {}).get(item.tid)
        if device is None:
            row: tuple[Any, Any] = (item.pid, item.tid if not task else f"{item.tid} {task}")
            if known is not None or task:
                self.threads[row] = " ".join(filter(None, (known or f"thread {item.tid}", task)))
            if item.pid in self._names:
                self.processes[item.pid] = self._names[item.pid]
            return row
        process = self._names.get(item.pid)
        pid = f"device {device}" + (f", {process}" if process else "")
        if process:
            self.processes[pid] = pid
        row = (pid, f"stream {stream} of {item.pid}, {item.tid}")
        self.threads[row] = known or f"stream {stream}"
        return row


def arguments(item: Span | Mark) -> msgspec.Raw:
    """Arguments of an event that keep what a span has beside its times."""
    extra = (("domain", item.domain), ("category", item.category), ("color", item.color))
    return msgspec.Raw(_encoder.encode({**_plain(item.args), **{key: value for key, value in extra if value}}))


def _plain(values: Mapping[str, object]) -> dict[str, Any]:
    """Arguments that strict JSON can hold; others as text."""
    return {str(key): _plain_value(value) for key, value in values.items()}


def _plain_value(value: object) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain_value(item) for item in value]
    return _plain(value) if isinstance(value, Mapping) else str(value)
