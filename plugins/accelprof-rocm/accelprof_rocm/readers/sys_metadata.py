"""The ``metadata-<pid>.json`` of rocprof-sys: which files it wrote. Its environment is left out: it may hold secrets."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from accelprof.contracts.spans import Trace
from accelprof.errors import ReadError
from accelprof_rocm.readers.packed import content


def read(path: str, tool: str) -> Trace:
    """A trace without spans; ``metadata["output"]`` lists ``{"kind", "key", "files"}``."""
    try:
        data = msgspec.json.decode(content(path))
    except msgspec.DecodeError as error:
        raise ReadError(path, f"not valid JSON: {error}") from None
    found = next(_metadata(data), None)
    if found is None:
        raise ReadError(path, "no 'metadata' with an 'output' in it")
    trace = Trace(path, tool)
    trace.metadata["format"] = "rocprof-sys metadata"
    trace.metadata["output"] = list(_output(found["output"]))
    missing = [name for row in trace.metadata["output"] for name in row["files"] if not os.path.exists(name)]
    trace.problems += [f"listed, but not there: {name}" for name in missing]
    return trace


def _metadata(data: Any) -> Iterator[Mapping[str, Any]]:
    if not isinstance(data, dict):
        return
    found = data.get("metadata")
    if isinstance(found, dict) and isinstance(found.get("output"), dict):
        yield found
    for value in data.values():
        yield from _metadata(value)


def _output(output: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for kind, rows in output.items():
        for row in rows if isinstance(rows, list) else [rows]:
            if isinstance(row, dict) and "value" in row:
                value = row["value"]
                files = [str(item) for item in value] if isinstance(value, list) else [str(value)]
                yield {"kind": kind, "key": row.get("key"), "files": files}
