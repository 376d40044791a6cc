"""``*_ascend_pt`` directories: names, what a complete one holds, what an analysis must have left.

MindStudio Insight opens the common parent of several such directories as a cluster, one rank each; so every window has a
parent of its own, in which each rank leaves one directory.
"""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from accelprof import atomic
from accelprof.contracts.targets import WindowInfo
from accelprof.output.layout import safe, steps_text

SUFFIX = "_ascend_pt"
OUTPUT = "ASCEND_PROFILER_OUTPUT"
RAW = "PROF_*"
FRAMEWORK = "FRAMEWORK"
INFO = re.compile(r"^profiler_info(?:_(\d+))?\.json$")
#: added to a directory's name for what record_op_args writes
OPERATOR_ARGUMENTS = "_op_args"
FAILED = "accelprof-analysis-failed.txt"
#: what an analysis must leave for each export type
RESULTS = {"text": "trace_view.json", "db": "ascend_pytorch_profiler*.db"}


def parent_of(window: WindowInfo) -> str:
    """Where all ranks put their directory of this window, ``<group>/npu-s2-w0001``: never two of one rank in it."""
    parts = ["npu"]
    if window.steps:
        parts.append(f"s{steps_text(window.steps)}")
    if window.phase:
        parts.append(safe(window.phase, 60))
    parts.append(f"w{window.sequence:04d}")
    return os.path.join(os.path.dirname(window.stem), "-".join(parts))


def worker_of(window: WindowInfo) -> str:
    """The name to which torch_npu adds pid, time and ``_ascend_pt``: unique in the run, so no two windows collide."""
    return os.path.basename(window.stem)


def is_one(path: str) -> bool:
    """Whether ``path`` is a directory that torch_npu's profiler made."""
    return path.rstrip(os.sep).endswith(SUFFIX) and os.path.isdir(path)


def find(root: str) -> list[str]:
    """All such directories at or below ``root``, sorted."""
    if is_one(root):
        return [os.path.abspath(root)]
    found = []
    for place, names, _ in os.walk(root):
        for name in list(names):
            if name.endswith(SUFFIX):
                names.remove(name)
                found.append(os.path.abspath(os.path.join(place, name)))
    return sorted(found)


def info_path(path: str) -> str | None:
    """Its ``profiler_info.json`` or ``profiler_info_<rank>.json``, which only a stopped profile leaves."""
    try:
        names = sorted(os.listdir(path))
    except OSError:
        return None
    found = [name for name in names if INFO.match(name)]
    return os.path.join(path, found[-1]) if found else None


def rank_of(path: str) -> int | None:
    """The rank in the name of its ``profiler_info_<rank>.json``; ``None`` when it does not say."""
    info = info_path(path)
    match = INFO.match(os.path.basename(info)) if info else None
    return int(match.group(1)) if match and match.group(1) else None


def give_rank(path: str, rank: int) -> None:
    """Write the rank where torch_npu would have (it asks ``RANK`` and torch.distributed only); others' answers stay."""
    info = info_path(path)
    if info is None or rank_of(path) is not None:
        return
    with open(info, encoding="utf-8") as file:
        value = json.load(file)
    value["rank_id"] = rank
    target = os.path.join(path, f"profiler_info_{rank}.json")
    with atomic.whole(target) as temporary:
        Path(temporary).write_text(json.dumps(value, indent=4), encoding="utf-8")
        os.chmod(temporary, os.stat(info).st_mode & 0o777)
    os.unlink(info)


def faults(path: str, contents: Sequence[str], device_data: bool) -> list[str]:
    """What is missing in a directory whose profile has stopped, one line each; empty = complete.

    ``device_data``: whether CANN must have left files below ``PROF_*/device_*`` (not at level_none).
    """
    if not os.path.isdir(path):
        return [f"{path} does not exist"]
    found = []
    if info_path(path) is None:
        found.append("profiler_info.json is missing: the profile was not stopped in order")
    if "cpu" in contents and not _filled(os.path.join(path, FRAMEWORK)):
        found.append("FRAMEWORK/ holds no data of the host side")
    if "npu" in contents:
        below = "device_*" if device_data else "*"
        if not any(_filled(place) for place in glob.glob(os.path.join(glob.escape(path), RAW, below))):
            found.append(
                f"CANN left no data (no file below {RAW}/{below}): starting its profiler failed, or the device did nothing; CANN's own log says more (~/ascend/log unless ASCEND_PROCESS_LOG_PATH is set)"
            )
    return found


def _filled(place: str) -> bool:
    return any(os.path.getsize(file) for file in _files(place))


def _files(place: str) -> Iterator[str]:
    for root, _, names in os.walk(place):
        for name in names:
            yield os.path.join(root, name)


def results(path: str, export: str) -> list[str]:
    """What an analysis left for ``export`` (``db`` or ``text``); files of nothing do not count."""
    pattern = os.path.join(glob.escape(path), OUTPUT, RESULTS[export])
    return sorted(file for file in glob.glob(pattern) if os.path.getsize(file))


def note_failure(path: str, reason: str) -> None:
    """Leave the reason beside results that are not whole; the next analysis makes the directory anew."""
    place = os.path.join(path, OUTPUT)
    if os.path.isdir(place):
        with open(os.path.join(place, FAILED), "w", encoding="utf-8") as file:
            file.write(reason + "\n")


def failure(path: str) -> str:
    """What :func:`note_failure` left; empty when nothing."""
    try:
        with open(os.path.join(path, OUTPUT, FAILED), encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def analysed(path: str, exports: Sequence[str]) -> bool:
    """Whether every wanted result is there and not older than the data. ``analyse.done`` is left even by failures."""
    if failure(path):
        return False
    info = info_path(path)
    data = os.path.getmtime(info) if info else 0.0
    return all(any(os.path.getmtime(file) >= data for file in results(path, export)) for export in exports)


def recorded_exports(path: str) -> tuple[str, ...]:
    """The export types its own configuration asks for; ``text`` where it does not say."""
    info = info_path(path)
    try:
        with open(info or "", encoding="utf-8") as file:
            value: Any = json.load(file)["config"]["experimental_config"]["_export_type"]
    except (OSError, ValueError, KeyError, TypeError):
        return ("text",)
    words = [value] if isinstance(value, str) else list(value or ())
    return tuple(word for word in ("db", "text") if word in words) or ("text",)
