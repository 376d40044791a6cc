"""Readers of what AMD's tools leave: formats by name and (cheaply) content, each read into one :class:`~accelprof.contracts.spans.Trace`."""

from __future__ import annotations

import csv
import importlib
import os
from collections.abc import Mapping

from accelprof.contracts.spans import Trace
from accelprof.errors import ReadError
from accelprof.reading import sqlite
from accelprof_rocm.readers.packed import head_of

#: format -> the module that reads it
MODULES: Mapping[str, str] = {
    "json": "sdk_json",
    "csv": "sdk_csv",
    "rocpd": "rocpd",
    "rocpd-sys": "rocpd",
    "pftrace": "perfetto_proto",
    "proto": "perfetto_proto",
    "metadata": "sys_metadata",
}
#: tool -> formats that it writes
FORMATS = {"rocprofv3": {"json", "csv", "rocpd", "pftrace"}, "rocprof_sys": {"proto", "metadata", "rocpd-sys"}}


def format_of(path: str) -> str | None:
    """The format of ``path``, or ``None`` when it is none of AMD's."""
    if os.path.isdir(path):
        return None
    name = os.path.basename(path).removesuffix(".gz")
    if sqlite.is_one(path):
        if not sqlite.mentions(path, b"rocpd_"):
            return None
        return "rocpd-sys" if name.startswith("rocpd") or "-rocpd" in name else "rocpd"
    head = head_of(path)
    if head.lstrip()[:1] == b"{":
        if b'"rocprofiler-sdk-tool"' in head[:4096]:
            return "json"
        is_metadata = name.endswith(".json") and "metadata" in name and (b"rocprof" in head or b"omnitrace" in head)
        return "metadata" if is_metadata else None
    if name.endswith(".pftrace"):
        return "pftrace"
    if name.endswith(".proto") and "perfetto" in name:
        return "proto"
    return "csv" if _is_csv(head) else None


def _is_csv(head: bytes) -> bool:
    from accelprof_rocm.readers.sdk_csv import SHAPES

    lines = head.decode("utf-8", "replace").splitlines()
    row = next(csv.reader(lines[:1]), []) if lines else []
    return any(shape <= set(row) for shape in SHAPES)


def read(path: str, tool: str) -> Trace:
    """Read one file.

    Raises:
        ReadError: it is none of AMD's formats, or not readable as a whole.
    """
    if not os.path.exists(path):
        raise ReadError(path, "no such file")
    if os.path.isfile(path) and os.path.getsize(path) == 0:
        raise ReadError(path, "empty file")
    found = format_of(path)
    if found is None:
        raise ReadError(path, "none of the formats of rocprofv3 and rocprof-sys")
    module = importlib.import_module(f"accelprof_rocm.readers.{MODULES[found]}")
    trace: Trace = module.read(path, tool)
    return trace
