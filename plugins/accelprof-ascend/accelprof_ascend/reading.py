"""Which reader takes which file; a whole ``*_ascend_pt`` directory is read through the best of what its analysis left."""

from __future__ import annotations

import glob
import os
import shlex

from accelprof.contracts.spans import Origin, Trace
from accelprof.errors import ReadError
from accelprof.reading import sqlite
from accelprof.reading.gzipped import is_json
from accelprof_ascend import database, directory, figures, tables
from accelprof_ascend.trace_view import is_one, read_trace_view

#: name -> whether it holds times of collectives (else links between ranks, kept as they are)
_JSON = {
    "communication.json": True,
    "cluster_communication.json": True,
    "communication_matrix.json": False,
    "cluster_communication_matrix.json": False,
}
#: tables of an analysis that a whole directory is read with
_BESIDE = ("step_trace_time.csv", "memory_record.csv", "operator_memory.csv", "communication.json")


def can_read(path: str) -> bool:
    """Directories of torch_npu's profiler, the files of its analysis and of ``msprof-analyze cluster``."""
    name = os.path.basename(path.rstrip(os.sep))
    if name.endswith(directory.SUFFIX):
        return True
    if name in _JSON or tables.reader(path) is not None:
        return not sqlite.is_one(path)
    if sqlite.is_one(path):
        return database.can_read(path)
    return is_one(path, called=name == "trace_view.json")


def read(path: str, tool: str = "npu") -> Trace:
    """Spans of a file or directory.

    Raises:
        ReadError: nothing that can be read; for a directory that was never analysed, how to do it.
    """
    if os.path.isdir(path):
        return _read_directory(path, tool)
    name = os.path.basename(path)
    if (name.endswith(".db") and not is_json(path)) or sqlite.is_one(path):
        trace = database.read_database(path, tool)
    elif name in _JSON:
        trace = figures.read_communication(path, tool) if _JSON[name] else _read_json(path, tool)
    elif (reader := tables.reader(path)) is not None:
        trace = reader(path, tool)
    else:
        trace = read_trace_view(path, tool)
    return trace


def _read_json(path: str, tool: str) -> Trace:
    """A communication matrix as it is, in ``metadata["communication"]``."""
    return Trace(source=path, tool=tool, metadata={"communication": figures.load(path)})


def _read_directory(path: str, tool: str) -> Trace:
    output = os.path.join(glob.escape(path), directory.OUTPUT)
    found = [
        *glob.glob(os.path.join(output, "trace_view.json")),
        *glob.glob(os.path.join(output, "ascend_pytorch_profiler*.db")),
    ]
    if not found:
        raise ReadError(path, _why_unread(path))
    trace = read(found[0], tool)
    trace.source = path
    trace.metadata["read"] = os.path.relpath(found[0], path)
    for name in _BESIDE:
        beside = os.path.join(path, directory.OUTPUT, name)
        if not os.path.exists(beside) or (name == "step_trace_time.csv" and "steps" in trace.metadata):
            continue
        try:
            further = read(beside, tool)
        except ReadError as error:
            trace.problems.append(f"{name} was not read: {error.reason}")
            trace.completeness.unread.append(name)
            continue
        trace.tables += further.tables
        trace.problems += [f"{name}: {line}" for line in further.problems]
        for key, value in further.metadata.items():
            trace.metadata.setdefault(key, value)
    said = directory.failure(path)
    if said:
        trace.problems.append(f"the analysis was not whole: {said}")
    origin = trace.origin
    if origin.rank is None:
        trace.origin = Origin(rank=directory.rank_of(path), host=origin.host, pid=origin.pid)
    return trace


def _why_unread(path: str) -> str:
    """What a directory without a timeline lacks, and what to do."""
    said = directory.failure(path)
    if said:
        return f"its analysis failed: {said}"
    analyse = f"`accelprof analyse {shlex.quote(path)}` makes them where torch_npu is installed"
    raw = directory.info_path(path) is not None or any(
        glob.glob(os.path.join(glob.escape(path), name)) for name in (directory.RAW, directory.FRAMEWORK)
    )
    output = os.path.join(path, directory.OUTPUT)
    if not os.path.isdir(output):
        if raw:
            return f"it has not been analysed: {directory.OUTPUT} is missing. {analyse}"
        return (
            f"it holds neither {directory.OUTPUT} nor data of a profile ({directory.RAW}, {directory.FRAMEWORK}); "
            "copy the whole directory from where it was recorded"
        )
    single = [name for name in sorted(os.listdir(output)) if can_read(os.path.join(output, name))]
    mends = [
        f"{analyse} (with --force where it was analysed before)" if raw else "copy them from where it was recorded"
    ]
    if single:
        mends.append(f"or give a file of it that is there: {', '.join(single[:8])}")
    wanted = " and ".join(directory.RESULTS.values())
    return f"{directory.OUTPUT} has neither of {wanted}, which hold its timeline. {'; '.join(mends)}"
