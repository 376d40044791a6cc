"""What each ROCm release's tools can do, as data. A row holds from its release on, until the next row.

Source: changelogs and sources of rocprofiler-systems, rocprofiler-sdk and omnitrace; docs/rocm.md names them row by row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

Release = tuple[int, int]

#: taken when nobody says and no tool is installed where the question is asked (the driver)
ASSUMED: Release = (7, 0)


def parse(text: str) -> Release:
    """``(6, 4)`` of ``"6.4"``, ``"6.4.1"``, ``"6.4.1-83"``.

    Raises:
        ValueError: it does not begin with two numbers.
    """
    parts = text.strip().replace("-", ".").split(".")
    if len(parts) < 2 or not all(part.isdigit() for part in parts[:2]):
        raise ValueError(f"{text!r} is no ROCm release; it begins with two numbers, as in '7.0'")
    return int(parts[0]), int(parts[1])


def show(release: Release) -> str:
    return f"{release[0]}.{release[1]}"


@dataclass(frozen=True)
class Sys:
    """rocprof-sys, or omnitrace before it.

    Attributes:
        programs: variant -> program.
        env: prefix of its settings.
        module: its Python module.
        legacy: it listens to roctracer's ``libroctx64``, once HIP is initialised, and aborts on a pop it saw no push for.
        regions: ``SELECTED_REGIONS`` names ROCTX ranges (comma-separated, compared as they are with what roctxRangeStartA is
            given): recording waits until such a range is started and stops with it. roctxProfilerResume alone starts nothing.
        domains: ``ROCM_DOMAINS`` is read; before that each kind of record has a setting of its own (see ``ROCTRACER``).
        rocpd_python: the Python launcher can write rocpd (it crashed before).
        settings: settings (without prefix) that a window needs beside those of every release.
    """

    programs: Mapping[str, str]
    env: str
    module: str
    legacy: bool
    regions: bool
    domains: bool
    rocpd_python: bool
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class V3:
    """rocprofv3.

    Attributes:
        arguments: what a user who chose nothing gets: HIP calls, kernels, copies, markers, RCCL where it is known.
        format: output format when none is chosen.
        pause: ``--selected-regions`` is known.
        overlapping: ranges by id may overlap and cross threads; a pop on an empty stack is harmless.
    """

    arguments: tuple[str, ...]
    format: str
    pause: bool
    overlapping: bool


_OMNITRACE = {"python": "omnitrace-python", "run": "omnitrace-run", "sample": "omnitrace-sample"}
_ROCPROF_SYS = {"python": "rocprof-sys-python", "run": "rocprof-sys-run", "sample": "rocprof-sys-sample"}
#: up to 6.3 markers are off unless asked for; later releases have no such setting
_ROCTX_ON = {"USE_ROCTX": "true"}
#: the name of the range that is open while a window is, where ``Sys.regions`` holds
REGION = "accelprof_window"

SYS: Sequence[tuple[Release, Sys]] = (
    ((5, 0), Sys(_OMNITRACE, "OMNITRACE_", "omnitrace", True, False, False, False, _ROCTX_ON)),
    ((6, 3), Sys(_ROCPROF_SYS, "ROCPROFSYS_", "rocprofsys", True, False, False, False, _ROCTX_ON)),
    ((6, 4), Sys(_ROCPROF_SYS, "ROCPROFSYS_", "rocprofsys", False, False, True, False)),
    ((7, 2), Sys(_ROCPROF_SYS, "ROCPROFSYS_", "rocprofsys", False, False, True, True)),
    ((7, 13), Sys(_ROCPROF_SYS, "ROCPROFSYS_", "rocprofsys", False, True, True, True)),
)
V3S: Sequence[tuple[Release, V3]] = (
    ((6, 2), V3(("--hip-trace", "--marker-trace", "--kernel-trace", "--memory-copy-trace"), "csv", False, False)),
    ((6, 3), V3(("--runtime-trace",), "json", False, False)),
    ((7, 0), V3(("--runtime-trace",), "rocpd", True, True)),
)

_Row = TypeVar("_Row")


def at(table: Sequence[tuple[Release, _Row]], release: Release) -> _Row:
    """The row that holds for ``release``; the first one for anything older."""
    found = table[0][1]
    for since, row in table:
        if since <= release:
            found = row
    return found
