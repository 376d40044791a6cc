"""Which reader takes which file; a whole ``*_ascend_pt`` directory is read through the best of what its analysis left."""

from __future__ import annotations

import glob
import json
import os
from typing import Any

from accelprof.contracts.spans import Origin, Trace
from accelprof.errors import ReadError
from accelprof_ascend import database, directory, tables
from accelprof_ascend.trace_view import read_trace_view

_JSON = (
    "communication.json",
    "communication_matrix.json",
    "cluster_communication.json",
    "cluster_communication_matrix.json",
)


def can_read(path: str) -> bool:
    """Directories of torch_npu's profiler, the files of its analysis and of ``msprof-analyze cluster``."""
    name = os.path.basename(path.rstrip(os.sep))
    if name.endswith(directory.SUFFIX):
        return True
    if name == "trace_view.json" or name in _JSON or tables.reader(path) is not None:
        return True
    return name.endswith(".db") and database.can_read(path)


def read(path: str, tool: str = "npu") -> Trace:
    """Spans of a file or directory.

    Raises:
        ReadError: nothing that can be read; for a directory that was never analysed, how to do it.
    """
    if os.path.isdir(path):
        return _read_directory(path, tool)
    name = os.path.basename(path)
    if name.endswith(".db"):
        trace = database.read_database(path, tool)
    elif name in _JSON:
        trace = _read_json(path, tool)
    elif (reader := tables.reader(path)) is not None:
        trace = reader(path, tool)
    else:
        trace = read_trace_view(path, tool)
    return trace


def _read_json(path: str, tool: str) -> Trace:
    """Communication summaries as they are, in ``metadata["communication"]``: their numbers have no place in time."""
    try:
        with open(path, encoding="utf-8") as file:
            value: Any = json.load(file)
    except (OSError, ValueError) as error:
        raise ReadError(path, str(error)) from error
    return Trace(source=path, tool=tool, metadata={"communication": value})


def _read_directory(path: str, tool: str) -> Trace:
    output = os.path.join(glob.escape(path), directory.OUTPUT)
    found = [
        *glob.glob(os.path.join(output, "trace_view.json")),
        *glob.glob(os.path.join(output, "ascend_pytorch_profiler*.db")),
    ]
    if not found:
        said = directory.failure(path)
        raise ReadError(
            path,
            f"its analysis failed: {said}"
            if said
            else "it has not been analysed; `accelprof analyse DIR` does it where torch_npu is installed",
        )
    trace = read(found[0], tool)
    trace.source = path
    trace.metadata["read"] = os.path.relpath(found[0], path)
    for table in glob.glob(os.path.join(output, "step_trace_time.csv")):
        trace.metadata.setdefault("steps", tables.step_times(table, trace.problems))
    said = directory.failure(path)
    if said:
        trace.problems.append(f"the analysis was not whole: {said}")
    origin = trace.origin
    if origin.rank is None:
        trace.origin = Origin(rank=directory.rank_of(path), host=origin.host, pid=origin.pid)
    return trace
